/* Keeps the messages of one actor one after another in lanes where order matters (LANE_GRAPH:
 * a follow and the unfollow after it). The actor of a message that is being worked on, waits for
 * its retry or has its continuation on the bus is taken; messages that come for a taken actor wait
 * here, in the order they came, and are released one by one. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/bus.h"

struct order_actor;
struct order_waiting;

struct order {
    pthread_mutex_t intake; /* held over take and admit; before `lock` */
    pthread_mutex_t lock;
    struct order_actor *actors; /* open addressing, linear probing, at most half full */
    size_t actor_capacity, actor_count;
    struct order_waiting *waiting; /* a slab of messages that wait */
    size_t waiting_capacity;
    uint32_t free;
    uint32_t released_first, released_last; /* whose turn has come */
    _Atomic size_t released;
};

void order_init(struct order *o);
void order_done(struct order *o);

/* May this message, just taken from the bus, be worked on? No: it is kept here until its turn, and
 * stays taken on the bus. */
bool order_admit(struct order *o, const struct bus_message *m);
/* Takes the lane's next message that may be worked on. At most `keep_max` others are put aside on
 * the way; *kept counts them. Taking and admitting are one act: of two workers that each take a
 * message of one actor, the one that took first must also be admitted first. */
bool order_take(struct order *o, struct bus *bus, uint16_t lane, int64_t now_us, int keep_max,
                int *kept, struct bus_message *out);
/* A message whose turn has come. */
bool order_next(struct order *o, struct bus_message *out);
/* The message is done for good: acked, nothing of it left. True: another one's turn has come. */
bool order_finish(struct order *o, const struct bus_message *m);

static inline bool order_has_next(struct order *o)
{
    return atomic_load(&o->released) > 0;
}
