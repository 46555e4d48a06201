/* The settings: where a value comes from, its bounds, and the message for a bad one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "ops/settings.h"

static char folder[] = "/tmp/fantail-settings-XXXXXX";
static struct settings s;
static char *rest[32];
static int rest_count;
static char why[300];

#define LOAD(...) load((const char *[]){__VA_ARGS__, NULL})

/* Nothing writes to the arguments: argv has its type from main(). */
static enum err load(const char **words)
{
    char *argv[32];
    int argc = 0;
    for (; words[argc]; argc++) {
        assert_in_range(argc, 0, 30);
        argv[argc] = (char *)(uintptr_t)words[argc];
    }
    return settings_load(&s, argc, argv, rest, &rest_count, why);
}

static void write_file(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void assert_refused(const char *expected)
{
    if (!strstr(why, expected))
        fail_msg("expected “%s” in “%s”", expected, why);
}

static int clean(void **state)
{
    (void)state;
    static const char *const variables[] = {
        "FANTAIL_DATA",           "FANTAIL_LOOPS", "FANTAIL_CONFIG", "FANTAIL_TIMELINE_CAP",
        "FANTAIL_LOPS",           "FANTAIL_FAULT", "FANTAIL_FAIL",   "FANTAIL_INBOX_RETENTION",
        "FANTAIL_DEDUP_RETENTION"};
    for (size_t i = 0; i < COUNT_OF(variables); i++)
        unsetenv(variables[i]);
    char path[200];
    snprintf(path, sizeof(path), "%s/fantail.conf", folder);
    unlink(path);
    why[0] = '\0';
    return 0;
}

static void every_default_is_valid(void **state)
{
    (void)state;
    settings_default(&s);
    assert_string_equal(s.data, "./data");
    assert_int_equal(s.celebrity_threshold, 10000);
    assert_true(s.celebrity_adaptive);
    assert_int_equal(s.inactive_after_ms, INT64_C(30) * 24 * 3600 * 1000);
    assert_int_equal(s.fan_out_target_ms, 500);
    assert_int_equal(s.card_cache_bytes, INT64_C(512) << 20);
    assert_int_equal(s.page_cache_bytes, INT64_C(64) << 20);
    settings_done(&s);
}

static void a_flag_wins_over_the_environment_and_that_over_the_file(void **state)
{
    (void)state;
    write_file("fantail.conf", "# comment\n\n loops = 3 \ntimeline-cap=50\nreaders = 9\r\n");
    setenv("FANTAIL_LOOPS", "4", 1);
    setenv("FANTAIL_TIMELINE_CAP", "60", 1);
    assert_int_equal(LOAD("--data", folder, "--loops=5"), OK);
    assert_int_equal(s.loops, 5);
    assert_int_equal(s.from[SETTING_ID_loops], FROM_FLAG);
    assert_int_equal(s.timeline_cap, 60);
    assert_int_equal(s.from[SETTING_ID_timeline_cap], FROM_ENVIRONMENT);
    assert_int_equal(s.readers, 9);
    assert_int_equal(s.from[SETTING_ID_readers], FROM_FILE);
    assert_int_equal(s.fan_out_workers, 2);
    assert_int_equal(s.from[SETTING_ID_fan_out_workers], FROM_DEFAULT);
    assert_string_equal(s.data, folder);
    settings_done(&s);
}

static void the_last_of_two_flags_counts(void **state)
{
    (void)state;
    assert_int_equal(LOAD("--data", folder, "--loops", "1", "--loops", "2"), OK);
    assert_int_equal(s.loops, 2);
    settings_done(&s);
}

static void what_is_no_setting_is_left_for_the_command(void **state)
{
    (void)state;
    assert_int_equal(LOAD("--json", "--loops", "1", "ada", "--data", folder, "--", "--loops", "2"),
                     OK);
    assert_int_equal(rest_count, 5);
    assert_string_equal(rest[0], "--json");
    assert_string_equal(rest[1], "ada");
    assert_string_equal(rest[2], "--");
    assert_string_equal(rest[3], "--loops");
    assert_string_equal(rest[4], "2");
    assert_null(rest[5]);
    assert_int_equal(s.loops, 1);
    settings_done(&s);
}

static void a_flag_without_a_value_is_refused(void **state)
{
    (void)state;
    assert_int_equal(LOAD("--data", folder, "--loops"), ERR_INVALID);
    assert_refused("--loops needs a value");
}

static void a_number_is_checked_against_its_bounds(void **state)
{
    (void)state;
    static const char *const bad[] = {"-1", "65", "1.5", "x", "", " 1", "99999999999999999999"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char flag[64];
        snprintf(flag, sizeof(flag), "--loops=%s", bad[i]);
        assert_int_equal(LOAD("--data", folder, flag), ERR_INVALID);
        assert_refused("loops: '");
        assert_refused("from the command line");
    }
    assert_int_equal(LOAD("--data", folder, "--loops=65"), ERR_INVALID);
    assert_refused("loops: '65' (from the command line) is out of range: 0 to 64");
    assert_int_equal(LOAD("--data", folder, "--loops=64"), OK);
    assert_int_equal(s.loops, 64);
    settings_done(&s);
}

static void spans_take_their_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        {"60000ms", 60000}, {"90s", 90000}, {"2m", 120000}, {"3h", 10800000}, {"1d", 86400000}};
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        char flag[64];
        snprintf(flag, sizeof(flag), "--session-life=%s", good[i].text);
        assert_int_equal(LOAD("--data", folder, flag), OK);
        assert_int_equal(s.session_life_ms, good[i].ms);
        settings_done(&s);
    }
    assert_int_equal(LOAD("--data", folder, "--session-life=90"), ERR_INVALID);
    assert_refused("a time such as");
    assert_int_equal(LOAD("--data", folder, "--session-life=1s"), ERR_INVALID);
    assert_refused("out of range: 1m to 3650d");
    assert_int_equal(LOAD("--data", folder, "--session-life=9223372036854775807d"), ERR_INVALID);
    assert_int_equal(LOAD("--data", folder, "--drain-grace=0"), OK);
    assert_int_equal(s.drain_grace_ms, 0);
    settings_done(&s);
}

