/* Small fan-outs that are delivered together, where the views are behind a network. One thread, a
 * hand-moved clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipe/state.h"
#include "world.h"

static struct world w;
static struct rule rules_together[8];
static size_t crowds, in_crowds, largest_audience;

static enum err crowd_sink(struct sink_env *env, struct sink_call *calls, size_t n)
{
    crowds++;
    in_crowds += n;
    for (size_t i = 0; i < n; i++) {
        largest_audience = calls[i].n > largest_audience ? calls[i].n : largest_audience;
        if (calls[i].n == 0)
            continue;
        enum err e =
            world_sink(env, calls[i].event, calls[i].members, calls[i].n, &calls[i].result);
        if (e)
            return e;
    }
    return OK;
}

static int set_up(void **state)
{
    (void)state;
    world_init(&w);
    memcpy(rules_together, world_rules, world_rule_count * sizeof *world_rules);
    rules_together[0].sinks = crowd_sink;
    w.rules = rules_together;
    w.views.remote = true;
    crowds = in_crowds = largest_audience = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

static enum err fail_for_the_first(struct world *world, const struct event *e,
                                   const uint64_t *members, size_t n)
{
    (void)world, (void)members, (void)n;
    return e->actor == 1 ? ERR_UNAVAILABLE : OK;
}

static uint64_t failed(enum lane lane)
{
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    return stats.lanes[lane].failed;
}

static void small_fan_outs_of_a_step_go_together(void **state)
{
    (void)state;
    uint64_t ids[20];
    for (uint64_t author = 0; author < 20; author++)
        w.followers[author] = author; /* one has none */
    world_engine(&w);
    for (uint64_t author = 0; author < 20; author++)
        ids[author] = world_commit(&w, EVENT_POST_CREATED, author, 1);
    world_run(&w);
    assert_int_equal(crowds, 1);
    assert_int_equal(in_crowds, 20);
    for (uint64_t author = 0; author < 20; author++)
        assert_int_equal(world_deliveries_of(&w, ids[author]), author);
    assert_true(engine_drained(w.engine));
    assert_int_equal(engine_settled_through(w.engine), ids[19]);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.lanes[LANE_SMALL].delivered, 190);
}

/* One that is larger than what goes together, and one that is large: alone, and as ever. */
static void larger_ones_are_delivered_by_themselves(void **state)
{
    (void)state;
    w.followers[1] = 3;
    w.followers[2] = 400;
    w.followers[3] = 5000;
    w.followers[4] = 32;
    world_engine(&w);
    for (uint64_t author = 1; author <= 4; author++)
        world_commit(&w, EVENT_POST_CREATED, author, 1);
    world_run(&w);
    assert_int_equal(w.delivered, 3 + 400 + 5000 + 32);
    assert_int_equal(crowds, 1);
    assert_int_equal(in_crowds, 2);
    assert_int_equal(largest_audience, 32);
    assert_true(engine_drained(w.engine));
}

/* A failed crowd is tried one by one: none pays for another. */
static void one_that_fails_does_not_fail_the_others(void **state)
{
    (void)state;
    for (uint64_t author = 1; author <= 5; author++)
        w.followers[author] = 2;
    w.before_sink = fail_for_the_first;
    world_engine(&w);
    uint64_t ids[6];
    for (uint64_t author = 1; author <= 5; author++)
        ids[author] = world_commit(&w, EVENT_POST_CREATED, author, 1);
    world_run(&w);
    assert_int_equal(crowds, 1);
    assert_int_equal(failed(LANE_SMALL), 1);
    assert_int_equal(world_recorded(&w, DELIVERY_DELAYED), 1);
    for (uint64_t author = 2; author <= 5; author++)
        assert_true(world_deliveries_of(&w, ids[author]) >= 2);
    w.before_sink = NULL;
    world_drain(&w, 60 * 1000);
    assert_int_equal(world_deliveries_of(&w, ids[1]), 2);
    assert_true(engine_drained(w.engine));
}

static void audiences_that_cannot_be_read_are_recorded_each(void **state)
{
    (void)state;
    w.followers[1] = w.followers[2] = 2;
    world_engine(&w);
    w.audience_fails = true;
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_commit(&w, EVENT_POST_CREATED, 2, 1);
    world_run(&w);
    assert_int_equal(w.delivered, 0);
    assert_int_equal(failed(LANE_SMALL), 2);
    assert_int_equal(world_recorded(&w, DELIVERY_DELAYED), 2);
    w.audience_fails = false;
    world_drain(&w, 60 * 1000);
    assert_int_equal(w.delivered, 4);
    assert_true(engine_drained(w.engine));
}

/* Views in memory have nothing to gain: each by itself, as ever. */
static void nothing_goes_together_in_memory(void **state)
{
    (void)state;
    w.views.remote = false;
    w.followers[1] = w.followers[2] = 2;
    world_engine(&w);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_commit(&w, EVENT_POST_CREATED, 2, 1);
    world_run(&w);
    assert_int_equal(w.delivered, 4);
    assert_int_equal(crowds, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(small_fan_outs_of_a_step_go_together),
        TEST(larger_ones_are_delivered_by_themselves),
        TEST(one_that_fails_does_not_fail_the_others),
        TEST(audiences_that_cannot_be_read_are_recorded_each),
        TEST(nothing_goes_together_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
