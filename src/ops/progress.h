/* How far a long piece of work is: a bar on a terminal, a line every few seconds otherwise. Both go
 * to stderr, so that stdout has the command's output alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum progress_unit { PROGRESS_COUNT, PROGRESS_BYTES };

struct progress {
    const char *label; /* "importing" */
    enum progress_unit unit;
    uint64_t total; /* 0: not known */
    uint64_t done;
    int fd;
    bool terminal;
    int64_t began_us, shown_us;
};

void progress_init(struct progress *p, const char *label, uint64_t total, enum progress_unit unit);
void progress_update(struct progress *p,
                     uint64_t done); /* cheap: draws a few times a second at most */
/* The same, for work that reports its total too: `ctx` is the struct progress. */
void progress_follow(void *ctx, uint64_t done, uint64_t total);
void progress_done(
    struct progress *p); /* draws the end and leaves the line; also after a failure */

/* The text of the bar: fits into `width` columns, NUL-terminated, without a line end. Width 0: no
 * bar, for lines. */
void progress_render(const struct progress *p, int64_t now_us, unsigned width, char *out,
                     size_t size);

/* "12,345" and "1.5 MB". */
void progress_print_count(uint64_t n, char out[32]);
void progress_print_bytes(uint64_t n, char out[32]);
