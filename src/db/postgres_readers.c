/* The pool of connections for reads. A read borrows one, holds one snapshot (REPEATABLE READ, READ
 * ONLY) from its first statement to its last, and gives it back. As in the SQLite driver the number
 * of connections is the limit on reads at a time, and a caller that finds none waits at most
 * read_wait_ms.
 *
 * Connections are opened when they are first needed. One that turns out to be dead (the server was
 * restarted, a firewall forgot it) is replaced and the read is run once more, from its beginning:
 * reads have no effect outside their own results. The end of a read is only sent: its answer is
 * read at the beginning of the next one. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "db/postgres_driver.h"

/* One snapshot. *again: the connection was lost, or the server undid the read for its own reasons:
 * the same may succeed now. */
static enum err run_once(struct pg_link *l, tx_fn run, void *arg, char *detail, bool *again)
{
    *again = false;
    TRY(pg_link_ensure(l, detail));
    struct pg_tx tx;
    pg_tx_begin(&tx, l, false);
    enum err e = pg_tx_end_job(&tx, run(&tx.base, arg));
    event_list_done(&tx.base.events);
    *again = tx.trouble == PG_LOST || tx.trouble == PG_CONTENTION;
    memcpy(detail, tx.base.detail, TX_DETAIL_MAX);
    if (tx.poison)
        pg_tx_roll_back(&tx);
    else if (tx.begun && pg_link_control(l, "COMMIT"))
        pg_link_sync(l);
    return e;
}

enum err pg_readers_run_on(struct pg_link *l, tx_fn run, void *arg, char *detail)
{
    bool again;
    enum err e = run_once(l, run, arg, detail, &again);
    return again ? run_once(l, run, arg, detail, &again) : e;
}

enum err pg_readers_run(struct db *db, tx_fn run, void *arg, char *detail)
{
    struct pg_readers *r = &pg_of(db)->readers;
    struct pg_link *l = idle_take(&r->idle, r->db->config.read_wait_ms);
    if (!l)
        return ERR_OVERLOADED;
    enum err e = pg_readers_run_on(l, run, arg, detail);
    idle_give(&r->idle, l);
    return e;
}

void pg_readers_init(struct pg_readers *r, struct pg_db *db)
{
    *r = (struct pg_readers){.db = db, .count = (size_t)db->config.readers};
    r->links = calloc(r->count, sizeof *r->links);
    CHECK(r->links);
    idle_init(&r->idle, r->count);
    for (size_t i = 0; i < r->count; i++) {
        pg_link_init(&r->links[i], db, PG_READER);
        idle_give(&r->idle, &r->links[i]);
    }
}

void pg_readers_done(struct pg_readers *r)
{
    CHECK(r->idle.count == r->count);
    for (size_t i = 0; i < r->count; i++)
        pg_link_done(&r->links[i]);
    free(r->links);
    idle_done(&r->idle);
}
