/* Reading what Redis sends to the watch: RESP3, of which the library that reads replies elsewhere
 * knows nothing. Whole messages only; nothing is copied. */
#pragma once

#include "base/str.h"

enum { NEWS_BYTES_MAX = 1 << 20 }; /* of one message; a key has forty */

enum news_kind {
    NEWS_MORE,    /* the message is not complete yet */
    NEWS_BAD,     /* that is not RESP3, or too long */
    NEWS_KEYS,    /* these were changed: see news_next_key */
    NEWS_ALL,     /* everything was taken away */
    NEWS_ANSWER,  /* of whatever kind */
    NEWS_REFUSAL, /* an error; `text` says which */
    NEWS_NOTHING, /* told of something else */
};

struct news {
    enum news_kind kind;
    size_t size; /* bytes of the message; the next begins after them */
    struct str text;
};

void news_read(struct str bytes, struct news *out);
/* Of NEWS_KEYS, one after another. */
bool news_next_key(struct news *n, struct str *key);
