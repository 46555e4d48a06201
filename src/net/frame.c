/* Frames: rendered once into a block of exactly their size, then only counted. */
#include "net/frame.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

/* "id: " and twenty digits, "event: ", "data: ", their line ends and the one that ends the frame */
enum { FIXED_TEXT_MAX = 64 };

static bool is_one_line(struct str s)
{
    return s.len == 0 || (!memchr(s.ptr, '\r', s.len) && !memchr(s.ptr, '\n', s.len));
}

static struct frame *make(size_t size)
{
    struct frame *f = malloc(sizeof *f + size);
    CHECK(f); /* as for arenas: without a few kilobytes nothing can go on */
    atomic_init(&f->refs, 1);
    f->kind = 0;
    f->key = f->id = 0;
    f->len = 0;
    return f;
}

static void put(struct frame *f, struct str s)
{
    if (s.len > 0)
        memcpy(f->bytes + f->len, s.ptr, s.len);
    f->len += (uint32_t)s.len;
}

struct frame *frame_new(const struct frame_text *text)
{
    CHECK(is_one_line(text->name) && is_one_line(text->data));
    CHECK(text->name.len <= FRAME_DATA_MAX && text->data.len <= FRAME_DATA_MAX);
    struct frame *f = make(FIXED_TEXT_MAX + text->name.len + text->data.len);
    f->kind = text->kind;
    f->key = text->key;
    f->id = text->id;
    if (text->id != 0) {
        char line[32];
        int n = snprintf(line, sizeof line, "id: %llu\n", (unsigned long long)text->id);
        put(f, (struct str){line, (size_t)n});
    }
    if (text->name.len > 0) {
        put(f, STR("event: "));
        put(f, text->name);
        put(f, STR("\n"));
    }
    put(f, STR("data: "));
    put(f, text->data);
    put(f, STR("\n\n"));
    return f;
}

struct frame *frame_of_bytes(struct str bytes)
{
    CHECK(bytes.len <= FRAME_DATA_MAX);
    struct frame *f = make(bytes.len);
    put(f, bytes);
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
