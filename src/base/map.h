/* The hash map: fixed-size entries by value, found by a key of fixed size that each entry begins
 * with. Open addressing, linear probing, no allocation per entry. Its users: listeners and topics
 * (live, net/hub), prepared statements (db), order keys and retries under way (pipe), tombstones
 * and pending invalidations (view), idempotency keys in progress (api).
 *
 *     struct topic { uint64_t id; struct subscriber *first; };
 *     struct map topics;
 *     map_init(&topics, sizeof(struct topic), sizeof(uint64_t));
 *     struct topic *t = map_put(&topics, &id, NULL);
 *
 * What it promises:
 *  1. A key is 8 bytes or a multiple of 8, and its first word is never 0, which marks a free place.
 *     Keys are compared as bytes, so a struct used as a key must have its padding zeroed.
 *  2. Keys of 8 bytes are mixed by hash_u64: ids that we made, addresses, or hashes under a key.
 *     Longer keys are hashed under the key of the process (hash_bytes), so a peer that chooses them
 *     cannot choose their places. For a text, use its digest as the key, or a struct with its hash.
 *  3. Entries move. A pointer to one is valid until the next map_put, map_remove or map_sweep.
 *  4. At most 5 of 8 places are taken. The map keeps its memory until map_done. Without memory
 *     map_put returns NULL and changes nothing.
 *  5. Not thread-safe. An owner that divides keys among several maps uses the high bits of the
 *     hash: the maps use the low ones. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"

struct map {
    char *entries; /* NULL: none yet */
    size_t size;   /* places: 0 or a power of two */
    size_t count;
    uint32_t entry_bytes, key_bytes;
};

void map_init(struct map *m, size_t entry_bytes, size_t key_bytes); /* allocates nothing */
void map_done(struct map *m);

/* Room for `count` entries in all without another allocation. False: no memory. */
bool map_reserve(struct map *m, size_t count);
/* The key's entry; added when missing, all zero after its key. *made (may be NULL): it was added.
 * NULL: no memory. */
void *map_put(struct map *m, const void *key, bool *made);
void map_remove(struct map *m, void *entry);
/* Removes every entry for which drop() says so. drop() sees each at least once. */
void map_sweep(struct map *m, bool (*drop)(void *entry, void *ctx), void *ctx);
void map_clear(struct map *m); /* keeps the memory */

/* All entries, in no order: for (void *e = map_next(m, NULL); e; e = map_next(m, e)). The loop may
 * change entries except their keys, and must not add or remove any. */
void *map_next(const struct map *m, const void *entry);

static inline size_t map_bytes(const struct map *m)
{
    return m->size * m->entry_bytes;
}

/* ---- finding, inline for the sake of hot paths ---- */

static inline uint64_t map_word(const void *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static inline uint64_t map_hash(const struct map *m, const void *key)
{
    return m->key_bytes == 8 ? hash_u64(map_word(key)) : hash_bytes(key, m->key_bytes);
}

static inline bool map_key_is(const struct map *m, const void *entry, const void *key)
{
    return map_word(entry) == map_word(key) &&
           (m->key_bytes == 8 || memcmp(entry, key, m->key_bytes) == 0);
}

static inline void *map_find(const struct map *m, const void *key) /* NULL: not there */
{
    if (m->count == 0)
        return NULL;
    for (size_t at = map_hash(m, key) & (m->size - 1);; at = (at + 1) & (m->size - 1)) {
        char *entry = m->entries + at * m->entry_bytes;
        if (map_word(entry) == 0)
            return NULL;
        if (map_key_is(m, entry, key))
            return entry;
    }
}
