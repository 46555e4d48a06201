/* The delivery store for operators: lists, groups, re-drives, discards, releases, and cleaning up.
 *
 * A filter is served by one of a few statements, chosen by the field that narrows most: the row,
 * the event, state and reason, the state, or none. The rest of the filter is looked at here, row by
 * row, within the number of rows that the call may look at; so a filter never costs more than its
 * slice, whatever the table holds.
 *
 * What changes rows first reads a few into memory and then changes them: a statement that walks an
 * index must not meet its own changes. */
#include "base/check.h"
#include "pipe/delivery_ledger.h"

enum { CHUNK = 64, LIST_LOOK_MAX = 50000 };

/* ---- finding rows ---- */

#define ROW_COLUMNS                                                                                \
    ENTRY_COLUMNS ", version, payload, detail, history, part, tries, after, until, members, "      \
                  "replay, due_at, opened_at, changed_at"

#define DOWN(where)                                                                                \
    "SELECT " ROW_COLUMNS " FROM deliveries WHERE " where "id < $1 ORDER BY id DESC LIMIT $2"
#define UP(where)                                                                                  \
    "SELECT " ROW_COLUMNS " FROM deliveries WHERE " where "id > $1 ORDER BY id LIMIT $2"

/* Rows beyond `bound` in one direction that may match, at most `max`. Each statement repeats the
 * condition of the partial index that serves it; the states that come and go fastest have small
 * indexes of their own, which the planner cannot mistake for the timers'. */
static enum err query_rows(struct tx *tx, const struct delivery_filter *f, bool down,
                           uint64_t bound, size_t max, struct db_rows *rows)
{
    struct db_value edge = DB_I64(bound > INT64_MAX ? INT64_MAX : bound);
    struct db_value limit = DB_I64(max);
    if (f->delivery)
        return tx_query(tx, down ? DOWN("id = $3 AND ") : UP("id = $3 AND "),
                        DB_ARGS(edge, limit, DB_I64(f->delivery)), rows);
    if (f->event)
        return tx_query(tx, down ? DOWN("event_id = $3 AND ") : UP("event_id = $3 AND "),
                        DB_ARGS(edge, limit, DB_I64(f->event)), rows);
    if (f->reason.len && (f->state == DELIVERY_DEAD || f->state == DELIVERY_PARKED))
        return tx_query(tx,
                        down ? DOWN("state IN (4, 8) AND state = $3 AND reason = $4 AND ")
                             : UP("state IN (4, 8) AND state = $3 AND reason = $4 AND "),
                        DB_ARGS(edge, limit, DB_I64(f->state), DB_TEXT(f->reason)), rows);
    if (f->state == DELIVERY_DELAYED)
        return tx_query(tx, down ? DOWN("state = 1 AND ") : UP("state = 1 AND "),
                        DB_ARGS(edge, limit), rows);
    if (f->state == DELIVERY_RETRYING)
        return tx_query(tx, down ? DOWN("state = 2 AND ") : UP("state = 2 AND "),
                        DB_ARGS(edge, limit), rows);
    if (f->state)
        return tx_query(tx,
                        down ? DOWN("state >= 3 AND state = $3 AND ")
                             : UP("state >= 3 AND state = $3 AND "),
                        DB_ARGS(edge, limit, DB_I64(f->state)), rows);
    return tx_query(tx, down ? DOWN("") : UP(""), DB_ARGS(edge, limit), rows);
}

static bool text_matches(struct str wanted, struct str text)
{
    return wanted.len == 0 || str_eq(wanted, text);
}

static bool row_matches(struct db_rows *rows, const struct delivery_filter *f)
{
    if ((f->state && db_i64(rows, 3) != (int64_t)f->state) ||
        (f->delivery && db_id(rows, 0) != f->delivery) || (f->event && db_id(rows, 1) != f->event))
        return false;
    if (!text_matches(f->consumer, db_text(rows, 4)) || !text_matches(f->type, db_text(rows, 5)) ||
        !text_matches(f->reason, db_text(rows, 7)))
        return false;
    if (f->key == 0)
        return true;
    /* Who acted is in the payload; of an event that nobody can read, nobody knows. */
    struct event event;
    return event_read(db_id(rows, 1), db_text(rows, 5), db_i64(rows, 8), db_text(rows, 9),
                      &event) == EVENT_READ &&
           event.actor == f->key;
}

