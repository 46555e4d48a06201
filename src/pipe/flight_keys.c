/* The order keys of the flight, as the books see them: which are blocked, and which go on. */
#include "base/check.h"
#include "pipe/flight.h"

void flight_block(struct flight *f, enum lane lane, uint64_t key)
{
    pthread_mutex_lock(&f->lock);
    order_block(&f->order, order_get(&f->order, (uint8_t)lane, key), true);
    pthread_mutex_unlock(&f->lock);
}

static void unblock(struct flight *f, struct order_key *key)
{
    if (key->held > 0 || key->at_work != ORDER_NONE)
        return; /* what is held will be on the books in a moment */
    order_drop(&f->order, key);
}

void flight_unblock(struct flight *f, enum lane lane, uint64_t key)
{
    pthread_mutex_lock(&f->lock);
    struct order_key *place = order_find(&f->order, (uint8_t)lane, key);
    if (place && place->blocked)
        unblock(f, place);
    pthread_mutex_unlock(&f->lock);
}

void flight_recheck(struct flight *f, bool (*is_open)(void *ctx, enum lane lane, uint64_t key),
                    void *ctx)
{
    pthread_mutex_lock(&f->lock);
    /* Dropping closes the gap with later ones, so a place is looked at again
     * after it. */
    for (size_t i = 0; i < f->order.capacity;) {
        struct order_key *place = &f->order.places[i];
        size_t before = f->order.count;
        if (place->key && place->blocked && !is_open(ctx, (enum lane)place->lane, place->key))
            unblock(f, place);
        i += f->order.count == before;
    }
    pthread_mutex_unlock(&f->lock);
}
