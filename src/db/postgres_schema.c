/* Which version the tables have, and bringing them to the version this program knows.
 *
 * Everything happens in one transaction under an advisory lock: nodes that start at the same time
 * wait for the first one and then find nothing left to do, and a failure leaves what was there. The
 * version is in meta, as in SQLite. A higher version than ours is refused at the start; a node that
 * already runs is not disturbed, because migrations only add (tables, indexes, columns with a
 * default): what the version before reads and writes stays as it is. (Schema 5 takes tables away,
 * those of the duplicate memory: no rule of an earlier version used it.) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/id.h"
#include "db/postgres_driver.h"
#include "db/schema.h"

#define ADVISORY_LOCK "5063812098665367110" /* "FanTailF": ours among a database's users */

enum { MIGRATION_MS = 600000, STATEMENT_MAX_BYTES = 65536 };

static bool run(struct pg_link *l, const char *sql)
{
    return pg_link_ask(l, sql, NULL, 0, NULL, 0);
}

static enum err fail(struct pg_link *l, const char *doing, char detail[TX_DETAIL_MAX])
{
    char why[TX_DETAIL_MAX];
    pg_failure_describe(&l->failure, why);
    snprintf(detail, TX_DETAIL_MAX, "%.60s: %.130s", doing, why);
    enum err e = pg_failure_kind(&l->failure, l->role);
    return e == ERR_INTERNAL || e == ERR_CONFLICT ? ERR_STORAGE_FAILED : e;
}

/* Statement by statement, as a pipeline wants them; they end at a semicolon and a newline. */
static bool run_script(struct pg_link *l, const char *sql)
{
    bool ok = true;
    char *statement = malloc(STATEMENT_MAX_BYTES);
    CHECK(statement);
    while (ok && *sql) {
        const char *end = strstr(sql, ";\n");
        size_t n = end ? (size_t)(end - sql) : strlen(sql);
        CHECK(n < STATEMENT_MAX_BYTES);
        memcpy(statement, sql, n);
        statement[n] = '\0';
        ok = run(l, statement);
        sql = end ? end + 2 : sql + n;
    }
    free(statement);
    return ok;
}

