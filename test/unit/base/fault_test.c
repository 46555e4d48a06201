/* Fault points: die at the Nth time and at no other, refuse what names none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "child.h"

struct visit {
    const char *wish;
    int times;
    int survived[2]; /* a pipe: how often the point was passed */
};

static void visit_point(void *arg)
{
    struct visit *v = arg;
    if (v->wish)
        setenv("FANTAIL_FAULT", v->wish, 1);
    else
        unsetenv("FANTAIL_FAULT");
    for (int i = 0; i < v->times; i++) {
        fault_reached(FAULT_db_before_commit);
        fault_reached(FAULT_db_after_commit);
        if (write(v->survived[1], "x", 1) != 1)
            _exit(3);
    }
}

/* Returns how many rounds were survived; `*signal` says how it ended. */
static int rounds(const char *wish, int times, int *signal)
{
    struct visit v = {.wish = wish, .times = times};
    char passed[64];
    assert_int_equal(pipe(v.survived), 0);
    *signal = signal_of(visit_point, &v);
    close(v.survived[1]);
    ssize_t n = read(v.survived[0], passed, sizeof passed);
    close(v.survived[0]);
    return (int)n;
}

static void test_dies_at_the_nth_time(void **state)
{
    (void)state;
    int signal;
    assert_int_equal(rounds("db_before_commit:3", 10, &signal), 2);
    assert_int_equal(signal, SIGKILL);
    assert_int_equal(rounds("db_after_commit:1", 10, &signal), 0);
    assert_int_equal(signal, SIGKILL);
    assert_int_equal(rounds("db_after_commit", 10, &signal), 0);
    assert_int_equal(signal, SIGKILL);
    assert_int_equal(rounds("db_before_commit:11", 10, &signal), 10);
    assert_int_equal(signal, 0);
    assert_int_equal(rounds("snapshot_half_written:1", 10, &signal), 10);
    assert_int_equal(signal, 0);
    assert_int_equal(rounds(NULL, 10, &signal), 10);
    assert_int_equal(signal, 0);
}

static void test_refuses_unknown_names(void **state)
{
    (void)state;
    static const char *const bad[] = {"no_such_point:1", "db_before_commit:0", "db_before_commit:x",
                                      "db_before_commit:-1", "db_before_commi"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int signal;
        assert_int_equal(rounds(bad[i], 1, &signal), 0);
        assert_int_equal(signal, 0); /* it left by itself, with an error */
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(fault_name(FAULT_db_before_commit), "db_before_commit");
    assert_string_equal(fault_name((enum fault_point)(FAULT_COUNT - 1)), "keeper_before_crossing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dies_at_the_nth_time),
        cmocka_unit_test(test_refuses_unknown_names),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("base/fault", tests, NULL, NULL);
}
