/* Reading and comparing byte slices: parsing, UTF-8, percent-decoding, hex and base64url. Every
 * function here meets bytes from peers, so all of them are total: any input gives an answer, none
 * reads beyond the slice, and the strict ones accept exactly one spelling of a value (no leading
 * '+', no stray bits after base64). */
#include "base/str.h"

const char str_digit_pairs[201] = "00010203040506070809101112131415161718192021222324"
                                  "25262728293031323334353637383940414243444546474849"
                                  "50515253545556575859606162636465666768697071727374"
                                  "75767778798081828384858687888990919293949596979899";

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool str_eq_nocase(struct str a, struct str b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++) {
        if (a.ptr[i] != b.ptr[i] && lower(a.ptr[i]) != lower(b.ptr[i]))
            return false;
    }
    return true;
}

bool str_starts(struct str s, struct str prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

struct str str_trim(struct str s)
{
    while (s.len > 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t'))
        s.len--;
    return s;
}

bool str_split(struct str *rest, char separator, struct str *part)
{
    if (rest->len == 0)
        return false;
    const char *found = memchr(rest->ptr, separator, rest->len);
    size_t taken = found ? (size_t)(found - rest->ptr) : rest->len;
    *part = (struct str){rest->ptr, taken};
    size_t skip = found ? taken + 1 : taken;
    rest->ptr += skip;
    rest->len -= skip;
    return true;
}

bool str_parse_u64(struct str s, uint64_t *out)
{
    if (s.len == 0)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < s.len; i++) {
        uint64_t digit = (uint64_t)(unsigned char)s.ptr[i] - '0';
        if (digit > 9)
            return false;
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return true;
}

bool str_parse_i64(struct str s, int64_t *out)
{
    bool negative = s.len > 0 && s.ptr[0] == '-';
    if (negative) {
        s.ptr++;
        s.len--;
    }
    uint64_t magnitude;
    if (!str_parse_u64(s, &magnitude))
        return false;
    uint64_t limit = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    if (magnitude > limit)
        return false;
    *out = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

/* The length of the well-formed sequence at `p`, or 0. The second byte's range carries all the
 * special cases: it is what excludes overlong forms (E0, F0), surrogates (ED) and everything above
 * U+10FFFF (F4). */
static size_t utf8_sequence(const unsigned char *p, size_t left)
{
    unsigned char first = p[0];
    if (first < 0x80)
        return 1;
    unsigned char low = 0x80, high = 0xBF;
    size_t length;
    if (first >= 0xC2 && first <= 0xDF) {
        length = 2;
    } else if (first >= 0xE0 && first <= 0xEF) {
        length = 3;
        if (first == 0xE0)
            low = 0xA0;
        if (first == 0xED)
            high = 0x9F;
    } else if (first >= 0xF0 && first <= 0xF4) {
        length = 4;
        if (first == 0xF0)
            low = 0x90;
        if (first == 0xF4)
            high = 0x8F;
    } else {
        return 0;
    }
    if (left < length || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    }
    return length;
}

/* How many bytes of it, from the first, are well-formed. */
static size_t utf8_prefix(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.ptr;
    size_t i = 0;
    while (i < s.len) {
        /* Most text is ASCII: eight bytes at a time while no top bit is set. */
        uint64_t word;
        while (s.len - i >= sizeof word) {
            memcpy(&word, p + i, sizeof word);
            if (word & UINT64_C(0x8080808080808080))
                break;
            i += sizeof word;
        }
        if (i == s.len)
            break;
        size_t length = utf8_sequence(p + i, s.len - i);
        if (length == 0)
            break;
        i += length;
    }
    return i;
}

bool str_is_utf8(struct str s)
{
    return utf8_prefix(s) == s.len;
}

struct str str_cut(struct str s, size_t max)
{
    s.len = s.len < max ? s.len : max;
    s.len = utf8_prefix(s);
    return s;
}

void str_copy(char *out, size_t size, struct str s)
{
    size_t len = s.len < size ? s.len : size - 1;
    if (len > 0)
        memcpy(out, s.ptr, len);
    out[len] = '\0';
}

size_t str_count_chars(struct str s)
{
    size_t chars = 0;
    for (size_t i = 0; i < s.len; i++)
        chars += ((unsigned char)s.ptr[i] & 0xC0) != 0x80;
    return chars;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    char l = lower(c);
    return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

bool str_url_decode(struct str s, char *out, size_t *out_len)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            if (s.len - i < 3)
                return false;
            int high = hex_digit(s.ptr[i + 1]), low = hex_digit(s.ptr[i + 2]);
            if (high < 0 || low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        out[n++] = c;
    }
    *out_len = n;
    return true;
}

void str_hex(const uint8_t *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
}

static const char base64url_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

size_t str_base64url_size(size_t n)
{
    size_t tail = n % 3;
    return n / 3 * 4 + (tail ? tail + 1 : 0);
}

void str_base64url(const uint8_t *bytes, size_t n, char *out)
{
    uint32_t bits = 0;
    unsigned held = 0; /* how many of the low bits of `bits` are not written yet */
    for (size_t i = 0; i < n; i++) {
        bits = bits << 8 | bytes[i];
        held += 8;
        while (held >= 6) {
            held -= 6;
            *out++ = base64url_alphabet[bits >> held & 63];
        }
    }
    if (held > 0)
        *out = base64url_alphabet[bits << (6 - held) & 63];
}

static int base64url_digit(char c)
{
    const char *at = c ? strchr(base64url_alphabet, c) : NULL;
    return at ? (int)(at - base64url_alphabet) : -1;
}

bool str_base64url_decode(struct str s, uint8_t *out, size_t capacity, size_t *n)
{
    if (s.len % 4 == 1 || s.len / 4 * 3 + (s.len % 4 ? s.len % 4 - 1 : 0) > capacity)
        return false;
    uint32_t bits = 0;
    unsigned held = 0;
    size_t written = 0;
    for (size_t i = 0; i < s.len; i++) {
        int digit = base64url_digit(s.ptr[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[written++] = (uint8_t)(bits >> held);
        }
    }
    /* Bits left over must be zero, or two texts would decode to the same bytes. */
    if (bits & ((UINT32_C(1) << held) - 1))
        return false;
    *n = written;
    return true;
}
