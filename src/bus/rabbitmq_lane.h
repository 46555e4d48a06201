/* One lane of this node: the deliveries that it holds for its takers, the acks that it owes the
 * broker, and what it knows of the queue. Used under the bus's lock, but for the two atomics. */
#pragma once

#include <stdatomic.h>

#include "port/bus.h"

enum { RABBITMQ_FAR_BUCKETS = 128, RABBITMQ_FAR_BUCKET_US = 2 * 1000 * 1000 };

enum rabbitmq_held_state {
    HELD_FREE,
    HELD_READY,
    HELD_DELAYED, /* waits here, unacked, until it is due */
    HELD_TAKEN,
    HELD_LEAVING, /* a copy is on its way to a delay queue; acked when the copy is safe */
};

struct rabbitmq_held {
    struct bus_message message;
    uint64_t delivery; /* the broker's name for it, rising within a connection */
    uint32_t uses;
    uint32_t next;         /* among the ready or the free */
    uint32_t older, newer; /* among the unacked */
    enum rabbitmq_held_state state;
};

struct rabbitmq_delayed {
    int64_t due_us;
    uint64_t order; /* equal times come out in the order they went in */
    uint32_t held;
};

struct rabbitmq_lane {
    _Alignas(64) _Atomic uint64_t ready; /* readable without the lock, as is … */
    _Atomic int64_t due_us;              /* … the first delayed one's time; INT64_MAX: none */
    uint16_t number;
    size_t limit;
    uint32_t prefetch;
    struct rabbitmq_held *held; /* prefetch of them */
    uint32_t free;
    uint32_t first, last;    /* ready */
    uint32_t oldest, newest; /* unacked */
    struct rabbitmq_delayed *heap;
    uint32_t heap_count;
    uint64_t heap_order;
    uint64_t *acks; /* deliveries whose ack is not yet sent: at most prefetch with those held */
    uint32_t acks_count;
    uint32_t unacked; /* held in any state */
    /* What the broker has ready for us all, as far as we know: counted from our own acts,
     * corrected by asking. May be below 0 for a moment. */
    int64_t at_broker;
    uint64_t acts;                      /* of ours that change at_broker; … */
    uint64_t acts_at_ask;               /* … when the broker was last asked, … */
    uint64_t acts_before;               /* … and the time before */
    uint64_t far[RABBITMQ_FAR_BUCKETS]; /* in delay queues by our hand, by when they come back */
    int64_t far_bucket;                 /* the first that is not over */
    uint64_t far_count;
    uint64_t taken, published, confirmed, acked, retried;
};

void rabbitmq_lane_init(struct rabbitmq_lane *l, uint16_t number, size_t limit, uint32_t prefetch);
void rabbitmq_lane_done(struct rabbitmq_lane *l);

/* A delivery came: NULL when there is no room, that is, when the broker disregards the prefetch.
 * The caller makes it ready or delays it. */
struct rabbitmq_held *rabbitmq_lane_deliver(struct rabbitmq_lane *l, uint64_t delivery,
                                            const struct bus_message *m);
void rabbitmq_lane_make_ready(struct rabbitmq_lane *l, struct rabbitmq_held *h);
void rabbitmq_lane_delay(struct rabbitmq_lane *l, struct rabbitmq_held *h, int64_t due_us);
bool rabbitmq_lane_take(struct rabbitmq_lane *l, int64_t now_us, struct bus_message *out);
/* The one that a tag names, in that state; NULL: it is not ours any more. */
struct rabbitmq_held *rabbitmq_lane_find(struct rabbitmq_lane *l, uint64_t tag,
                                         enum rabbitmq_held_state state);
/* A copy of it comes back in `delay_us` or later. */
void rabbitmq_lane_leave(struct rabbitmq_lane *l, struct rabbitmq_held *h, int64_t now_us,
                         int64_t delay_us);
/* It is done with: an ack is owed. */
void rabbitmq_lane_release(struct rabbitmq_lane *l, struct rabbitmq_held *h);
/* The next ack to send; `multiple` covers all deliveries below it, too. False: none. */
bool rabbitmq_lane_next_ack(struct rabbitmq_lane *l, uint64_t *delivery, bool *multiple);
/* The connection broke: everything held is the broker's again. */
void rabbitmq_lane_lost(struct rabbitmq_lane *l);

/* ready, delayed and taken together, here and at the broker */
uint64_t rabbitmq_lane_holds(struct rabbitmq_lane *l, int64_t now_us);
/* The broker says how many it has ready, `unconfirmed` of ours not being safe yet. */
void rabbitmq_lane_counted(struct rabbitmq_lane *l, uint64_t count, uint64_t unconfirmed);
void rabbitmq_lane_stats(struct rabbitmq_lane *l, int64_t now_us, struct bus_lane_stats *out);
