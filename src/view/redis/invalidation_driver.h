/* The inside of the invalidation listener, shared by its two files. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "view/redis/connections.h"
#include "view/redis/invalidation.h"

enum {
    INVALIDATION_PLACES = 1 << 18,
    INVALIDATION_PEERS_MAX = 2 * REDIS_NODES_MAX,
    PROBE_MAX = 80
};

struct redis_invalidation;

struct invalidation_peer {
    struct redis_invalidation *invalidation;
    char host[URL_HOST_MAX];
    int port;
    _Atomic uint64_t id;
    _Atomic bool wanted;

    /* under the invalidation listener's lock */
    unsigned refs;
    bool opening;
    int slot;     /* that it served when it was wanted; -1: there are none */
    int fd;       /* closed by the listener alone; -1: no connection */
    bool failed;  /* to be closed */
    bool awaited; /* the round trip waits for its answer */
    char probe[PROBE_MAX];
    size_t probe_len;
    int64_t opened_at_ms, retry_at_ms, retry_after_ms;

    struct buf in; /* the listener's: what is not yet a message */
};

struct redis_invalidation {
    struct invalidation invalidation;
    struct redis_url url;
    _Atomic uint32_t *places; /* how often something was changed whose key falls here */
    _Atomic uint64_t generation;
    _Atomic bool suspect;
    _Atomic uint64_t asked, round_trips, changes, lost;

    pthread_mutex_t lock; /* of what follows */
    struct invalidation_peer *peers[INVALIDATION_PEERS_MAX];
    size_t peer_count;
    struct invalidation_question *waiting, *flying; /* for the next round trip; for this one */
    struct invalidation_question **waiting_end;
    bool under_way, spoiled;
    size_t awaited; /* answers that the round trip waits for */
    int64_t began_at_ms;
    bool asleep;
    _Atomic bool stopping;
    pthread_cond_t wish; /* a connection is wanted */

    int epoll, wake;
    pthread_t listener, opener;
};

static inline struct redis_invalidation *redis_invalidation_of(struct invalidation *w)
{
    return (struct redis_invalidation *)w;
}

/* ---- invalidation_listener.c ---- */

void listener_start(struct redis_invalidation *w);
/* Answers the callers that still wait, and ends the threads. */
void listener_stop(struct redis_invalidation *w);
void listener_ask(struct invalidation *base, struct invalidation_question *q);