static void sizes_take_their_units(void **state)
{
    (void)state;
    assert_int_equal(LOAD("--data", folder, "--card-cache=64M"), OK);
    assert_int_equal(s.card_cache_bytes, INT64_C(64) << 20);
    settings_done(&s);
    assert_int_equal(LOAD("--data", folder, "--card-cache", "2g"), OK);
    assert_int_equal(s.card_cache_bytes, INT64_C(2) << 30);
    settings_done(&s);
    assert_int_equal(LOAD("--data", folder, "--card-cache", "1048576"), OK);
    assert_int_equal(s.card_cache_bytes, 1048576);
    settings_done(&s);
    assert_int_equal(LOAD("--data", folder, "--card-cache", "1K"), ERR_INVALID);
    assert_refused("out of range: 1M to 1T");
    assert_int_equal(LOAD("--data", folder, "--card-cache", "2 G"), ERR_INVALID);
    assert_refused("a size such as");
}

static void switches_are_on_or_off(void **state)
{
    (void)state;
    assert_int_equal(LOAD("--data", folder, "--sign-up=off"), OK);
    assert_false(s.sign_up);
    settings_done(&s);
    assert_int_equal(LOAD("--data", folder, "--sign-up=yes"), ERR_INVALID);
    assert_refused("sign-up: 'yes' (from the command line) is not on or off");
}

static void texts_with_few_values_are_checked(void **state)
{
    (void)state;
    assert_int_equal(LOAD("--data", folder, "--log-level=loud"), ERR_INVALID);
    assert_refused("debug, info, warn or error");
    assert_int_equal(LOAD("--data", folder, "--listen=8080"), ERR_INVALID);
    assert_refused("HOST:PORT");
    assert_int_equal(LOAD("--data", ""), ERR_INVALID);
    assert_refused("is not a folder");
}

static void settings_that_contradict_each_other_are_refused(void **state)
{
    (void)state;
    assert_int_equal(LOAD("--data", folder, "--celebrity-min=10", "--celebrity-max=5"),
                     ERR_INVALID);
    assert_refused("celebrity-min (10) is above celebrity-max (5)");
}

static void the_environment_is_named_when_it_is_wrong(void **state)
{
    (void)state;
    setenv("FANTAIL_LOOPS", "many", 1);
    assert_int_equal(LOAD("--data", folder), ERR_INVALID);
    assert_refused("loops: 'many' (from FANTAIL_LOOPS) is not a whole number");
}

