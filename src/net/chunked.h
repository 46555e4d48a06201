/* The chunked transfer coding of a request body, decoded as the bytes arrive. Strict: CRLF only, no
 * white space around sizes, extensions and trailers bounded, checked and dropped. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What one request may spend on chunk extensions and on trailers. */
enum { CHUNKED_EXTENSIONS_MAX = 4 * 1024, CHUNKED_TRAILERS_MAX = 4 * 1024 };

enum chunked_verdict {
    CHUNKED_MORE,
    CHUNKED_DONE,
    CHUNKED_BAD,
    CHUNKED_TOO_LARGE,
    CHUNKED_NO_MEMORY
};

struct chunked {
    uint8_t state;
    uint8_t size_digits;
    uint32_t extension_bytes;
    uint32_t trailer_bytes;
    uint64_t left; /* of the present chunk; while its size is read, the size so far */
};

void chunked_init(struct chunked *c);
/* Appends what it decodes to `body`, whose ceiling is the body's limit. Returns how many bytes it
 * used: all of them while MORE, up to the end of the body when DONE. */
size_t chunked_feed(struct chunked *c, const char *bytes, size_t n, struct buf *body,
                    enum chunked_verdict *verdict);
