/* What the API knows of the nodes that share one store, and how it passes a request on. node/ fills
 * it in; a server that is alone has none (api->cluster is NULL). */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CLUSTER_ADDRESS_MAX = 256,
    CLUSTER_VERSION_MAX = 32,
    CLUSTER_GONE_MS = 5000, /* a node that is silent for so long is shown as gone */
};

/* The store keeps the bits. Bit 8 was a role that did nothing. */
enum node_role { ROLE_API = 1, ROLE_RELAY = 2, ROLE_WORKER = 4, ROLE_ALL = 7 };

/* What a node says of itself with each beat. Not known: it said nothing, or nothing that this
 * program understands; then nothing else is true of it. */
struct node_report {
    bool known, views, bus, leads, quarantined; /* views, bus: it reaches them */
    uint64_t undone;                            /* events, at a leader */
};

struct cluster_node {
    uint32_t number;
    unsigned roles;                    /* enum node_role */
    char address[CLUSTER_ADDRESS_MAX]; /* http://host:port for other nodes; "": none */
    char version[CLUSTER_VERSION_MAX];
    int64_t started_ms;
    int64_t silent_ms; /* since this node last saw its beat move */
    bool leaving;      /* it is shutting down, or has */
    struct node_report report;
};

/* How this node finds the servers that it works with. */
enum part_state {
    PART_UP,
    PART_SUSPECT, /* it answers, but reads go to truth until it was loaded anew */
    PART_AWAY,
};

struct cluster {
    unsigned roles;           /* of this node: enum node_role */
    uint32_t number;          /* of this node */
    _Atomic bool leads;       /* does this node lead? */
    _Atomic bool quarantined; /* this node cannot do its part (no views while others have them, no
                                 beat): it refuses writes, and /readyz says so */
    _Atomic uint64_t term;    /* of the leader, as this node knows it */
    /* Any thread. `leader`: the leader's address, "" when no node leads. `nodes`: copies at most
     * `max` of all nodes, by number, and returns how many there are. */
    void (*leader)(void *ctx, char address[CLUSTER_ADDRESS_MAX], uint32_t *number);
    size_t (*nodes)(void *ctx, struct cluster_node *out, size_t max);
    void *ctx;
    _Atomic uint64_t forwarded, forward_failed; /* requests passed on to the leader */
    _Atomic uint64_t views_lost;                /* how often the views had to be loaded anew */
    /* enum part_state of each, as node/ last found them; for /readyz, metrics and status */
    _Atomic int db_state, views_state, bus_state;
    const char *views_kind, *bus_kind,
        *db_kind; /* "redis", "redis-cluster", "memory" …: for status */
};

enum { ROLES_TEXT_MAX = 64 };
const char *role_name(enum node_role role);
void roles_format(unsigned roles, char out[ROLES_TEXT_MAX]); /* "api,worker" */
