/* The overload guard: at which room and backlog it begins and ends, its reserve, and what it says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "ops/overload_guard.h"

#define MIB INT64_C(1048576)

static char folder[] = "/tmp/fantail-guard-XXXXXX";
static char reserve[100];

/* A disk of the test's making. The reserve takes of it what it weighs. */
static int64_t disk_room;

static int64_t reserved_bytes(void)
{
    struct stat s;
    return stat(reserve, &s) == 0 ? s.st_size : 0;
}

static int64_t made_up_free(const char *path)
{
    assert_string_equal(path, folder);
    return disk_room < 0 ? -1 : disk_room - reserved_bytes();
}

static struct overload_guard make(int64_t free_bytes, uint64_t backlog_max, int64_t reserve_bytes)
{
    struct overload_guard b;
    struct overload_guard_config config = {.folder = folder,
                                           .free_bytes = free_bytes,
                                           .backlog_max = backlog_max,
                                           .reserve_bytes = reserve_bytes,
                                           .disk_free = made_up_free};
    overload_guard_init(&b, &config);
    return b;
}

static void assert_why(const struct overload_guard *b, const char *expected)
{
    char why[120];
    overload_guard_why(b, why);
    assert_string_equal(why, expected);
}

static void the_disk_raises_the_level_and_lets_go_with_room_to_spare(void **state)
{
    (void)state;
    static const struct {
        int64_t room;
        int level;
    } story[] = {
        {1000, 0}, {200, 0}, {199, 1}, {200, 1}, {219, 1}, {220, 0}, /* twice the limit … */
        {200, 0},  {100, 1}, {99, 2},  {100, 2}, {109, 2}, {110, 1}, /* … and the limit itself */
        {100, 1},  {0, 2},   {219, 1}, {0, 2},   {220, 0}, {0, 2},
    };
    disk_room = 1000;
    struct overload_guard b = make(100, 0, 0);
    assert_int_equal(overload_guard_level(&b), 0);
    for (size_t i = 0; i < COUNT_OF(story); i++) {
        disk_room = story[i].room;
        if (overload_guard_look(&b, UINT64_MAX, false) != story[i].level)
            fail_msg("step %zu: room %lld gives level %d", i, (long long)disk_room,
                     overload_guard_level(&b));
        assert_int_equal(overload_guard_level(&b), story[i].level);
        assert_int_equal(b.disk, story[i].level > 0);
        assert_false(b.backlog); /* it is not watched */
        assert_int_equal(b.free_bytes, disk_room);
    }
}

static void the_backlog_raises_the_level_and_lets_go(void **state)
{
    (void)state;
    static const struct {
        uint64_t backlog;
        int level;
    } story[] = {
        {0, 0},    {500, 0},  {501, 1}, {500, 1}, {451, 1},  {450, 0},        {501, 1},
        {1000, 1}, {1001, 2}, {901, 2}, {900, 1}, {1000, 1}, {UINT64_MAX, 2}, {450, 0},
    };
    disk_room = 0; /* not watched */
    struct overload_guard b = make(0, 1000, 0);
    for (size_t i = 0; i < COUNT_OF(story); i++) {
        if (overload_guard_look(&b, story[i].backlog, true) != story[i].level)
            fail_msg("step %zu: backlog %llu gives level %d", i,
                     (unsigned long long)story[i].backlog, overload_guard_level(&b));
        assert_int_equal(b.backlog, story[i].level > 0);
        assert_false(b.disk);
    }
}

