/* The pool of read-only connections. A read borrows one, holds one snapshot from its first
 * statement to its last, and gives it back. The number of connections is the limit on reads at a
 * time; who finds none waits at most read_wait_ms and is then turned away, so that a slow disk
 * makes callers fail instead of pile up.
 *
 * Each reader sees all that was committed before its first statement: the log's index is shared
 * memory that COMMIT updates before the writer calls done(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "db/sqlite_engine.h"

enum { BUSY_TRIES = 5 };

static struct timespec deadline_after(int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (ms % 1000) * 1000000L;
    if (t.tv_nsec >= 1000000000L) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000L;
    }
    return t;
}

static struct connection *borrow(struct readers *r)
{
    struct connection *c = NULL;
    pthread_mutex_lock(&r->lock);
    if (r->idle_count == 0) {
        struct timespec deadline = deadline_after(r->db->config.read_wait_ms);
        int waited = 0;
        while (r->idle_count == 0 && waited != ETIMEDOUT)
            waited = pthread_cond_timedwait(&r->returned, &r->lock, &deadline);
    }
    if (r->idle_count)
        c = r->idle[--r->idle_count];
    pthread_mutex_unlock(&r->lock);
    return c;
}

static void give_back(struct readers *r, struct connection *c)
{
    pthread_mutex_lock(&r->lock);
    r->idle[r->idle_count++] = c;
    pthread_mutex_unlock(&r->lock);
    pthread_cond_signal(&r->returned);
}

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

enum err readers_run(struct readers *r, tx_fn run, void *arg, char *detail)
{
    if (detail)
        detail[0] = '\0';
    struct connection *c = borrow(r);
    if (!c)
        return ERR_OVERLOADED;
    bool busy = false;
    enum err e = OK;
    for (int tries = 0; tries < BUSY_TRIES; tries++) {
        e = run_once(r, c, run, arg, detail, &busy);
        if (!busy)
            break;
    }
    give_back(r, c);
    return e;
}

void readers_init(struct readers *r, struct sqlite_db *db)
{
    *r = (struct readers){.db = db, .count = (size_t)db->config.readers};
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&r->returned, &monotonic);
    pthread_condattr_destroy(&monotonic);
    r->connections = calloc(r->count, sizeof *r->connections);
    r->idle = calloc(r->count, sizeof(struct connection *));
    CHECK(r->connections && r->idle);
}

enum err readers_open(struct readers *r, char detail[TX_DETAIL_MAX])
{
    for (size_t i = 0; i < r->count; i++) {
        enum err e = connection_open(&r->connections[i], &r->db->config, CONNECTION_READER, detail);
        if (e)
            return e;
    }
    for (size_t i = 0; i < r->count; i++)
        r->idle[r->idle_count++] = &r->connections[i];
    return OK;
}

void readers_done(struct readers *r)
{
    CHECK(r->idle_count == 0 || r->idle_count == r->count);
    for (size_t i = 0; i < r->count; i++)
        connection_close(&r->connections[i], false);
    free(r->connections);
    free(r->idle);
    pthread_cond_destroy(&r->returned);
    pthread_mutex_destroy(&r->lock);
}
