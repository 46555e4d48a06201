/* See plain_db.h. Statements, rows and errors are those of the embedded store (src/db), which is
 * why its inner header is included here: what a query means must not differ between the tests and
 * the server. Only the frame around them is ours: when a transaction begins, ends and is answered.
 *
 * Invariant: between calls no transaction is open. */
#include "plain_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "db/sqlite_driver.h"

enum { TABLES_MAX = 64 };

struct plain_db {
    struct sqlite_db driver; /* its port and its type; none of its threads */
    struct connection connection;
    struct plain_db_faults faults;
    struct event_list events; /* kept between jobs for its memory */
    char *tables[TABLES_MAX];
    size_t table_count;
    bool busy; /* inside a transaction */
    bool stopped;
    uint64_t commits, failures;
    struct clock *clock;
};

static struct plain_db *plain_of(struct db *db)
{
    return (struct plain_db *)(void *)db;
}

static void must(struct plain_db *p, int code, const char *sql)
{
    if (code == SQLITE_OK)
        return;
    fprintf(stderr, "plain_db: %s: %s\n", sql, sqlite3_errmsg(p->connection.handle));
    abort();
}

/* ---- transactions ---- */

/* Through the statement cache, like everything else. */
static enum err control(struct plain_db *p, const char *sql)
{
    struct sqlite_tx tx;
    sqlite_tx_begin(&tx, &p->driver, &p->connection, true);
    return statement_exec(&tx.base, sql, DB_NO_ARGS, NULL);
}

static void roll_back(struct plain_db *p)
{
    if (!sqlite3_get_autocommit(p->connection.handle))
        CHECK(control(p, "ROLLBACK") == OK);
}

static void complain(struct plain_db *p, const struct sqlite_tx *tx)
{
    if (!tx->poison || !p->faults.strict)
        return;
    fprintf(stderr, "plain_db: %s\n", tx->base.detail);
    abort();
}

/* The job's run and COMMIT; on OK p->events are its events. */
static enum err write_job(struct plain_db *p, struct db_job *job)
{
    if (p->faults.writes_fail)
        return p->faults.writes_fail;
    CHECK(control(p, "BEGIN IMMEDIATE") == OK);
    struct sqlite_tx tx;
    sqlite_tx_begin(&tx, &p->driver, &p->connection, true);
    event_list_clear(&p->events);
    tx.base.events = p->events;
    p->busy = true;
    enum err e = sqlite_tx_end(&tx, job->run(&tx.base, job));
    p->busy = false;
    p->events = tx.base.events;
    complain(p, &tx);
    if (e == OK && p->faults.before_commit)
        p->faults.before_commit(p->faults.ctx, &p->events);
    if (p->faults.dead)
        e = ERR_STOPPING;
    if (e) {
        memcpy(job->detail, tx.base.detail, TX_DETAIL_MAX);
        roll_back(p);
        return e;
    }
    CHECK(control(p, "COMMIT") == OK);
    return OK;
}

static enum err plain_submit(struct db *db, struct db_job *job)
{
    struct plain_db *p = plain_of(db);
    CHECK(!p->busy);
    job->next = NULL;
    job->detail[0] = '\0';
    if (p->faults.dead || p->stopped)
        return ERR_STOPPING;
    enum err e = write_job(p, job);
    if (e == OK) {
        p->commits++;
        bool lost = p->faults.lose_replies > 0;
        if (lost)
            p->faults.lose_replies--;
        if (p->events.count && db->on_commit && !lost) {
            /* done() or the hook may submit the next job, which needs the list. */
            struct event_list events = p->events;
            p->events = (struct event_list){0};
            db->on_commit(db->on_commit_ctx, events.items, events.count);
            event_list_done(&p->events);
            p->events = events;
        }
        if (lost)
            e = ERR_UNKNOWN_COMMIT;
    }
    p->failures += e != OK;
    job->result = e;
    job->done(job, e, job->detail);
    return OK;
}

static enum err read_snapshot(struct plain_db *p, tx_fn run, void *arg, char *detail)
{
    CHECK(!p->busy);
    CHECK(control(p, "BEGIN") == OK);
    struct sqlite_tx tx;
    sqlite_tx_begin(&tx, &p->driver, &p->connection, false);
    p->busy = true;
    enum err e = sqlite_tx_end(&tx, run(&tx.base, arg));
    p->busy = false;
    complain(p, &tx);
    memcpy(detail, tx.base.detail, TX_DETAIL_MAX);
    event_list_done(&tx.base.events);
    CHECK(control(p, "COMMIT") == OK);
    return e;
}

static enum err plain_read(struct db *db, tx_fn run, void *arg, char *detail)
{
    struct plain_db *p = plain_of(db);
    if (p->faults.dead || p->stopped)
        return ERR_STOPPING;
    if (p->faults.reads_fail)
        return ERR_UNAVAILABLE;
    return read_snapshot(p, run, arg, detail);
}

/* ---- the rest of the port ---- */

static enum err plain_backup(struct db *db, const char *path,
                             void (*progress)(void *arg, int done, int total), void *arg)
{
    (void)db, (void)path, (void)progress, (void)arg;
    return ERR_INTERNAL; /* there is no file to copy */
}

static enum err plain_horizon(struct db *db, uint64_t *id)
{
    struct plain_db *p = plain_of(db);
    const struct plain_db_faults *f = &p->faults;
    if (f->dead || p->stopped)
        return ERR_STOPPING;
    if (f->reads_fail)
        return ERR_UNAVAILABLE;
    *id = UINT64_MAX;
    if (f->horizon_lag_ms >= 0)
        *id = id_at(clock_wall_ms(p->clock) - f->horizon_lag_ms, 0, 0) - 1;
    if (f->horizon_held && f->horizon_held < *id)
        *id = f->horizon_held;
    return OK;
}

