/* A backlog: how fast it drains, and what live posts notice meanwhile.
 *
 *  - The rate with an empty backlog: as many events as the commit queue holds are committed
 *    while the engine stands still; then it starts. Nothing of that comes from the outbox table,
 * and it is over before anything is settled: the hardest rate to compare with.
 *  - The same with the whole backlog, which is read from the table and settled meanwhile.
 *  - The backlog again, made while the engine runs and its workers are paused, as after a stopped
 *    lane: its memory is full of what waits, the rest is in the table. Then they go on, while live
 *    posts come at 30% of the rate that the store can commit. A live post's age is from its commit
 *    until its last follower has it. The same load on an idle engine shows what is normal. */
#include <stdio.h>
#include <time.h>

#include "base/check.h"
#include "base/id.h"
#include "bench/events.h"

enum {
    FEW = 16000, /* fits in the commit queue */
    FEW_EACH = 5,
    PEAK_WINDOW = 512,
    LIVE_WINDOW = 8192,
    LIVE_PERCENT = 30,
    ROUNDS_MAX = 16,
    TIMELINE_CAP = 100, /* full from the beginning: a longer run must not meet longer timelines */
    LOOK_NS = 20 * 1000 * 1000,
};

struct live {
    uint64_t after; /* events above this id are live; the others are the backlog's */
    struct hist age_us;
};

static void fan_out_done(void *ctx, const struct event *e, size_t members, int64_t took_us)
{
    struct live *live = ctx;
    (void)members;
    if (e->id > live->after)
        hist_record(&live->age_us, took_us > 0 ? (uint64_t)took_us : 0);
}

/* ---- at a standstill ---- */

/* Events a second from the start of the engine until `count` are delivered; negative: failed. */
static double drain_from_start(struct world *w, int64_t count, double *settled_per_s)
{
    struct runtime *runtime;
    char why[300];
    double rate = -1;
    if (runtime_open(&w->settings, NULL, NULL, &runtime, why))
        return rate;
    struct api *api = runtime_api(runtime);
    if (events_fill(w, api->db, 0, w->accounts, count) == OK) {
        double start_s = bench_now_s();
        if (runtime_start_workers(runtime)) {
            events_wait_delivered(api->engine);
            rate = (double)count / (bench_now_s() - start_s);
            if (events_wait_settled(api->engine, api->db) == OK)
                *settled_per_s = (double)count / (bench_now_s() - start_s);
        }
    }
    runtime_close(runtime, 0);
    return rate;
}

/* ---- with live posts ---- */

struct drain {
    double per_s;
    double live_p50_ms, live_p99_ms, live_max_ms;
    double live_per_s;
    int64_t left_out;
    enum verdict verdict; /* the worst that the engine had of the small lane while it drained */
    int64_t oldest_ms;
};

static void look_at_small_lane(struct engine *engine, struct drain *d)
{
    struct freshness_cell cells[FRESHNESS_CELLS_MAX];
    size_t n;
    freshness_look(engine_freshness(engine), cells, COUNT_OF(cells), &n, NULL);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(cells[i].lane, lane_name(LANE_SMALL)) != 0)
            continue;
        /* Still from the pause: a sample is taken once a second. */
        if (cells[i].verdict != FRESH_STOPPED && cells[i].verdict > d->verdict)
            d->verdict = cells[i].verdict;
        if (cells[i].oldest_age_ms > d->oldest_ms)
            d->oldest_ms = cells[i].oldest_age_ms;
    }
}

