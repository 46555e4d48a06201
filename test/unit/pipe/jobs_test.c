/* The jobs' table: limits, states, and what a change may touch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pipe/jobs.h"
#include "plain_db.h"

#define NOW_MS INT64_C(1800000000000)

struct fixture {
    struct manual_clock clock;
    struct id_gen ids;
    struct plain_db *plain;
    struct db *db;
    char detail[TX_DETAIL_MAX];
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    manual_clock_init(&f->clock, NOW_MS);
    id_gen_init(&f->ids, &f->clock.clock, 1);
    f->plain = plain_db_new(&f->clock.clock, &f->ids);
    f->db = plain_db_port(f->plain);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    plain_db_free(f->plain);
    free(f);
    return 0;
}

/* ---- one call each, in a transaction of its own ---- */

struct call {
    uint64_t id, position;
    struct job *job;
    struct job_counts add;
    enum job_state state;
    const char *note;
    int64_t now_ms;
    bool open;
};

static enum err run_create(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return job_create(tx, c->job, c->now_ms);
}

static enum err run_get(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return job_get(tx, c->id, c->job);
}

static enum err run_advance(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return job_advance(tx, c->id, c->position, &c->add, c->note, c->open, c->now_ms);
}

static enum err run_set_state(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return job_set_state(tx, c->id, c->state, c->note, c->now_ms);
}

static uint64_t create(struct fixture *f)
{
    struct job job = {
        .kind = "replay", .spec = "{}", .rate = 7, .position = 5, .last = 90, .total = 3};
    struct call c = {.job = &job, .now_ms = NOW_MS};
    assert_int_equal(db_write(f->db, run_create, &c, f->detail), OK);
    return job.id;
}

static struct job get(struct fixture *f, uint64_t id)
{
    struct job job;
    struct call c = {.id = id, .job = &job};
    assert_int_equal(db_read(f->db, run_get, &c, NULL), OK);
    return job;
}

static enum err set_state(struct fixture *f, uint64_t id, enum job_state state, const char *note)
{
    struct call c = {.id = id, .state = state, .note = note, .now_ms = NOW_MS + 9};
    return db_write(f->db, run_set_state, &c, f->detail);
}

static enum err advance(struct fixture *f, uint64_t id, uint64_t position, const char *note,
                        bool open)
{
    struct call c = {.id = id,
                     .position = position,
                     .add = {.seen = 5, .acted = 4, .repeated = 3, .suppressed = 2, .failed = 1},
                     .note = note,
                     .now_ms = NOW_MS + 7,
                     .open = open};
    return db_write(f->db, run_advance, &c, f->detail);
}

/* ---- tests ---- */

static void a_job_is_kept_as_it_was_given(void **state)
{
    struct fixture *f = *state;
    uint64_t id = create(f);
    struct job job = get(f, id);
    assert_int_equal(job.id, id);
    assert_string_equal(job.kind, "replay");
    assert_int_equal(job.state, JOB_RUNNING);
    assert_string_equal(job.spec, "{}");
    assert_int_equal(job.rate, 7);
    assert_int_equal(job.position, 5);
    assert_int_equal(job.last, 90);
    assert_int_equal(job.total, 3);
    assert_int_equal(job.counts.seen, 0);
    assert_int_equal(job.created_ms, NOW_MS);
    assert_int_equal(job.changed_ms, NOW_MS);
    assert_string_equal(job.note, "");
    struct call c = {.id = id + 1, .job = &job};
    assert_int_equal(db_read(f->db, run_get, &c, f->detail), ERR_NOT_FOUND);
    assert_string_equal(f->detail, "there is no such job");
}

static void only_so_many_are_open(void **state)
{
    struct fixture *f = *state;
    uint64_t ids[JOBS_OPEN_MAX];
    for (int i = 0; i < JOBS_OPEN_MAX; i++)
        ids[i] = create(f);
    assert_int_equal(set_state(f, ids[3], JOB_PAUSED, NULL), OK); /* still open */
    struct job job = {.kind = "replay", .spec = "{}"};
    struct call c = {.job = &job, .now_ms = NOW_MS};
    assert_int_equal(db_write(f->db, run_create, &c, f->detail), ERR_CONFLICT);
    assert_string_equal(f->detail,
                        "8 jobs are open, which is the limit: wait for one, or cancel one");
    assert_int_equal(set_state(f, ids[3], JOB_CANCELLED, NULL), OK);
    create(f);
    assert_int_equal(db_write(f->db, run_create, &c, f->detail), ERR_CONFLICT);
}

static void a_position_never_goes_back(void **state)
{
    struct fixture *f = *state;
    uint64_t id = create(f);
    assert_int_equal(advance(f, id, 40, "slow", false), OK);
    assert_int_equal(advance(f, id, 30, NULL, false), OK);
    struct job job = get(f, id);
    assert_int_equal(job.position, 40);
    assert_int_equal(job.counts.seen, 10);
    assert_int_equal(job.counts.acted, 8);
    assert_int_equal(job.counts.repeated, 6);
    assert_int_equal(job.counts.suppressed, 4);
    assert_int_equal(job.counts.failed, 2);
    assert_string_equal(job.note, "slow"); /* NULL leaves it */
    assert_int_equal(job.changed_ms, NOW_MS + 7);
    assert_int_equal(advance(f, id, 41, "", false), OK);
    assert_string_equal(get(f, id).note, "");
}

