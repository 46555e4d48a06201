/* The inside of the watch, shared by its two files. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "view/redis/link.h"
#include "view/redis/watch.h"

enum { WATCH_PLACES = 1 << 18, WATCH_PEERS_MAX = 2 * LINK_NODES_MAX, PROBE_MAX = 80 };

struct redis_watch;

struct watch_peer {
    struct redis_watch *watch;
    char host[URL_HOST_MAX];
    int port;
    _Atomic uint64_t id;
    _Atomic bool wanted;

    /* under the watch's lock */
    unsigned refs;
    bool opening;
    int slot;     /* that it served when it was wanted; -1: there are none */
    int fd;       /* closed by the listener alone; -1: no connection */
    bool failed;  /* to be closed */
    bool awaited; /* owes the journey an answer */
    char probe[PROBE_MAX];
    size_t probe_len;
    int64_t opened_at_ms, retry_at_ms, retry_after_ms;

    struct buf in; /* the listener's: what is not yet a message */
};

struct redis_watch {
    struct watch watch;
    struct redis_url url;
    _Atomic uint32_t *places; /* how often something was changed whose key falls here */
    _Atomic uint64_t generation;
    _Atomic bool doubted;
    _Atomic uint64_t asked, journeys, changes, lost;

    pthread_mutex_t lock; /* of what follows */
    struct watch_peer *peers[WATCH_PEERS_MAX];
    size_t peer_count;
    struct watch_question *waiting, *flying; /* for the next journey; for this one */
    struct watch_question **waiting_end;
    bool under_way, spoiled;
    size_t awaited; /* answers that the journey waits for */
    int64_t began_at_ms;
    bool asleep, stopping;
    pthread_cond_t wish; /* somebody wants a connection */

    int epoll, wake;
    pthread_t listener, opener;
};

static inline struct redis_watch *redis_watch_of(struct watch *w)
{
    return (struct redis_watch *)w;
}

/* ---- watch_news.c ---- */

void watch_news_start(struct redis_watch *w);
/* Answers whoever still asks, and ends the threads. */
void watch_news_stop(struct redis_watch *w);
void watch_news_ask(struct watch *base, struct watch_question *q);
