/* Two nodes in one process, each a whole API behind a real HTTP server, over one store: `first`
 * leads, `second` does not, until a test says otherwise. */
#pragma once

#include <jansson.h>

#include "api/edge/api.h"
#include "api/edge/cluster.h"
#include "api/edge/forward.h"
#include "net/http_client.h"

struct world;

struct member {
    struct api api;
    struct cluster cluster;
    struct http_server *server;
    char control[100];
    char address[CLUSTER_ADDRESS_MAX]; /* http://127.0.0.1:port */
};

struct pair {
    struct member first, second;
    /* what every node believes about the leader; "": there is none */
    char leader[CLUSTER_ADDRESS_MAX];
    uint32_t leader_number;
    struct cluster_node nodes[4]; /* as every node knows them */
    size_t node_count;
    char admin[80], reader[80]; /* API keys with admin and with admin:read */
};

extern struct pair pair;

struct world *pair_world(void);

int pair_open(void **state);  /* a test's setup */
int pair_close(void **state); /* its teardown */

/* One request to a member; `token` may be NULL. The answer stays until the next one. */
struct told {
    int status;
    struct buf body; /* NUL-terminated */
    json_t *json;    /* NULL: it is none */
    char retry_after[32], type[64], forwarded[32];
};
extern struct told told;
int ask(struct member *m, const char *method, const char *target, const char *token,
        const char *body);
int ask_control(struct member *m, const char *method, const char *target, const char *body);
/* With header lines of one's own. */
int ask_with(struct member *m, const char *method, const char *target, const char *headers,
             const char *body);
int64_t told_number(const char *object, const char *key); /* `object` NULL: the answer itself */
const char *told_text(const char *object, const char *key);
