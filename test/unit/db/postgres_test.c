/* What a network and several writers do to the PostgreSQL driver: lost answers, lost connections, a
 * server that is killed or stopped, rivals, schemas. Against a real server, partly through a proxy
 * that loses messages on demand. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/id.h"
#include "db/postgres_driver.h"
#include "lossy_proxy.h"
#include "postgres_server.h"

/* ---- the world of one test ---- */

struct world {
    char schema[32], url[300];
    struct lossy_proxy *proxy;
    struct postgres_config config;
    struct id_gen ids;
    struct db *db;
    _Atomic int told, fatal_calls; /* events that reached the hook; calls of `fatal` */
};

static void on_commit(void *ctx, const struct event *events, size_t n)
{
    (void)events; /* a call has the events of every job of its group */
    ((struct world *)ctx)->told += (int)n;
}

static void on_fatal(void *ctx, const char *why)
{
    (void)why;
    ((struct world *)ctx)->fatal_calls++;
}

static enum err try_open(struct world *w, struct db **out, char detail[TX_DETAIL_MAX])
{
    enum err e = db_postgres_open(&w->config, &w->ids, clock_system(), out, detail);
    if (e)
        return e;
    (*out)->on_commit = on_commit;
    (*out)->on_commit_ctx = w;
    (*out)->fatal = on_fatal;
    (*out)->fatal_ctx = w;
    return OK;
}

static void open_store(struct world *w)
{
    char detail[TX_DETAIL_MAX];
    enum err e = try_open(w, &w->db, detail);
    if (e)
        fail_msg("open: %s %s", err_name(e), detail);
}

static void close_store(struct world *w)
{
    if (w->db) {
        db_stop(w->db);
        db_free(w->db);
    }
    w->db = NULL;
}

static int set_up(void **state)
{
    static int made;
    struct world *w = calloc(1, sizeof *w);
    CHECK(w);
    snprintf(w->schema, sizeof w->schema, "t%d", ++made);
    postgres_server_make_schema(w->schema);
    w->proxy = lossy_proxy_new(postgres_server_port());
    postgres_server_url(w->schema, lossy_proxy_port(w->proxy), w->url, sizeof w->url);
    postgres_config_default(&w->config);
    w->config.url = w->url;
    w->config.readers = 3;
    w->config.statement_timeout_ms = 1000;
    w->config.connect_timeout_ms = 500;
    w->config.retry_ms = 1000;
    w->config.lookup_ms = 3000;
    id_gen_init(&w->ids, clock_system(), 1);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    close_store(w);
    lossy_proxy_free(w->proxy);
    free(w);
    return 0;
}

/* ---- jobs ---- */

struct add {
    uint64_t id;
    int runs;
};

static enum err add_account(struct tx *tx, void *arg)
{
    struct add *a = arg;
    char name[24];
    int n = snprintf(name, sizeof name, "u%llu", (unsigned long long)a->id);
    a->runs++;
    enum err e = tx_exec(tx, "INSERT INTO accounts (id, username) VALUES ($1, $2)",
                         DB_ARGS(DB_I64(a->id), DB_TEXT(((struct str){name, (size_t)n}))), NULL);
    return e ? e : outbox_emit(tx, (struct event){.type = EVENT_ACCOUNT_CREATED, .actor = a->id});
}

static enum err add(struct world *w, struct add *a)
{
    return db_write(w->db, add_account, a, NULL);
}

static enum err count_accounts(struct tx *tx, void *out)
{
    return tx_get_i64(tx, "SELECT COUNT(*) FROM accounts", DB_NO_ARGS, out);
}

static int64_t accounts_in_truth(struct world *w)
{
    return postgres_server_run(w->schema, "SELECT count(*) FROM accounts");
}

/* ---- lost answers ---- */

static void a_lost_answer_to_commit_is_looked_up(void **state)
{
    struct world *w = *state;
    open_store(w);
    struct add a = {.id = 1};
    lossy_proxy_lose(w->proxy, PROXY_LOSES_THE_ANSWER, "COMMIT", 1);
    assert_int_equal(add(w, &a), OK);
    assert_int_equal(lossy_proxy_lost(w->proxy), 1);
    /* It had committed: run again, its own row would have been in the way. A job may run again
     * before its COMMIT, when its event's id is older than the transaction by the server's
     * clock. */
    assert_true(a.runs >= 1);
    assert_int_equal(w->told, 1);
    assert_int_equal(accounts_in_truth(w), 1);
}

