/* This process as one node of many: its number, its beat, the other nodes, whether it can do its
 * part (quarantine), and whether the views that all share are to be trusted.
 *
 * Two steps, each with a thread of its own, because each may wait for another server:
 *   beat   the store: the lease (node/leadership.h), the views' state, number and peers, the time
 *   views  Redis and RabbitMQ: does this node reach them; the leader loads views that lost
 * something All of it goes through a store handle of its own, so that no beat waits behind
 * requests. */
#pragma once

#include "base/clock.h"
#include "node/leadership.h"
#include "node/nodes.h"
#include "port/invalidation.h"

enum {
    MEMBER_TRUST_MS = 1500, /* the views are trusted for so long after the last look at truth */
    MEMBER_SUSPECT_MS =
        2500, /* a node that lost a change waits so long: then no node trusts them */
    MEMBER_QUARANTINE_MS = 3000, /* without views that others have, for so long */
};

/* What a node joins with. */
struct membership_config {
    struct db *control; /* owned by the caller, as everything here */
    struct clock *clock;
    struct following_clock *time; /* follows the store's time; NULL: it does not */
    struct cluster *cluster;      /* for the API: filled in here */
    uint64_t token;               /* membership_token */
    unsigned roles;
    const char *address; /* http://host:port; copied */
};

/* What its steps work with. */
struct membership_parts {
    struct db *db; /* truth: views are loaded from it */
    struct views *views;
    struct cards *cards;
    struct invalidation *invalidation;
    struct bus *bus;
    struct engine *engine;
    void (*pause)(void *ctx, int64_t ms); /* NULL: sleeps */
    void *pause_ctx;
};

struct membership {
    struct membership_config config;
    struct membership_parts parts;
    struct cluster *cluster;
    struct leadership leadership;
    struct node_watch *watch;

    struct node self;     /* the beat step's */
    int64_t node_beat_us; /* when the node's own beat is due */
    int64_t follow_us;    /* when the time is looked at again */
    int64_t lacking_since_us;
    int64_t log_after_us;

    _Atomic int64_t beaten_us;        /* our last beat that succeeded began then */
    _Atomic int64_t trusted_us;       /* the views' state in truth was last read then … */
    _Atomic uint64_t lost, loaded;    /* … as this */
    _Atomic int losing;               /* calls of membership_views_lost under way */
    _Atomic int64_t suspect_since_us; /* since then at least truth speaks of a loss … */
    _Atomic uint64_t
        suspect_load; /* … that is not made good by this load, nor was by a later one */
    _Atomic bool views_there, views_complete, bus_there;
};

/* The number that means this data folder, so that a restart gets its node's number back. */
enum err membership_token(const char *folder, uint64_t *token, char why[300]);
/* Joins: takes a number. Blocking. */
enum err membership_join(struct membership *m, const struct membership_config *config,
                         char why[300]);
/* Before the steps. */
void membership_attach(struct membership *m, const struct membership_parts *parts);
void membership_set_address(struct membership *m, const char *address); /* before the steps */

int64_t membership_beat_step(struct membership *m);
int64_t membership_views_step(struct membership *m);

/* Reads what truth says of the views. Blocking. */
enum err membership_look_at_views(struct membership *m);
/* A committed change could not be applied to the views. Returns when no node trusts them any more.
 * Blocking. */
void membership_views_lost(struct membership *m);
/* Decides whether to trust the views, by the last reading and its age. Any thread, often. */
void membership_decide_trust(struct membership *m);

/* Undone events, as the leader last reported. */
uint64_t membership_undone(struct membership *m);

/* After the steps have ended: gives the lease back and says good-bye. */
void membership_leave(struct membership *m);
void membership_done(struct membership *m);
