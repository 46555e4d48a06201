/* Prepared statements: one per SQL text and connection, found by the text's address.
 *
 * Models pass string literals, so the address identifies the text and a lookup costs one multiply
 * and one compare. The text itself is compared too: a caller that builds SQL in a buffer would
 * otherwise silently run another statement, and the compare costs a few nanoseconds.
 *
 * The shared SQL differs from SQLite's in two places, both put right when a text is prepared:
 *  - `$1` is a name to SQLite, which numbers parameters by first appearance. In "… $2 … $1" plain
 *    positions would swap, so each $N's number is looked up once and kept.
 *  - `ids($1)`, a table of ids, becomes a json_each() over a JSON array. The text of that array
 *    belongs to the statement, not to the connection: json_each may read it again for each row of
 *    an outer loop, while other statements run.
 *
 * Arguments are bound by address, without a copy: they live until the statement was run, and each
 * use binds all of them again. A statement that is still being read when the same text comes again
 * (a query inside a loop over itself) gets a passing twin. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "db/sql_text.h"
#include "db/sqlite_driver.h"

/* ---- errors ---- */

/* A conflict leaves the transaction as it was before the statement, so a model may go on from it;
 * after any other failure of the database the transaction must not commit, whatever its function
 * returns. */
static enum err fail_code(struct sqlite_tx *tx, int code)
{
    enum err e = connection_error(tx->connection, code);
    if (e == ERR_CONFLICT)
        return e;
    if (tx->poison == OK) {
        tx->poison = e;
        tx->busy = (code & 0xff) == SQLITE_BUSY || (code & 0xff) == SQLITE_LOCKED;
        connection_fail(tx->connection, code, "statement", tx->base.detail);
    }
    return e;
}

static enum err fail_misuse(struct sqlite_tx *tx, const char *what, const char *sql)
{
    tx->poison = ERR_INTERNAL;
    snprintf(tx->base.detail, TX_DETAIL_MAX, "%s: %.120s", what, sql);
    return ERR_INTERNAL;
}

/* ---- rewriting ---- */

static void write_list(struct buf *out, struct str parameter, const char *rest)
{
    (void)rest;
    buf_printf(out, "(SELECT value AS id FROM json_each(%.*s))", STR_ARG(parameter));
}

bool statement_rewrite(const char *sql, struct buf *out)
{
    return sql_rewrite_ids(sql, out, write_list);
}

/* ---- preparing ---- */

/* Every parameter must be $1 … $n without a gap: PostgreSQL would refuse anything else. */
static bool resolve_parameters(struct statement *s)
{
    int count = sqlite3_bind_parameter_count(s->handle);
    if (count > PARAMETERS_MAX)
        return false;
    for (int n = 1; n <= count; n++) {
        char name[8];
        snprintf(name, sizeof name, "$%d", n);
        int index = sqlite3_bind_parameter_index(s->handle, name);
        if (index == 0)
            return false;
        s->index[n - 1] = (uint8_t)index;
    }
    s->parameter_count = (uint8_t)count;
    return true;
}

static void statement_free(struct statement *s)
{
    sqlite3_finalize(s->handle);
    buf_done(&s->scratch);
    free(s->original);
    free(s);
}

void statements_free(struct connection *c)
{
    for (struct statement_slot *s = map_next(&c->statements, NULL); s;
         s = map_next(&c->statements, s))
        statement_free(s->statement);
    map_done(&c->statements);
}

static enum err prepare(struct sqlite_tx *tx, const char *sql, struct statement **out)
{
    struct connection *c = tx->connection;
    struct statement *s = calloc(1, sizeof *s);
    CHECK(s);
    s->sql = sql;
    s->connection = c;
    buf_init(&s->scratch, 0);

    struct buf text;
    buf_init(&text, 0);
    bool rewritten = statement_rewrite(sql, &text);
    if (rewritten) {
        s->original = strdup(sql);
        CHECK(s->original);
    }
    const char *rest = NULL;
    int code = sqlite3_prepare_v3(c->handle, rewritten ? text.ptr : sql, -1,
                                  SQLITE_PREPARE_PERSISTENT, &s->handle, &rest);
    bool whole = code == SQLITE_OK && rest[strspn(rest, " \t\r\n;")] == '\0';
    buf_done(&text);

