/* The watermark is saved by time and never passes an undone event; the outbox loses only rows that
 * the watermark and the views' saved state both cover, a slice at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rand.h"
#include "world.h"

static struct world w;
static bool failing;

static int set_up(void **state)
{
    (void)state;
    failing = false;
    world_init(&w);
    w.followers[1] = 2;
    w.config.retain_settled_ms = 0; /* where a test does not say otherwise */
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

static uint64_t saved(void)
{
    return world_watermark(&w);
}

static void the_watermark_is_saved_when_it_moved_and_not_more_often(void **state)
{
    (void)state;
    w.config.watermark_every_ms = 1000;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    engine_watermark_step(w.engine); /* nothing done yet */
    assert_int_equal(saved(), 0);
    world_run(&w);
    int64_t due_us = engine_watermark_step(w.engine);
    assert_int_equal(saved(), 0); /* done, but not yet time */
    assert_int_equal(due_us, w.manual.mono_us + 1000000);
    world_move_to(&w, due_us);
    uint64_t writes = w.writes;
    engine_watermark_step(w.engine);
    assert_int_equal(saved(), id);
    assert_int_equal(world_ask(&w, "SELECT state FROM outbox"), 1);
    assert_int_equal(world_ask(&w, "SELECT count FROM event_counts WHERE state = 'settled'"), 1);
    assert_int_equal(w.writes, writes + 1);
    manual_clock_advance(&w.manual, 1000);
    engine_watermark_step(w.engine);
    assert_int_equal(w.writes, writes + 1); /* it has not moved */
}

/* After a burst the store's writer is held for a slice at a time. */
static void a_burst_is_settled_in_slices(void **state)
{
    (void)state;
    w.log_off = true;
    world_engine(&w);
    for (uint64_t i = 0; i < 4500; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    world_run(&w);
    const int64_t settled[] = {2000, 4000, 4500};
    for (int i = 0; i < 3; i++) {
        int64_t due_us = engine_watermark_step(w.engine);
        assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM outbox WHERE state = 1"), settled[i]);
        assert_int_equal(saved(), w.committed[settled[i] - 1]);
        assert_true(due_us > w.manual.mono_us);
        assert_true(i == 2 || due_us <= w.manual.mono_us + 10 * 1000);
        world_move_to(&w, due_us);
    }
    assert_int_equal(world_ask(&w, "SELECT count FROM event_counts WHERE state = 'settled'"), 4500);
}

static void an_undone_event_holds_the_watermark(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t first = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    engine_stop_lane(w.engine, LANE_CLEANUP, true);
    uint64_t stuck = world_commit(&w, EVENT_POST_DELETED, 1, 2);
    uint64_t last = world_commit(&w, EVENT_POST_CREATED, 1, 3);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, last), 2);
    engine_watermark_step(w.engine);
    assert_int_equal(saved(), stuck - 1);
    assert_true(saved() >= first);
    engine_stop_lane(w.engine, LANE_CLEANUP, false);
    world_run(&w);
    manual_clock_advance(&w.manual, 1000);
    engine_watermark_step(w.engine);
    assert_int_equal(saved(), last);
}

/* A recorded delivery has all it needs: the watermark passes its event, also when it is dead. */
static void what_is_in_the_delivery_store_does_not_hold_the_watermark(void **state)
{
    (void)state;
    w.before_sink = fail_if_told;
    failing = true;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run_relay(&w);
    engine_worker_step(w.engine);
    engine_watermark_step(w.engine);
    assert_int_equal(saved(), id - 1); /* failed, not yet in the delivery store */
    world_run_recorder(&w);
    manual_clock_advance(&w.manual, 1000);
    engine_watermark_step(w.engine);
    assert_int_equal(saved(), id);
    w.saved_position = id;
    manual_clock_advance(&w.manual, 1000);
    engine_watermark_step(w.engine);
    assert_int_equal(world_outbox_count(&w), 0);
    failing = false;
    world_drain(&w, 10 * 1000);
    assert_int_equal(world_deliveries_of(&w, id), 2); /* from the row alone */
}

