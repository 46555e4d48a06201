/* One connection: reads requests, keeps them in order, sends answers, and meets every limit on
 * waiting. Belongs to one loop and its thread. */
#pragma once

#include "net/loop.h"

struct conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    struct loop *loop;
    struct conn *prev, *next; /* in its state's list, or in the spare list */
    struct exchange *x;       /* the request being read, handled or answered; NULL when idle */
    struct buf backlog;       /* bytes that came while a request was in flight */
    size_t backlog_used;
    int64_t since_ms; /* when the state began; WRITE: of the last progress */
    size_t progress;  /* BODY, LINGER: bytes that came; WRITE: bytes left */
    uint8_t state;
    uint8_t peer_len;
    bool control;
    bool reading;
    bool eof;     /* the peer will send no more */
    bool feeding; /* inside feed(): it goes on by itself after an answer */
    bool keep;    /* after the present answer the connection goes on */
    bool linger;  /* before closing, let the peer read what was sent */
    char peer[PEER_TEXT_MAX];
};

void conn_accept(struct loop *loop, uv_stream_t *listener, bool control);
void conn_close(struct conn *c);
/* The exchange is answered: send it. On the loop's thread. */
void conn_answer(struct exchange *e);
/* Closes or answers whoever exceeds a limit on waiting. Called a few times a second. */
void conn_check_timeouts(struct loop *loop);
/* For draining. */
void conn_close_idle(struct loop *loop); /* those between requests */
void conn_close_all(struct loop *loop);
