/* A request's way through the API: match → CORS → who calls → policy → rate → body → idempotency →
 * the handler, on the thread that its route's mode names → the answer. Of several nodes, one that
 * does not lead passes on what only the leader can answer, in place of everything after the rate.
 *
 * The loop does everything that needs no waiting. A token that is not in the cache sends the
 * request to a blocking thread first; it then goes on from there exactly as it would have on the
 * loop. Whoever holds the request answers it: there is one way out, finish(), and after it the
 * request is gone.
 *
 * Queues are bounded everywhere: a full one answers 503 with Retry-After instead of waiting. */
#include <stdio.h>

#include "api/auth.h"
#include "api/body.h"
#include "api/cluster.h"
#include "api/cors.h"
#include "api/edge.h"
#include "api/forward.h"
#include "api/handlers.h"
#include "api/hot_groups.h"
#include "api/routes.h"
#include "base/check.h"
#include "base/log.h"
#include "net/limits.h"
#include "net/stream.h"
#include "ops/brake.h"
#include "port/watch.h"

enum { SLOW_MS = 1000, LOGGED_PATH_MAX = 200, TRACE_MAX = 64 };
enum { BURST_AUTH = 10, BURST = 5, BURST_GROUP = 2 }; /* times the rate */
enum { CLASS_GROUP = RATE_NONE + 1 };                 /* of limits, beyond those of routes */

/* The headers that the dispatcher looks at, found in one walk. */
struct known_headers {
    struct str authorization, acting, origin, preflight_method, content_type, idempotency_key,
        traceparent, forwarded;
};

struct request {
    struct call call; /* first: handlers and jobs know this part */
    struct known_headers headers;
    struct credentials credentials;
    size_t head_mark; /* header lines before the handler ran */
    bool on_loop;     /* must not block */
    bool presented;   /* a token came with it */
    bool forwarded;   /* another node has looked at it already */
    bool keyed;       /* has an Idempotency-Key that counts */
    bool claimed;     /* … which is in the set of keys in progress */
    bool executed;    /* … and the handler ran: its refusal may be remembered */
    bool replayed;    /* … or an earlier answer was found */
    bool entry;       /* took a token of its group's limit */
    bool happened;    /* the handler ran, and something became true */
    int64_t submitted_us;
    struct idempotency_key key;
    struct db_job keep; /* remembers a refusal */
    struct watch_question question;
};

static void proceed(struct request *r);

/* ---- the answer ---- */

void problem_write(struct http_exchange *x, enum err kind, const char *detail)
{
    int status = err_http_status(kind);
    x->status = status;
    x->content_type = STR("application/problem+json");
    buf_clear(&x->out);
    struct json_out j;
    json_out_init(&j, &x->out);
    json_object_begin(&j);
    json_put(&j, "type", str, STR("about:blank"));
    json_put(&j, "title", str, str_of(err_title(kind)));
    json_put(&j, "status", i64, status);
    /* What went wrong inside is for the log, not for the peer; why the brake holds is for both. */
    if (detail[0] && (status < 500 || kind == ERR_BRAKED))
        json_put(&j, "detail", str, str_of(detail));
    json_object_end(&j);
}

static void add_problem_headers(struct request *r, enum err kind)
{
    struct http_exchange *x = r->call.x;
    int status = err_http_status(kind);
    if (status == 401)
        buf_str(&x->head, r->presented ? STR("WWW-Authenticate: Bearer error=\"invalid_token\"\r\n")
                                       : STR("WWW-Authenticate: Bearer\r\n"));
    if (kind == ERR_BRAKED)
        buf_str(&x->head, STR("Retry-After: 5\r\n"));
    else if (status == 503 || kind == ERR_IN_PROGRESS)
        buf_str(&x->head, STR("Retry-After: 1\r\n"));
}

