/* A request's way through the API: match → CORS → who calls → policy → rate → body → idempotency →
 * the handler, on the thread that its route's mode names → the answer. Of several nodes, one that
 * does not lead passes on what only the leader can answer, in place of everything after the rate.
 *
 * The loop does everything that needs no waiting. A token that is not in the cache sends the
 * request to a blocking thread first; it then goes on from there exactly as it would have on the
 * loop. The route's row says everything that differs between routes: nothing here names one. */
#include "api/edge/auth.h"
#include "api/edge/cluster.h"
#include "api/edge/cors.h"
#include "api/edge/forward.h"
#include "api/edge/request.h"

enum { TRACE_MAX = 64 };

/* The caller is known: on the loop, or on a blocking thread when truth had to be asked. What a
 * caller gets as somebody, and what holds a token, is not for a cache. */
static void proceed(struct request *r)
{
    const struct caller *caller = &r->call.caller;
    r->call.x->no_store = caller->account || caller->scopes || r->call.route->rate == RATE_AUTH;
    enum err e = request_admit(r);
    if (!e && !r->forwarded && forward_is_needed(r->call.api, r->call.route)) {
        request_pass_on(r);
        return;
    }
    if (!e)
        e = request_prepare(r);
    if (e)
        request_finish(r, e);
    else
        request_run(r);
}

static void authenticate_task(struct pool_task *task)
{
    struct request *r = request_of_task(task);
    struct call *c = &r->call;
    enum err e = auth_resolve(c->api->auth, &r->credentials, &c->x->arena, &c->caller, c->detail);
    request_end_look_up(r, e);
    if (e == ERR_RATE_LIMITED)
        http_add_header(c->x, "Retry-After", "1");
    if (e)
        request_finish(r, e);
    else
        proceed(r);
}

/* Another node says who calls, and proves it. */
static void believe(struct request *r)
{
    struct call *c = &r->call;
    const char *why = "";
    enum err e = forward_check(c->api, c->x, c->route, r->headers.forwarded, &c->caller, &why);
    r->forwarded = e == OK;
    if (e == OK) {
        proceed(r);
        return;
    }
    if (e == ERR_FORBIDDEN)
        buf_str(&c->x->head, STR(FORWARD_HEADER ": refused\r\n"));
    call_fail(c, e, "%s", why);
    request_finish(r, e);
}

static void authenticate(struct request *r)
{
    struct call *c = &r->call;
    struct known_headers *h = &r->headers;
    const struct str none = {NULL, 0};
    bool tokenless = (c->route->flags & ROUTE_TOKENLESS) != 0;
    const char *why = "";
    r->presented = !tokenless && h->authorization.ptr;
    enum err e = auth_read(tokenless ? none : h->authorization, tokenless ? none : h->acting,
                           c->x->control, &r->credentials, &why);
    if (e) {
        call_fail(c, e, "%s", why);
        request_finish(r, e);
    } else if (auth_find(c->api->auth, &r->credentials, &c->caller)) {
        proceed(r);
    } else if ((e = request_begin_look_up(r)) != OK) {
        request_finish(r, e);
    } else {
        request_submit(r, request_readers(r), authenticate_task);
    }
}

/* ---- the first look ---- */

/* A trace id goes into the log only if it looks like one. */
static bool is_trace(struct str s)
{
    if (s.len > TRACE_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char b = s.ptr[i];
        if (!((b >= '0' && b <= '9') || (b >= 'a' && b <= 'f') || b == '-'))
            return false;
    }
    return true;
}

/* One walk over the headers; of two with one name the first counts, unless there may be one only:
 * a proxy could have looked at the other one. The request reader refuses a second Host. */
static void read_headers(const struct http_exchange *x, struct known_headers *out)
{
    const struct {
        struct str name;
        struct str *value;
        const char *once; /* its name for people; NULL: it may appear again */
    } known[] = {
        {STR("authorization"), &out->authorization, "Authorization"},
        {STR("fantail-account"), &out->acting, "Fantail-Account"},
        {STR("origin"), &out->origin, NULL},
        {STR("access-control-request-method"), &out->preflight_method, NULL},
        {STR("content-type"), &out->content_type, NULL},
        {STR("idempotency-key"), &out->idempotency_key, "Idempotency-Key"},
        {STR("traceparent"), &out->traceparent, NULL},
        {STR("fantail-forwarded"), &out->forwarded, NULL},
        {STR("fantail-why"), &out->why, NULL},
    };
    for (size_t i = 0; i < x->header_count; i++) {
        const struct http_header *h = &x->headers[i];
        for (size_t k = 0; k < COUNT_OF(known); k++) {
            if (h->name.len != known[k].name.len || !str_eq_nocase(h->name, known[k].name))
                continue;
            if (!known[k].value->ptr)
                *known[k].value = h->value.ptr ? h->value : STR("");
            else if (known[k].once)
                out->twice = known[k].once;
            break;
        }
    }
    if (!is_trace(out->traceparent))
        out->traceparent = (struct str){NULL, 0};
}

static void answer_options(struct request *r, struct str methods)
{
    struct http_exchange *x = r->call.x;
    bool preflight = r->headers.preflight_method.ptr &&
                     cors_allows(r->call.api->settings->cors_origins, r->headers.origin);
    if (preflight)
        cors_add_preflight(x, methods);
    else
        http_add_header(x, "Allow", "%.*s", STR_ARG(methods));
    r->call.status = 204;
    request_finish(r, OK);
}

void api_handle(void *ctx, struct http_exchange *x)
{
    struct api *api = ctx;
    struct request *r = ARENA_NEW(&x->arena, struct request);
    r->call.api = api;
    r->call.x = x;
    r->on_loop = true;
    read_headers(x, &r->headers);
    cors_add_headers(api->settings->cors_origins, r->headers.origin, x);
    if (api->settings->hsts_ms > 0)
        buf_printf(&x->head, "Strict-Transport-Security: max-age=%lld\r\n",
                   (long long)(api->settings->hsts_ms / 1000));
    if (r->headers.twice) {
        request_finish(r, call_fail(&r->call, ERR_BAD_INPUT, "%s appears more than once: send one",
                                    r->headers.twice));
        return;
    }
    struct route_match match;
    if (!routes_match(x->method, x->path, &match)) {
        request_finish(r, ERR_NOT_FOUND);
        return;
    }
    if (!match.route) {
        char text[ROUTE_METHODS_TEXT_MAX];
        struct str methods = {text, routes_methods_text(match.methods, text)};
        if (x->method == HTTP_M_OPTIONS) {
            answer_options(r, methods);
            return;
        }
        http_add_header(x, "Allow", "%.*s", STR_ARG(methods));
        request_finish(r, ERR_METHOD);
        return;
    }
    r->call.route = match.route;
    memcpy(r->call.params, match.params, sizeof match.params);
    r->call.name = match.name;
    const struct cluster *cluster = api->cluster;
    if (cluster && !(cluster->roles & ROLE_API) && !route_is_everywhere(match.route))
        request_finish(
            r, call_fail(&r->call, ERR_MISDIRECTED,
                         "this node has no role api: ask another one, or the proxy in front"));
    else if (cluster && r->headers.forwarded.ptr)
        believe(r);
    else
        authenticate(r);
}
