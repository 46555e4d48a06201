/* The tables of a store, from one source for both databases: schema/NNNN-name.sql, one file for
 * each version. schema/schema.py makes of them, at build time, the steps and the list of tables
 * below. A new store runs the same steps as one that is brought up to date. A new table is a new
 * step; nothing else in this folder has to know of it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "port/db.h"

/* ---- steps ---- */

struct schema_step {
    int to;                        /* version: one more than the step before */
    const char *sqlite, *postgres; /* statements, each ended by ";\n" */
};

extern const struct schema_step schema_steps[];
extern const size_t schema_step_count;

int schema_version(void); /* that the last step leads to */

/* Which step comes first for a store of this version (0: a new one): n when there is nothing to do.
 * STORAGE_FAILED: `store` was written by a newer program, or is in a version that nothing leads on
 * from. */
enum err schema_first_step(const char *store, int64_t version, const struct schema_step *steps,
                           size_t n, size_t *first, char detail[TX_DETAIL_MAX]);

/* Ids beyond this moment (the year 2058) are not from our generator: an import's mistake must not
 * push every later id to the end of time. */
#define SCHEMA_ID_LIMIT (UINT64_C(1) << 62)

/* ---- tables, after the last step ---- */

enum schema_kind { SCHEMA_NUMBER, SCHEMA_TEXT, SCHEMA_BYTES };

struct schema_column {
    const char *name;
    enum schema_kind kind;
};

struct schema_table {
    const char *name;
    const struct schema_column *columns;
    size_t column_count;
    bool of_process; /* describes running processes: not copied with a store */
};

extern const struct schema_table schema_tables[]; /* by name */
extern const size_t schema_table_count;

bool schema_has_column(const struct schema_table *t, const char *name);