static void the_higher_of_the_two_decides(void **state)
{
    (void)state;
    disk_room = 300 * MIB;
    struct overload_guard b = make(256 * MIB, 1000, 0);
    assert_int_equal(overload_guard_look(&b, 10, false), 1);
    assert_true(b.disk && !b.backlog);
    assert_why(&b, "the disk is filling up (300 MiB free)");
    assert_int_equal(overload_guard_look(&b, 1001, false), 2);
    assert_true(!b.disk && b.backlog);
    assert_why(&b, "the backlog is too long (1001 events)");
    disk_room = 12 * MIB;
    assert_int_equal(overload_guard_look(&b, 1001, false), 2);
    assert_true(b.disk && b.backlog);
    assert_why(&b, "the disk is nearly full (12 MiB free), and the backlog is too long "
                   "(1001 events)");
    assert_int_equal(overload_guard_look(&b, 0, false), 2);
    assert_why(&b, "the disk is nearly full (12 MiB free)");
    disk_room = 300 * MIB;
    assert_int_equal(overload_guard_look(&b, 700, false), 1);
    assert_why(&b, "the disk is filling up (300 MiB free), and the backlog is long (700 events)");
    disk_room = 3000 * MIB;
    assert_int_equal(overload_guard_look(&b, 700, false), 1);
    assert_why(&b, "the backlog is long (700 events)");
    assert_int_equal(overload_guard_look(&b, 0, false), 0);
    assert_why(&b, "");
}

static void the_longest_reason_fits(void **state)
{
    (void)state;
    char why[120];
    disk_room = INT64_MAX;
    struct overload_guard b = make(1, 1, 0);
    assert_int_equal(overload_guard_look(&b, UINT64_MAX, true), 2);
    overload_guard_why(&b, why);
    assert_string_equal(why, "a write found no room on the disk (8796093022207 MiB free), and "
                             "the backlog is too long (18446744073709551615 events)");
}

static void off_means_off(void **state)
{
    (void)state;
    disk_room = 0;
    struct overload_guard b = make(0, 0, 8 * MIB);
    assert_int_equal(overload_guard_look(&b, UINT64_MAX, true), 0);
    assert_int_equal(reserved_bytes(), 0);
    assert_int_equal(b.free_bytes, 0); /* seen, though: it is shown */
}

/* Whatever the file system says: writes fail, and refused ones cannot show when the disk has room
 * again. */
static void a_commit_without_room_raises_the_level_for_a_while(void **state)
{
    (void)state;
    disk_room = 1000 * MIB;
    struct overload_guard b = make(100 * MIB, 0, MIB);
    assert_int_equal(overload_guard_look(&b, 0, false), 0);
    assert_int_equal(reserved_bytes(), MIB);
    assert_int_equal(overload_guard_look(&b, 0, true), 2);
    assert_true(b.disk);
    assert_why(&b, "a write found no room on the disk (999 MiB free)");
    assert_int_equal(reserved_bytes(), 0);
    for (int i = 0; i < 99; i++)
        assert_int_equal(overload_guard_look(&b, 0, false), 2);
    assert_int_equal(overload_guard_look(&b, 0, false), 0);
    assert_int_equal(reserved_bytes(), MIB);
    assert_int_equal(overload_guard_look(&b, 0, true), 2);
    assert_int_equal(overload_guard_look(&b, 0, true), 2); /* still: the while begins again */
    for (int i = 0; i < 99; i++)
        assert_int_equal(overload_guard_look(&b, 0, false), 2);
    assert_int_equal(overload_guard_look(&b, 0, false), 0);
}

static void the_reserve_is_given_up_and_made_again(void **state)
{
    (void)state;
    disk_room = 100 * MIB;
    struct overload_guard b = make(10 * MIB, 0, 8 * MIB);
    struct stat s;
    assert_int_equal(stat(reserve, &s), 0);
    assert_int_equal(s.st_size, 8 * MIB);
    assert_true(s.st_blocks * INT64_C(512) >= 8 * MIB); /* really there, not sparse */
    assert_int_equal(s.st_mode & 0777, 0600);
    assert_int_equal(overload_guard_look(&b, 0, false), 0);

    disk_room = 20 * MIB; /* of which 12 are free beside the reserve */
    assert_int_equal(overload_guard_look(&b, 0, false), 1);
    assert_int_equal(reserved_bytes(), 8 * MIB);
    disk_room = 17 * MIB;
    assert_int_equal(overload_guard_look(&b, 0, false), 2);
    assert_int_equal(reserved_bytes(), 0);
    /* The released reserve is for deletes: it does not count as free and ends nothing. */
    assert_int_equal(overload_guard_look(&b, 0, false), 2);
    assert_int_equal(b.free_bytes, 17 * MIB);
    disk_room = 19 * MIB;
    assert_int_equal(overload_guard_look(&b, 0, false), 1);
    assert_int_equal(reserved_bytes(), 0); /* not yet */
    disk_room = 30 * MIB;
    assert_int_equal(overload_guard_look(&b, 0, false), 0);
    assert_int_equal(reserved_bytes(), 8 * MIB);
    assert_int_equal(overload_guard_look(&b, 0, false),
                     0); /* and making it does not raise the level again */
}

