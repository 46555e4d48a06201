/* The inside of the PostgreSQL driver, included only by the files postgres*.c and their unit tests.
 *
 *     postgres.c            life cycle, vtable, statistics, an absent server
 *     postgres_link.c       one connection: settings, sending, waiting, errors as ours
 *     postgres_statement.c  prepared statements: cache, rewriting, binding, deferring
 *     postgres_each.c       one statement for many rows of arguments
 *     postgres_tx.c         one transaction: its beginning, its failures, its end
 *     postgres_rows.c       results: streamed or whole, and values as ours
 *     postgres_writer.c     the queue, the writers, groups and reruns
 *     postgres_commit.c     COMMIT, its lost answer, the order of hooks
 *     postgres_apply.c      the commit hook and the answers
 *     postgres_readers.c    the pool of snapshots
 *     postgres_horizon.c    how far all events are visible, and the server's time
 *     postgres_schema.c     creating and migrating the tables */
#pragma once

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/rand.h"
#include "base/sync.h"
#include "db/idle.h"
#include "db/postgres.h"
#include "db/schema.h"

enum {
    PG_OID_BYTEA = 17,
    PG_OID_INT8 = 20,
    PG_OID_TEXT = 25,
    PG_OID_INT8_ARRAY = 1016,
    PG_PARAMETERS_MAX = 32,    /* $1 … $32 */
    PG_STATEMENTS_MAX = 4096,  /* per connection */
    PG_SENT_MAX = 256,         /* messages on the way whose answers are not read yet */
    PG_DEFERRED_MAX = 64,      /* of them writes without a waiting caller */
    PG_WHOLE_ROWS_MAX = 1024,  /* a result surely not larger is fetched as a whole */
    PG_KEPT_ROWS_MAX = 100000, /* streamed rows put aside because another statement runs */
    PG_LOCK_WAIT_MS = 100,     /* behind another's row, before it counts as contention */
    PG_SILENCE_MS = 1000,      /* beyond the statement timeout: then the server is gone */
    PG_IDLE_MS = 5000,         /* of a writer inside a transaction: the server ends it */
    PG_EARLY_MS = 10,          /* an event may be so much older than its transaction … */
    PG_MARGIN_MS = 25,         /* … and the horizon stays so far behind the oldest one */
    PG_BEGINS_FIRST = 256,     /* transactions that wait for their BEGIN after one was too late */
    PG_FIRST_MAX = 64,         /* of jobs, run at once */
    PG_TOGETHER_MAX = 256,     /* jobs run as one */
    PG_STRIPES = 256
};

/* How the horizon knows writers among all connections of the database. */
#define PG_WRITER_NAME "fantail writer"
#define PG_READER_NAME "fantail reader"
#define PG_SCHEMA_NAME "fantail schema"

struct pg_db;
struct pg_rows;

/* ---- connections ---- */

struct pg_statement {
    const char *sql; /* the caller's text; its address is the key */
    char *original;  /* a copy of it: an address must not change its text */
    char *text;      /* as PostgreSQL gets it */
    char name[12];
    Oid types[PG_PARAMETERS_MAX]; /* 0: only NULL was ever given */
    int parameter_count;
    bool each;              /* for many rows of arguments: each parameter is an array */
    int8_t limit_parameter; /* LIMIT $n: n; LIMIT with a number ≤ PG_WHOLE_ROWS_MAX: 0; else -1 */
    bool is_write;          /* anything but SELECT */
    bool prepared;          /* the server has it, or will once it read what was sent */
};

struct pg_statement_slot {
    uint64_t sql; /* the address of the text, twice; and one more when it is for each */
    struct pg_statement *statement;
};

enum pg_sent_kind {
    PG_SENT_CONTROL, /* BEGIN and the like, and PREPARE */
    PG_SENT_COMMIT,  /* that it was undone instead is a failure */
    PG_SENT_WRITE,   /* a statement without rows */
    PG_SENT_XID,     /* the transaction's own id */
    PG_SENT_TIME,    /* the server's time when the transaction had begun */
    PG_SENT_QUERY,   /* a statement with rows: its reader takes them */
    PG_SENT_FIRST,   /* the same of a job that has not begun: kept for it */
    PG_SENT_SYNC
};

