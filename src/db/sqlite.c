/* The SQLite driver as a whole: opening in the right order, the vtable, statistics, the end.
 *
 * Threads: the writer's own (all changes), the checkpointer's own, and any number of callers who
 * borrow reader connections. Order of the end: the writer finishes its queue, then the checkpointer
 * stops, then connections close, the writer's last: with it SQLite moves the rest of the log into
 * the file and removes the log, unless the store has failed, when nothing on the disk is touched
 * any more. */
#include "db/sqlite.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/id.h"
#include "db/sqlite_driver.h"

void sqlite_config_default(struct sqlite_config *c)
{
    *c = (struct sqlite_config){
        .path = "data/fantail.db",
        .readers = 4,
        .queue_max = 16384,
        .group_max = 512,
        .read_wait_ms = 1000,
        .cache_bytes = INT64_C(64) << 20,
        .wal_limit_bytes = INT64_C(256) << 20,
    };
}

/* ---- the vtable ---- */

static uint64_t size_of_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static void driver_stats(struct db *base, struct db_stats *out)
{
    struct sqlite_db *db = sqlite_of(base);
    struct writer *w = &db->writer;
    *out = (struct db_stats){
        .commits = atomic_load_explicit(&w->commits, memory_order_relaxed),
        .transactions = atomic_load_explicit(&w->transactions, memory_order_relaxed),
        .failures = atomic_load_explicit(&w->failures, memory_order_relaxed),
        .queue_limit = db->config.queue_max,
        .file_bytes = size_of_file(db->config.path),
        .full = atomic_load(&w->full),
        .write_us = &w->write_us,
        .checkpoint_write_us = &w->checkpoint_write_us,
    };
    pthread_mutex_lock(&w->lock);
    out->queue_depth = w->waiting;
    pthread_mutex_unlock(&w->lock);
    char *log = NULL;
    CHECK(asprintf(&log, "%s-wal", db->config.path) > 0);
    out->wal_bytes = size_of_file(log);
    free(log);
}

static void driver_stop(struct db *db)
{
    writer_stop(&sqlite_of(db)->writer);
    checkpointer_stop(&sqlite_of(db)->checkpointer);
}

static void driver_free(struct db *base)
{
    struct sqlite_db *db = sqlite_of(base);
    driver_stop(base);
    readers_done(&db->readers);
    checkpointer_done(&db->checkpointer);
    writer_done(&db->writer);
    checkpointer_close_file(&db->checkpointer);
    pthread_mutex_destroy(&db->backup_lock);
    free((char *)db->config.path);
    free(db);
}

/* One process writes, and its commit hook reports every event in order. */
static enum err driver_horizon(struct db *base, uint64_t *id)
{
    (void)base;
    *id = UINT64_MAX;
    return OK;
}

static enum err driver_now(struct db *base, int64_t *wall_ms, int64_t *error_us)
{
    *wall_ms = clock_wall_ms(base->ids->clock);
    *error_us = 0;
    return OK;
}

static const struct db_ops ops = {
    .submit = writer_submit,
    .read = readers_run,
    .exec = statement_exec,
    .query = statement_query,
    .exec_each = tx_exec_one_by_one,
    .get_row_each = tx_get_row_one_by_one,
    .next = statement_next,
    .column_i64 = statement_i64,
    .column_text = statement_text,
    .column_null = statement_null,
    .rows_done = statement_rows_done,
    .backup = sqlite_backup,
    .horizon = driver_horizon,
    .now = driver_now,
    .stats = driver_stats,
    .stop = driver_stop,
    .free = driver_free,
};

/* ---- life cycle ---- */

static enum err open_all(struct sqlite_db *db, char detail[TX_DETAIL_MAX])
{
    enum err e = writer_open(&db->writer, detail);
    if (e == OK)
        e = schema_prepare(&db->writer.connection, db->config.path, schema_steps, schema_step_count,
                           detail);
    if (e == OK)
        e = schema_raise_ids(&db->writer.connection, db->base.ids, detail);
    if (e == OK)
        e = checkpointer_open(&db->checkpointer, &db->writer.connection, detail);
    if (e == OK)
        e = readers_open(&db->readers, detail);
    if (e)
        return e;
    if (writer_start(&db->writer) || checkpointer_start(&db->checkpointer)) {
        snprintf(detail, TX_DETAIL_MAX, "cannot start a thread");
        return ERR_NO_MEMORY;
    }
    return OK;
}

/* Whatever the folder's mode is, only the owner reads the store. SQLite gives its other files the
 * mode of the first; they are here for stores of before. What cannot be changed shows when it is
 * opened.
 */
static void make_private(const char *path)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    char name[PATH_MAX];
    int made = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made >= 0)
        close(made);
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        struct stat is;
        if (snprintf(name, sizeof name, "%s%s", path, endings[i]) < (int)sizeof name &&
            stat(name, &is) == 0 && (is.st_mode & (S_IRWXG | S_IRWXO)))
            (void)chmod(name, is.st_mode & S_IRWXU); /* the owner's own rights stay as they are */
    }
}

enum err db_sqlite_open(const struct sqlite_config *config, struct id_gen *ids, struct clock *clock,
                        struct db **out, char detail[TX_DETAIL_MAX])
{
    (void)clock; /* waits here are of real threads, which a hand-moved clock cannot wake */
    CHECK(config->readers > 0 && config->queue_max > 0 && config->group_max > 0);
    detail[0] = '\0';
    struct sqlite_db *db = calloc(1, sizeof *db);
    CHECK(db);
    db->base.ops = &ops;
    db->base.ids = ids;
    db->config = *config;
    db->config.path = strdup(config->path);
    CHECK(db->config.path);
    pthread_mutex_init(&db->backup_lock, NULL);
    writer_init(&db->writer, db);
    checkpointer_init(&db->checkpointer, db);
    readers_init(&db->readers, db);

    make_private(db->config.path);
    enum err e = open_all(db, detail);
    if (e) {
        driver_free(&db->base);
        return e;
    }
    *out = &db->base;
    return OK;
}
