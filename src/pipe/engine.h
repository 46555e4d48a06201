/* The engine: carries events from the outbox to their sinks.
 *
 *     commit hook ──▶ relay ──▶ bus (lanes) ──▶ workers ──▶ sinks ──▶ settled
 *     (or the outbox table, by state)              │ a delivery fails
 *                                                  ▼
 *                                   the delivery store: delayed ⇄ retrying, waiting, dead
 *
 * Settled is a low-water watermark: everything that a stored event with id ≤
 * engine_settled_through() asked for is delivered or in the delivery store, durably. The watermark,
 * and with it the state of the outbox rows, is saved by time, not per batch. On start every event
 * above the position that the views' saved state covers is delivered again to the sinks whose
 * effect lives in the views (they are idempotent), and every pending one to all its sinks. Outbox
 * rows are removed, in small slices, when they are settled, covered by the views' saved state and
 * older than their retention.
 *
 * Many nodes (config.shared): one node leads, by a lease in truth (node/lease.h). It alone has an
 * inflight set, a delivery store and replays; it takes events from the outbox table, in the order
 * of their ids, as far as the store's horizon reaches, and brings the views up to date with them
 * before they are delivered (the node that committed them did so already, unless it died in
 * between: changes carry their event and count once). Work items go through the bus to the workers
 * of all nodes, which report on a lane of the bus that only the leader listens to; a report that is
 * lost is a work item that is sent again. Messages and reports of another term than the leader's
 * own are passed over, and what a leader writes is written only while its term is the one in truth.
 *
 * All work is done in step functions: each does one bounded unit and returns when it wants to be
 * called again (monotonic µs; now or earlier: at once; INT64_MAX: when woken). Threads call them
 * in production, the simulator calls them in tests. */
#pragma once

#include "base/clock.h"
#include "base/hist.h"
#include "pipe/breaker.h"
#include "pipe/delivery_store.h"
#include "pipe/freshness.h"
#include "pipe/trace.h"
#include "port/bus.h"
#include "port/rule.h"

struct engine;
struct replays;

struct engine_config {
    size_t commit_queue_max; /* events between commit hook and relay; beyond: read from the table */
    int64_t active_within_ms;              /* "recently active": seen within this */
    int64_t watermark_every_ms;            /* how often the watermark is saved */
    size_t trim_slice;                     /* outbox rows and deliveries removed per step */
    uint32_t lane_concurrency[LANE_COUNT]; /* 0: the table's default */
    uint32_t lane_rate[LANE_COUNT];        /* batches per second; UINT32_MAX: the table's default */
    int64_t retain_settled_ms; /* how long settled events are kept: how far back replays reach */
    int64_t retain_closed_ms;  /* deliveries that ended: done, discarded, dropped, released */
    int64_t retain_dead_ms;    /* dead letters and parked events; 0: until an operator decides */
    int64_t dedup_ms;          /* consumers' duplicate memory */
    int64_t lease_ms;          /* how long a retry may be under way before it is due again */
    int64_t resend_after_ms;   /* bus not exact, or shared: a message without a report for this
                                  long is sent again; 0: never; below: 5 s when shared, else a
                                  minute */
    int64_t poll_every_ms;     /* how often the relay looks for pending rows that no offer named */
    int64_t timer_every_ms;    /* how often timers are looked at at least */
    size_t trace_records;
    bool shared;   /* other nodes use the same store, views and bus */
    uint16_t node; /* this one, in reports */
    /* shared: every write of a leader begins with it; ERR_NO_LEADER unless the term goes on */
    enum err (*fence)(struct tx *tx, uint64_t term);
    int64_t horizon_every_ms; /* shared: how often the leader looks for new events */
};

/* The lane of the bus that reports travel on; quiet but for the leader. */
#define ENGINE_REPORTS LANE_COUNT
void engine_config_default(struct engine_config *c);

struct lane_work_stats {
    uint64_t delivered, repeated, skipped, failed;
};

struct lane_stats {
    const char *name;
    uint64_t backlog; /* messages waiting */
    uint64_t in_flight;
    uint64_t delivered, repeated, failed; /* members, members, batches; since the start */
    uint64_t skipped;                     /* members that a sink decided not to act on */
    struct lane_work_stats
        own;               /* of these, by this node's workers; all of them where it is alone */
    int64_t oldest_age_ms; /* of the oldest event not done in this lane; 0 when empty */
    uint32_t concurrency, rate;
    struct breaker_look breaker;
};

