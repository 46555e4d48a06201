/* Exchanges: making, recycling, and the queries that handlers make. The slices of the request point
 * into request.head and request.body, which stay unchanged until the exchange is recycled; so a
 * handler may keep them for as long as it keeps the exchange. */
#include "net/exchange.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/stream_state.h"

struct exchange *exchange_new(struct loop *loop)
{
    struct exchange *e = malloc(sizeof *e);
    CHECK(e); /* as for arenas: without a few kilobytes nothing can go on */
    memset(e, 0, offsetof(struct exchange, request)); /* the header table needs no clearing */
    e->loop = loop;
    buf_init(&e->x.head, HTTP_ANSWER_HEAD_MAX);
    buf_init(&e->x.out, HTTP_ANSWER_MAX);
    buf_init(&e->wire, 0);
    arena_init(&e->x.arena);
    request_init(&e->request);
    return e;
}

static void release_body(struct exchange *e)
{
    if (e->x.kept)
        e->x.kept->release(e->x.kept);
    e->x.kept = NULL;
}

void exchange_release_stream(struct exchange *e)
{
    struct stream *s = e->stream;
    e->stream = NULL;
    if (s)
        stream_end(s);
}

void exchange_free(struct exchange *e)
{
    exchange_reset(e);
    request_done(&e->request);
    arena_done(&e->x.arena);
    buf_done(&e->wire);
    buf_done(&e->x.out);
    buf_done(&e->x.head);
    free(e);
}

void exchange_reset(struct exchange *e)
{
    release_body(e);
    exchange_release_stream(e);
    request_reset(&e->request, EXCHANGE_KEEP_MAX);
    buf_recycle(&e->x.head, EXCHANGE_KEEP_MAX);
    buf_recycle(&e->x.out, EXCHANGE_KEEP_MAX);
    e->x.out.max = HTTP_ANSWER_MAX; /* a handler may have set a lower one */
    buf_recycle(&e->wire, EXCHANGE_KEEP_MAX);
    arena_reset(&e->x.arena);
    e->conn = NULL;
    e->next = NULL;
    e->answered = false;
    e->body_held = e->unsent = e->wire_body_len = 0;
}

void exchange_present(struct exchange *e, struct str peer, bool control, unsigned loop_index)
{
    struct http_exchange *x = &e->x;
    struct request *r = &e->request;
    x->method = r->method;
    x->target = r->target;
    x->path = r->path;
    x->query = r->query;
    x->headers = r->headers;
    x->header_count = r->header_count;
    x->body = buf_view(&r->body);
    memcpy(e->peer, peer.ptr, peer.len);
    x->peer = (struct str){e->peer, peer.len};
    x->control = control;
    x->arrived_us = clock_mono_us(clock_system());
    x->loop = loop_index;
    x->status = 200;
    x->content_type = STR("application/json");
    x->close = x->no_store = false;
    x->user = NULL;
    x->complete = NULL;
}

struct str http_header(const struct http_exchange *x, struct str name)
{
    for (size_t i = 0; i < x->header_count; i++) {
        const struct http_header *h = &x->headers[i];
        if (h->name.len == name.len && str_eq_nocase(h->name, name))
            return h->value;
    }
    return (struct str){0};
}

void http_add_header(struct http_exchange *x, const char *name, const char *format, ...)
{
    buf_append(&x->head, name, strlen(name));
    buf_append(&x->head, ": ", 2);
    size_t start = x->head.len;
    va_list args;
    va_start(args, format);
    char *value = NULL;
    int n = vasprintf(&value, format, args);
    va_end(args);
    CHECK(n >= 0);
    buf_append(&x->head, value, (size_t)n);
    free(value);
    size_t len = x->head.len - start;
    CHECK(len == 0 ||
          (!memchr(x->head.ptr + start, '\r', len) && !memchr(x->head.ptr + start, '\n', len)));
    buf_append(&x->head, "\r\n", 2);
}
