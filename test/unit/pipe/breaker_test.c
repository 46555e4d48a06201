/* The breaker: what opens it, what does not, and how it closes again. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pipe/breaker.h"

#define SECOND INT64_C(1000000)

static struct breaker b;
static int64_t now_us;

static int set_up(void **state)
{
    (void)state;
    now_us = 1000 * SECOND;
    breaker_init(&b, now_us);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    breaker_done(&b);
    return 0;
}

static bool count(enum err result, uint32_t n)
{
    return breaker_count(&b, result, n, now_us, now_us / 1000);
}

static struct breaker_look look(void)
{
    struct breaker_look out;
    breaker_look(&b, &out);
    return out;
}

static bool admits(bool *probe)
{
    int64_t due_us = INT64_MAX;
    return breaker_admits(&b, now_us, probe, &due_us);
}

static bool admits_normally(void)
{
    bool probe;
    return admits(&probe) && !probe;
}

static bool admits_a_probe(void)
{
    bool probe;
    return admits(&probe) && probe;
}

static int64_t due_us(void)
{
    bool probe;
    int64_t due_us = INT64_MAX;
    assert_false(breaker_admits(&b, now_us, &probe, &due_us));
    assert_false(probe);
    return due_us;
}

static void open_it(void)
{
    assert_true(count(ERR_TIMEOUT, BREAKER_MIN));
    assert_int_equal(look().state, BREAKER_OPEN);
}

static void a_healthy_lane_stays_closed(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        assert_true(admits_normally());
        assert_false(count(OK, 1000));
        now_us += SECOND;
    }
    assert_int_equal(look().state, BREAKER_CLOSED);
    assert_int_equal(look().opened, 0);
}

static void half_is_not_most_and_one_more_is(void **state)
{
    (void)state;
    assert_false(count(OK, 50));
    assert_false(count(ERR_TIMEOUT, 50));
    assert_true(admits_normally());
    assert_true(count(ERR_TIMEOUT, 1));
    struct breaker_look l = look();
    assert_int_equal(l.state, BREAKER_OPEN);
    assert_int_equal(l.reason, ERR_TIMEOUT);
    assert_int_equal(l.failed, 51);
    assert_int_equal(l.total, 101);
    assert_int_equal(l.since_ms, now_us / 1000);
    assert_int_equal(l.opened, 1);
    assert_false(count(ERR_TIMEOUT, 1)); /* only once */
    assert_int_equal(look().opened, 1);
}

static void two_reasons_of_less_than_half_each_do_not_open_it(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        assert_false(count(ERR_TIMEOUT, 2));
        assert_false(count(OK, 1));
        assert_false(count(ERR_UNAVAILABLE, 2));
    }
    assert_int_equal(look().state, BREAKER_CLOSED);
}

static void a_small_sample_does_not_open_it(void **state)
{
    (void)state;
    assert_false(count(ERR_TIMEOUT, BREAKER_MIN - 1));
    assert_true(admits_normally());
    assert_true(count(ERR_TIMEOUT, 1));
}

static void successes_can_complete_the_sample(void **state)
{
    (void)state;
    assert_false(count(ERR_TIMEOUT, 15));
    for (int i = 0; i < 4; i++)
        assert_false(count(OK, 1));
    assert_true(count(OK, 1));
    assert_int_equal(look().failed, 15);
    assert_int_equal(look().total, 20);
}

static void windows_do_not_add_up(void **state)
{
    (void)state;
    assert_false(count(ERR_TIMEOUT, 19));
    now_us += BREAKER_WINDOW_US;
    for (int i = 0; i < 10; i++) {
        assert_false(count(ERR_TIMEOUT, 19));
        now_us += BREAKER_WINDOW_US;
    }
    assert_false(count(ERR_TIMEOUT, 19));
    now_us += BREAKER_WINDOW_US - 1;
    assert_true(count(ERR_TIMEOUT, 1));
}

