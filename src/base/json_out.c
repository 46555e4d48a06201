/* The JSON writer that renders feed pages. It is fast because it does little: commas come from one
 * flag per level, each value reserves space once, and strings are copied in runs: it checks eight
 * bytes at a time for characters to escape and moves clean runs by memcpy.
 *
 * Invariants: `depth` containers are open; object[depth-1] and filled[depth-1] describe the
 * innermost one; key_given is true only between a key and its value. */
#include "base/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

void json_out_init(struct json_out *j, struct buf *buf)
{
    *j = (struct json_out){.buf = buf};
}

/* The comma before the next member, if one is due. Returns how many characters it put at `to`. */
static size_t put_comma(struct json_out *j, char *to)
{
    bool *filled = &j->filled[j->depth - 1];
    if (!*filled) {
        *filled = true;
        return 0;
    }
    *to = ',';
    return 1;
}

/* Makes room for a value of at most `size` bytes and writes what must stand before it. NULL: no
 * room. */
static char *begin_value(struct json_out *j, size_t size)
{
    char *to = buf_reserve(j->buf, size + 1);
    bool in_object = j->depth > 0 && j->object[j->depth - 1];
    CHECK(in_object == j->key_given);
    j->key_given = false;
    if (!to)
        return NULL;
    if (j->depth > 0 && !in_object) {
        size_t n = put_comma(j, to);
        j->buf->len += n;
        to += n;
    }
    return to;
}

static void put_value(struct json_out *j, const char *text, size_t n)
{
    char *to = begin_value(j, n);
    if (to) {
        memcpy(to, text, n);
        j->buf->len += n;
    }
}

static void open_container(struct json_out *j, bool object)
{
    put_value(j, object ? "{" : "[", 1);
    CHECK(j->depth < JSON_OUT_DEPTH);
    j->object[j->depth] = object;
    j->filled[j->depth] = false;
    j->depth++;
}

static void close_container(struct json_out *j, bool object)
{
    CHECK(j->depth > 0 && j->object[j->depth - 1] == object && !j->key_given);
    j->depth--;
    buf_append(j->buf, object ? "}" : "]", 1);
}

void json_object_begin(struct json_out *j)
{
    open_container(j, true);
}

void json_object_end(struct json_out *j)
{
    close_container(j, true);
}

void json_array_begin(struct json_out *j)
{
    open_container(j, false);
}

void json_array_end(struct json_out *j)
{
    close_container(j, false);
}

void json_key(struct json_out *j, struct str key)
{
    CHECK(j->depth > 0 && j->object[j->depth - 1] && !j->key_given);
    j->key_given = true;
    char *to = buf_reserve(j->buf, key.len + 4);
    if (!to)
        return;
    char *p = to + put_comma(j, to);
    *p++ = '"';
    memcpy(p, key.ptr, key.len);
    p += key.len;
    *p++ = '"';
    *p++ = ':';
    j->buf->len += (size_t)(p - to);
}

void json_str(struct json_out *j, struct str text)
{
    char *to = begin_value(j, text.len + 2);
    if (!to)
        return;
    *to = '"';
    j->buf->len++;
    json_escape(j->buf, text);
    buf_append(j->buf, "\"", 1);
}

void json_i64(struct json_out *j, int64_t value)
{
    char *to = begin_value(j, 20);
    if (!to)
        return;
    if (value < 0) {
        *to = '-';
        j->buf->len++;
    }
    buf_u64(j->buf, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void json_u64(struct json_out *j, uint64_t value)
{
    if (begin_value(j, 20))
        buf_u64(j->buf, value);
}

void json_f64(struct json_out *j, double value)
{
    if (!isfinite(value)) {
        json_nil(j);
        return;
    }
    char text[32];
    int n = 0;
    for (int digits = 15; digits <= 17; digits++) {
        n = snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    put_value(j, text, (size_t)n);
}

void json_bool(struct json_out *j, bool value)
{
    if (value)
        put_value(j, "true", 4);
    else
        put_value(j, "false", 5);
}

void json_nil(struct json_out *j)
{
    put_value(j, "null", 4);
}

void json_id(struct json_out *j, uint64_t id)
{
    char *to = begin_value(j, 22);
    if (!to)
        return;
    *to = '"';
    j->buf->len++;
    buf_u64(j->buf, id);
    buf_append(j->buf, "\"", 1);
}

void json_time(struct json_out *j, int64_t wall_ms)
{
    char *to = begin_value(j, TIME_TEXT_LEN + 2);
    if (!to)
        return;
    to[0] = '"';
    time_format(wall_ms, to + 1);
    to[TIME_TEXT_LEN + 1] = '"';
    j->buf->len += TIME_TEXT_LEN + 2;
}

void json_raw(struct json_out *j, struct str json)
{
    CHECK(json.len > 0);
    put_value(j, json.ptr, json.len);
}

/* ---- escaping ---- */

/* 0: copied as it is; 'u': written as \u00XX; otherwise the letter after the backslash. */
static const char escapes[256] = {
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'b',         't',           'n', 'u',
    'f', 'r', 'u', 'u', 'u', 'u', 'u', 'u', 'u',         'u',           'u', 'u',
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', ['"'] = '"', ['\\'] = '\\',
};

#define ALL_BYTES(b) (UINT64_C(0x0101010101010101) * (b))
#define TOP_BITS     ALL_BYTES(0x80)

/* Is there a byte below 0x20, a quote or a backslash among the eight? The usual trick: subtracting
 * makes a zero (or small) byte borrow into its top bit. It may say yes without reason after a true
 * hit, never no. */
static bool needs_escape(uint64_t word)
{
    uint64_t quote = word ^ ALL_BYTES('"');
    uint64_t backslash = word ^ ALL_BYTES('\\');
    uint64_t hit = (word - ALL_BYTES(0x20)) & ~word;
    hit |= (quote - ALL_BYTES(1)) & ~quote;
    hit |= (backslash - ALL_BYTES(1)) & ~backslash;
    return (hit & TOP_BITS) != 0;
}

static size_t clean_run(const char *p, size_t n)
{
    size_t i = 0;
    for (uint64_t word; n - i >= sizeof word; i += sizeof word) {
        memcpy(&word, p + i, sizeof word);
        if (needs_escape(word))
            break;
    }
    while (i < n && escapes[(unsigned char)p[i]] == 0)
        i++;
    return i;
}

void json_escape(struct buf *out, struct str text)
{
    static const char digits[] = "0123456789abcdef";
    size_t i = 0;
    while (i < text.len) {
        size_t run = clean_run(text.ptr + i, text.len - i);
        buf_append(out, text.ptr + i, run);
        i += run;
        if (i == text.len)
            return;
        unsigned char c = (unsigned char)text.ptr[i++];
        if (escapes[c] == 'u') {
            const char code[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
            buf_append(out, code, sizeof code);
        } else {
            const char code[2] = {'\\', escapes[c]};
            buf_append(out, code, sizeof code);
        }
    }
}
