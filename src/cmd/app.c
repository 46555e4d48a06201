/* Builds the server in the order in which its parts need each other and takes it down in the
 * opposite one.
 *
 * The commit hook is where truth meets everything derived from it: it runs on the store's thread
 * after each COMMIT and before the answer, changes the views and caches, and hands the events to
 * the engine. It must not block.
 *
 * Taking down: the loops stop accepting and answer what is in flight; the pools and the store
 * finish their queues (their jobs answer requests, so the loops go last of these); the engine
 * delivers what it can within a few seconds; the views are saved; then everything is freed. What
 * was not delivered is in the outbox. */
#include "cmd/app.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/auth.h"
#include "api/idempotency.h"
#include "base/check.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "bus/local.h"
#include "cmd/chores.h"
#include "cmd/rebuild_job.h"
#include "db/sqlite.h"
#include "model/rules.h"
#include "model/truth.h"
#include "net/http.h"
#include "ops/brake.h"
#include "ops/lock.h"
#include "ops/runner.h"
#include "pipe/inbox.h"
#include "view/memory/memory.h"

enum {
    WHY_MAX = 300,
    PATH_TEXT_MAX = 4096,
    NODE = 0, /* of the ids; a store without other nodes needs no other */
    POOL_QUEUE_MAX = 4096,
    SLOW_THREADS = 3, /* a backup and an import may take one each: log-ins must go on */
    SLOW_QUEUE_MAX = 256,
    DRAIN_MS = 5000,
    DRAIN_POLL_NS = 2 * 1000 * 1000,
    STOP_MS = 60000,
    WORKER_NICE = 5,
    BRAKE_EVERY_US = 1000 * 1000,
    EXIT_STORE_FAILED = 70,
};

struct app {
    const struct settings *settings;
    struct data_lock lock;
    struct id_gen ids;
    struct bus *bus;
    struct celebrity_keeper keeper;
    bool keeper_made, api_made;
    struct api api;
    struct chores chores;
    struct brake brake;
    struct runner *runners[ENGINE_REPLAYS + 1]; /* by whom the engine wakes */
    struct runner *tidy;                        /* housekeeping: by the clock alone */
};

/* ---- hooks ---- */

static void committed(void *ctx, const struct event *events, size_t n)
{
    struct app *app = ctx;
    if (n == 0)
        return; /* also while the app is being built: nothing is emitted before all of it is there
                 */
    for (size_t i = 0; i < n; i++)
        event_apply(app->api.views, app->api.cards, &events[i]);
    auth_committed(app->api.auth, events, n);
    FAULT(outbox_after_commit);
    engine_offer(app->api.engine, events, n);
}

/* A store that cannot say what is durable must not answer for it: what was acknowledged is safe,
 * what was not is found or not found by the next start. */
static void store_failed(void *ctx, const char *why)
{
    (void)ctx;
    log_error("the store failed; the server ends", LOG_CSTR("why", why));
    _exit(EXIT_STORE_FAILED);
}

static void engine_woken(void *ctx, enum engine_sleeper who)
{
    struct app *app = ctx;
    runner_wake(app->runners[who]);
}

static void fan_out_done(void *ctx, const struct event *e, size_t members, int64_t took_us)
{
    if (e->type == EVENT_POST_CREATED)
        celebrity_observe(ctx, members, took_us);
}

/* ---- opening ---- */

static enum err open_store(struct app *app, char *why)
{
    char path[PATH_TEXT_MAX], detail[TX_DETAIL_MAX] = "";
    struct sqlite_config config;
    sqlite_config_default(&config);
    snprintf(path, sizeof(path), "%s/" STORE_FILE, app->settings->data);
    config.path = path;
    /* Slow work and the audit read, too: they must not take connections that requests wait for. */
    config.readers = (int)app->settings->readers + SLOW_THREADS + 1;
    enum err e = db_sqlite_open(&config, &app->ids, app->api.clock, &app->api.db, detail);
    if (e) {
        snprintf(why, WHY_MAX, "cannot open the store in %.100s: %s", app->settings->data,
                 detail[0] ? detail : err_title(e));
        return e;
    }
    app->api.db->on_commit = committed;
    app->api.db->on_commit_ctx = app;
    app->api.db->fatal = store_failed;
    return OK;
}