static void who_is_not_running_does_not_advance(void **state)
{
    struct fixture *f = *state;
    uint64_t id = create(f);
    assert_int_equal(set_state(f, id, JOB_PAUSED, "lunch"), OK);
    assert_int_equal(advance(f, id, 50, "x", false), ERR_CONFLICT);
    assert_string_equal(f->detail, "the job is paused and cannot be advanced");
    assert_int_equal(get(f, id).position, 5);
    assert_int_equal(get(f, id).counts.seen, 0);
    assert_int_equal(advance(f, id, 50, NULL, true), OK); /* what was under way counts */
    assert_int_equal(get(f, id).position, 50);
    assert_string_equal(get(f, id).note, "lunch");
    assert_int_equal(set_state(f, id, JOB_CANCELLED, NULL), OK);
    assert_int_equal(advance(f, id, 60, NULL, true), ERR_CONFLICT);
    assert_int_equal(get(f, id).position, 50);
    assert_int_equal(advance(f, 12345, 60, NULL, false), ERR_NOT_FOUND);
}

/* Every way from every state, with the words of each refusal. */
static void states_change_as_drawn(void **state)
{
    struct fixture *f = *state;
    static const bool allowed[JOB_STATES][JOB_STATES] = {
        [JOB_RUNNING] =
            {[JOB_PAUSED] = true, [JOB_DONE] = true, [JOB_CANCELLED] = true, [JOB_FAILED] = true},
        [JOB_PAUSED] = {[JOB_RUNNING] = true, [JOB_CANCELLED] = true},
    };
    static const char *const asked[JOB_STATES] = {"resumed", "paused", "finished", "cancelled",
                                                  "failed"};
    for (int from = 0; from < JOB_STATES; from++) {
        for (int to = 0; to < JOB_STATES; to++) {
            plain_db_clear(f->plain);
            uint64_t id = create(f);
            if (from != JOB_RUNNING)
                assert_int_equal(set_state(f, id, (enum job_state)from, "before"), OK);
            enum err e = set_state(f, id, (enum job_state)to, "after");
            assert_int_equal(e, allowed[from][to] ? OK : ERR_CONFLICT);
            assert_int_equal(get(f, id).state, allowed[from][to] ? to : from);
            char expected[100];
            snprintf(expected, sizeof expected, "the job is %s and cannot be %s",
                     job_state_name((enum job_state)from), asked[to]);
            if (e) {
                assert_string_equal(f->detail, expected);
                assert_string_not_equal(get(f, id).note, "after");
            }
        }
    }
    assert_int_equal(set_state(f, 999, JOB_PAUSED, NULL), ERR_NOT_FOUND);
}

static void a_long_note_is_cut_between_characters(void **state)
{
    struct fixture *f = *state;
    uint64_t id = create(f);
    char note[400];
    for (size_t i = 0; i + 3 < sizeof note; i += 3)
        memcpy(note + i, "€", 4); /* three bytes each: 159 is a whole number of them */
    assert_int_equal(advance(f, id, 6, note, false), OK);
    assert_int_equal(strlen(get(f, id).note), 159);
    note[0] = 'x';
    memmove(note + 1, note + 3, sizeof note - 3);
    assert_int_equal(advance(f, id, 7, note, false), OK);
    assert_int_equal(strlen(get(f, id).note), 157);
    assert_true(str_is_utf8(str_of(get(f, id).note)));
}

struct listing {
    bool open;
    uint64_t below;
    struct job jobs[20];
    size_t max, n;
};

static enum err run_list(struct tx *tx, void *arg)
{
    struct listing *l = arg;
    return job_list(tx, l->open, l->below, l->jobs, l->max, &l->n);
}

static void lists_are_newest_first_and_in_pages(void **state)
{
    struct fixture *f = *state;
    uint64_t ids[6];
    for (size_t i = 0; i < 6; i++)
        ids[i] = create(f);
    assert_int_equal(set_state(f, ids[1], JOB_DONE, NULL), OK);
    assert_int_equal(set_state(f, ids[2], JOB_PAUSED, NULL), OK);
    assert_int_equal(set_state(f, ids[4], JOB_FAILED, "why"), OK);
    struct listing *l = calloc(1, sizeof *l);
    *l = (struct listing){.below = UINT64_MAX, .max = 4};
    assert_int_equal(db_read(f->db, run_list, l, NULL), OK);
    assert_int_equal(l->n, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(l->jobs[i].id, ids[5 - i]);
    l->below = l->jobs[3].id;
    assert_int_equal(db_read(f->db, run_list, l, NULL), OK);
    assert_int_equal(l->n, 2);
    assert_int_equal(l->jobs[1].id, ids[0]);
    *l = (struct listing){.open = true, .below = UINT64_MAX, .max = 20};
    assert_int_equal(db_read(f->db, run_list, l, NULL), OK);
    assert_int_equal(l->n, 4);
    assert_int_equal(l->jobs[0].id, ids[5]);
    assert_int_equal(l->jobs[1].id, ids[3]);
    assert_int_equal(l->jobs[2].id, ids[2]);
    assert_int_equal(l->jobs[2].state, JOB_PAUSED);
    assert_int_equal(l->jobs[3].id, ids[0]);
    free(l);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_job_is_kept_as_it_was_given),
        TEST(only_so_many_are_open),
        TEST(a_position_never_goes_back),
        TEST(who_is_not_running_does_not_advance),
        TEST(states_change_as_drawn),
        TEST(a_long_note_is_cut_between_characters),
        TEST(lists_are_newest_first_and_in_pages),
    };
    return cmocka_run_group_tests_name("pipe/jobs", tests, NULL, NULL);
}
