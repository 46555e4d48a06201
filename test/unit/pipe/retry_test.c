/* The ladder of delays, and how far each priority climbs it. */
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
    for (uint32_t retry = 0; retry < 7; retry++) {
        for (uint64_t salt = 0; salt < 1000; salt++) {
            int64_t delay_ms = retry_delay_ms(retry, salt, 0);
            assert_true(delay_ms >= seconds[retry] * 1000);
            assert_true(delay_ms <= seconds[retry] * 1250);
        }
    }
    assert_true(retry_delay_ms(UINT16_MAX, 1, 0) >= 240000);
}

static void what_failed_together_comes_back_apart(void **state)
{
    (void)state;
    int64_t low = INT64_MAX, high = 0;
    for (uint64_t salt = 0; salt < 100; salt++) {
        int64_t delay_ms = retry_delay_ms(0, salt, 0);
        low = delay_ms < low ? delay_ms : low;
        high = delay_ms > high ? delay_ms : high;
    }
    assert_true(high - low > 300);
    assert_int_equal(retry_delay_ms(2, 42, 0), retry_delay_ms(2, 42, 0)); /* the same every time */
}

static void the_longer_of_ladder_and_wish_counts(void **state)
{
    (void)state;
    int64_t ladder_ms = retry_delay_ms(1, 7, 0);
    assert_int_equal(retry_delay_ms(1, 7, 1), ladder_ms);
    assert_int_equal(retry_delay_ms(1, 7, ladder_ms - 1), ladder_ms);
    assert_int_equal(retry_delay_ms(1, 7, ladder_ms + 1), ladder_ms + 1);
    assert_int_equal(retry_delay_ms(0, 7, 3600 * 1000), 3600 * 1000);
    assert_true(retry_delay_ms(0, 7, -5) >= 2000);
    assert_int_equal(retry_delay_ms(0, 7, INT64_MAX), RETRY_ASKED_MAX_MS); /* a wish has a limit */
}

static void the_priority_says_how_often(void **state)
{
    (void)state;
    assert_int_equal(retry_limit(PRIORITY_CRITICAL), 6);
    assert_int_equal(retry_limit(PRIORITY_NORMAL), 4);
    assert_int_equal(retry_limit(PRIORITY_LOW), 2);
    int64_t critical_ms = 0, low_ms = 0;
    for (uint32_t i = 0; i < retry_limit(PRIORITY_CRITICAL); i++)
        critical_ms += retry_delay_ms(i, 1, 0);
    for (uint32_t i = 0; i < retry_limit(PRIORITY_LOW); i++)
        low_ms += retry_delay_ms(i, 1, 0);
    assert_in_range(critical_ms, 10 * 60 * 1000, 14 * 60 * 1000); /* about ten minutes */
    assert_in_range(low_ms, 10 * 1000, 13 * 1000);                /* about ten seconds */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ladder_climbs_and_stays_at_its_end),
        cmocka_unit_test(what_failed_together_comes_back_apart),
        cmocka_unit_test(the_longer_of_ladder_and_wish_counts),
        cmocka_unit_test(the_priority_says_how_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