static enum err plain_now(struct db *db, int64_t *wall_ms, int64_t *error_us)
{
    *wall_ms = clock_wall_ms(plain_of(db)->clock);
    *error_us = 0;
    return OK;
}

static void plain_stats(struct db *db, struct db_stats *out)
{
    struct plain_db *p = plain_of(db);
    *out = (struct db_stats){.commits = p->commits,
                             .transactions = p->commits,
                             .failures = p->failures,
                             .queue_limit = 1,
                             .full = p->faults.writes_fail == ERR_STORAGE_FULL};
}

static void plain_stop(struct db *db)
{
    plain_of(db)->stopped = true;
}

static void plain_free(struct db *db)
{
    plain_db_free(plain_of(db));
}

static const struct db_ops ops = {
    .submit = plain_submit,
    .read = plain_read,
    .exec = statement_exec,
    .query = statement_query,
    .exec_each = tx_exec_one_by_one,
    .get_row_each = tx_get_row_one_by_one,
    .next = statement_next,
    .column_i64 = statement_i64,
    .column_text = statement_text,
    .column_null = statement_null,
    .rows_done = statement_rows_done,
    .backup = plain_backup,
    .horizon = plain_horizon,
    .now = plain_now,
    .stats = plain_stats,
    .stop = plain_stop,
    .free = plain_free,
};

/* ---- life cycle ---- */

static void list_tables(struct plain_db *p)
{
    static const char sql[] = "SELECT 'DELETE FROM ' || name FROM sqlite_schema "
                              "WHERE type = 'table' AND name <> 'meta' AND name NOT LIKE 'sqlite%'";
    sqlite3_stmt *s = NULL;
    must(p, sqlite3_prepare_v2(p->connection.handle, sql, -1, &s, NULL), sql);
    while (sqlite3_step(s) == SQLITE_ROW) {
        CHECK(p->table_count < TABLES_MAX);
        p->tables[p->table_count] = strdup((const char *)sqlite3_column_text(s, 0));
        CHECK(p->tables[p->table_count]);
        p->table_count++;
    }
    sqlite3_finalize(s);
}

struct plain_db *plain_db_new(struct clock *clock, struct id_gen *ids)
{
    CHECK(clock && ids->clock == clock);
    struct plain_db *p = calloc(1, sizeof *p);
    CHECK(p);
    p->driver.base = (struct db){.ops = &ops, .ids = ids};
    p->faults = (struct plain_db_faults){.strict = true, .horizon_lag_ms = -1};
    p->clock = clock;
    struct sqlite_config config;
    sqlite_config_default(&config);
    config.path = ":memory:";
    char detail[TX_DETAIL_MAX];
    if (connection_open(&p->connection, &config, CONNECTION_WRITER, detail)) {
        fprintf(stderr, "plain_db: %s\n", detail);
        abort();
    }
    plain_db_run(p, "PRAGMA synchronous = OFF");
    for (size_t i = 0; i < schema_step_count; i++)
        plain_db_run(p, schema_steps[i].sqlite);
    plain_db_run(p, "INSERT INTO meta (name, value) VALUES ('schema', '2')");
    list_tables(p);
    return p;
}

void plain_db_free(struct plain_db *p)
{
    if (!p)
        return;
    CHECK(!p->busy);
    connection_close(&p->connection, false);
    event_list_done(&p->events);
    for (size_t i = 0; i < p->table_count; i++)
        free(p->tables[i]);
    free(p);
}

void plain_db_clear(struct plain_db *p)
{
    p->faults = (struct plain_db_faults){.strict = true, .horizon_lag_ms = -1};
    p->stopped = false;
    plain_db_run(p, "BEGIN");
    for (size_t i = 0; i < p->table_count; i++)
        plain_db_run(p, p->tables[i]);
    plain_db_run(p, "DELETE FROM meta WHERE name <> 'schema'");
    plain_db_run(p, "COMMIT");
}

struct db *plain_db_port(struct plain_db *p)
{
    return &p->driver.base;
}

void plain_db_set_clock(struct plain_db *p, struct clock *clock)
{
    p->clock = clock;
}

struct plain_db_faults *plain_db_faults(struct plain_db *p)
{
    return &p->faults;
}

enum err plain_db_look(struct plain_db *p, tx_fn run, void *arg)
{
    char detail[TX_DETAIL_MAX];
    return read_snapshot(p, run, arg, detail);
}

int64_t plain_db_ask(struct plain_db *p, const char *sql)
{
    CHECK(!p->busy);
    int64_t number = 0;
    must(p, connection_ask(&p->connection, sql, &number, NULL, 0), sql);
    return number;
}

int64_t plain_db_ask_often(struct plain_db *p, const char *sql)
{
    CHECK(!p->busy);
    struct sqlite_tx tx;
    struct db_rows rows = {.tx = &tx.base};
    sqlite_tx_begin(&tx, &p->driver, &p->connection, false);
    enum err e = statement_query(&tx.base, sql, DB_NO_ARGS, &rows);
    int64_t number = !e && statement_next(&rows) ? statement_i64(&rows, 0) : 0;
    if (!e)
        e = statement_rows_done(&rows);
    if (e) {
        fprintf(stderr, "plain_db: %s: %s\n", sql, tx.base.detail);
        abort();
    }
    return number;
}

void plain_db_run(struct plain_db *p, const char *sql)
{
    CHECK(!p->busy);
    must(p, connection_run(&p->connection, sql), sql);
}
