/* Cards and like sets by key, under a byte budget: what was not looked at lately is evicted. Not
 * thread-safe but for bucket_cache_prefetch: the owner holds a lock around everything else. */
#pragma once

#include "base/cache.h"

/* What every entry begins with; the rest is the owner's, in the same allocation. */
struct bucket_cache_entry {
    uint64_t key;   /* never 0 */
    uint32_t bytes; /* as the allocator counts it */
    bool used_lately;
};

struct bucket_cache {
    struct cache cache;
};

/* `budget_bytes` covers the table, too. False: no memory. */
bool bucket_cache_init(struct bucket_cache *s, size_t budget_bytes);
void bucket_cache_done(struct bucket_cache *s);
size_t bucket_cache_bytes(const struct bucket_cache *s); /* with the table */

/* `hash`: of the key, the bits that the owner did not use to choose the bucket_cache. */
struct bucket_cache_entry *bucket_cache_find(struct bucket_cache *s, uint64_t hash, uint64_t key);
/* Takes over `e` (from malloc), replacing what the key had; evicts to the budget. What is larger
 * than a quarter of the bucket_cache is not kept: e is freed. */
void bucket_cache_put(struct bucket_cache *s, uint64_t hash, struct bucket_cache_entry *e);
bool bucket_cache_remove(struct bucket_cache *s, uint64_t hash, uint64_t key);

/* Without the lock: asks for the bucket, or for the entry that seems to be there. */
void bucket_cache_prefetch_bucket(const struct bucket_cache *s, uint64_t hash);
void bucket_cache_prefetch_entry(const struct bucket_cache *s, uint64_t hash, uint64_t key);
