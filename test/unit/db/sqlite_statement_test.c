/* Statements: rewriting, the cache and its limit, misuse. */
#include "store.h"

static void rewritten(const char *sql, const char *expected)
{
    struct buf out;
    buf_init(&out, 0);
    assert_int_equal(statement_rewrite(sql, &out), strcmp(sql, expected) != 0);
    assert_string_equal(out.ptr, expected);
    buf_done(&out);
}

static void only_ids_tables_are_rewritten(void **state)
{
    (void)state;
    rewritten("SELECT 1", "SELECT 1");
    rewritten("SELECT id FROM ids($1)", "SELECT id FROM (SELECT value AS id FROM json_each($1))");
    rewritten("ids($12) ids($2)",
              "(SELECT value AS id FROM json_each($12)) (SELECT value AS id FROM "
              "json_each($2))");
    rewritten("SELECT 'ids($1)', \"ids($1)\"", "SELECT 'ids($1)', \"ids($1)\"");
    rewritten("SELECT 'it''s ids($1)'", "SELECT 'it''s ids($1)'");
    rewritten("post_ids($1) 2ids($1)", "post_ids($1) 2ids($1)");
    rewritten("ids() ids(1) ids($) ids($1, 2) ids($1", "ids() ids(1) ids($) ids($1, 2) ids($1");
    rewritten("", "");
}

static enum err run_text(struct tx *tx, void *arg)
{
    int64_t n;
    return tx_get_i64(tx, arg, DB_NO_ARGS, &n);
}

static void misuse_is_an_error_not_a_guess(void **state)
{
    struct store *s = *state;
    store_open(s);
    static const char *const texts[] = {
        "SELECT ?",           "SELECT ?1", "SELECT :name", "SELECT $2",  "SELECT $1x",
        "SELECT 1; SELECT 2", "",          "  ",           "-- nothing", "SELEKT 1"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char detail[TX_DETAIL_MAX];
        assert_int_equal(db_read(s->db, run_text, (void *)(uintptr_t)texts[i], detail),
                         ERR_INTERNAL);
        assert_string_not_equal(detail, "");
    }
    static const char trailing[] = "SELECT 1 ;\n ";
    assert_int_equal(db_read(s->db, run_text, (void *)(uintptr_t)trailing, NULL), OK);
}

static enum err exec_rows(struct tx *tx, void *arg)
{
    (void)arg;
    return tx_exec(tx, "SELECT 1", DB_NO_ARGS, NULL);
}

static void rows_where_none_are_expected_are_an_error(void **state)
{
    struct store *s = *state;
    store_open(s);
    assert_int_equal(db_read(s->db, exec_rows, NULL, NULL), ERR_INTERNAL);
}

/* More texts than are cached, each at an address of its own, several times over. */
enum { TEXTS = STATEMENTS_MAX + 300 };
static char texts[TEXTS][24];

static enum err run_all_texts(struct tx *tx, void *arg)
{
    (void)arg;
    for (int64_t i = 0; i < TEXTS; i++) {
        int64_t n = -1;
        enum err e = tx_get_i64(tx, texts[i], DB_ARGS(DB_I64(1)), &n);
        if (e)
            return e;
        if (n != i + 1)
            return ERR_INVALID;
    }
    return OK;
}

static void more_texts_than_the_cache_holds(void **state)
{
    struct store *s = *state;
    s->config.readers = 1;
    store_open(s);
    for (int i = 0; i < TEXTS; i++)
        snprintf(texts[i], sizeof texts[i], "SELECT %d + $1", i);
    for (int round = 0; round < 3; round++)
        assert_int_equal(db_read(s->db, run_all_texts, NULL, NULL), OK);
    struct sqlite_db *db = (struct sqlite_db *)s->db;
    assert_int_equal(db->readers.connections[0].statements.count, STATEMENTS_MAX);
}

static enum err large_list(struct tx *tx, void *arg)
{
    static uint64_t ids[20000];
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        ids[i] = (uint64_t)INT64_MAX - i;
    return tx_get_i64(tx, "SELECT count(DISTINCT id) FROM ids($1)",
                      DB_ARGS(DB_IDS(ids, COUNT_OF(ids))), arg);
}

static void a_large_list_is_exact_and_its_memory_not_kept(void **state)
{
    struct store *s = *state;
    s->config.readers = 1;
    store_open(s);
    int64_t n = 0;
    assert_int_equal(db_read(s->db, large_list, &n, NULL), OK);
    assert_int_equal(n, 20000);
    struct connection *c = &((struct sqlite_db *)s->db)->readers.connections[0];
    assert_true(c->statements.count > 0);
    for (struct statement_slot *slot = map_next(&c->statements, NULL); slot;
         slot = map_next(&c->statements, slot))
        assert_true(slot->statement->scratch.cap <= SCRATCH_KEEP_BYTES);
}

/* An outer row for each of which json_each is read again, while other lists are bound. */
static enum err reread_list(struct tx *tx, void *arg)
{
    int64_t *sum = arg;
    static const uint64_t some[] = {1, 2}, others[] = {500, 600, 700};
    struct db_rows rows;
    enum err e = tx_query(tx,
                          "SELECT (SELECT sum(id) FROM ids($1) WHERE id <> a.value) "
                          "FROM json_each('[7,8,9]') AS a",
                          DB_ARGS(DB_IDS(some, 2)), &rows);
    while (!e && db_next(&rows)) {
        int64_t n;
        *sum += db_i64(&rows, 0);
        e = tx_get_i64(tx, "SELECT count(*) FROM ids($1)", DB_ARGS(DB_IDS(others, 3)), &n);
    }
    enum err ended = db_rows_done(&rows);
    return e ? e : ended;
}

static void a_list_stays_while_its_statement_runs(void **state)
{
    struct store *s = *state;
    store_open(s);
    int64_t sum = 0;
    assert_int_equal(db_read(s->db, reread_list, &sum, NULL), OK);
    assert_int_equal(sum, 9);
}

int main(void)
{
#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, store_set_up, store_tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_ids_tables_are_rewritten),
        STORE_TEST(misuse_is_an_error_not_a_guess),
        STORE_TEST(rows_where_none_are_expected_are_an_error),
        STORE_TEST(more_texts_than_the_cache_holds),
        STORE_TEST(a_large_list_is_exact_and_its_memory_not_kept),
        STORE_TEST(a_list_stays_while_its_statement_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
