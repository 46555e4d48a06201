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

struct due {
    struct entry entry;
    struct event event;
    enum event_unread unread;
    struct audience_cursor cursor;
    uint64_t until, epoch, replay;
    uint16_t tries;
    bool covered; /* by another one of its walk that was claimed before it */
};

static void read_due(struct db_rows *rows, struct due *d)
{
    enum { AT = ENTRY_COLUMN_COUNT };
    entry_read(rows, &d->entry);
    d->cursor = (struct audience_cursor){.part = (enum audience_part)db_i64(rows, AT),
                                         .active_since_ms = db_i64(rows, AT + 1),
                                         .started_ms = db_i64(rows, AT + 2),
                                         .after = db_id(rows, AT + 3)};
    d->until = db_id(rows, AT + 4);
    d->epoch = db_id(rows, AT + 5);
    d->replay = db_id(rows, AT + 6);
    d->tries = (uint16_t)db_i64(rows, AT + 7);
    d->unread = event_read(d->entry.event, db_text(rows, 5), db_i64(rows, AT + 8),
                           db_text(rows, AT + 9), &d->event);
    d->covered = false;
}

static enum err query_due(struct tx *tx, int64_t now_ms, struct due *out, size_t max, size_t *n)
{
    struct db_rows rows;
    *n = 0;
    enum err e = tx_query(tx,
                          "SELECT " ENTRY_COLUMNS ", part, active_since, started, after, until, "
                          "epoch, replay, tries, version, payload FROM deliveries "
                          "WHERE state IN (1, 2) AND due_at <= $1 ORDER BY due_at, id LIMIT $2",
                          DB_ARGS(DB_I64(now_ms), DB_I64(max)), &rows);
    if (e)
        return e;
    while (*n < max && db_next(&rows))
        read_due(&rows, &out[(*n)++]);
    return db_rows_done(&rows);
}

static enum err set_state(struct ledger *l, const struct entry *entry, enum delivery_state to,
                          const char *reason)
{
    enum err e = tx_exec(
        l->tx,
        "UPDATE deliveries SET state = $2, reason = $3, changed_at = $4 "
        "WHERE id = $1",
        DB_ARGS(DB_I64(entry->id), DB_I64(to), DB_TEXT(str_of(reason)), DB_I64(l->now_ms)), NULL);
    return e ? e : ledger_changed(l, entry, to, reason);
}

/* ---- another epoch ---- */

static enum err query_walk(struct tx *tx, const struct due *d, uint64_t epoch, struct entry *out,
                           size_t *n)
{
    struct db_rows rows;
    *n = 0;
    enum err e = tx_query(tx,
                          "SELECT " ENTRY_COLUMNS " FROM deliveries WHERE event_id = $1 "
                          "AND consumer = $2 AND part = $3 AND replay = $4 AND epoch <> $5 "
                          "AND id <> $6 AND state <= 4 LIMIT 16",
                          DB_ARGS(DB_I64(d->entry.event), DB_TEXT(str_of(d->entry.consumer)),
                                  DB_I64(d->cursor.part), DB_I64(d->replay), DB_I64(epoch),
                                  DB_I64(d->entry.id)),
                          &rows);
    if (e)
        return e;
    while (*n < WALK_ROWS && db_next(&rows))
        entry_read(&rows, &out[(*n)++]);
    return db_rows_done(&rows);
}

static void mark_covered(struct due *list, size_t n, uint64_t id)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].entry.id == id)
            list[i].covered = true;
}

static enum err find_beginning(struct tx *tx, const struct due *d, struct entry *out,
                               uint64_t *epoch)
{
    struct db_rows rows;
    out->id = 0;
    enum err e = tx_query(tx,
                          "SELECT " ENTRY_COLUMNS ", epoch FROM deliveries WHERE event_id = $1 "
                          "AND consumer = $2 AND part = $3 AND after = 0 AND replay = $4",
                          DB_ARGS(DB_I64(d->entry.event), DB_TEXT(str_of(d->entry.consumer)),
                                  DB_I64(d->cursor.part), DB_I64(d->replay)),
                          &rows);
    if (e)
        return e;
    if (db_next(&rows)) {
        entry_read(&rows, out);
        *epoch = db_id(&rows, ENTRY_COLUMN_COUNT);
    }
    return db_rows_done(&rows);
}

