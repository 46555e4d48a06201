/* The encoding of Server-Sent Events: "id: …\nevent: …\ndata: …\n\n". */
#include "net/frame.h"
#include "net/stream.h"

static void event(const struct frame_text *text, struct buf *out)
{
    if (text->id != 0)
        buf_printf(out, "id: %llu\n", (unsigned long long)text->id);
    if (text->name.len > 0)
        buf_printf(out, "event: %.*s\n", STR_ARG(text->name));
    buf_printf(out, "data: %.*s\n\n", STR_ARG(text->data));
}

static void bye(const char *reason, unsigned retry_ms, struct buf *out)
{
    buf_printf(out, "retry: %u\nevent: bye\ndata: {\"reason\":\"%s\"}\n\n", retry_ms, reason);
}

_Static_assert(STREAM_RETRY_MS == 2000, "the opening says so");

const struct encoding encoding_sse = {.content_type = "text/event-stream",
                                      .opening = "retry: 2000\n\n",
                                      .heartbeat = ":\n\n",
                                      .event = event,
                                      .bye = bye};
