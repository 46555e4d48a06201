/* Live events: what this node sends to people with an open stream. A live event says "something is
 * new, ask for it" and holds no content, so the API's own rules decide what the client may read.
 *
 *   hello  {"account"}        from now on every change is sent: read what was missed before. Comes
 *                             first, and again when the stream may have missed something
 *   group  {"group","seq"}    the group has entries up to this number; a removed member gets the
 *                             number of the removal
 *   feed   {"id"}             a new post in the home feed
 *   read   {"group","seq"}    read up to there, perhaps on another device
 *
 * Live delivery is a part of the engine's work. When a sink has delivered a page, the engine
 * publishes a signal (port/signal.h) to the members of that page: so a live event never comes
 * before the view that the client reads next, and lane, retry and freshness cover it. Each node
 * sends the signal to those of its receivers who are connected there. Nothing is read for that,
 * from truth or elsewhere, and the event is encoded once for all.
 *
 * What concerns one account alone (a read mark, the end of a session, a mute, the author's own
 * post) is signalled by the node that commits it (live_committed). If that node dies just then, the
 * other devices learn of it when they read next.
 *
 * When a signal may have been lost, all listeners are greeted again and read what they missed.
 * Numbers of one group never go back between two greetings, and when a client is slow only the last
 * of several live events about one group is sent: net/stream.h keeps both.
 *
 * A post that is pulled (of an author with very many followers) names no receivers: the step asks
 * the views, for every person who is connected here, whether they follow the author.
 *
 * An open stream counts as activity: the step reports its person to the views again and again
 * (VIEW_LAST_SEEN). Otherwise a person who listens for long without a request would be served last.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "port/db.h"
#include "port/event.h"
#include "port/signal.h"
#include "port/views.h"

struct live;
struct hub;
struct stream;

struct live_config {
    struct db *db;
    struct views *views;
    struct signal *signal;
    struct clock *clock;
    size_t streams_max;
    unsigned person_max;
    int64_t active_within_ms; /* of large fan-outs; 0: not asked */
    void (*wake)(
        void *ctx); /* there is something to do: call the steps. Any thread, never blocks */
    void *wake_ctx;
};

/* Before the first signal: it takes the signal's callback. */
struct live *live_new(const struct live_config *config);
/* After the server and the threads that call the steps, before signal and views. */
void live_free(struct live *live);
struct hub *live_hub(struct live *live);

/* The stream's person is listened to from now on; errors are hub_join's. `grant`: it ends with that
 * session or API key; 0: with the account alone. Never blocks. */
enum err live_join(struct live *live, uint64_t person, uint64_t grant, struct stream *s);

/* The commit hook's part: what concerns one account alone. Never blocks. */
void live_committed(struct live *live, const struct event *events, size_t n);
/* Something may have been lost: all listeners here are greeted again. Never blocks. */
void live_greet_all(struct live *live);

/* Greets, checks sessions, publishes what waits. Blocking, one caller; returns when to call again
 * (monotonic µs). */
int64_t live_step(struct live *live);
/* Many nodes: receives the signals of all of them. The same. */
int64_t live_receive_step(struct live *live);

struct live_stats {
    uint64_t persons; /* listened to now */
    uint64_t checks;  /* so far: how often a person's sessions and mutes were read */
    uint64_t failed;  /* of which in vain: truth did not answer */
    uint64_t sent;    /* live events, each to all streams of one person */
    uint64_t
        losses; /* how often signals may have been lost, and all listeners were greeted again */
};
void live_stats(struct live *live, struct live_stats *out);
