/* The relay: live events, overflow and catch-up, full lanes, rows that cannot be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rand.h"
#include "pipe/state.h"
#include "world.h"

static struct world w;

static int set_up(void **state)
{
    (void)state;
    world_init(&w);
    for (uint64_t a = 0; a < WORLD_AUTHORS; a++)
        w.followers[a] = 3;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

/* Every event in the outbox delivered once to all three followers, in order of ids. */
static void assert_all_delivered_once_in_order(size_t events)
{
    assert_true(engine_drained(w.engine));
    assert_int_equal(w.log_count, events);
    for (size_t i = 0; i < events; i++) {
        assert_int_equal(w.log[i].event, w.committed[i]);
        assert_int_equal(w.log[i].n, 3);
    }
    assert_int_equal(engine_settled_through(w.engine), w.last_committed);
}

static void an_offered_event_reaches_its_lane(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t at_start = w.reads;
    world_commit(&w, EVENT_POST_CREATED, 1, 100);
    world_commit(&w, EVENT_POST_DELETED, 1, 100);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 2);
    assert_false(engine_drained(w.engine));
    world_run_relay(&w);
    assert_int_equal(world_held(&w, LANE_SMALL), 1);
    assert_int_equal(world_held(&w, LANE_CLEANUP), 1);
    assert_int_equal(world_held(&w, LANE_GRAPH), 1);
    assert_int_equal(w.reads, at_start + 1); /* a look for released ones */
}

static void an_event_that_no_rule_wants_is_done_at_once(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit(&w, EVENT_ACCOUNT_CREATED, 1, 0);
    uint64_t pulled = world_commit_value(&w, EVENT_POST_CREATED, 1, 5, DELIVERY_PULL);
    world_run(&w);
    assert_int_equal(engine_settled_through(w.engine), pulled);
    assert_true(engine_drained(w.engine));
    struct trace_summary story;
    struct trace_record record;
    size_t n, left_out;
    trace_find(engine_trace(w.engine), pulled, &story, &record, 1, &n, &left_out);
    assert_int_equal(n, 1);
    assert_int_equal(record.kind, TRACE_UNWANTED);
    assert_string_equal(record.why, "it is pulled");
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.events_taken, 2);
    assert_int_equal(stats.events_done, 2);
    assert_int_equal(stats.undone, 0);
}

static void passing_events_are_not_the_engines(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit(&w, EVENT_POST_LIKED, 1, 1);
    world_run(&w);
    assert_true(engine_drained(w.engine));
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.undone, 0);
}

static void what_the_queue_dropped_is_read_from_the_table(void **state)
{
    (void)state;
    w.config.commit_queue_max = 8;
    world_engine(&w);
    for (uint64_t i = 0; i < 1000; i++)
        world_commit(&w, EVENT_POST_CREATED, i % WORLD_AUTHORS, i);
    world_run(&w);
    assert_all_delivered_once_in_order(1000);
    assert_true(w.reads >= 1000 / RELAY_BATCH);
}

/* Overflow again and again, with live events coming in between relay steps, at random. */
static void catching_up_loses_doubles_and_reorders_nothing(void **state)
{
    (void)state;
    world_done(&w);
    for (uint64_t seed = 1; seed <= 60; seed++) {
        set_up(NULL);
        struct rand r;
        rand_seed(&r, seed);
        w.config.commit_queue_max = 1 + rand_below(&r, 40);
        world_engine(&w);
        size_t events = 0;
        while (events < 600) {
            for (uint64_t burst = rand_below(&r, 60); burst > 0; burst--, events++)
                world_commit(&w, EVENT_POST_CREATED, rand_below(&r, WORLD_AUTHORS), events);
            for (uint64_t steps = rand_below(&r, 3); steps > 0; steps--)
                engine_relay_step(w.engine);
            if (rand_below(&r, 5) == 0)
                engine_worker_step(w.engine);
        }
        world_run(&w);
        assert_all_delivered_once_in_order(events);
        world_done(&w);
    }
    set_up(NULL);
}

/* A row whose commit hook has not run is not fanned out, though the table shows it. */
static void nothing_is_taken_before_it_was_offered(void **state)
{
    (void)state;
    w.config.commit_queue_max = 1;
    world_engine(&w);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    uint64_t second = world_commit(&w, EVENT_POST_CREATED, 1, 2); /* dropped: the table is read */
    uint64_t third = world_commit_unseen(&w, EVENT_POST_CREATED, 1, 3);
    world_run(&w);
    assert_int_equal(w.log_count, 2);
    assert_int_equal(engine_settled_through(w.engine), second);
    world_offer(&w, third, EVENT_POST_CREATED, 1, 3);
    world_run(&w);
    assert_all_delivered_once_in_order(3);
}

