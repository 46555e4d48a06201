/* The ledger of one call: counts, and the order of keys.
 *
 * The counts of the table `delivery_counts` are sums that every transaction corrects by what it
 * changed. Corrections of one call meet in few cells (consumer × type × lane × state, and the
 * reason where rows are grouped by it), so a batch of 512 failures writes a handful of count rows.
 *
 * Order: of the open rows of one (lane, order_key), by (event, row id), only the first may be
 * tried. Rather than have each transition know its neighbours, each transition touches its key, and
 * order_key() then looks at the key as a whole, in constant time by two indexes: the first row, and
 * the row that has the turn (is delayed or retrying). Doing so twice changes nothing, so a full
 * list of keys is simply processed early.
 *
 * The one exception to "only the first": a row that is being retried keeps its turn when a lower
 * event of its key is recorded meanwhile, as a replay may do. Two tries of one key at the same time
 * would be worse than one more try out of order; when the try ends the lower event has its turn. */
#include "pipe/delivery_ledger.h"

#include "base/check.h"

void entry_read(struct db_rows *rows, void *entry)
{
    struct entry *out = entry;
    out->id = db_id(rows, 0);
    out->event = db_id(rows, 1);
    out->order_key = db_id(rows, 2);
    out->state = (enum delivery_state)db_i64(rows, 3);
    str_copy(out->consumer, sizeof out->consumer, db_text(rows, 4));
    str_copy(out->type, sizeof out->type, db_text(rows, 5));
    str_copy(out->lane, sizeof out->lane, db_text(rows, 6));
    str_copy(out->reason, sizeof out->reason, db_text(rows, 7));
}

/* ---- whole rows ---- */

void stored_read(struct db_rows *rows, void *stored)
{
    enum { AT = ENTRY_COLUMN_COUNT };
    struct stored *s = stored;
    entry_read(rows, &s->entry);
    s->cursor = (struct audience_cursor){.part = (enum audience_part)db_i64(rows, AT),
                                         .active_since_ms = db_i64(rows, AT + 1),
                                         .started_ms = db_i64(rows, AT + 2),
                                         .after = db_id(rows, AT + 3)};
    s->until = db_id(rows, AT + 4);
    s->epoch = db_id(rows, AT + 5);
    s->replay = db_id(rows, AT + 6);
    s->tries = (uint16_t)db_i64(rows, AT + 7);
    s->due_ms = db_i64(rows, AT + 8);
    s->unread = event_read(s->entry.event, db_text(rows, 5), db_i64(rows, AT + 9),
                           db_text(rows, AT + 10), &s->event);
    struct str history = db_text(rows, AT + 11);
    /* A longer one was not written by us. */
    str_copy(s->history, HISTORY_MAX, history.len < HISTORY_MAX ? history : STR(""));
}

enum err stored_find(struct tx *tx, uint64_t event, const char *consumer, unsigned part,
                     uint64_t after, uint64_t replay, struct stored *out)
{
    return tx_get_row(tx,
                      "SELECT " STORED_COLUMNS " FROM deliveries WHERE event_id = $1 "
                      "AND consumer = $2 AND part = $3 AND after = $4 AND replay = $5",
                      DB_ARGS(DB_I64(event), DB_TEXT(str_of(consumer)), DB_I64(part), DB_I64(after),
                              DB_I64(replay)),
                      stored_read, out);
}

/* -1 is a place that no page has, for one statement while two rows change places. */
enum err stored_give_place(struct tx *tx, const struct stored *s, uint64_t other)
{
    TRY(tx_exec(tx, "UPDATE deliveries SET after = -1 WHERE id = $1", DB_ARGS(DB_I64(s->entry.id)),
                NULL));
    return tx_exec(tx, "UPDATE deliveries SET part = $2, after = $3 WHERE id = $1",
                   DB_ARGS(DB_I64(other), DB_I64(s->cursor.part), DB_I64(s->cursor.after)), NULL);
}

/* ---- counts ---- */

void ledger_begin(struct ledger *l, struct tx *tx, int64_t now_ms)
{
    l->tx = tx;
    l->now_ms = now_ms;
    l->cell_count = l->key_count = 0;
}

