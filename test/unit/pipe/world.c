/* See world.h. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audience_pages.h"
#include "base/check.h"

/* ---- the store ---- */

static struct world *world_of_db(struct db *db)
{
    return CONTAINER_OF(db, struct world, db);
}

static enum err store_submit(struct db *db, struct db_job *job)
{
    struct world *w = world_of_db(db);
    struct db *port = plain_db_port(w->store);
    pthread_mutex_lock(&w->store_lock);
    w->writes++;
    enum err e = port->ops->submit(port, job);
    pthread_mutex_unlock(&w->store_lock);
    return e;
}

static enum err store_read(struct db *db, tx_fn run, void *arg, char *detail)
{
    struct world *w = world_of_db(db);
    struct db *port = plain_db_port(w->store);
    pthread_mutex_lock(&w->store_lock);
    w->reads++;
    enum err e = port->ops->read(port, run, arg, detail);
    pthread_mutex_unlock(&w->store_lock);
    return e;
}

static enum err store_horizon(struct db *db, uint64_t *id)
{
    return db_horizon(plain_db_port(world_of_db(db)->store), id);
}

/* Transactions and rows are the plain store's own: they name its port, not this one. */
static const struct db_ops store_ops = {
    .submit = store_submit, .read = store_read, .horizon = store_horizon};

static void commit_hook(void *ctx, const struct event *events, size_t n)
{
    struct world *w = ctx;
    if (w->engine && !w->hook_off)
        engine_offer(w->engine, events, n);
}

