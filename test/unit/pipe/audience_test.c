/* How a fan-out is cut into walks and pages, seen through the engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "pipe/state.h"
#include "world.h"

static struct world w;

static int set_up(void **state)
{
    (void)state;
    world_init(&w);
    w.rules = world_small_rules; /* batches of 4 */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

/* How often each of the author's followers was met, with the pages' contents by the view's rule. */
static void count_met(uint64_t followers, uint64_t every, unsigned *met)
{
    for (size_t i = 0; i < w.log_count; i++) {
        const struct world_delivery *d = &w.log[i];
        uint64_t handle = d->first;
        bool part_active = handle % every == 0;
        for (size_t n = 0; n < d->n; handle++) {
            if (followers > 4 && (handle % every == 0) != part_active)
                continue;
            met[handle]++;
            n++;
        }
    }
}

static void a_small_audience_is_one_batch_in_the_small_lane(void **state)
{
    (void)state;
    for (uint64_t followers = 1; followers <= 4; followers++)
        w.followers[followers] = followers;
    world_engine(&w);
    for (uint64_t author = 1; author <= 4; author++)
        world_commit(&w, EVENT_POST_CREATED, author, 1);
    world_run(&w);
    assert_int_equal(w.log_count, 4);
    assert_int_equal(w.audience_reads, 4); /* no page is read twice */
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.lanes[LANE_SMALL].delivered, 1 + 2 + 3 + 4);
    assert_int_equal(stats.lanes[LANE_ACTIVE].delivered, 0);
}

static void an_empty_audience_is_one_too(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    assert_int_equal(w.log_count, 0); /* a sink never sees an empty page */
    assert_int_equal(engine_settled_through(w.engine), id);
}

static void a_large_audience_is_served_active_people_first_and_all_once(void **state)
{
    (void)state;
    w.followers[1] = 103;
    world_engine(&w);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    unsigned met[104] = {0};
    count_met(103, w.active_every, met);
    for (uint64_t handle = 1; handle <= 103; handle++)
        assert_int_equal(met[handle], 1);
    for (size_t i = 1; i < w.log_count; i++) {
        bool active = w.log[i].first % w.active_every == 0;
        assert_false(active && w.log[i - 1].first % w.active_every != 0);
    }
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.lanes[LANE_SMALL].delivered, 0);
    assert_int_equal(stats.lanes[LANE_ACTIVE].delivered, 25);
    assert_int_equal(stats.lanes[LANE_REST].delivered, 78);
    assert_true(engine_drained(w.engine));
}

static void the_cursor_carries_the_moment_of_the_split(void **state)
{
    (void)state;
    w.followers[1] = 5;
    w.config.active_within_ms = 1000;
    world_engine(&w);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run_relay(&w);
    engine_worker_step(w.engine); /* the small lane: moves it on */
    world_run_relay(&w);
    struct bus_message active, rest;
    assert_true(bus_take(w.bus, LANE_ACTIVE, 0, &active));
    assert_true(bus_take(w.bus, LANE_REST, 0, &rest));
    assert_int_equal(active.cursor.part, AUDIENCE_ACTIVE);
    assert_int_equal(rest.cursor.part, AUDIENCE_REST);
    assert_int_equal(active.cursor.started_ms, w.manual.wall_ms);
    assert_int_equal(active.cursor.active_since_ms, w.manual.wall_ms - 1000);
    assert_int_equal(rest.cursor.started_ms, w.manual.wall_ms);
    assert_int_equal(rest.cursor.active_since_ms, w.manual.wall_ms - 1000);
    assert_int_equal(active.cursor.after, 0);
    assert_int_equal(rest.cursor.after, 0);
}

/* Full lanes of large fan-outs: they wait in the small lane, moved once each, and small ones pass
 * by. */
