/* Whom a text names: @username in a caption or a comment. */
#pragma once

#include "model/account.h"

enum {
    MENTIONS_MAX = 20, /* of a text; whom it names beyond that is not told */
    MENTION_DATA_MAX = EVENT_DATA_MAX,
};

struct mention_name {
    char text[USERNAME_MAX]; /* lower case */
    size_t len;
};

/* The names in a text, each once, in their order; how many. A name stands by itself: not in an
 * address (ada@example.org), a path (/@ada) or a name elsewhere (@ada@example.org). Dots at its end
 * belong to the sentence. */
size_t mention_names(struct str text, struct mention_name out[MENTIONS_MAX]);

struct mentioning {
    uint64_t by;
    uint64_t object;     /* the post, or the comment … */
    uint64_t comment_on; /* … on this post; 0: it is a post */
    struct str text;
    struct str before; /* what an edit replaces: whom that named is not told again */
};
/* Emits POST_MENTIONS or COMMENT_MENTIONS when the text names an account that exists, is not its
 * author and has no block with the author. A text without an @ costs no statement. */
enum err mentions_emit(struct tx *tx, const struct mentioning *m);

/* An event's data: {"post":"…","to":["…"]}, either only where there is something to say. */
struct str mention_data(uint64_t post, const uint64_t *to, size_t n, char memory[MENTION_DATA_MAX]);
