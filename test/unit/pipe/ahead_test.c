/* Live events and a backlog: what is fresh goes first, nothing is lost, doubled or settled too
 * early, and no key's order breaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rand.h"
#include "pipe/state.h"
#include "world.h"

enum { QUEUE = 8, BACKLOG = 1000 };

static struct world w;

static int set_up(void **state)
{
    (void)state;
    world_init(&w);
    for (uint64_t a = 0; a < WORLD_AUTHORS; a++)
        w.followers[a] = 3;
    w.config.commit_queue_max = QUEUE;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

/* More posts than the queue holds, and the first of them done: the engine is at work on a backlog.
 */
static void make_backlog(void)
{
    for (uint64_t i = 0; i < BACKLOG; i++)
        world_commit(&w, EVENT_POST_CREATED, 1 + i % 9, i);
    engine_relay_step(w.engine);
    while (w.log_count == 0)
        engine_worker_step(w.engine);
}

static size_t place_in_log(uint64_t event)
{
    for (size_t i = 0; i < w.log_count; i++) {
        if (w.log[i].event == event)
            return i;
    }
    return SIZE_MAX;
}

static void assert_each_once(size_t wanted)
{
    assert_true(engine_drained(w.engine));
    assert_int_equal(w.log_count, wanted);
    for (size_t i = 0; i < w.committed_count; i++)
        assert_true(place_in_log(w.committed[i]) != SIZE_MAX);
    assert_int_equal(engine_settled_through(w.engine), w.last_committed);
}

static void a_live_post_does_not_wait_for_the_table(void **state)
{
    (void)state;
    world_engine(&w);
    make_backlog();
    uint64_t post = world_commit(&w, EVENT_POST_CREATED, 20, 5000);
    while (place_in_log(post) == SIZE_MAX) {
        engine_relay_step(w.engine);
        engine_worker_step(w.engine);
    }
    assert_true(w.log_count < BACKLOG / 2);
    assert_true(engine_settled_through(w.engine) < w.committed[BACKLOG - 1]);
    world_run(&w);
    assert_each_once(BACKLOG + 1);
}

/* The follow is in the table, the unfollow comes live. */
static void what_keeps_an_order_waits_for_the_table(void **state)
{
    (void)state;
    world_engine(&w);
    for (uint64_t i = 0; i < BACKLOG; i++)
        world_commit(&w, EVENT_POST_CREATED, 1 + i % 9, i);
    uint64_t follow = world_commit(&w, EVENT_FOLLOW_CREATED, 30, 31);
    engine_relay_step(w.engine);
    while (w.log_count == 0)
        engine_worker_step(w.engine);
    uint64_t unfollow = world_commit(&w, EVENT_FOLLOW_REMOVED, 30, 31);
    uint64_t post = world_commit(&w, EVENT_POST_CREATED, 20, 5000);
    world_run(&w);
    assert_each_once(BACKLOG + 3);
    assert_true(place_in_log(follow) < place_in_log(unfollow));
    assert_true(place_in_log(post) < place_in_log(unfollow));
}

/* Delivered ahead, not settled: it comes again after a crash, with the backlog before it. */
static void a_crash_forgets_what_was_ahead_and_repeats_it(void **state)
{
    (void)state;
    world_engine(&w);
    make_backlog();
    uint64_t post = world_commit(&w, EVENT_POST_CREATED, 20, 5000);
    while (place_in_log(post) == SIZE_MAX) {
        engine_relay_step(w.engine);
        engine_worker_step(w.engine);
    }
    engine_watermark_step(w.engine);
    assert_true(world_watermark(&w) < w.committed[BACKLOG - 1]);
    world_crash(&w);
    world_engine(&w);
    world_drain(&w, 60 * 1000);
    assert_true(engine_drained(w.engine));
    assert_int_equal(world_deliveries_of(&w, post), 6);
    for (size_t i = 0; i < w.committed_count; i++)
        assert_true(world_deliveries_of(&w, w.committed[i]) >= 3);
    assert_int_equal(engine_settled_through(w.engine), w.last_committed);
}

/* Nothing gets done: what comes during the pause is the backlog; what comes after it is fresh. */
static void after_a_pause_the_newest_go_first(void **state)
{
    (void)state;
    w.config.commit_queue_max = 4096;
    w.lane_limits[LANE_SMALL] = 50;
    world_engine(&w);
    engine_pause(w.engine, true);
    for (uint64_t i = 0; i < 3000; i++)
        world_commit(&w, EVENT_POST_CREATED, 1 + i % 9, i);
    world_run_relay(&w);
    world_move_to(&w, w.manual.mono_us + 5 * 1000 * 1000);
    uint64_t post = world_commit(&w, EVENT_POST_CREATED, 20, 5000);
    engine_pause(w.engine, false);
    world_drain(&w, 60 * 1000);
    assert_each_once(3001);
    assert_true(place_in_log(post) < 500);
    assert_int_equal(place_in_log(w.committed[0]), 0); /* and the oldest are not forgotten */
}

/* The order of each person in the ordered lane; each event once. */
static void assert_orders(void)
{
    uint64_t last[WORLD_AUTHORS] = {0};
    for (size_t i = 0; i < w.log_count; i++) {
        if (w.log[i].type == EVENT_POST_CREATED)
            continue;
        assert_true(w.log[i].event > last[w.log[i].actor]);
        last[w.log[i].actor] = w.log[i].event;
    }
}

/* No event at or below the watermark is undone. */
static void assert_watermark(void)
{
    uint64_t through = engine_settled_through(w.engine);
    for (size_t i = 0; i < w.committed_count && w.committed[i] <= through; i++)
        assert_true(place_in_log(w.committed[i]) != SIZE_MAX);
}

static void random_bursts_and_live_events(void **state)
{
    (void)state;
    world_done(&w);
    for (uint64_t seed = 1; seed <= 30; seed++) {
        set_up(NULL);
        struct rand r;
        rand_seed(&r, seed);
        w.config.commit_queue_max = 1 + rand_below(&r, 40);
        world_engine(&w);
        size_t events = 0;
        while (events < 3000) {
            /* A backlog of many steps, or live events: sometimes more than the queue holds. */
            bool burst = rand_below(&r, 40) == 0;
            for (uint64_t n = rand_below(&r, burst ? 1500 : 20); n > 0; n--, events++) {
                const enum event_type types[] = {EVENT_POST_CREATED, EVENT_POST_CREATED,
                                                 EVENT_FOLLOW_CREATED, EVENT_FOLLOW_REMOVED};
                world_commit(&w, types[rand_below(&r, 4)], 1 + rand_below(&r, 9), events);
            }
            for (uint64_t steps = rand_below(&r, 3); steps > 0; steps--)
                engine_relay_step(w.engine);
            for (uint64_t steps = rand_below(&r, 3); steps > 0; steps--)
                engine_worker_step(w.engine);
            if (rand_below(&r, 20) == 0)
                assert_watermark();
        }
        world_drain(&w, 60 * 1000);
        assert_each_once(events);
        assert_orders();
        world_done(&w);
    }
    set_up(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_live_post_does_not_wait_for_the_table),
        TEST(what_keeps_an_order_waits_for_the_table),
        TEST(a_crash_forgets_what_was_ahead_and_repeats_it),
        TEST(after_a_pause_the_newest_go_first),
        TEST(random_bursts_and_live_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