static void log_request(struct request *r, enum err kind, int64_t took_us)
{
    const struct http_exchange *x = r->call.x;
    bool failed = kind && x->status >= 500 && kind != ERR_OVERLOADED && kind != ERR_STOPPING &&
                  kind != ERR_BRAKED;
    bool slow = took_us > SLOW_MS * INT64_C(1000);
    if (!failed && !slow && !r->call.api->edge->log_requests)
        return;
    struct str path = x->path; /* never the query: it can hold what people look for */
    if (path.len > LOGGED_PATH_MAX)
        path.len = LOGGED_PATH_MAX;
    log_write(failed || slow ? LOG_WARN : LOG_DEBUG, failed ? "request failed" : "request",
              LOG_FIELDS(LOG_CSTR("method", route_method_name(x->method)), LOG_STR("path", path),
                         LOG_INT("status", x->status), LOG_INT("took_us", took_us),
                         LOG_ID("account", r->call.caller.account),
                         LOG_CSTR("error", kind ? err_name(kind) : ""),
                         LOG_CSTR("detail", failed ? r->call.detail : ""),
                         LOG_STR("trace", r->headers.traceparent)));
}

/* The way out: counts, logs, sends. The answer's body is complete. */
static void send_answer(struct request *r, enum err kind)
{
    struct http_exchange *x = r->call.x;
    struct edge *edge = r->call.api->edge;
    if (r->claimed)
        idempotency_end(edge->keys, &r->key);
    json_decref(r->call.body);
    int64_t took_us = clock_mono_us(r->call.api->clock) - x->arrived_us;
    size_t index = r->call.route ? (size_t)(r->call.route - routes) : route_count;
    struct route_stats *stats = &edge->routes[index];
    atomic_fetch_add_explicit(&stats->by_class[x->status / 100], 1, memory_order_relaxed);
    hist_record(&stats->took_us, took_us > 0 ? (uint64_t)took_us : 1);
    log_request(r, kind, took_us);
    struct stream *stream = r->call.stream;
    if (!stream) {
        http_answer(x);
        return;
    }
    stream_start(stream, x);
    stream_unref(stream);
}

static void finish(struct request *r, enum err kind)
{
    struct call *c = &r->call;
    struct http_exchange *x = c->x;
    if (kind) {
        problem_write(x, kind, c->detail);
        add_problem_headers(r, kind);
        if (kind == ERR_OVERLOADED)
            atomic_fetch_add_explicit(&c->api->edge->shed, 1, memory_order_relaxed);
    } else {
        x->status = c->status;
        if (r->replayed) {
            buf_str(&x->head, STR("Idempotent-Replayed: true\r\n"));
            atomic_fetch_add_explicit(&c->api->edge->replayed, 1, memory_order_relaxed);
        }
        if (c->status == 204)
            buf_clear(&x->out);
    }
    send_answer(r, kind);
}

/* ---- running the handler ---- */

/* Handlers may be run again: each run starts with an empty answer. */
static void clear_answer(struct request *r)
{
    struct call *c = &r->call;
    buf_clear(&c->x->out);
    c->x->head.len = r->head_mark;
    c->x->content_type = STR("application/json");
    json_out_init(&c->json, &c->x->out);
    c->status = c->route->success;
    c->detail[0] = '\0';
    c->blocking = !r->on_loop;
    c->kept = (struct str){NULL, 0};
    r->executed = r->replayed = r->happened = false;
}

static enum err run_handler(struct request *r, struct tx *tx)
{
    enum err e = r->call.route->handler(&r->call, tx);
    if (e && tx && !r->call.detail[0])
        snprintf(r->call.detail, sizeof r->call.detail, "%s", tx->detail);
    /* The lead may have gone in the meantime: then what was read is nothing, and what was set
     * went nowhere. What a POST has done is in truth, and stays. */
    if (!e && r->call.route->method != HTTP_M_POST && forward_is_needed(r->call.api, r->call.route))
        e = ERR_NO_LEADER;
    return e;
}

static enum err run_in_snapshot(struct tx *tx, void *arg)
{
    struct request *r = arg;
    clear_answer(r);
    return run_handler(r, tx);
}

static void read_now(struct request *r)
{
    char detail[TX_DETAIL_MAX] = "";
    r->call.detail[0] = '\0';
    enum err e = db_read(r->call.api->db, run_in_snapshot, r, detail);
    if (e && !r->call.detail[0])
        snprintf(r->call.detail, sizeof r->call.detail, "%s", detail);
    finish(r, e);
}

static struct request *request_of_task(struct pool_task *task)
{
    return CONTAINER_OF(task, struct request, call.task);
}

static void read_task(struct pool_task *task)
{
    read_now(request_of_task(task));
}