struct pg_sent {
    enum pg_sent_kind kind;
    struct pg_statement *prepares; /* PREPARE: of this */
};

/* Why something did not work, as the server or libpq said it. */
struct pg_failure {
    char state[6]; /* SQLSTATE; "" when there is none */
    char message[TX_DETAIL_MAX];
};

enum pg_role { PG_WRITER, PG_READER };

struct pg_link {
    struct pg_db *db;
    enum pg_role role;
    int64_t patience_ms; /* with a statement */
    PGconn *handle;      /* NULL: not connected */
    bool lost;           /* the connection failed: nothing more can be had from it */

    struct pg_sent sent[PG_SENT_MAX]; /* a ring: what is on the way, oldest first */
    size_t sent_first, sent_count;
    bool unsynchronized;       /* the newest is not followed by a synchronization point */
    struct pg_rows *streaming; /* whose rows come next */

    bool failed; /* something sent since the last synchronization failed: */
    struct pg_failure failure;
    bool has_rows;    /* … or a write returned rows */
    int64_t changed;  /* rows changed by the last write that was answered */
    uint64_t xid;     /* of the transaction; 0: none known */
    int64_t begun_ms; /* the server's time when the transaction had begun; 0: not known yet */
    int64_t life;     /* of the server when we connected; 0: not known (readers never need it) */

    struct map statements; /* of struct pg_statement_slot */
    uint32_t names_given;
    struct buf scratch; /* DB_IDS arguments as arrays */

    PGresult *first[PG_FIRST_MAX]; /* what they returned, in the order they were sent in */
    size_t first_count;
};

void pg_link_init(struct pg_link *l, struct pg_db *db, enum pg_role role);
void pg_link_done(struct pg_link *l);
/* Connects when it is not connected. Fails at once while the server is known to be away. */
enum err pg_link_ensure(struct pg_link *l, char detail[TX_DETAIL_MAX]);
void pg_link_close(struct pg_link *l);
/* Notes which life of the server this is: a crash begins a new one. */
void pg_link_note_life(struct pg_link *l);

/* Notes what was sent. False: no room, or the connection failed. */
bool pg_link_note(struct pg_link *l, int sent, enum pg_sent_kind kind, struct pg_statement *s);
/* Sends one of our own fixed texts; its answer is read by the next synchronization. */
bool pg_link_send(struct pg_link *l, const char *sql, enum pg_sent_kind kind);
bool pg_link_control(struct pg_link *l, const char *sql); /* BEGIN and the like */
bool pg_link_sync(struct pg_link *l); /* sends what is waiting, and a synchronization point */
/* Reads answers up to a query's rows (for which l->streaming must be set) or to the end. False: the
 * connection is lost. What failed is in l->failed. */
bool pg_link_settle(struct pg_link *l);
/* The next result, or NULL at the end of a statement's or when lost. */
PGresult *pg_link_result(struct pg_link *l);
void pg_link_drop_oldest(struct pg_link *l); /* its results are all read */
void pg_link_take_failure(struct pg_link *l, const PGresult *result);

/* Runs one statement by itself and waits. `out` (may be NULL) gets the first column of the first
 * row as text, "" when there is none. On failure l->failure says why. */
bool pg_link_ask(struct pg_link *l, const char *sql, const char *const *values, int n, char *out,
                 size_t out_size);

/* What an error means to us. */
enum pg_trouble {
    PG_FINE,
    PG_CONTENTION, /* others were in the way: the same may succeed now */
    PG_CONFLICT,   /* a unique key: statement failed, the transaction need not */
    PG_LOST,       /* the connection, and with it the transaction */
    PG_REFUSED     /* this statement cannot be */
};
enum pg_trouble pg_failure_trouble(const struct pg_failure *f);
enum err pg_failure_kind(const struct pg_failure *f, enum pg_role role);
void pg_failure_describe(const struct pg_failure *f, char detail[TX_DETAIL_MAX]);

/* ---- transactions and statements ---- */