static void a_backlog_keeps_the_reserve(void **state)
{
    (void)state;
    disk_room = 1000 * MIB;
    struct overload_guard b = make(10 * MIB, 100, MIB);
    assert_int_equal(overload_guard_look(&b, 1000, false), 2);
    assert_int_equal(reserved_bytes(), MIB);
}

static void a_start_on_a_full_disk_does_not_fill_it(void **state)
{
    (void)state;
    disk_room = 11 * MIB;
    struct overload_guard b = make(10 * MIB, 0, 8 * MIB);
    assert_int_equal(reserved_bytes(), 0);
    assert_int_equal(overload_guard_look(&b, 0, false), 2);
    disk_room = 1000 * MIB;
    assert_int_equal(overload_guard_look(&b, 0, false), 0);
    assert_int_equal(reserved_bytes(), 8 * MIB);
    /* The next process finds it, with another size in mind; the one after wants none. */
    struct overload_guard next = make(10 * MIB, 0, MIB);
    assert_int_equal(overload_guard_look(&next, 0, false), 0);
    assert_int_equal(reserved_bytes(), MIB);
    (void)make(10 * MIB, 0, 0);
    assert_int_equal(reserved_bytes(), 0);
}

static void a_disk_that_cannot_be_asked_changes_nothing(void **state)
{
    (void)state;
    disk_room = -1;
    struct overload_guard b = make(100, 0, 0);
    assert_int_equal(overload_guard_look(&b, 0, false), 0);
    assert_int_equal(b.free_bytes, -1);
    disk_room = 50;
    assert_int_equal(overload_guard_look(&b, 0, false), 2);
    disk_room = -1;
    assert_int_equal(overload_guard_look(&b, 0, false), 2);
    assert_int_equal(b.free_bytes, 50);
    disk_room = 1000;
    assert_int_equal(overload_guard_look(&b, 0, false), 0);
}

static void the_file_system_is_asked(void **state)
{
    (void)state;
    struct overload_guard b;
    struct overload_guard_config config = {.folder = folder, .free_bytes = 1};
    overload_guard_init(&b, &config);
    assert_int_equal(overload_guard_look(&b, 0, false), 0);
    assert_true(b.free_bytes > 1);
    config.free_bytes = INT64_MAX;
    config.reserve_bytes = INT64_C(1) << 40; /* more than there is: nothing is begun */
    overload_guard_init(&b, &config);
    assert_int_equal(overload_guard_look(&b, 0, false), 2);
    assert_int_equal(reserved_bytes(), 0);
    config.folder = "/nonexistent/folder";
    overload_guard_init(&b, &config);
    assert_int_equal(overload_guard_look(&b, 0, false), 0);
}

static int clean(void **state)
{
    (void)state;
    unlink(reserve);
    return 0;
}

int main(void)
{
    log_set_level(LOG_ERROR);
    if (!mkdtemp(folder))
        return 1;
    snprintf(reserve, sizeof reserve, "%s/reserve", folder);
#define CLEAN(test) cmocka_unit_test_teardown(test, clean)
    const struct CMUnitTest tests[] = {
        CLEAN(the_disk_raises_the_level_and_lets_go_with_room_to_spare),
        CLEAN(the_backlog_raises_the_level_and_lets_go),
        CLEAN(the_higher_of_the_two_decides),
        CLEAN(the_longest_reason_fits),
        CLEAN(off_means_off),
        CLEAN(a_commit_without_room_raises_the_level_for_a_while),
        CLEAN(the_reserve_is_given_up_and_made_again),
        CLEAN(a_backlog_keeps_the_reserve),
        CLEAN(a_start_on_a_full_disk_does_not_fill_it),
        CLEAN(a_disk_that_cannot_be_asked_changes_nothing),
        CLEAN(the_file_system_is_asked),
    };
    int failed = cmocka_run_group_tests_name("ops/overload_guard", tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
