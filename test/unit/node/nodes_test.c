/* Numbers of nodes: taking, keeping and freeing them. Time is moved by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node/nodes.h"
#include "plain_db.h"

struct fixture {
    struct manual_clock clock;
    struct id_gen ids;
    struct plain_db *plain;
    struct db *db;
    struct node_watch *watch;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    manual_clock_init(&f->clock, INT64_C(1800000000000));
    id_gen_init(&f->ids, &f->clock.clock, 1);
    f->plain = plain_db_new(&f->clock.clock, &f->ids);
    f->db = plain_db_port(f->plain);
    f->watch = node_watch_new(&f->clock.clock);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    node_watch_free(f->watch);
    plain_db_free(f->plain);
    free(f);
    return 0;
}

static int64_t now(const struct fixture *f)
{
    return f->clock.mono_us;
}

static struct node make_node(uint64_t token)
{
    struct node n = {.token = token,
                     .shown = {.roles = ROLE_API | ROLE_WORKER,
                               .version = "1.2",
                               .started_ms = (int64_t)token & 0xffff,
                               .report = {.known = true, .undone = 2}}};
    snprintf(n.shown.address, sizeof n.shown.address, "http://host:%u", (unsigned)(token & 0xffff));
    return n;
}

static uint32_t join(struct fixture *f, struct node *n)
{
    assert_int_equal(node_join(f->db, f->watch, n, now(f)), OK);
    return n->shown.number;
}

static void look(struct fixture *f)
{
    assert_int_equal(node_watch_look(f->watch, f->db, now(f)), OK);
}

static void numbers_are_given_from_the_lowest(void **state)
{
    struct fixture *f = *state;
    struct node a = make_node(UINT64_C(0xfedcba9876543210)), b = make_node(2), c = make_node(3);
    assert_int_equal(join(f, &a), 1);
    assert_int_equal(join(f, &b), 2);
    assert_int_equal(join(f, &c), 3);
    plain_db_run(f->plain, "DELETE FROM nodes WHERE number = 2");
    struct node d = make_node(4);
    assert_int_equal(join(f, &d), 2);
    struct cluster_node seen[4];
    look(f);
    assert_int_equal(node_watch_list(f->watch, seen, 4), 3);
    assert_int_equal(seen[0].number, 1);
    assert_int_equal(seen[0].roles, ROLE_API | ROLE_WORKER);
    assert_string_equal(seen[1].address, "http://host:4");
    assert_string_equal(seen[0].version, "1.2");
    assert_int_equal(seen[0].report.undone, 2);
    assert_int_equal(seen[1].started_ms, 4);
    assert_int_equal(node_watch_list(f->watch, seen, 1), 3);
}

static void a_restart_has_the_number_of_before(void **state)
{
    struct fixture *f = *state;
    struct node a = make_node(1), b = make_node(2);
    join(f, &a);
    join(f, &b);
    struct node again = make_node(1);
    again.shown.started_ms = 77;
    again.shown.roles = ROLE_RELAY;
    assert_int_equal(join(f, &again), 1);
    assert_true(again.beat > a.beat);
    assert_int_equal(plain_db_ask(f->plain, "SELECT count(*) FROM nodes"), 2);
    assert_int_equal(plain_db_ask(f->plain, "SELECT roles FROM nodes WHERE number = 1"),
                     ROLE_RELAY);
    /* the earlier process, if it still runs, gets an error */
    assert_int_equal(node_beat(f->db, &a), ERR_CONFLICT);
    assert_int_equal(node_beat(f->db, &again), OK);
}

static void a_beat_moves_and_tells(void **state)
{
    struct fixture *f = *state;
    struct node a = make_node(1);
    struct cluster_node seen;
    join(f, &a);
    look(f);
    manual_clock_advance(&f->clock, 3000);
    look(f);
    node_watch_list(f->watch, &seen, 1);
    assert_in_range(seen.silent_ms, 2000, 3000);
    a.shown.report.undone = 3;
    assert_int_equal(node_beat(f->db, &a), OK);
    look(f);
    node_watch_list(f->watch, &seen, 1);
    assert_int_equal(seen.silent_ms, 0);
    assert_int_equal(a.beat, 2);
    assert_int_equal(seen.report.undone, 3);
}

static void fill_all(struct fixture *f)
{
    plain_db_run(f->plain,
                 "INSERT INTO nodes (number, token, roles, address, version, started_at, beat) "
                 "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1023) "
                 "SELECT i, 100000 + i, 15, '', '', 0, 5 FROM n");
}

static void numbers_of_silent_nodes_are_free_after_a_watch(void **state)
{
    struct fixture *f = *state;
    struct node a = make_node(1);
    fill_all(f);
    assert_int_equal(node_join(f->db, f->watch, &a, now(f)), ERR_OVERLOADED);
    assert_int_equal(node_join(f->db, NULL, &a, now(f)), ERR_OVERLOADED);
    look(f);
    manual_clock_advance(&f->clock, NODE_SILENCE_MS - 1);
    assert_int_equal(node_join(f->db, f->watch, &a, now(f)), ERR_OVERLOADED);
    plain_db_run(f->plain, "UPDATE nodes SET beat = beat + 1 WHERE number <> 700");
    look(f);                               /* only 700 has not moved */
    manual_clock_advance(&f->clock, 5000); /* reading takes real time, which counts */
    assert_int_equal(join(f, &a), 700);
    assert_int_equal(plain_db_ask(f->plain, "SELECT token FROM nodes WHERE number = 700"), 1);
    struct node b = make_node(2);
    assert_int_equal(node_join(f->db, f->watch, &b, now(f)), ERR_OVERLOADED);
    /* whose number it was */
    struct node old = make_node(100700);
    old.shown.number = 700;
    old.shown.started_ms = 0;
    assert_int_equal(node_beat(f->db, &old), ERR_CONFLICT);
}

