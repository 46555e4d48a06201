/* The delivery store: the table `deliveries`, where every delivery that did not simply succeed has
 * its row. All SQL of it is here; everything works inside the caller's transaction, in bounded
 * slices.
 *
 *     delayed ⇄ retrying → done            a timer; a claim that ends by itself; success
 *        ↓ tries are used up
 *      dead → delayed (re-driven) | discarded         dropped: of low priority, and counted
 *     waiting → delayed                    behind an earlier one of its lane and order key
 *     parked → released                    an event that this program cannot read
 *
 * What must hold after every function here:
 *  1. Of one (lane, order_key ≠ 0) at most one row is delayed or retrying, it is the first, by
 *     (event, row), of the open ones (delayed, retrying, waiting, dead), and none is when the
 *     first is dead. But a row that is being retried keeps its turn until that try ends, also when
 *     a lower event of its key is recorded meanwhile (a replay's): no key has two tries at a time.
 *  2. The counts (delivery_store_count) are those of the rows: kept in the same transaction.
 *  3. A row that is closed (done, discarded, dropped, released) never opens again. A page that was
 *     done once, is delivered again after a restart and fails has a new row: the old one makes way.
 *  4. (event, consumer, part, after, replay) is unique: recording the same page again changes an
 *     existing open row or leaves it, never adds one, never lowers its tries and leaves its timer.
 *     What was discarded or dropped stays so. */
#pragma once

#include "port/bus.h"
#include "port/db.h"
#include "port/rule.h"

enum delivery_state {
    DELIVERY_DELAYED = 1,
    DELIVERY_RETRYING,
    DELIVERY_WAITING,
    DELIVERY_DEAD,
    DELIVERY_DONE,
    DELIVERY_DISCARDED,
    DELIVERY_DROPPED,
    DELIVERY_PARKED,
    DELIVERY_RELEASED,
    DELIVERY_STATES
};
const char *delivery_state_name(enum delivery_state state);
bool delivery_state_parse(struct str name, enum delivery_state *state);

enum { DELIVERY_DETAIL_MAX = 160, DELIVERY_HISTORY_TRIES = 8, DELIVERY_REASON_MAX = 40 };

enum record_kind {
    RECORD_FAIL,   /* a try failed: `state` says what becomes of it (DELAYED, DEAD, DROPPED) */
    RECORD_WAIT,   /* it may not be tried before those ahead of it; DELAYED, due now, when there are
                    none */
    RECORD_PARK,   /* the outbox row event.id cannot be read: parks it, in outbox and here */
    RECORD_DONE,   /* the retried delivery `delivery` succeeded, up to `until` as it was claimed */
    RECORD_MOVE,   /* it got as far as `cursor`: the next try begins there, and the tries count anew
                    from there; due_ms ≠ 0: its claim lasts at least until then */
    RECORD_SETTLE, /* a released event is done: outbox row event.id becomes settled */
};

struct delivery_record {
    enum record_kind kind;
    enum delivery_state state; /* FAIL */
    uint64_t delivery;         /* the row; 0: a new one (FAIL, WAIT), unless the page has one */
    struct event event;
    const char *consumer;
    enum lane lane;     /* the lane whose order it keeps: its rule's own, also for replays */
    uint64_t order_key; /* 0: no order */
    struct audience_cursor cursor;
    uint64_t until;     /* as it was claimed or published; 0: to the end */
    uint64_t replay;    /* 0: live */
    uint16_t tries;     /* failed ones, this one included (FAIL) */
    int64_t due_ms;     /* FAIL with DELAYED */
    uint64_t watermark; /* DONE, SETTLE of what lives in the views: how far all was settled; 0 */
    size_t members;     /* DONE, MOVE: reached since the last delivery_record */
    const char *reason; /* FAIL, PARK; static */
    char detail[DELIVERY_DETAIL_MAX];
    bool key_is_free; /* out: it has a key, and no open row of its lane and key is left */
};

/* Writes all of them, in order. `epoch`: of the views that the cursors belong to. */
enum err delivery_store_write(struct tx *tx, struct delivery_record *records, size_t n,
                              uint64_t epoch, int64_t now_ms);

/* A row that is due: what is needed to try it again. */
struct claim {
    uint64_t delivery;
    struct event event; /* lifted to the present version */
    char consumer[40];
    enum lane lane; /* its rule's own */
    uint64_t order_key;
    struct audience_cursor cursor;
    uint64_t until;
    uint64_t replay;
    uint16_t tries;
    bool forced; /* its last reason was an unknown outcome: an operator ordered this one try */
};

/* Claims at most `max` rows that are due (delayed, or retrying whose claim has ended), the longest
 * due first: they are retrying from now on, until now + lease_ms. A row whose positions belong to
 * another epoch begins its part of the audience anew; other open rows of the same walk and of
 * another epoch are done with it (they are closed as done). A row that can no longer be read is
 * parked. Fewer than `max` may come although more are due: ask delivery_store_next_due. */
enum err delivery_store_claim(struct tx *tx, uint64_t epoch, int64_t now_ms, int64_t lease_ms,
                              struct claim *out, size_t max, size_t *n);
/* A claim that no worker can try (its consumer has no rule any more): delayed or retrying → dead.
 */
