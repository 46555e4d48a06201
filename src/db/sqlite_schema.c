/* The file's header and schema: its application id, the version of its tables, and their upgrade to
 * the version this program knows.
 *
 * A store is made, or brought forward, in one transaction together with its version number, so that
 * a crash leaves either nothing or all of it. There is no way back: a file with a higher version
 * than ours is refused, because writing to unknown tables would corrupt them silently. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/id.h"
#include "db/schema.h"
#include "db/sqlite_driver.h"

#define APPLICATION_ID 0x46616e54 /* "FanT", in the file's header */

/* ---- steps ---- */

static int run_steps(struct connection *c, const struct schema_step *steps, size_t n, int *failed)
{
    char mark[160];
    int code = SQLITE_OK;
    snprintf(mark, sizeof mark,
             "INSERT INTO meta (name, value) VALUES ('schema', '%d') "
             "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
             steps[n - 1].to);
    for (size_t i = 0; i < n && code == SQLITE_OK; i++) {
        *failed = steps[i].to;
        code = connection_run(c, steps[i].sqlite);
    }
    return code == SQLITE_OK ? connection_run(c, mark) : code;
}

static enum err migrate(struct connection *c, const char *path, bool is_new,
                        const struct schema_step *steps, size_t n, char detail[TX_DETAIL_MAX])
{
    char sign[60], doing[60];
    int failed = 0;
    snprintf(sign, sizeof sign, "PRAGMA application_id = %d", APPLICATION_ID);
    int code = connection_run(c, "BEGIN IMMEDIATE");
    if (code == SQLITE_OK && is_new)
        code = connection_run(c, sign);
    if (code == SQLITE_OK)
        code = run_steps(c, steps, n, &failed);
    if (code == SQLITE_OK)
        code = connection_run(c, "COMMIT");
    if (code != SQLITE_OK && !sqlite3_get_autocommit(c->handle))
        connection_run(c, "ROLLBACK");
    if (code == SQLITE_OK && is_new)
        code = connection_sync_folder(path);
    if (code == SQLITE_OK)
        return OK;
    snprintf(doing, sizeof doing, "migration to schema %d", failed);
    return connection_fail(c, code, is_new ? path : doing, detail);
}

static enum err bring_forward(struct connection *c, const char *path, bool is_new,
                              const struct schema_step *steps, size_t n, char detail[TX_DETAIL_MAX])
{
    int64_t version = 0;
    size_t first = 0;
    if (!is_new) {
        int code =
            connection_ask(c, "SELECT value FROM meta WHERE name = 'schema'", &version, NULL, 0);
        if (code != SQLITE_OK)
            return connection_fail(c, code, path, detail);
        if (version < 1) {
            snprintf(detail, TX_DETAIL_MAX, "%s has an unknown schema", path);
            return ERR_STORAGE_FAILED;
        }
    }
    enum err e = schema_first_step(path, version, steps, n, &first, detail);
    return e || first == n ? e : migrate(c, path, is_new, steps + first, n - first, detail);
}

enum err schema_prepare(struct connection *c, const char *path, const struct schema_step *steps,
                        size_t n, char detail[TX_DETAIL_MAX])
{
    int64_t tables = 0, application = 0;
    char mode[16] = "";
    int code = connection_ask(c, "SELECT count(*) FROM sqlite_schema", &tables, NULL, 0);
    if (code == SQLITE_OK)
        code = connection_ask(c, "PRAGMA application_id", &application, NULL, 0);
    if (code != SQLITE_OK)
        return connection_fail(c, code, path, detail);
    if (application != APPLICATION_ID && (tables > 0 || application != 0)) {
        snprintf(detail, TX_DETAIL_MAX, "%s is a database of another program", path);
        return ERR_STORAGE_FAILED;
    }
    code = connection_ask(c, "PRAGMA journal_mode = WAL", NULL, mode, sizeof mode);
    if (code != SQLITE_OK)
        return connection_fail(c, code, path, detail);
    if (strcmp(mode, "wal") != 0) {
        snprintf(detail, TX_DETAIL_MAX, "%s: this file system cannot hold a write-ahead log", path);
        return ERR_STORAGE_FAILED;
    }
    /* A file may be writable and its log not: then reads work and every write would fail. */
    code = connection_run(c, "BEGIN IMMEDIATE; ROLLBACK");
    if ((code & 0xff) == SQLITE_READONLY)
        return connection_refuse_unwritable(path, detail);
    if (code != SQLITE_OK)
        return connection_fail(c, code, path, detail);
    return bring_forward(c, path, tables == 0, steps, n, detail);
}

/* ---- ids ---- */

static int raise_to(struct connection *c, const char *sql, struct id_gen *ids)
{
    int64_t highest = 0;
    int code = connection_ask(c, sql, &highest, NULL, 0);
    if (code == SQLITE_OK && highest > 0)
        id_gen_raise(ids, (uint64_t)highest);
    return code;
}

enum err schema_raise_ids(struct connection *c, struct id_gen *ids, char detail[TX_DETAIL_MAX])
{
    /* Positions in the stream of events (the done watermark) are kept in meta. Events that were
     * delivered and trimmed are known only by them, and a new event below such a mark would count
     * as delivered. */
    char sql[240];
    snprintf(sql, sizeof sql,
             "SELECT max(CAST(value AS INTEGER)) FROM meta WHERE value NOT GLOB '*[^0-9]*' "
             "AND length(value) < 20 AND CAST(value AS INTEGER) < %lld",
             (long long)SCHEMA_ID_LIMIT);
    int code = raise_to(c, sql, ids);
    for (size_t i = 0; i < schema_table_count && code == SQLITE_OK; i++) {
        snprintf(sql, sizeof sql, "SELECT max(id) FROM %s WHERE id < %lld", schema_tables[i].name,
                 (long long)SCHEMA_ID_LIMIT);
        if (schema_has_column(&schema_tables[i], "id"))
            code = raise_to(c, sql, ids);
    }
    return code == SQLITE_OK ? OK : connection_fail(c, code, "reading the highest ids", detail);
}

/* ---- looking ---- */

enum err db_sqlite_schema(const char *path, int *present, int *wanted, char detail[TX_DETAIL_MAX])
{
    struct connection c = {0};
    int64_t version = 0, tables = 0;
    *wanted = schema_version();
    if (access(path, F_OK) != 0) {
        *present = 0;
        return OK;
    }
    int code = sqlite3_open_v2(path, &c.handle, SQLITE_OPEN_READONLY, NULL);
    if (code == SQLITE_OK)
        code = connection_ask(&c, "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'", &tables,
                              NULL, 0);
    if (code == SQLITE_OK && tables > 0)
        code =
            connection_ask(&c, "SELECT value FROM meta WHERE name = 'schema'", &version, NULL, 0);
    enum err e = code == SQLITE_OK ? OK : connection_fail(&c, code, path, detail);
    sqlite3_close(c.handle);
    if (e == OK)
        *present = (int)version;
    return e;
}
