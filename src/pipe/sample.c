/* The engine's numbers: a sample of freshness every second, and what status and
 * metrics show.
 *
 * Everything is read from counters and heads of lists, in time that does not
 * depend on what waits. What is in the delivery store is counted in truth by the
 * transactions that change it; it is read once a sample, so that asking for
 * numbers never waits for the store. */
#include "base/id.h"
#include "base/log.h"
#include "pipe/state.h"

int64_t engine_age_ms(struct engine *g, uint64_t id)
{
    int64_t age = id ? clock_wall_ms(g->env.clock) - id_time_ms(id) : 0;
    return age > 0 ? age : 0;
}

uint64_t engine_pending(struct engine *g, enum event_type type)
{
    uint64_t taken = atomic_load_explicit(&g->taken[type], memory_order_relaxed);
    uint64_t offered = atomic_load_explicit(&g->offered[type], memory_order_relaxed);
    return offered > taken ? offered - taken : 0;
}

uint64_t engine_oldest_pending(struct engine *g)
{
    uint64_t found = atomic_load_explicit(&g->oldest_found, memory_order_relaxed);
    uint64_t oldest = commit_queue_oldest(&g->commit_queue);
    return found && (!oldest || found < oldest) ? found : oldest;
}

/* ---- the sample ---- */

struct counting {
    struct truth_counts counts;
    bool shared;
    uint64_t taken;
    struct outbox_found waiting; /* above that, shared */
};

static enum err run_count(struct tx *tx, void *arg)
{
    struct counting *c = arg;
    enum err e = delivery_store_count(tx, c->counts.deliveries, ENGINE_COUNTS_MAX,
                                      &c->counts.delivery_count);
    if (!e)
        e = outbox_totals(tx, &c->counts.outbox);
    return e || !c->shared ? e : outbox_waiting(tx, c->taken, &c->waiting);
}

/* A leader is not told what was committed: it counts what it has not taken yet, also beyond the
 * horizon, where something may hold it up. The relay is at it meanwhile; by the next sample it is
 * right again. */
static void note_waiting(struct engine *g, const struct counting *c)
{
    struct inflight_counts counts;
    inflight_count(&g->inflight, &counts);
    if (counts.passed != c->taken)
        return; /* it got on: what was counted is being taken */
    atomic_store_explicit(&g->oldest_found, c->waiting.first, memory_order_relaxed);
    for (int type = 0; type < EVENT_TYPE_COUNT; type++)
        atomic_store_explicit(&g->offered[type],
                              atomic_load(&g->taken[type]) + c->waiting.above[type],
                              memory_order_relaxed);
}

static const struct delivery_count *find_count(const struct truth_counts *c,
                                               const struct rule *rule)
{
    for (size_t i = 0; i < c->delivery_count; i++) {
        const struct delivery_count *b = &c->deliveries[i];
        if (strcmp(b->consumer, rule->consumer) == 0 &&
            strcmp(b->type, event_wire_name(rule->on)) == 0 &&
            strcmp(b->lane, lane_name(rule->lane)) == 0)
            return b;
    }
    return NULL;
}

/* The rule's own lane also answers for what was not taken yet and for what is
 * in the delivery store. */
static void add_the_rest(struct engine *g, const struct truth_counts *counts,
                         const struct rule *rule, const struct inflight_cell_count *in_flight,
                         struct cell_raw *cell)
{
    uint64_t pending = engine_pending(g, rule->on);
    int64_t age_ms = pending ? engine_age_ms(g, engine_oldest_pending(g)) : 0;
    cell->backlog += pending;
    cell->oldest_age_ms = age_ms > cell->oldest_age_ms ? age_ms : cell->oldest_age_ms;
    const struct delivery_count *b = find_count(counts, rule);
    if (b) {
        cell->delayed = b->states[DELIVERY_DELAYED];
        cell->waiting = b->states[DELIVERY_WAITING];
        cell->dead = b->states[DELIVERY_DEAD];
        age_ms = engine_age_ms(g, b->oldest_open);
        cell->oldest_age_ms = age_ms > cell->oldest_age_ms ? age_ms : cell->oldest_age_ms;
        cell->waiting_age_ms = engine_age_ms(g, b->oldest_waiting);
    }
    /* An event enters when it is committed, with one batch; those of its walk beyond that enter as
     * they become known. */
    cell->entered = atomic_load_explicit(&g->offered[rule->on], memory_order_relaxed) +
                    (in_flight->entered - in_flight->begun);
}