/* SLOW handlers, and INLINE ones that need truth: they ask the database themselves. */
static void blocking_task(struct pool_task *task)
{
    struct request *r = request_of_task(task);
    clear_answer(r);
    finish(r, run_handler(r, NULL));
}

static void submit(struct request *r, struct pool *pool, void (*run)(struct pool_task *task))
{
    r->on_loop = false;
    r->call.task.run = run;
    if (!pool_submit(pool, &r->call.task))
        finish(r, ERR_OVERLOADED);
}

static void run_inline(struct request *r);

static void news_came(struct watch_question *q, bool good)
{
    struct request *r = CONTAINER_OF(q, struct request, question);
    r->call.news = good ? NEWS_FRESH : NEWS_MISSED;
    run_inline(r);
}

/* On the loop, or where news arrive: blocks nowhere. */
static void run_inline(struct request *r)
{
    clear_answer(r);
    enum err e = run_handler(r, NULL);
    if (e != ERR_NEEDS_TRUTH || !r->on_loop) {
        finish(r, e);
    } else if (r->call.news == NEWS_WANTED) {
        r->question.done = news_came;
        watch_ask(r->call.api->watch, &r->question);
    } else {
        submit(r, r->call.api->pool, blocking_task);
    }
}

/* ---- passing on ---- */

static void forward_task(struct pool_task *task)
{
    struct request *r = request_of_task(task);
    struct call *c = &r->call;
    struct http_exchange *x = c->x;
    struct forward_question q = {
        .method = x->method,
        .target = x->target,
        .body = x->body,
        .trace = r->headers.traceparent,
        .caller = c->caller,
        .deadline_us = x->arrived_us + FORWARD_TIMEOUT_MS * INT64_C(1000),
    };
    struct forward_answer a;
    clear_answer(r);
    enum err e = forward_ask(c->api, &q, &a, &x->out, c->detail);
    if (e) {
        finish(r, e);
        return;
    }
    c->status = a.status;
    if (a.problem)
        x->content_type = STR("application/problem+json");
    if (a.retry_after[0])
        http_add_header(x, "Retry-After", "%s", a.retry_after);
    if (a.link[0])
        http_add_header(x, "Link", "%s", a.link);
    finish(r, OK);
}

static void pass_on(struct request *r)
{
    struct call *c = &r->call;
    if (c->x->body.len > BODY_JSON_MAX) {
        finish(r, call_fail(c, ERR_TOO_LARGE, "at most %d bytes", BODY_JSON_MAX));
        return;
    }
    if (c->x->body.len > 0 && !body_type_is_json(r->headers.content_type)) {
        finish(r, call_fail(c, ERR_MEDIA_TYPE, "send application/json"));
        return;
    }
    r->on_loop = false;
    r->head_mark = c->x->head.len;
    c->task.run = forward_task;
    if (!forward_submit(c->api->edge->forward, c->api->slow, &c->task))
        finish(r, ERR_OVERLOADED);
}

/* ---- writes ---- */

static enum err replay(struct request *r, struct tx *tx)
{
    struct call *c = &r->call;
    struct idempotency_answer answer;
    enum err e = idempotency_find(tx, &r->key, clock_wall_ms(c->api->clock), &c->x->arena, &answer);
    if (e == ERR_INVALID)
        return call_fail(c, e, "this Idempotency-Key was used with another body");
    if (e)
        return e;
    c->status = answer.status;
    r->replayed = true;
    if ((c->route->flags & ROUTE_ENTRY) && answer.status < 300 && answer.body.len > 0)
        return messages_again(c, tx, answer.body);
    buf_str(&c->x->out, answer.body);
    if (answer.status >= 400)
        c->x->content_type = STR("application/problem+json");
    return OK;
}

static struct request *request_of_job(struct db_job *job)
{
    return CONTAINER_OF(job, struct request, call.job);
}

static enum err write_run(struct tx *tx, struct db_job *job)
{
    struct request *r = request_of_job(job);
    struct call *c = &r->call;
    clear_answer(r);
    if (r->keyed) {
        enum err e = replay(r, tx);
        if (e != ERR_NOT_FOUND)
            return e;
    }
    r->executed = true;
    enum err e = run_handler(r, tx);
    r->happened = tx->events.count > 0;
    if (!e && r->keyed) {
        struct str body = c->kept.ptr ? c->kept : c->status == 204 ? STR("") : buf_view(&c->x->out);
        e = idempotency_store(tx, &r->key, clock_wall_ms(c->api->clock), c->status, body);
    }
    return e;
}

