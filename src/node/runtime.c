/* Builds the server in the order in which its parts need each other and takes it down in the
 * opposite one. What runs in between: requests (api/), the commit hook (node/commit) and the
 * background steps (node/steps).
 *
 * Taking down: the loops stop accepting and answer what is in flight; the pools and the store
 * finish their queues (their jobs answer requests, so the loops go last of these); the engine
 * delivers what it can within a few seconds; the views are saved; then everything is freed. What
 * was not delivered is in the outbox. */
#include "node/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/edge/auth.h"
#include "api/edge/forward.h"
#include "base/check.h"
#include "base/log.h"
#include "bus/local_first.h"
#include "live/live.h"
#include "model/event_views.h"
#include "model/rules.h"
#include "model/truth.h"
#include "net/http.h"
#include "node/drivers.h"
#include "node/parts.h"
#include "node/targets.h"
#include "ops/fan_out_times.h"
#include "pipe/dedup.h"

enum {
    WHY_MAX = 300,
    NODE = 0, /* of the ids of a server that is alone; nodes of many get a number */
    POOL_QUEUE_MAX = 4096,
    ADDRESS_MIN = 64, /* connections that one address may open in any case */
    DRAIN_MS = 5000,
    DRAIN_POLL_NS = 2 * 1000 * 1000,
    STOP_MS = 60000,
    OUTSIDE_STOP_MS = 30000,
    DRAWING_THREADS = 2, /* one draws while the other waits for Redis */
    REMOTE_THREADS = 16, /* for blocking reads when every one of them waits for a network */
    EXIT_STORE_FAILED = 70,
};

/* ---- hooks ---- */

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
    steps_wake_engine(&((struct runtime *)ctx)->steps, who);
}

static void fan_out_done(void *ctx, const struct event *e, size_t members, int64_t took_us)
{
    struct runtime *runtime = ctx;
    if (e->type != EVENT_POST_CREATED)
        return;
    celebrity_observe(&runtime->keeper, members, took_us);
    fan_out_times_record(runtime->api.fan_outs, members, took_us);
}

/* ---- opening ---- */

static void work_arrived(void *ctx, uint16_t lane)
{
    engine_woken(ctx,
                 lane == ENGINE_REPORTS ? ENGINE_RELAY : engine_sleeper_of(lane_rows[lane].pool));
}

static int reader_threads(const struct runtime *runtime)
{
    int64_t wanted = runtime->settings->readers;
    return (int)(runtime->shared && wanted < REMOTE_THREADS ? REMOTE_THREADS : wanted);
}

static enum err open_store(struct runtime *runtime, char *why)
{
    /* Slow work and the audit read, too: they must not take connections that requests wait for. */
    int readers = reader_threads(runtime) + SLOW_THREADS + 1;
    TRY(drivers_open_store(runtime->settings, readers, &runtime->ids, runtime->api.clock,
                           &runtime->api.db, why));
    runtime->api.db->fatal = store_failed;
    commit_init(&runtime->commit, &runtime->api, runtime->shared ? &runtime->membership : NULL);
    return OK;
}

static enum err join(struct runtime *runtime, char *why)
{
    const struct settings *s = runtime->settings;
    char address[CLUSTER_ADDRESS_MAX];
    snprintf(address, sizeof address, "http://%.200s", s->advertise[0] ? s->advertise : s->listen);
    struct membership_config config = {.clock = runtime->api.clock,
                                       .time = &runtime->time,
                                       .cluster = &runtime->cluster,
                                       .roles = runtime->roles,
                                       .address = address};
    TRY(membership_token(s->data, &config.token, why));
    TRY(drivers_open_control(s, &runtime->ids, runtime->api.clock, &runtime->control, why));
    config.control = runtime->control;
    runtime->joined = true;
    TRY(membership_join(&runtime->membership, &config, why));
    runtime->ids.node = runtime->cluster.number; /* nothing has been given an id yet */
    runtime->cluster.db_kind = drivers_kind(s->db);
    runtime->cluster.views_kind = drivers_kind(s->views);
    runtime->cluster.bus_kind = drivers_kind(s->bus);
    runtime->api.cluster = &runtime->cluster;
    return OK;
}

/* Views in memory come up with the server. Shared ones are the leader's to load. */
static enum err load_views(struct runtime *runtime, runtime_loading loading, void *ctx, char *why)
{
    struct api *api = &runtime->api;
    TRY(runtime->shared ? store_id_read(api->db, runtime->store_id) : OK);
    TRY(drivers_open_views(runtime->settings, runtime->store_id, api->clock, &api->views,
                           &api->cards, &api->invalidation, &api->page_source, &runtime->signal,
                           why));
    if (runtime->shared)
        return OK;
    /* Truth as a whole already tells what the outbox's events did to it. */
    return api->views->loaded_position == 0
               ? truth_load_views(api->db, api->views, loading, ctx)
               : truth_catch_up(api->db, api->views, api->cards, api->views->loaded_position);
}

