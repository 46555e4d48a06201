/* One HTTP/1 request, read from bytes that arrive in pieces of any size. Free of sockets, loops and
 * threads: the connection feeds it, and so does the fuzzer. How the bytes are cut never changes
 * what comes out.
 *
 * Everything ambiguous is BAD: bare CR or LF, folded lines, control characters, white space before
 * a colon, TE with CL, more than one length, no Host or several (HTTP/1.1), a second space in the
 * request line. */
#pragma once

#include "net/chunked.h"
#include "net/http.h"

enum request_verdict { REQUEST_MORE, REQUEST_DONE, REQUEST_BAD };

/* How far the check of the head's bytes has come; see request.c. */
struct head_check {
    uint8_t state;
    uint8_t blank_lines; /* before the request line */
    uint16_t lines;
    uint16_t first_line_len;
};

struct request {
    /* what came out, valid after DONE */
    enum http_method method;
    struct str target, path, query;
    size_t header_count;
    struct http_header headers[HTTP_HEADERS_MAX];
    struct buf body;
    bool keep_alive;
    bool http_1_0;

    /* known when the head is complete */
    bool head_complete;
    bool expects_continue;

    /* why it is BAD */
    int problem_status;
    const char *problem_detail; /* static text */

    /* progress */
    struct buf head;
    struct head_check check;
    bool chunked;
    uint64_t body_left;
    struct chunked chunks;
};

void request_init(struct request *r);
void request_done(struct request *r);
/* Ready for the next one; gives back buffers larger than `keep_max`. */
void request_reset(struct request *r, size_t keep_max);

/* Returns how many bytes it used: all of them while MORE, up to the request's end when DONE, any
 * number when BAD. After BAD the stream cannot be trusted any more: answer and close. Not to be
 * called after DONE or BAD. */
size_t request_feed(struct request *r, const char *bytes, size_t n, enum request_verdict *verdict);
