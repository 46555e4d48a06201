/* The bus in this process: for each lane a queue of ready messages, a heap of delayed ones, and the
 * taken ones, all living in one slab.
 *
 * Invariants, under the lane's lock:
 *  - Every message that the lane holds sits in one slot, in exactly one state: ready (linked in the
 *    queue), delayed (its index in the heap) or taken (only its taker knows it).
 *  - Slots never move and freed ones are used again last-in first-out: a lane that once held a
 *    hundred thousand messages works in a few warm cache lines when it holds ten.
 *  - A tag is the slot and how often the slot was used, so an ack that comes twice is seen. Once
 *    something was taken away from its taker (a lane became quiet, all was forgotten), that is no
 *    bug any more, and such acks are ignored.
 *  - Memory grows with what the lane holds, which is bounded by its limit plus the continuations of
 *    messages being worked on; it is kept until the bus is freed.
 *
 * `ready` and `due_us` are readable without the lock, so that a worker passes an empty lane for two
 * loads. They are sequentially consistent: a worker that announces that it goes to sleep and then
 * looks once more cannot miss a message whose publisher looked for sleepers after publishing. */
#include "bus/local.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"

enum { SLAB_CHUNK = 256, DUE_MOVED_PER_TAKE = 16 };

#define NO_SLOT UINT32_MAX

enum slot_state { SLOT_FREE, SLOT_READY, SLOT_DELAYED, SLOT_TAKEN };

struct slot {
    struct bus_message message;
    uint32_t next; /* in the queue or the free list */
    uint32_t uses;
    enum slot_state state;
    uint64_t turn; /* in the queue: rises */
};

struct delayed {
    int64_t due_us;
    uint64_t order; /* equal times come out in the order they went in */
    uint32_t slot;
};

struct lane_queue {
    _Alignas(64) pthread_mutex_t lock;
    _Atomic uint64_t ready;
    _Atomic int64_t due_us; /* of the heap's top; INT64_MAX: empty */
    size_t limit;
    bool quiet;     /* gives nothing until it is listened to */
    bool listened;  /* always, unless it is quiet */
    bool took_away; /* something from its taker, once */
    struct slot **chunks;
    uint32_t slot_count;
    uint32_t free;
    uint32_t first, last; /* the queue */
    struct delayed *heap;
    size_t heap_count, heap_capacity;
    uint64_t heap_order;
    uint64_t taken, published, acked, retried, turns;
};

struct bus_local {
    struct bus bus;
    size_t lanes;
    struct lane_queue queues[];
};

static struct lane_queue *queue_of(struct bus *b, uint16_t lane)
{
    struct bus_local *local = CONTAINER_OF(b, struct bus_local, bus);
    CHECK(lane < local->lanes);
    return &local->queues[lane];
}

/* ---- slots ---- */

static struct slot *slot_at(struct lane_queue *q, uint32_t index)
{
    return &q->chunks[index / SLAB_CHUNK][index % SLAB_CHUNK];
}

static void slab_grow(struct lane_queue *q)
{
    CHECK(q->slot_count <= NO_SLOT - SLAB_CHUNK);
    size_t chunk = q->slot_count / SLAB_CHUNK;
    if ((chunk & (chunk - 1)) == 0) {
        struct slot **grown = realloc(q->chunks, (chunk ? chunk * 2 : 1) * sizeof *grown);
        CHECK(grown);
        q->chunks = grown;
    }
    q->chunks[chunk] = calloc(SLAB_CHUNK, sizeof(struct slot));
    CHECK(q->chunks[chunk]);
    for (uint32_t i = SLAB_CHUNK; i-- > 0;) {
        q->chunks[chunk][i].next = q->free;
        q->free = q->slot_count + i;
    }
    q->slot_count += SLAB_CHUNK;
}

static uint32_t slot_get(struct lane_queue *q)
{
    if (q->free == NO_SLOT)
        slab_grow(q);
    uint32_t index = q->free;
    struct slot *s = slot_at(q, index);
    q->free = s->next;
    s->uses++;
    return index;
}

/* NULL: it was taken away from this taker. */
static struct slot *slot_taken(struct lane_queue *q, const struct bus_message *m, uint32_t *index)
{
    *index = (uint32_t)m->tag;
    CHECK(*index < q->slot_count);
    struct slot *s = slot_at(q, *index);
    bool known = s->state == SLOT_TAKEN && s->uses == (uint32_t)(m->tag >> 32);
    CHECK(known || q->took_away);
    return known ? s : NULL;
}

static void slot_put(struct lane_queue *q, uint32_t index)
{
    struct slot *s = slot_at(q, index);
    s->state = SLOT_FREE;
    s->next = q->free;
    q->free = index;
}

