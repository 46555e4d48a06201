/* See crew.h. */
#include "crew.h"

#include <stdio.h>
#include <string.h>

#include "audience_pages.h"
#include "base/check.h"
#include "bus/local.h"
#include "node/lease.h"

/* ---- the views ---- */

static struct crew_node *node_of(struct views *v)
{
    return CONTAINER_OF(v, struct crew_node, views);
}

static enum err audience(void *ctx, uint64_t author, struct audience_cursor *cursor,
                         uint64_t *members, size_t max, size_t *n)
{
    const struct crew_node *node = ctx;
    uint64_t last = node->crew->followers[author];
    uint64_t handle = cursor->after + 1;
    bool mine = cursor->part != AUDIENCE_ACTIVE; /* no member was active lately */
    for (*n = 0; mine && handle <= last && *n < max; handle++)
        members[(*n)++] = handle;
    cursor->after = mine ? handle - 1 : last;
    cursor->end = cursor->after >= last;
    return OK;
}

static void audiences(struct graph *g, struct audience_page *pages, size_t n)
{
    audience_pages(pages, n, audience, CONTAINER_OF(g, struct crew_node, graph));
}

static enum err save(struct views *v, uint64_t position)
{
    struct crew *c = node_of(v)->crew;
    (void)position;
    c->saves += c->save_error == OK;
    return c->save_error;
}

static void numbers(struct views *v, struct view_stats *out)
{
    (void)v;
    *out = (struct view_stats){.saved_position = VIEWS_LASTING};
}

static const struct views_ops views_table = {.save = save, .stats = numbers};
static const struct graph_ops graph_table = {.audiences = audiences,
                                             .extent = audience_extent_unknown};

static enum err apply(void *ctx, const struct event *events, size_t n)
{
    struct crew *c = ((struct crew_node *)ctx)->crew;
    if (c->apply_error)
        return c->apply_error;
    for (size_t i = 0; i < n; i++) {
        CHECK(c->applied_count < CREW_LOG);
        c->applied[c->applied_count++] = events[i].id;
    }
    return OK;
}

/* ---- the sinks ---- */

static enum err sink(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                     struct sink_result *result)
{
    struct crew_node *node = env->user;
    struct crew *c = node->crew;
    enum err error = c->before_sink ? c->before_sink(c, node->number, e) : OK;
    if (error)
        return error;
    CHECK(c->log_count < CREW_LOG);
    c->log[c->log_count++] = (struct crew_delivery){e->id, members[0], n, node->number};
    result->delivered = n;
    return OK;
}

static enum err actor_sink(struct sink_env *env, const struct event *e, const uint64_t *members,
                           size_t n, struct sink_result *result)
{
    struct crew *c = ((struct crew_node *)env->user)->crew;
    enum err error = sink(env, e, members, n, result);
    if (!error && c->again > 0) {
        c->again--;
        result->again = true;
    }
    return error;
}

const struct rule crew_rules[] = {
    {.consumer = "timelines",
     .on = EVENT_POST_CREATED,
     .audience = TO_FOLLOWERS,
     .sink = sink,
     .lane = LANE_SMALL,
     .batch = 4,
     .priority = PRIORITY_NORMAL,
     .effect = EFFECT_VIEWS,
     .visible = true,
     .late_means = "posts come late"},
    {.consumer = "backfill",
     .on = EVENT_FOLLOW_CREATED,
     .audience = TO_ACTOR,
     .sink = actor_sink,
     .lane = LANE_GRAPH,
     .batch = 1,
     .priority = PRIORITY_CRITICAL,
     .effect = EFFECT_VIEWS,
     .late_means = ""},
};
const size_t crew_rule_count = COUNT_OF(crew_rules);

/* ---- the whole ---- */

void crew_init(struct crew *c, struct bus *bus)
{
    memset(c, 0, sizeof *c);
    manual_clock_init(&c->clock, INT64_C(1800000000000));
    c->clock.mono_us = 1000000;
    id_gen_init(&c->ids, &c->clock.clock, 1);
    c->store = plain_db_new(&c->clock.clock, &c->ids);
    c->faults = plain_db_faults(c->store);
    c->faults->horizon_lag_ms = 0;
    c->db = plain_db_port(c->store);
    size_t limits[LANE_COUNT + 1] = {[ENGINE_REPORTS] = 1000};
    for (int lane = 0; lane < LANE_COUNT; lane++)
        limits[lane] = lane_rows[lane].limit;
    c->bus = bus ? bus : bus_local_new(LANE_COUNT + 1, limits);
    c->rules = crew_rules;
    c->rule_count = crew_rule_count;
    engine_config_default(&c->config);
    c->config.shared = true;
    c->config.fence = lease_fence_engine;
    c->config.trace_records = 1 << 10;
}

