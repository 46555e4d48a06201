/* A real server whose handler opens streams and joins them to a hub, and a raw client that reads
 * them event by event.
 *
 *   /stream?person=  joins and starts at once
 *   /later?person=   the same, from another thread
 *   /hold?person=    keeps the exchange until streamed_start_held()
 *   /echo            answers its body, as anything else does
 *
 * Every stream begins with the event "hello", which is sent before it is started. */
#pragma once

#include "net/hub.h"
#include "net/stream.h"
#include "served.h"

struct streamed {
    struct served served;
    struct hub_config hub_config;
    struct hub *hub;
    size_t buffer_max;
    int64_t lifetime_ms;
};

/* All limits far away; a test sets its own, then starts. */
void streamed_init(struct streamed *t);
void streamed_start(struct streamed *t);
void streamed_done(struct streamed *t);
void streamed_start_held(struct streamed *t); /* from this thread */
void streamed_await_streams(struct streamed *t, uint64_t count);
void streamed_send(struct streamed *t, uint64_t person, uint64_t id, const char *data);

/* ---- the client ---- */

struct listener {
    int fd;
    struct buf in;
    size_t used;
    /* the event that was read last */
    uint64_t id;
    char name[32];
    struct str data; /* valid until the next one is read */
    unsigned retry_ms, comments;
};

/* Connects, asks and reads the head, which must be 200. */
void listener_open(struct listener *l, const struct streamed *t, uint64_t person);
/* The same with a receive buffer as small as the kernel lets it be. */
void listener_open_narrow(struct listener *l, const struct streamed *t, uint64_t person);
void listener_over(struct listener *l, int fd); /* a connection whose head is still to be read */
void listener_close(struct listener *l);
/* Waits for the next event that has data. False: the stream ended. */
bool listener_next(struct listener *l);
/* The next event is this one. */
void listener_expect(struct listener *l, uint64_t id, const char *name, const char *data);
void listener_expect_end(struct listener *l);
void listener_await_comments(struct listener *l, unsigned count);
