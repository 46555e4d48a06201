/* Members of groups come from truth into the views: all of them, once, with their group's activity.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "model/inbox.h"
#include "model/truth.h"
#include "plain_db.h"
#include "view/memory/memory.h"

enum { CROWD = 10050 /* more than is read at once */, LIST = 20 };

struct fixture {
    struct manual_clock clock;
    struct id_gen ids;
    struct plain_db *plain;
    struct db *db;
    struct views *views;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    manual_clock_init(&f->clock, INT64_C(1800000000000));
    id_gen_init(&f->ids, &f->clock.clock, 1);
    f->plain = plain_db_new(&f->clock.clock, &f->ids);
    f->db = plain_db_port(f->plain);
    struct memory_views_config config = {
        .timeline_cap = 10, .pull_cap = 10, .clock = &f->clock.clock};
    assert_int_equal(views_memory_open(&config, &f->views), OK);
    f->views->remote = true; /* in small slices */
    /* Group 1: 200 … 10249 joined with 1000 + themselves, nothing was said. Group 2: the first
     * three of them, the last message is 5000; 201 has left. Group 3: no members any more. */
    plain_db_run(f->plain, "INSERT INTO groups (id, kind, name, created_by, member_count, last_id) "
                           "VALUES (1, 0, 'a', 200, 10050, 0), (2, 0, 'b', 200, 2, 5000), "
                           "(3, 0, 'c', 200, 0, 70)");
    plain_db_run(f->plain,
                 "WITH RECURSIVE n(i) AS (SELECT 200 UNION ALL SELECT i + 1 FROM n WHERE i < 10249)"
                 "INSERT INTO group_members (group_id, account_id, role, joined_seq, joined_id, "
                 "read_seq, read_count) SELECT 1, i, 2, 1, 1000 + i, 0, 0 FROM n");
    plain_db_run(f->plain, "INSERT INTO group_members (group_id, account_id, role, joined_seq, "
                           "joined_id, left_seq, read_seq, read_count) VALUES "
                           "(2, 200, 2, 1, 7, NULL, 0, 0), (2, 201, 2, 2, 8, 3, 0, 0), "
                           "(2, 202, 2, 4, 6000, NULL, 0, 0), (3, 200, 2, 1, 9, 2, 0, 0)");
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    f->views->remote = false;
    views_free(f->views);
    plain_db_free(f->plain);
    free(f);
    return 0;
}

struct oracle {
    uint64_t who, groups[LIST], activities[LIST];
    size_t n;
};

static enum err read_oracle(struct tx *tx, void *arg)
{
    struct oracle *o = arg;
    return inbox_from_truth(tx, o->who, UINT64_MAX, false, LIST, o->groups, o->activities, &o->n);
}

static void members_are_loaded(void **state)
{
    struct fixture *f = *state;
    static uint64_t ids[CROWD + 1];
    size_t n;
    for (uint64_t who = 200; who <= 202; who++) { /* whose inboxes are there; the others' too */
        struct view_change c = {.kind = VIEW_ACCOUNT, .on = true, .account = who};
        assert_int_equal(views_apply(f->views, &c, 1), OK);
    }
    for (int again = 0; again < 2; again++)
        assert_int_equal(truth_load_views(f->db, f->views, NULL, NULL), OK);
    assert_int_equal(graph_neighbours(f->views->graph, 1, true, 0, ids, CROWD + 1, &n), OK);
    assert_int_equal(n, CROWD);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids[i], 200 + i);
    assert_int_equal(graph_neighbours(f->views->graph, 2, true, 0, ids, CROWD, &n), OK);
    assert_int_equal(n, 2);
    struct view_stats s;
    views_stats(f->views, &s);
    assert_int_equal(s.groups, 2);
    assert_int_equal(s.memberships, CROWD + 2);
    for (uint64_t who = 200; who <= 202; who++) {
        struct oracle o = {.who = who};
        struct inbox_entry out[LIST];
        assert_int_equal(db_read(f->db, read_oracle, &o, NULL), OK);
        assert_int_equal(inboxes_read(f->views->inboxes, who, UINT64_MAX, out, LIST, &n), OK);
        assert_int_equal(n, o.n);
        assert_int_equal(n, who == 201 ? 1 : 2);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(out[i].group, o.groups[i]);
            assert_int_equal(out[i].activity, o.activities[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(members_are_loaded, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
