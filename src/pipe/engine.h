/* The engine: carries events from the outbox to their sinks.
 *
 *     commit hook ──▶ relay ──▶ bus (lanes) ──▶ workers ──▶ sinks ──▶ settled
 *     (or the outbox table, by state)              │ a delivery fails
 *                                                  ▼
 *                                   the books: delayed ⇄ retrying, waiting, dead
 *
 * Settled is a low-water mark: everything that a stored event with id ≤ engine_settled_through()
 * asked for is delivered or on the books, durably. The mark, and with it the state of the outbox
 * rows, is saved by time, not per batch. On start every event above the position that the views'
 * saved state covers is delivered again to the sinks whose effect lives in the views (they are
 * idempotent), and every pending one to all its sinks. Outbox rows are removed, in small slices,
 * when they are settled, covered by the views' saved state and older than their retention.
 *
 * All work is done in step functions: each does one bounded unit and returns when it wants to be
 * called again (monotonic µs; now or earlier: at once; INT64_MAX: when woken). Threads call them
 * in production, the simulator calls them in tests. */
#pragma once

#include "base/clock.h"
#include "base/hist.h"
#include "pipe/book_store.h"
#include "pipe/breaker.h"
#include "pipe/freshness.h"
#include "pipe/trace.h"
#include "port/bus.h"
#include "port/rule.h"

struct engine;
struct replays;

struct engine_config {
    size_t hand_over_max; /* events between commit hook and relay; beyond: read from the table */
    int64_t active_within_ms;              /* "recently active": seen within this */
    int64_t mark_every_ms;                 /* how often the mark is saved */
    size_t trim_slice;                     /* outbox rows and deliveries removed per step */
    uint32_t lane_concurrency[LANE_COUNT]; /* 0: the table's default */
    uint32_t lane_rate[LANE_COUNT];        /* batches per second; UINT32_MAX: the table's default */
    int64_t retain_settled_ms; /* how long settled events are kept: how far back replays reach */
    int64_t retain_closed_ms;  /* deliveries that ended: done, discarded, dropped, released */
    int64_t retain_dead_ms;    /* dead letters and parked events; 0: until somebody decides */
    int64_t inbox_ms;          /* consumers' duplicate memory */
    int64_t lease_ms;          /* how long a retry may be under way before it is due again */
    int64_t resend_after_ms;   /* bus not exact: a message not heard of for so long is sent again */
    int64_t poll_every_ms; /* how often the relay looks for pending rows that nobody told it of */
    size_t trace_records;
};
void engine_config_default(struct engine_config *c);

struct lane_stats {
    const char *name;
    uint64_t backlog; /* messages waiting */
    uint64_t in_flight;
    uint64_t delivered, repeated, failed; /* members, members, batches; since the start */
    uint64_t skipped;                     /* members that a sink decided not to act on */
    int64_t oldest_age_ms; /* of the oldest event not done in this lane; 0 when empty */
    uint32_t concurrency, rate;
    struct breaker_look breaker;
};

/* Events by state. pending, published and expanded are of this moment and in memory; the others are
 * counted in truth. An event with deliveries on the books counts there, too: in delayed, waiting,
 * dead, one for each delivery. */
struct event_states {
    uint64_t pending;   /* committed, not yet handed to the bus */
    uint64_t published; /* on the bus, audience not yet read to its end */
    uint64_t expanded;  /* audience known, deliveries under way */
    uint64_t delayed, waiting, dead, parked, dropped, discarded;
    uint64_t settled;  /* in the outbox and wholly delivered or on the books */
    uint64_t archived; /* removed after their retention */
};

struct engine_stats {
    uint64_t settled_through; /* event id */
    uint64_t events_taken, events_done;
    uint64_t undone; /* handed over or found, not done */
    int64_t oldest_undone_ms;
    uint64_t bus_duplicates;   /* messages that came twice, recognised */
    uint64_t inbox_duplicates; /* acts suppressed by an inbox */
    uint64_t inbox_unknown;    /* claimed and never confirmed: now dead letters */
    uint64_t resent;
    uint64_t late; /* deliveries made below the mark: retries, released and replayed events */
    uint64_t blocked_keys; /* order keys that wait behind a delivery on the books */
    struct event_states states;
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
 * something to do: the relay's, every worker's, the books', the replays'. */
enum engine_sleeper { ENGINE_RELAY, ENGINE_WORKERS, ENGINE_BOOKS, ENGINE_REPLAYS };
typedef void (*engine_wake)(void *ctx, enum engine_sleeper who);
void engine_on_wake(struct engine *g, engine_wake wake, void *ctx);

/* Reads the saved mark, the books and the jobs, and sets where the relay begins. Blocking. */
enum err engine_recover(struct engine *g);

/* The commit hook's part: hands committed events over, after it has brought the views up to date
 * with them. One caller at a time, in commit order. Never blocks, never fails. */
void engine_offer(struct engine *g, const struct event *events, size_t n);

int64_t engine_relay_step(struct engine *g);  /* one caller at a time */
int64_t engine_worker_step(struct engine *g); /* any number of threads */
int64_t engine_book_step(struct engine *g);   /* writes the books, claims what is due; blocking SQL;
                                                 one caller */
int64_t engine_mark_step(struct engine *g);   /* saves the mark, trims; blocking SQL; one caller */
int64_t engine_replay_step(struct engine *g); /* blocking SQL; one caller */
int64_t engine_sample_step(struct engine *g); /* freshness; one caller, every second */

void engine_pause(struct engine *g, bool paused); /* workers take nothing while paused */
/* The brake: no large fan-outs (lanes active and rest), no bulk work (replays). */
void engine_brake(struct engine *g, bool expansion, bool bulk);
/* concurrency 0, rate UINT32_MAX: the table's default; rate 0: no limit. */
void engine_set_lane(struct engine *g, enum lane lane, uint32_t concurrency, uint32_t rate);
void engine_stop_lane(struct engine *g, enum lane lane, bool stop); /* by hand; false: opens it */
/* Somebody else changed the books or released parked events (an operator): look now. */
void engine_books_changed(struct engine *g);
/* Somebody created, paused, resumed or cancelled a job: look now. */
void engine_jobs_changed(struct engine *g);

uint64_t engine_settled_through(struct engine *g);
bool engine_quiet(struct engine *g);   /* everything offered so far is done or on the books … */
bool engine_drained(struct engine *g); /* … and nothing there waits for its time */
void engine_stats(struct engine *g, struct engine_stats *out);
struct freshness *engine_freshness(struct engine *g);
struct trace *engine_trace(struct engine *g);
const struct rule *engine_rules(struct engine *g, size_t *n);
int64_t engine_inbox_ms(struct engine *g);

/* One event as the engine knows it now. */
enum event_stage {
    STAGE_UNKNOWN, /* not in memory: the tables know */
    STAGE_PENDING, /* offered, not yet taken */
    STAGE_PUBLISHED,
    STAGE_EXPANDED,
};
struct event_unit {
    const char *consumer, *lane;
    enum audience_part part;
    uint64_t after; /* how far its walk got */
    bool out;       /* on the bus or being worked on; false: owed to its lane, or behind its key */
};
struct event_look {
    enum event_stage stage;
    uint64_t members, delivered, repeated, skipped; /* so far */
    struct event_unit units[16];
    size_t unit_count, units_left_out;
};
void engine_look(struct engine *g, uint64_t event, struct event_look *out);