static enum err keep_run(struct tx *tx, struct db_job *job)
{
    struct request *r = CONTAINER_OF(job, struct request, keep);
    return idempotency_store(tx, &r->key, clock_wall_ms(r->call.api->clock), r->call.x->status,
                             buf_view(&r->call.x->out));
}

static void keep_done(struct db_job *job, enum err result, const char *detail)
{
    (void)result; /* a refusal that is not remembered is simply worked out again */
    (void)detail;
    struct request *r = CONTAINER_OF(job, struct request, keep);
    send_answer(r, OK);
}

/* Only what was written counts: who is no member, or repeats a key or a client_id, takes nothing
 * from a group. */
static void count_entry(struct request *r, bool written)
{
    struct api *api = r->call.api;
    uint64_t group = r->call.params[0];
    int64_t now_us = clock_mono_us(api->clock);
    r->entry = false;
    if (written)
        hot_groups_record(api->edge->groups, group, now_us - r->submitted_us, now_us);
    else
        limits_give_back(api->limits, CLASS_GROUP, group, api->settings->group_rate);
}

static void write_done(struct db_job *job, enum err result, const char *detail)
{
    struct request *r = request_of_job(job);
    struct call *c = &r->call;
    if (r->entry)
        count_entry(r, !result && r->happened);
    if (result && !c->detail[0])
        snprintf(c->detail, sizeof c->detail, "%s", detail ? detail : "");
    /* The refusal rolled its own transaction back, so it is remembered by a second one. */
    if (result && r->keyed && r->executed && idempotency_keeps(err_http_status(result))) {
        problem_write(c->x, result, c->detail);
        r->keep = (struct db_job){.run = keep_run, .done = keep_done};
        if (db_submit(c->api->db, &r->keep) == OK)
            return;
    }
    finish(r, result);
}

/* Handlers whose first statement is known before they run. With a key, the key comes first. */
static void name_opening(struct request *r)
{
    static const struct {
        handler_fn handler;
        void (*name)(struct call *c);
    } openings[] = {{posts_create, posts_open}, {messages_send, messages_open}};
    for (size_t i = 0; i < COUNT_OF(openings) && !r->keyed; i++)
        if (r->call.route->handler == openings[i].handler)
            openings[i].name(&r->call);
}

/* ---- before the handler ---- */

static enum err check_policy(struct request *r)
{
    struct call *c = &r->call;
    const struct caller *caller = &c->caller;
    bool known = caller->control || caller->account || caller->scopes;
    switch (c->route->policy) {
    case POLICY_ANYONE:
        return OK;
    case POLICY_ACCOUNT:
        if (caller->account)
            return OK;
        if (caller->scopes & SCOPE_ACT)
            return call_fail(c, ERR_UNAUTHENTICATED,
                             "name the account to act for in Fantail-Account");
        if (caller->scopes)
            return call_fail(c, ERR_FORBIDDEN, "this API key has no scope act");
        return ERR_UNAUTHENTICATED;
    case POLICY_ADMIN_READ:
        if (caller->control || caller->scopes & (SCOPE_ADMIN | SCOPE_ADMIN_READ))
            return OK;
        break;
    case POLICY_ADMIN:
        if (caller->control)
            return OK;
        if (!(caller->scopes & SCOPE_ADMIN))
            break;
        if (c->route->flags & ROUTE_CONTROL)
            return call_fail(c, ERR_FORBIDDEN,
                             "only through the control socket in the data folder");
        return OK;
    }
    if (!known)
        return ERR_UNAUTHENTICATED;
    return call_fail(c, ERR_FORBIDDEN, "needs %s", route_policy_text(c->route->policy));
}

