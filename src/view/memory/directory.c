/* The directory: an open-addressing table, linear probing, at most two thirds full, nothing ever
 * removed (accounts keep their slot for the life of the driver).
 *
 * An entry's slot is written before its id is published, so that a reader who sees the id sees the
 * slot. When the table grows, the new one is filled, then published. The old one is kept until the
 * end: a reader may still be probing it, and all outgrown tables together are smaller than the
 * present one. A reader in an old table can miss only accounts that were created after its lookup
 * began. */
#include "view/memory/directory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

static uint64_t table_bytes(const struct directory_table *t)
{
    return (t->mask + 1) * sizeof *t->entries;
}

static struct directory_table *table_new(uint64_t size)
{
    struct directory_table *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->mask = size - 1;
    void *entries =
        mmap(NULL, table_bytes(t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (entries == MAP_FAILED) {
        free(t);
        return NULL;
    }
    if (table_bytes(t) >= (UINT64_C(4) << 20))
        (void)madvise(entries, table_bytes(t), MADV_HUGEPAGE);
    t->entries = entries;
    return t;
}

static void table_put(struct directory_table *t, uint64_t id, uint32_t slot)
{
    uint64_t i = hash_u64(id) & t->mask;
    while (atomic_load_explicit(&t->entries[i].id, memory_order_relaxed) != 0)
        i = (i + 1) & t->mask;
    atomic_store_explicit(&t->entries[i].slot, slot, memory_order_relaxed);
    atomic_store_explicit(&t->entries[i].id, id, memory_order_release);
}

bool directory_init(struct directory *d, uint64_t expected)
{
    uint64_t size = 1024;
    while (size * 2 / 3 <= expected)
        size *= 2;
    struct directory_table *t = table_new(size);
    atomic_init(&d->table, t);
    d->count = 0;
    return t != NULL;
}

void directory_done(struct directory *d)
{
    struct directory_table *t = atomic_load(&d->table);
    while (t) {
        struct directory_table *older = t->older;
        munmap(t->entries, table_bytes(t));
        free(t);
        t = older;
    }
    atomic_store(&d->table, NULL);
}

static bool grow(struct directory *d)
{
    struct directory_table *old = atomic_load_explicit(&d->table, memory_order_relaxed);
    struct directory_table *t = table_new((old->mask + 1) * 2);
    if (!t)
        return false;
    for (uint64_t i = 0; i <= old->mask; i++) {
        uint64_t id = atomic_load_explicit(&old->entries[i].id, memory_order_relaxed);
        if (id != 0)
            table_put(t, id, atomic_load_explicit(&old->entries[i].slot, memory_order_relaxed));
    }
    t->older = old;
    atomic_store_explicit(&d->table, t, memory_order_release);
    return true;
}

bool directory_insert(struct directory *d, uint64_t id, uint32_t slot)
{
    struct directory_table *t = atomic_load_explicit(&d->table, memory_order_relaxed);
    if ((d->count + 1) * 3 > (t->mask + 1) * 2) {
        if (!grow(d))
            return false;
        t = atomic_load_explicit(&d->table, memory_order_relaxed);
    }
    table_put(t, id, slot);
    d->count++;
    return true;
}

uint32_t directory_find(struct directory *d, uint64_t id)
{
    struct directory_table *t = atomic_load_explicit(&d->table, memory_order_acquire);
    for (uint64_t i = hash_u64(id) & t->mask;; i = (i + 1) & t->mask) {
        uint64_t found = atomic_load_explicit(&t->entries[i].id, memory_order_acquire);
        if (found == id && id != 0)
            return atomic_load_explicit(&t->entries[i].slot, memory_order_relaxed);
        if (found == 0)
            return DIRECTORY_NONE;
    }
}

void directory_prefetch(struct directory *d, uint64_t id)
{
    struct directory_table *t = atomic_load_explicit(&d->table, memory_order_acquire);
    __builtin_prefetch(&t->entries[hash_u64(id) & t->mask]);
}

uint64_t directory_bytes(struct directory *d)
{
    uint64_t bytes = 0;
    for (struct directory_table *t = atomic_load(&d->table); t; t = t->older)
        bytes += table_bytes(t);
    return bytes;
}
