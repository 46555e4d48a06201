/* What both views drivers decide in the same way: who belongs to a part of an audience, and which
 * activity a change gives a group. */
#pragma once

#include "port/views.h"

/* How far in the past a visit may lie when it is reported: a request notes the time and the views
 * learn of it a moment later. The walk over the rest therefore also meets an account that was last
 * seen within this much before the walk began. */
enum { SEEN_LAG_S = 60 };

static inline uint32_t seen_seconds(int64_t ms)
{
    int64_t seconds = ms / 1000;
    return seconds < 0 ? 0 : seconds > UINT32_MAX ? UINT32_MAX : (uint32_t)seconds;
}

struct seen_filter {
    enum audience_part part;
    uint32_t since, until; /* seconds; the active are those seen at or after `since` */
};

static inline struct seen_filter seen_filter_of(const struct audience_cursor *c)
{
    uint32_t started = seen_seconds(c->started_ms);
    return (struct seen_filter){c->part, seen_seconds(c->active_since_ms),
                                started > SEEN_LAG_S ? started - SEEN_LAG_S : 0};
}

static inline bool seen_filter_takes(const struct seen_filter *f, uint64_t seen)
{
    if (f->part == AUDIENCE_ALL)
        return true;
    return f->part == AUDIENCE_ACTIVE ? seen >= f->since : seen < f->since || seen >= f->until;
}

/* Of VIEW_MEMBER and VIEW_MESSAGE; 0 is no activity. */
static inline uint64_t change_activity(const struct view_change *c)
{
    uint64_t value = c->value > 0 ? (uint64_t)c->value : 1;
    return c->event > value ? c->event : value;
}

static inline size_t clamp_cap(size_t n, size_t max)
{
    return n < 1 ? 1 : n > max ? max : n;
}