static void read_row(struct db_rows *rows, struct delivery_row *out)
{
    enum { AT = ENTRY_COLUMN_COUNT };
    *out = (struct delivery_row){
        .delivery = db_id(rows, 0),
        .event_id = db_id(rows, 1),
        .order_key = db_id(rows, 2),
        .state = (enum delivery_state)db_i64(rows, 3),
        .consumer = db_text(rows, 4),
        .type = db_text(rows, 5),
        .lane = db_text(rows, 6),
        .reason = db_text(rows, 7),
        .version = db_i64(rows, AT),
        .payload = db_text(rows, AT + 1),
        .detail = db_text(rows, AT + 2),
        .history = db_text(rows, AT + 3),
        .part = (uint16_t)db_i64(rows, AT + 4),
        .tries = (uint16_t)db_i64(rows, AT + 5),
        .after = db_id(rows, AT + 6),
        .until = db_id(rows, AT + 7),
        .members = db_id(rows, AT + 8),
        .replay = db_id(rows, AT + 9),
        .due_ms = db_i64(rows, AT + 10),
        .opened_ms = db_i64(rows, AT + 11),
        .changed_ms = db_i64(rows, AT + 12),
    };
}

enum err delivery_store_list(struct tx *tx, const struct delivery_filter *filter, uint64_t below,
                             size_t limit, void (*visit)(void *ctx, const struct delivery_row *row),
                             void *ctx, uint64_t *go_on_below)
{
    struct db_rows rows;
    size_t n = 0, looked = 0;
    uint64_t last = 0;
    *go_on_below = 0;
    enum err e = query_rows(tx, filter, true, below, LIST_LOOK_MAX, &rows);
    if (e)
        return e;
    for (; n < limit && db_next(&rows); looked++) {
        last = db_id(&rows, 0);
        if (!row_matches(&rows, filter))
            continue;
        struct delivery_row row;
        read_row(&rows, &row);
        visit(ctx, &row);
        n++;
    }
    e = db_rows_done(&rows);
    if (!e && n < limit && looked == LIST_LOOK_MAX)
        *go_on_below = last;
    return e;
}

/* ---- groups ---- */

#define OF_GROUP                                                                                   \
    "SELECT event_id FROM deliveries WHERE state IN (4, 8) AND state = $1 AND reason = $2 "        \
    "AND consumer = $3 AND type = $4 ORDER BY event_id "

static enum err find_edges(struct tx *tx, struct delivery_group *g)
{
    int64_t oldest = 0, newest = 0;
    enum err e = tx_get_i64(tx, OF_GROUP "LIMIT 1",
                            DB_ARGS(DB_I64(g->state), DB_TEXT(str_of(g->reason)),
                                    DB_TEXT(str_of(g->consumer)), DB_TEXT(str_of(g->type))),
                            &oldest);
    if (!e)
        e = tx_get_i64(tx, OF_GROUP "DESC LIMIT 1",
                       DB_ARGS(DB_I64(g->state), DB_TEXT(str_of(g->reason)),
                               DB_TEXT(str_of(g->consumer)), DB_TEXT(str_of(g->type))),
                       &newest);
    g->oldest_event = (uint64_t)oldest;
    g->newest_event = (uint64_t)newest;
    return e == ERR_NOT_FOUND ? OK : e;
}

enum err delivery_store_group(struct tx *tx, struct delivery_group *out, size_t max, size_t *n)
{
    struct db_rows rows;
    *n = 0;
    enum err e = tx_query(tx,
                          "SELECT state, reason, consumer, type, CAST(sum(count) AS BIGINT) "
                          "FROM delivery_counts WHERE state IN (4, 8) AND count > 0 "
                          "GROUP BY state, reason, consumer, type "
                          "ORDER BY 5 DESC, state, reason, consumer, type LIMIT $1",
                          DB_ARGS(DB_I64(max)), &rows);
    if (e)
        return e;
    while (*n < max && db_next(&rows)) {
        struct delivery_group *g = &out[(*n)++];
        *g = (struct delivery_group){.state = (enum delivery_state)db_i64(&rows, 0),
                                     .count = (uint64_t)db_i64(&rows, 4)};
        entry_text(g->reason, sizeof g->reason, db_text(&rows, 1));
        entry_text(g->consumer, sizeof g->consumer, db_text(&rows, 2));
        entry_text(g->type, sizeof g->type, db_text(&rows, 3));
    }
    e = db_rows_done(&rows);
    for (size_t i = 0; i < *n && !e; i++)
        e = find_edges(tx, &out[i]);
    return e;
}

/* ---- slices ---- */

struct scan {
    struct tx *tx;
    struct delivery_filter filter;
    struct delivery_slice *slice;
    size_t looked;
    struct entry found[CHUNK];
    size_t n;
};

static void scan_begin(struct scan *s, struct tx *tx, const struct delivery_filter *filter,
                       struct delivery_slice *slice)
{
    s->tx = tx;
    s->filter = *filter;
    s->slice = slice;
    s->looked = 0;
    slice->changed = 0;
    slice->end = false;
}

