/* Leading: one of many nodes runs the engine, and fences keep the others, and former leaders, out.
 *
 * A node that does not lead has an engine without state: its workers take work items from the bus
 * and report the outcomes to the leader, its other steps do nothing. Beginning to lead reads truth
 * into that state, and only then says so; ending drops it all again. A leader hands nothing over:
 * truth has all that counts.
 *
 * A leader that was stopped for a while may continue without knowing that there is another one. Two
 * fences hold it back. Every write begins with the check that its term is the one in truth, or
 * nothing happens. And every message on the bus carries its term, and is not sent at all when the
 * time of its lease is over (engine_lead_until): another leader may have recorded in the delivery
 * store what this message would overtake.
 *
 * The views' saves are serialised, because one that says "some of it may be lost" must be the last:
 * a save after it would report that all is well, and what is lost would be settled. */
#include "base/check.h"
#include "base/log.h"
#include "pipe/state.h"

enum { IDLE_US = 100 * 1000 }; /* a step that waits for this node to lead */

/* ---- entering ---- */

bool engine_may_lead(struct engine *g)
{
    return !g->config.shared || (atomic_load(&g->leads) && !atomic_load(&g->must_resign) &&
                                 clock_mono_us(g->env.clock) < atomic_load(&g->lead_until_us));
}

bool engine_enter_leading(struct engine *g, int64_t *again_us)
{
    if (!g->config.shared)
        return true;
    pthread_rwlock_rdlock(&g->life);
    if (engine_may_lead(g))
        return true;
    pthread_rwlock_unlock(&g->life);
    *again_us = clock_mono_us(g->env.clock) + IDLE_US;
    return false;
}

int64_t engine_lead_step(struct engine *g, _Atomic bool *asleep, int64_t (*step)(struct engine *g))
{
    int64_t due_us;
    if (engine_enter_leading(g, &due_us)) {
        due_us = step(g);
        engine_exit(g);
    } else if (asleep) {
        atomic_store(asleep, true);
    }
    return due_us;
}

int64_t engine_work_step(struct engine *g, enum engine_sleeper who,
                         bool (*work)(struct engine *g, int64_t now_us, int64_t *due_us))
{
    int64_t now_us = clock_mono_us(g->env.clock), due_us = INT64_MAX;
    if (work(g, now_us, &due_us))
        return now_us;
    atomic_store(&g->asleep[who], true);
    due_us = INT64_MAX;
    return work(g, now_us, &due_us) ? now_us : due_us;
}

bool engine_peek(struct engine *g)
{
    if (!g->config.shared)
        return true;
    if (pthread_rwlock_tryrdlock(&g->life))
        return false;
    if (atomic_load(&g->leads))
        return true;
    pthread_rwlock_unlock(&g->life);
    return false;
}

/* ---- terms ---- */

void engine_saw_term(struct engine *g, uint64_t term)
{
    uint64_t seen = atomic_load(&g->seen_term);
    while (term > seen && !atomic_compare_exchange_weak(&g->seen_term, &seen, term)) {
    }
}

bool engine_knows_term(struct engine *g, uint64_t term)
{
    uint64_t seen = atomic_load(&g->seen_term);
    if (term > seen) {
        engine_saw_term(g, term);
        if (atomic_load(&g->leads) && term > atomic_load(&g->term))
            atomic_store(&g->must_resign, true);
    }
    return term >= seen;
}

/* The term is set before it leads, and another one only when it does not lead any more. */
uint64_t engine_leading(struct engine *g)
{
    uint64_t term = atomic_load(&g->term);
    bool leads = g->config.shared && atomic_load(&g->leads);
    return leads && term == atomic_load(&g->term) ? term : 0;
}

bool engine_leads(struct engine *g)
{
    return !g->config.shared || atomic_load(&g->leads);
}

void engine_lead_until(struct engine *g, int64_t mono_us)
{
    atomic_store(&g->lead_until_us, mono_us);
}

