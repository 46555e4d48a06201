/* Time as a parameter: the system's clock in production, a hand-moved one in tests and the
 * simulator. Timeouts use monotonic time, timestamps use wall time. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/str.h"

struct clock {
    int64_t (*wall_ms)(struct clock *c); /* since 1970-01-01 UTC */
    int64_t (*mono_us)(struct clock *c); /* never goes back */
};

struct clock *clock_system(void);

struct manual_clock {
    struct clock clock;
    int64_t wall_ms;
    int64_t mono_us;
};
void manual_clock_init(struct manual_clock *m, int64_t wall_ms);
void manual_clock_advance(struct manual_clock *m, int64_t ms); /* both times */

/* A clock that shows another machine's wall time: this machine's monotonic time plus an offset.
 * Until the first clock_follow it shows the wall time of `base`. After that it never goes back:
 * when it is ahead it runs at half speed, when it is behind it jumps. One thread follows, any
 * thread reads. */
struct following_clock {
    struct clock clock;
    struct clock *base;
    _Atomic uint32_t version;  /* odd: the numbers below are being changed; 0: nothing was heard */
    _Atomic int64_t offset_us; /* of wall time to monotonic time */
    _Atomic int64_t slow_from; /* monotonic: from here on at least half speed, … */
    _Atomic int64_t slow_offset_us; /* … beginning with this offset */
};
void following_clock_init(struct following_clock *f, struct clock *base);
/* It was `wall_ms` there when it was `mono_us` here. */
void clock_follow(struct following_clock *f, int64_t wall_ms, int64_t mono_us);

static inline int64_t clock_wall_ms(struct clock *c)
{
    return c->wall_ms(c);
}
static inline int64_t clock_mono_us(struct clock *c)
{
    return c->mono_us(c);
}
static inline int64_t clock_mono_ms(struct clock *c)
{
    return c->mono_us(c) / 1000;
}

/* RFC 3339 UTC with milliseconds, "2026-11-15T08:37:34.000Z": exactly TIME_TEXT_LEN characters. */
enum { TIME_TEXT_LEN = 24 };
void time_format(int64_t wall_ms, char out[TIME_TEXT_LEN]);
bool time_parse(struct str text, int64_t *wall_ms); /* accepts any fraction, 'Z' or an offset */
