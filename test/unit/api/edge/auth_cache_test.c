/* Remembered callers: found while valid, gone the moment they are forgotten, bounded. */
#include "test.h"

#include <pthread.h>

#include "api/edge/auth_cache.h"
#include "base/rand.h"

enum { MINUTE_US = 60 * 1000 * 1000 };
#define SEEN_EVERY_US INT64_C(600000000)

static void make_key(uint64_t n, uint8_t key[AUTH_KEY_BYTES])
{
    uint8_t hash[TOKEN_HASH_BYTES];
    token_hash((struct str){(const char *)&n, sizeof n}, hash);
    memcpy(key, hash, AUTH_KEY_BYTES);
}

static void put(struct auth_cache *c, uint64_t n, uint64_t stamp, uint64_t account, uint64_t key_id,
                int64_t until_us)
{
    uint8_t key[AUTH_KEY_BYTES];
    make_key(n, key);
    struct auth_entry entry = {
        .caller = {.key = key_id, .account = account, .session = n},
        .valid_until_us = until_us,
        .seen_at_us = INT64_MIN / 2,
    };
    auth_cache_put(c, key, stamp, &entry);
}

static bool find(struct auth_cache *c, uint64_t n, int64_t now_us, bool *mark)
{
    uint8_t key[AUTH_KEY_BYTES];
    struct caller caller;
    bool unused;
    make_key(n, key);
    if (!auth_cache_find(c, key, now_us, SEEN_EVERY_US, &caller, mark ? mark : &unused))
        return false;
    assert_int_equal(caller.session, caller.key ? 0 : n);
    return true;
}

static void test_finds_until_it_ends(void **state)
{
    (void)state;
    struct auth_cache *c = auth_cache_new(1000);
    assert_false(find(c, 1, 0, NULL));
    put(c, 1, auth_cache_stamp(c), 10, 0, MINUTE_US);
    assert_true(find(c, 1, 0, NULL));
    assert_true(find(c, 1, MINUTE_US - 1, NULL));
    assert_false(find(c, 1, MINUTE_US, NULL));
    assert_false(find(c, 2, 0, NULL));
    auth_cache_free(c);
}

static void test_tells_everything_about_a_caller(void **state)
{
    (void)state;
    static const struct caller callers[] = {
        {.account = 10, .session = 20},
        {.account = 11, .expires_at_ms = 1790000000000}, /* a JWT */
        {.account = 12, .scopes = 3, .key = 30, .key_rate = 40},
        {.account = 12, .scopes = 3, .key = 31},
        {.account = 13, .scopes = 7, .control = true},
    };
    struct auth_cache *c = auth_cache_new(1000);
    for (uint64_t i = 0; i < sizeof callers / sizeof callers[0]; i++) {
        uint8_t key[AUTH_KEY_BYTES];
        struct auth_entry entry = {.caller = callers[i], .valid_until_us = MINUTE_US};
        struct caller found;
        bool mark;
        make_key(i, key);
        auth_cache_put(c, key, auth_cache_stamp(c), &entry);
        assert_true(auth_cache_find(c, key, 0, SEEN_EVERY_US, &found, &mark));
        assert_true(found.account == callers[i].account && found.session == callers[i].session);
        assert_true(found.expires_at_ms == callers[i].expires_at_ms);
        assert_true(found.key == callers[i].key && found.key_rate == callers[i].key_rate);
        assert_true(found.scopes == callers[i].scopes && found.control == callers[i].control);
    }
    auth_cache_free(c);
}

static void test_forgets_an_account_and_a_key_at_once(void **state)
{
    (void)state;
    struct auth_cache *c = auth_cache_new(1000);
    put(c, 1, auth_cache_stamp(c), 10, 0, MINUTE_US);
    put(c, 2, auth_cache_stamp(c), 10, 77, MINUTE_US);
    put(c, 3, auth_cache_stamp(c), 11, 77, MINUTE_US);
    put(c, 4, auth_cache_stamp(c), 12, 0, MINUTE_US);
    auth_cache_forget(c, 10);
    assert_false(find(c, 1, 0, NULL));
    assert_false(find(c, 2, 0, NULL));
    assert_true(find(c, 3, 0, NULL));
    auth_cache_forget(c, 77);
    assert_false(find(c, 3, 0, NULL));
    assert_true(find(c, 4, 0, NULL));
    put(c, 1, auth_cache_stamp(c), 10, 0, MINUTE_US); /* asked again since */
    assert_true(find(c, 1, 0, NULL));
    auth_cache_free(c);
}

