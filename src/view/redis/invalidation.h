/* The Redis drivers' side of the invalidation listener. Its port is port/invalidation.h.
 *
 * Any thread. Without an invalidation listener (NULL) there are no traces. */
#pragma once

#include "base/str.h"
#include "port/invalidation.h"

/* ---- what is read ---- */

/* Has the calling thread begun a trace that is still whole? Others read as ever. */
bool invalidation_traces(struct invalidation *w); /* w may be NULL */
/* To be called before the key is read. */
void invalidation_note(struct invalidation *w, struct str key);
/* The same in a trace that is no thread's (invalidation_init). */
void invalidation_note_in(struct invalidation *w, struct read_trace *trace, struct str key);
/* Something was read that cannot be noted: the calling thread's trace, if there is one, is not
 * whole. */
void invalidation_spoil(struct invalidation *w); /* w may be NULL */

/* ---- what has changed ---- */

/* This key is not what Redis says it is, or has just been changed. */
void invalidation_heard(struct invalidation *w, struct str key); /* w may be NULL */
/* Nothing that was noted so far will be the same. */
void invalidation_lost(struct invalidation *w);

/* ---- connections ---- */

/* A server that is read from. Released when it is not any more. NULL: there are too many. */
struct invalidation_peer;
struct invalidation_peer *invalidation_peer_take(struct invalidation *w, const char *host,
                                                 int port);
void invalidation_peer_release(struct invalidation_peer *p); /* may be NULL */

/* What Redis calls the invalidation listener's connection to that server; another number whenever
 * it was opened anew. 0: there is none. */
uint64_t invalidation_peer_id(const struct invalidation_peer *p);
/* One is opened soon, without a wait. `slot`: one that the server serves, in a cluster; otherwise
 * -1. */
void invalidation_peer_want(struct invalidation_peer *p, int slot);
/* The server does not know that connection, or does not send push messages there. */
void invalidation_peer_refused(struct invalidation_peer *p, uint64_t id);

/* Push messages about what was read over this connection come as long as it is open. So a caller
 * that closes it calls invalidation_lost() before; that the server closes it is noticed here.
 * False: it cannot be. */
bool invalidation_guard(struct invalidation *w, int fd);
