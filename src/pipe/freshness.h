/* Freshness: for each consumer × event type × lane, how late it is and whether it will catch up.
 * Computed from counters and heads of lists that the engine keeps, never from the backlog itself:
 * the cost is the number of cells, whatever waits.
 *
 * A sample is taken every FRESHNESS_SAMPLE_US; rates are over the last FRESHNESS_SPAN samples. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/rule.h"

enum { FRESHNESS_CELLS_MAX = 256, FRESHNESS_SAMPLE_US = 1000 * 1000, FRESHNESS_SPAN = 10 };

/* What the engine knows of a cell at one moment. */
struct cell_raw {
    uint16_t rule;
    enum lane lane;
    /* Batches in flight or waiting in memory, those ahead of a walk by estimate; an event that is
     * not yet taken counts as one. */
    uint64_t backlog;
    uint64_t delayed, waiting, dead; /* in the delivery store */
    uint64_t entered, left; /* batches since the start; left counts what is done or closed */
    int64_t oldest_age_ms;  /* of the oldest event with undone work here that moves on by itself:
                               not dead, not waiting; 0: none */
    int64_t waiting_age_ms; /* of the oldest that waits behind another of its key; 0: none */
    bool stopped;           /* the lane is stopped, or the engine paused */
};

enum verdict {
    FRESH_GREEN,   /* within its target */
    FRESH_LATE,    /* over its target, and catching up */
    FRESH_BEHIND,  /* over its target, and not catching up, or only because it waits for another */
    FRESH_STOPPED, /* it has a target, its lane is stopped and something waits */
};
const char *verdict_name(enum verdict v); /* "green", "late", "behind", "stopped" */

struct freshness_cell {
    const char *consumer, *type, *lane, *late_means;
    bool visible;
    uint64_t backlog, delayed, waiting, dead;
    uint64_t failed;       /* batches that failed, since the start */
    int64_t oldest_age_ms; /* also of what waits; not of what is dead */
    int64_t
        target_ms; /* as set, else the rule's, else its lane's; 0: none, always green (replays) */
    double in_per_s, out_per_s; /* batches; both 0 until a second was seen */
    double net_per_s;           /* out - in, since the backlog was largest */
    int64_t catch_up_ms;        /* backlog / net; 0: no backlog; -1: never at this rate */
    enum verdict verdict;
};

struct freshness_headline {
    int64_t worst_ms; /* the worst lag of what people notice; 0: none */
    const char *consumer, *type, *lane, *late_means; /* of that cell; NULL: none */
    size_t green, late, behind, stopped;             /* cells */
    uint64_t dead;
};

struct freshness;
/* The rules must outlive it. */
struct freshness *freshness_new(const struct rule *rules, size_t rule_count);
void freshness_free(struct freshness *f);
/* The rule's target in all its lanes but the replays', instead of the tables'. Before the first
 * sample. */
void freshness_set_target(struct freshness *f, size_t rule, int64_t target_ms);
/* Takes a sample when it is time for one; otherwise only what can change at once (ages, backlog)
 * is brought up to date. Cells are known by (rule, lane); all of them, each time, each once, and at
 * most FRESHNESS_CELLS_MAX: a cell that is not given is gone. Counters that went down, or a clock
 * that did, begin anew. One caller. */
void freshness_sample(struct freshness *f, const struct cell_raw *cells, size_t n, int64_t now_us);
/* A batch of the rule failed in this lane, whatever becomes of it. Any thread. */
void freshness_failed(struct freshness *f, uint16_t rule, enum lane lane);
/* As of the last call of freshness_sample. A rule with signals has another cell, of the consumer
 * SIGNAL_CONSUMER, with the same numbers; the headline counts it once. At most `max` cells, worst
 * first: stopped, behind, late, green, and by age among those. `out` and `n`, or `headline`, may be
 * NULL. Any thread. */
void freshness_look(struct freshness *f, struct freshness_cell *out, size_t max, size_t *n,
                    struct freshness_headline *headline);
/* Is anything live that has a target not green? What pauses replays. What waits behind another
 * delivery does not count: behind a dead letter it would pause them until an operator has decided,
 * and behind one that is tried again that one counts. Any thread, no lock. */
bool freshness_is_late(struct freshness *f);
