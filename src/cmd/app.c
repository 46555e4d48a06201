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
#include "api/hints.h"
#include "api/idempotency.h"
#include "base/check.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "bus/spill.h"
#include "cmd/chores.h"
#include "cmd/engines.h"
#include "cmd/membership.h"
#include "cmd/rebuild_job.h"
#include "model/rules.h"
#include "model/truth.h"
#include "model/views_state.h"
#include "net/http.h"
#include "ops/brake.h"
#include "ops/lock.h"
#include "ops/runner.h"
#include "pipe/applied.h"
#include "pipe/inbox.h"

enum {
    WHY_MAX = 300,
    NODE = 0, /* of the ids of a server that is alone; nodes of many get a number */
    POOL_QUEUE_MAX = 4096,
    SLOW_THREADS = 3, /* a backup and an import may take one each: log-ins must go on */
    SLOW_QUEUE_MAX = 256,
    DRAIN_MS = 5000,
    DRAIN_POLL_NS = 2 * 1000 * 1000,
    STOP_MS = 60000,
    WORKER_NICE = 5,
    BRAKE_EVERY_US = 100 * 1000,
    REMOTE_THREADS = 16, /* for blocking reads when every one of them waits for a network */
    LEADERLESS_US = 200 * 1000,
    EXIT_STORE_FAILED = 70,
};

struct app {
    const struct settings *settings;
    struct data_lock lock;
    struct id_gen ids;
    bool shared; /* one node of many */
    unsigned roles;
    char store_id[STORE_ID_MAX]; /* shared: what is kept elsewhere is named after it */
    struct following_clock time; /* shared: the store's */
    struct membership membership;
    struct applied applied; /* shared: by this node's commit hook, while it leads */
    struct bus *bus;
    struct celebrity_keeper keeper;
    bool keeper_made, api_made;
    struct api api;
    struct chores chores;
    struct brake brake;
    struct runner *runners[ENGINE_REPLAYS + 1]; /* by whom the engine wakes */
    struct runner *tidy;                        /* housekeeping: by the clock alone */
    struct runner *hints;                       /* what people with a stream are told */
    struct runner *member;                      /* shared: beats, leading, the views' state */
};

/* ---- hooks ---- */

