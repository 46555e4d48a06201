/* One simulated server: the real engine over a real store in memory, a bus (exact or lossy), views
 * that are lost and come back, and people outside who get mail. One thread, one seed.
 *
 *     truth_sim.c    the agenda: the next step, the faults, the whole run
 *     sim_world.c    what the engine stands on: views and bus; start and crash
 *     sim_sinks.c    the rules, and where deliveries end: views, rows, people outside
 *     sim_people.c   the writers and the operators
 *     checker.c      what must hold
 *
 * A crash drops the engine, the bus and what the views did since they were saved; committed rows
 * stay. A process that dies in the middle of a step is `dead` until the step has returned: from
 * that moment nothing it does has any effect. */
#pragma once

#include "base/clock.h"
#include "base/id.h"
#include "base/rand.h"
#include "checker.h"
#include "pipe/engine.h"
#include "pipe/replay.h"
#include "plain_db.h"
#include "port/views.h"

enum {
    EVENTS_MAX = 128,
    ACCOUNTS = 40, /* 1 … 40; their handles are the same numbers, shuffled */
    AUTHORS = 12,
    ACTORS = 6, /* who follow, suspend … : few, so that their keys are busy */
    SLOTS = 3,  /* rules on one event type, at most */
    WORKERS_MAX = 3,
    JOBS_MAX = 16,
    SIM_CALLS_MAX = 1024,
};

enum sim_rule {
    RULE_TIMELINES,
    RULE_BACKFILL,
    RULE_FORGET,
    RULE_CLEANUP,
    RULE_DIGEST,
    RULE_ARCHIVE,
    RULE_RESTORED,
    RULE_MAILER,
    RULE_TEXTER,
    RULE_ALARM,
    RULE_COUNT
};

struct sim_event {
    uint64_t id;
    enum event_type type;
    uint64_t actor;
    int64_t value;
    bool committed;
    bool unreadable;       /* at first: keeps no order */
    uint64_t met[SLOTS];   /* members reached, as far as it lasts: a bit for each account */
    uint64_t ever[SLOTS];  /* … or lost again with the views: for the order of first times */
    uint64_t saved[SLOTS]; /* … what the views' saved state holds of it */
    uint8_t again[SLOTS];  /* how often a slice of it was done and more is to do */
    uint8_t sent[SLOTS][ACCOUNTS + 1];    /* what people outside got */
    uint8_t granted[SLOTS][ACCOUNTS + 1]; /* repeats that an operator asked for */
    bool discarded[SLOTS];
    uint64_t owed;            /* members whose page was delivered and who were not signalled yet */
    int64_t failed_ms[SLOTS]; /* when it last failed, until that is in the delivery store; 0: not */
    int64_t patience_ms[SLOTS]; /* … and what was asked for */
};

struct sim_job {
    uint64_t id;
    struct replay_spec spec;
    struct replay_plan plan;
};

/* What goes wrong at the moment. */
struct sim_trouble {
    uint32_t fail_one_in;  /* deliveries; 0: none */
    int poison_rule;       /* -1: none */
    uint64_t poison_actor; /* 0: all actors */
    enum err poison_error;
    uint32_t mail_fails_one_in;   /* definitely */
    uint32_t mail_unknown_one_in; /* its outcome is unknown */
    int64_t mail_retry_after_ms;  /* what the provider asks for with its failures */
    bool audience_fails;
    uint64_t die_at_commit; /* the process dies just before this commit; 0: never */
    uint64_t die_at_sink;   /* … in this call of a sink */
    bool die_after_act;
};

struct sim_views {
    struct views base;
    struct graph graph;
    uint8_t account_of[ACCOUNTS + 1]; /* by handle */
    uint8_t handle_of[ACCOUNTS + 1];
    uint64_t saved_position;
    int64_t saved_at_ms;
};

struct sim_totals {
    uint64_t steps, crashes, sink_calls, failures, repeats, mails, unknown, dead, redriven,
        discarded, released, replays, checks;
};

struct sim {
    uint64_t seed;
    struct rand rand;
    uint64_t trace;
    bool tell;

    struct manual_clock clock;
    struct id_gen ids;
    struct plain_db *store;
    struct db *db;
    struct bus *bus;
    bool lossy;
    struct engine *engine;
    struct engine_config config;
    struct rule rules[RULE_COUNT];
    size_t lane_limits[LANE_COUNT];
    struct sim_views views;
    struct signal signal; /* fails, or says that it failed, and brings some things twice */
    uint64_t followers[ACCOUNTS + 1]; /* of an author: a bit for each account */
    uint64_t active;                  /* accounts seen lately */
    bool shuffles;                    /* handles change with the epoch */
    bool healed;
    int64_t clock_off_ms;
    bool replies_lost; /* some commits of this history were answered as unknown */
    bool clock_jumps;  /* this history's wall clock is set back and forth */
    struct sim_trouble trouble;
    uint64_t commits; /* of the store, counted for die_at_commit */
    bool *dead;       /* the store's flag */

    struct sim_event events[EVENTS_MAX];
    size_t event_count;
    struct sim_job jobs[JOBS_MAX];
    size_t job_count;
    uint64_t busy_key[ACCOUNTS + 1]; /* the event of this actor that is half done; 0: none */
    struct sim_call {
        struct outside_call *call;
        size_t rule;
    } calls[SIM_CALLS_MAX]; /* to people outside, begun and not ended */
    size_t call_count;
    struct checker checker;
    struct sim_totals totals;
    void (*wake)(void *ctx, enum engine_sleeper who); /* the agenda's */
};

static inline bool sim_chance(struct sim *s, uint32_t one_in)
{
    return one_in && rand_below(&s->rand, one_in) == 0;
}
void sim_trace(struct sim *s, uint64_t a, uint64_t b);
void sim_say(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- sim_world.c ---- */

#define SIM_WATERMARK_SQL "SELECT value FROM meta WHERE name = 'done_through'"

/* `store` is used again for each seed: opening one costs more than a run. */
void sim_open(struct sim *s, uint64_t seed, struct plain_db *store);
void sim_close(struct sim *s);
void sim_start(struct sim *s);
void sim_crash(struct sim *s);
void sim_save_views(struct sim *s);
extern const struct signal_ops sim_signal_ops; /* sim_sinks.c */

struct sim_event *sim_event_of(struct sim *s, uint64_t id);                /* NULL: no such */
struct event sim_truth_of(const struct sim *s, const struct sim_event *e); /* as committed */
/* The rule's place among the rules on the event's type. */
unsigned sim_slot(const struct sim *s, size_t rule);
/* Accounts to which the rule delivers this event. */
uint64_t sim_expected(const struct sim *s, const struct sim_event *e, size_t rule);

/* ---- sim_sinks.c ---- */

extern const struct rule sim_rule_table[RULE_COUNT];

/* ---- sim_people.c ---- */

void sim_write_events(struct sim *s, size_t burst);
void sim_operate(struct sim *s); /* one act of an operator, by chance */
/* Faults are gone: everything dead is driven again or given up, everything parked released. True
 * when there was anything to decide. */
bool sim_decide_all(struct sim *s);

/* One of the calls that are under way ends. False: there is none. */
bool sim_end_call(struct sim *s);
