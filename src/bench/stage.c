/* An engine for measurements. Failures come in three kinds in turn: were they of one kind, the
 * lane's breaker would rightly stop it. The sink asks for an hour, so that no retry becomes due
 * before the measurement says so. */
#include "bench/stage.h"

#include <sqlite3.h>
#include <stdio.h>

#include "base/check.h"
#include "bus/local.h"
#include "db/sqlite.h"
#include "view/memory/memory.h"

enum { OUTSIDE_TIMEOUT_MS = 30000 };
enum { ASKED_MS = 3600 * 1000, FILL_A_COMMIT = 1000, STOP_MS = 60000, CARDS_BYTES = 1 << 20 };

static enum err sink(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                     struct sink_result *result)
{
    static const enum err kinds[] = {ERR_UNAVAILABLE, ERR_TIMEOUT, ERR_OVERLOADED};
    const struct stage *s = env->user;
    (void)members;
    if (atomic_load_explicit(&s->failing, memory_order_relaxed)) {
        result->retry_after_ms = ASKED_MS;
        return kinds[e->object % COUNT_OF(kinds)];
    }
    result->delivered = n;
    return OK;
}

static void outside_ended(void *ctx, enum err e, const struct outgoing_answer *answer)
{
    struct outside_call *call = ctx;
    call->result.delivered = 1;
    outside_end(call, e ? e : answer->status < 300 ? OK : ERR_UNAVAILABLE);
}

static void send_outside(struct sink_env *env, struct outside_call *call)
{
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    const struct stage *s = env->user;
    char body[EVENT_PAYLOAD_MAX];
    struct buf text = buf_over(body, sizeof body);
    event_payload(call->event, &text);
    outgoing_send(s->outgoing, &(struct outgoing_request){.method = "POST",
                                                          .url = s->url,
                                                          .headers = headers,
                                                          .body = buf_view(&text),
                                                          .timeout_ms = OUTSIDE_TIMEOUT_MS,
                                                          .done = outside_ended,
                                                          .ctx = call});
}

static const struct rule rules[] = {
    {.consumer = "bench",
     .on = EVENT_POST_CREATED,
     .audience = TO_ACTOR,
     .sink = sink,
     .lane = LANE_SMALL,
     .batch = 1,
     .priority = PRIORITY_CRITICAL,
     .effect = EFFECT_TRUTH,
     .visible = true,
     .late_means = "nothing"},
    {.consumer = "outside",
     .on = EVENT_FOLLOW_CREATED,
     .audience = TO_ACTOR,
     .outside = send_outside,
     .lane = LANE_OUTSIDE,
     .batch = 1,
     .priority = PRIORITY_CRITICAL,
     .effect = EFFECT_OUTSIDE,
     .channel = "bench",
     .dedup = DEDUP_BY_EVENT,
     .late_means = "nothing"},
};

/* ---- life ---- */

static void committed(void *ctx, const struct event *events, size_t n)
{
    engine_offer(((struct stage *)ctx)->engine, events, n);
}

static void woken(void *ctx, enum engine_sleeper who)
{
    runner_wake(((struct stage *)ctx)->runners[who]);
}

static void free_parts(struct stage *s)
{
    if (s->engine)
        engine_free(s->engine);
    if (s->bus)
        bus_free(s->bus);
    if (s->db)
        db_free(s->db);
    if (s->cards)
        cards_free(s->cards);
    if (s->views)
        views_free(s->views);
    for (size_t i = 0; i < COUNT_OF(s->runners); i++)
        runner_free(s->runners[i]);
    runner_free(s->tidy);
}

static void make_engine(struct stage *s)
{
    size_t limits[LANE_COUNT];
    for (int lane = 0; lane < LANE_COUNT; lane++)
        limits[lane] = lane_rows[lane].limit;
    struct engine_config config;
    engine_config_default(&config);
    s->bus = bus_local_new(LANE_COUNT, limits);
    s->engine = engine_new(
        &config, rules, COUNT_OF(rules),
        (struct sink_env){
            .db = s->db, .views = s->views, .cards = s->cards, .clock = clock_system(), .user = s},
        s->bus);
    engine_on_wake(s->engine, woken, s);
}

enum err stage_open(struct stage *s, const struct world *w)
{
    struct sqlite_config config;
    char detail[TX_DETAIL_MAX];
    *s = (struct stage){.failing = false};
    snprintf(s->path, sizeof s->path, "%s/" STORE_FILE, w->folder);
    sqlite_config_default(&config);
    config.path = s->path;
    id_gen_init(&s->ids, clock_system(), 0);
    for (size_t i = 0; i < COUNT_OF(s->runners); i++)
        s->runners[i] = runner_new();
    s->tidy = runner_new();
    enum err e = db_sqlite_open(&config, &s->ids, clock_system(), &s->db, detail);
    if (!e)
        e = views_memory_open(&(struct memory_views_config){.timeline_cap = 10,
                                                            .pull_cap = 10,
                                                            .clock = clock_system()},
                              &s->views);
    if (!e) {
        s->cards = cards_memory_new(CARDS_BYTES, clock_system());
        s->db->on_commit = committed;
        s->db->on_commit_ctx = s;
        make_engine(s);
        double start_s = bench_now_s();
        e = engine_recover(s->engine);
        s->recover_ms = (bench_now_s() - start_s) * 1e3;
    }
    if (e) {
        if (s->db)
            db_stop(s->db);
        free_parts(s);
    }
    return e;
}

