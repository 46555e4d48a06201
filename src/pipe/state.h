/* The engine's inside, shared by its files: engine.c owns the whole, relay.c, worker.c with
 * audience.c, and mark.c own a step each. Nothing outside pipe/ includes this.
 *
 * Who touches what: the relay's part belongs to the relay step, the mark's part to the mark step
 * (one caller each); everything else is shared, and has its own lock or is atomic. No lock is held
 * while another is taken, or while anything outside is called, but one: the order's intake lock is
 * held over bus_take. */
#pragma once

#include <stdatomic.h>

#include "pipe/engine.h"
#include "pipe/flight.h"
#include "pipe/hand_over.h"
#include "pipe/lane.h"
#include "pipe/order.h"

enum {
    ENGINE_BATCH_MAX = 2048,         /* members in a call of a sink */
    ENGINE_RULES_PER_TYPE = 16,      /* rules on one event type */
    ENGINE_UNDONE_MAX = 1 << 19,     /* beyond it events wait in the outbox table */
    RELAY_BATCH = 128,               /* events in one relay step */
    WORKER_MESSAGES = 32,            /* messages in one worker step, when they are small */
    WORKER_MEMBERS = 500,            /* members in one worker step, about */
    LOG_AGAIN_US = 60 * 1000 * 1000, /* a failure that lasts is told once a minute */
};

struct engine_lane {
    _Alignas(64) struct lane_gate gate;
    _Atomic uint64_t delivered, repeated, failed;
    _Atomic int64_t log_after_us;
};

struct relay {
    uint64_t taken;             /* id of the last event taken */
    uint64_t recovered;         /* rows up to this id were there at the start */
    uint32_t owing[LANE_COUNT]; /* first seat that owes the lane a message; FLIGHT_NONE: none */
    uint64_t owing_held[LANE_COUNT]; /* what the lane held when it was full */
    int64_t read_after_us;           /* not before: the last read failed */
    int64_t log_after_us;
    size_t count;
    struct flight_start starts[RELAY_BATCH];
    struct event rows[RELAY_BATCH];
};

struct mark {
    uint64_t saved;        /* the mark in truth */
    uint64_t trimmed;      /* no row at or below it is left */
    int64_t save_after_us; /* when the mark is saved next */
    int64_t log_after_us;
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
    uint32_t lane_rules[LANE_COUNT]
                       [EVENT_TYPE_COUNT]; /* bit i: the i-th rule on the type is there */

    _Atomic bool paused;
    _Atomic bool relay_idle;   /* the relay's step returned a later time: wake it for news */
    _Atomic bool workers_idle; /* a worker's step did */

    struct hand_over hand_over;
    struct flight flight;
    struct order order; /* of LANE_GRAPH */
    struct engine_lane lanes[LANE_COUNT];
    _Atomic uint64_t events_taken;
    _Atomic uint64_t events_found;    /* of these, in the table at the start */
    _Atomic uint64_t events_unwanted; /* of these, done at once: no rule wants them */
    struct relay relay;
    struct mark mark;
};

/* In LANE_GRAPH a follow and the unfollow after it must not overtake each other. */
static inline bool lane_is_ordered(enum lane lane)
{
    return lane == LANE_GRAPH;
}

void engine_wake_relay(struct engine *g);
void engine_wake_workers(struct engine *g);

/* True when it is time to log again something that keeps failing; moves the time. */
bool engine_may_log(_Atomic int64_t *log_after_us, int64_t now_us);

/* ---- audience.c ---- */

/* Reads the message's page; *cursor is where the walk goes on. */
enum err audience_page(struct engine *g, const struct bus_message *m,
                       struct audience_cursor *cursor, uint64_t *members, size_t *n);
/* Is the page the last one of this message's walk? */
bool audience_is_last(const struct bus_message *m, const struct audience_cursor *cursor);
/* Has this message of the small lane turned out to be a large fan-out? */
bool audience_is_large(const struct engine *g, const struct bus_message *m,
                       const struct audience_cursor *cursor);
/* Moves a large fan-out to the lanes of large ones: two walks, first those seen lately, then the
 * rest. ERR_OVERLOADED: one of them is full; try the message, as it is changed now, again later. */
enum err audience_split(struct engine *g, struct bus_message *m);
