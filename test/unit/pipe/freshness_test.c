/* Freshness from worked numbers: rates, catching up, verdicts, the headline. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "pipe/freshness.h"

#define SECOND INT64_C(1000000)

enum { PUSH, CLEAN, OWN_TARGET, UNSEEN, RULES };

static const struct rule rules[RULES] = {
    [PUSH] = {.consumer = "timelines",
              .on = EVENT_POST_CREATED,
              .lane = LANE_SMALL,
              .visible = true,
              .late_means = "new posts are missing"},
    [CLEAN] = {.consumer = "timelines",
               .on = EVENT_POST_DELETED,
               .lane = LANE_CLEANUP,
               .late_means = "nothing"},
    [OWN_TARGET] = {.consumer = "email",
                    .on = EVENT_FOLLOW_CREATED,
                    .lane = LANE_GRAPH,
                    .target_ms = 60000,
                    .visible = true,
                    .late_means = "mail comes late"},
    [UNSEEN] = {.consumer = "search", .on = EVENT_POST_EDITED, .lane = LANE_SMALL},
};

static struct freshness *f;
static int64_t now_us;

static int set_up(void **state)
{
    (void)state;
    f = freshness_new(rules, RULES);
    now_us = 500 * SECOND;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    freshness_free(f);
    return 0;
}

static void sample(const struct cell_raw *cells, size_t n)
{
    freshness_sample(f, cells, n, now_us);
}

static struct freshness_cell look_one(void)
{
    struct freshness_cell cell;
    size_t n;
    freshness_look(f, &cell, 1, &n, NULL);
    assert_int_equal(n, 1);
    return cell;
}

static struct freshness_headline headline(void)
{
    struct freshness_headline h;
    freshness_look(f, NULL, 0, NULL, &h);
    return h;
}

/* One cell over `seconds` at steady rates; the raw numbers go on from what they were. */
static void run(struct cell_raw *c, int seconds, uint64_t in, uint64_t out)
{
    for (int i = 0; i < seconds; i++) {
        now_us += SECOND;
        c->entered += in;
        c->left += out;
        c->backlog = c->entered - c->left;
        sample(c, 1);
    }
}

static void about(double value, double expected)
{
    assert_true(value > expected - 0.001 && value < expected + 0.001);
}

static void before_the_first_sample_nothing_is_said(void **state)
{
    (void)state;
    struct freshness_headline h = headline();
    assert_int_equal(h.worst_ms, 0);
    assert_null(h.consumer);
    assert_int_equal(h.green + h.late + h.behind + h.stopped, 0);
    struct freshness_cell cells[4];
    size_t n = 9;
    freshness_look(f, cells, 4, &n, NULL);
    assert_int_equal(n, 0);
    assert_false(freshness_is_late(f));
}

static void a_backlog_and_its_net_rate_give_the_time_to_catch_up(void **state)
{
    (void)state;
    /* A million waits; 2000 a second come, 5000 leave: 3000 net, 333.3 s from a million. */
    struct cell_raw c = {.rule = PUSH,
                         .lane = LANE_SMALL,
                         .entered = 1030000,
                         .backlog = 1030000,
                         .oldest_age_ms = 600000};
    sample(&c, 1);
    struct freshness_cell told = look_one();
    about(told.in_per_s, 0); /* one sample is no rate */
    about(told.out_per_s, 0);
    assert_int_equal(told.catch_up_ms, -1);
    assert_int_equal(told.verdict, FRESH_BEHIND);

    run(&c, 10, 2000, 5000);
    told = look_one();
    assert_int_equal(told.backlog, 1000000);
    about(told.in_per_s, 2000);
    about(told.out_per_s, 5000);
    assert_int_equal(told.catch_up_ms, 333334);
    assert_int_equal(told.verdict, FRESH_LATE);
    assert_int_equal(told.target_ms, 2000);
    assert_true(freshness_is_late(f));

    /* As much comes as leaves: never. Four seconds later the faster ones still count. */
    run(&c, 4, 5000, 5000);
    told = look_one();
    about(told.in_per_s, (6 * 2000 + 4 * 5000) / 10.0);
    assert_int_equal(told.verdict, FRESH_LATE);
    run(&c, 6, 5000, 5000);
    told = look_one();
    about(told.in_per_s, 5000);
    assert_int_equal(told.catch_up_ms, -1);
    assert_int_equal(told.verdict, FRESH_BEHIND);
}

static void within_its_target_a_cell_is_green_whatever_waits(void **state)
{
    (void)state;
    struct cell_raw c = {.rule = PUSH, .lane = LANE_SMALL, .oldest_age_ms = 2000};
    run(&c, 5, 1000, 10);
    assert_int_equal(look_one().verdict, FRESH_GREEN);
    assert_false(freshness_is_late(f));
    c.oldest_age_ms = 2001;
    sample(&c, 1); /* not yet time for a sample: ages change at once, rates do not */
    assert_int_equal(look_one().verdict, FRESH_BEHIND);
    assert_true(freshness_is_late(f));
    about(look_one().in_per_s, 1000);
}

