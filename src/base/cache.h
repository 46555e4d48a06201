/* The bounded cache: a set-associative table of slots by value, for entries that may be evicted at
 * any time. A key belongs to one set of CACHE_WAYS slots, so the table never grows or rehashes and
 * a lookup touches one or two cache lines. The owner defines the slot: the value itself (callers in
 * api/edge/auth_cache, rate limits in net/limits), or a pointer to a larger value that counts
 * against a budget of bytes (pages in api/edge/page_cache, cards in view/memory).
 *
 * What it promises:
 *  1. A slot begins with its key: 8 bytes, or 16; its first word is never 0.
 *  2. It never has more slots than it was made with and, where the policy counts bytes, never more
 *     than bytes_max.
 *  3. In a full set the slot of least worth is evicted. Over the budget a clock hand goes round: it
 *     releases slots that are worth nothing and calls pass() on the others.
 *  4. It calls release() once for each slot that it evicts or removes.
 *  5. Not thread-safe: the owner holds a lock, and divides keys among several caches where threads
 *     would wait. Two calls need no lock: cache_prefetch; and cache_find by 8 bytes, to prefetch
 *     the value behind the slot, when the owner's members of a slot are atomic.
 *
 * `hash` is the same for a key each time, and a peer cannot choose it (hash_u64 of our ids, else
 * hash_bytes). The cache uses its low 40 bits and the three above them; an owner with several
 * caches chooses one by higher bits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CACHE_WAYS = 8 };

struct cache_policy {
    uint32_t slot_bytes, key_bytes;
    int64_t (*worth)(const void *slot);
    /* The rest may be NULL. */
    void (*pass)(void *slot); /* of a clock: not used lately any more, so worth nothing */
    size_t (*bytes)(const void *slot);
    void (*release)(void *slot);
};

struct cache {
    const struct cache_policy *policy;
    char *slots;
    size_t set_mask;
    size_t hand; /* the slot at which the search for victims continues */
    size_t count;
    size_t bytes, bytes_max;
};

/* At most `slots_max` slots (rounded down to a power of two, at least one set). False: no memory.
 */
bool cache_init(struct cache *c, const struct cache_policy *policy, size_t slots_max,
                size_t bytes_max);
void cache_done(struct cache *c);

/* A slot for the key, which has its key and which the owner fills. What the key had before is
 * released. `bytes`: what the policy's bytes() will say of it; NULL when that is more than a
 * quarter of the budget. */
void *cache_claim(struct cache *c, uint64_t hash, const void *key, size_t bytes);
void cache_remove(struct cache *c, void *slot);

size_t cache_table_bytes(const struct cache *c); /* of the slots alone, without the values that
                                                    they point at */

/* ---- finding, inline for the sake of hot paths ---- */

static inline char *cache_slot(const struct cache *c, uint64_t hash, size_t way, size_t slot_bytes)
{
    size_t place = ((hash >> 40) + way) % CACHE_WAYS; /* in an empty set keys lie apart */
    return c->slots + ((hash & c->set_mask) * CACHE_WAYS + place) * slot_bytes;
}

/* With the policy's sizes; an owner that knows them as constants has a faster search. */
__attribute__((always_inline)) static inline void *cache_find_sized(const struct cache *c,
                                                                    uint64_t hash, const void *key,
                                                                    size_t slot_bytes,
                                                                    size_t key_bytes)
{
    const uint64_t *words = key;
    if (words[0] == 0)
        return NULL;
    for (size_t way = 0; way < CACHE_WAYS; way++) {
        uint64_t *slot = (uint64_t *)cache_slot(c, hash, way, slot_bytes);
        if (__atomic_load_n(slot, __ATOMIC_RELAXED) == words[0] &&
            (key_bytes == sizeof *words || memcmp(slot, key, key_bytes) == 0))
            return slot;
    }
    return NULL;
}

static inline void *cache_find(const struct cache *c, uint64_t hash, const void *key)
{
    return cache_find_sized(c, hash, key, c->policy->slot_bytes, c->policy->key_bytes);
}

static inline void cache_prefetch(const struct cache *c, uint64_t hash)
{
    const char *set = c->slots + (hash & c->set_mask) * CACHE_WAYS * c->policy->slot_bytes;
    __builtin_prefetch(set);
    __builtin_prefetch(set +
                       CACHE_WAYS / 2 * c->policy->slot_bytes); /* the second line of small slots */
}
