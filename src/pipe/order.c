/* A hash table of actors that are taken, each with the message that took it and a list of those
 * that wait. A retried or continued message is known by its event and rule: it finds its own actor
 * taken by itself and goes on.
 *
 * Bounded without a limit of its own: a message that waits here is still held by the bus, whose
 * lane limit counts taken messages. A second limit here could only deadlock: the continuation that
 * frees an actor may stand behind the messages that wait for it. */
#include "pipe/order.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "pipe/lock.h"

#define NONE UINT32_MAX

struct order_actor {
    uint64_t actor; /* 0: an empty place */
    uint64_t event;
    uint16_t rule;
    uint32_t first, last; /* those that wait */
};

struct order_waiting {
    struct bus_message message;
    uint32_t next;
};

void order_init(struct order *o)
{
    *o = (struct order){.free = NONE, .released_first = NONE, .released_last = NONE};
    o->actor_capacity = 64;
    o->actors = calloc(o->actor_capacity, sizeof *o->actors);
    CHECK(o->actors);
    lock_init(&o->intake);
    lock_init(&o->lock);
}

void order_done(struct order *o)
{
    free(o->actors);
    free(o->waiting);
    pthread_mutex_destroy(&o->lock);
    pthread_mutex_destroy(&o->intake);
}

/* ---- the table, under the lock ---- */

static size_t home_of(const struct order *o, uint64_t actor)
{
    return (size_t)hash_u64(actor) & (o->actor_capacity - 1);
}

/* The actor's place, or the empty one where it belongs. */
static struct order_actor *find(struct order *o, uint64_t actor)
{
    size_t at = home_of(o, actor);
    while (o->actors[at].actor && o->actors[at].actor != actor)
        at = (at + 1) & (o->actor_capacity - 1);
    return &o->actors[at];
}

static void grow(struct order *o)
{
    struct order_actor *old = o->actors;
    size_t old_capacity = o->actor_capacity;
    o->actor_capacity *= 2;
    o->actors = calloc(o->actor_capacity, sizeof *o->actors);
    CHECK(o->actors);
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i].actor)
            *find(o, old[i].actor) = old[i];
    }
    free(old);
}

/* Closes the gap, so that no search ends at it too early: each later one of the run moves into the
 * hole unless that would put it before its home. */
static void erase(struct order *o, struct order_actor *place)
{
    size_t mask = o->actor_capacity - 1;
    size_t hole = (size_t)(place - o->actors);
    for (size_t at = (hole + 1) & mask; o->actors[at].actor; at = (at + 1) & mask) {
        size_t home = home_of(o, o->actors[at].actor);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            o->actors[hole] = o->actors[at];
            hole = at;
        }
    }
    o->actors[hole] = (struct order_actor){0};
    o->actor_count--;
}

/* ---- those that wait, under the lock ---- */

static uint32_t keep(struct order *o, const struct bus_message *m)
{
    if (o->free == NONE) {
        size_t capacity = o->waiting_capacity ? o->waiting_capacity * 2 : 64;
        CHECK(capacity < NONE);
        struct order_waiting *grown = realloc(o->waiting, capacity * sizeof *grown);
        CHECK(grown);
        o->waiting = grown;
        for (size_t i = capacity; i-- > o->waiting_capacity;) {
            o->waiting[i].next = o->free;
            o->free = (uint32_t)i;
        }
        o->waiting_capacity = capacity;
    }
    uint32_t index = o->free;
    o->free = o->waiting[index].next;
    o->waiting[index].message = *m;
    o->waiting[index].next = NONE;
    return index;
}

static void append(struct order *o, uint32_t *first, uint32_t *last, uint32_t index)
{
    if (*last == NONE)
        *first = index;
    else
        o->waiting[*last].next = index;
    *last = index;
}

static uint32_t remove_first(struct order *o, uint32_t *first, uint32_t *last)
{
    uint32_t index = *first;
    *first = o->waiting[index].next;
    if (*first == NONE)
        *last = NONE;
    o->waiting[index].next = NONE;
    return index;
}

/* ---- the workers' side ---- */

/* 0 marks an empty place, and nobody's id. */
static uint64_t key_of(const struct bus_message *m)
{
    return m->event.actor ? m->event.actor : UINT64_MAX;
}

bool order_admit(struct order *o, const struct bus_message *m)
{
    uint64_t actor = key_of(m);
    pthread_mutex_lock(&o->lock);
    struct order_actor *place = find(o, actor);
    bool admitted = true;
    if (!place->actor) {
        if ((o->actor_count + 1) * 2 > o->actor_capacity) {
            grow(o);
            place = find(o, actor);
        }
        *place = (struct order_actor){actor, m->event.id, m->rule, NONE, NONE};
        o->actor_count++;
    } else if (place->event != m->event.id || place->rule != m->rule) {
        append(o, &place->first, &place->last, keep(o, m));
        admitted = false;
    }
    pthread_mutex_unlock(&o->lock);
    return admitted;
}

bool order_take(struct order *o, struct bus *bus, uint16_t lane, int64_t now_us, int keep_max,
                int *kept, struct bus_message *out)
{
    bool admitted = false;
    pthread_mutex_lock(&o->intake);
    while (!admitted && *kept < keep_max && bus_take(bus, lane, now_us, out)) {
        admitted = order_admit(o, out);
        *kept += !admitted;
    }
    pthread_mutex_unlock(&o->intake);
    return admitted;
}

bool order_next(struct order *o, struct bus_message *out)
{
    if (!order_has_next(o))
        return false;
    pthread_mutex_lock(&o->lock);
    bool found = o->released_first != NONE;
    if (found) {
        uint32_t index = remove_first(o, &o->released_first, &o->released_last);
        *out = o->waiting[index].message;
        o->waiting[index].next = o->free;
        o->free = index;
        atomic_fetch_sub(&o->released, 1);
    }
    pthread_mutex_unlock(&o->lock);
    return found;
}

bool order_finish(struct order *o, const struct bus_message *m)
{
    pthread_mutex_lock(&o->lock);
    struct order_actor *place = find(o, key_of(m));
    CHECK(place->actor && place->event == m->event.id && place->rule == m->rule);
    bool released = place->first != NONE;
    if (released) {
        uint32_t index = remove_first(o, &place->first, &place->last);
        const struct bus_message *next = &o->waiting[index].message;
        place->event = next->event.id;
        place->rule = next->rule;
        append(o, &o->released_first, &o->released_last, index);
        atomic_fetch_add(&o->released, 1);
    } else {
        erase(o, place);
    }
    pthread_mutex_unlock(&o->lock);
    return released;
}