static void note_committed(struct world *w, uint64_t id)
{
    if (w->committed_count == w->committed_capacity) {
        w->committed_capacity = w->committed_capacity ? w->committed_capacity * 2 : 256;
        w->committed = realloc(w->committed, w->committed_capacity * sizeof *w->committed);
        CHECK(w->committed);
    }
    w->committed[w->committed_count++] = id;
    w->last_committed = id;
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

uint64_t world_commit_value(struct world *w, enum event_type type, uint64_t actor, uint64_t object,
                            int64_t value)
{
    struct emission m = {.event = {.type = type, .actor = actor, .object = object, .value = value}};
    CHECK(db_write(&w->db, emit, &m, NULL) == OK);
    if (event_keep(type) == EVENT_STORED)
        note_committed(w, m.id);
    return m.id;
}

uint64_t world_commit(struct world *w, enum event_type type, uint64_t actor, uint64_t object)
{
    return world_commit_value(w, type, actor, object, 0);
}

uint64_t world_commit_unseen(struct world *w, enum event_type type, uint64_t actor, uint64_t object)
{
    w->hook_off = true;
    uint64_t id = world_commit(w, type, actor, object);
    w->hook_off = false;
    return id;
}

struct strange {
    const char *type;
    int64_t version;
    uint64_t id;
};

static enum err insert_strange(struct tx *tx, void *arg)
{
    struct strange *s = arg;
    s->id = id_next(tx->ids);
    return tx_exec(tx,
                   "INSERT INTO outbox (id, type, version, payload) VALUES ($1, $2, $3, "
                   "'{\"actor\":\"1\",\"object\":\"1\",\"value\":0}')",
                   DB_ARGS(DB_I64(s->id), DB_TEXT(str_of(s->type)), DB_I64(s->version)), NULL);
}

uint64_t world_commit_strange(struct world *w, const char *type, int64_t version)
{
    struct strange s = {.type = type, .version = version};
    CHECK(db_write(&w->db, insert_strange, &s, NULL) == OK);
    note_committed(w, s.id);
    return s.id;
}

void world_offer(struct world *w, uint64_t id, enum event_type type, uint64_t actor,
                 uint64_t object)
{
    struct event e = {
        .id = id, .type = type, .version = event_version(type), .actor = actor, .object = object};
    engine_offer(w->engine, &e, 1);
}

/* ---- the views ---- */

static struct world *world_of_views(struct views *v)
{
    return CONTAINER_OF(v, struct world, views);
}

static bool in_part(const struct world *w, const struct audience_cursor *c, uint64_t handle)
{
    if (handle % w->step != 0)
        return false;
    if (c->part == AUDIENCE_ALL)
        return true;
    bool active = w->active_every && handle % w->active_every == 0;
    return active == (c->part == AUDIENCE_ACTIVE);
}

static enum err audience(void *ctx, uint64_t author, struct audience_cursor *cursor,
                         uint64_t *members, size_t max, size_t *n)
{
    struct world *w = ctx;
    __atomic_fetch_add(&w->audience_reads, 1, __ATOMIC_RELAXED);
    if (w->audience_fails)
        return ERR_UNAVAILABLE;
    uint64_t handle = cursor->after + 1;
    uint64_t last = author < WORLD_AUTHORS ? w->followers[author] : 0;
    for (*n = 0; handle <= last && *n < max; handle++) {
        if (in_part(w, cursor, handle))
            members[(*n)++] = handle;
    }
    while (handle <= last && !in_part(w, cursor, handle))
        handle++;
    cursor->after = handle - 1;
    cursor->end = handle > last;
    return OK;
}

static void audiences(struct graph *g, struct audience_page *pages, size_t n)
{
    audience_pages(pages, n, audience, CONTAINER_OF(g, struct world, graph));
}

static enum err seen_since(struct graph *g, const uint64_t *members, size_t n, int64_t since_ms,
                           bool *out)
{
    const struct world *w = CONTAINER_OF(g, struct world, graph);
    (void)since_ms;
    for (size_t i = 0; i < n; i++)
        out[i] = w->active_every && members[i] % w->active_every == 0;
    return OK;
}

static enum err extent(struct graph *g, uint64_t author, uint64_t after, uint64_t *passed,
                       uint64_t *all)
{
    const struct world *w = CONTAINER_OF(g, struct world, graph);
    *all = author < WORLD_AUTHORS ? w->followers[author] : 0;
    *passed = after < *all ? after : *all;
    return OK;
}

static void views_numbers(struct views *v, struct view_stats *out)
{
    *out = (struct view_stats){.saved_position = world_of_views(v)->saved_position};
}

static const struct views_ops views_table = {.stats = views_numbers};
static const struct graph_ops graph_table = {
    .audiences = audiences, .seen_since = seen_since, .extent = extent};

/* ---- the sinks ---- */

enum err world_sink(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                    struct sink_result *result)
{
    struct world *w = world_of_views(env->views);
    if (w->before_sink) {
        enum err error = w->before_sink(w, e, members, n);
        if (error) {
            result->retry_after_ms = w->asked_ms;
            return error;
        }
    }
    result->delivered = n;
    if (w->log_off) {
        __atomic_fetch_add(&w->delivered, n, __ATOMIC_RELAXED);
        return OK;
    }
    pthread_mutex_lock(&w->sink_lock);
    w->delivered += n;
    if (w->log_count == w->log_capacity) {
        w->log_capacity = w->log_capacity ? w->log_capacity * 2 : 1024;
        w->log = realloc(w->log, w->log_capacity * sizeof *w->log);
        CHECK(w->log);
    }
    w->log[w->log_count++] = (struct world_delivery){
        e->id, e->type, e->actor, e->object, members[0], n, clock_mono_us(w->clock)};
    pthread_mutex_unlock(&w->sink_lock);
    return OK;
}

enum err world_actor_sink(struct sink_env *env, const struct event *e, const uint64_t *members,
                          size_t n, struct sink_result *result)
{
    struct world *w = world_of_views(env->views);
    CHECK(n == 1 && members[0] == e->actor);
    enum err error = world_sink(env, e, members, n, result);
    if (error == OK && w->again_times > 0) {
        w->again_times--;
        result->again = true;
    }
    return error;
}

static bool is_pushed(const struct event *e)
{
    return e->value == DELIVERY_PUSH;
}

#define RULES(pages)                                                                               \
    {.consumer = "timelines",                                                                      \
     .on = EVENT_POST_CREATED,                                                                     \
     .wants = is_pushed,                                                                           \
     .unwanted_as = "it is pulled",                                                                \
     .audience = TO_FOLLOWERS,                                                                     \
     .sink = world_sink,                                                                           \
     .lane = LANE_SMALL,                                                                           \
     .batch = pages,                                                                               \
     .priority = PRIORITY_NORMAL,                                                                  \
     .visible = true,                                                                              \
     .observed = true,                                                                             \
     .late_means = "new posts are missing"},                                                       \
        {.consumer = "backfill",                                                                   \
         .on = EVENT_FOLLOW_CREATED,                                                               \
         .audience = TO_ACTOR,                                                                     \
         .sink = world_actor_sink,                                                                 \
         .lane = LANE_GRAPH,                                                                       \
         .batch = 1,                                                                               \
         .priority = PRIORITY_CRITICAL,                                                            \
         .late_means = ""},                                                                        \
        {.consumer = "forget",                                                                     \
         .on = EVENT_FOLLOW_REMOVED,                                                               \
         .audience = TO_ACTOR,                                                                     \
         .sink = world_actor_sink,                                                                 \
         .lane = LANE_GRAPH,                                                                       \
         .batch = 1,                                                                               \
         .priority = PRIORITY_CRITICAL,                                                            \
         .late_means = ""},                                                                        \
    {                                                                                              \
        .consumer = "cleanup", .on = EVENT_POST_DELETED, .audience = TO_FOLLOWERS,                 \
        .sink = world_sink, .lane = LANE_CLEANUP, .batch = pages, .priority = PRIORITY_LOW,        \
        .late_means = ""                                                                           \
    }

const struct rule world_rules[] = {RULES(500)};
const size_t world_rule_count = COUNT_OF(world_rules);
const struct rule world_small_rules[] = {RULES(4)};

/* ---- the whole ---- */

void world_init_clock(struct world *w, struct clock *clock)
{
    *w = (struct world){.active_every = 4, .step = 1};
    manual_clock_init(&w->manual, INT64_C(1800000000000));
    w->clock = clock ? clock : &w->manual.clock;
    id_gen_init(&w->ids, w->clock, 1);
    w->store = plain_db_new(w->clock, &w->ids);
    w->faults = plain_db_faults(w->store);
    struct db *port = plain_db_port(w->store);
    port->on_commit = commit_hook;
    port->on_commit_ctx = w;
    w->db = (struct db){.ops = &store_ops, .ids = &w->ids};
    w->graph.ops = &graph_table;
    w->views = (struct views){.ops = &views_table, .graph = &w->graph, .epoch = 1};
    pthread_mutex_init(&w->store_lock, NULL);
    pthread_mutex_init(&w->sink_lock, NULL);
    engine_config_default(&w->config);
    w->config.trace_records = 1 << 12;
    for (int lane = 0; lane < LANE_COUNT; lane++)
        w->lane_limits[lane] = lane_rows[lane].limit;
    w->rules = world_rules;
    w->rule_count = world_rule_count;
}

void world_init(struct world *w)
{
    world_init_clock(w, NULL);
}

void world_done(struct world *w)
{
    if (w->engine)
        world_crash(w);
    plain_db_free(w->store);
    free(w->committed);
    free(w->log);
    pthread_mutex_destroy(&w->store_lock);
    pthread_mutex_destroy(&w->sink_lock);
    *w = (struct world){0};
}

void world_engine(struct world *w)
{
    w->bus = w->next_bus ? w->next_bus : bus_local_new(LANE_COUNT, w->lane_limits);
    w->next_bus = NULL;
    struct sink_env env = {.db = &w->db, .views = &w->views, .clock = w->clock, .user = w};
    w->engine = engine_new(&w->config, w->rules, w->rule_count, env, w->bus);
    CHECK(engine_recover(w->engine) == OK);
}

void world_crash(struct world *w)
{
    engine_free(w->engine);
    bus_free(w->bus);
    w->engine = NULL;
    w->bus = NULL;
}

void world_run_relay(struct world *w)
{
    while (engine_relay_step(w->engine) <= clock_mono_us(w->clock)) {
    }
}

void world_run_recorder(struct world *w)
{
    while (engine_recorder_step(w->engine) <= clock_mono_us(w->clock)) {
    }
}

size_t world_run(struct world *w)
{
    size_t steps = 0;
    for (bool worked = true; worked;) {
        worked = engine_relay_step(w->engine) <= clock_mono_us(w->clock);
        while (engine_worker_step(w->engine) <= clock_mono_us(w->clock)) {
            worked = true;
            steps++;
        }
        worked |= engine_recorder_step(w->engine) <= clock_mono_us(w->clock);
    }
    return steps;
}

void world_move_to(struct world *w, int64_t mono_us)
{
    w->wall_rest_us += mono_us - w->manual.mono_us;
    w->manual.mono_us = mono_us;
    w->manual.wall_ms += w->wall_rest_us / 1000;
    w->wall_rest_us %= 1000;
}

static void pass_until(struct world *w, int64_t end_us, bool drained_is_enough)
{
    while (w->manual.mono_us < end_us && !(drained_is_enough && engine_drained(w->engine))) {
        int64_t due_us = engine_relay_step(w->engine);
        int64_t worker_us = engine_worker_step(w->engine);
        int64_t recorder_us = engine_recorder_step(w->engine);
        due_us = worker_us < due_us ? worker_us : due_us;
        due_us = recorder_us < due_us ? recorder_us : due_us;
        if (due_us <= w->manual.mono_us)
            continue;
        world_move_to(w, due_us < end_us ? due_us : end_us);
    }
}

void world_drain(struct world *w, int64_t max_ms)
{
    pass_until(w, w->manual.mono_us + max_ms * 1000, true);
}

void world_pass(struct world *w, int64_t ms)
{
    pass_until(w, w->manual.mono_us + ms * 1000, false);
    world_run(w);
}

/* ---- looking ---- */

int64_t world_ask(struct world *w, const char *sql)
{
    pthread_mutex_lock(&w->store_lock);
    int64_t answer = plain_db_ask(w->store, sql);
    pthread_mutex_unlock(&w->store_lock);
    return answer;
}

void world_do(struct world *w, const char *sql)
{
    pthread_mutex_lock(&w->store_lock);
    plain_db_run(w->store, sql);
    pthread_mutex_unlock(&w->store_lock);
}

size_t world_outbox_count(struct world *w)
{
    return (size_t)world_ask(w, "SELECT COUNT(*) FROM outbox");
}

uint64_t world_watermark(struct world *w)
{
    return (uint64_t)world_ask(
        w, "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'done_through'");
}

size_t world_recorded(struct world *w, enum delivery_state state)
{
    char sql[80];
    snprintf(sql, sizeof sql, "SELECT COUNT(*) FROM deliveries WHERE state = %d", (int)state);
    return (size_t)world_ask(w, sql);
}

size_t world_deliveries_of(struct world *w, uint64_t event)
{
    size_t n = 0;
    for (size_t i = 0; i < w->log_count; i++)
        n += w->log[i].event == event ? w->log[i].n : 0;
    return n;
}

uint64_t world_held(struct world *w, enum lane lane)
{
    struct bus_lane_stats stats;
    bus_lane_stats(w->bus, (uint16_t)lane, &stats);
    return stats.ready + stats.delayed + stats.taken;
}

enum hand { REDRIVE, DISCARD, RELEASE };

struct operating {
    enum hand hand;
    const struct delivery_filter *filter;
    int64_t now_ms;
    struct delivery_slice slice;
};

static enum err run_operate(struct tx *tx, void *arg)
{
    struct operating *o = arg;
    o->slice = (struct delivery_slice){.max = 10000};
    switch (o->hand) {
    case REDRIVE:
        return delivery_store_redrive(tx, o->filter, &o->slice, o->now_ms, 0, 0, o->now_ms);
    case DISCARD:
        return delivery_store_discard(tx, o->filter, &o->slice, STR("not needed"), o->now_ms);
    case RELEASE:
        return delivery_store_release(tx, o->filter, &o->slice, o->now_ms);
    }
    return ERR_INTERNAL;
}

static uint64_t operate(struct world *w, enum hand hand, const struct delivery_filter *filter)
{
    struct operating o = {.hand = hand, .filter = filter, .now_ms = clock_wall_ms(w->clock)};
    CHECK(db_write(&w->db, run_operate, &o, NULL) == OK);
    if (w->engine)
        engine_deliveries_changed(w->engine);
    return o.slice.changed;
}

uint64_t world_redrive(struct world *w, const struct delivery_filter *filter)
{
    return operate(w, REDRIVE, filter);
}

uint64_t world_discard(struct world *w, const struct delivery_filter *filter)
{
    return operate(w, DISCARD, filter);
}

uint64_t world_release(struct world *w, const struct delivery_filter *filter)
{
    return operate(w, RELEASE, filter);
}
