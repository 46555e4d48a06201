/* Openings on PostgreSQL: that they are run ahead in one transaction, and what becomes of them when
 * a job does not keep to what it named, an answer is lost, or two nodes want the same rows. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/id.h"
#include "db/postgres_driver.h"
#include "lossy_proxy.h"
#include "postgres_server.h"

enum { PEOPLE = 40, GROUP = 12 };

static const char count_sql[] =
    "UPDATE accounts SET post_count = post_count + 1 WHERE id = $1 RETURNING post_count";

struct world {
    char schema[32], url[300];
    struct lossy_proxy *proxy;
    struct postgres_config config;
    struct id_gen ids;
    struct db *db;
    pthread_mutex_t lock;
    uint64_t told[4096]; /* objects of the events, in the order of the hook's calls */
    size_t told_count;
};

static void on_commit(void *ctx, const struct event *events, size_t n)
{
    struct world *w = ctx;
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < n && w->told_count < COUNT_OF(w->told); i++)
        w->told[w->told_count++] = events[i].object;
    pthread_mutex_unlock(&w->lock);
}

static struct db *open_one(struct world *w)
{
    struct db *db;
    char detail[TX_DETAIL_MAX];
    enum err e = db_postgres_open(&w->config, &w->ids, clock_system(), &db, detail);
    if (e)
        fail_msg("open: %s %s", err_name(e), detail);
    db->on_commit = on_commit;
    db->on_commit_ctx = w;
    return db;
}

static void open_store(struct world *w, int writers)
{
    w->config.writers = writers;
    w->db = open_one(w);
    char sql[160];
    snprintf(sql, sizeof sql,
             "INSERT INTO accounts (id, username) SELECT g, 'u' || g FROM generate_series(1, %d) g",
             PEOPLE);
    postgres_server_run(w->schema, sql);
}

static void close_db(struct db *db)
{
    db_stop(db);
    db_free(db);
}

static int set_up(void **state)
{
    static int made;
    struct world *w = calloc(1, sizeof *w);
    CHECK(w);
    snprintf(w->schema, sizeof w->schema, "o%d", ++made);
    postgres_server_make_schema(w->schema);
    w->proxy = lossy_proxy_new(postgres_server_port());
    postgres_server_url(w->schema, lossy_proxy_port(w->proxy), w->url, sizeof w->url);
    postgres_config_default(&w->config);
    w->config.url = w->url;
    w->config.readers = 1;
    w->config.lookup_ms = 3000;
    id_gen_init(&w->ids, clock_system(), 1);
    pthread_mutex_init(&w->lock, NULL);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    if (w->db)
        close_db(w->db);
    lossy_proxy_free(w->proxy);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return 0;
}

/* ---- jobs ---- */

enum manner {
    AS_NAMED,
    REFUSES,
    FAILS,
    DOES_NOTHING,
    FORGETS_TO_ASK,
    ASKS_FOR_ANOTHER,
    BEGINS_OTHERWISE
};

struct post {
    struct db_job job;
    uint64_t id, author;
    enum manner manner;
    int runs, dones;
    int64_t count;
    enum err result;
    sem_t *finished;
};

static enum err post_run(struct tx *tx, struct db_job *job)
{
    struct post *p = CONTAINER_OF(job, struct post, job);
    int64_t number;
    enum err e = OK;
    p->runs++;
    if (p->manner == REFUSES)
        return tx_fail(tx, ERR_INVALID, "refused");
    if (p->manner == DOES_NOTHING)
        return OK;
    if (p->manner == BEGINS_OTHERWISE)
        e = tx_get_i64(tx, "SELECT count(*) FROM accounts WHERE id = $1",
                       DB_ARGS(DB_I64(p->author)), &number);
    if (!e && p->manner != FORGETS_TO_ASK)
        e = tx_get_i64(tx, count_sql,
                       DB_ARGS(DB_I64(p->manner == ASKS_FOR_ANOTHER ? 1 : p->author)), &p->count);
    if (!e && p->manner == FAILS)
        e = tx_fail(tx, ERR_INVALID, "failed");
    if (!e)
        e = tx_exec(tx,
                    "INSERT INTO posts (id, author_id, caption, delivery) VALUES ($1, $2, $3, $4)",
                    DB_ARGS(DB_I64(p->id), DB_I64(p->author), DB_TEXT(STR("x")), DB_I64(0)), NULL);
    return e ? e
             : outbox_emit(
                   tx,
                   (struct event){.type = EVENT_POST_CREATED, .actor = p->author, .object = p->id});
}

