/* The pool of read-only connections. A read borrows one, holds one snapshot from its first
 * statement to its last, and gives it back. The number of connections is the limit on reads at a
 * time; a caller that finds none waits at most read_wait_ms and then fails, so that a slow disk
 * makes callers fail instead of pile up.
 *
 * Each reader sees all that was committed before its first statement: the log's index is shared
 * memory that COMMIT updates before the writer calls done(). */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "db/sqlite_driver.h"

enum { BUSY_TRIES = 5 };

/* One snapshot. *busy: a lock was in the way, the same may succeed now. */
static enum err run_once(struct readers *r, struct connection *c, tx_fn run, void *arg,
                         char *detail, bool *busy)
{
    struct sqlite_tx tx;
    sqlite_tx_begin(&tx, r->db, c, false);
    enum err e = statement_exec(&tx.base, "BEGIN", DB_NO_ARGS, NULL);
    if (e == OK)
        e = run(&tx.base, arg);
    e = sqlite_tx_end(&tx, e);
    *busy = tx.busy;
    event_list_done(&tx.base.events);
    if (detail)
        memcpy(detail, tx.base.detail, TX_DETAIL_MAX);
    /* Nothing was written: both ends are the same, and some errors have already ended it. */
    if (!sqlite3_get_autocommit(c->handle)) {
        sqlite_tx_begin(&tx, r->db, c, false);
        if (statement_exec(&tx.base, "COMMIT", DB_NO_ARGS, NULL))
            connection_run(c, "ROLLBACK");
    }
    return e;
}

enum err readers_run(struct db *db, tx_fn run, void *arg, char *detail)
{
    struct readers *r = &sqlite_of(db)->readers;
    if (detail)
        detail[0] = '\0';
    struct connection *c = idle_take(&r->idle, r->db->config.read_wait_ms);
    if (!c)
        return ERR_OVERLOADED;
    bool busy = false;
    enum err e = OK;
    for (int tries = 0; tries < BUSY_TRIES; tries++) {
        e = run_once(r, c, run, arg, detail, &busy);
        if (!busy)
            break;
    }
    idle_give(&r->idle, c);
    return e;
}

void readers_init(struct readers *r, struct sqlite_db *db)
{
    *r = (struct readers){.db = db, .count = (size_t)db->config.readers};
    r->connections = calloc(r->count, sizeof *r->connections);
    CHECK(r->connections);
    idle_init(&r->idle, r->count);
}

enum err readers_open(struct readers *r, char detail[TX_DETAIL_MAX])
{
    for (size_t i = 0; i < r->count; i++) {
        TRY(connection_open(&r->connections[i], &r->db->config, CONNECTION_READER, detail));
    }
    for (size_t i = 0; i < r->count; i++)
        idle_give(&r->idle, &r->connections[i]);
    return OK;
}

void readers_done(struct readers *r)
{
    CHECK(r->idle.count == 0 || r->idle.count == r->count);
    for (size_t i = 0; i < r->count; i++)
        connection_close(&r->connections[i], false);
    free(r->connections);
    idle_done(&r->idle);
}
