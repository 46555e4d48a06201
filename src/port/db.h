/* The truth. One contract, two drivers (SQLite alone, PostgreSQL for many nodes).
 *
 * The contract, checked line by line in test/contract/db_contract.c:
 *  1. A transaction is a function that may be run again and has no effect outside the database
 *     and its own result, which it resets first.
 *  2. done(OK) is called only when the transaction's rows and outbox rows are durable (fsync).
 *  3. When run() returns an error nothing it wrote stays, and other transactions of the same
 *     group are untouched; done() gets that error.
 *  4. done() is called exactly once for each accepted job, in commit order for those committed,
 *     and after the commit hook has seen the job's events. A job's events reach the hook only
 *     when the job committed.
 *  5. Later transactions see what earlier ones wrote, also inside one group.
 *     A driver that runs several jobs at a time keeps the order of 4 and 5 among those whose
 *     events share an actor or an object; whatever it does is as if jobs ran one after the other.
 *     The hook of a store that is not shared runs on the thread that commits: it must not wait. A
 *     shared store calls it on a thread of its own, where it may: what shares no actor or object
 *     with the events at hand is committed meanwhile.
 *  6. A read sees one consistent snapshot, at least as new as every done(OK) before it began.
 *  7. When the queue is full submit refuses with ERR_OVERLOADED; after db_stop with
 *     ERR_STOPPING.
 *  8. Disk full: ERR_STORAGE_FULL, nothing half done, reads go on, writes work again when space
 *     returns. Failed sync: the `fatal` callback; nothing is acknowledged from then on.
 *
 * SQL text is shared by the drivers: parameters $1, $2 …; ON CONFLICT; RETURNING. `ids($1)`
 * stands for a table with one column `id` made from a DB_IDS parameter. SQL texts must be string
 * literals: prepared statements are cached by their address. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "port/event.h"

struct db;
struct tx;
struct db_job;
struct hist;
struct id_gen;

/* ---- values ---- */

enum db_kind { DB_KIND_NULL, DB_KIND_I64, DB_KIND_TEXT, DB_KIND_BLOB, DB_KIND_IDS };

struct db_value {
    enum db_kind kind;
    int64_t number;
    struct str bytes;    /* TEXT, BLOB: must live until the statement was run */
    const uint64_t *ids; /* IDS */
    size_t count;
};

enum { DB_OPENING_ARGS_MAX = 3 };

/* How a job begins: see struct db_job. */
struct db_statement {
    const char *sql;                           /* NULL: none is named */
    struct db_value args[DB_OPENING_ARGS_MAX]; /* no IDS; the first is an I64. Live until done() */
    size_t count;
};

#define DB_NULL      ((struct db_value){.kind = DB_KIND_NULL})
#define DB_I64(n)    ((struct db_value){.kind = DB_KIND_I64, .number = (int64_t)(n)})
#define DB_TEXT(s)   ((struct db_value){.kind = DB_KIND_TEXT, .bytes = (s)})
#define DB_BLOB(s)   ((struct db_value){.kind = DB_KIND_BLOB, .bytes = (s)})
#define DB_IDS(p, n) ((struct db_value){.kind = DB_KIND_IDS, .ids = (p), .count = (n)})
/* "id < $n": the top of all ids when there is no cursor. */
#define DB_BELOW(id)       DB_I64((id) > INT64_MAX ? INT64_MAX : (int64_t)(id))
#define DB_TEXT_OR_NULL(s) ((s).ptr ? DB_TEXT(s) : DB_NULL)

#define DB_ARGS(...)                                                                               \
    (const struct db_value[]){__VA_ARGS__},                                                        \
        sizeof((const struct db_value[]){__VA_ARGS__}) / sizeof(struct db_value)
#define DB_NO_ARGS NULL, 0

/* ---- transactions ---- */

enum { TX_DETAIL_MAX = 200 };

/* What every driver's transaction begins with. */
struct tx {
    struct db *db;
    struct id_gen *ids; /* the node's id generator */
    bool writable;
    struct event_list events;   /* emitted so far by this run */
    char detail[TX_DETAIL_MAX]; /* why run() failed, for the caller's answer; "" when not said */
};