static void what_has_no_undone_work_is_green(void **state)
{
    (void)state;
    struct cell_raw c = {.rule = PUSH, .lane = LANE_SMALL, .dead = 7, .stopped = true};
    sample(&c, 1);
    assert_int_equal(look_one().verdict, FRESH_GREEN);
    assert_int_equal(look_one().catch_up_ms, 0);
    assert_int_equal(headline().dead, 7);
    c.waiting = 1;
    sample(&c, 1);
    assert_int_equal(look_one().verdict, FRESH_STOPPED);
    assert_true(freshness_is_late(f));
    c.stopped = false;
    sample(&c, 1);
    assert_int_equal(look_one().verdict, FRESH_GREEN); /* age 0 */
    c.waiting = 0;
    c.delayed = 1;
    c.oldest_age_ms = 10000;
    sample(&c, 1);
    assert_int_equal(look_one().verdict, FRESH_BEHIND);
    assert_int_equal(look_one().catch_up_ms, 0); /* it waits for its time, not for its turn */
}

static void a_rule_may_have_its_own_target_and_a_replay_has_none(void **state)
{
    (void)state;
    struct cell_raw cells[] = {
        {.rule = OWN_TARGET, .lane = LANE_GRAPH, .backlog = 1, .oldest_age_ms = 59000},
        {.rule = OWN_TARGET,
         .lane = LANE_REPLAY,
         .backlog = 1,
         .oldest_age_ms = 86400000,
         .stopped = true},
    };
    sample(cells, 2);
    struct freshness_cell told[2];
    size_t n;
    struct freshness_headline h;
    freshness_look(f, told, 2, &n, &h);
    assert_int_equal(n, 2);
    assert_int_equal(h.green, 2);
    assert_int_equal(told[0].target_ms, 0); /* the older first */
    assert_string_equal(told[0].lane, "replay");
    assert_int_equal(told[1].target_ms, 60000);
    assert_int_equal(h.worst_ms, 59000); /* a replay's age is no lag */
    assert_false(freshness_is_late(f));
    cells[0].oldest_age_ms = 60001;
    sample(cells, 2);
    assert_true(freshness_is_late(f));
}

static void the_headline_is_the_worst_that_people_notice(void **state)
{
    (void)state;
    struct cell_raw cells[] = {
        {.rule = PUSH, .lane = LANE_SMALL, .backlog = 1, .oldest_age_ms = 1500, .dead = 1},
        {.rule = PUSH, .lane = LANE_REST, .backlog = 1, .oldest_age_ms = 7000, .dead = 2},
        {.rule = CLEAN, .lane = LANE_CLEANUP, .backlog = 1, .oldest_age_ms = 900000},
        {.rule = UNSEEN, .lane = LANE_SMALL, .backlog = 1, .oldest_age_ms = 5000, .stopped = true},
        {.rule = OWN_TARGET, .lane = LANE_GRAPH},
    };
    sample(cells, 5);
    struct freshness_headline h = headline();
    assert_int_equal(h.worst_ms, 7000); /* over its target or not */
    assert_string_equal(h.consumer, "timelines");
    assert_string_equal(h.type, "post.created");
    assert_string_equal(h.lane, "rest");
    assert_string_equal(h.late_means, "new posts are missing");
    assert_int_equal(h.green, 3);
    assert_int_equal(h.behind, 1);
    assert_int_equal(h.stopped, 1);
    assert_int_equal(h.late, 0);
    assert_int_equal(h.dead, 3);

    struct freshness_cell told[5];
    size_t n;
    freshness_look(f, told, 5, &n, NULL);
    assert_int_equal(n, 5);
    assert_int_equal(told[0].verdict, FRESH_STOPPED);
    assert_string_equal(told[0].consumer, "search");
    assert_int_equal(told[1].verdict, FRESH_BEHIND);
    assert_string_equal(told[1].type, "post.deleted");
    assert_int_equal(told[2].oldest_age_ms, 7000);
    assert_int_equal(told[3].oldest_age_ms, 1500);
    assert_int_equal(told[4].oldest_age_ms, 0);
    freshness_look(f, told, 2, &n, NULL);
    assert_int_equal(n, 2);
    assert_int_equal(told[0].verdict, FRESH_STOPPED);
}

static void samples_are_taken_by_time_not_by_call(void **state)
{
    (void)state;
    struct cell_raw c = {.rule = PUSH, .lane = LANE_SMALL};
    sample(&c, 1);
    for (int i = 0; i < 100; i++) { /* ten seconds at ten calls a second, 50 events each */
        now_us += SECOND / 10;
        c.entered += 50;
        c.left += 50;
        sample(&c, 1);
    }
    about(look_one().in_per_s, 500);
    about(look_one().out_per_s, 500);
    now_us += SECOND / 2;
    c.entered += 1000000;
    c.backlog = 1000000;
    sample(&c, 1);
    about(look_one().in_per_s, 500);
    assert_int_equal(look_one().backlog, 1000000);
}

