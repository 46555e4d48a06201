/* A map of keys with work. Bounded by what is in flight and by the keys in the delivery store. */
#include "pipe/order.h"

#include "base/check.h"

void order_init(struct order *o)
{
    *o = (struct order){0};
    map_init(&o->keys, sizeof(struct order_key), 2 * sizeof(uint64_t));
}

void order_done(struct order *o)
{
    map_done(&o->keys);
}

/* 0 is no id, and no key of a map. */
static uint64_t key_of(uint64_t key)
{
    return key ? key : UINT64_MAX;
}

struct order_key *order_find(struct order *o, uint8_t lane, uint64_t key)
{
    return map_find(&o->keys, (const uint64_t[]){key_of(key), lane});
}

struct order_key *order_get(struct order *o, uint8_t lane, uint64_t key)
{
    bool made;
    struct order_key *k = map_put(&o->keys, (const uint64_t[]){key_of(key), lane}, &made);
    CHECK(k);
    if (made)
        k->at_work = k->queue.first = k->queue.last = ORDER_NONE;
    return k;
}

void order_drop(struct order *o, struct order_key *key)
{
    order_block(o, key, false);
    map_remove(&o->keys, key);
}

void order_block(struct order *o, struct order_key *key, bool blocked)
{
    o->blocked += (size_t)blocked - (size_t)key->blocked;
    key->blocked = blocked;
}