static void a_commit_that_never_arrived_is_run_again(void **state)
{
    struct world *w = *state;
    open_store(w);
    struct add a = {.id = 1}, b = {.id = 2};
    lossy_proxy_lose(w->proxy, PROXY_LOSES_THE_MESSAGE, "COMMIT", 1);
    assert_int_equal(add(w, &a), OK);
    assert_int_equal(a.runs, 2);
    /* The server's side stays open: its session holds the transaction until it is ended. */
    lossy_proxy_lose(w->proxy, PROXY_LOSES_THE_CLIENT, "COMMIT", 1);
    assert_int_equal(add(w, &b), OK);
    assert_true(b.runs >= 2); /* once more when that takes longer than a statement may */
    assert_int_equal(w->told, 2);
    assert_int_equal(accounts_in_truth(w), 2);
}

static void a_fate_that_stays_unknown_is_reported_so(void **state)
{
    struct world *w = *state;
    w->config.lookup_ms = 300;
    w->config.writers = 1; /* the one that is connected */
    open_store(w);
    struct add a = {.id = 1}, b = {.id = 2};
    lossy_proxy_lose(w->proxy, PROXY_LOSES_THE_ANSWER, "COMMIT", 1);
    lossy_proxy_refuse(w->proxy, true, false);
    assert_int_equal(add(w, &a), ERR_UNKNOWN_COMMIT);
    assert_int_equal(w->told, 0);
    assert_int_equal(accounts_in_truth(w), 1); /* in fact it had */
    lossy_proxy_refuse(w->proxy, false, false);
    enum err e;
    while ((e = add(w, &b)) == ERR_UNAVAILABLE)
        usleep(1000);
    assert_int_equal(e, OK);
    assert_int_equal(w->fatal_calls, 0);
}

struct adding {
    struct world *world;
    struct add add;
    enum err result;
};

static void *add_in_thread(void *arg)
{
    struct adding *a = arg;
    a->result = add(a->world, &a->add);
    return NULL;
}

/* After a crash the server says "committed" of another transaction with our id. The test makes by
 * hand what a crash leaves behind, while no client can connect: `sql`, and a new life. */
static void commit_then_crash(struct world *w, const char *sql, struct adding *a)
{
    pthread_t thread;
    lossy_proxy_refuse(w->proxy, true, false);
    lossy_proxy_lose(w->proxy, PROXY_LOSES_THE_ANSWER, "COMMIT", 1);
    pthread_create(&thread, NULL, add_in_thread, a);
    while (lossy_proxy_lost(w->proxy) == 0 || accounts_in_truth(w) == 0)
        usleep(1000);
    postgres_server_run(w->schema, "TRUNCATE server_life");
    postgres_server_run(w->schema, sql);
    lossy_proxy_refuse(w->proxy, false, false);
    pthread_join(thread, NULL);
}

static void after_a_crash_committed_must_be_proved(void **state)
{
    struct world *w = *state;
    w->config.writers = 1;
    open_store(w);
    struct adding a = {.world = w, .add = {.id = 1}};
    commit_then_crash(w, "SELECT 1", &a);
    assert_int_equal(a.result, OK); /* a run after the COMMIT would have met its own row */
    assert_true(a.add.runs >= 1);
    assert_int_equal(w->told, 1);
}

static void after_a_crash_another_ones_commit_is_not_ours(void **state)
{
    struct world *w = *state;
    w->config.writers = 1;
    open_store(w);
    struct adding a = {.world = w, .add = {.id = 1}};
    commit_then_crash(w, "DELETE FROM outbox; DELETE FROM accounts", &a);
    assert_int_equal(a.result, OK);
    assert_true(a.add.runs >= 2);
    assert_int_equal(w->told, 1);
    assert_int_equal(accounts_in_truth(w), 1);
}

/* ---- lost connections ---- */

static void dead_connections_are_replaced(void **state)
{
    struct world *w = *state;
    open_store(w);
    struct add a = {.id = 1}, b = {.id = 2};
    int64_t n = 0;
    assert_int_equal(add(w, &a), OK);
    assert_int_equal(db_read(w->db, count_accounts, &n, NULL), OK);
    lossy_proxy_refuse(w->proxy, false, true);
    assert_int_equal(db_read(w->db, count_accounts, &n, NULL), OK);
    assert_int_equal(n, 1);
    assert_int_equal(add(w, &b), OK);
    assert_int_equal(accounts_in_truth(w), 2);
}