static void wait_and_look(struct engine *engine, uint64_t through, struct drain *d)
{
    while (engine_settled_through(engine) < through) {
        look_at_small_lane(engine, d);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
}

static void end_live(struct event_source *source, struct engine *engine, struct live *live,
                     struct drain *d)
{
    struct event_source_end end = event_source_stop(source);
    events_wait_delivered(engine);
    d->live_per_s = (double)end.committed / end.seconds;
    d->left_out = end.left_out;
    d->live_p50_ms = (double)hist_quantile(&live->age_us, 0.5) / 1e3;
    d->live_p99_ms = (double)hist_quantile(&live->age_us, 0.99) / 1e3;
    d->live_max_ms = (double)atomic_load(&live->age_us.max) / 1e3;
}

static uint64_t done(struct engine *engine)
{
    struct engine_stats s;
    engine_stats(engine, &s);
    return s.events_done;
}

/* Live posts alone. */
static void run_idle(struct world *w, struct bench *b, struct api *api, struct live *live,
                     double rate, struct drain *d)
{
    *d = (struct drain){0};
    hist_clear(&live->age_us);
    live->after = 0;
    struct event_source *s =
        event_source_start(w, api->db, 0, w->accounts, LIVE_WINDOW, rate, true);
    nanosleep(&(struct timespec){.tv_sec = b->seconds}, NULL);
    end_live(s, api->engine, live, d);
}

static enum err run_backlog(struct world *w, struct bench *b, struct api *api, struct live *live,
                            double rate, struct drain *d)
{
    *d = (struct drain){0};
    engine_pause(api->engine, true);
    TRY(events_fill(w, api->db, 0, w->accounts, b->events));
    struct engine_stats before;
    engine_stats(api->engine, &before);
    hist_clear(&live->age_us);
    uint64_t through = live->after = id_next(api->db->ids); /* above all of the backlog */
    struct event_source *s =
        event_source_start(w, api->db, 0, w->accounts, LIVE_WINDOW, rate, true);
    double start_s = bench_now_s();
    engine_pause(api->engine, false);
    wait_and_look(api->engine, through, d);
    d->per_s = (double)(done(api->engine) - before.events_done) / (bench_now_s() - start_s);
    end_live(s, api->engine, live, d);
    return OK;
}

static void tell_live(struct bench *b, const char *when, const struct drain *d)
{
    char name[48];
    snprintf(name, sizeof name, "%s_live_per_s", when);
    bench_number(b, name, d->live_per_s, "live posts/s, durable");
    snprintf(name, sizeof name, "%s_live_p50_ms", when);
    bench_number(b, name, d->live_p50_ms, "ms from a live post's commit until all have it");
    snprintf(name, sizeof name, "%s_live_p99_ms", when);
    bench_number(b, name, d->live_p99_ms, "ms, p99");
    snprintf(name, sizeof name, "%s_live_max_ms", when);
    bench_number(b, name, d->live_max_ms, "ms, the worst");
    if (d->left_out)
        bench_say(b, "%lld live posts were left out: the store had no room for them",
                  (long long)d->left_out);
}

static double peak_rate(struct world *w, struct bench *b, struct api *api)
{
    struct event_source *s = event_source_start(w, api->db, 0, w->accounts, PEAK_WINDOW, 0, true);
    nanosleep(&(struct timespec){.tv_sec = b->seconds}, NULL);
    struct event_source_end end = event_source_stop(s);
    events_wait_delivered(api->engine);
    return (double)end.committed / end.seconds;
}

static enum err measure_live(struct world *w, struct bench *b, double empty_per_s, char why[300])
{
    struct runtime *runtime;
    enum err e = runtime_open(&w->settings, NULL, NULL, &runtime, why);
    if (e)
        return e;
    struct api *api = runtime_api(runtime);
    static struct live live;
    engine_observe(api->engine, fan_out_done, &live);
    CHECK(runtime_start_workers(runtime));
    double peak = peak_rate(w, b, api);
    bench_number(b, "peak_per_s", peak, "durable posts/s, one a transaction, no backlog");
    double rate = peak * LIVE_PERCENT / 100;
    struct drain idle;
    run_idle(w, b, api, &live, rate, &idle);
    tell_live(b, "idle", &idle);

    struct drain rounds[ROUNDS_MAX], worst = {0};
    double rates[ROUNDS_MAX];
    size_t n = (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
    for (size_t i = 0; !e && i < n; i++) {
        bench_say(b, "a backlog of %lld, with live posts", (long long)b->events);
        e = run_backlog(w, b, api, &live, rate, &rounds[i]);
        rates[i] = rounds[i].per_s;
        if (rounds[i].live_p99_ms >= worst.live_p99_ms)
            worst = rounds[i];
    }
    if (!e) {
        double per_s = bench_median(rates, n);
        bench_number(b, "with_live_per_s", per_s,
                     "events/s, backlog and live, until it is drained");
        bench_number(b, "with_live_ratio", per_s / empty_per_s,
                     "of the rate with an empty backlog");
        tell_live(b, "backlog", &worst);
        bench_number(b, "target_ms", (double)lane_rows[LANE_SMALL].target_ms,
                     "ms, the lane's target");
        bench_number(b, "oldest_ms", (double)worst.oldest_ms, "ms, the oldest undone event met");
        bench_say(b, "the engine's verdict of its small lane while it drained: %s",
                  verdict_name(worst.verdict));
    }
    runtime_close(runtime, 0);
    return e;
}

/* ---- all of it ---- */

static double median_drain(struct world *w, int64_t count, size_t n, double *settled_per_s)
{
    double rates[ROUNDS_MAX * FEW_EACH], settled[ROUNDS_MAX * FEW_EACH];
    for (size_t i = 0; i < n; i++) {
        settled[i] = 0;
        rates[i] = drain_from_start(w, count, &settled[i]);
    }
    *settled_per_s = bench_median(settled, n);
    return bench_median(rates, n);
}

int bench_backlog(struct bench *b)
{
    struct world w;
    char why[300] = "";
    double few_settled, settled;
    b->settings.celebrity_adaptive = false;
    b->settings.timeline_cap = TIMELINE_CAP;
    b->settings.snapshot_every_ms = 3600000;
    if (!world_init(&w, b))
        return command_fail(b->in, "cannot make a folder in $TMPDIR or /tmp");
    enum err e = events_make_world(&w, b, why);
    if (!e) {
        size_t n = (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
        bench_say(b, "filling the timelines");
        drain_from_start(&w, w.accounts * TIMELINE_CAP / EVENTS_FOLLOWERS, &settled);
        double empty = median_drain(&w, FEW, n * FEW_EACH, &few_settled);
        bench_number(b, "empty_per_s", empty, "events/s delivered with an empty backlog");
        bench_say(b, "a backlog of %lld, alone", (long long)b->events);
        double alone = median_drain(&w, b->events, n, &settled);
        bench_number(b, "backlog_per_s", alone, "events/s delivered, backlog alone");
        bench_number(b, "backlog_settled_per_s", settled,
                     "events/s until all are settled in truth");
        bench_number(b, "backlog_ratio", alone / empty, "of the rate with an empty backlog");
        e = measure_live(&w, b, empty, why);
    }
    world_done(&w);
    return e ? command_fail(b->in, "%s", why[0] ? why : err_title(e)) : EXIT_DONE;
}
