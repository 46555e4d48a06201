/* A consistent copy of a running store, page by page, from a connection that holds one snapshot.
 *
 * SQLite's backup begins again whenever another connection commits, so under load it never ends. It
 * does not when the source connection is inside a read transaction of its own: then every step
 * reads the same snapshot. VACUUM INTO gives a snapshot too, but rebuilds every index, takes
 * several times as long and does not show its progress. The price of the snapshot: the write-ahead
 * log cannot begin again until the copy ends, so it grows by the writes meanwhile.
 *
 * The copy is written to `path`.part and synced, and gets its name last, so that a file called
 * `path` is always whole. An existing file is never replaced. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "db/sqlite_driver.h"

enum { STEP_PAGES = 256 };

/* The copy needs no journal and no sync of its own: it is worth nothing until it is whole. */
static int open_target(const char *path, sqlite3 **target)
{
    int code = sqlite3_open_v2(
        path, target, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_exec(*target, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;", NULL,
                            NULL, NULL);
    return code;
}

static int copy_pages(sqlite3 *source, sqlite3 *target,
                      void (*progress)(void *arg, int done, int total), void *arg)
{
    sqlite3_backup *b = sqlite3_backup_init(target, "main", source, "main");
    if (!b)
        return sqlite3_extended_errcode(target);
    int code;
    do {
        code = sqlite3_backup_step(b, STEP_PAGES);
        int total = sqlite3_backup_pagecount(b);
        if (progress && (code == SQLITE_OK || code == SQLITE_DONE))
            progress(arg, total - sqlite3_backup_remaining(b), total);
    } while (code == SQLITE_OK);
    int finished = sqlite3_backup_finish(b);
    return code == SQLITE_DONE ? finished : code;
}

static enum err copy(struct sqlite_db *db, const char *part,
                     void (*progress)(void *arg, int done, int total), void *arg)
{
    char detail[TX_DETAIL_MAX];
    struct connection source, target = {0};
    enum err e = connection_open(&source, &db->config, CONNECTION_BACKUP, detail);
    if (e)
        return e;
    /* The snapshot begins with the first read, not with BEGIN. */
    int code = connection_run(&source, "BEGIN; SELECT 1 FROM meta;");
    if (code != SQLITE_OK) {
        e = connection_error(&source, code);
    } else {
        code = open_target(part, &target.handle);
        if (code == SQLITE_OK)
            code = copy_pages(source.handle, target.handle, progress, arg);
        e = connection_error(&target, code);
        sqlite3_close(target.handle);
    }
    connection_close(&source, false);
    return e;
}

/* Makes the finished part durable and gives it its name; link() never replaces a file. */
static enum err publish(int file, const char *part, const char *path)
{
    if (fsync(file) != 0)
        return errno == ENOSPC || errno == EDQUOT ? ERR_STORAGE_FULL : ERR_STORAGE_FAILED;
    if (link(part, path) != 0)
        return errno == EEXIST ? ERR_CONFLICT : ERR_STORAGE_FAILED;
    return connection_sync_folder(path) == SQLITE_OK ? OK : ERR_STORAGE_FAILED;
}

/* `part` may be left by a copy that died; within this process backup_lock keeps copies apart. */
static enum err write_part(struct sqlite_db *db, const char *part, const char *path,
                           void (*progress)(void *arg, int done, int total), void *arg)
{
    unlink(part);
    int file = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return errno == ENOSPC || errno == EDQUOT ? ERR_STORAGE_FULL : ERR_INVALID;
    enum err e = copy(db, part, progress, arg);
    if (e == OK)
        e = publish(file, part, path);
    close(file); /* not before SQLite is done: closing any descriptor of a file drops its locks */
    unlink(part);
    return e;
}

enum err sqlite_backup(struct db *base, const char *path,
                       void (*progress)(void *arg, int done, int total), void *arg)
{
    struct sqlite_db *db = (struct sqlite_db *)base;
    if (access(path, F_OK) == 0)
        return ERR_CONFLICT;
    if (pthread_mutex_trylock(&db->backup_lock) != 0)
        return ERR_IN_PROGRESS;
    char *part = NULL;
    CHECK(asprintf(&part, "%s.part", path) > 0);
    enum err e = write_part(db, part, path, progress, arg);
    free(part);
    pthread_mutex_unlock(&db->backup_lock);
    return e;
}
