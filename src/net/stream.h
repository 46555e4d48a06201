/* Answers that do not end: a stream of frames (net/frame.h) to one client, in its encoding.
 *
 * A handler makes a stream and starts it with its exchange, in place of http_answer(). The head
 * goes out at once (200), then whatever the handler had put into `x->out`, then
 * frames, which any thread may send at any time from stream_new() on. The stream ends at the
 * connection's end: its close says where the answer ends, as HTTP/1.1 allows.
 *
 * What a client can rely on:
 *   order     frames of one sending thread arrive in the order in which they were sent
 *   at most   no frame arrives twice; after the end of a stream it says nothing about the rest
 *   numbers   of frames of one kind and key do not go back between two greetings
 *   a pulse   a comment comes when nothing was sent for http_config.stream_heartbeat_ms
 *   goodbye   an end that we wish is announced: "event: bye", data {"reason": …}, and a `retry` of
 *             its own for each client, so that they do not all come back in the same moment
 *
 * What a stream can rely on: little. A client that reads more slowly than its frames come is cut
 * off when `buffer_max` bytes or STREAM_FRAMES_MAX frames wait, and one that reads nothing for
 * http_config.write_timeout_ms is, too; both come back and ask for what they missed. A client that
 * closes, or half closes, its side is gone. What it sends meanwhile is dropped, and from
 * STREAM_STRAY_MAX bytes on the connection with it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct encoding;
struct frame;
struct http_exchange;
struct stream;

enum {
    STREAM_BUFFER_MAX = 64 * 1024,
    STREAM_FRAMES_MAX = 1024,
    STREAM_STRAY_MAX = 4 * 1024,
    STREAM_NEWEST_MAX = 4096, /* kinds and keys whose numbers it knows: more want a greeting */
    STREAM_RETRY_MS = 2000,   /* after how long a client comes back that lost us */
};

/* `buffer_max` 0: STREAM_BUFFER_MAX. `lifetime_ms` 0: as long as both sides like; else it ends with
 * a goodbye ("expired") at most one heartbeat later than that after its start. The reference is the
 * caller's. */
struct stream *stream_new(const struct encoding *encoding, size_t buffer_max, int64_t lifetime_ms);
/* Before it joins: it takes no frame that has a kind before stream_greet(). */
void stream_await_greeting(struct stream *s);
/* Before it joins: what allows it, a number that means something to the caller (hub_grants). */
void stream_set_grant(struct stream *s, uint64_t grant);
struct stream *stream_ref(struct stream *s);
void stream_unref(struct stream *s);

/* In place of http_answer(): any thread, once per stream, the exchange is gone afterwards. Headers
 * that the handler added are sent, too. To HEAD only the head is answered, and the stream ends. */
void stream_start(struct stream *s, struct http_exchange *x);

enum stream_outcome {
    STREAM_TAKEN,
    STREAM_MERGED, /* in place of an older one of the same kind and key, or older than that, or
                      than what was sent */
    STREAM_SLOW,   /* not taken: too much waits; the stream ends. Said once. */
    STREAM_ENDED,  /* not taken: it has ended, or is about to */
    STREAM_EARLY,  /* not taken: it awaits its greeting */
    STREAM_FULL,   /* not taken: it cannot know more numbers; send it a greeting */
    STREAM_OUTCOMES
};
/* The frame remains the caller's. Any thread; never waits for the client. */
enum stream_outcome stream_send(struct stream *s, struct frame *f);
/* The same, unless it was greeted before. */
enum stream_outcome stream_greet(struct stream *s, struct frame *f);
/* Sends what waits and a goodbye, takes nothing more, and closes. `reason` is a word. Any thread.
 */
void stream_close(struct stream *s, const char *reason);

bool stream_has_ended(struct stream *s);
