/* A hash table of keys with work. Bounded by what is in flight and by the keys
 * on the books. */
#include "pipe/order.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"

void order_init(struct order *o)
{
    *o = (struct order){.capacity = 64};
    o->places = calloc(o->capacity, sizeof *o->places);
    CHECK(o->places);
}

void order_done(struct order *o)
{
    free(o->places);
    *o = (struct order){0};
}

/* 0 marks an empty place, and nobody's id. */
static uint64_t key_of(uint64_t key)
{
    return key ? key : UINT64_MAX;
}

static size_t home_of(const struct order *o, uint8_t lane, uint64_t key)
{
    return (size_t)hash_u64(key + lane * UINT64_C(0x9e3779b97f4a7c15)) & (o->capacity - 1);
}

/* The key's place, or the empty one where it belongs. */
static struct order_key *place_of(struct order *o, uint8_t lane, uint64_t key)
{
    size_t at = home_of(o, lane, key);
    while (o->places[at].key && (o->places[at].key != key || o->places[at].lane != lane))
        at = (at + 1) & (o->capacity - 1);
    return &o->places[at];
}

struct order_key *order_find(struct order *o, uint8_t lane, uint64_t key)
{
    struct order_key *place = place_of(o, lane, key_of(key));
    return place->key ? place : NULL;
}

static void grow(struct order *o)
{
    struct order_key *old = o->places;
    size_t old_capacity = o->capacity;
    o->capacity *= 2;
    o->places = calloc(o->capacity, sizeof *o->places);
    CHECK(o->places);
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i].key)
            *place_of(o, old[i].lane, old[i].key) = old[i];
    }
    free(old);
}

struct order_key *order_get(struct order *o, uint8_t lane, uint64_t key)
{
    struct order_key *place = place_of(o, lane, key_of(key));
    if (place->key)
        return place;
    if ((o->count + 1) * 2 > o->capacity) {
        grow(o);
        place = place_of(o, lane, key_of(key));
    }
    *place = (struct order_key){.key = key_of(key),
                                .lane = lane,
                                .at_work = ORDER_NONE,
                                .first = ORDER_NONE,
                                .last = ORDER_NONE};
    o->count++;
    return place;
}

/* Closes the gap, so that no search ends at it too early: each later one of the
 * run moves into the hole unless that would put it before its home. */
void order_drop(struct order *o, struct order_key *place)
{
    order_block(o, place, false);
    size_t mask = o->capacity - 1;
    size_t hole = (size_t)(place - o->places);
    for (size_t at = (hole + 1) & mask; o->places[at].key; at = (at + 1) & mask) {
        size_t home = home_of(o, o->places[at].lane, o->places[at].key);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            o->places[hole] = o->places[at];
            hole = at;
        }
    }
    o->places[hole] = (struct order_key){0};
    o->count--;
}

void order_block(struct order *o, struct order_key *place, bool blocked)
{
    if (place->blocked == blocked)
        return;
    place->blocked = blocked;
    if (blocked)
        o->blocked++;
    else
        o->blocked--;
}
