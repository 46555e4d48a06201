/* COPY, which the driver's pipelines cannot do: a connection of its own, in libpq's ordinary
 * blocking way, because only the person who started a load waits for it. It is not named as a
 * writer, so the horizon does not wait for it: its rows are there before any node starts. */
#include "db/postgres_load.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define LOAD_LOCK "5063812098665367111" /* one load of a database at a time */

enum { SQL_MAX = 4096 };

struct pg_load {
    PGconn *handle;
};

static enum err fail(struct pg_load *l, const char *doing, char detail[TX_DETAIL_MAX])
{
    snprintf(detail, TX_DETAIL_MAX, "%.60s: %.130s", doing, PQerrorMessage(l->handle));
    for (char *c = detail; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return PQstatus(l->handle) == CONNECTION_BAD ? ERR_UNAVAILABLE : ERR_STORAGE_FAILED;
}

static bool run(struct pg_load *l, const char *sql, ExecStatusType wanted)
{
    PGresult *r = PQexec(l->handle, sql);
    bool ok = PQresultStatus(r) == wanted;
    PQclear(r);
    return ok;
}

/* The whole load is one transaction that no timeout of the database's may end. */
static enum err begin(struct pg_load *l, char detail[TX_DETAIL_MAX])
{
    if (PQstatus(l->handle) != CONNECTION_OK)
        return fail(l, "connecting", detail);
    if (!run(l,
             "SET client_min_messages = error; SET statement_timeout = 0; SET lock_timeout = 0; "
             "SET idle_in_transaction_session_timeout = 0; BEGIN",
             PGRES_COMMAND_OK))
        return fail(l, "beginning", detail);
    PGresult *r = PQexec(l->handle, "SELECT pg_try_advisory_xact_lock(" LOAD_LOCK ")");
    bool ok = PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1;
    bool ours = ok && PQgetvalue(r, 0, 0)[0] == 't';
    PQclear(r);
    if (!ok)
        return fail(l, "locking", detail);
    if (!ours) {
        snprintf(detail, TX_DETAIL_MAX, "another copy into this database is under way");
        return ERR_CONFLICT;
    }
    return OK;
}

enum err pg_load_begin(const char *url, struct pg_load **out, char detail[TX_DETAIL_MAX])
{
    const char *const names[] = {"dbname", "client_encoding", "application_name", NULL};
    const char *const values[] = {url, "UTF8", "fantail copy", NULL};
    struct pg_load *l = calloc(1, sizeof *l);
    CHECK(l);
    l->handle = PQconnectdbParams(names, values, 1);
    CHECK(l->handle);
    enum err e = begin(l, detail);
    if (e)
        pg_load_free(l);
    else
        *out = l;
    return e;
}

enum err pg_load_table(struct pg_load *l, const char *table, const char *columns,
                       char detail[TX_DETAIL_MAX])
{
    char sql[SQL_MAX];
    int n = snprintf(sql, sizeof sql, "COPY %s (%s) FROM STDIN", table, columns);
    CHECK(n > 0 && n < SQL_MAX);
    return run(l, sql, PGRES_COPY_IN) ? OK : fail(l, table, detail);
}

enum err pg_load_rows(struct pg_load *l, const char *lines, size_t n, char detail[TX_DETAIL_MAX])
{
    CHECK(n <= INT32_MAX);
    return PQputCopyData(l->handle, lines, (int)n) == 1 ? OK : fail(l, "sending rows", detail);
}

enum err pg_load_table_end(struct pg_load *l, char detail[TX_DETAIL_MAX])
{
    bool ok = PQputCopyEnd(l->handle, NULL) == 1;
    enum err e = ok ? OK : fail(l, "sending rows", detail);
    PGresult *r;
    while ((r = PQgetResult(l->handle))) {
        if (PQresultStatus(r) != PGRES_COMMAND_OK && !e)
            e = fail(l, "storing rows", detail);
        PQclear(r);
    }
    return e;
}

/* A store of this size came at once: plans should know before the first reader does. */
enum err pg_load_commit(struct pg_load *l, char detail[TX_DETAIL_MAX])
{
    if (!run(l, "COMMIT", PGRES_COMMAND_OK))
        return fail(l, "committing", detail);
    return run(l, "ANALYZE", PGRES_COMMAND_OK) ? OK : fail(l, "gathering statistics", detail);
}

void pg_load_free(struct pg_load *l)
{
    if (!l)
        return;
    PQfinish(l->handle);
    free(l);
}
