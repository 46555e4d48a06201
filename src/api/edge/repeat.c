/* Idempotency-Key of a request: claims the key while the request runs, answers what was answered
 * before, and remembers the answer in the transaction of the write. api/edge/idempotency.h keeps
 * keys and answers. */
#include "api/edge/dispatcher.h"
#include "api/edge/request.h"

enum err request_claim_key(struct request *r)
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
    enum err e = idempotency_begin(c->api->dispatcher->keys, &r->key);
    r->claimed = e == OK;
    if (e == ERR_INVALID)
        return call_fail(c, e, "this Idempotency-Key is in use with another body");
    if (e == ERR_IN_PROGRESS)
        return call_fail(
            c, e, "a request with this Idempotency-Key is still in progress; try again later");
    return e;
}

enum err request_repeat(struct request *r, struct tx *tx)
{
    struct call *c = &r->call;
    struct idempotency_answer answer;
    enum err e = idempotency_find(tx, &r->key, clock_wall_ms(c->api->clock), &c->x->arena, &answer);
    if (e == ERR_INVALID)
        return call_fail(c, e, "this Idempotency-Key was used with another body");
    if (e)
        return e;
    c->status = answer.status;
    r->repeated = true;
    if (c->route->repeat && answer.status < 300)
        return c->route->repeat(c, tx, answer.body);
    buf_str(&c->x->out, answer.body);
    if (answer.status >= 400)
        c->x->content_type = STR("application/problem+json");
    return OK;
}

enum err request_remember(struct request *r, struct tx *tx)
{
    struct call *c = &r->call;
    struct str body = c->route->repeat   ? c->kept
                      : c->status == 204 ? STR("")
                                         : buf_view(&c->x->out);
    return idempotency_store(tx, &r->key, clock_wall_ms(c->api->clock), c->status, body);
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
    request_send(r, OK);
}

bool request_remember_refusal(struct request *r, enum err refusal)
{
    struct call *c = &r->call;
    if (!r->keyed || !r->executed || !idempotency_keeps(err_http_status(refusal)))
        return false;
    problem_write(c->x, refusal, c->detail);
    r->keep = (struct db_job){.run = keep_run, .done = keep_done};
    return db_submit(c->api->db, &r->keep) == OK;
}
