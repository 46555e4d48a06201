/* The posts that one person likes: an entry of a bucket cache. Not thread-safe. */
#pragma once

#include "view/memory/bucket_cache.h"

/* Complete above the floor. */
struct like_set {
    struct bucket_cache_entry base;
    uint64_t floor;
    uint32_t count, capacity;
    uint64_t ids[]; /* rising */
};

/* `ids`: falling. Keeps the newest ones; NULL: no memory. */
struct like_set *like_set_new(uint64_t viewer, const uint64_t *ids, size_t n, uint64_t floor);
/* False: one of the ids lies at or below the floor. */
bool like_set_knows(const struct like_set *s, const uint64_t *ids, size_t n, bool *out);
/* Returns the set itself, or a larger copy that takes its place; NULL: no memory. */
struct like_set *like_set_add(struct like_set *s, uint64_t post);
void like_set_remove(struct like_set *s, uint64_t post);
