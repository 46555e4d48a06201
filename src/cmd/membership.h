/* This process as one node of many: its number, its beat, the lease of whoever leads, the state of
 * the views that all share, and the time that all go by.
 *
 * Three steps, each with a thread of its own, because each may wait for another server:
 *   beat   the store: number, lease, other nodes, whether the views are to be trusted, the time
 *   lead   makes the engine lead or resign as the lease says
 *   views  Redis and RabbitMQ: are they there, and, at the leader, loads the views when they have
 *          lost something
 * All of it goes through a store handle of its own, so that no beat waits behind requests. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "api/api.h"
#include "api/cluster.h"
#include "base/clock.h"
#include "pipe/lease.h"
#include "pipe/nodes.h"

enum {
    MEMBER_TRUST_MS = 1500, /* the views are trusted for so long after the last look at truth */
    MEMBER_DOUBT_MS = 2500, /* who lost something waits for so long: then nobody trusts them */
};

struct membership {
    const struct settings *settings;
    struct api *api;
    struct db *control;
    struct bus *bus;
    struct following_clock *time;
    struct cluster cluster;
    char kinds[3][24];

    struct node self;     /* the beat step's */
    struct lease lease;   /* the beat step's; others look through `held_until_us` */
    int64_t node_beat_us; /* when the node's own beat is due */
    int64_t follow_us;    /* when the time is looked at again */
    int64_t aside_since_us;
    int64_t log_after_us;

    _Atomic int64_t held_until_us; /* the lease is ours until then; 0: it is not */
    _Atomic uint64_t held_term;
    _Atomic uint64_t leading_term; /* the engine's */
    _Atomic uint64_t spent_term;   /* it had to resign in this one: what was noted in it is void */
    _Atomic int64_t beaten_us;     /* our last beat that succeeded began then */
    _Atomic int64_t trusted_us;    /* the views' state in truth was last read then … */
    _Atomic uint64_t lost, loaded; /* … as this */
    _Atomic int losing;            /* calls of membership_views_lost under way */
    _Atomic int64_t doubted_us;    /* since then at least truth speaks of a loss … */
    _Atomic uint64_t
        doubted_load; /* … that is not made good by this load, nor was by a later one */
    _Atomic bool views_there, views_complete, bus_there;
    _Atomic bool stopping, yielding; /* yielding: we cannot do a leader's part */

    pthread_mutex_t lock; /* of what follows */
    char leader_address[CLUSTER_ADDRESS_MAX];
    uint32_t leader_number;
};

/* Joins: takes a number, and sets the ids' node. `control` is owned from here on. The token is kept
 * in the data folder, so that a restart gets its number back. Blocking. */
enum err membership_join(struct membership *m, const struct settings *settings, struct db *control,
                         struct following_clock *time, struct id_gen *ids, char why[300]);
/* Before the steps: what they work with. */
void membership_attach(struct membership *m, struct api *api, struct bus *bus);

/* The port is known: where other nodes reach this one, unless the settings say otherwise. */
void membership_listens(struct membership *m, uint16_t port);

int64_t membership_beat_step(void *m);
int64_t membership_lead_step(void *m);
int64_t membership_views_step(void *m);

/* The commit hook could not apply something to the views. Returns when no node trusts them any
 * more. Blocking. */
void membership_views_lost(struct membership *m);

/* Undone events, as the leader last told everybody. */
uint64_t membership_undone(struct membership *m);

/* After the steps have ended: gives the lease back and says good-bye. */
void membership_leave(struct membership *m);
void membership_done(struct membership *m);