static void an_absent_server_fails_calls_soon(void **state)
{
    struct world *w = *state;
    w->config.retry_ms = 300;
    open_store(w);
    struct add a = {.id = 1};
    int64_t n = 0;
    char detail[TX_DETAIL_MAX];
    lossy_proxy_refuse(w->proxy, true, true);
    int64_t begin = pg_now_ms();
    assert_int_equal(db_read(w->db, count_accounts, &n, detail), ERR_UNAVAILABLE);
    assert_true(detail[0]);
    assert_int_equal(add(w, &a), ERR_UNAVAILABLE);
    /* By now it is known: what comes now does not wait. */
    int64_t known = pg_now_ms();
    for (int i = 0; i < 50; i++)
        assert_int_equal(add(w, &a), ERR_UNAVAILABLE);
    assert_true(pg_now_ms() - known < 50 * w->config.retry_ms / 2); /* not each by itself */
    assert_true(known - begin < 15000);
    lossy_proxy_refuse(w->proxy, false, false);
    while (db_read(w->db, count_accounts, &n, NULL) != OK)
        usleep(1000);
    assert_int_equal(add(w, &a), OK);
    assert_int_equal(w->fatal_calls, 0);
}

static enum err read_in_read(struct tx *tx, void *arg)
{
    int64_t n;
    enum err e = count_accounts(tx, &n);
    return e ? e : db_read(((struct world *)arg)->db, count_accounts, &n, NULL);
}

static void too_many_connections_are_told(void **state)
{
    struct world *w = *state;
    char sql[300], url[300];
    snprintf(sql, sizeof sql,
             "CREATE ROLE few LOGIN CONNECTION LIMIT 2; GRANT ALL ON SCHEMA %s TO few; "
             "ALTER SCHEMA %s OWNER TO few",
             w->schema, w->schema);
    postgres_server_run("public", sql);
    snprintf(url, sizeof url, "postgresql://few@127.0.0.1:%d/postgres?options=-csearch_path%%3D%s",
             postgres_server_port(), w->schema);
    w->config.url = url;
    w->config.writers = 1;
    open_store(w);
    int64_t n;
    assert_int_equal(db_read(w->db, read_in_read, w, NULL), ERR_UNAVAILABLE);
    assert_int_equal(db_read(w->db, count_accounts, &n, NULL), OK);
}

static void a_full_pool_turns_readers_away(void **state)
{
    struct world *w = *state;
    w->config.readers = 1;
    w->config.read_wait_ms = 20;
    open_store(w);
    int64_t n;
    assert_int_equal(db_read(w->db, read_in_read, w, NULL), ERR_OVERLOADED);
    assert_int_equal(db_read(w->db, count_accounts, &n, NULL), OK);
}

/* ---- rivals ---- */

enum { RIVALS = 8, ROUNDS = 40 };

struct rival {
    struct db *db;
    int order, failed;
};

static enum err count_both(struct tx *tx, void *arg)
{
    const struct rival *r = arg;
    enum err e = OK;
    for (int i = 0; i < 2 && !e; i++) {
        /* Read, then write: a lost update would show. Half of them in the other order. */
        int64_t id = 1 + (i ^ r->order), count;
        e = tx_get_i64(tx, "SELECT post_count FROM accounts WHERE id = $1", DB_ARGS(DB_I64(id)),
                       &count);
        if (!e)
            e = tx_exec(tx, "UPDATE accounts SET post_count = $2 WHERE id = $1",
                        DB_ARGS(DB_I64(id), DB_I64(count + 1)), NULL);
    }
    return e;
}

static void *count_often(void *arg)
{
    struct rival *r = arg;
    char detail[TX_DETAIL_MAX];
    for (int i = 0; i < ROUNDS; i++)
        if (db_write(r->db, count_both, r, detail) != OK && r->failed++ == 0)
            fprintf(stderr, "# %s\n", detail);
    return NULL;
}

