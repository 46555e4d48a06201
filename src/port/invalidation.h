/* Is what was read from shared views and cards still current?
 *
 * Views and cards that many nodes change live in another process, and asking them costs a round
 * trip. A caller that keeps something made of their answers (a drawn page) traces what it reads,
 * and asks here before it uses the result again. The driver learns of changes with an unknown
 * delay. So a check has two steps: ask() calls back when every change that was answered before the
 * call has arrived, and same() then tells whether any of them concerns the trace.
 *
 * The contract, checked in test/unit/view/redis_invalidation_test.c:
 *  1. A trace holds what its thread reads from the views and cards between begin() and end().
 *     `whole`: it holds all of it, and the driver will learn of every change to it.
 *  2. A change of anything traced, by any process, that was done before ask() was called: once
 *     `done` was called with good = true, same() is false, now and for ever.
 *  3. same() may be false without a change (a lost connection, two keys in one place), never true
 *     after a change that has arrived.
 *  4. done is called exactly once for each ask(), within INVALIDATION_ASK_MS, by a thread of the
 *     driver that must not be held up, or by the caller itself before ask() returns; good = false:
 *     the driver cannot tell.
 *  5. Nothing is the same while suspect() is on, nor afterwards what was traced before or during
 *     it.
 *
 * Any thread. One driver: Redis. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRACE_READS_MAX = 255, INVALIDATION_ASK_MS = 1000 };

struct traced_read {
    uint32_t place, version;
};

struct read_trace {
    uint64_t generation;
    bool whole;
    uint8_t count;
    struct traced_read reads[TRACE_READS_MAX];
};

/* In the asker's memory until done is called. */
struct invalidation_question {
    void (*done)(struct invalidation_question *q, bool good);
    struct invalidation_question *next; /* the driver's */
};

struct invalidation;

struct invalidation_stats {
    uint64_t asked, round_trips; /* one round trip answers all who asked before it */
    uint64_t changes;            /* received */
    uint64_t lost;               /* how often everything noted became worthless at once */
};

struct invalidation_ops {
    void (*init)(struct invalidation *w, struct read_trace *trace);
    void (*begin)(struct invalidation *w, struct read_trace *trace);
    void (*end)(struct invalidation *w, struct read_trace *trace);
    bool (*same)(struct invalidation *w, uint64_t generation, const struct traced_read *reads,
                 size_t n);
    void (*ask)(struct invalidation *w, struct invalidation_question *q);
    void (*suspect)(struct invalidation *w, bool on);
    void (*stats)(struct invalidation *w, struct invalidation_stats *out);
    void (*free)(struct invalidation *w);
};

struct invalidation {
    const struct invalidation_ops *ops;
};

/* An empty trace for a caller that notes the reads itself (port/page_source.h). end() ends it,
 * too. */
static inline void invalidation_init(struct invalidation *w, struct read_trace *trace)
{
    w->ops->init(w, trace);
}

/* Begins an empty trace, to which this thread's reads are added until end(); one at a time. */
static inline void invalidation_begin(struct invalidation *w, struct read_trace *trace)
{
    w->ops->begin(w, trace);
}

static inline void invalidation_end(struct invalidation *w, struct read_trace *trace)
{
    w->ops->end(w, trace);
}

/* Of a trace that was whole. */
static inline bool invalidation_same(struct invalidation *w, uint64_t generation,
                                     const struct traced_read *reads, size_t n)
{
    return w->ops->same(w, generation, reads, n);
}

static inline void invalidation_ask(struct invalidation *w, struct invalidation_question *q)
{
    w->ops->ask(w, q);
}

static inline void invalidation_suspect(struct invalidation *w, bool on)
{
    w->ops->suspect(w, on);
}

static inline void invalidation_stats(struct invalidation *w, struct invalidation_stats *out)
{
    w->ops->stats(w, out);
}

static inline void invalidation_free(struct invalidation *w)
{
    w->ops->free(w);
}
