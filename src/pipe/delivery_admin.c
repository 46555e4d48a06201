/* The delivery store for operators: lists, counts, groups, re-drives, discards, releases, and
 * cleaning up.
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

#define SEEK(down, where)                                                                          \
    ((down) ? "SELECT " ROW_COLUMNS " FROM deliveries WHERE " where                                \
              "id < $1 ORDER BY id DESC LIMIT $2"                                                  \
            : "SELECT " ROW_COLUMNS " FROM deliveries WHERE " where                                \
              "id > $1 ORDER BY id LIMIT $2")

/* Rows beyond `bound` in one direction that may match, at most `max`. Each statement repeats the
 * condition of the partial index that serves it; the states that come and go fastest have small
 * indexes of their own, which the planner cannot mistake for the timers'. */
static enum err query_rows(struct tx *tx, const struct delivery_filter *f, bool down,
                           uint64_t bound, size_t max, struct db_rows *rows)
{
    struct db_value edge = DB_BELOW(bound), limit = DB_I64(max), state = DB_I64(f->state);
    if (f->delivery)
        return tx_query(tx, SEEK(down, "id = $3 AND "), DB_ARGS(edge, limit, DB_I64(f->delivery)),
                        rows);
    if (f->event)
        return tx_query(tx, SEEK(down, "event_id = $3 AND "),
                        DB_ARGS(edge, limit, DB_I64(f->event)), rows);
    if (f->reason.len && (f->state == DELIVERY_DEAD || f->state == DELIVERY_PARKED))
        return tx_query(tx, SEEK(down, "state IN (4, 8) AND state = $3 AND reason = $4 AND "),
                        DB_ARGS(edge, limit, state, DB_TEXT(f->reason)), rows);
    if (f->state == DELIVERY_DELAYED)
        return tx_query(tx, SEEK(down, "state = 1 AND "), DB_ARGS(edge, limit), rows);
    if (f->state == DELIVERY_RETRYING)
        return tx_query(tx, SEEK(down, "state = 2 AND "), DB_ARGS(edge, limit), rows);
    if (f->state)
        return tx_query(tx, SEEK(down, "state >= 3 AND state = $3 AND "),
                        DB_ARGS(edge, limit, state), rows);
    return tx_query(tx, SEEK(down, ""), DB_ARGS(edge, limit), rows);
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
    /* The actor is in the payload: an unreadable event has none that we know. */
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
    TRY(query_rows(tx, filter, true, below, LIST_LOOK_MAX, &rows));
    for (; n < limit && db_next(&rows); looked++) {
        last = db_id(&rows, 0);
        if (!row_matches(&rows, filter))
            continue;
        struct delivery_row row;
        read_row(&rows, &row);
        visit(ctx, &row);
        n++;
    }
    enum err e = db_rows_done(&rows);
    if (!e && n < limit && looked == LIST_LOOK_MAX)
        *go_on_below = last;
    return e;
}

/* ---- counts ---- */

/* States, and the reasons of those that have some. */
enum { ROWS_PER_CELL = 4 * DELIVERY_STATES };

static bool is_same(const struct delivery_count *c, struct db_rows *rows)
{
    return str_eq(str_of(c->consumer), db_text(rows, 0)) &&
           str_eq(str_of(c->type), db_text(rows, 1)) && str_eq(str_of(c->lane), db_text(rows, 2));
}

static enum err read_counts(struct tx *tx, struct delivery_count *out, size_t max, size_t *n)
{
    *n = 0;
    struct db_rows rows = tx_rows(tx,
                                  "SELECT consumer, type, lane, state, count FROM delivery_counts "
                                  "ORDER BY consumer, type, lane, state, reason LIMIT $1",
                                  DB_ARGS(DB_I64(max * ROWS_PER_CELL)));
    while (db_next(&rows)) {
        if (*n == 0 || !is_same(&out[*n - 1], &rows)) {
            if (*n == max)
                break;
            struct delivery_count *c = &out[(*n)++];
            *c = (struct delivery_count){0};
            str_copy(c->consumer, sizeof c->consumer, db_text(&rows, 0));
            str_copy(c->type, sizeof c->type, db_text(&rows, 1));
            str_copy(c->lane, sizeof c->lane, db_text(&rows, 2));
        }
        int64_t state = db_i64(&rows, 3);
        if (state > 0 && state < DELIVERY_STATES)
            out[*n - 1].states[state] += db_id(&rows, 4);
    }
    return db_rows_done(&rows);
}