static void set_lanes(const struct settings *s, struct engine_config *config)
{
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        switch (lane_rows[lane].tuned_by) {
        case TUNED_BY_LANE_SETTINGS:
            config->lane_concurrency[lane] = (uint32_t)s->lane_concurrency;
            config->lane_rate[lane] = (uint32_t)s->lane_rate;
            break;
        case TUNED_BY_CLEANUP:
            config->lane_rate[lane] = (uint32_t)s->cleanup_rate;
            break;
        case TUNED_BY_TABLE:
            break;
        }
    }
}

static int64_t dedup_retention_of(const struct settings *s)
{
    return s->dedup_retention_ms ? s->dedup_retention_ms : DEDUP_FOR_EVER_MS;
}

static void configure_engine(const struct settings *s, struct engine_config *config)
{
    engine_config_default(config);
    set_lanes(s, config);
    config->active_within_ms = s->active_within_ms;
    config->retain_settled_ms = s->retain_events_ms;
    config->retain_closed_ms = s->retain_deliveries_ms;
    config->retain_dead_ms = s->retain_dead_ms;
    config->dedup_ms = dedup_retention_of(s);
}

static enum err make_engine(struct runtime *runtime, char *why)
{
    const struct settings *s = runtime->settings;
    struct api *api = &runtime->api;
    TRY(drivers_open_bus(s, runtime->store_id,
                         runtime->shared ? runtime->membership.self.shown.address : NULL,
                         runtime->roles, work_arrived, runtime, &runtime->bus, why));
    struct engine_config config;
    configure_engine(s, &config);
    config.shared = runtime->shared;
    config.node = (uint16_t)runtime->cluster.number;
    config.fence = lease_fence_engine;
    struct sink_env env = {.db = api->db,
                           .views = api->views,
                           .cards = api->cards,
                           .signal = runtime->signal,
                           .clock = api->clock,
                           .celebrity_threshold = &runtime->keeper.threshold,
                           .group_pull_threshold = s->group_pull_threshold,
                           .erase_messages = s->erase_messages};
    api->engine = engine_new(&config, model_rules, model_rule_count, env, runtime->bus);
    TRY(targets_set(s->freshness_targets, model_rules, model_rule_count,
                    engine_freshness(api->engine), why));
    TRY(celebrity_keeper_init(&runtime->keeper, api->db, api->clock, s->celebrity_adaptive,
                              s->celebrity_threshold, s->celebrity_min, s->celebrity_max,
                              s->fan_out_target_ms));
    runtime->keeper_made = true;
    api->keeper = &runtime->keeper;
    api->fan_outs = fan_out_times_new();
    engine_observe(api->engine, fan_out_done, runtime);
    engine_on_wake(api->engine, engine_woken, runtime);
    if (!runtime->shared)
        return engine_recover(api->engine);
    engine_on_apply(api->engine, commit_apply_again, &runtime->commit);
    bus_local_first_hold(runtime->bus, false);
    membership_attach(&runtime->membership,
                      &(struct membership_parts){.db = api->db,
                                                 .views = api->views,
                                                 .cards = api->cards,
                                                 .invalidation = api->invalidation,
                                                 .bus = runtime->bus,
                                                 .engine = api->engine});
    return OK;
}

static void live_wanted(void *ctx)
{
    steps_wake(&((struct runtime *)ctx)->steps, RUN_LIVE);
}

static void make_live(struct runtime *runtime)
{
    struct api *api = &runtime->api;
    const struct settings *s = runtime->settings;
    api->live = live_new(&(struct live_config){.db = api->db,
                                               .views = api->views,
                                               .signal = runtime->signal,
                                               .clock = api->clock,
                                               .streams_max = (size_t)s->streams_max,
                                               .person_max = (unsigned)s->streams_person,
                                               .active_within_ms = s->active_within_ms,
                                               .wake = live_wanted,
                                               .wake_ctx = runtime});
}

