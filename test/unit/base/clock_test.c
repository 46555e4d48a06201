/* Clocks and RFC 3339, compared with the C library over the whole calendar. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rand.h"

static void assert_format(int64_t ms, const char *expected)
{
    char text[TIME_TEXT_LEN];
    time_format(ms, text);
    assert_memory_equal(text, expected, TIME_TEXT_LEN);
}

static void test_formats_known_moments(void **state)
{
    (void)state;
    assert_format(0, "1970-01-01T00:00:00.000Z");
    assert_format(-1, "1969-12-31T23:59:59.999Z");
    assert_format(1794731854000, "2026-11-15T08:37:34.000Z");
    assert_format(951782400000, "2000-02-29T00:00:00.000Z");
    assert_format(951868799999, "2000-02-29T23:59:59.999Z");
    assert_format(4107542400000, "2100-03-01T00:00:00.000Z"); /* 2100 is no leap year */
    assert_format(253402300799999, "9999-12-31T23:59:59.999Z");
    assert_format(-62167219200000, "0000-01-01T00:00:00.000Z");
    assert_format(INT64_MAX, "9999-12-31T23:59:59.999Z");
    assert_format(INT64_MIN, "0000-01-01T00:00:00.000Z");
}

static void test_every_day_agrees_with_the_c_library(void **state)
{
    (void)state;
    /* 0000-01-01 … 9999-12-31; far away a seventh of them will do */
    for (int64_t day = -719528; day <= 2932896; day += day > 80000 ? 7 : 1) {
        time_t seconds = (time_t)day * 86400 + 86399;
        struct tm tm;
        char expected[64], text[TIME_TEXT_LEN];
        gmtime_r(&seconds, &tm);
        snprintf(expected, sizeof expected, "%04d-%02d-%02dT23:59:59.999Z", tm.tm_year + 1900,
                 tm.tm_mon + 1, tm.tm_mday);
        int64_t ms = (int64_t)seconds * 1000 + 999, back;
        time_format(ms, text);
        if (memcmp(text, expected, TIME_TEXT_LEN) != 0)
            fail_msg("%.24s is not %s", text, expected);
        if (!time_parse((struct str){text, TIME_TEXT_LEN}, &back) || back != ms)
            fail_msg("%s does not come back", expected);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    struct rand r;
    rand_seed(&r, 3);
    for (int i = 0; i < 100000; i++) {
        int64_t ms = (int64_t)rand_below(&r, 253402300800000 + 62167219200000) - 62167219200000,
                back;
        char text[TIME_TEXT_LEN];
        time_format(ms, text);
        assert_true(time_parse((struct str){text, TIME_TEXT_LEN}, &back));
        assert_true(back == ms);
    }
}

static void test_parses_what_rfc3339_allows(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01t00:00:00z", 0},
        {"1970-01-01T00:00:00.5Z", 500},
        {"1970-01-01T00:00:00.05Z", 50},
        {"1970-01-01T00:00:00.123456789Z", 123},
        {"1970-01-01T00:00:00.9999Z", 999},
        {"1970-01-01T01:30:00+01:30", 0},
        {"1969-12-31T22:00:00-02:00", 0},
        {"1970-01-01T00:00:00-00:00", 0},
        {"2024-02-29T12:00:00Z", 1709208000000},
        {"2000-02-29T00:00:00Z", 951782400000},
    };
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        int64_t ms;
        assert_true(time_parse(str_of(good[i].text), &ms));
        assert_true(ms == good[i].ms);
    }
}

static void test_refuses_the_rest(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "2024",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-01-01 00:00:00Z",
        "2024-01-01T00:00Z",
        "2024-1-01T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-00-01T00:00:00Z",
        "2024-01-00T00:00:00Z",
        "2024-01-32T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2024-04-31T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:60:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01T00:00:00.Z",
        "2024-01-01T00:00:00,5Z",
        "2024-01-01T00:00:00+1:00",
        "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00+01:60",
        "2024-01-01T00:00:00+0100",
        "2024-01-01T00:00:00Z ",
        " 2024-01-01T00:00:00Z",
        "2024-01-01T00:00:00ZZ",
        "+024-01-01T00:00:00Z",
        "-001-01-01T00:00:00Z",
        "2024-01-01T-1:00:00Z",
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        int64_t ms = 42;
        if (time_parse(str_of(bad[i]), &ms))
            fail_msg("accepted %s", bad[i]);
        assert_int_equal(ms, 42);
    }
}

static void test_clocks_run(void **state)
{
    (void)state;
    struct clock *c = clock_system();
    int64_t before = clock_mono_us(c);
    assert_true(clock_wall_ms(c) > 1704067200000);
    assert_true(clock_mono_us(c) >= before);

    struct manual_clock m;
    manual_clock_init(&m, 1000);
    int64_t mono = clock_mono_us(&m.clock);
    assert_int_equal(clock_wall_ms(&m.clock), 1000);
    manual_clock_advance(&m, 250);
    assert_int_equal(clock_wall_ms(&m.clock), 1250);
    assert_int_equal(clock_mono_us(&m.clock) - mono, 250000);
    m.wall_ms = 5; /* the wall clock may go back, the monotonic one stays */
    assert_int_equal(clock_wall_ms(&m.clock), 5);
    assert_int_equal(clock_mono_ms(&m.clock) * 1000, mono + 250000);
}

