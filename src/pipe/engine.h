/* The engine: carries events from the outbox to their sinks.
 *
 *     commit hook ──▶ relay ──▶ bus (lanes) ──▶ workers ──▶ sinks ──▶ done mark
 *     (or the outbox table, at the start and when the hand-over queue overflowed)
 *
 * Done is a low-water mark: every stored event with id ≤ engine_done_through() has been
 * delivered to all who should get it. The mark is saved to truth by time, not per batch. On
 * start everything above the position that the views' saved state covers is delivered again:
 * sinks are idempotent. Outbox rows are removed, in small slices, only when they are at or below
 * both the mark and the position saved with the views.
 *
 * All work is done in step functions: each does one bounded unit and returns when it wants to be
 * called again (monotonic µs; now or earlier: at once; INT64_MAX: when woken). Threads call them
 * in production, the simulator calls them in tests. */
#pragma once

#include "base/clock.h"
#include "base/hist.h"
#include "port/bus.h"
#include "port/rule.h"

struct engine;

struct engine_config {
    size_t hand_over_max; /* events between commit hook and relay; beyond: read from the table */
    int64_t active_within_ms;              /* "recently active": seen within this */
    int64_t mark_every_ms;                 /* how often the done mark is saved */
    size_t trim_slice;                     /* outbox rows removed per step */
    uint32_t lane_concurrency[LANE_COUNT]; /* 0: the table's default */
    uint32_t lane_rate[LANE_COUNT];        /* batches per second; UINT32_MAX: the table's default */
};
void engine_config_default(struct engine_config *c);

struct lane_stats {
    const char *name;
    uint64_t backlog; /* messages waiting */
    uint64_t in_flight;
    uint64_t delivered, repeated, failed; /* members, members, batches; since the start */
    int64_t oldest_age_ms; /* of the oldest event not done in this lane; 0 when empty */
    uint32_t concurrency, rate;
};

struct engine_stats {
    uint64_t done_through; /* event id */
    uint64_t events_taken, events_done;
    uint64_t undone; /* handed over or found, not done */
    int64_t oldest_undone_ms;
    struct lane_stats lanes[LANE_COUNT];
};

/* Called on the worker's thread when a TO_FOLLOWERS fan-out of a POST_CREATED is complete and
 * reached anybody: for the celebrity threshold. took_us counts from the hand-over of its commit;
 * fan-outs found in the table at the start are left out, their time says nothing. */
typedef void (*fan_out_observer)(void *ctx, const struct event *e, size_t members, int64_t took_us);

/* What is given must outlive the engine; the bus is for this engine alone, and freed by the caller
 * after it. */
struct engine *engine_new(const struct engine_config *config, const struct rule *rules,
                          size_t rule_count, struct sink_env env, struct bus *bus);
void engine_free(struct engine *g);

void engine_observe(struct engine *g, fan_out_observer observer, void *ctx); /* before start */
/* `wake` is called, from any thread, when a step that slept (returned a later time) may have
 * something to do: the relay's, or every worker's. */
enum engine_sleeper { ENGINE_RELAY, ENGINE_WORKERS };
typedef void (*engine_wake)(void *ctx, enum engine_sleeper who);
void engine_on_wake(struct engine *g, engine_wake wake, void *ctx);

/* Reads the saved mark and sets where the relay begins: at the views' loaded position when there
 * is one, at the mark otherwise. Blocking. */
enum err engine_recover(struct engine *g);

/* The commit hook's part: hands committed events over, after it has brought the views up to date
 * with them. One caller at a time, in commit order. Never blocks, never fails. */
void engine_offer(struct engine *g, const struct event *events, size_t n);

int64_t engine_relay_step(struct engine *g);  /* one caller at a time */
int64_t engine_worker_step(struct engine *g); /* any number of threads */
int64_t engine_mark_step(struct engine *g);   /* saves the mark, trims; blocking SQL; one caller */

void engine_pause(struct engine *g, bool paused); /* workers take nothing while paused */
/* concurrency 0, rate UINT32_MAX: the table's default; rate 0: no limit. */
void engine_set_lane(struct engine *g, enum lane lane, uint32_t concurrency, uint32_t rate);

uint64_t engine_done_through(struct engine *g);
bool engine_drained(struct engine *g); /* everything offered so far is done */
void engine_stats(struct engine *g, struct engine_stats *out);
