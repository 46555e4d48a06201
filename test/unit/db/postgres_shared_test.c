/* What nodes that share a PostgreSQL store rely on: the horizon, the server's time, the lease's
 * fence, the step to the present schema, and how soon a server that is back is used again. Nodes
 * are several handles in one process, each with its own number and, where it matters, its own idea
 * of the time. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/id.h"
#include "db/postgres_driver.h"
#include "node/lease.h"
#include "postgres_server.h"

/* ---- the world of one test ---- */

/* The system's time and something. */
struct shifted_clock {
    struct clock clock;
    int64_t by_ms;
};

static int64_t shifted_wall_ms(struct clock *c)
{
    return clock_wall_ms(clock_system()) + ((struct shifted_clock *)(void *)c)->by_ms;
}

static int64_t shifted_mono_us(struct clock *c)
{
    (void)c;
    return clock_mono_us(clock_system());
}

struct at_node {
    struct shifted_clock clock;
    struct id_gen ids;
    struct db *db;
};

struct world {
    char schema[32], url[300];
    struct postgres_config config;
    struct at_node nodes[3];
    size_t count;
};

static struct at_node *open_node(struct world *w, int64_t shift_ms)
{
    char detail[TX_DETAIL_MAX];
    struct at_node *n = &w->nodes[w->count++];
    n->clock = (struct shifted_clock){{shifted_wall_ms, shifted_mono_us}, shift_ms};
    id_gen_init(&n->ids, &n->clock.clock, (uint32_t)w->count);
    enum err e = db_postgres_open(&w->config, &n->ids, clock_system(), &n->db, detail);
    if (e)
        fail_msg("open: %s %s", err_name(e), detail);
    return n;
}

static int set_up(void **state)
{
    static int made;
    struct world *w = calloc(1, sizeof *w);
    CHECK(w);
    snprintf(w->schema, sizeof w->schema, "s%d", ++made);
    postgres_server_make_schema(w->schema);
    postgres_server_url(w->schema, 0, w->url, sizeof w->url);
    postgres_config_default(&w->config);
    w->config.url = w->url;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < w->count; i++)
        if (w->nodes[i].db)
            db_free(w->nodes[i].db);
    free(w);
    return 0;
}

/* ---- jobs ---- */

struct add {
    uint64_t id, event;
    int runs;
    sem_t *emitted, *go; /* waits between emitting and COMMIT */
};

static enum err add_account(struct tx *tx, void *arg)
{
    struct add *a = arg;
    char name[24];
    int n = snprintf(name, sizeof name, "u%llu", (unsigned long long)a->id);
    a->runs++;
    enum err e = tx_exec(tx, "INSERT INTO accounts (id, username) VALUES ($1, $2)",
                         DB_ARGS(DB_I64(a->id), DB_TEXT(((struct str){name, (size_t)n}))), NULL);
    if (!e)
        e = outbox_emit(tx, (struct event){.type = EVENT_ACCOUNT_CREATED, .actor = a->id});
    if (!e)
        a->event = tx->events.items[0].id;
    if (!e && a->go) {
        sem_post(a->emitted);
        sem_wait(a->go);
    }
    return e;
}

struct call {
    struct db *db;
    tx_fn run;
    void *arg;
    enum err result;
    _Atomic bool over;
    pthread_t thread;
};

static void *run_call(void *arg)
{
    struct call *c = arg;
    c->result = db_write(c->db, c->run, c->arg, NULL);
    c->over = true;
    return NULL;
}

static void start_call(struct call *c, struct db *db, tx_fn run, void *arg)
{
    *c = (struct call){.db = db, .run = run, .arg = arg};
    assert_int_equal(pthread_create(&c->thread, NULL, run_call, c), 0);
}

/* ---- the horizon ---- */

static uint64_t horizon(struct at_node *n)
{
    uint64_t id = 0;
    assert_int_equal(db_horizon(n->db, &id), OK);
    return id;
}