static void old_successes_do_not_hide_new_failures(void **state)
{
    (void)state;
    count(OK, 1000000);
    now_us += BREAKER_WINDOW_US;
    assert_true(count(ERR_STORAGE_FAILED, BREAKER_MIN));
}

static void a_window_begins_with_the_first_count_after_the_last_ended(void **state)
{
    (void)state;
    now_us += 5 * BREAKER_WINDOW_US + 9 * SECOND;
    assert_false(count(ERR_TIMEOUT, 10));
    now_us += 9 * SECOND; /* across a border of a grid */
    assert_true(count(ERR_TIMEOUT, 10));
}

static void probes_come_by_the_ladder_one_at_a_time(void **state)
{
    (void)state;
    open_it();
    const int64_t seconds[] = {2, 8, 32, 128, 240, 240, 240};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        assert_int_equal(due_us(), now_us + seconds[i] * SECOND);
        assert_int_equal(look().probe_after_us, now_us + seconds[i] * SECOND);
        now_us += seconds[i] * SECOND - 1;
        assert_false(admits_a_probe());
        now_us += 1;
        assert_true(admits_a_probe());
        assert_int_equal(due_us(), INT64_MAX); /* one is under way */
        now_us += SECOND;                      /* the next wait begins when the probe ended */
        assert_false(count(ERR_TIMEOUT, 1));
    }
    now_us += 240 * SECOND;
    assert_true(admits_a_probe());
    assert_true(count(OK, 1));
    assert_int_equal(look().state, BREAKER_CLOSED);
    assert_int_equal(look().since_ms, now_us / 1000);
    assert_true(admits_normally());

    /* It begins anew: a full sample to open it, two seconds to the first probe. */
    assert_false(count(ERR_TIMEOUT, BREAKER_MIN - 1));
    assert_true(count(ERR_TIMEOUT, 1));
    assert_int_equal(due_us(), now_us + 2 * SECOND);
    assert_int_equal(look().opened, 2);
}

static void a_due_time_is_only_lowered(void **state)
{
    (void)state;
    open_it();
    bool probe;
    int64_t sooner = now_us + 1;
    assert_false(breaker_admits(&b, now_us, &probe, &sooner));
    assert_int_equal(sooner, now_us + 1);
}

static void an_unused_probe_is_given_back(void **state)
{
    (void)state;
    open_it();
    now_us += 2 * SECOND;
    assert_true(admits_a_probe());
    assert_false(admits_a_probe());
    breaker_unused(&b);
    assert_true(admits_a_probe()); /* no rung of the ladder is used up */
    assert_false(count(ERR_TIMEOUT, 1));
    assert_int_equal(due_us(), now_us + 8 * SECOND);
}

static void what_began_before_it_opened_does_not_close_it(void **state)
{
    (void)state;
    open_it();
    assert_false(count(OK, 5));
    assert_int_equal(look().state, BREAKER_OPEN);
    assert_false(count(ERR_TIMEOUT, 5));
    assert_int_equal(due_us(), now_us + 2 * SECOND);
}

static void nothing_but_a_hand_undoes_a_stop_by_hand(void **state)
{
    (void)state;
    breaker_stop(&b, now_us, now_us / 1000);
    assert_int_equal(look().state, BREAKER_BY_HAND);
    assert_int_equal(look().since_ms, now_us / 1000);
    assert_int_equal(due_us(), INT64_MAX);
    now_us += 1000 * SECOND;
    assert_false(admits_a_probe());
    assert_false(count(OK, 1000));
    assert_false(count(ERR_TIMEOUT, 1000));
    assert_int_equal(look().state, BREAKER_BY_HAND);
    assert_int_equal(look().opened, 0);
    breaker_start(&b, now_us);
    assert_true(admits_normally());
}

static void a_probe_under_way_does_not_undo_a_stop_by_hand(void **state)
{
    (void)state;
    open_it();
    now_us += 2 * SECOND;
    assert_true(admits_a_probe());
    breaker_stop(&b, now_us, now_us / 1000);
    assert_false(count(OK, 1));
    assert_int_equal(look().state, BREAKER_BY_HAND);
}

