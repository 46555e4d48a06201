/* What is in the file before anything else: whose it is, which version its tables have, and
 * bringing them to the version this program knows.
 *
 * A new store is made in one transaction, so that a crash leaves either nothing or all of it. Each
 * migration is one transaction together with its version number. There is no way back: a file with
 * a higher version than ours is refused, because writing to tables one does not know destroys them
 * quietly.
 *
 * schema/sqlite.sql always holds the newest tables; a change of them adds a migration that leads
 * there and raises SCHEMA_VERSION. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/id.h"
#include "db/sqlite_engine.h"

#define APPLICATION_ID 0x46616e54 /* "FanT", in the file's header */

/* Ids beyond this moment (the year 2058) are not from our generator: an import's mistake must not
 * push every later id to the end of time. */
#define ID_FLOOR_LIMIT (INT64_C(1) << 62)

/* ---- creating ---- */

static int in_transaction(struct connection *c, const char *sql, int version)
{
    char mark[160];
    snprintf(mark, sizeof mark,
             "INSERT INTO meta (name, value) VALUES ('schema', '%d') "
             "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
             version);
    int code = connection_run(c, "BEGIN IMMEDIATE");
    if (code != SQLITE_OK)
        return code;
    code = connection_run(c, sql);
    if (code == SQLITE_OK)
        code = connection_run(c, mark);
    if (code == SQLITE_OK)
        code = connection_run(c, "COMMIT");
    if (code != SQLITE_OK && !sqlite3_get_autocommit(c->handle))
        connection_run(c, "ROLLBACK");
    return code;
}

static int create(struct connection *c, const char *path)
{
    struct buf sql;
    buf_init(&sql, 0);
    buf_printf(&sql, "PRAGMA application_id = %d;\n", APPLICATION_ID);
    buf_append(&sql, sqlite_schema_sql, strlen(sqlite_schema_sql) + 1);
    CHECK(!sql.failed);
    int code = in_transaction(c, sql.ptr, SCHEMA_VERSION);
    buf_done(&sql);
    return code == SQLITE_OK ? connection_sync_folder(path) : code;
}

/* ---- migrating ---- */

static enum err migrate(struct connection *c, const char *path, const struct migration *migrations,
                        size_t n, char detail[TX_DETAIL_MAX])
{
    int64_t version = 0;
    int known = n ? migrations[n - 1].to : SCHEMA_VERSION;
    int code = connection_ask(c, "SELECT value FROM meta WHERE name = 'schema'", &version, NULL, 0);
    if (code != SQLITE_OK)
        return connection_fail(c, code, path, detail);
    if (version > known) {
        snprintf(detail, TX_DETAIL_MAX,
                 "%s was written by a newer version (schema %lld, this program knows %d)", path,
                 (long long)version, known);
        return ERR_STORAGE_FAILED;
    }
    for (size_t i = 0; i < n; i++) {
        if (migrations[i].to <= version)
            continue;
        if (migrations[i].to != version + 1)
            break;
        code = in_transaction(c, migrations[i].sql, migrations[i].to);
        if (code != SQLITE_OK) {
            char doing[60];
            snprintf(doing, sizeof doing, "migration to schema %d", migrations[i].to);
            return connection_fail(c, code, doing, detail);
        }
        version++;
    }
    if (version == known)
        return OK;
    snprintf(detail, TX_DETAIL_MAX, "%s has schema %lld and there is no way from there to %d", path,
             (long long)version, known);
    return ERR_STORAGE_FAILED;
}

enum err schema_prepare(struct connection *c, const char *path, const struct migration *migrations,
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
    if (tables == 0) {
        code = create(c, path);
        if (code != SQLITE_OK)
            return connection_fail(c, code, path, detail);
    }
    return migrate(c, path, migrations, n, detail);
}

/* ---- ids ---- */

/* Positions in the stream of events (the done mark) are kept in meta. Events that were delivered
 * and trimmed are known only by them, and a new event below such a mark would count as delivered.
 */
static int raise_from_meta(struct connection *c, struct id_gen *ids)
{
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(c->handle, "SELECT value FROM meta", -1, &s, NULL);
    while (code == SQLITE_OK || code == SQLITE_ROW) {
        code = sqlite3_step(s);
        if (code != SQLITE_ROW)
            break;
        struct str value = {(const char *)sqlite3_column_text(s, 0),
                            (size_t)sqlite3_column_bytes(s, 0)};
        uint64_t id;
        if (value.ptr && id_parse(value, &id) && id < ID_FLOOR_LIMIT)
            id_gen_raise(ids, id);
    }
    sqlite3_finalize(s);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

enum err schema_raise_ids(struct connection *c, struct id_gen *ids, char detail[TX_DETAIL_MAX])
{
    static const char *const tables[] = {"accounts", "posts",    "comments",   "outbox", "groups",
                                         "api_keys", "sessions", "deliveries", "jobs"};
    int code = raise_from_meta(c, ids);
    for (size_t i = 0; i < COUNT_OF(tables) && code == SQLITE_OK; i++) {
        char sql[96];
        int64_t highest = 0;
        snprintf(sql, sizeof sql, "SELECT max(id) FROM %s WHERE id < %lld", tables[i],
                 (long long)ID_FLOOR_LIMIT);
        code = connection_ask(c, sql, &highest, NULL, 0);
        if (code == SQLITE_OK && highest > 0)
            id_gen_raise(ids, (uint64_t)highest);
    }
    return code == SQLITE_OK ? OK : connection_fail(c, code, "reading the highest ids", detail);
}

/* ---- looking ---- */

enum err db_sqlite_schema(const char *path, int *present, int *wanted, char detail[TX_DETAIL_MAX])
{
    struct connection c = {0};
    int64_t version = 0, tables = 0;
    *wanted = SCHEMA_VERSION;
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
