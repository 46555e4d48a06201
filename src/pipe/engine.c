/* The engine as a whole: its life, its start from truth, the commit hook's side, and its numbers.
 * The steps are in relay.c, worker.c and mark.c.
 *
 * It owns no thread, no clock and no global state: whoever calls the steps decides what runs when,
 * so the simulator runs the same code as the server. */
#include "pipe/engine.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/id.h"
#include "pipe/outbox.h"
#include "pipe/state.h"

void engine_config_default(struct engine_config *c)
{
    *c = (struct engine_config){
        .hand_over_max = 16384,
        .active_within_ms = INT64_C(7) * 24 * 3600 * 1000,
        .mark_every_ms = 1000,
        .trim_slice = 500,
    };
    for (int lane = 0; lane < LANE_COUNT; lane++)
        c->lane_rate[lane] = LANE_DEFAULT_RATE;
}

static void index_rules(struct engine *g)
{
    for (size_t i = 0; i < g->rule_count; i++) {
        const struct rule *rule = &g->rules[i];
        CHECK(rule->on < EVENT_TYPE_COUNT && event_keep(rule->on) == EVENT_STORED);
        CHECK(rule->lane < LANE_COUNT && rule->sink);
        CHECK(rule->audience == TO_ACTOR || (rule->batch > 0 && rule->batch <= ENGINE_BATCH_MAX));
        CHECK(g->rules_on_count[rule->on] < ENGINE_RULES_PER_TYPE);
        uint16_t ordinal = g->rules_on_count[rule->on]++;
        g->rules_on[rule->on][ordinal] = (uint16_t)i;
        g->lane_rules[rule->lane][rule->on] |= UINT32_C(1) << ordinal;
    }
}

struct engine *engine_new(const struct engine_config *config, const struct rule *rules,
                          size_t rule_count, struct sink_env env, struct bus *bus)
{
    CHECK(config->mark_every_ms > 0 && config->trim_slice > 0 && rule_count <= UINT16_MAX);
    size_t size = (sizeof(struct engine) + 63) / 64 * 64;
    struct engine *g = aligned_alloc(64, size);
    CHECK(g);
    memset(g, 0, size);
    g->config = *config;
    g->rules = rules;
    g->rule_count = rule_count;
    g->env = env;
    g->bus = bus;
    index_rules(g);
    hand_over_init(&g->hand_over, config->hand_over_max);
    flight_init(&g->flight, ENGINE_UNDONE_MAX, 0);
    order_init(&g->order);
    int64_t now_us = clock_mono_us(env.clock);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        lane_gate_init(&g->lanes[lane].gate, (enum lane)lane, config->lane_concurrency[lane],
                       config->lane_rate[lane], now_us);
        g->lanes[lane].log_after_us = INT64_MIN;
        g->relay.owing[lane] = FLIGHT_NONE;
    }
    g->relay.read_after_us = g->relay.log_after_us = INT64_MIN;
    g->mark.save_after_us = g->mark.log_after_us = INT64_MIN;
    return g;
}

