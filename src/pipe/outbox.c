/* All SQL of the outbox: the insert of a transaction's events, and what the engine does with them.
 * The watermark is text in `meta`, like every value
 * there.
 *
 * Rows are claimed by their state: what is pending and not yet in this
 * process's hands is taken, whatever its id. The index of pending rows makes
 * that as cheap as a position would be. */
#include "pipe/outbox.h"

#include "base/check.h"
#include "base/id.h"

/* ---- writing ---- */

enum { ROW_COLUMNS = 4, ROWS_AT_ONCE = 32 };

static const char insert_sql[] =
    "INSERT INTO outbox (id, type, version, payload) VALUES ($1, $2, $3, $4)";

/* At most ROWS_AT_ONCE of them. */
static enum err store(struct tx *tx, const struct event *events, size_t n)
{
    struct db_value rows[ROWS_AT_ONCE * ROW_COLUMNS];
    char memory[ROWS_AT_ONCE][EVENT_PAYLOAD_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct event *e = &events[i];
        if (event_keep(e->type) != EVENT_STORED)
            continue;
        struct buf payload = buf_over(memory[i], sizeof memory[i]);
        struct db_value *row = &rows[count++ * ROW_COLUMNS];
        event_payload(e, &payload);
        CHECK(!payload.failed);
        row[0] = DB_I64(e->id);
        row[1] = DB_TEXT(str_of(event_wire_name(e->type)));
        row[2] = DB_I64(e->version);
        row[3] = DB_TEXT(buf_view(&payload));
    }
    return tx_exec_each(tx, insert_sql, rows, ROW_COLUMNS, count);
}

enum err outbox_emit_all(struct tx *tx, struct event *events, size_t n)
{
    CHECK(tx->writable);
    for (size_t i = 0; i < n; i++) {
        CHECK(events[i].type < EVENT_TYPE_COUNT);
        if (!events[i].id)
            events[i].id = id_next(tx->ids);
        events[i].version = event_version(events[i].type);
    }
    for (size_t i = 0; i < n; i += ROWS_AT_ONCE)
        TRY(store(tx, &events[i], n - i < ROWS_AT_ONCE ? n - i : ROWS_AT_ONCE));
    for (size_t i = 0; i < n; i++) {
        if (!event_is_applied_by_data(events[i].type))
            events[i].data = (struct str){0}; /* it is in the row */
        event_list_add(&tx->events, &events[i]);
    }
    return OK;
}

enum err outbox_emit(struct tx *tx, struct event e)
{
    return outbox_emit_all(tx, &e, 1);
}

/* ---- reading ---- */

struct reading {
    enum outbox_read what;
    uint64_t after, through;
    size_t max;
    struct outbox_slice *out;
};

static void read_row(struct db_rows *rows, struct outbox_slice *out)
{
    struct event *event = &out->events[out->count];
    uint64_t id = db_id(rows, 0);
    enum event_unread unread =
        event_read_whole(id, db_text(rows, 1), db_i64(rows, 2), db_text(rows, 3), event);
    if (unread == EVENT_READ && event_is_applied_by_data(event->type) && event->data.len == 0)
        unread = EVENT_DAMAGED;
    if (unread != EVENT_READ) {
        *event = (struct event){.id = id, .type = OUTBOX_UNREADABLE, .value = (int64_t)unread};
    } else if (event_is_applied_by_data(event->type)) {
        char *memory = out->data[out->count];
        memcpy(memory, event->data.ptr, event->data.len);
        event->data.ptr = memory;
    } else {
        event->data = (struct str){0};
    }
    out->states[out->count++] = (enum outbox_state)db_i64(rows, 4);
}

static enum err run_read(struct tx *tx, void *arg)
{
    struct reading *r = arg;
    struct outbox_slice *out = r->out;
    static const char all[] = "SELECT id, type, version, payload, state FROM outbox "
                              "WHERE id > $1 AND id <= $2 AND state <> 2 ORDER BY id LIMIT $3";
    static const char pending[] = "SELECT id, type, version, payload, state FROM outbox "
                                  "WHERE state = 0 AND id > $1 AND id <= $2 ORDER BY id LIMIT $3";
    out->count = out->recorded_count = 0;
    struct db_rows rows = tx_rows(tx, r->what == OUTBOX_READ_AGAIN ? all : pending,
                                  DB_ARGS(DB_I64(r->after), DB_I64(r->through), DB_I64(r->max)));
    while (out->count < r->max && db_next(&rows))
        read_row(&rows, out);
    TRY(db_rows_done(&rows));
    if (r->what == OUTBOX_READ_PENDING || out->count == 0)
        return OK;
    return delivery_store_of_events(tx, out->events[0].id, out->events[out->count - 1].id,
                                    out->recorded, OUTBOX_RECORDED_MAX, &out->recorded_count);
}