static enum err check_rate(struct request *r)
{
    struct call *c = &r->call;
    const struct settings *s = c->api->settings;
    enum rate_class class = c->route->rate;
    int64_t rate = class == RATE_READ    ? s->rate_read
                   : class == RATE_WRITE ? s->rate_write
                   : class == RATE_AUTH  ? s->rate_auth
                                         : 0;
    if (rate == 0 || c->caller.control || r->forwarded)
        return OK;
    uint64_t key =
        c->caller.account && class != RATE_AUTH ? c->caller.account : limits_peer_key(c->x->peer);
    int64_t burst = rate * (class == RATE_AUTH ? BURST_AUTH : BURST);
    struct limit_state state;
    bool allowed = limits_take(c->api->limits, (unsigned)class, key, rate, burst, &state);
    if (!allowed || class != RATE_READ)
        buf_printf(
            &c->x->head,
            "RateLimit-Limit: %lld\r\nRateLimit-Remaining: %lld\r\nRateLimit-Reset: %lld\r\n",
            (long long)state.limit, (long long)state.remaining, (long long)state.reset_s);
    if (allowed)
        return OK;
    buf_printf(&c->x->head, "Retry-After: %lld\r\n", (long long)state.retry_after_s);
    atomic_fetch_add_explicit(&c->api->edge->limited, 1, memory_order_relaxed);
    return call_fail(c, ERR_RATE_LIMITED, "try again in %lld s", (long long)state.retry_after_s);
}

/* A group's own limit, looked at before the store hears of the request, so that a group that writes
 * too much takes nothing from the others. The token is given back when nothing was written. */
static enum err check_group(struct request *r)
{
    struct call *c = &r->call;
    int64_t rate = c->api->settings->group_rate;
    if (!(c->route->flags & ROUTE_ENTRY))
        return OK;
    struct limit_state state;
    r->entry =
        limits_take(c->api->limits, CLASS_GROUP, c->params[0], rate, rate * BURST_GROUP, &state);
    r->submitted_us = clock_mono_us(c->api->clock);
    if (r->entry)
        return OK;
    buf_printf(&c->x->head, "Retry-After: %lld\r\n", (long long)state.retry_after_s);
    atomic_fetch_add_explicit(&c->api->edge->limited, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->api->edge->group_limited, 1, memory_order_relaxed);
    return call_fail(
        c, ERR_RATE_LIMITED, "group %llu takes %lld messages a second; try again in %lld s",
        (unsigned long long)c->params[0], (long long)rate, (long long)state.retry_after_s);
}

/* The store is at risk: what can wait is refused first, then whatever makes it grow. */
static enum err check_brake(struct request *r)
{
    struct call *c = &r->call;
    unsigned flags = c->route->flags;
    int level = c->api->brake ? brake_level(c->api->brake) : 0;
    if (level == 0 || !((flags & ROUTE_BULK) || (level >= 2 && (flags & ROUTE_GROWS))))
        return OK;
    char why[120] = "";
    brake_why(c->api->brake, why);
    atomic_fetch_add_explicit(&c->api->edge->braked, 1, memory_order_relaxed);
    return call_fail(c, ERR_BRAKED, "%s; reads and deletes go on, try this again later", why);
}

/* A node that is cut off from its servers begins no writes: whether they count is not for it to
 * say. */
static enum err check_aside(struct request *r)
{
    struct call *c = &r->call;
    const struct cluster *cluster = c->api->cluster;
    if (!cluster || c->route->method == HTTP_M_GET || !atomic_load(&cluster->aside))
        return OK;
    return call_fail(c, ERR_UNAVAILABLE, "this node stands aside; see /readyz");
}

static enum err read_body(struct request *r)
{
    struct call *c = &r->call;
    unsigned flags = c->route->flags;
    struct str type = r->headers.content_type;
    if (flags & ROUTE_NDJSON)
        return body_type_is_ndjson(type)
                   ? OK
                   : call_fail(c, ERR_MEDIA_TYPE, "send application/x-ndjson");
    if (!(flags & (ROUTE_BODY | ROUTE_BODY_OPTIONAL)))
        return OK;
    if (c->x->body.len == 0 && (flags & ROUTE_BODY_OPTIONAL))
        return OK;
    if (!body_type_is_json(type))
        return call_fail(c, ERR_MEDIA_TYPE, "send application/json");
    return body_parse(c->x->body, &c->body, c->detail, sizeof c->detail);
}

