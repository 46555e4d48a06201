/* What must agree with the rows of the delivery store: the counts, and whose turn it is in each
 * order key. Internal to the delivery_*.c files.
 *
 * A call in the delivery store opens a ledger, tells it of every row that it adds, changes or
 * removes, and ends it. The ledger adds the count changes up in memory and writes each once; and it
 * notes the order keys that were touched and puts each of them in order once, at the end. */
#pragma once

#include "pipe/delivery_store.h"

enum { LEDGER_CELLS = 32, LEDGER_KEYS = 64, LEDGER_TYPE_MAX = 40, LEDGER_LANE_MAX = 16 };

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
void entry_read(struct db_rows *rows, struct entry *out);
void entry_text(char *to, size_t size, struct str from); /* cut to fit, NUL-terminated */

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
enum err ledger_removed(struct ledger *l, const struct entry *e);

/* Ends a row, in the table and in the ledger. */
enum err ledger_close(struct ledger *l, const struct entry *e, enum delivery_state as,
                      size_t members);
/* Takes a row out of the table, and out of the ledger. */
enum err ledger_remove(struct ledger *l, const struct entry *e);

/* The outbox row becomes settled when it has the state `from`, and counts as such. */
enum err ledger_settle_event(struct ledger *l, uint64_t event, int from);

/* Is any row of the lane and key open? */
enum err ledger_key_is_open(struct tx *tx, const char *lane, uint64_t key, bool *open);

/* States of outbox rows. */
enum { OUTBOX_PENDING = 0, OUTBOX_SETTLED = 1, OUTBOX_PARKED = 2 };