static void the_horizon_follows_the_present(void **state)
{
    struct world *w = *state;
    struct at_node *a = open_node(w, 0);
    assert_true(a->db->shared);
    int64_t before = clock_wall_ms(clock_system());
    uint64_t first = horizon(a);
    int64_t after = clock_wall_ms(clock_system());
    assert_true(id_time_ms(first) >= before - PG_MARGIN_MS - 2);
    assert_true(id_time_ms(first) < after - PG_MARGIN_MS + 1);
    struct add add = {.id = 1};
    assert_int_equal(db_write(a->db, add_account, &add, NULL), OK);
    while (horizon(a) < add.event)
        usleep(1000);
}

static void an_open_write_holds_the_horizon(void **state)
{
    struct world *w = *state;
    struct at_node *a = open_node(w, 0), *b = open_node(w, 0);
    sem_t emitted, go;
    sem_init(&emitted, 0, 0);
    sem_init(&go, 0, 0);
    struct add open = {.id = 1, .emitted = &emitted, .go = &go}, other = {.id = 2};
    struct call call;
    start_call(&call, a->db, add_account, &open);
    sem_wait(&emitted);
    assert_int_equal(db_write(b->db, add_account, &other, NULL), OK);
    int passed = 0;
    for (int i = 0; i < 100; i++) { /* a tenth of a second: far beyond the margin */
        uint64_t id = UINT64_MAX;
        passed += db_horizon(b->db, &id) != OK || id >= open.event;
        usleep(1000);
    }
    sem_post(&go);
    pthread_join(call.thread, NULL);
    assert_int_equal(call.result, OK);
    assert_int_equal(passed, 0);
    while (horizon(b) < open.event)
        usleep(1000);
    sem_destroy(&emitted);
    sem_destroy(&go);
}

/* The promise itself: a reader up to the horizon, again and again, misses nothing and sees ids
 * rise. Three nodes write, one of them with a clock that is behind, one with one that is ahead. */

struct stream {
    struct db *db;
    uint64_t first;
    int count;
    enum err failed;
};

static void *write_stream(void *arg)
{
    struct stream *s = arg;
    for (int i = 0; i < s->count && !s->failed; i++) {
        struct add add = {.id = s->first + (uint64_t)i};
        s->failed = db_write(s->db, add_account, &add, NULL);
    }
    return NULL;
}

struct taken {
    uint64_t after, up_to, count;
};

static enum err take_events(struct tx *tx, void *arg)
{
    struct taken *t = arg, found = *t;
    struct db_rows rows;
    enum err e = tx_query(tx, "SELECT id FROM outbox WHERE id > $1 AND id <= $2 ORDER BY id",
                          DB_ARGS(DB_I64(found.after), DB_I64(found.up_to)), &rows);
    while (!e && db_next(&rows)) {
        found.after = db_id(&rows, 0);
        found.count++;
    }
    if (!e)
        e = db_rows_done(&rows);
    if (!e)
        *t = found;
    return e;
}

static void nothing_appears_below_the_horizon(void **state)
{
    enum { PER_NODE = 3, EACH = 150 };
    struct world *w = *state;
    static const int64_t shifts[] = {0, -300, 40};
    struct stream streams[COUNT_OF(shifts) * PER_NODE];
    pthread_t threads[COUNT_OF(streams)];
    for (size_t i = 0; i < COUNT_OF(streams); i++) {
        struct db *db =
            i % PER_NODE ? w->nodes[i / PER_NODE].db : open_node(w, shifts[i / PER_NODE])->db;
        streams[i] = (struct stream){db, 1 + i * 1000000, EACH, OK};
    }
    for (size_t i = 0; i < COUNT_OF(streams); i++)
        pthread_create(&threads[i], NULL, write_stream, &streams[i]);
    struct taken taken = {0};
    const uint64_t all = COUNT_OF(streams) * EACH;
    int64_t end = pg_now_ms() + 60000;
    uint64_t highest = 0;
    while (taken.count < all && pg_now_ms() < end) {
        taken.up_to = horizon(&w->nodes[0]);
        assert_int_equal(db_read(w->nodes[0].db, take_events, &taken, NULL), OK);
        /* a missed event shows as a difference to the truth below the horizon */
        if (taken.up_to > highest)
            highest = taken.up_to;
        taken.after = highest;
    }
    for (size_t i = 0; i < COUNT_OF(streams); i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(streams[i].failed, OK);
    }
    assert_int_equal(postgres_server_run(w->schema, "SELECT count(*) FROM outbox"), all);
    assert_int_equal(taken.count, all);
}

