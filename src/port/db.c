/* The driver-independent half of the db port: thin calls through the driver's table, and what can
 * be built from them once for all drivers (one number, one row; submit and wait). Nothing here
 * keeps state. */
#include "port/db.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"

/* ---- inside a transaction ---- */

enum err tx_fail(struct tx *tx, enum err kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(tx->detail, sizeof tx->detail, format, args);
    va_end(args);
    /* A detail goes into an answer: when it had to be cut, not through the middle of a character.
     */
    size_t len = strlen(tx->detail);
    if (n < 0 || (size_t)n > len)
        tx->detail[str_cut(str_of(tx->detail), len).len] = '\0';
    return kind;
}

enum err tx_exec(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                 int64_t *changed)
{
    return tx->db->ops->exec(tx, sql, args, n, changed);
}

enum err tx_query(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                  struct db_rows *rows)
{
    *rows = (struct db_rows){.tx = tx};
    return tx->db->ops->query(tx, sql, args, n, rows);
}

struct db_rows tx_rows(struct tx *tx, const char *sql, const struct db_value *args, size_t n)
{
    struct db_rows rows;
    enum err error = tx_query(tx, sql, args, n, &rows);
    rows.error = error; /* no rows then */
    return rows;
}

bool db_next(struct db_rows *rows)
{
    return rows->tx->db->ops->next(rows);
}

int64_t db_i64(struct db_rows *rows, int column)
{
    return rows->tx->db->ops->column_i64(rows, column);
}

uint64_t db_id(struct db_rows *rows, int column)
{
    return (uint64_t)db_i64(rows, column);
}

struct str db_text(struct db_rows *rows, int column)
{
    return rows->tx->db->ops->column_text(rows, column);
}

bool db_is_null(struct db_rows *rows, int column)
{
    return rows->tx->db->ops->column_null(rows, column);
}

enum err db_rows_done(struct db_rows *rows)
{
    return rows->tx->db->ops->rows_done(rows);
}

enum err tx_get_rows(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                     db_row_reader read, void *out, size_t size, size_t max, size_t *count)
{
    struct db_rows rows;
    *count = 0;
    enum err error = tx_query(tx, sql, args, n, &rows);
    if (error)
        return error;
    for (; *count < max && db_next(&rows); ++*count)
        read(&rows, (char *)out + *count * size);
    return db_rows_done(&rows);
}

enum err tx_get_row(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                    db_row_reader read, void *out)
{
    size_t found;
    enum err error = tx_get_rows(tx, sql, args, n, read, out, 0, 1, &found);
    return error || found ? error : ERR_NOT_FOUND;
}

enum err tx_get_numbers(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                        int64_t *out, size_t columns)
{
    struct db_rows rows;
    enum err error = tx_query(tx, sql, args, n, &rows);
    if (error)
        return error;
    bool found = db_next(&rows);
    for (size_t i = 0; found && i < columns; i++)
        out[i] = db_i64(&rows, (int)i);
    error = db_rows_done(&rows);
    return error || found ? error : ERR_NOT_FOUND;
}

enum err tx_update_numbers(struct tx *tx, const struct db_update *update,
                           const struct db_value *args, size_t n, int64_t *out, size_t columns)
{
    if (tx->db->shared)
        return tx_get_numbers(tx, update->returning, args, n, out, columns);
    int64_t changed = 0;
    TRY(tx_exec(tx, update->update, args, n, &changed));
    return changed ? tx_get_numbers(tx, update->select, args, 1, out, columns) : ERR_NOT_FOUND;
}

enum err tx_get_ids(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                    uint64_t *out, size_t max, size_t *count)
{
    struct db_rows rows;
    *count = 0;
    enum err error = tx_query(tx, sql, args, n, &rows);
    if (error)
        return error;
    while (*count < max && db_next(&rows))
        out[(*count)++] = db_id(&rows, 0);
    return db_rows_done(&rows);
}

enum err tx_exec_each(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                      size_t count)
{
    return count > 1 ? tx->db->ops->exec_each(tx, sql, args, n, count)
                     : tx_exec_one_by_one(tx, sql, args, n, count);
}

