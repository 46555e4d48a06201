/* Sends lines of JSON to the store in chunks, each one transaction or a few: what `import` and
 * `demo` share. */
#pragma once

#include "base/buf.h"
#include "cmd/control.h"

enum import_count {
    IMPORTED_ACCOUNTS,
    IMPORTED_FOLLOWS,
    IMPORTED_POSTS,
    IMPORTED_LIKES,
    IMPORTED_COMMENTS,
    IMPORTED_REPEATED,
    IMPORTED_REJECTED,
    IMPORT_COUNTS
};

struct import_lines {
    struct control *control;
    struct buf chunk;
    uint64_t chunk_lines;
    uint64_t chunk_weight;
    uint64_t line; /* number of the last line added */
    uint64_t totals[IMPORT_COUNTS];
    uint64_t rejections; /* told on stderr, the first few of them */
};

enum { IMPORT_LINE_MAX = 900 * 1024 };

void import_lines_init(struct import_lines *im, struct control *control);
void import_lines_done(struct import_lines *im);

/* Adds a line, with or without its line end. False: a chunk failed as a whole and a message was
 * printed. */
bool import_lines_add(struct import_lines *im, struct str line);
/* Counts a line that is too long to be sent. */
bool import_lines_reject(struct import_lines *im, const char *why);
bool import_lines_flush(struct import_lines *im);
/* "2,000 accounts, 45,120 follows, 0 rejected" on stdout. */
void import_lines_summary(const struct import_lines *im);
