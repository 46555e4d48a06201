/* The keys of ordered lanes that have work: which unit of a key is at work,
 * which ones wait for it, and whether the key is blocked because a delivery of
 * it is on the books. Of one key one unit is at work at a time. Not
 * thread-safe: belongs to the flight, under its lock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORDER_NONE UINT32_MAX

struct order_key {
    uint64_t key;         /* the actor; 0: an empty place */
    uint32_t at_work;     /* unit; ORDER_NONE: none */
    uint32_t held;        /* units that wait to be put on the books behind this key */
    uint32_t first, last; /* units that wait in memory, linked by the caller */
    uint8_t lane;
    bool blocked; /* a delivery of this key is on the books: nothing else may pass
                   */
};

struct order {
    struct order_key *places; /* open addressing, linear probing, at most half full */
    size_t capacity, count;
    size_t blocked;
};

void order_init(struct order *o);
void order_done(struct order *o);

/* NULL: the key has no work. The pointer is valid until the next order_get or
 * order_drop. */
struct order_key *order_find(struct order *o, uint8_t lane, uint64_t key);
struct order_key *order_get(struct order *o, uint8_t lane, uint64_t key); /* made when missing */
void order_drop(struct order *o, struct order_key *place);
void order_block(struct order *o, struct order_key *place, bool blocked);
