/* The clocks, and RFC 3339. Years run from 0000 to 9999, proleptic Gregorian. A moment outside is
 * written as the nearest one with a four-digit year, so the text always has the same length. */
#include "base/clock.h"

#include <time.h>

static int64_t system_wall_ms(struct clock *c)
{
    (void)c;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t system_mono_us(struct clock *c)
{
    (void)c;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

struct clock *clock_system(void)
{
    static struct clock system = {system_wall_ms, system_mono_us};
    return &system;
}

/* Atomic, because tests move the hands while other threads look. */
static int64_t manual_wall_ms(struct clock *c)
{
    return __atomic_load_n(&((struct manual_clock *)(void *)c)->wall_ms, __ATOMIC_RELAXED);
}

static int64_t manual_mono_us(struct clock *c)
{
    return __atomic_load_n(&((struct manual_clock *)(void *)c)->mono_us, __ATOMIC_RELAXED);
}

void manual_clock_init(struct manual_clock *m, int64_t wall_ms)
{
    *m = (struct manual_clock){
        .clock = {manual_wall_ms, manual_mono_us}, .wall_ms = wall_ms, .mono_us = 1000000};
}

void manual_clock_advance(struct manual_clock *m, int64_t ms)
{
    __atomic_fetch_add(&m->wall_ms, ms, __ATOMIC_RELAXED);
    __atomic_fetch_add(&m->mono_us, ms * 1000, __ATOMIC_RELAXED);
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* ---- another machine's time ----
 *
 * Two lines over monotonic time m: the truth, m + offset, and the slow line, which starts at
 * `slow_from` from the height that the clock had reached there and rises half as fast. The clock
 * shows the higher one. When the truth falls, the clock follows the slow line until it meets the
 * truth, so neither ever falls. A reader takes the numbers as a whole or tries again: an odd or
 * changed version says that they moved. A read during a change may return more than the next read,
 * by at most the time that the change takes; ids have a guard of their own. */

struct lines {
    int64_t offset_us, slow_from, slow_offset_us;
};

static int64_t height_us(const struct lines *l, int64_t mono_us)
{
    int64_t truth = mono_us + l->offset_us;
    int64_t since = mono_us > l->slow_from ? mono_us - l->slow_from : 0;
    int64_t slow = l->slow_from + l->slow_offset_us + since / 2;
    return truth > slow ? truth : slow;
}

static bool read_lines(struct following_clock *f, struct lines *l)
{
    for (;;) {
        uint32_t version = atomic_load_explicit(&f->version, memory_order_acquire);
        if (version == 0)
            return false;
        l->offset_us = atomic_load_explicit(&f->offset_us, memory_order_acquire);
        l->slow_from = atomic_load_explicit(&f->slow_from, memory_order_acquire);
        l->slow_offset_us = atomic_load_explicit(&f->slow_offset_us, memory_order_acquire);
        if (version % 2 == 0 && version == atomic_load_explicit(&f->version, memory_order_relaxed))
            return true;
    }
}

static int64_t following_mono_us(struct clock *c)
{
    return clock_mono_us(((struct following_clock *)(void *)c)->base);
}

static int64_t following_wall_ms(struct clock *c)
{
    struct following_clock *f = (struct following_clock *)(void *)c;
    struct lines l;
    int64_t mono_us = clock_mono_us(f->base);
    if (!read_lines(f, &l))
        return clock_wall_ms(f->base);
    return floor_div(height_us(&l, mono_us), 1000);
}

void following_clock_init(struct following_clock *f, struct clock *base)
{
    *f = (struct following_clock){.clock = {following_wall_ms, following_mono_us}, .base = base};
}

void clock_follow(struct following_clock *f, int64_t wall_ms, int64_t mono_us)
{
    struct lines old, l = {.offset_us = wall_ms * 1000 - mono_us};
    int64_t now_us = clock_mono_us(f->base);
    bool first = !read_lines(f, &old);
    l.slow_from = now_us;
    /* The first time received is the truth, whatever the clock showed before. */
    l.slow_offset_us = first ? l.offset_us : height_us(&old, now_us) - now_us;
    uint32_t version = atomic_load_explicit(&f->version, memory_order_relaxed);
    if (!first)
        atomic_store_explicit(&f->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&f->offset_us, l.offset_us, memory_order_release);
    atomic_store_explicit(&f->slow_from, l.slow_from, memory_order_release);
    atomic_store_explicit(&f->slow_offset_us, l.slow_offset_us, memory_order_release);
    version = version + 2 ? version + 2 : 2; /* never 0 again */
    atomic_store_explicit(&f->version, version, memory_order_release);
}

/* ---- RFC 3339 ---- */

#define DAY_MS   INT64_C(86400000)
#define TIME_MIN INT64_C(-62167219200000) /* 0000-01-01T00:00:00.000Z */
#define TIME_MAX INT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z */

static void put_pair(char *out, int value)
{
    memcpy(out, str_digit_pairs + value * 2, 2);
}

/* Writes YYYY-MM-DD, without gmtime_r(), which takes a lock. Years are counted from 1 March, so
 * that the leap day is the last day of a year. 400 years have 146,097 days. */
static void put_date(char *out, int64_t unix_day)
{
    int64_t day = unix_day + 719468; /* since 0000-03-01 */
    int64_t era = floor_div(day, 146097);
    int of_era = (int)(day - era * 146097);
    int year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int of_year = of_era - (year_of_era * 365 + year_of_era / 4 - year_of_era / 100);
    /* From March on the months' lengths repeat 31 30 31 30 31 every 153 days. */
    int month = (of_year * 5 + 2) / 153; /* 0: March */
    int year = (int)(era * 400) + year_of_era + (month >= 10);
    put_pair(out, year / 100);
    put_pair(out + 2, year % 100);
    put_pair(out + 5, month < 10 ? month + 3 : month - 9);
    put_pair(out + 8, of_year - (month * 153 + 2) / 5 + 1);
}

void time_format(int64_t wall_ms, char out[TIME_TEXT_LEN])
{
    if (wall_ms < TIME_MIN)
        wall_ms = TIME_MIN;
    if (wall_ms > TIME_MAX)
        wall_ms = TIME_MAX;
    int64_t day = floor_div(wall_ms, DAY_MS);
    int ms = (int)(wall_ms - day * DAY_MS);
    /* The posts of a page were mostly made on few days: the date of the last one is kept. */
    static _Thread_local int64_t last_day = INT64_MIN;
    static _Thread_local char last_text[TIME_TEXT_LEN];
    if (day != last_day) {
        memcpy(last_text, "0000-00-00T00:00:00.000Z", TIME_TEXT_LEN);
        put_date(last_text, day);
        last_day = day;
    }
    memcpy(out, last_text, TIME_TEXT_LEN);
    put_pair(out + 11, ms / 3600000);
    put_pair(out + 14, ms / 60000 % 60);
    put_pair(out + 17, ms / 1000 % 60);
    put_pair(out + 20, ms % 1000 / 10);
    out[22] = (char)('0' + ms % 10);
}

/* Does the text begin like this? A 0 stands for any digit, a capital for either case. */
static bool has_shape(struct str s, const char *shape)
{
    for (size_t i = 0; shape[i]; i++) {
        char c = i < s.len ? s.ptr[i] : '\0';
        bool digit = c >= '0' && c <= '9';
        if (shape[i] == '0' ? !digit
                            : !str_eq_nocase((struct str){&c, 1}, (struct str){shape + i, 1}))
            return false;
    }
    return true;
}

static int two_digits(const char *p)
{
    return (p[0] - '0') * 10 + (p[1] - '0');
}

static struct str behind(struct str s, size_t n)
{
    return (struct str){s.ptr + n, s.len - n};
}

/* ".5" is 500 ms; digits beyond the third are cut off. */
static int take_fraction(struct str *s)
{
    int ms = 0, scale = 100;
    if (!has_shape(*s, ".0"))
        return 0;
    for (*s = behind(*s, 1); has_shape(*s, "0"); *s = behind(*s, 1), scale /= 10)
        ms += (s->ptr[0] - '0') * scale;
    return ms;
}

/* "Z", or hours and minutes that the text is ahead of UTC. */
static bool parse_offset(struct str s, int *minutes)
{
    *minutes = 0;
    if (s.len == 1 && has_shape(s, "Z"))
        return true;
    if (s.len != 6 || (s.ptr[0] != '+' && s.ptr[0] != '-') || !has_shape(behind(s, 1), "00:00"))
        return false;
    int hour = two_digits(s.ptr + 1), minute = two_digits(s.ptr + 4);
    *minutes = (hour * 60 + minute) * (s.ptr[0] == '-' ? -1 : 1);
    return hour <= 23 && minute <= 59;
}

bool time_parse(struct str text, int64_t *wall_ms)
{
    if (!has_shape(text, "0000-00-00T00:00:00"))
        return false;
    const char *p = text.ptr;
    int year = two_digits(p) * 100 + two_digits(p + 2), month = two_digits(p + 5),
        day = two_digits(p + 8), hour = two_digits(p + 11), minute = two_digits(p + 14),
        second = two_digits(p + 17), offset;
    struct str rest = behind(text, 19);
    int ms = take_fraction(&rest);
    if (!parse_offset(rest, &offset) || hour > 23 || minute > 59 || second > 59)
        return false;
    struct tm date = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
    int64_t midnight_s = timegm(&date); /* moves a date that the calendar does not have */
    if (date.tm_mon != month - 1 || date.tm_mday != day)
        return false;
    *wall_ms = midnight_s * 1000 + (int64_t)(hour * 60 + minute - offset) * 60000 +
               (int64_t)second * 1000 + ms;
    return true;
}
