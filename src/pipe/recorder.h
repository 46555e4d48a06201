/* Between the workers and the delivery store: what must be written down, kept in memory
 * until it is committed, and the retries that were claimed from the delivery store and
 * are under way.
 *
 * A worker that cannot deliver hands its message over with recorder_add. The
 * message stays taken on the bus and its work item in the inflight set until the delivery_record
 * is committed; then both end. So at every moment the work is in memory and
 * pending in the outbox, or in the delivery store, or both: never in neither. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "pipe/delivery_store.h"

enum {
    RECORDER_QUEUE_MAX = 8192, /* entries; beyond it workers keep their messages a little longer */
    RECORDER_BATCH = 256,      /* records in one transaction */
    RECORDER_CLAIMS = 128,     /* rows claimed in one transaction */
    RETRIES_MAX = 4096,        /* under way at a time … */
    LANE_RETRIES_MAX = 1024,   /* … and of a stopped lane: it leaves room for the others */
};

struct recorder_entry {
    struct delivery_record delivery_record;
    struct bus_message message; /* of the work item that leaves when it is committed … */
    bool on_bus;                /* … and is acknowledged */
    bool leaves;
    bool released; /* a released event is settled with it */
    bool in_views; /* it says that something was done to the views: remote ones are saved first */
};

struct recorder_retry {
    uint64_t delivery;
    enum lane lane; /* that it is worked on in */
};

struct recorder {
    pthread_mutex_t lock;
    struct recorder_entry *entries; /* a ring */
    size_t first, count, capacity;
    _Atomic size_t waiting; /* count, and what the step has in its hands */

    /* the recorder step's own */
    struct recorder_entry batch[RECORDER_BATCH];
    size_t batch_count;
    struct delivery_record records[RECORDER_BATCH];
    struct claim claims[RECORDER_CLAIMS];
    size_t claim_count, claim_next; /* claimed, not yet begun */
    struct map retrying;            /* deliveries under way: struct recorder_retry */
    size_t retrying_in[LANE_COUNT];
    int64_t next_due_ms; /* in the delivery store; INT64_MAX: nothing is delayed */
    int64_t write_after_us, log_after_us, look_after_us;
    int64_t
        others_after_us; /* shared: when what others did to the delivery store is looked for next */
    int64_t save_after_us;    /* … the views could not be saved: what needs that waits */
    _Atomic bool changed;     /* by another node or an operator: look, and check the blocked keys */
    _Atomic bool nothing_due; /* nothing is delayed or retrying, as of the last commit */
};

void recorder_init(struct recorder *b);
void recorder_done(struct recorder *b);
/* False: full, unless `force`. */
bool recorder_add(struct recorder *b, const struct recorder_entry *entry, bool force);
