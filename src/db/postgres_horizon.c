/* How far all events are visible, and the server's time.
 *
 * Ids are given before COMMIT, by many nodes: an event may become visible after another with a
 * higher id. A reader in the order of ids must know how far none is missing. The argument, all by
 * the server's own clock:
 *  - A transaction that writes asks for the time once it has begun, which is after it became
 *    visible in the list of open transactions, with the moment of its beginning. Its COMMIT is sent
 *    only if all its events are at most PG_EARLY_MS older than that time (postgres_commit.c).
 *  - The horizon is read from that list: the present, or the oldest beginning in it, whichever is
 *    earlier, less PG_MARGIN_MS. The present is taken before the list is read. So a transaction
 *    that is not in the list has ended, and is visible to later readers (the server clears the
 *    entry after the rows are visible), or will find a later time when it asks: either way it will
 *    not commit anything below the horizon. A transaction in the list has no event below it either.
 *    A server whose clock is set back makes the horizon stand still for as long, and nothing is
 *    lost: generators of ids do not go back with it, and a new node begins above all ids that are
 *    stored.
 *
 * Only connections named PG_WRITER_NAME count: others commit no events. The list shows other users'
 * connections only with the server's permission. Hidden ones could hold events below the horizon,
 * so they are an error, and the log says what to grant. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/id.h"
#include "base/log.h"
#include "db/postgres_driver.h"

enum { PATIENCE_MS = 2000, WARN_EVERY_MS = 10000, TIME_TRIES = 5, GOOD_ERROR_US = 200 };

void pg_watch_init(struct pg_watch *w, struct pg_db *db)
{
    pthread_mutex_init(&w->lock, NULL);
    pg_link_init(&w->link, db, PG_READER);
    if (w->link.patience_ms > PATIENCE_MS)
        w->link.patience_ms = PATIENCE_MS;
    w->warned_ms = INT64_MIN / 2;
}

void pg_watch_done(struct pg_watch *w)
{
    pg_link_done(&w->link);
    pthread_mutex_destroy(&w->lock);
}

/* ---- the horizon ---- */

struct oldest {
    int64_t ms, hidden;
};

static enum err read_oldest(struct tx *tx, void *arg)
{
    struct oldest *o = arg;
    *o = (struct oldest){0};
    struct db_rows rows = tx_rows(
        tx,
        "SELECT CAST(floor(extract(epoch FROM least(statement_timestamp(), min(xact_start))) "
        "* 1000) AS BIGINT), "
        "count(*) FILTER (WHERE state = 'disabled' OR query = '<insufficient privilege>') "
        "FROM pg_stat_get_activity(NULL) WHERE application_name = '" PG_WRITER_NAME "' "
        "AND datid = (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1",
        DB_NO_ARGS);
    if (db_next(&rows))
        *o = (struct oldest){db_i64(&rows, 0), db_i64(&rows, 1)};
    return db_rows_done(&rows);
}

static void warn_hidden(struct pg_watch *w, int64_t hidden)
{
    int64_t now = pg_now_ms();
    if (now - w->warned_ms < WARN_EVERY_MS)
        return;
    w->warned_ms = now;
    log_error("PostgreSQL hides other writers' transactions: no events can be delivered. Let all "
              "nodes use one role, or GRANT pg_read_all_stats; track_activities must be on",
              LOG_INT("hidden", hidden));
}

enum err pg_watch_horizon(struct db *db, uint64_t *id)
{
    struct pg_watch *w = &pg_of(db)->watch;
    struct oldest oldest;
    char detail[TX_DETAIL_MAX];
    pthread_mutex_lock(&w->lock);
    enum err e = pg_readers_run_on(&w->link, read_oldest, &oldest, detail);
    if (!e && oldest.hidden > 0) {
        warn_hidden(w, oldest.hidden);
        e = ERR_UNAVAILABLE;
    }
    pthread_mutex_unlock(&w->lock);
    if (e)
        return e;
    uint64_t first_unsure = id_at(oldest.ms - PG_MARGIN_MS, 0, 0);
    *id = first_unsure ? first_unsure - 1 : 0;
    return OK;
}

/* ---- the server's time ---- */

static enum err ask_time(struct pg_link *l, int64_t *offset_us, int64_t *error_us)
{
    char text[32];
    int64_t before = clock_mono_us(clock_system());
    if (!pg_link_ask(l, "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
                     NULL, 0, text, sizeof text))
        return pg_failure_kind(&l->failure, l->role);
    int64_t after = clock_mono_us(clock_system());
    *offset_us = strtoll(text, NULL, 10) - (before + (after - before) / 2);
    *error_us = (after - before + 1) / 2;
    return OK;
}

/* The answer is as good as its way is short: the quickest of a few counts. */
static enum err measure(struct pg_link *l, int64_t *offset_us, int64_t *error_us)
{
    *error_us = INT64_MAX;
    for (int i = 0; i<TIME_TRIES && * error_us> GOOD_ERROR_US; i++) {
        int64_t offset = 0, error = 0;
        TRY(ask_time(l, &offset, &error));
        if (error < *error_us) {
            *offset_us = offset;
            *error_us = error;
        }
    }
    return OK;
}

enum err pg_watch_now(struct db *db, int64_t *wall_ms, int64_t *error_us)
{
    struct pg_watch *w = &pg_of(db)->watch;
    int64_t offset = 0, error = 0;
    char detail[TX_DETAIL_MAX];
    pthread_mutex_lock(&w->lock);
    enum err e = OK;
    for (int i = 0; i < 2; i++) { /* a connection that turns out to be dead is replaced once */
        e = pg_link_ensure(&w->link, detail);
        if (e)
            break;
        e = measure(&w->link, &offset, &error);
        if (!w->link.lost)
            break;
    }
    pthread_mutex_unlock(&w->lock);
    if (e)
        return e;
    *wall_ms = (offset + clock_mono_us(clock_system())) / 1000;
    *error_us = error;
    return OK;
}
