/* The histogram against sorted values: quantiles within the stated error, merging, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/hist.h"
#include "base/rand.h"

static struct hist h, other;

static int set_up(void **state)
{
    (void)state;
    hist_clear(&h);
    hist_clear(&other);
    return 0;
}

static void test_empty(void **state)
{
    (void)state;
    assert_int_equal(hist_count(&h), 0);
    assert_int_equal(hist_quantile(&h, 0.5), 0);
    assert_int_equal(hist_count_at_most(&h, UINT64_MAX), 0);
}

static void test_small_values_are_exact(void **state)
{
    (void)state;
    for (uint64_t v = 0; v < 64; v++) {
        hist_clear(&h);
        hist_record(&h, v);
        assert_int_equal(hist_quantile(&h, 0.5), v);
        assert_int_equal(hist_count_at_most(&h, v), 1);
        if (v > 0)
            assert_int_equal(hist_count_at_most(&h, v - 1), 0);
    }
}

static void test_single_value_error(void **state)
{
    (void)state;
    struct rand r;
    rand_seed(&r, 8);
    for (int i = 0; i < 20000; i++) {
        uint64_t v = 1 + (rand_u64(&r) >> (24 + rand_below(&r, 40)));
        hist_clear(&h);
        hist_record(&h, v);
        uint64_t q = hist_quantile(&h, 0.99);
        assert_true(q >= v);
        assert_true((double)(q - v) <= 0.032 * (double)v);
        assert_int_equal(hist_count_at_most(&h, v), 1);
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void test_quantiles_of_many(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static const double quantiles[] = {0, 0.001, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1};
    uint64_t *values = calloc(COUNT, sizeof *values);
    struct rand r;
    rand_seed(&r, 9);
    uint64_t sum = 0;
    for (size_t i = 0; i < COUNT; i++) { /* a long tail, as latencies have */
        values[i] = (uint64_t)exp(rand_unit(&r) * 20);
        sum += values[i];
        hist_record(&h, values[i]);
    }
    qsort(values, COUNT, sizeof *values, by_value);
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++) {
        size_t rank = (size_t)ceil(quantiles[i] * COUNT);
        uint64_t exact = values[rank > 0 ? rank - 1 : 0];
        uint64_t found = hist_quantile(&h, quantiles[i]);
        assert_true(found >= exact);
        assert_true((double)(found - exact) <= 0.032 * (double)exact);
        assert_true(hist_count_at_most(&h, found) >= rank);
    }
    assert_int_equal(hist_count(&h), COUNT);
    assert_int_equal(atomic_load(&h.sum), sum);
    assert_int_equal(atomic_load(&h.max), values[COUNT - 1]);
    free(values);
}

static void test_extremes(void **state)
{
    (void)state;
    uint64_t most = UINT64_C(1) << 40;
    hist_record(&h, most);
    assert_true(hist_quantile(&h, 1) >= most);
    assert_true((double)hist_quantile(&h, 1) <= 1.032 * (double)most);
    hist_record(&h, UINT64_MAX); /* beyond the range: counted, not lost, not out of bounds */
    assert_int_equal(hist_count(&h), 2);
    assert_int_equal(atomic_load(&h.max), UINT64_MAX);
    assert_int_equal(hist_count_at_most(&h, UINT64_MAX), 2);
}

static void test_merge(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 1000; i++)
        hist_record(i % 2 ? &h : &other, i);
    hist_merge(&h, &other);
    assert_int_equal(hist_count(&h), 1000);
    assert_int_equal(hist_count(&other), 500);
    assert_int_equal(atomic_load(&h.sum), 500500);
    assert_int_equal(atomic_load(&h.max), 1000);
    uint64_t median = hist_quantile(&h, 0.5);
    assert_in_range(median, 500, 516);
}

static void *record_many(void *arg)
{
    struct rand r;
    rand_seed(&r, (uint64_t)(uintptr_t)arg);
    for (int i = 0; i < 50000; i++)
        hist_record(&h, rand_below(&r, 100000));
    return NULL;
}

static void test_threads_lose_nothing(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, record_many, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(hist_count(&h), 200000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_empty, set_up),
        cmocka_unit_test_setup(test_small_values_are_exact, set_up),
        cmocka_unit_test_setup(test_single_value_error, set_up),
        cmocka_unit_test_setup(test_quantiles_of_many, set_up),
        cmocka_unit_test_setup(test_extremes, set_up),
        cmocka_unit_test_setup(test_merge, set_up),
        cmocka_unit_test_setup(test_threads_lose_nothing, set_up),
    };
    return cmocka_run_group_tests_name("base/hist", tests, NULL, NULL);
}
