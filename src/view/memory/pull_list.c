/* Pull lists: a sorted array (rising) under a version number.
 *
 * The writer makes the version odd, changes things, makes it even again. A reader takes a copy and
 * accepts it when the version was even and is the same afterwards. Every word that a reader touches
 * is atomic; they are stored with release and loaded with acquire, which orders them against the
 * version without fences. An outgrown array is kept until the list is freed, because a reader may
 * still be in it; doubling keeps all of them together smaller than the present one. Whatever
 * mixture a reader sees, it stays inside the array: it bounds the count by the capacity, which
 * belongs to the array and never changes. */
#include "view/memory/pull_list.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { FIRST_CAPACITY = 8, READ_SPINS = 100 };

struct pull_block {
    struct pull_block *older;
    size_t capacity;
    _Atomic uint64_t ids[];
};

struct pull_list {
    _Atomic uint64_t version;
    _Atomic(struct pull_block *) block;
    _Atomic size_t count;
    _Atomic uint64_t floor;
};

static uint64_t id_at(const struct pull_block *b, size_t i)
{
    return atomic_load_explicit(&b->ids[i], memory_order_acquire);
}

static void set_id(struct pull_block *b, size_t i, uint64_t id)
{
    atomic_store_explicit(&b->ids[i], id, memory_order_release);
}

static struct pull_block *block_new(size_t capacity, int64_t *bytes)
{
    size_t size = sizeof(struct pull_block) + capacity * sizeof(_Atomic uint64_t);
    struct pull_block *b = calloc(1, size);
    if (!b)
        return NULL;
    b->capacity = capacity;
    *bytes += (int64_t)size;
    return b;
}

struct pull_list *pull_list_new(int64_t *bytes)
{
    struct pull_list *l = calloc(1, sizeof *l);
    struct pull_block *b = block_new(FIRST_CAPACITY, bytes);
    if (!l || !b) {
        free(l);
        free(b);
        return NULL;
    }
    atomic_init(&l->block, b);
    *bytes += (int64_t)sizeof *l;
    return l;
}

void pull_list_free(struct pull_list *l)
{
    if (!l)
        return;
    struct pull_block *b = atomic_load(&l->block);
    while (b) {
        struct pull_block *older = b->older;
        free(b);
        b = older;
    }
    free(l);
}

/* The number of ids below `id` among the first `count`. */
static size_t count_below(const struct pull_block *b, size_t count, uint64_t id)
{
    if (count == 0 || id_at(b, count - 1) < id)
        return count;
    size_t low = 0, high = count - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (id_at(b, middle) < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Before a change, and after it. */
static void step_version(struct pull_list *l)
{
    uint64_t version = atomic_load_explicit(&l->version, memory_order_relaxed);
    atomic_store_explicit(&l->version, version + 1, memory_order_release);
}

/* A copy of the array with twice the room, published in place of the old one. */
static struct pull_block *grow(struct pull_list *l, struct pull_block *old, size_t count,
                               int64_t *bytes)
{
    struct pull_block *b = block_new(old->capacity * 2, bytes);
    if (!b)
        return NULL;
    for (size_t i = 0; i < count; i++)
        set_id(b, i, id_at(old, i));
    b->older = old;
    step_version(l);
    atomic_store_explicit(&l->block, b, memory_order_release);
    step_version(l);
    return b;
}

bool pull_list_add(struct pull_list *l, uint64_t id, size_t cap, int64_t *bytes)
{
    struct pull_block *b = atomic_load_explicit(&l->block, memory_order_relaxed);
    size_t count = atomic_load_explicit(&l->count, memory_order_relaxed);
    if (id <= atomic_load_explicit(&l->floor, memory_order_relaxed))
        return true;
    size_t at = count_below(b, count, id);
    if (at < count && id_at(b, at) == id)
        return true;
    if (count >= cap) {
        uint64_t out = at == 0 ? id : id_at(b, 0);
        step_version(l);
        for (size_t i = 0; i + 1 < at; i++)
            set_id(b, i, id_at(b, i + 1));
        if (at > 0)
            set_id(b, at - 1, id);
        atomic_store_explicit(&l->floor, out, memory_order_release);
        step_version(l);
        return true;
    }
    if (count == b->capacity && !(b = grow(l, b, count, bytes)))
        return false;
    step_version(l);
    for (size_t i = count; i > at; i--)
        set_id(b, i, id_at(b, i - 1));
    set_id(b, at, id);
    atomic_store_explicit(&l->count, count + 1, memory_order_release);
    step_version(l);
    return true;
}

void pull_list_remove(struct pull_list *l, uint64_t id)
{
    struct pull_block *b = atomic_load_explicit(&l->block, memory_order_relaxed);
    size_t count = atomic_load_explicit(&l->count, memory_order_relaxed);
    size_t at = count_below(b, count, id);
    if (at == count || id_at(b, at) != id)
        return;
    step_version(l);
    for (size_t i = at; i + 1 < count; i++)
        set_id(b, i, id_at(b, i + 1));
    atomic_store_explicit(&l->count, count - 1, memory_order_release);
    step_version(l);
}

void pull_list_raise_floor(struct pull_list *l, uint64_t floor)
{
    if (floor <= atomic_load_explicit(&l->floor, memory_order_relaxed))
        return;
    step_version(l);
    atomic_store_explicit(&l->floor, floor, memory_order_release);
    step_version(l);
}

size_t pull_list_read(struct pull_list *l, uint64_t below, uint64_t above, uint64_t *ids,
                      size_t max, uint64_t *floor)
{
    for (unsigned spins = 0;; spins++) {
        if (spins > READ_SPINS) { /* the writer was preempted in the middle: let it finish */
            sched_yield();
            spins = 0;
        }
        uint64_t version = atomic_load_explicit(&l->version, memory_order_acquire);
        if (version & 1)
            continue;
        struct pull_block *b = atomic_load_explicit(&l->block, memory_order_acquire);
        size_t count = atomic_load_explicit(&l->count, memory_order_acquire);
        *floor = atomic_load_explicit(&l->floor, memory_order_acquire);
        if (count > b->capacity)
            count = b->capacity;
        size_t left = count_below(b, count, below);
        size_t n = 0;
        for (; left > 0 && n < max; n++, left--) {
            ids[n] = id_at(b, left - 1);
            if (ids[n] <= above)
                break;
        }
        if (atomic_load_explicit(&l->version, memory_order_acquire) == version)
            return n;
    }
}

uint64_t pull_list_version(const struct pull_list *l)
{
    return atomic_load_explicit(&l->version, memory_order_acquire) + 1;
}

size_t pull_list_count(struct pull_list *l)
{
    return atomic_load_explicit(&l->count, memory_order_relaxed);
}
