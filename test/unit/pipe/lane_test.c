/* Gates: places and tokens, exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rand.h"
#include "pipe/lane.h"

static void places_are_limited(void **state)
{
    (void)state;
    struct lane_gate gate;
    int64_t due = INT64_MAX;
    lane_gate_init(&gate, LANE_SMALL, 3, 0, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(lane_gate_enter(&gate, 0, 8, &due), 8);
    assert_int_equal(lane_gate_enter(&gate, 0, 8, &due), 0);
    assert_true(due == INT64_MAX); /* no time will help, only a leave */
    assert_true(lane_gate_leave(&gate, 8));
    assert_int_equal(lane_gate_enter(&gate, 0, 1, &due), 1);
    assert_true(lane_gate_leave(&gate, 0));
    assert_false(lane_gate_leave(&gate, 0)); /* was not full: no worker waits */
    lane_gate_done(&gate);
}

/* Batches that began in any time span never exceed rate × span + the bucket; and none is lost. */
static void the_rate_is_kept_exactly(void **state)
{
    (void)state;
    const uint32_t rates[] = {1, 3, 19, 20, 400, 6700, 999983};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        uint32_t rate = rates[i];
        struct lane_gate gate;
        struct rand r;
        rand_seed(&r, rate);
        lane_gate_init(&gate, LANE_SMALL, 10, rate, 0);
        uint64_t bucket = (uint64_t)rate * 1000000 / LANE_BURST_PARTS; /* in millionths */
        bucket = bucket > 1000000 ? bucket : 1000000;
        uint64_t began = 0;
        int64_t now_us = 0;
        const int64_t span_us = 2 * INT64_C(1000000);
        while (now_us < span_us) {
            int64_t due = INT64_MAX;
            uint32_t got = lane_gate_enter(&gate, now_us, 32, &due);
            if (got) {
                uint32_t unused = (uint32_t)rand_below(&r, got + 1);
                began += got - unused;
                lane_gate_leave(&gate, unused);
            } else {
                assert_true(due > now_us && due <= now_us + 1000000 / rate + 1);
                now_us = due; /* at that very moment there must be a token */
            }
            assert_true(began * 1000000 <= (uint64_t)now_us * rate + bucket);
        }
        assert_true(began >= (uint64_t)span_us * rate / 1000000);
        lane_gate_done(&gate);
    }
}

static void a_rest_does_not_save_up_more_than_the_bucket(void **state)
{
    (void)state;
    struct lane_gate gate;
    lane_gate_init(&gate, LANE_CLEANUP, 100, 400, 0);
    int64_t due = INT64_MAX;
    int64_t late_us = INT64_C(1000000) * 3600 * 24 * 365;
    assert_int_equal(lane_gate_enter(&gate, late_us, 1000, &due), 20);
    assert_int_equal(lane_gate_enter(&gate, late_us, 1000, &due), 0);
    assert_int_equal(due, late_us + 2500);
    lane_gate_done(&gate);
}

static void limits_can_be_changed_and_set_back(void **state)
{
    (void)state;
    struct lane_gate gate;
    uint32_t concurrency, rate, busy;
    int64_t due = INT64_MAX;
    lane_gate_init(&gate, LANE_CLEANUP, 0, LANE_DEFAULT_RATE, 0);
    lane_gate_look(&gate, &concurrency, &rate, &busy);
    assert_int_equal(concurrency, 2);
    assert_int_equal(rate, 400);
    lane_gate_set(&gate, LANE_CLEANUP, 7, 0, 0);
    assert_int_equal(lane_gate_enter(&gate, 0, 100000, &due), 100000);
    lane_gate_set(&gate, LANE_CLEANUP, 7, 40, 0);
    lane_gate_leave(&gate, 100000); /* handed out without a limit: must not flood the bucket */
    lane_gate_look(&gate, &concurrency, &rate, &busy);
    assert_int_equal(concurrency, 7);
    assert_int_equal(busy, 0);
    assert_int_equal(lane_gate_enter(&gate, 0, 100, &due), 2);
    lane_gate_set(&gate, LANE_CLEANUP, 0, LANE_DEFAULT_RATE, 0);
    lane_gate_look(&gate, &concurrency, &rate, &busy);
    assert_int_equal(concurrency, 2);
    assert_int_equal(rate, 400);
    lane_gate_done(&gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_limited),
        cmocka_unit_test(the_rate_is_kept_exactly),
        cmocka_unit_test(a_rest_does_not_save_up_more_than_the_bucket),
        cmocka_unit_test(limits_can_be_changed_and_set_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
