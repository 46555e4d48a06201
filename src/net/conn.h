/* One connection: reads requests, keeps them in order, sends answers, and meets every limit on
 * waiting. Belongs to one loop and its thread. */
#pragma once

#include "net/loop.h"
#include "net/stream.h"

struct conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    struct loop *loop;
    struct conn *prev, *next; /* in its state's list */
    struct exchange *x;       /* the request being read, handled or answered; NULL when idle */
    struct buf backlog;       /* bytes that came while a request was in flight */
    size_t backlog_used;
    struct stream *stream; /* STREAM, STREAM_WRITE */
    int64_t since_ms;      /* when the state began; WRITE: of the last progress */
    int64_t answered_ms;   /* WRITE: when it began */
    size_t answer_bytes;   /* … with so much to send */
    uint64_t peer_key;     /* counted among its address's connections, if `counted` */
    size_t progress;       /* BODY, LINGER: bytes that came; WRITE, STREAM_WRITE: bytes left */
    uint32_t stray;        /* bytes that came from the reader of a stream */
    uint8_t state;
    uint8_t peer_len;
    bool control;
    bool counted;
    bool proxied; /* the peer is a trusted proxy */
    bool reading;
    bool eof;     /* the peer will send no more */
    bool feeding; /* inside feed(), which continues by itself after an answer */
    bool keep;    /* the connection stays open after the present answer */
    bool linger;  /* before closing, let the peer read the answer */
    bool parting; /* a stream to which goodbye was said, because the loop ends */
    char peer[PEER_TEXT_MAX];
};

void conn_accept(struct loop *loop, uv_stream_t *listener, bool control);
void conn_close(struct conn *c);
/* The exchange is answered: send it. On the loop's thread. */
void conn_answer(struct exchange *e);
/* Closes or answers connections that exceed a limit on waiting. Called a few times a second. */
void conn_check_timeouts(struct loop *loop);
/* For draining. */
void conn_close_idle(struct loop *loop); /* those between requests */
void conn_close_all(struct loop *loop);

/* ---- streams (conn_stream.c) ---- */

/* Something waits in it, or it must end. On the loop's thread. */
void conn_stream_look(struct stream *s);
/* Says goodbye to streams, to a bounded number of them. For draining. */
void conn_stream_close_all(struct loop *loop);

/* ---- between conn.c and conn_stream.c ---- */

/* The head is out: the connection is the stream's from here on, and the exchange is free. */
void conn_stream_begin(struct conn *c, struct stream *s);
void conn_stream_drop_backlog(struct conn *c);
void conn_stream_stray(struct conn *c, size_t n); /* the client sent bytes that a stream does not
                                                     expect */
void conn_stream_check_heartbeats(struct loop *loop, int64_t now_ms);

void conn_change_state(struct conn *c, enum conn_state state);
void conn_start_reading(struct conn *c);
size_t conn_unacknowledged(struct conn *c);
