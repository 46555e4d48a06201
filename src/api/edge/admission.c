/* What a request must pass before its handler runs: the route's policy, its rate limits, the state
 * of the node and the store, and the form of its body. Nothing here waits. */
#include <stdio.h>

#include "api/edge/body.h"
#include "api/edge/cluster.h"
#include "api/edge/dispatcher.h"
#include "api/edge/request.h"
#include "net/limits.h"
#include "ops/overload_guard.h"

enum { BURST_AUTH = 10, BURST = 5, BURST_TOKEN = 20 }; /* times the rate */
enum { SHOWN_NAME_MAX = 80 };
/* Of limits, beyond the routes' rate classes. */
enum { CLASS_SUBJECT = RATE_NONE + 1, CLASS_TOKEN, CLASS_KEY };

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
            return call_fail(
                c, ERR_FORBIDDEN,
                "use the control socket in the data folder: this route answers nowhere else");
        return OK;
    }
    if (!known)
        return ERR_UNAUTHENTICATED;
    return call_fail(c, ERR_FORBIDDEN, "this route needs %s", route_policy_text(c->route->policy));
}

static void refuse_for_now(struct call *c, const struct limit_state *state)
{
    buf_printf(&c->x->head, "Retry-After: %lld\r\n", (long long)state->retry_after_s);
    atomic_fetch_add_explicit(&c->api->dispatcher->limited, 1, memory_order_relaxed);
}

enum err request_begin_look_up(struct request *r)
{
    struct call *c = &r->call;
    int64_t rate = c->api->settings->rate_token;
    struct limit_state state;
    r->credentials.address = limits_peer_key(c->x->peer);
    r->looked_up = !c->x->control && !auth_knew(c->api->auth, &r->credentials);
    if (!r->looked_up || limits_take(c->api->limits, CLASS_TOKEN, r->credentials.address, rate,
                                     rate * BURST_TOKEN, &state))
        return OK;
    refuse_for_now(c, &state);
    return call_fail(c, ERR_RATE_LIMITED,
                     "too many unknown tokens came from this address; try again in %lld s",
                     (long long)state.retry_after_s);
}

/* Only tokens that are nobody's count, not the failures of a store. */
void request_end_look_up(struct request *r, enum err e)
{
    struct call *c = &r->call;
    if (r->looked_up && e != ERR_UNAUTHENTICATED)
        limits_give_back(c->api->limits, CLASS_TOKEN, r->credentials.address,
                         c->api->settings->rate_token);
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
    refuse_for_now(c, &state);
    return call_fail(c, ERR_RATE_LIMITED,
                     "the limit of %lld requests a second is reached; try again in %lld s",
                     (long long)rate, (long long)state.retry_after_s);
}

/* An API key's own limit, whatever it calls and for whom. */
static enum err check_key_rate(struct request *r)
{
    struct call *c = &r->call;
    int64_t rate = c->caller.key_rate;
    struct limit_state state;
    if (r->forwarded ||
        limits_take(c->api->limits, CLASS_KEY, c->caller.key, rate, rate * BURST, &state))
        return OK;
    refuse_for_now(c, &state);
    return call_fail(c, ERR_RATE_LIMITED,
                     "this API key has %lld requests a second; try again in %lld s",
                     (long long)rate, (long long)state.retry_after_s);
}

/* The limit by the id that the path names first. A request takes a token before it reaches the
 * store, so that a busy id takes nothing from the others. */
static enum err check_limit(struct request *r)
{
    struct call *c = &r->call;
    const struct route_limit *limit = c->route->limit;
    if (!limit)
        return OK;
    int64_t rate = limit->rate(c->api->settings);
    struct limit_state state;
    r->limited =
        limits_take(c->api->limits, CLASS_SUBJECT, c->params[0], rate, rate * limit->burst, &state);
    r->submitted_us = clock_mono_us(c->api->clock);
    if (r->limited)
        return OK;
    limit->refused(c->api);
    refuse_for_now(c, &state);
    return call_fail(c, ERR_RATE_LIMITED, "%s %llu takes %lld %s a second; try again in %lld s",
                     limit->noun, (unsigned long long)c->params[0], (long long)rate, limit->unit,
                     (long long)state.retry_after_s);
}

