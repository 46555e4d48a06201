/* The inside of the SQLite driver, included only by the files sqlite*.c and their unit tests.
 *
 *     sqlite.c              opening, the vtable, statistics, the end
 *     sqlite_connection.c   one connection: its settings, its errors as ours
 *     sqlite_vfs.c          gathers the log's small writes
 *     sqlite_statement.c    prepared statements: cache, rewriting, binding, rows
 *     sqlite_writer.c       the queue and the group commit
 *     sqlite_checkpoint.c   moving the write-ahead log into the file
 *     sqlite_readers.c      the pool of snapshots
 *     sqlite_schema.c       creating and migrating the tables
 *     sqlite_backup.c       the copy of a running store */
#pragma once

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/hist.h"
#include "base/map.h"
#include "base/sync.h"
#include "db/idle.h"
#include "db/schema.h"
#include "db/sqlite.h"

enum {
    PARAMETERS_MAX = 32,       /* $1 … $32 */
    STATEMENTS_MAX = 1024,     /* cached per connection; further texts are prepared each time */
    SCRATCH_KEEP_BYTES = 65536 /* an id list's text larger than this is not kept for the next */
};

struct sqlite_db;
struct connection;

/* ---- connections ---- */

struct statement {
    sqlite3_stmt *handle;
    const char *sql; /* the caller's text; its address is the key */
    char *original;  /* a copy of that text when it was rewritten, else NULL */
    struct connection *connection;
    struct statement *open_next, **open_link; /* in the transaction's list of open rows */
    struct buf scratch;                       /* the JSON text of DB_IDS arguments */
    uint8_t index[PARAMETERS_MAX];            /* $N → SQLite's number of it */
    uint8_t parameter_count;
    bool busy;    /* between query and rows_done */
    bool passing; /* not in the cache: finalized when done */
};

struct statement_slot {
    uint64_t sql; /* the address of the text */
    struct statement *statement;
};

struct connection {
    sqlite3 *handle;
    struct map statements; /* of struct statement_slot */
};

enum connection_role {
    CONNECTION_WRITER,
    CONNECTION_READER,
    CONNECTION_CHECKPOINT,
    CONNECTION_BACKUP
};

enum err connection_open(struct connection *c, const struct sqlite_config *config,
                         enum connection_role role, char detail[TX_DETAIL_MAX]);
void connection_close(struct connection *c, bool checkpoint);
/* Runs one of our own fixed texts that returns no rows; gives SQLite's code. */
int connection_run(struct connection *c, const char *sql);
/* The first column of the first row of such a text, as a number and as text (either may be NULL);
 * unchanged when there is no row. */
int connection_ask(struct connection *c, const char *sql, int64_t *number, char *text,
                   size_t text_size);
/* Our kind for the last error `code` of this connection. */
enum err connection_error(const struct connection *c, int code);
/* Same, and writes what happened to `detail`; `what` was being done, or with which file. */
enum err connection_fail(const struct connection *c, int code, const char *what,
                         char detail[TX_DETAIL_MAX]);

enum err connection_refuse_unwritable(const char *path, char detail[TX_DETAIL_MAX]);

#define VFS_NAME "fantail"
void vfs_register(void); /* once, above SQLite's default */
/* Called after each write of one connection to the store's own file. */
struct vfs_watcher {
    void (*written)(struct vfs_watcher *w, int bytes);
};
int vfs_watch_writes(sqlite3 *connection, struct vfs_watcher *watcher);
void cache_register(void); /* once, before SQLite is initialized */

/* A new file is durable only when its name is: syncs the folder that `path` lies in. */
int connection_sync_folder(const char *path);

/* ---- transactions and statements ---- */

struct sqlite_tx {
    struct tx base;
    struct connection *connection;
    struct statement *open; /* rows not yet done */
    enum err poison;        /* a statement failed in a way that forbids the commit */
    bool busy;              /* … because of a lock: worth another try */
};

void sqlite_tx_begin(struct sqlite_tx *tx, struct sqlite_db *db, struct connection *c,
                     bool writable);
/* Closes rows left open and returns what the transaction must end with, given what run() said. */
enum err sqlite_tx_end(struct sqlite_tx *tx, enum err result);

enum err statement_exec(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                        int64_t *changed);
enum err statement_query(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                         struct db_rows *rows);
bool statement_next(struct db_rows *rows);
int64_t statement_i64(struct db_rows *rows, int column);
struct str statement_text(struct db_rows *rows, int column);
bool statement_null(struct db_rows *rows, int column);
enum err statement_rows_done(struct db_rows *rows);
void statements_free(struct connection *c);
/* Replaces each `ids($N)`; false when there is none. */
bool statement_rewrite(const char *sql, struct buf *out);

