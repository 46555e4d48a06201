/* The engine as a whole: its life, its start from truth, the commit hook's
 * side, its switches. The steps are in relay.c, worker.c, recorder.c, watermark.c and
 * sample.c; what is different where many nodes share the work is in lead.c.
 *
 * It owns no thread, no clock and no global state: the caller of the steps
 * decides what runs when, so the simulator runs the same code as the server. */
#include "pipe/engine.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/sync.h"
#include "pipe/lane_overrides.h"
#include "pipe/state.h"

#define HOUR_MS INT64_C(3600000)

/* An act outside that takes its time must not be taken for a lost one: a second try would
 * find it claimed and call it unknown. */
enum { OUTSIDE_PATIENCE = 12, JOBS_EVERY_US = 1000 * 1000 };

enum { RESEND_DEFAULT = -1, RESEND_ALONE_MS = 60 * 1000, RESEND_SHARED_MS = 5000 };

void engine_config_default(struct engine_config *c)
{
    *c = (struct engine_config){
        .commit_queue_max = 16384,
        .active_within_ms = 7 * 24 * HOUR_MS,
        .watermark_every_ms = 1000,
        .trim_slice = 500,
        .retain_settled_ms = 7 * 24 * HOUR_MS,
        .retain_closed_ms = 3 * 24 * HOUR_MS,
        .retain_dead_ms = 30 * 24 * HOUR_MS,
        .dedup_ms = 35 * 24 * HOUR_MS,
        .lease_ms = 5 * 60 * 1000,
        .resend_after_ms = RESEND_DEFAULT,
        .poll_every_ms = 1000,
        .timer_every_ms = 100,
        .trace_records = 1 << 16,
        .horizon_every_ms = 10,
    };
    for (int lane = 0; lane < LANE_COUNT; lane++)
        c->lane_rate[lane] = LANE_DEFAULT_RATE;
}

/* ---- making ---- */

static void check_rule(const struct rule *rule)
{
    CHECK(rule->on < EVENT_TYPE_COUNT && event_keep(rule->on) == EVENT_STORED);
    CHECK(rule->lane < LANE_COUNT && !lane_rows[rule->lane].replays);
    CHECK((rule->sink != NULL) + (rule->tx_sink != NULL) + (rule->outside != NULL) == 1);
    CHECK(!rule->outside || (rule->effect == EFFECT_OUTSIDE &&
                             lane_rows[rule->lane].pool == POOL_OUTSIDE && !rule->rest_sink));
    CHECK(rule->outside || lane_rows[rule->lane].pool != POOL_OUTSIDE);
    CHECK(!rule->tx_sink || (rule->effect == EFFECT_TRUTH && rule->dedup != DEDUP_OFF));
    CHECK(!rule_walks(rule) || (rule->batch > 0 && rule->batch <= ENGINE_BATCH_MAX));
    /* Handles mean nothing to the next process. */
    CHECK(rule->dedup != DEDUP_BY_EVENT || !rule->audience->handles);
    CHECK(!rule->rest_sink || (rule->dedup == DEDUP_OFF && rule_walks(rule)));
    CHECK(rule->dedup != DEDUP_BY_KEY || rule->business_key);
    CHECK(rule->effect != EFFECT_OUTSIDE || rule->channel);
}

static void index_rules(struct engine *g)
{
    for (size_t i = 0; i < g->rule_count; i++) {
        const struct rule *rule = &g->rules[i];
        check_rule(rule);
        CHECK(g->rules_on_count[rule->on] < ENGINE_RULES_PER_TYPE);
        g->rules_on[rule->on][g->rules_on_count[rule->on]++] = (uint16_t)i;
        g->has_dedup |= rule->dedup != DEDUP_OFF;
        g->observed[rule->on] |= rule->observed;
    }
}

