/* Fault points: die at the Nth time and at no other, refuse what names none; deliveries that a file
 * makes fail while the program runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
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
    assert_string_equal(fault_name((enum fault_point)(FAULT_COUNT - 1)), "timer_after_fire");
}

/* ---- failing deliveries ---- */

static char fail_path[64];

static void write_fails(const char *text)
{
    int file = open(fail_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
}

/* Waits until the delivery is answered so; the file is looked at every now and then. */
static bool comes_to(const char *consumer, uint64_t actor, enum err expected)
{
    for (int i = 0; i < 2000; i++) {
        if (fault_asked(consumer, actor) == expected)
            return true;
        usleep(1000);
    }
    return false;
}

static void test_a_file_makes_deliveries_fail(void **state)
{
    (void)state;
    assert_int_equal(fault_asked("timelines", 7), OK); /* the file asks for nothing */
    setenv("FANTAIL_FAIL", fail_path, 1);
    assert_int_equal(fault_asked("timelines", 7), OK); /* no such file yet */

    write_fails("# a comment\n\n  timelines UNAVAILABLE\nbackfill TIMEOUT 42\n");
    assert_true(comes_to("timelines", 7, ERR_UNAVAILABLE));
    assert_int_equal(fault_asked("backfill", 42), ERR_TIMEOUT);
    assert_int_equal(fault_asked("backfill", 43), OK);
    assert_int_equal(fault_asked("backfil", 42), OK);
    assert_int_equal(fault_asked("backfill2", 42), OK);

    /* The same size, at nearly the same time. */
    write_fails("# a comment\n\n  timelines UNAVAILABLE\nbackfill TIMEOUT 44\n");
    assert_true(comes_to("backfill", 44, ERR_TIMEOUT));
    assert_int_equal(fault_asked("backfill", 42), OK);

    /* The first line that names it decides. */
    write_fails("timelines UNKNOWN_COMMIT 5\ntimelines INVALID\n");
    assert_true(comes_to("timelines", 5, ERR_UNKNOWN_COMMIT));
    assert_int_equal(fault_asked("timelines", 6), ERR_INVALID);

    /* A line that is still being written is not there yet. */
    write_fails("timelines UNAVAILABLE 5\ntimelines UNAVAI");
    assert_true(comes_to("timelines", 5, ERR_UNAVAILABLE));
    assert_int_equal(fault_asked("timelines", 6), OK);

    write_fails("");
    assert_true(comes_to("timelines", 5, OK));
    write_fails("timelines INVALID\n");
    assert_true(comes_to("timelines", 5, ERR_INVALID));
    assert_int_equal(unlink(fail_path), 0);
    assert_true(comes_to("timelines", 5, OK));
    unsetenv("FANTAIL_FAIL");
}

static void ask_once(void *arg)
{
    setenv("FANTAIL_FAIL", fail_path, 1);
    (void)fault_asked("timelines", 1);
    if (write(*(int *)arg, "x", 1) != 1)
        _exit(3);
}

static void test_refuses_lines_that_cannot_be_done(void **state)
{
    (void)state;
    static const char *const bad[] = {"timelines\n",
                                      "timelines NO_SUCH_ERROR\n",
                                      "timelines NONE\n",
                                      "timelines unavailable\n",
                                      "timelines UNAVAILABLE x\n",
                                      "timelines UNAVAILABLE 0\n",
                                      "timelines UNAVAILABLE -1\n",
                                      "timelines UNAVAILABLE 1 2\n",
                                      "timelines INVALID\nnonsense\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int passed[2];
        char c;
        assert_int_equal(pipe(passed), 0);
        write_fails(bad[i]);
        assert_int_equal(signal_of(ask_once, &passed[1]), 0);
        close(passed[1]);
        if (read(passed[0], &c, 1) != 0)
            fail_msg("accepted: %s", bad[i]);
        close(passed[0]);
    }
    unlink(fail_path);
}

int main(void)
{
    snprintf(fail_path, sizeof fail_path, "/tmp/fantail-fail-%d", (int)getpid());
    unsetenv("FANTAIL_FAIL");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dies_at_the_nth_time),
        cmocka_unit_test(test_refuses_unknown_names),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_refuses_lines_that_cannot_be_done),
        cmocka_unit_test(test_a_file_makes_deliveries_fail),
    };
    return cmocka_run_group_tests_name("base/fault", tests, NULL, NULL);
}
