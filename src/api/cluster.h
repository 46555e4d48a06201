/* What the API knows of the other nodes, and how it passes a request on. Filled in by cmd/; a
 * server that is alone has none (api->cluster is NULL). */
#pragma once

#include <stdatomic.h>

#include "pipe/nodes.h"

enum { CLUSTER_ADDRESS_MAX = NODE_TEXT_MAX };

/* How this node finds the servers that it works with. */
enum part_state {
    PART_UP,
    PART_DOUBTED, /* it answers, but reads go to truth until it was loaded anew */
    PART_AWAY,
};

struct cluster {
    unsigned roles;           /* of this node: enum node_role */
    uint32_t number;          /* of this node */
    struct node_watch *watch; /* everybody */
    _Atomic bool leads;       /* does this node lead? */
    _Atomic bool aside; /* this node cannot do its part (no views while others have them, no beat):
                           it refuses writes, and /readyz says so */
    _Atomic uint64_t term;
    /* Where the leader is, "" when nobody leads. Any thread. */
    void (*leader)(void *ctx, char address[CLUSTER_ADDRESS_MAX], uint32_t *number);
    void *ctx;
    _Atomic uint64_t forwarded, forward_failed; /* requests passed on to the leader */
    _Atomic uint64_t views_lost;                /* how often the views had to be loaded anew */
    /* enum part_state of each, as cmd/ last found them; for /readyz, metrics and status */
    _Atomic int db_state, views_state, bus_state;
    const char *views_kind, *bus_kind,
        *db_kind; /* "redis", "redis-cluster", "memory" …: for status */
};
