/* Calls to another server, and timers.
 *
 *  - Deliveries to a server of this process, each claimed in the duplicate memory before it is sent
 *    and confirmed after: from a filled outbox until all are settled.
 *  - How late timers fire while many others wait. */
#include <stdio.h>
#include <time.h>

#include "base/check.h"
#include "bench/events.h"
#include "bench/stage.h"
#include "cmd/command.h"
#include "net/http.h"
#include "port/timer.h"

enum {
    DELIVERIES = 100000,
    ROUNDS_MAX = 16,
    TIMERS = 5000, /* that become due, within the time below */
    TIMERS_MS = 5000,
    TIMERS_A_COMMIT = 1000,
    FAR_AWAY_MS = 1000 * 1000 * 1000,
    WAIT_NS = 1000 * 1000,
};

static void answer(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    x->status = 204;
    http_answer(x);
}

static struct http_server *serve(char why[300])
{
    struct http_server *server = NULL;
    struct http_config config;
    http_config_default(&config);
    config.listen_host = "127.0.0.1";
    config.listen_port = 0;
    config.loops = 1;
    config.handler = answer;
    return http_server_start(&config, &server, why) == OK ? server : NULL;
}

/* ---- deliveries ---- */

static enum err run_deliveries(struct bench *b, struct world *w, double *per_s, char why[300])
{
    struct stage s;
    struct outgoing_config config;
    struct http_server *server = serve(why);
    if (!server)
        return ERR_UNAVAILABLE;
    TRY(stage_open(&s, w));
    outgoing_config_default(&config);
    s.outgoing = outgoing_new(&config);
    snprintf(s.url, sizeof s.url, "http://127.0.0.1:%u/", http_server_port(server));
    enum err e = stage_fill_with(&s, EVENT_FOLLOW_CREATED, DELIVERIES);
    double start_s = bench_now_s();
    if (!e && stage_start(&s, (unsigned)b->settings.fan_out_workers))
        e = events_wait_settled(s.engine, s.db);
    *per_s = DELIVERIES / (bench_now_s() - start_s);
    struct http_stats stats;
    http_server_stats(server, &stats);
    CHECK(e || stats.requests == DELIVERIES); /* each once */
    stage_close(&s);
    outgoing_free(s.outgoing);
    http_server_stop(server, 0);
    return e;
}

/* ---- timers ---- */

struct setting {
    uint64_t first;
    int64_t from_ms, step_ms;
};

static enum err set_some(struct tx *tx, void *arg)
{
    const struct setting *t = arg;
    enum err e = OK;
    for (uint64_t i = 0; !e && i < TIMERS_A_COMMIT; i++) {
        uint64_t key = t->first + i;
        struct event event = {.type = EVENT_POST_CREATED, .actor = key};
        e = timer_set(tx, &event, key, t->from_ms + (int64_t)i * t->step_ms);
    }
    return e;
}

static enum err set_timers(struct stage *s, uint64_t first, int64_t count, int64_t from_ms,
                           int64_t step_ms)
{
    enum err e = OK;
    for (int64_t i = 0; !e && i < count; i += TIMERS_A_COMMIT) {
        struct setting t = {first + (uint64_t)i, from_ms + i * step_ms, step_ms};
        e = db_write(s->db, set_some, &t, NULL);
    }
    return e;
}

static uint64_t fired(struct stage *s)
{
    static struct engine_stats stats;
    engine_stats(s->engine, &stats);
    return stats.timers_fired;
}

static enum err run_timers(struct bench *b, struct world *w, double *set_per_s, char why[300])
{
    struct stage s;
    (void)why;
    TRY(stage_open(&s, w));
    int64_t waiting = b->events, now_ms = clock_wall_ms(clock_system());
    bench_say(b, "setting %lld timers that wait", (long long)waiting);
    double start_s = bench_now_s();
    enum err e = set_timers(&s, 1, waiting, now_ms + FAR_AWAY_MS, 1);
    *set_per_s = (double)waiting / (bench_now_s() - start_s);
    if (!e && stage_start(&s, (unsigned)b->settings.fan_out_workers)) {
        now_ms = clock_wall_ms(clock_system());
        e = set_timers(&s, (uint64_t)waiting + TIMERS_A_COMMIT, TIMERS, now_ms + TIMERS_MS / 2,
                       TIMERS_MS / TIMERS);
        while (!e && fired(&s) < TIMERS)
            nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
        const struct hist *late = engine_timers_late_us(s.engine);
        bench_number(b, "timer_late_p50_ms", (double)hist_quantile(late, 0.5) / 1e3,
                     "ms after its time that a timer fires, 1,000 a second");
        bench_number(b, "timer_late_p99_ms", (double)hist_quantile(late, 0.99) / 1e3, "ms, p99");
    }
    stage_close(&s);
    return e;
}

static enum err in_a_world(struct bench *b,
                           enum err (*run)(struct bench *b, struct world *w, double *per_s,
                                           char why[300]),
                           double *per_s, char why[300])
{
    struct world w;
    if (!world_init(&w, b)) {
        snprintf(why, 300, "cannot make a folder in $TMPDIR or /tmp");
        return ERR_UNAVAILABLE;
    }
    enum err e = run(b, &w, per_s, why);
    world_done(&w);
    return e;
}

int bench_outside(struct bench *b)
{
    double per_s[ROUNDS_MAX], set_per_s;
    size_t rounds = (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
    char why[300] = "";
    enum err e = OK;
    for (size_t i = 0; !e && i < rounds; i++)
        e = in_a_world(b, run_deliveries, &per_s[i], why);
    if (!e) {
        bench_number(b, "outside_per_s", bench_median(per_s, rounds),
                     "deliveries/s to a local server, each once, durable");
        e = in_a_world(b, run_timers, &set_per_s, why);
    }
    if (!e)
        bench_number(b, "timers_set_per_s", set_per_s, "timers/s, 1,000 to a durable commit");
    return e ? command_fail(b->in, "%s", why[0] ? why : err_title(e)) : EXIT_DONE;
}