static enum err load_views(struct app *app, app_loading loading, void *ctx)
{
    char path[PATH_TEXT_MAX];
    snprintf(path, sizeof(path), "%s/" SNAPSHOT_FILE, app->settings->data);
    struct memory_views_config config = {
        .snapshot_path = path,
        .timeline_cap = (size_t)app->settings->timeline_cap,
        .pull_cap = (size_t)app->settings->timeline_cap,
        .clock = app->api.clock,
    };
    enum err e = views_memory_open(&config, &app->api.views);
    if (e)
        return e;
    app->api.cards = cards_memory_new((size_t)app->settings->card_cache_bytes, app->api.clock);
    /* Truth as a whole already tells what the outbox's events did to it. */
    if (app->api.views->loaded_position == 0)
        e = truth_load_views(app->api.db, app->api.views, loading, ctx);
    else
        e = truth_catch_up(app->api.db, app->api.views, app->api.cards,
                           app->api.views->loaded_position);
    return e;
}

static void set_lanes(const struct settings *s, struct engine_config *config)
{
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        if (lane == LANE_REPLAY)
            continue; /* beside live work: as its table says */
        if (lane == LANE_CLEANUP) {
            config->lane_rate[lane] = (uint32_t)s->cleanup_rate;
            continue;
        }
        config->lane_concurrency[lane] = (uint32_t)s->lane_concurrency;
        config->lane_rate[lane] = (uint32_t)s->lane_rate;
    }
}

static void configure_engine(const struct settings *s, struct engine_config *config)
{
    engine_config_default(config);
    set_lanes(s, config);
    config->active_within_ms = s->active_within_ms;
    config->retain_settled_ms = s->retain_events_ms;
    config->retain_closed_ms = s->retain_deliveries_ms;
    config->retain_dead_ms = s->retain_dead_ms;
    config->inbox_ms = s->inbox_retention_ms;
}