/* Sets the detail and returns the kind: `return tx_fail(tx, ERR_INVALID, "…")`. */
enum err tx_fail(struct tx *tx, enum err kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Runs a statement that returns no rows. `*changed` (may be NULL): how many rows it changed. */
enum err tx_exec(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                 int64_t *changed);

/* Rows one by one:
 *     struct db_rows rows = tx_rows(tx, "SELECT … WHERE id = $1", DB_ARGS(DB_I64(id)));
 *     while (db_next(&rows)) { … db_i64(&rows, 0) … }
 *     return db_rows_done(&rows);             // always, also when leaving the loop early
 * A statement that fails has no rows, and db_rows_done returns its error. Text and blob slices are
 * valid until the next db_next or db_rows_done. */
struct db_rows {
    struct tx *tx;
    void *statement;
    enum err error;
    int64_t row; /* drivers that fetch all rows at once count here */
};
struct db_rows tx_rows(struct tx *tx, const char *sql, const struct db_value *args, size_t n);
/* The same, for a caller that wants the statement's error at once. */
enum err tx_query(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                  struct db_rows *rows);
bool db_next(struct db_rows *rows);
int64_t db_i64(struct db_rows *rows, int column); /* NULL reads as 0 */
uint64_t db_id(struct db_rows *rows, int column);
struct str db_text(struct db_rows *rows, int column); /* NULL reads as {NULL, 0}; TEXT and BLOB */
bool db_is_null(struct db_rows *rows, int column);
enum err db_rows_done(struct db_rows *rows); /* the error that ended the rows, if any */

/* At most `max` rows, each read by `read` into a place of its own: `out` has places of `size`
 * bytes. *count: how many. */
typedef void (*db_row_reader)(struct db_rows *rows, void *out);
enum err tx_get_rows(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                     db_row_reader read, void *out, size_t size, size_t max, size_t *count);
/* One row. ERR_NOT_FOUND when there is none: `out` stays as it is. */
enum err tx_get_row(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                    db_row_reader read, void *out);
/* One row of numbers, NULL read as 0. ERR_NOT_FOUND when there is no row: `out` stays as it is. */
enum err tx_get_numbers(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                        int64_t *out, size_t columns);
static inline enum err tx_get_i64(struct tx *tx, const char *sql, const struct db_value *args,
                                  size_t n, int64_t *out)
{
    return tx_get_numbers(tx, sql, args, n, out, 1);
}

/* An UPDATE of the row whose id is $1, which also answers with columns of that row as it is then.
 * Where each statement is a trip it is one statement, with RETURNING. SQLite makes a table for the
 * answers of each RETURNING, which costs more than the update itself: there it is two statements.
 *     static const struct db_update count = DB_UPDATE("posts", "likes = likes + 1", "", "likes");
 */
struct db_update {
    const char *returning, *update, *select;
};
#define DB_UPDATE(table, set, where, columns)                                                      \
    {                                                                                              \
        "UPDATE " table " SET " set " WHERE id = $1 " where " RETURNING " columns,                 \
            "UPDATE " table " SET " set " WHERE id = $1 " where,                                   \
            "SELECT " columns " FROM " table " WHERE id = $1"                                      \
    }
/* ERR_NOT_FOUND: no row was changed; `out` stays as it is. */
enum err tx_update_numbers(struct tx *tx, const struct db_update *update,
                           const struct db_value *args, size_t n, int64_t *out, size_t columns);

/* The ids in the first column of at most `max` rows. */
enum err tx_get_ids(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                    uint64_t *out, size_t max, size_t *count);

/* A statement for each of `count` rows of `n` arguments, one row behind the other in `args`: as if
 * it was run for one after the other, and one statement where each is a trip. It is an INSERT with
 * VALUES, or an UPDATE or a DELETE with WHERE, and no two rows touch the same row of the table. An
 * argument has one kind in all rows, or is NULL; IDS are not among them. */
enum err tx_exec_each(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                      size_t count);
/* The same with a SELECT of at most one row for each, read into out[i], a place of `size` bytes.
 * found[i]: it had one. */
enum err tx_get_row_each(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                         size_t count, db_row_reader read, void *out, size_t size, bool *found);

/* ---- writes ---- */

/* A write that waits for its commit; embed it in your own struct. The driver owns it from db_submit
 * until done() is called. run() and done() are called on the driver's threads.
 *
 * A job may name its first statement: the statement that it will begin with, whose first argument
 * is an id. A driver for which each statement is a trip may then run the first statements of
 * several jobs, in any order, before it runs the jobs; tx_query for it then returns the stored
 * result. So run() begins with exactly this statement, or fails without any; and jobs with the same
 * first statement may be interleaved like that: none of them sees in its first statement what
 * another did after its own.
 *
 * Jobs may be able to run as one. `together` does for several jobs what run() would do for each, in
 * fewer statements, and says so in taken[i], which is false beforehand; what it leaves it has done
 * nothing for, and run() is called for that afterwards. It gets neighbours of the queue that name
 * the same function, in their order, two or more. An error of its own is no job's: they are run
 * apart. A driver whose statements are no trips has no need to call it. */
struct db_job {
    enum err (*run)(struct tx *tx, struct db_job *job);
    enum err (*together)(struct tx *tx, struct db_job *const *jobs, size_t n, bool *taken);
    void (*done)(struct db_job *job, enum err result, const char *detail);
    struct db_statement first;
    struct db_job *next;        /* the driver's */
    enum err result;            /* the driver's */
    int64_t submitted_us;       /* the driver's */
    char detail[TX_DETAIL_MAX]; /* the driver's */
};

enum err db_submit(struct db *db, struct db_job *job);

/* Submits and waits. Never on an event loop, never inside a transaction. `detail` may be NULL; of a
 * failure it is the caller's err_cause(), too. */
typedef enum err (*tx_fn)(struct tx *tx, void *arg);
enum err db_write(struct db *db, tx_fn run, void *arg, char detail[TX_DETAIL_MAX]);

/* Runs `run` in a read-only snapshot on the calling thread (blocking: never on an event loop). */
enum err db_read(struct db *db, tx_fn run, void *arg, char detail[TX_DETAIL_MAX]);

/* ---- the driver ---- */

/* tx_exec_each and tx_get_row_each for drivers that gain nothing by one statement for many rows. */
enum err tx_exec_one_by_one(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                            size_t count);
enum err tx_get_row_one_by_one(struct tx *tx, const char *sql, const struct db_value *args,
                               size_t n, size_t count, db_row_reader read, void *out, size_t size,
                               bool *found);

struct db_stats {
    uint64_t commits, transactions, failures;
    uint64_t queue_depth, queue_limit;
    uint64_t wal_bytes, file_bytes;
    bool full; /* the last commit failed for want of space */
    /* From submission to done() in µs, of writes that met no checkpoint and of those that did;
     * NULL: the driver makes none. They live as long as the driver. */
    const struct hist *write_us, *checkpoint_write_us;
};

struct db_ops {
    enum err (*submit)(struct db *db, struct db_job *job);
    enum err (*read)(struct db *db, tx_fn run, void *arg, char *detail);
    enum err (*exec)(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                     int64_t *changed);
    enum err (*query)(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                      struct db_rows *rows);
    bool (*next)(struct db_rows *rows);
    int64_t (*column_i64)(struct db_rows *rows, int column);
    struct str (*column_text)(struct db_rows *rows, int column);
    bool (*column_null)(struct db_rows *rows, int column);
    enum err (*rows_done)(struct db_rows *rows);
    /* More than one row; a driver without trips names tx_exec_one_by_one and its like. */
    enum err (*exec_each)(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                          size_t count);
    enum err (*get_row_each)(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                             size_t count, db_row_reader read, void *out, size_t size, bool *found);
    enum err (*backup)(struct db *db, const char *path,
                       void (*progress)(void *arg, int done, int total), void *arg);
    enum err (*horizon)(struct db *db, uint64_t *id);
    enum err (*now)(struct db *db, int64_t *wall_ms, int64_t *error_us);
    void (*stats)(struct db *db, struct db_stats *out);
    void (*stop)(struct db *db); /* refuse new jobs, finish the queue, join threads */
    void (*free)(struct db *db); /* after stop */
};

/* Called after a job's COMMIT and before its done(), with its events and those of others that were
 * committed with it or since; one call at a time. May it wait? See 5. */
typedef void (*db_commit_hook)(void *ctx, const struct event *events, size_t n);

struct db {
    const struct db_ops *ops;
    bool shared; /* other nodes write to it: events become visible in another order than that of
                    their ids, and the commit hook reports this node's alone */
    struct id_gen *ids;
    db_commit_hook on_commit; /* set once, before the first submit */
    void *on_commit_ctx;
    void (*fatal)(void *ctx, const char *why); /* the store failed: stop acknowledging, exit */
    void *fatal_ctx;
};

/* Writes a consistent copy of a running store to `path` (which must not exist). Blocking. */
enum err db_backup(struct db *db, const char *path,
                   void (*progress)(void *arg, int done, int total), void *arg);
void db_stats(struct db *db, struct db_stats *out);
/* Every event with an id at or below *id that any node will ever commit is committed now, so that
 * a later read sees it. A shared store's horizon lags behind the present by some 30 ms and by the
 * longest open write. Not shared: UINT64_MAX. Blocking. */
enum err db_horizon(struct db *db, uint64_t *id);
/* The store's own time, right within ± *error_us: half the round trip to a shared store, 0 for a
 * store in this process. Blocking. */
enum err db_now(struct db *db, int64_t *wall_ms, int64_t *error_us);
void db_stop(struct db *db);
void db_free(struct db *db);
