/* See world.h. The store runs every statement at once under one lock; ids rise in commit order, as
 * the single writer of the embedded store gives them. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

/* ---- the store ---- */

static struct world *world_of_db(struct db *db)
{
    return CONTAINER_OF(db, struct world, db);
}

struct cursor {
    enum { ROWS_OUTBOX, ROWS_MARK, ROWS_LAST } kind;
    size_t next, left;
    struct event now;
    struct buf payload;
    char text[ID_TEXT_MAX + 1];
};

static enum err store_query(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                            struct db_rows *rows)
{
    struct world *w = world_of_db(tx->db);
    struct cursor *c = calloc(1, sizeof *c);
    CHECK(c);
    buf_init(&c->payload, 0);
    rows->statement = c;
    if (strstr(sql, "FROM meta")) {
        c->kind = ROWS_MARK;
        c->left = w->mark[0] != 0;
        return OK;
    }
    if (strstr(sql, "ORDER BY id DESC LIMIT 1")) {
        c->kind = ROWS_LAST;
        c->left = w->outbox_count > 0;
        return OK;
    }
    CHECK(n == 3 && strstr(sql, "WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3"));
    while (c->next < w->outbox_count && w->outbox[c->next].id <= (uint64_t)args[0].number)
        c->next++;
    size_t end = c->next;
    while (end < w->outbox_count && w->outbox[end].id <= (uint64_t)args[1].number &&
           end - c->next < (size_t)args[2].number)
        end++;
    c->left = end - c->next;
    return OK;
}

static bool store_next(struct db_rows *rows)
{
    struct world *w = world_of_db(rows->tx->db);
    struct cursor *c = rows->statement;
    if (c->left == 0)
        return false;
    c->left--;
    if (c->kind == ROWS_LAST)
        c->now = w->outbox[w->outbox_count - 1];
    if (c->kind == ROWS_OUTBOX) {
        c->now = w->outbox[c->next++];
        buf_clear(&c->payload);
        event_payload(&c->now, &c->payload);
    }
    return true;
}

static int64_t store_i64(struct db_rows *rows, int column)
{
    struct cursor *c = rows->statement;
    return column == 0 ? (int64_t)c->now.id : c->now.version;
}

static struct str store_text(struct db_rows *rows, int column)
{
    struct world *w = world_of_db(rows->tx->db);
    struct cursor *c = rows->statement;
    if (c->kind == ROWS_MARK)
        return str_of(w->mark);
    if (column == 3)
        return buf_view(&c->payload);
    return str_of(w->unreadable_rows ? "future.thing" : event_wire_name(c->now.type));
}

static bool store_null(struct db_rows *rows, int column)
{
    (void)rows;
    (void)column;
    return false;
}

static enum err store_rows_done(struct db_rows *rows)
{
    struct cursor *c = rows->statement;
    buf_done(&c->payload);
    free(c);
    return OK;
}

static enum err store_exec(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                           int64_t *changed)
{
    struct world *w = world_of_db(tx->db);
    if (strstr(sql, "INSERT INTO meta")) {
        CHECK(n == 1 && args[0].bytes.len < sizeof w->mark);
        snprintf(w->mark, sizeof w->mark, "%.*s", STR_ARG(args[0].bytes));
        return OK;
    }
    CHECK(n == 2 && strstr(sql, "DELETE FROM outbox"));
    size_t gone = 0;
    while (gone < w->outbox_count && gone < (size_t)args[1].number &&
           w->outbox[gone].id <= (uint64_t)args[0].number)
        gone++;
    memmove(w->outbox, w->outbox + gone, (w->outbox_count - gone) * sizeof *w->outbox);
    w->outbox_count -= gone;
    if (gone > w->largest_trim)
        w->largest_trim = gone;
    *changed = (int64_t)gone;
    return OK;
}

static enum err store_submit(struct db *db, struct db_job *job)
{
    struct world *w = world_of_db(db);
    struct tx tx = {.db = db, .ids = &w->ids, .writable = true};
    pthread_mutex_lock(&w->store_lock);
    w->writes++;
    enum err e = w->writes_fail ? ERR_STORAGE_FULL : job->run(&tx, job);
    pthread_mutex_unlock(&w->store_lock);
    job->done(job, e, "");
    return OK;
}

static enum err store_read(struct db *db, tx_fn run, void *arg, char *detail)
{
    (void)detail;
    struct world *w = world_of_db(db);
    struct tx tx = {.db = db, .ids = &w->ids};
    pthread_mutex_lock(&w->store_lock);
    w->reads++;
    enum err e = w->reads_fail ? ERR_UNAVAILABLE : run(&tx, arg);
    pthread_mutex_unlock(&w->store_lock);
    return e;
}

static const struct db_ops store_ops = {
    .submit = store_submit,
    .read = store_read,
    .exec = store_exec,
    .query = store_query,
    .next = store_next,
    .column_i64 = store_i64,
    .column_text = store_text,
    .column_null = store_null,
    .rows_done = store_rows_done,
};

uint64_t world_commit_unseen(struct world *w, enum event_type type, uint64_t actor, uint64_t object)
{
    pthread_mutex_lock(&w->store_lock);
    struct event e = {.id = id_next(&w->ids),
                      .type = type,
                      .version = event_version(type),
                      .actor = actor,
                      .object = object};
    if (w->outbox_count == w->outbox_capacity) {
        w->outbox_capacity = w->outbox_capacity ? w->outbox_capacity * 2 : 256;
        w->outbox = realloc(w->outbox, w->outbox_capacity * sizeof *w->outbox);
        CHECK(w->outbox);
    }
    w->outbox[w->outbox_count++] = e;
    w->last_committed = e.id;
    pthread_mutex_unlock(&w->store_lock);
    return e.id;
}