static bool set_version(struct pg_link *l, int version)
{
    char text[16];
    snprintf(text, sizeof text, "%d", version);
    const char *const values[] = {text};
    return pg_link_ask(l,
                       "INSERT INTO meta (name, value) VALUES ('schema', $1) "
                       "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                       values, 1, NULL, 0);
}

static enum err migrate(struct pg_link *l, const struct schema_step *steps, size_t n,
                        char detail[TX_DETAIL_MAX])
{
    int version = 0;
    size_t first = n;
    TRY(pg_schema_look(l, &version, detail));
    TRY(schema_first_step("the database", version, steps, n, &first, detail));
    if (first == n)
        return OK;
    for (size_t i = first; i < n; i++) {
        if (!run_script(l, steps[i].postgres)) {
            char doing[60];
            snprintf(doing, sizeof doing, "migration to schema %d", steps[i].to);
            return fail(l, doing, detail);
        }
    }
    return set_version(l, steps[n - 1].to) ? OK : fail(l, "noting the schema's version", detail);
}

static enum err prepare_locked(struct pg_link *l, const struct schema_step *steps, size_t n,
                               char detail[TX_DETAIL_MAX])
{
    char patience[60];
    snprintf(patience, sizeof patience, "SET LOCAL statement_timeout = %d", MIGRATION_MS);
    if (!run(l, patience) || !run(l, "SET LOCAL lock_timeout = 0") ||
        !run(l, "SELECT pg_advisory_xact_lock(" ADVISORY_LOCK ")"))
        return fail(l, "locking the schema", detail);
    return migrate(l, steps, n, detail);
}

/* READ COMMITTED: who waited for the lock must see what the one before did. Under another name than
 * a writer's: it commits no events, and the horizon need not wait for it. */
enum err pg_schema_prepare(struct pg_link *l, const struct schema_step *steps, size_t n,
                           char detail[TX_DETAIL_MAX])
{
    if (!run(l, "SET application_name = '" PG_SCHEMA_NAME "'") ||
        !run(l, "BEGIN ISOLATION LEVEL READ COMMITTED"))
        return fail(l, "beginning", detail);
    l->patience_ms = MIGRATION_MS;
    enum err e = prepare_locked(l, steps, n, detail);
    l->patience_ms = l->db->config.statement_timeout_ms;
    if (e == OK && !run(l, "COMMIT"))
        e = fail(l, "keeping the tables", detail);
    if (e && !l->lost)
        run(l, "ROLLBACK");
    if (!run(l, "SET application_name = '" PG_WRITER_NAME "'") && !e)
        e = fail(l, "naming the connection", detail);
    return e;
}

enum err pg_schema_look(struct pg_link *l, int *version, char detail[TX_DETAIL_MAX])
{
    char text[24] = "";
    if (!pg_link_ask(l, "SELECT CASE WHEN to_regclass('meta') IS NULL THEN 'no' ELSE 'yes' END",
                     NULL, 0, text, sizeof text))
        return fail(l, "looking for the tables", detail);
    bool there = strcmp(text, "yes") == 0;
    text[0] = '\0';
    if (there &&
        !pg_link_ask(l, "SELECT value FROM meta WHERE name = 'schema'", NULL, 0, text, sizeof text))
        return fail(l, "reading the schema's version", detail);
    *version = (int)strtol(text, NULL, 10);
    if (!there || *version >= 1)
        return OK;
    snprintf(detail, TX_DETAIL_MAX, "the database has tables of another program");
    return ERR_STORAGE_FAILED;
}

/* ---- ids ---- */

static bool raise_to(struct pg_link *l, const char *sql, struct id_gen *ids)
{
    char text[24];
    if (!pg_link_ask(l, sql, NULL, 0, text, sizeof text))
        return false;
    uint64_t highest = strtoull(text, NULL, 10);
    if (highest > 0)
        id_gen_raise(ids, highest);
    return true;
}

static enum err raise_ids(struct pg_link *l, struct id_gen *ids, char detail[TX_DETAIL_MAX])
{
    /* Positions in the stream of events are kept in meta. Events that were delivered and trimmed
     * are known only by them, and a new event below such a mark would count as delivered. */
    char sql[240];
    snprintf(sql, sizeof sql,
             "SELECT max(CAST(value AS NUMERIC)) FROM meta "
             "WHERE value ~ '^[0-9]{1,19}$' AND CAST(value AS NUMERIC) < %lld",
             (long long)SCHEMA_ID_LIMIT);
    if (!raise_to(l, sql, ids))
        return fail(l, "reading the highest ids", detail);
    for (size_t i = 0; i < schema_table_count; i++) {
        snprintf(sql, sizeof sql, "SELECT max(id) FROM %s WHERE id < %lld", schema_tables[i].name,
                 (long long)SCHEMA_ID_LIMIT);
        if (schema_has_column(&schema_tables[i], "id") && !raise_to(l, sql, ids))
            return fail(l, "reading the highest ids", detail);
    }
    return OK;
}

/* READ COMMITTED: among the writes of other nodes a serializable look at whole tables may be
 * refused, or make one of theirs fail. */
enum err pg_schema_raise_ids(struct pg_link *l, struct id_gen *ids, char detail[TX_DETAIL_MAX])
{
    if (!run(l, "BEGIN ISOLATION LEVEL READ COMMITTED, READ ONLY"))
        return fail(l, "beginning", detail);
    enum err e = raise_ids(l, ids, detail);
    if (!l->lost && !run(l, e ? "ROLLBACK" : "COMMIT") && !e)
        e = fail(l, "ending", detail);
    return e;
}
