/* Deliveries sit in `prefetch` slots: the broker sends no more than that unacked, so nothing here
 * grows. Invariants:
 *  - a slot that is not free is in the list of unacked ones, oldest first, because deliveries come
 *    with rising numbers: so one ack can cover all below the oldest one that is still held;
 *  - unacked + acks_count ≤ prefetch;
 *  - a tag is the slot and how often it was used: what a taker gives back after its connection
 *    broke does not match, and is ignored.
 *
 * The limit of a lane needs a count of what the broker holds, which is another's and changes
 * without us. So at_broker is counted from what we did ourselves (exact as long as nobody else uses
 * the queue) and corrected by asking: at once when it is far off, and when it is only a little off
 * as soon as nothing was on its way for the time between two answers, since an answer that crosses
 * messages on their way is off by as many itself. */
#include "bus/rabbitmq_lane.h"

#include <stdlib.h>

#include "base/check.h"
#include "bus/rabbitmq.h"

enum { DUE_MOVED_PER_TAKE = 16 };

#define NO_SLOT UINT32_MAX

void rabbitmq_lane_init(struct rabbitmq_lane *l, uint16_t number, size_t limit, uint32_t prefetch)
{
    *l = (struct rabbitmq_lane){.number = number,
                                .limit = limit,
                                .prefetch = prefetch,
                                .first = NO_SLOT,
                                .last = NO_SLOT,
                                .oldest = NO_SLOT,
                                .newest = NO_SLOT};
    atomic_init(&l->ready, 0);
    atomic_init(&l->due_us, INT64_MAX);
    l->held = calloc(prefetch, sizeof *l->held);
    l->heap = calloc(prefetch, sizeof *l->heap);
    l->acks = calloc(prefetch, sizeof *l->acks);
    CHECK(l->held && l->heap && l->acks);
    for (uint32_t i = 0; i < prefetch; i++)
        l->held[i].next = i + 1 < prefetch ? i + 1 : NO_SLOT;
}

void rabbitmq_lane_done(struct rabbitmq_lane *l)
{
    free(l->held);
    free(l->heap);
    free(l->acks);
}

static uint32_t index_of(const struct rabbitmq_lane *l, const struct rabbitmq_held *h)
{
    return (uint32_t)(h - l->held);
}

/* ---- the heap of delayed ones ---- */

static bool comes_before(const struct rabbitmq_delayed *a, const struct rabbitmq_delayed *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->order < b->order;
}

static void heap_changed(struct rabbitmq_lane *l)
{
    atomic_store(&l->due_us, l->heap_count ? l->heap[0].due_us : INT64_MAX);
}

static void heap_push(struct rabbitmq_lane *l, int64_t due_us, uint32_t held)
{
    struct rabbitmq_delayed added = {due_us, l->heap_order++, held};
    uint32_t i = l->heap_count++;
    for (; i > 0 && comes_before(&added, &l->heap[(i - 1) / 2]); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = added;
    heap_changed(l);
}

static uint32_t heap_pop(struct rabbitmq_lane *l)
{
    uint32_t top = l->heap[0].held;
    struct rabbitmq_delayed moved = l->heap[--l->heap_count];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < l->heap_count; i = child) {
        if (child + 1 < l->heap_count && comes_before(&l->heap[child + 1], &l->heap[child]))
            child++;
        if (!comes_before(&l->heap[child], &moved))
            break;
        l->heap[i] = l->heap[child];
    }
    l->heap[i] = moved;
    heap_changed(l);
    return top;
}

/* ---- deliveries ---- */

struct rabbitmq_held *rabbitmq_lane_deliver(struct rabbitmq_lane *l, uint64_t delivery,
                                            const struct bus_message *m)
{
    if (l->free == NO_SLOT || l->unacked + l->acks_count >= l->prefetch)
        return NULL;
    uint32_t index = l->free;
    struct rabbitmq_held *h = &l->held[index];
    l->free = h->next;
    h->uses++;
    h->message = *m;
    h->message.lane = l->number;
    h->message.tag = (uint64_t)h->uses << 32 | index;
    h->delivery = delivery;
    h->newer = NO_SLOT;
    h->older = l->newest;
    if (l->newest == NO_SLOT)
        l->oldest = index;
    else
        l->held[l->newest].newer = index;
    l->newest = index;
    l->unacked++;
    l->at_broker--;
    l->acts++;
    return h;
}

void rabbitmq_lane_make_ready(struct rabbitmq_lane *l, struct rabbitmq_held *h)
{
    uint32_t index = index_of(l, h);
    h->state = HELD_READY;
    h->next = NO_SLOT;
    if (l->last == NO_SLOT)
        l->first = index;
    else
        l->held[l->last].next = index;
    l->last = index;
    atomic_fetch_add(&l->ready, 1);
}

