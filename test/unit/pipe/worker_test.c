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
        engine_relay_step(w.engine); /* what turned out large */
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
    (void)ctx, (void)who;
    wakes++;
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
    assert_int_equal(wakes, 2); /* the workers of both pools */
    world_run(&w);
    assert_int_equal(w.log_count, 1);
}

static void the_overload_guard_stops_large_fan_outs_only(void **state)
{
    (void)state;
    w.followers[1] = 2000;
    w.followers[2] = 2;
    world_engine(&w);
    engine_guard(w.engine, true, false);
    uint64_t large = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    uint64_t small = world_commit(&w, EVENT_POST_CREATED, 2, 2);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, large), 0);
    assert_int_equal(world_deliveries_of(&w, small), 2);
    wakes = 0;
    engine_on_wake(w.engine, count_wake, NULL);
    engine_guard(w.engine, false, false);
    assert_true(wakes > 0);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, large), 2000);
}

/* ---- failures ---- */

static int64_t due_ms(void)
{
    return world_ask(&w, "SELECT due_at FROM deliveries WHERE state = 1");
}

/* The ladder and the number of retries of a priority, seen from outside: when the sink is called.
 */
static void climb(enum event_type type, enum lane lane, size_t retries, enum delivery_state end)
{
    const int64_t seconds[] = {2, 8, 32, 128, 240, 240};
    w.followers[1] = 3;
    w.before_sink = fail_if_told;
    world_engine(&w);
    failing = true;
    uint64_t id = world_commit(&w, type, 1, 1);
    world_run(&w);
    for (size_t i = 0; i < retries; i++) {
        assert_int_equal(failed(lane), i + 1);
        assert_int_equal(world_ask(&w, "SELECT tries FROM deliveries"), i + 1);
        int64_t delay_ms = due_ms() - w.manual.wall_ms;
        assert_true(delay_ms >= seconds[i] * 1000 && delay_ms <= seconds[i] * 1250);
        world_pass(&w, delay_ms - 1);
        assert_int_equal(failed(lane), i + 1); /* not a millisecond early */
        world_pass(&w, 1);
    }
    assert_int_equal(failed(lane), retries + 1);
    assert_int_equal(world_recorded(&w, end), 1);
    assert_int_equal(engine_settled_through(w.engine),
                     id); /* in the delivery store: the watermark goes on */
    world_pass(&w, 3600 * 1000);
    assert_int_equal(failed(lane), retries + 1); /* that was all */
    assert_true(engine_drained(w.engine));
}

static void a_critical_delivery_is_retried_six_times(void **state)
{
    (void)state;
    climb(EVENT_FOLLOW_CREATED, LANE_GRAPH, 6, DELIVERY_DEAD);
    assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM deliveries WHERE reason = 'UNAVAILABLE' "
                                   "AND tries = 7 AND payload LIKE '%\"actor\":\"1\"%'"),
                     1);
}

static enum err fail_in_words(struct world *world, const struct event *e, const uint64_t *members,
                              size_t n)
{
    (void)world, (void)e, (void)members, (void)n;
    err_cause_set("statement: disk I/O error (SQLite 10)");
    return ERR_INTERNAL;
}

static void a_delivery_that_failed_keeps_the_words_of_its_driver(void **state)
{
    (void)state;
    w.before_sink = fail_in_words;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_pass(&w, 1200 * 1000);
    assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM deliveries WHERE state = 4 AND reason = "
                                   "'INTERNAL' AND detail = 'internal error: statement: disk I/O "
                                   "error (SQLite 10)'"),
                     1);
}

static struct trace_summary story_of(uint64_t event)
{
    struct trace_summary summary;
    size_t n, left_out;
    trace_find(engine_trace(w.engine), event, &summary, NULL, 0, &n, &left_out);
    return summary;
}

/* The views leave every second follower out: they pull when they come back. */
static void a_story_tells_of_members_who_are_left_to_pull(void **state)
{
    (void)state;
    w.before_sink = NULL;
    w.followers[2] = 3000;
    w.step = 2;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 2, 1);
    world_run(&w);
    assert_int_equal(story_of(id).members, 1500);
    assert_int_equal(story_of(id).skipped, 1500);
}

static void a_normal_delivery_is_retried_four_times(void **state)
{
    (void)state;
    climb(EVENT_POST_CREATED, LANE_SMALL, 4, DELIVERY_DEAD);
}