struct pg_tx {
    struct tx base;
    struct pg_link *link;
    struct pg_rows *open; /* rows not yet done */
    bool begun;           /* BEGIN is sent */
    bool careful;         /* writes run one by one, each under a savepoint */
    bool wrote;           /* the present job sent a write */
    bool dirty;           /* … or any job of this transaction */
    bool unasked;         /* a write was sent since the transaction's id was last asked for */
    size_t deferred;      /* writes sent and not looked at */
    const struct db_statement *first; /* of the present job, run ahead */
    PGresult *first_result;           /* what it returned, while it was not asked for */
    enum err poison;         /* the transaction cannot commit any more, because of this … */
    enum pg_trouble trouble; /* … which is of this sort */
};

void pg_tx_begin(struct pg_tx *tx, struct pg_link *l, bool writable);
/* Before each further job of the same transaction. */
void pg_tx_next_job(struct pg_tx *tx);
/* Runs the first statements of `n` jobs, which have the same text, in one trip. results[i] is of
 * firsts[i] and the caller's; nothing on failure. */
enum err pg_tx_run_first(struct pg_tx *tx, const struct db_statement *const *firsts, size_t n,
                         PGresult **results);
/* What the present job's first statement returned, for when it asks; after pg_tx_next_job. Takes it
 * over. */
void pg_tx_give_first(struct pg_tx *tx, const struct db_statement *first, PGresult *result);
/* The job has run: true when it never asked for a first statement that changed something. */
bool pg_tx_end_first(struct pg_tx *tx);
/* Closes rows left open and returns what the job must end with, given what run() said. */
enum err pg_tx_end_job(struct pg_tx *tx, enum err result);
/* Begins, and waits for it: every id given from now on is younger than the transaction. */
enum err pg_tx_begin_now(struct pg_tx *tx);
/* Looks at the answers to everything that was sent. */
enum err pg_tx_settle(struct pg_tx *tx);
/* Undoes everything, waiting for it: after that the connection is as new, or lost. */
void pg_tx_roll_back(struct pg_tx *tx);
void pg_tx_poison(struct pg_tx *tx, enum err e, enum pg_trouble trouble, const char *detail);
enum err pg_tx_misuse(struct pg_tx *tx, const char *what, const char *sql);
void pg_tx_lose(struct pg_tx *tx);
/* Takes over l->failed and the like after a synchronization. */
enum err pg_tx_take_failure(struct pg_tx *tx);

enum err pg_statement_exec(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                           int64_t *changed);
enum err pg_statement_query(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                            struct db_rows *rows);
enum err pg_statement_exec_each(struct tx *tx, const char *sql, const struct db_value *args,
                                size_t n, size_t count);
enum err pg_statement_get_row_each(struct tx *tx, const char *sql, const struct db_value *args,
                                   size_t n, size_t count, db_row_reader read, void *out,
                                   size_t size, bool *found);
void pg_statements_free(struct pg_link *l);
/* `sql` with each `ids($N)` as a table made from an array; an alias of it needs AS. */
void pg_statement_rewrite(const char *sql, struct buf *out);
/* `sql` for a table of arguments, each column an array (types[i] is that of its elements; 0: all of
 * it is NULL). What a SELECT returns has one more column, the row's place from 1 on. False: it is
 * not one of the forms that tx_exec_each and tx_get_row_each take. */
bool pg_each_rewrite(const char *sql, const Oid *types, size_t n, struct buf *out);
Oid pg_each_array_type(Oid element); /* 0: bigint */
/* Appends column `i` of the arguments as an array, as it travels. False: it has two kinds. */
bool pg_each_write(struct buf *out, Oid element, const struct db_value *args, size_t n,
                   size_t count, size_t i);
Oid pg_value_type(const struct db_value *v); /* 0: NULL */
/* The row limit that the text itself names: see limit_parameter. */
int pg_statement_find_limit(const char *sql);

/* ---- rows ---- */

/* The rows of one query. Streamed: they come one result each, straight from the connection, until
 * another statement needs it: then the rest is put aside (`kept`). Whole: one result has all. */
struct pg_rows {
    struct pg_tx *tx;
    PGresult *current;
    int row, row_count;
    bool streamed; /* the connection still has more for us */
    PGresult **kept;
    size_t kept_count, kept_at, kept_room;
    enum err error;
    struct pg_rows *open_next, **open_link;
};

