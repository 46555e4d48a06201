/* A growable byte buffer with a ceiling. Appending beyond the ceiling sets `failed` and drops
 * the bytes, so that a writer may append freely and check once at the end. After a failure
 * everything is dropped until buf_clear: the content is always a prefix of what was meant. */
#pragma once

#include "base/str.h"

struct buf {
    char *ptr;
    size_t len;
    size_t cap;
    size_t max; /* 0: no ceiling */
    bool failed;
};

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);

/* A buffer over memory of the caller's, which it never leaves; it must not be given to buf_done. */
static inline struct buf buf_over(char *memory, size_t size)
{
    return (struct buf){.ptr = memory, .cap = size, .max = size};
}

char *buf_reserve_slow(struct buf *b, size_t extra); /* buf_reserve's other half; do not call */

/* Makes room for `extra` more bytes and returns where they go, or NULL (and sets failed). The
 * caller writes there and adds what it wrote to `len`. */
static inline char *buf_reserve(struct buf *b, size_t extra)
{
    if (b->cap - b->len > extra && !b->failed)
        return b->ptr + b->len;
    return buf_reserve_slow(b, extra);
}

static inline void buf_append(struct buf *b, const void *bytes, size_t n)
{
    if (n == 0)
        return;
    char *to = buf_reserve(b, n);
    if (to) {
        memcpy(to, bytes, n);
        b->len += n;
    }
}

void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_u64(struct buf *b, uint64_t value); /* decimal */

static inline void buf_str(struct buf *b, struct str s)
{
    buf_append(b, s.ptr, s.len);
}

static inline void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
}

/* Cleared, for another use; memory beyond `keep_bytes` is given back. */
static inline void buf_recycle(struct buf *b, size_t keep_bytes)
{
    if (b->cap > keep_bytes)
        buf_done(b);
    buf_clear(b);
}

static inline struct str buf_view(const struct buf *b)
{
    return (struct str){b->ptr, b->len};
}
