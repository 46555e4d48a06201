/* The tables are those of the schema (db/schema.h), so that a table that is added there is copied
 * without a word here. Statements are made at run time, which nothing else in the program does;
 * each is made once, and its text stays where it is, as the drivers want.
 *
 * A sum over a table adds a hash of each row, so it does not depend on the order in which rows
 * come. */
#include "db/copy_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

/* The rows of meta that belong to one place: the version of its tables, its own name and the state
 * of the views named after it. */
#define META_STAYS " WHERE name NOT IN ('schema', 'store_id', 'views_lost', 'views_loaded')"

static bool is_meta(const struct copy_table *t)
{
    return strcmp(t->schema->name, "meta") == 0;
}

/* ---- statements ---- */

void copy_table_columns(const struct copy_table *t, struct buf *out)
{
    for (size_t i = 0; i < t->schema->column_count; i++)
        buf_printf(out, "%s%s", i ? ", " : "", t->schema->columns[i].name);
}

static void make_statements(struct copy_table *t)
{
    struct buf select = {0}, insert = {0}, count = {0};
    buf_printf(&select, "SELECT ");
    copy_table_columns(t, &select);
    buf_printf(&select, " FROM %s%s", t->schema->name, is_meta(t) ? META_STAYS : "");
    buf_printf(&insert, "INSERT INTO %s (", t->schema->name);
    copy_table_columns(t, &insert);
    buf_printf(&insert, ") VALUES (");
    for (size_t i = 0; i < t->schema->column_count; i++)
        buf_printf(&insert, "%s$%zu", i ? ", " : "", i + 1);
    buf_printf(&insert, ")");
    buf_printf(&count, "SELECT count(*) FROM %s%s", t->schema->name, is_meta(t) ? META_STAYS : "");
    buf_append(&count, "", 1);
    buf_append(&select, "", 1);
    buf_append(&insert, "", 1);
    CHECK(!select.failed && !insert.failed && !count.failed);
    t->count_sql = count.ptr;
    t->select = select.ptr;
    t->insert = insert.ptr;
}

void copy_tables_init(struct copy_tables *out)
{
    copy_tables_done(out);
    for (size_t i = 0; i < schema_table_count; i++) {
        if (schema_tables[i].of_process)
            continue;
        CHECK(out->count < COPY_TABLES_MAX && schema_tables[i].column_count <= COPY_COLUMNS_MAX);
        struct copy_table *t = &out->list[out->count++];
        t->schema = &schema_tables[i];
        make_statements(t);
    }
}

void copy_tables_done(struct copy_tables *t)
{
    for (size_t i = 0; i < t->count; i++) {
        free(t->list[i].select);
        free(t->list[i].insert);
        free(t->list[i].count_sql);
    }
    *t = (struct copy_tables){0};
}

/* ---- reading ---- */

static void put_hex(struct buf *out, struct str bytes)
{
    buf_append(out, "\\x", 2);
    char *to = buf_reserve(out, bytes.len * 2);
    CHECK(to || bytes.len == 0);
    str_hex((const uint8_t *)bytes.ptr, bytes.len, to);
    out->len += bytes.len * 2;
}

/* The row's values one after the other in `scratch`; where each lies is said when all are there,
 * because the buffer may move meanwhile. */
static void gather(struct db_rows *rows, const struct copy_table *t, struct buf *scratch,
                   struct str *values)
{
    size_t starts[COPY_COLUMNS_MAX + 1];
    bool nulls[COPY_COLUMNS_MAX];
    buf_clear(scratch);
    for (size_t i = 0; i < t->schema->column_count; i++) {
        int column = (int)i;
        starts[i] = scratch->len;
        nulls[i] = db_is_null(rows, column);
        if (nulls[i])
            continue;
        if (t->schema->columns[i].kind == SCHEMA_NUMBER)
            buf_printf(scratch, "%lld", (long long)db_i64(rows, column));
        else if (t->schema->columns[i].kind == SCHEMA_BYTES)
            put_hex(scratch, db_text(rows, column));
        else
            buf_str(scratch, db_text(rows, column));
    }
    starts[t->schema->column_count] = scratch->len;
    buf_append(scratch, "", 1); /* an empty text has an address, too */
    CHECK(!scratch->failed);
    for (size_t i = 0; i < t->schema->column_count; i++) {
        values[i] = (struct str){scratch->ptr + starts[i], starts[i + 1] - starts[i]};
        if (nulls[i])
            values[i] = (struct str){0};
    }
}

