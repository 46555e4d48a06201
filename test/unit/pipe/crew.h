/* Some nodes for the engine's tests: each has an engine of its own over one store, one bus and
 * views that they share. Time is moved by hand, and one step runs at a time.
 *
 * The lease is a row that crew_lead writes: the test decides which node leads. */
#pragma once

#include "base/clock.h"
#include "base/id.h"
#include "pipe/engine.h"
#include "plain_db.h"
#include "port/db.h"
#include "port/views.h"

enum { CREW_MAX = 3, CREW_AUTHORS = 16, CREW_LOG = 4096 };

struct crew;

struct crew_node {
    struct crew *crew;
    int number;
    struct views views; /* a way to the shared ones */
    struct graph graph;
    struct engine *engine;
};

struct crew_delivery {
    uint64_t event, first; /* member */
    size_t n;
    int node;
};

struct crew {
    struct manual_clock clock;
    struct id_gen ids;
    struct plain_db *store;
    struct plain_db_faults *faults;
    struct db *db;
    struct bus *bus;
    struct crew_node nodes[CREW_MAX];
    struct engine_config config;
    const struct rule *rules;
    size_t rule_count;
    uint64_t term;

    uint64_t followers[CREW_AUTHORS]; /* the handles 1 … */
    uint64_t applied[CREW_LOG];       /* by the appliers */
    size_t applied_count;
    enum err apply_error;
    enum err save_error; /* what the next saves of the views answer */
    uint64_t saves;

    struct crew_delivery log[CREW_LOG];
    size_t log_count;
    /* Called before each delivery; what it returns is the sink's answer. */
    enum err (*before_sink)(struct crew *c, int node, const struct event *e);
    int again; /* how often a TO_ACTOR sink asks to be called once more */
};

/* POST_CREATED → followers in LANE_SMALL, in pages of 4; FOLLOW_CREATED → actor in LANE_GRAPH. */
extern const struct rule crew_rules[];
extern const size_t crew_rule_count;

/* `bus`: with LANE_COUNT + 1 lanes; NULL: the local one. */
void crew_init(struct crew *c, struct bus *bus);
void crew_done(struct crew *c);
void crew_add(struct crew *c, int node);  /* starts it */
void crew_kill(struct crew *c, int node); /* without a word */
/* The node gets the lease from any holder, and leads. */
enum err crew_lead(struct crew *c, int node);

uint64_t crew_commit(struct crew *c, enum event_type type, uint64_t actor);
/* All steps of these nodes (a bit each), moving the clock on by a millisecond as often as needed.
 */
void crew_run(struct crew *c, unsigned nodes, int64_t ms);
/* … of everything but the watermark; and one kind of step until it has nothing to do. */
void crew_relay(struct crew *c, int node);
void crew_work(struct crew *c, int node);

size_t crew_deliveries_of(struct crew *c, uint64_t event); /* members, repeats counted */
uint64_t crew_reached(struct crew *c, uint64_t event);     /* members: a bit each, up to 64 */
int64_t crew_ask(struct crew *c, const char *sql);
uint64_t crew_watermark(struct crew *c);
