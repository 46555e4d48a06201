/* Between the workers and the books: what must be written down, kept in memory
 * until it is committed, and the retries that were claimed from the books and
 * are under way.
 *
 * A worker that cannot deliver hands its message over with book_add. The
 * message stays taken on the bus and its unit in the flight until the booking
 * is committed; then both end. So at every moment the work is in memory and
 * pending in the outbox, or on the books, or both: never in neither. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "pipe/book_store.h"

enum {
    BOOK_QUEUE_MAX = 8192,   /* entries; beyond it workers keep their messages a little longer */
    BOOK_BATCH = 256,        /* bookings in one transaction */
    BOOK_CLAIMS = 128,       /* rows claimed in one transaction */
    RETRIES_MAX = 4096,      /* under way at a time … */
    LANE_RETRIES_MAX = 1024, /* … and of a stopped lane: it leaves room for the others */
};

struct book_entry {
    struct booking booking;
    struct bus_message message; /* of the unit that leaves when it is committed … */
    bool on_bus;                /* … and is acknowledged */
    bool leaves;
    bool released; /* a released event is settled with it */
    bool in_views; /* it says that something was done to the views: remote ones are saved first */
};

struct book_retry {
    uint64_t delivery; /* 0: an empty place */
    enum lane lane;    /* that it is worked on in */
};

struct book {
    pthread_mutex_t lock;
    struct book_entry *entries; /* a ring */
    size_t first, count, capacity;
    _Atomic size_t waiting; /* count, and what the step has in its hands */

    /* the book step's own */
    struct book_entry batch[BOOK_BATCH];
    size_t batch_count;
    struct booking bookings[BOOK_BATCH];
    struct claim claims[BOOK_CLAIMS];
    size_t claim_count, claim_next; /* claimed, not yet begun */
    struct book_retry *retrying;    /* a hash set of deliveries under way */
    size_t retrying_count, retrying_in[LANE_COUNT];
    int64_t next_due_ms; /* on the books; INT64_MAX: nothing is delayed */
    int64_t write_after_us, log_after_us, look_after_us;
    int64_t others_after_us;  /* shared: when what others did to the books is looked for next */
    int64_t save_after_us;    /* … the views could not be saved: what needs that waits */
    _Atomic bool changed;     /* by somebody else: look, and check the blocked keys */
    _Atomic bool nothing_due; /* nothing is delayed or retrying, as of the last commit */
};

void book_init(struct book *b);
void book_done(struct book *b);
/* False: full, unless `force`. */
bool book_add(struct book *b, const struct book_entry *entry, bool force);
