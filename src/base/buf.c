/* The growable byte buffer. Growth doubles, so that appending is linear in the end; the ceiling is
 * checked against what is asked for, never against what doubling would like to have. A buffer that
 * has failed once takes no more bytes until it is cleared: what it holds is a prefix of what was
 * meant, never a text with a hole in it. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        b->failed = true;
    } else {
        /* One byte more than asked for: vsnprintf ends with a NUL. A buffer that is exactly as
         * large as its text would fail for that byte, so the last resort is a detour. */
        size_t len = (size_t)n;
        if (!b->failed && b->max && b->len + len + 1 > b->max) {
            char *text = malloc(len + 1);
            if (text) {
                vsnprintf(text, len + 1, format, again);
                buf_append(b, text, len);
                free(text);
            } else {
                b->failed = true;
            }
        } else {
            char *to = buf_reserve(b, len + 1);
            if (to) {
                vsnprintf(to, len + 1, format, again);
                b->len += len;
            }
        }
    }
    va_end(again);
}

void buf_u64(struct buf *b, uint64_t value)
{
    char text[20];
    char *p = text + sizeof text;
    while (value >= 100) {
        p -= 2;
        memcpy(p, str_digit_pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10) {
        p -= 2;
        memcpy(p, str_digit_pairs + value * 2, 2);
    } else {
        *--p = (char)('0' + value);
    }
    buf_append(b, p, (size_t)(text + sizeof text - p));
}
