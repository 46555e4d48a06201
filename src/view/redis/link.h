/* Connections to Redis: the nodes, a pool of connections to each, and which node serves which slot.
 *
 * Any thread. A connection that was taken belongs to one thread until it is given back. */
#pragma once

#include <hiredis/hiredis.h>

#include "base/err.h"
#include "view/redis/url.h"
#include "view/redis/watch.h"

struct link;

enum {
    LINK_NODES_MAX = 256,
    LINK_CONNECT_MS = 500,
    LINK_COMMAND_MS = 1000,      /* without a byte from the server: it is taken for dead */
    LINK_PROBE_MS = 300,         /* the first answer of a new connection */
    LINK_FAILOVER_WAIT_MS = 5000 /* how long a call waits for a dead master's replica */
};

struct connection {
    redisContext *context; /* of hiredis: the socket and the reader of replies */
    unsigned node, tenant;
    uint64_t watch_id; /* the watch's connection that hears of what is read here; 0: nobody does */
    bool fresh;        /* opened for this caller: it did not come out of the pool */
    struct connection *next;
};

/* failover_wait_ms 0: the default. Asks nothing yet. */
struct link *link_new(const struct redis_url *url, int64_t failover_wait_ms);
void link_free(struct link *l);
/* Those who read for a trace get connections that this watch hears of; before anything is taken. */
void link_set_watch(struct link *l, struct watch *w);
struct watch *link_watch(const struct link *l); /* NULL: nobody notes what is read */
/* A connection of its own, logged in, with LINK_PROBE_MS for each answer; NULL: unreachable. */
redisContext *link_open_context(const struct redis_url *url, const char *host, int port);

bool link_is_cluster(const struct link *l);
int64_t link_failover_wait_ms(const struct link *l);

/* The node that serves the slot, as far as is known; -1: not known. */
int link_node_of(struct link *l, uint16_t slot);
bool link_has_replica(struct link *l, unsigned node);
/* How often a master was found to be another process than before, at the same place: it may have
 * come back with less than it had. Known before the first answer of the new one is. */
uint64_t link_restarts(const struct link *l);
/* Every master; at most `max`. */
size_t link_masters(struct link *l, unsigned *nodes, size_t max);

/* Asks the cluster again who serves what. At most one caller does so at a time and not more often
 * than every few ms: the others come back at once. OK: the map may have changed. */
enum err link_refresh(struct link *l);
/* A node said that another serves the slot. `from`: who said so. Returns the other's index or
 * -1. */
int link_moved(struct link *l, unsigned from, uint16_t slot, struct str address, bool for_good);

/* NULL: the node cannot be reached now. `watched`: one with a watch_id, if the watch hears from
 * that node already; otherwise it soon will, and this one is like any other. */
struct connection *link_take(struct link *l, unsigned node, bool watched);
void link_give(struct link *l, struct connection *c);
/* The connection failed, or does not answer. A silent or unreachable node is left alone for a
 * moment that grows; one that merely closed an old connection is not blamed. */
void link_drop(struct link *l, struct connection *c, bool silent);
/* For how long the node has been failing; 0: it is not. */
int64_t link_down_for_ms(struct link *l, unsigned node);
