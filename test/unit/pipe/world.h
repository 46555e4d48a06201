/* A small world for the engine's tests and its simulator: a store that holds an outbox and a mark,
 * views that know how many follow whom, and sinks that write down what they were given. All of it
 * keeps its port's contract as far as the engine relies on it; the store understands exactly the
 * engine's SQL. */
#pragma once

#include <pthread.h>

#include "base/clock.h"
#include "base/id.h"
#include "bus/local.h"
#include "pipe/engine.h"
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
    struct clock *clock; /* the manual one unless changed before world_engine */
    struct id_gen ids;

    /* the store */
    struct db db;
    pthread_mutex_t store_lock;
    struct event *outbox;
    size_t outbox_count, outbox_capacity;
    char mark[ID_TEXT_MAX + 1]; /* "" none */
    bool reads_fail, writes_fail;
    uint64_t reads, writes, largest_trim;
    uint64_t last_committed;
    bool unreadable_rows; /* the type column names something unknown */

    /* the views: author id = index; the followers' handles are the multiples of `step` up to
     * followers */
    struct views views;
    uint64_t followers[WORLD_AUTHORS];
    uint64_t step;
    uint64_t
        active_every; /* each such follower was seen just now, the others long ago; 0: nobody */
    uint64_t saved_position;
    bool audience_fails;
    uint64_t audience_reads;

    /* the sinks */
    pthread_mutex_t sink_lock;
    struct world_delivery *log;
    size_t log_count, log_capacity;
    bool log_off;
    uint64_t delivered;
    enum err (*before_sink)(struct world *w, const struct event *e, const uint64_t *members,
                            size_t n);
    uint64_t again_times; /* TO_ACTOR sinks ask to be called this often again */
    void *user;

    struct bus *bus;
    struct engine *engine;
    struct engine_config config;
    size_t lane_limits[LANE_COUNT];
    const struct rule *rules;
    size_t rule_count;
};

/* POST_CREATED → followers in LANE_SMALL (not of delivery PULL), FOLLOW_* → actor in LANE_GRAPH,
 * POST_DELETED → followers in LANE_CLEANUP. Batches of 500. */
extern const struct rule world_rules[];
extern const size_t world_rule_count;
/* As above in batches of 4, for small audiences of many pages. */
extern const struct rule world_small_rules[];

void world_init(struct world *w);
void world_done(struct world *w);
void world_engine(struct world *w); /* makes bus and engine, recovers */
void world_crash(struct world *w);  /* drops bus and engine; the store stays */

/* Commits an event: its outbox row, then the commit hook. Returns its id. */
uint64_t world_commit(struct world *w, enum event_type type, uint64_t actor, uint64_t object);
/* Commits without the hook: as if the process had died in between. */
uint64_t world_commit_unseen(struct world *w, enum event_type type, uint64_t actor,
                             uint64_t object);

/* Calls relay and worker steps until neither has anything to do at this time. Returns worker steps.
 */
size_t world_run(struct world *w);
void world_run_relay(struct world *w);
/* The same, moving the clock to the next due time as often as needed, until drained or `max_ms`
 * later. */
void world_drain(struct world *w, int64_t max_ms);

size_t world_outbox_count(struct world *w);
size_t world_deliveries_of(struct world *w, uint64_t event); /* members, repeats counted */
