/* A lane's gate: how many batches at a time, how many a second. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "pipe/bucket.h"
#include "port/rule.h"

enum { LANE_BURST_PARTS = 20 }; /* see bucket.h */

#define LANE_DEFAULT_RATE UINT32_MAX

struct lane_gate {
    pthread_mutex_t lock;
    uint32_t concurrency; /* of all nodes together … */
    uint32_t places;      /* … and of this one */
    uint32_t rank, nodes; /* of this one among those that work; nodes 0: there is no other */
    uint32_t busy;
    struct bucket bucket;
};

/* concurrency 0 and rate LANE_DEFAULT_RATE: as in the lane table. */
void lane_gate_init(struct lane_gate *gate, enum lane lane, uint32_t concurrency, uint32_t rate,
                    int64_t now_us);
void lane_gate_done(struct lane_gate *gate);
void lane_gate_set(struct lane_gate *gate, enum lane lane, uint32_t concurrency, uint32_t rate,
                   int64_t now_us);

/* This node is the `rank`-th of `nodes` that work. The places of a lane for views are divided among
 * them, and each has one at least: a node must be able to work on what the bus gave it. The other
 * lanes' places are not: of those the leader sends out no more than may run at a time. */
void lane_gate_share(struct lane_gate *gate, enum lane lane, uint32_t rank, uint32_t nodes);

/* Takes one of the places and up to `want` tokens; 0: none. *due_us is then
 * lowered to the time of the next token, when it is a token that lacks (a place
 * comes free by lane_gate_leave). */
uint32_t lane_gate_enter(struct lane_gate *gate, int64_t now_us, uint32_t want, int64_t *due_us);
/* Gives the place and the unused tokens back. True: all places were taken, so another thread may
 * wait. */
bool lane_gate_leave(struct lane_gate *gate, uint32_t unused);

void lane_gate_look(struct lane_gate *gate, uint32_t *concurrency, uint32_t *rate, uint32_t *busy);
