/* Results: rows as they come, and their values as the port's.
 *
 * Rows are streamed or whole (see pg_statement_query). A streamed result occupies the connection:
 * the next statement first takes the rest of the rows from it, up to a limit, which is meant for a
 * few rows around a nested query and not for a table. Closing a result reads and drops the
 * remaining rows, since the server sends them anyway.
 *
 * Values arrive in binary. Numbers may be of any integer type (a literal is an INTEGER, a COUNT a
 * BIGINT) or NUMERIC, which SUM gives: a NUMERIC is base 10000, most significant digit first. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "db/postgres_driver.h"

enum {
    OID_BOOL = 16,
    OID_INT8 = 20,
    OID_INT2 = 21,
    OID_INT4 = 23,
    OID_NUMERIC = 1700,
    NUMERIC_HEAD = 8, /* digit count, weight, sign, scale: 16 bits each */
    NUMERIC_PLUS = 0x0000,
    NUMERIC_MINUS = 0x4000
};

/* ---- life ---- */

struct pg_rows *pg_rows_open(struct pg_tx *tx)
{
    struct pg_rows *r = calloc(1, sizeof *r);
    CHECK(r);
    r->tx = tx;
    r->row = -1;
    r->open_next = tx->open;
    r->open_link = &tx->open;
    if (tx->open)
        tx->open->open_link = &r->open_next;
    tx->open = r;
    return r;
}

/* The query's own results are over: the next answers belong to other statements. */
static enum err end_stream(struct pg_rows *r)
{
    struct pg_link *l = r->tx->link;
    r->streamed = false;
    l->streaming = NULL;
    if (!l->lost) {
        pg_link_drop_oldest(l);
        pg_link_settle(l);
    }
    return pg_tx_take_failure(r->tx);
}

/* The next result of the query; NULL when there are no more rows, or on failure. */
static PGresult *take_result(struct pg_rows *r)
{
    struct pg_link *l = r->tx->link;
    PGresult *result;
    while ((result = pg_link_result(l))) {
        switch (PQresultStatus(result)) {
        case PGRES_SINGLE_TUPLE:
            return result;
        case PGRES_TUPLES_OK:
            if (PQntuples(result) > 0)
                return result;
            break;
        case PGRES_COMMAND_OK:
        case PGRES_PIPELINE_ABORTED:
            break;
        default:
            pg_link_take_failure(l, result);
            break;
        }
        PQclear(result);
    }
    r->error = end_stream(r);
    return NULL;
}

static void keep(struct pg_rows *r, PGresult *result)
{
    if (r->kept_count == r->kept_room) {
        r->kept_room = r->kept_room ? 2 * r->kept_room : 16;
        r->kept = realloc(r->kept, r->kept_room * sizeof(PGresult *));
        CHECK(r->kept);
    }
    r->kept[r->kept_count++] = result;
}

bool pg_rows_put_aside(struct pg_rows *r)
{
    PGresult *result;
    bool too_many = false;
    while (r->streamed && (result = take_result(r))) {
        too_many |= r->kept_count >= PG_KEPT_ROWS_MAX;
        if (too_many)
            PQclear(result);
        else
            keep(r, result);
    }
    if (too_many)
        r->error = pg_tx_misuse(r->tx, "too many rows open while another statement runs", "");
    return r->tx->poison == OK;
}

static void show(struct pg_rows *r, PGresult *result)
{
    PQclear(r->current);
    r->current = result;
    r->row = result ? 0 : -1;
    r->row_count = result ? PQntuples(result) : 0;
}

enum err pg_rows_start(struct pg_rows *r, bool streamed)
{
    struct pg_link *l = r->tx->link;
    l->streaming = r;
    r->streamed = true;
    if (!pg_link_settle(l)) {
        r->streamed = false;
        l->streaming = NULL;
        return pg_tx_take_failure(r->tx);
    }
    if (streamed)
        PQsetSingleRowMode(l->handle);
    PGresult *first = take_result(r);
    if (first)
        keep(r, first);
    if (first && !streamed && r->streamed) {
        PGresult *end = take_result(r); /* only the end is left to read */
        CHECK(!end);
    }
    return r->error;
}

void pg_rows_put(struct pg_rows *r, PGresult *result)
{
    if (PQntuples(result) > 0)
        keep(r, result);
    else
        PQclear(result);
}

