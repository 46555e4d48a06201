/* Moves the write-ahead log into the file, on a thread of its own, so that no commit waits for it.
 *
 * Most of the work is done while the writer goes on: passive checkpoints copy all that is committed
 * at their start. But the log can begin again from its front only when every frame is copied, and a
 * busy writer always adds some. So the passes are repeated until little is left, the file is
 * synced, and then the writer is held at its next group (checkpointer_enter) for the last few pages
 * and their sync. The next BEGIN then finds the log fully copied and begins it anew, reusing its
 * blocks, which makes the syncs cheaper too.
 *
 * A pass that left all its writes to the sync at its end would fill the disk's queue, and every
 * commit would wait behind it. So after each slice the kernel is asked to start writing it, and the
 * thread rests: a commit finds about one slice before it, and most find none. (A sync of each slice
 * would flush the disk's cache and commit the file system's journal as often.) Later passes, which
 * must outrun the writer, rest less, and with little room left in the log there is no rest.
 *
 * A reader that still looks into the log keeps it from beginning again; the next round tries again.
 * Above wal_limit_bytes the held writer waits a moment for such readers. One that stays (a backup)
 * makes the log grow until it ends: nothing is refused because of it.
 *
 * A sync of the file that fails here is as fatal as one in COMMIT: the log could otherwise be
 * reused although its pages never reached the disk. Want of space is not: the pages stay in the
 * log. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/sync.h"
#include "db/sqlite_driver.h"

enum {
    FRAME_HEADER_BYTES = 24,
    PASSES_MAX = 5,
    LEFT_BYTES = 512 * 1024, /* little enough to hold the writer for */
    SLICE_BYTES = 128 * 1024,
    REST_US = 1000, /* after a slice, at the first pass of a log with room left; then less */
    READERS_WAIT_MS = 50,
    RETRY_MS = 200 /* after a round that could not finish (no space, a reader) */
};

/* What a failed call means; a sync that failed ends the store. */
static enum err judge(struct checkpointer *k, int code)
{
    if (code == SQLITE_OK || (code & 0xff) == SQLITE_BUSY)
        return OK;
    enum err e = connection_error(&k->connection, code);
    if (e == ERR_STORAGE_FAILED) {
        char detail[TX_DETAIL_MAX];
        connection_fail(&k->connection, code, "checkpoint", detail);
        writer_fail(&k->db->writer, detail);
    }
    return e;
}

/* ---- slices ---- */

static void rest(struct checkpointer *k, int64_t us)
{
    struct timespec until = cond_deadline_us(us);
    LOCK_SCOPE(&k->lock);
    while (!k->stopping && pthread_cond_timedwait(&k->wake, &k->lock, &until) != ETIMEDOUT)
        ;
}

/* Is there no time to rest, because the log would outgrow its limit meanwhile? */
static bool is_late(const struct checkpointer *k)
{
    int64_t limit = k->db->config.wal_limit_bytes;
    return atomic_load_explicit(&k->wal_bytes, memory_order_relaxed) > limit / 4 * 3;
}

