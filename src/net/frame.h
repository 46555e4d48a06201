/* One event of a stream (Server-Sent Events), as the bytes that go out. Made once, never changed,
 * and shared by all the streams that it waits in: an event for ten thousand people is one frame. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

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
};

struct frame {
    _Atomic uint32_t refs;
    uint32_t kind;
    uint64_t key;
    uint64_t id;
    uint32_t len;
    char bytes[];
};

/* "id: …\nevent: …\ndata: …\n\n" */
struct frame *frame_new(const struct frame_text *text);
struct frame *frame_of_bytes(struct str bytes); /* as they are; kind 0 */
struct frame *frame_ref(struct frame *f);
void frame_unref(struct frame *f);
