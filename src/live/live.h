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
 * When a client is slow, only the last of several live events about one group is sent. Posts that
 * are pulled (of authors with very many followers) are sent when the engine delivers them.
 *
 * One thread makes live events: live_step(). The views report whose inbox or timeline changed; this
 * module remembers the top of each and sends the difference. Views of this process report by
 * callback; with shared ones the invalidation listener hears of changes by any node, so a stream
 * works at any node. A read mark and the end of a session are in truth alone: the node that commits
 * one reports it (live_committed), to other nodes by signal_invalidate(). If that node dies just
 * then, the mark itself is safe and is sent with the next look at the inbox. Group entries that are
 * not messages change no inbox either: the committing node publishes them by signal_publish(), the
 * leader does so once more, and topics.c sends them to subscribed members.
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
#include "port/cards.h"
#include "port/db.h"
#include "port/event.h"
#include "port/signal.h"
#include "port/views.h"

struct live;
struct hub;
struct stream;
struct invalidation;

struct live_config {
    struct db *db;
    struct views *views;
    struct cards *cards;
    struct invalidation
        *invalidation; /* NULL: the views are this process's own and tell by themselves */
    struct signal *signal;
    struct clock *clock;
    size_t streams_max;
    unsigned person_max;
    int64_t active_within_ms; /* of large fan-outs; 0: nobody asks */
    void (*wake)(void *ctx); /* there is something to do: call the step. Any thread, never blocks */
    void *wake_ctx;
};

/* Before the views' first change, when they are of this process: it takes their callback. */
struct live *live_new(const struct live_config *config);
/* After the server and the thread that calls the step, before the views. */
void live_free(struct live *live);
struct hub *live_hub(struct live *live);

/* The stream's person is listened to from now on; errors are hub_join's. `session`: it ends with
 * that; 0: with the account alone. Never blocks. */
enum err live_join(struct live *live, uint64_t person, uint64_t session, struct stream *s);

/* The commit hook's part. Never blocks. */
void live_committed(struct live *live, const struct event *events, size_t n);
/* The entries of groups among these, once more perhaps. Never blocks. */
void live_entries(struct live *live, const struct event *events, size_t n);

/* Blocking, one caller; returns when to call again (monotonic µs). */
int64_t live_step(struct live *live);

struct live_stats {
    uint64_t persons; /* listened to now */
    uint64_t looks;   /* so far: how often somebody's inbox or feed was looked at */
    uint64_t failed;  /* of which in vain: views or truth did not answer */
    uint64_t sent;    /* live events, each to all streams of one person */
    uint64_t missed;  /* touches that found no room */
};
void live_stats(struct live *live, struct live_stats *out);
