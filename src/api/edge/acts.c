/* Builds the record of an act from its request, so that a new route is recorded by its row alone.
 *
 * The node that the operator called records it: it knows the caller, and why. The leader, to whom
 * it may pass the request on, does not. A re-drive or discard goes on in slices, by `next`: only
 * the first request is an act of the operator, the others are the client's. */
#include "api/edge/acts.h"

#include <stdio.h>

#include "base/log.h"
#include "model/operator_act.h"

enum { WHO_MAX = 40 };

static struct str who_of(const struct request *r, char out[WHO_MAX])
{
    const struct caller *caller = &r->call.caller;
    if (caller->control)
        return STR("control socket");
    snprintf(out, WHO_MAX, "%s %llu", caller->key ? "key" : "account",
             (unsigned long long)(caller->key ? caller->key : caller->account));
    return str_of(out);
}

static struct str path_of(const struct http_exchange *x)
{
    struct str path = x->target;
    const char *query = path.len ? memchr(path.ptr, '?', path.len) : NULL;
    if (query)
        path.len = (size_t)(query - path.ptr);
    return path;
}

/* The header comes first; `why` of a body is for requests that want one there. */
static struct str why_of(const struct request *r, const json_t *body)
{
    const json_t *why = json_object_get(body, "why");
    if (r->headers.why.len > 0 && str_is_utf8(r->headers.why))
        return r->headers.why;
    return json_is_string(why) ? (struct str){json_string_value(why), json_string_length(why)}
                               : STR("");
}

static enum err write_act(struct request *r, struct tx *tx, const json_t *body)
{
    struct call *c = &r->call;
    char who[WHO_MAX];
    struct buf target;
    buf_init(&target, 0);
    buf_str(&target, str_of(route_method_name(c->x->method)));
    buf_str(&target, STR(" "));
    buf_str(&target, path_of(c->x));
    struct operator_act act = {.who = who_of(r, who),
                               .act = str_of(c->route->name),
                               .target = buf_view(&target),
                               .request = str_is_utf8(c->x->body) ? c->x->body : STR(""),
                               .why = why_of(r, body)};
    enum err e = operator_act_record(tx, &act);
    buf_done(&target);
    return e;
}

enum err act_write(struct request *r, struct tx *tx)
{
    struct call *c = &r->call;
    if (!(c->route->flags & ROUTE_RECORDED) || r->forwarded)
        return OK;
    json_t *body = json_loadb(c->x->body.ptr ? c->x->body.ptr : "", c->x->body.len, 0, NULL);
    bool goes_on = json_is_string(json_object_get(body, "next"));
    enum err e = goes_on ? OK : write_act(r, tx, body);
    json_decref(body);
    return e;
}

static enum err run_record(struct tx *tx, void *arg)
{
    return act_write(arg, tx);
}

void act_record(struct request *r)
{
    struct call *c = &r->call;
    if (!(c->route->flags & ROUTE_RECORDED) || r->forwarded)
        return;
    enum err e = db_write(c->api->db, run_record, r, NULL);
    if (e)
        log_error("an operator's act could not be recorded", LOG_CSTR("act", c->route->name),
                  LOG_CSTR("error", err_name(e)), LOG_CSTR("cause", err_cause()));
}
