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

static uint64_t held(enum lane lane)
{
    struct bus_lane_stats stats;
    bus_lane_stats(w.bus, (uint16_t)lane, &stats);
    return stats.ready + stats.delayed + stats.taken;
}

/* Every event in the outbox delivered once to all three followers, in order of ids. */
static void assert_all_delivered_once_in_order(size_t events)
{
    assert_true(engine_drained(w.engine));
    assert_int_equal(w.log_count, events);
    for (size_t i = 0; i < events; i++) {
        assert_int_equal(w.log[i].event, w.outbox[i].id);
        assert_int_equal(w.log[i].n, 3);
    }
    assert_int_equal(engine_done_through(w.engine), w.last_committed);
}

static void an_offered_event_reaches_its_lane(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit(&w, EVENT_POST_CREATED, 1, 100);
    world_commit(&w, EVENT_POST_DELETED, 1, 100);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 2);
    assert_false(engine_drained(w.engine));
    world_run_relay(&w);
    assert_int_equal(held(LANE_SMALL), 1);
    assert_int_equal(held(LANE_CLEANUP), 1);
    assert_int_equal(held(LANE_GRAPH), 1);
    assert_int_equal(w.reads, 1); /* the one of the start */
}

static void an_event_that_no_rule_wants_is_done_at_once(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_ACCOUNT_CREATED, 1, 0);
    struct event pulled = {
        .id = id + 1, .type = EVENT_POST_CREATED, .actor = 1, .value = DELIVERY_PULL};
    engine_offer(w.engine, &pulled, 1);
    world_run_relay(&w);
    assert_int_equal(engine_done_through(w.engine), id + 1);
    assert_true(engine_drained(w.engine));
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
    struct event e = {.id = id_next(&w.ids), .type = EVENT_POST_LIKED, .actor = 1};
    engine_offer(w.engine, &e, 1);
    assert_true(engine_drained(w.engine));
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.undone, 0);
}

static void what_the_queue_dropped_is_read_from_the_table(void **state)
{
    (void)state;
    w.config.hand_over_max = 8;
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
    for (uint64_t seed = 1; seed <= 200; seed++) {
        set_up(NULL);
        struct rand r;
        rand_seed(&r, seed);
        w.config.hand_over_max = 1 + rand_below(&r, 40);
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
    w.config.hand_over_max = 1;
    world_engine(&w);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    uint64_t second = world_commit(&w, EVENT_POST_CREATED, 1, 2); /* dropped: the table is read */
    uint64_t third = world_commit_unseen(&w, EVENT_POST_CREATED, 1, 3);
    world_run(&w);
    assert_int_equal(w.log_count, 2);
    assert_int_equal(engine_done_through(w.engine), second);
    struct event e = w.outbox[2];
    assert_int_equal(e.id, third);
    engine_offer(w.engine, &e, 1);
    world_run(&w);
    assert_all_delivered_once_in_order(3);
}

static void a_failing_read_is_tried_again(void **state)
{
    (void)state;
    w.config.hand_over_max = 1;
    world_engine(&w);
    for (uint64_t i = 0; i < 5; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    w.reads_fail = true;
    int64_t due_us = engine_relay_step(w.engine);
    uint64_t reads = w.reads;
    assert_true(due_us > w.manual.mono_us && due_us < INT64_MAX);
    assert_int_equal(engine_relay_step(w.engine), due_us);
    assert_int_equal(w.reads, reads); /* not before it is due */
    w.reads_fail = false;
    w.manual.mono_us = due_us;
    world_run(&w);
    assert_all_delivered_once_in_order(5);
}

static void a_full_lane_is_owed_and_does_not_hold_up_the_others(void **state)
{
    (void)state;
    w.lane_limits[LANE_CLEANUP] = 10;
    world_engine(&w);
    for (uint64_t i = 0; i < 2000; i++)
        world_commit(&w, EVENT_POST_DELETED, 1, i);
    uint64_t post = world_commit(&w, EVENT_POST_CREATED, 2, 5000);
    world_run_relay(&w);
    assert_int_equal(held(LANE_CLEANUP), 10);
    engine_set_lane(w.engine, LANE_CLEANUP, 2, 1); /* one a second */
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, post), 3);
    assert_true(engine_done_through(w.engine) < w.outbox[10].id);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.lanes[LANE_CLEANUP].backlog, stats.undone);
    assert_true(stats.undone > 1900);
    engine_set_lane(w.engine, LANE_CLEANUP, 2, 0);
    world_drain(&w, 60 * 1000);
    assert_true(engine_drained(w.engine));
    uint64_t last = 0;
    size_t deletes = 0;
    for (size_t i = 0; i < w.log_count; i++) {
        if (w.log[i].type != EVENT_POST_DELETED)
            continue;
        assert_true(w.log[i].event > last); /* each once, in order */
        last = w.log[i].event;
        deletes++;
    }
    assert_int_equal(deletes, 2000);
    assert_true(held(LANE_CLEANUP) == 0);
}