/* Two nodes, eight threads, two rows that all want, in both orders. */
static void counters_stay_right_under_contention(void **state)
{
    struct world *w = *state;
    char detail[TX_DETAIL_MAX];
    struct db *other;
    open_store(w);
    assert_int_equal(try_open(w, &other, detail), OK);
    struct add a = {.id = 1}, b = {.id = 2};
    assert_int_equal(add(w, &a), OK);
    assert_int_equal(add(w, &b), OK);
    struct rival rivals[RIVALS];
    pthread_t threads[RIVALS];
    for (int i = 0; i < RIVALS; i++) {
        rivals[i] = (struct rival){i < RIVALS / 2 ? w->db : other, i % 2, 0};
        pthread_create(&threads[i], NULL, count_often, &rivals[i]);
    }
    for (int i = 0; i < RIVALS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(rivals[i].failed, 0);
    }
    db_stop(other);
    db_free(other);
    assert_int_equal(
        postgres_server_run(w->schema, "SELECT count(*) FROM accounts WHERE post_count = 320"), 2);
}

/* ---- groups ---- */

struct mixed {
    struct db_job job;
    uint64_t id;
    bool fails;
    enum err result;
    sem_t *finished;
};

static enum err mixed_run(struct tx *tx, struct db_job *job)
{
    struct mixed *m = CONTAINER_OF(job, struct mixed, job);
    struct add a = {.id = m->id};
    enum err e = add_account(tx, &a);
    return e ? e : m->fails ? tx_fail(tx, ERR_INVALID, "as told") : OK;
}

static void mixed_done(struct db_job *job, enum err result, const char *detail)
{
    struct mixed *m = CONTAINER_OF(job, struct mixed, job);
    (void)detail;
    m->result = result;
    sem_post(m->finished);
}

struct holding {
    struct db *db;
    sem_t reached, go;
};

static enum err hold(struct tx *tx, void *arg)
{
    struct holding *h = arg;
    (void)tx;
    sem_post(&h->reached);
    while (sem_wait(&h->go) != 0)
        ;
    return OK;
}

static void *hold_writer(void *arg)
{
    struct holding *h = arg;
    CHECK(db_write(h->db, hold, h, NULL) == OK);
    return NULL;
}

/* A group in which one job fails after it wrote and another meets a taken key: each ends by its own
 * result, the rest commits, and no job is answered twice. */
static void a_group_falls_apart_without_harm(void **state)
{
    struct world *w = *state;
    w->config.writers = 1;
    open_store(w);
    struct add taken = {.id = 5};
    assert_int_equal(add(w, &taken), OK);
    struct holding h = {.db = w->db};
    sem_t finished;
    sem_init(&h.go, 0, 0);
    sem_init(&h.reached, 0, 0);
    sem_init(&finished, 0, 0);
    pthread_t holder;
    pthread_create(&holder, NULL, hold_writer, &h);
    sem_wait(&h.reached);
    struct mixed jobs[10];
    for (size_t i = 0; i < COUNT_OF(jobs); i++) {
        jobs[i] = (struct mixed){.job = {.run = mixed_run, .done = mixed_done},
                                 .id = 1 + i,
                                 .fails = i == 2,
                                 .finished = &finished};
        assert_int_equal(db_submit(w->db, &jobs[i].job), OK);
    }
    sem_post(&h.go);
    pthread_join(holder, NULL);
    for (size_t i = 0; i < COUNT_OF(jobs); i++)
        sem_wait(&finished);
    for (size_t i = 0; i < COUNT_OF(jobs); i++)
        assert_int_equal(jobs[i].result, i == 2 ? ERR_INVALID : i == 4 ? ERR_CONFLICT : OK);
    assert_int_equal(accounts_in_truth(w), 9);
    assert_int_equal(w->told, 9);
}

/* ---- a server that dies ---- */

struct stream {
    struct world *world;
    uint64_t first;
    _Atomic bool stop;
    _Atomic uint64_t acknowledged; /* all up to here, by this thread */
    _Atomic int failed;
};

/* Run again although it had committed, a job would fail: its account is there. */
static void *write_on(void *arg)
{
    struct stream *s = arg;
    while (!s->stop && !s->failed) {
        struct add a = {.id = s->first + s->acknowledged};
        enum err e = add(s->world, &a);
        if (e)
            fprintf(stderr, "# %s\n", err_name(e));
        s->failed += e != OK;
        s->acknowledged += e == OK;
    }
    return NULL;
}

static void wait_for_progress(struct stream *streams, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (uint64_t before = streams[i].acknowledged;
             streams[i].acknowledged < before + 5 && !streams[i].failed;)
            usleep(1000);
}