static void full_large_lanes_hold_no_other_up_and_lose_nothing(void **state)
{
    (void)state;
    w.followers[1] = 41;
    w.followers[2] = 2;
    w.lane_limits[LANE_ACTIVE] = 3;
    w.lane_limits[LANE_REST] = 2;
    w.config.lane_rate[LANE_ACTIVE] = 10;
    w.config.lane_rate[LANE_REST] = 5;
    world_engine(&w);
    for (uint64_t i = 0; i < 20; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    uint64_t small = world_commit(&w, EVENT_POST_CREATED, 2, 99);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, small), 2);
    struct bus_lane_stats stats;
    bus_lane_stats(w.bus, LANE_REST, &stats);
    assert_true(stats.ready + stats.taken + stats.delayed <= 2);
    world_drain(&w, 3600 * 1000);
    assert_true(engine_drained(w.engine));
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(world_deliveries_of(&w, w.committed[i]), 41);
    struct engine_stats es;
    engine_stats(w.engine, &es);
    for (int lane = 0; lane < LANE_COUNT; lane++)
        assert_int_equal(es.lanes[lane].failed, 0); /* waiting for room is no failure */
}

static uint64_t fail_first, fails_left;

static enum err fail_page(struct world *world, const struct event *e, const uint64_t *members,
                          size_t n)
{
    (void)world;
    (void)e;
    (void)n;
    if (members[0] != fail_first || fails_left == 0)
        return OK;
    fails_left--;
    return ERR_UNAVAILABLE;
}

/* A page that failed after its continuation was out is delivered alone: the rest is not walked
 * again. */
static void a_failed_page_is_repeated_alone(void **state)
{
    (void)state;
    w.followers[1] = 40;
    w.active_every = 0; /* one walk: REST has all */
    w.before_sink = fail_page;
    fail_first = 9;
    fails_left = 3;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_drain(&w, 600 * 1000);
    assert_true(engine_drained(w.engine));
    assert_int_equal(world_deliveries_of(&w, id), 40);
    assert_int_equal(w.log[w.log_count - 1].first, 9);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.lanes[LANE_REST].failed, 3);
}

/* The followers change while a page waits, so that its end no longer falls on the old spot: each
 * that followed all along is met. */
static void a_repeated_page_misses_no_follower_when_others_come_and_go(void **state)
{
    (void)state;
    w.followers[1] = 120;
    w.step = 2;
    w.active_every = 0;
    w.before_sink = fail_page;
    fail_first = 10; /* 10, 12, 14, 16 */
    fails_left = 1;
    world_engine(&w);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    size_t before = w.log_count;
    w.step = 3;
    world_drain(&w, 600 * 1000);
    assert_true(engine_drained(w.engine));
    assert_int_equal(w.log[before].first, 12); /* 12, 15, 18, 21: goes past the old end */
    bool met[200] = {false};
    for (size_t i = 0; i < w.log_count; i++) {
        uint64_t step = i < before ? 2 : 3;
        for (uint64_t n = 0; n < w.log[i].n; n++)
            met[w.log[i].first + n * step] = true;
    }
    for (uint64_t handle = 6; handle <= 120; handle += 6)
        assert_true(met[handle]);
    assert_int_equal(w.log_count, before + 10); /* once to the end, page by page */
}

static void a_view_that_fails_is_asked_again(void **state)
{
    (void)state;
    w.followers[1] = 3;
    w.audience_fails = true;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    assert_int_equal(engine_settled_through(w.engine), id); /* in the delivery store */
    assert_int_equal(world_recorded(&w, DELIVERY_DELAYED), 1);
    w.audience_fails = false;
    world_drain(&w, 10 * 1000);
    assert_int_equal(world_deliveries_of(&w, id), 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_small_audience_is_one_batch_in_the_small_lane),
        TEST(an_empty_audience_is_one_too),
        TEST(a_large_audience_is_served_active_people_first_and_all_once),
        TEST(the_cursor_carries_the_moment_of_the_split),
        TEST(full_large_lanes_hold_no_other_up_and_lose_nothing),
        TEST(a_failed_page_is_repeated_alone),
        TEST(a_repeated_page_misses_no_follower_when_others_come_and_go),
        TEST(a_view_that_fails_is_asked_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
