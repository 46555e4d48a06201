/* All SQL of the engine. The mark is text in `meta`, like every value there. */
#include "pipe/outbox.h"

#include "base/id.h"

struct reading {
    uint64_t after, through;
    struct event *events;
    size_t max, n;
};

static enum err run_read(struct tx *tx, void *arg)
{
    struct reading *r = arg;
    struct db_rows rows;
    r->n = 0;
    enum err e = tx_query(tx,
                          "SELECT id, type, version, payload FROM outbox "
                          "WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3",
                          DB_ARGS(DB_I64(r->after), DB_I64(r->through), DB_I64(r->max)), &rows);
    if (e)
        return e;
    while (r->n < r->max && db_next(&rows)) {
        struct event *event = &r->events[r->n++];
        uint64_t id = db_id(&rows, 0);
        if (event_from_row(id, db_text(&rows, 1), db_i64(&rows, 2), db_text(&rows, 3), event))
            *event = (struct event){.id = id, .type = OUTBOX_UNREADABLE};
    }
    return db_rows_done(&rows);
}

enum err outbox_read(struct db *db, uint64_t after, uint64_t through, struct event *events,
                     size_t max, size_t *n)
{
    struct reading r = {.after = after, .through = through, .events = events, .max = max};
    enum err e = db_read(db, run_read, &r, NULL);
    *n = e ? 0 : r.n;
    return e;
}

struct looking {
    uint64_t mark, last;
};

static enum err run_look(struct tx *tx, void *arg)
{
    struct looking *l = arg;
    struct db_rows rows;
    *l = (struct looking){0};
    enum err e =
        tx_query(tx, "SELECT value FROM meta WHERE name = 'done_through'", DB_NO_ARGS, &rows);
    if (e)
        return e;
    if (db_next(&rows) && !str_parse_u64(db_text(&rows, 0), &l->mark))
        l->mark = 0; /* from the very beginning: late is better than lost */
    e = db_rows_done(&rows);
    if (e)
        return e;
    int64_t last;
    e = tx_get_i64(tx, "SELECT id FROM outbox ORDER BY id DESC LIMIT 1", DB_NO_ARGS, &last);
    if (e == OK)
        l->last = (uint64_t)last;
    return e == ERR_NOT_FOUND ? OK : e;
}

enum err outbox_look(struct db *db, uint64_t *mark, uint64_t *last)
{
    struct looking l;
    enum err e = db_read(db, run_look, &l, NULL);
    if (e)
        return e;
    *mark = l.mark;
    *last = l.last;
    return OK;
}

static enum err run_save_mark(struct tx *tx, void *arg)
{
    const uint64_t *mark = arg;
    char text[ID_TEXT_MAX];
    struct str value = {text, id_format(*mark, text)};
    return tx_exec(tx,
                   "INSERT INTO meta (name, value) VALUES ('done_through', $1) "
                   "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                   DB_ARGS(DB_TEXT(value)), NULL);
}

enum err outbox_save_mark(struct db *db, uint64_t mark)
{
    return db_write(db, run_save_mark, &mark, NULL);
}

struct trimming {
    uint64_t through;
    size_t slice;
    int64_t removed;
};

static enum err run_trim(struct tx *tx, void *arg)
{
    struct trimming *t = arg;
    t->removed = 0;
    return tx_exec(tx,
                   "DELETE FROM outbox WHERE id IN "
                   "(SELECT id FROM outbox WHERE id <= $1 ORDER BY id LIMIT $2)",
                   DB_ARGS(DB_I64(t->through), DB_I64(t->slice)), &t->removed);
}

enum err outbox_trim(struct db *db, uint64_t through, size_t slice, size_t *removed)
{
    struct trimming t = {.through = through, .slice = slice};
    enum err e = db_write(db, run_trim, &t, NULL);
    *removed = e ? 0 : (size_t)t.removed;
    return e;
}
