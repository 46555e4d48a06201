/* The clocks, and RFC 3339. The calendar arithmetic is our own: the C library's asks for locks,
 * time zones and a struct tm where two divisions do. Years run from 0000 to 9999, proleptic
 * Gregorian; a moment outside is drawn as the nearest that has a four-digit year, so that the text
 * has one length always. */
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
 * Two lines over monotonic time m: the truth, m + offset, and the slow line, which leaves the
 * moment `slow_from` at the height that was reached there and rises half as fast. The clock shows
 * the higher one: a truth that has fallen is met where the slow line crosses it, and neither ever
 * falls. The numbers are read as a whole or again: an odd or changed version says that they moved.
 * Who reads in the very moment of a change may be shown as much more than the next as the change
 * takes; ids have a guard of their own. */

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
    /* What was heard of first is the truth, whatever was shown before. */
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

/* ---- the calendar ----
 *
 * Years are counted from 1 March, so that the leap day is the last day of a year and the lengths of
 * the months before it never change. Four hundred years have 146,097 days; day 0 is 0000-03-01. */

enum { DAYS_PER_400_YEARS = 146097, DAYS_PER_100_YEARS = 36524, DAYS_PER_4_YEARS = 1461 };
enum { UNIX_EPOCH_DAY = 719468 }; /* 1970-01-01 */

#define DAY_MS   INT64_C(86400000)
#define TIME_MIN INT64_C(-62167219200000) /* 0000-01-01T00:00:00.000Z */
#define TIME_MAX INT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z */

struct date {
    int year, month, day;
};

static struct date date_of_day(int64_t unix_day)
{
    int64_t day = unix_day + UNIX_EPOCH_DAY;
    int64_t era = floor_div(day, DAYS_PER_400_YEARS);
    int of_era = (int)(day - era * DAYS_PER_400_YEARS);
    int century = of_era / DAYS_PER_100_YEARS;
    if (century == 4) /* the era's last day: its fourth century is a day longer */
        century = 3;
    int of_century = of_era - century * DAYS_PER_100_YEARS;
    int four = of_century / DAYS_PER_4_YEARS;
    int of_four = of_century - four * DAYS_PER_4_YEARS;
    int year_of_four = of_four / 365;
    if (year_of_four == 4) /* 29 February */
        year_of_four = 3;
    int of_year = of_four - year_of_four * 365;
    /* From March on the months' lengths repeat 31 30 31 30 31 every 153 days. */
    int month = (of_year * 5 + 2) / 153; /* 0: March */
    int year = (int)(era * 400) + century * 100 + four * 4 + year_of_four;
    return (struct date){
        .year = month < 10 ? year : year + 1,
        .month = month < 10 ? month + 3 : month - 9,
        .day = of_year - (month * 153 + 2) / 5 + 1,
    };
}

static int64_t day_of_date(struct date d)
{
    int year = d.month > 2 ? d.year : d.year - 1;
    int month = d.month > 2 ? d.month - 3 : d.month + 9;
    int64_t era = floor_div(year, 400);
    int of_era = (int)(year - era * 400);
    int days = of_era * 365 + of_era / 4 - of_era / 100 + (month * 153 + 2) / 5 + d.day - 1;
    return era * DAYS_PER_400_YEARS + days - UNIX_EPOCH_DAY;
}

static int month_days(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && leap);
}

/* ---- RFC 3339 ---- */

static void put_pair(char *out, int value)
{
    memcpy(out, str_digit_pairs + value * 2, 2);
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
        struct date d = date_of_day(day);
        memcpy(last_text, "0000-00-00T00:00:00.000Z", TIME_TEXT_LEN);
        put_pair(last_text, d.year / 100);
        put_pair(last_text + 2, d.year % 100);
        put_pair(last_text + 5, d.month);
        put_pair(last_text + 8, d.day);
        last_day = day;
    }
    memcpy(out, last_text, TIME_TEXT_LEN);
    put_pair(out + 11, ms / 3600000);
    put_pair(out + 14, ms / 60000 % 60);
    put_pair(out + 17, ms / 1000 % 60);
    put_pair(out + 20, ms % 1000 / 10);
    out[22] = (char)('0' + ms % 10);
}

/* Takes exactly `count` digits and, when `after` is not NUL, that character off the front. */
static bool take_number(struct str *s, size_t count, char after, int *value)
{
    size_t length = count + (after ? 1 : 0);
    if (s->len < length)
        return false;
    *value = 0;
    for (size_t i = 0; i < count; i++) {
        if (s->ptr[i] < '0' || s->ptr[i] > '9')
            return false;
        *value = *value * 10 + (s->ptr[i] - '0');
    }
    if (after && s->ptr[count] != after)
        return false;
    s->ptr += length;
    s->len -= length;
    return true;
}

/* ".5" is 500 ms; digits beyond the third are cut off. */
static bool take_fraction(struct str *s, int *ms)
{
    *ms = 0;
    if (s->len == 0 || s->ptr[0] != '.')
        return true;
    size_t i = 1;
    int scale = 100;
    for (; i < s->len && s->ptr[i] >= '0' && s->ptr[i] <= '9'; i++) {
        *ms += (s->ptr[i] - '0') * scale;
        scale /= 10;
    }
    if (i == 1)
        return false;
    s->ptr += i;
    s->len -= i;
    return true;
}

static bool take_offset(struct str *s, int *minutes)
{
    if (s->len == 0)
        return false;
    char sign = s->ptr[0];
    s->ptr++;
    s->len--;
    *minutes = 0;
    if (sign == 'Z' || sign == 'z')
        return true;
    int hour, minute;
    if ((sign != '+' && sign != '-') || !take_number(s, 2, ':', &hour) ||
        !take_number(s, 2, 0, &minute))
        return false;
    if (hour > 23 || minute > 59)
        return false;
    *minutes = (hour * 60 + minute) * (sign == '-' ? -1 : 1);
    return true;
}

bool time_parse(struct str text, int64_t *wall_ms)
{
    struct str s = text;
    struct date d;
    int hour, minute, second, ms, offset;
    if (!take_number(&s, 4, '-', &d.year) || !take_number(&s, 2, '-', &d.month) ||
        !take_number(&s, 2, 0, &d.day))
        return false;
    if (s.len == 0 || (s.ptr[0] != 'T' && s.ptr[0] != 't'))
        return false;
    s.ptr++;
    s.len--;
    if (!take_number(&s, 2, ':', &hour) || !take_number(&s, 2, ':', &minute) ||
        !take_number(&s, 2, 0, &second) || !take_fraction(&s, &ms) || !take_offset(&s, &offset))
        return false;
    if (s.len != 0 || d.month < 1 || d.month > 12 || d.day < 1 ||
        d.day > month_days(d.year, d.month) || hour > 23 || minute > 59 || second > 59)
        return false;
    *wall_ms = day_of_date(d) * DAY_MS + (int64_t)(hour * 60 + minute - offset) * 60000 +
               (int64_t)second * 1000 + ms;
    return true;
}