/* The next matching rows; false when the slice is over. */
static bool scan_next(struct scan *s, enum err *e)
{
    struct delivery_slice *slice = s->slice;
    size_t left = slice->max - s->looked, looked = 0;
    if (*e || slice->end || left == 0)
        return false;
    size_t most = left < CHUNK ? left : CHUNK;
    struct db_rows rows;
    *e = query_rows(s->tx, &s->filter, false, slice->after, most, &rows);
    if (*e)
        return false;
    s->n = 0;
    while (looked < most && db_next(&rows)) {
        looked++;
        slice->after = db_id(&rows, 0);
        if (row_matches(&rows, &s->filter))
            entry_read(&rows, &s->found[s->n++]);
    }
    *e = db_rows_done(&rows);
    s->looked += looked;
    slice->end = looked < most;
    return *e == OK;
}

/* A filter for rows of one state, where the caller may have said another: then there are none. */
static bool narrow(struct scan *s, enum delivery_state state)
{
    if (s->filter.state && s->filter.state != state) {
        s->slice->end = true;
        return false;
    }
    s->filter.state = state;
    return true;
}

enum err delivery_store_redrive(struct tx *tx, const struct delivery_filter *filter,
                                struct delivery_slice *slice, int64_t start_ms, int64_t rate,
                                uint64_t done_before, int64_t now_ms)
{
    struct ledger l;
    struct scan s;
    enum err e = OK;
    ledger_begin(&l, tx, now_ms);
    scan_begin(&s, tx, filter, slice);
    if (!narrow(&s, DELIVERY_DEAD))
        return OK;
    while (scan_next(&s, &e)) {
        for (size_t i = 0; i < s.n && !e; i++) {
            uint64_t place = done_before + slice->changed++;
            int64_t due_ms = start_ms;
            if (rate > 0) /* without a product that could overflow */
                due_ms += (int64_t)(place / (uint64_t)rate * 1000 +
                                    place % (uint64_t)rate * 1000 / (uint64_t)rate);
            e = tx_exec(tx,
                        "UPDATE deliveries SET state = 1, tries = 0, due_at = $2, changed_at = $3 "
                        "WHERE id = $1",
                        DB_ARGS(DB_I64(s.found[i].id), DB_I64(due_ms), DB_I64(now_ms)), NULL);
            if (!e)
                e = ledger_changed(&l, &s.found[i], DELIVERY_DELAYED, s.found[i].reason);
        }
    }
    return e ? e : ledger_end(&l);
}

/* What is parked is given up only when it is meant: by its state, or by its id. */
static bool may_discard(const struct scan *s, enum delivery_state state)
{
    if (state == DELIVERY_PARKED)
        return s->filter.state == DELIVERY_PARKED || s->filter.delivery != 0;
    return state == DELIVERY_DEAD || state == DELIVERY_DELAYED || state == DELIVERY_WAITING;
}

static enum err discard(struct ledger *l, const struct entry *entry, struct str why)
{
    enum err e = tx_exec(l->tx,
                         "UPDATE deliveries SET state = 6, detail = $2, changed_at = $3 "
                         "WHERE id = $1",
                         DB_ARGS(DB_I64(entry->id), DB_TEXT(why), DB_I64(l->now_ms)), NULL);
    if (!e)
        e = ledger_changed(l, entry, DELIVERY_DISCARDED, entry->reason);
    if (!e && entry->state == DELIVERY_PARKED && entry->consumer[0] == '\0')
        e = ledger_settle_event(l, entry->event, OUTBOX_PARKED);
    return e;
}

enum err delivery_store_discard(struct tx *tx, const struct delivery_filter *filter,
                                struct delivery_slice *slice, struct str why, int64_t now_ms)
{
    struct ledger l;
    struct scan s;
    enum err e = OK;
    ledger_begin(&l, tx, now_ms);
    scan_begin(&s, tx, filter, slice);
    while (scan_next(&s, &e)) {
        for (size_t i = 0; i < s.n && !e; i++) {
            if (!may_discard(&s, s.found[i].state))
                continue;
            e = discard(&l, &s.found[i], why);
            slice->changed++;
        }
    }
    return e ? e : ledger_end(&l);
}

/* ---- releasing ---- */

/* A parked event goes back to the outbox, whence the relay takes it; a parked delivery of one
 * consumer is due again by itself, since its event was delivered to the others long ago. */
