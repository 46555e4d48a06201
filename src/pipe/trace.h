/* What happened to events lately: a bounded ring of short records, from which one event's story is
 * told. Memory is fixed; at a high rate it reaches back less far. Recording is cheap enough for
 * every batch: one lock for a step's records. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/rule.h"

#define TRACE_TABLE(X)                                                                             \
    X(PUBLISHED, "published") /* its messages are on the bus; n: how many */                       \
    X(UNWANTED, "unwanted")   /* a rule does not want it; `why` */                                 \
    X(BATCH, "batch")         /* delivered; n: members, done: changed something */                 \
    X(SKIPPED, "skipped")     /* the sink decided not to act on n members; `why` */                \
    X(SPLIT, "split")     /* large: moved to the lanes of large fan-outs; n: expected members */   \
    X(FAILED, "failed")   /* a try failed; n: tries so far; `why` */                               \
    X(DELAYED, "delayed") /* in the delivery store; n: ms until the next try */                    \
    X(WAITING, "waiting") /* behind another of its key */                                          \
    X(DEAD, "dead")       /* from here on as in the delivery store */                              \
    X(DROPPED, "dropped")                                                                          \
    X(PARKED, "parked")                                                                            \
    X(DUPLICATE, "duplicate")   /* already done: recognised by slot or dedup, not acted on */      \
    X(SUPPRESSED, "suppressed") /* a replay may not use this channel */                            \
    X(DONE, "done")             /* everything of it; n: members, done: changed something */

enum trace_kind {
#define TRACE_ENUM(name, text) TRACE_##name,
    TRACE_TABLE(TRACE_ENUM)
#undef TRACE_ENUM
        TRACE_KINDS
};
const char *trace_kind_name(enum trace_kind kind);

struct trace_record {
    uint64_t event;
    int64_t at_ms;
    uint64_t n, done;
    const char *why; /* static; NULL: none */
    uint16_t rule;   /* UINT16_MAX: of the event as a whole */
    uint8_t kind;
    uint8_t lane;
};

struct trace {
    pthread_mutex_t lock;
    struct trace_record *records;
    size_t capacity;       /* a power of two */
    uint64_t written;      /* ever */
    uint64_t lost_through; /* the highest event of which a record was overwritten; 0: none */
};

void trace_init(struct trace *t, size_t capacity); /* made a power of two */
void trace_done(struct trace *t);
void trace_add(struct trace *t, const struct trace_record *records, size_t n);

/* What the ring still knows of one event: sums, and the records themselves, oldest first: the first
 * few and the last few of at most `max`; *left_out counts those between. */
struct trace_summary {
    uint64_t batches, members, delivered; /* of BATCH records */
    uint64_t skipped, duplicates;         /* members; a record without a number counts as one */
    uint64_t failed;                      /* tries */
    int64_t first_ms, last_ms;            /* of its records; 0: none */
    bool complete; /* nothing that was recorded of it, since the start of this process, is lost */
};
/* `out` may be NULL with max 0: only the sums. */
void trace_find(struct trace *t, uint64_t event, struct trace_summary *summary,
                struct trace_record *out, size_t max, size_t *n, size_t *left_out);