/* Events by state. pending, published and expanded are of this moment and in memory; the others are
 * counted in truth. An event with deliveries in the delivery store counts there, too: in delayed,
 * waiting, dead, one for each delivery. */
struct event_states {
    uint64_t pending;   /* committed, not yet handed to the bus */
    uint64_t published; /* on the bus, audience not yet read to its end */
    uint64_t expanded;  /* audience known, deliveries under way */
    uint64_t delayed, waiting, dead, parked, dropped, discarded;
    uint64_t settled;  /* in the outbox and wholly delivered or in the delivery store */
    uint64_t archived; /* removed after their retention */
};

struct engine_stats {
    uint64_t settled_through; /* event id */
    uint64_t events_taken, events_done;
    uint64_t undone; /* queued or found, not done */
    int64_t oldest_undone_ms;
    uint64_t bus_duplicates;   /* messages that came twice, recognised */
    uint64_t dedup_duplicates; /* acts suppressed by a dedup memory */
    uint64_t dedup_unknown;    /* claimed and never confirmed: now dead letters */
    uint64_t resent;
    uint64_t late; /* deliveries made below the watermark: retries, released and replayed events */
    uint64_t blocked_keys; /* order keys that wait behind a delivery in the delivery store */
    /* shared: messages and reports of other terms; outcomes reported by other nodes; those of work
     * items already reported; work items that only a newer program knows */
    uint64_t stale, reports, reports_unmatched, unknown_rules;
    uint64_t timers_fired;  /* since the start, by this node */
    uint64_t outside_calls; /* under way on this node */
    int64_t timer_due_ms;   /* when the next one is, as last looked at; INT64_MAX: none waits */
    struct event_states states;
    struct lane_stats lanes[LANE_COUNT];
};

/* Called on the worker's thread when a live event with an observed rule is delivered to at least
 * one member. took_us counts from its commit; events found in the table at the start are left out,
 * their time says nothing. */
typedef void (*fan_out_observer)(void *ctx, const struct event *e, size_t members, int64_t took_us);

/* The arguments must outlive the engine; the bus is for this engine alone, and the caller frees it
 * afterwards. */
struct engine *engine_new(const struct engine_config *config, const struct rule *rules,
                          size_t rule_count, struct sink_env env, struct bus *bus);
void engine_free(struct engine *g);

void engine_observe(struct engine *g, fan_out_observer observer, void *ctx); /* before start */
/* `wake` is called, from any thread, when a step that slept (returned a later time) may have
 * something to do: the relay's, every worker's, the delivery store's, the replays'. */
enum engine_sleeper {
    ENGINE_RELAY,
    ENGINE_VIEWS, /* the workers of each pool, in the order of enum worker_pool */
    ENGINE_TRUTH,
    ENGINE_OUTSIDE,
    ENGINE_RECORDER,
    ENGINE_REPLAYS,
    ENGINE_SLEEPERS
};
static inline enum engine_sleeper engine_sleeper_of(enum worker_pool pool)
{
    return (enum engine_sleeper)((int)ENGINE_VIEWS + (int)pool);
}
typedef void (*engine_wake)(void *ctx, enum engine_sleeper who);
void engine_on_wake(struct engine *g, engine_wake wake, void *ctx);

/* Reads the saved watermark, the delivery store and the jobs, and sets where the relay begins.
 * Blocking.
 */
enum err engine_recover(struct engine *g);

/* ---- shared only ---- */

/* Brings the views up to date with these events, which were read back from the table. Called by the
 * relay's step; may block. An error: the relay tries again later. Set before the start. */
typedef enum err (*engine_applier)(void *ctx, const struct event *events, size_t n);
void engine_on_apply(struct engine *g, engine_applier apply, void *ctx);
/* Begins to lead: as engine_recover, in this term. Blocking. On failure it does not lead. */
enum err engine_lead(struct engine *g, uint64_t term);
/* Stops to lead and forgets everything that is under way: the next leader finds it in truth. Waits
 * for steps that are being run. */
void engine_resign(struct engine *g);
bool engine_leads(struct engine *g);
/* The term in which it leads; 0: it does not. Whatever is done to the views after that was asked
 * is covered by this term's saves. */
uint64_t engine_leading(struct engine *g);
/* A leader publishes and writes nothing from this moment of the monotonic clock on, until it is
 * moved: when its lease, as last renewed, may be another's. So a leader that was stopped for a
 * while and continues does not send work that another leader orders by now. Never called: for ever.
 */
