/* Frames: encoded once into a block of their size, then only counted. */
#include "net/frame.h"

#include <stdlib.h>

#include "base/check.h"

/* What an encoding adds to name, id and data at most. */
enum { FIXED_TEXT_MAX = 128 };

static bool is_one_line(struct str s)
{
    return s.len == 0 || (!memchr(s.ptr, '\r', s.len) && !memchr(s.ptr, '\n', s.len));
}

static struct frame *make(size_t size)
{
    struct frame *f = malloc(sizeof *f + size);
    CHECK(f); /* as for arenas: without a few kilobytes nothing can go on */
    *f = (struct frame){.refs = 1};
    return f;
}

struct frame *frame_new(const struct frame_text *text, const struct encoding *encoding)
{
    CHECK(is_one_line(text->name) && is_one_line(text->data));
    CHECK(text->name.len <= FRAME_DATA_MAX && text->data.len <= FRAME_DATA_MAX);
    size_t size = FIXED_TEXT_MAX + text->name.len + text->data.len;
    struct frame *f = make(size);
    struct buf bytes = buf_over(f->bytes, size);
    f->kind = text->kind;
    f->key = text->key;
    f->id = text->id;
    f->seq = text->seq;
    f->greeting = text->greeting;
    encoding->event(text, &bytes);
    CHECK(!bytes.failed);
    f->len = (uint32_t)bytes.len;
    return f;
}

struct frame *frame_of_bytes(struct str bytes)
{
    CHECK(bytes.len <= FRAME_DATA_MAX);
    struct frame *f = make(bytes.len);
    memcpy(f->bytes, bytes.ptr, bytes.len);
    f->len = (uint32_t)bytes.len;
    return f;
}

struct frame *frame_ref(struct frame *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

void frame_unref(struct frame *f)
{
    if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) == 1)
        free(f);
}