static bool begin_replayed(void *ctx, uint64_t job, const struct event *e, uint32_t rule_mask)
{
    struct engine *g = ctx;
    struct out_of_band_event out_of_band = {.kind = SLOT_REPLAY,
                                            .owner = job,
                                            .replay = job,
                                            .event = *e,
                                            .wanted = rule_mask,
                                            .rules = g->rules_on[e->type]};
    if (inflight_begin_out_of_band(&g->inflight, &out_of_band) != OUT_OF_BAND_BEGUN)
        return false;
    engine_wake_up(g, ENGINE_RELAY);
    engine_wake_up(g, ENGINE_RECORDER); /* its key may be blocked */
    return true;
}

static bool live_is_late(void *ctx)
{
    return freshness_is_late(((struct engine *)ctx)->freshness);
}

static void find_unsaved(void *ctx, uint64_t *after, uint64_t *through)
{
    struct engine *g = ctx;
    *after = atomic_load(&g->watermark.saved);
    *through = inflight_through(&g->inflight);
}

static bool bulk_is_guarded(void *ctx)
{
    return atomic_load(&((struct engine *)ctx)->guarded_bulk);
}

static void wake_replays(void *ctx)
{
    engine_wake_up(ctx, ENGINE_REPLAYS);
}

static void make_lanes(struct engine *g)
{
    int64_t now_us = clock_mono_us(g->env.clock);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        lane_gate_init(&g->lanes[lane].gate, (enum lane)lane, g->config.lane_concurrency[lane],
                       g->config.lane_rate[lane], now_us);
        breaker_init(&g->lanes[lane].breaker, now_us);
        g->lanes[lane].log_after_us = INT64_MIN;
    }
}

/* Writers come first: beginning or ending to lead must get in, however busy the steps are. */
static void make_life(struct engine *g)
{
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    CHECK(pthread_rwlock_init(&g->life, &attributes) == 0);
    pthread_rwlockattr_destroy(&attributes);
    lock_init_spinning(&g->save_lock);
}

struct engine *engine_new(const struct engine_config *config, const struct rule *rules,
                          size_t rule_count, struct sink_env env, struct bus *bus)
{
    CHECK(config->watermark_every_ms > 0 && config->trim_slice > 0 && rule_count < RULE_NONE);
    size_t size = (sizeof(struct engine) + 63) / 64 * 64;
    struct engine *g = aligned_alloc(64, size);
    CHECK(g);
    memset(g, 0, size);
    g->config = *config;
    if (config->resend_after_ms < 0)
        g->config.resend_after_ms = config->shared ? RESEND_SHARED_MS : RESEND_ALONE_MS;
    g->rules = rules;
    g->rule_count = rule_count;
    g->env = env;
    g->env.active_within_ms = config->active_within_ms;
    g->bus = bus;
    index_rules(g);
    make_life(g);
    atomic_store(&g->lead_until_us, INT64_MAX);
    commit_queue_init(&g->commit_queue, config->commit_queue_max);
    inflight_init(&g->inflight, rules, rule_count, ENGINE_UNDONE_MAX);
    recorder_init(&g->recorder);
    trace_init(&g->trace, config->trace_records);
    make_lanes(g);
    dedup_init(&g->dedup, config->dedup_ms);
    lock_init_spinning(&g->dedup_lock);
    lock_init_spinning(&g->counts_lock);
    g->freshness = freshness_new(rules, rule_count);
    g->replays = replays_new(env.db, env.clock, rules, rule_count,
                             (struct replay_host){.ctx = g,
                                                  .begin = begin_replayed,
                                                  .live_is_late = live_is_late,
                                                  .unsaved = find_unsaved,
                                                  .guarded = bulk_is_guarded,
                                                  .wake = wake_replays,
                                                  .write = engine_write});
    relay_init(&g->relay);
    watermark_init(&g->watermark);
    outside_init(&g->outside);
    atomic_store(&g->timers.next_ms, INT64_MAX);
    atomic_store(&g->timers.log_after_us, INT64_MIN);
    if (config->shared)
        g->inflight.outside_patience = OUTSIDE_PATIENCE;
    return g;
}