static void test_a_fill_that_read_before_a_forget_does_not_count(void **state)
{
    (void)state;
    struct auth_cache *c = auth_cache_new(1000);
    uint64_t before = auth_cache_stamp(c);
    auth_cache_forget(c, 10); /* after the filler began to read, before it stores */
    put(c, 1, before, 10, 0, MINUTE_US);
    assert_false(find(c, 1, 0, NULL));
    /* and a late filler with old knowledge does not replace newer knowledge */
    put(c, 1, auth_cache_stamp(c), 10, 0, MINUTE_US);
    put(c, 1, before, 10, 0, 2 * MINUTE_US);
    assert_true(find(c, 1, 0, NULL));
    assert_false(find(c, 1, MINUTE_US, NULL));
    auth_cache_free(c);
}

static void test_marks_as_seen_once_in_a_while(void **state)
{
    (void)state;
    struct auth_cache *c = auth_cache_new(1000);
    bool mark;
    put(c, 1, auth_cache_stamp(c), 10, 0, INT64_MAX);
    assert_true(find(c, 1, 0, &mark) && mark);
    assert_true(find(c, 1, 1, &mark) && !mark);
    put(c, 1, auth_cache_stamp(c), 10, 0, INT64_MAX); /* asking truth again is no new visit */
    assert_true(find(c, 1, SEEN_EVERY_US - 1, &mark) && !mark);
    assert_true(find(c, 1, SEEN_EVERY_US, &mark) && mark);
    assert_true(find(c, 1, SEEN_EVERY_US + 1, &mark) && !mark);
    put(c, 2, auth_cache_stamp(c), 0, 5, INT64_MAX); /* a key that acts for no account */
    assert_true(find(c, 2, 0, &mark) && !mark);
    auth_cache_free(c);
}

static void test_is_bounded_and_keeps_the_latest(void **state)
{
    (void)state;
    enum { ENTRIES = 1024 };
    struct auth_cache *c = auth_cache_new(ENTRIES);
    int found = 0;
    for (uint64_t n = 1; n <= 20 * ENTRIES; n++)
        put(c, n, auth_cache_stamp(c), n, 0, MINUTE_US + (int64_t)n);
    for (uint64_t n = 1; n <= 20 * ENTRIES; n++)
        found += find(c, n, 0, NULL);
    assert_true(found <= ENTRIES && found > ENTRIES * 8 / 10);
    assert_true(find(c, 20 * ENTRIES, 0, NULL));
    auth_cache_free(c);
}

/* The main thread ends accounts in "truth" and then forgets them, while others read truth and fill:
 * after the forget no lookup may return what was read before it. */
enum { ACCOUNTS = 64, FILLERS = 3 };
static struct auth_cache *shared;
static _Atomic bool ended[ACCOUNTS];
static _Atomic bool stop;

static void *fill(void *arg)
{
    struct rand r;
    rand_seed(&r, (uint64_t)(uintptr_t)arg);
    while (!atomic_load(&stop)) {
        uint64_t n = rand_below(&r, ACCOUNTS);
        uint64_t stamp = auth_cache_stamp(shared);
        if (!atomic_load(&ended[n]))
            put(shared, n + 1, stamp, n + 1, 0, MINUTE_US);
    }
    return NULL;
}

static void test_no_fill_outlives_a_forget(void **state)
{
    (void)state;
    pthread_t threads[FILLERS];
    struct rand r;
    shared = auth_cache_new(4096);
    for (uintptr_t i = 0; i < FILLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fill, (void *)(i + 1)), 0);
    rand_seed(&r, 99);
    for (int round = 0; round < 5000; round++) {
        uint64_t n = rand_below(&r, ACCOUNTS);
        atomic_store(&ended[n], true);
        auth_cache_forget(shared, n + 1);
        for (int i = 0; i < 20; i++)
            assert_false(find(shared, n + 1, 0, NULL));
        atomic_store(&ended[n], false);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < FILLERS; i++)
        pthread_join(threads[i], NULL);
    auth_cache_free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_until_it_ends),
        cmocka_unit_test(test_tells_everything_about_a_caller),
        cmocka_unit_test(test_forgets_an_account_and_a_key_at_once),
        cmocka_unit_test(test_a_fill_that_read_before_a_forget_does_not_count),
        cmocka_unit_test(test_marks_as_seen_once_in_a_while),
        cmocka_unit_test(test_is_bounded_and_keeps_the_latest),
        cmocka_unit_test(test_no_fill_outlives_a_forget),
    };
    return cmocka_run_group_tests_name("api/edge/auth_cache", tests, NULL, NULL);
}
