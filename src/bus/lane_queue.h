/* The messages of one lane that this process holds: ready ones in a queue, delayed ones in a heap,
 * taken ones known by their tags. Both bus drivers keep theirs here. Used under the owner's lock,
 * but for the two atomics: a worker passes an empty lane for two loads. */
#pragma once

#include <stdatomic.h>

#include "port/bus.h"

enum lane_slot_state {
    SLOT_FREE,
    SLOT_READY,   /* in the queue */
    SLOT_DELAYED, /* in the heap */
    SLOT_TAKEN,   /* only its taker knows it */
    SLOT_LEAVING, /* its owner has other plans */
};

struct lane_slot {
    struct bus_message message; /* its tag is this slot and how often it was used */
    uint64_t turn;              /* in the queue: rises */
    struct lane_slot *next;     /* in the queue or the free list */
    uint32_t uses;
    enum lane_slot_state state;
};

struct lane_delayed {
    int64_t due_us;
    uint64_t order; /* equal times come out in the order they went in */
    struct lane_slot *slot;
};

struct lane_queue {
    _Atomic uint64_t ready;
    _Atomic int64_t due_us; /* of the heap's top; INT64_MAX: empty */
    struct lane_slot **chunks;
    uint32_t slot_count;
    struct lane_slot *free, *first, **tail;
    struct lane_delayed *heap;
    size_t heap_count, heap_capacity;
    uint64_t heap_order, turns, taken;
};

void lane_queue_init(struct lane_queue *q);
void lane_queue_done(struct lane_queue *q);

/* A slot with a copy of the message and a new tag; the caller makes it ready, delays or frees it.
 */
struct lane_slot *lane_queue_add(struct lane_queue *q, const struct bus_message *m);
/* From whatever state but free. */
void lane_queue_make_ready(struct lane_queue *q, struct lane_slot *s);
void lane_queue_delay(struct lane_queue *q, struct lane_slot *s, int64_t due_us);
void lane_queue_leave(struct lane_queue *q, struct lane_slot *s);
/* One that is taken or leaving. */
void lane_queue_release(struct lane_queue *q, struct lane_slot *s);
/* The next ready one. Due ones go to the end of the queue first: neither they nor the fresh ones
 * can starve the other. */
bool lane_queue_take(struct lane_queue *q, int64_t now_us, struct bus_message *out);
/* Taken messages go before ready ones, in their old order; their old tags are void. */
void lane_queue_take_back(struct lane_queue *q);
void lane_queue_clear(struct lane_queue *q);

/* The one that a tag names, in that state; NULL: it is not that one any more. */
struct lane_slot *lane_queue_find(struct lane_queue *q, uint64_t tag, enum lane_slot_state state);
static inline uint32_t lane_slot_index(const struct lane_slot *s)
{
    return (uint32_t)s->message.tag;
}