/* It spoke after the watch looked. */
static void a_beat_in_between_keeps_the_number(void **state)
{
    struct fixture *f = *state;
    struct node a = make_node(1);
    fill_all(f);
    look(f);
    manual_clock_advance(&f->clock, NODE_SILENCE_MS + 5000);
    plain_db_run(f->plain, "UPDATE nodes SET beat = beat + 1 WHERE number <> 3");
    assert_int_equal(join(f, &a), 3);
    struct node b = make_node(2);
    assert_int_equal(node_join(f->db, f->watch, &b, now(f)), ERR_OVERLOADED);
}

static void who_leaves_says_so_and_keeps_its_number(void **state)
{
    struct fixture *f = *state;
    struct node a = make_node(1), b = make_node(2);
    struct cluster_node seen;
    join(f, &a);
    assert_int_equal(node_leave(f->db, &a), OK);
    assert_true(a.shown.leaving);
    assert_int_equal(node_beat(f->db, &a), OK); /* still going */
    look(f);
    node_watch_list(f->watch, &seen, 1);
    assert_true(seen.leaving);
    assert_int_equal(join(f, &b), 2);
    struct node again = make_node(1);
    assert_int_equal(join(f, &again), 1);
    look(f);
    node_watch_list(f->watch, &seen, 1);
    assert_false(seen.leaving);
}

static void who_is_silent_for_long_is_forgotten(void **state)
{
    struct fixture *f = *state;
    struct node a = make_node(1), b = make_node(2);
    join(f, &a);
    join(f, &b);
    look(f);
    manual_clock_advance(&f->clock, NODE_FORGET_MS - 1);
    assert_int_equal(node_beat(f->db, &b), OK);
    look(f);
    assert_int_equal(plain_db_ask(f->plain, "SELECT count(*) FROM nodes"), 2);
    manual_clock_advance(&f->clock, 5000);
    look(f);
    assert_int_equal(plain_db_ask(f->plain, "SELECT min(number) FROM nodes"), 2);
    assert_int_equal(node_beat(f->db, &a), ERR_CONFLICT);
    struct node c = make_node(3);
    assert_int_equal(join(f, &c), 1);
}

static void a_store_that_is_away_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct node a = make_node(1);
    struct cluster_node seen;
    plain_db_faults(f->plain)->writes_fail = ERR_UNAVAILABLE;
    assert_int_equal(node_join(f->db, f->watch, &a, now(f)), ERR_UNAVAILABLE);
    assert_int_equal(a.shown.number, 0);
    plain_db_faults(f->plain)->writes_fail = OK;
    plain_db_faults(f->plain)->lose_replies = 1;
    assert_int_equal(node_join(f->db, f->watch, &a, now(f)), ERR_UNKNOWN_COMMIT);
    assert_int_equal(join(f, &a), 1); /* its token is there already */
    look(f);
    manual_clock_advance(&f->clock, 2000);
    plain_db_faults(f->plain)->reads_fail = true;
    assert_int_equal(node_watch_look(f->watch, f->db, now(f)), ERR_UNAVAILABLE);
    assert_int_equal(node_watch_list(f->watch, &seen, 1), 1);
    assert_int_equal(seen.silent_ms, 0); /* as of the last look */
}

static void roles_have_names(void **state)
{
    (void)state;
    unsigned roles = 99;
    char text[64];
    bool retired = true;
    assert_true(roles_parse(STR("api"), &roles, &retired));
    assert_int_equal(roles, ROLE_API);
    assert_false(retired);
    assert_true(roles_parse(STR("api,worker, relay,api"), &roles, &retired));
    assert_int_equal(roles, ROLE_ALL);
    roles_format(roles, text);
    assert_string_equal(text, "api,relay,worker");
    roles_format(ROLE_WORKER, text);
    assert_string_equal(text, "worker");
    assert_string_equal(role_name(ROLE_RELAY), "relay");
    static const char *const wrong[] = {"", ",", "api,", ",api", "API", "apis", "api worker"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(roles_parse(str_of(wrong[i]), &roles, &retired));
    assert_int_equal(roles, ROLE_ALL);
    /* a role of the version before, which did nothing */
    assert_true(roles_parse(STR("gateway,api"), &roles, &retired));
    assert_int_equal(roles, ROLE_API);
    assert_true(retired);
    assert_true(roles_parse(STR("gateway"), &roles, &retired));
    assert_int_equal(roles, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(numbers_are_given_from_the_lowest),
        CASE(a_restart_has_the_number_of_before),
        CASE(a_beat_moves_and_tells),
        CASE(numbers_of_silent_nodes_are_free_after_a_watch),
        CASE(a_beat_in_between_keeps_the_number),
        CASE(who_leaves_says_so_and_keeps_its_number),
        CASE(who_is_silent_for_long_is_forgotten),
        CASE(a_store_that_is_away_changes_nothing),
        cmocka_unit_test(roles_have_names),
    };
    return cmocka_run_group_tests_name("node/nodes", tests, NULL, NULL);
}
