/* A hook that waits: with one writer, COMMITs go on, answers wait for the hook, the order per key
 * holds, and stopping runs the hook for everything. Against a real server. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/id.h"
#include "db/postgres_driver.h"
#include "postgres_server.h"

enum { TOLD_MAX = 256, PATIENCE_MS = 20000 };

struct world {
    char schema[32], url[300];
    struct postgres_config config;
    struct id_gen ids;
    struct db *db;
    sem_t entered, go; /* the hook says that it runs, and waits until it may go on */
    _Atomic bool holds;
    _Atomic size_t told, calls;
    uint64_t actors[TOLD_MAX]; /* of the events told, in order */
};

struct add {
    struct db_job job;
    uint64_t id;
    bool quiet; /* without an event */
    enum err result;
    _Atomic bool done;
};

static void wait_for(sem_t *s)
{
    while (sem_wait(s) != 0)
        ;
}

static void on_commit(void *ctx, const struct event *events, size_t n)
{
    struct world *w = ctx;
    w->calls++;
    sem_post(&w->entered);
    if (w->holds)
        wait_for(&w->go);
    for (size_t i = 0; i < n; i++)
        w->actors[w->told++] = events[i].actor;
}

static int set_up(void **state)
{
    static int made;
    struct world *w = calloc(1, sizeof *w);
    char detail[TX_DETAIL_MAX] = "";
    CHECK(w);
    snprintf(w->schema, sizeof w->schema, "a%d", ++made);
    postgres_server_make_schema(w->schema);
    postgres_server_url(w->schema, 0, w->url, sizeof w->url);
    postgres_config_default(&w->config);
    w->config.url = w->url;
    w->config.writers = 1;
    sem_init(&w->entered, 0, 0);
    sem_init(&w->go, 0, 0);
    id_gen_init(&w->ids, clock_system(), 1);
    if (db_postgres_open(&w->config, &w->ids, clock_system(), &w->db, detail) != OK)
        fail_msg("%s", detail);
    w->db->on_commit = on_commit;
    w->db->on_commit_ctx = w;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    w->holds = false;
    sem_post(&w->go);
    db_stop(w->db);
    db_free(w->db);
    free(w);
    return 0;
}

static enum err run(struct tx *tx, struct db_job *job)
{
    struct add *a = CONTAINER_OF(job, struct add, job);
    char name[24];
    int n = snprintf(name, sizeof name, "u%llu", (unsigned long long)a->id);
    enum err e = tx_exec(tx, "INSERT INTO accounts (id, username) VALUES ($1, $2)",
                         DB_ARGS(DB_I64(a->id), DB_TEXT(((struct str){name, (size_t)n}))), NULL);
    /* All of the same key when the ids are in the same hundred. */
    return e || a->quiet ? e
                         : outbox_emit(tx, (struct event){.type = EVENT_ACCOUNT_CREATED,
                                                          .actor = a->id,
                                                          .object = a->id / 100 * 100 + 7});
}

static void done(struct db_job *job, enum err result, const char *detail)
{
    struct add *a = CONTAINER_OF(job, struct add, job);
    (void)detail;
    a->result = result;
    a->done = true;
}

static void submit(struct world *w, struct add *a, uint64_t id)
{
    a->job = (struct db_job){.run = run, .done = done};
    a->id = id;
    assert_int_equal(db_submit(w->db, &a->job), OK);
}

static enum err count_accounts(struct tx *tx, void *out)
{
    return tx_get_i64(tx, "SELECT COUNT(*) FROM accounts", DB_NO_ARGS, out);
}

static int64_t committed(struct world *w)
{
    int64_t n = -1;
    assert_int_equal(db_read(w->db, count_accounts, &n, NULL), OK);
    return n;
}

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