void engine_free(struct engine *g)
{
    if (!g)
        return;
    replays_free(g->replays);
    freshness_free(g->freshness);
    pthread_mutex_destroy(&g->counts_lock);
    pthread_mutex_destroy(&g->dedup_lock);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        breaker_done(&g->lanes[lane].breaker);
        lane_gate_done(&g->lanes[lane].gate);
    }
    trace_done(&g->trace);
    recorder_done(&g->recorder);
    inflight_done(&g->inflight);
    commit_queue_done(&g->commit_queue);
    pthread_mutex_destroy(&g->save_lock);
    pthread_rwlock_destroy(&g->life);
    outside_done(&g->outside);
    free(g);
}

void engine_observe(struct engine *g, fan_out_observer observer, void *ctx)
{
    g->observer = observer;
    g->observer_ctx = ctx;
}

void engine_on_wake(struct engine *g, engine_wake wake, void *ctx)
{
    g->wake = wake;
    g->wake_ctx = ctx;
}

/* The load spares the busy case the write to a line that all threads read. */
void engine_wake_up(struct engine *g, enum engine_sleeper who)
{
    _Atomic bool *asleep = &g->asleep[who];
    if (atomic_load(asleep) && atomic_exchange(asleep, false) && g->wake)
        g->wake(g->wake_ctx, who);
}

void engine_wake_lane(struct engine *g, enum lane lane)
{
    engine_wake_up(g, engine_sleeper_of(lane_rows[lane].pool));
}

bool engine_may_log(_Atomic int64_t *log_after_us, int64_t now_us)
{
    int64_t after = atomic_load(log_after_us);
    return now_us >= after &&
           atomic_compare_exchange_strong(log_after_us, &after, now_us + LOG_AGAIN_US);
}

void engine_complain(int64_t *log_after_us, int64_t now_us, const char *message,
                     struct log_field field)
{
    if (now_us < *log_after_us)
        return;
    *log_after_us = now_us + LOG_AGAIN_US;
    log_error(message, field);
}

/* ---- the start ---- */

struct redoing {
    struct engine *g;
    bool more;
};

static enum err run_redo(struct tx *tx, void *arg)
{
    struct redoing *r = arg;
    return delivery_store_redo_lost(tx, r->g->env.views->loaded_position,
                                    clock_wall_ms(r->g->env.clock), &r->more);
}

/* Views that outlive the process are saved before anything counts as done (recorder.c). */
static enum err redo_lost(struct engine *g)
{
    struct redoing r = {.g = g, .more = !g->config.shared && g->env.views->loaded_position > 0};
    enum err e = OK;
    while (!e && r.more)
        e = engine_write(g, run_redo, &r);
    return e;
}

static enum err run_reopen(struct tx *tx, void *arg)
{
    struct engine *g = arg;
    return delivery_store_reopen(tx, clock_wall_ms(g->env.clock));
}

struct overrides {
    struct lane_override lanes[LANE_COUNT];
    size_t n;
};

static enum err run_overrides(struct tx *tx, void *arg)
{
    struct overrides *o = arg;
    return lane_overrides_read(tx, o->lanes, &o->n);
}

/* What operators changed for good. */
static enum err override_lanes(struct engine *g)
{
    struct overrides o;
    TRY(db_read(g->env.db, run_overrides, &o, NULL));
    for (size_t i = 0; i < o.n; i++) {
        const struct lane_override *l = &o.lanes[i];
        engine_set_lane(g, l->lane, l->concurrency, l->rate);
        if (l->stopped)
            engine_stop_lane(g, l->lane, true);
    }
    return OK;
}