static void ids_behind_the_server_are_raised(void **state)
{
    struct world *w = *state;
    struct at_node *a = open_node(w, -3600000);
    int64_t before = clock_wall_ms(clock_system());
    struct add add = {.id = 1}, next = {.id = 2};
    assert_int_equal(db_write(a->db, add_account, &add, NULL), OK);
    assert_int_equal(add.runs, 2); /* undone once */
    assert_true(id_time_ms(add.event) >= before - PG_EARLY_MS);
    assert_int_equal(postgres_server_run(w->schema, "SELECT count(*) FROM accounts"), 1);
    assert_int_equal(db_write(a->db, add_account, &next, NULL), OK);
    assert_true(next.event > add.event);
    assert_int_equal(postgres_server_run(w->schema, "SELECT count(*) FROM outbox"), 2);
}

/* A user that may not see what other users' connections do. */
static void what_is_hidden_is_an_error(void **state)
{
    struct world *w = *state;
    char sql[400], url[300];
    struct at_node *a = open_node(w, 0);
    snprintf(sql, sizeof sql,
             "DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN; GRANT USAGE ON SCHEMA %s TO "
             "plain; GRANT ALL ON ALL TABLES IN SCHEMA %s TO plain",
             w->schema, w->schema);
    postgres_server_run(w->schema, sql);
    const char *at = strstr(w->url, "fantail@");
    assert_non_null(at);
    snprintf(url, sizeof url, "postgresql://plain%s", at + strlen("fantail"));
    w->config.url = url;
    struct at_node *b = open_node(w, 0);
    uint64_t id = 7;
    assert_int_equal(db_horizon(b->db, &id), ERR_UNAVAILABLE);
    assert_int_equal(id, 7);
    assert_true(horizon(a) > 0); /* a superuser sees everything */
    db_free(a->db);
    a->db = NULL;
    while (db_horizon(b->db, &id) != OK) /* connections end a moment later */
        usleep(1000);
    db_free(b->db);
    b->db = NULL;
    snprintf(sql, sizeof sql, "DROP OWNED BY plain; DROP ROLE plain");
    postgres_server_run(w->schema, sql);
}

/* A figure rather than a test: the leader asks up to a hundred times a second. */
static void the_horizon_is_cheap(void **state)
{
    enum { CONNECTIONS = 60, ASKED = 500 };
    struct world *w = *state;
    struct at_node *a = open_node(w, 0);
    PGconn *open[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        open[i] = PQconnectdb(w->url);
        assert_int_equal(PQstatus(open[i]), CONNECTION_OK);
        PQclear(PQexec(open[i], "SET application_name = '" PG_WRITER_NAME "'"));
    }
    horizon(a);
    int64_t begin = clock_mono_us(clock_system());
    for (int i = 0; i < ASKED; i++)
        horizon(a);
    int64_t each = (clock_mono_us(clock_system()) - begin) / ASKED;
    printf("# the horizon among %d connections: %lld us\n", CONNECTIONS, (long long)each);
    for (int i = 0; i < CONNECTIONS; i++)
        PQfinish(open[i]);
    assert_true(each < 10000);
}

/* ---- time ---- */

