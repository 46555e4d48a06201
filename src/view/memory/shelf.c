/* Shelves: a set-associative cache. The number of buckets is fixed at the start (about one place
 * per PLACE_BYTES of budget), so nothing is ever rehashed, a lookup touches one bucket and one
 * entry, and readers may prefetch both without the lock. Keys and pointers of the buckets are
 * atomic for their sake only.
 *
 * Eviction is a clock: a hit marks the entry; the hand passes over the buckets, takes the mark off
 * those that have one and evicts those that have none. A full bucket makes room for itself in the
 * same way. */
#include "view/memory/shelf.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"

/* An entry takes 150 to 400 bytes; with this much for each place most buckets stay half empty and
 * few entries are pushed out by neighbours of their bucket. The places themselves cost 16 bytes
 * each. */
enum { PLACE_BYTES = 128, ENTRY_PREFETCH_BYTES = 256 };

bool shelf_init(struct shelf *s, size_t budget_bytes)
{
    size_t buckets = 1;
    while (buckets * 2 * BUCKET_WAYS * PLACE_BYTES <= budget_bytes)
        buckets *= 2;
    size_t size = buckets * sizeof *s->buckets;
    *s = (struct shelf){.mask = buckets - 1};
    /* Fresh pages are zero and cost nothing until they are touched. */
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return false;
    s->buckets = mapped;
    s->bytes_max = budget_bytes > size ? budget_bytes - size : 0;
    return true;
}

static struct shelf_bucket *bucket_of(const struct shelf *s, uint64_t hash)
{
    return &s->buckets[hash & s->mask];
}

static uint64_t key_at(const struct shelf_bucket *b, size_t way)
{
    return atomic_load_explicit(&b->keys[way], memory_order_relaxed);
}

static struct shelf_entry *entry_at(const struct shelf_bucket *b, size_t way)
{
    return atomic_load_explicit(&b->entries[way], memory_order_relaxed);
}

static void set_place(struct shelf_bucket *b, size_t way, struct shelf_entry *e)
{
    atomic_store_explicit(&b->keys[way], e ? e->key : 0, memory_order_relaxed);
    atomic_store_explicit(&b->entries[way], e, memory_order_relaxed);
}

static void evict(struct shelf *s, struct shelf_bucket *b, size_t way)
{
    struct shelf_entry *e = entry_at(b, way);
    s->bytes -= e->bytes;
    s->count--;
    set_place(b, way, NULL);
    free(e);
}

void shelf_done(struct shelf *s)
{
    if (!s->buckets)
        return;
    for (size_t i = 0; s->count > 0 && i <= s->mask; i++)
        for (size_t way = 0; way < BUCKET_WAYS; way++)
            if (key_at(&s->buckets[i], way) != 0)
                evict(s, &s->buckets[i], way);
    munmap(s->buckets, (s->mask + 1) * sizeof *s->buckets);
    *s = (struct shelf){0};
}

static size_t way_of(const struct shelf_bucket *b, uint64_t key) /* BUCKET_WAYS: not there */
{
    size_t way = 0;
    while (way < BUCKET_WAYS && key_at(b, way) != key)
        way++;
    return way;
}

struct shelf_entry *shelf_find(struct shelf *s, uint64_t hash, uint64_t key)
{
    struct shelf_bucket *b = bucket_of(s, hash);
    size_t way = key != 0 ? way_of(b, key) : BUCKET_WAYS;
    if (way == BUCKET_WAYS)
        return NULL;
    struct shelf_entry *e = entry_at(b, way);
    e->used_lately = true;
    return e;
}

/* One bucket's turn of the clock: evicts what is unmarked, unmarks the rest. */
static void pass_hand(struct shelf *s, struct shelf_bucket *b, size_t need_bytes)
{
    for (size_t way = 0; way < BUCKET_WAYS && s->bytes + need_bytes > s->bytes_max; way++) {
        struct shelf_entry *e = entry_at(b, way);
        if (!e)
            continue;
        if (e->used_lately)
            e->used_lately = false;
        else
            evict(s, b, way);
    }
}

/* A place in a full bucket: of the first unmarked entry; when all are marked they all lose the
 * mark. */
static size_t make_place(struct shelf *s, struct shelf_bucket *b)
{
    for (size_t way = 0; way < BUCKET_WAYS; way++) {
        if (!entry_at(b, way)->used_lately) {
            evict(s, b, way);
            return way;
        }
    }
    for (size_t way = 0; way < BUCKET_WAYS; way++)
        entry_at(b, way)->used_lately = false;
    evict(s, b, 0);
    return 0;
}

void shelf_put(struct shelf *s, uint64_t hash, struct shelf_entry *e)
{
    CHECK(e->key != 0);
    shelf_remove(s, hash, e->key);
    size_t bytes = malloc_usable_size(e) + sizeof(void *);
    if (bytes > s->bytes_max / 4 || bytes > UINT32_MAX) {
        free(e);
        return;
    }
    e->bytes = (uint32_t)bytes;
    e->used_lately = false;
    while (s->bytes + bytes > s->bytes_max) {
        pass_hand(s, &s->buckets[s->hand], bytes);
        s->hand = (s->hand + 1) & s->mask;
    }
    struct shelf_bucket *b = bucket_of(s, hash);
    size_t way = way_of(b, 0);
    if (way == BUCKET_WAYS)
        way = make_place(s, b);
    set_place(b, way, e);
    s->bytes += bytes;
    s->count++;
}

bool shelf_remove(struct shelf *s, uint64_t hash, uint64_t key)
{
    struct shelf_bucket *b = bucket_of(s, hash);
    size_t way = key != 0 ? way_of(b, key) : BUCKET_WAYS;
    if (way == BUCKET_WAYS)
        return false;
    evict(s, b, way);
    return true;
}

void shelf_prefetch_bucket(const struct shelf *s, uint64_t hash)
{
    const struct shelf_bucket *b = bucket_of(s, hash);
    __builtin_prefetch(b->keys);
    __builtin_prefetch(b->entries);
}

void shelf_prefetch_entry(const struct shelf *s, uint64_t hash, uint64_t key)
{
    const struct shelf_bucket *b = bucket_of(s, hash);
    size_t way = way_of(b, key);
    if (way < BUCKET_WAYS) {
        const char *e = (const char *)entry_at(b, way);
        for (size_t line = 0; line < ENTRY_PREFETCH_BYTES; line += 64)
            __builtin_prefetch(e + line);
    }
}