static enum err claim_key(struct request *r)
{
    struct call *c = &r->call;
    if (!(c->route->flags & ROUTE_KEYED) || !r->headers.idempotency_key.ptr)
        return OK;
    if (idempotency_read_key(r->headers.idempotency_key, &c->x->arena, &c->idempotency_key) != OK)
        return call_fail(c, ERR_BAD_INPUT, "Idempotency-Key must be 1 to %d printable characters",
                         IDEMPOTENCY_KEY_MAX);
    r->key = (struct idempotency_key){
        .account = c->caller.account,
        .route = c->route->name,
        .subject = idempotency_subject(c->params, CALL_PARAMS_MAX),
        .text = c->idempotency_key,
    };
    idempotency_fingerprint(c->api->secret, c->x->body, r->key.fingerprint);
    r->keyed = true;
    enum err e = idempotency_begin(c->api->edge->keys, &r->key);
    r->claimed = e == OK;
    if (e == ERR_INVALID)
        return call_fail(c, e, "this Idempotency-Key is in use with another body");
    if (e == ERR_IN_PROGRESS)
        return call_fail(c, e, "a request with this Idempotency-Key is still being worked on");
    return e;
}

/* The caller is known: on the loop, or on a blocking thread when truth had to be asked. */
static void proceed(struct request *r)
{
    struct call *c = &r->call;
    enum err e = check_policy(r);
    if (!e)
        e = check_rate(r);
    if (!e && !r->forwarded && forward_is_needed(c->api, c->route)) {
        pass_on(r);
        return;
    }
    if (!e)
        e = check_aside(r);
    if (!e)
        e = check_brake(r);
    if (!e)
        e = read_body(r);
    if (!e)
        e = claim_key(r);
    if (!e)
        e = check_group(r);
    if (e) {
        finish(r, e);
        return;
    }
    r->head_mark = c->x->head.len;
    switch (c->route->mode) {
    case MODE_INLINE:
        run_inline(r);
        return;
    case MODE_READ:
        if (r->on_loop)
            submit(r, c->api->pool, read_task);
        else
            read_now(r);
        return;
    case MODE_SLOW:
        submit(r, c->api->slow, blocking_task);
        return;
    case MODE_WRITE:
        r->on_loop = false;
        c->job = (struct db_job){.run = write_run, .done = write_done};
        name_opening(r);
        e = db_submit(c->api->db, &c->job);
        if (e && r->entry)
            count_entry(r, false);
        if (e)
            finish(r, e);
        return;
    }
}

static void authenticate_task(struct pool_task *task)
{
    struct request *r = request_of_task(task);
    struct call *c = &r->call;
    enum err e = auth_resolve(c->api->auth, &r->credentials, &c->x->arena, &c->caller, c->detail);
    if (e)
        finish(r, e);
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
    finish(r, e);
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
        finish(r, e);
    } else if (auth_find(c->api->auth, &r->credentials, &c->caller)) {
        proceed(r);
    } else {
        submit(r, c->api->pool, authenticate_task);
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

/* One walk over the headers; of two with one name the first counts. */
static void read_headers(const struct http_exchange *x, struct known_headers *out)
{
    const struct {
        struct str name;
        struct str *value;
    } known[] = {
        {STR("authorization"), &out->authorization},
        {STR("fantail-account"), &out->acting},
        {STR("origin"), &out->origin},
        {STR("access-control-request-method"), &out->preflight_method},
        {STR("content-type"), &out->content_type},
        {STR("idempotency-key"), &out->idempotency_key},
        {STR("traceparent"), &out->traceparent},
        {STR("fantail-forwarded"), &out->forwarded},
    };
    for (size_t i = 0; i < x->header_count; i++) {
        const struct http_header *h = &x->headers[i];
        for (size_t k = 0; k < COUNT_OF(known); k++) {
            if (h->name.len == known[k].name.len && !known[k].value->ptr &&
                str_eq_nocase(h->name, known[k].name)) {
                *known[k].value = h->value.ptr ? h->value : STR("");
                break;
            }
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
    finish(r, OK);
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
    struct route_match match;
    if (!routes_match(x->method, x->path, &match)) {
        finish(r, ERR_NOT_FOUND);
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
        finish(r, ERR_METHOD);
        return;
    }
    r->call.route = match.route;
    memcpy(r->call.params, match.params, sizeof match.params);
    r->call.name = match.name;
    const struct cluster *cluster = api->cluster;
    if (cluster && !(cluster->roles & ROLE_API) && !route_is_everywhere(match.route))
        finish(r, call_fail(&r->call, ERR_MISDIRECTED,
                            "this node has no role api: ask another one, or the proxy in front"));
    else if (cluster && r->headers.forwarded.ptr)
        believe(r);
    else
        authenticate(r);
}
