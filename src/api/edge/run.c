/* Running a handler on the thread that its route's mode names: the event loop, a reader, a slow
 * pool, or the store's writer. A handler may be run again, so each run begins with an empty answer.
 *
 * Queues are bounded everywhere: a full one answers 503 with Retry-After instead of waiting. */
#include <stdio.h>
#include <string.h>

#include "api/edge/acts.h"
#include "api/edge/forward.h"
#include "api/edge/request.h"
#include "net/limits.h"
#include "port/invalidation.h"

enum { STEP_MAX = 64 /* answers drawn in one go */ };

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
    c->object = 0;
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
    enum err e = run_handler(r, NULL);
    if (!e)
        act_record(r);
    request_finish(r, e);
}

/* ---- in step ---- */

static void drawn(struct call *c, enum err e)
{
    struct request *r = CONTAINER_OF(c, struct request, call);
    if (e == ERR_NEEDS_TRUTH)
        request_submit(r, request_readers(r), blocking_task);
    else
        request_finish(r, e);
}

/* Takes along who waits for the same, so that one round trip serves many: the more wait, the
 * more go together. */
static void step_task(struct pool_task *task)
{
    struct pool_task *tasks[STEP_MAX] = {task};
    struct call *calls[STEP_MAX];
    struct pool *drawing = request_of_task(task)->call.api->drawing;
    size_t n = 1 + pool_take(drawing, tasks + 1, STEP_MAX - 1), to;
    for (size_t i = 0; i < n; i++) {
        request_clear_answer(request_of_task(tasks[i]));
        calls[i] = &request_of_task(tasks[i])->call;
    }
    for (size_t from = 0; from < n; from = to) {
        const struct route *route = calls[from]->route;
        for (to = from + 1; to < n && calls[to]->route == route; to++) {
        }
        route->in_step(calls + from, to - from, drawn);
    }
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
    } else if (r->call.in_step && r->call.api->drawing) {
        request_submit(r, r->call.api->drawing, step_task);
    } else {
        request_submit(r, request_readers(r), blocking_task);
    }
}

/* ---- writes ---- */

static struct request *request_of_job(struct db_job *job)
{
    return CONTAINER_OF(job, struct request, call.job);
}

void request_render(struct request *r)
{
    if (r->call.route->render && (r->executed || r->repeated))
        r->call.route->render(&r->call);
}

/* With a key, the key's own row comes first: what was done before goes before a refusal. */
static enum err write_run(struct tx *tx, struct db_job *job)
{
    struct request *r = request_of_job(job);
    char refused[DETAIL_MAX];
    memcpy(refused, r->call.detail, sizeof refused);
    request_clear_answer(r);
    if (r->keyed) {
        TRY(request_repeat(r, tx));
        if (r->repeated)
            return OK;
    }
    if (r->refusal) {
        memcpy(r->call.detail, refused, sizeof refused);
        return r->refusal;
    }
    r->executed = true;
    TRY(run_handler(r, tx));
    TRY(act_write(r, tx));
    r->happened = tx->events.count > 0;
    return r->keyed ? request_remember(r, tx) : OK;
}

/* Requests of one route; what else is among them runs by itself. */
static enum err write_together(struct tx *tx, struct db_job *const *jobs, size_t n, bool *taken)
{
    struct arena *arena = &request_of_job(jobs[0])->call.x->arena;
    struct call **calls = ARENA_ARRAY(arena, struct call *, n);
    size_t *which = ARENA_ARRAY(arena, size_t, n), count = 0;
    bool *done = ARENA_ARRAY(arena, bool, n);
    const struct route *route = request_of_job(jobs[0])->call.route;
    for (size_t i = 0; i < n; i++) {
        struct request *r = request_of_job(jobs[i]);
        if (r->call.route != route)
            continue;
        request_clear_answer(r);
        calls[count] = &r->call;
        which[count++] = i;
    }
    TRY(route->together(calls, count, tx, done));
    for (size_t i = 0; i < count; i++) {
        struct request *r = request_of_job(jobs[which[i]]);
        taken[which[i]] = r->executed = r->happened = done[i];
    }
    return OK;
}

static void write_done(struct db_job *job, enum err result, const char *detail)
{
    struct request *r = request_of_job(job);
    struct call *c = &r->call;
    if (result && !c->detail[0])
        snprintf(c->detail, sizeof c->detail, "%s", detail ? detail : "");
    if (result)
        request_settle_limit(r, false);
    request_finish_write(r, result);
}

static void refuse_write(struct request *r, enum err e)
{
    request_settle_limit(r, false);
    request_finish(r, e);
}

static void write_soon(struct request *r)
{
    struct call *c = &r->call;
    request_clear_answer(r);
    r->refusal = c->route->prepare ? c->route->prepare(c) : OK;
    if (r->refusal && !r->keyed) {
        refuse_write(r, r->refusal);
        return;
    }
    r->on_loop = false;
    c->job = (struct db_job){.run = write_run, .done = write_done};
    if (c->route->first_statement && !r->keyed)
        c->route->first_statement(c);
    if (c->route->together && !r->keyed)
        c->job.together = write_together;
    enum err e = db_submit(c->api->db, &c->job);
    if (e)
        refuse_write(r, e);
}

/* ---- slow work ---- */

/* A queue takes at most so many requests of one owner: an address, or an account. */
static const struct {
    const char *name;
    unsigned threads;
    size_t queue_max, share;
} slow_kinds[SLOW_POOLS] = {
    [SLOW_PASSWORDS] = {"password", 2, 256, 32},
    [SLOW_EXPORTS] = {"export", 2, 64, 2},
    [SLOW_ADMIN] = {"admin", 2, 64, 0},
    [SLOW_CONTROL] = {"control", 2, 64, 0}, /* a backup or an import may take one */
};

void api_start_pools(struct api *api)
{
    unsigned threads = 0;
    for (size_t i = 0; i < SLOW_POOLS; i++) {
        api->slow[i] = pool_new(slow_kinds[i].threads, slow_kinds[i].queue_max, slow_kinds[i].name);
        pool_set_share(api->slow[i], slow_kinds[i].share);
        threads += slow_kinds[i].threads;
    }
    CHECK(threads == SLOW_THREADS);
}

void api_stop_pools(struct api *api)
{
    for (size_t i = 0; i < SLOW_POOLS; i++)
        pool_free(api->slow[i]);
}

static struct pool *slow_pool_of(struct request *r)
{
    struct call *c = &r->call;
    enum slow_pool kind = c->x->control                           ? SLOW_CONTROL
                          : c->route->rate == RATE_AUTH           ? SLOW_PASSWORDS
                          : c->route->policy >= POLICY_ADMIN_READ ? SLOW_ADMIN
                                                                  : SLOW_EXPORTS;
    c->task.owner = kind == SLOW_EXPORTS ? c->caller.account : limits_peer_key(c->x->peer);
    return c->api->slow[kind];
}

struct pool *request_readers(const struct request *r)
{
    const struct api *api = r->call.api;
    return r->call.x->control ? api->slow[SLOW_CONTROL] : api->pool;
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
            request_submit(r, request_readers(r), read_task);
        else
            read_now(r);
        return;
    case MODE_SLOW:
        request_submit(r, slow_pool_of(r), blocking_task);
        return;
    case MODE_WRITE:
        write_soon(r);
        return;
    }
}
