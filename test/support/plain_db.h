/* The db port for tests: one SQLite connection in memory with the real tables, on one thread.
 *
 * db_submit runs the job, commits, calls the commit hook and done() before it returns; db_read runs
 * in a transaction of its own. So a test's history is the same each time, and nothing has to be
 * waited for. What the embedded store does on threads (groups, snapshots beside the writer,
 * durability) is not here: test/contract/db_contract.c is for that.
 *
 * A submit or a read inside a transaction is refused by a CHECK, as the port's contract wants.
 * Errors of SQL end the program with the text when `strict` is set (the default), because a test
 * would otherwise see only that nothing happened. */
#pragma once

#include "base/clock.h"
#include "base/id.h"
#include "port/db.h"

struct plain_db;

/* What a test may make the store do; change them at any time. */
struct plain_db_faults {
    bool reads_fail;        /* db_read: ERR_UNAVAILABLE, nothing ran */
    enum err writes_fail;   /* OK: none; else what every write ends with before it ran */
    uint32_t lose_replies;  /* this many next commits happen and are answered ERR_UNKNOWN_COMMIT */
    bool dead;              /* the process is gone: every call fails with ERR_STOPPING, and a
                               transaction that is running when this is set is not committed */
    bool strict;            /* an SQL error ends the program */
    int64_t horizon_lag_ms; /* ≥ 0: the store has a horizon, so far behind the clock … */
    uint64_t horizon_held;  /* … and not beyond this id; 0: it is not held back */
    /* Called when a job ran well and is about to be committed; may set `dead`. */
    void (*before_commit)(void *ctx, const struct event_list *events);
    void *ctx;
};

/* `ids` must be initialised and outlive it. The clock is used for the horizon alone; it is here
 * so that a test cannot forget that ids and rows take their times from the same one. */
struct plain_db *plain_db_new(struct clock *clock, struct id_gen *ids);
void plain_db_free(struct plain_db *p);
void plain_db_clear(struct plain_db *p); /* every row of every table goes, the faults too */

struct db *plain_db_port(struct plain_db *p);
void plain_db_set_clock(struct plain_db *p, struct clock *clock); /* another one from now on */
struct plain_db_faults *plain_db_faults(struct plain_db *p);

/* Reads whatever the faults say: for a test's own look at the truth. */
enum err plain_db_look(struct plain_db *p, tx_fn run, void *arg);

/* For assertions; outside transactions. ask: the first column of the first row, 0 when there is
 * none. Both end the program on an error. */
int64_t plain_db_ask(struct plain_db *p, const char *sql);
/* The same for string literals: prepared once. */
int64_t plain_db_ask_often(struct plain_db *p, const char *sql);
void plain_db_run(struct plain_db *p, const char *sql);