static void a_store_that_refuses_is_asked_again(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    w.saved_position = id;
    w.faults->writes_fail = ERR_STORAGE_FULL;
    int64_t due_us = engine_watermark_step(w.engine);
    assert_int_equal(world_outbox_count(&w), 1);
    assert_true(due_us > w.manual.mono_us && due_us < INT64_MAX);
    w.faults->writes_fail = OK;
    world_move_to(&w, due_us);
    engine_watermark_step(w.engine);
    assert_int_equal(saved(), id);
    assert_int_equal(world_outbox_count(&w), 0);
}

static void rows_go_in_slices_when_both_cover_them(void **state)
{
    (void)state;
    w.config.trim_slice = 10;
    world_engine(&w);
    for (uint64_t i = 0; i < 35; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    world_run(&w);
    engine_watermark_step(w.engine);
    assert_int_equal(world_outbox_count(&w), 35); /* no saved state covers them */
    w.saved_position = w.committed[24];
    size_t expected[] = {25, 15, 10, 10};
    for (int i = 0; i < 4; i++) {
        int64_t due_us = engine_watermark_step(w.engine);
        assert_int_equal(world_outbox_count(&w), expected[i]);
        assert_true(due_us > w.manual.mono_us);
        world_move_to(&w, due_us);
    }
    assert_int_equal(world_ask(&w, "SELECT count FROM event_counts WHERE state = 'archived'"), 25);
    w.saved_position = w.last_committed + 1000; /* beyond the watermark: the watermark counts */
    uint64_t undone = world_commit_unseen(&w, EVENT_POST_CREATED, 1, 99);
    assert_int_equal(world_outbox_count(&w), 11);
    for (int i = 0; i < 10; i++) {
        manual_clock_advance(&w.manual, 1000);
        engine_watermark_step(w.engine);
    }
    assert_int_equal(world_outbox_count(&w), 1);
    assert_int_equal(world_ask(&w, "SELECT id FROM outbox"), undone);
}

/* Random failures, saved positions and slices: a row that is gone was done and covered. */
static void no_uncovered_row_is_ever_removed(void **state)
{
    (void)state;
    world_done(&w);
    for (uint64_t seed = 1; seed <= 30; seed++) {
        set_up(NULL);
        struct rand r;
        rand_seed(&r, seed);
        w.config.trim_slice = 1 + rand_below(&r, 8);
        w.config.watermark_every_ms = 1 + (int64_t)rand_below(&r, 100);
        w.before_sink = fail_if_told;
        world_engine(&w);
        uint64_t ids[150];
        size_t n = 0;
        while (n < 150) {
            failing = rand_below(&r, 4) == 0;
            for (uint64_t burst = rand_below(&r, 6); burst > 0 && n < 150; burst--, n++)
                ids[n] = world_commit(&w, EVENT_POST_CREATED, 1, n);
            world_run(&w);
            if (rand_below(&r, 5) == 0 && n)
                w.saved_position = engine_settled_through(w.engine);
            manual_clock_advance(&w.manual, (int64_t)rand_below(&r, 3000));
            engine_watermark_step(w.engine);
            assert_true(saved() <= engine_settled_through(w.engine));
            size_t gone = n - world_outbox_count(&w);
            for (size_t i = 0; i < gone; i++) {
                assert_true(ids[i] <= saved() && ids[i] <= w.saved_position);
                char sql[100];
                snprintf(sql, sizeof sql, "SELECT COUNT(*) FROM deliveries WHERE event_id = %llu",
                         (unsigned long long)ids[i]);
                assert_true(world_deliveries_of(&w, ids[i]) == 2 || world_ask(&w, sql) == 1);
            }
        }
        world_done(&w);
    }
    set_up(NULL);
}

static void the_saved_watermark_never_goes_back(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t first = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    uint64_t last = world_commit(&w, EVENT_POST_CREATED, 1, 2);
    world_run(&w);
    engine_watermark_step(w.engine);
    assert_int_equal(saved(), last);
    world_crash(&w);
    w.views.loaded_position = first; /* the views come back with an older state */
    w.saved_position = first;
    world_engine(&w);
    assert_int_equal(engine_settled_through(w.engine), first);
    engine_pause(w.engine, true);
    world_run_relay(&w);
    engine_watermark_step(w.engine);
    assert_int_equal(saved(), last);
    assert_int_equal(world_outbox_count(&w), 1); /* what was not delivered again is still there */
    engine_pause(w.engine, false);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, last), 4);
}