static void queue_append(struct lane_queue *q, uint32_t index)
{
    struct slot *s = slot_at(q, index);
    s->state = SLOT_READY;
    s->next = NO_SLOT;
    s->turn = q->turns++;
    if (q->last == NO_SLOT)
        q->first = index;
    else
        slot_at(q, q->last)->next = index;
    q->last = index;
    atomic_fetch_add(&q->ready, 1);
}

/* ---- the heap of delayed messages ---- */

static bool comes_before(const struct delayed *a, const struct delayed *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->order < b->order;
}

static void heap_changed(struct lane_queue *q)
{
    atomic_store(&q->due_us, q->heap_count ? q->heap[0].due_us : INT64_MAX);
}

static void heap_push(struct lane_queue *q, int64_t due_us, uint32_t slot)
{
    if (q->heap_count == q->heap_capacity) {
        size_t capacity = q->heap_capacity ? q->heap_capacity * 2 : 64;
        struct delayed *grown = realloc(q->heap, capacity * sizeof *grown);
        CHECK(grown);
        q->heap = grown;
        q->heap_capacity = capacity;
    }
    struct delayed item = {due_us, q->heap_order++, slot};
    size_t at = q->heap_count++;
    while (at > 0 && comes_before(&item, &q->heap[(at - 1) / 2])) {
        q->heap[at] = q->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    q->heap[at] = item;
    heap_changed(q);
}

static uint32_t heap_pop(struct lane_queue *q)
{
    uint32_t slot = q->heap[0].slot;
    struct delayed item = q->heap[--q->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = at * 2 + 1;
        if (child >= q->heap_count)
            break;
        if (child + 1 < q->heap_count && comes_before(&q->heap[child + 1], &q->heap[child]))
            child++;
        if (!comes_before(&q->heap[child], &item))
            break;
        q->heap[at] = q->heap[child];
        at = child;
    }
    if (q->heap_count)
        q->heap[at] = item;
    heap_changed(q);
    return slot;
}

/* ---- the port ---- */

static enum err local_publish(struct bus *b, const struct bus_message *m, bool force)
{
    struct lane_queue *q = queue_of(b, m->lane);
    pthread_mutex_lock(&q->lock);
    if (!force && atomic_load(&q->ready) + q->heap_count + q->taken >= q->limit) {
        pthread_mutex_unlock(&q->lock);
        return ERR_OVERLOADED;
    }
    uint32_t index = slot_get(q);
    struct slot *s = slot_at(q, index);
    s->message = *m;
    s->message.tag = (uint64_t)s->uses << 32 | index;
    queue_append(q, index);
    q->published++;
    pthread_mutex_unlock(&q->lock);
    return OK;
}

/* Due messages go to the end of the queue: neither they nor the fresh ones can starve the other. A
 * few at a time keep the lock short; those left over are found by the next take. */
static bool local_take(struct bus *b, uint16_t lane, int64_t now_us, struct bus_message *out)
{
    struct lane_queue *q = queue_of(b, lane);
    if (atomic_load(&q->ready) == 0 && atomic_load(&q->due_us) > now_us)
        return false;
    pthread_mutex_lock(&q->lock);
    if (!q->listened) {
        pthread_mutex_unlock(&q->lock);
        return false;
    }
    for (int i = 0; i < DUE_MOVED_PER_TAKE && q->heap_count && q->heap[0].due_us <= now_us; i++)
        queue_append(q, heap_pop(q));
    bool found = q->first != NO_SLOT;
    if (found) {
        struct slot *s = slot_at(q, q->first);
        q->first = s->next;
        if (q->first == NO_SLOT)
            q->last = NO_SLOT;
        s->state = SLOT_TAKEN;
        atomic_fetch_sub(&q->ready, 1);
        q->taken++;
        *out = s->message;
    }
    pthread_mutex_unlock(&q->lock);
    return found;
}

static void local_ack(struct bus *b, const struct bus_message *m)
{
    struct lane_queue *q = queue_of(b, m->lane);
    pthread_mutex_lock(&q->lock);
    uint32_t index;
    if (slot_taken(q, m, &index)) {
        slot_put(q, index);
        q->taken--;
        q->acked++;
    }
    pthread_mutex_unlock(&q->lock);
}

static void local_retry(struct bus *b, const struct bus_message *m, int64_t not_before_us)
{
    struct lane_queue *q = queue_of(b, m->lane);
    pthread_mutex_lock(&q->lock);
    uint32_t index;
    struct slot *s = slot_taken(q, m, &index);
    if (s) {
        s->message = *m;
        if (s->message.tries < UINT16_MAX)
            s->message.tries++;
        s->state = SLOT_DELAYED;
        q->taken--;
        q->retried++;
        heap_push(q, not_before_us, index);
    }
    pthread_mutex_unlock(&q->lock);
}

static int64_t local_next_due_us(struct bus *b, uint16_t lane)
{
    return atomic_load(&queue_of(b, lane)->due_us);
}

static void local_lane_stats(struct bus *b, uint16_t lane, struct bus_lane_stats *out)
{
    struct lane_queue *q = queue_of(b, lane);
    pthread_mutex_lock(&q->lock);
    *out = (struct bus_lane_stats){
        .ready = atomic_load(&q->ready),
        .delayed = q->heap_count,
        .taken = q->taken,
        .published = q->published,
        .confirmed = q->published,
        .acked = q->acked,
        .retried = q->retried,
    };
    pthread_mutex_unlock(&q->lock);
}

/* ---- taking back ---- */

static int by_turn(const void *a, const void *b)
{
    const struct slot *const *x = a, *const *y = b;
    return (*x)->turn < (*y)->turn ? -1 : (*x)->turn > (*y)->turn;
}

/* What was taken goes before what is ready, in the order it was in; its old tags are void. */
static void queue_take_back(struct lane_queue *q)
{
    if (q->taken == 0)
        return;
    struct slot **taken = calloc(q->taken, sizeof(struct slot *));
    CHECK(taken);
    size_t n = 0;
    for (uint32_t index = 0; index < q->slot_count; index++) {
        struct slot *s = slot_at(q, index);
        if (s->state == SLOT_TAKEN) {
            s->uses++;
            s->message.tag = (uint64_t)s->uses << 32 | index;
            taken[n++] = s;
        }
    }
    CHECK(n == q->taken);
    qsort(taken, n, sizeof(struct slot *), by_turn);
    while (n-- > 0) {
        uint32_t index = (uint32_t)taken[n]->message.tag;
        taken[n]->state = SLOT_READY;
        taken[n]->next = q->first;
        q->first = index;
        if (q->last == NO_SLOT)
            q->last = index;
    }
    atomic_fetch_add(&q->ready, q->taken);
    q->taken = 0;
    q->took_away = true;
    free(taken);
}

static void local_listen(struct bus *b, uint16_t lane, bool on)
{
    struct lane_queue *q = queue_of(b, lane);
    pthread_mutex_lock(&q->lock);
    if (q->quiet) {
        q->listened = on;
        if (!on)
            queue_take_back(q);
    }
    pthread_mutex_unlock(&q->lock);
}

static void queue_forget(struct lane_queue *q)
{
    for (uint32_t index = q->slot_count; index-- > 0;) {
        if (slot_at(q, index)->state != SLOT_FREE)
            slot_put(q, index);
    }
    q->took_away |= q->taken > 0;
    q->first = q->last = NO_SLOT;
    q->heap_count = 0;
    q->taken = 0;
    heap_changed(q);
    atomic_store(&q->ready, 0);
}

void bus_local_forget(struct bus *b)
{
    struct bus_local *local = CONTAINER_OF(b, struct bus_local, bus);
    for (size_t i = 0; i < local->lanes; i++) {
        struct lane_queue *q = &local->queues[i];
        pthread_mutex_lock(&q->lock);
        queue_forget(q);
        pthread_mutex_unlock(&q->lock);
    }
}

void bus_local_quiet(struct bus *b, uint32_t lanes)
{
    struct bus_local *local = CONTAINER_OF(b, struct bus_local, bus);
    for (size_t i = 0; i < local->lanes; i++) {
        local->queues[i].quiet = lanes >> i & 1;
        local->queues[i].listened = !local->queues[i].quiet;
    }
}

/* ---- life ---- */

static void local_free(struct bus *b)
{
    struct bus_local *local = CONTAINER_OF(b, struct bus_local, bus);
    for (size_t i = 0; i < local->lanes; i++) {
        struct lane_queue *q = &local->queues[i];
        for (uint32_t chunk = 0; chunk < q->slot_count / SLAB_CHUNK; chunk++)
            free(q->chunks[chunk]);
        free(q->chunks);
        free(q->heap);
        pthread_mutex_destroy(&q->lock);
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
    .free = local_free,
};

/* Holders of a lane's lock copy one message and leave: spinning a little beats sleeping. */
static void init_spinning_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

struct bus *bus_local_new(size_t lanes, const size_t *lane_limits)
{
    CHECK(lanes > 0 && lanes <= BUS_LANES_MAX);
    size_t size = sizeof(struct bus_local) + lanes * sizeof(struct lane_queue);
    size = (size + 63) / 64 * 64;
    struct bus_local *local = aligned_alloc(64, size);
    CHECK(local);
    memset(local, 0, size);
    local->bus.ops = &local_ops;
    local->bus.exact = true;
    local->lanes = lanes;
    for (size_t i = 0; i < lanes; i++) {
        struct lane_queue *q = &local->queues[i];
        init_spinning_lock(&q->lock);
        atomic_init(&q->ready, 0);
        atomic_init(&q->due_us, INT64_MAX);
        q->limit = lane_limits[i];
        q->listened = true;
        q->free = q->first = q->last = NO_SLOT;
    }
    return &local->bus;
}
