/* What the dispatcher keeps for itself: counters per route, idempotency keys in progress, the
 * rendered documents. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "api/edge/idempotency.h"
#include "api/edge/routes.h"
#include "base/hist.h"
#include "model/subscriber.h"

struct route_stats {
    _Atomic uint64_t by_class[6]; /* answers 1xx … 5xx; [0] is never used */
    struct hist took_us;          /* from the whole request to the answer */
};

struct forward;

struct dispatcher {
    struct idempotency *keys;
    struct forward *forward;    /* api/edge/forward.h */
    bool log_requests;          /* every request, not only slow and failed ones */
    json_t *fields[ROUTES_MAX]; /* by route: the fields of its JSON body; NULL: any */
    struct buf openapi;
    struct buf docs;
    _Atomic uint64_t shed;     /* answered 503 because a queue was full */
    _Atomic uint64_t limited;  /* answered 429 */
    _Atomic uint64_t guarded;  /* answered 503 because the store is at risk */
    _Atomic uint64_t repeated; /* answered from an idempotency key */
    pthread_mutex_t ages_lock; /* of the next two, which metrics keep for a few seconds */
    struct subscriber_ages ages;
    int64_t ages_at_us;                        /* 0: never */
    struct route_stats routes[ROUTES_MAX + 1]; /* by index in the table; [route_count]: no route */
};

/* Writes an error as application/problem+json into the answer. `detail` may be "". */
void problem_write(struct http_exchange *x, enum err kind, const char *detail);

/* openapi.c, docs.c: both from the route table. */
void openapi_render(struct buf *out);
void docs_render(struct buf *out);