static void post_done(struct db_job *job, enum err result, const char *detail)
{
    struct post *p = CONTAINER_OF(job, struct post, job);
    (void)detail;
    p->dones++;
    p->result = result;
    sem_post(p->finished);
}

static void post_init(struct post *p, uint64_t id, uint64_t author, sem_t *finished)
{
    *p = (struct post){
        .job = {.run = post_run, .done = post_done, .first = {count_sql, {DB_I64(author)}, 1}},
        .id = id,
        .author = author,
        .finished = finished};
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

/* All of them in one group of the only writer. */
static void write_group(struct world *w, struct post *posts, size_t n, sem_t *finished)
{
    struct holding h = {.db = w->db};
    pthread_t holder;
    sem_init(&h.go, 0, 0);
    sem_init(&h.reached, 0, 0);
    pthread_create(&holder, NULL, hold_writer, &h);
    sem_wait(&h.reached);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(db_submit(w->db, &posts[i].job), OK);
    sem_post(&h.go);
    pthread_join(holder, NULL);
    for (size_t i = 0; i < n; i++)
        sem_wait(finished);
}

static void make_group(struct post *posts, size_t n, sem_t *finished)
{
    sem_init(finished, 0, 0);
    /* Falling authors: first statements go in another order than jobs. */
    for (size_t i = 0; i < n; i++)
        post_init(&posts[i], 1000 + i, PEOPLE - i, finished);
}

static int64_t counted(struct world *w)
{
    return postgres_server_run(w->schema, "SELECT sum(post_count)::bigint FROM accounts");
}

static int64_t stored(struct world *w)
{
    return postgres_server_run(w->schema, "SELECT count(*) FROM posts JOIN outbox ON payload LIKE "
                                          "'%' || posts.id || '%'");
}

/* ---- the cases ---- */

static void a_group_is_one_transaction_told_in_order(void **state)
{
    struct world *w = *state;
    struct post posts[GROUP];
    struct db_stats before, after;
    sem_t finished;
    open_store(w, 1);
    make_group(posts, GROUP, &finished);
    db_stats(w->db, &before);
    write_group(w, posts, GROUP, &finished);
    db_stats(w->db, &after);
    assert_int_equal(after.commits - before.commits, 1);
    assert_int_equal(w->told_count, GROUP);
    for (size_t i = 0; i < GROUP; i++) {
        assert_int_equal(posts[i].result, OK);
        assert_int_equal(posts[i].runs, 1);
        assert_int_equal(posts[i].dones, 1);
        assert_int_equal(posts[i].count, 1);
        assert_int_equal(w->told[i], posts[i].id);
    }
    assert_int_equal(counted(w), GROUP);
    assert_int_equal(stored(w), GROUP);
}

/* Two groups of different nodes that took the same rows in two orders could wait for each other in
 * a circle. */
static void first_statements_go_in_the_order_of_their_ids(void **state)
{
    struct world *w = *state;
    struct post posts[GROUP];
    sem_t finished;
    open_store(w, 1);
    postgres_server_run(
        w->schema,
        "CREATE TABLE seen (turn BIGSERIAL PRIMARY KEY, id BIGINT);"
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO seen (id) VALUES (NEW.id); RETURN NEW; END $$;"
        "CREATE TRIGGER see AFTER UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION see()");
    make_group(posts, GROUP, &finished);
    write_group(w, posts, GROUP, &finished);
    assert_int_equal(postgres_server_run(w->schema, "SELECT count(*) FROM seen"), GROUP);
    assert_int_equal(postgres_server_run(w->schema, "SELECT count(*) FROM seen a JOIN seen b "
                                                    "ON a.turn < b.turn AND a.id > b.id"),
                     0);
}

/* One of a group fails, or does otherwise than it named: that costs the group a second run, and no
 * job a row. */
static void a_job_that_does_otherwise_harms_no_other(void **state)
{
    static const enum manner manners[] = {
        REFUSES, FAILS, DOES_NOTHING, FORGETS_TO_ASK, ASKS_FOR_ANOTHER, BEGINS_OTHERWISE};
    struct world *w = *state;
    struct post posts[GROUP];
    sem_t finished;
    open_store(w, 1);
    for (size_t k = 0; k < COUNT_OF(manners); k++) {
        bool ends_well = manners[k] != REFUSES && manners[k] != FAILS;
        bool posts_it = ends_well && manners[k] != DOES_NOTHING;
        bool counts = posts_it && manners[k] != FORGETS_TO_ASK;
        postgres_server_run(w->schema, "UPDATE accounts SET post_count = 0; DELETE FROM posts");
        w->told_count = 0;
        make_group(posts, GROUP, &finished);
        posts[5].manner = manners[k];
        write_group(w, posts, GROUP, &finished);
        for (size_t i = 0; i < GROUP; i++) {
            assert_int_equal(posts[i].result, i == 5 && !ends_well ? ERR_INVALID : OK);
            assert_int_equal(posts[i].dones, 1);
        }
        assert_int_equal(posts[0].runs, 2); /* so the first statements had been run ahead */
        assert_int_equal(w->told_count, GROUP - !posts_it);
        assert_int_equal(counted(w), GROUP - !counts);
        assert_int_equal(
            postgres_server_run(w->schema, "SELECT post_count FROM accounts WHERE id = 1"),
            manners[k] == ASKS_FOR_ANOTHER);
        assert_int_equal(postgres_server_run(w->schema, "SELECT count(*) FROM posts"),
                         GROUP - !posts_it);
    }
}

static void a_lost_answer_to_a_groups_commit_is_looked_up(void **state)
{
    struct world *w = *state;
    struct post posts[GROUP];
    sem_t finished;
    open_store(w, 1);
    make_group(posts, GROUP, &finished);
    lossy_proxy_lose(w->proxy, PROXY_LOSES_THE_ANSWER, "COMMIT", 1);
    write_group(w, posts, GROUP, &finished);
    assert_int_equal(lossy_proxy_lost(w->proxy), 1);
    for (size_t i = 0; i < GROUP; i++) {
        assert_int_equal(posts[i].result, OK);
        assert_int_equal(posts[i].runs, 1);
    }
    assert_int_equal(w->told_count, GROUP);
    assert_int_equal(counted(w), GROUP);
    assert_int_equal(stored(w), GROUP);
}

static void a_groups_commit_that_never_arrived_is_run_again(void **state)
{
    struct world *w = *state;
    struct post posts[GROUP];
    sem_t finished;
    open_store(w, 1);
    make_group(posts, GROUP, &finished);
    lossy_proxy_lose(w->proxy, PROXY_LOSES_THE_MESSAGE, "COMMIT", 1);
    write_group(w, posts, GROUP, &finished);
    for (size_t i = 0; i < GROUP; i++) {
        assert_int_equal(posts[i].result, OK);
        assert_int_equal(posts[i].runs, 2);
        assert_int_equal(posts[i].count, 1);
    }
    assert_int_equal(w->told_count, GROUP);
    assert_int_equal(counted(w), GROUP);
    assert_int_equal(stored(w), GROUP);
}

static void a_lost_answer_to_the_first_statements_is_no_loss(void **state)
{
    struct world *w = *state;
    struct post posts[GROUP];
    sem_t finished;
    open_store(w, 1);
    make_group(posts, GROUP, &finished);
    lossy_proxy_lose(w->proxy, PROXY_LOSES_THE_ANSWER, "clock_timestamp", 1);
    write_group(w, posts, GROUP, &finished);
    for (size_t i = 0; i < GROUP; i++)
        assert_int_equal(posts[i].result, OK);
    assert_int_equal(w->told_count, GROUP);
    assert_int_equal(counted(w), GROUP);
    assert_int_equal(stored(w), GROUP);
}

/* Two nodes with four writers each want the same rows, one from the front and one from the back. */
static void nodes_that_want_the_same_rows_all_get_them(void **state)
{
    enum { JOBS = 400 };
    struct world *w = *state;
    static struct post posts[2][JOBS];
    sem_t finished;
    open_store(w, 4);
    struct db *other = open_one(w);
    sem_init(&finished, 0, 0);
    for (size_t i = 0; i < JOBS; i++) {
        uint64_t author = i % PEOPLE;
        post_init(&posts[0][i], 10000 + i, 1 + author, &finished);
        post_init(&posts[1][i], 20000 + i, PEOPLE - author, &finished);
        assert_int_equal(db_submit(w->db, &posts[0][i].job), OK);
        assert_int_equal(db_submit(other, &posts[1][i].job), OK);
    }
    for (size_t i = 0; i < 2 * JOBS; i++)
        sem_wait(&finished);
    for (size_t i = 0; i < JOBS; i++) {
        assert_int_equal(posts[0][i].result, OK);
        assert_int_equal(posts[1][i].result, OK);
    }
    assert_int_equal(counted(w), 2 * JOBS);
    assert_int_equal(w->told_count, 2 * JOBS);
    assert_int_equal(
        postgres_server_run(w->schema, "SELECT count(*) FROM accounts WHERE post_count = 20"),
        PEOPLE);
    close_db(other);
}

static enum err do_nothing(struct tx *tx, void *arg)
{
    (void)arg;
    int64_t one;
    return tx_get_i64(tx, "SELECT 1", DB_NO_ARGS, &one);
}

/* As a rule two writers do it all. When they are held up, others step in. */
static void what_holds_two_writers_up_does_not_hold_up_the_rest(void **state)
{
    struct world *w = *state;
    struct holding h = {.db = NULL};
    pthread_t holders[2];
    open_store(w, 4);
    h.db = w->db;
    sem_init(&h.go, 0, 0);
    sem_init(&h.reached, 0, 0);
    for (int i = 0; i < 2; i++)
        pthread_create(&holders[i], NULL, hold_writer, &h);
    for (int i = 0; i < 2; i++)
        sem_wait(&h.reached);
    for (int i = 0; i < 5; i++)
        assert_int_equal(db_write(w->db, do_nothing, NULL, NULL), OK);
    for (int i = 0; i < 2; i++)
        sem_post(&h.go);
    for (int i = 0; i < 2; i++)
        pthread_join(holders[i], NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_group_is_one_transaction_told_in_order),
        CASE(first_statements_go_in_the_order_of_their_ids),
        CASE(a_job_that_does_otherwise_harms_no_other),
        CASE(a_lost_answer_to_a_groups_commit_is_looked_up),
        CASE(a_groups_commit_that_never_arrived_is_run_again),
        CASE(a_lost_answer_to_the_first_statements_is_no_loss),
        CASE(nodes_that_want_the_same_rows_all_get_them),
        CASE(what_holds_two_writers_up_does_not_hold_up_the_rest),
    };
    if (!postgres_server_start())
        return 1;
    return cmocka_run_group_tests_name("db/postgres_first", tests, NULL, NULL);
}