enum err outbox_read(struct db *db, enum outbox_read what, uint64_t after, uint64_t through,
                     size_t max, struct outbox_slice *out)
{
    struct reading r = {what, after, through, max < OUTBOX_READ_MAX ? max : OUTBOX_READ_MAX, out};
    enum err e = db_read(db, run_read, &r, NULL);
    if (e)
        out->count = 0;
    return e;
}

/* ---- the start ---- */

struct looking {
    uint64_t position;
    struct outbox_found *out;
};

static enum err read_mark(struct tx *tx, uint64_t *watermark)
{
    *watermark = 0;
    struct db_rows rows =
        tx_rows(tx, "SELECT value FROM meta WHERE name = 'done_through'", DB_NO_ARGS);
    if (db_next(&rows) && !str_parse_u64(db_text(&rows, 0), watermark))
        *watermark = 0; /* from the very beginning: late is better than lost */
    return db_rows_done(&rows);
}

static enum err count_above(struct tx *tx, uint64_t start, struct outbox_found *out)
{
    struct db_rows rows = tx_rows(tx,
                                  "SELECT type, COUNT(*), MIN(id), MAX(id) FROM outbox "
                                  "WHERE id > $1 AND state <> 2 GROUP BY type",
                                  DB_ARGS(DB_I64(start)));
    while (db_next(&rows)) {
        enum event_type type;
        uint64_t first = db_id(&rows, 2), last = db_id(&rows, 3);
        if (event_type_parse(db_text(&rows, 0), &type))
            out->above[type] = (uint64_t)db_i64(&rows, 1);
        out->first = out->first == 0 || first < out->first ? first : out->first;
        out->last = last > out->last ? last : out->last;
    }
    return db_rows_done(&rows);
}

static enum err run_look(struct tx *tx, void *arg)
{
    struct looking *l = arg;
    *l->out = (struct outbox_found){0};
    TRY(read_mark(tx, &l->out->watermark));
    TRY(count_above(tx, l->position ? l->position : l->out->watermark, l->out));
    /* The watermark must be able to pass a parked event, too: that is where released ones are
     * found. */
    int64_t last;
    enum err e =
        tx_get_i64(tx, "SELECT id FROM outbox ORDER BY id DESC LIMIT 1", DB_NO_ARGS, &last);
    if (!e && (uint64_t)last > l->out->last)
        l->out->last = (uint64_t)last;
    return e == ERR_NOT_FOUND ? OK : e;
}

enum err outbox_look(struct db *db, uint64_t position, struct outbox_found *out)
{
    struct looking l = {.position = position, .out = out};
    return db_read(db, run_look, &l, NULL);
}

enum err outbox_waiting(struct tx *tx, uint64_t after, struct outbox_found *out)
{
    struct db_rows rows;
    *out = (struct outbox_found){0};
    enum err e = tx_query(tx,
                          "SELECT type, COUNT(*), MIN(id) FROM (SELECT type, id FROM outbox "
                          "WHERE state = 0 AND id > $1 ORDER BY id LIMIT $2) AS waiting "
                          "GROUP BY type",
                          DB_ARGS(DB_I64(after), DB_I64(OUTBOX_WAITING_MAX)), &rows);
    while (!e && db_next(&rows)) {
        enum event_type type;
        uint64_t first = db_id(&rows, 2);
        if (event_type_parse(db_text(&rows, 0), &type))
            out->above[type] = (uint64_t)db_i64(&rows, 1);
        out->first = out->first == 0 || first < out->first ? first : out->first;
    }
    return e ? e : db_rows_done(&rows);
}

/* ---- settling ---- */

struct settling {
    uint64_t after, through, settled;
    size_t slice;
};

/* Where the slice ends: at its last row, or at `through` when there are fewer.
 */
