/* One event of a stream, as the bytes that go out. Made once for all streams of one encoding, never
 * changed, and shared by all that it waits in: an event for ten thousand people is one frame.
 *
 * What is said and how it is written are apart: registry, queues and buffers know frames, an
 * encoding knows bytes. A new encoding is a row of its own, such as encoding_sse. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

enum { FRAME_DATA_MAX = 16 * 1024 };

/* What a frame says. Name and data hold no CR and no LF, the data is at most FRAME_DATA_MAX long:
 * anything else is our bug and CHECKed.
 *
 * Of frames with the same kind and key that wait in one stream only the newest is sent: the one
 * with the greatest id, or the last one where ids are equal. Kind 0: every frame is sent. */
struct frame_text {
    struct str name; /* "message"; "": none */
    uint64_t id;     /* what a client sends back as Last-Event-ID; 0: none */
    struct str data; /* JSON */
    uint32_t kind;
    uint64_t key;
    int64_t seq;   /* with a kind and a key: a stream that took a greater one does not take it; 0:
                      it has no number */
    bool greeting; /* the client reads everything: it stands for all that waits, and numbers begin
                      anew */
};

struct frame {
    _Atomic uint32_t refs;
    uint32_t kind;
    uint64_t key;
    uint64_t id;
    int64_t seq;
    uint32_t len;
    bool greeting;
    char bytes[];
};

struct encoding {
    const char *content_type;
    const char *opening;   /* the answer's first bytes */
    const char *heartbeat; /* what is sent when nothing else is */
    void (*event)(const struct frame_text *text, struct buf *out);
    void (*bye)(const char *reason, unsigned retry_ms, struct buf *out);
};
extern const struct encoding encoding_sse; /* Server-Sent Events; net/sse.c */

struct frame *frame_new(const struct frame_text *text, const struct encoding *encoding);
struct frame *frame_of_bytes(struct str bytes); /* as they are; kind 0 */
struct frame *frame_ref(struct frame *f);
void frame_unref(struct frame *f);
