/* The keys of ordered lanes that have work: which work item of a key is at work,
 * which ones wait for it, and whether the key is blocked because a delivery of
 * it is in the delivery store. Of one key one work item is at work at a time. Not
 * thread-safe: belongs to the inflight set, under its lock. */
#pragma once

#include "base/map.h"

#define ORDER_NONE UINT32_MAX

/* Work items in a row, linked by the inflight set. */
struct inflight_list {
    uint32_t first, last;
};

struct order_key {
    uint64_t key, lane; /* the actor; never 0 */
    uint32_t at_work;   /* work item; ORDER_NONE: none */
    uint32_t to_record; /* work items that wait to be put in the delivery store behind this key */
    struct inflight_list queue; /* work items that wait in memory */
    bool blocked; /* a delivery of this key is in the delivery store: nothing else may pass */
};

struct order {
    struct map keys;
    size_t blocked;
};

void order_init(struct order *o);
void order_done(struct order *o);

/* NULL: the key has no work. The pointer is valid until the next order_get or
 * order_drop. */
struct order_key *order_find(struct order *o, uint8_t lane, uint64_t key);
struct order_key *order_get(struct order *o, uint8_t lane, uint64_t key); /* made when missing */
void order_drop(struct order *o, struct order_key *key);
void order_block(struct order *o, struct order_key *key, bool blocked);