static void a_failing_read_is_tried_again(void **state)
{
    (void)state;
    w.config.commit_queue_max = 1;
    world_engine(&w);
    for (uint64_t i = 0; i < 5; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    w.faults->reads_fail = true;
    int64_t due_us = engine_relay_step(w.engine);
    uint64_t reads = w.reads;
    assert_true(due_us > w.manual.mono_us && due_us < INT64_MAX);
    assert_int_equal(engine_relay_step(w.engine), due_us);
    assert_int_equal(w.reads, reads); /* not before it is due */
    w.faults->reads_fail = false;
    world_move_to(&w, due_us);
    world_run(&w);
    assert_all_delivered_once_in_order(5);
}

static void a_full_lane_keeps_work_ready_and_does_not_hold_up_the_others(void **state)
{
    (void)state;
    w.lane_limits[LANE_CLEANUP] = 10;
    world_engine(&w);
    for (uint64_t i = 0; i < 2000; i++)
        world_commit(&w, EVENT_POST_DELETED, 1, i);
    uint64_t post = world_commit(&w, EVENT_POST_CREATED, 2, 5000);
    world_run_relay(&w);
    assert_int_equal(world_held(&w, LANE_CLEANUP), 10);
    engine_set_lane(w.engine, LANE_CLEANUP, 2, 1); /* one a second */
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, post), 3);
    assert_true(engine_settled_through(w.engine) < w.committed[10]);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.lanes[LANE_CLEANUP].backlog, stats.undone);
    assert_true(stats.undone > 1900);
    engine_set_lane(w.engine, LANE_CLEANUP, 2, 0);
    world_drain(&w, 60 * 1000);
    assert_true(engine_drained(w.engine));
    bool seen[2000] = {false};
    size_t deletes = 0;
    for (size_t i = 0; i < w.log_count; i++) {
        if (w.log[i].type != EVENT_POST_DELETED)
            continue;
        assert_false(seen[w.log[i].object]); /* each once */
        seen[w.log[i].object] = true;
        deletes++;
    }
    assert_int_equal(deletes, 2000);
    assert_true(world_held(&w, LANE_CLEANUP) == 0);
}

static void ready_messages_of_all_lanes_come_once_at_random_limits(void **state)
{
    (void)state;
    world_done(&w);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        set_up(NULL);
        struct rand r;
        rand_seed(&r, seed);
        for (int lane = 0; lane < LANE_COUNT; lane++)
            w.lane_limits[lane] = 1 + rand_below(&r, 20);
        w.config.lane_rate[LANE_CLEANUP] = 0;
        w.config.commit_queue_max = 1 + rand_below(&r, 300);
        world_engine(&w);
        const enum event_type types[] = {EVENT_POST_CREATED, EVENT_POST_DELETED,
                                         EVENT_FOLLOW_CREATED, EVENT_ACCOUNT_CREATED};
        size_t wanted = 0;
        for (uint64_t i = 0; i < 500; i++) {
            enum event_type type = types[rand_below(&r, 4)];
            wanted += type != EVENT_ACCOUNT_CREATED;
            world_commit(&w, type, 1 + rand_below(&r, 9), i);
            if (rand_below(&r, 20) == 0)
                engine_relay_step(w.engine);
            if (rand_below(&r, 10) == 0)
                engine_worker_step(w.engine);
        }
        world_drain(&w, 60 * 1000);
        assert_true(engine_drained(w.engine));
        uint64_t last[10] = {0};
        bool seen[500] = {false};
        assert_int_equal(w.log_count, wanted);
        for (size_t i = 0; i < w.log_count; i++) {
            assert_false(seen[w.log[i].object]);
            seen[w.log[i].object] = true;
            if (w.log[i].type != EVENT_FOLLOW_CREATED)
                continue;
            /* An ordered lane keeps the order of each person. */
            assert_true(w.log[i].event > last[w.log[i].actor]);
            last[w.log[i].actor] = w.log[i].event;
        }
        world_done(&w);
    }
    set_up(NULL);
}

/* ---- rows that cannot be read ---- */

static uint64_t states(enum delivery_state state)
{
    return world_recorded(&w, state);
}