static void no_longer_taken(struct rabbitmq_lane *l, const struct rabbitmq_held *h)
{
    if (h->state == HELD_TAKEN)
        l->taken--;
}

void rabbitmq_lane_delay(struct rabbitmq_lane *l, struct rabbitmq_held *h, int64_t due_us)
{
    no_longer_taken(l, h);
    h->state = HELD_DELAYED;
    heap_push(l, due_us, index_of(l, h));
}

/* Due ones go to the end of the queue: neither they nor the fresh ones can starve the other. */
bool rabbitmq_lane_take(struct rabbitmq_lane *l, int64_t now_us, struct bus_message *out)
{
    for (int i = 0; i < DUE_MOVED_PER_TAKE && l->heap_count && l->heap[0].due_us <= now_us; i++)
        rabbitmq_lane_make_ready(l, &l->held[heap_pop(l)]);
    if (l->first == NO_SLOT)
        return false;
    struct rabbitmq_held *h = &l->held[l->first];
    l->first = h->next;
    if (l->first == NO_SLOT)
        l->last = NO_SLOT;
    h->state = HELD_TAKEN;
    atomic_fetch_sub(&l->ready, 1);
    l->taken++;
    *out = h->message;
    return true;
}

struct rabbitmq_held *rabbitmq_lane_find(struct rabbitmq_lane *l, uint64_t tag,
                                         enum rabbitmq_held_state state)
{
    uint32_t index = (uint32_t)tag;
    CHECK(index < l->prefetch);
    struct rabbitmq_held *h = &l->held[index];
    return h->uses == (uint32_t)(tag >> 32) && h->state == state ? h : NULL;
}

/* ---- what is far away ---- */

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

void rabbitmq_lane_leave(struct rabbitmq_lane *l, struct rabbitmq_held *h, int64_t now_us,
                         int64_t delay_us)
{
    no_longer_taken(l, h);
    h->state = HELD_LEAVING;
    far_settle(l, now_us);
    int64_t bucket = (now_us + delay_us) / RABBITMQ_FAR_BUCKET_US;
    int64_t last = l->far_bucket + RABBITMQ_FAR_BUCKETS - 1;
    bucket = bucket < l->far_bucket ? l->far_bucket : bucket > last ? last : bucket;
    l->far[bucket % RABBITMQ_FAR_BUCKETS]++;
    l->far_count++;
    l->acts++;
}

/* ---- acks ---- */

static void forget(struct rabbitmq_lane *l, struct rabbitmq_held *h)
{
    if (h->older == NO_SLOT)
        l->oldest = h->newer;
    else
        l->held[h->older].newer = h->newer;
    if (h->newer == NO_SLOT)
        l->newest = h->older;
    else
        l->held[h->newer].older = h->older;
    h->state = HELD_FREE;
    h->next = l->free;
    l->free = index_of(l, h);
    l->unacked--;
}

void rabbitmq_lane_release(struct rabbitmq_lane *l, struct rabbitmq_held *h)
{
    CHECK(h->state == HELD_TAKEN || h->state == HELD_LEAVING);
    no_longer_taken(l, h);
    forget(l, h);
    CHECK(l->acks_count < l->prefetch);
    l->acks[l->acks_count++] = h->delivery;
}

bool rabbitmq_lane_next_ack(struct rabbitmq_lane *l, uint64_t *delivery, bool *multiple)
{
    if (l->acks_count == 0)
        return false;
    uint64_t below = l->oldest == NO_SLOT ? UINT64_MAX : l->held[l->oldest].delivery;
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
    while (l->oldest != NO_SLOT)
        forget(l, &l->held[l->oldest]);
    l->first = l->last = NO_SLOT;
    l->heap_count = 0;
    heap_changed(l);
    atomic_store(&l->ready, 0);
    l->acks_count = 0;
    l->taken = 0;
}

/* ---- numbers ---- */

static uint64_t broker_has(const struct rabbitmq_lane *l)
{
    return l->at_broker > 0 ? (uint64_t)l->at_broker : 0;
}

uint64_t rabbitmq_lane_holds(struct rabbitmq_lane *l, int64_t now_us)
{
    far_settle(l, now_us);
    return broker_has(l) + atomic_load(&l->ready) + l->heap_count + l->taken + l->far_count;
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
        .ready = broker_has(l) + atomic_load(&l->ready),
        .delayed = l->heap_count + l->far_count,
        .taken = l->taken,
        .published = l->published,
        .acked = l->acked,
        .retried = l->retried,
        .confirmed = l->confirmed,
    };
}
