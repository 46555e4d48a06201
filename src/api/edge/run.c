/* Running a handler on the thread that its route's mode names: the event loop, a reader, the slow
 * pool, or the store's writer. A handler may be run again, so each run begins with an empty answer.
 *
 * Queues are bounded everywhere: a full one answers 503 with Retry-After instead of waiting. */
#include <stdio.h>

#include "api/edge/forward.h"
#include "api/edge/request.h"
#include "port/invalidation.h"

void request_clear_answer(struct request *r)
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
    r->executed = r->repeated = r->happened = false;
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
    request_clear_answer(r);
    return run_handler(r, tx);
}

static void read_now(struct request *r)
{
    char detail[TX_DETAIL_MAX] = "";
    r->call.detail[0] = '\0';
    enum err e = db_read(r->call.api->db, run_in_snapshot, r, detail);
    if (e && !r->call.detail[0])
        snprintf(r->call.detail, sizeof r->call.detail, "%s", detail);
    request_finish(r, e);
}

static void read_task(struct pool_task *task)
{
    read_now(request_of_task(task));
}

/* SLOW handlers, and INLINE ones that need truth: they ask the database themselves. */
static void blocking_task(struct pool_task *task)
{
    struct request *r = request_of_task(task);
    request_clear_answer(r);
    request_finish(r, run_handler(r, NULL));
}

void request_submit(struct request *r, struct pool *pool, void (*run)(struct pool_task *task))
{
    r->on_loop = false;
    r->call.task.run = run;
    if (!pool_submit(pool, &r->call.task))
        request_finish(r, ERR_OVERLOADED);
}

static void run_inline(struct request *r);

static void invalidations_came(struct invalidation_question *q, bool good)
{
    struct request *r = CONTAINER_OF(q, struct request, question);
    r->call.invalidations = good ? INVALIDATIONS_HEARD : INVALIDATIONS_MISSED;
    run_inline(r);
}

/* On the loop, or where invalidations arrive: blocks nowhere. */
static void run_inline(struct request *r)
{
    request_clear_answer(r);
    enum err e = run_handler(r, NULL);
    if (e != ERR_NEEDS_TRUTH || !r->on_loop) {
        request_finish(r, e);
    } else if (r->call.invalidations == INVALIDATIONS_WANTED) {
        r->question.done = invalidations_came;
        invalidation_ask(r->call.api->invalidation, &r->question);
    } else {
        request_submit(r, r->call.api->pool, blocking_task);
    }
}

/* ---- writes ---- */

static struct request *request_of_job(struct db_job *job)
{
    return CONTAINER_OF(job, struct request, call.job);
}

static enum err write_run(struct tx *tx, struct db_job *job)
{
    struct request *r = request_of_job(job);
    request_clear_answer(r);
    if (r->keyed) {
        enum err e = request_repeat(r, tx);
        if (e != ERR_NOT_FOUND)
            return e;
    }
    r->executed = true;
    enum err e = run_handler(r, tx);
    r->happened = tx->events.count > 0;
    return e || !r->keyed ? e : request_remember(r, tx);
}

static void write_done(struct db_job *job, enum err result, const char *detail)
{
    struct request *r = request_of_job(job);
    struct call *c = &r->call;
    request_settle_limit(r, !result && r->happened);
    if (result && !c->detail[0])
        snprintf(c->detail, sizeof c->detail, "%s", detail ? detail : "");
    if (!result || !request_remember_refusal(r, result))
        request_finish(r, result);
}

/* With a key, the key's own statement comes first. */
static void write_soon(struct request *r)
{
    struct call *c = &r->call;
    r->on_loop = false;
    c->job = (struct db_job){.run = write_run, .done = write_done};
    if (c->route->first_statement && !r->keyed)
        c->route->first_statement(c);
    enum err e = db_submit(c->api->db, &c->job);
    if (e) {
        request_settle_limit(r, false);
        request_finish(r, e);
    }
}

void request_run(struct request *r)
{
    struct call *c = &r->call;
    r->head_mark = c->x->head.len;
    switch (c->route->mode) {
    case MODE_INLINE:
        run_inline(r);
        return;
    case MODE_READ:
        if (r->on_loop)
            request_submit(r, c->api->pool, read_task);
        else
            read_now(r);
        return;
    case MODE_SLOW:
        request_submit(r, c->api->slow, blocking_task);
        return;
    case MODE_WRITE:
        write_soon(r);
        return;
    }
}