static enum err release(struct ledger *l, const struct entry *entry)
{
    enum delivery_state to = entry->consumer[0] ? DELIVERY_DELAYED : DELIVERY_RELEASED;
    enum err e = OK;
    if (to == DELIVERY_RELEASED)
        e = tx_exec(l->tx,
                    "INSERT INTO outbox (id, type, version, payload, state) "
                    "SELECT event_id, type, version, payload, 0 FROM deliveries WHERE id = $1 "
                    "ON CONFLICT (id) DO UPDATE SET state = 0",
                    DB_ARGS(DB_I64(entry->id)), NULL);
    if (!e)
        e = tx_exec(l->tx,
                    "UPDATE deliveries SET state = $2, due_at = $3, changed_at = $3 WHERE id = $1",
                    DB_ARGS(DB_I64(entry->id), DB_I64(to), DB_I64(l->now_ms)), NULL);
    return e ? e : ledger_changed(l, entry, to, entry->reason);
}

static enum err can_be_read(struct tx *tx, const struct entry *entry, bool *can)
{
    struct db_rows rows;
    struct event event;
    enum err e = tx_query(tx, "SELECT type, version, payload FROM deliveries WHERE id = $1",
                          DB_ARGS(DB_I64(entry->id)), &rows);
    if (e)
        return e;
    *can = db_next(&rows) && event_read(entry->event, db_text(&rows, 0), db_i64(&rows, 1),
                                        db_text(&rows, 2), &event) == EVENT_READ;
    return db_rows_done(&rows);
}

enum err delivery_store_release(struct tx *tx, const struct delivery_filter *filter,
                                struct delivery_slice *slice, int64_t now_ms)
{
    struct ledger l;
    struct scan s;
    enum err e = OK;
    ledger_begin(&l, tx, now_ms);
    scan_begin(&s, tx, filter, slice);
    if (!narrow(&s, DELIVERY_PARKED))
        return OK;
    while (scan_next(&s, &e)) {
        for (size_t i = 0; i < s.n && !e; i++) {
            bool can;
            e = can_be_read(tx, &s.found[i], &can);
            if (e || !can)
                continue;
            e = release(&l, &s.found[i]);
            slice->changed++;
        }
    }
    return e ? e : ledger_end(&l);
}

/* ---- cleaning ---- */

static enum err query_old(struct tx *tx, enum delivery_state dead, int64_t before_ms, size_t max,
                          struct db_rows *rows)
{
    if (dead)
        return tx_query(tx,
                        "SELECT " ENTRY_COLUMNS " FROM deliveries WHERE state IN (4, 8) "
                        "AND state = $3 AND opened_at < $1 ORDER BY opened_at LIMIT $2",
                        DB_ARGS(DB_I64(before_ms), DB_I64(max), DB_I64(dead)), rows);
    return tx_query(tx,
                    "SELECT " ENTRY_COLUMNS " FROM deliveries WHERE state IN (5, 6, 7, 9) "
                    "AND changed_at < $1 ORDER BY changed_at LIMIT $2",
                    DB_ARGS(DB_I64(before_ms), DB_I64(max)), rows);
}

/* `dead`: dead or parked; 0: the closed ones. */
static enum err clean(struct ledger *l, enum delivery_state dead, int64_t before_ms, size_t max,
                      size_t *removed)
{
    struct entry entries[CHUNK];
    size_t n, most;
    if (before_ms <= 0)
        return OK;
    do {
        struct db_rows rows;
        most = max - *removed < CHUNK ? max - *removed : CHUNK;
        n = 0;
        enum err e = query_old(l->tx, dead, before_ms, most, &rows);
        if (e)
            return e;
        while (n < most && db_next(&rows))
            entry_read(&rows, &entries[n++]);
        e = db_rows_done(&rows);
        for (size_t i = 0; i < n && !e; i++) {
            e = ledger_remove(l, &entries[i]);
            /* Its outbox row is nobody's concern any more: it may be trimmed like any other. */
            if (!e && entries[i].state == DELIVERY_PARKED && entries[i].consumer[0] == '\0')
                e = ledger_settle_event(l, entries[i].event, OUTBOX_PARKED);
        }
        if (e)
            return e;
        *removed += n;
    } while (n == CHUNK && *removed < max);
    return OK;
}

enum err delivery_store_clean(struct tx *tx, int64_t closed_before_ms, int64_t dead_before_ms,
                              size_t max, int64_t now_ms, size_t *removed)
{
    struct ledger l;
    *removed = 0;
    ledger_begin(&l, tx, now_ms);
    enum err e = clean(&l, (enum delivery_state)0, closed_before_ms, max, removed);
    if (!e)
        e = clean(&l, DELIVERY_DEAD, dead_before_ms, max, removed);
    if (!e)
        e = clean(&l, DELIVERY_PARKED, dead_before_ms, max, removed);
    return e ? e : ledger_end(&l);
}
