/* A slice of bytes that it does not own. Not NUL-terminated. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *ptr;
    size_t len;
};

#define STR(literal) ((struct str){"" literal, sizeof(literal) - 1})
#define STR_ARG(s)   (int)(s).len, (s).ptr /* for "%.*s" */

static inline struct str str_of(const char *cstring)
{
    return (struct str){cstring, cstring ? strlen(cstring) : 0};
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool str_eq_nocase(struct str a, struct str b); /* ASCII only */
bool str_starts(struct str s, struct str prefix);
struct str str_trim(struct str s); /* spaces and tabs, both ends */

/* Takes the part up to the first `separator` off the front of `*rest`. Returns false at the end:
 * an empty rest has no parts, so "a,,b," gives "a", "", "b". */
bool str_split(struct str *rest, char separator, struct str *part);

/* Whole-string decimal parse: no spaces, no '+', no overflow; a '-' in front only where it can
 * be kept. */
bool str_parse_u64(struct str s, uint64_t *out);
bool str_parse_i64(struct str s, int64_t *out);

/* "00" "01" … "99", for writing two digits of a number per division. */
extern const char str_digit_pairs[201];

/* UTF-8: strict (no overlong forms, no surrogates, at most U+10FFFF). */
bool str_is_utf8(struct str s);
size_t str_count_chars(struct str s); /* code points of valid UTF-8 */
/* The longest beginning of at most `max` bytes that is valid UTF-8. */
struct str str_cut(struct str s, size_t max);

/* Copies it, cut to fit, and ends it with a NUL. */
void str_copy(char *out, size_t size, struct str s);

/* Percent-decoding into `out` (at least s.len bytes); '+' becomes a space. False when malformed. */
bool str_url_decode(struct str s, char *out, size_t *out_len);

/* Hex and unpadded base64url. Encoders write exactly the stated number of characters, no NUL. */
void str_hex(const uint8_t *bytes, size_t n, char *out); /* 2n */
size_t str_base64url_size(size_t n);
void str_base64url(const uint8_t *bytes, size_t n, char *out); /* base64url_size(n) */
bool str_base64url_decode(struct str s, uint8_t *out, size_t capacity, size_t *n);
