/* Idempotency-Key of a request: claims the key while the request runs, answers again what was done
 * before, and remembers what is done in the transaction of the write. api/edge/idempotency.h keeps
 * the keys. */
#include "api/edge/dispatcher.h"
#include "api/edge/request.h"

enum err request_claim_key(struct request *r)
{
    struct call *c = &r->call;
    if (!(c->route->flags & ROUTE_KEYED) || !r->headers.idempotency_key.ptr)
        return OK;
    struct str text;
    if (idempotency_read_key(r->headers.idempotency_key, &c->x->arena, &text) != OK)
        return call_fail(c, ERR_BAD_INPUT, "Idempotency-Key must be 1 to %d printable characters",
                         IDEMPOTENCY_KEY_MAX);
    r->key = (struct idempotency_key){
        .account = c->caller.account,
        .route = c->route->name,
        .subject = idempotency_subject(c->params, CALL_PARAMS_MAX),
        .text = text,
    };
    idempotency_fingerprint(c->api->secret, c->x->body, r->key.fingerprint);
    r->keyed = true;
    enum err e = idempotency_begin(c->api->dispatcher->keys, &r->key);
    r->claimed = e == OK;
    if (e == ERR_INVALID)
        return call_fail(c, e, "this Idempotency-Key is in use with another body");
    if (e == ERR_IN_PROGRESS)
        return call_fail(
            c, e, "a request with this Idempotency-Key is still in progress; try again later");
    return e;
}

/* The row of the route draws the answer anew: what the caller may no longer see is not shown, and
 * what is gone is answered as gone. */
enum err request_repeat(struct request *r, struct tx *tx)
{
    struct call *c = &r->call;
    struct idempotency_answer answer;
    enum err e = idempotency_find(tx, &r->key, clock_wall_ms(c->api->clock), &answer);
    if (e == ERR_NOT_FOUND)
        return OK;
    if (e == ERR_INVALID)
        return call_fail(c, e, "this Idempotency-Key was used with another body");
    if (e)
        return e;
    r->repeated = true;
    c->status = answer.status;
    c->object = answer.object;
    return c->route->repeat ? c->route->repeat(c, tx) : OK;
}

enum err request_remember(struct request *r, struct tx *tx)
{
    struct call *c = &r->call;
    struct idempotency_answer answer = {c->status, c->object};
    return idempotency_store(tx, &r->key, clock_wall_ms(c->api->clock), &answer);
}
