/* Bucket caches: entries behind the slots of a bounded cache (base/cache.h). A hit marks the entry,
 * not its slot, so that a look writes to one line. A slot's members are atomic for the sake of
 * readers that prefetch without the lock, and for them only. */
#include "view/memory/bucket_cache.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

/* An entry takes 150 to 400 bytes; with this much for each slot most sets stay half empty and few
 * entries are pushed out by neighbours of their set. The slots themselves cost 16 bytes each. */
enum { SLOT_BUDGET_BYTES = 128, ENTRY_PREFETCH_BYTES = 256 };

struct slot {
    uint64_t key;
    _Atomic(struct bucket_cache_entry *) entry;
};

static struct bucket_cache_entry *entry_of(const void *slot)
{
    return atomic_load_explicit(&((const struct slot *)slot)->entry, memory_order_relaxed);
}

static int64_t worth(const void *slot)
{
    return entry_of(slot)->used_lately;
}

static void pass(void *slot)
{
    entry_of(slot)->used_lately = false;
}

static size_t bytes_of(const void *slot)
{
    return entry_of(slot)->bytes;
}

static void release(void *slot)
{
    free(entry_of(slot));
}

static const struct cache_policy policy = {.slot_bytes = sizeof(struct slot),
                                           .key_bytes = sizeof(uint64_t),
                                           .worth = worth,
                                           .pass = pass,
                                           .bytes = bytes_of,
                                           .release = release};

bool bucket_cache_init(struct bucket_cache *s, size_t budget_bytes)
{
    if (!cache_init(&s->cache, &policy, budget_bytes / SLOT_BUDGET_BYTES, 0))
        return false;
    size_t table = cache_table_bytes(&s->cache);
    s->cache.bytes_max = budget_bytes > table ? budget_bytes - table : 0;
    return true;
}

void bucket_cache_done(struct bucket_cache *s)
{
    cache_done(&s->cache);
}

size_t bucket_cache_bytes(const struct bucket_cache *s)
{
    return s->cache.bytes + cache_table_bytes(&s->cache);
}

static struct slot *find(const struct bucket_cache *s, uint64_t hash, uint64_t key)
{
    return cache_find_sized(&s->cache, hash, &key, sizeof(struct slot), sizeof key);
}

struct bucket_cache_entry *bucket_cache_find(struct bucket_cache *s, uint64_t hash, uint64_t key)
{
    const struct slot *slot = find(s, hash, key);
    if (!slot)
        return NULL;
    struct bucket_cache_entry *e = entry_of(slot);
    e->used_lately = true;
    return e;
}

void bucket_cache_put(struct bucket_cache *s, uint64_t hash, struct bucket_cache_entry *e)
{
    size_t bytes = malloc_usable_size(e) + sizeof(void *);
    struct slot *slot = bytes <= UINT32_MAX ? cache_claim(&s->cache, hash, &e->key, bytes) : NULL;
    if (!slot) {
        bucket_cache_remove(s, hash, e->key);
        free(e);
        return;
    }
    e->bytes = (uint32_t)bytes;
    e->used_lately = false;
    atomic_store_explicit(&slot->entry, e, memory_order_relaxed);
}

bool bucket_cache_remove(struct bucket_cache *s, uint64_t hash, uint64_t key)
{
    struct slot *slot = find(s, hash, key);
    if (slot)
        cache_remove(&s->cache, slot);
    return slot != NULL;
}

void bucket_cache_prefetch_bucket(const struct bucket_cache *s, uint64_t hash)
{
    cache_prefetch(&s->cache, hash);
}

void bucket_cache_prefetch_entry(const struct bucket_cache *s, uint64_t hash, uint64_t key)
{
    const struct slot *slot = find(s, hash, key);
    const char *e = slot ? (const char *)entry_of(slot) : NULL;
    for (size_t line = 0; e && line < ENTRY_PREFETCH_BYTES; line += 64)
        __builtin_prefetch(e + line);
}