/* The row at the beginning and the one that begins there now change places. */
static enum err change_places(struct ledger *l, const struct due *d, const struct entry *other)
{
    enum err e = tx_exec(l->tx, "UPDATE deliveries SET after = -1 WHERE id = $1",
                         DB_ARGS(DB_I64(d->entry.id)), NULL);
    if (!e)
        e = tx_exec(l->tx, "UPDATE deliveries SET after = $2 WHERE id = $1",
                    DB_ARGS(DB_I64(other->id), DB_I64(d->cursor.after)), NULL);
    return e;
}

/* Whoever stands at the beginning of the walk is in the way. A row of this epoch that is going to
 * be tried, or is being tried, takes the whole walk over (*over): two walks of the same people
 * would be one too many. Any other is covered by the one that begins. */
static enum err clear_beginning(struct ledger *l, const struct due *d, uint64_t epoch,
                                struct due *rest, size_t rest_count, bool *over)
{
    struct entry other;
    uint64_t other_epoch = 0;
    *over = false;
    if (d->cursor.after == 0)
        return OK;
    enum err e = find_beginning(l->tx, d, &other, &other_epoch);
    if (e || other.id == 0)
        return e;
    if (other_epoch == epoch && state_is_open(other.state) && other.state != DELIVERY_DEAD) {
        *over = true;
        for (size_t i = 0; i < rest_count; i++)
            if (rest[i].entry.id == other.id)
                rest[i].until = 0;
        e = tx_exec(l->tx, "UPDATE deliveries SET until = 0 WHERE id = $1",
                    DB_ARGS(DB_I64(other.id)), NULL);
        return e ? e : ledger_close(l, &d->entry, DELIVERY_DONE, 0);
    }
    if (!state_is_closed(other.state))
        e = ledger_close(l, &other, DELIVERY_DONE, 0);
    return e ? e : change_places(l, d, &other);
}

