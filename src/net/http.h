/* HTTP/1.1 on libuv and llhttp: N event-loop threads that accept, parse, hand each request to
 * one handler and send what it answers. A handler runs on the loop and must not block; it either
 * answers at once or keeps the exchange and answers later, from any thread, with http_answer().
 *
 * Limits that a peer meets: see struct http_config. Ambiguous framing (TE with CL, two lengths,
 * bare CR or LF) is answered 400 and closed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

struct http_server;
struct proxies;

enum http_method {
    HTTP_M_GET,
    HTTP_M_HEAD,
    HTTP_M_POST,
    HTTP_M_PUT,
    HTTP_M_PATCH,
    HTTP_M_DELETE,
    HTTP_M_OPTIONS,
    HTTP_M_OTHER
};

struct http_header {
    struct str name; /* as sent */
    struct str value;
};

enum { HTTP_HEADERS_MAX = 100, HTTP_HEAD_MAX = 16 * 1024, HTTP_BODY_MAX = 1024 * 1024 };

/* Ceilings of an answer: one that outgrows them is sent as 500 instead. */
enum { HTTP_ANSWER_HEAD_MAX = 16 * 1024, HTTP_ANSWER_MAX = 64 * 1024 * 1024 };

/* A body that is not copied into the answer: it is sent as it lies, by any number of exchanges at
 * once, and never changes. */
struct http_body {
    struct str bytes;
    void (*release)(struct http_body *b); /* the exchange needs it no more; any thread */
};

/* One request and its answer. Everything in it lives until the answer was sent; allocate what
 * belongs to the request from `arena`. */
struct http_exchange {
    /* the request, read-only for handlers */
    enum http_method method;
    struct str target; /* path?query as sent */
    struct str path;   /* still percent-encoded */
    struct str query;  /* without '?', "" when none */
    struct http_header *headers;
    size_t header_count;
    struct str body;
    struct str peer;    /* "127.0.0.1", "" on the control socket; of a trusted proxy: its client */
    bool control;       /* came through the control socket: the operator on this machine */
    int64_t arrived_us; /* monotonic */
    unsigned loop;      /* index of the loop that owns it */

    /* the answer */
    int status;              /* 200 unless set */
    struct buf head;         /* extra header lines, each "Name: value\r\n" */
    struct str content_type; /* static text; "application/json" unless set */
    struct buf out;          /* the body */
    struct http_body *kept;  /* sent in its place when `out` is empty; NULL: none */
    bool close;              /* close the connection after the answer */
    bool no_store;           /* the answer is for this caller alone: no cache may keep it */

    struct arena arena;
    void *user;                                /* the handler's */
    void (*complete)(struct http_exchange *x); /* see http_answer_by */
};

typedef void (*http_handler)(void *ctx, struct http_exchange *x);

struct http_config {
    const char *listen_host;       /* "127.0.0.1", "0.0.0.0", "::1"; NULL: no TCP */
    uint16_t listen_port;          /* 0: any free one, see http_server_port */
    const char *control_path;      /* unix socket, mode 0600; NULL: none */
    unsigned loops;                /* threads */
    unsigned connections_max;      /* beyond: answered 503 and closed */
    unsigned address_max;          /* of one address; beyond: 429 and closed; 0: no limit */
    const struct proxies *proxies; /* net/proxy.h: not held to it; NULL: none */
    int64_t head_timeout_ms;       /* first byte of a request → whole head: 10 s; also from the
                                      connection to its first byte */
    int64_t idle_timeout_ms;       /* between requests: 75 s */
    int64_t body_min_rate;       /* bytes per second a body must arrive at, after the grace, and an
                                    answer be taken at */
    int64_t body_grace_ms;       /* 10 s */
    int64_t write_timeout_ms;    /* no progress in sending: 20 s */
    int64_t stream_heartbeat_ms; /* silence of a stream (net/stream.h) that a comment ends: 20 s */
    http_handler handler;
    void *handler_ctx;
};
void http_config_default(struct http_config *c);

/* Binds, listens and starts the loops. On failure *out is untouched and `why` says so ("address
 * in use"). */
enum err http_server_start(const struct http_config *config, struct http_server **out,
                           char why[200]);
uint16_t http_server_port(const struct http_server *s);
/* Stops accepting, answers requests in flight, closes idle connections, waits up to `grace_ms`,
 * joins. */
void http_server_stop(struct http_server *s, int64_t grace_ms);
void http_server_free(struct http_server *s);

/* The answer is complete: send it. Any thread; exactly once per exchange; the exchange is gone
 * afterwards. */
void http_answer(struct http_exchange *x);

/* The same of an answer that is not written yet: `complete` writes it on the exchange's own loop,
 * just before it is sent, and must not block. It is called once in any case; on another thread only
 * when the loop has ended, and then nothing is sent. */
void http_answer_by(struct http_exchange *x, void (*complete)(struct http_exchange *x));

/* The value of a request header, {NULL, 0} when absent. Names are compared without regard to
 * case. */
struct str http_header(const struct http_exchange *x, struct str name);
/* Adds an answer header. Values must not hold CR or LF: such a call is our bug and CHECKed. */
void http_add_header(struct http_exchange *x, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes application/problem+json of the answer:
 * {"type":"/docs#problem-CODE","code","title","status", "detail"}. A detail of "" is left out. */
void http_problem(struct http_exchange *x, int status, const char *code, const char *title,
                  const char *detail);
#define HTTP_PROBLEM_CODE "http_error" /* of what HTTP alone refuses, with a status of its own */
/* The decoded value of a query parameter in the exchange's arena. False: absent. ERR_BAD_INPUT
 * shows as a value with ptr NULL. */
bool http_query(struct http_exchange *x, struct str name, struct str *value);

struct http_stats {
    uint64_t connections, accepted, refused, requests, bad_requests, bytes_in, bytes_out, timeouts;
};
void http_server_stats(const struct http_server *s, struct http_stats *out);
