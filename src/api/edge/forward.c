/* Passing on.
 *
 * Requests wait for the leader on few threads of their own (api->forwarding): a leader that hangs
 * must not keep people from logging in. A request's time runs from its arrival, also in the queue:
 * one behind a leader that does not answer is refused after FORWARD_TIMEOUT_MS like the first.
 *
 * Connections to the leader are kept, as many as there are threads. */
#include "api/edge/forward.h"
#include "api/edge/acts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/edge/body.h"
#include "api/edge/cluster.h"
#include "api/edge/dispatcher.h"
#include "api/edge/proof.h"
#include "api/edge/request.h"
#include "base/check.h"
#include "net/http_client.h"
#include "ops/settings.h"

enum { HEADERS_TEXT_MAX = PROOF_TEXT_MAX + 160 };

struct kept {
    struct http_client *client; /* NULL: none */
    char address[CLUSTER_ADDRESS_MAX];
};

struct forward {
    struct proofs *proofs;
    pthread_mutex_t lock; /* of the connections */
    struct kept kept[FORWARD_THREADS];
};

struct forward *forward_new(const uint8_t secret[32])
{
    struct forward *f = calloc(1, sizeof *f);
    CHECK(f);
    f->proofs = proofs_new(secret);
    pthread_mutex_init(&f->lock, NULL);
    return f;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < FORWARD_THREADS; i++)
        http_client_free(f->kept[i].client);
    pthread_mutex_destroy(&f->lock);
    proofs_free(f->proofs);
    free(f);
}

bool forward_is_needed(const struct api *api, const struct route *route)
{
    return (route->flags & ROUTE_AT_LEADER) && api->cluster && !atomic_load(&api->cluster->leads);
}

/* ---- connections ---- */

/* "http://host:port", "http://[::1]:port". */
static bool split_address(const char *address, char host[CLUSTER_ADDRESS_MAX], uint16_t *port)
{
    char rest[CLUSTER_ADDRESS_MAX];
    if (sscanf(address, "http://%255[^/]", rest) != 1 || rest[0] == ':')
        return false;
    return settings_split_address(rest, host, port) && *port > 0;
}

/* A kept connection to this address, else a new one; NULL: that is no address. */
static struct http_client *take_client(struct forward *f, const char *address)
{
    struct http_client *client = NULL;
    char host[CLUSTER_ADDRESS_MAX];
    uint16_t port;
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < FORWARD_THREADS && !client; i++) {
        if (f->kept[i].client && strcmp(f->kept[i].address, address) == 0) {
            client = f->kept[i].client;
            f->kept[i].client = NULL;
        }
    }
    pthread_mutex_unlock(&f->lock);
    if (!client && split_address(address, host, &port))
        client = http_client_later(host, port);
    return client;
}

/* Keeps it in place of none, or of one to an earlier leader. */
static void keep_client(struct forward *f, const char *address, struct http_client *client)
{
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < FORWARD_THREADS && client; i++) {
        struct kept *k = &f->kept[i];
        if (k->client && strcmp(k->address, address) == 0)
            continue;
        struct http_client *before = k->client;
        snprintf(k->address, sizeof k->address, "%s", address);
        k->client = client;
        client = before;
        break;
    }
    pthread_mutex_unlock(&f->lock);
    http_client_free(client);
}

/* ---- asking ---- */

static void copy_header(const struct http_client *client, const char *name, char *out, size_t size)
{
    struct str value = http_client_header(client, name);
    bool good = value.len < size;
    for (size_t i = 0; i < value.len && good; i++)
        good = value.ptr[i] >= ' ' && value.ptr[i] < 0x7f;
    snprintf(out, size, "%.*s", good ? (int)value.len : 0, value.ptr ? value.ptr : "");
}

static enum err read_answer(const struct http_client *client, struct forward_answer *a,
                            char why[DETAIL_MAX])
{
    char refused[16];
    copy_header(client, FORWARD_HEADER, refused, sizeof refused);
    if (refused[0] || a->status < 200 || a->status > 599) {
        snprintf(why, DETAIL_MAX,
                 refused[0] ? "the leader does not believe this node's proof: do the clocks agree, "
                              "and is it the same store?"
                            : "the leader's answer is none");
        return ERR_UNAVAILABLE;
    }
    a->problem = str_starts(http_client_header(client, "content-type"), STR("application/problem"));
    copy_header(client, "retry-after", a->retry_after, sizeof a->retry_after);
    copy_header(client, "link", a->link, sizeof a->link);
    return OK;
}

/* The error for the caller when no answer came. */
static enum err no_answer(enum err e, enum http_method method)
{
    if (e == ERR_UNKNOWN_COMMIT || e == ERR_NO_MEMORY)
        return e;
    bool may_be_done = e != ERR_UNAVAILABLE && (method == HTTP_M_POST || method == HTTP_M_PATCH);
    return may_be_done ? ERR_UNKNOWN_COMMIT : ERR_UNAVAILABLE;
}