bool engine_must_resign(struct engine *g)
{
    return atomic_load(&g->leads) && atomic_load(&g->must_resign);
}

/* ---- writing ---- */

struct fenced {
    const struct engine *g;
    uint64_t term;
    tx_fn run;
    void *arg;
};

static enum err run_fenced(struct tx *tx, void *arg)
{
    const struct fenced *f = arg;
    TRY(f->g->config.fence(tx, f->term));
    return f->run(tx, f->arg);
}

enum err engine_write(void *engine, tx_fn run, void *arg)
{
    struct engine *g = engine;
    if (!g->config.shared)
        return db_write(g->env.db, run, arg, NULL);
    struct fenced f = {.g = g, .term = atomic_load(&g->term), .run = run, .arg = arg};
    enum err e = db_write(g->env.db, run_fenced, &f, NULL);
    if (e == ERR_NO_LEADER)
        atomic_store(&g->must_resign, true);
    return e;
}

enum err engine_save_views(struct engine *g)
{
    if (!g->env.views->remote)
        return OK;
    pthread_mutex_lock(&g->save_lock);
    enum err e = atomic_load(&g->must_resign) ? ERR_CONFLICT : views_save(g->env.views, 0);
    if (e == ERR_CONFLICT)
        atomic_store(&g->must_resign, true);
    pthread_mutex_unlock(&g->save_lock);
    return e;
}

/* ---- beginning and ending ---- */

void engine_on_apply(struct engine *g, engine_applier apply, void *ctx)
{
    g->apply = apply;
    g->apply_ctx = ctx;
}

/* How engine_new left it, but for what counts since the start of the process. */
static void forget(struct engine *g)
{
    recorder_forget(g);
    inflight_clear(&g->inflight);
    replays_forget(g->replays);
    relay_init(&g->relay);
    watermark_init(&g->watermark);
    atomic_store(&g->released, 0);
    atomic_store(&g->oldest_found, 0);
    for (int type = 0; type < EVENT_TYPE_COUNT; type++) {
        atomic_store(&g->offered[type], 0);
        atomic_store(&g->taken[type], 0);
    }
    freshness_sample(g->freshness, NULL, 0, clock_mono_us(g->env.clock));
}

/* From here on a save reports whether everything since is safe. Earlier losses do not matter:
 * events that are not settled are delivered again. */
static enum err begin_saving(struct engine *g)
{
    enum err e = engine_save_views(g);
    if (e == ERR_CONFLICT) {
        atomic_store(&g->must_resign, false);
        e = engine_save_views(g);
    }
    return e;
}

enum err engine_lead(struct engine *g, uint64_t term)
{
    CHECK(g->config.shared && term > 0 && !atomic_load(&g->leads));
    atomic_store(&g->must_resign, false);
    atomic_store(&g->term, term);
    engine_saw_term(g, term);
    g->inflight.term = term;
    enum err e = begin_saving(g);
    if (!e)
        e = engine_read_truth(g);
    pthread_rwlock_wrlock(&g->life);
    if (e)
        forget(g);
    else
        atomic_store(&g->leads, true);
    pthread_rwlock_unlock(&g->life);
    if (e)
        return e;
    bus_listen(g->bus, ENGINE_REPORTS, true);
    for (int who = 0; who < ENGINE_SLEEPERS; who++)
        engine_wake_up(g, (enum engine_sleeper)who);
    log_info("this node leads", LOG_INT("term", (int64_t)term));
    return OK;
}

void engine_resign(struct engine *g)
{
    if (!g->config.shared || !atomic_load(&g->leads))
        return;
    bus_listen(g->bus, ENGINE_REPORTS, false);
    pthread_rwlock_wrlock(&g->life);
    atomic_store(&g->leads, false);
    forget(g);
    pthread_rwlock_unlock(&g->life);
    log_info("this node does not lead any more", LOG_INT("term", (int64_t)atomic_load(&g->term)));
}
