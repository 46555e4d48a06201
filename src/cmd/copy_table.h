/* Tables as rows of text, whichever engine they are in: what `fantail copy` reads, writes and
 * compares. A value's text is the same in both engines: numbers in decimal, bytes as \x and hex
 * digits. */
#pragma once

#include "base/buf.h"
#include "port/db.h"

enum { COPY_TABLES_MAX = 64, COPY_COLUMNS_MAX = 32, COPY_NAME_MAX = 64 };

enum copy_kind { COPY_NUMBER, COPY_TEXT, COPY_BYTES };

struct copy_table {
    char name[COPY_NAME_MAX];
    char columns[COPY_COLUMNS_MAX][COPY_NAME_MAX];
    enum copy_kind kinds[COPY_COLUMNS_MAX];
    size_t column_count;
    char *select, *insert, *count_sql; /* statements, which live as long as the table */
    uint64_t rows, sum;                /* what was read of it: order does not matter */
};

struct copy_tables {
    struct copy_table list[COPY_TABLES_MAX]; /* by name */
    size_t count;
};

/* Every table but those that are about processes (leases, nodes, the server's life). */
enum err copy_tables_find(struct tx *tx, struct copy_tables *out);
void copy_tables_done(struct copy_tables *t);
/* The same tables with the same columns? False: `why` names the first difference. */
bool copy_tables_match(const struct copy_tables *a, const struct copy_tables *b, char why[200]);
/* "id, name" */
void copy_table_columns(const struct copy_table *t, struct buf *out);

/* One value of one row; text.ptr NULL: NULL. */
struct copy_value {
    struct str text;
};
/* Called for each row, whose values live until it returns. */
typedef enum err (*copy_row)(void *ctx, struct copy_table *t, const struct copy_value *values);
/* Reads the whole table and adds to its rows and sum. In `meta` only what belongs to a store
 * wherever it is. */
enum err copy_table_read(struct tx *tx, struct copy_table *t, copy_row row, void *ctx);
/* How many rows there are to be read. */
enum err copy_table_count(struct tx *tx, const struct copy_table *t, uint64_t *rows);

/* Writes one row, in the target's transaction. */
enum err copy_table_insert(struct tx *tx, struct copy_table *t, const struct copy_value *values);
/* One line of PostgreSQL's COPY. */
void copy_table_line(const struct copy_table *t, const struct copy_value *values, struct buf *out);
