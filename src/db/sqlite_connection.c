/* One connection to the file: the settings each role needs, and SQLite's errors as ours.
 *
 * Every connection is used by one thread at a time (the writer's thread, the checkpointer's, a
 * borrower of a reader), so it is opened without SQLite's own mutex. The store is durable at COMMIT
 * because of journal_mode=WAL with synchronous=FULL: the log is synced before COMMIT returns.
 *
 * Which errors end the process is decided here by kind: ERR_STORAGE_FAILED means that the content
 * of the disk is no longer known. Want of space is never that, however it shows (SQLITE_FULL, or an
 * I/O error with ENOSPC below it), with one exception: after a failed sync the kernel has already
 * forgotten which pages were dirty, so a later success would prove nothing. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "db/sqlite_driver.h"

enum { BUSY_WAIT_MS = 5000, SMALL_CACHE_KB = 2000 };

/* Statistics of SQLite's allocator take one lock for the whole process at each allocation, and the
 * program does not read them. Ignored when the library is already initialized. */
static void configure_library(void)
{
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    cache_register();
    sqlite3_initialize();
    vfs_register();
}

static bool is_want_of_space(int system_error)
{
    return system_error == ENOSPC || system_error == EDQUOT;
}

enum err connection_error(const struct connection *c, int code)
{
    /* The first row that is the code, or its primary code, counts. */
    static const struct {
        int code;
        enum err kind;
    } kinds[] = {
        {SQLITE_OK, OK},
        {SQLITE_ROW, OK},
        {SQLITE_DONE, OK},
        {SQLITE_CONSTRAINT_UNIQUE, ERR_CONFLICT},
        {SQLITE_CONSTRAINT_PRIMARYKEY, ERR_CONFLICT},
        {SQLITE_CONSTRAINT_ROWID, ERR_CONFLICT},
        {SQLITE_IOERR_FSYNC, ERR_STORAGE_FAILED},
        {SQLITE_IOERR_DIR_FSYNC, ERR_STORAGE_FAILED},
        {SQLITE_IOERR_SHMSIZE, ERR_STORAGE_FULL}, /* the log's index: nothing of it is data */
        {SQLITE_IOERR_NOMEM, ERR_NO_MEMORY},
        {SQLITE_IOERR, ERR_STORAGE_FAILED}, /* or full: see below */
        {SQLITE_FULL, ERR_STORAGE_FULL},
        {SQLITE_CORRUPT, ERR_STORAGE_FAILED},
        {SQLITE_NOTADB, ERR_STORAGE_FAILED},
        {SQLITE_CANTOPEN, ERR_STORAGE_FAILED},
        {SQLITE_NOMEM, ERR_NO_MEMORY},
        {SQLITE_BUSY, ERR_UNAVAILABLE},
        {SQLITE_LOCKED, ERR_UNAVAILABLE},
        {SQLITE_TOOBIG, ERR_TOO_LARGE},
    };
    size_t i = 0;
    while (i < COUNT_OF(kinds) && kinds[i].code != code && kinds[i].code != (code & 0xff))
        i++;
    if (i == COUNT_OF(kinds))
        return ERR_INTERNAL;
    bool full = kinds[i].code == SQLITE_IOERR && is_want_of_space(sqlite3_system_errno(c->handle));
    return full ? ERR_STORAGE_FULL : kinds[i].kind;
}

enum err connection_fail(const struct connection *c, int code, const char *what,
                         char detail[TX_DETAIL_MAX])
{
    int kind = code & 0xff;
    int system_error = sqlite3_system_errno(c->handle);
    if (kind == SQLITE_NOTADB)
        snprintf(detail, TX_DETAIL_MAX, "%s is not a database, or is damaged", what);
    else if ((kind == SQLITE_CANTOPEN || kind == SQLITE_IOERR) && system_error)
        snprintf(detail, TX_DETAIL_MAX, "%s: %s (SQLite %d)", what, strerror(system_error), code);
    else
        snprintf(detail, TX_DETAIL_MAX, "%s: %s (SQLite %d)", what, sqlite3_errmsg(c->handle),
                 code);
    return connection_error(c, code);
}