/* ---- retention ---- */

static void settled_rows_stay_as_long_as_replays_reach(void **state)
{
    (void)state;
    w.config.retain_settled_ms = 3600 * 1000;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    w.saved_position = id;
    for (int minute = 0; minute < 59; minute++) {
        manual_clock_advance(&w.manual, 60 * 1000);
        engine_watermark_step(w.engine);
    }
    assert_int_equal(world_outbox_count(&w), 1);
    manual_clock_advance(&w.manual, 61 * 1000);
    engine_watermark_step(w.engine);
    engine_watermark_step(w.engine);
    assert_int_equal(world_outbox_count(&w), 0);
}

static void closed_deliveries_go_sooner_than_dead_ones(void **state)
{
    (void)state;
    w.config.retain_closed_ms = 3600 * 1000;
    w.config.retain_dead_ms = 7200 * 1000;
    w.before_sink = fail_if_told;
    failing = true;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    uint64_t behind = world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 1);
    world_commit(&w, EVENT_POST_DELETED, 1, 2);
    world_pass(&w, 1200 * 1000);
    assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 1);
    assert_int_equal(world_recorded(&w, DELIVERY_DROPPED), 1);
    assert_int_equal(world_recorded(&w, DELIVERY_WAITING), 1);
    failing = false;
    manual_clock_advance(&w.manual, 3600 * 1000);
    engine_watermark_step(w.engine);
    assert_int_equal(world_recorded(&w, DELIVERY_DROPPED), 0);
    assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 1);
    assert_int_equal(world_deliveries_of(&w, behind), 0);
    manual_clock_advance(&w.manual, 3600 * 1000);
    engine_watermark_step(w.engine);
    assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 0);
    world_drain(&w, 5000);
    assert_int_equal(world_deliveries_of(&w, behind), 1); /* its key goes on */
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.blocked_keys, 0);
}

/* Looking at every key in the delivery store is for when one may have come free. */
static void closed_deliveries_go_without_a_look_at_the_keys(void **state)
{
    (void)state;
    w.before_sink = fail_if_told;
    world_engine(&w);
    failing = true;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    failing = false;
    world_drain(&w, 60 * 1000);
    assert_int_equal(world_recorded(&w, DELIVERY_DONE), 1);
    world_pass(&w, w.config.retain_closed_ms + 60 * 1000);
    assert_true(engine_drained(w.engine));
    engine_watermark_step(w.engine);
    assert_int_equal(world_recorded(&w, DELIVERY_DONE), 0);
    assert_true(engine_drained(w.engine));
}

/* A parked event that is given up goes like any other, though everything around it went before. */
static void a_parked_event_that_was_discarded_is_trimmed(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit_strange(&w, "post.created", 99);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_crash(&w); /* what is live is always read by its writer: it is found at the start */
    world_engine(&w);
    world_run(&w);
    w.saved_position = INT64_MAX;
    for (int i = 0; i < 5; i++) {
        engine_watermark_step(w.engine);
        world_pass(&w, 1000);
    }
    assert_int_equal(world_outbox_count(&w), 1);
    struct delivery_filter parked = {.state = DELIVERY_PARKED};
    assert_int_equal(world_discard(&w, &parked), 1);
    for (int i = 0; i < 5; i++) {
        engine_watermark_step(w.engine);
        world_pass(&w, 1000);
    }
    assert_int_equal(world_outbox_count(&w), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_watermark_is_saved_when_it_moved_and_not_more_often),
        TEST(a_burst_is_settled_in_slices),
        TEST(an_undone_event_holds_the_watermark),
        TEST(what_is_in_the_delivery_store_does_not_hold_the_watermark),
        TEST(a_store_that_refuses_is_asked_again),
        TEST(rows_go_in_slices_when_both_cover_them),
        TEST(no_uncovered_row_is_ever_removed),
        TEST(the_saved_watermark_never_goes_back),
        TEST(settled_rows_stay_as_long_as_replays_reach),
        TEST(closed_deliveries_go_sooner_than_dead_ones),
        TEST(closed_deliveries_go_without_a_look_at_the_keys),
        TEST(a_parked_event_that_was_discarded_is_trimmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
