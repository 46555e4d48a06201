/* The ledger of one call: counts, and the order of keys.
 *
 * The counts of the table `delivery_counts` are sums that every transaction corrects by what it
 * changed. Corrections of one call meet in few cells (consumer × type × lane × state, and the
 * reason where rows are grouped by it), so a batch of 512 failures writes a handful of count rows.
 *
 * Order: of the open rows of one (lane, order_key), by (event, row id), only the first may be
 * tried. Rather than have each transition know its neighbours, each transition touches its key, and
 * order_key() then looks at the key as a whole, in constant time by two indexes: who is first, and
 * who holds the turn (is delayed or retrying). Doing so twice changes nothing, so a full list of
 * keys is simply worked off early.
 *
 * The one exception to "only the first": a row that is being retried keeps its turn when a lower
 * event of its key is recorded meanwhile, as a replay may do. Two tries of one key at the same time
 * would be worse than one more try out of order; when the try ends the lower event has its turn. */
#include "pipe/delivery_ledger.h"

#include "base/check.h"

void entry_text(char *to, size_t size, struct str from)
{
    size_t n = from.len < size ? from.len : size - 1;
    if (n)
        memcpy(to, from.ptr, n);
    to[n] = '\0';
}

void entry_read(struct db_rows *rows, struct entry *out)
{
    out->id = db_id(rows, 0);
    out->event = db_id(rows, 1);
    out->order_key = db_id(rows, 2);
    out->state = (enum delivery_state)db_i64(rows, 3);
    entry_text(out->consumer, sizeof out->consumer, db_text(rows, 4));
    entry_text(out->type, sizeof out->type, db_text(rows, 5));
    entry_text(out->lane, sizeof out->lane, db_text(rows, 6));
    entry_text(out->reason, sizeof out->reason, db_text(rows, 7));
}

void ledger_begin(struct ledger *l, struct tx *tx, int64_t now_ms)
{
    l->tx = tx;
    l->now_ms = now_ms;
    l->cell_count = l->key_count = 0;
}

/* ---- counts ---- */

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
    entry_text(c->reason, sizeof c->reason, str_of(reason));
    c->state = state;
    c->delta = delta;
    return OK;
}

/* ---- order ---- */

#define OF_KEY "FROM deliveries WHERE lane = $1 AND order_key = $2 AND order_key <> 0 "

static enum err query_first(struct tx *tx, const struct ledger_key *k, struct entry *first)
{
    struct db_rows rows;
    enum err e = tx_query(tx,
                          "SELECT " ENTRY_COLUMNS " " OF_KEY "AND state <= 4 "
                          "ORDER BY event_id, id LIMIT 1",
                          DB_ARGS(DB_TEXT(str_of(k->lane)), DB_I64(k->key)), &rows);
    if (e)
        return e;
    first->id = 0;
    if (db_next(&rows))
        entry_read(&rows, first);
    return db_rows_done(&rows);
}

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
        struct db_rows rows;
        n = taken = 0;
        /* Retrying ones come first. */
        enum err e =
            tx_query(l->tx,
                     "SELECT " ENTRY_COLUMNS " " OF_KEY "AND state IN (1, 2) "
                     "AND (state = 2 OR id <> $3) ORDER BY state DESC LIMIT 8",
                     DB_ARGS(DB_TEXT(str_of(k->lane)), DB_I64(k->key), DB_I64(first)), &rows);
        if (e)
            return e;
        while (n < COUNT_OF(holders) && db_next(&rows))
            entry_read(&rows, &holders[n++]);
        e = db_rows_done(&rows);
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
    enum err e = query_first(l->tx, k, &first);
    if (e || first.id == 0)
        return e;
    e = take_turns(l, k, first.id, &busy);
    if (e)
        return e;
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
    enum err e = order_keys(l);
    return e ? e : write_cells(l);
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

enum err ledger_removed(struct ledger *l, const struct entry *e)
{
    enum err error = count(l, e, e->state, e->reason, -1);
    return error ? error : touch(l, e);
}

enum err ledger_close(struct ledger *l, const struct entry *e, enum delivery_state as,
                      size_t members)
{
    CHECK(state_is_closed(as));
    enum err error =
        tx_exec(l->tx,
                "UPDATE deliveries SET state = $2, changed_at = $3, members = members + $4 "
                "WHERE id = $1",
                DB_ARGS(DB_I64(e->id), DB_I64(as), DB_I64(l->now_ms), DB_I64(members)), NULL);
    return error ? error : ledger_changed(l, e, as, e->reason);
}

enum err ledger_remove(struct ledger *l, const struct entry *e)
{
    enum err error =
        tx_exec(l->tx, "DELETE FROM deliveries WHERE id = $1", DB_ARGS(DB_I64(e->id)), NULL);
    return error ? error : ledger_removed(l, e);
}

/* ---- the outbox row of an event ---- */

enum err ledger_settle_event(struct ledger *l, uint64_t event, int from)
{
    struct db_rows rows;
    char type[LEDGER_TYPE_MAX * 2] = "";
    bool changed = false;
    enum err e =
        tx_query(l->tx, "UPDATE outbox SET state = 1 WHERE id = $1 AND state = $2 RETURNING type",
                 DB_ARGS(DB_I64(event), DB_I64(from)), &rows);
    if (e)
        return e;
    if (db_next(&rows)) {
        changed = true;
        entry_text(type, sizeof type, db_text(&rows, 0));
    }
    e = db_rows_done(&rows);
    if (e || !changed)
        return e;
    return tx_exec(l->tx,
                   "INSERT INTO event_counts (type, state, count) VALUES ($1, 'settled', 1) "
                   "ON CONFLICT (type, state) DO UPDATE SET count = event_counts.count + 1",
                   DB_ARGS(DB_TEXT(str_of(type))), NULL);
}