static void a_poison_row_is_parked_and_blocks_nothing(void **state)
{
    (void)state;
    uint64_t strange = world_commit_strange(&w, "future.thing", 1);
    uint64_t newer = world_commit_strange(&w, "post.created", 99);
    uint64_t good = world_commit_unseen(&w, EVENT_POST_CREATED, 1, 2);
    world_engine(&w);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, good), 3);
    assert_int_equal(w.log_count, 1);
    assert_int_equal(states(DELIVERY_PARKED), 2);
    assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM deliveries WHERE state = 8 AND "
                                   "reason = 'UNKNOWN_TYPE' AND type = 'future.thing'"),
                     1);
    assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM deliveries WHERE state = 8 AND "
                                   "reason = 'UNKNOWN_VERSION' AND version = 99"),
                     1);
    assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM outbox WHERE state = 2"), 2);
    assert_true(strange < newer && newer < good);
    assert_int_equal(engine_settled_through(w.engine), good);
    assert_true(engine_drained(w.engine));
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.undone, 0); /* it is decided what becomes of them */
    assert_int_equal(stats.states.pending, 0);
}

/* What an upgrade does to a row: now it can be read. */
static void learn(void)
{
    world_do(&w, "UPDATE outbox SET type = 'post.created', version = 1 WHERE state = 2; "
                 "UPDATE deliveries SET type = 'post.created', version = 1 WHERE state = 8; "
                 "UPDATE delivery_counts SET type = 'post.created'");
}

static void a_parked_event_that_is_released_is_delivered_once(void **state)
{
    (void)state;
    uint64_t strange = world_commit_strange(&w, "future.thing", 1);
    world_engine(&w);
    world_run(&w);
    engine_watermark_step(w.engine);
    assert_int_equal(world_watermark(&w), strange);
    const struct delivery_filter all = {.state = DELIVERY_PARKED};
    assert_int_equal(world_release(&w, &all), 0); /* still a stranger */
    learn();
    assert_int_equal(world_release(&w, &all), 1);
    world_pass(&w, 3000);
    assert_int_equal(world_deliveries_of(&w, strange), 3);
    assert_int_equal(world_ask(&w, "SELECT state FROM outbox"), 1);
    assert_int_equal(states(DELIVERY_RELEASED), 1);
    world_crash(&w);
    world_engine(&w);
    world_pass(&w, 3000);
    assert_int_equal(world_deliveries_of(&w, strange), 3);
}

static enum err never(struct world *world, const struct event *e, const uint64_t *members, size_t n)
{
    (void)world, (void)e, (void)members, (void)n;
    return ERR_UNAVAILABLE;
}

static void a_released_event_that_fails_is_settled_and_in_the_delivery_store(void **state)
{
    (void)state;
    uint64_t strange = world_commit_strange(&w, "future.thing", 1);
    world_engine(&w);
    world_run(&w);
    engine_watermark_step(w.engine);
    learn();
    w.before_sink = never;
    assert_int_equal(world_release(&w, &(struct delivery_filter){.state = DELIVERY_PARKED}), 1);
    world_pass(&w, 1500);
    assert_int_equal(states(DELIVERY_DELAYED), 1);
    assert_int_equal(world_ask(&w, "SELECT state FROM outbox"), 1);
    w.before_sink = NULL;
    world_drain(&w, 10000);
    assert_int_equal(world_deliveries_of(&w, strange), 3);
}

/* Its release comes while the watermark is held below it by an older event. The watermark passes it
 * later and must not take it for one that was delivered. */
static void a_release_above_the_watermark_is_not_lost(void **state)
{
    (void)state;
    world_engine(&w);
    engine_stop_lane(w.engine, LANE_SMALL, true);
    uint64_t slow = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    world_crash(&w);
    uint64_t strange = world_commit_strange(&w, "future.thing", 1);
    world_engine(&w);
    engine_stop_lane(w.engine, LANE_SMALL, true);
    world_run(&w);
    assert_int_equal(states(DELIVERY_PARKED), 1);
    learn();
    assert_int_equal(world_release(&w, &(struct delivery_filter){.state = DELIVERY_PARKED}), 1);
    world_pass(&w, 2000);
    assert_int_equal(w.log_count, 0);
    engine_stop_lane(w.engine, LANE_SMALL, false);
    for (int i = 0; i < 5; i++) {
        world_pass(&w, 1000);
        engine_watermark_step(w.engine);
    }
    assert_int_equal(world_deliveries_of(&w, slow), 3);
    assert_int_equal(world_deliveries_of(&w, strange), 3);
    assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM outbox WHERE state = 1"), 2);
    assert_int_equal(world_ask(&w, "SELECT SUM(count) FROM event_counts WHERE state = 'settled'"),
                     2);
}

