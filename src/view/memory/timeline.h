/* One person's home timeline: the newest ids that were pushed to them, and the floor.
 *
 * Not thread-safe: the viewer's latch is held by the caller. Some fields are atomic only so that a
 * pusher may look ahead and prefetch without it. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "view/memory/block_pool.h"

enum { TIMELINE_CAP_MAX = (1 << 24) - 1, TIMELINE_BUILDERS_MAX = 255 };

enum timeline_state {
    TIMELINE_DROPPED,  /* holds nothing and knows nothing */
    TIMELINE_BUILDING, /* collects pushes, not yet readable */
    TIMELINE_READY     /* complete above its floor */
};

/* Ids rise from oldest->ids[first] to newest->ids[used - 1]; all blocks in between are full. */
struct timeline {
    _Atomic(struct block *) newest; /* NULL: empty */
    _Atomic(struct block *) oldest;
    uint64_t floor; /* every stored id is above it */
    _Atomic uint32_t count;
    _Atomic uint8_t used;
    _Atomic uint8_t first;
    uint8_t state;
    uint8_t builders; /* rebuilds begun and not ended; stays at its maximum once there */
};

_Static_assert(sizeof(struct timeline) == 32, "two timelines to a cache line");

/* What the calls need to know besides the timeline, and what they count. */
struct timeline_env {
    struct block_pool *pool;
    uint32_t near;   /* the owner's stripe: whose blocks should lie close */
    uint32_t cap;    /* entries at most */
    int64_t entries; /* running total of added minus removed */
    /* Changes, new ids left out, by timeline, beginning with `first`; NULL: not counted. */
    uint64_t *changes;
    const struct timeline *first;
};

#define timeline_get(t, field) atomic_load_explicit(&(t)->field, memory_order_relaxed)
#define timeline_set(t, field, value)                                                              \
    atomic_store_explicit(&(t)->field, (value), memory_order_relaxed)

bool timeline_add_slow(struct timeline *t, struct timeline_env *env, uint64_t id);

/* Adds an id that is newer than all others, older, or there already. True: it was added. */
static inline bool timeline_add(struct timeline *t, struct timeline_env *env, uint64_t id)
{
    struct block *b = timeline_get(t, newest);
    uint8_t used = timeline_get(t, used);
    uint32_t count = timeline_get(t, count);
    /* The usual case: a new post, and room for it. */
    if (!b || used == BLOCK_IDS || count >= env->cap || b->ids[used - 1] >= id)
        return timeline_add_slow(t, env, id);
    b->ids[used] = id;
    timeline_set(t, used, (uint8_t)(used + 1));
    timeline_set(t, count, count + 1);
    env->entries++;
    return true;
}

/* May be called without the latch: what it finds may be out of date, and is only prefetched. */
static inline void timeline_prefetch(const struct timeline *t, uint32_t cap)
{
    const char *b = (const char *)timeline_get(t, newest);
    if (!b)
        return;
    b += offsetof(struct block, ids) + timeline_get(t, used) * sizeof(uint64_t);
    __builtin_prefetch(b - sizeof(uint64_t), 1);
    __builtin_prefetch(b, 1);
    if (timeline_get(t, count) >= cap) {
        b = (const char *)timeline_get(t, oldest);
        __builtin_prefetch(b + offsetof(struct block, ids) +
                           timeline_get(t, first) * sizeof(uint64_t));
    }
}

bool timeline_remove(struct timeline *t, struct timeline_env *env, uint64_t id);
/* `ids` falling. */
void timeline_remove_all(struct timeline *t, struct timeline_env *env, const uint64_t *ids,
                         size_t n);
/* Merges ids (falling) that are complete above `floor`; raises the floor to it. */
void timeline_merge(struct timeline *t, struct timeline_env *env, const uint64_t *ids, size_t n,
                    uint64_t floor);
/* For loading an empty one: `n` rising ids, all above floor; keeps the newest `cap`. */
void timeline_fill(struct timeline *t, struct timeline_env *env, const uint64_t *ids, size_t n,
                   uint64_t floor);
void timeline_drop(struct timeline *t, struct timeline_env *env);

/* The newest at most `max` below `below`, falling. */
size_t timeline_read(const struct timeline *t, uint64_t below, uint64_t *ids, size_t max);
void timeline_copy(const struct timeline *t, uint64_t *ids); /* all, rising */
