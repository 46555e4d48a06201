/* The threshold's decision, the keeper's memory, and sweeps that fire each crossing once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/celebrity.h"
#include "world.h"

static struct world w;
static struct hist *buckets;

static int open_world(void **state)
{
    (void)state;
    world_open(&w, 1000);
    buckets = calloc(CELEBRITY_BUCKETS, sizeof *buckets);
    return buckets ? 0 : -1;
}

static int close_world(void **state)
{
    (void)state;
    free(buckets);
    world_close(&w);
    return 0;
}

static void forget(void)
{
    for (size_t i = 0; i < CELEBRITY_BUCKETS; i++)
        hist_clear(&buckets[i]);
}

/* `n` fan-outs to so many followers that took this long. */
static void observe(size_t n, unsigned log2_followers, int64_t ms)
{
    for (size_t i = 0; i < n; i++)
        hist_record(&buckets[log2_followers], (uint64_t)ms * 1000);
}

static int64_t decide(int64_t threshold)
{
    return celebrity_decide(threshold, 1000, 20000, 500, buckets);
}

static void slow_fan_outs_lower_it_and_fast_ones_raise_it(void **state)
{
    (void)state;
    forget();
    observe(20, 13, 600); /* 8,192 … 16,383 followers */
    assert_int_equal(decide(10000), 8000);
    forget();
    observe(20, 13, 100);
    assert_int_equal(decide(10000), 12500);
    forget();
    observe(20, 13, 400); /* between half the target and the target: all is well */
    assert_int_equal(decide(10000), 10000);
}

static void it_stays_within_its_bounds(void **state)
{
    (void)state;
    forget();
    observe(20, 13, 600);
    assert_int_equal(decide(1100), 1000);
    assert_int_equal(decide(1000), 1000);
    forget();
    observe(20, 14, 1);
    assert_int_equal(decide(19000), 20000);
}

static void few_or_small_fan_outs_say_nothing(void **state)
{
    (void)state;
    forget();
    observe(19, 13, 600);
    assert_int_equal(decide(10000), 10000);
    observe(1000, 5, 5000); /* 32 followers: far from the threshold, whatever made them slow */
    assert_int_equal(decide(10000), 10000);
    observe(1, 11, 600); /* 2,048: a quarter of it, rounded down to its bucket */
    assert_int_equal(decide(10000), 8000);
}

static void the_many_small_ones_do_not_hide_the_large_ones(void **state)
{
    (void)state;
    forget();
    observe(5000, 11, 10);
    observe(25, 13, 900); /* half a percent of all: invisible in a common p95 */
    assert_int_equal(decide(10000), 8000);
}

static void the_p95_decides_and_not_the_worst(void **state)
{
    (void)state;
    forget();
    observe(100, 13, 100);
    observe(3, 13, 9000);
    assert_int_equal(decide(10000), 12500);
    observe(10, 13, 9000);
    assert_int_equal(decide(10000), 8000);
}

static void keep(struct celebrity_keeper *k, bool adaptive, int64_t start)
{
    assert_int_equal(
        celebrity_keeper_init(k, w.db, &w.clock.clock, adaptive, start, 1000, 100000, 500), OK);
}

static void a_moved_threshold_is_remembered_for_its_start(void **state)
{
    (void)state;
    struct celebrity_keeper k;
    keep(&k, true, 10000);
    assert_int_equal(celebrity_threshold(&k), 10000);
    for (int i = 0; i < 30; i++)
        celebrity_observe(&k, 9000, 700 * 1000);
    celebrity_keeper_step(&k);
    assert_int_equal(celebrity_threshold(&k), 10000); /* the window is not over */
    manual_clock_advance(&w.clock, 10001);
    celebrity_keeper_step(&k);
    assert_int_equal(celebrity_threshold(&k), 8000);
    manual_clock_advance(&w.clock, 10001);
    celebrity_keeper_step(&k);
    assert_int_equal(celebrity_threshold(&k), 8000); /* a new window: the old times are used up */
    celebrity_keeper_done(&k);

    keep(&k, true, 10000);
    assert_int_equal(celebrity_threshold(&k), 8000);
    celebrity_keeper_done(&k);
    keep(&k, true, 20000); /* the operator changed the flag */
    assert_int_equal(celebrity_threshold(&k), 20000);
    celebrity_keeper_done(&k);
    keep(&k, false, 10000);
    assert_int_equal(celebrity_threshold(&k), 10000);
    celebrity_keeper_done(&k);
}

