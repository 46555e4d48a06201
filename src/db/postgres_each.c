/* One statement for many rows of arguments (port/db.h, tx_exec_each and tx_get_row_each).
 *
 * The arguments travel as arrays, one for each column, and the text is put around a table of them,
 * v, whose columns stand where the parameters stood:
 *     INSERT INTO t (a, b) VALUES ($1, 0)  →  INSERT INTO t (a, b) SELECT v.c1, 0 FROM unnest($1) …
 *     UPDATE t SET a = $2 WHERE id = $1    →  UPDATE t SET a = v.c2 FROM unnest($1, $2) … WHERE …
 *     DELETE FROM t WHERE id = $1          →  DELETE FROM t USING unnest($1) … WHERE id = v.c1
 *     SELECT …                             →  SELECT r.*, v.n FROM unnest(…) … LATERAL (SELECT …) r
 * A column without any value has no type that we know: NULL stands where it stood. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "db/postgres_driver.h"
#include "db/sql_text.h"

enum { OID_TEXT_ARRAY = 1009, OID_BYTEA_ARRAY = 1001 };

/* ---- texts ---- */

static const char *skip_quoted(const char *p)
{
    if (*p != '\'' && *p != '"')
        return p;
    const char *end = strchr(p + 1, *p);
    return end ? end + 1 : p + strlen(p);
}

/* Where `word` stands outside of all quotes and parentheses; NULL: nowhere. */
static const char *find_word(const char *sql, const char *word)
{
    int depth = 0;
    size_t length = strlen(word);
    for (const char *p = sql; *p;) {
        const char *next = skip_quoted(p);
        depth += (*p == '(') - (*p == ')');
        if (next == p && depth == 0 && strncmp(p, word, length) == 0 && p > sql &&
            !sql_is_word(p[-1]) && !sql_is_word(p[length]))
            return p;
        p = next > p ? next : p + 1;
    }
    return NULL;
}

/* Where the parenthesis is closed that opens at `p`; NULL: nowhere. */
static const char *find_close(const char *p)
{
    int depth = 0;
    while (*p) {
        const char *next = skip_quoted(p);
        depth += (*p == '(') - (*p == ')');
        if (depth == 0)
            return p;
        p = next > p ? next : p + 1;
    }
    return NULL;
}

static void write_part(struct buf *out, const char *from, const char *to, const Oid *types)
{
    while (from < to) {
        const char *next = skip_quoted(from);
        if (next == from && *from == '$') {
            char *end;
            long n = strtol(from + 1, &end, 10);
            if (types[n - 1])
                buf_printf(out, "v.c%ld", n);
            else
                buf_append(out, "NULL", 4);
            next = end;
        } else {
            next = next > from ? next : from + 1;
            buf_append(out, from, (size_t)(next - from));
        }
        from = next;
    }
}

static void write_list(struct buf *out, const char *what, const Oid *types, size_t n)
{
    const char *comma = "";
    for (size_t i = 0; i < n; i++) {
        if (types[i])
            buf_printf(out, "%s%s%zu", comma, what, i + 1);
        if (types[i])
            comma = ", ";
    }
}

static void write_table(struct buf *out, const Oid *types, size_t n)
{
    buf_append(out, "unnest(", 7);
    write_list(out, "$", types, n);
    buf_append(out, ") WITH ORDINALITY AS v(", 23);
    write_list(out, "c", types, n);
    buf_append(out, ", n)", 4);
}

static bool begins(const char *sql, const char *word)
{
    return strncmp(sql, word, strlen(word)) == 0;
}

/* INSERT … VALUES (…) … */
static bool rewrite_insert(const char *sql, const Oid *types, size_t n, struct buf *out)
{
    const char *values = find_word(sql, "VALUES");
    const char *open = values ? strchr(values, '(') : NULL;
    const char *close = open ? find_close(open) : NULL;
    if (!close)
        return false;
    write_part(out, sql, values, types);
    buf_append(out, "SELECT ", 7);
    write_part(out, open + 1, close, types);
    buf_append(out, " FROM ", 6);
    write_table(out, types, n);
    write_part(out, close + 1, sql + strlen(sql), types);
    return true;
}

/* UPDATE … WHERE …, DELETE … WHERE … */
static bool rewrite_change(const char *sql, const char *from, const Oid *types, size_t n,
                           struct buf *out)
{
    const char *where = find_word(sql, "WHERE");
    if (!where)
        return false;
    write_part(out, sql, where, types);
    buf_append(out, from, strlen(from));
    write_table(out, types, n);
    buf_append(out, " ", 1);
    write_part(out, where, sql + strlen(sql), types);
    return true;
}

bool pg_each_rewrite(const char *sql, const Oid *types, size_t n, struct buf *out)
{
    bool good = false, any = false;
    for (size_t i = 0; i < n; i++)
        any |= types[i] != 0;
    if (any && begins(sql, "INSERT ")) {
        good = rewrite_insert(sql, types, n, out);
    } else if (any && begins(sql, "UPDATE ")) {
        good = rewrite_change(sql, "FROM ", types, n, out);
    } else if (any && begins(sql, "DELETE ")) {
        good = rewrite_change(sql, "USING ", types, n, out);
    } else if (any && begins(sql, "SELECT ")) {
        buf_append(out, "SELECT r.*, v.n FROM ", 21);
        write_table(out, types, n);
        buf_append(out, " CROSS JOIN LATERAL (", 21);
        write_part(out, sql, sql + strlen(sql), types);
        buf_append(out, ") AS r", 6);
        good = true;
    }
    buf_append(out, "", 1);
    return good;
}

/* ---- arrays ---- */

Oid pg_each_array_type(Oid element)
{
    return element == PG_OID_TEXT    ? OID_TEXT_ARRAY
           : element == PG_OID_BYTEA ? OID_BYTEA_ARRAY
                                     : PG_OID_INT8_ARRAY;
}

/* Dimensions, has NULLs, element type, the dimension's length and lower bound; then each element's
 * length (−1: NULL) and bytes. */
bool pg_each_write(struct buf *out, Oid element, const struct db_value *args, size_t n,
                   size_t count, size_t i)
{
    const uint32_t head[5] = {htobe32(1), htobe32(1), htobe32(element), htobe32((uint32_t)count),
                              htobe32(1)};
    if (element != PG_OID_INT8 && element != PG_OID_TEXT && element != PG_OID_BYTEA)
        return false;
    buf_append(out, head, sizeof head);
    for (size_t row = 0; row < count; row++) {
        const struct db_value *v = &args[row * n + i];
        bool null = v->kind == DB_KIND_NULL, number = v->kind == DB_KIND_I64;
        if (!null && pg_value_type(v) != element)
            return false;
        uint32_t length = htobe32(null ? UINT32_MAX : number ? 8 : (uint32_t)v->bytes.len);
        uint64_t bits = htobe64((uint64_t)v->number);
        buf_append(out, &length, sizeof length);
        if (number)
            buf_append(out, &bits, sizeof bits);
        else if (!null)
            buf_append(out, v->bytes.ptr, v->bytes.len);
    }
    return true;
}
