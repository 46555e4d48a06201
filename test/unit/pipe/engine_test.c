/* The engine as a whole: start from truth, numbers, the observer, a bad network. All its threads at
 * once: engine_threads_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rand.h"
#include "lossy_bus.h"
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
    engine_watermark_step(w.engine);
    uint64_t half = world_commit(&w, EVENT_POST_CREATED, 1, 2);
    world_run_relay(&w);
    engine_worker_step(w.engine);
    world_run_relay(&w);
    engine_worker_step(w.engine); /* one page of three or four */
    failing = true;
    uint64_t failed = world_commit(&w, EVENT_FOLLOW_CREATED, 2, 3);
    world_run_relay(&w);
    engine_worker_step(w.engine); /* failed, and not in the delivery store when the process dies */
    uint64_t never_seen = world_commit_unseen(&w, EVENT_POST_CREATED, 1, 4);
    world_crash(&w);
    failing = false;
    w.log_count = 0;
    world_engine(&w);
    assert_false(engine_drained(w.engine));
    assert_int_equal(engine_settled_through(w.engine), done);
    uint64_t live = world_commit(&w, EVENT_POST_CREATED, 1, 5); /* goes live without a gap */
    world_run(&w);
    assert_true(engine_drained(w.engine));
    assert_int_equal(world_deliveries_of(&w, done), 0); /* at or below the watermark */
    assert_int_equal(world_deliveries_of(&w, half), 1200);
    assert_int_equal(world_deliveries_of(&w, failed), 1);
    assert_int_equal(world_deliveries_of(&w, never_seen), 1200);
    assert_int_equal(world_deliveries_of(&w, live), 1200);
    assert_int_equal(engine_settled_through(w.engine), live);
}

/* ---- which rules again ---- */

static size_t truth_calls, views_calls;

static enum err count_truth(struct sink_env *env, const struct event *e, const uint64_t *members,
                            size_t n, struct sink_result *result)
{
    (void)env, (void)e, (void)members;
    if (failing)
        return ERR_UNAVAILABLE;
    truth_calls++;
    result->delivered = n;
    return OK;
}

static enum err count_views(struct sink_env *env, const struct event *e, const uint64_t *members,
                            size_t n, struct sink_result *result)
{
    (void)env, (void)e, (void)members;
    views_calls++;
    result->delivered = n;
    return OK;
}

static const struct rule two_effects[] = {
    {.consumer = "kept",
     .on = EVENT_FOLLOW_CREATED,
     .audience = TO_ACTOR,
     .sink = count_truth,
     .lane = LANE_GRAPH,
     .effect = EFFECT_TRUTH,
     .priority = PRIORITY_NORMAL,
     .late_means = ""},
    {.consumer = "derived",
     .on = EVENT_FOLLOW_CREATED,
     .audience = TO_ACTOR,
     .sink = count_views,
     .lane = LANE_GRAPH,
     .effect = EFFECT_VIEWS,
     .priority = PRIORITY_NORMAL,
     .late_means = ""},
};

static void use_two_effects(void)
{
    w.rules = two_effects;
    w.rule_count = 2;
    truth_calls = views_calls = 0;
}

/* Settled events are repeated only where their effect was lost with the views' memory. */
static void settled_events_are_repeated_for_the_views_alone(void **state)
{
    (void)state;
    use_two_effects();
    world_engine(&w);
    for (uint64_t i = 0; i < 5; i++)
        world_commit(&w, EVENT_FOLLOW_CREATED, 1 + i, i);
    world_run(&w);
    engine_watermark_step(w.engine);
    world_crash(&w);
    w.views.loaded_position = w.committed[1];
    world_engine(&w);
    world_run(&w);
    assert_int_equal(truth_calls, 5);
    assert_int_equal(views_calls, 5 + 3);
    assert_true(engine_drained(w.engine));
}

/* A pending event with one delivery in the delivery store: the other one is repeated, this one is
 * not. */