uint64_t world_commit(struct world *w, enum event_type type, uint64_t actor, uint64_t object)
{
    uint64_t id = world_commit_unseen(w, type, actor, object);
    struct event e = {
        .id = id, .type = type, .version = event_version(type), .actor = actor, .object = object};
    engine_offer(w->engine, &e, 1);
    return id;
}

size_t world_outbox_count(struct world *w)
{
    pthread_mutex_lock(&w->store_lock);
    size_t n = w->outbox_count;
    pthread_mutex_unlock(&w->store_lock);
    return n;
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

static enum err views_page(struct views *v, uint64_t author, struct audience_cursor *cursor,
                           uint64_t *members, size_t max, size_t *n)
{
    struct world *w = world_of_views(v);
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

static void views_numbers(struct views *v, struct view_stats *out)
{
    *out = (struct view_stats){.saved_position = world_of_views(v)->saved_position};
}

static const struct views_ops views_table = {.audience = views_page, .stats = views_numbers};

/* ---- the sinks ---- */

static enum err record(struct sink_env *env, const struct event *e, const uint64_t *members,
                       size_t n, struct sink_result *result)
{
    struct world *w = world_of_views(env->views);
    if (w->before_sink) {
        enum err error = w->before_sink(w, e, members, n);
        if (error)
            return error;
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

static enum err record_actor(struct sink_env *env, const struct event *e, const uint64_t *members,
                             size_t n, struct sink_result *result)
{
    struct world *w = world_of_views(env->views);
    CHECK(n == 1 && members[0] == e->actor);
    enum err error = record(env, e, members, n, result);
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

#define RULES(batch)                                                                               \
    {"timelines", EVENT_POST_CREATED, is_pushed, TO_FOLLOWERS, record, LANE_SMALL, batch, ""},     \
        {"backfill", EVENT_FOLLOW_CREATED, NULL, TO_ACTOR, record_actor, LANE_GRAPH, 1, ""},       \
        {"forget", EVENT_FOLLOW_REMOVED, NULL, TO_ACTOR, record_actor, LANE_GRAPH, 1, ""},         \
    {                                                                                              \
        "cleanup", EVENT_POST_DELETED, NULL, TO_FOLLOWERS, record, LANE_CLEANUP, batch, ""         \
    }

const struct rule world_rules[] = {RULES(500)};
const size_t world_rule_count = COUNT_OF(world_rules);
const struct rule world_small_rules[] = {RULES(4)};

size_t world_deliveries_of(struct world *w, uint64_t event)
{
    size_t n = 0;
    for (size_t i = 0; i < w->log_count; i++)
        n += w->log[i].event == event ? w->log[i].n : 0;
    return n;
}

/* ---- the whole ---- */

void world_init(struct world *w)
{
    *w = (struct world){.active_every = 4, .step = 1};
    manual_clock_init(&w->manual, INT64_C(1800000000000));
    w->clock = &w->manual.clock;
    id_gen_init(&w->ids, w->clock, 1);
    w->db.ops = &store_ops;
    w->db.ids = &w->ids;
    w->views.ops = &views_table;
    pthread_mutex_init(&w->store_lock, NULL);
    pthread_mutex_init(&w->sink_lock, NULL);
    engine_config_default(&w->config);
    static const size_t limits[] = {
#define LANE_ROW(name, wire, concurrency, rate, limit) limit,
        LANE_TABLE(LANE_ROW)
#undef LANE_ROW
    };
    memcpy(w->lane_limits, limits, sizeof limits);
    w->rules = world_rules;
    w->rule_count = world_rule_count;
}

void world_done(struct world *w)
{
    if (w->engine)
        world_crash(w);
    free(w->outbox);
    free(w->log);
    pthread_mutex_destroy(&w->store_lock);
    pthread_mutex_destroy(&w->sink_lock);
}

void world_engine(struct world *w)
{
    w->bus = bus_local_new(LANE_COUNT, w->lane_limits);
    struct sink_env env = {.db = &w->db, .views = &w->views, .clock = w->clock};
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

size_t world_run(struct world *w)
{
    size_t steps = 0;
    for (bool worked = true; worked;) {
        worked = engine_relay_step(w->engine) <= clock_mono_us(w->clock);
        while (engine_worker_step(w->engine) <= clock_mono_us(w->clock)) {
            worked = true;
            steps++;
        }
    }
    return steps;
}

void world_drain(struct world *w, int64_t max_ms)
{
    int64_t end_us = w->manual.mono_us + max_ms * 1000;
    while (!engine_drained(w->engine) && w->manual.mono_us < end_us) {
        int64_t due_us = INT64_MAX;
        int64_t relay_us = engine_relay_step(w->engine);
        int64_t worker_us = engine_worker_step(w->engine);
        due_us = relay_us < worker_us ? relay_us : worker_us;
        if (due_us <= w->manual.mono_us)
            continue;
        if (due_us > end_us)
            due_us = end_us;
        w->manual.wall_ms += (due_us - w->manual.mono_us) / 1000;
        w->manual.mono_us = due_us;
    }
}
