/* A ring with one writer and one reader. `pushed` and `popped` only rise; the
 * slots between them belong to the consumer, the others to the producer. The
 * stores are sequentially consistent where the relay's going to sleep races
 * with an offer: see engine_offer and engine_relay_step. */
#include "pipe/commit_queue.h"

#include <stdlib.h>

#include "base/check.h"

void commit_queue_init(struct commit_queue *h, size_t max)
{
    CHECK(max > 0 && max <= (size_t)1 << 24);
    size_t capacity = 1;
    while (capacity < max)
        capacity *= 2;
    *h = (struct commit_queue){.mask = capacity - 1, .max = max};
    h->slots = calloc(capacity, sizeof *h->slots);
    CHECK(h->slots);
}

void commit_queue_done(struct commit_queue *h)
{
    free(h->slots);
    h->slots = NULL;
}

bool commit_queue_push(struct commit_queue *h, const struct event *e, int64_t now_us)
{
    if (e->id <= atomic_load_explicit(&h->offered, memory_order_relaxed))
        return false; /* told before: ids rise */
    uint64_t pushed = atomic_load_explicit(&h->pushed, memory_order_relaxed);
    uint64_t popped = atomic_load_explicit(&h->popped, memory_order_acquire);
    if (pushed - popped >= h->max) {
        if (atomic_load_explicit(&h->missed_first, memory_order_relaxed) == 0)
            atomic_store_explicit(&h->missed_first, e->id, memory_order_relaxed);
        atomic_store(&h->missed, e->id);
    } else {
        struct queued_event *slot = &h->slots[pushed & h->mask];
        slot->event = *e;
        slot->event.card = NULL; /* these two live only as long as the commit hook */
        slot->event.data = (struct str){0};
        slot->at_us = now_us;
        if (pushed == popped)
            atomic_store_explicit(&h->front, e->id, memory_order_relaxed);
        atomic_store(&h->pushed, pushed + 1);
    }
    atomic_store_explicit(&h->offered, e->id, memory_order_release);
    return true;
}

size_t commit_queue_waiting(struct commit_queue *h)
{
    return (size_t)(atomic_load(&h->pushed) -
                    atomic_load_explicit(&h->popped, memory_order_relaxed));
}

const struct queued_event *commit_queue_at(struct commit_queue *h, size_t i)
{
    uint64_t popped = atomic_load_explicit(&h->popped, memory_order_relaxed);
    return &h->slots[(popped + i) & h->mask];
}

void commit_queue_pop(struct commit_queue *h, size_t n)
{
    uint64_t popped = atomic_load_explicit(&h->popped, memory_order_relaxed) + n;
    if (popped != atomic_load_explicit(&h->pushed, memory_order_acquire)) {
        uint64_t id = h->slots[popped & h->mask].event.id;
        atomic_store_explicit(&h->front, id, memory_order_relaxed);
    }
    atomic_store_explicit(&h->popped, popped, memory_order_release);
}

void commit_queue_read(struct commit_queue *h, uint64_t through)
{
    uint64_t missed = atomic_load(&h->missed);
    if (atomic_load_explicit(&h->missed_first, memory_order_relaxed) == 0)
        return;
    atomic_store_explicit(&h->missed_first, missed > through ? through + 1 : 0,
                          memory_order_relaxed);
}

uint64_t commit_queue_oldest(struct commit_queue *h)
{
    uint64_t missed = atomic_load_explicit(&h->missed_first, memory_order_relaxed);
    if (missed)
        return missed;
    uint64_t popped = atomic_load_explicit(&h->popped, memory_order_relaxed);
    if (popped == atomic_load_explicit(&h->pushed, memory_order_relaxed))
        return 0;
    return atomic_load_explicit(&h->front, memory_order_relaxed);
}
