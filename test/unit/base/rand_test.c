/* The generator: fixed by its seed, unbiased, in range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rand.h"

static void test_same_seed_same_numbers(void **state)
{
    (void)state;
    struct rand a, b, c;
    rand_seed(&a, 42);
    rand_seed(&b, 42);
    rand_seed(&c, 43);
    int same = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t x = rand_u64(&a);
        assert_true(x == rand_u64(&b));
        same += x == rand_u64(&c);
    }
    assert_int_equal(same, 0);
}

static void test_sequence_never_changes(void **state)
{
    (void)state;
    /* Computed apart from this code, from the published definition: kept seeds depend on it. */
    static const uint64_t expected[] = {UINT64_C(0x99ec5f36cb75f2b4), UINT64_C(0xbf6e1f784956452a),
                                        UINT64_C(0x1a5f849d4933e6e0)};
    struct rand r;
    rand_seed(&r, 0);
    for (int i = 0; i < 3; i++)
        assert_true(rand_u64(&r) == expected[i]);
}

static void test_below_is_even(void **state)
{
    (void)state;
    enum { SIDES = 6, THROWS = 60000 };
    struct rand r;
    rand_seed(&r, 10);
    int seen[SIDES] = {0};
    for (int i = 0; i < THROWS; i++) {
        uint64_t side = rand_below(&r, SIDES);
        assert_true(side < SIDES);
        seen[side]++;
    }
    for (int i = 0; i < SIDES; i++)
        assert_in_range(seen[i], THROWS / SIDES - 500, THROWS / SIDES + 500);
    assert_int_equal(rand_below(&r, 1), 0);
    /* Two thirds of the range: a biased draw would favour the lower half two to one. */
    uint64_t n = UINT64_MAX / 3 * 2;
    int low = 0;
    for (int i = 0; i < 10000; i++) {
        uint64_t x = rand_below(&r, n);
        assert_true(x < n);
        low += x < n / 2;
    }
    assert_in_range(low, 4700, 5300);
}

static void test_unit(void **state)
{
    (void)state;
    struct rand r;
    rand_seed(&r, 11);
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        double x = rand_unit(&r);
        assert_true(x >= 0 && x < 1);
        sum += x;
    }
    assert_true(sum > 49000 && sum < 51000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_seed_same_numbers),
        cmocka_unit_test(test_sequence_never_changes),
        cmocka_unit_test(test_below_is_even),
        cmocka_unit_test(test_unit),
    };
    return cmocka_run_group_tests_name("base/rand", tests, NULL, NULL);
}