static void start_closes_it_whatever_it_was(void **state)
{
    (void)state;
    open_it();
    breaker_start(&b, now_us);
    assert_int_equal(look().state, BREAKER_CLOSED);
    assert_true(admits_normally());
    /* What was counted before is forgotten. */
    assert_false(count(ERR_TIMEOUT, BREAKER_MIN - 1));
    breaker_start(&b, now_us); /* changes nothing: it is closed */
    assert_true(count(ERR_TIMEOUT, 1));
}

static void every_kind_of_error_is_a_reason(void **state)
{
    (void)state;
#define OPENS(name, cls, http, title)                                                              \
    if (ERR_##name != OK) {                                                                        \
        assert_true(count(ERR_##name, BREAKER_MIN));                                               \
        assert_int_equal(look().reason, ERR_##name);                                               \
        breaker_start(&b, now_us);                                                                 \
    }
    ERR_TABLE(OPENS)
#undef OPENS
}

/* ---- many threads ---- */

enum { THREADS = 4, ROUNDS = 200000 };

static void *hammer(void *arg)
{
    int64_t admitted = 0;
    uint64_t mine = (uint64_t)(uintptr_t)arg;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        bool probe;
        int64_t due = INT64_MAX;
        int64_t at_us = (int64_t)i * 100;
        if (!breaker_admits(&b, at_us, &probe, &due))
            continue;
        admitted++;
        bool fails = mine == 0 && i > ROUNDS / 2 && i < ROUNDS / 2 + 1000;
        breaker_count(&b, fails ? ERR_TIMEOUT : OK, 1, at_us, 0);
    }
    return (void *)(intptr_t)admitted;
}

static void threads_count_together(void **state)
{
    (void)state;
    breaker_start(&b, 0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *admitted;
        pthread_join(threads[i], &admitted);
        assert_true((intptr_t)admitted > 0);
    }
    /* Whatever happened, it is in one of its states and works. */
    breaker_start(&b, now_us);
    assert_true(admits_normally());
    assert_true(count(ERR_TIMEOUT, 10 * THREADS * ROUNDS));
}

static bool fail_one(uint64_t key)
{
    return breaker_fail(&b, ERR_TIMEOUT, key, now_us, now_us / 1000);
}

static void failures_of_few_keys_open_nothing(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        assert_false(fail_one(1 + i % (BREAKER_KEYS - 1)));
    assert_true(admits_normally());
    assert_true(fail_one(BREAKER_KEYS));
    assert_int_equal(look().state, BREAKER_OPEN);
}

/* Keys are those of one window. */
static void keys_that_failed_earlier_do_not_count(void **state)
{
    (void)state;
    fail_one(1);
    fail_one(2);
    now_us += BREAKER_WINDOW_US;
    for (int i = 0; i < 100; i++)
        assert_false(fail_one(3));
    assert_true(admits_normally());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_healthy_lane_stays_closed),
        TEST(half_is_not_most_and_one_more_is),
        TEST(two_reasons_of_less_than_half_each_do_not_open_it),
        TEST(a_small_sample_does_not_open_it),
        TEST(successes_can_complete_the_sample),
        TEST(windows_do_not_add_up),
        TEST(old_successes_do_not_hide_new_failures),
        TEST(a_window_begins_with_the_first_count_after_the_last_ended),
        TEST(probes_come_by_the_ladder_one_at_a_time),
        TEST(a_due_time_is_only_lowered),
        TEST(an_unused_probe_is_given_back),
        TEST(what_began_before_it_opened_does_not_close_it),
        TEST(nothing_but_a_hand_undoes_a_stop_by_hand),
        TEST(a_probe_under_way_does_not_undo_a_stop_by_hand),
        TEST(start_closes_it_whatever_it_was),
        TEST(every_kind_of_error_is_a_reason),
        TEST(failures_of_few_keys_open_nothing),
        TEST(keys_that_failed_earlier_do_not_count),
        TEST(threads_count_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