/* ---- the writer ---- */

/* What happened to one job of the group that is being written. */
struct group_slot {
    struct db_job *job;
    enum err result;
    bool out; /* lost the transaction: not run again when the others are */
    struct event_list events;
};

struct writer {
    struct sqlite_db *db;
    struct connection connection;
    struct thread thread;

    pthread_mutex_t lock; /* guards what follows, up to `failed` */
    pthread_cond_t wake;
    struct db_job *head, **tail;
    size_t waiting; /* accepted and not yet in a group */
    bool asleep, stopping, failed;

    /* the writer thread's own */
    struct db_job *taken; /* from the queue, waiting for their group */
    struct group_slot *group;
    size_t group_count;
    struct event_list events; /* of the whole group, while the hook runs */
    int guarded;              /* so many groups run with a savepoint around each job */

    _Atomic uint64_t commits, transactions, failures;
    _Atomic bool full;
    struct hist write_us, checkpoint_write_us; /* see struct db_stats */
};

void writer_init(struct writer *w, struct sqlite_db *db);
enum err writer_open(struct writer *w, char detail[TX_DETAIL_MAX]);
enum err writer_start(struct writer *w);
enum err writer_submit(struct db *db, struct db_job *job);
void writer_stop(struct writer *w); /* finishes the queue, joins */
void writer_done(struct writer *w);
/* From any thread: the store cannot be trusted any more. Calls db->fatal the first time. */
void writer_fail(struct writer *w, const char *why);

/* ---- checkpoints ---- */

struct checkpointer {
    struct sqlite_db *db;
    struct connection connection;
    struct thread thread;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool wanted, stopping;

    /* The writer is inside `gate` from BEGIN to COMMIT. A thread that wants the gate waits for it
     * holding `turn`, so that a writer with a full queue cannot take it again and again. */
    pthread_mutex_t turn, gate;

    int64_t frame_bytes;       /* a page and its header in the log */
    _Atomic int64_t wal_bytes; /* after the last commit */
    int64_t next_bytes;        /* the writer's: at this size it wants the next round */

    /* Its own: how the round's writes are spread. */
    struct vfs_watcher watcher;
    bool slices;
    int64_t slice_bytes; /* written since the last rest */
    int64_t rest_us;
    int write_back_fd; /* of the store's file */

    /* When the last round began and ended; it is under way when it began after it ended. */
    _Atomic int64_t began_us, ended_us;
};

void checkpointer_init(struct checkpointer *k, struct sqlite_db *db);
/* The writer reports each commit to it from now on. */
enum err checkpointer_open(struct checkpointer *k, struct connection *writer,
                           char detail[TX_DETAIL_MAX]);
enum err checkpointer_start(struct checkpointer *k);
void checkpointer_stop(struct checkpointer *k);
void checkpointer_done(struct checkpointer *k);
void checkpointer_close_file(struct checkpointer *k); /* after every connection is closed */
void checkpointer_enter(struct checkpointer *k);      /* the writer: before BEGIN … */
void checkpointer_leave(struct checkpointer *k);      /* … and after COMMIT */
void checkpointer_want(struct checkpointer *k);       /* a round, soon */
/* Is a round under way, or was one since then? */
bool checkpointer_met(const struct checkpointer *k, int64_t since_us);

/* ---- readers ---- */

struct readers {
    struct sqlite_db *db;
    struct connection *connections;
    size_t count;
    struct idle idle;
};

void readers_init(struct readers *r, struct sqlite_db *db);
enum err readers_open(struct readers *r, char detail[TX_DETAIL_MAX]);
void readers_done(struct readers *r); /* every connection must be back */
enum err readers_run(struct db *db, tx_fn run, void *arg, char *detail);

/* ---- schema and backup ---- */

/* Makes the tables in an empty file, or brings them to the version of the last step. */
enum err schema_prepare(struct connection *c, const char *path, const struct schema_step *steps,
                        size_t n, char detail[TX_DETAIL_MAX]);
/* Raises the id generator above every id the store has seen. */
enum err schema_raise_ids(struct connection *c, struct id_gen *ids, char detail[TX_DETAIL_MAX]);

enum err sqlite_backup(struct db *db, const char *path,
                       void (*progress)(void *arg, int done, int total), void *arg);

/* ---- the driver ---- */

struct sqlite_db {
    struct db base;
    struct sqlite_config config; /* its path is our own copy */
    struct writer writer;
    struct checkpointer checkpointer;
    struct readers readers;
    pthread_mutex_t backup_lock; /* one copy at a time */
};

static inline struct sqlite_db *sqlite_of(struct db *db)
{
    return (struct sqlite_db *)db;
}