static void a_low_delivery_is_retried_twice_then_dropped_and_counted(void **state)
{
    (void)state;
    climb(EVENT_POST_DELETED, LANE_CLEANUP, 2, DELIVERY_DROPPED);
    engine_sample_step(w.engine);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.states.dropped, 1);
    assert_int_equal(stats.states.dead, 0);
}

static void the_sink_may_ask_for_a_longer_delay_not_a_shorter_one(void **state)
{
    (void)state;
    w.followers[1] = 1;
    w.before_sink = fail_if_told;
    world_engine(&w);
    failing = true;
    w.asked_ms = 60 * 1000;
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    assert_int_equal(due_ms(), w.manual.wall_ms + 60 * 1000);
    w.asked_ms = 1000;
    world_pass(&w, 60 * 1000);
    assert_int_equal(failed(LANE_SMALL), 2);
    assert_true(due_ms() >= w.manual.wall_ms + 8000);
}

/* Timers are rows: a restart in the middle of the ladder goes on with it. */
static void a_restart_neither_loses_nor_doubles_a_retry(void **state)
{
    (void)state;
    w.followers[1] = 3;
    w.before_sink = fail_if_told;
    world_engine(&w);
    failing = true;
    uint64_t id = world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    uint64_t post = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_pass(&w, 15 * 1000); /* three tries of each */
    assert_int_equal(failed(LANE_GRAPH), 3);
    assert_int_equal(failed(LANE_SMALL), 3);
    world_pass(&w, 25 * 1000); /* the third retry is due within 40 s: it may be under way */
    for (int lives = 0; lives < 5; lives++) {
        world_crash(&w);
        world_engine(&w);
        world_run_relay(&w);
    }
    assert_int_equal(world_ask(&w, "SELECT MIN(tries) FROM deliveries"), 3);
    assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM deliveries"), 2);
    failing = false;
    world_drain(&w, 3600 * 1000);
    assert_int_equal(world_deliveries_of(&w, id), 1);
    /* A walk is repeated after a start, because it is unknown what the views lost of it; its page
     * on the delivery store is not forgotten. */
    assert_true(world_deliveries_of(&w, post) >= 3);
    assert_int_equal(world_recorded(&w, DELIVERY_DONE), 2);
}

static void a_claimed_retry_that_died_with_the_process_is_due_at_once(void **state)
{
    (void)state;
    w.before_sink = fail_if_told;
    world_engine(&w);
    failing = true;
    uint64_t id = world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    failing = false;
    engine_watermark_step(w.engine);
    world_move_to(&w, w.manual.mono_us + 3000 * 1000);
    world_run_recorder(&w); /* claimed, not delivered */
    assert_int_equal(world_recorded(&w, DELIVERY_RETRYING), 1);
    world_crash(&w);
    world_engine(&w);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, id), 1);
    assert_int_equal(world_recorded(&w, DELIVERY_DONE), 1);
}

/* A sink that is down for hours must not turn large fan-outs into as many deliveries in the
 * delivery store as they have pages. */
static void a_failing_sink_does_not_multiply_deliveries(void **state)
{
    (void)state;
    w.followers[1] = 800000;
    w.before_sink = fail_if_told;
    world_engine(&w);
    failing = true;
    for (uint64_t i = 0; i < 9; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    world_pass(&w, 60 * 1000);
    int64_t rows = world_ask(&w, "SELECT COUNT(*) FROM deliveries");
    assert_in_range(rows, 18, 36); /* two walks each, and a continuation or two */
    failing = false;
    world_drain(&w, 3600 * 1000);
    assert_true(engine_drained(w.engine));
    for (size_t i = 0; i < 9; i++)
        assert_int_equal(world_deliveries_of(&w, w.committed[i]), 800000);
}

/* Most fail for one reason: the lane stops, nothing more goes to the delivery store, a probe finds
 * out when it is over. */
static void a_lane_stops_by_itself_and_goes_on_after_a_probe(void **state)
{
    (void)state;
    for (uint64_t author = 1; author <= 5; author++)
        w.followers[author] = 1;
    w.before_sink = fail_if_told;
    world_engine(&w);
    failing = true;
    for (uint64_t i = 0; i < 500; i++)
        world_commit(&w, EVENT_POST_CREATED, 1 + i % 5, i);
    uint64_t follow = world_commit(&w, EVENT_POST_DELETED, 1, 1);
    world_run(&w);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.lanes[LANE_SMALL].breaker.state, BREAKER_OPEN);
    assert_int_equal(stats.lanes[LANE_SMALL].breaker.reason, ERR_UNAVAILABLE);
    assert_int_equal(stats.lanes[LANE_CLEANUP].breaker.state, BREAKER_CLOSED);
    assert_in_range(world_ask(&w, "SELECT COUNT(*) FROM deliveries"), BREAKER_MIN,
                    BREAKER_MIN + WORKER_MESSAGES);
    uint64_t before = failed(LANE_SMALL);
    world_pass(&w, 60 * 1000);
    assert_int_equal(failed(LANE_SMALL), before + 3); /* probes after 2, 8 and 32 s */
    assert_true(engine_settled_through(w.engine) < follow);
    failing = false;
    world_drain(&w, 600 * 1000);
    assert_true(engine_drained(w.engine));
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.lanes[LANE_SMALL].breaker.state, BREAKER_CLOSED);
    for (size_t i = 0; i < 500; i++)
        assert_int_equal(world_deliveries_of(&w, w.committed[i]), 1);
}