static void a_rate_covers_only_the_time_that_was_seen(void **state)
{
    (void)state;
    struct cell_raw c = {.rule = PUSH, .lane = LANE_SMALL};
    sample(&c, 1);
    run(&c, 3, 600, 300);
    about(look_one().in_per_s, 600); /* over three seconds, not ten */
    about(look_one().out_per_s, 300);
    /* Sampling paused: the gap is the span. */
    now_us += 59 * SECOND;
    run(&c, 1, 6000, 6000);
    about(look_one().in_per_s, 100);
    /* From there on what is older than the span does not count any more. */
    run(&c, 2, 50, 50);
    about(look_one().in_per_s, 50);
}

static void counters_that_restart_begin_anew(void **state)
{
    (void)state;
    struct cell_raw c = {.rule = PUSH, .lane = LANE_SMALL, .oldest_age_ms = 9000};
    sample(&c, 1);
    run(&c, 10, 100, 50);
    c.entered = 10;
    c.left = 0;
    now_us += SECOND;
    sample(&c, 1);
    about(look_one().in_per_s, 0);
    run(&c, 2, 80, 70);
    about(look_one().in_per_s, 80);
    about(look_one().out_per_s, 70);
    assert_int_equal(look_one().backlog, 30);
    assert_int_equal(look_one().verdict, FRESH_BEHIND);
}

static void a_clock_that_steps_back_begins_anew(void **state)
{
    (void)state;
    struct cell_raw c = {.rule = PUSH, .lane = LANE_SMALL};
    sample(&c, 1);
    run(&c, 10, 100, 90);
    now_us -= 300 * SECOND;
    c.oldest_age_ms = -4000; /* the wall clock, too */
    sample(&c, 1);
    assert_int_equal(look_one().oldest_age_ms, 0);
    assert_int_equal(look_one().verdict, FRESH_GREEN);
    about(look_one().in_per_s, 0);
    run(&c, 5, 40, 30);
    about(look_one().in_per_s, 40);
    about(look_one().out_per_s, 30);
}

static void a_cell_that_is_not_given_is_gone(void **state)
{
    (void)state;
    struct cell_raw cells[] = {
        {.rule = PUSH, .lane = LANE_SMALL, .backlog = 1, .oldest_age_ms = 9000},
        {.rule = PUSH, .lane = LANE_REST, .backlog = 1, .oldest_age_ms = 1000},
    };
    sample(cells, 2);
    assert_true(freshness_is_late(f));
    now_us += SECOND;
    sample(&cells[1], 1);
    assert_false(freshness_is_late(f));
    assert_int_equal(headline().green, 1);
    assert_string_equal(look_one().lane, "rest");
    now_us += SECOND;
    cells[0].entered = 1000000; /* it is back, and what happened meanwhile is not a rate */
    sample(cells, 2);
    about(look_one().in_per_s, 0);
    assert_string_equal(look_one().lane, "small");
    sample(NULL, 0);
    assert_int_equal(headline().green, 0);
}

static void verdicts_have_names(void **state)
{
    (void)state;
    assert_string_equal(verdict_name(FRESH_GREEN), "green");
    assert_string_equal(verdict_name(FRESH_LATE), "late");
    assert_string_equal(verdict_name(FRESH_BEHIND), "behind");
    assert_string_equal(verdict_name(FRESH_STOPPED), "stopped");
}

/* ---- readers beside the sampler ---- */

static _Atomic bool stop;

static void *read_on(void *arg)
{
    (void)arg;
    while (!stop) {
        struct freshness_cell cells[8];
        size_t n;
        struct freshness_headline h;
        freshness_look(f, cells, 8, &n, &h);
        if (n) /* one sample's numbers, never a mixture of two */
            CHECK(n == 2 && cells[0].backlog == cells[1].backlog);
        freshness_is_late(f);
    }
    return NULL;
}

static void readers_see_whole_samples(void **state)
{
    (void)state;
    stop = false;
    pthread_t readers[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_on, NULL), 0);
    for (uint64_t i = 0; i < 20000; i++) {
        struct cell_raw cells[] = {
            {.rule = PUSH, .lane = LANE_SMALL, .backlog = i, .entered = i},
            {.rule = PUSH, .lane = LANE_REST, .backlog = i, .entered = i},
        };
        now_us += SECOND / 3;
        sample(cells, 2);
    }
    stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(before_the_first_sample_nothing_is_said),
        TEST(a_backlog_and_its_net_rate_give_the_time_to_catch_up),
        TEST(within_its_target_a_cell_is_green_whatever_waits),
        TEST(what_has_no_undone_work_is_green),
        TEST(a_rule_may_have_its_own_target_and_a_replay_has_none),
        TEST(the_headline_is_the_worst_that_people_notice),
        TEST(samples_are_taken_by_time_not_by_call),
        TEST(a_rate_covers_only_the_time_that_was_seen),
        TEST(counters_that_restart_begin_anew),
        TEST(a_clock_that_steps_back_begins_anew),
        TEST(a_cell_that_is_not_given_is_gone),
        TEST(verdicts_have_names),
        TEST(readers_see_whole_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