enum err delivery_store_bury(struct tx *tx, uint64_t delivery, const char *reason, int64_t now_ms);
/* After a restart: whatever was retrying is due now. */
enum err delivery_store_reopen(struct tx *tx, int64_t now_ms);
/* After a restart with views that were saved at `position`: deliveries that succeeded too late for
 * that save, though their events lie at or below it, are recorded again, and released events are
 * pending again. In slices; *more: call again. */
enum err delivery_store_redo_lost(struct tx *tx, uint64_t position, int64_t now_ms, bool *more);
/* When the next row is due (ms); INT64_MAX: none. */
enum err delivery_store_next_due(struct tx *tx, int64_t *due_ms);

/* Order keys with open rows, by rising (lane, key) above the given ones: for the start. */
struct open_key {
    enum lane lane;
    uint64_t key;
};
enum err delivery_store_open_keys(struct tx *tx, struct open_key after, struct open_key *out,
                                  size_t max, size_t *n);
/* The first open row of an order key, which the others wait behind. ERR_NOT_FOUND: it has none. */
struct key_head {
    uint64_t delivery, event;
    enum delivery_state state;
    char reason[DELIVERY_REASON_MAX];
};
enum err delivery_store_key_head(struct tx *tx, struct str lane, uint64_t key,
                                 struct key_head *out);
/* Which of these events' live deliveries are in the delivery store, in any state but done: for
 * events that are delivered again after a restart. Rising by event, then consumer; each pair once,
 * though it may stand for a single page of a walk. */
struct recorded {
    uint64_t event;
    char consumer[40];
};
enum err delivery_store_of_events(struct tx *tx, uint64_t first, uint64_t last,
                                  struct recorded *out, size_t max, size_t *n);

/* ---- counts: constant time, whatever the table holds ---- */

struct delivery_count {
    char consumer[40];
    char type[40];
    char lane[16];
    uint64_t states[DELIVERY_STATES];
    /* Event ids of the oldest delayed or retrying row, and of the oldest waiting one; 0: none. What
     * waits is behind one that is delayed or dead. */
    uint64_t oldest_open, oldest_waiting;
};
/* One row for each consumer × type × lane that ever had a row; at most `max`. */
enum err delivery_store_count(struct tx *tx, struct delivery_count *out, size_t max, size_t *n);

/* ---- for operators ---- */

/* Empty fields match everything. */
struct delivery_filter {
    enum delivery_state state; /* 0: any */
    uint64_t delivery, event;  /* 0: any */
    uint64_t key;              /* the event's actor; 0: any */
    struct str reason, consumer, type;
};

struct delivery_row {
    uint64_t delivery, event_id;
    struct str type, payload, consumer, lane, reason, detail, history;
    int64_t version;
    enum delivery_state state;
    uint64_t order_key, after, until, members, replay;
    uint16_t part, tries;
    int64_t due_ms, opened_ms, changed_ms;
};
/* Visits rows by falling id below `below` (UINT64_MAX: from the newest), at most `limit`, and looks
 * at no more than 50,000 that the filter's row, event, or state and reason select: when it ended
 * for that, *go_on_below is where to go on, else 0. Slices are valid during the call. */
enum err delivery_store_list(struct tx *tx, const struct delivery_filter *filter, uint64_t below,
                             size_t limit, void (*visit)(void *ctx, const struct delivery_row *row),
                             void *ctx, uint64_t *go_on_below);

struct delivery_group {
    enum delivery_state state;
    char reason[DELIVERY_REASON_MAX], consumer[40], type[40];
    uint64_t count, oldest_event, newest_event;
};
/* Dead and parked rows by state, reason, consumer and type; the largest groups first. */
enum err delivery_store_group(struct tx *tx, struct delivery_group *out, size_t max, size_t *n);

struct delivery_slice {
    uint64_t after;   /* in and out: rows above this id; begin with 0 */
    size_t max;       /* rows looked at, at most */
    uint64_t changed; /* out */
    bool end;         /* out: there are no more */
};
/* Dead rows that match go back to delayed with no tries counted, the i-th due at
 * start_ms + i × 1000 / rate (rate 0: all at start_ms). Of an ordered key only the first becomes
 * delayed, the others wait and keep their times for when their turn comes. `done_before`: how many
 * earlier slices of this re-drive changed, for the spacing. */
enum err delivery_store_redrive(struct tx *tx, const struct delivery_filter *filter,
                                struct delivery_slice *slice, int64_t start_ms, int64_t rate,
                                uint64_t done_before, int64_t now_ms);
/* Dead, delayed or waiting rows that match are given up, with why; their keys go on. Parked ones,
 * too, when the filter names that state or the row: their outbox rows are settled then. */
enum err delivery_store_discard(struct tx *tx, const struct delivery_filter *filter,
                                struct delivery_slice *slice, struct str why, int64_t now_ms);
/* Parked events that match, and that this program can read now, are released: their outbox rows are
 * pending again. A parked delivery (its row names a consumer) is delayed again, due now.
 * `slice->changed` counts both. */
enum err delivery_store_release(struct tx *tx, const struct delivery_filter *filter,
                                struct delivery_slice *slice, int64_t now_ms);

/* Removes at most `max` closed rows that were closed before, and dead or parked rows that were
 * opened before; 0: never. Removing a dead row lets its key go on, removing a parked event settles
 * its outbox row. *removed < max: nothing is left to
 * remove now. */
enum err delivery_store_clean(struct tx *tx, int64_t closed_before_ms, int64_t dead_before_ms,
                              size_t max, int64_t now_ms, size_t *removed);
