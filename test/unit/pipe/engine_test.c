/* The engine as a whole: start from truth, numbers, the observer; and all its threads at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

#include "base/rand.h"
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

/* ---- the start ---- */

static void what_was_undone_is_done_after_a_crash(void **state)
{
    (void)state;
    w.followers[1] = 1200;
    w.before_sink = fail_if_told;
    world_engine(&w);
    uint64_t done = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    engine_mark_step(w.engine);
    uint64_t half = world_commit(&w, EVENT_POST_CREATED, 1, 2);
    world_run_relay(&w);
    engine_worker_step(w.engine);
    engine_worker_step(w.engine); /* one page of three or four */
    failing = true;
    uint64_t failed = world_commit(&w, EVENT_FOLLOW_CREATED, 2, 3);
    world_run(&w);
    uint64_t never_seen = world_commit_unseen(&w, EVENT_POST_CREATED, 1, 4);
    world_crash(&w);
    failing = false;
    w.log_count = 0;
    world_engine(&w);
    assert_false(engine_drained(w.engine));
    assert_int_equal(engine_done_through(w.engine), done);
    uint64_t live = world_commit(&w, EVENT_POST_CREATED, 1, 5); /* goes live without a gap */
    world_run(&w);
    assert_true(engine_drained(w.engine));
    assert_int_equal(world_deliveries_of(&w, done), 0); /* at or below the mark */
    assert_int_equal(world_deliveries_of(&w, half), 1200);
    assert_int_equal(world_deliveries_of(&w, failed), 1);
    assert_int_equal(world_deliveries_of(&w, never_seen), 1200);
    assert_int_equal(world_deliveries_of(&w, live), 1200);
    assert_int_equal(engine_done_through(w.engine), live);
}

static void the_start_is_where_the_views_were_saved(void **state)
{
    (void)state;
    w.followers[1] = 1;
    world_engine(&w);
    uint64_t ids[5];
    for (size_t i = 0; i < 5; i++)
        ids[i] = world_commit(&w, EVENT_POST_CREATED, 1, i);
    world_run(&w);
    engine_mark_step(w.engine);
    world_crash(&w);
    w.log_count = 0;
    w.views.loaded_position = ids[1];
    world_engine(&w);
    world_run(&w);
    assert_int_equal(w.log_count, 3);
    assert_int_equal(w.log[0].event, ids[2]);
}

static void a_store_that_cannot_be_read_stops_the_start(void **state)
{
    (void)state;
    world_engine(&w);
    w.reads_fail = true;
    assert_int_equal(engine_recover(w.engine), ERR_UNAVAILABLE);
}

static void an_empty_store_is_drained(void **state)
{
    (void)state;
    world_engine(&w);
    assert_true(engine_drained(w.engine));
    assert_int_equal(engine_done_through(w.engine), 0);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.undone, 0);
    assert_int_equal(stats.oldest_undone_ms, 0);
}

/* ---- numbers ---- */

static void the_numbers_tell_what_waits_where_and_for_how_long(void **state)
{
    (void)state;
    w.followers[1] = 2;
    w.followers[2] = 5000;
    world_engine(&w);
    world_commit(&w, EVENT_POST_DELETED, 1, 1);
    manual_clock_advance(&w.manual, 3000);
    world_commit(&w, EVENT_POST_CREATED, 1, 2);
    manual_clock_advance(&w.manual, 1000);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.undone, 2); /* before the relay saw them */
    assert_int_equal(stats.oldest_undone_ms, 4000);
    world_run_relay(&w);
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.undone, 2);
    assert_int_equal(stats.events_taken, 2);
    assert_int_equal(stats.oldest_undone_ms, 4000);
    assert_string_equal(stats.lanes[LANE_CLEANUP].name, "cleanup");
    assert_int_equal(stats.lanes[LANE_CLEANUP].backlog, 1);
    assert_int_equal(stats.lanes[LANE_CLEANUP].oldest_age_ms, 4000);
    assert_int_equal(stats.lanes[LANE_SMALL].backlog, 1);
    assert_int_equal(stats.lanes[LANE_SMALL].oldest_age_ms, 1000);
    assert_int_equal(stats.lanes[LANE_GRAPH].oldest_age_ms, 0);
    assert_int_equal(stats.lanes[LANE_CLEANUP].rate, 400);
    assert_int_equal(stats.lanes[LANE_CLEANUP].concurrency, 2);
    world_run(&w);
    world_commit(&w, EVENT_POST_CREATED, 2, 3);
    world_run_relay(&w);
    engine_worker_step(w.engine); /* found to be large */
    manual_clock_advance(&w.manual, 500);
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.lanes[LANE_SMALL].backlog, 0);
    assert_int_equal(stats.lanes[LANE_ACTIVE].oldest_age_ms, 500);
    assert_int_equal(stats.lanes[LANE_REST].backlog, 1);
    world_run(&w);
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.undone, 0);
    assert_int_equal(stats.events_done, 3);
    assert_int_equal(stats.done_through, w.last_committed);
    assert_int_equal(stats.lanes[LANE_ACTIVE].delivered + stats.lanes[LANE_REST].delivered, 5000);
}

static size_t observed, observed_members;
static int64_t observed_took_us;

static void observe(void *ctx, const struct event *e, size_t members, int64_t took_us)
{
    assert_ptr_equal(ctx, &w);
    assert_int_equal(e->type, EVENT_POST_CREATED);
    observed++;
    observed_members = members;
    observed_took_us = took_us;
}

