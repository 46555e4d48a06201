/* The views and cards engines for many nodes: Redis or Redis Cluster. Both outlive the process and
 * are shared by all nodes.
 *
 * Redis 7.0 or later. It must not evict what belongs to the views: set maxmemory-policy to
 * noeviction or to volatile-lru (only cards have a time to live). Timelines are four to six times
 * smaller with `zset-max-listpack-entries 1024`.
 *
 * Redis copies to its replicas after it has answered. Changes of the graph, rebuilds, backfills and
 * whatever removes something wait until a replica has them, at most 100 ms; pushes do so only when
 * asked to (safe_pushes). Otherwise views_save() is a barrier for them: what was pushed before a
 * save that succeeded survives a failover, and what was pushed since has to be delivered again
 * after one.
 *
 * While a slot moves to another node, calls about the accounts in it wait for the end of that, at
 * most failover_wait_ms, and then fail: a script whose keys are partly here and partly there is
 * refused by both. A failover takes a little longer than the servers' cluster-node-timeout;
 * failover_wait_ms should be longer than both. */
#pragma once

#include "base/clock.h"
#include "port/cards.h"
#include "port/views.h"

struct redis_config {
    const char *url;          /* redis://… or redis-cluster://…, see url.h */
    size_t timeline_cap;      /* entries kept per timeline */
    size_t pull_cap;          /* ids kept per pull list */
    int64_t failover_wait_ms; /* how long a call waits for a dead master's replica; 0: 5 s */
    int64_t card_life_ms;     /* how long a card is kept; 0: a day */
    bool safe_pushes;         /* a push returns when a replica has it, too; about half as fast */
    struct clock *clock;
};

/* ERR_BAD_INPUT: the URL; ERR_UNAVAILABLE: nobody answers there. loaded_position is VIEWS_LASTING
 * when what was found is complete, and 0 when it has to be loaded from truth. */
enum err views_redis_open(const struct redis_config *config, struct views **out);
/* Everything in truth has been applied: from now on answers are given, by every node. */
enum err views_redis_loaded(struct views *v);
/* Is everything still there? Redis may be flushed, or a node of it come back empty, at any time:
 * views then send their readers to truth until somebody loads them again. */
enum err views_redis_is_complete(struct views *v, bool *complete);

enum err cards_redis_open(const struct redis_config *config, struct cards **out);
