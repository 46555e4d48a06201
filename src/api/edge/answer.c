/* The way out of the dispatcher: problem documents, counters, the log, and sending. The holder of a
 * request answers it once, by request_finish() or request_send(), and the request is gone. */
#include <stdio.h>

#include "api/edge/dispatcher.h"
#include "api/edge/request.h"
#include "base/log.h"
#include "net/stream.h"

enum { SLOW_MS = 1000, LOGGED_PATH_MAX = 200 };

void problem_write(struct http_exchange *x, enum err kind, const char *detail)
{
    int status = err_http_status(kind);
    /* What went wrong inside is for the log, not for the peer; why the overload guard holds is for
     * both. */
    bool shown = status < 500 || kind == ERR_OVERLOAD_GUARD;
    char code[ERR_CODE_MAX];
    err_code(kind, code);
    http_problem(x, status, code, err_title(kind), shown ? detail : "");
}

static void add_problem_headers(struct request *r, enum err kind)
{
    struct http_exchange *x = r->call.x;
    int status = err_http_status(kind);
    if (status == 401)
        buf_str(&x->head, r->presented ? STR("WWW-Authenticate: Bearer error=\"invalid_token\"\r\n")
                                       : STR("WWW-Authenticate: Bearer\r\n"));
    if (kind == ERR_OVERLOAD_GUARD)
        buf_str(&x->head, STR("Retry-After: 5\r\n"));
    else if (status == 503 || kind == ERR_IN_PROGRESS)
        buf_str(&x->head, STR("Retry-After: 1\r\n"));
}

static void log_request(struct request *r, enum err kind, int64_t took_us)
{
    const struct http_exchange *x = r->call.x;
    bool failed = kind && x->status >= 500 && kind != ERR_OVERLOADED && kind != ERR_STOPPING &&
                  kind != ERR_OVERLOAD_GUARD;
    bool slow = took_us > SLOW_MS * INT64_C(1000);
    if (!failed && !slow && !r->call.api->dispatcher->log_requests)
        return;
    struct str path = x->path; /* never the query: it can hold what people look for */
    if (path.len > LOGGED_PATH_MAX)
        path.len = LOGGED_PATH_MAX;
    log_write(failed || slow ? LOG_WARN : LOG_DEBUG, failed ? "request failed" : "request",
              LOG_FIELDS(LOG_CSTR("method", route_method_name(x->method)), LOG_STR("path", path),
                         LOG_INT("status", x->status), LOG_INT("took_us", took_us),
                         LOG_STR("address", x->peer), LOG_ID("account", r->call.caller.account),
                         LOG_CSTR("error", kind ? err_name(kind) : ""),
                         LOG_CSTR("detail", failed ? r->call.detail : ""),
                         LOG_STR("trace", r->headers.traceparent)));
}

/* The last that is done with the request. The answer's body is complete. */
static void close_request(struct request *r, enum err kind)
{
    struct http_exchange *x = r->call.x;
    struct dispatcher *dispatcher = r->call.api->dispatcher;
    if (r->claimed)
        idempotency_end(dispatcher->keys, &r->key);
    json_decref(r->call.body);
    int64_t took_us = clock_mono_us(r->call.api->clock) - x->arrived_us;
    size_t index = r->call.route ? (size_t)(r->call.route - routes) : route_count;
    struct route_stats *stats = &dispatcher->routes[index];
    atomic_fetch_add_explicit(&stats->by_class[x->status / 100], 1, memory_order_relaxed);
    hist_record(&stats->took_us, took_us > 0 ? (uint64_t)took_us : 1);
    log_request(r, kind, took_us);
}

/* The way out: counts, logs, sends. */
void request_send(struct request *r, enum err kind)
{
    struct http_exchange *x = r->call.x;
    close_request(r, kind);
    struct stream *stream = r->call.stream;
    if (!stream) {
        http_answer(x);
        return;
    }
    stream_start(stream, x);
    stream_unref(stream);
}

static void write_answer(struct request *r, enum err kind)
{
    struct call *c = &r->call;
    struct http_exchange *x = c->x;
    if (kind) {
        problem_write(x, kind, c->detail);
        add_problem_headers(r, kind);
        if (kind == ERR_OVERLOADED)
            atomic_fetch_add_explicit(&c->api->dispatcher->shed, 1, memory_order_relaxed);
    } else {
        x->status = c->status;
        if (c->status == 204)
            buf_clear(&x->out);
    }
    if (r->repeated) {
        buf_str(&x->head, STR("Idempotent-Replayed: true\r\n"));
        atomic_fetch_add_explicit(&c->api->dispatcher->repeated, 1, memory_order_relaxed);
    }
}

void request_finish(struct request *r, enum err kind)
{
    write_answer(r, kind);
    request_send(r, kind);
}

static void complete_write(struct http_exchange *x)
{
    struct request *r = x->user;
    enum err kind = r->result;
    request_settle_limit(r, !kind && r->happened);
    if (!kind)
        request_render(r);
    write_answer(r, kind);
    close_request(r, kind);
}

void request_finish_write(struct request *r, enum err kind)
{
    r->result = kind;
    r->call.x->user = r;
    http_answer_by(r->call.x, complete_write);
}
