/* Connections to Redis: the nodes, a pool of connections to each, and which node serves which slot.
 *
 * Any thread. A connection that was taken belongs to one thread until it is given back. */
#pragma once

#include <hiredis/hiredis.h>

#include "base/err.h"
#include "view/redis/invalidation.h"
#include "view/redis/url.h"

struct connections;

enum {
    REDIS_NODES_MAX = 256,
    CONNECT_MS = 500,
    COMMAND_MS = 1000,      /* without a byte from the server: it is taken for dead */
    PROBE_MS = 300,         /* the first answer of a new connection */
    FAILOVER_WAIT_MS = 5000 /* how long a call waits for a dead master's replica */
};

struct connection {
    redisContext *context; /* of hiredis: the socket and the reader of replies */
    unsigned node, tenant;
    uint64_t tracking_id; /* the invalidation listener's connection that follows the reads here;
                             0: none */
    bool fresh;           /* opened for this caller: it did not come out of the pool */
    struct connection *next;
};

/* failover_wait_ms 0: the default. `w`: reads for a trace get connections that this invalidation
 * listener follows; NULL: no traces. Connects to nothing yet. */
struct connections *connections_new(const struct redis_url *url, int64_t failover_wait_ms,
                                    struct invalidation *w);
void connections_free(struct connections *l);

struct invalidation *connections_invalidation(const struct connections *l);
bool connections_is_cluster(const struct connections *l);
/* How long to wait for an answer: a cluster gets as long as a failover may take, a single server as
 * long as it may stay silent. */
int64_t connections_patience_ms(const struct connections *l);

/* The node that serves the slot, as far as is known; -1: not known. */
int connections_node_of(struct connections *l, uint16_t slot);
bool connections_has_replica(struct connections *l, unsigned node);
/* How often a master was found to be another process than before, at the same place: it may have
 * come back with less than it had. Known before the first answer of the new one is. */
uint64_t connections_restarts(const struct connections *l);
/* Every master; at most `max`. */
size_t connections_masters(struct connections *l, unsigned *nodes, size_t max);

/* Asks the cluster again who serves what. At most one caller does so at a time and not more often
 * than every few ms: the others come back at once. OK: the map may have changed. */
enum err connections_refresh(struct connections *l);
/* A node said that another serves the slot. `from`: who said so. Returns the other's index or
 * -1. */
int connections_moved(struct connections *l, unsigned from, uint16_t slot, struct str address,
                      bool for_good);

/* NULL: the node cannot be reached now. `tracked`: one with a tracking_id, if the invalidation
 * listener is connected to that node already; otherwise it soon will be, and this connection is a
 * plain one. */
struct connection *connections_take(struct connections *l, unsigned node, bool tracked);
void connections_give(struct connections *l, struct connection *c);
/* The connection failed, or does not answer. A silent or unreachable node is left alone for a
 * moment that grows; one that merely closed an old connection is not blamed. */
void connections_drop(struct connections *l, struct connection *c, bool silent);
/* For how long the node has been failing; 0: it is not. */
int64_t connections_down_for_ms(struct connections *l, unsigned node);