void engine_lead_until(struct engine *g, int64_t mono_us);
/* True once a write was refused because another term is in truth, or the views lost what was
 * not saved: resign (and, if the lease is still held, lead again). */
bool engine_must_resign(struct engine *g);
/* The present term, as this node knows it: work items of earlier ones are passed over. */
void engine_saw_term(struct engine *g, uint64_t term);

/* The commit hook's part: hands committed events over, after it has brought the views up to date
 * with them. One caller at a time, in commit order. Never blocks, never fails. */
void engine_offer(struct engine *g, const struct event *events, size_t n);

int64_t engine_relay_step(struct engine *g); /* one caller at a time */
/* Deliver: the lanes of POOL_VIEWS, of POOL_TRUTH, of both. Any number of threads. */
int64_t engine_views_step(struct engine *g);
int64_t engine_truth_step(struct engine *g);
int64_t engine_worker_step(struct engine *g);
/* Begins and ends what happens outside; blocking SQL, one caller. */
int64_t engine_outside_step(struct engine *g);
/* After the threads that call the steps: begins nothing more, and waits for what is under way.
 * False: some of it did not end in time, and its outcome is unknown to the next start. */
bool engine_outside_drain(struct engine *g, int64_t within_ms);
int64_t engine_recorder_step(struct engine *g); /* writes the delivery store, claims what is due;
                                               blocking SQL; one caller */
int64_t
engine_watermark_step(struct engine *g); /* saves the watermark, trims; blocking SQL; one caller */
int64_t engine_replay_step(struct engine *g); /* blocking SQL; one caller */
int64_t engine_timer_step(struct engine *g);  /* fires what is due; blocking SQL; one caller */
int64_t engine_sample_step(struct engine *g); /* freshness; one caller, every second */

void engine_pause(struct engine *g, bool paused); /* workers take nothing while paused */
/* The overload guard: no large fan-outs (lanes active and rest), no bulk work (replays). */
void engine_guard(struct engine *g, bool expansion, bool bulk);
/* concurrency 0, rate UINT32_MAX: the table's default; rate 0: no limit. */
void engine_set_lane(struct engine *g, enum lane lane, uint32_t concurrency, uint32_t rate);
/* Shared: this node is the `rank`-th of `nodes` whose workers are there. */
void engine_share_lanes(struct engine *g, uint32_t rank, uint32_t nodes);
void engine_stop_lane(struct engine *g, enum lane lane, bool stop); /* by hand; false: opens it */
/* An operator changed the delivery store or released parked events: look now. */
void engine_deliveries_changed(struct engine *g);
/* An operator created, paused, resumed or cancelled a job: look now. */
void engine_jobs_changed(struct engine *g);

uint64_t engine_settled_through(struct engine *g);
/* Events with after < id ≤ through are settled and their rows say so in a moment: the watermark is
 * saved by time. A node that does not lead knows of none. */
void engine_unsaved(struct engine *g, uint64_t *after, uint64_t *through);
bool engine_quiet(
    struct engine *g); /* everything offered so far is done or in the delivery store … */
/* … and nothing there waits for its time. Shared: everything that was committed when it was asked,
 * by whichever node; it asks truth. */
bool engine_drained(struct engine *g);
void engine_stats(struct engine *g, struct engine_stats *out);
const struct hist *engine_timers_late_us(struct engine *g); /* how late timers fired */
struct freshness *engine_freshness(struct engine *g);
struct trace *engine_trace(struct engine *g);
const struct rule *engine_rules(struct engine *g, size_t *n);
int64_t engine_dedup_ms(struct engine *g);

/* One event as the engine knows it now. */
enum event_stage {
    STAGE_UNKNOWN, /* not in memory: the tables know */
    STAGE_PENDING, /* offered, not yet taken */
    STAGE_PUBLISHED,
    STAGE_EXPANDED,
};
struct event_item {
    const char *consumer, *lane;
    enum audience_part part;
    uint64_t after; /* how far its walk got */
    bool out; /* on the bus or being worked on; false: ready for its lane, or behind its key */
};
struct event_look {
    enum event_stage stage;
    uint64_t members, delivered, repeated, skipped; /* so far */
    struct event_item items[16];
    size_t item_count, items_left_out;
};
void engine_look(struct engine *g, uint64_t event, struct event_look *out);