static void what_the_delivery_store_has_is_not_delivered_again_by_a_start(void **state)
{
    (void)state;
    use_two_effects();
    failing = true;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    assert_int_equal(world_recorded(&w, DELIVERY_DELAYED), 1);
    assert_int_equal(world_recorded(&w, DELIVERY_WAITING), 1); /* of the same key */
    world_crash(&w);
    failing = false;
    world_engine(&w);
    world_run(&w);
    assert_int_equal(truth_calls + views_calls, 0);
    world_drain(&w, 10 * 1000);
    assert_int_equal(truth_calls, 1);
    assert_int_equal(views_calls, 1);
    assert_true(engine_drained(w.engine));
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
    engine_watermark_step(w.engine);
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
    w.faults->reads_fail = true;
    assert_int_equal(engine_recover(w.engine), ERR_UNAVAILABLE);
    w.faults->reads_fail = false;
    w.faults->writes_fail = ERR_STORAGE_FULL; /* claims could not be reopened */
    assert_int_equal(engine_recover(w.engine), ERR_STORAGE_FULL);
}

static void an_empty_store_is_drained(void **state)
{
    (void)state;
    world_engine(&w);
    world_run(&w);
    assert_true(engine_drained(w.engine));
    assert_int_equal(engine_settled_through(w.engine), 0);
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
    assert_int_equal(stats.settled_through, w.last_committed);
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

/* ---- a bus that loses, doubles and reorders ---- */

static const struct lossy_config bad_network = {.lose = 30,
                                                .lose_ack = 100,
                                                .lose_retry = 100,
                                                .double_up = 300,
                                                .delay = 100,
                                                .break_off = 50,
                                                .window = 50,
                                                .delay_us = 3000 * 1000,
                                                .redeliver_us = 20000 * 1000};
static struct rand flaky;
static enum event_type mixed_type(uint64_t n)
{
    return n % 3 == 0   ? EVENT_POST_CREATED
           : n % 3 == 1 ? EVENT_FOLLOW_CREATED
                        : EVENT_FOLLOW_REMOVED;
}

static enum err fail_sometimes(struct world *world, const struct event *e, const uint64_t *members,
                               size_t n)
{
    (void)world, (void)e, (void)members, (void)n;
    return rand_below(&flaky, 12) == 0 ? ERR_TIMEOUT : OK;
}

/* Each person's events in their order, and nothing of a page done twice, whatever the network does;
 * sinks fail on top of it. */
static void order_is_kept_over_a_bad_network(void **state)
{
    (void)state;
    world_done(&w);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        set_up(NULL);
        rand_seed(&flaky, seed);
        struct lossy_config network = bad_network;
        network.seed = seed;
        w.next_bus = lossy_bus_new(LANE_COUNT, w.lane_limits, w.clock, &network);
        w.rules = world_small_rules;
        w.before_sink = fail_sometimes;
        w.config.resend_after_ms = 10 * 1000;
        for (uint64_t a = 0; a < 8; a++)
            w.followers[a] = a * 3;
        world_engine(&w);
        enum { N = 150 };
        for (uint64_t i = 0; i < N; i++) {
            world_commit(&w, mixed_type(rand_below(&flaky, 3)), 1 + rand_below(&flaky, 7), i);
            for (int lane = 0; lane < LANE_COUNT; lane++)
                engine_stop_lane(w.engine, (enum lane)lane, false);
            if (rand_below(&flaky, 4) == 0)
                world_pass(&w, (int64_t)rand_below(&flaky, 4000));
        }
        lossy_bus_calm(w.bus);
        world_drain(&w, 24 * 3600 * 1000);
        assert_true(engine_drained(w.engine));
        assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 0);
        uint64_t last[8] = {0};
        uint64_t reached[N] = {0};
        for (size_t i = 0; i < w.log_count; i++) {
            const struct world_delivery *d = &w.log[i];
            reached[d->object] += d->n;
            if (d->type == EVENT_POST_CREATED)
                continue;
            if (d->event <= last[d->actor])
                fail_msg("seed %d: %llu after %llu", (int)seed, (unsigned long long)d->event,
                         (unsigned long long)last[d->actor]);
            last[d->actor] = d->event;
        }
        for (size_t i = 0; i < N; i++)
            assert_true(reached[i] > 0);
        world_done(&w);
    }
    set_up(NULL);
}