static uint64_t hash_row(const struct copy_table *t, const struct str *values)
{
    uint64_t hash = t->schema->column_count;
    for (size_t i = 0; i < t->schema->column_count; i++) {
        struct str s = values[i];
        hash = s.ptr ? hash_checksum(s.ptr, s.len, hash + s.len) : hash_u64(hash ^ UINT64_MAX);
    }
    return hash;
}

enum err copy_table_read(struct tx *tx, struct copy_table *t, copy_row row, void *ctx)
{
    struct str values[COPY_COLUMNS_MAX];
    struct buf scratch;
    struct db_rows rows;
    t->rows = t->sum = 0;
    enum err e = tx_query(tx, t->select, DB_NO_ARGS, &rows);
    if (e)
        return e;
    buf_init(&scratch, 0);
    while (!e && db_next(&rows)) {
        gather(&rows, t, &scratch, values);
        t->rows++;
        t->sum += hash_row(t, values);
        if (row)
            e = row(ctx, t, values);
    }
    buf_done(&scratch);
    enum err ended = db_rows_done(&rows);
    return e ? e : ended;
}

enum err copy_table_count(struct tx *tx, const struct copy_table *t, uint64_t *rows)
{
    int64_t count = 0;
    enum err e = tx_get_i64(tx, t->count_sql, DB_NO_ARGS, &count);
    *rows = (uint64_t)count;
    return e;
}

/* ---- writing ---- */

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

enum err copy_table_insert(struct tx *tx, struct copy_table *t, const struct str *values)
{
    struct db_value args[COPY_COLUMNS_MAX];
    struct buf bytes[COPY_COLUMNS_MAX];
    for (size_t i = 0; i < t->schema->column_count; i++) {
        struct str s = values[i];
        int64_t number = 0;
        buf_init(&bytes[i], 0);
        args[i] = !s.ptr ? DB_NULL : DB_TEXT(s);
        if (s.ptr && t->schema->columns[i].kind == SCHEMA_NUMBER) {
            CHECK(str_parse_i64(s, &number));
            args[i] = DB_I64(number);
        } else if (s.ptr && t->schema->columns[i].kind == SCHEMA_BYTES) {
            for (size_t k = 2; k + 1 < s.len; k += 2) {
                char byte = (char)(digit(s.ptr[k]) << 4 | digit(s.ptr[k + 1]));
                buf_append(&bytes[i], &byte, 1);
            }
            args[i] = DB_BLOB(((struct str){bytes[i].ptr ? bytes[i].ptr : "", bytes[i].len}));
        }
    }
    enum err e = tx_exec(tx, t->insert, args, t->schema->column_count, NULL);
    for (size_t i = 0; i < t->schema->column_count; i++)
        buf_done(&bytes[i]);
    return e;
}

static void put_escaped(struct buf *out, struct str s)
{
    size_t from = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        char as = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : c == '\\' ? '\\' : 0;
        if (!as)
            continue;
        const char pair[] = {'\\', as};
        buf_append(out, s.ptr + from, i - from);
        buf_append(out, pair, 2);
        from = i + 1;
    }
    buf_append(out, s.ptr + from, s.len - from);
}

void copy_table_line(const struct copy_table *t, const struct str *values, struct buf *out)
{
    for (size_t i = 0; i < t->schema->column_count; i++) {
        if (i)
            buf_append(out, "\t", 1);
        if (values[i].ptr)
            put_escaped(out, values[i]);
        else
            buf_append(out, "\\N", 2);
    }
    buf_append(out, "\n", 1);
}
