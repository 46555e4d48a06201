/* The workers: priorities, limits, failures, order of one actor. One thread, a hand-moved clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rand.h"
#include "pipe/state.h"
#include "world.h"

static struct world w;
static bool failing;

static int set_up(void **state)
{
    (void)state;
    failing = false;
    world_init(&w);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

static enum err fail_if_told(struct world *world, const struct event *e, const uint64_t *members,
                             size_t n)
{
    (void)world;
    (void)e;
    (void)members;
    (void)n;
    return failing ? ERR_UNAVAILABLE : OK;
}

static uint64_t failed(enum lane lane)
{
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    return stats.lanes[lane].failed;
}

/* ---- priorities ---- */

static void a_fan_out_to_800000_never_delays_one_to_20(void **state)
{
    (void)state;
    w.followers[1] = 800000;
    w.followers[2] = 20;
    world_engine(&w);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run_relay(&w);
    size_t large_steps = 0;
    for (uint64_t round = 0; round < 1000; round++) {
        engine_worker_step(w.engine);
        large_steps++;
        uint64_t small = world_commit(&w, EVENT_POST_CREATED, 2, round);
        engine_relay_step(w.engine);
        engine_worker_step(w.engine); /* the very next step */
        assert_int_equal(world_deliveries_of(&w, small), 20);
        w.log_count = 0;
    }
    world_run(&w);
    assert_true(engine_drained(w.engine));
    assert_int_equal(w.delivered, 800000 + 1000 * 20);
}

static void one_step_delivers_a_bounded_number(void **state)
{
    (void)state;
    w.followers[1] = 100000;
    w.followers[2] = 499;
    w.followers[3] = 1;
    world_engine(&w);
    for (uint64_t author = 1; author <= 3; author++) {
        for (uint64_t i = 0; i < 100; i++)
            world_commit(&w, EVENT_POST_CREATED, author, i);
    }
    world_run_relay(&w);
    uint64_t before = 0;
    while (engine_worker_step(w.engine) <= w.manual.mono_us) {
        assert_true(w.delivered - before < WORKER_MEMBERS + 500);
        before = w.delivered;
    }
    assert_int_equal(w.delivered, 100 * (100000 + 499 + 1));
}

static void lanes_are_served_in_the_order_of_their_table(void **state)
{
    (void)state;
    w.followers[1] = 2;
    world_engine(&w);
    for (uint64_t i = 0; i < 50; i++) {
        world_commit(&w, EVENT_POST_DELETED, 1, i);
        world_commit(&w, EVENT_POST_CREATED, 1, i);
        world_commit(&w, EVENT_FOLLOW_CREATED, 1 + i, 2);
    }
    w.config.lane_rate[LANE_CLEANUP] = 0;
    engine_set_lane(w.engine, LANE_CLEANUP, 2, 0);
    world_run_relay(&w);
    while (engine_worker_step(w.engine) <= w.manual.mono_us) {
    }
    assert_int_equal(w.log_count, 150);
    for (size_t i = 0; i < 150; i++) {
        enum event_type expected = i < 50    ? EVENT_FOLLOW_CREATED
                                   : i < 100 ? EVENT_POST_CREATED
                                             : EVENT_POST_DELETED;
        assert_int_equal(w.log[i].type, expected);
    }
}

/* ---- limits ---- */

static void the_rate_of_a_lane_is_kept(void **state)
{
    (void)state;
    w.followers[1] = 1;
    world_engine(&w);
    for (uint64_t i = 0; i < 1000; i++)
        world_commit(&w, EVENT_POST_DELETED, 1, i);
    world_run_relay(&w);
    int64_t began_us = w.manual.mono_us;
    world_drain(&w, 60 * 1000);
    assert_int_equal(w.log_count, 1000);
    for (size_t i = 0; i < 1000; i++) { /* 400 a second after a bucket of 20 */
        int64_t earliest_us = began_us + (i < 20 ? 0 : (int64_t)(i - 19) * 2500);
        assert_int_equal(w.log[i].at_us, earliest_us);
    }
}

static size_t inside, most_inside;

static enum err nest(struct world *world, const struct event *e, const uint64_t *members, size_t n)
{
    (void)e;
    (void)members;
    (void)n;
    inside++;
    most_inside = inside > most_inside ? inside : most_inside;
    if (inside < 10)
        engine_worker_step(world->engine); /* another thread, as it were */
    inside--;
    return OK;
}