/* `rest`: what this call has still to look at. *over: another row has it all. */
static enum err begin_anew(struct ledger *l, struct due *d, uint64_t epoch, struct due *rest,
                           size_t rest_count, bool *over)
{
    struct entry others[WALK_ROWS];
    size_t n;
    do {
        enum err e = query_walk(l->tx, d, epoch, others, &n);
        for (size_t i = 0; i < n && !e; i++) {
            e = ledger_close(l, &others[i], DELIVERY_DONE, 0);
            mark_covered(rest, rest_count, others[i].id);
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

static enum err claim_row(struct ledger *l, const struct due *d, enum lane lane, int64_t lease_ms,
                          struct claim *out)
{
    bool forced = strcmp(d->entry.reason, err_name(ERR_UNKNOWN_COMMIT)) == 0;
    enum err e = tx_exec(
        l->tx, "UPDATE deliveries SET state = 2, due_at = $2, changed_at = $3 WHERE id = $1",
        DB_ARGS(DB_I64(d->entry.id), DB_I64(l->now_ms + lease_ms), DB_I64(l->now_ms)), NULL);
    /* The operator's order is for one try: after a crash in the middle of it nobody knows again. */
    if (!e && forced)
        e = tx_exec(l->tx, "UPDATE deliveries SET reason = 'FORCED' WHERE id = $1",
                    DB_ARGS(DB_I64(d->entry.id)), NULL);
    if (!e)
        e = ledger_changed(l, &d->entry, DELIVERY_RETRYING, d->entry.reason);
    if (e)
        return e;
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
    return OK;
}

static enum err claim_chunk(struct ledger *l, struct due *due, size_t count, uint64_t epoch,
                            int64_t lease_ms, struct claim *out, size_t *n)
{
    for (size_t i = 0; i < count; i++) {
        struct due *d = &due[i];
        enum lane lane;
        enum err e;
        if (d->covered)
            continue;
        if (d->unread != EVENT_READ) {
            e = set_state(l, &d->entry, DELIVERY_PARKED, event_unread_name(d->unread));
        } else if (!lane_parse(str_of(d->entry.lane), &lane)) {
            e = set_state(l, &d->entry, DELIVERY_DEAD, "UNKNOWN_LANE");
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
    struct due due[CHUNK];
    size_t looked = 0, count = CHUNK;
    enum err e = OK;
    *n = 0;
    ledger_begin(&l, tx, now_ms);
    while (!e && looked < max && count == CHUNK) {
        size_t room = max - looked < CHUNK ? max - looked : CHUNK;
        e = query_due(tx, now_ms, due, room, &count);
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
    struct entry entry = {0};
    struct db_rows rows;
    ledger_begin(&l, tx, now_ms);
    enum err e = tx_query(tx,
                          "SELECT " ENTRY_COLUMNS " FROM deliveries WHERE id = $1 "
                          "AND state IN (1, 2)",
                          DB_ARGS(DB_I64(delivery)), &rows);
    if (e)
        return e;
    if (db_next(&rows))
        entry_read(&rows, &entry);
    e = db_rows_done(&rows);
    if (e || entry.id == 0)
        return e;
    e = set_state(&l, &entry, DELIVERY_DEAD, reason);
    return e ? e : ledger_end(&l);
}

/* ---- the start ---- */

enum err delivery_store_reopen(struct tx *tx, int64_t now_ms)
{
    struct ledger l;
    struct entry entries[CHUNK];
    size_t n;
    ledger_begin(&l, tx, now_ms);
    do {
        struct db_rows rows;
        n = 0;
        enum err e = tx_query(tx,
                              "SELECT " ENTRY_COLUMNS " FROM deliveries WHERE state = 2 "
                              "ORDER BY id LIMIT $1",
                              DB_ARGS(DB_I64(CHUNK)), &rows);
        if (e)
            return e;
        while (n < CHUNK && db_next(&rows))
            entry_read(&rows, &entries[n++]);
        e = db_rows_done(&rows);
        for (size_t i = 0; i < n && !e; i++) {
            e = tx_exec(tx,
                        "UPDATE deliveries SET state = 1, due_at = $2, changed_at = $2 "
                        "WHERE id = $1",
                        DB_ARGS(DB_I64(entries[i].id), DB_I64(now_ms)), NULL);
            if (!e)
                e = ledger_changed(&l, &entries[i], DELIVERY_DELAYED, entries[i].reason);
        }
        if (e)
            return e;
    } while (n == CHUNK);
    return ledger_end(&l);
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

enum err delivery_store_of_events(struct tx *tx, uint64_t first, uint64_t last,
                                  struct recorded *out, size_t max, size_t *n)
{
    struct db_rows rows;
    *n = 0;
    enum err e = tx_query(tx,
                          "SELECT DISTINCT event_id, consumer FROM deliveries "
                          "WHERE event_id >= $1 AND event_id <= $2 AND state <> 5 AND replay = 0 "
                          "ORDER BY event_id, consumer LIMIT $3",
                          DB_ARGS(DB_I64(first), DB_I64(last), DB_I64(max)), &rows);
    if (e)
        return e;
    while (*n < max && db_next(&rows)) {
        struct recorded *b = &out[(*n)++];
        struct str consumer = db_text(&rows, 1);
        b->event = db_id(&rows, 0);
        size_t length = consumer.len < sizeof b->consumer ? consumer.len : sizeof b->consumer - 1;
        memcpy(b->consumer, consumer.ptr, length);
        b->consumer[length] = '\0';
    }
    return db_rows_done(&rows);
}
