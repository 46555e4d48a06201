/* One event loop: a thread, its listeners, its connections by state, its spare exchanges, and the
 * inbox through which other threads hand it answers. Everything in it but the inbox, the stop wish
 * and the counters is touched by its own thread only (and before the thread starts). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "base/sync.h"
#include "net/exchange.h"
#include "net/http.h"

enum {
    READ_BUFFER_SIZE = 64 * 1024,
    SPARE_EXCHANGES_MAX = 128,
    REFUSED_MAX = 64,               /* connections over the limit that are told so at a time */
    BODIES_MAX = 64 * 1024 * 1024,  /* request bodies held by one loop */
    UNSENT_MAX = 256 * 1024 * 1024, /* answers that wait in one loop for slow readers */
};

/* The states in which a connection waits, each with its own list and its own limit on waiting. */
enum conn_state {
    CONN_NEW,    /* nothing came yet */
    CONN_IDLE,   /* between requests */
    CONN_HEAD,   /* part of a head is there */
    CONN_BODY,   /* the head is there, the body is not */
    CONN_BUSY,   /* the handler has the exchange */
    CONN_WRITE,  /* the answer does not fit the socket's buffer */
    CONN_LINGER, /* answered and shut down for writing: discards until the peer has read it */
    CONN_STREAM, /* a stream of which nothing is on its way; the one that was silent longest first
                  */
    CONN_STREAM_WRITE, /* a stream that does not fit the socket's buffer */
    CONN_STATES,
    CONN_CLOSING = CONN_STATES,
};

struct conn_list {
    struct conn *first, *last; /* oldest first */
};

#define LOOP_COUNTERS(X)                                                                           \
    X(accepted) X(refused) X(requests) X(bad_requests) X(bytes_in) X(bytes_out) X(timeouts)

struct loop {
    struct http_config config;
    unsigned index;
    _Atomic unsigned *connections; /* of the whole server */
    struct peers *peers;           /* of the whole server; NULL: not counted */

    uv_loop_t uv;
    uv_async_t wake;
    uv_timer_t tick;
    uv_tcp_t listener;
    uv_pipe_t control;
    bool has_listener, has_control;
    struct thread thread;

    struct conn_list conns[CONN_STATES];
    size_t conn_count; /* those in uv_close, too */
    struct exchange *spare_exchanges;
    unsigned spare_exchange_count;

    struct exchange *current; /* the one whose handler is running */
    uint64_t handed_out;      /* exchanges that handlers have and did not answer yet */
    size_t body_held;
    size_t unsent;
    struct date_line date;

    int64_t ticked_ms;

    bool draining;
    bool finishing;
    unsigned drain_ticks;
    int64_t drain_until_ms;

    _Atomic bool stop_wanted;
    _Atomic int64_t stop_grace_ms;

    _Atomic(struct exchange *) inbox; /* newest first, or INBOX_CLOSED */
    _Atomic(struct stream *) streams; /* those to look at, newest first */
    _Atomic unsigned senders;         /* threads inside post_answer and loop_post_stream */
    _Atomic unsigned refs; /* the server, and each exchange still out when the thread ended */

#define LOOP_COUNTER(name) _Atomic uint64_t name;
    LOOP_COUNTERS(LOOP_COUNTER)
#undef LOOP_COUNTER

    char read_buffer[READ_BUFFER_SIZE];
};

/* Only the loop's thread writes its counters: no locked instruction is needed. */
#define LOOP_COUNT(loop, name, n)                                                                  \
    atomic_store_explicit(&(loop)->name,                                                           \
                          atomic_load_explicit(&(loop)->name, memory_order_relaxed) + (n),         \
                          memory_order_relaxed)

/* Takes over the sockets (-1: none), also when it fails. */
enum err loop_new(const struct http_config *config, unsigned index, _Atomic unsigned *connections,
                  struct peers *peers, int listen_fd, int control_fd, struct loop **out);
void loop_run(struct loop *loop); /* returns after loop_stop, when everything is closed */
void loop_stop(struct loop *loop, int64_t grace_ms); /* any thread */
void loop_unref(struct loop *loop);

/* Asks the loop to look at a stream, whose reference goes along. Any thread; the caller has called
 * loop_sender_begins() at a moment when the stream had not ended, so that the loop is there. */
void loop_post_stream(struct loop *loop, struct stream *s);
static inline void loop_sender_begins(struct loop *loop)
{
    atomic_fetch_add(&loop->senders, 1);
}

/* ---- for connections ---- */

struct exchange *loop_take_exchange(struct loop *loop);
void loop_recycle_exchange(struct loop *loop, struct exchange *e);
int64_t loop_now_ms(const struct loop *loop); /* as of this turn of the loop */
const struct date_line *loop_date(struct loop *loop);
void loop_conn_closed(struct loop *loop);