static int64_t relay_step(void *s)
{
    return engine_relay_step(((struct stage *)s)->engine);
}

static int64_t worker_step(void *s)
{
    return engine_views_step(((struct stage *)s)->engine);
}

static int64_t recorder_step(void *s)
{
    return engine_recorder_step(((struct stage *)s)->engine);
}

static int64_t outside_step(void *s)
{
    return engine_outside_step(((struct stage *)s)->engine);
}

static int64_t timer_step(void *s)
{
    return engine_timer_step(((struct stage *)s)->engine);
}

static int64_t watermark_step(void *s)
{
    return engine_watermark_step(((struct stage *)s)->engine);
}

bool stage_start(struct stage *s, unsigned workers)
{
    return runner_add(s->runners[ENGINE_RELAY], "relay", relay_step, s, 1, 0) &&
           runner_add(s->runners[ENGINE_VIEWS], "deliver", worker_step, s, workers, 0) &&
           runner_add(s->runners[ENGINE_RECORDER], "recorder", recorder_step, s, 1, 0) &&
           runner_add(s->runners[ENGINE_OUTSIDE], "outside", outside_step, s, 1, 0) &&
           runner_add(s->tidy, "timers", timer_step, s, 1, 0) &&
           runner_add(s->tidy, "watermark", watermark_step, s, 1, 0);
}

void stage_close(struct stage *s)
{
    CHECK(runner_stop(s->tidy, STOP_MS));
    for (size_t i = 0; i < COUNT_OF(s->runners); i++)
        CHECK(runner_stop(s->runners[i], STOP_MS));
    db_stop(s->db);
    free_parts(s);
}

/* ---- events ---- */

struct filling {
    enum event_type type;
    int64_t count;
};

static enum err fill_tx(struct tx *tx, void *arg)
{
    const struct filling *f = arg;
    enum err e = OK;
    for (int64_t i = 0; !e && i < f->count; i++) {
        uint64_t id = id_next(tx->ids);
        e = outbox_emit(tx,
                        (struct event){.type = f->type, .actor = id, .object = (uint64_t)i + 1});
    }
    return e;
}

enum err stage_fill_with(struct stage *s, enum event_type type, int64_t count)
{
    enum err e = OK;
    for (struct filling f = {.type = type}; !e && count > 0; count -= f.count) {
        f.count = count < FILL_A_COMMIT ? count : FILL_A_COMMIT;
        e = db_write(s->db, fill_tx, &f, NULL);
    }
    return e;
}

enum err stage_fill(struct stage *s, int64_t count)
{
    return stage_fill_with(s, EVENT_POST_CREATED, count);
}

/* ---- rows past the engine ---- */

static bool write_rows(const struct world *w, const char *sql, int64_t count)
{
    char path[256];
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    snprintf(path, sizeof path, "%s/" STORE_FILE, w->folder);
    bool ok = sqlite3_open(path, &db) == SQLITE_OK &&
              sqlite3_exec(db, "PRAGMA synchronous = OFF", NULL, NULL, NULL) == SQLITE_OK &&
              sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
              sqlite3_bind_int64(statement, 1, count) == SQLITE_OK &&
              sqlite3_bind_int64(
                  statement, 2,
                  (int64_t)id_at(clock_wall_ms(clock_system()) - 3600 * 1000, 0, 0)) == SQLITE_OK &&
              sqlite3_step(statement) == SQLITE_DONE;
    if (!ok)
        fprintf(stderr, "fantail bench: %s\n", sqlite3_errmsg(db));
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return ok;
}

#define NUMBERS "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) "

bool stage_write_pending(const struct world *w, int64_t count)
{
    return write_rows(w,
                      "INSERT INTO outbox (id, type, version, payload) " NUMBERS
                      "SELECT ?2 + i, 'post.created', 1, "
                      "'{\"actor\":\"' || i || '\",\"object\":\"' || i || '\",\"value\":0}' FROM n",
                      count);
}

bool stage_write_deliveries(const struct world *w, int64_t count)
{
    return write_rows(
               w,
               "INSERT INTO deliveries (id, event_id, type, version, payload, consumer, lane, "
               "order_key, part, active_since, started, after, until, epoch, state, tries, due_at, "
               "opened_at, changed_at, reason) " NUMBERS
               "SELECT ?2 + i, ?2 + i, 'post.created', 1, "
               "'{\"actor\":\"' || i || '\",\"object\":\"' || i || '\",\"value\":0}', 'bench', "
               "'small', 0, 0, 0, 0, 0, 0, 0, 1, 1, 9000000000000, 0, 0, 'UNAVAILABLE' FROM n",
               count) &&
           write_rows(w,
                      "INSERT INTO delivery_counts (consumer, type, lane, state, reason, count) "
                      "SELECT 'bench', 'post.created', 'small', 1, '', ?1 WHERE ?2 > 0",
                      count);
}
