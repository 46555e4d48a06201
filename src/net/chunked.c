/* The chunked decoder: a byte-driven automaton, except inside chunk data, which is taken in one
 * copy.
 *
 * llhttp accepts a bare CR inside a trailer and stray white space. A proxy in front may read such
 * bytes differently, which allows request smuggling. So everything but the exact grammar is BAD:
 *
 *   size [ext] CRLF data CRLF … 0 [ext] CRLF *( name ":" value CRLF ) CRLF */
#include "net/chunked.h"

#include "net/token.h"

enum {
    SIZE,      /* hexadecimal digits */
    EXTENSION, /* after ';', up to CR */
    SIZE_LF,   /* LF that ends the size line */
    DATA,      /* `left` bytes */
    DATA_CR,   /* CRLF after the data */
    DATA_LF,
    TRAILER_START, /* a trailer line or the end */
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF,
};

enum { SIZE_DIGITS_MAX = 15 };

void chunked_init(struct chunked *c)
{
    *c = (struct chunked){.state = SIZE};
}

static int hex_value(unsigned char b)
{
    if (b >= '0' && b <= '9')
        return b - '0';
    b |= 0x20;
    return b >= 'a' && b <= 'f' ? b - 'a' + 10 : -1;
}

static enum chunked_verdict on_size_byte(struct chunked *c, unsigned char b)
{
    int digit = hex_value(b);
    if (digit >= 0) {
        if (c->size_digits == SIZE_DIGITS_MAX)
            return CHUNKED_BAD;
        c->size_digits++;
        c->left = c->left * 16 + (uint64_t)digit;
        return CHUNKED_MORE;
    }
    if (c->size_digits == 0 || (b != '\r' && b != ';'))
        return CHUNKED_BAD;
    c->state = b == '\r' ? SIZE_LF : EXTENSION;
    return CHUNKED_MORE;
}

static enum chunked_verdict on_extension_byte(struct chunked *c, unsigned char b)
{
    if (b == '\r') {
        c->state = SIZE_LF;
        return CHUNKED_MORE;
    }
    if (!token_is_value_byte(b) || ++c->extension_bytes > CHUNKED_EXTENSIONS_MAX)
        return CHUNKED_BAD;
    return CHUNKED_MORE;
}

static enum chunked_verdict on_trailer_byte(struct chunked *c, unsigned char b)
{
    bool in_value = c->state == TRAILER_VALUE;
    if (++c->trailer_bytes > CHUNKED_TRAILERS_MAX)
        return CHUNKED_BAD;
    if (b == '\r' && c->state != TRAILER_NAME)
        c->state = in_value ? TRAILER_LF : END_LF;
    else if (b == ':' && c->state == TRAILER_NAME)
        c->state = TRAILER_VALUE;
    else if (!(in_value ? token_is_value_byte(b) : token_is_name_byte(b)))
        return CHUNKED_BAD;
    else if (!in_value)
        c->state = TRAILER_NAME;
    return CHUNKED_MORE;
}

/* Every state but DATA. */
static enum chunked_verdict on_byte(struct chunked *c, unsigned char b, const struct buf *body)
{
    switch (c->state) {
    case SIZE:
        return on_size_byte(c, b);
    case EXTENSION:
        return on_extension_byte(c, b);
    case SIZE_LF:
        if (b != '\n')
            return CHUNKED_BAD;
        if (c->left > body->max - body->len)
            return CHUNKED_TOO_LARGE;
        c->state = c->left > 0 ? DATA : TRAILER_START;
        return CHUNKED_MORE;
    case DATA_CR:
        c->state = DATA_LF;
        return b == '\r' ? CHUNKED_MORE : CHUNKED_BAD;
    case DATA_LF:
        c->state = SIZE;
        c->size_digits = 0;
        return b == '\n' ? CHUNKED_MORE : CHUNKED_BAD;
    case TRAILER_LF:
        c->state = TRAILER_START;
        return b == '\n' ? CHUNKED_MORE : CHUNKED_BAD;
    case END_LF:
        return b == '\n' ? CHUNKED_DONE : CHUNKED_BAD;
    default:
        return on_trailer_byte(c, b);
    }
}

size_t chunked_feed(struct chunked *c, const char *bytes, size_t n, struct buf *body,
                    enum chunked_verdict *verdict)
{
    size_t used = 0;
    *verdict = CHUNKED_MORE;
    while (used < n && *verdict == CHUNKED_MORE) {
        if (c->state != DATA) {
            *verdict = on_byte(c, (unsigned char)bytes[used++], body);
            continue;
        }
        size_t part = n - used < c->left ? n - used : (size_t)c->left;
        buf_append(body, bytes + used, part);
        if (body->failed)
            *verdict = CHUNKED_NO_MEMORY;
        used += part;
        c->left -= part;
        if (c->left == 0)
            c->state = DATA_CR;
    }
    return used;
}