static void the_servers_time_is_measured(void **state)
{
    struct world *w = *state;
    struct at_node *a = open_node(w, 0);
    for (int i = 0; i < 20; i++) {
        int64_t wall_ms, error_us;
        assert_int_equal(db_now(a->db, &wall_ms, &error_us), OK);
        int64_t here = clock_wall_ms(clock_system()); /* the same machine */
        assert_true(error_us > 0 && error_us < 10000000);
        assert_true(wall_ms <= here + error_us / 1000 + 1);
        assert_true(wall_ms >= here - error_us / 1000 - 50);
    }
}

/* ---- the lease ---- */

struct fenced {
    uint64_t term;
    sem_t *inside, *go;
};

static enum err write_fenced(struct tx *tx, void *arg)
{
    struct fenced *f = arg;
    enum err e = lease_fence(tx, "engine", f->term);
    if (e)
        return e;
    if (f->go) {
        sem_post(f->inside);
        sem_wait(f->go);
    }
    return tx_exec(tx, "INSERT INTO meta (name, value) VALUES ('leader', 'was here')", DB_NO_ARGS,
                   NULL);
}

struct taking {
    struct lease lease;
    struct db *db;
    enum err result;
    int64_t seen;
    _Atomic bool over;
};

static enum err look_for_trace(struct tx *tx, void *arg)
{
    return tx_get_i64(tx, "SELECT count(*) FROM meta WHERE name = 'leader'", DB_NO_ARGS, arg);
}

static void *take_over(void *arg)
{
    struct taking *t = arg;
    do {
        t->result = lease_look(&t->lease, t->db, 0);
        if (!t->result)
            t->result = lease_take(&t->lease, t->db, 0);
    } while (t->result == ERR_CONFLICT || t->result == ERR_UNAVAILABLE);
    db_read(t->db, look_for_trace, &t->seen, NULL);
    t->over = true;
    return NULL;
}

/* The new leader reads what the old one wrote in its last transaction, or that one fails. */
static void a_takeover_waits_for_fenced_writes(void **state)
{
    struct world *w = *state;
    struct at_node *a = open_node(w, 0), *b = open_node(w, 0);
    struct lease old;
    struct taking taking = {.db = b->db};
    sem_t inside, go;
    sem_init(&inside, 0, 0);
    sem_init(&go, 0, 0);
    lease_init(&old, "engine", 1, clock_system());
    lease_init(&taking.lease, "engine", 2, clock_system());
    assert_int_equal(lease_take(&old, a->db, 0), OK);
    struct fenced fenced = {old.term, &inside, &go};
    struct call call;
    start_call(&call, a->db, write_fenced, &fenced);
    sem_wait(&inside);
    /* A beat does not wait: it succeeds while the fenced write is open. */
    enum err renewed = lease_renew(&old, a->db, "x", 1000);
    pthread_t taker;
    pthread_create(&taker, NULL, take_over, &taking);
    usleep(150000); /* the taker has every chance to be faster */
    bool was_faster = taking.over;
    sem_post(&go);
    pthread_join(taker, NULL);
    pthread_join(call.thread, NULL);
    assert_int_equal(renewed, OK);
    assert_false(was_faster);
    assert_int_equal(taking.result, OK);
    assert_int_equal(taking.lease.term, 2);
    assert_int_equal(call.result, OK);
    assert_int_equal(taking.seen, 1);
    struct fenced late = {.term = old.term};
    assert_int_equal(db_write(a->db, write_fenced, &late, NULL), ERR_NO_LEADER);
    assert_int_equal(lease_renew(&old, a->db, "x", 2000), ERR_CONFLICT);
    sem_destroy(&inside);
    sem_destroy(&go);
}

/* ---- schema ---- */

