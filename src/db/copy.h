/* Copies a whole store into an empty one of either driver, both opened by the caller; all or
 * nothing where the target is PostgreSQL. */
#pragma once

#include "db/copy_table.h"

struct copy_store {
    struct db *db;
    const char *url; /* of PostgreSQL; NULL: SQLite */
    /* copy_tables_init before use; they must outlive the last statement on `db` */
    struct copy_tables tables;
};

/* Told after each row. */
struct copy_watcher {
    void (*look)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};

/* A table of the store that has rows; *rows 0: none has. */
enum err copy_find_rows(struct copy_store *s, const char **table, uint64_t *rows,
                        char detail[TX_DETAIL_MAX]);
enum err copy_transfer(struct copy_store *from, struct copy_store *to,
                       const struct copy_watcher *watcher, char detail[TX_DETAIL_MAX]);
/* Reads the target again. *differs: a table of it that is not what was read of the source; NULL:
 * all are the same. */
enum err copy_verify(struct copy_store *from, struct copy_store *to,
                     const struct copy_watcher *watcher, const struct copy_table **differs,
                     char detail[TX_DETAIL_MAX]);
uint64_t copy_rows(const struct copy_store *s); /* that were read */