#define AWAIT(condition)                                                                           \
    do {                                                                                           \
        int64_t until_ms = pg_now_ms() + PATIENCE_MS;                                              \
        while (!(condition)) {                                                                     \
            if (pg_now_ms() > until_ms)                                                            \
                fail_msg("in vain: " #condition);                                                  \
            pause_briefly();                                                                       \
        }                                                                                          \
    } while (0)

/* The hook waits for the views; the writer, the only one, does not. */
static void the_writer_does_not_wait_for_the_hook(void **state)
{
    struct world *w = *state;
    struct add first = {0}, second = {0}, third = {0}, quiet = {.quiet = true};
    w->holds = true;
    submit(w, &first, 100);
    wait_for(&w->entered);
    submit(w, &second, 200);
    AWAIT(committed(w) == 2);
    submit(w, &third, 300);
    AWAIT(committed(w) == 3);
    submit(w, &quiet, 400); /* it needs no hook */
    AWAIT(quiet.done);
    assert_int_equal(quiet.result, OK);
    assert_false(first.done || second.done || third.done); /* no answer before the views know */
    w->holds = false;
    sem_post(&w->go);
    AWAIT(first.done && second.done && third.done);
    assert_true(first.result == OK && second.result == OK && third.result == OK);
    assert_int_equal(w->told, 3);
    assert_true(w->actors[0] == 100 && w->actors[1] == 200 && w->actors[2] == 300);
    assert_int_equal(w->calls, 2); /* groups that came meanwhile got one call */
}

/* Of one key the next COMMIT waits for the hook of the last one. */
static void one_key_is_committed_and_told_one_after_the_other(void **state)
{
    struct world *w = *state;
    struct add first = {0}, second = {0};
    w->holds = true;
    submit(w, &first, 110);
    wait_for(&w->entered);
    submit(w, &second, 120);
    for (int i = 0; i < 50; i++) { /* it must not happen: there is no condition to wait for */
        assert_int_equal(committed(w), 1);
        pause_briefly();
    }
    w->holds = false;
    sem_post(&w->go);
    AWAIT(first.done && second.done);
    assert_int_equal(committed(w), 2);
    assert_true(w->actors[0] == 110 && w->actors[1] == 120);
}

/* An account that shares no stripe with those before it: no COMMIT waits for it. */
static uint64_t apart(struct pg_keys *used, uint64_t id)
{
    for (;; id += 100) {
        struct event e = {.actor = id, .object = id / 100 * 100 + 7};
        struct event_list list = {.items = &e, .count = 1};
        struct pg_keys keys = {0};
        uint64_t both = 0;
        pg_keys_add(&keys, &list);
        for (size_t i = 0; i < COUNT_OF(keys.bits); i++)
            both |= keys.bits[i] & used->bits[i];
        if (both)
            continue;
        pg_keys_add(used, &list);
        return id;
    }
}

/* More groups than there is room for: writers wait, nothing is lost, and the hook runs once for
 * everything, also when the store is stopped meanwhile. */
static void stopping_tells_everything(void **state)
{
    struct world *w = *state;
    static struct add adds[2 * PG_APPLY_MAX];
    struct pg_keys used = {0};
    w->holds = true;
    submit(w, &adds[0], apart(&used, 100));
    wait_for(&w->entered);
    for (size_t i = 1; i < COUNT_OF(adds); i++) {
        submit(w, &adds[i], apart(&used, adds[i - 1].id + 100));
        if (i < PG_APPLY_MAX) /* each in a group of its own */
            AWAIT(committed(w) == (int64_t)i + 1);
    }
    w->holds = false;
    sem_post(&w->go);
    db_stop(w->db);
    for (size_t i = 0; i < COUNT_OF(adds); i++)
        assert_true(adds[i].done && adds[i].result == OK);
    assert_int_equal(w->told, COUNT_OF(adds));
    for (size_t i = 0; i < COUNT_OF(adds); i++)
        assert_int_equal(w->actors[i], adds[i].id);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_writer_does_not_wait_for_the_hook),
        CASE(one_key_is_committed_and_told_one_after_the_other),
        CASE(stopping_tells_everything),
    };
    if (!postgres_server_start())
        return 1;
    return cmocka_run_group_tests_name("db/postgres_apply", tests, NULL, NULL);
}
