/* The lock of the data folder, against a second holder in another process. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ops/lock.h"

static char base[] = "/tmp/fantail-lock-XXXXXX";
static char folder[200];
static char why[300];

/* What a second process gets: the error kind, and the message in `why` by way of a pipe. */
static enum err take_elsewhere(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct data_lock lock;
        char text[300] = "";
        enum err e = data_lock_take(&lock, folder, text);
        ssize_t n = write(ends[1], text, sizeof(text));
        _exit(n == (ssize_t)sizeof(text) ? (int)e : 99);
    }
    int status = 0;
    assert_int_equal(read(ends[0], why, sizeof(why)), sizeof(why));
    assert_int_equal(waitpid(child, &status, 0), child);
    close(ends[0]);
    close(ends[1]);
    assert_true(WIFEXITED(status));
    return (enum err)WEXITSTATUS(status);
}

static void the_second_is_told_who_holds_it(void **state)
{
    (void)state;
    struct data_lock lock;
    assert_int_equal(data_lock_take(&lock, folder, why), OK);
    assert_int_equal(take_elsewhere(), ERR_CONFLICT);
    char expected[300];
    snprintf(expected, sizeof(expected), "another server (pid %ld) uses %s", (long)getpid(),
             folder);
    assert_string_equal(why, expected);
    data_lock_release(&lock);
    assert_int_equal(take_elsewhere(), OK);
}

static void it_is_free_again_when_its_holder_died(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct data_lock lock;
        char ok = data_lock_take(&lock, folder, why) == OK ? 'y' : 'n';
        if (write(ends[1], &ok, 1) == 1)
            pause();
        _exit(1);
    }
    char ok = 'n';
    assert_int_equal(read(ends[0], &ok, 1), 1);
    assert_int_equal(ok, 'y');
    struct data_lock lock;
    assert_int_equal(data_lock_take(&lock, folder, why), ERR_CONFLICT);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(data_lock_take(&lock, folder, why), OK);
    data_lock_release(&lock);
    close(ends[0]);
    close(ends[1]);
}

static void folders_are_made_closed_to_others(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void a_file_in_the_way_is_named(void **state)
{
    (void)state;
    char path[300];
    snprintf(path, sizeof(path), "%s/lock", folder);
    struct data_lock lock;
    assert_int_equal(data_lock_take(&lock, path, why), ERR_UNAVAILABLE);
    assert_non_null(strstr(why, path));
    assert_non_null(strstr(why, "Not a directory"));
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(base))
        return -1;
    snprintf(folder, sizeof(folder), "%s/deep/data", base);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char path[300];
    snprintf(path, sizeof(path), "%s/lock", folder);
    unlink(path);
    rmdir(folder);
    snprintf(path, sizeof(path), "%s/deep", base);
    rmdir(path);
    return rmdir(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_is_told_who_holds_it),
        cmocka_unit_test(it_is_free_again_when_its_holder_died),
        cmocka_unit_test(folders_are_made_closed_to_others),
        cmocka_unit_test(a_file_in_the_way_is_named),
    };
    return cmocka_run_group_tests_name("ops/lock", tests, set_up, tear_down);
}
