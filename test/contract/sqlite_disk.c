/* The failing disk. Each open file is ours in front and the real one behind it; only writes and
 * syncs do more than pass on. The switches are atomics: tests flip them while threads work. */
#include "sqlite_disk.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static sqlite3_vfs disk;
static sqlite3_vfs *real;
static _Atomic bool full, log_sync_fails, file_sync_fails;
static _Atomic uint64_t log_syncs;
static _Atomic uint64_t written, untold, burst, burst_max; /* of database files */
static _Atomic int64_t written_us;
static void (*_Atomic told_of_slice)(void *ctx);
static void *_Atomic told_ctx;

struct disk_file {
    sqlite3_file base;
    sqlite3_file *real;
    bool is_log;
};

#define REAL(file) (((struct disk_file *)(file))->real)

void sqlite_disk_full(bool on)
{
    atomic_store(&full, on);
}
void sqlite_disk_fail_sync(bool on)
{
    atomic_store(&log_sync_fails, on);
}
void sqlite_disk_fail_file_sync(bool on)
{
    atomic_store(&file_sync_fails, on);
}
uint64_t sqlite_disk_log_syncs(void)
{
    return atomic_load(&log_syncs);
}

uint64_t sqlite_disk_file_burst(void)
{
    atomic_store(&written, 0);
    atomic_store(&burst, 0);
    return atomic_exchange(&burst_max, 0);
}
void sqlite_disk_on_file_slice(void (*told)(void *ctx), void *ctx)
{
    atomic_store(&told_ctx, ctx);
    atomic_store(&told_of_slice, told);
}

/* One thread writes database files at a time. */
static void note_written(uint64_t n)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now_us = t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
    if (now_us - atomic_exchange(&written_us, now_us) >= DISK_PAUSE_US)
        atomic_store(&burst, 0);
    uint64_t together = atomic_fetch_add(&burst, n) + n;
    if (atomic_fetch_add(&written, n) < DISK_WATCHED_BYTES && together > atomic_load(&burst_max))
        atomic_store(&burst_max, together);
    if (atomic_fetch_add(&untold, n) + n < DISK_SLICE_BYTES)
        return;
    atomic_store(&untold, 0);
    void (*told)(void *ctx) = atomic_load(&told_of_slice);
    if (told)
        told(atomic_load(&told_ctx));
}

static int disk_close(sqlite3_file *f)
{
    return REAL(f)->pMethods->xClose(REAL(f));
}

static int disk_read(sqlite3_file *f, void *out, int n, sqlite3_int64 at)
{
    return REAL(f)->pMethods->xRead(REAL(f), out, n, at);
}

static int disk_write(sqlite3_file *f, const void *bytes, int n, sqlite3_int64 at)
{
    if (atomic_load(&full)) {
        errno = ENOSPC;
        return SQLITE_FULL;
    }
    int code = REAL(f)->pMethods->xWrite(REAL(f), bytes, n, at);
    if (!((struct disk_file *)f)->is_log)
        note_written((uint64_t)n);
    return code;
}

static int disk_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    return REAL(f)->pMethods->xTruncate(REAL(f), size);
}

static int disk_sync(sqlite3_file *f, int flags)
{
    bool is_log = ((struct disk_file *)f)->is_log;
    if (atomic_load(is_log ? &log_sync_fails : &file_sync_fails)) {
        errno = EIO;
        return SQLITE_IOERR_FSYNC;
    }
    int code = REAL(f)->pMethods->xSync(REAL(f), flags);
    if (code == SQLITE_OK && is_log)
        atomic_fetch_add(&log_syncs, 1);
    return code;
}

static int disk_size(sqlite3_file *f, sqlite3_int64 *size)
{
    return REAL(f)->pMethods->xFileSize(REAL(f), size);
}

static int disk_lock(sqlite3_file *f, int level)
{
    return REAL(f)->pMethods->xLock(REAL(f), level);
}
static int disk_unlock(sqlite3_file *f, int level)
{
    return REAL(f)->pMethods->xUnlock(REAL(f), level);
}

static int disk_check_lock(sqlite3_file *f, int *out)
{
    return REAL(f)->pMethods->xCheckReservedLock(REAL(f), out);
}

static int disk_control(sqlite3_file *f, int op, void *arg)
{
    return REAL(f)->pMethods->xFileControl(REAL(f), op, arg);
}

static int disk_sector(sqlite3_file *f)
{
    return REAL(f)->pMethods->xSectorSize(REAL(f));
}
static int disk_traits(sqlite3_file *f)
{
    return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f));
}

static int disk_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
    return REAL(f)->pMethods->xShmMap(REAL(f), page, size, extend, out);
}

static int disk_shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
    return REAL(f)->pMethods->xShmLock(REAL(f), offset, n, flags);
}

static void disk_shm_barrier(sqlite3_file *f)
{
    REAL(f)->pMethods->xShmBarrier(REAL(f));
}

static int disk_shm_unmap(sqlite3_file *f, int remove)
{
    return REAL(f)->pMethods->xShmUnmap(REAL(f), remove);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = disk_close,
    .xRead = disk_read,
    .xWrite = disk_write,
    .xTruncate = disk_truncate,
    .xSync = disk_sync,
    .xFileSize = disk_size,
    .xLock = disk_lock,
    .xUnlock = disk_unlock,
    .xCheckReservedLock = disk_check_lock,
    .xFileControl = disk_control,
    .xSectorSize = disk_sector,
    .xDeviceCharacteristics = disk_traits,
    .xShmMap = disk_shm_map,
    .xShmLock = disk_shm_lock,
    .xShmBarrier = disk_shm_barrier,
    .xShmUnmap = disk_shm_unmap,
};

static int disk_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                     int *out_flags)
{
    (void)vfs;
    struct disk_file *f = (struct disk_file *)file;
    memset(f, 0, sizeof *f);
    f->real = (sqlite3_file *)(f + 1);
    f->is_log = (flags & SQLITE_OPEN_WAL) != 0;
    int code = real->xOpen(real, name, f->real, flags, out_flags);
    if (f->real->pMethods)
        f->base.pMethods = &methods;
    return code;
}

void sqlite_disk_register(void)
{
    if (real)
        return;
    real = sqlite3_vfs_find(NULL);
    if (!real)
        abort();
    disk = *real;
    disk.zName = "failing-disk";
    disk.pNext = NULL;
    disk.szOsFile = real->szOsFile + (int)sizeof(struct disk_file);
    disk.xOpen = disk_open;
    sqlite3_vfs_register(&disk, 1);
}
