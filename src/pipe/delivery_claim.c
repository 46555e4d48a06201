/* Claims: rows that are due go to the engine for their next try, and what it must know of the
 * delivery store when it starts.
 *
 * A claim is a state (retrying) with an end (due_at): a process that dies leaves rows that become
 * due again by themselves, or at once by delivery_store_reopen. So a restart neither loses nor
 * doubles a retry.
 *
 * A row whose positions belong to views of another epoch knows which part of the audience it was
 * for, but no longer how far it got. It begins that part anew; and as that covers every other open
 * row of the same walk whose positions are as old, those are done with it. */
#include "base/check.h"
#include "pipe/delivery_ledger.h"

enum { CHUNK = 64, WALK_ROWS = 16 };

/* ---- another epoch ---- */

static void forget(struct stored *list, size_t n, uint64_t id)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].entry.id == id)
            list[i].entry.id = 0;
}

/* The row at the beginning of the walk is in the way. One of this epoch that is going to be tried,
 * or is being tried, takes the whole walk over (*over): two walks of the same people would be one
 * too many. Any other is covered by the one that begins. */
static enum err clear_beginning(struct ledger *l, const struct stored *d, uint64_t epoch,
                                struct stored *rest, size_t rest_count, bool *over)
{
    static const struct row_change done = {.to = DELIVERY_DONE};
    struct stored other;
    *over = false;
    if (d->cursor.after == 0)
        return OK;
    enum err e =
        stored_find(l->tx, d->entry.event, d->entry.consumer, d->cursor.part, 0, d->replay, &other);
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    enum delivery_state state = other.entry.state;
    if (other.epoch == epoch && state_is_open(state) && state != DELIVERY_DEAD) {
        *over = true;
        for (size_t i = 0; i < rest_count; i++)
            if (rest[i].entry.id == other.entry.id)
                rest[i].until = 0;
        e = tx_exec(l->tx, "UPDATE deliveries SET until = 0 WHERE id = $1",
                    DB_ARGS(DB_I64(other.entry.id)), NULL);
        return e ? e : ledger_change(l, &d->entry, done);
    }
    if (!state_is_closed(state))
        e = ledger_change(l, &other.entry, done);
    return e ? e : stored_give_place(l->tx, d, other.entry.id);
}

/* `rest`: what this call has still to look at. *over: another row has it all. */
static enum err begin_anew(struct ledger *l, struct stored *d, uint64_t epoch, struct stored *rest,
                           size_t rest_count, bool *over)
{
    struct entry others[WALK_ROWS];
    size_t n;
    do {
        enum err e = ENTRIES_GET(l->tx,
                                 "SELECT " ENTRY_COLUMNS " FROM deliveries WHERE event_id = $1 "
                                 "AND consumer = $2 AND part = $3 AND replay = $4 AND epoch <> $5 "
                                 "AND id <> $6 AND state <= 4 LIMIT 16",
                                 DB_ARGS(DB_I64(d->entry.event), DB_TEXT(str_of(d->entry.consumer)),
                                         DB_I64(d->cursor.part), DB_I64(d->replay), DB_I64(epoch),
                                         DB_I64(d->entry.id)),
                                 others, WALK_ROWS, &n);
        for (size_t i = 0; i < n && !e; i++) {
            e = ledger_change(l, &others[i], (struct row_change){.to = DELIVERY_DONE});
            forget(rest, rest_count, others[i].id);
        }
        if (e)
            return e;
    } while (n == WALK_ROWS);
    enum err e = clear_beginning(l, d, epoch, rest, rest_count, over);
    if (e || *over)
        return e;
    d->cursor.after = 0;
    d->until = 0;
    return tx_exec(l->tx, "UPDATE deliveries SET after = 0, until = 0, epoch = $2 WHERE id = $1",
                   DB_ARGS(DB_I64(d->entry.id), DB_I64(epoch)), NULL);
}