/* The process dies between the release and the delivery, and the views come back with a state that
 * is older than the event: neither way of finding it may double the other. */
static void a_release_survives_a_crash_and_is_not_doubled(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t first = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    world_crash(&w);
    uint64_t strange = world_commit_strange(&w, "future.thing", 1);
    world_engine(&w);
    world_run(&w);
    engine_watermark_step(w.engine);
    assert_int_equal(world_watermark(&w), strange);
    learn();
    world_crash(&w);
    assert_int_equal(world_release(&w, &(struct delivery_filter){.state = DELIVERY_PARKED}), 1);
    w.views.loaded_position = w.saved_position = first;
    world_engine(&w);
    for (int i = 0; i < 4; i++) {
        world_pass(&w, 1000);
        engine_watermark_step(w.engine);
    }
    assert_int_equal(world_deliveries_of(&w, strange), 3);
    assert_true(engine_drained(w.engine));
}

/* Released by a newer program that was then taken back: it is parked again and does not stand in
 * the way of others. */
static void a_pending_row_below_the_watermark_that_cannot_be_read_is_parked_again(void **state)
{
    (void)state;
    uint64_t strange = world_commit_strange(&w, "future.thing", 1);
    world_engine(&w);
    world_run(&w);
    engine_watermark_step(w.engine);
    world_do(&w, "UPDATE outbox SET state = 0; UPDATE deliveries SET state = 9; "
                 "UPDATE delivery_counts SET state = 9, reason = ''");
    world_pass(&w, 3000);
    assert_int_equal(world_ask(&w, "SELECT state FROM outbox"), 2);
    assert_int_equal(states(DELIVERY_PARKED), 1);
    assert_int_equal(world_ask(&w, "SELECT event_id FROM deliveries"), strange);
}

/* ---- limits ---- */

static void when_too_much_is_undone_events_wait_in_the_table(void **state)
{
    (void)state;
    w.log_off = true;
    world_engine(&w);
    struct inflight *f = &w.engine->inflight;
    f->max = 100;
    for (uint64_t i = 0; i < 300; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    assert_true(engine_relay_step(w.engine) <= w.manual.mono_us);
    assert_true(engine_relay_step(w.engine) > w.manual.mono_us); /* until a slot is free */
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.events_taken, 100);
    assert_int_equal(stats.undone, 300);
    world_run(&w);
    assert_true(engine_drained(w.engine));
    assert_int_equal(w.delivered, 900);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* Half a million events of a stopped lane take every slot; then they go to the delivery store. */
static void a_stopped_lane_leaves_slots_to_the_others(void **state)
{
    (void)state;
    w.followers[1] = 1;
    w.log_off = true;
    world_engine(&w);
    engine_stop_lane(w.engine, LANE_CLEANUP, true);
    for (uint64_t i = 0; i < 560000; i++) {
        world_commit(&w, EVENT_POST_DELETED, 1, i + 1);
        if (i % 4096)
            continue;
        world_run(&w);
        w.delivered = 0;
        world_commit(&w, EVENT_FOLLOW_CREATED, 2, 3);
        world_run(&w);
        assert_int_equal(w.delivered, 1);
    }
    assert_true(world_ask(&w, "SELECT COUNT(*) FROM deliveries WHERE reason = 'LANE_STOPPED'") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_offered_event_reaches_its_lane),
        TEST(an_event_that_no_rule_wants_is_done_at_once),
        TEST(passing_events_are_not_the_engines),
        TEST(what_the_queue_dropped_is_read_from_the_table),
        TEST(catching_up_loses_doubles_and_reorders_nothing),
        TEST(nothing_is_taken_before_it_was_offered),
        TEST(a_failing_read_is_tried_again),
        TEST(a_full_lane_keeps_work_ready_and_does_not_hold_up_the_others),
        TEST(ready_messages_of_all_lanes_come_once_at_random_limits),
        TEST(a_poison_row_is_parked_and_blocks_nothing),
        TEST(a_parked_event_that_is_released_is_delivered_once),
        TEST(a_released_event_that_fails_is_settled_and_in_the_delivery_store),
        TEST(a_release_above_the_watermark_is_not_lost),
        TEST(a_release_survives_a_crash_and_is_not_doubled),
        TEST(a_pending_row_below_the_watermark_that_cannot_be_read_is_parked_again),
        TEST(a_stopped_lane_leaves_slots_to_the_others),
        TEST(when_too_much_is_undone_events_wait_in_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
