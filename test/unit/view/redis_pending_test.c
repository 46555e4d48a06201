/* What is owed to Redis: remembered by key, paid once, bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "view/redis/pending_invalidations.h"

enum { DAY_MS = 86400000, MANY = 40000, SLICE = 500 };

static int set_up(void **state)
{
    static struct pending d;
    pending_init(&d, DAY_MS);
    *state = &d;
    return 0;
}

static int tear_down(void **state)
{
    pending_done(*state);
    return 0;
}

static void nothing_is_owed_at_first(void **state)
{
    struct pending_invalidation due[4];
    assert_int_equal(pending_state(*state, 'P', 1), PENDING_NONE);
    assert_int_equal(pending_due(*state, due, 4), 0);
}

static void gone_is_stronger_than_forgotten(void **state)
{
    struct pending *d = *state;
    pending_add(d, 'P', 1, true);
    pending_add(d, 'P', 1, false);
    pending_add(d, 'A', 1, false);
    assert_int_equal(pending_state(d, 'P', 1), PENDING_GONE);
    assert_int_equal(pending_state(d, 'A', 1), PENDING_FORGET);
    assert_int_equal(pending_state(d, 'L', 1), PENDING_NONE);
    /* What was paid before it became more is still owed. */
    pending_remove(d, &(struct pending_invalidation){1, 'P', false}, 1);
    assert_int_equal(pending_state(d, 'P', 1), PENDING_GONE);
    pending_remove(d, &(struct pending_invalidation){1, 'P', true}, 1);
    assert_int_equal(pending_state(d, 'P', 1), PENDING_NONE);
    assert_int_equal(pending_state(d, 'A', 1), PENDING_FORGET);
}

static void all_is_paid_in_slices(void **state)
{
    struct pending *d = *state;
    struct pending_invalidation due[SLICE];
    size_t paid = 0, rest = 5000;
    for (uint64_t id = 1; id <= rest; id++)
        pending_add(d, 'P', id * 4194304, id % 3 == 0);
    int64_t until = clock_mono_ms(clock_system()) + 20000;
    while (paid < rest && clock_mono_ms(clock_system()) < until) {
        size_t n = pending_due(d, due, SLICE); /* one every few ms */
        pending_remove(d, due, n);
        paid += n;
        for (uint64_t id = 1; n > 0 && id <= rest; id += 997)
            for (size_t i = 0; i < n; i++)
                if (due[i].id == id * 4194304)
                    assert_int_equal(pending_state(d, 'P', due[i].id), PENDING_NONE);
    }
    assert_int_equal(paid, rest);
    for (uint64_t id = 1; id <= rest; id++)
        assert_int_equal(pending_state(d, 'P', id * 4194304), PENDING_NONE);
}

static void too_much_makes_everything_suspect(void **state)
{
    struct pending *d = *state;
    for (uint64_t id = 1; id <= MANY; id++)
        pending_add(d, 'P', id, true);
    assert_int_equal(pending_state(d, 'P', 1), PENDING_GONE);
    assert_int_equal(pending_state(d, 'P', MANY),
                     PENDING_FORGET); /* not remembered: not read, either */
    assert_int_equal(pending_state(d, 'P', MANY + 1), PENDING_FORGET);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(nothing_is_owed_at_first),
        CASE(gone_is_stronger_than_forgotten),
        CASE(all_is_paid_in_slices),
        CASE(too_much_makes_everything_suspect),
    };
    return cmocka_run_group_tests_name("redis pending", tests, NULL, NULL);
}
