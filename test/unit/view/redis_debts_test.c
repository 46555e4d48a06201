/* What is owed to Redis: remembered by key, paid once, bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "view/redis/debts.h"

enum { DAY_MS = 86400000, MANY = 40000, SLICE = 500 };

static int set_up(void **state)
{
    static struct debts d;
    debts_init(&d, DAY_MS);
    *state = &d;
    return 0;
}

static int tear_down(void **state)
{
    debts_done(*state);
    return 0;
}

static void nothing_is_owed_at_first(void **state)
{
    struct debt due[4];
    assert_int_equal(debts_state(*state, 'P', 1), DEBT_NONE);
    assert_int_equal(debts_due(*state, due, 4), 0);
}

static void gone_is_stronger_than_forgotten(void **state)
{
    struct debts *d = *state;
    debts_add(d, 'P', 1, true);
    debts_add(d, 'P', 1, false);
    debts_add(d, 'A', 1, false);
    assert_int_equal(debts_state(d, 'P', 1), DEBT_GONE);
    assert_int_equal(debts_state(d, 'A', 1), DEBT_FORGET);
    assert_int_equal(debts_state(d, 'L', 1), DEBT_NONE);
    /* What was paid before it became more is still owed. */
    debts_strike(d, &(struct debt){1, 'P', false}, 1);
    assert_int_equal(debts_state(d, 'P', 1), DEBT_GONE);
    debts_strike(d, &(struct debt){1, 'P', true}, 1);
    assert_int_equal(debts_state(d, 'P', 1), DEBT_NONE);
    assert_int_equal(debts_state(d, 'A', 1), DEBT_FORGET);
}

static void all_is_paid_in_slices(void **state)
{
    struct debts *d = *state;
    struct debt due[SLICE];
    size_t paid = 0, rest = 5000;
    for (uint64_t id = 1; id <= rest; id++)
        debts_add(d, 'P', id * 4194304, id % 3 == 0);
    int64_t until = clock_mono_ms(clock_system()) + 20000;
    while (paid < rest && clock_mono_ms(clock_system()) < until) {
        size_t n = debts_due(d, due, SLICE); /* one every few ms */
        debts_strike(d, due, n);
        paid += n;
        for (uint64_t id = 1; n > 0 && id <= rest; id += 997)
            for (size_t i = 0; i < n; i++)
                if (due[i].id == id * 4194304)
                    assert_int_equal(debts_state(d, 'P', due[i].id), DEBT_NONE);
    }
    assert_int_equal(paid, rest);
    for (uint64_t id = 1; id <= rest; id++)
        assert_int_equal(debts_state(d, 'P', id * 4194304), DEBT_NONE);
}

static void too_much_makes_everything_doubtful(void **state)
{
    struct debts *d = *state;
    for (uint64_t id = 1; id <= MANY; id++)
        debts_add(d, 'P', id, true);
    assert_int_equal(debts_state(d, 'P', 1), DEBT_GONE);
    assert_int_equal(debts_state(d, 'P', MANY), DEBT_FORGET); /* not remembered: not read, either */
    assert_int_equal(debts_state(d, 'P', MANY + 1), DEBT_FORGET);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(nothing_is_owed_at_first),
        CASE(gone_is_stronger_than_forgotten),
        CASE(all_is_paid_in_slices),
        CASE(too_much_makes_everything_doubtful),
    };
    return cmocka_run_group_tests_name("redis debts", tests, NULL, NULL);
}
