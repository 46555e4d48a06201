/* Is what was read from shared views and cards still so?
 *
 * Views and cards that many nodes change live in another process, and asking them costs a journey.
 * Somebody who keeps what was made of their answers (a drawn page) notes what was read, and asks
 * here before it is used again. The engine hears of changes; how late, nobody knows. So asking is
 * two steps: ask() calls back when every change that was answered to anybody before the call has
 * been heard of, and same() then tells whether any of it concerns what was noted.
 *
 * The contract, checked in test/unit/view/redis_watch_test.c:
 *  1. What a thread reads from the views and cards of this watch between begin() and end() is noted
 *     in the trace. `whole`: all of it was, and will be heard of.
 *  2. A change of anything noted, by whatever process, that was done before ask() was called: once
 *     `done` was called with good = true, same() is false, now and for ever.
 *  3. same() may be false without a change (a lost connection, two keys in one place), never true
 *     after one that was heard of.
 *  4. done is called exactly once for each ask(), within WATCH_ASK_MS, by a thread of the engine
 *     that must not be held up, or by the caller itself before ask() returns; good = false: it
 *     cannot be said.
 *  5. Nothing is the same while doubt() is on, nor afterwards what was noted before or during it.
 *
 * Any thread. One engine: Redis. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WATCH_READS_MAX = 255, WATCH_ASK_MS = 1000 };

struct watch_read {
    uint32_t place, version;
};

struct watch_trace {
    uint64_t generation;
    bool whole;
    uint8_t count;
    struct watch_read reads[WATCH_READS_MAX];
};

/* In the asker's memory until done is called. */
struct watch_question {
    void (*done)(struct watch_question *q, bool good);
    struct watch_question *next; /* the engine's */
};

struct watch;

struct watch_stats {
    uint64_t asked, journeys; /* one journey answers all who asked before it */
    uint64_t changes;         /* heard of */
    uint64_t lost;            /* how often everything noted became worthless at once */
};

struct watch_ops {
    void (*begin)(struct watch *w, struct watch_trace *trace);
    void (*end)(struct watch *w, struct watch_trace *trace);
    bool (*same)(struct watch *w, uint64_t generation, const struct watch_read *reads, size_t n);
    void (*ask)(struct watch *w, struct watch_question *q);
    void (*doubt)(struct watch *w, bool on);
    void (*stats)(struct watch *w, struct watch_stats *out);
    void (*free)(struct watch *w);
};

struct watch {
    const struct watch_ops *ops;
};

/* Begins an empty trace, to which this thread's reads are added until end(); one at a time. */
static inline void watch_begin(struct watch *w, struct watch_trace *trace)
{
    w->ops->begin(w, trace);
}

static inline void watch_end(struct watch *w, struct watch_trace *trace)
{
    w->ops->end(w, trace);
}

/* Of a trace that was whole. */
static inline bool watch_same(struct watch *w, uint64_t generation, const struct watch_read *reads,
                              size_t n)
{
    return w->ops->same(w, generation, reads, n);
}

static inline void watch_ask(struct watch *w, struct watch_question *q)
{
    w->ops->ask(w, q);
}

static inline void watch_doubt(struct watch *w, bool on)
{
    w->ops->doubt(w, on);
}

static inline void watch_stats(struct watch *w, struct watch_stats *out)
{
    w->ops->stats(w, out);
}

static inline void watch_free(struct watch *w)
{
    w->ops->free(w);
}
