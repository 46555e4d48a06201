/* The mark is saved by time and never passes an undone event; the outbox loses only rows that the
 * mark and the views' saved state both cover, a slice at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
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
    return w.mark[0] ? strtoull(w.mark, NULL, 10) : 0;
}

static void the_mark_is_saved_when_it_moved_and_not_more_often(void **state)
{
    (void)state;
    w.config.mark_every_ms = 1000;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    engine_mark_step(w.engine); /* nothing done yet */
    assert_int_equal(saved(), 0);
    world_run(&w);
    int64_t due_us = engine_mark_step(w.engine);
    assert_int_equal(saved(), 0); /* done, but not yet time */
    assert_int_equal(due_us, w.manual.mono_us + 1000000);
    w.manual.mono_us = due_us;
    uint64_t writes = w.writes;
    engine_mark_step(w.engine);
    assert_int_equal(saved(), id);
    assert_int_equal(w.writes, writes + 1);
    manual_clock_advance(&w.manual, 5000);
    engine_mark_step(w.engine);
    assert_int_equal(w.writes, writes + 1); /* it has not moved */
}

static void an_undone_event_holds_the_mark(void **state)
{
    (void)state;
    w.before_sink = fail_if_told;
    world_engine(&w);
    uint64_t first = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    failing = true;
    uint64_t stuck = world_commit(&w, EVENT_POST_CREATED, 1, 2);
    world_run(&w);
    failing = false;
    uint64_t last = world_commit(&w, EVENT_POST_CREATED, 1, 3);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, last), 2);
    engine_mark_step(w.engine);
    assert_int_equal(saved(), stuck - 1);
    assert_true(saved() >= first);
    world_drain(&w, 10 * 1000);
    manual_clock_advance(&w.manual, 1000);
    engine_mark_step(w.engine);
    assert_int_equal(saved(), last);
}

static void a_store_that_refuses_is_asked_again(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    w.saved_position = id;
    w.writes_fail = true;
    int64_t due_us = engine_mark_step(w.engine);
    assert_int_equal(world_outbox_count(&w), 1);
    assert_true(due_us > w.manual.mono_us && due_us < INT64_MAX);
    w.writes_fail = false;
    w.manual.mono_us = due_us;
    engine_mark_step(w.engine);
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
    engine_mark_step(w.engine);
    assert_int_equal(world_outbox_count(&w), 35); /* no saved state covers them */
    w.saved_position = w.outbox[24].id;
    size_t expected[] = {25, 15, 10, 10};
    for (int i = 0; i < 4; i++) {
        int64_t due_us = engine_mark_step(w.engine);
        assert_int_equal(world_outbox_count(&w), expected[i]);
        assert_true(due_us > w.manual.mono_us);
        w.manual.mono_us = due_us;
    }
    assert_int_equal(w.largest_trim, 10);
    w.saved_position = w.last_committed + 1000; /* beyond the mark: the mark counts */
    uint64_t undone = world_commit_unseen(&w, EVENT_POST_CREATED, 1, 99);
    for (int i = 0; i < 10; i++) {
        manual_clock_advance(&w.manual, 1000);
        engine_mark_step(w.engine);
    }
    assert_int_equal(world_outbox_count(&w), 1);
    assert_int_equal(w.outbox[0].id, undone);
}

/* Random failures, saved positions and slices: a row that is gone was done and covered. */
static void no_uncovered_row_is_ever_removed(void **state)
{
    (void)state;
    world_done(&w);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        set_up(NULL);
        struct rand r;
        rand_seed(&r, seed);
        w.config.trim_slice = 1 + rand_below(&r, 8);
        w.config.mark_every_ms = 1 + (int64_t)rand_below(&r, 100);
        w.before_sink = fail_if_told;
        world_engine(&w);
        uint64_t ids[300];
        size_t n = 0;
        while (n < 300) {
            failing = rand_below(&r, 4) == 0;
            for (uint64_t burst = rand_below(&r, 6); burst > 0 && n < 300; burst--, n++)
                ids[n] = world_commit(&w, EVENT_POST_CREATED, 1, n);
            world_run(&w);
            if (rand_below(&r, 5) == 0 && n)
                w.saved_position = engine_done_through(w.engine);
            manual_clock_advance(&w.manual, (int64_t)rand_below(&r, 3000));
            engine_mark_step(w.engine);
            assert_true(saved() <= engine_done_through(w.engine));
            size_t gone = n - world_outbox_count(&w);
            for (size_t i = 0; i < gone; i++) {
                assert_true(ids[i] <= saved() && ids[i] <= w.saved_position);
                assert_int_equal(world_deliveries_of(&w, ids[i]), 2);
            }
        }
        world_done(&w);
    }
    set_up(NULL);
}

static void the_saved_mark_never_goes_back(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t first = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    uint64_t last = world_commit(&w, EVENT_POST_CREATED, 1, 2);
    world_run(&w);
    engine_mark_step(w.engine);
    assert_int_equal(saved(), last);
    world_crash(&w);
    w.views.loaded_position = first; /* the views come back with an older state */
    w.saved_position = first;
    world_engine(&w);
    assert_int_equal(engine_done_through(w.engine), first);
    engine_pause(w.engine, true);
    world_run_relay(&w);
    engine_mark_step(w.engine);
    assert_int_equal(saved(), last);
    assert_int_equal(world_outbox_count(&w), 1); /* what was not delivered again is still there */
    engine_pause(w.engine, false);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, last), 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_mark_is_saved_when_it_moved_and_not_more_often),
        TEST(an_undone_event_holds_the_mark),
        TEST(a_store_that_refuses_is_asked_again),
        TEST(rows_go_in_slices_when_both_cover_them),
        TEST(no_uncovered_row_is_ever_removed),
        TEST(the_saved_mark_never_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