static void no_more_batches_at_a_time_than_the_lane_allows(void **state)
{
    (void)state;
    w.followers[1] = 500;
    world_engine(&w);
    for (uint64_t i = 0; i < 100; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    w.before_sink = nest;
    for (uint32_t concurrency = 1; concurrency <= 4; concurrency++) {
        engine_set_lane(w.engine, LANE_SMALL, concurrency, 0);
        most_inside = 0;
        world_run_relay(&w);
        engine_worker_step(w.engine);
        assert_int_equal(most_inside, concurrency);
    }
    world_run(&w);
    assert_true(engine_drained(w.engine));
    assert_int_equal(w.delivered, 100 * 500);
}

static unsigned wakes;

static void count_wake(void *ctx, enum engine_sleeper who)
{
    (void)who;
    (void)ctx;
    wakes++;
}

static void sleepers_are_woken_and_only_they(void **state)
{
    (void)state;
    w.followers[1] = 1;
    world_engine(&w);
    wakes = 0;
    engine_on_wake(w.engine, count_wake, NULL);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    assert_int_equal(wakes, 0); /* nobody has gone to sleep yet */
    world_run_relay(&w);
    assert_true(engine_worker_step(w.engine) <= w.manual.mono_us);
    assert_int_equal(wakes, 0);
    assert_true(engine_worker_step(w.engine) == INT64_MAX);
    assert_true(engine_relay_step(w.engine) == INT64_MAX);
    world_commit(&w, EVENT_POST_CREATED, 1, 2);
    assert_int_equal(wakes, 1); /* the relay */
    world_commit(&w, EVENT_POST_CREATED, 1, 3);
    assert_int_equal(wakes, 1); /* is awake by now */
    engine_relay_step(w.engine);
    assert_int_equal(wakes, 2); /* the worker */
}

/* A lane with one place whose only message waits for its retry: two idle workers must not keep each
 * other awake by passing through its gate. */
static void idle_workers_let_each_other_sleep(void **state)
{
    (void)state;
    w.followers[1] = 1;
    w.before_sink = fail_if_told;
    world_engine(&w);
    engine_set_lane(w.engine, LANE_SMALL, 1, 0);
    failing = true;
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    engine_worker_step(w.engine);
    wakes = 0;
    engine_on_wake(w.engine, count_wake, NULL);
    for (int i = 0; i < 10; i++)
        assert_true(engine_worker_step(w.engine) > w.manual.mono_us);
    assert_int_equal(wakes, 0);
}

static void while_paused_nothing_is_delivered(void **state)
{
    (void)state;
    w.followers[1] = 1;
    world_engine(&w);
    engine_on_wake(w.engine, count_wake, NULL);
    engine_pause(w.engine, true);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    assert_int_equal(w.log_count, 0);
    assert_true(engine_worker_step(w.engine) == INT64_MAX);
    wakes = 0;
    engine_pause(w.engine, false);
    assert_int_equal(wakes, 1);
    world_run(&w);
    assert_int_equal(w.log_count, 1);
}

/* ---- failures ---- */

static void a_failed_batch_climbs_the_ladder_and_the_mark_waits(void **state)
{
    (void)state;
    const int64_t seconds[] = {2, 8, 32, 128, 240, 240, 240};
    w.followers[1] = 3;
    w.followers[2] = 3;
    w.before_sink = fail_if_told;
    world_engine(&w);
    failing = true;
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    for (size_t i = 0; i < 7; i++) {
        world_run(&w);
        assert_int_equal(failed(LANE_SMALL), i + 1);
        assert_int_equal(engine_done_through(w.engine), id - 1);
        int64_t due_us = engine_worker_step(w.engine);
        int64_t delay_us = due_us - w.manual.mono_us;
        assert_true(delay_us >= seconds[i] * 1000000 && delay_us <= seconds[i] * 1250000);
        w.manual.mono_us = due_us - 1;
        world_run(&w);
        assert_int_equal(failed(LANE_SMALL), i + 1); /* not a microsecond early */
        w.manual.mono_us = due_us;
    }
    failing = false;
    uint64_t other = world_commit(&w, EVENT_POST_CREATED, 2, 1);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, id), 3);
    assert_int_equal(world_deliveries_of(&w, other), 3);
    assert_true(engine_drained(w.engine));
}

/* A sink that is down for hours must not turn large fan-outs into as many messages as they have
 * pages. */
