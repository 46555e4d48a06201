/* The relay and the delivery store.
 *
 *  - Events from single durable commits until they are settled in truth, and the same for a filled
 *    outbox without commits beside it: what the relay, the workers and the settling can do by
 *    themselves.
 *  - Retries: from a failed delivery to its durable row, and from a due row to a done one.
 *  - What a sample of freshness with the engine's statistics costs with few and with many events
 *    waiting, and with few and with many deliveries in the delivery store. */
#include <stdio.h>
#include <time.h>

#include "base/check.h"
#include "bench/events.h"
#include "bench/stage.h"

enum {
    WINDOW = 512,
    FILLED = 200000, /* events in a filled outbox */
    RETRIES = 100000,
    ROUNDS_MAX = 16,
    SAMPLES = 201,
    FEW_ROWS = 10,
    WAIT_NS = 200 * 1000,
};

static size_t rounds_of(const struct bench *b)
{
    return (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
}

/* ---- (a) from commit to settled ---- */

struct flow {
    double committed[ROUNDS_MAX], settled[ROUNDS_MAX];
};

static enum err run_live(struct world *w, struct bench *b, struct api *api, double *committed_per_s,
                         double *settled_per_s)
{
    double start_s = bench_now_s();
    struct event_source *s = event_source_start(w, api->db, 0, w->accounts, WINDOW, 0, false);
    nanosleep(&(struct timespec){.tv_sec = b->seconds}, NULL);
    struct event_source_end end = event_source_stop(s);
    enum err e = events_wait_settled(api->engine, api->db);
    *committed_per_s = (double)end.committed / end.seconds;
    *settled_per_s = (double)end.committed / (bench_now_s() - start_s);
    return e;
}

static enum err measure_live(struct world *w, struct bench *b, char why[300])
{
    struct runtime *runtime;
    struct flow f;
    enum err e = runtime_open(&w->settings, NULL, NULL, &runtime, why);
    if (e)
        return e;
    CHECK(runtime_start_workers(runtime));
    for (size_t i = 0; !e && i < rounds_of(b); i++)
        e = run_live(w, b, runtime_api(runtime), &f.committed[i], &f.settled[i]);
    runtime_close(runtime, 0);
    if (e)
        return e;
    bench_number(b, "live_committed_per_s", bench_median(f.committed, rounds_of(b)),
                 "events/s, one a durable transaction, 4 posts : 1 follow");
    bench_number(b, "live_settled_per_s", bench_median(f.settled, rounds_of(b)),
                 "of these, commit to settled in truth");
    return OK;
}

static enum err run_filled(struct world *w, double *delivered_per_s, double *settled_per_s,
                           char why[300])
{
    struct runtime *runtime;
    TRY(runtime_open(&w->settings, NULL, NULL, &runtime, why));
    struct api *api = runtime_api(runtime);
    enum err e = events_fill(w, api->db, 0, w->accounts, FILLED);
    double start_s = bench_now_s();
    if (!e && runtime_start_workers(runtime)) {
        events_wait_delivered(api->engine);
        *delivered_per_s = FILLED / (bench_now_s() - start_s);
        e = events_wait_settled(api->engine, api->db);
        *settled_per_s = FILLED / (bench_now_s() - start_s);
    }
    runtime_close(runtime, 0);
    return e;
}

static enum err measure_filled(struct world *w, struct bench *b, char why[300])
{
    struct flow f;
    enum err e = OK;
    for (size_t i = 0; !e && i < rounds_of(b); i++)
        e = run_filled(w, &f.committed[i], &f.settled[i], why);
    if (e)
        return e;
    bench_number(b, "relay_delivered_per_s", bench_median(f.committed, rounds_of(b)),
                 "events/s, 200,000 in the outbox, to 5 followers each");
    bench_number(b, "relay_settled_per_s", bench_median(f.settled, rounds_of(b)),
                 "the same until all are settled in truth");
    return OK;
}

/* ---- (b) retries ---- */

static enum err make_due_tx(struct tx *tx, void *arg)
{
    const int64_t *now_ms = arg;
    return tx_exec(tx, "UPDATE deliveries SET due_at = $1 WHERE state = 1",
                   DB_ARGS(DB_I64(*now_ms)), NULL);
}

static void wait_until(struct stage *s, uint64_t through)
{
    while (engine_settled_through(s->engine) < through)
        nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
}

static enum err run_retries(struct world *w, struct bench *b, double *scheduled_per_s,
                            double *completed_per_s)
{
    struct stage s;
    TRY(stage_open(&s, w));
    enum err e = stage_fill(&s, RETRIES);
    uint64_t last = id_next(&s.ids);
    if (!e)
        e = stage_fill(&s, 1);
    atomic_store(&s.failing, true);
    double start_s = bench_now_s();
    if (!e && stage_start(&s, (unsigned)b->settings.fan_out_workers)) {
        wait_until(&s, last);
        *scheduled_per_s = RETRIES / (bench_now_s() - start_s);
        atomic_store(&s.failing, false);
        int64_t now_ms = clock_wall_ms(clock_system());
        e = db_write(s.db, make_due_tx, &now_ms, NULL);
        start_s = bench_now_s();
        engine_deliveries_changed(s.engine);
        if (!e)
            events_wait_delivered(s.engine);
        *completed_per_s = RETRIES / (bench_now_s() - start_s);
    }
    stage_close(&s);
    return e;
}

static enum err measure_retries(struct bench *b)
{
    double scheduled[ROUNDS_MAX], completed[ROUNDS_MAX];
    enum err e = OK;
    for (size_t i = 0; !e && i < rounds_of(b); i++) {
        struct world w;
        if (!world_init(&w, b))
            return ERR_UNAVAILABLE;
        e = run_retries(&w, b, &scheduled[i], &completed[i]);
        world_done(&w);
    }
    if (e)
        return e;
    bench_number(b, "retries_scheduled_per_s", bench_median(scheduled, rounds_of(b)),
                 "failures/s, from the outbox to a durable row in the delivery store");
    bench_number(b, "retries_completed_per_s", bench_median(completed, rounds_of(b)),
                 "due rows/s, claimed, delivered and done");
    return OK;
}

/* ---- (c) what numbers cost ---- */

/* µs for a sample of freshness, the engine's statistics and a look at all cells; the median. */
static double numbers_us(struct stage *s)
{
    static struct engine_stats stats;
    struct freshness_cell cells[FRESHNESS_CELLS_MAX];
    struct freshness_headline headline;
    double times[SAMPLES];
    size_t n;
    for (size_t i = 0; i < SAMPLES; i++) {
        double start_s = bench_now_s();
        engine_sample_step(s->engine);
        engine_stats(s->engine, &stats);
        freshness_look(engine_freshness(s->engine), cells, COUNT_OF(cells), &n, &headline);
        times[i] = (bench_now_s() - start_s) * 1e6;
    }
    return bench_median(times, SAMPLES);
}

/* Lets the relay take what it can, without workers: its memory is full, the rest in the table. */
static void fill_memory(struct stage *s)
{
    while (engine_relay_step(s->engine) <= clock_mono_us(clock_system()))
        ;
}

/* A number that is fast and wrong would be worth nothing. */
static void check_numbers(struct stage *s, int64_t rows, bool in_store)
{
    static struct engine_stats stats;
    engine_stats(s->engine, &stats);
    CHECK((in_store ? stats.states.delayed : stats.undone) == (uint64_t)rows);
}

static enum err measure_one(struct bench *b, int64_t rows, bool in_store, double *us,
                            double *recover_ms)
{
    struct world w;
    struct stage s;
    if (!world_init(&w, b))
        return ERR_UNAVAILABLE;
    enum err e = stage_open(&s, &w); /* makes the tables */
    if (!e) {
        stage_close(&s);
        bool ok = in_store ? stage_write_deliveries(&w, rows) : stage_write_pending(&w, rows);
        e = ok ? stage_open(&s, &w) : ERR_UNAVAILABLE;
    }
    if (!e) {
        fill_memory(&s);
        *us = numbers_us(&s);
        check_numbers(&s, rows, in_store);
        *recover_ms = s.recover_ms;
        stage_close(&s);
    }
    world_done(&w);
    return e;
}

static enum err measure_numbers(struct bench *b)
{
    double few_us = 0, many_us = 0, deliveries_few_us = 0, deliveries_many_us = 0, ms = 0,
           many_ms = 0;
    bench_say(b, "freshness with %d and with %lld events waiting", FEW_ROWS, (long long)b->events);
    enum err e = measure_one(b, FEW_ROWS, false, &few_us, &ms);
    if (!e)
        e = measure_one(b, b->events, false, &many_us, &many_ms);
    if (!e)
        e = measure_one(b, FEW_ROWS, true, &deliveries_few_us, &ms);
    if (!e)
        e = measure_one(b, b->events < 1000000 ? b->events : 1000000, true, &deliveries_many_us,
                        &ms);
    if (e)
        return e;
    bench_number(b, "freshness_few_us", few_us,
                 "us for a sample and statistics, 10 events waiting");
    bench_number(b, "freshness_many_us", many_us, "us with --events waiting");
    bench_number(b, "deliveries_few_us", deliveries_few_us,
                 "us with 10 deliveries in the delivery store");
    bench_number(b, "deliveries_many_us", deliveries_many_us,
                 "us with --events of them (1,000,000 at most)");
    bench_number(b, "recover_ms", many_ms, "ms to find --events pending rows at the start");
    return OK;
}

int bench_relay(struct bench *b)
{
    struct world w;
    char why[300] = "";
    b->settings.celebrity_adaptive = false;
    b->settings.snapshot_every_ms = 3600000;
    if (!world_init(&w, b))
        return command_fail(b->in, "cannot make a folder in $TMPDIR or /tmp");
    enum err e = events_make_world(&w, b, why);
    if (!e)
        e = measure_live(&w, b, why);
    if (!e)
        e = measure_filled(&w, b, why);
    world_done(&w);
    if (!e)
        e = measure_retries(b);
    if (!e)
        e = measure_numbers(b);
    return e ? command_fail(b->in, "%s", why[0] ? why : err_title(e)) : EXIT_DONE;
}