/* ---- claiming ---- */

static enum err claim_row(struct ledger *l, const struct stored *d, enum lane lane,
                          int64_t lease_ms, struct claim *out)
{
    bool forced = strcmp(d->entry.reason, err_name(ERR_UNKNOWN_COMMIT)) == 0;
    *out = (struct claim){.delivery = d->entry.id,
                          .event = d->event,
                          .lane = lane,
                          .order_key = d->entry.order_key,
                          .cursor = d->cursor,
                          .until = d->until,
                          .replay = d->replay,
                          .tries = d->tries,
                          .forced = forced};
    memcpy(out->consumer, d->entry.consumer, sizeof out->consumer);
    /* The operator's order is for one try: after a crash in the middle of it the outcome is unknown
     * again. */
    return ledger_change(l, &d->entry,
                         (struct row_change){.to = DELIVERY_RETRYING,
                                             .due_ms = l->now_ms + lease_ms,
                                             .reason = forced ? "FORCED" : NULL});
}

static enum err claim_chunk(struct ledger *l, struct stored *due, size_t count, uint64_t epoch,
                            int64_t lease_ms, struct claim *out, size_t *n)
{
    for (size_t i = 0; i < count; i++) {
        struct stored *d = &due[i];
        enum lane lane;
        enum err e;
        if (d->entry.id == 0)
            continue; /* covered by another one of its walk */
        if (d->unread != EVENT_READ) {
            e = ledger_change(
                l, &d->entry,
                (struct row_change){.to = DELIVERY_PARKED, .reason = event_unread_name(d->unread)});
        } else if (!lane_parse(str_of(d->entry.lane), &lane)) {
            e = ledger_change(l, &d->entry,
                              (struct row_change){.to = DELIVERY_DEAD, .reason = "UNKNOWN_LANE"});
        } else {
            bool over = false;
            e = d->epoch == epoch ? OK : begin_anew(l, d, epoch, d + 1, count - i - 1, &over);
            if (!e && !over)
                e = claim_row(l, d, lane, lease_ms, &out[(*n)++]);
        }
        if (e)
            return e;
    }
    return OK;
}

enum err delivery_store_claim(struct tx *tx, uint64_t epoch, int64_t now_ms, int64_t lease_ms,
                              struct claim *out, size_t max, size_t *n)
{
    CHECK(lease_ms > 0);
    struct ledger l;
    struct stored due[CHUNK];
    size_t looked = 0, count = CHUNK;
    enum err e = OK;
    *n = 0;
    ledger_begin(&l, tx, now_ms);
    while (!e && looked < max && count == CHUNK) {
        size_t room = max - looked < CHUNK ? max - looked : CHUNK;
        e = tx_get_rows(tx,
                        "SELECT " STORED_COLUMNS " FROM deliveries "
                        "WHERE state IN (1, 2) AND due_at <= $1 ORDER BY due_at, id LIMIT $2",
                        DB_ARGS(DB_I64(now_ms), DB_I64(room)), stored_read, due, sizeof due[0],
                        room, &count);
        if (!e)
            e = claim_chunk(&l, due, count, epoch, lease_ms, out, n);
        looked += count;
    }
    return e ? e : ledger_end(&l);
}

enum err delivery_store_bury(struct tx *tx, uint64_t delivery, const char *reason, int64_t now_ms)
{
    CHECK(strlen(reason) < DELIVERY_REASON_MAX);
    struct ledger l;
    struct entry entry;
    ledger_begin(&l, tx, now_ms);
    enum err e = tx_get_row(tx,
                            "SELECT " ENTRY_COLUMNS " FROM deliveries WHERE id = $1 "
                            "AND state IN (1, 2)",
                            DB_ARGS(DB_I64(delivery)), entry_read, &entry);
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    TRY(ledger_change(&l, &entry, (struct row_change){.to = DELIVERY_DEAD, .reason = reason}));
    return ledger_end(&l);
}

