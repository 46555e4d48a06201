/* The inside of a struct http_exchange: the request reader, the rendered answer, and its owner.
 * Exchanges are recycled with their buffers and arena, so that an ordinary GET allocates nothing.
 *
 * An exchange belongs to its loop, except between the call of the handler and http_answer(): then
 * it is the handler's, and the loop touches only its `conn` field. */
#pragma once

#include <uv.h>

#include "net/http.h"
#include "net/request.h"

struct conn;
struct loop;
struct stream;

/* Longest text of an address: an IPv6 one with its scope. */
enum { PEER_TEXT_MAX = 64 };

/* Buffers larger than this are given back when an exchange is recycled. */
enum { EXCHANGE_KEEP_MAX = 64 * 1024 };

struct exchange {
    struct http_exchange x; /* what the handler sees */
    struct loop *loop;
    struct conn *conn;     /* NULL: the connection closed, so the answer is dropped */
    struct exchange *next; /* in the spare list or in the loop's inbox */
    bool answered;         /* back from the handler */
    size_t body_held;      /* its share of the loop's count of body bytes */
    size_t unsent;         /* its share of the loop's count of bytes waiting to be sent */
    struct buf wire;       /* the rendered head of the answer */
    size_t wire_body_len;  /* how much of x.out follows it: none for HEAD and 204 */
    uv_write_t write;
    struct stream *stream; /* what follows the head, until the connection has it; NULL: nothing */
    char peer[PEER_TEXT_MAX];
    struct request request;
};

struct exchange *exchange_new(struct loop *loop);
void exchange_free(struct exchange *e);
void exchange_reset(struct exchange *e); /* ready for the next request */

/* The bytes of the body. */
static inline struct str exchange_body(const struct exchange *e)
{
    return e->x.kept && e->x.out.len == 0 ? e->x.kept->bytes : buf_view(&e->x.out);
}

/* Ends the stream, if there is one, before it began: none of its frames is sent. */
void exchange_release_stream(struct exchange *e);

/* Shows the complete request to the handler's side. */
void exchange_present(struct exchange *e, struct str peer, bool control, unsigned loop_index);

/* ---- answers as bytes: answer.c ---- */

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
