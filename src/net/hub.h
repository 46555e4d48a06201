/* The streams (net/stream.h) of each person who is connected to this node, and sending to all of
 * them.
 *
 * A stream joins before it is started and leaves by itself when it ends. Everything may be called
 * by any thread; nothing waits for a client.
 *
 * What a producer may rely on: hub_send(), called after a change became visible, reaches everyone
 * who joined before that. So a client that reads what it missed after its stream has begun misses
 * nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "net/frame.h"

struct hub;
struct stream;

enum { HUB_PERSON_MAX = 64 };

struct hub_config {
    size_t streams_max;  /* of this node */
    unsigned person_max; /* of one person; at most HUB_PERSON_MAX */
    /* The person's first stream joined (true), or the last one left (false), in the order in which
     * it happened. Called under the hub's lock: must not block and not call the hub. May be
     * NULL. */
    void (*listen)(void *ctx, uint64_t person, bool on);
    /* A stream of the person cannot know more numbers and wants a greeting. No lock is held. May be
     * NULL. */
    void (*full)(void *ctx, uint64_t person);
    void *ctx;
};

struct hub *hub_new(const struct hub_config *config);
/* After the server, and after everything that may still hold one of its exchanges: no stream is
 * left. */
void hub_free(struct hub *h);

/* Before stream_start(). The hub holds the stream until it ends.
 *   OVERLOADED    this node has no room for more streams
 *   RATE_LIMITED  this person has as many as one may have
 * After a failure, answer with it and drop the stream. */
enum err hub_join(struct hub *h, uint64_t person, struct stream *s);
/* For a stream that will not be started after all. Else it comes by itself; repeating is harmless.
 */
void hub_leave(struct hub *h, struct stream *s);

/* Sends it to all streams of all these people, encoded once for each encoding. Returns to how many
 * streams. */
size_t hub_send(struct hub *h, const uint64_t *persons, size_t n, const struct frame_text *text);
/* Sends it to those streams of the person that were not greeted before. */
void hub_greet(struct hub *h, uint64_t person, const struct frame_text *text);
/* Ends the person's streams with a goodbye; clients that are still allowed connect again. */
void hub_close(struct hub *h, uint64_t person, const char *reason);

bool hub_has(struct hub *h, uint64_t person);
/* What allows the person's streams, each number once, without 0; how many. */
size_t hub_grants(struct hub *h, uint64_t person, uint64_t grants[HUB_PERSON_MAX]);
/* Visits everyone who has a stream that `grant` allows. Under the hub's lock: `visit` must not
 * block and not call the hub. */
void hub_each_granted(struct hub *h, uint64_t grant, void (*visit)(void *ctx, uint64_t person),
                      void *ctx);

struct hub_stats {
    uint64_t streams, persons; /* now */
    uint64_t joined, refused;  /* from here on: so far */
    uint64_t sent;             /* frames that streams took, merged ones included */
    uint64_t merged;           /* of which took the place of another, or found a newer one */
    uint64_t slow;             /* streams that ended because too much waited */
};
void hub_stats(struct hub *h, struct hub_stats *out);
