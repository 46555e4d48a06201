/* Keeps the counts, and the turn of each order key, in agreement with the rows of the delivery
 * store. Internal to the delivery_*.c files.
 *
 * A call in the delivery store opens a ledger, reports every row that it adds, changes or removes,
 * and ends it. The ledger adds the count changes up in memory and writes each once; and it notes
 * the order keys that were touched and puts each of them in order once, at the end. */
#pragma once

#include "pipe/outbox.h"

enum {
    LEDGER_CELLS = 32,
    LEDGER_KEYS = 64,
    LEDGER_TYPE_MAX = 40,
    LEDGER_LANE_MAX = 16,
    HISTORY_LINE_MAX = 24 + DELIVERY_REASON_MAX,
    HISTORY_MAX = DELIVERY_HISTORY_TRIES * HISTORY_LINE_MAX,
};

/* Who a row is: as much of it as counting and ordering need. */
struct entry {
    uint64_t id, event, order_key;
    enum delivery_state state;
    char consumer[40];
    char type[LEDGER_TYPE_MAX];
    char lane[LEDGER_LANE_MAX]; /* "": a parked event's */
    char reason[DELIVERY_REASON_MAX];
};

/* The first columns of a query whose rows entry_read takes. */
#define ENTRY_COLUMNS "id, event_id, order_key, state, consumer, type, lane, reason"
enum { ENTRY_COLUMN_COUNT = 8 };
void entry_read(struct db_rows *rows, void *entry);
/* Reads at most `max` rows by a statement whose columns are ENTRY_COLUMNS. */
#define ENTRIES_GET(tx, sql, args, out, max, n)                                                    \
    tx_get_rows(tx, sql, args, entry_read, out, sizeof(struct entry), max, n)

/* A row as a whole. */
struct stored {
    struct entry entry;
    struct audience_cursor cursor;
    uint64_t until, epoch, replay;
    uint16_t tries;
    int64_t due_ms;
    enum event_unread unread;
    struct event event; /* when it can be read */
    char history[HISTORY_MAX];
};
#define STORED_COLUMNS                                                                             \
    ENTRY_COLUMNS ", part, active_since, started, after, until, epoch, replay, tries, due_at, "    \
                  "version, payload, history"
void stored_read(struct db_rows *rows, void *stored);
/* The row of a page. ERR_NOT_FOUND: it has none. */
enum err stored_find(struct tx *tx, uint64_t event, const char *consumer, unsigned part,
                     uint64_t after, uint64_t replay, struct stored *out);
/* Two rows of one walk change places: the other gets `s`'s, and the caller writes `s` to its own
 * next. */
enum err stored_give_place(struct tx *tx, const struct stored *s, uint64_t other);

static inline bool state_is_open(enum delivery_state state)
{
    return state >= DELIVERY_DELAYED && state <= DELIVERY_DEAD;
}
static inline bool state_is_closed(enum delivery_state state)
{
    return state == DELIVERY_DONE || state == DELIVERY_DISCARDED || state == DELIVERY_DROPPED ||
           state == DELIVERY_RELEASED;
}

struct ledger_cell {
    char consumer[40], type[LEDGER_TYPE_MAX], lane[LEDGER_LANE_MAX], reason[DELIVERY_REASON_MAX];
    enum delivery_state state;
    int64_t delta;
};

struct ledger_key {
    char lane[LEDGER_LANE_MAX];
    uint64_t key;
};

struct ledger {
    struct tx *tx;
    int64_t now_ms;
    size_t cell_count, key_count;
    struct ledger_cell cells[LEDGER_CELLS];
    struct ledger_key keys[LEDGER_KEYS];
};

void ledger_begin(struct ledger *l, struct tx *tx, int64_t now_ms);
enum err ledger_end(struct ledger *l);

enum err ledger_added(struct ledger *l, const struct entry *e);
/* `e` as it was; `reason` is what the row has now. */
enum err ledger_changed(struct ledger *l, const struct entry *e, enum delivery_state to,
                        const char *reason);

/* A row comes to another state, in the table and in the ledger. What is not said stays. */
struct row_change {
    enum delivery_state to;
    const char *reason;
    struct str detail;
    int64_t due_ms;
    bool untried;   /* its tries count anew */
    size_t members; /* reached, in addition */
};
enum err ledger_change(struct ledger *l, const struct entry *e, struct row_change change);
/* Takes a row out of the table, and out of the ledger. */
enum err ledger_remove(struct ledger *l, const struct entry *e);

/* The event of a parked row is pending in the outbox, whether its row is still there or not. */
enum err ledger_unpark_event(struct tx *tx, uint64_t delivery);
/* The outbox row becomes settled when it has the state `from`, and counts as such. */
enum err ledger_settle_event(struct ledger *l, uint64_t event, enum outbox_state from);

/* Is any row of the lane and key open? */
enum err ledger_key_is_open(struct tx *tx, const char *lane, uint64_t key, bool *open);