static void nothing_acknowledged_is_lost_with_the_server(void **state)
{
    struct world *w = *state;
    w->config.retry_ms = w->config.lookup_ms = 30000; /* longer than any restart */
    open_store(w);
    struct stream streams[4];
    pthread_t threads[COUNT_OF(streams)];
    for (size_t i = 0; i < COUNT_OF(streams); i++) {
        streams[i] = (struct stream){.world = w, .first = 1 + i * 1000000};
        pthread_create(&threads[i], NULL, write_on, &streams[i]);
    }
    for (int round = 0; round < 2; round++) {
        wait_for_progress(streams, COUNT_OF(streams));
        postgres_server_signal(SIGKILL);
        postgres_server_restart();
    }
    wait_for_progress(streams, COUNT_OF(streams));
    uint64_t acknowledged = 0;
    for (size_t i = 0; i < COUNT_OF(streams); i++) {
        streams[i].stop = true;
        pthread_join(threads[i], NULL);
        acknowledged += streams[i].acknowledged;
        assert_int_equal(streams[i].failed, 0);
    }
    assert_int_equal(accounts_in_truth(w), acknowledged);
    assert_int_equal(w->told, acknowledged);
    assert_int_equal(w->fatal_calls, 0);
}

static void a_stopped_server_is_not_waited_for(void **state)
{
    struct world *w = *state;
    w->config.statement_timeout_ms = 300;
    w->config.lookup_ms = 500;
    open_store(w);
    struct add a = {.id = 1}, b = {.id = 2};
    int64_t n;
    assert_int_equal(add(w, &a), OK);
    assert_int_equal(db_read(w->db, count_accounts, &n, NULL), OK);
    postgres_server_signal(SIGSTOP);
    int64_t begin = pg_now_ms();
    enum err read = db_read(w->db, count_accounts, &n, NULL);
    int64_t read_ms = pg_now_ms() - begin;
    enum err written = add(w, &b);
    int64_t both_ms = pg_now_ms() - begin;
    postgres_server_signal(SIGCONT);
    assert_int_equal(read, ERR_UNAVAILABLE);
    assert_true(read_ms < 300 + PG_SILENCE_MS + 10000);
    assert_int_equal(written, ERR_UNAVAILABLE);
    assert_true(both_ms < 30000);
    while (db_read(w->db, count_accounts, &n, NULL) != OK)
        usleep(1000);
    assert_int_equal(n, 1);
    /* The writers have connections of their own, which come back in their own time. */
    enum err again = ERR_UNAVAILABLE;
    while (again == ERR_UNAVAILABLE)
        again = add(w, &b);
    assert_int_equal(again, OK);
}

static enum err sleep_long(struct tx *tx, void *arg)
{
    (void)arg;
    struct db_rows rows;
    enum err e = tx_query(tx, "SELECT 1 FROM pg_sleep(10)", DB_NO_ARGS, &rows);
    return e ? e : db_rows_done(&rows);
}

static void a_slow_statement_times_out(void **state)
{
    struct world *w = *state;
    w->config.statement_timeout_ms = 100;
    open_store(w);
    int64_t n;
    assert_int_equal(db_read(w->db, sleep_long, NULL, NULL), ERR_TIMEOUT);
    assert_int_equal(db_read(w->db, count_accounts, &n, NULL), OK);
    assert_int_equal(db_write(w->db, sleep_long, NULL, NULL), ERR_TIMEOUT);
}

/* ---- schemas ---- */

struct opener {
    struct world *world;
    struct db *db;
    enum err result;
};

static void *open_one(void *arg)
{
    struct opener *o = arg;
    char detail[TX_DETAIL_MAX];
    o->result = try_open(o->world, &o->db, detail);
    if (o->result)
        fprintf(stderr, "# %s\n", detail);
    return NULL;
}

static void nodes_that_start_together_share_the_tables(void **state)
{
    struct world *w = *state;
    struct opener openers[4];
    pthread_t threads[COUNT_OF(openers)];
    for (size_t i = 0; i < COUNT_OF(openers); i++) {
        openers[i] = (struct opener){.world = w};
        pthread_create(&threads[i], NULL, open_one, &openers[i]);
    }
    for (size_t i = 0; i < COUNT_OF(openers); i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(openers[i].result, OK);
        db_free(openers[i].db);
    }
}

