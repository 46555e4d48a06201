/* One person's inbox: their groups, by slot, in the order of the latest activity.
 *
 * Not thread-safe: the owner's latch is held by the caller. Some fields are atomic only so that a
 * pusher may look ahead and prefetch without it. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/views.h"

enum { INBOX_BUILDERS_MAX = 255, LINE_ENTRIES = 8 };

enum inbox_state {
    INBOX_DROPPED,  /* holds nothing and knows nothing */
    INBOX_BUILDING, /* collects what comes, not yet readable */
    INBOX_READY     /* complete */
};

/* Activities rise; behind them, in the same piece of memory, lie the groups' slots. */
struct inbox {
    _Atomic(uint64_t *) activities; /* NULL: empty */
    _Atomic uint16_t count;
    _Atomic uint16_t capacity;
    uint8_t state;
    uint8_t builders; /* rebuilds begun and not ended; stays at its maximum once there */
    bool spoiled;     /* while building: it was dropped meanwhile, and none of them has a result */
};

_Static_assert(sizeof(struct inbox) == 16, "four inboxes to a cache line");

/* What the calls count: running totals. */
struct inbox_env {
    int64_t entries;
    int64_t bytes;
};

#define inbox_get(b, field)        atomic_load_explicit(&(b)->field, memory_order_relaxed)
#define inbox_set(b, field, value) atomic_store_explicit(&(b)->field, (value), memory_order_relaxed)

static inline uint32_t *inbox_groups(const struct inbox *b)
{
    return (uint32_t *)(void *)(inbox_get(b, activities) + inbox_get(b, capacity));
}

bool inbox_raise_slow(struct inbox *b, struct inbox_env *env, uint32_t group, uint64_t activity);

/* The group's activity becomes at least that; a dropped one takes nothing. True: it rose. When
 * there is no room for one more group the inbox is dropped. */
static inline bool inbox_raise(struct inbox *b, struct inbox_env *env, uint32_t group,
                               uint64_t activity)
{
    uint16_t count = inbox_get(b, count);
    /* The usual case: the group that was last to speak speaks again. */
    if (count == 0 || inbox_groups(b)[count - 1] != group)
        return inbox_raise_slow(b, env, group, activity);
    uint64_t *last = inbox_get(b, activities) + count - 1;
    if (*last >= activity)
        return false;
    *last = activity;
    return true;
}

/* May be called without the latch: what it finds may be out of date, and is only prefetched. */
static inline void inbox_prefetch(const struct inbox *b)
{
    const uint64_t *activities = inbox_get(b, activities);
    uint16_t count = inbox_get(b, count), capacity = inbox_get(b, capacity);
    if (!activities || count == 0)
        return;
    const char *last = (const char *)(activities + count - 1);
    const char *group = (const char *)(activities + capacity) + (count - 1u) * sizeof(uint32_t);
    __builtin_prefetch(last, 1);
    __builtin_prefetch(group, 1);
    if (count > LINE_ENTRIES) { /* the group may be one of those before */
        __builtin_prefetch(last - 64, 1);
        __builtin_prefetch(group - 64);
    }
}

/* Takes the group out. One that is being built remembers it until the end. */
bool inbox_leave(struct inbox *b, struct inbox_env *env, uint32_t group);

/* BEGIN: false: it is ready. ANEW: false: it is not, or a rebuild is under way. */
bool inbox_begin(struct inbox *b);
bool inbox_begin_anew(struct inbox *b, struct inbox_env *env);
/* `fresh` (from inbox_fill) is taken over, or freed. False: there is no result. */
bool inbox_end(struct inbox *b, struct inbox_env *env, struct inbox *fresh);
bool inbox_give_up(struct inbox *b, struct inbox_env *env); /* false: no rebuild was under way */
/* Makes it dropped, at once or when the last rebuild under way has ended. */
void inbox_drop(struct inbox *b, struct inbox_env *env);

/* For an empty one: room for `n` entries, to be written by the caller in rising order. False: no
 * memory. */
bool inbox_fill(struct inbox *b, struct inbox_env *env, uint32_t n);
void inbox_done(struct inbox *b, struct inbox_env *env);

/* The latest at most `max` below `below`, falling; slots stand for groups. */
size_t inbox_read(const struct inbox *b, uint64_t below, struct inbox_entry *out, size_t max);
