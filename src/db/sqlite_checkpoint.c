/* Moves the write-ahead log into the file, on a thread of its own, so that no commit waits for it.
 *
 * Most of the work is done while the writer goes on: passive checkpoints copy all that is committed
 * at their start. But the log can begin again from its front only when every frame is copied, and a
 * busy writer always adds some. So the passes are repeated until little is left, the file is
 * synced, and then the writer is held at its next group (checkpointer_enter) for the last few pages
 * and their sync. The next BEGIN then finds the log fully copied and begins it anew, reusing its
 * blocks, which makes the syncs cheaper too.
 *
 * A reader that still looks into the log keeps it from beginning again; the next round tries again.
 * Above wal_limit_bytes the held writer waits a moment for such readers. One that stays (a backup)
 * makes the log grow until it ends: nothing is refused because of it.
 *
 * A sync of the file that fails here is as fatal as one in COMMIT: the log could otherwise be
 * reused although its pages never reached the disk. Want of space is not: the pages stay in the
 * log. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/sync.h"
#include "db/sqlite_driver.h"

enum {
    FRAME_HEADER_BYTES = 24,
    PASSES_MAX = 4,
    REST_BYTES = 1024 * 1024, /* little enough to hold the writer for */
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

/* One pass; *rest_bytes: what is in the log and not yet in the file. */
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

/* A whole round. */
static enum err checkpoint(struct checkpointer *k)
{
    int64_t rest = 0;
    enum err e = OK;
    for (int i = 0; i < PASSES_MAX; i++) {
        e = pass(k, SQLITE_CHECKPOINT_PASSIVE, &rest);
        if (e || rest <= REST_BYTES)
            break;
    }
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

/* Waits until a round is wanted; false when stopping. */
static bool await_work(struct checkpointer *k)
{
    LOCK_SCOPE(&k->lock);
    while (!k->wanted && !k->stopping)
        pthread_cond_wait(&k->wake, &k->lock);
    k->wanted = false;
    return !k->stopping;
}

static void pause_before_retry(struct checkpointer *k)
{
    struct timespec until = cond_deadline(RETRY_MS);
    LOCK_SCOPE(&k->lock);
    while (!k->stopping && pthread_cond_timedwait(&k->wake, &k->lock, &until) != ETIMEDOUT)
        ;
}

static void *checkpointer_main(void *arg)
{
    struct checkpointer *k = arg;
    while (await_work(k))
        if (checkpoint(k) != OK)
            pause_before_retry(k);
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

/* ---- life cycle ---- */

void checkpointer_init(struct checkpointer *k, struct sqlite_db *db)
{
    *k = (struct checkpointer){.db = db};
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

void checkpointer_done(struct checkpointer *k)
{
    connection_close(&k->connection, false);
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->gate);
    pthread_mutex_destroy(&k->turn);
    pthread_mutex_destroy(&k->lock);
}