static void a_complete_fan_out_is_observed_once_with_its_size_and_time(void **state)
{
    (void)state;
    w.followers[1] = 3001;
    observed = 0;
    world_commit_unseen(&w, EVENT_POST_CREATED, 1,
                        1); /* of an earlier life: its time says nothing */
    world_engine(&w);
    engine_observe(w.engine, observe, &w);
    world_run(&w);
    assert_int_equal(observed, 0);
    world_commit(&w, EVENT_POST_CREATED, 1, 2);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 2);
    world_run_relay(&w);
    for (int i = 0; i < 3; i++)
        engine_worker_step(w.engine);
    assert_int_equal(observed, 0);
    manual_clock_advance(&w.manual, 7);
    world_run(&w);
    assert_int_equal(observed, 1);
    assert_int_equal(observed_members, 3001);
    assert_int_equal(observed_took_us, 7000);
}

/* ---- all threads ---- */

enum { STRESS_EVENTS = 20000, STRESS_WORKERS = 2 };

static _Atomic bool stopping;
static _Atomic uint32_t stress_seen[STRESS_EVENTS];
static _Atomic uint64_t stress_last[8];
static _Atomic int stress_inside[8];

static enum err stress_sink(struct world *world, const struct event *e, const uint64_t *members,
                            size_t n)
{
    (void)world;
    (void)members;
    bool follow = e->type == EVENT_FOLLOW_CREATED;
    if (follow && atomic_fetch_add(&stress_inside[e->actor], 1) != 0)
        abort(); /* two workers for one actor */
    if (follow && atomic_exchange(&stress_last[e->actor], e->id) > e->id)
        abort(); /* out of order */
    atomic_fetch_add(&stress_seen[e->object], (uint32_t)n);
    if (follow)
        atomic_fetch_sub(&stress_inside[e->actor], 1);
    return OK;
}

static void step_until_stopped(int64_t (*step)(struct engine *))
{
    while (!atomic_load(&stopping)) {
        if (step(w.engine) > clock_mono_us(w.clock))
            sched_yield();
    }
}

static void *relay_thread(void *arg)
{
    step_until_stopped(engine_relay_step);
    return arg;
}

static void *worker_thread(void *arg)
{
    step_until_stopped(engine_worker_step);
    return arg;
}

static void *mark_thread(void *arg)
{
    struct engine_stats stats;
    while (!atomic_load(&stopping)) {
        engine_mark_step(w.engine);
        engine_stats(w.engine, &stats);
        sched_yield();
    }
    return arg;
}

static void all_threads_together_deliver_everything_once(void **state)
{
    (void)state;
    w.clock = clock_system();
    id_gen_init(&w.ids, w.clock, 1);
    w.rules = world_small_rules;
    w.log_off = true;
    w.before_sink = stress_sink;
    for (uint64_t a = 0; a < 8; a++)
        w.followers[a] = a * 3; /* up to six pages of four */
    w.config.hand_over_max = 256;
    w.config.mark_every_ms = 1;
    w.config.lane_rate[LANE_CLEANUP] = 0;
    w.lane_limits[LANE_SMALL] = 500;
    w.lane_limits[LANE_GRAPH] = 300;
    w.lane_limits[LANE_REST] = 50;
    world_engine(&w);
    pthread_t threads[2 + STRESS_WORKERS];
    pthread_create(&threads[0], NULL, relay_thread, NULL);
    pthread_create(&threads[1], NULL, mark_thread, NULL);
    for (int i = 0; i < STRESS_WORKERS; i++)
        pthread_create(&threads[2 + i], NULL, worker_thread, NULL);
    static const enum event_type types[] = {EVENT_POST_CREATED, EVENT_FOLLOW_CREATED,
                                            EVENT_POST_DELETED};
    struct rand r;
    rand_seed(&r, 11);
    static uint32_t expected[STRESS_EVENTS];
    for (uint64_t i = 0; i < STRESS_EVENTS; i++) {
        enum event_type type = types[rand_below(&r, 3)];
        uint64_t actor = rand_below(&r, 8);
        expected[i] = type == EVENT_FOLLOW_CREATED ? 1 : (uint32_t)w.followers[actor];
        world_commit(&w, type, actor, i);
        if (i % 3000 == 2999) {
            engine_pause(w.engine, true);
            engine_set_lane(w.engine, LANE_REST, 1 + (uint32_t)i % 5, 0);
            engine_pause(w.engine, false);
        }
    }
    while (!engine_drained(w.engine))
        sched_yield();
    atomic_store(&stopping, true);
    for (int i = 0; i < 2 + STRESS_WORKERS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < STRESS_EVENTS; i++)
        assert_int_equal(stress_seen[i], expected[i]);
    assert_int_equal(engine_done_through(w.engine), w.last_committed);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.events_done, STRESS_EVENTS);
    assert_int_equal(stats.undone, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_undone_is_done_after_a_crash),
        TEST(the_start_is_where_the_views_were_saved),
        TEST(a_store_that_cannot_be_read_stops_the_start),
        TEST(an_empty_store_is_drained),
        TEST(the_numbers_tell_what_waits_where_and_for_how_long),
        TEST(a_complete_fan_out_is_observed_once_with_its_size_and_time),
        TEST(all_threads_together_deliver_everything_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
