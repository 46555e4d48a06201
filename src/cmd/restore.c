/* `fantail restore PATH`: makes a data folder from a backup.
 *
 * The copy is written beside its final name, checked by SQLite itself, synced and only then
 * renamed, so that a folder never holds half a store. The files of a replaced store (its log, the
 * views' snapshot) go first: a snapshot of other data must never meet this store. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/check.h"
#include "cmd/command.h"
#include "node/runtime.h"
#include "ops/lock.h"
#include "ops/progress.h"

#define PART_FILE "restore.part"

enum { COPY_CHUNK = 1024 * 1024, WHY_MAX = 300 };

static bool copy_bytes(int from, int to, uint64_t size)
{
    struct progress p;
    progress_init(&p, "copying", size, PROGRESS_BYTES);
    uint64_t done = 0;
    ssize_t n;
    while ((n = sendfile(to, from, NULL, COPY_CHUNK)) > 0 || (n < 0 && errno == EINTR)) {
        done += n > 0 ? (uint64_t)n : 0;
        progress_update(&p, done);
    }
    progress_done(&p);
    return n == 0 && fsync(to) == 0;
}

static int copy_file(struct invocation *in, const char *source, const char *target)
{
    struct stat st;
    int from = open(source, O_RDONLY | O_CLOEXEC);
    if (from < 0 || fstat(from, &st) != 0 || !S_ISREG(st.st_mode)) {
        int code = command_fail(in, "cannot read %s: %s", source,
                                from < 0 ? strerror(errno) : "not a file");
        if (from >= 0)
            close(from);
        return code;
    }
    int code = EXIT_DONE;
    int to = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (to < 0 || !copy_bytes(from, to, (uint64_t)st.st_size))
        code = command_fail(in, "cannot write %s: %s", target, strerror(errno));
    if (to >= 0)
        close(to);
    close(from);
    return code;
}

/* One text: "ok" from integrity_check, or the first fault. */
static bool ask(sqlite3 *db, const char *sql, char *out, size_t size)
{
    sqlite3_stmt *statement = NULL;
    bool found = sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
                 sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_text(statement, 0);
    if (found)
        snprintf(out, size, "%s", (const char *)sqlite3_column_text(statement, 0));
    else
        snprintf(out, size, "%s", sqlite3_errmsg(db));
    sqlite3_finalize(statement);
    return found;
}

static int verify(struct invocation *in, const char *path)
{
    sqlite3 *db = NULL;
    char answer[200] = "", accounts[32];
    int code = EXIT_DONE;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
        !ask(db, "PRAGMA integrity_check(1)", answer, sizeof(answer)) || strcmp(answer, "ok") != 0)
        code = command_fail(in, "%s is not a whole backup: %s", in->arguments[0],
                            answer[0] ? answer : "not a database");
    else if (!ask(db, "SELECT count(*) FROM outbox", answer, sizeof(answer)) ||
             !ask(db, "SELECT count(*) FROM accounts WHERE state <> 2", answer, sizeof(answer)))
        code = command_fail(in, "%s is a database, but no store of Fantail: %s", in->arguments[0],
                            answer);
    sqlite3_close(db);
    if (code == EXIT_DONE) {
        progress_print_count(strtoull(answer, NULL, 10), accounts);
        printf("%s: whole, %s accounts\n", in->arguments[0], accounts);
    }
    return code;
}

/* Opening a store in this mode leaves an empty log and its index behind. */
static void remove_traces(const struct invocation *in)
{
    static const char *const traces[] = {PART_FILE "-wal", PART_FILE "-shm"};
    char path[PATH_MAX];
    for (size_t i = 0; i < COUNT_OF(traces); i++)
        if (command_path(in, in->settings.data, traces[i], path))
            unlink(path);
}

static int install(struct invocation *in, const char *part)
{
    static const char *const old[] = {STORE_FILE "-wal", STORE_FILE "-shm", SNAPSHOT_FILE};
    const char *folder = in->settings.data;
    char path[PATH_MAX];
    for (size_t i = 0; i < COUNT_OF(old); i++)
        if (command_path(in, folder, old[i], path) && unlink(path) != 0 && errno != ENOENT)
            return command_fail(in, "cannot remove %s: %s", path, strerror(errno));
    if (!command_path(in, folder, STORE_FILE, path) || rename(part, path) != 0)
        return command_fail(in, "cannot write %s: %s", path, strerror(errno));
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return synced ? EXIT_DONE : command_fail(in, "cannot sync %s: %s", folder, strerror(errno));
}

static int restore_locked(struct invocation *in)
{
    char path[PATH_MAX], part[PATH_MAX];
    const char *folder = in->settings.data;
    if (!command_path(in, folder, STORE_FILE, path) || !command_path(in, folder, PART_FILE, part))
        return EXIT_FAILED;
    if (access(path, F_OK) == 0 && !invocation_has(in, "force"))
        return command_fail(in, "%s holds a store already; --force replaces it", folder);
    int code = copy_file(in, in->arguments[0], part);
    if (code == EXIT_DONE) {
        code = verify(in, part);
        remove_traces(in);
    }
    if (code == EXIT_DONE)
        code = install(in, part);
    if (code != EXIT_DONE)
        unlink(part);
    else
        printf("restored into %s; the views are made again at the next start\n", folder);
    return code;
}

static int run(struct invocation *in)
{
    struct data_lock lock;
    char why[WHY_MAX];
    if (data_lock_take(&lock, in->settings.data, why) != OK)
        return command_fail(in, "%s", why);
    int code = restore_locked(in);
    data_lock_release(&lock);
    return code;
}

const struct command command_restore = {
    .name = "restore",
    .arguments = "PATH",
    .summary = "make a data folder from a backup",
    .about = "Copies the backup PATH into the data folder and checks the copy. Refuses to replace "
             "a store unless --force is given, and always when a server runs on it. Feeds come "
             "from truth: the first start afterwards builds the views again.",
    .examples = "  fantail restore /backups/fantail-2026-11-15.db --data /var/lib/fantail",
    .arguments_min = 1,
    .arguments_max = 1,
    .options = {{"force", NULL, "replace the store that is there"}},
    .run = run,
};