static void a_failing_sink_does_not_multiply_messages(void **state)
{
    (void)state;
    w.followers[1] = 800000;
    w.before_sink = fail_if_told;
    world_engine(&w);
    failing = true;
    for (uint64_t i = 0; i < 10; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    world_drain(&w, 3600 * 1000);
    uint64_t held = 0;
    for (uint16_t lane = 0; lane < LANE_COUNT; lane++) {
        struct bus_lane_stats stats;
        bus_lane_stats(w.bus, lane, &stats);
        held += stats.ready + stats.delayed + stats.taken;
    }
    assert_in_range(held, 20, 40); /* two walks each, and a continuation or two */
    failing = false;
    world_drain(&w, 3600 * 1000);
    assert_true(engine_drained(w.engine));
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(world_deliveries_of(&w, w.outbox[i].id), 800000);
}

static struct rand flaky;

static enum err fail_now_and_then(struct world *world, const struct event *e,
                                  const uint64_t *members, size_t n)
{
    (void)world;
    (void)e;
    (void)members;
    (void)n;
    return rand_below(&flaky, 20) == 0 ? ERR_TIMEOUT : OK;
}

/* One page in twenty fails: everybody is served, and hardly anything twice. */
static void a_flaky_sink_costs_only_its_failures(void **state)
{
    (void)state;
    rand_seed(&flaky, 7);
    w.followers[1] = 800000;
    w.before_sink = fail_now_and_then;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_drain(&w, 3600 * 1000);
    assert_true(engine_drained(w.engine));
    assert_int_equal(world_deliveries_of(&w, id), 800000);
}

/* ---- one actor ---- */

static void follows_and_unfollows_of_one_person_keep_their_order(void **state)
{
    (void)state;
    world_done(&w);
    for (uint64_t seed = 1; seed <= 100; seed++) {
        set_up(NULL);
        rand_seed(&flaky, seed);
        w.before_sink = fail_now_and_then;
        world_engine(&w);
        for (uint64_t i = 0; i < 200; i++) {
            world_commit(&w, rand_below(&flaky, 2) ? EVENT_FOLLOW_CREATED : EVENT_FOLLOW_REMOVED,
                         1 + rand_below(&flaky, 8), i);
            w.again_times = rand_below(&flaky, 3);
            if (rand_below(&flaky, 4) == 0)
                engine_relay_step(w.engine);
            if (rand_below(&flaky, 4) == 0)
                engine_worker_step(w.engine);
        }
        world_drain(&w, 7200 * 1000);
        assert_true(engine_drained(w.engine));
        uint64_t last[9] = {0};
        bool seen[200] = {false};
        for (size_t i = 0; i < w.log_count; i++) {
            assert_true(w.log[i].event >= last[w.log[i].actor]); /* equal: asked for more */
            last[w.log[i].actor] = w.log[i].event;
            seen[w.log[i].object] = true;
        }
        for (size_t i = 0; i < 200; i++)
            assert_true(seen[i]);
        world_done(&w);
    }
    set_up(NULL);
}

static uint64_t at_work[8];

static enum err nest_actors(struct world *world, const struct event *e, const uint64_t *members,
                            size_t n)
{
    (void)members;
    (void)n;
    assert_int_equal(at_work[e->actor], 0); /* nobody else works for this actor now */
    at_work[e->actor] = e->id;
    if (++inside < 8) {
        engine_worker_step(world->engine);
        engine_worker_step(world->engine);
    }
    inside--;
    at_work[e->actor] = 0;
    return OK;
}

static void two_workers_never_work_for_one_person_at_once(void **state)
{
    (void)state;
    inside = 0;
    w.before_sink = nest_actors;
    world_engine(&w);
    for (uint64_t i = 0; i < 300; i++)
        world_commit(&w, EVENT_FOLLOW_CREATED, 1 + i % 7, i);
    world_run(&w);
    assert_true(engine_drained(w.engine));
    assert_int_equal(w.log_count, 300);
}

static void a_sink_that_asks_again_is_called_again(void **state)
{
    (void)state;
    w.again_times = 4;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_FOLLOW_CREATED, 1, 2);
    world_run_relay(&w);
    for (int i = 0; i < 4; i++) {
        assert_true(engine_worker_step(w.engine) <= w.manual.mono_us);
        assert_false(engine_drained(w.engine));
    }
    world_run(&w);
    assert_int_equal(w.log_count, 5);
    assert_int_equal(engine_done_through(w.engine), id);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_fan_out_to_800000_never_delays_one_to_20),
        TEST(one_step_delivers_a_bounded_number),
        TEST(lanes_are_served_in_the_order_of_their_table),
        TEST(the_rate_of_a_lane_is_kept),
        TEST(no_more_batches_at_a_time_than_the_lane_allows),
        TEST(sleepers_are_woken_and_only_they),
        TEST(idle_workers_let_each_other_sleep),
        TEST(while_paused_nothing_is_delivered),
        TEST(a_failed_batch_climbs_the_ladder_and_the_mark_waits),
        TEST(a_failing_sink_does_not_multiply_messages),
        TEST(a_flaky_sink_costs_only_its_failures),
        TEST(follows_and_unfollows_of_one_person_keep_their_order),
        TEST(two_workers_never_work_for_one_person_at_once),
        TEST(a_sink_that_asks_again_is_called_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