static enum err ask_at(struct api *api, const char *address, const struct forward_question *q,
                       struct forward_answer *a, struct buf *body, char why[DETAIL_MAX])
{
    struct forward *f = api->dispatcher->forward;
    /* A HEAD is forwarded as the GET that it belongs to: the sender of the answer leaves its body
     * out. */
    const char *method = route_method_name(q->method == HTTP_M_HEAD ? HTTP_M_GET : q->method);
    struct vouched v = {
        .method = str_of(method),
        .target = q->target,
        .body = q->body,
        .caller = q->caller,
        .term = atomic_load(&api->cluster->term),
        .node = api->cluster->number,
    };
    char proof[PROOF_TEXT_MAX], headers[HEADERS_TEXT_MAX], target[HTTP_HEAD_MAX];
    int64_t left_ms = (q->deadline_us - clock_mono_us(api->clock)) / 1000;
    if (left_ms <= 0 || q->target.len >= sizeof target) {
        snprintf(why, DETAIL_MAX, "others waited for the leader before this one");
        return ERR_UNAVAILABLE;
    }
    struct http_client *client = take_client(f, address);
    if (!client) {
        snprintf(why, DETAIL_MAX, "the leader's address is none: '%.100s'", address);
        return ERR_UNAVAILABLE;
    }
    proof_write(f->proofs, &v, clock_wall_ms(api->clock), proof);
    snprintf(headers, sizeof headers, FORWARD_HEADER ": %s\r\n%s%.*s%s", proof,
             q->trace.len ? "traceparent: " : "", STR_ARG(q->trace), q->trace.len ? "\r\n" : "");
    snprintf(target, sizeof target, "%.*s", STR_ARG(q->target));
    enum err e =
        http_client_call(client, method, target, headers, q->body, &a->status, body, left_ms);
    if (e) {
        snprintf(why, DETAIL_MAX, "the leader at %.100s: %s", address, err_title(e));
        e = no_answer(e, q->method);
        http_client_free(client);
        return e;
    }
    e = read_answer(client, a, why);
    keep_client(f, address, client);
    return e;
}

enum err forward_ask(struct api *api, const struct forward_question *q, struct forward_answer *a,
                     struct buf *body, char why[DETAIL_MAX])
{
    struct cluster *cluster = api->cluster;
    char address[CLUSTER_ADDRESS_MAX] = "";
    uint32_t number = 0;
    *a = (struct forward_answer){0};
    why[0] = '\0';
    cluster->leader(cluster->ctx, address, &number);
    /* The lease may name this node before its engine is ready: no node leads yet. */
    enum err e = ERR_NO_LEADER;
    if (address[0] && number != cluster->number)
        e = ask_at(api, address, q, a, body, why);
    atomic_fetch_add_explicit(e ? &cluster->forward_failed : &cluster->forwarded, 1,
                              memory_order_relaxed);
    return e;
}

/* ---- at the leader ---- */

enum err forward_check(struct api *api, const struct http_exchange *x, const struct route *route,
                       struct str proof, struct caller *caller, const char **why)
{
    const struct cluster *cluster = api->cluster;
    struct vouched v = {
        .method = str_of(route_method_name(x->method)), .target = x->target, .body = x->body};
    *why = "no request of this kind is passed on";
    if (!(route->flags & ROUTE_AT_LEADER) || x->control || x->body.len > BODY_JSON_MAX)
        return ERR_FORBIDDEN;
    TRY(proof_check(api->dispatcher->forward->proofs, proof, clock_wall_ms(api->clock), &v, why));
    if (!atomic_load(&cluster->leads) || v.term != atomic_load(&cluster->term)) {
        *why = "another node leads, or in another term";
        return ERR_NO_LEADER;
    }
    *caller = v.caller;
    return OK;
}

/* ---- passing a request on ---- */

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
    request_clear_answer(r);
    enum err e = forward_ask(c->api, &q, &a, &x->out, c->detail);
    if (e) {
        request_finish(r, e);
        return;
    }
    c->status = a.status;
    if (a.problem)
        x->content_type = STR("application/problem+json");
    if (a.retry_after[0])
        http_add_header(x, "Retry-After", "%s", a.retry_after);
    if (a.link[0])
        http_add_header(x, "Link", "%s", a.link);
    if (a.status < 300)
        act_record(r);
    request_finish(r, OK);
}

void request_pass_on(struct request *r)
{
    struct call *c = &r->call;
    if (c->x->body.len > BODY_JSON_MAX) {
        request_finish(
            r, call_fail(c, ERR_TOO_LARGE, "the body has more than %d bytes", BODY_JSON_MAX));
        return;
    }
    if (c->x->body.len > 0 && !body_type_is_json(r->headers.content_type)) {
        request_finish(r, call_fail(c, ERR_MEDIA_TYPE, "Content-Type must be application/json"));
        return;
    }
    r->head_mark = c->x->head.len;
    request_submit(r, c->api->forwarding, forward_task);
}
