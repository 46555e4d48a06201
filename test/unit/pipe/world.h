/* A small world for the engine's tests: the real tables in memory behind the db port
 * (support/plain_db.h), views that know how many follow whom, and sinks that write down what they
 * were given. Time is moved by hand unless a clock is given.
 *
 * The store is the one thing that survives world_crash. Calls of it are counted and one at a time,
 * so that a test may use threads. */
#pragma once

#include <pthread.h>

#include "base/clock.h"
#include "base/id.h"
#include "bus/local.h"
#include "pipe/engine.h"
#include "plain_db.h"
#include "port/db.h"
#include "port/views.h"

enum { WORLD_AUTHORS = 64 };

struct world_delivery {
    uint64_t event;
    enum event_type type;
    uint64_t actor, object;
    uint64_t first; /* member */
    size_t n;
    int64_t at_us;
};

struct world {
    struct manual_clock manual;
    struct clock *clock; /* the manual one, or what world_init_clock was given */
    int64_t wall_rest_us;
    struct id_gen ids;

    /* the store */
    struct plain_db *store;
    struct plain_db_faults *faults;
    struct db db; /* the store's port, with a lock and counts */
    pthread_mutex_t store_lock;
    uint64_t reads, writes;
    bool hook_off;
    uint64_t *committed; /* ids of the stored events, in order */
    size_t committed_count, committed_capacity;
    uint64_t last_committed;

    /* the views: author id = index; the followers' handles are the multiples of `step` up to
     * followers */
    struct views views;
    struct graph graph;
    uint64_t followers[WORLD_AUTHORS];
    uint64_t step;
    uint64_t active_every; /* each such follower was seen just now, the others long ago; 0: none */
    uint64_t saved_position;
    bool audience_fails;
    uint64_t audience_reads;

    /* the sinks */
    pthread_mutex_t sink_lock;
    struct world_delivery *log;
    size_t log_count, log_capacity;
    bool log_off;
    uint64_t delivered;
    /* Called before each delivery; what it returns is the sink's answer, with asked_ms. */
    enum err (*before_sink)(struct world *w, const struct event *e, const uint64_t *members,
                            size_t n);
    int64_t asked_ms;
    uint64_t again_times; /* TO_ACTOR sinks ask to be called this often again */
    void *user;

    struct bus *bus;
    struct bus *next_bus; /* what world_engine takes instead of the local one */
    struct engine *engine;
    struct engine_config config;
    size_t lane_limits[LANE_COUNT];
    const struct rule *rules;
    size_t rule_count;
};

/* POST_CREATED → followers in LANE_SMALL (not of delivery PULL; normal priority), FOLLOW_* → actor
 * in LANE_GRAPH (critical), POST_DELETED → followers in LANE_CLEANUP (low). Batches of 500. */
extern const struct rule world_rules[];
extern const size_t world_rule_count;
/* As above in batches of 4, for small audiences of many pages. */
extern const struct rule world_small_rules[];
/* Their sinks, for tables of a test's own. */
enum err world_sink(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                    struct sink_result *result);
enum err world_actor_sink(struct sink_env *env, const struct event *e, const uint64_t *members,
                          size_t n, struct sink_result *result);

void world_init(struct world *w);
void world_init_clock(struct world *w, struct clock *clock);
void world_done(struct world *w);
void world_engine(struct world *w); /* makes bus and engine, recovers */
void world_crash(struct world *w);  /* drops bus and engine; the store stays */

/* Commits an event: a transaction with its outbox row, then the commit hook. Returns its id. */
uint64_t world_commit(struct world *w, enum event_type type, uint64_t actor, uint64_t object);
uint64_t world_commit_value(struct world *w, enum event_type type, uint64_t actor, uint64_t object,
                            int64_t value);
/* Commits without the hook: as if the process had died in between. */
uint64_t world_commit_unseen(struct world *w, enum event_type type, uint64_t actor,
                             uint64_t object);
/* A row that this program cannot read: an unknown type, or a known one of version 99. */
uint64_t world_commit_strange(struct world *w, const char *type, int64_t version);
/* The hook's part for an event that was committed unseen. */
void world_offer(struct world *w, uint64_t id, enum event_type type, uint64_t actor,
                 uint64_t object);

/* Calls relay, worker and recorder steps until none has anything to do at this time. Returns worker
 * steps. */
size_t world_run(struct world *w);
void world_run_relay(struct world *w);
void world_run_recorder(struct world *w);
/* The same, moving the clock to the next due time as often as needed, until drained or `max_ms`
 * later. */
void world_drain(struct world *w, int64_t max_ms);
void world_pass(struct world *w, int64_t ms); /* the same for so long, drained or not */
void world_move_to(struct world *w, int64_t mono_us);

/* ---- looking ---- */

int64_t world_ask(struct world *w, const char *sql); /* see plain_db_ask */
void world_do(struct world *w, const char *sql);
size_t world_outbox_count(struct world *w);
uint64_t world_watermark(struct world *w); /* as saved */
size_t world_recorded(struct world *w, enum delivery_state state);
size_t world_deliveries_of(struct world *w, uint64_t event); /* members, repeats counted */
uint64_t world_held(struct world *w, enum lane lane);        /* messages on the bus */
/* An operator's hand in the delivery store; then engine_deliveries_changed. How many rows changed.
 */
uint64_t world_redrive(struct world *w, const struct delivery_filter *filter);
uint64_t world_discard(struct world *w, const struct delivery_filter *filter);
uint64_t world_release(struct world *w, const struct delivery_filter *filter);
