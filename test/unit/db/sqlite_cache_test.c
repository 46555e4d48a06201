/* The page cache: no page is ever called by a number behind the end of the file, which would make
 * the next COMMIT walk through all of the cache; and the trees are whole. */
#include "base/rand.h"
#include "store.h"

enum { ROWS = 6000, ROWS_A_COMMIT = 20 };

static sqlite3_pcache_methods2 plain;
static int swaps;
static unsigned greatest;

/* Below the layer under test, above SQLite's own. */
static void note_rekey(sqlite3_pcache *cache, sqlite3_pcache_page *page, unsigned from, unsigned to)
{
    swaps++;
    greatest = to > greatest ? to : greatest;
    plain.xRekey(cache, page, from, to);
}

static int note_numbers(void **state)
{
    (void)state;
    CHECK(sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &plain) == SQLITE_OK);
    sqlite3_pcache_methods2 noting = plain;
    noting.xRekey = note_rekey;
    CHECK(sqlite3_config(SQLITE_CONFIG_PCACHE2, &noting) == SQLITE_OK);
    return 0;
}

static enum err insert_some(struct tx *tx, void *arg)
{
    enum err e = OK;
    for (int i = 0; !e && i < ROWS_A_COMMIT; i++) {
        uint64_t id = rand_u64(arg) >> 2;
        char name[24];
        int n = snprintf(name, sizeof name, "u%llu", (unsigned long long)id);
        e = tx_exec(tx,
                    "INSERT INTO accounts (id, username, bio) VALUES ($1, $2, 'one who comes and "
                    "goes, and takes a place in the middle of a full page now and then')",
                    DB_ARGS(DB_I64(id), DB_TEXT(((struct str){name, (size_t)n}))), NULL);
    }
    return e;
}

static void pages_keep_to_the_file(void **state)
{
    struct store *s = *state;
    struct rand random;
    rand_seed(&random, 11);
    store_open(s);
    for (int i = 0; i < ROWS / ROWS_A_COMMIT; i++)
        assert_int_equal(db_write(s->db, insert_some, &random, NULL), OK);
    store_close(s);
    assert_true(swaps > 0); /* otherwise nothing was tried */
    assert_true((int64_t)greatest <= store_ask_raw(s, "PRAGMA page_count"));
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM accounts"), ROWS);
    assert_int_equal(
        store_ask_raw(s,
                      "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"),
        1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pages_keep_to_the_file, store_set_up, store_tear_down),
    };
    return cmocka_run_group_tests(tests, note_numbers, NULL);
}