static enum err make_doors(struct runtime *runtime, char *why)
{
    struct api *api = &runtime->api;
    char detail[200] = "";
    enum err e = api_open(api, detail);
    if (e) {
        snprintf(why, WHY_MAX, "%s", detail);
        return e;
    }
    runtime->api_made = true;
    api->pool = pool_new((unsigned)reader_threads(runtime), POOL_QUEUE_MAX, "reader");
    api_start_pools(api);
    if (runtime->shared)
        api->drawing = pool_new(DRAWING_THREADS, POOL_QUEUE_MAX, "draw");
    if (runtime->shared)
        api->forwarding = pool_new(FORWARD_THREADS, FORWARD_WAITING_MAX, "forward");
    return OK;
}

static void free_all(struct runtime *runtime);

/* After a crash the delivery store tells which late deliveries the views' saved state lacks. */
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

static enum err build(struct runtime *runtime, runtime_loading loading, void *ctx, char *why)
{
    const struct settings *s = runtime->settings;
    why[0] = '\0';
    TRY(drivers_check(s, why));
    if (!proxies_parse(s->trusted_proxy, &runtime->proxies, why))
        return ERR_INVALID;
    runtime->shared = drivers_are_shared(s);
    if (runtime->shared) {
        following_clock_init(&runtime->time, clock_system());
        runtime->api.clock = &runtime->time.clock;
    }
    id_gen_init(&runtime->ids, runtime->api.clock, NODE);
    bool retired;
    (void)roles_parse(str_of(s->role), &runtime->roles, &retired);
    if (retired)
        log_warn("the role gateway does nothing and is not known to the next version: leave it out "
                 "of the setting role");
    enum err e = dedup_check_retention(model_rules, model_rule_count, dedup_retention_of(s),
                                       s->retain_dead_ms, s->retain_events_ms, why);
    if (!e)
        e = check_deliveries(s, why);
    if (!e)
        e = data_lock_take(&runtime->lock, runtime->settings->data, why);
    if (!e)
        e = open_store(runtime, why);
    if (!e && runtime->shared)
        e = join(runtime, why);
    if (!e)
        e = load_views(runtime, loading, ctx, why);
    if (!e) {
        make_live(runtime);
        e = make_engine(runtime, why);
    }
    if (!e)
        e = make_doors(runtime, why);
    if (e && why[0] == '\0')
        snprintf(why, WHY_MAX, "cannot open the store in %.200s: %s", runtime->settings->data,
                 err_title(e));
    return e;
}

enum err runtime_open(const struct settings *settings, runtime_loading loading, void *ctx,
                      struct runtime **out, char why[WHY_MAX])
{
    struct runtime *runtime = calloc(1, sizeof(*runtime));
    CHECK(runtime);
    runtime->settings = settings;
    runtime->lock.fd = -1;
    runtime->api.settings = settings;
    runtime->api.clock = clock_system();
    runtime->api.started_at_ms = clock_wall_ms(runtime->api.clock);
    steps_init(&runtime->steps);
    enum err e = build(runtime, loading, ctx, why);
    if (e) {
        if (runtime->api.db)
            db_stop(runtime->api.db);
        free_all(runtime);
        return e;
    }
    maintenance_init(&runtime->maintenance, &runtime->api);
    overload_guard_init(
        &runtime->overload_guard,
        &(struct overload_guard_config){.folder = settings->data,
                                        .free_bytes = settings->guard_free_bytes,
                                        .backlog_max = (uint64_t)settings->guard_backlog,
                                        .reserve_bytes = settings->guard_reserve_bytes});
    runtime->api.overload_guard = &runtime->overload_guard;
    *out = runtime;
    return OK;
}

/* ---- serving ---- */

/* Where other nodes reach this one, unless the settings say otherwise. */
static void tell_port(struct runtime *runtime, uint16_t port)
{
    char host[256], address[CLUSTER_ADDRESS_MAX];
    uint16_t asked = 0;
    if (!settings_split_address(runtime->settings->listen, host, &asked))
        return;
    bool six = strchr(host, ':') != NULL;
    snprintf(address, sizeof address, "http://%s%.200s%s:%u", six ? "[" : "", host, six ? "]" : "",
             (unsigned)port);
    membership_set_address(&runtime->membership, address);
}

static unsigned connections_of_address(const struct settings *s)
{
    int64_t tenth = s->connections_max / 10;
    return (unsigned)(s->connections_address ? s->connections_address
                      : tenth > ADDRESS_MIN  ? tenth
                                             : ADDRESS_MIN);
}

unsigned runtime_loops(const struct settings *settings)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return settings->loops > 0 ? (unsigned)settings->loops
           : cores > 64        ? 64
           : cores > 0         ? (unsigned)cores
                               : 1;
}

