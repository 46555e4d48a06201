/* One Idempotency-Key at two nodes at once, over a real PostgreSQL: two handles on one store, as
 * two processes have them. The act is done once, whichever is first, and both get its answer. */
#include "test.h"

#include <pthread.h>

#include "api/edge/idempotency.h"
#include "base/check.h"
#include "base/id.h"
#include "db/postgres.h"
#include "postgres_server.h"

enum { NODES = 2, RIVALS = 4, ROUNDS = 40 };

static const int64_t now_ms = INT64_C(1790000000000);
static struct id_gen ids[NODES];
static struct db *nodes[NODES];
static pthread_barrier_t together;

static int open_nodes(void **state)
{
    (void)state;
    static char url[300];
    char detail[TX_DETAIL_MAX] = "";
    if (!postgres_server_start())
        return -1;
    postgres_server_make_schema("keys");
    postgres_server_url("keys", 0, url, sizeof url);
    for (int i = 0; i < NODES; i++) {
        struct postgres_config config;
        postgres_config_default(&config);
        config.url = url;
        config.writers = 2;
        config.readers = 2;
        id_gen_init(&ids[i], clock_system(), (uint16_t)(i + 1));
        CHECK(db_postgres_open(&config, &ids[i], clock_system(), &nodes[i], detail) == OK);
    }
    pthread_barrier_init(&together, NULL, RIVALS);
    return 0;
}

static int close_nodes(void **state)
{
    (void)state;
    for (int i = 0; i < NODES; i++) {
        db_stop(nodes[i]);
        db_free(nodes[i]);
    }
    pthread_barrier_destroy(&together);
    postgres_server_stop();
    return 0;
}

static struct idempotency_key key_of(const char *text)
{
    static const uint8_t secret[32] = "s";
    struct idempotency_key k = {7, "posts_create", 0, str_of(text), {0}};
    idempotency_fingerprint(secret, STR("body"), k.fingerprint);
    return k;
}

struct rival {
    int number;
    struct idempotency_key key;
    char words[64];  /* its row, if it acts */
    uint64_t answer; /* the number of the one that acted, plus one */
    bool acted;
    int runs;
    enum err result;
};

/* What the dispatcher does with a keyed write, over an act that leaves a row each time. */
static enum err act(struct tx *tx, void *arg)
{
    struct rival *r = arg;
    struct idempotency_answer answer = {201, (uint64_t)r->number + 1};
    r->acted = false;
    r->runs++;
    enum err e = idempotency_find(tx, &r->key, now_ms, &answer);
    r->answer = answer.object;
    if (e != ERR_NOT_FOUND)
        return e;
    r->acted = true;
    TRY(tx_exec(tx, "INSERT INTO meta (name, value) VALUES ($1, $2)",
                DB_ARGS(DB_TEXT(str_of(r->words)), DB_TEXT(r->key.text)), NULL));
    return idempotency_store(tx, &r->key, now_ms, &answer);
}

static void *compete(void *arg)
{
    struct rival *r = arg;
    pthread_barrier_wait(&together);
    r->result = db_write(nodes[r->number % NODES], act, r, NULL);
    return NULL;
}

static void test_the_same_key_at_two_nodes_acts_once(void **state)
{
    (void)state;
    int again = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct rival rivals[RIVALS] = {0};
        pthread_t threads[RIVALS];
        char text[32];
        snprintf(text, sizeof text, "round-%d", round);
        for (int i = 0; i < RIVALS; i++) {
            rivals[i].number = i;
            rivals[i].key = key_of(text);
            snprintf(rivals[i].words, sizeof rivals[i].words, "%s by %d", text, i);
            assert_int_equal(pthread_create(&threads[i], NULL, compete, &rivals[i]), 0);
        }
        int acted = 0;
        for (int i = 0; i < RIVALS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < RIVALS; i++) {
            assert_int_equal(rivals[i].result, OK);
            assert_int_equal(rivals[i].answer, rivals[0].answer);
            acted += rivals[i].acted;
            again += rivals[i].runs - 1;
        }
        assert_int_equal(acted, 1);
    }
    assert_int_equal(postgres_server_run("keys", "SELECT COUNT(*) FROM idempotency"), ROUNDS);
    assert_int_equal(
        postgres_server_run("keys", "SELECT COUNT(*) FROM meta WHERE value LIKE 'round-%'"),
        ROUNDS);
    assert_true(again > 0); /* they did meet */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_key_at_two_nodes_acts_once),
    };
    return cmocka_run_group_tests_name("api/idempotency_nodes", tests, open_nodes, close_nodes);
}