/* After each page that a pass has copied. */
static void written(struct vfs_watcher *w, int bytes)
{
    struct checkpointer *k = CONTAINER_OF(w, struct checkpointer, watcher);
    k->slice_bytes += bytes;
    if (!k->slices || k->slice_bytes < SLICE_BYTES)
        return;
    k->slice_bytes = 0;
    /* Only a beginning: what fails is met again by the sync that ends the pass. */
    (void)sync_file_range(k->write_back_fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    if (k->rest_us > 0 && !is_late(k))
        rest(k, k->rest_us);
}

/* ---- a round ---- */

/* One pass; *rest_bytes: bytes in the log and not yet in the file. */
static enum err pass(struct checkpointer *k, int mode, int64_t *rest_bytes)
{
    int in_log = 0, copied = 0;
    int code = sqlite3_wal_checkpoint_v2(k->connection.handle, NULL, mode, &in_log, &copied);
    *rest_bytes = in_log > copied ? (in_log - copied) * k->frame_bytes : 0;
    return judge(k, code);
}

/* Syncs what the passes copied, while the writer goes on: SQLite itself syncs the file only when
 * everything is copied, that is, while the writer is held, and would hold it for all of it. */
static enum err flush(struct checkpointer *k)
{
    sqlite3_file *file = NULL;
    int code = sqlite3_file_control(k->connection.handle, NULL, SQLITE_FCNTL_FILE_POINTER, &file);
    if (code == SQLITE_OK && file && file->pMethods)
        code = file->pMethods->xSync(file, SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
    return judge(k, code);
}

/* A whole round. The later passes copy what came during the ones before: they must be faster than
 * the writer, and have less to copy. */
static enum err copy_log(struct checkpointer *k)
{
    int64_t rest = 0;
    enum err e = OK;
    k->slices = true;
    for (int i = 0; i < PASSES_MAX; i++) {
        k->slice_bytes = 0;
        k->rest_us = REST_US >> 2 * i;
        e = pass(k, SQLITE_CHECKPOINT_PASSIVE, &rest);
        if (e || rest <= LEFT_BYTES)
            break;
    }
    k->slices = false; /* SQLite syncs the last pages itself, once */
    if (!e)
        e = flush(k);
    if (e)
        return e;
    bool large = atomic_load(&k->wal_bytes) > k->db->config.wal_limit_bytes;
    checkpointer_enter(k);
    e = pass(k, large ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE, &rest);
    checkpointer_leave(k);
    return e;
}

static enum err checkpoint(struct checkpointer *k)
{
    atomic_store(&k->began_us, clock_mono_us(clock_system()));
    enum err e = copy_log(k);
    atomic_store(&k->ended_us, clock_mono_us(clock_system()));
    return e;
}

/* Waits until a round is wanted; false when stopping. */
static bool await_work(struct checkpointer *k)
{
    LOCK_SCOPE(&k->lock);
    while (!k->wanted && !k->stopping)
        pthread_cond_wait(&k->wake, &k->lock);
    k->wanted = false;
    return !k->stopping;
}

static void *checkpointer_main(void *arg)
{
    struct checkpointer *k = arg;
    while (await_work(k))
        if (checkpoint(k) != OK)
            rest(k, RETRY_MS * INT64_C(1000));
    return NULL;
}

/* ---- the writer's side ---- */

void checkpointer_want(struct checkpointer *k)
{
    LOCK_SCOPE(&k->lock);
    k->wanted = true;
    pthread_cond_signal(&k->wake);
}

/* A round is wanted for each quarter of the limit that the log grows by: while a reader keeps it
 * from beginning again, rounds at every commit would only repeat themselves. */
static int on_commit(void *ctx, sqlite3 *handle, const char *name, int frames)
{
    (void)handle, (void)name;
    struct checkpointer *k = ctx;
    int64_t quarter = k->db->config.wal_limit_bytes / 4;
    int64_t bytes = frames * k->frame_bytes;
    int64_t before = atomic_exchange_explicit(&k->wal_bytes, bytes, memory_order_relaxed);
    if (bytes < before) /* it began again */
        k->next_bytes = quarter;
    if (bytes > k->next_bytes) {
        k->next_bytes = bytes + quarter;
        checkpointer_want(k);
    }
    return SQLITE_OK;
}

void checkpointer_enter(struct checkpointer *k)
{
    pthread_mutex_lock(&k->turn);
    pthread_mutex_lock(&k->gate);
    pthread_mutex_unlock(&k->turn);
}

void checkpointer_leave(struct checkpointer *k)
{
    pthread_mutex_unlock(&k->gate);
}

bool checkpointer_met(const struct checkpointer *k, int64_t since_us)
{
    int64_t ended_us = atomic_load_explicit(&k->ended_us, memory_order_relaxed);
    return ended_us >= since_us ||
           atomic_load_explicit(&k->began_us, memory_order_relaxed) > ended_us;
}

/* ---- life cycle ---- */

void checkpointer_init(struct checkpointer *k, struct sqlite_db *db)
{
    *k = (struct checkpointer){.db = db, .write_back_fd = -1};
    pthread_mutex_init(&k->lock, NULL);
    pthread_mutex_init(&k->turn, NULL);
    pthread_mutex_init(&k->gate, NULL);
    cond_init(&k->wake);
}

enum err checkpointer_open(struct checkpointer *k, struct connection *writer,
                           char detail[TX_DETAIL_MAX])
{
    TRY(connection_open(&k->connection, &k->db->config, CONNECTION_CHECKPOINT, detail));
    int64_t page_bytes = 0;
    int code = connection_ask(&k->connection, "PRAGMA page_size", &page_bytes, NULL, 0);
    if (code != SQLITE_OK)
        return connection_fail(&k->connection, code, "page size", detail);
    k->frame_bytes = page_bytes + FRAME_HEADER_BYTES;
    sqlite3_busy_timeout(k->connection.handle, READERS_WAIT_MS);
    k->write_back_fd = open(k->db->config.path, O_RDWR | O_CLOEXEC);
    if (k->write_back_fd < 0)
        return connection_refuse_unwritable(k->db->config.path, detail);
    k->watcher.written = written;
    code = vfs_watch_writes(k->connection.handle, &k->watcher);
    if (code != SQLITE_OK)
        return connection_fail(&k->connection, code, "watching writes", detail);
    k->next_bytes = k->db->config.wal_limit_bytes / 4;
    sqlite3_wal_hook(writer->handle, on_commit, k);
    return OK;
}

enum err checkpointer_start(struct checkpointer *k)
{
    return thread_start(&k->thread, "db-checkpoint", checkpointer_main, k) ? OK : ERR_NO_MEMORY;
}

void checkpointer_stop(struct checkpointer *k)
{
    pthread_mutex_lock(&k->lock);
    k->stopping = true;
    pthread_mutex_unlock(&k->lock);
    pthread_cond_signal(&k->wake);
    thread_join(&k->thread);
}

/* Closing any descriptor of a file ends the locks that SQLite has on it for the whole process. */
void checkpointer_close_file(struct checkpointer *k)
{
    if (k->write_back_fd >= 0)
        close(k->write_back_fd);
}

void checkpointer_done(struct checkpointer *k)
{
    connection_close(&k->connection, false);
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->gate);
    pthread_mutex_destroy(&k->turn);
    pthread_mutex_destroy(&k->lock);
}