/* Columns, indexes, and how much room is left on pages. */
static int64_t describe_tables(struct world *w)
{
    return postgres_server_run(
        w->schema,
        "SELECT abs(hashtext(string_agg(line, ',' ORDER BY line COLLATE \"C\"))) FROM ("
        "SELECT concat_ws(' ', c.relname, a.attnum, a.attname, "
        "format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attcollation, "
        "pg_get_expr(d.adbin, d.adrelid)) AS line "
        "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef "
        "d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
        "WHERE c.relnamespace = current_schema()::regnamespace "
        "UNION ALL SELECT concat_ws(' ', relname, relpersistence, relkind, reloptions::text) "
        "FROM pg_class WHERE relnamespace = current_schema()::regnamespace "
        "UNION ALL SELECT replace(indexdef, schemaname || '.', '') FROM pg_indexes "
        "WHERE schemaname = current_schema()) lines");
}

static void make_old_store(struct world *w, int version)
{
    char path[300], *sql = calloc(1, 1 << 16);
    assert_non_null(sql);
    snprintf(path, sizeof path, "%s/postgres_%d.sql", OLD_STORES, version);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(sql, 1, (1 << 16) - 200, f);
    fclose(f);
    snprintf(sql + n, 200,
             "INSERT INTO meta VALUES ('schema', '%d');"
             "INSERT INTO outbox (id, type, version, payload) VALUES (7, 'x', 1, '{}')",
             version);
    postgres_server_run(w->schema, sql);
    free(sql);
}

/* A store that any version made becomes what a new one is, and keeps what it had. */
static void an_old_store_becomes_what_a_new_one_is(void **state)
{
    static const int versions[] = {2, 4};
    struct world *w = *state;
    struct at_node *a = open_node(w, 0);
    char drop[120];
    int64_t new = describe_tables(w);
    for (size_t i = 0; i < COUNT_OF(versions); i++) {
        db_free(a->db);
        a->db = NULL;
        snprintf(drop, sizeof drop, "SET client_min_messages = error; DROP SCHEMA %s CASCADE",
                 w->schema);
        postgres_server_run(w->schema, drop);
        postgres_server_make_schema(w->schema);
        make_old_store(w, versions[i]);
        assert_true(describe_tables(w) != new || versions[i] == schema_version());
        a = open_node(w, 0);
        assert_int_equal(describe_tables(w), new);
        assert_int_equal(
            postgres_server_run(w->schema, "SELECT value FROM meta WHERE name = 'schema'"),
            schema_version());
        assert_int_equal(postgres_server_run(w->schema, "SELECT count(*) FROM outbox"), 1);
    }
}

static void *open_in_thread(void *arg)
{
    open_node(arg, 0);
    return NULL;
}

/* Until schema 5 the duplicate memory was a ring of tables. What a node of the version before
 * commits while the step runs is carried over as well. */
static void what_the_duplicate_memory_held_is_kept(void **state)
{
    struct world *w = *state;
    pthread_t thread;
    make_old_store(w, 4);
    postgres_server_run(w->schema,
                        "INSERT INTO inbox_slots VALUES (2, 0, 100, 5000), (3, 100, 200, 7000);"
                        "INSERT INTO inbox_2 VALUES ('mail', '1:1', 1, 50)");
    PGconn *older = PQconnectdb(w->url);
    PQclear(PQexec(older, "BEGIN; INSERT INTO inbox_3 VALUES ('mail', '2:1', 0, 150)"));
    assert_int_equal(PQtransactionStatus(older), PQTRANS_INTRANS);
    assert_int_equal(pthread_create(&thread, NULL, open_in_thread, w), 0);
    while (postgres_server_run(w->schema, "SELECT count(*) FROM pg_stat_activity WHERE "
                                          "application_name = '" PG_SCHEMA_NAME
                                          "' AND wait_event_type = 'Lock'") == 0)
        usleep(1000);
    PQclear(PQexec(older, "COMMIT"));
    PQfinish(older);
    pthread_join(thread, NULL);
    assert_int_equal(postgres_server_run(w->schema, "SELECT at FROM dedup WHERE consumer = 'mail' "
                                                    "AND key = '1:1' AND state = 1"),
                     50);
    assert_int_equal(postgres_server_run(w->schema, "SELECT at FROM dedup WHERE consumer = 'mail' "
                                                    "AND key = '2:1' AND state = 0"),
                     150);
    assert_int_equal(postgres_server_run(w->schema, "SELECT keep FROM dedup_retention"), 7000);
}

