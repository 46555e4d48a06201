/* What the Redis engines tell the watch, and ask of it. Its port is port/watch.h.
 *
 * Any thread. Where the watch may be NULL nobody notes anything. */
#pragma once

#include "base/str.h"
#include "port/watch.h"

/* ---- what is read ---- */

/* Has the calling thread begun a trace that is still whole? Others read as ever. */
bool watch_traces(struct watch *w); /* w may be NULL */
/* To be called before the key is read. */
void watch_note(struct watch *w, struct str key);
/* Something was read that cannot be noted: the calling thread's trace, if there is one, is not
 * whole. */
void watch_spoil(struct watch *w); /* w may be NULL */

/* ---- what has changed ---- */

/* This key is not what Redis says it is, or has just been changed. */
void watch_heard(struct watch *w, struct str key); /* w may be NULL */
/* Nothing that was noted so far will be the same. */
void watch_lost(struct watch *w);

/* ---- connections ---- */

/* A server that is read from. Released when it is not any more. NULL: there are too many. */
struct watch_peer;
struct watch_peer *watch_peer_take(struct watch *w, const char *host, int port);
void watch_peer_release(struct watch_peer *p); /* may be NULL */

/* What Redis calls the watch's connection to that server; another number whenever it was opened
 * anew. 0: there is none. */
uint64_t watch_peer_id(const struct watch_peer *p);
/* One is opened soon; nobody waits. `slot`: one that the server serves, in a cluster; otherwise
 * -1. */
void watch_peer_want(struct watch_peer *p, int slot);
/* The server does not know that connection, or does not send news there. */
void watch_peer_refused(struct watch_peer *p, uint64_t id);

/* News of what was read over this connection come as long as it is open. So whoever closes it says
 * watch_lost() before; that the server closes it is noticed here. False: it cannot be. */
bool watch_guard(struct watch *w, int fd);