/* ---- following ---- */

#define HERE  INT64_C(1800000000000)
#define THERE (HERE + 3600000)

struct follower {
    struct manual_clock base;
    struct following_clock clock;
};

static void follower_init(struct follower *f)
{
    manual_clock_init(&f->base, HERE);
    following_clock_init(&f->clock, &f->base.clock);
}

static int64_t shows(struct follower *f)
{
    return clock_wall_ms(&f->clock.clock);
}

static void hears(struct follower *f, int64_t wall_ms)
{
    clock_follow(&f->clock, wall_ms, clock_mono_us(&f->base.clock));
}

static void test_a_follower_shows_its_base_until_it_hears(void **state)
{
    (void)state;
    struct follower f;
    follower_init(&f);
    assert_int_equal(shows(&f), HERE);
    manual_clock_advance(&f.base, 10);
    assert_int_equal(shows(&f), HERE + 10);
    hears(&f, HERE - 5000); /* the first word counts, also backwards */
    assert_int_equal(shows(&f), HERE - 5000);
    manual_clock_advance(&f.base, 10);
    assert_int_equal(shows(&f), HERE - 4990);
    f.base.wall_ms += 86400000; /* the clock here is set: it does not matter any more */
    assert_int_equal(shows(&f), HERE - 4990);
    assert_int_equal(clock_mono_us(&f.clock.clock), f.base.mono_us);
}

static void test_a_follower_steps_forward_at_once(void **state)
{
    (void)state;
    struct follower f;
    follower_init(&f);
    hears(&f, HERE);
    manual_clock_advance(&f.base, 1000);
    hears(&f, THERE);
    assert_int_equal(shows(&f), THERE);
    /* an answer that is a while old */
    manual_clock_advance(&f.base, 1000);
    clock_follow(&f.clock, THERE + 10000, f.base.mono_us - 400000);
    assert_int_equal(shows(&f), THERE + 10400);
}

static void test_a_follower_never_goes_back(void **state)
{
    (void)state;
    struct follower f;
    follower_init(&f);
    hears(&f, THERE);
    hears(&f, THERE - 1000);
    assert_int_equal(shows(&f), THERE);
    manual_clock_advance(&f.base, 1000); /* half speed … */
    assert_int_equal(shows(&f), THERE + 500);
    hears(&f, THERE); /* … also when the same time comes again */
    assert_int_equal(shows(&f), THERE + 500);
    manual_clock_advance(&f.base, 1000); /* caught up */
    assert_int_equal(shows(&f), THERE + 1000);
    manual_clock_advance(&f.base, 1000);
    assert_int_equal(shows(&f), THERE + 2000);
}

static void test_a_follower_of_a_jumping_clock(void **state)
{
    (void)state;
    struct follower f;
    struct rand r;
    follower_init(&f);
    rand_seed(&r, 7);
    int64_t there = THERE, last = 0;
    hears(&f, there);
    for (int i = 0; i < 20000; i++) {
        int64_t step = (int64_t)rand_below(&r, 50);
        manual_clock_advance(&f.base, step);
        there += step;
        if (rand_below(&r, 10) == 0)
            there += (int64_t)rand_below(&r, 2001) - 1000;
        if (rand_below(&r, 3) == 0) {
            hears(&f, there);
            assert_true(shows(&f) >= there);
        }
        assert_true(shows(&f) >= last);
        last = shows(&f);
    }
    hears(&f, there);
    int64_t ahead = shows(&f) - there;
    manual_clock_advance(&f.base, 2 * ahead + 2);
    assert_int_equal(shows(&f), there + 2 * ahead + 2);
}

static void *read_often(void *arg)
{
    struct follower *f = arg;
    int64_t last = 0;
    while (last < HERE + 1000000) {
        int64_t now = shows(f);
        if (now < last)
            return arg;
        last = now;
    }
    return NULL;
}

/* Numbers of two changes mixed would show a time that never was. */
static void test_a_follower_is_read_while_it_follows(void **state)
{
    (void)state;
    struct follower f;
    pthread_t reader;
    void *went_back = &f;
    follower_init(&f);
    hears(&f, HERE);
    assert_int_equal(pthread_create(&reader, NULL, read_often, &f), 0);
    for (int i = 1; i <= 2000; i++) {
        hears(&f, HERE + i * 100);
        hears(&f, HERE - i * 1000);
        manual_clock_advance(&f.base, 1);
    }
    hears(&f, HERE + 1000000);
    pthread_join(reader, &went_back);
    assert_null(went_back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats_known_moments),
        cmocka_unit_test(test_every_day_agrees_with_the_c_library),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_parses_what_rfc3339_allows),
        cmocka_unit_test(test_refuses_the_rest),
        cmocka_unit_test(test_clocks_run),
        cmocka_unit_test(test_a_follower_shows_its_base_until_it_hears),
        cmocka_unit_test(test_a_follower_steps_forward_at_once),
        cmocka_unit_test(test_a_follower_never_goes_back),
        cmocka_unit_test(test_a_follower_of_a_jumping_clock),
        cmocka_unit_test(test_a_follower_is_read_while_it_follows),
    };
    return cmocka_run_group_tests_name("base/clock", tests, NULL, NULL);
}
