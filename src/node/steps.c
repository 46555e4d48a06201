/* The table of background steps. A new one is a row here and a function wherever it belongs.
 *
 * A row that is the leader's alone rests while another node leads. Rows of the engine need no such
 * word: an engine that does not lead rests by itself. */
#include "node/steps.h"

#include "api/edge/auth.h"
#include "api/edge/idempotency.h"
#include "base/check.h"
#include "bus/local_first.h"
#include "live/live.h"
#include "model/erase.h"
#include "node/parts.h"
#include "node/rebuild_job.h"

enum { GUARD_EVERY_US = 100 * 1000, FOLLOW_US = 1000 * 1000, LEADERLESS_US = 200 * 1000 };

static int64_t in_us(const struct runtime *r, int64_t us)
{
    return clock_mono_us(r->api.clock) + us;
}

/* A backlog is drained by expansion: only the disk stops that. */
static int64_t guard_step(struct runtime *r)
{
    struct engine_stats stats;
    struct db_stats store;
    engine_stats(r->api.engine, &stats);
    db_stats(r->api.db, &store);
    bool leads = engine_leads(r->api.engine);
    uint64_t undone = leads ? stats.undone : membership_undone(&r->membership);
    int level = overload_guard_look(&r->overload_guard, undone, store.full);
    engine_guard(r->api.engine, level > 0 && atomic_load(&r->overload_guard.disk), level > 0);
    return in_us(r, GUARD_EVERY_US);
}

/* The leader moves the celebrities' threshold; the other nodes follow it. */
static int64_t keeper_step(struct runtime *r)
{
    if (engine_leads(r->api.engine))
        return celebrity_keeper_step(&r->keeper);
    (void)celebrity_keeper_follow(&r->keeper); /* or the next time */
    return in_us(r, FOLLOW_US);
}

/* Views that were lost may have taken signals along that had not arrived. */
static void greet_after_load(struct runtime *r)
{
    uint64_t loaded = atomic_load(&r->membership.loaded);
    if (loaded != r->greeted_load)
        live_greet_all(r->api.live);
    r->greeted_load = loaded;
}

/* A leader with workers keeps small work to itself. What it kept is in the outbox when it leads no
 * more. */
static int64_t lead_step(struct runtime *r)
{
    bool led = engine_leads(r->api.engine);
    int64_t again_us = leadership_step(&r->membership.leadership);
    bool leads = engine_leads(r->api.engine);
    membership_decide_trust(&r->membership);
    greet_after_load(r);
    if (leads != led || !leads) {
        bus_local_first_hold(r->bus, leads && (r->roles & ROLE_WORKER));
        if (!leads)
            bus_local_first_forget(r->bus);
    }
    return again_us;
}

#define ENGINE r->api.engine
#define KEEP   (&r->maintenance)
#define MEMBER (&r->membership)

/* name, nodes, role (0: any), leader only, niceness, threads, runner, call */
/* clang-format off */
#define STEP_TABLE(X)                                                                              \
    X(relay,     ANY,    ROLE_RELAY,  false, 1, 1, RUN_RELAY,      engine_relay_step(ENGINE))      \
    X(recorder,  ANY,    ROLE_RELAY,  false, 0, 1, RUN_RECORDER,   engine_recorder_step(ENGINE))   \
    X(timers,    ANY,    ROLE_RELAY,  false, 0, 1, RUN_BY_CLOCK,   engine_timer_step(ENGINE))      \
    X(replays,   ANY,    ROLE_RELAY,  false, 5, 1, RUN_REPLAYS,    engine_replay_step(ENGINE))     \
    X(watermark, ANY,    ROLE_RELAY,  false, 0, 1, RUN_BY_CLOCK,   engine_watermark_step(ENGINE))  \
    X(sample,    ANY,    ROLE_RELAY,  false, 0, 1, RUN_BY_CLOCK,   engine_sample_step(ENGINE))     \
    X(rebuild,   ANY,    ROLE_RELAY,  true,  5, 1, RUN_BY_CLOCK,   rebuild_job_step(&r->api))      \
    X(sweep,     ANY,    ROLE_RELAY,  true,  5, 1, RUN_BY_CLOCK,   maintenance_sweep_step(KEEP))   \
    X(audit,     ANY,    ROLE_RELAY,  true,  5, 1, RUN_BY_CLOCK,   maintenance_audit_step(KEEP))   \
    X(expire,    ANY,    ROLE_RELAY,  true,  5, 1, RUN_BY_CLOCK,                                   \
      idempotency_clean_step(r->api.db, r->api.clock))                                             \
    X(erase,     ANY,    ROLE_RELAY,  true,  5, 1, RUN_BY_CLOCK,                                   \
      erase_deleted_step(r->api.db, r->api.clock, r->settings->deleted_retention_ms))              \
    X(keeper,    ANY,    0,           false, 5, 1, RUN_BY_CLOCK,   keeper_step(r))                 \
    X(guard,     ANY,    0,           false, 0, 1, RUN_BY_CLOCK,   guard_step(r))                  \
    X(live,      ANY,    0,           false, 0, 1, RUN_LIVE,       live_step(r->api.live))         \
    X(signals,   SHARED, 0,           false, 0, 1, RUN_LIVE,                                       \
      live_receive_step(r->api.live))                                                              \
    X(last_seen, ANY,    0,           false, 5, 1, RUN_BY_CLOCK,                                   \
      auth_last_seen_step(r->api.auth))                                                            \
    X(deliver,   ANY,    ROLE_WORKER, false, 5, WORKERS, RUN_VIEWS,                                \
      engine_views_step(ENGINE))                                                                   \
    X(truth,     ANY,    ROLE_WORKER, false, 5, 1, RUN_TRUTH,      engine_truth_step(ENGINE))      \
    X(outside,   ANY,    ROLE_WORKER, false, 0, 1, RUN_OUTSIDE,    engine_outside_step(ENGINE))    \
    X(save,      ALONE,  0,           false, 5, 1, RUN_BY_CLOCK,   maintenance_save_step(KEEP))    \
    X(beat,      SHARED, 0,           false, 0, 1, RUN_MEMBERSHIP, membership_beat_step(MEMBER))   \
    X(lead,      SHARED, 0,           false, 0, 1, RUN_MEMBERSHIP, lead_step(r))                   \
    X(views,     SHARED, 0,           false, 0, 1, RUN_MEMBERSHIP, membership_views_step(MEMBER))
