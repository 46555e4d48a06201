/* Which threads of the engine wake for what: those that sleep and have work, and no others. One
 * thread, a hand-moved clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipe/state.h"
#include "world.h"

static struct world w;
static bool failing;
static unsigned wakes;
static enum engine_sleeper last_woken;

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

static enum err fail_on_demand(struct world *world, const struct event *e, const uint64_t *members,
                               size_t n)
{
    (void)world, (void)e, (void)members, (void)n;
    return failing ? ERR_UNAVAILABLE : OK;
}

static void count_wake(void *ctx, enum engine_sleeper who)
{
    (void)ctx;
    wakes++;
    last_woken = who;
}

static void sleepers_are_woken_and_only_they(void **state)
{
    (void)state;
    w.followers[1] = 1;
    world_engine(&w);
    wakes = 0;
    engine_on_wake(w.engine, count_wake, NULL);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    assert_int_equal(wakes, 0); /* no thread has gone to sleep yet */
    world_run_relay(&w);
    assert_true(engine_worker_step(w.engine) <= w.manual.mono_us);
    assert_int_equal(wakes, 0);
    assert_true(engine_worker_step(w.engine) == INT64_MAX);
    assert_true(engine_relay_step(w.engine) > w.manual.mono_us);
    world_commit(&w, EVENT_POST_CREATED, 1, 2);
    assert_int_equal(wakes, 1); /* the relay */
    world_commit(&w, EVENT_POST_CREATED, 1, 3);
    assert_int_equal(wakes, 1); /* is awake by now */
    engine_relay_step(w.engine);
    assert_int_equal(wakes, 2); /* the worker */
}

/* A failure wakes the delivery store, a due retry the relay. */
static void a_failure_wakes_the_recorder_and_a_due_retry_the_relay(void **state)
{
    (void)state;
    w.followers[1] = 1;
    w.before_sink = fail_on_demand;
    world_engine(&w);
    world_run(&w);
    engine_on_wake(w.engine, count_wake, NULL);
    failing = true;
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run_relay(&w);
    wakes = 0;
    engine_worker_step(w.engine);
    assert_int_equal(wakes, 1);
    assert_int_equal(last_woken, ENGINE_RECORDER);
    world_run_recorder(&w);
    world_move_to(&w, w.manual.mono_us + 3000 * 1000);
    engine_relay_step(w.engine);
    engine_relay_step(w.engine); /* polled, and asleep again */
    wakes = 0;
    world_run_recorder(&w);
    assert_int_equal(wakes, 1);
    assert_int_equal(last_woken, ENGINE_RELAY);
}

/* A lane with one place and nothing in it: two idle workers must not keep each other awake by
 * passing through its gate. */
static void idle_workers_let_each_other_sleep(void **state)
{
    (void)state;
    w.followers[1] = 1;
    w.before_sink = fail_on_demand;
    world_engine(&w);
    engine_set_lane(w.engine, LANE_SMALL, 1, 0);
    failing = true;
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run_relay(&w);
    engine_worker_step(w.engine); /* failed, waits for the delivery store */
    engine_worker_step(w.engine);
    wakes = 0;
    engine_on_wake(w.engine, count_wake, NULL);
    for (int i = 0; i < 10; i++)
        assert_true(engine_worker_step(w.engine) > w.manual.mono_us);
    assert_int_equal(wakes, 0);
}

static uint64_t woken_by_sleeper[ENGINE_SLEEPERS];

static void count_sleeper(void *ctx, enum engine_sleeper who)
{
    (void)ctx;
    woken_by_sleeper[who]++;
}

/* Threads of the other pools would wake once a page of every large fan-out, and find nothing. */
static void a_fan_out_wakes_the_workers_of_its_own_pool_only(void **state)
{
    (void)state;
    w.followers[1] = 5000;
    world_engine(&w);
    memset(woken_by_sleeper, 0, sizeof woken_by_sleeper);
    engine_on_wake(w.engine, count_sleeper, NULL);
    engine_outside_step(w.engine);
    engine_worker_step(w.engine);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    while (engine_relay_step(w.engine) <= w.manual.mono_us ||
           engine_worker_step(w.engine) <= w.manual.mono_us) {
    }
    assert_int_equal(w.delivered, 5000);
    assert_true(woken_by_sleeper[ENGINE_VIEWS] > 0);
    assert_int_equal(woken_by_sleeper[ENGINE_TRUTH], 0);
    assert_int_equal(woken_by_sleeper[ENGINE_OUTSIDE], 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sleepers_are_woken_and_only_they),
        TEST(a_failure_wakes_the_recorder_and_a_due_retry_the_relay),
        TEST(idle_workers_let_each_other_sleep),
        TEST(a_fan_out_wakes_the_workers_of_its_own_pool_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
