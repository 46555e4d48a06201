/* A stream from within: for its connection (conn_stream.c), its loop and the hub. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "net/frame.h"
#include "net/stream.h"

struct conn;
struct hub;
struct loop;

/* A frame that waits. The key is here, too, so that looking for it reads only this table. */
struct waiting {
    struct frame *frame; /* NULL: a newer one has taken its place */
    uint64_t key;
};

struct stream {
    _Atomic uint32_t refs;
    uint32_t bytes_max;

    pthread_mutex_t lock; /* guards down to `newest` */
    struct loop *loop;    /* NULL before its connection is there, and after its end */
    struct waiting *queue;
    uint32_t first, end, cap; /* queue[first … end - 1], of which … */
    uint32_t count;           /* … so many are no gaps */
    uint32_t bytes;           /* of those, and of what is on its way into the socket */
    bool queued;              /* in its loop's stack of streams to look at */
    bool stalled;             /* the socket is full: no use in waking the loop */
    bool closing;             /* takes no more and ends when all is out */
    bool slow;                /* ends now */
    bool awaiting;            /* takes nothing with a kind before its greeting */
    bool greeted;
    bool ended;
    struct map newest; /* by kind and key: the greatest number that was taken since the greeting */

    const struct encoding *encoding;
    struct stream *next; /* in that stack */

    /* the loop's thread only */
    struct conn *conn;
    int64_t lifetime_ms;
    int64_t until_ms; /* 0: no end */

    /* the hub's, under its lock; `hub` is set once, before the start */
    struct hub *hub;
    uint64_t person, grant;
    struct stream *hub_next;
    bool joined;
};

/* ---- for its connection, on the loop's thread ---- */

/* What is sent by one system call. */
enum { BATCH_FRAMES_MAX = 64, BATCH_BYTES_MAX = 16 * 1024 };
struct stream_batch {
    struct frame *frames[BATCH_FRAMES_MAX]; /* with a reference each */
    unsigned count;
    uint32_t bytes;
    bool slow; /* nothing was taken: close */
    bool last; /* nothing waits behind these, nothing will: close when they are out */
};

void stream_begin(struct stream *s, struct loop *loop, struct conn *c);
/* It was taken from the loop's stack. True: it is slow, close. */
bool stream_looked_at(struct stream *s);
/* The next frames; at least one unless none waits. */
void stream_take(struct stream *s, struct stream_batch *batch);
/* So many bytes are out. `stalled`: the rest of them does not fit the socket. */
void stream_left(struct stream *s, size_t bytes, bool stalled);
void stream_beat(struct stream *s); /* sends a heartbeat */
/* Puts the stream on its loop's stack, for when others have had their turn. */
void stream_wake(struct stream *s);

/* It takes no more, the hub forgets it, and the reference of the exchange or the connection ends.
 * Any thread; exactly once for each stream that was started. */
void stream_end(struct stream *s);