    enum err e = OK;
    if (code != SQLITE_OK)
        e = fail_code(tx, code);
    else if (!s->handle || !whole)
        e = fail_misuse(tx, "not one statement", sql);
    else if (!resolve_parameters(s))
        e = fail_misuse(tx, "parameters are not $1 to $n", sql);
    if (e) {
        statement_free(s);
        return e;
    }
    *out = s;
    return OK;
}

static enum err find(struct sqlite_tx *tx, const char *sql, struct statement **out)
{
    struct map *statements = &tx->connection->statements;
    const uint64_t key = (uintptr_t)sql;
    const struct statement_slot *known = map_find(statements, &key);
    if (known && !known->statement->busy) {
        struct statement *s = known->statement;
        CHECK(strcmp(s->original ? s->original : sqlite3_sql(s->handle), sql) == 0);
        *out = s;
        return OK;
    }
    TRY(prepare(tx, sql, out));
    struct statement_slot *slot = NULL;
    if (!known && statements->count < STATEMENTS_MAX)
        slot = map_put(statements, &key, NULL);
    if (slot)
        slot->statement = *out;
    else
        (*out)->passing = true;
    return OK;
}

/* Ready for its next use. The code that step() gave is reported by step(), so reset()'s is not
 * looked at. */
static void release(struct statement *s)
{
    if (s->passing) {
        statement_free(s);
        return;
    }
    sqlite3_reset(s->handle);
    buf_recycle(&s->scratch, SCRATCH_KEEP_BYTES);
}

/* ---- binding ---- */

/* All id lists of the statement in one text, so that it stays in place while they are bound. */
static void write_ids(struct statement *s, const struct db_value *args, size_t n)
{
    buf_clear(&s->scratch);
    for (size_t i = 0; i < n; i++) {
        if (args[i].kind != DB_KIND_IDS)
            continue;
        buf_append(&s->scratch, "[", 1);
        for (size_t k = 0; k < args[i].count; k++) {
            if (k)
                buf_append(&s->scratch, ",", 1);
            buf_u64(&s->scratch, args[i].ids[k]);
        }
        buf_append(&s->scratch, "]", 1);
    }
}

static int bind_bytes(struct statement *s, int index, const struct db_value *v)
{
    const char *bytes = v->bytes.ptr ? v->bytes.ptr : ""; /* NULL would bind NULL */
    if (v->kind == DB_KIND_BLOB)
        return sqlite3_bind_blob64(s->handle, index, bytes, v->bytes.len, SQLITE_STATIC);
    return sqlite3_bind_text64(s->handle, index, bytes, v->bytes.len, SQLITE_STATIC, SQLITE_UTF8);
}

/* Binds the next list in the scratch text, which begins at *at. */
static int bind_ids(struct statement *s, int index, size_t *at)
{
    const char *begin = s->scratch.ptr + *at;
    const char *end = memchr(begin, ']', s->scratch.len - *at);
    CHECK(end);
    size_t length = (size_t)(end - begin) + 1;
    *at += length;
    return sqlite3_bind_text64(s->handle, index, begin, length, SQLITE_STATIC, SQLITE_UTF8);
}

static enum err bind(struct sqlite_tx *tx, struct statement *s, const struct db_value *args,
                     size_t n)
{
    if (n != s->parameter_count)
        return fail_misuse(tx, "wrong number of arguments", s->sql);
    bool lists_written = false;
    size_t list_at = 0;
    for (size_t i = 0; i < n; i++) {
        const struct db_value *v = &args[i];
        int index = s->index[i];
        int code = SQLITE_OK;
        switch (v->kind) {
        case DB_KIND_NULL:
            code = sqlite3_bind_null(s->handle, index);
            break;
        case DB_KIND_I64:
            code = sqlite3_bind_int64(s->handle, index, v->number);
            break;
        case DB_KIND_TEXT:
            /* PostgreSQL has no such text, and half of SQLite's functions stop at the NUL. */
            if (v->bytes.len && memchr(v->bytes.ptr, 0, v->bytes.len))
                return tx_fail(&tx->base, ERR_INVALID, "text must not contain a NUL character");
            code = bind_bytes(s, index, v);
            break;
        case DB_KIND_BLOB:
            code = bind_bytes(s, index, v);
            break;
        case DB_KIND_IDS:
            if (!lists_written)
                write_ids(s, args, n);
            lists_written = true;
            if (s->scratch.failed)
                return fail_code(tx, SQLITE_NOMEM);
            code = bind_ids(s, index, &list_at);
            break;
        }
        if (code != SQLITE_OK)
            return fail_code(tx, code);
    }
    return OK;
}