#define OLDEST_IN(states)                                                                          \
    "SELECT event_id FROM deliveries WHERE consumer = $1 AND type = $2 AND lane = $3 AND " states  \
    " ORDER BY event_id LIMIT 1"

static enum err find_oldest(struct tx *tx, const char *sql, const struct delivery_count *c,
                            uint64_t *event)
{
    int64_t oldest = 0;
    enum err e = tx_get_i64(
        tx, sql,
        DB_ARGS(DB_TEXT(str_of(c->consumer)), DB_TEXT(str_of(c->type)), DB_TEXT(str_of(c->lane))),
        &oldest);
    *event = (uint64_t)oldest;
    return e == ERR_NOT_FOUND ? OK : e;
}

enum err delivery_store_count(struct tx *tx, struct delivery_count *out, size_t max, size_t *n)
{
    TRY(read_counts(tx, out, max, n));
    for (size_t i = 0; i < *n; i++) {
        struct delivery_count *c = &out[i];
        if (c->states[DELIVERY_DELAYED] + c->states[DELIVERY_RETRYING] > 0)
            TRY(find_oldest(tx, OLDEST_IN("state <= 2"), c, &c->oldest_open));
        if (c->states[DELIVERY_WAITING] > 0)
            TRY(find_oldest(tx, OLDEST_IN("state = 3"), c, &c->oldest_waiting));
    }
    return OK;
}

/* ---- groups ---- */

#define OF_GROUP                                                                                   \
    "SELECT event_id FROM deliveries WHERE state IN (4, 8) AND state = $1 AND reason = $2 "        \
    "AND consumer = $3 AND type = $4 ORDER BY event_id "

static enum err find_edges(struct tx *tx, struct delivery_group *g)
{
    const struct db_value of[] = {DB_I64(g->state), DB_TEXT(str_of(g->reason)),
                                  DB_TEXT(str_of(g->consumer)), DB_TEXT(str_of(g->type))};
    int64_t oldest = 0, newest = 0;
    enum err e = tx_get_i64(tx, OF_GROUP "LIMIT 1", of, COUNT_OF(of), &oldest);
    if (!e)
        e = tx_get_i64(tx, OF_GROUP "DESC LIMIT 1", of, COUNT_OF(of), &newest);
    g->oldest_event = (uint64_t)oldest;
    g->newest_event = (uint64_t)newest;
    return e == ERR_NOT_FOUND ? OK : e;
}

static void read_group(struct db_rows *rows, void *out)
{
    struct delivery_group *g = out;
    *g = (struct delivery_group){.state = (enum delivery_state)db_i64(rows, 0),
                                 .count = db_id(rows, 4)};
    str_copy(g->reason, sizeof g->reason, db_text(rows, 1));
    str_copy(g->consumer, sizeof g->consumer, db_text(rows, 2));
    str_copy(g->type, sizeof g->type, db_text(rows, 3));
}

enum err delivery_store_group(struct tx *tx, struct delivery_group *out, size_t max, size_t *n)
{
    TRY(tx_get_rows(tx,
                    "SELECT state, reason, consumer, type, CAST(sum(count) AS BIGINT) "
                    "FROM delivery_counts WHERE state IN (4, 8) AND count > 0 "
                    "GROUP BY state, reason, consumer, type "
                    "ORDER BY 5 DESC, state, reason, consumer, type LIMIT $1",
                    DB_ARGS(DB_I64(max)), read_group, out, sizeof *out, max, n));
    for (size_t i = 0; i < *n; i++)
        TRY(find_edges(tx, &out[i]));
    return OK;
}