static enum err fail_for_the_first(struct world *world, const struct event *e,
                                   const uint64_t *members, size_t n)
{
    (void)world, (void)members, (void)n;
    return e->actor == 1 ? ERR_UNAVAILABLE : OK;
}

/* One author's trouble is theirs alone, however much of the lane it is. */
static void a_key_that_fails_does_not_stop_its_lane(void **state)
{
    (void)state;
    w.followers[1] = w.followers[2] = 1;
    w.before_sink = fail_for_the_first;
    world_engine(&w);
    for (uint64_t i = 0; i < 100; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    world_pass(&w, 5 * 1000); /* their first retries wait in the lane */
    uint64_t healthy = world_commit(&w, EVENT_POST_CREATED, 2, 1);
    world_pass(&w, 1000);
    assert_int_equal(world_deliveries_of(&w, healthy), 1);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.lanes[LANE_SMALL].breaker.state, BREAKER_CLOSED);
}

static void a_lane_stopped_by_hand_stays_stopped(void **state)
{
    (void)state;
    w.followers[1] = 1;
    world_engine(&w);
    engine_stop_lane(w.engine, LANE_SMALL, true);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_pass(&w, 3600 * 1000);
    assert_int_equal(w.log_count, 0);
    engine_stop_lane(w.engine, LANE_SMALL, false);
    world_run(&w);
    assert_int_equal(w.log_count, 1);
}

/* A retry waits in a stopped lane for longer than its claim lasts: it is tried once all the same.
 */
static void a_retry_in_a_stopped_lane_is_not_sent_twice(void **state)
{
    (void)state;
    w.before_sink = fail_if_told;
    world_engine(&w);
    failing = true;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    engine_stop_lane(w.engine, LANE_GRAPH, true);
    failing = false;
    world_pass(&w, 3600 * 1000); /* twelve leases */
    assert_int_equal(world_held(&w, LANE_GRAPH), 1);
    engine_stop_lane(w.engine, LANE_GRAPH, false);
    world_run(&w);
    assert_int_equal(w.log_count, 1);
    assert_true(engine_drained(w.engine));
}

/* When the delivery store cannot be written failures pile up in memory to a limit; beyond it
 * messages stay with the bus. Their tries are counted by the delivery store, not by how often the
 * bus brought them. */
static void a_full_recorder_costs_no_tries(void **state)
{
    (void)state;
    w.before_sink = fail_if_told;
    world_engine(&w);
    world_run(&w);
    failing = true;
    w.faults->writes_fail = ERR_STORAGE_FULL;
    struct recorder_entry filler = {.delivery_record = {.kind = RECORD_SETTLE}};
    for (int i = 0; i < 2; i++) { /* the queue, and what the step has in its hands */
        while (recorder_add(&w.engine->recorder, &filler, false)) {
        }
        engine_recorder_step(w.engine);
    }
    w.faults->writes_fail = OK;
    uint64_t id = world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    w.faults->writes_fail = ERR_STORAGE_FULL;
    world_pass(&w, 2000); /* dozens of times */
    assert_true(failed(LANE_GRAPH) > 7);
    w.faults->writes_fail = OK;
    for (int i = 0; i < 200 && world_ask(&w, "SELECT COUNT(*) FROM deliveries") == 0; i++)
        world_pass(&w, 50); /* its lane is stopped by now: a probe brings it */
    assert_int_equal(world_ask(&w, "SELECT tries FROM deliveries"), 1);
    assert_int_equal(world_ask(&w, "SELECT state FROM deliveries"), DELIVERY_DELAYED);
    failing = false;
    world_drain(&w, 10 * 1000);
    assert_int_equal(world_deliveries_of(&w, id), 1);
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

/* One page in twenty fails: all members are served, and hardly any twice. */
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
    assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 0);
}

