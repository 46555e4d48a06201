/* The rule table's shape: for an event type, its audience, its sink and its policy. The table
 * itself is model/rules.c; the engine (pipe/) knows only this shape. A new kind of fan-out is one
 * row plus its sink. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "port/event.h"
#include "port/graph.h"
#include "port/signal.h"

struct db;
struct tx;
struct views;
struct cards;

struct sink_env;

/* Who gets an event: a function that gives the next page of each of several walks. A new audience
 * is such a function and its row; those that need nothing but the event and the views are in
 * port/audience.c. */
struct audience {
    const char *name;
    /* pages[i] belongs to events[i]; a page's error leaves its cursor as it was. */
    void (*pages)(struct sink_env *env, const struct event *const *events,
                  struct audience_page *pages, size_t n);
    /* How many members it has, and how many of them a walk at `after` has passed; for estimates.
     * NULL: that is not known before the end. */
    enum err (*extent)(struct sink_env *env, const struct event *event, uint64_t after,
                       uint64_t *passed, uint64_t *all);
    bool single;  /* one account at most, which the first page has */
    bool handles; /* members are handles of the views; false: account ids */
    bool parts;   /* a walk can visit the people active lately, or all others: a large one is
                     split */
};
extern const struct audience audience_followers; /* of the actor */
extern const struct audience audience_members;   /* of the actor, a group */
extern const struct audience audience_actor;
extern const struct audience audience_subject;
extern const struct audience audience_listed; /* "to" in the event's data: ["1","2"] */
#define TO_FOLLOWERS (&audience_followers)
#define TO_MEMBERS   (&audience_members)
#define TO_ACTOR     (&audience_actor)
#define TO_SUBJECT   (&audience_subject)
#define TO_LISTED    (&audience_listed)

enum lane {
#define LANE(name, ...) LANE_##name,
#include "port/lanes.def"
#undef LANE
    LANE_COUNT
};

enum { LANES_MAX = 64 };
_Static_assert((int)LANE_COUNT <= (int)LANES_MAX, "too many lanes");

/* The workers of a lane, by what its sinks touch: so that a slow mail server or a long clean-up
 * never holds up a timeline. */
enum worker_pool { POOL_VIEWS, POOL_TRUTH, POOL_OUTSIDE, POOL_COUNT };

/* Which settings replace the table's concurrency and rate. */
enum lane_tuning { TUNED_BY_LANE_SETTINGS, TUNED_BY_CLEANUP, TUNED_BY_TABLE };

/* The engine knows only what the row says. */
struct lane_row {
    const char *name;
    enum worker_pool pool;
    int priority; /* within the pool: lower ones are served first */
    enum lane_tuning tuned_by;
    uint32_t concurrency; /* batches at a time; outside: calls */
    uint32_t rate;        /* batches per second; 0: no limit */
    size_t limit;         /* fan-outs that it holds at most */
    int64_t target_ms;    /* freshness; 0: none */
    bool ordered;         /* events of one key (the actor) one after another */
    bool local;           /* the node that leads keeps its work to itself while little waits */
    bool splits;          /* a walk of more than one batch moves on to these two: */
    enum lane active, rest;
    bool large;   /* the overload guard stops it when the disk is full */
    bool replays; /* what replays begin for the rules of this pool, in the order of their own lanes
                   */
};
extern const struct lane_row lane_rows[LANE_COUNT];

struct sink_env {
    struct db *db;
    struct views *views;
    struct cards *cards;
    struct signal *signal; /* NULL: no streams */
    struct clock *clock;
    const _Atomic int64_t *celebrity_threshold; /* as it is now; NULL where no sink asks */
    int64_t group_pull_threshold; /* from so many members on, inactive members pull a group's
                                     messages; 0: all are pushed to */
    bool erase_messages;          /* of deleted accounts */
    int64_t active_within_ms;     /* what "lately" is; the engine's own */
    void *user;                   /* of the sinks; the engine does not look */
};

struct sink_result {
    size_t delivered;       /* changed something */
    size_t repeated;        /* was there already: a harmless duplicate */
    size_t skipped;         /* decided not to act … */
    const char *skipped_as; /* … because: a few words, static */
    bool again;             /* one account: call once more, there is more to do (bounded slices) */
    int64_t retry_after_ms; /* with an error: what the other side asked for; 0: nothing */
};

/* Delivers to the members; idempotent, or behind a dedup memory. It checks what it adds against
 * current truth (or compares event ids), so that a late, repeated or replayed event never
 * overwrites what a newer one did. An error means "nothing counts, try again later";
 * ERR_UNKNOWN_COMMIT (class RECONCILE) means that its outcome is unknown: it is never tried again
 * blindly. */
typedef enum err (*sink_fn)(struct sink_env *env, const struct event *e, const uint64_t *members,
                            size_t n, struct sink_result *result);
/* The same for several events, each with members of its own, or none. An error says nothing of any
 * of them: each is then delivered by itself. */