static void committed(void *ctx, const struct event *events, size_t n)
{
    struct app *app = ctx;
    if (n == 0)
        return; /* also while the app is being built: nothing is emitted before all of it is there
                 */
    if (!app->shared) {
        for (size_t i = 0; i < n; i++)
            event_apply(app->api.views, app->api.cards, &events[i]);
    } else {
        uint64_t term = engine_leading(app->api.engine);
        if (event_apply_all(app->api.views, app->api.cards, events, n) == OK)
            applied_note(&app->applied, term, events, n);
        else
            membership_views_lost(&app->membership);
    }
    auth_committed(app->api.auth, events, n);
    hints_committed(app->api.hints, events, n);
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

/* The engine's: events that were read back from the table, of whatever node. */
static enum err apply_again(void *ctx, const struct event *events, size_t n)
{
    struct app *app = ctx;
    struct event *left = malloc(n * sizeof *left);
    CHECK(left);
    size_t count = applied_sift(&app->applied, engine_leading(app->api.engine), events, n, left);
    enum err e = event_apply_all(app->api.views, app->api.cards, left, count);
    hints_entries(app->api.hints, left, count); /* whoever committed it may have died just then */
    free(left);
    return e;
}

static void work_arrived(void *ctx, uint16_t lane)
{
    struct app *app = ctx;
    runner_wake(app->runners[lane == ENGINE_REPORTS ? ENGINE_RELAY : ENGINE_WORKERS]);
}

static int reader_threads(const struct app *app)
{
    int64_t wanted = app->settings->readers;
    return (int)(app->shared && wanted < REMOTE_THREADS ? REMOTE_THREADS : wanted);
}

static enum err open_store(struct app *app, char *why)
{
    /* Slow work and the audit read, too: they must not take connections that requests wait for. */
    int readers = reader_threads(app) + SLOW_THREADS + 1;
    enum err e =
        engines_open_store(app->settings, readers, &app->ids, app->api.clock, &app->api.db, why);
    if (e)
        return e;
    app->api.db->on_commit = committed;
    app->api.db->on_commit_ctx = app;
    app->api.db->fatal = store_failed;
    return OK;
}

static enum err join(struct app *app, char *why)
{
    struct db *control = NULL;
    enum err e = engines_open_control(app->settings, &app->ids, app->api.clock, &control, why);
    if (!e)
        e = membership_join(&app->membership, app->settings, control, &app->time, &app->ids, why);
    if (e == OK)
        membership_attach(&app->membership, &app->api, NULL);
    return e;
}

/* Views in memory come up with the server. Shared ones are the leader's to load. */
static enum err load_views(struct app *app, app_loading loading, void *ctx, char *why)
{
    struct api *api = &app->api;
    enum err e = app->shared ? store_id_read(api->db, app->store_id) : OK;
    if (!e)
        e = engines_open_views(app->settings, app->store_id, api->clock, &api->views, &api->cards,
                               &api->watch, why);
    if (e || app->shared)
        return e;
    /* Truth as a whole already tells what the outbox's events did to it. */
    return api->views->loaded_position == 0
               ? truth_load_views(api->db, api->views, loading, ctx)
               : truth_catch_up(api->db, api->views, api->cards, api->views->loaded_position);
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

static enum err make_engine(struct app *app, char *why)
{
    const struct settings *s = app->settings;
    struct api *api = &app->api;
    enum err e =
        engines_open_bus(s, app->store_id, app->shared ? app->membership.self.address : NULL,
                         app->roles, work_arrived, app, &app->bus, why);
    if (e)
        return e;
    struct engine_config config;
    configure_engine(s, &config);
    config.shared = app->shared;
    config.node = app->shared ? (uint16_t)app->membership.self.number : 0;
    struct sink_env env = {.db = api->db,
                           .views = api->views,
                           .cards = api->cards,
                           .clock = api->clock,
                           .celebrity_threshold = &app->keeper.threshold,
                           .group_pull_threshold = s->group_pull_threshold};
    api->engine = engine_new(&config, model_rules, model_rule_count, env, app->bus);
    e = celebrity_keeper_init(&app->keeper, api->db, api->clock, s->celebrity_adaptive,
                              s->celebrity_threshold, s->celebrity_min, s->celebrity_max,
                              s->fan_out_target_ms);
    if (e)
        return e;
    app->keeper_made = true;
    api->keeper = &app->keeper;
    engine_observe(api->engine, fan_out_done, &app->keeper);
    engine_on_wake(api->engine, engine_woken, app);
    if (!app->shared)
        return engine_recover(api->engine);
    engine_on_apply(api->engine, apply_again, app);
    membership_attach(&app->membership, api, app->bus);
    return OK;
}

static void hints_wanted(void *ctx)
{
    struct app *app = ctx;
    runner_wake(app->hints);
}

static void make_hints(struct app *app)
{
    struct api *api = &app->api;
    const struct settings *s = app->settings;
    api->hints = hints_new(&(struct hints_config){.db = api->db,
                                                  .views = api->views,
                                                  .cards = api->cards,
                                                  .watch = api->watch,
                                                  .clock = api->clock,
                                                  .streams_max = (size_t)s->streams_max,
                                                  .person_max = (unsigned)s->streams_person,
                                                  .active_within_ms = s->active_within_ms,
                                                  .wake = hints_wanted,
                                                  .wake_ctx = app});
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
    api->pool = pool_new((unsigned)reader_threads(app), POOL_QUEUE_MAX, "reader");
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
    enum err e = engines_check(s, why);
    if (e)
        return e;
    app->shared = engines_are_shared(s);
    if (app->shared) {
        following_clock_init(&app->time, clock_system());
        app->api.clock = &app->time.clock;
    }
    id_gen_init(&app->ids, app->api.clock, NODE);
    (void)roles_parse(str_of(s->role), &app->roles);
    e = inbox_check_retention(model_rules, model_rule_count, s->inbox_retention_ms,
                              s->retain_dead_ms, s->retain_events_ms, why);
    if (!e)
        e = check_deliveries(s, why);
    if (!e)
        e = data_lock_take(&app->lock, app->settings->data, why);
    if (!e)
        e = open_store(app, why);
    if (!e && app->shared)
        e = join(app, why);
    if (!e)
        e = load_views(app, loading, ctx, why);
    if (!e) {
        make_hints(app);
        e = make_engine(app, why);
    }
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
    for (size_t i = 0; i < COUNT_OF(app->runners); i++)
        app->runners[i] = runner_new();
    app->tidy = runner_new();
    app->hints = runner_new();
    app->member = runner_new();
    applied_init(&app->applied);
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
    config.stream_heartbeat_ms = app->settings->stream_heartbeat_ms;
    config.handler = api_handle;
    config.handler_ctx = &app->api;
    char detail[200] = "";
    enum err e = http_server_start(&config, &app->api.http, detail);
    if (e)
        snprintf(why, WHY_MAX, "%s", detail[0] ? detail : err_title(e));
    else if (app->shared)
        membership_listens(&app->membership, http_server_port(app->api.http));
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

/* Work that one node does for all. */
static bool is_anothers(const struct app *app, int64_t *again_us)
{
    *again_us = clock_mono_us(app->api.clock) + LEADERLESS_US;
    return app->shared && !engine_leads(app->api.engine);
}

static int64_t rebuild_step(void *arg)
{
    struct app *app = arg;
    int64_t again_us;
    return is_anothers(app, &again_us) ? again_us : rebuild_job_step(&app->api);
}

/* A backlog is drained by expansion: only the disk stops that. */
static int64_t brake_step(void *arg)
{
    struct app *app = arg;
    struct engine_stats stats;
    struct db_stats store;
    engine_stats(app->api.engine, &stats);
    db_stats(app->api.db, &store);
    bool leads = !app->shared || engine_leads(app->api.engine);
    uint64_t undone = leads ? stats.undone : membership_undone(&app->membership);
    int level = brake_look(&app->brake, undone, store.full);
    engine_brake(app->api.engine, level > 0 && atomic_load(&app->brake.disk), level > 0);
    return clock_mono_us(app->api.clock) + BRAKE_EVERY_US;
}

static int64_t keeper_step(void *arg)
{
    struct app *app = arg;
    int64_t again_us;
    return is_anothers(app, &again_us) ? again_us : celebrity_keeper_step(&app->keeper);
}

static int64_t sweep_step(void *arg)
{
    struct app *app = arg;
    int64_t again_us;
    return is_anothers(app, &again_us) ? again_us : chore_sweep_step(&app->chores);
}

static int64_t audit_step(void *arg)
{
    struct app *app = arg;
    int64_t again_us;
    return is_anothers(app, &again_us) ? again_us : chore_audit_step(&app->chores);
}

/* A leader with workers keeps small work to itself. What it kept is in the outbox when it leads no
 * more. */
static int64_t lead_step(void *arg)
{
    struct app *app = arg;
    bool led = engine_leads(app->api.engine);
    int64_t again_us = membership_lead_step(&app->membership);
    bool leads = engine_leads(app->api.engine);
    if (leads != led || !leads) {
        bus_spill_hold(app->bus, leads && (app->roles & ROLE_WORKER));
        if (!leads)
            bus_spill_forget(app->bus);
    }
    return again_us;
}

static int64_t tell_step(void *app)
{
    return hints_step(((struct app *)app)->api.hints);
}

static int64_t visits_step(void *app)
{
    return auth_seen_step(((struct app *)app)->api.auth);
}

static int64_t idempotency_step(void *arg)
{
    struct app *app = arg;
    int64_t again_us;
    return is_anothers(app, &again_us) ? again_us
                                       : idempotency_clean_step(app->api.db, app->api.clock);
}

/* What whoever leads does; a node without that role never does. */
static bool start_leading(struct app *app)
{
    if (!(app->roles & ROLE_RELAY))
        return true;
    return runner_add(app->runners[ENGINE_RELAY], "relay", relay_step, app, 1, 0) &&
           runner_add(app->runners[ENGINE_BOOKS], "books", book_step, app, 1, 0) &&
           runner_add(app->runners[ENGINE_REPLAYS], "replays", replay_step, app, 1, WORKER_NICE) &&
           runner_add(app->tidy, "mark", mark_step, app, 1, 0) &&
           runner_add(app->tidy, "sample", sample_step, app, 1, 0) &&
           runner_add(app->tidy, "rebuild", rebuild_step, app, 1, WORKER_NICE) &&
           runner_add(app->tidy, "sweep", sweep_step, app, 1, WORKER_NICE) &&
           runner_add(app->tidy, "audit", audit_step, app, 1, WORKER_NICE) &&
           runner_add(app->tidy, "keeper", keeper_step, app, 1, WORKER_NICE) &&
           runner_add(app->tidy, "expire", idempotency_step, app, 1, WORKER_NICE);
}

static bool start_membership(struct app *app)
{
    struct membership *m = &app->membership;
    if (!app->shared)
        return runner_add(app->tidy, "save", chore_save_step, &app->chores, 1, WORKER_NICE);
    bus_spill_hold(app->bus, false);
    return runner_add(app->member, "beat", membership_beat_step, m, 1, 0) &&
           runner_add(app->member, "lead", lead_step, app, 1, 0) &&
           runner_add(app->member, "views", membership_views_step, m, 1, 0);
}

bool app_start_workers(struct app *app)
{
    unsigned workers = (unsigned)app->settings->fan_out_workers;
    bool ok = start_leading(app) && runner_add(app->tidy, "brake", brake_step, app, 1, 0) &&
              runner_add(app->hints, "hints", tell_step, app, 1, 0) &&
              runner_add(app->tidy, "seen", visits_step, app, 1, WORKER_NICE);
    if (ok && (app->roles & ROLE_WORKER))
        ok = runner_add(app->runners[ENGINE_WORKERS], "deliver", worker_step, app, workers,
                        WORKER_NICE);
    ok = ok && start_membership(app);
    atomic_store(&app->api.ready, ok);
    return ok;
}

/* ---- closing ---- */

/* What is on the books is kept there: a stop does not wait until it is due. */
static void drain(struct app *app)
{
    int64_t until_ms = clock_mono_ms(app->api.clock) + DRAIN_MS;
    if (app->shared && !engine_leads(app->api.engine))
        return;
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
    hints_free(api->hints);
    if (api->db)
        db_free(api->db);
    if (api->views)
        views_free(api->views);
    if (api->cards)
        cards_free(api->cards);
    if (api->watch)
        watch_free(api->watch);
    for (size_t i = 0; i < COUNT_OF(app->runners); i++)
        runner_free(app->runners[i]);
    runner_free(app->tidy);
    runner_free(app->hints);
    runner_free(app->member);
    membership_done(&app->membership);
    applied_done(&app->applied);
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
    ended = runner_stop(app->hints, STOP_MS) && ended;
    ended = runner_stop(app->member, STOP_MS) && ended;
    if (!ended) {
        log_error("a worker does not end; the server ends without it",
                  LOG_INT("waited_ms", STOP_MS));
        _exit(EXIT_FAILURE);
    }
    auth_seen_step(api->auth);
    engine_mark_step(api->engine);
    enum err e = app->shared ? OK : chores_save(&app->chores);
    if (e)
        log_warn("the views could not be saved; the next start takes longer",
                 LOG_CSTR("error", err_name(e)));
    if (app->shared)
        membership_leave(&app->membership);
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
