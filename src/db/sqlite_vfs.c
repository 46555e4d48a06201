/* A thin layer between SQLite and the file system that gathers the writes to the write-ahead log.
 *
 * SQLite writes each page of a COMMIT with two small system calls, so a group of 512 posts makes
 * thousands. They are adjacent, and nothing reads them before the sync that ends the COMMIT. This
 * layer keeps them in memory and hands them on in large pieces: when the buffer is full, when
 * something other than the next byte is written, and always before a sync, a read of that place, a
 * truncation or a question for the size. Of the store's own file only the writes pass here, so that
 * the checkpointer can spread its own over time (vfs_watch_writes). The layer below opens all other
 * files, and this layer does not see them again.
 *
 * Why it is safe: frames become visible to other connections only when COMMIT publishes them in the
 * shared index, and with synchronous=FULL (which connection_open sets everywhere) that comes after
 * the sync. The writing connection's own reads of frames that it wrote early pass through the same
 * handle.
 *
 * A piece that cannot be written is dropped, and SQLite gets the error one call late, when it
 * already counts on those bytes. So the place is remembered as a hole: reading it, or writing
 * behind it, fails with the same error, and a transaction that goes on regardless cannot reach its
 * COMMIT. Rolled back, the next transaction writes from before the hole and closes it.
 *
 * The layer below is whatever was SQLite's default when the first store was opened, so a test that
 * wants failing disks registers its own before that. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "db/sqlite_driver.h"

/* SQLite's own layer takes at most 128 KiB less one byte at a time. */
enum { GATHER_BYTES = 124 * 1024 };

static sqlite3_vfs layer;
static sqlite3_vfs *below;

/* Our part of a log's handle; the handle of the layer below follows it. */
struct log_file {
    sqlite3_file base;
    sqlite3_file *below;
    char *bytes;   /* GATHER_BYTES, from the first write on: most connections only read */
    int64_t start; /* where in the file bytes[0] belongs */
    int count;
    int hole_code;                /* why there is a hole; SQLITE_OK: there is none */
    int64_t hole_start, hole_end; /* bytes that SQLite has written and the file has not */
};

/* Behind the handle of the store's own file, which the layer below keeps using as its own: the same
 * operations, except for writing. */
struct store_file {
    sqlite3_io_methods methods;
    const sqlite3_io_methods *below;
    struct vfs_watcher *watcher;
};

static struct store_file *store_of(sqlite3_file *file)
{
    return (struct store_file *)((char *)file + below->szOsFile);
}

static struct log_file *log_of(sqlite3_file *file)
{
    return (struct log_file *)file;
}

static int flush(struct log_file *log)
{
    int count = log->count;
    log->count = 0;
    if (count == 0)
        return SQLITE_OK;
    int code = log->below->pMethods->xWrite(log->below, log->bytes, count, log->start);
    if (code != SQLITE_OK) {
        int64_t end = log->start + count;
        if (log->hole_code == SQLITE_OK || log->start < log->hole_start)
            log->hole_start = log->start;
        if (log->hole_code == SQLITE_OK || end > log->hole_end)
            log->hole_end = end;
        log->hole_code = code;
    }
    return code;
}

/* May these bytes be written? Closes as much of the hole as they cover from its front. */
static int mend(struct log_file *log, int64_t at, int n)
{
    if (log->hole_code == SQLITE_OK || at + n <= log->hole_start)
        return SQLITE_OK;
    if (at > log->hole_start)
        return log->hole_code;
    log->hole_start = at + n;
    if (log->hole_start >= log->hole_end)
        log->hole_code = SQLITE_OK;
    return SQLITE_OK;
}

static int log_close(sqlite3_file *file)
{
    struct log_file *log = log_of(file);
    int code = flush(log);
    int closed = log->below->pMethods->xClose(log->below);
    free(log->bytes);
    return code ? code : closed;
}

static int log_read(sqlite3_file *file, void *out, int n, sqlite3_int64 at)
{
    struct log_file *log = log_of(file);
    if (log->count && at < log->start + log->count && at + n > log->start) {
        int code = flush(log);
        if (code)
            return code;
    }
    if (log->hole_code != SQLITE_OK && at < log->hole_end && at + n > log->hole_start)
        return log->hole_code;
    return log->below->pMethods->xRead(log->below, out, n, at);
}