static enum err make_engine(struct app *app)
{
    const struct settings *s = app->settings;
    struct api *api = &app->api;
    size_t limits[LANE_COUNT] = {
#define LANE_LIMIT(name, wire, concurrency, rate, limit, target_ms, ordered)                       \
    [LANE_##name] = (limit),
        LANE_TABLE(LANE_LIMIT)
#undef LANE_LIMIT
    };
    app->bus = bus_local_new(LANE_COUNT, limits);
    struct engine_config config;
    configure_engine(s, &config);
    struct sink_env env = {.db = api->db,
                           .views = api->views,
                           .cards = api->cards,
                           .clock = api->clock,
                           .celebrity_threshold = &app->keeper.threshold};
    api->engine = engine_new(&config, model_rules, model_rule_count, env, app->bus);
    enum err e = celebrity_keeper_init(&app->keeper, api->db, api->clock, s->celebrity_adaptive,
                                       s->celebrity_threshold, s->celebrity_min, s->celebrity_max,
                                       s->fan_out_target_ms);
    if (e)
        return e;
    app->keeper_made = true;
    api->keeper = &app->keeper;
    engine_observe(api->engine, fan_out_done, &app->keeper);
    engine_on_wake(api->engine, engine_woken, app);
    return engine_recover(api->engine);
}

static enum err make_doors(struct app *app, char *why)
{
    struct api *api = &app->api;
    char detail[200] = "";
    enum err e = api_open(api, detail);
    if (e) {
        snprintf(why, WHY_MAX, "%s", detail);
        return e;
    }
    app->api_made = true;
    api->pool = pool_new((unsigned)app->settings->readers, POOL_QUEUE_MAX, "reader");
    api->slow = pool_new(SLOW_THREADS, SLOW_QUEUE_MAX, "slow");
    return OK;
}

static void free_all(struct app *app);

/* After a crash the books tell which late deliveries the views' saved state lacks. */
static enum err check_deliveries(const struct settings *s, char *why)
{
    if (s->retain_deliveries_ms >= 2 * s->snapshot_every_ms)
        return OK;
    snprintf(why, WHY_MAX,
             "retain-deliveries (%lld s) must be at least twice snapshot-every (%lld s): "
             "what a crash undoes in the views is found again in the deliveries",
             (long long)(s->retain_deliveries_ms / 1000), (long long)(s->snapshot_every_ms / 1000));
    return ERR_INVALID;
}

static enum err build(struct app *app, app_loading loading, void *ctx, char *why)
{
    const struct settings *s = app->settings;
    why[0] = '\0';
    enum err e = inbox_check_retention(model_rules, model_rule_count, s->inbox_retention_ms,
                                       s->retain_dead_ms, s->retain_events_ms, why);
    if (!e)
        e = check_deliveries(s, why);
    if (!e)
        e = data_lock_take(&app->lock, app->settings->data, why);
    if (!e)
        e = open_store(app, why);
    if (!e)
        e = load_views(app, loading, ctx);
    if (!e)
        e = make_engine(app);
    if (!e)
        e = make_doors(app, why);
    if (e && why[0] == '\0')
        snprintf(why, WHY_MAX, "cannot open the store in %.200s: %s", app->settings->data,
                 err_title(e));
    return e;
}

enum err app_open(const struct settings *settings, app_loading loading, void *ctx, struct app **out,
                  char why[WHY_MAX])
{
    struct app *app = calloc(1, sizeof(*app));
    CHECK(app);
    app->settings = settings;
    app->lock.fd = -1;
    app->api.settings = settings;
    app->api.clock = clock_system();
    app->api.started_at_ms = clock_wall_ms(app->api.clock);
    id_gen_init(&app->ids, app->api.clock, NODE);
    for (size_t i = 0; i < COUNT_OF(app->runners); i++)
        app->runners[i] = runner_new();
    app->tidy = runner_new();
    enum err e = build(app, loading, ctx, why);
    if (e) {
        if (app->api.db)
            db_stop(app->api.db);
        free_all(app);
        return e;
    }
    chores_init(&app->chores, &app->api);
    brake_init(&app->brake, &(struct brake_config){.folder = settings->data,
                                                   .free_bytes = settings->brake_free_bytes,
                                                   .backlog_max = (uint64_t)settings->brake_backlog,
                                                   .reserve_bytes = settings->brake_reserve_bytes});
    app->api.brake = &app->brake;
    *out = app;
    return OK;
}

/* ---- serving ---- */

bool app_control_path(const char *folder, char out[CONTROL_PATH_MAX], int *fd)
{
    *fd = -1;
    if (snprintf(out, CONTROL_PATH_MAX, "%s/control.sock", folder) < CONTROL_PATH_MAX)
        return true;
    *fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(out, CONTROL_PATH_MAX, "/proc/self/fd/%d/control.sock", *fd);
    return *fd >= 0;
}

enum err app_listen(struct app *app, const char *host, uint16_t port, const char *control_path,
                    char why[WHY_MAX])
{
    struct http_config config;
    http_config_default(&config);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    config.listen_host = host;
    config.listen_port = port;
    config.control_path = control_path;
    config.loops = app->settings->loops > 0 ? (unsigned)app->settings->loops
                   : cores > 0              ? (unsigned)cores
                                            : 1;
    config.connections_max = (unsigned)app->settings->connections_max;
    config.handler = api_handle;
    config.handler_ctx = &app->api;
    char detail[200] = "";
    enum err e = http_server_start(&config, &app->api.http, detail);
    if (e)
        snprintf(why, WHY_MAX, "%s", detail[0] ? detail : err_title(e));
    return e;
}

static int64_t relay_step(void *app)
{
    return engine_relay_step(((struct app *)app)->api.engine);
}

static int64_t worker_step(void *app)
{
    return engine_worker_step(((struct app *)app)->api.engine);
}

static int64_t mark_step(void *app)
{
    return engine_mark_step(((struct app *)app)->api.engine);
}

static int64_t book_step(void *app)
{
    return engine_book_step(((struct app *)app)->api.engine);
}

static int64_t replay_step(void *app)
{
    return engine_replay_step(((struct app *)app)->api.engine);
}

static int64_t sample_step(void *app)
{
    return engine_sample_step(((struct app *)app)->api.engine);
}

static int64_t rebuild_step(void *app)
{
    return rebuild_job_step(&((struct app *)app)->api);
}

/* A backlog is drained by expansion: only the disk stops that. */
static int64_t brake_step(void *arg)
{
    struct app *app = arg;
    struct engine_stats stats;
    struct db_stats store;
    engine_stats(app->api.engine, &stats);
    db_stats(app->api.db, &store);
    int level = brake_look(&app->brake, stats.undone, store.full);
    engine_brake(app->api.engine, level > 0 && atomic_load(&app->brake.disk), level > 0);
    return clock_mono_us(app->api.clock) + BRAKE_EVERY_US;
}

static int64_t keeper_step(void *app)
{
    return celebrity_keeper_step(&((struct app *)app)->keeper);
}

static int64_t visits_step(void *app)
{
    return auth_seen_step(((struct app *)app)->api.auth);
}

static int64_t idempotency_step(void *app)
{
    const struct api *api = &((struct app *)app)->api;
    return idempotency_clean_step(api->db, api->clock);
}

bool app_start_workers(struct app *app)
{
    unsigned workers = (unsigned)app->settings->fan_out_workers;
    bool ok =
        runner_add(app->runners[ENGINE_RELAY], "relay", relay_step, app, 1, 0) &&
        runner_add(app->runners[ENGINE_WORKERS], "deliver", worker_step, app, workers,
                   WORKER_NICE) &&
        runner_add(app->runners[ENGINE_BOOKS], "books", book_step, app, 1, 0) &&
        runner_add(app->runners[ENGINE_REPLAYS], "replays", replay_step, app, 1, WORKER_NICE) &&
        runner_add(app->tidy, "mark", mark_step, app, 1, 0) &&
        runner_add(app->tidy, "sample", sample_step, app, 1, 0) &&
        runner_add(app->tidy, "brake", brake_step, app, 1, 0) &&
        runner_add(app->tidy, "rebuild", rebuild_step, app, 1, WORKER_NICE) &&
        runner_add(app->tidy, "save", chore_save_step, &app->chores, 1, WORKER_NICE) &&
        runner_add(app->tidy, "sweep", chore_sweep_step, &app->chores, 1, WORKER_NICE) &&
        runner_add(app->tidy, "audit", chore_audit_step, &app->chores, 1, WORKER_NICE) &&
        runner_add(app->tidy, "keeper", keeper_step, app, 1, WORKER_NICE) &&
        runner_add(app->tidy, "seen", visits_step, app, 1, WORKER_NICE) &&
        runner_add(app->tidy, "expire", idempotency_step, app, 1, WORKER_NICE);
    atomic_store(&app->api.ready, ok);
    return ok;
}

/* ---- closing ---- */

/* What is on the books is kept there: a stop does not wait until it is due. */
static void drain(struct app *app)
{
    int64_t until_ms = clock_mono_ms(app->api.clock) + DRAIN_MS;
    struct timespec pause = {.tv_nsec = DRAIN_POLL_NS};
    while (!engine_quiet(app->api.engine) && clock_mono_ms(app->api.clock) < until_ms)
        nanosleep(&pause, NULL);
    struct engine_stats stats;
    engine_stats(app->api.engine, &stats);
    if (stats.undone > 0)
        log_info("some events are delivered after the next start", LOG_INT("events", stats.undone));
}

static void free_all(struct app *app)
{
    struct api *api = &app->api;
    if (api->http)
        http_server_free(api->http);
    if (api->engine)
        engine_free(api->engine);
    if (app->bus)
        bus_free(app->bus);
    if (app->keeper_made)
        celebrity_keeper_done(&app->keeper);
    if (app->api_made)
        api_close(api);
    if (api->db)
        db_free(api->db);
    if (api->views)
        views_free(api->views);
    if (api->cards)
        cards_free(api->cards);
    for (size_t i = 0; i < COUNT_OF(app->runners); i++)
        runner_free(app->runners[i]);
    runner_free(app->tidy);
    data_lock_release(&app->lock);
    free(app);
}

void app_close(struct app *app, int64_t grace_ms)
{
    struct api *api = &app->api;
    atomic_store(&api->ready, false);
    if (api->http)
        http_server_stop(api->http, grace_ms);
    pool_free(api->pool);
    pool_free(api->slow);
    drain(app);
    bool ended = runner_stop(app->tidy, STOP_MS);
    for (size_t i = 0; i < COUNT_OF(app->runners); i++)
        ended = runner_stop(app->runners[i], STOP_MS) && ended;
    if (!ended) {
        log_error("a worker does not end; the server ends without it",
                  LOG_INT("waited_ms", STOP_MS));
        _exit(EXIT_FAILURE);
    }
    auth_seen_step(api->auth);
    engine_mark_step(api->engine);
    enum err e = chores_save(&app->chores);
    if (e)
        log_warn("the views could not be saved; the next start takes longer",
                 LOG_CSTR("error", err_name(e)));
    db_stop(api->db);
    free_all(app);
}

struct api *app_api(struct app *app)
{
    return &app->api;
}

uint16_t app_port(const struct app *app)
{
    return app->api.http ? http_server_port(app->api.http) : 0;
}

uint64_t app_account_count(struct app *app)
{
    struct view_stats stats;
    views_stats(app->api.views, &stats);
    return stats.accounts;
}