static void a_start_outside_the_bounds_stays_as_it_is(void **state)
{
    (void)state;
    struct celebrity_keeper k;
    keep(&k, true, 3);
    for (int i = 0; i < 100; i++)
        celebrity_observe(&k, 3, 1);
    manual_clock_advance(&w.clock, 20000);
    celebrity_keeper_step(&k);
    assert_int_equal(celebrity_threshold(&k), 3);
    celebrity_keeper_done(&k);
}

static void sweep_all(struct celebrity_keeper *k)
{
    for (int i = 0; i < 100 && k->crossing; i++)
        celebrity_keeper_step(k);
    assert_false(k->crossing);
}

static void the_sweep_fires_each_crossing_once(void **state)
{
    (void)state;
    enum { FANS = 10 };
    uint64_t fans[FANS], stars[3];
    w.policy.celebrity_threshold = 1000;
    for (size_t i = 0; i < FANS; i++) {
        char name[32];
        snprintf(name, sizeof name, "fan%zu", i);
        fans[i] = world_account(&w, name);
    }
    static const size_t counts[3] = {10, 7, 4};
    for (size_t i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "star%zu", i);
        stars[i] = world_account(&w, name);
        for (size_t f = 0; f < counts[i]; f++)
            world_act(&w, ACT_FOLLOW, fans[f], stars[i]);
    }
    assert_int_equal(w.events[EVENT_AUTHOR_BECAME_CELEBRITY], 0);
    static const struct {
        int64_t threshold;
        uint64_t became, ceased;
    } moves[] = {{7, 2, 0}, {7, 2, 0}, {8, 2, 0}, {9, 2, 1}, {4, 4, 1}, {1000, 4, 4}, {1000, 4, 4}};
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        struct celebrity_keeper k;
        keep(&k, false, moves[i].threshold);
        sweep_all(&k);
        celebrity_keeper_done(&k);
        assert_int_equal(w.events[EVENT_AUTHOR_BECAME_CELEBRITY], moves[i].became);
        assert_int_equal(w.events[EVENT_AUTHOR_CEASED_CELEBRITY], moves[i].ceased);
    }
}

static void the_sweep_goes_through_more_accounts_than_a_slice(void **state)
{
    (void)state;
    world_clear(&w);
    w.policy.celebrity_threshold = 1000;
    uint64_t fan = world_account(&w, "fan");
    for (int i = 0; i < 450; i++) {
        char name[32];
        snprintf(name, sizeof name, "slice%d", i);
        world_act(&w, ACT_FOLLOW, fan, world_account(&w, name));
    }
    struct celebrity_keeper k;
    keep(&k, false, 1);
    sweep_all(&k);
    celebrity_keeper_done(&k);
    assert_int_equal(w.events[EVENT_AUTHOR_BECAME_CELEBRITY], 450);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_fan_outs_lower_it_and_fast_ones_raise_it),
        cmocka_unit_test(it_stays_within_its_bounds),
        cmocka_unit_test(few_or_small_fan_outs_say_nothing),
        cmocka_unit_test(the_many_small_ones_do_not_hide_the_large_ones),
        cmocka_unit_test(the_p95_decides_and_not_the_worst),
        cmocka_unit_test(a_moved_threshold_is_remembered_for_its_start),
        cmocka_unit_test(a_start_outside_the_bounds_stays_as_it_is),
        cmocka_unit_test(the_sweep_fires_each_crossing_once),
        cmocka_unit_test(the_sweep_goes_through_more_accounts_than_a_slice),
    };
    return cmocka_run_group_tests_name("model/celebrity", tests, open_world, close_world);
}
