/* The views and cards drivers for many nodes: Redis or Redis Cluster. Both outlive the process and
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
 * after one. A server without replicas has nothing to wait for. One that comes back from its files
 * may have less than it had: it counts as having lost everything.
 *
 * Reads do not wait for a server that is known to be away: they fail at once, and readers fall back
 * to truth. Writes wait for a failover.
 *
 * While a slot moves to another node, calls about the accounts in it wait for the end of that, at
 * most failover_wait_ms, and then fail: a script whose keys are partly here and partly there is
 * refused by both. A failover takes a little longer than the servers' cluster-node-timeout;
 * failover_wait_ms should be longer than both.
 *
 * Pages that a node keeps are checked by the invalidation listener, which uses CLIENT TRACKING and
 * RESP3. Redis remembers tracking-table-max-keys keys (a million) for all nodes, and forgets some
 * when there are more, which costs kept pages: a page has about fifty. */
#pragma once

#include "base/clock.h"
#include "port/cards.h"
#include "port/invalidation.h"
#include "port/page_source.h"
#include "port/views.h"

struct redis_config {
    const char *url;     /* redis://… or redis-cluster://…, see url.h */
    const char *store;   /* the store's id, at most 64 bytes: a Redis database belongs to one store,
                            and clear() takes away all that is in it; NULL: it is not asked */
    size_t timeline_cap; /* entries kept per timeline */
    size_t pull_cap;     /* ids kept per pull list */
    int64_t failover_wait_ms; /* how long a call waits for a dead master's replica; 0: 5 s */
    int64_t card_life_ms;     /* how long a card is kept; 0: a day */
    bool safe_pushes;         /* a push returns when a replica has it, too; about half as fast */
    struct clock *clock;
    struct invalidation *invalidation; /* NULL: no traces */
};

/* ERR_BAD_INPUT: the URL; ERR_UNAVAILABLE: no server answers there; ERR_CONFLICT: it holds the
 * views of another store, or something else that is not ours. loaded_position is VIEWS_LASTING when
 * what was found is complete, and 0 when it has to be loaded from truth. */
enum err views_redis_open(const struct redis_config *config, struct views **out);
enum err cards_redis_open(const struct redis_config *config, struct cards **out);
/* Reads first pages from these two. Freed before them. */
struct page_source *page_source_redis_new(struct views *views, struct cards *cards);
/* Opened before the two above and freed after them; needs the URL alone. The server need not answer
 * yet. */
enum err invalidation_redis_open(const struct redis_config *config, struct invalidation **out);
