/* A bounded store of cache entries by key: eight places to a bucket, a byte budget, eviction of
 * what was not looked at lately. Not thread-safe but for shelf_prefetch: the owner holds a lock
 * around everything else. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BUCKET_WAYS = 8 };

/* What every entry begins with; the rest is the owner's, in the same allocation. */
struct shelf_entry {
    uint64_t key;   /* never 0 */
    uint32_t bytes; /* as the allocator counts it */
    bool used_lately;
};

struct shelf_bucket {
    _Alignas(64) _Atomic uint64_t keys[BUCKET_WAYS]; /* 0: free */
    _Atomic(struct shelf_entry *) entries[BUCKET_WAYS];
};

struct shelf {
    struct shelf_bucket *buckets;
    size_t mask;
    size_t hand; /* the bucket at which the search for victims goes on */
    size_t bytes, bytes_max, count;
};

/* `budget_bytes` covers the buckets, too. False: no memory. */
bool shelf_init(struct shelf *s, size_t budget_bytes);
void shelf_done(struct shelf *s);

/* `hash`: of the key, the bits that the owner did not use to choose the shelf. */
struct shelf_entry *shelf_find(struct shelf *s, uint64_t hash, uint64_t key);
/* Takes over `e` (from malloc), replacing what the key had; evicts to the budget. What is larger
 * than a quarter of the shelf is not kept: e is freed. */
void shelf_put(struct shelf *s, uint64_t hash, struct shelf_entry *e);
bool shelf_remove(struct shelf *s, uint64_t hash, uint64_t key);

/* Without the lock: asks for the bucket, or for the entry that seems to be there. */
void shelf_prefetch_bucket(const struct shelf *s, uint64_t hash);
void shelf_prefetch_entry(const struct shelf *s, uint64_t hash, uint64_t key);