static size_t read_cells(struct engine *g, const struct truth_counts *counts,
                         struct cell_raw *cells)
{
    struct inflight_counts inflight;
    inflight_count(&g->inflight, &inflight);
    for (size_t i = 0; i < inflight.cell_count; i++) {
        const struct rule *rule = &g->rules[inflight.cells[i].rule];
        struct cell_raw *cell = &cells[i];
        *cell = (struct cell_raw){.rule = inflight.cells[i].rule,
                                  .lane = inflight.cells[i].lane,
                                  .backlog = inflight.cells[i].batches,
                                  .entered = inflight.cells[i].entered,
                                  .oldest_age_ms = engine_age_ms(g, inflight.cells[i].oldest),
                                  .stopped = engine_lane_is_stopped(g, inflight.cells[i].lane) ||
                                             atomic_load(&g->paused)};
        if (cell->lane == rule->lane)
            add_the_rest(g, counts, rule, &inflight.cells[i], cell);
        uint64_t waits = cell->backlog + cell->delayed + cell->waiting;
        cell->left = cell->entered > waits ? cell->entered - waits : 0;
    }
    return inflight.cell_count;
}

static int64_t step(struct engine *g)
{
    struct counting c = {.shared = g->config.shared};
    struct cell_raw cells[INFLIGHT_CELLS_MAX];
    int64_t now_us = clock_mono_us(g->env.clock);
    if (c.shared) {
        struct inflight_counts counts;
        inflight_count(&g->inflight, &counts);
        c.taken = counts.passed;
    }
    enum err e = db_read(g->env.db, run_count, &c, NULL);
    if (!e && c.shared)
        note_waiting(g, &c);
    pthread_mutex_lock(&g->counts_lock);
    if (!e)
        g->counts = c.counts;
    else
        c.counts = g->counts; /* as they were: the store says elsewhere that it cannot
                                 be read */
    pthread_mutex_unlock(&g->counts_lock);
    size_t n = read_cells(g, &c.counts, cells);
    freshness_sample(g->freshness, cells, n, now_us);
    return now_us + FRESHNESS_SAMPLE_US;
}

int64_t engine_sample_step(struct engine *g)
{
    return engine_lead_step(g, NULL, step);
}

/* ---- statistics ---- */

static void read_work(const struct lane_work *work, struct lane_work_stats *out)
{
    out->delivered = atomic_load_explicit(&work->delivered, memory_order_relaxed);
    out->repeated = atomic_load_explicit(&work->repeated, memory_order_relaxed);
    out->skipped = atomic_load_explicit(&work->skipped, memory_order_relaxed);
    out->failed = atomic_load_explicit(&work->failed, memory_order_relaxed);
}

static void count_lane(struct engine *g, enum lane lane, const struct inflight_counts *counts,
                       struct lane_stats *out)
{
    struct engine_lane *l = &g->lanes[lane];
    uint64_t items = 0, oldest = 0;
    for (size_t i = 0; i < counts->cell_count; i++) {
        if (counts->cells[i].lane != lane)
            continue;
        uint64_t first = counts->cells[i].oldest;
        items += counts->cells[i].count;
        oldest = first && (!oldest || first < oldest) ? first : oldest;
    }
    uint32_t busy;
    out->name = lane_name(lane);
    lane_gate_look(&l->gate, &out->concurrency, &out->rate, &busy);
    out->in_flight = busy < items ? busy : items;
    out->backlog = items - out->in_flight;
    struct lane_work_stats told;
    read_work(&l->own, &out->own);
    read_work(&l->told, &told);
    out->delivered = out->own.delivered + told.delivered;
    out->repeated = out->own.repeated + told.repeated;
    out->skipped = out->own.skipped + told.skipped;
    out->failed = out->own.failed + told.failed;
    out->oldest_age_ms = engine_age_ms(g, oldest);
    breaker_look(&l->breaker, &out->breaker);
}

static void count_states(struct engine *g, const struct inflight_counts *inflight,
                         struct event_states *out)
{
    for (int type = 0; type < EVENT_TYPE_COUNT; type++)
        out->pending += engine_pending(g, (enum event_type)type);
    out->expanded = inflight->expanded;
    out->published = inflight->undone - inflight->expanded;
    pthread_mutex_lock(&g->counts_lock);
    for (size_t i = 0; i < g->counts.delivery_count; i++) {
        const uint64_t *states = g->counts.deliveries[i].states;
        out->delayed += states[DELIVERY_DELAYED] + states[DELIVERY_RETRYING];
        out->waiting += states[DELIVERY_WAITING];
        out->dead += states[DELIVERY_DEAD];
        out->parked += states[DELIVERY_PARKED];
        out->dropped += states[DELIVERY_DROPPED];
        out->discarded += states[DELIVERY_DISCARDED];
    }
    out->archived = g->counts.outbox.archived;
    out->settled = g->counts.outbox.settled - g->counts.outbox.archived;
    pthread_mutex_unlock(&g->counts_lock);
}