/* ---- changing what matches ---- */

/* One call that changes the rows which match a filter. */
struct scan {
    struct ledger ledger;
    struct delivery_filter filter;
    struct delivery_slice *slice;
    size_t looked;
    struct entry found[CHUNK];
    size_t n;
    struct str why;          /* of a discard */
    int64_t start_ms, rate;  /* of a re-drive … */
    uint64_t changed_before; /* … by its earlier slices */
};

/* The next matching rows; false when the slice is over. */
static bool scan_next(struct scan *s, enum err *e)
{
    struct delivery_slice *slice = s->slice;
    size_t left = slice->max - s->looked, looked = 0;
    if (*e || slice->end || left == 0)
        return false;
    size_t most = left < CHUNK ? left : CHUNK;
    struct db_rows rows;
    *e = query_rows(s->ledger.tx, &s->filter, false, slice->after, most, &rows);
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

/* Calls `change` for the rows of the slice, of the state `only` (0: any). It changes the row and
 * counts it, or leaves it. */
static enum err scan(struct tx *tx, struct scan *s, enum delivery_state only, int64_t now_ms,
                     enum err (*change)(struct scan *s, const struct entry *entry))
{
    enum err e = OK;
    ledger_begin(&s->ledger, tx, now_ms);
    s->slice->changed = 0;
    s->slice->end = only && s->filter.state && s->filter.state != only; /* then there are none */
    s->filter.state = only ? only : s->filter.state;
    while (scan_next(s, &e))
        for (size_t i = 0; i < s->n && !e; i++)
            e = change(s, &s->found[i]);
    return e ? e : ledger_end(&s->ledger);
}

static enum err redrive(struct scan *s, const struct entry *entry)
{
    uint64_t place = s->changed_before + s->slice->changed++, rate = (uint64_t)s->rate;
    int64_t due_ms = s->start_ms;
    if (rate > 0) /* without a product that could overflow */
        due_ms += (int64_t)(place / rate * 1000 + place % rate * 1000 / rate);
    return ledger_change(
        &s->ledger, entry,
        (struct row_change){.to = DELIVERY_DELAYED, .due_ms = due_ms, .untried = true});
}

enum err delivery_store_redrive(struct tx *tx, const struct delivery_filter *filter,
                                struct delivery_slice *slice, int64_t start_ms, int64_t rate,
                                uint64_t done_before, int64_t now_ms)
{
    struct scan s = {.filter = *filter,
                     .slice = slice,
                     .start_ms = start_ms,
                     .rate = rate > 0 ? rate : 0,
                     .changed_before = done_before};
    return scan(tx, &s, DELIVERY_DEAD, now_ms, redrive);
}

/* Parked rows are discarded only when the filter names them: by state or by id. */
static bool may_discard(const struct scan *s, enum delivery_state state)
{
    if (state == DELIVERY_PARKED)
        return s->filter.state == DELIVERY_PARKED || s->filter.delivery != 0;
    return state == DELIVERY_DEAD || state == DELIVERY_DELAYED || state == DELIVERY_WAITING;
}

/* When a parked event is given up its outbox row may be trimmed like any other. */
static enum err settle_if_parked(struct ledger *l, const struct entry *entry)
{
    bool event = entry->state == DELIVERY_PARKED && entry->consumer[0] == '\0';
    return event ? ledger_settle_event(l, entry->event, OUTBOX_PARKED) : OK;
}

static enum err discard(struct scan *s, const struct entry *entry)
{
    if (!may_discard(s, entry->state))
        return OK;
    s->slice->changed++;
    TRY(ledger_change(&s->ledger, entry,
                      (struct row_change){.to = DELIVERY_DISCARDED, .detail = s->why}));
    return settle_if_parked(&s->ledger, entry);
}

enum err delivery_store_discard(struct tx *tx, const struct delivery_filter *filter,
                                struct delivery_slice *slice, struct str why, int64_t now_ms)
{
    struct scan s = {.filter = *filter, .slice = slice, .why = why};
    return scan(tx, &s, (enum delivery_state)0, now_ms, discard);
}

static void read_unread(struct db_rows *rows, void *out)
{
    struct event event;
    *(enum event_unread *)out =
        event_read(db_id(rows, 0), db_text(rows, 1), db_i64(rows, 2), db_text(rows, 3), &event);
}

/* A parked event goes back to the outbox, whence the relay takes it; a parked delivery of one
 * consumer is due again by itself, since its event was delivered to the others long ago. */
static enum err release(struct scan *s, const struct entry *entry)
{
    enum event_unread unread;
    enum err e = tx_get_row(s->ledger.tx,
                            "SELECT event_id, type, version, payload FROM deliveries WHERE id = $1",
                            DB_ARGS(DB_I64(entry->id)), read_unread, &unread);
    if (e || unread != EVENT_READ)
        return e;
    s->slice->changed++;
    enum delivery_state to = entry->consumer[0] ? DELIVERY_DELAYED : DELIVERY_RELEASED;
    if (to == DELIVERY_RELEASED)
        e = ledger_unpark_event(s->ledger.tx, entry->id);
    return e ? e
             : ledger_change(&s->ledger, entry,
                             (struct row_change){.to = to, .due_ms = s->ledger.now_ms});
}

enum err delivery_store_release(struct tx *tx, const struct delivery_filter *filter,
                                struct delivery_slice *slice, int64_t now_ms)
{
    struct scan s = {.filter = *filter, .slice = slice};
    return scan(tx, &s, DELIVERY_PARKED, now_ms, release);
}

/* ---- cleaning ---- */

/* `dead`: dead or parked; 0: the closed ones. */
static enum err clean(struct ledger *l, enum delivery_state dead, int64_t before_ms, size_t max,
                      size_t *removed)
{
    struct entry entries[CHUNK];
    size_t n = CHUNK;
    enum err e = OK;
    while (!e && before_ms > 0 && n == CHUNK && *removed < max) {
        size_t most = max - *removed < CHUNK ? max - *removed : CHUNK;
        e = dead ? ENTRIES_GET(l->tx,
                               "SELECT " ENTRY_COLUMNS " FROM deliveries WHERE state IN (4, 8) "
                               "AND state = $3 AND opened_at < $1 ORDER BY opened_at LIMIT $2",
                               DB_ARGS(DB_I64(before_ms), DB_I64(most), DB_I64(dead)), entries,
                               most, &n)
                 : ENTRIES_GET(l->tx,
                               "SELECT " ENTRY_COLUMNS " FROM deliveries "
                               "WHERE state IN (5, 6, 7, 9) AND changed_at < $1 "
                               "ORDER BY changed_at LIMIT $2",
                               DB_ARGS(DB_I64(before_ms), DB_I64(most)), entries, most, &n);
        for (size_t i = 0; i < n && !e; i++) {
            e = ledger_remove(l, &entries[i]);
            if (!e)
                e = settle_if_parked(l, &entries[i]);
        }
        *removed += e ? 0 : n;
    }
    return e;
}

enum err delivery_store_clean(struct tx *tx, int64_t closed_before_ms, int64_t dead_before_ms,
                              size_t max, int64_t now_ms, size_t *removed)
{
    struct ledger l;
    *removed = 0;
    ledger_begin(&l, tx, now_ms);
    TRY(clean(&l, (enum delivery_state)0, closed_before_ms, max, removed));
    TRY(clean(&l, DELIVERY_DEAD, dead_before_ms, max, removed));
    TRY(clean(&l, DELIVERY_PARKED, dead_before_ms, max, removed));
    return ledger_end(&l);
}