enum err engine_read_truth(struct engine *g)
{
    struct outbox_found found;
    uint64_t loaded = g->config.shared ? 0 : g->env.views->loaded_position;
    TRY(override_lanes(g));
    TRY(engine_write(g, run_reopen, g));
    TRY(redo_lost(g));
    TRY(recorder_recover(g));
    TRY(replays_recover(g->replays));
    TRY(outbox_look(g->env.db, loaded, &found));
    uint64_t start = loaded ? loaded : found.watermark;
    atomic_store(&g->watermark.saved, found.watermark);
    g->relay.taken = start;
    g->relay.recovered = found.last > start ? found.last : start;
    atomic_store(&g->relay.last_event, g->relay.recovered);
    inflight_reset(&g->inflight, start);
    atomic_store(&g->commit_queue.offered, g->relay.recovered);
    atomic_store(&g->oldest_found, found.first);
    for (int type = 0; type < EVENT_TYPE_COUNT; type++) {
        atomic_store(&g->offered[type], found.above[type]);
        g->relay.found[type] = found.above[type];
    }
    return OK;
}

enum err engine_recover(struct engine *g)
{
    CHECK(!g->config.shared);
    return engine_read_truth(g);
}

/* ---- the commit hook's side ---- */

void engine_offer(struct engine *g, const struct event *events, size_t n)
{
    if (g->config.shared)
        return; /* the leader finds them in the table, in their order among all */
    int64_t now_us = clock_mono_us(g->env.clock);
    bool offered = false;
    for (size_t i = 0; i < n; i++) {
        if (event_keep(events[i].type) != EVENT_STORED)
            continue;
        if (commit_queue_push(&g->commit_queue, &events[i], now_us))
            atomic_fetch_add_explicit(&g->offered[events[i].type], 1, memory_order_relaxed);
        offered = true;
    }
    if (offered)
        engine_wake_up(g, ENGINE_RELAY);
}

/* ---- switches ---- */

/* Shared, a lane that rests gets nothing from the relay either. */
static void wake_lanes(struct engine *g)
{
    for (int pool = 0; pool < POOL_COUNT; pool++)
        engine_wake_up(g, engine_sleeper_of((enum worker_pool)pool));
    if (g->config.shared)
        engine_wake_up(g, ENGINE_RELAY);
}

void engine_pause(struct engine *g, bool paused)
{
    atomic_store(&g->paused, paused);
    if (!paused)
        wake_lanes(g);
}

void engine_guard(struct engine *g, bool expansion, bool bulk)
{
    bool let_go = atomic_exchange(&g->guarded_expansion, expansion) && !expansion;
    let_go |= atomic_exchange(&g->guarded_bulk, bulk) && !bulk;
    if (!let_go)
        return;
    wake_lanes(g);
    engine_wake_up(g, ENGINE_REPLAYS);
}

void engine_set_lane(struct engine *g, enum lane lane, uint32_t concurrency, uint32_t rate)
{
    CHECK(lane < LANE_COUNT);
    lane_gate_set(&g->lanes[lane].gate, lane, concurrency, rate, clock_mono_us(g->env.clock));
    engine_wake_lane(g, lane);
}

void engine_share_lanes(struct engine *g, uint32_t rank, uint32_t nodes)
{
    for (int lane = 0; lane < LANE_COUNT; lane++)
        lane_gate_share(&g->lanes[lane].gate, (enum lane)lane, rank, nodes);
}

void engine_stop_lane(struct engine *g, enum lane lane, bool stop)
{
    CHECK(lane < LANE_COUNT);
    int64_t now_us = clock_mono_us(g->env.clock);
    if (stop)
        breaker_stop(&g->lanes[lane].breaker, now_us, clock_wall_ms(g->env.clock));
    else
        breaker_start(&g->lanes[lane].breaker, now_us);
    wake_lanes(g);
}

bool engine_lane_is_stopped(struct engine *g, enum lane lane)
{
    struct breaker_look look;
    breaker_look(&g->lanes[lane].breaker, &look);
    return look.state != BREAKER_CLOSED;
}

