/* Whether this node leads: the lease, its terms, beginning and resigning.
 *
 *   leadership_beat   talks with the store: looks at the lease, takes it when it is free, renews it
 *                     and publishes to all nodes who leads and how its lanes are set
 *   leadership_step   waits for nothing: makes the engine lead or resign as the lease says
 *
 * Each has one caller at a time, and each caller its own thread: a beat that hangs does not keep
 * the step from noticing that the lease's time is over. The fence of a leader's writes is
 * lease_fence_engine. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "api/edge/cluster.h"
#include "node/lease.h"
#include "pipe/engine.h"

struct leadership_config {
    struct engine *engine;
    struct db *store; /* blocking; not the one that requests wait for */
    struct clock *clock;
    struct cluster *cluster; /* `leads` and `term` are written here */
    uint64_t token;          /* of this node: never 0 */
    uint32_t number;
};

struct leadership {
    struct leadership_config config;
    struct lease lease;            /* the beat's alone */
    _Atomic bool willing;          /* may this node lead? */
    _Atomic int64_t held_until_us; /* the lease is ours until then; 0: it is not */
    _Atomic uint64_t held_term;
    _Atomic uint64_t leading_term; /* the engine's */
    _Atomic uint64_t spent_term;   /* it had to resign in this one: its notes are void */
    pthread_mutex_t lock;          /* of what follows */
    char leader_address[CLUSTER_ADDRESS_MAX];
    uint32_t leader_number;
};

void leadership_init(struct leadership *l, const struct leadership_config *config);
void leadership_done(struct leadership *l);

/* May it lead? Not without the role, while another node can do it better, or when it stops. */
void leadership_set_willing(struct leadership *l, bool willing);
/* `address`: where others reach this node. Due every LEASE_BEAT_MS. Blocking. */
enum err leadership_beat(struct leadership *l, const char *address);
int64_t leadership_step(struct leadership *l);
/* After both have ended: resigns and gives the lease back. Blocking. */
enum err leadership_end(struct leadership *l);

/* Any thread. */
uint64_t leadership_term(struct leadership *l); /* of the lease that we hold; 0: we do not */
void leadership_leader(struct leadership *l, char address[CLUSTER_ADDRESS_MAX], uint32_t *number);
