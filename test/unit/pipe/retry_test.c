/* The ladder of delays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pipe/retry.h"

static void the_ladder_climbs_and_stays_at_its_end(void **state)
{
    (void)state;
    const int64_t seconds[] = {2, 8, 32, 128, 240, 240, 240};
    for (uint32_t tries = 0; tries < 7; tries++) {
        for (uint64_t salt = 0; salt < 1000; salt++) {
            int64_t delay_us = retry_delay_us(tries, salt);
            assert_true(delay_us >= seconds[tries] * 1000000);
            assert_true(delay_us <= seconds[tries] * 1250000);
        }
    }
    assert_true(retry_delay_us(UINT16_MAX, 1) >= 240000000);
}

static void what_failed_together_comes_back_apart(void **state)
{
    (void)state;
    int64_t low = INT64_MAX, high = 0;
    for (uint64_t salt = 0; salt < 100; salt++) {
        int64_t delay_us = retry_delay_us(0, salt);
        low = delay_us < low ? delay_us : low;
        high = delay_us > high ? delay_us : high;
    }
    assert_true(high - low > 300000);
    assert_int_equal(retry_delay_us(2, 42), retry_delay_us(2, 42)); /* and the same every time */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ladder_climbs_and_stays_at_its_end),
        cmocka_unit_test(what_failed_together_comes_back_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
