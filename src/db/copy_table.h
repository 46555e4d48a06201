/* Tables as rows of text, whichever driver they are in: what `fantail copy` reads, writes and
 * compares. A value's text is the same in both drivers: numbers in decimal, bytes as \x and hex
 * digits. */
#pragma once

#include "base/buf.h"
#include "db/schema.h"
#include "port/db.h"

enum { COPY_TABLES_MAX = 64, COPY_COLUMNS_MAX = 32 };

struct copy_table {
    const struct schema_table *schema;
    char *select, *insert, *count_sql; /* statements, which live as long as the table */
    uint64_t rows, sum;                /* of the rows read, in any order */
};

struct copy_tables {
    struct copy_table list[COPY_TABLES_MAX]; /* by name */
    size_t count;
};

/* Every table but those that are about processes. */
void copy_tables_init(struct copy_tables *out);
void copy_tables_done(struct copy_tables *t);
/* "id, name" */
void copy_table_columns(const struct copy_table *t, struct buf *out);

/* Called for each row, whose values live until it returns; one whose ptr is NULL is NULL. */
typedef enum err (*copy_row)(void *ctx, struct copy_table *t, const struct str *values);
/* Reads the whole table and adds to its rows and sum. In `meta` only what belongs to a store
 * wherever it is. */
enum err copy_table_read(struct tx *tx, struct copy_table *t, copy_row row, void *ctx);
/* How many rows there are to be read. */
enum err copy_table_count(struct tx *tx, const struct copy_table *t, uint64_t *rows);

/* Writes one row, in the target's transaction. */
enum err copy_table_insert(struct tx *tx, struct copy_table *t, const struct str *values);
/* One line of PostgreSQL's COPY. */
void copy_table_line(const struct copy_table *t, const struct str *values, struct buf *out);
