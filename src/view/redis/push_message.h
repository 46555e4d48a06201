/* Reading what Redis sends to the invalidation listener: RESP3, of which the library that reads
 * replies elsewhere knows nothing. Whole messages only; nothing is copied. */
#pragma once

#include "base/str.h"

enum { PUSH_BYTES_MAX = 1 << 20 }; /* of one message; a key has forty */

enum push_message_kind {
    PUSH_MORE,    /* the message is not complete yet */
    PUSH_BAD,     /* that is not RESP3, or too long */
    PUSH_KEYS,    /* these were changed: see push_message_next_key */
    PUSH_ALL,     /* everything was taken away */
    PUSH_ANSWER,  /* of whatever kind */
    PUSH_REFUSAL, /* an error; `text` says which */
    PUSH_OTHER,   /* another kind of push message */
};

struct push_message {
    enum push_message_kind kind;
    size_t size; /* bytes of the message; the next begins after them */
    struct str text;
};

void push_message_read(struct str bytes, struct push_message *out);
/* Of PUSH_KEYS, one after another. */
bool push_message_next_key(struct push_message *n, struct str *key);
