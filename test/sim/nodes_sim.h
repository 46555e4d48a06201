/* Some simulated nodes: real engines, leadership and membership over one store in memory, one lossy
 * bus, and views that they share and that lose what has no second copy, or everything. One thread,
 * one seed.
 *
 *     nodes_sim.c     the agenda: whose step is next, what goes wrong, the whole run
 *     nodes_world.c   what the engines stand on: each node's way to the store, the bus, the views
 *     nodes_check.c   what must hold
 *
 * A node that dies in the middle of a step is `dead` until the step has returned: nothing that it
 * does from that moment on has an effect. A node that stalls in the middle of a delivery goes on
 * later, when the others have long forgotten it. */
#pragma once

#include "base/clock.h"
#include "base/id.h"
#include "base/rand.h"
#include "lossy_bus.h"
#include "node/membership.h"
#include "pipe/engine.h"
#include "plain_db.h"
#include "port/cards.h"
#include "port/views.h"

enum { NODES_MAX = 4, EVENTS_MAX = 96, ACCOUNTS = 40, ACTORS = 5, WORKERS = 2 };

enum sim_rule { RULE_TIMELINES, RULE_BACKFILL, RULE_MAILER, RULE_ARCHIVE, RULE_COUNT };

struct sim_event {
    uint64_t id;
    enum event_type type;
    uint64_t actor;
    bool applied;               /* the views know of it */
    uint64_t met[RULE_COUNT];   /* members reached: a bit for each account */
    uint64_t saved[RULE_COUNT]; /* … of that, what has a second copy */
    uint64_t ever[RULE_COUNT];  /* … or lost since */
    uint8_t again;
    uint32_t sent, granted; /* mails; repeats that an operator asked for */
    uint64_t taken_term;    /* of the message that last brought it to a mailer … */
    uint32_t takes;         /* … and how often it came */
};

enum { CALLS_MAX = 64 };

/* A mail that is under way. */
struct sim_call {
    struct outside_call *call;
    uint64_t term; /* of the leader that ordered it */
};

struct sim;

struct sim_node {
    struct sim *sim;
    int number;
    struct clock clock; /* the common one, a little off */
    int64_t off_ms;
    struct id_gen ids;
    struct db db;
    struct bus bus;
    struct views views;
    struct graph graph;
    struct cards cards;
    struct invalidation invalidation;
    uint64_t master; /* of the views, at this process' last save; 0: it has not saved yet */
    struct cluster cluster;
    struct membership membership;
    uint64_t token; /* of its data folder */
    struct engine *engine;
    bool dead, stalled, store_cut, bus_cut, views_cut;
    bool waits;   /* for the others to know that the views lost something: it does not die now */
    bool suspect; /* it does not answer from the views */
    int64_t paused_until_us;
    struct sim_call calls[CALLS_MAX];
    size_t call_count;
};

struct sim {
    uint64_t seed;
    struct rand rand;
    uint64_t trace;
    bool tell, healed;
    struct manual_clock clock;
    struct id_gen slow_ids; /* of writes that are open for a while … */
    struct manual_clock slow_clock;
    bool slow_open; /* … such a one is */
    struct plain_db *store;
    struct bus *bus;
    struct rule rules[RULE_COUNT];
    struct engine_config config;
    size_t lane_limits[LANE_COUNT + 1];
    int node_count;
    struct sim_node nodes[NODES_MAX];

    uint64_t followers[ACCOUNTS + 1]; /* of an author: a bit for each account */
    uint64_t active;
    bool complete;            /* the views hold everything */
    uint64_t tokens;          /* given so far */
    uint64_t master, witness; /* of the views: the present master, and the one at the last save */
    uint32_t fail_one_in, save_fails_one_in, apply_fails_one_in, mail_unknown_one_in;
    uint32_t die_one_in, stall_one_in;

    struct sim_event events[EVENTS_MAX];
    size_t event_count;
    uint64_t watermark; /* as last seen */
    struct {
        uint64_t steps, crashes, terms, deliveries, repeats, failures, stalls, losses, slow, loads,
            waits, calls;
    } totals;
    void (*wake)(void *ctx, enum engine_sleeper who);
    void (*stall)(struct sim *s, struct sim_node *n);
    bool (*may_wait)(struct sim *s);      /* may a caller wait now? */
    void (*pause)(void *ctx, int64_t ms); /* a node waits; ctx is the node */
};

/* Ends the program with the seed when it does not hold. */
#define HOLDS(s, condition, ...)                                                                   \
    do {                                                                                           \
        if (!(condition))                                                                          \
            sim_broken(s, #condition, __VA_ARGS__);                                                \
    } while (0)
_Noreturn void sim_broken(struct sim *s, const char *condition, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_say(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool sim_chance(struct sim *s, uint32_t one_in)
{
    return one_in && rand_below(&s->rand, one_in) == 0;
}
void sim_trace(struct sim *s, uint64_t a, uint64_t b);

/* ---- nodes_world.c ---- */

void sim_open(struct sim *s, uint64_t seed, struct plain_db *store);
void sim_close(struct sim *s);
void sim_start(struct sim *s, struct sim_node *n);
void sim_kill(struct sim *s, struct sim_node *n);
/* Commits an event at this node; with `ids` other than its own it was open for long. */
void sim_commit(struct sim *s, struct sim_node *n, struct id_gen *ids);
/* The views' only copy of what was not saved is gone, more or less; or all that they held. */
void sim_lose_views(struct sim *s);
/* One of the node's mails ends. False: none is under way any more. */
bool sim_end_call(struct sim_node *n);
uint64_t sim_expected(const struct sim *s, const struct sim_event *e, size_t rule);

/* ---- nodes_check.c ---- */

/* All nodes together have no more mails under way than may be, of what one leader ordered. */
void check_calls(struct sim *s, uint64_t term);

void check_delivery(struct sim *s, const struct sim_event *e, size_t rule, uint64_t accounts);
uint64_t check_losses(struct sim *s); /* of the views, that truth has counted */
/* A node lost a change after so many losses and has waited: no node answers from views without it.
 */
void check_no_node_trusts(struct sim *s, uint64_t losses_before);
bool check_views_are_loaded(struct sim *s); /* they are complete, and truth says so */
void check_now(struct sim *s);
void check_at_rest(struct sim *s);
