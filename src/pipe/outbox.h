/* The outbox table, as the engine reads, settles and trims it. Blocking. */
#pragma once

#include "pipe/delivery_store.h"
#include "port/db.h"

enum outbox_state { OUTBOX_PENDING, OUTBOX_SETTLED, OUTBOX_PARKED };

/* As the type of a row that this program cannot read; the event's value is then
 * an enum event_unread. */
#define OUTBOX_UNREADABLE EVENT_TYPE_COUNT

enum { OUTBOX_READ_MAX = 128, OUTBOX_RECORDED_MAX = 1024 };

/* A slice of rows by rising id. */
struct outbox_slice {
    struct event events[OUTBOX_READ_MAX];
    enum outbox_state states[OUTBOX_READ_MAX];
    char data[OUTBOX_READ_MAX][EVENT_DATA_MAX]; /* of events that are applied by it */
    size_t count;
    struct recorded recorded[OUTBOX_RECORDED_MAX]; /* of these events, when asked for; rising */
    size_t recorded_count;
};

enum outbox_read {
    OUTBOX_READ_PENDING, /* pending rows */
    OUTBOX_READ_FOUND,   /* the same, with what the delivery store has of them: for a node that
                            begins to lead, and for released events */
    OUTBOX_READ_AGAIN,   /* settled rows, too: after a restart, for the views */
};
/* Rows with after < id ≤ through, the first at most `max`. */
enum err outbox_read(struct db *db, enum outbox_read what, uint64_t after, uint64_t through,
                     size_t max, struct outbox_slice *out);

struct outbox_found {
    uint64_t watermark, first, last;  /* first: above the start; 0 where there is none */
    uint64_t above[EVENT_TYPE_COUNT]; /* rows above the start, by type */
};
/* `position`: where the relay starts; 0: at the watermark. */
enum err outbox_look(struct db *db, uint64_t position, struct outbox_found *out);

/* Pending rows above `after`, of which at most OUTBOX_WAITING_MAX are counted; `first` as above. */
enum { OUTBOX_WAITING_MAX = 20000 };
enum err outbox_waiting(struct tx *tx, uint64_t after, struct outbox_found *out);

/* How a write is made: by db_write, or behind a fence. */
typedef enum err (*outbox_write)(void *ctx, tx_fn run, void *arg);

/* Settles the first at most `slice` pending rows with after < id ≤ through and
 * saves how far that is as the watermark; *settled: so far. */
enum err outbox_settle(outbox_write write, void *ctx, uint64_t after, uint64_t through,
                       size_t slice, uint64_t *settled);
/* Removes the oldest at most `slice` settled rows with *after < id ≤ through, and moves *after to
 * where none is left: parked rows and what is kept for them are passed over once, not each time. */
enum err outbox_trim(outbox_write write, void *ctx, uint64_t *after, uint64_t through, size_t slice,
                     size_t *removed);

/* Adds to how many events of the type are "settled" or "archived". */
enum err outbox_count(struct tx *tx, struct str type, const char *state, int64_t n);
struct outbox_totals {
    uint64_t settled, archived;
};
enum err outbox_totals(struct tx *tx, struct outbox_totals *out);