int connection_run(struct connection *c, const char *sql)
{
    return sqlite3_exec(c->handle, sql, NULL, NULL, NULL);
}

int connection_ask(struct connection *c, const char *sql, int64_t *number, char *text,
                   size_t text_size)
{
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(c->handle, sql, -1, &s, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        if (number)
            *number = sqlite3_column_int64(s, 0);
        const unsigned char *value = sqlite3_column_text(s, 0);
        if (text)
            snprintf(text, text_size, "%s", value ? (const char *)value : "");
    }
    sqlite3_finalize(s);
    return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code;
}

/* Settings of the connection alone; those of the file (page size, WAL) are the schema's part.
 * Savepoints copy pages aside: in memory, or each group would write a temporary file. The
 * checkpointer alone moves the log into the file. */
static int apply_settings(struct connection *c, const struct sqlite_config *config,
                          enum connection_role role)
{
    bool works = role == CONNECTION_WRITER || role == CONNECTION_READER;
    bool reads = role == CONNECTION_READER || role == CONNECTION_BACKUP;
    char sql[320];
    int code = sqlite3_busy_timeout(c->handle, BUSY_WAIT_MS);
    sqlite3_extended_result_codes(c->handle, 1);
    sqlite3_db_config(c->handle, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
    sqlite3_db_config(c->handle, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
    sqlite3_db_config(c->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(c->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    snprintf(sql, sizeof sql,
             "PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -%lld; "
             "PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = %lld; "
             "PRAGMA query_only = %d",
             works ? (long long)config->cache_bytes / 1024 : SMALL_CACHE_KB,
             (long long)config->wal_limit_bytes, reads);
    return code == SQLITE_OK ? connection_run(c, sql) : code;
}

enum err connection_refuse_unwritable(const char *path, char detail[TX_DETAIL_MAX])
{
    snprintf(detail, TX_DETAIL_MAX, "%s, its log (-wal) or its folder cannot be written to", path);
    return ERR_STORAGE_FAILED;
}

enum err connection_open(struct connection *c, const struct sqlite_config *config,
                         enum connection_role role, char detail[TX_DETAIL_MAX])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure_library);

    memset(c, 0, sizeof *c);
    map_init(&c->statements, sizeof(struct statement_slot), sizeof(uint64_t));
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    if (role == CONNECTION_WRITER)
        flags |= SQLITE_OPEN_CREATE;
    int code = sqlite3_open_v2(config->path, &c->handle, flags, VFS_NAME);
    if (code != SQLITE_OK) {
        int system_error = c->handle ? sqlite3_system_errno(c->handle) : ENOMEM;
        snprintf(detail, TX_DETAIL_MAX, "cannot open %s: %s", config->path,
                 system_error ? strerror(system_error) : sqlite3_errstr(code));
        sqlite3_close(c->handle);
        c->handle = NULL;
        return is_want_of_space(system_error) ? ERR_STORAGE_FULL : ERR_STORAGE_FAILED;
    }
    /* Before the first read, which would leave a log that is as unwritable as the file. */
    if (sqlite3_db_readonly(c->handle, "main") == 1) {
        connection_close(c, false);
        return connection_refuse_unwritable(config->path, detail);
    }
    code = apply_settings(c, config, role);
    if (code == SQLITE_OK)
        return OK;
    enum err e = (code & 0xff) == SQLITE_READONLY
                     ? connection_refuse_unwritable(config->path, detail)
                     : connection_fail(c, code, config->path, detail);
    connection_close(c, false);
    return e;
}

void connection_close(struct connection *c, bool checkpoint)
{
    if (!c->handle)
        return;
    statements_free(c);
    if (!checkpoint)
        sqlite3_db_config(c->handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    CHECK(sqlite3_close(c->handle) == SQLITE_OK);
    c->handle = NULL;
}

int connection_sync_folder(const char *path)
{
    char *copy = strdup(path);
    CHECK(copy);
    int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    int code = folder >= 0 && fsync(folder) == 0 ? SQLITE_OK : SQLITE_IOERR_DIR_FSYNC;
    if (folder >= 0)
        close(folder);
    return code;
}