static void the_file_is_named_with_its_line(void **state)
{
    (void)state;
    write_file("fantail.conf", "loops = 1\nreaders = none\n");
    assert_int_equal(LOAD("--data", folder), ERR_INVALID);
    assert_refused("fantail.conf line 2) is not a whole number");
    write_file("fantail.conf", "timeline-cop = 10\n");
    assert_int_equal(LOAD("--data", folder), ERR_INVALID);
    assert_refused("line 1: there is no setting 'timeline-cop'; did you mean 'timeline-cap'?");
    write_file("fantail.conf", "hello\n");
    assert_int_equal(LOAD("--data", folder), ERR_INVALID);
    assert_refused("line 1: 'hello' is not NAME = VALUE");
    write_file("fantail.conf", "data = elsewhere\n");
    assert_int_equal(LOAD("--data", folder), ERR_INVALID);
    assert_refused("cannot be set in the data folder's own file");
}

static void a_file_that_was_asked_for_must_exist(void **state)
{
    (void)state;
    char path[200];
    snprintf(path, sizeof(path), "%s/missing.conf", folder);
    assert_int_equal(LOAD("--config", path), ERR_UNAVAILABLE);
    assert_refused("cannot read the settings file");
    write_file("other.conf", "data = /elsewhere\n");
    snprintf(path, sizeof(path), "%s/other.conf", folder);
    assert_int_equal(LOAD("--config", path), OK);
    assert_string_equal(s.data, "/elsewhere");
    assert_string_equal(s.file, path);
    settings_done(&s);
}

static void count_unknown(void *ctx, const char *variable)
{
    int *n = ctx;
    if (strcmp(variable, "FANTAIL_LOPS") == 0)
        *n += 1;
    else
        *n += 100;
}

static void unknown_variables_are_reported(void **state)
{
    (void)state;
    setenv("FANTAIL_LOPS", "1", 1);
    setenv("FANTAIL_LOOPS", "1", 1);
    setenv("FANTAIL_FAULT", "db_before_commit:1", 1);
    setenv("FANTAIL_FAIL", "/tmp/fails", 1);
    int n = 0;
    settings_unknown_environment(count_unknown, &n);
    assert_int_equal(n, 1);
}

static void each_setting_has_a_help_text_and_an_origin(void **state)
{
    (void)state;
    assert_int_equal(LOAD("--data", folder, "--loops", "7"), OK);
    for (enum setting_id i = 0; i < SETTING_COUNT; i++)
        assert_true(settings_name(i)[0] != '\0' && settings_help(i)[0] != '\0' && s.given[i]);
    assert_string_equal(settings_name(SETTING_ID_loops), "loops");
    assert_string_equal(s.given[SETTING_ID_loops], "7");
    assert_int_equal(s.from[SETTING_ID_loops], FROM_FLAG);
    assert_int_equal(s.from[SETTING_ID_readers], FROM_DEFAULT);
    settings_done(&s);
}

/* A store on a small disk must be able to do without the overload guard, and dead letters may stay.
 */
static void retention_and_the_guard_can_be_switched_off(void **state)
{
    (void)state;
    assert_int_equal(LOAD("--data", folder), OK);
    assert_int_equal(s.retain_events_ms, INT64_C(7) * 86400000);
    assert_int_equal(s.retain_deliveries_ms, INT64_C(3) * 86400000);
    assert_int_equal(s.retain_dead_ms, INT64_C(30) * 86400000);
    assert_int_equal(s.dedup_retention_ms, INT64_C(35) * 86400000);
    /* by default no duplicate memory is shorter than what may still come again */
    assert_true(s.dedup_retention_ms > s.retain_dead_ms &&
                s.dedup_retention_ms > s.retain_events_ms);
    assert_int_equal(s.guard_free_bytes, INT64_C(256) << 20);
    assert_int_equal(s.guard_reserve_bytes, INT64_C(8) << 20);
    assert_int_equal(s.guard_backlog, 5000000);
    assert_int_equal(s.replay_rate, 1000);
    settings_done(&s);
    assert_int_equal(LOAD("--data", folder, "--retain-events=0", "--retain-dead=0",
                          "--dedup-retention=0", "--retain-deliveries=0", "--guard-free=0",
                          "--guard-backlog=0", "--guard-reserve=0"),
                     OK);
    assert_int_equal(s.retain_events_ms + s.retain_dead_ms + s.retain_deliveries_ms, 0);
    assert_int_equal(s.guard_free_bytes + s.guard_backlog + s.guard_reserve_bytes, 0);
    settings_done(&s);
    assert_int_equal(LOAD("--data", folder, "--retain-events=3651d"), ERR_INVALID);
    assert_refused("out of range: 0 to 3650d");
    assert_int_equal(LOAD("--data", folder, "--replay-rate=0"), ERR_INVALID);
}

