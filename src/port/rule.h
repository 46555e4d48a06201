/* What the domain tells the engine: for this fact, who gets it, through which sink, under which
 * policy. The table itself is model/rules.c; the engine (pipe/) knows only this shape. A new
 * kind of fan-out is one row plus its sink. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "port/event.h"

struct db;
struct views;
struct cards;

enum audience_kind {
    TO_FOLLOWERS, /* of the event's actor, in batches */
    TO_ACTOR,     /* the actor alone: members[0] is the account id itself, not a handle */
};

/* name, wire name, priority order (first is served first), batches at a time, batches per second
 * (0: no limit), fan-outs that it holds at most */
/* clang-format off */
#define LANE_TABLE(X)                                                                \
    X(GRAPH,   "graph",   10, 0,   100000) /* one person's backfill or removal */    \
    X(SMALL,   "small",   10, 0,   100000) /* posts of authors with few followers */ \
    X(ACTIVE,  "active",  10, 0,   10000)  /* large fan-outs: people seen lately */  \
    X(REST,    "rest",    10, 0,   10000)  /* large fan-outs: everybody else */      \
    X(CLEANUP, "cleanup", 2,  400, 100000) /* deleted posts, removed accounts */

enum lane {
#define LANE_ENUM(name, wire, concurrency, rate, limit) LANE_##name,
    LANE_TABLE(LANE_ENUM)
#undef LANE_ENUM
    LANE_COUNT
};
/* clang-format on */

struct sink_env {
    struct db *db;
    struct views *views;
    struct cards *cards;
    struct clock *clock;
    const _Atomic int64_t *celebrity_threshold; /* as it is now; NULL where no sink asks */
};

struct sink_result {
    size_t delivered; /* changed something */
    size_t repeated;  /* was there already: a harmless duplicate */
    bool again;       /* TO_ACTOR: call once more, there is more to do (bounded slices) */
};

/* Delivers to the members; idempotent; every error means "try again later" (nothing may
 * half-count). */
typedef enum err (*sink_fn)(struct sink_env *env, const struct event *e, const uint64_t *members,
                            size_t n, struct sink_result *result);

struct rule {
    const char *consumer; /* "timelines" */
    enum event_type on;
    bool (*wants)(const struct event *e); /* NULL: every event of that type */
    enum audience_kind audience;
    sink_fn sink;
    enum lane
        lane; /* TO_FOLLOWERS in LANE_SMALL: moved to ACTIVE and REST when more than one batch */
    uint16_t batch;         /* members a call at most */
    const char *late_means; /* what people notice when it is late */
};

const char *lane_name(enum lane lane);