static enum err write_cells(struct ledger *l)
{
    enum err e = OK;
    for (size_t i = 0; i < l->cell_count && !e; i++) {
        const struct ledger_cell *c = &l->cells[i];
        if (c->delta == 0)
            continue;
        e = tx_exec(l->tx,
                    "INSERT INTO delivery_counts (consumer, type, lane, state, reason, count) "
                    "VALUES ($1, $2, $3, $4, $5, $6) "
                    "ON CONFLICT (consumer, type, lane, state, reason) "
                    "DO UPDATE SET count = delivery_counts.count + excluded.count",
                    DB_ARGS(DB_TEXT(str_of(c->consumer)), DB_TEXT(str_of(c->type)),
                            DB_TEXT(str_of(c->lane)), DB_I64(c->state), DB_TEXT(str_of(c->reason)),
                            DB_I64(c->delta)),
                    NULL);
    }
    l->cell_count = 0;
    return e;
}

static bool cell_is(const struct ledger_cell *c, const struct entry *e, enum delivery_state state,
                    const char *reason)
{
    return c->state == state && strcmp(c->consumer, e->consumer) == 0 &&
           strcmp(c->type, e->type) == 0 && strcmp(c->lane, e->lane) == 0 &&
           strcmp(c->reason, reason) == 0;
}

static enum err count(struct ledger *l, const struct entry *e, enum delivery_state state,
                      const char *reason, int64_t delta)
{
    if (state != DELIVERY_DEAD && state != DELIVERY_PARKED)
        reason = "";
    for (size_t i = 0; i < l->cell_count; i++) {
        if (cell_is(&l->cells[i], e, state, reason)) {
            l->cells[i].delta += delta;
            return OK;
        }
    }
    if (l->cell_count == LEDGER_CELLS) {
        enum err error = write_cells(l);
        if (error)
            return error;
    }
    struct ledger_cell *c = &l->cells[l->cell_count++];
    memcpy(c->consumer, e->consumer, sizeof c->consumer);
    memcpy(c->type, e->type, sizeof c->type);
    memcpy(c->lane, e->lane, sizeof c->lane);
    str_copy(c->reason, sizeof c->reason, str_of(reason));
    c->state = state;
    c->delta = delta;
    return OK;
}

/* ---- order ---- */

#define OF_KEY "FROM deliveries WHERE lane = $1 AND order_key = $2 AND order_key <> 0 "

