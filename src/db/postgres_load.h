/* Puts whole tables into a PostgreSQL store that is empty, as fast as it takes them: COPY over one
 * connection, everything in one transaction, so that a load that is cut off leaves nothing. Calls
 * block. After an error only pg_load_free may follow. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "port/db.h"

struct pg_load;

/* The tables must be there. ERR_CONFLICT: another load is under way. */
enum err pg_load_begin(const char *url, struct pg_load **out, char detail[TX_DETAIL_MAX]);
/* Rows of this table follow; `columns` as in "id, name". Both are names of our own schema. */
enum err pg_load_table(struct pg_load *l, const char *table, const char *columns,
                       char detail[TX_DETAIL_MAX]);
/* Whole lines in COPY's text format. */
enum err pg_load_rows(struct pg_load *l, const char *lines, size_t n, char detail[TX_DETAIL_MAX]);
enum err pg_load_table_end(struct pg_load *l, char detail[TX_DETAIL_MAX]);
enum err pg_load_commit(struct pg_load *l, char detail[TX_DETAIL_MAX]);
void pg_load_free(struct pg_load *l); /* undoes what was not committed */