static uint64_t rotten_from; /* the handle at which a page fails, once */

static enum err fail_one_page(struct world *world, const struct event *e, const uint64_t *members,
                              size_t n)
{
    (void)world, (void)e, (void)n;
    if (members[0] != rotten_from)
        return OK;
    rotten_from = 0;
    return ERR_TIMEOUT;
}

static uint64_t seen_members;

static void observe(void *ctx, const struct event *e, size_t members, int64_t took_us)
{
    (void)ctx, (void)e, (void)took_us;
    seen_members = members;
}

/* While an event's deliveries fail its walk is careful, page by page. Those pages count, too. */
static void pages_of_a_careful_walk_are_counted(void **state)
{
    (void)state;
    w.followers[1] = 400;
    w.active_every = 0;
    w.rules = world_small_rules; /* a hundred pages */
    w.before_sink = fail_one_page;
    rotten_from = 1;
    world_engine(&w);
    engine_observe(w.engine, observe, NULL);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    assert_int_equal(world_recorded(&w, DELIVERY_DELAYED), 1);
    assert_int_equal(world_deliveries_of(&w, id), 396);
    assert_int_equal(seen_members, 396);
    rotten_from = 1;
    world_drain(&w, 60 * 1000);
    assert_int_equal(world_deliveries_of(&w, id), 400);
    assert_int_equal(world_ask(&w, "SELECT members FROM deliveries"), 4);
}

/* A failed page does not end its walk: the others of it are still to be read. */
static void an_event_is_expanded_only_when_its_walk_is_at_its_end(void **state)
{
    (void)state;
    w.followers[1] = 100;
    w.active_every = 0;
    w.rules = world_small_rules;
    w.before_sink = fail_one_page;
    rotten_from = 1;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    engine_relay_step(w.engine);
    engine_worker_step(w.engine); /* found large */
    engine_relay_step(w.engine);
    engine_set_lane(w.engine, LANE_REST, 1, 1); /* one page a second */
    while (world_recorded(&w, DELIVERY_DELAYED) == 0) {
        engine_worker_step(w.engine);
        engine_recorder_step(w.engine);
        world_move_to(&w, w.manual.mono_us + 100 * 1000);
    }
    struct event_look look;
    engine_look(w.engine, id, &look);
    assert_int_equal(look.stage, STAGE_PUBLISHED);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.states.published, 1);
    assert_int_equal(stats.states.expanded, 0);
}

/* ---- one actor ---- */

static void follows_and_unfollows_of_one_person_keep_their_order(void **state)
{
    (void)state;
    world_done(&w);
    for (uint64_t seed = 1; seed <= 40; seed++) {
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
        assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 0);
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
    assert_int_equal(at_work[e->actor], 0); /* no other worker serves this actor now */
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
    assert_int_equal(engine_settled_through(w.engine), id);
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
        TEST(while_paused_nothing_is_delivered),
        TEST(the_overload_guard_stops_large_fan_outs_only),
        TEST(a_critical_delivery_is_retried_six_times),
        TEST(a_delivery_that_failed_keeps_the_words_of_its_driver),
        TEST(a_story_tells_of_members_who_are_left_to_pull),
        TEST(a_normal_delivery_is_retried_four_times),
        TEST(a_low_delivery_is_retried_twice_then_dropped_and_counted),
        TEST(the_sink_may_ask_for_a_longer_delay_not_a_shorter_one),
        TEST(a_restart_neither_loses_nor_doubles_a_retry),
        TEST(a_claimed_retry_that_died_with_the_process_is_due_at_once),
        TEST(a_failing_sink_does_not_multiply_deliveries),
        TEST(a_lane_stops_by_itself_and_goes_on_after_a_probe),
        TEST(a_key_that_fails_does_not_stop_its_lane),
        TEST(a_lane_stopped_by_hand_stays_stopped),
        TEST(a_retry_in_a_stopped_lane_is_not_sent_twice),
        TEST(a_full_recorder_costs_no_tries),
        TEST(a_flaky_sink_costs_only_its_failures),
        TEST(pages_of_a_careful_walk_are_counted),
        TEST(an_event_is_expanded_only_when_its_walk_is_at_its_end),
        TEST(follows_and_unfollows_of_one_person_keep_their_order),
        TEST(two_workers_never_work_for_one_person_at_once),
        TEST(a_sink_that_asks_again_is_called_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