/* ---- running ---- */

/* Once the database failed under the transaction nothing more may run: SQLite may have rolled all
 * of it back, and a further statement would be a transaction of its own. */
static enum err open_statement(struct sqlite_tx *tx, const char *sql, const struct db_value *args,
                               size_t n, struct statement **out)
{
    if (tx->poison)
        return tx->poison;
    TRY(find(tx, sql, out));
    enum err e = bind(tx, *out, args, n);
    if (e)
        release(*out);
    return e;
}

enum err statement_exec(struct tx *base, const char *sql, const struct db_value *args, size_t n,
                        int64_t *changed)
{
    struct sqlite_tx *tx = (struct sqlite_tx *)base;
    struct statement *s;
    enum err e = open_statement(tx, sql, args, n, &s);
    if (e)
        return e;
    int code = sqlite3_step(s->handle);
    if (code == SQLITE_ROW)
        e = fail_misuse(tx, "a statement with rows was run as one without", sql);
    else if (code != SQLITE_DONE)
        e = fail_code(tx, code);
    else if (changed)
        *changed = sqlite3_changes64(tx->connection->handle);
    release(s);
    return e;
}

enum err statement_query(struct tx *base, const char *sql, const struct db_value *args, size_t n,
                         struct db_rows *rows)
{
    struct sqlite_tx *tx = (struct sqlite_tx *)base;
    struct statement *s;
    *rows = (struct db_rows){.tx = base};
    enum err e = open_statement(tx, sql, args, n, &s);
    if (e) {
        rows->error = e;
        return e;
    }
    s->busy = true;
    s->open_next = tx->open;
    s->open_link = &tx->open;
    if (tx->open)
        tx->open->open_link = &s->open_next;
    tx->open = s;
    rows->statement = s;
    return OK;
}

bool statement_next(struct db_rows *rows)
{
    struct statement *s = rows->statement;
    struct sqlite_tx *tx = (struct sqlite_tx *)rows->tx;
    if (!s || rows->error || rows->row < 0)
        return false;
    if (tx->poison) {
        rows->error = tx->poison;
        return false;
    }
    int code = sqlite3_step(s->handle);
    if (code == SQLITE_ROW) {
        rows->row++;
        return true;
    }
    if (code != SQLITE_DONE)
        rows->error = fail_code(tx, code);
    rows->row = -1; /* stepping once more would begin again */
    return false;
}

int64_t statement_i64(struct db_rows *rows, int column)
{
    return sqlite3_column_int64(((struct statement *)rows->statement)->handle, column);
}

struct str statement_text(struct db_rows *rows, int column)
{
    sqlite3_stmt *handle = ((struct statement *)rows->statement)->handle;
    const void *bytes;
    switch (sqlite3_column_type(handle, column)) {
    case SQLITE_NULL:
        return (struct str){NULL, 0};
    case SQLITE_BLOB:
        bytes = sqlite3_column_blob(handle, column);
        break;
    default:
        bytes = sqlite3_column_text(handle, column);
        break;
    }
    /* An empty value is not NULL, and SQLite has no address for an empty blob. */
    return (struct str){bytes ? bytes : "", (size_t)sqlite3_column_bytes(handle, column)};
}

bool statement_null(struct db_rows *rows, int column)
{
    return sqlite3_column_type(((struct statement *)rows->statement)->handle, column) ==
           SQLITE_NULL;
}

static void close_rows(struct statement *s)
{
    *s->open_link = s->open_next;
    if (s->open_next)
        s->open_next->open_link = s->open_link;
    s->busy = false;
    release(s);
}

enum err statement_rows_done(struct db_rows *rows)
{
    if (rows->statement)
        close_rows(rows->statement);
    rows->statement = NULL;
    return rows->error;
}

/* ---- transactions ---- */

void sqlite_tx_begin(struct sqlite_tx *tx, struct sqlite_db *db, struct connection *c,
                     bool writable)
{
    *tx = (struct sqlite_tx){.base = {.db = &db->base, .ids = db->base.ids, .writable = writable},
                             .connection = c};
}

enum err sqlite_tx_end(struct sqlite_tx *tx, enum err result)
{
    for (struct statement *s = tx->open, *next; s; s = next) {
        next = s->open_next;
        close_rows(s);
    }
    return tx->poison ? tx->poison : result;
}
