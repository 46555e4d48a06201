/* Rate limits on a clock moved by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>

#include "net/limits.h"

struct fixture {
    struct manual_clock clock;
    struct limits *limits;
};

static void setup(struct fixture *f, size_t entries)
{
    manual_clock_init(&f->clock, INT64_C(1700000000000));
    f->limits = limits_new(&f->clock.clock, entries);
}

static void a_burst_then_the_rate(void **state)
{
    (void)state;
    struct fixture f;
    struct limit_state s;
    setup(&f, 1000);
    for (int i = 0; i < 20; i++) {
        assert_true(limits_take(f.limits, 1, 42, 10, 20, &s));
        assert_int_equal(s.limit, 20);
        assert_int_equal(s.remaining, 19 - i);
        assert_int_equal(s.retry_after_s, 0);
    }
    assert_int_equal(s.reset_s, 2);
    assert_false(limits_take(f.limits, 1, 42, 10, 20, &s));
    assert_int_equal(s.remaining, 0);
    assert_int_equal(s.retry_after_s, 1);
    assert_int_equal(s.reset_s, 2);
    manual_clock_advance(&f.clock, 99);
    assert_false(limits_take(f.limits, 1, 42, 10, 20, &s));
    manual_clock_advance(&f.clock, 1); /* one token is back */
    assert_true(limits_take(f.limits, 1, 42, 10, 20, &s));
    assert_false(limits_take(f.limits, 1, 42, 10, 20, &s));

    int taken = 0;
    for (int ms = 0; ms < 10000; ms++) { /* hammering earns nothing beyond the rate */
        manual_clock_advance(&f.clock, 1);
        taken += limits_take(f.limits, 1, 42, 10, 20, &s);
    }
    assert_int_equal(taken, 100);
    manual_clock_advance(&f.clock, 3600 * 1000); /* and waiting no more than the burst */
    taken = 0;
    while (limits_take(f.limits, 1, 42, 10, 20, &s))
        taken++;
    assert_int_equal(taken, 20);
    limits_free(f.limits);
}

static void what_is_given_back_may_be_taken_again(void **state)
{
    (void)state;
    struct fixture f;
    struct limit_state s;
    setup(&f, 1000);
    for (int i = 0; i < 4; i++)
        assert_true(limits_take(f.limits, 1, 42, 2, 4, &s));
    assert_false(limits_take(f.limits, 1, 42, 2, 4, &s));
    limits_give_back(f.limits, 2, 42, 2); /* of another class, and of another key */
    limits_give_back(f.limits, 1, 43, 2);
    assert_false(limits_take(f.limits, 1, 42, 2, 4, &s));
    limits_give_back(f.limits, 1, 42, 2);
    assert_true(limits_take(f.limits, 1, 42, 2, 4, &s));
    assert_false(limits_take(f.limits, 1, 42, 2, 4, &s));
    for (int i = 0; i < 100; i++) /* a full bucket gets no fuller */
        limits_give_back(f.limits, 1, 42, 2);
    int taken = 0;
    while (limits_take(f.limits, 1, 42, 2, 4, &s))
        taken++;
    assert_int_equal(taken, 4);
    limits_give_back(f.limits, 1, 42, 0);
    limits_free(f.limits);
}

static void classes_and_keys_are_apart(void **state)
{
    (void)state;
    struct fixture f;
    struct limit_state s;
    setup(&f, 1000);
    assert_true(limits_take(f.limits, 1, 42, 1, 1, &s));
    assert_false(limits_take(f.limits, 1, 42, 1, 1, &s));
    assert_true(limits_take(f.limits, 2, 42, 1, 1, &s));
    assert_true(limits_take(f.limits, 1, 43, 1, 1, &s));
    assert_true(limits_take(f.limits, 1, 0, 1, 1, &s));
    assert_false(limits_take(f.limits, 1, 0, 1, 1, &s));
    limits_free(f.limits);
}

static void no_rate_is_no_limit(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 1000);
    for (int i = 0; i < 1000; i++) {
        struct limit_state s = {9, 9, 9, 9};
        assert_true(limits_take(f.limits, 1, 42, 0, 5, &s));
        assert_true(s.limit == 0 && s.remaining == 0 && s.reset_s == 0 && s.retry_after_s == 0);
    }
    limits_free(f.limits);
}

static void extreme_numbers_do_not_overflow(void **state)
{
    (void)state;
    struct fixture f;
    struct limit_state s;
    setup(&f, 10);
    assert_true(limits_take(f.limits, 1, 1, 1, INT64_MAX, &s));
    assert_true(s.remaining > 0);
    assert_true(limits_take(f.limits, 1, 2, INT64_MAX, INT64_MAX, &s));
    assert_true(limits_take(f.limits, 1, 3, 1, INT64_MIN, &s));
    assert_false(limits_take(f.limits, 1, 3, 1, INT64_MIN, &s));
    assert_int_equal(s.retry_after_s, 1);
    limits_free(f.limits);
}

/* A flood of other keys must not reset the bucket of one who is at the limit. */
static void a_full_table_forgets_the_idle_first(void **state)
{
    (void)state;
    struct fixture f;
    struct limit_state s;
    setup(&f, 512);
    while (limits_take(f.limits, 1, 42, 1, 1000, &s))
        ;
    for (uint64_t key = 1000; key < 101000; key++)
        assert_true(limits_take(f.limits, 1, key, 1, 1000, &s));
    assert_false(limits_take(f.limits, 1, 42, 1, 1000, &s));
    limits_free(f.limits);
}

static void ipv6_peers_count_by_network(void **state)
{
    (void)state;
    assert_true(limits_peer_key(STR("2001:db8:1:2::1")) ==
                limits_peer_key(STR("2001:db8:1:2:ffff::9")));
    assert_true(limits_peer_key(STR("2001:db8:1:2::1")) != limits_peer_key(STR("2001:db8:1:3::1")));
    assert_true(limits_peer_key(STR("10.0.0.1")) == limits_peer_key(STR("10.0.0.1")));
    assert_true(limits_peer_key(STR("10.0.0.1")) != limits_peer_key(STR("10.0.0.2")));
    limits_peer_key(STR(""));
    limits_peer_key(STR("not:an:address"));
}

static struct fixture shared;
static _Atomic int shared_taken;

static void *take_often(void *arg)
{
    (void)arg;
    struct limit_state s;
    for (uint64_t i = 0; i < 20000; i++) {
        if (limits_take(shared.limits, 1, 7, 1, 5000, &s))
            atomic_fetch_add(&shared_taken, 1);
        limits_take(shared.limits, 2, i % 50, 1, 10, &s);
    }
    return NULL;
}

static void threads_share_one_bucket(void **state)
{
    (void)state;
    setup(&shared, 1000);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_often, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(shared_taken, 5000);
    limits_free(shared.limits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_then_the_rate),
        cmocka_unit_test(what_is_given_back_may_be_taken_again),
        cmocka_unit_test(classes_and_keys_are_apart),
        cmocka_unit_test(no_rate_is_no_limit),
        cmocka_unit_test(extreme_numbers_do_not_overflow),
        cmocka_unit_test(a_full_table_forgets_the_idle_first),
        cmocka_unit_test(ipv6_peers_count_by_network),
        cmocka_unit_test(threads_share_one_bucket),
    };
    return cmocka_run_group_tests_name("net/limits", tests, NULL, NULL);
}
