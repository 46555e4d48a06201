/* One lane of this node: the deliveries that it holds for its takers, the acks that it owes the
 * broker, and what it knows of the queue. Used under the bus's lock, but for the two atomics. */
#pragma once

#include "bus/lane_queue.h"

enum { RABBITMQ_FAR_BUCKETS = 128, RABBITMQ_FAR_BUCKET_US = 2 * 1000 * 1000 };

/* What a slot of the queue holds as a delivery. Delayed ones wait here, unacked, until they are
 * due; of a leaving one a copy is on its way to a delay queue, and it is acked when the copy is
 * safe. */
struct rabbitmq_delivery {
    uint64_t number;       /* the broker's name for it, rising within a connection */
    uint32_t older, newer; /* among the unacked */
};

struct rabbitmq_lane {
    _Alignas(64) struct lane_queue queue;
    uint16_t number;
    size_t limit;
    uint32_t prefetch;
    struct rabbitmq_delivery *deliveries; /* prefetch of them, by slot */
    uint32_t oldest, newest;              /* unacked */
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
    uint64_t published, confirmed, acked, retried;
};

void rabbitmq_lane_init(struct rabbitmq_lane *l, uint16_t number, size_t limit, uint32_t prefetch);
void rabbitmq_lane_done(struct rabbitmq_lane *l);

/* A delivery came: NULL when there is no room, that is, when the broker disregards the prefetch.
 * The caller makes it ready or delays it. */
struct lane_slot *rabbitmq_lane_deliver(struct rabbitmq_lane *l, uint64_t delivery,
                                        const struct bus_message *m);
/* A copy of it comes back in `delay_us` or later. */
void rabbitmq_lane_leave(struct rabbitmq_lane *l, struct lane_slot *s, int64_t now_us,
                         int64_t delay_us);
/* It is done with: an ack is owed. */
void rabbitmq_lane_release(struct rabbitmq_lane *l, struct lane_slot *s);
/* The next ack to send; `multiple` covers all deliveries below it, too. False: none. */
bool rabbitmq_lane_next_ack(struct rabbitmq_lane *l, uint64_t *delivery, bool *multiple);
/* The connection broke: everything held is the broker's again. */
void rabbitmq_lane_lost(struct rabbitmq_lane *l);

/* ready, delayed and taken together, here and at the broker */
uint64_t rabbitmq_lane_holds(struct rabbitmq_lane *l, int64_t now_us);
/* The broker says how many it has ready, `unconfirmed` of ours not being safe yet. */
void rabbitmq_lane_counted(struct rabbitmq_lane *l, uint64_t count, uint64_t unconfirmed);
void rabbitmq_lane_stats(struct rabbitmq_lane *l, int64_t now_us, struct bus_lane_stats *out);
