/* A lane's messages, all living in one slab. Invariants:
 *  - Every message sits in one slot, in exactly one state.
 *  - Slots never move and freed ones are used again last-in first-out: a lane that once held a
 *    hundred thousand messages works in a few warm cache lines when it holds ten, and no index is
 *    ever as high as the most slots that were in use at a time.
 *  - A tag is the slot and how often the slot was used, so a second or late ack is recognised.
 *  - Memory grows with what the lane holds, which its owner bounds; it is kept until the end.
 *
 * `ready` and `due_us` are sequentially consistent: a worker that announces that it goes to sleep
 * and then looks once more cannot miss a message whose publisher looked for sleepers after
 * publishing. */
#include "bus/lane_queue.h"

#include <stdlib.h>

#include "base/check.h"

enum { SLAB_CHUNK = 256, DUE_MOVED_PER_TAKE = 16 }; /* few at a time keep the lock short */

void lane_queue_init(struct lane_queue *q)
{
    *q = (struct lane_queue){.tail = &q->first};
    atomic_init(&q->ready, 0);
    atomic_init(&q->due_us, INT64_MAX);
}

void lane_queue_done(struct lane_queue *q)
{
    for (uint32_t chunk = 0; chunk < q->slot_count / SLAB_CHUNK; chunk++)
        free(q->chunks[chunk]);
    free(q->chunks);
    free(q->heap);
}

/* ---- slots ---- */

static struct lane_slot *slot_at(const struct lane_queue *q, uint32_t index)
{
    return &q->chunks[index / SLAB_CHUNK][index % SLAB_CHUNK];
}

static void change_state(struct lane_queue *q, struct lane_slot *s, enum lane_slot_state state)
{
    q->taken -= s->state == SLOT_TAKEN;
    s->state = state;
}

static void put_free(struct lane_queue *q, struct lane_slot *s)
{
    change_state(q, s, SLOT_FREE);
    s->next = q->free;
    q->free = s;
}

static void slab_grow(struct lane_queue *q)
{
    CHECK(q->slot_count <= UINT32_MAX - SLAB_CHUNK);
    size_t chunk = q->slot_count / SLAB_CHUNK;
    if ((chunk & (chunk - 1)) == 0) {
        struct lane_slot **grown = realloc(q->chunks, (chunk ? chunk * 2 : 1) * sizeof *grown);
        CHECK(grown);
        q->chunks = grown;
    }
    q->chunks[chunk] = calloc(SLAB_CHUNK, sizeof(struct lane_slot));
    CHECK(q->chunks[chunk]);
    for (uint32_t i = SLAB_CHUNK; i-- > 0;) {
        struct lane_slot *s = &q->chunks[chunk][i];
        s->message.tag = q->slot_count + i;
        put_free(q, s);
    }
    q->slot_count += SLAB_CHUNK;
}

static void set_tag(struct lane_slot *s, uint32_t index)
{
    s->uses++;
    s->message.tag = (uint64_t)s->uses << 32 | index;
}

struct lane_slot *lane_queue_add(struct lane_queue *q, const struct bus_message *m)
{
    if (!q->free)
        slab_grow(q);
    struct lane_slot *s = q->free;
    uint32_t index = lane_slot_index(s);
    q->free = s->next;
    s->message = *m;
    set_tag(s, index);
    return s;
}

struct lane_slot *lane_queue_find(struct lane_queue *q, uint64_t tag, enum lane_slot_state state)
{
    CHECK((uint32_t)tag < q->slot_count);
    struct lane_slot *s = slot_at(q, (uint32_t)tag);
    return s->state == state && s->uses == (uint32_t)(tag >> 32) ? s : NULL;
}

void lane_queue_release(struct lane_queue *q, struct lane_slot *s)
{
    CHECK(s->state == SLOT_TAKEN || s->state == SLOT_LEAVING);
    put_free(q, s);
}

void lane_queue_leave(struct lane_queue *q, struct lane_slot *s)
{
    change_state(q, s, SLOT_LEAVING);
}

/* ---- the heap ---- */