/* Only what was written counts: a refused or repeated request gives its token back. */
void request_settle_limit(struct request *r, bool written)
{
    struct call *c = &r->call;
    const struct route_limit *limit = c->route->limit;
    if (!r->limited)
        return;
    r->limited = false;
    if (written)
        limit->written(c->api, c->params[0], clock_mono_us(c->api->clock) - r->submitted_us);
    else
        limits_give_back(c->api->limits, CLASS_SUBJECT, c->params[0],
                         limit->rate(c->api->settings));
}

/* The store is at risk: what can wait is refused first, then whatever makes it grow. */
static enum err check_overload_guard(struct request *r)
{
    struct call *c = &r->call;
    unsigned flags = c->route->flags;
    int level = c->api->overload_guard ? overload_guard_level(c->api->overload_guard) : 0;
    if (level == 0 || !((flags & ROUTE_BULK) || (level >= 2 && (flags & ROUTE_GROWS))))
        return OK;
    char why[120] = "";
    overload_guard_why(c->api->overload_guard, why);
    atomic_fetch_add_explicit(&c->api->dispatcher->guarded, 1, memory_order_relaxed);
    return call_fail(c, ERR_OVERLOAD_GUARD, "%s; reads and deletes go on, try this again later",
                     why);
}

enum err api_admit_subject(void *ctx, uint64_t address, char detail[DETAIL_MAX])
{
    struct api *api = ctx;
    const struct settings *s = api->settings;
    struct limit_state state;
    if (!s->sign_up) {
        snprintf(detail, DETAIL_MAX, "sign-up is switched off: ask the operator for an account");
        return ERR_FORBIDDEN;
    }
    if (api->overload_guard && overload_guard_level(api->overload_guard) >= 2) {
        char why[120] = "";
        overload_guard_why(api->overload_guard, why);
        atomic_fetch_add_explicit(&api->dispatcher->guarded, 1, memory_order_relaxed);
        snprintf(detail, DETAIL_MAX, "%s; try again later", why);
        return ERR_OVERLOAD_GUARD;
    }
    if (limits_take(api->limits, RATE_AUTH, address, s->rate_auth, s->rate_auth * BURST_AUTH,
                    &state))
        return OK;
    atomic_fetch_add_explicit(&api->dispatcher->limited, 1, memory_order_relaxed);
    snprintf(detail, DETAIL_MAX, "the limit of %lld sign-ups a second is reached",
             (long long)s->rate_auth);
    return ERR_RATE_LIMITED;
}

/* A node that is cut off from its servers begins no writes: whether they count is not for it to
 * say. */
static enum err check_quarantine(struct request *r)
{
    struct call *c = &r->call;
    const struct cluster *cluster = c->api->cluster;
    if (!cluster || c->route->method == HTTP_M_GET || !atomic_load(&cluster->quarantined))
        return OK;
    return call_fail(c, ERR_UNAVAILABLE, "this node is quarantined; see /readyz");
}

static enum err read_body(struct request *r)
{
    struct call *c = &r->call;
    unsigned flags = c->route->flags;
    struct str type = r->headers.content_type;
    if (flags & ROUTE_NDJSON)
        return body_type_is_ndjson(type)
                   ? OK
                   : call_fail(c, ERR_MEDIA_TYPE, "Content-Type must be application/x-ndjson");
    if (!c->route->request)
        return OK;
    if (c->x->body.len == 0 && (flags & ROUTE_BODY_OPTIONAL))
        return OK;
    if (!body_type_is_json(type))
        return call_fail(c, ERR_MEDIA_TYPE, "Content-Type must be application/json");
    TRY(body_parse(c->x->body, &c->body, c->detail, sizeof c->detail));
    const char *unknown =
        body_unknown_field(c->body, c->api->dispatcher->fields[c->route - routes]);
    if (!unknown)
        return OK;
    struct str name = str_cut(str_of(unknown), SHOWN_NAME_MAX);
    return call_fail(c, ERR_INVALID, "%.*s is not a field of %s: remove it, or correct its name",
                     STR_ARG(name), c->route->request);
}

enum err request_admit(struct request *r)
{
    TRY(check_policy(r));
    TRY(check_key_rate(r));
    return check_rate(r);
}

enum err request_prepare(struct request *r)
{
    TRY(check_quarantine(r));
    TRY(check_overload_guard(r));
    TRY(read_body(r));
    TRY(request_claim_key(r));
    return check_limit(r);
}
