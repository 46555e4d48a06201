/* The bus in this process: a queue for each lane (lane_queue.h), each under a lock of its own.
 *
 * An ack that comes twice is a bug of the taker. Once something was taken away from its taker (a
 * lane became quiet, all was forgotten), that is no bug any more, and such acks are ignored.
 *
 * A lane's memory is bounded by its limit plus the continuations of messages being worked on. */
#include "bus/local.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/sync.h"
#include "bus/lane_queue.h"

struct local_lane {
    _Alignas(64) pthread_mutex_t lock;
    struct lane_queue queue;
    size_t limit;
    bool quiet;     /* gives nothing until it is listened to */
    bool listened;  /* always, unless it is quiet */
    bool took_away; /* something from its taker, once */
    uint64_t published, acked, retried;
};

struct bus_local {
    struct bus bus;
    size_t count;
    struct local_lane lanes[];
};

static struct bus_local *of(struct bus *b)
{
    return CONTAINER_OF(b, struct bus_local, bus);
}

static struct local_lane *lane_of(struct bus *b, uint16_t lane)
{
    CHECK(lane < of(b)->count);
    return &of(b)->lanes[lane];
}

/* NULL: it was taken away from this taker. */
static struct lane_slot *find_taken(struct local_lane *l, const struct bus_message *m)
{
    struct lane_slot *s = lane_queue_find(&l->queue, m->tag, SLOT_TAKEN);
    CHECK(s || l->took_away);
    return s;
}

/* ---- the port ---- */

static enum err local_publish(struct bus *b, const struct bus_message *m, bool force)
{
    struct local_lane *l = lane_of(b, m->lane);
    struct lane_queue *q = &l->queue;
    LOCK_SCOPE(&l->lock);
    bool fits = force || atomic_load(&q->ready) + q->heap_count + q->taken < l->limit;
    if (!fits)
        return ERR_OVERLOADED;
    lane_queue_make_ready(q, lane_queue_add(q, m));
    l->published++;
    return OK;
}

static bool local_take(struct bus *b, uint16_t lane, int64_t now_us, struct bus_message *out)
{
    struct local_lane *l = lane_of(b, lane);
    if (atomic_load(&l->queue.ready) == 0 && atomic_load(&l->queue.due_us) > now_us)
        return false;
    LOCK_SCOPE(&l->lock);
    return l->listened && lane_queue_take(&l->queue, now_us, out);
}

static void local_ack(struct bus *b, const struct bus_message *m)
{
    struct local_lane *l = lane_of(b, m->lane);
    LOCK_SCOPE(&l->lock);
    struct lane_slot *s = find_taken(l, m);
    if (s) {
        lane_queue_release(&l->queue, s);
        l->acked++;
    }
}

static void local_retry(struct bus *b, const struct bus_message *m, int64_t not_before_us)
{
    struct local_lane *l = lane_of(b, m->lane);
    LOCK_SCOPE(&l->lock);
    struct lane_slot *s = find_taken(l, m);
    if (!s)
        return;
    s->message = *m;
    if (s->message.tries < UINT16_MAX)
        s->message.tries++;
    lane_queue_delay(&l->queue, s, not_before_us);
    l->retried++;
}

static int64_t local_next_due_us(struct bus *b, uint16_t lane)
{
    return atomic_load(&lane_of(b, lane)->queue.due_us);
}

static void local_lane_stats(struct bus *b, uint16_t lane, struct bus_lane_stats *out)
{
    struct local_lane *l = lane_of(b, lane);
    LOCK_SCOPE(&l->lock);
    *out = (struct bus_lane_stats){
        .ready = atomic_load(&l->queue.ready),
        .delayed = l->queue.heap_count,
        .taken = l->queue.taken,
        .published = l->published,
        .confirmed = l->published,
        .acked = l->acked,
        .retried = l->retried,
    };
}

/* ---- taking back ---- */

static void local_listen(struct bus *b, uint16_t lane, bool on)
{
    struct local_lane *l = lane_of(b, lane);
    LOCK_SCOPE(&l->lock);
    if (l->quiet) {
        l->listened = on;
        l->took_away |= !on && l->queue.taken > 0;
        if (!on)
            lane_queue_take_back(&l->queue);
    }
}

void bus_local_forget(struct bus *b)
{
    for (size_t i = 0; i < of(b)->count; i++) {
        struct local_lane *l = &of(b)->lanes[i];
        LOCK_SCOPE(&l->lock);
        l->took_away |= l->queue.taken > 0;
        lane_queue_clear(&l->queue);
    }
}

void bus_local_quiet(struct bus *b, uint32_t lanes)
{
    for (size_t i = 0; i < of(b)->count; i++) {
        of(b)->lanes[i].quiet = lanes >> i & 1;
        of(b)->lanes[i].listened = !of(b)->lanes[i].quiet;
    }
}

static bool local_is_connected(struct bus *b)
{
    (void)b;
    return true;
}

/* ---- life cycle ---- */

static void local_free(struct bus *b)
{
    struct bus_local *local = of(b);
    for (size_t i = 0; i < local->count; i++) {
        lane_queue_done(&local->lanes[i].queue);
        pthread_mutex_destroy(&local->lanes[i].lock);
    }
    free(local);
}

static const struct bus_ops local_ops = {
    .publish = local_publish,
    .take = local_take,
    .ack = local_ack,
    .retry = local_retry,
    .next_due_us = local_next_due_us,
    .lane_stats = local_lane_stats,
    .listen = local_listen,
    .is_connected = local_is_connected,
    .free = local_free,
};

struct bus *bus_local_new(size_t lanes, const size_t *lane_limits)
{
    CHECK(lanes > 0 && lanes <= BUS_LANES_MAX);
    size_t size = sizeof(struct bus_local) + lanes * sizeof(struct local_lane);
    size = (size + 63) / 64 * 64;
    struct bus_local *local = aligned_alloc(64, size);
    CHECK(local);
    memset(local, 0, size);
    local->bus.ops = &local_ops;
    local->bus.exact = true;
    local->count = lanes;
    for (size_t i = 0; i < lanes; i++) {
        struct local_lane *l = &local->lanes[i];
        lock_init_spinning(&l->lock);
        lane_queue_init(&l->queue);
        l->limit = lane_limits[i];
        l->listened = true;
    }
    return &local->bus;
}