static void owed_messages_of_all_lanes_come_in_order_at_random_limits(void **state)
{
    (void)state;
    world_done(&w);
    for (uint64_t seed = 1; seed <= 100; seed++) {
        set_up(NULL);
        struct rand r;
        rand_seed(&r, seed);
        for (int lane = 0; lane < LANE_COUNT; lane++)
            w.lane_limits[lane] = 1 + rand_below(&r, 20);
        w.config.lane_rate[LANE_CLEANUP] = 0;
        w.config.hand_over_max = 1 + rand_below(&r, 300);
        world_engine(&w);
        const enum event_type types[] = {EVENT_POST_CREATED, EVENT_POST_DELETED,
                                         EVENT_FOLLOW_CREATED, EVENT_ACCOUNT_CREATED};
        for (uint64_t i = 0; i < 500; i++) {
            world_commit(&w, types[rand_below(&r, 4)], 1 + rand_below(&r, 9), i);
            if (rand_below(&r, 20) == 0)
                engine_relay_step(w.engine);
            if (rand_below(&r, 10) == 0)
                engine_worker_step(w.engine);
        }
        world_drain(&w, 60 * 1000);
        assert_true(engine_drained(w.engine));
        uint64_t last[EVENT_TYPE_COUNT] = {0};
        size_t wanted = 0;
        for (size_t i = 0; i < w.outbox_count; i++)
            wanted += w.outbox[i].type != EVENT_ACCOUNT_CREATED;
        assert_int_equal(w.log_count, wanted);
        for (size_t i = 0; i < w.log_count; i++) {
            assert_true(w.log[i].event > last[w.log[i].type]);
            last[w.log[i].type] = w.log[i].event;
        }
        world_done(&w);
    }
    set_up(NULL);
}

static void a_row_that_cannot_be_read_stays_undone(void **state)
{
    (void)state;
    uint64_t strange = world_commit_unseen(&w, EVENT_POST_CREATED, 1, 1);
    w.unreadable_rows = true;
    world_engine(&w);
    world_run_relay(&w);
    w.unreadable_rows = false;
    uint64_t good = world_commit(&w, EVENT_POST_CREATED, 1, 2);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, good), 3); /* the others go on */
    assert_int_equal(world_deliveries_of(&w, strange), 0);
    assert_int_equal(engine_done_through(w.engine), strange - 1);
    assert_false(engine_drained(w.engine));
    world_crash(&w);
    world_engine(&w); /* a program that can read it delivers it */
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, strange), 3);
    assert_true(engine_drained(w.engine));
}

static void when_too_much_is_undone_events_wait_in_the_table(void **state)
{
    (void)state;
    w.log_off = true;
    world_engine(&w);
    struct flight *f = &w.engine->flight;
    f->max = 100;
    for (uint64_t i = 0; i < 300; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    assert_true(engine_relay_step(w.engine) <= w.manual.mono_us);
    assert_true(engine_relay_step(w.engine) == INT64_MAX); /* sleeps until a seat is free */
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.events_taken, 100);
    assert_int_equal(stats.undone, 300);
    world_run(&w);
    assert_true(engine_drained(w.engine));
    assert_int_equal(w.delivered, 900);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

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
        TEST(a_full_lane_is_owed_and_does_not_hold_up_the_others),
        TEST(owed_messages_of_all_lanes_come_in_order_at_random_limits),
        TEST(a_row_that_cannot_be_read_stays_undone),
        TEST(when_too_much_is_undone_events_wait_in_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