/* clang-format on */

enum step_nodes { ANY, ALONE, SHARED };
enum { WORKERS = 0 };

struct step {
    const char *name;
    enum step_nodes nodes;
    unsigned role;
    bool leader_only;
    int nice;
    unsigned threads; /* WORKERS: as many as the settings say */
    enum step_runner runner;
    int64_t (*call)(struct runtime *r);
};

#define STEP_FUNCTIONS(name, nodes, role, leader_only, nice, threads, runner, call)                \
    static int64_t call_##name(struct runtime *r)                                                  \
    {                                                                                              \
        return call;                                                                               \
    }
STEP_TABLE(STEP_FUNCTIONS)

static const struct step table[] = {
#define STEP_ROW(name, nodes, role, leader_only, nice, threads, runner, call)                      \
    {#name, nodes, role, leader_only, nice, threads, runner, call_##name},
    STEP_TABLE(STEP_ROW)};

_Static_assert(COUNT_OF(table) <= STEPS_MAX, "STEPS_MAX is too small");

static int64_t run_step(void *arg)
{
    const struct step_call *c = arg;
    if (c->row->leader_only && !engine_leads(c->runtime->api.engine))
        return in_us(c->runtime, LEADERLESS_US);
    return c->row->call(c->runtime);
}

static bool has_step(const struct runtime *r, const struct step *row)
{
    bool here = row->nodes == ANY || (row->nodes == SHARED) == r->shared;
    return here && (row->role == 0 || (r->roles & row->role));
}

void steps_init(struct steps *s)
{
    for (int i = 0; i < RUNNERS; i++)
        s->runners[i] = runner_new();
}

bool steps_start(struct steps *s, struct runtime *runtime)
{
    bool ok = true;
    for (size_t i = 0; ok && i < COUNT_OF(table); i++) {
        const struct step *row = &table[i];
        s->calls[i] = (struct step_call){.runtime = runtime, .row = row};
        unsigned threads =
            row->threads == WORKERS ? (unsigned)runtime->settings->fan_out_workers : row->threads;
        if (has_step(runtime, row))
            ok = runner_add(s->runners[row->runner], row->name, run_step, &s->calls[i], threads,
                            row->nice);
    }
    return ok;
}

void steps_wake(struct steps *s, enum step_runner who)
{
    runner_wake(s->runners[who]);
}

_Static_assert((int)ENGINE_RELAY == 0 && (int)RUN_VIEWS - (int)RUN_RELAY == (int)ENGINE_VIEWS &&
                   (int)RUN_TRUTH - (int)RUN_RELAY == (int)ENGINE_TRUTH &&
                   (int)RUN_OUTSIDE - (int)RUN_RELAY == (int)ENGINE_OUTSIDE &&
                   (int)RUN_RECORDER - (int)RUN_RELAY == (int)ENGINE_RECORDER &&
                   (int)RUN_REPLAYS - (int)RUN_RELAY == (int)ENGINE_REPLAYS,
               "the engine's runners are in the engine's order");

void steps_wake_engine(struct steps *s, enum engine_sleeper who)
{
    runner_wake(s->runners[RUN_RELAY + (int)who]);
}

bool steps_stop(struct steps *s, int64_t within_ms)
{
    bool ended = true;
    for (int i = 0; i < RUNNERS; i++)
        ended = runner_stop(s->runners[i], within_ms) && ended;
    return ended;
}

void steps_done(struct steps *s)
{
    for (int i = 0; i < RUNNERS; i++)
        runner_free(s->runners[i]);
}