void crew_done(struct crew *c)
{
    for (int i = 0; i < CREW_MAX; i++)
        crew_kill(c, i);
    bus_free(c->bus);
    plain_db_free(c->store);
}

void crew_add(struct crew *c, int number)
{
    struct crew_node *node = &c->nodes[number];
    CHECK(!node->engine);
    *node = (struct crew_node){.crew = c, .number = number};
    node->graph.ops = &graph_table;
    node->views = (struct views){.ops = &views_table,
                                 .graph = &node->graph,
                                 .epoch = 1,
                                 .remote = true,
                                 .loaded_position = VIEWS_LASTING};
    c->config.node = (uint16_t)number;
    struct sink_env env = {
        .db = c->db, .views = &node->views, .clock = &c->clock.clock, .user = node};
    node->engine = engine_new(&c->config, c->rules, c->rule_count, env, c->bus);
    engine_on_apply(node->engine, apply, node);
}

void crew_kill(struct crew *c, int number)
{
    engine_free(c->nodes[number].engine);
    c->nodes[number].engine = NULL;
}

enum err crew_lead(struct crew *c, int number)
{
    char sql[160];
    c->term++;
    snprintf(sql, sizeof sql,
             "INSERT OR REPLACE INTO leases (name, term, holder, beat) "
             "VALUES ('engine', %llu, %d, 1)",
             (unsigned long long)c->term, number + 1);
    plain_db_run(c->store, sql);
    return engine_lead(c->nodes[number].engine, c->term);
}

struct emission {
    struct event event;
    uint64_t id;
};

static enum err emit(struct tx *tx, void *arg)
{
    struct emission *m = arg;
    enum err e = outbox_emit(tx, m->event);
    if (!e)
        m->id = tx->events.items[tx->events.count - 1].id;
    return e;
}

uint64_t crew_commit(struct crew *c, enum event_type type, uint64_t actor)
{
    struct emission m = {.event = {.type = type, .actor = actor, .object = 7}};
    CHECK(db_write(c->db, emit, &m, NULL) == OK);
    manual_clock_advance(&c->clock, 1); /* it is below the horizon */
    return m.id;
}

void crew_relay(struct crew *c, int node)
{
    while (engine_relay_step(c->nodes[node].engine) <= c->clock.mono_us) {
    }
}

void crew_work(struct crew *c, int node)
{
    while (engine_worker_step(c->nodes[node].engine) <= c->clock.mono_us) {
    }
}

void crew_run(struct crew *c, unsigned nodes, int64_t ms)
{
    for (int64_t i = 0; i <= ms; i++) {
        for (int node = 0; node < CREW_MAX; node++) {
            struct engine *g = c->nodes[node].engine;
            if (!g || !(nodes >> node & 1))
                continue;
            crew_relay(c, node);
            crew_work(c, node);
            while (engine_recorder_step(g) <= c->clock.mono_us) {
            }
            engine_watermark_step(g);
            engine_replay_step(g);
        }
        manual_clock_advance(&c->clock, 1);
    }
}

/* ---- looking ---- */

size_t crew_deliveries_of(struct crew *c, uint64_t event)
{
    size_t n = 0;
    for (size_t i = 0; i < c->log_count; i++)
        n += c->log[i].event == event ? c->log[i].n : 0;
    return n;
}

uint64_t crew_reached(struct crew *c, uint64_t event)
{
    uint64_t reached = 0;
    for (size_t i = 0; i < c->log_count; i++) {
        const struct crew_delivery *d = &c->log[i];
        for (uint64_t member = d->first; d->event == event && member < d->first + d->n; member++)
            reached |= UINT64_C(1) << (member % 64);
    }
    return reached;
}

int64_t crew_ask(struct crew *c, const char *sql)
{
    return plain_db_ask(c->store, sql);
}

uint64_t crew_watermark(struct crew *c)
{
    return (uint64_t)crew_ask(
        c, "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'done_through'");
}
