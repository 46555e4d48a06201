/* Answers as bytes: the status line and headers in front of a body, and the problems that the
 * server reports by itself. */
#pragma once

#include "net/exchange.h"

/* "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", made anew once a second. */
enum { DATE_LINE_LEN = 37 };
struct date_line {
    int64_t second;
    char text[DATE_LINE_LEN];
};
void date_line_update(struct date_line *d, int64_t wall_second);

/* Renders the answer's head into e->wire and sets wire_body_len. */
void answer_render(struct exchange *e, const struct date_line *date, bool keep_alive);

/* Replaces whatever the answer held, its header lines too, by a problem of the server's own. */
void answer_problem(struct http_exchange *x, int status, const char *detail);