static bool comes_before(const struct lane_delayed *a, const struct lane_delayed *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->order < b->order;
}

static void heap_changed(struct lane_queue *q)
{
    atomic_store(&q->due_us, q->heap_count ? q->heap[0].due_us : INT64_MAX);
}

void lane_queue_delay(struct lane_queue *q, struct lane_slot *s, int64_t due_us)
{
    if (q->heap_count == q->heap_capacity) {
        size_t capacity = q->heap_capacity ? q->heap_capacity * 2 : 64;
        struct lane_delayed *grown = realloc(q->heap, capacity * sizeof *grown);
        CHECK(grown);
        q->heap = grown;
        q->heap_capacity = capacity;
    }
    struct lane_delayed item = {due_us, q->heap_order++, s};
    size_t at = q->heap_count++;
    for (; at > 0 && comes_before(&item, &q->heap[(at - 1) / 2]); at = (at - 1) / 2)
        q->heap[at] = q->heap[(at - 1) / 2];
    q->heap[at] = item;
    change_state(q, s, SLOT_DELAYED);
    heap_changed(q);
}

static struct lane_slot *heap_pop(struct lane_queue *q)
{
    struct lane_slot *slot = q->heap[0].slot;
    struct lane_delayed item = q->heap[--q->heap_count];
    size_t at = 0;
    for (size_t child; (child = at * 2 + 1) < q->heap_count; at = child) {
        if (child + 1 < q->heap_count && comes_before(&q->heap[child + 1], &q->heap[child]))
            child++;
        if (!comes_before(&q->heap[child], &item))
            break;
        q->heap[at] = q->heap[child];
    }
    q->heap[at] = item;
    heap_changed(q);
    return slot;
}

/* ---- the queue ---- */

void lane_queue_make_ready(struct lane_queue *q, struct lane_slot *s)
{
    change_state(q, s, SLOT_READY);
    s->turn = q->turns++;
    s->next = NULL;
    *q->tail = s;
    q->tail = &s->next;
    atomic_fetch_add(&q->ready, 1);
}

bool lane_queue_take(struct lane_queue *q, int64_t now_us, struct bus_message *out)
{
    for (int i = 0; i < DUE_MOVED_PER_TAKE && q->heap_count && q->heap[0].due_us <= now_us; i++)
        lane_queue_make_ready(q, heap_pop(q));
    struct lane_slot *s = q->first;
    if (!s)
        return false;
    q->first = s->next;
    if (!q->first)
        q->tail = &q->first;
    s->state = SLOT_TAKEN;
    atomic_fetch_sub(&q->ready, 1);
    q->taken++;
    *out = s->message;
    return true;
}

static int by_turn(const void *a, const void *b)
{
    const struct lane_slot *const *x = a, *const *y = b;
    return (*x)->turn < (*y)->turn ? -1 : (*x)->turn > (*y)->turn;
}

void lane_queue_take_back(struct lane_queue *q)
{
    size_t n = 0, count = q->taken;
    if (count == 0)
        return;
    struct lane_slot **taken = calloc(count, sizeof(struct lane_slot *));
    CHECK(taken);
    for (uint32_t index = 0; index < q->slot_count; index++) {
        struct lane_slot *s = slot_at(q, index);
        if (s->state == SLOT_TAKEN) {
            set_tag(s, index);
            taken[n++] = s;
        }
    }
    CHECK(n == count);
    qsort(taken, n, sizeof(struct lane_slot *), by_turn);
    while (n-- > 0) {
        change_state(q, taken[n], SLOT_READY);
        taken[n]->next = q->first;
        if (!q->first)
            q->tail = &taken[n]->next;
        q->first = taken[n];
    }
    atomic_fetch_add(&q->ready, count);
    free(taken);
}

void lane_queue_clear(struct lane_queue *q)
{
    for (uint32_t index = q->slot_count; index-- > 0;)
        if (slot_at(q, index)->state != SLOT_FREE)
            put_free(q, slot_at(q, index));
    q->first = NULL;
    q->tail = &q->first;
    q->heap_count = 0;
    heap_changed(q);
    atomic_store(&q->ready, 0);
}
