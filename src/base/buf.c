/* The growable byte buffer. Growth doubles, so that appending is linear in the end; the ceiling is
 * checked against what is asked for, never against what doubling would like to have. A buffer that
 * has failed once takes no more bytes until it is cleared: what it holds is a prefix of what was
 * meant, never a text with a hole in it. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/id.h"

enum { FIRST_SIZE = 256 };

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_done(struct buf *b)
{
    free(b->ptr);
    *b = (struct buf){.max = b->max};
}

char *buf_reserve_slow(struct buf *b, size_t extra)
{
    size_t ceiling = b->max ? b->max : SIZE_MAX / 2;
    if (b->failed || extra > ceiling || b->len > ceiling - extra) {
        b->failed = true;
        return NULL;
    }
    size_t need = b->len + extra;
    if (b->ptr && need <= b->cap)
        return b->ptr + b->len;
    size_t size = b->cap ? b->cap * 2 : FIRST_SIZE;
    if (size < need)
        size = need;
    if (size > ceiling)
        size = ceiling;
    if (size == 0)
        size = 1; /* a ceiling of none and nothing to add: still a place to point at */
    char *grown = realloc(b->ptr, size);
    if (!grown) {
        b->failed = true;
        return NULL;
    }
    b->ptr = grown;
    b->cap = size;
    return b->ptr + b->len;
}

void buf_printf(struct buf *b, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) {
        b->failed = true;
        return;
    }
    buf_append(b, text, (size_t)n);
    free(text);
}

void buf_u64(struct buf *b, uint64_t value)
{
    char text[ID_TEXT_MAX];
    buf_append(b, text, id_format(value, text));
}