static void an_old_name_still_works(void **state)
{
    (void)state;
    const int64_t day_ms = 86400000;
    assert_int_equal(LOAD("--data", folder, "--inbox-retention", "40d"), OK);
    assert_int_equal(s.dedup_retention_ms, 40 * day_ms);
    assert_int_equal(s.from[SETTING_ID_dedup_retention], FROM_FLAG);
    settings_done(&s);
    write_file("fantail.conf", "inbox-retention = 41d\n");
    assert_int_equal(LOAD("--data", folder), OK);
    assert_int_equal(s.dedup_retention_ms, 41 * day_ms);
    settings_done(&s);
    setenv("FANTAIL_INBOX_RETENTION", "42d", 1);
    assert_int_equal(LOAD("--data", folder), OK);
    assert_int_equal(s.dedup_retention_ms, 42 * day_ms);
    settings_done(&s);
    assert_int_equal(LOAD("--data", folder, "--inbox-retention=3651d"), ERR_INVALID);
    assert_refused("dedup-retention: '3651d' (from the command line) is out of range");
}

static void the_present_name_wins_over_the_old_one(void **state)
{
    (void)state;
    setenv("FANTAIL_INBOX_RETENTION", "42d", 1);
    setenv("FANTAIL_DEDUP_RETENTION", "43d", 1);
    assert_int_equal(LOAD("--data", folder), OK);
    assert_int_equal(s.dedup_retention_ms, INT64_C(43) * 86400000);
    settings_done(&s);
}

static void addresses_are_split(void **state)
{
    (void)state;
    char host[256];
    uint16_t port;
    assert_true(settings_split_address("127.0.0.1:8080", host, &port));
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(port, 8080);
    assert_true(settings_split_address("[::1]:0", host, &port));
    assert_string_equal(host, "::1");
    assert_int_equal(port, 0);
    assert_true(settings_split_address(":65535", host, &port));
    assert_string_equal(host, "0.0.0.0");
    assert_false(settings_split_address("::1:80", host, &port));
    assert_false(settings_split_address("localhost", host, &port));
    assert_false(settings_split_address("localhost:", host, &port));
    assert_false(settings_split_address("localhost:65536", host, &port));
    assert_false(settings_split_address("localhost:-1", host, &port));
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    clean(state);
    char path[200];
    snprintf(path, sizeof(path), "%s/other.conf", folder);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_default_is_valid, clean),
        cmocka_unit_test_setup(a_flag_wins_over_the_environment_and_that_over_the_file, clean),
        cmocka_unit_test_setup(the_last_of_two_flags_counts, clean),
        cmocka_unit_test_setup(what_is_no_setting_is_left_for_the_command, clean),
        cmocka_unit_test_setup(a_flag_without_a_value_is_refused, clean),
        cmocka_unit_test_setup(a_number_is_checked_against_its_bounds, clean),
        cmocka_unit_test_setup(spans_take_their_units, clean),
        cmocka_unit_test_setup(sizes_take_their_units, clean),
        cmocka_unit_test_setup(switches_are_on_or_off, clean),
        cmocka_unit_test_setup(texts_with_few_values_are_checked, clean),
        cmocka_unit_test_setup(settings_that_contradict_each_other_are_refused, clean),
        cmocka_unit_test_setup(the_environment_is_named_when_it_is_wrong, clean),
        cmocka_unit_test_setup(the_file_is_named_with_its_line, clean),
        cmocka_unit_test_setup(a_file_that_was_asked_for_must_exist, clean),
        cmocka_unit_test_setup(unknown_variables_are_reported, clean),
        cmocka_unit_test_setup(each_setting_has_a_help_text_and_an_origin, clean),
        cmocka_unit_test_setup(retention_and_the_guard_can_be_switched_off, clean),
        cmocka_unit_test_setup(an_old_name_still_works, clean),
        cmocka_unit_test_setup(the_present_name_wins_over_the_old_one, clean),
        cmocka_unit_test_setup(addresses_are_split, clean),
    };
    return cmocka_run_group_tests_name("ops/settings", tests, make_folder, remove_folder);
}