/* Operators of other nodes change the jobs, too, without a signal to this one. */
static int64_t replay_step(struct engine *g)
{
    int64_t now_us = clock_mono_us(g->env.clock);
    if (g->config.shared && now_us >= g->jobs_after_us) {
        g->jobs_after_us = now_us + JOBS_EVERY_US;
        replays_poke(g->replays);
    }
    atomic_store(&g->asleep[ENGINE_REPLAYS], true);
    int64_t due_us = replays_step(g->replays);
    if (g->config.shared)
        due_by(&due_us, g->jobs_after_us);
    return due_us;
}

int64_t engine_replay_step(struct engine *g)
{
    return engine_lead_step(g, &g->asleep[ENGINE_REPLAYS], replay_step);
}

void engine_jobs_changed(struct engine *g)
{
    if (!engine_peek(g))
        return; /* the leader looks by itself */
    replays_poke(g->replays);
    engine_wake_up(g, ENGINE_REPLAYS);
    engine_exit(g);
}

void engine_deliveries_changed(struct engine *g)
{
    if (!engine_peek(g))
        return;
    engine_stir_recorder(g);
    engine_exit(g);
}

/* ---- what others look at ---- */

uint64_t engine_settled_through(struct engine *g)
{
    if (!engine_peek(g))
        return 0;
    uint64_t through = inflight_through(&g->inflight);
    engine_exit(g);
    return through;
}

void engine_unsaved(struct engine *g, uint64_t *after, uint64_t *through)
{
    *after = *through = 0;
    if (!engine_peek(g))
        return;
    find_unsaved(g, after, through);
    engine_exit(g);
}

/* Everything that the horizon let through is done, and a look of late found nothing new. */
static bool is_quiet_shared(struct engine *g)
{
    enum { LATELY_US = 1000 * 1000 };
    int64_t looked_us = atomic_load(&g->relay.looked_us);
    return looked_us != INT64_MIN && clock_mono_us(g->env.clock) - looked_us <= LATELY_US &&
           inflight_through(&g->inflight) >= atomic_load(&g->relay.horizon) &&
           atomic_load(&g->recorder.waiting) == 0;
}

static bool is_quiet(struct engine *g)
{
    if (g->config.shared)
        return is_quiet_shared(g);
    uint64_t offered = atomic_load_explicit(&g->commit_queue.offered, memory_order_acquire);
    return inflight_through(&g->inflight) >= offered && atomic_load(&g->recorder.waiting) == 0;
}

bool engine_quiet(struct engine *g)
{
    if (!engine_peek(g))
        return false;
    bool quiet = is_quiet(g);
    engine_exit(g);
    return quiet;
}

struct looking_above {
    uint64_t after;
    struct outbox_found waiting;
};

static enum err look_above(struct tx *tx, void *arg)
{
    struct looking_above *l = arg;
    return outbox_waiting(tx, l->after, &l->waiting);
}

/* Shared: what is committed and was not let through yet is in truth alone. */
static bool nothing_above(struct engine *g, uint64_t through)
{
    struct looking_above l = {.after = through};
    return db_read(g->env.db, look_above, &l, NULL) == OK && l.waiting.first == 0;
}

bool engine_drained(struct engine *g)
{
    if (!engine_peek(g))
        return false;
    uint64_t through = inflight_through(&g->inflight);
    bool drained =
        is_quiet(g) && !atomic_load(&g->recorder.changed) && atomic_load(&g->recorder.nothing_due);
    engine_exit(g);
    return drained && (!g->config.shared || nothing_above(g, through));
}

struct freshness *engine_freshness(struct engine *g)
{
    return g->freshness;
}

struct trace *engine_trace(struct engine *g)
{
    return &g->trace;
}

const struct rule *engine_rules(struct engine *g, size_t *n)
{
    *n = g->rule_count;
    return g->rules;
}

int64_t engine_dedup_ms(struct engine *g)
{
    return g->config.dedup_ms;
}