static void count_all(struct engine *g, struct engine_stats *out)
{
    struct inflight_counts counts;
    inflight_count(&g->inflight, &counts);
    *out = (struct engine_stats){
        .settled_through = counts.oldest ? counts.oldest - 1 : counts.passed,
        .events_taken = atomic_load(&g->events_taken),
        .events_done = counts.done + atomic_load(&g->events_unwanted),
        .bus_duplicates = atomic_load(&g->bus_duplicates),
        .dedup_duplicates = atomic_load(&g->dedup_duplicates),
        .dedup_unknown = atomic_load(&g->dedup_unknown),
        .resent = atomic_load(&g->resent),
        .late = atomic_load(&g->late),
        .blocked_keys = counts.blocked_keys,
        .timers_fired = atomic_load(&g->timers.fired),
        .outside_calls = atomic_load_explicit(&g->outside.calls, memory_order_relaxed),
        .timer_due_ms = atomic_load(&g->timers.next_ms),
        .stale = atomic_load(&g->stale),
        .reports = atomic_load(&g->reports),
        .reports_unmatched = atomic_load(&g->reports_unmatched),
        .unknown_rules = atomic_load(&g->unknown_rules),
    };
    count_states(g, &counts, &out->states);
    out->undone = out->states.pending + counts.undone;
    uint64_t oldest = counts.oldest ? counts.oldest : engine_oldest_pending(g);
    out->oldest_undone_ms = out->undone ? engine_age_ms(g, oldest) : 0;
    for (int lane = 0; lane < LANE_COUNT; lane++)
        count_lane(g, (enum lane)lane, &counts, &out->lanes[lane]);
}

/* A node that does not lead knows its own switches, and what it passed over. */
static void count_little(struct engine *g, struct engine_stats *out)
{
    static const struct inflight_counts none;
    *out = (struct engine_stats){.stale = atomic_load(&g->stale),
                                 .unknown_rules = atomic_load(&g->unknown_rules)};
    for (int lane = 0; lane < LANE_COUNT; lane++)
        count_lane(g, (enum lane)lane, &none, &out->lanes[lane]);
}

void engine_stats(struct engine *g, struct engine_stats *out)
{
    if (!engine_peek(g)) {
        count_little(g, out);
        return;
    }
    count_all(g, out);
    engine_exit(g);
}

/* ---- one event ---- */

struct looking {
    struct engine *g;
    struct event_look *out;
};

static void look_at(void *ctx, const struct inflight_slot *s, const struct work_item *u)
{
    struct looking *l = ctx;
    l->out->stage = s->walks ? STAGE_PUBLISHED : STAGE_EXPANDED;
    l->out->members = s->totals.members;
    l->out->delivered = s->totals.delivered;
    l->out->repeated = s->totals.repeated;
    l->out->skipped = s->totals.skipped;
    if (u->rule == RULE_NONE)
        return;
    if (l->out->item_count == sizeof l->out->items / sizeof l->out->items[0]) {
        l->out->items_left_out++;
        return;
    }
    l->out->items[l->out->item_count++] =
        (struct event_item){.consumer = l->g->rules[u->rule].consumer,
                            .lane = lane_name((enum lane)u->lane),
                            .part = u->cursor.part,
                            .after = u->cursor.after,
                            .out = u->state == ITEM_RUNNING};
}

/* Has the relay yet to take it? */
static bool is_pending(struct engine *g, uint64_t event)
{
    struct inflight_counts counts;
    inflight_count(&g->inflight, &counts);
    bool was_ahead = event > counts.ahead_after && event <= counts.ahead_passed;
    if (event <= counts.passed || was_ahead)
        return false;
    if (g->config.shared) /* other nodes' offers do not come here: one that could be there by now */
        return id_time_ms(event) <= clock_wall_ms(g->env.clock) + 1000;
    return event <= atomic_load_explicit(&g->commit_queue.offered, memory_order_acquire);
}

void engine_look(struct engine *g, uint64_t event, struct event_look *out)
{
    *out = (struct event_look){.stage = STAGE_UNKNOWN};
    struct looking l = {g, out};
    if (!engine_peek(g))
        return;
    if (!inflight_look(&g->inflight, event, look_at, &l) && is_pending(g, event))
        out->stage = STAGE_PENDING;
    engine_exit(g);
}
