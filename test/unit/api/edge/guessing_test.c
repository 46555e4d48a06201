/* Wrong passwords, on a clock moved by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/edge/guessing.h"

enum { TRIES = 3, ACCOUNT = 1000, OTHER_ACCOUNT = 2000, ADDRESS = 77, OTHER_ADDRESS = 88 };

static struct manual_clock hand;
static struct guessing *guessing;

static int setup(void **state)
{
    (void)state;
    manual_clock_init(&hand, INT64_C(1700000000000));
    guessing = guessing_new(&hand.clock, TRIES);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    guessing_free(guessing);
    return 0;
}

static void each_further_try_waits_twice_as_long(void **state)
{
    (void)state;
    for (int i = 0; i < TRIES; i++)
        assert_int_equal(guessing_begin(guessing, ACCOUNT, ADDRESS), 0);
    for (int64_t wait_s = 1; wait_s < 300; wait_s *= 2) {
        assert_int_equal(guessing_begin(guessing, ACCOUNT, ADDRESS), wait_s);
        manual_clock_advance(&hand, wait_s * 1000 - 1);
        assert_int_equal(guessing_begin(guessing, ACCOUNT, ADDRESS),
                         1); /* asking changes nothing */
        manual_clock_advance(&hand, 1);
        assert_int_equal(guessing_begin(guessing, ACCOUNT, ADDRESS), 0);
    }
    manual_clock_advance(&hand, INT64_C(24) * 60 * 60 * 1000); /* all is forgotten */
    for (int i = 0; i < TRIES; i++)
        assert_int_equal(guessing_begin(guessing, ACCOUNT, ADDRESS), 0);
}

static void the_right_password_ends_the_wait(void **state)
{
    (void)state;
    for (int turn = 0; turn < 10; turn++) {
        for (int i = 0; i < TRIES; i++)
            assert_int_equal(guessing_begin(guessing, ACCOUNT, ADDRESS), 0);
        guessing_right(guessing, ACCOUNT, ADDRESS);
        manual_clock_advance(&hand, 61 * 1000);
    }
}

static void an_address_is_limited_over_all_accounts(void **state)
{
    (void)state;
    for (int i = 0; i < 5 * TRIES; i++)
        assert_int_equal(guessing_begin(guessing, (uint64_t)i + 1, ADDRESS), 0);
    assert_int_equal(guessing_begin(guessing, ACCOUNT, ADDRESS), 1);
    assert_int_equal(guessing_begin(guessing, ACCOUNT, OTHER_ADDRESS), 0);
}

static void a_wrong_password_now_and_then_closes_no_address(void **state)
{
    (void)state;
    for (uint64_t person = 1; person < 500; person++) {
        assert_int_equal(guessing_begin(guessing, person, ADDRESS), 0);
        manual_clock_advance(&hand, 10 * 1000);
    }
}

static void a_log_in_to_ones_own_account_buys_no_guesses(void **state)
{
    (void)state;
    int through = 0;
    for (int i = 0; i < 100; i++) {
        through += guessing_begin(guessing, (uint64_t)i + 1, ADDRESS) == 0;
        uint64_t own = (uint64_t)OTHER_ACCOUNT + (uint64_t)i / 2; /* new ones and known ones */
        if (guessing_begin(guessing, own, ADDRESS) == 0)
            guessing_right(guessing, own, ADDRESS);
    }
    assert_int_equal(through, 5 * TRIES);
}

static void guessers_do_not_shut_the_owner_out(void **state)
{
    (void)state;
    assert_int_equal(guessing_begin(guessing, ACCOUNT, ADDRESS), 0);
    guessing_right(guessing, ACCOUNT, ADDRESS);
    for (uint64_t address = 100; guessing_begin(guessing, ACCOUNT, address) == 0; address++)
        assert_true(address < 100 + 10 * TRIES);
    assert_int_equal(guessing_begin(guessing, ACCOUNT, OTHER_ADDRESS), 1);
    assert_int_equal(guessing_begin(guessing, ACCOUNT, ADDRESS), 0);
}

static void without_a_limit_nothing_waits(void **state)
{
    (void)state;
    struct guessing *none = guessing_new(&hand.clock, 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(guessing_begin(none, ACCOUNT, ADDRESS), 0);
    guessing_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_further_try_waits_twice_as_long, setup, teardown),
        cmocka_unit_test_setup_teardown(the_right_password_ends_the_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(an_address_is_limited_over_all_accounts, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wrong_password_now_and_then_closes_no_address, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_log_in_to_ones_own_account_buys_no_guesses, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(guessers_do_not_shut_the_owner_out, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_limit_nothing_waits, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