enum err runtime_listen(struct runtime *runtime, const char *host, uint16_t port,
                        const char *control_path, char why[WHY_MAX])
{
    struct http_config config;
    http_config_default(&config);
    config.listen_host = host;
    config.listen_port = port;
    config.control_path = control_path;
    config.loops = runtime_loops(runtime->settings);
    config.connections_max = (unsigned)runtime->settings->connections_max;
    config.address_max = connections_of_address(runtime->settings);
    config.proxies = &runtime->proxies;
    config.stream_heartbeat_ms = runtime->settings->stream_heartbeat_ms;
    config.handler = api_handle;
    config.handler_ctx = &runtime->api;
    char detail[200] = "";
    enum err e = http_server_start(&config, &runtime->api.http, detail);
    if (e)
        snprintf(why, WHY_MAX, "%s", detail[0] ? detail : err_title(e));
    else if (runtime->shared && !runtime->settings->advertise[0])
        tell_port(runtime, http_server_port(runtime->api.http));
    return e;
}

bool runtime_start_workers(struct runtime *runtime)
{
    bool ok = steps_start(&runtime->steps, runtime);
    atomic_store(&runtime->api.ready, ok);
    return ok;
}

/* ---- closing ---- */

/* What is in the delivery store is kept there: a stop does not wait until it is due. */
static void drain(struct runtime *runtime)
{
    int64_t until_ms = clock_mono_ms(runtime->api.clock) + DRAIN_MS;
    if (runtime->shared && !engine_leads(runtime->api.engine))
        return;
    struct timespec pause = {.tv_nsec = DRAIN_POLL_NS};
    while (!engine_quiet(runtime->api.engine) && clock_mono_ms(runtime->api.clock) < until_ms)
        nanosleep(&pause, NULL);
    struct engine_stats stats;
    engine_stats(runtime->api.engine, &stats);
    if (stats.undone > 0)
        log_info("some events are delivered after the next start", LOG_INT("events", stats.undone));
}

static void free_all(struct runtime *runtime)
{
    struct api *api = &runtime->api;
    if (api->http)
        http_server_free(api->http);
    if (api->engine)
        engine_free(api->engine);
    fan_out_times_free(api->fan_outs);
    if (runtime->bus)
        bus_free(runtime->bus);
    if (runtime->keeper_made)
        celebrity_keeper_done(&runtime->keeper);
    if (runtime->api_made)
        api_close(api);
    live_free(api->live);
    if (runtime->signal)
        signal_free(runtime->signal);
    if (api->db)
        db_free(api->db);
    if (api->page_source)
        page_source_free(api->page_source);
    if (api->views)
        views_free(api->views);
    if (api->cards)
        cards_free(api->cards);
    if (api->invalidation)
        invalidation_free(api->invalidation);
    steps_done(&runtime->steps);
    if (runtime->joined)
        membership_done(&runtime->membership);
    if (runtime->control) {
        db_stop(runtime->control);
        db_free(runtime->control);
    }
    commit_done(&runtime->commit);
    data_lock_release(&runtime->lock);
    free(runtime);
}

void runtime_close(struct runtime *runtime, int64_t grace_ms)
{
    struct api *api = &runtime->api;
    atomic_store(&api->ready, false);
    if (api->http)
        http_server_stop(api->http, grace_ms);
    pool_free(api->drawing); /* hands on to the next */
    pool_free(api->pool);
    api_stop_pools(api);
    pool_free(api->forwarding);
    drain(runtime);
    if (!steps_stop(&runtime->steps, STOP_MS)) {
        log_error("a worker does not end; the server ends without it",
                  LOG_INT("waited_ms", STOP_MS));
        _exit(EXIT_FAILURE);
    }
    if (!engine_outside_drain(api->engine, OUTSIDE_STOP_MS)) {
        log_error("calls to other servers do not end; their outcome is unknown",
                  LOG_INT("waited_ms", OUTSIDE_STOP_MS));
        _exit(EXIT_FAILURE);
    }
    auth_last_seen_step(api->auth);
    engine_watermark_step(api->engine);
    enum err e = runtime->shared ? OK : maintenance_save(&runtime->maintenance);
    if (e)
        log_warn("the views could not be saved; the next start takes longer",
                 LOG_CSTR("error", err_name(e)));
    if (runtime->shared)
        membership_leave(&runtime->membership);
    db_stop(api->db);
    free_all(runtime);
}

struct api *runtime_api(struct runtime *runtime)
{
    return &runtime->api;
}

uint16_t runtime_port(const struct runtime *runtime)
{
    return runtime->api.http ? http_server_port(runtime->api.http) : 0;
}

uint64_t runtime_account_count(struct runtime *runtime)
{
    struct view_stats stats;
    views_stats(runtime->api.views, &stats);
    return stats.accounts;
}