struct sink_call {
    const struct event *event;
    const uint64_t *members;
    size_t n;
    struct sink_result result;
};
typedef enum err (*sinks_fn)(struct sink_env *env, struct sink_call *calls, size_t n);
/* The same for one member inside a transaction, for sinks whose effect is in truth and whose dedup
 * memory entry must commit with it. */
typedef enum err (*tx_sink_fn)(struct tx *tx, struct sink_env *env, const struct event *e,
                               uint64_t member, struct sink_result *result);

/* An effect outside that takes its time, such as a request to another server. A sink begins it and
 * returns at once; it ends with outside_end(), once, from any thread, within a time that its sink
 * limits. Many are under way at a time. */
struct outside_call {
    const struct event *event;
    uint64_t member;
    struct sink_result result;
    enum err error;
    void *user; /* the sink's own */
    void (*ended)(struct outside_call *call);
};
typedef void (*outside_fn)(struct sink_env *env, struct outside_call *call);

/* As a sink returns: an error means that it did not happen, ERR_UNKNOWN_COMMIT that the outcome is
 * unknown. The call is gone afterwards. */
static inline void outside_end(struct outside_call *call, enum err error)
{
    call->error = error;
    call->ended(call);
}

/* How often a failed delivery is tried again, and what becomes of it then. */
enum priority {
    PRIORITY_CRITICAL, /* 6 retries, about ten minutes; then a dead letter */
    PRIORITY_NORMAL,   /* 4 retries; then a dead letter */
    PRIORITY_LOW,      /* 2 retries, about ten seconds; then dropped, and counted */
};

/* Where what the sink does lives. */
enum effect {
    EFFECT_VIEWS,   /* derived: lost with the views' memory, so done again after a restart from the
                       position that the views' saved state covers */
    EFFECT_TRUTH,   /* in the db */
    EFFECT_OUTSIDE, /* seen by people or other systems: never repeated without being asked */
};

/* A consumer's memory of what it already did. */
enum dedup_kind {
    DEDUP_OFF,      /* its sink is idempotent by itself */
    DEDUP_BY_EVENT, /* once for each (event, member) */
    DEDUP_BY_KEY,   /* once for each business key */
};

enum { DEDUP_KEY_MAX = 120 };

struct rule {
    const char *consumer; /* "timelines"; with `on` it names the rule */
    enum event_type on;
    bool (*wants)(const struct event *e); /* NULL: every event of that type */
    const char *unwanted_as;              /* why `wants` says no, for an event's story; NULL: it is
                                             not worth a word */
    const struct audience *audience;
    bool reads_data;    /* its audience or sink looks at event.data */
    sink_fn sink;       /* or … */
    tx_sink_fn tx_sink; /* … this one, with EFFECT_TRUTH and a dedup memory */
    outside_fn outside; /* … or this one, with EFFECT_OUTSIDE, in a lane of POOL_OUTSIDE */
    sink_fn rest_sink;  /* NULL: sink. For AUDIENCE_REST, those of a large audience who were not
                           here lately; without a dedup memory */
    sinks_fn sinks;     /* NULL: none. For whole audiences that are small, where each call of the
                           sink would be a trip; without a dedup memory */
    /* NULL: none. What the members of a page are signalled when its sink has delivered it: kind,
     * key and seq. It is a part of the page's work: when it cannot be published the page is
     * delivered again. Freshness shows it as the consumer SIGNAL_CONSUMER. */
    void (*signal)(const struct event *e, struct signal_message *out);
    /* NULL: every event is delivered. Of several events of one actor that wait together the last
     * stands for the others, which are not delivered; this says so in an event's story. */
    const char *outdone_as;
    enum lane lane;
    uint16_t batch; /* members a call at most; with a dedup memory the sink gets them one by one */
    enum priority priority;
    enum effect effect;
    const char *channel; /* EFFECT_OUTSIDE: "email" …: what a replay must be allowed by name */
    enum dedup_kind dedup;
    void (*business_key)(const struct event *e, uint64_t member, struct buf *out); /* BY_KEY */
    int64_t target_ms;      /* freshness; 0: its lane's */
    bool visible;           /* do people notice when it is late? */
    bool observed;          /* the fan-out observer gets the times of its events */
    const char *late_means; /* what they notice, or why nothing */
};

/* The one account of an event's audience, when that is single; 0: none. */
uint64_t audience_only(const struct audience *audience, const struct event *e);

#define SIGNAL_CONSUMER "live"

/* Does a rule go through an audience page by page? */
static inline bool rule_walks(const struct rule *rule)
{
    return !rule->audience->single;
}

const char *lane_name(enum lane lane);
bool lane_parse(struct str name, enum lane *lane);
enum lane lane_for_replays(enum lane of); /* of the rules of that lane */
/* The pool's lanes in the order in which they are served; *n of them. */
const enum lane *lanes_of_pool(enum worker_pool pool, size_t *n);

static inline bool lane_is_ordered(enum lane lane)
{
    return lane_rows[lane].ordered;
}
/* Does a fan-out of the rule move to the large lanes when it turns out to be large? */
static inline bool rule_splits(const struct rule *rule)
{
    return rule->audience->parts && lane_rows[rule->lane].splits;
}