struct pg_rows *pg_rows_open(struct pg_tx *tx);
/* The query is sent: waits for its first row, or for all of them. */
enum err pg_rows_start(struct pg_rows *r, bool streamed);
/* Instead: rows that are there already. */
void pg_rows_put(struct pg_rows *r, PGresult *result);
void pg_rows_close(struct pg_rows *r);
/* Takes all rows still on the way, so that the connection is free. False: lost, or too many. */
bool pg_rows_put_aside(struct pg_rows *r);
bool pg_rows_next(struct db_rows *rows);
int64_t pg_rows_i64(struct db_rows *rows, int column);
struct str pg_rows_text(struct db_rows *rows, int column);
bool pg_rows_null(struct db_rows *rows, int column);
enum err pg_rows_done(struct db_rows *rows);
/* A NUMERIC as it travels; false when it is no whole number of 64 bits. */
bool pg_numeric_i64(const unsigned char *bytes, size_t n, int64_t *out);

/* ---- the order of telling ---- */

struct pg_keys {
    uint64_t bits[PG_STRIPES / 64];
};

/* The transactions between COMMIT and the end of their hook, by the stripes of their events' keys.
 */
struct pg_order {
    pthread_mutex_t lock;
    pthread_cond_t left;
    struct pg_keys held;
    struct pg_turn *first, **last; /* the waiting ones, in the order of arrival */
};

struct pg_turn {
    struct pg_keys keys;
    struct pg_turn *next;
};

void pg_keys_add(struct pg_keys *keys, const struct event_list *events);
void pg_order_init(struct pg_order *o);
void pg_order_done(struct pg_order *o);
/* Waits for every earlier turn with one of the same keys. */
void pg_order_enter(struct pg_order *o, struct pg_turn *turn);
void pg_order_leave(struct pg_order *o, const struct pg_turn *turn);

/* ---- writers ---- */

struct pg_slot {
    struct db_job *job;
    enum err result;
    struct event_list events;
    PGresult *first_result; /* by a first statement that was run ahead; NULL: it was not */
    bool offered, taken;    /* to be run together with others; and it was */
};

struct pg_slot *pg_slots_new(const struct pg_db *db); /* group_max of them */
void pg_slots_free(const struct pg_db *db, struct pg_slot *slots);

struct pg_writer {
    struct pg_db *db;
    struct pg_link link;
    struct thread thread;
    struct rand jitter;
    size_t begins_first;   /* so many transactions wait for their BEGIN before they run a job */
    struct pg_slot *slots; /* group_max of them */
    size_t count;
};

struct pg_writers {
    struct pg_db *db;
    struct pg_writer *list;
    size_t count;

    pthread_mutex_t lock; /* guards what follows, up to `alone_waiting` */
    pthread_cond_t wake;  /* a job came, or room for it */
    pthread_cond_t room;  /* for transactions that try again */
    struct db_job *head, **tail;
    size_t waiting;
    bool stopping;
    /* How many transactions may run at a time: halved when they get into each other's way, raised
     * by one after a while of peace. Alone: a transaction that failed twice waits until no other
     * runs. */
    size_t allowed, inside, calm;
    bool alone;
    size_t alone_waiting;
    int64_t taken_ms; /* when the last job was taken from the queue to begin a transaction */

    struct pg_order order;
    _Atomic uint64_t commits, transactions, failures, retries, lookups;
    _Atomic bool full;
};

void pg_writers_init(struct pg_writers *w, struct pg_db *db);
enum err pg_writers_start(struct pg_writers *w);
enum err pg_writers_submit(struct db *db, struct db_job *job);
void pg_writers_stop(struct pg_writers *w); /* finishes the queue, joins */
void pg_writers_done(struct pg_writers *w);

enum pg_end {
    PG_ENDED,       /* every job has its result */
    PG_AGAIN_LATER, /* contention */
    PG_AGAIN_NEW,   /* the connection was lost before COMMIT */
    PG_APART        /* one of the jobs failed in a way that the others must not share */
};

/* How a transaction that failed is tried again. */
enum pg_end pg_end_of(enum pg_trouble trouble);
/* Commits the transaction and answers the slots' jobs; or says why not. */
enum pg_end pg_commit(struct pg_writer *w, struct pg_tx *tx);
void pg_answer(struct pg_db *db, struct pg_slot *slot);
/* No id is given from now on that is older than the writer's transaction. */
void pg_ids_reach(struct pg_writer *w);