static enum err find_end(struct tx *tx, const struct settling *s, uint64_t *end)
{
    int64_t last;
    enum err e =
        tx_get_i64(tx,
                   "SELECT id FROM outbox WHERE state = 0 AND id > $1 AND id <= $2 "
                   "ORDER BY id LIMIT 1 OFFSET $3",
                   DB_ARGS(DB_I64(s->after), DB_I64(s->through), DB_I64(s->slice - 1)), &last);
    *end = e ? s->through : (uint64_t)last;
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err save_watermark(struct tx *tx, uint64_t watermark)
{
    char text[ID_TEXT_MAX];
    struct str value = {text, id_format(watermark, text)};
    return tx_exec(tx,
                   "INSERT INTO meta (name, value) VALUES ('done_through', $1) "
                   "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                   DB_ARGS(DB_TEXT(value)), NULL);
}

/* A parked event that was released is delivered out of band, whatever the watermark: it is settled
 * by itself.
 */
#define TO_SETTLE                                                                                  \
    "state = 0 AND id > $1 AND id <= $2 AND NOT EXISTS (SELECT 1 FROM deliveries "                 \
    "WHERE deliveries.event_id = outbox.id AND deliveries.consumer = '') "

static enum err run_settle(struct tx *tx, void *arg)
{
    struct settling *s = arg;
    uint64_t end;
    enum err e = find_end(tx, s, &end);
    if (!e)
        e = tx_exec(tx,
                    "INSERT INTO event_counts (type, state, count) "
                    "SELECT type, 'settled', COUNT(*) FROM outbox "
                    "WHERE " TO_SETTLE "GROUP BY type "
                    "ON CONFLICT (type, state) DO UPDATE "
                    "SET count = event_counts.count + excluded.count",
                    DB_ARGS(DB_I64(s->after), DB_I64(end)), NULL);
    if (!e)
        e = tx_exec(tx, "UPDATE outbox SET state = 1 WHERE " TO_SETTLE,
                    DB_ARGS(DB_I64(s->after), DB_I64(end)), NULL);
    if (!e)
        e = save_watermark(tx, end);
    s->settled = end;
    return e;
}

enum err outbox_settle(outbox_write write, void *ctx, uint64_t after, uint64_t through,
                       size_t slice, uint64_t *settled)
{
    struct settling s = {.after = after, .through = through, .slice = slice};
    TRY(write(ctx, run_settle, &s));
    *settled = s.settled;
    return OK;
}

/* ---- trimming ---- */

struct trimming {
    uint64_t after, through, last;
    size_t slice;
    size_t removed;
};

enum err outbox_count(struct tx *tx, struct str type, const char *state, int64_t n)
{
    return tx_exec(tx,
                   "INSERT INTO event_counts (type, state, count) VALUES ($1, $2, $3) "
                   "ON CONFLICT (type, state) DO UPDATE "
                   "SET count = event_counts.count + excluded.count",
                   DB_ARGS(DB_TEXT(type), DB_TEXT(str_of(state)), DB_I64(n)), NULL);
}

static enum err count_archived(struct tx *tx, const uint64_t *by_type)
{
    for (int type = 0; type < EVENT_TYPE_COUNT; type++)
        if (by_type[type])
            TRY(outbox_count(tx, str_of(event_wire_name((enum event_type)type)), "archived",
                             (int64_t)by_type[type]));
    return OK;
}

/* Readers of the outbox from outside learn from it that something is gone. */
static enum err save_archived(struct tx *tx, uint64_t last)
{
    char text[ID_TEXT_MAX];
    struct str value = {text, id_format(last, text)};
    return tx_exec(tx,
                   "INSERT INTO meta (name, value) VALUES ('archived_through', $1) "
                   "ON CONFLICT (name) DO UPDATE SET value = excluded.value "
                   "WHERE CAST(meta.value AS BIGINT) < CAST(excluded.value AS BIGINT)",
                   DB_ARGS(DB_TEXT(value)), NULL);
}

static enum err run_trim(struct tx *tx, void *arg)
{
    struct trimming *t = arg;
    uint64_t by_type[EVENT_TYPE_COUNT] = {0}, last = 0;
    t->removed = 0;
    struct db_rows rows = tx_rows(tx,
                                  "DELETE FROM outbox WHERE id IN "
                                  "(SELECT id FROM outbox WHERE id > $3 AND id <= $1 AND state = 1 "
                                  "ORDER BY id LIMIT $2) RETURNING type, id",
                                  DB_ARGS(DB_I64(t->through), DB_I64(t->slice), DB_I64(t->after)));
    while (db_next(&rows)) {
        enum event_type type;
        t->removed++;
        last = db_id(&rows, 1) > last ? db_id(&rows, 1) : last;
        if (event_type_parse(db_text(&rows, 0), &type))
            by_type[type]++;
    }
    enum err e = db_rows_done(&rows);
    t->last = last;
    if (!e && last > 0)
        e = save_archived(tx, last);
    return e ? e : count_archived(tx, by_type);
}

enum err outbox_trim(outbox_write write, void *ctx, uint64_t *after, uint64_t through, size_t slice,
                     size_t *removed)
{
    struct trimming t = {.after = *after, .through = through, .slice = slice};
    enum err e = write(ctx, run_trim, &t);
    *removed = e ? 0 : t.removed;
    if (!e)
        *after = t.removed < slice ? through : t.last;
    return e;
}

enum err outbox_totals(struct tx *tx, struct outbox_totals *out)
{
    *out = (struct outbox_totals){0};
    struct db_rows rows = tx_rows(tx,
                                  "SELECT state, CAST(SUM(count) AS BIGINT) FROM "
                                  "event_counts GROUP BY state",
                                  DB_NO_ARGS);
    while (db_next(&rows)) {
        bool archived = str_eq(db_text(&rows, 0), STR("archived"));
        *(archived ? &out->archived : &out->settled) = (uint64_t)db_i64(&rows, 1);
    }
    return db_rows_done(&rows);
}
