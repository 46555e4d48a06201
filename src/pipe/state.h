/* The engine's inside, shared by its files: engine.c owns the whole; relay.c,
 * worker.c with audience.c and act.c, book.c, mark.c and sample.c own a step
 * each. Nothing outside pipe/ includes this.
 *
 * Who touches what: the parts named after a step belong to that step (one
 * caller each); everything else is shared, and has its own lock or is atomic.
 * No lock is held while another is taken, or while anything outside is called.
 */
#pragma once

#include <stdatomic.h>

#include "pipe/book.h"
#include "pipe/engine.h"
#include "pipe/flight.h"
#include "pipe/hand_over.h"
#include "pipe/inbox.h"
#include "pipe/lane.h"
#include "pipe/outbox.h"
#include "pipe/replay.h"

enum {
    ENGINE_BATCH_MAX = 2048,         /* members in a call of a sink */
    ENGINE_RULES_PER_TYPE = 16,      /* rules on one event type */
    ENGINE_UNDONE_MAX = 1 << 19,     /* beyond it events wait in the outbox table */
    ENGINE_COUNTS_MAX = 256,         /* consumer × type × lane that ever had a delivery booked */
    RELAY_BATCH = OUTBOX_READ_MAX,   /* events in one relay step */
    WORKER_MESSAGES = 32,            /* messages in one worker step, when they are small */
    WORKER_MEMBERS = 500,            /* members in one worker step, about */
    LOG_AGAIN_US = 60 * 1000 * 1000, /* a failure that lasts is told once a minute */
};

struct engine_lane {
    _Alignas(64) struct lane_gate gate;
    struct breaker breaker;
    _Atomic uint64_t delivered, repeated, skipped, failed;
    _Atomic int64_t log_after_us;
};

struct relay {
    uint64_t taken;     /* id of the last live event taken in turn */
    uint64_t recovered; /* rows up to this id were there at the start */
    uint64_t ahead_after,
        ahead; /* live events in (ahead_after, ahead] are taken already; 0: none */
    uint64_t lane_held[LANE_COUNT]; /* what the lane held when it was full; 0: it
                                       was not */
    int64_t read_after_us;          /* not before: the last read failed */
    int64_t poll_after_us;
    int64_t log_after_us;
    uint64_t found[EVENT_TYPE_COUNT]; /* rows there at the start, not yet taken */
    size_t count;
    struct flight_start starts[RELAY_BATCH];
    struct outbox_slice slice;
    size_t traced;
    struct trace_record trace[2 * RELAY_BATCH];
};

struct mark {
    _Atomic uint64_t saved; /* the mark in truth */
    uint64_t trimmed;       /* no settled row at or below it is left */
    int64_t save_after_us;  /* when the mark is saved next */
    int64_t clean_after_us; /* when closed deliveries and old inbox entries go next */
    int64_t log_after_us;
    _Atomic bool trim_again; /* rows were settled below that */
};

/* What truth counts, as of the last sample. */
struct truth_counts {
    struct book_count books[ENGINE_COUNTS_MAX];
    size_t book_count;
    struct outbox_totals outbox;
};

struct engine {
    struct engine_config config;
    const struct rule *rules;
    size_t rule_count;
    struct sink_env env;
    struct bus *bus;
    fan_out_observer observer;
    void *observer_ctx;
    engine_wake wake;
    void *wake_ctx;

    uint16_t rules_on[EVENT_TYPE_COUNT][ENGINE_RULES_PER_TYPE]; /* indices into `rules` */
    uint16_t rules_on_count[EVENT_TYPE_COUNT];
    bool has_inbox; /* a rule asks for one */

    _Atomic bool paused, braked_expansion, braked_bulk;
    _Atomic bool asleep[ENGINE_REPLAYS + 1]; /* by sleeper: its step returned a later time */

    struct hand_over hand_over;
    struct flight flight;
    struct book book;
    struct trace trace;
    struct engine_lane lanes[LANE_COUNT];
    _Atomic uint64_t offered[EVENT_TYPE_COUNT]; /* live, or found in the table at the start */
    _Atomic uint64_t taken[EVENT_TYPE_COUNT];
    _Atomic uint64_t oldest_found; /* id of the first row found at the start; 0: none */
    _Atomic uint64_t events_taken;
    _Atomic uint64_t events_unwanted; /* of these, done at once: no rule wants them */
    _Atomic uint64_t bus_duplicates, inbox_duplicates, inbox_unknown, resent, late;
    _Atomic uint64_t released; /* released events under way or not yet settled */
    pthread_mutex_t ring_lock;
    struct inbox_ring ring;
    pthread_mutex_t counts_lock;
    struct truth_counts counts;
    struct freshness *freshness;
    struct replays *replays;
    struct relay relay;
    struct mark mark;
};

void engine_wake_up(struct engine *g, enum engine_sleeper who);

/* True when it is time to log again something that keeps failing; moves the
 * time. */
bool engine_may_log(_Atomic int64_t *log_after_us, int64_t now_us);

static inline bool engine_lane_is_braked(struct engine *g, enum lane lane)
{
    return (lane == LANE_ACTIVE || lane == LANE_REST) && atomic_load(&g->braked_expansion);
}

static inline bool is_retry(uint8_t kind)
{
    return kind == SEAT_RETRY || kind == SEAT_FORCED;
}

/* Its breaker is open, or somebody stopped it. */
bool engine_lane_is_stopped(struct engine *g, enum lane lane);

/* ---- finish.c ---- */

/* The name of the unit that a message stands for. */
struct flight_exit exit_of(const struct bus_message *m, enum exit_how how);
/* What is left to do when an event has left the flight. */
void engine_finished(struct engine *g, const struct flight_exit *x, int64_t now_us);

/* ---- book.c ---- */

/* What is due next, and which order keys wait behind deliveries on the books. */
enum err book_recover(struct engine *g);

/* ---- audience.c ---- */

/* Reads the message's page; *cursor is where the walk goes on. */
enum err audience_page(struct engine *g, const struct bus_message *m,
                       struct audience_cursor *cursor, uint64_t *members, size_t *n);
/* Is the page the last one of this message's walk? */
bool audience_is_last(const struct bus_message *m, const struct audience_cursor *cursor);
/* Has this message of the small lane turned out to be a large fan-out? */
bool audience_is_large(const struct engine *g, const struct bus_message *m,
                       const struct audience_cursor *cursor);

/* ---- act.c ---- */

struct act {
    struct sink_result result;
    size_t duplicates; /* members that an inbox knows */
};
/* Calls the sink for the members, behind the consumer's inbox when it has one.
 */
enum err act(struct engine *g, const struct bus_message *m, const uint64_t *members, size_t n,
             struct act *out);

/* ---- sample.c ---- */

/* The age of an event by its id; 0 for id 0 and for the future. */
int64_t engine_age_ms(struct engine *g, uint64_t id);
/* Events handed over or found and not yet taken, by type; the id of the oldest;
 * 0: none. */
uint64_t engine_pending(struct engine *g, enum event_type type);
uint64_t engine_oldest_pending(struct engine *g);