/* ---- what follows COMMIT ---- */

enum { PG_APPLY_MAX = 16 };

/* A transaction's jobs, committed and not yet told. */
struct pg_group {
    struct pg_turn turn;
    struct pg_slot *slots; /* group_max of them */
    size_t count;
    struct pg_group *next;
};

struct pg_apply {
    struct pg_db *db;
    struct thread thread;
    struct event_list told; /* scratch: the events of one call of the hook */
    struct pg_group groups[PG_APPLY_MAX];
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;  /* a group came */
    pthread_cond_t room;  /* one is idle */
    struct pg_group *first, **last, *idle;
    bool stopping;
};

void pg_apply_init(struct pg_apply *a, struct pg_db *db);
enum err pg_apply_start(struct pg_apply *a);
void pg_apply_stop(struct pg_apply *a); /* after the writers: answers the waiting groups, joins */
void pg_apply_done(struct pg_apply *a);
/* The writer's jobs have their results: the hook, then the answers; then the turn is over. */
void pg_apply(struct pg_writer *w, const struct pg_turn *turn);

/* ---- readers ---- */

struct pg_readers {
    struct pg_db *db;
    struct pg_link *links;
    size_t count;
    struct idle idle;
};

void pg_readers_init(struct pg_readers *r, struct pg_db *db);
void pg_readers_done(struct pg_readers *r); /* every connection must be back */
enum err pg_readers_run(struct db *db, tx_fn run, void *arg, char *detail);
/* The same over one connection that the caller has to itself. */
enum err pg_readers_run_on(struct pg_link *l, tx_fn run, void *arg, char *detail);

/* ---- the horizon and the server's time ---- */

/* A connection of its own: neither may wait behind readers. */
struct pg_watch {
    pthread_mutex_t lock;
    struct pg_link link;
    int64_t warned_ms; /* when the missing horizon was last logged */
};

void pg_watch_init(struct pg_watch *w, struct pg_db *db);
void pg_watch_done(struct pg_watch *w);
enum err pg_watch_horizon(struct db *db, uint64_t *id);
enum err pg_watch_now(struct db *db, int64_t *wall_ms, int64_t *error_us);

/* ---- schema ---- */

/* Makes the tables where there are none, or brings them to the version of the last step. */
enum err pg_schema_prepare(struct pg_link *l, const struct schema_step *steps, size_t n,
                           char detail[TX_DETAIL_MAX]);
/* The version that is there; 0: no tables. */
enum err pg_schema_look(struct pg_link *l, int *version, char detail[TX_DETAIL_MAX]);
enum err pg_schema_raise_ids(struct pg_link *l, struct id_gen *ids, char detail[TX_DETAIL_MAX]);

/* ---- the driver ---- */

/* When the server was last seen to be away. One caller at a time finds out whether it is back; all
 * others fail at once. */
struct pg_absence {
    pthread_mutex_t lock;
    int64_t since_ms; /* 0: it is there */
    int64_t next_ms;  /* not to be tried before */
};

struct pg_db {
    struct db base;
    struct postgres_config config; /* its url is our own copy */
    struct pg_absence absence;
    struct pg_writers writers;
    struct pg_apply apply;
    struct pg_readers readers;
    struct pg_watch watch;
    _Atomic bool damaged; /* fatal was called */
    _Atomic uint64_t file_bytes;
    _Atomic int64_t size_due_ms;
    _Atomic bool size_wanted;
};

int64_t pg_now_ms(void);
bool pg_absence_may_try(struct pg_db *db);
void pg_absence_end(struct pg_db *db);
void pg_absence_note(struct pg_db *db);
int64_t pg_absence_lasted_ms(struct pg_db *db);
/* The server says that data are damaged: calls `fatal` the first time. */
void pg_db_damaged(struct pg_db *db, const char *why);
/* Asks for the database's size when a caller wants it and the last answer is old. */
void pg_db_measure(struct pg_db *db, struct pg_link *l);

static inline struct pg_db *pg_of(struct db *db)
{
    return (struct pg_db *)db;
}
