/* Copies tables from one store into another of either driver, and compares the two.
 *
 * The source is read in one snapshot. PostgreSQL takes everything in one transaction; SQLite takes
 * rows in batches, whose values wait in memory because a transaction may run again. Rows are
 * counted and summed up by table (db/copy_table.h), so that a second reading of the target can be
 * compared with the first of the source. */
#include "db/copy.h"

#include <stdlib.h>

#include "base/check.h"
#include "db/postgres_load.h"

enum {
    LINES_BYTES = 256 * 1024, /* sent to PostgreSQL at a time */
    BATCH_ROWS = 2000,        /* of one transaction of SQLite */
};

/* ---- is it empty? ---- */

struct look {
    struct copy_store *store;
    const char *found;
    uint64_t rows;
};

static enum err look_for_rows(struct tx *tx, void *arg)
{
    struct look *l = arg;
    int64_t nodes = 0;
    l->rows = 0;
    enum err e = tx_get_i64(tx, "SELECT count(*) FROM nodes", DB_NO_ARGS, &nodes);
    if (!e && nodes > 0) {
        l->found = "nodes";
        l->rows = (uint64_t)nodes;
    }
    for (size_t i = 0; !e && l->rows == 0 && i < l->store->tables.count; i++) {
        const struct copy_table *t = &l->store->tables.list[i];
        e = copy_table_count(tx, t, &l->rows);
        l->found = t->schema->name;
    }
    return e;
}

enum err copy_find_rows(struct copy_store *s, const char **table, uint64_t *rows,
                        char detail[TX_DETAIL_MAX])
{
    struct look l = {.store = s};
    enum err e = db_read(s->db, look_for_rows, &l, detail);
    *table = l.found;
    *rows = l.rows;
    return e;
}

/* ---- writing ---- */

struct copy {
    struct copy_store *from, *to;
    const struct copy_watcher *watcher;
    uint64_t done, total;
    bool begun;
    struct pg_load *load; /* into PostgreSQL */
    struct buf lines;
    struct copy_table *table; /* into SQLite: rows of this table wait … */
    struct buf bytes;         /* … with their values one after the other, */
    size_t *lengths;          /* of these lengths; SIZE_MAX: NULL */
    size_t rows;
    char detail[TX_DETAIL_MAX];
};

static enum err run_batch(struct tx *tx, void *arg)
{
    const struct copy *c = arg;
    struct str values[COPY_COLUMNS_MAX];
    const char *at = c->bytes.ptr;
    const size_t *length = c->lengths;
    enum err e = OK;
    for (size_t i = 0; !e && i < c->rows; i++) {
        for (size_t k = 0; k < c->table->schema->column_count; k++, length++) {
            values[k] = (struct str){0};
            if (*length != SIZE_MAX)
                values[k] = (struct str){at, *length};
            at += values[k].len;
        }
        e = copy_table_insert(tx, c->table, values);
    }
    return e;
}

static enum err flush(struct copy *c)
{
    enum err e = OK;
    if (c->load && c->lines.len > 0) {
        CHECK(!c->lines.failed);
        e = pg_load_rows(c->load, c->lines.ptr, c->lines.len, c->detail);
        buf_clear(&c->lines);
    } else if (c->rows > 0) {
        e = db_write(c->to->db, run_batch, c, c->detail);
        c->rows = 0;
        buf_clear(&c->bytes);
    }
    return e;
}

static enum err put_row(void *ctx, struct copy_table *t, const struct str *values)
{
    struct copy *c = ctx;
    c->watcher->look(c->watcher->ctx, ++c->done, c->total);
    if (c->load) {
        copy_table_line(t, values, &c->lines);
        return c->lines.len >= LINES_BYTES ? flush(c) : OK;
    }
    if (!c->bytes.ptr) /* no value may lie at NULL, however short */
        buf_reserve(&c->bytes, LINES_BYTES);
    for (size_t k = 0; k < t->schema->column_count; k++) {
        struct str s = values[k];
        c->lengths[c->rows * t->schema->column_count + k] = s.ptr ? s.len : SIZE_MAX;
        if (s.ptr)
            buf_append(&c->bytes, s.ptr, s.len);
    }
    CHECK(!c->bytes.failed);
    return ++c->rows == BATCH_ROWS ? flush(c) : OK;
}