/* The list of tables that copying goes by is what is in the store. */
static void the_list_of_tables_is_the_stores(void **state)
{
    static const char *const types[] = {
        [SCHEMA_NUMBER] = "bigint", [SCHEMA_TEXT] = "text", [SCHEMA_BYTES] = "bytea"};
    struct world *w = *state;
    open_node(w, 0);
    size_t columns = 2; /* of server_life, which is PostgreSQL's alone */
    for (size_t i = 0; i < schema_table_count; i++) {
        const struct schema_table *t = &schema_tables[i];
        columns += t->column_count;
        for (size_t k = 0; k < t->column_count; k++) {
            char sql[400];
            snprintf(sql, sizeof sql, /* positions have gaps where a column was dropped */
                     "SELECT count(*) FROM (SELECT column_name, data_type, row_number() OVER "
                     "(ORDER BY ordinal_position) AS place FROM information_schema.columns "
                     "WHERE table_schema = current_schema() AND table_name = '%s') AS c "
                     "WHERE column_name = '%s' AND place = %zu AND data_type = '%s'",
                     t->name, t->columns[k].name, k + 1, types[t->columns[k].kind]);
            assert_int_equal(postgres_server_run(w->schema, sql), 1);
        }
    }
    assert_int_equal(postgres_server_run(w->schema,
                                         "SELECT count(*) FROM information_schema.columns "
                                         "WHERE table_schema = current_schema()"),
                     columns);
}

/* ---- a server that comes back ---- */

static enum err count_accounts(struct tx *tx, void *out)
{
    return tx_get_i64(tx, "SELECT COUNT(*) FROM accounts", DB_NO_ARGS, out);
}

static void a_server_that_is_back_is_used_soon(void **state)
{
    struct world *w = *state;
    struct at_node *a = open_node(w, 0);
    struct add add = {.id = 1};
    uint64_t id;
    int64_t n;
    assert_int_equal(db_write(a->db, add_account, &add, NULL), OK);
    horizon(a);
    postgres_server_signal(SIGKILL);
    add.id = 2;
    assert_int_equal(db_write(a->db, add_account, &add, NULL), ERR_UNAVAILABLE);
    assert_int_not_equal(db_horizon(a->db, &id), OK);
    assert_int_not_equal(db_read(a->db, count_accounts, &n, NULL), OK);
    postgres_server_restart();
    int64_t begin = pg_now_ms();
    while (db_write(a->db, add_account, &add, NULL) != OK)
        usleep(1000);
    while (db_read(a->db, count_accounts, &n, NULL) != OK)
        usleep(1000);
    while (db_horizon(a->db, &id) != OK)
        usleep(1000);
    int64_t took = pg_now_ms() - begin;
    printf("# used again %lld ms after it took connections\n", (long long)took);
    assert_true(took < 10000); /* a second, and what a busy machine adds */
    assert_int_equal(n, 2);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_horizon_follows_the_present),
        CASE(an_open_write_holds_the_horizon),
        CASE(nothing_appears_below_the_horizon),
        CASE(ids_behind_the_server_are_raised),
        CASE(what_is_hidden_is_an_error),
        CASE(the_horizon_is_cheap),
        CASE(the_servers_time_is_measured),
        CASE(a_takeover_waits_for_fenced_writes),
        CASE(an_old_store_becomes_what_a_new_one_is),
        CASE(what_the_duplicate_memory_held_is_kept),
        CASE(the_list_of_tables_is_the_stores),
        CASE(a_server_that_is_back_is_used_soon),
    };
    if (!postgres_server_start())
        return 1;
    return cmocka_run_group_tests_name("db/postgres_shared", tests, NULL, NULL);
}