void pg_rows_close(struct pg_rows *r)
{
    PGresult *rest;
    while (r->streamed && (rest = take_result(r)))
        PQclear(rest);
    PQclear(r->current);
    for (size_t i = r->kept_at; i < r->kept_count; i++)
        PQclear(r->kept[i]);
    free(r->kept);
    *r->open_link = r->open_next;
    if (r->open_next)
        r->open_next->open_link = r->open_link;
    free(r);
}

/* ---- the port's side ---- */

bool pg_rows_next(struct db_rows *rows)
{
    struct pg_rows *r = rows->statement;
    if (!r || rows->error)
        return false;
    if (r->current && r->row + 1 < r->row_count) {
        r->row++;
        return true;
    }
    if (r->kept_at < r->kept_count)
        show(r, r->kept[r->kept_at++]);
    else
        show(r, r->streamed ? take_result(r) : NULL);
    rows->error = r->error;
    return r->current != NULL;
}

enum err pg_rows_done(struct db_rows *rows)
{
    struct pg_rows *r = rows->statement;
    if (r) {
        struct pg_tx *tx = r->tx;
        pg_rows_close(r);
        if (!rows->error)
            rows->error = tx->poison;
    }
    rows->statement = NULL;
    return rows->error;
}

bool pg_rows_null(struct db_rows *rows, int column)
{
    struct pg_rows *r = rows->statement;
    return PQgetisnull(r->current, r->row, column);
}

bool pg_numeric_i64(const unsigned char *bytes, size_t n, int64_t *out)
{
    uint16_t head[NUMERIC_HEAD / 2];
    if (n < NUMERIC_HEAD)
        return false;
    memcpy(head, bytes, NUMERIC_HEAD);
    int digits = be16toh(head[0]);
    int weight = (int16_t)be16toh(head[1]);
    int sign = be16toh(head[2]);
    if ((size_t)digits * 2 != n - NUMERIC_HEAD || (sign != NUMERIC_PLUS && sign != NUMERIC_MINUS))
        return false;
    __int128 value = 0;
    for (int i = 0; i <= weight || i < digits; i++) {
        uint16_t digit = 0;
        if (i < digits)
            memcpy(&digit, bytes + NUMERIC_HEAD + 2 * i, 2);
        if (i <= weight)
            value = value * 10000 + be16toh(digit);
        else if (digit)
            return false; /* a fraction */
        if (value > (__int128)INT64_MAX + 1)
            return false;
    }
    if (sign == NUMERIC_MINUS)
        value = -value;
    if (value > INT64_MAX)
        return false;
    *out = (int64_t)value;
    return true;
}

static int64_t read_be(const unsigned char *bytes, int n)
{
    uint64_t value = bytes[0] & 0x80 ? UINT64_MAX : 0;
    for (int i = 0; i < n; i++)
        value = value << 8 | bytes[i];
    return (int64_t)value;
}

int64_t pg_rows_i64(struct db_rows *rows, int column)
{
    struct pg_rows *r = rows->statement;
    const unsigned char *bytes = (const unsigned char *)PQgetvalue(r->current, r->row, column);
    int length = PQgetlength(r->current, r->row, column);
    int64_t value = 0;
    if (length == 0) /* NULL */
        return 0;
    switch (PQftype(r->current, column)) {
    case OID_BOOL:
        return bytes[0];
    case OID_INT2:
    case OID_INT4:
    case OID_INT8:
        return read_be(bytes, length);
    case OID_NUMERIC:
        if (pg_numeric_i64(bytes, (size_t)length, &value))
            return value;
        break;
    default:
        break;
    }
    rows->error = pg_tx_misuse(r->tx, "a value that is not a whole number was read as one", "");
    return 0;
}

struct str pg_rows_text(struct db_rows *rows, int column)
{
    struct pg_rows *r = rows->statement;
    if (PQgetisnull(r->current, r->row, column))
        return (struct str){NULL, 0};
    switch (PQftype(r->current, column)) {
    case OID_BOOL:
    case OID_INT2:
    case OID_INT4:
    case OID_INT8:
    case OID_NUMERIC:
        rows->error = pg_tx_misuse(r->tx, "a number was read as text", "");
        return (struct str){NULL, 0};
    default:
        return (struct str){PQgetvalue(r->current, r->row, column),
                            (size_t)PQgetlength(r->current, r->row, column)};
    }
}