enum err tx_exec_one_by_one(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                            size_t count)
{
    for (size_t i = 0; i < count; i++)
        TRY(tx_exec(tx, sql, args + i * n, n, NULL));
    return OK;
}

enum err tx_get_row_each(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                         size_t count, db_row_reader read, void *out, size_t size, bool *found)
{
    return count > 1 ? tx->db->ops->get_row_each(tx, sql, args, n, count, read, out, size, found)
                     : tx_get_row_one_by_one(tx, sql, args, n, count, read, out, size, found);
}

enum err tx_get_row_one_by_one(struct tx *tx, const char *sql, const struct db_value *args,
                               size_t n, size_t count, db_row_reader read, void *out, size_t size,
                               bool *found)
{
    for (size_t i = 0; i < count; i++) {
        enum err e = tx_get_row(tx, sql, args + i * n, n, read, (char *)out + i * size);
        if (e && e != ERR_NOT_FOUND)
            return e;
        found[i] = !e;
    }
    return OK;
}

/* ---- writes ---- */

enum err db_submit(struct db *db, struct db_job *job)
{
    return db->ops->submit(db, job);
}

/* A write whose caller sleeps until done(). It lives on the caller's stack: done() must not touch
 * it after the unlock. */
struct waiting_write {
    struct db_job job;
    tx_fn run;
    void *arg;
    char *detail;
    enum err result;
    bool finished;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static struct waiting_write *waiting_write_of(struct db_job *job)
{
    return CONTAINER_OF(job, struct waiting_write, job);
}

static enum err run_waiting(struct tx *tx, struct db_job *job)
{
    struct waiting_write *w = waiting_write_of(job);
    return w->run(tx, w->arg);
}

static void finish_waiting(struct db_job *job, enum err result, const char *detail)
{
    struct waiting_write *w = waiting_write_of(job);
    pthread_mutex_lock(&w->lock);
    w->result = result;
    snprintf(w->detail, TX_DETAIL_MAX, "%s", detail ? detail : "");
    w->finished = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

enum err db_write(struct db *db, tx_fn run, void *arg, char detail[TX_DETAIL_MAX])
{
    char own[TX_DETAIL_MAX];
    char *to = detail ? detail : own;
    struct waiting_write w = {
        .job = {.run = run_waiting, .done = finish_waiting},
        .run = run,
        .arg = arg,
        .detail = to,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
    };
    to[0] = '\0';
    enum err error = db_submit(db, &w.job);
    if (error == OK) {
        pthread_mutex_lock(&w.lock);
        while (!w.finished)
            pthread_cond_wait(&w.changed, &w.lock);
        error = w.result;
        pthread_mutex_unlock(&w.lock);
    }
    pthread_cond_destroy(&w.changed);
    pthread_mutex_destroy(&w.lock);
    if (error)
        err_cause_set(to);
    return error;
}

enum err db_read(struct db *db, tx_fn run, void *arg, char detail[TX_DETAIL_MAX])
{
    char own[TX_DETAIL_MAX];
    char *to = detail ? detail : own; /* drivers need not know that it may be NULL */
    to[0] = '\0';
    enum err error = db->ops->read(db, run, arg, to);
    if (error)
        err_cause_set(to);
    return error;
}

/* ---- the driver ---- */

enum err db_backup(struct db *db, const char *path,
                   void (*progress)(void *arg, int done, int total), void *arg)
{
    return db->ops->backup(db, path, progress, arg);
}

void db_stats(struct db *db, struct db_stats *out)
{
    *out = (struct db_stats){0};
    db->ops->stats(db, out);
}

enum err db_horizon(struct db *db, uint64_t *id)
{
    return db->ops->horizon(db, id);
}

enum err db_now(struct db *db, int64_t *wall_ms, int64_t *error_us)
{
    return db->ops->now(db, wall_ms, error_us);
}

void db_stop(struct db *db)
{
    db->ops->stop(db);
}

void db_free(struct db *db)
{
    db->ops->free(db);
}