static bool let_in;

/* Another worker takes whatever is on the bus while this one is at its sink. */
static enum err let_another_in(struct world *world, const struct event *e, const uint64_t *members,
                               size_t n)
{
    (void)e, (void)members, (void)n;
    if (!let_in) {
        let_in = true;
        engine_worker_step(world->engine);
    }
    return OK;
}

static void a_message_that_comes_twice_is_worked_on_once(void **state)
{
    (void)state;
    struct lossy_config network = {.seed = 1, .double_up = 1000};
    w.next_bus = lossy_bus_new(LANE_COUNT, w.lane_limits, w.clock, &network);
    w.before_sink = let_another_in;
    let_in = false;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    assert_int_equal(w.log_count, 1);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.bus_duplicates, 1);
}

/* The first copy fails and waits for the delivery store; the second must not slip through
 * meanwhile. */
static void a_second_copy_of_a_failed_message_is_recognised(void **state)
{
    (void)state;
    struct lossy_config network = {.seed = 1, .double_up = 1000};
    w.next_bus = lossy_bus_new(LANE_COUNT, w.lane_limits, w.clock, &network);
    w.before_sink = fail_if_told;
    failing = true;
    world_engine(&w);
    engine_set_lane(w.engine, LANE_GRAPH, 1, 1000); /* one token at a time */
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    uint64_t behind = world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 1);
    world_run_relay(&w);
    engine_worker_step(w.engine);
    failing = false;
    for (int i = 0; i < 10; i++)
        engine_worker_step(w.engine);
    world_run(&w);
    assert_int_equal(w.log_count,
                     0); /* it is in the delivery store, and what follows waits behind it */
    world_drain(&w, 60 * 1000);
    assert_int_equal(w.log_count, 2);
    assert_int_equal(w.log[1].event, behind);
}

/* What was lost is sent again; a lane that does not drain is not filled beyond its limit by that.
 */
static void lost_messages_are_sent_again_within_the_limit(void **state)
{
    (void)state;
    struct lossy_config network = {.seed = 1, .lose = 1000};
    w.lane_limits[LANE_GRAPH] = 10;
    w.next_bus = lossy_bus_new(LANE_COUNT, w.lane_limits, w.clock, &network);
    w.config.resend_after_ms = 5000;
    world_engine(&w);
    for (uint64_t i = 0; i < 5; i++)
        world_commit(&w, EVENT_FOLLOW_CREATED, 1 + i, i);
    world_run(&w);
    assert_int_equal(world_held(&w, LANE_GRAPH), 0);
    lossy_bus_calm(w.bus);
    engine_stop_lane(w.engine, LANE_GRAPH, true);
    world_pass(&w, 3600 * 1000);
    assert_true(world_held(&w, LANE_GRAPH) <= 10);
    engine_stop_lane(w.engine, LANE_GRAPH, false);
    world_drain(&w, 60 * 1000);
    assert_int_equal(w.log_count, 5);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_true(stats.resent >= 5);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_undone_is_done_after_a_crash),
        TEST(the_start_is_where_the_views_were_saved),
        TEST(settled_events_are_repeated_for_the_views_alone),
        TEST(what_the_delivery_store_has_is_not_delivered_again_by_a_start),
        TEST(a_store_that_cannot_be_read_stops_the_start),
        TEST(an_empty_store_is_drained),
        TEST(the_numbers_tell_what_waits_where_and_for_how_long),
        TEST(a_complete_fan_out_is_observed_once_with_its_size_and_time),
        TEST(order_is_kept_over_a_bad_network),
        TEST(a_message_that_comes_twice_is_worked_on_once),
        TEST(a_second_copy_of_a_failed_message_is_recognised),
        TEST(lost_messages_are_sent_again_within_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
