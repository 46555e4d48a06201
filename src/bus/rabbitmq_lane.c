/* Deliveries sit in `prefetch` slots: the broker sends no more than that unacked, so nothing here
 * grows. Invariants:
 *  - a slot that is not free is in the list of unacked ones, oldest first, because deliveries come
 *    with rising numbers: so one ack can cover all below the oldest one that is still held;
 *  - unacked + acks_count ≤ prefetch;
 *  - a message that a taker returns after its connection broke has a tag that no longer matches,
 *    and is ignored.
 *
 * The limit of a lane needs a count of the messages at the broker, which other nodes change, too.
 * So at_broker counts this node's own changes (exact while no other node uses the queue) and is
 * corrected by asking: at once when it is far off, and when it is a little off as soon as nothing
 * was under way between two answers, since an answer that crosses messages is off by as many
 * itself. */
#include "bus/rabbitmq_lane.h"

#include <stdlib.h>

#include "base/check.h"
#include "bus/rabbitmq.h"

#define NONE UINT32_MAX

void rabbitmq_lane_init(struct rabbitmq_lane *l, uint16_t number, size_t limit, uint32_t prefetch)
{
    *l = (struct rabbitmq_lane){
        .number = number, .limit = limit, .prefetch = prefetch, .oldest = NONE, .newest = NONE};
    lane_queue_init(&l->queue);
    l->deliveries = calloc(prefetch, sizeof *l->deliveries);
    l->acks = calloc(prefetch, sizeof *l->acks);
    CHECK(l->deliveries && l->acks);
}

void rabbitmq_lane_done(struct rabbitmq_lane *l)
{
    lane_queue_done(&l->queue);
    free(l->deliveries);
    free(l->acks);
}

/* ---- deliveries ---- */

struct lane_slot *rabbitmq_lane_deliver(struct rabbitmq_lane *l, uint64_t delivery,
                                        const struct bus_message *m)
{
    if (l->unacked + l->acks_count >= l->prefetch)
        return NULL;
    struct lane_slot *s = lane_queue_add(&l->queue, m);
    uint32_t index = lane_slot_index(s);
    CHECK(index < l->prefetch);
    s->message.lane = l->number;
    l->deliveries[index] =
        (struct rabbitmq_delivery){.number = delivery, .older = l->newest, .newer = NONE};
    if (l->newest == NONE)
        l->oldest = index;
    else
        l->deliveries[l->newest].newer = index;
    l->newest = index;
    l->unacked++;
    l->at_broker--;
    l->acts++;
    return s;
}

/* ---- retries that travel ---- */

static void far_settle(struct rabbitmq_lane *l, int64_t now_us)
{
    int64_t now = now_us / RABBITMQ_FAR_BUCKET_US;
    if (l->far_count == 0) {
        l->far_bucket = now;
        return;
    }
    for (; l->far_bucket < now && l->far_count; l->far_bucket++) {
        uint64_t *bucket = &l->far[l->far_bucket % RABBITMQ_FAR_BUCKETS];
        l->at_broker += (int64_t)*bucket;
        l->far_count -= *bucket;
        *bucket = 0;
    }
}

void rabbitmq_lane_leave(struct rabbitmq_lane *l, struct lane_slot *s, int64_t now_us,
                         int64_t delay_us)
{
    lane_queue_leave(&l->queue, s);
    far_settle(l, now_us);
    int64_t bucket = (now_us + delay_us) / RABBITMQ_FAR_BUCKET_US;
    int64_t last = l->far_bucket + RABBITMQ_FAR_BUCKETS - 1;
    bucket = bucket < l->far_bucket ? l->far_bucket : bucket > last ? last : bucket;
    l->far[bucket % RABBITMQ_FAR_BUCKETS]++;
    l->far_count++;
    l->acts++;
}

/* ---- acks ---- */

void rabbitmq_lane_release(struct rabbitmq_lane *l, struct lane_slot *s)
{
    const struct rabbitmq_delivery *d = &l->deliveries[lane_slot_index(s)];
    *(d->older == NONE ? &l->oldest : &l->deliveries[d->older].newer) = d->newer;
    *(d->newer == NONE ? &l->newest : &l->deliveries[d->newer].older) = d->older;
    l->unacked--;
    lane_queue_release(&l->queue, s);
    CHECK(l->acks_count < l->prefetch);
    l->acks[l->acks_count++] = d->number;
}

bool rabbitmq_lane_next_ack(struct rabbitmq_lane *l, uint64_t *delivery, bool *multiple)
{
    if (l->acks_count == 0)
        return false;
    uint64_t below = l->oldest == NONE ? UINT64_MAX : l->deliveries[l->oldest].number;
    uint64_t highest = 0;
    uint32_t left = 0;
    for (uint32_t i = 0; i < l->acks_count; i++) {
        if (l->acks[i] >= below)
            l->acks[left++] = l->acks[i];
        else if (l->acks[i] > highest)
            highest = l->acks[i];
    }
    *multiple = left < l->acks_count;
    l->acks_count = left;
    *delivery = *multiple ? highest : l->acks[--l->acks_count];
    return true;
}

void rabbitmq_lane_lost(struct rabbitmq_lane *l)
{
    l->at_broker += l->unacked;
    l->acts++;
    lane_queue_clear(&l->queue);
    l->oldest = l->newest = NONE;
    l->unacked = 0;
    l->acks_count = 0;
}

/* ---- numbers ---- */

static uint64_t broker_has(const struct rabbitmq_lane *l)
{
    return l->at_broker > 0 ? (uint64_t)l->at_broker : 0;
}

uint64_t rabbitmq_lane_holds(struct rabbitmq_lane *l, int64_t now_us)
{
    far_settle(l, now_us);
    return broker_has(l) + atomic_load(&l->queue.ready) + l->queue.heap_count + l->queue.taken +
           l->far_count;
}

void rabbitmq_lane_counted(struct rabbitmq_lane *l, uint64_t count, uint64_t unconfirmed)
{
    bool quiet = l->acts == l->acts_before && unconfirmed == 0;
    int64_t truth = (int64_t)(count + unconfirmed);
    int64_t off = truth > l->at_broker ? truth - l->at_broker : l->at_broker - truth;
    if (quiet || off > (int64_t)RABBITMQ_WINDOW + (int64_t)l->prefetch)
        l->at_broker = truth;
}

void rabbitmq_lane_stats(struct rabbitmq_lane *l, int64_t now_us, struct bus_lane_stats *out)
{
    far_settle(l, now_us);
    *out = (struct bus_lane_stats){
        .ready = broker_has(l) + atomic_load(&l->queue.ready),
        .delayed = l->queue.heap_count + l->far_count,
        .taken = l->queue.taken,
        .published = l->published,
        .acked = l->acked,
        .retried = l->retried,
        .confirmed = l->confirmed,
    };
}