static int log_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 at)
{
    struct log_file *log = log_of(file);
    int code = SQLITE_OK;
    if (log->count && (at != log->start + log->count || n > GATHER_BYTES - log->count))
        code = flush(log);
    if (code == SQLITE_OK)
        code = mend(log, at, n);
    if (code != SQLITE_OK)
        return code;
    if (!log->bytes)
        log->bytes = malloc(GATHER_BYTES);
    if (!log->bytes || n > GATHER_BYTES)
        return log->below->pMethods->xWrite(log->below, bytes, n, at);
    if (log->count == 0)
        log->start = at;
    memcpy(log->bytes + log->count, bytes, (size_t)n);
    log->count += n;
    return SQLITE_OK;
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct log_file *log = log_of(file);
    int code = flush(log);
    if (code == SQLITE_OK)
        code = log->below->pMethods->xTruncate(log->below, size);
    if (code == SQLITE_OK && size <= log->hole_start)
        log->hole_code = SQLITE_OK;
    return code;
}

static int log_sync(sqlite3_file *file, int flags)
{
    struct log_file *log = log_of(file);
    int code = flush(log);
    return code ? code : log->below->pMethods->xSync(log->below, flags);
}

static int log_size(sqlite3_file *file, sqlite3_int64 *size)
{
    struct log_file *log = log_of(file);
    int code = flush(log);
    return code ? code : log->below->pMethods->xFileSize(log->below, size);
}

static int log_control(sqlite3_file *file, int op, void *arg)
{
    return log_of(file)->below->pMethods->xFileControl(log_of(file)->below, op, arg);
}

static int log_sector_size(sqlite3_file *file)
{
    return log_of(file)->below->pMethods->xSectorSize(log_of(file)->below);
}

static int log_characteristics(sqlite3_file *file)
{
    return log_of(file)->below->pMethods->xDeviceCharacteristics(log_of(file)->below);
}

static const sqlite3_io_methods log_methods = {
    .iVersion = 1, /* no shared memory, no mapping, no locks: SQLite uses none of them on a log */
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xFileControl = log_control,
    .xSectorSize = log_sector_size,
    .xDeviceCharacteristics = log_characteristics,
};

/* ---- the store's own file ---- */

static int store_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 at)
{
    const struct store_file *store = store_of(file);
    int code = store->below->xWrite(file, bytes, n, at);
    if (code == SQLITE_OK && store->watcher)
        store->watcher->written(store->watcher, n);
    return code;
}

static int open_store(const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    int code = below->xOpen(below, name, file, flags, out_flags);
    if (!file->pMethods)
        return code;
    struct store_file *store = store_of(file);
    *store = (struct store_file){.methods = *file->pMethods, .below = file->pMethods};
    store->methods.xWrite = store_write;
    file->pMethods = &store->methods;
    return code;
}

int vfs_watch_writes(sqlite3 *connection, struct vfs_watcher *watcher)
{
    sqlite3_file *file = NULL;
    int code = sqlite3_file_control(connection, NULL, SQLITE_FCNTL_FILE_POINTER, &file);
    if (code == SQLITE_OK) {
        CHECK(file && file->pMethods && file->pMethods->xWrite == store_write);
        store_of(file)->watcher = watcher;
    }
    return code;
}

/* ---- opening ---- */

static int layer_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                      int *out_flags)
{
    (void)vfs;
    if (flags & SQLITE_OPEN_MAIN_DB)
        return open_store(name, file, flags, out_flags);
    if (!(flags & SQLITE_OPEN_WAL))
        return below->xOpen(below, name, file, flags, out_flags);
    struct log_file *log = log_of(file);
    memset(log, 0, sizeof *log);
    log->below = (sqlite3_file *)(log + 1);
    int code = below->xOpen(below, name, log->below, flags, out_flags);
    /* SQLite closes a file that has methods, also after a failed open. */
    if (log->below->pMethods)
        log->base.pMethods = &log_methods;
    return code;
}

void vfs_register(void)
{
    below = sqlite3_vfs_find(NULL);
    CHECK(below);
    layer = *below; /* everything but opening is the same */
    layer.zName = VFS_NAME;
    layer.pNext = NULL;
    CHECK(below->szOsFile % (int)_Alignof(struct store_file) == 0);
    size_t ours = sizeof(struct log_file) > sizeof(struct store_file) ? sizeof(struct log_file)
                                                                      : sizeof(struct store_file);
    layer.szOsFile = below->szOsFile + (int)ours;
    layer.xOpen = layer_open;
    CHECK(sqlite3_vfs_register(&layer, 0) == SQLITE_OK);
}