static enum err copy_one(struct tx *tx, struct copy *c, size_t i)
{
    struct copy_table *from = &c->from->tables.list[i];
    c->table = &c->to->tables.list[i]; /* its statements are the target's */
    enum err e = OK;
    if (c->load) {
        struct buf columns;
        buf_init(&columns, 0);
        copy_table_columns(from, &columns);
        buf_append(&columns, "", 1);
        e = pg_load_table(c->load, from->schema->name, columns.ptr, c->detail);
        buf_done(&columns);
    }
    if (!e)
        e = copy_table_read(tx, from, put_row, c);
    if (!e)
        e = flush(c);
    if (!e && c->load)
        e = pg_load_table_end(c->load, c->detail);
    return e;
}

static enum err copy_all(struct tx *tx, void *arg)
{
    struct copy *c = arg;
    if (c->begun) /* a snapshot that is lost cannot be gone on with */
        return tx_fail(tx, ERR_UNAVAILABLE, "the connection to the source was lost");
    c->begun = true;
    enum err e = OK;
    for (size_t i = 0; !e && i < c->from->tables.count; i++) {
        uint64_t rows = 0;
        e = copy_table_count(tx, &c->from->tables.list[i], &rows);
        c->total += rows;
    }
    for (size_t i = 0; !e && i < c->from->tables.count; i++)
        e = copy_one(tx, c, i);
    return e ? tx_fail(tx, e, "%s", c->detail[0] ? c->detail : tx->detail) : OK;
}

enum err copy_transfer(struct copy_store *from, struct copy_store *to,
                       const struct copy_watcher *watcher, char detail[TX_DETAIL_MAX])
{
    struct copy c = {.from = from, .to = to, .watcher = watcher};
    enum err e = OK;
    detail[0] = '\0';
    buf_init(&c.lines, 0);
    buf_init(&c.bytes, 0);
    c.lengths = calloc((size_t)BATCH_ROWS * COPY_COLUMNS_MAX, sizeof *c.lengths);
    CHECK(c.lengths);
    if (to->url)
        e = pg_load_begin(to->url, &c.load, detail);
    if (!e)
        e = db_read(from->db, copy_all, &c, detail);
    if (!e && c.load)
        e = pg_load_commit(c.load, detail);
    pg_load_free(c.load);
    buf_done(&c.lines);
    buf_done(&c.bytes);
    free(c.lengths);
    return e;
}

/* ---- verifying ---- */

struct verification {
    struct copy_store *store;
    const struct copy_watcher *watcher;
    uint64_t done, total;
};

static enum err count_row(void *ctx, struct copy_table *t, const struct str *values)
{
    struct verification *v = ctx;
    (void)t, (void)values;
    v->watcher->look(v->watcher->ctx, ++v->done, v->total);
    return OK;
}

static enum err read_again(struct tx *tx, void *arg)
{
    struct verification *v = arg;
    enum err e = OK;
    v->done = 0;
    for (size_t i = 0; !e && i < v->store->tables.count; i++)
        e = copy_table_read(tx, &v->store->tables.list[i], count_row, v);
    return e;
}

uint64_t copy_rows(const struct copy_store *s)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < s->tables.count; i++)
        rows += s->tables.list[i].rows;
    return rows;
}

enum err copy_verify(struct copy_store *from, struct copy_store *to,
                     const struct copy_watcher *watcher, const struct copy_table **differs,
                     char detail[TX_DETAIL_MAX])
{
    struct verification v = {.store = to, .watcher = watcher, .total = copy_rows(from)};
    enum err e = db_read(to->db, read_again, &v, detail);
    *differs = NULL;
    for (size_t i = 0; !e && !*differs && i < from->tables.count; i++) {
        const struct copy_table *a = &from->tables.list[i], *b = &to->tables.list[i];
        if (a->rows != b->rows || a->sum != b->sum)
            *differs = b;
    }
    return e;
}
