/* Log lines: valid JSON whatever is logged, one line each, whole lines from many threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

static int saved_stderr;
static char path[] = "/tmp/fantail-log-test-XXXXXX";
static FILE *lines;

/* Sends stderr to a file; log_captured() reads it line by line. */
static int set_up(void **state)
{
    (void)state;
    strcpy(path + sizeof path - 7, "XXXXXX");
    int file = mkstemp(path);
    saved_stderr = dup(STDERR_FILENO);
    dup2(file, STDERR_FILENO);
    close(file);
    lines = fopen(path, "re");
    log_set_level(LOG_DEBUG);
    return lines ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    fclose(lines);
    unlink(path);
    return 0;
}

/* The next line as JSON, or NULL at the end. */
static json_t *next_line(void)
{
    char text[8192];
    if (!fgets(text, sizeof text, lines))
        return NULL;
    size_t n = strlen(text);
    assert_true(n > 0 && text[n - 1] == '\n');
    assert_true(n <= 4096);
    json_error_t error;
    json_t *line = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!line)
        fail_msg("%s: %s", error.text, text);
    return line;
}

static const char *text_of(json_t *line, const char *key)
{
    return json_string_value(json_object_get(line, key));
}

static void test_fields(void **state)
{
    (void)state;
    errno = EBADF;
    log_info("started", LOG_CSTR("text", "a \"b\"\n"), LOG_INT("number", -5),
             LOG_ID("id", UINT64_C(1) << 63), LOG_STR("none", ((struct str){NULL, 0})));
    assert_int_equal(errno, EBADF);
    log_warn("no fields");
    json_t *line = next_line();
    int64_t at;
    assert_true(time_parse(str_of(text_of(line, "time")), &at));
    assert_true(llabs(at - clock_wall_ms(clock_system())) < 60000);
    assert_string_equal(text_of(line, "level"), "info");
    assert_string_equal(text_of(line, "message"), "started");
    assert_string_equal(text_of(line, "text"), "a \"b\"\n");
    assert_int_equal(json_integer_value(json_object_get(line, "number")), -5);
    assert_string_equal(text_of(line, "id"), "9223372036854775808");
    assert_true(json_is_null(json_object_get(line, "none")));
    json_decref(line);
    line = next_line();
    assert_string_equal(text_of(line, "level"), "warn");
    json_decref(line);
    assert_null(next_line());
}

static void test_levels(void **state)
{
    (void)state;
    enum log_level level;
    log_set_level(LOG_WARN);
    log_debug("no");
    log_info("no");
    log_warn("yes");
    log_error("yes");
    for (int i = 0; i < 2; i++) {
        json_t *line = next_line();
        assert_string_equal(text_of(line, "message"), "yes");
        json_decref(line);
    }
    assert_null(next_line());
    assert_true(log_level_parse(STR("debug"), &level) && level == LOG_DEBUG);
    assert_true(log_level_parse(STR("error"), &level) && level == LOG_ERROR);
    assert_false(log_level_parse(STR("Error"), &level));
    assert_false(log_level_parse(STR(""), &level));
}

static void test_hostile_values(void **state)
{
    (void)state;
    char garbage[3000], wide[3001];
    for (size_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (char)(i * 7 + i / 256);
    for (size_t i = 0; i + 3 <= sizeof wide; i += 3)
        memcpy(wide + i, "\xe2\x82\xac", 3); /* 1024 falls into the middle of one */
    struct str quotes = {memset(malloc(5000), '"', 5000), 5000};
    log_info("garbage", LOG_STR("value", ((struct str){garbage, sizeof garbage})));
    log_info("wide", LOG_STR("value", ((struct str){wide, 3000})));
    log_info("many", LOG_STR("a", quotes), LOG_STR("b", quotes), LOG_STR("c", quotes),
             LOG_INT("last", 1));
    json_t *line = next_line();
    assert_non_null(text_of(line, "value"));
    json_decref(line);
    line = next_line();
    assert_int_equal(json_string_length(json_object_get(line, "value")), 1023);
    json_decref(line);
    line = next_line();
    assert_non_null(text_of(line, "a"));
    assert_null(text_of(line, "c"));
    assert_int_equal(json_integer_value(json_object_get(line, "last")), 1);
    assert_int_equal(json_integer_value(json_object_get(line, "dropped")), 2);
    json_decref(line);
    free((void *)(uintptr_t)quotes.ptr);

    char controls[1025];
    memset(controls, 1, 1024);
    controls[1024] = '\0';
    log_info(controls);
    line = next_line();
    assert_non_null(text_of(line, "message"));
    json_decref(line);
}

enum { THREADS = 4, LINES = 500 };

static void *log_many(void *arg)
{
    for (int i = 0; i < LINES; i++)
        log_info("line", LOG_INT("thread", (intptr_t)arg), LOG_INT("number", i));
    return NULL;
}

static void test_lines_of_threads_never_mix(void **state)
{
    (void)state;
    /* A pipe in between would do; a file opened for appending is what a service manager gives us.
     */
    int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    dup2(file, STDERR_FILENO);
    close(file);
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int next[THREADS] = {0}, count = 0;
    for (json_t *line; (line = next_line()) != NULL; count++) {
        json_int_t thread = json_integer_value(json_object_get(line, "thread"));
        assert_int_equal(json_integer_value(json_object_get(line, "number")), next[thread]++);
        json_decref(line);
    }
    assert_int_equal(count, THREADS * LINES);
}

/* A reader that stands still holds no writer up, and lost lines are counted. */
static void test_a_full_pipe_stops_no_writer(void **state)
{
    (void)state;
    enum { LINES_SENT = 2000 };
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    for (int i = 0; i < LINES_SENT; i++) /* more than a pipe holds: returns all the same */
        log_info("a line of some length, so that the pipe is full soon", LOG_INT("number", i));
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    static char text[1 << 20];
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], text + n, sizeof text - n)) > 0;)
        n += (size_t)got;
    assert_true(n > 0 && text[n - 1] == '\n');
    int arrived = 0;
    for (size_t i = 0; i < n; i++)
        arrived += text[i] == '\n';
    assert_true(arrived > 0 && arrived < LINES_SENT);
    log_info("there is room again", LOG_INT("number", 0));
    ssize_t got = read(ends[0], text, sizeof text);
    assert_true(got > 0);
    json_t *line = json_loadb(text, (size_t)got, 0, NULL);
    assert_non_null(line);
    assert_int_equal(json_integer_value(json_object_get(line, "lost")), LINES_SENT - arrived);
    json_decref(line);
    log_info("and nothing was lost since", LOG_INT("number", 1));
    got = read(ends[0], text, sizeof text);
    line = json_loadb(text, (size_t)got, 0, NULL);
    assert_true(line && !json_object_get(line, "lost"));
    json_decref(line);
    close(ends[0]);
}

int main(void)
{
    alarm(60); /* a test that waits for a pipe would wait for ever */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fields, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_levels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hostile_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lines_of_threads_never_mix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_full_pipe_stops_no_writer, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("base/log", tests, NULL, NULL);
}