static void foreign_and_newer_tables_are_refused(void **state)
{
    struct world *w = *state;
    char detail[TX_DETAIL_MAX];
    struct db *db = NULL;
    open_store(w);
    close_store(w);
    postgres_server_run(w->schema, "UPDATE meta SET value = '99' WHERE name = 'schema'");
    assert_int_equal(try_open(w, &db, detail), ERR_STORAGE_FAILED);
    assert_non_null(strstr(detail, "newer"));
    postgres_server_run(w->schema, "DELETE FROM meta WHERE name = 'schema'");
    assert_int_equal(try_open(w, &db, detail), ERR_STORAGE_FAILED);
    assert_non_null(strstr(detail, "another program"));
    postgres_server_run(w->schema, "DROP TABLE meta");
    assert_int_equal(try_open(w, &db, detail), ERR_STORAGE_FAILED); /* accounts are there */
    w->config.url = "postgresql://me:secret@[nonsense";
    assert_int_equal(try_open(w, &db, detail), ERR_INVALID);
    assert_null(strstr(detail, "secret"));
    w->config.url = "postgresql://fantail@127.0.0.1:1/nowhere";
    assert_int_equal(try_open(w, &db, detail), ERR_UNAVAILABLE);
    assert_null(db);
}

static void a_migration_does_not_disturb_running_nodes(void **state)
{
    struct world *w = *state;
    open_store(w);
    struct add a = {.id = 1}, b = {.id = 2};
    assert_int_equal(add(w, &a), OK);
    struct schema_step steps[64];
    memcpy(steps, schema_steps, schema_step_count * sizeof *steps);
    struct schema_step *last = &steps[schema_step_count];
    *last = (struct schema_step){.to = schema_version() + 1,
                                 .postgres = "CREATE TABLE half (name TEXT);\nNONSENSE;\n"};
    size_t n = schema_step_count + 1;
    struct pg_link l;
    char detail[TX_DETAIL_MAX];
    pg_link_init(&l, (struct pg_db *)w->db, PG_WRITER);
    assert_int_equal(pg_link_ensure(&l, detail), OK);
    assert_int_equal(pg_schema_prepare(&l, steps, n, detail), ERR_STORAGE_FAILED);
    assert_non_null(strstr(detail, "migration"));
    assert_int_equal(
        postgres_server_run(w->schema, "SELECT count(*) FROM pg_class WHERE relname = 'half'"), 0);
    last->postgres = "ALTER TABLE accounts ADD COLUMN mood TEXT NOT NULL DEFAULT '';\n"
                     "CREATE TABLE moods (name TEXT PRIMARY KEY);\n";
    assert_int_equal(pg_schema_prepare(&l, steps, n, detail), OK);
    assert_int_equal(pg_schema_prepare(&l, steps, n, detail), OK); /* once is enough */
    pg_link_done(&l);
    assert_int_equal(add(w, &b), OK);
    assert_int_equal(postgres_server_run(w->schema, "SELECT value FROM meta WHERE name = 'schema'"),
                     schema_version() + 1);
}

static void damage_is_fatal(void **state)
{
    struct world *w = *state;
    open_store(w);
    postgres_server_run(w->schema,
                        "CREATE FUNCTION damage() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                        "RAISE EXCEPTION 'invalid page' USING ERRCODE = 'XX001'; END $$;"
                        "CREATE TRIGGER damage BEFORE INSERT ON accounts "
                        "FOR EACH ROW EXECUTE FUNCTION damage()");
    struct add a = {.id = 1};
    assert_int_equal(add(w, &a), ERR_STORAGE_FAILED);
    assert_int_equal(add(w, &a), ERR_STORAGE_FAILED);
    assert_int_equal(w->fatal_calls, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_lost_answer_to_commit_is_looked_up),
        CASE(a_commit_that_never_arrived_is_run_again),
        CASE(a_fate_that_stays_unknown_is_reported_so),
        CASE(after_a_crash_committed_must_be_proved),
        CASE(after_a_crash_another_ones_commit_is_not_ours),
        CASE(dead_connections_are_replaced),
        CASE(an_absent_server_fails_calls_soon),
        CASE(too_many_connections_are_told),
        CASE(a_full_pool_turns_readers_away),
        CASE(counters_stay_right_under_contention),
        CASE(a_group_falls_apart_without_harm),
        CASE(nothing_acknowledged_is_lost_with_the_server),
        CASE(a_stopped_server_is_not_waited_for),
        CASE(a_slow_statement_times_out),
        CASE(nodes_that_start_together_share_the_tables),
        CASE(foreign_and_newer_tables_are_refused),
        CASE(a_migration_does_not_disturb_running_nodes),
        CASE(damage_is_fatal),
    };
    if (!postgres_server_start())
        return 1;
    return cmocka_run_group_tests_name("db/postgres", tests, NULL, NULL);
}