void engine_free(struct engine *g)
{
    if (!g)
        return;
    for (int lane = 0; lane < LANE_COUNT; lane++)
        lane_gate_done(&g->lanes[lane].gate);
    order_done(&g->order);
    flight_done(&g->flight);
    hand_over_done(&g->hand_over);
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
static void wake_if(struct engine *g, _Atomic bool *idle, enum engine_sleeper who)
{
    if (atomic_load(idle) && atomic_exchange(idle, false) && g->wake)
        g->wake(g->wake_ctx, who);
}

void engine_wake_relay(struct engine *g)
{
    wake_if(g, &g->relay_idle, ENGINE_RELAY);
}

void engine_wake_workers(struct engine *g)
{
    wake_if(g, &g->workers_idle, ENGINE_WORKERS);
}

bool engine_may_log(_Atomic int64_t *log_after_us, int64_t now_us)
{
    int64_t after = atomic_load(log_after_us);
    return now_us >= after &&
           atomic_compare_exchange_strong(log_after_us, &after, now_us + LOG_AGAIN_US);
}

enum err engine_recover(struct engine *g)
{
    uint64_t mark, last;
    enum err e = outbox_look(g->env.db, &mark, &last);
    if (e)
        return e;
    uint64_t loaded = g->env.views->loaded_position;
    uint64_t start = loaded ? loaded : mark;
    g->mark.saved = mark;
    g->relay.taken = start;
    g->relay.recovered = last > start ? last : start;
    flight_reset(&g->flight, start);
    atomic_store(&g->hand_over.offered, g->relay.recovered);
    return OK;
}

void engine_offer(struct engine *g, const struct event *events, size_t n)
{
    int64_t now_us = clock_mono_us(g->env.clock);
    bool offered = false;
    for (size_t i = 0; i < n; i++) {
        if (event_keep(events[i].type) != EVENT_STORED)
            continue;
        hand_over_push(&g->hand_over, &events[i], now_us);
        offered = true;
    }
    if (offered)
        engine_wake_relay(g);
}

void engine_pause(struct engine *g, bool paused)
{
    atomic_store(&g->paused, paused);
    if (!paused)
        engine_wake_workers(g);
}

void engine_set_lane(struct engine *g, enum lane lane, uint32_t concurrency, uint32_t rate)
{
    CHECK(lane < LANE_COUNT);
    lane_gate_set(&g->lanes[lane].gate, lane, concurrency, rate, clock_mono_us(g->env.clock));
    engine_wake_workers(g);
}

uint64_t engine_done_through(struct engine *g)
{
    return flight_through(&g->flight);
}

bool engine_drained(struct engine *g)
{
    uint64_t offered = atomic_load_explicit(&g->hand_over.offered, memory_order_acquire);
    return flight_through(&g->flight) >= offered;
}

/* ---- numbers ---- */

static int64_t age_ms(struct engine *g, uint64_t id)
{
    int64_t age = id ? clock_wall_ms(g->env.clock) - id_time_ms(id) : 0;
    return age > 0 ? age : 0;
}

static void count_lane(struct engine *g, enum lane lane, const struct flight_counts *counts,
                       struct lane_stats *out)
{
    struct engine_lane *l = &g->lanes[lane];
    uint32_t busy;
    out->name = lane_name(lane);
    lane_gate_look(&l->gate, &out->concurrency, &out->rate, &busy);
    uint64_t units = counts->lane_units[lane];
    out->in_flight = busy < units ? busy : units;
    out->backlog = units - out->in_flight;
    out->delivered = atomic_load_explicit(&l->delivered, memory_order_relaxed);
    out->repeated = atomic_load_explicit(&l->repeated, memory_order_relaxed);
    out->failed = atomic_load_explicit(&l->failed, memory_order_relaxed);
    out->oldest_age_ms = age_ms(g, counts->lane_oldest[lane]);
}

void engine_stats(struct engine *g, struct engine_stats *out)
{
    struct flight_counts counts;
    flight_count(&g->flight, &counts);
    uint64_t unwanted = atomic_load(&g->events_unwanted);
    uint64_t known = atomic_load(&g->hand_over.offered_count) + atomic_load(&g->events_found);
    *out = (struct engine_stats){
        .done_through = counts.oldest ? counts.oldest - 1 : counts.passed,
        .events_taken = atomic_load(&g->events_taken),
        .events_done = counts.done + unwanted,
    };
    out->undone = known > out->events_done ? known - out->events_done : 0;
    uint64_t oldest = counts.oldest ? counts.oldest : hand_over_oldest(&g->hand_over);
    out->oldest_undone_ms = age_ms(g, oldest);
    for (int lane = 0; lane < LANE_COUNT; lane++)
        count_lane(g, (enum lane)lane, &counts, &out->lanes[lane]);
}