/* ---- the start ---- */

enum err delivery_store_reopen(struct tx *tx, int64_t now_ms)
{
    struct ledger l;
    struct entry entries[CHUNK];
    size_t n = CHUNK;
    enum err e = OK;
    ledger_begin(&l, tx, now_ms);
    while (!e && n == CHUNK) {
        e = ENTRIES_GET(tx,
                        "SELECT " ENTRY_COLUMNS " FROM deliveries WHERE state = 2 "
                        "ORDER BY id LIMIT $1",
                        DB_ARGS(DB_I64(CHUNK)), entries, CHUNK, &n);
        for (size_t i = 0; i < n && !e; i++)
            e = ledger_change(&l, &entries[i],
                              (struct row_change){.to = DELIVERY_DELAYED, .due_ms = now_ms});
    }
    return e ? e : ledger_end(&l);
}

enum err delivery_store_next_due(struct tx *tx, int64_t *due_ms)
{
    enum err e = tx_get_i64(tx,
                            "SELECT due_at FROM deliveries WHERE state IN (1, 2) "
                            "ORDER BY due_at, id LIMIT 1",
                            DB_NO_ARGS, due_ms);
    if (e == ERR_NOT_FOUND)
        *due_ms = INT64_MAX;
    return e == ERR_NOT_FOUND ? OK : e;
}

/* One step from key to key, however many rows a key has. */
enum err delivery_store_open_keys(struct tx *tx, struct open_key after, struct open_key *out,
                                  size_t max, size_t *n)
{
    *n = 0;
    while (*n < max && after.lane < LANE_COUNT) {
        int64_t key;
        enum err e =
            tx_get_i64(tx,
                       "SELECT order_key FROM deliveries WHERE lane = $1 "
                       "AND order_key > $2 AND order_key <> 0 AND state <= 4 "
                       "ORDER BY order_key LIMIT 1",
                       DB_ARGS(DB_TEXT(str_of(lane_name(after.lane))), DB_I64(after.key)), &key);
        if (e == ERR_NOT_FOUND) {
            after = (struct open_key){.lane = (enum lane)(after.lane + 1)};
            continue;
        }
        if (e)
            return e;
        after.key = (uint64_t)key;
        out[(*n)++] = after;
    }
    return OK;
}

static void read_head(struct db_rows *rows, void *out)
{
    struct key_head *head = out;
    *head = (struct key_head){.delivery = db_id(rows, 0),
                              .event = db_id(rows, 1),
                              .state = (enum delivery_state)db_i64(rows, 2)};
    str_copy(head->reason, sizeof head->reason, db_text(rows, 3));
}

enum err delivery_store_key_head(struct tx *tx, struct str lane, uint64_t key, struct key_head *out)
{
    return tx_get_row(tx,
                      "SELECT id, event_id, state, reason FROM deliveries WHERE lane = $1 "
                      "AND order_key = $2 AND order_key <> 0 AND state <= 4 "
                      "ORDER BY event_id, id LIMIT 1",
                      DB_ARGS(DB_TEXT(lane), DB_I64(key)), read_head, out);
}

static void read_recorded(struct db_rows *rows, void *out)
{
    struct recorded *r = out;
    r->event = db_id(rows, 0);
    str_copy(r->consumer, sizeof r->consumer, db_text(rows, 1));
}

enum err delivery_store_of_events(struct tx *tx, uint64_t first, uint64_t last,
                                  struct recorded *out, size_t max, size_t *n)
{
    return tx_get_rows(tx,
                       "SELECT DISTINCT event_id, consumer FROM deliveries "
                       "WHERE event_id >= $1 AND event_id <= $2 AND state <> 5 AND replay = 0 "
                       "ORDER BY event_id, consumer LIMIT $3",
                       DB_ARGS(DB_I64(first), DB_I64(last), DB_I64(max)), read_recorded, out,
                       sizeof *out, max, n);
}