enum err ledger_key_is_open(struct tx *tx, const char *lane, uint64_t key, bool *open)
{
    int64_t id;
    enum err e = tx_get_i64(tx, "SELECT id " OF_KEY "AND state <= 4 LIMIT 1",
                            DB_ARGS(DB_TEXT(str_of(lane)), DB_I64(key)), &id);
    *open = e == OK;
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err give_turn(struct ledger *l, const struct entry *e, enum delivery_state to)
{
    /* A row that had a time of its own (a retry, a re-drive at a rate) keeps it. */
    enum err error = tx_exec(l->tx,
                             "UPDATE deliveries SET state = $2, changed_at = $3, "
                             "due_at = CASE WHEN due_at > $3 THEN due_at ELSE $3 END WHERE id = $1",
                             DB_ARGS(DB_I64(e->id), DB_I64(to), DB_I64(l->now_ms)), NULL);
    if (!error)
        error = count(l, e, e->state, e->reason, -1);
    return error ? error : count(l, e, to, e->reason, 1);
}

/* Takes the turn from all but the first that are delayed; *busy: one is being retried. At most one
 * row more than the call changed has a turn. */
static enum err take_turns(struct ledger *l, const struct ledger_key *k, uint64_t first, bool *busy)
{
    struct entry holders[8];
    size_t n, taken;
    *busy = false;
    do {
        taken = 0;
        /* Retrying ones come first. */
        enum err e = ENTRIES_GET(l->tx,
                                 "SELECT " ENTRY_COLUMNS " " OF_KEY "AND state IN (1, 2) "
                                 "AND (state = 2 OR id <> $3) ORDER BY state DESC LIMIT 8",
                                 DB_ARGS(DB_TEXT(str_of(k->lane)), DB_I64(k->key), DB_I64(first)),
                                 holders, COUNT_OF(holders), &n);
        for (size_t i = 0; i < n && !e; i++) {
            if (holders[i].state == DELIVERY_RETRYING) {
                *busy = true;
                continue;
            }
            e = give_turn(l, &holders[i], DELIVERY_WAITING);
            taken++;
        }
        if (e)
            return e;
    } while (n == COUNT_OF(holders) && taken > 0);
    return OK;
}

static enum err order_key(struct ledger *l, const struct ledger_key *k)
{
    struct entry first;
    bool busy;
    enum err e = tx_get_row(l->tx,
                            "SELECT " ENTRY_COLUMNS " " OF_KEY "AND state <= 4 "
                            "ORDER BY event_id, id LIMIT 1",
                            DB_ARGS(DB_TEXT(str_of(k->lane)), DB_I64(k->key)), entry_read, &first);
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    TRY(take_turns(l, k, first.id, &busy));
    if (busy && first.state == DELIVERY_DELAYED)
        return give_turn(l, &first, DELIVERY_WAITING);
    if (!busy && first.state == DELIVERY_WAITING)
        return give_turn(l, &first, DELIVERY_DELAYED);
    return OK;
}

static enum err order_keys(struct ledger *l)
{
    enum err e = OK;
    for (size_t i = 0; i < l->key_count && !e; i++)
        e = order_key(l, &l->keys[i]);
    l->key_count = 0;
    return e;
}

static enum err touch(struct ledger *l, const struct entry *e)
{
    if (e->order_key == 0)
        return OK;
    for (size_t i = l->key_count; i-- > 0;)
        if (l->keys[i].key == e->order_key && strcmp(l->keys[i].lane, e->lane) == 0)
            return OK;
    if (l->key_count == LEDGER_KEYS) {
        enum err error = order_keys(l);
        if (error)
            return error;
    }
    struct ledger_key *k = &l->keys[l->key_count++];
    memcpy(k->lane, e->lane, sizeof k->lane);
    k->key = e->order_key;
    return OK;
}

/* ---- what happened to rows ---- */

enum err ledger_end(struct ledger *l)
{
    TRY(order_keys(l));
    return write_cells(l);
}

enum err ledger_added(struct ledger *l, const struct entry *e)
{
    enum err error = count(l, e, e->state, e->reason, 1);
    return error ? error : touch(l, e);
}

enum err ledger_changed(struct ledger *l, const struct entry *e, enum delivery_state to,
                        const char *reason)
{
    CHECK(!state_is_closed(e->state));
    enum err error = count(l, e, e->state, e->reason, -1);
    if (!error)
        error = count(l, e, to, reason, 1);
    /* Beginning a try changes nothing for the others of its key. */
    return error || to == DELIVERY_RETRYING ? error : touch(l, e);
}

enum err ledger_change(struct ledger *l, const struct entry *e, struct row_change c)
{
    enum err error = tx_exec(
        l->tx,
        "UPDATE deliveries SET state = $2, changed_at = $3, reason = COALESCE($4, reason), "
        "detail = COALESCE($5, detail), due_at = COALESCE($6, due_at), "
        "tries = COALESCE($7, tries), members = members + $8 WHERE id = $1",
        DB_ARGS(DB_I64(e->id), DB_I64(c.to), DB_I64(l->now_ms), DB_TEXT_OR_NULL(str_of(c.reason)),
                DB_TEXT_OR_NULL(c.detail), c.due_ms ? DB_I64(c.due_ms) : DB_NULL,
                c.untried ? DB_I64(0) : DB_NULL, DB_I64(c.members)),
        NULL);
    return error ? error : ledger_changed(l, e, c.to, c.reason ? c.reason : e->reason);
}

enum err ledger_remove(struct ledger *l, const struct entry *e)
{
    enum err error =
        tx_exec(l->tx, "DELETE FROM deliveries WHERE id = $1", DB_ARGS(DB_I64(e->id)), NULL);
    if (!error)
        error = count(l, e, e->state, e->reason, -1);
    return error ? error : touch(l, e);
}

/* ---- the outbox row of an event ---- */

enum err ledger_unpark_event(struct tx *tx, uint64_t delivery)
{
    return tx_exec(tx,
                   "INSERT INTO outbox (id, type, version, payload, state) "
                   "SELECT event_id, type, version, payload, 0 FROM deliveries WHERE id = $1 "
                   "ON CONFLICT (id) DO UPDATE SET state = 0",
                   DB_ARGS(DB_I64(delivery)), NULL);
}

static void read_type(struct db_rows *rows, void *out)
{
    str_copy(out, LEDGER_TYPE_MAX * 2, db_text(rows, 0));
}

enum err ledger_settle_event(struct ledger *l, uint64_t event, enum outbox_state from)
{
    char type[LEDGER_TYPE_MAX * 2];
    enum err e =
        tx_get_row(l->tx, "UPDATE outbox SET state = 1 WHERE id = $1 AND state = $2 RETURNING type",
                   DB_ARGS(DB_I64(event), DB_I64(from)), read_type, type);
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    return outbox_count(l->tx, str_of(type), "settled", 1);
}
