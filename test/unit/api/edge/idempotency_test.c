/* Idempotency keys: reading them, the set of those in progress, and what truth keeps. */
#include "test.h"

#include <pthread.h>

#include "api/edge/idempotency.h"
#include "base/check.h"
#include "store.h"

static struct arena arena;
static struct store store;

static int begin(void **state)
{
    (void)state;
    arena_init(&arena);
    store_open(&store);
    return 0;
}

static int end(void **state)
{
    (void)state;
    store_close(&store);
    arena_done(&arena);
    return 0;
}

static struct idempotency_key key_of(uint64_t account, const char *route, uint64_t subject,
                                     const char *text, const char *body)
{
    static const uint8_t secret[32] = "s";
    struct idempotency_key k = {account, route, subject, str_of(text), {0}};
    idempotency_fingerprint(secret, str_of(body), k.fingerprint);
    return k;
}

static void test_reads_keys_quoted_and_bare(void **state)
{
    (void)state;
    struct str key;
    const struct {
        const char *header, *key;
    } good[] = {
        {"abc", "abc"},
        {"\"abc\"", "abc"},
        {"  abc\t", "abc"},
        {"\"a b\"", "a b"},
        {"a b", "a b"},
        {"\"a\\\"b\\\\c\"", "a\"b\\c"},
        {"a\\b", "a\\b"},
        {"8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"},
    };
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_int_equal(idempotency_read_key(str_of(good[i].header), &arena, &key), OK);
        assert_str_equal(key, str_of(good[i].key));
    }
    const char *bad[] = {"",         "  ",      "\"\"", "\"a",  "a\"",     "a\"b",
                         "\"a\\x\"", "\"a\\\"", "\"",   "\x01", "\xc3\xa4"};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(idempotency_read_key(str_of(bad[i]), &arena, &key), ERR_BAD_INPUT);
    char longest[300];
    memset(longest, 'k', sizeof longest);
    assert_int_equal(idempotency_read_key((struct str){longest, 255}, &arena, &key), OK);
    assert_int_equal(idempotency_read_key((struct str){longest, 256}, &arena, &key), ERR_BAD_INPUT);
}

static void test_knows_what_is_in_progress(void **state)
{
    (void)state;
    struct idempotency *set = idempotency_new(4);
    struct idempotency_key a = key_of(1, "posts_create", 0, "k", "body");
    struct idempotency_key again = key_of(1, "posts_create", 0, "k", "body");
    struct idempotency_key changed = key_of(1, "posts_create", 0, "k", "other");
    assert_int_equal(idempotency_begin(set, &a), OK);
    assert_int_equal(idempotency_begin(set, &again), ERR_IN_PROGRESS);
    assert_int_equal(idempotency_begin(set, &changed), ERR_INVALID);
    /* another caller, route, thing or key is another act */
    struct idempotency_key others[] = {
        key_of(2, "posts_create", 0, "k", "body"),
        key_of(1, "comments_create", 0, "k", "body"),
        key_of(1, "posts_create", 9, "k", "body"),
    };
    for (size_t i = 0; i < COUNT_OF(others); i++)
        assert_int_equal(idempotency_begin(set, &others[i]), OK);
    struct idempotency_key more = key_of(1, "posts_create", 0, "l", "body");
    assert_int_equal(idempotency_begin(set, &more), ERR_OVERLOADED);
    idempotency_end(set, &a);
    assert_int_equal(idempotency_begin(set, &more), OK);
    idempotency_end(set, &more);
    assert_int_equal(idempotency_begin(set, &again), OK);
    idempotency_end(set, &again);
    for (size_t i = 0; i < COUNT_OF(others); i++)
        idempotency_end(set, &others[i]);
    idempotency_free(set);
}

enum { THREADS = 4, ROUNDS = 5000, KEYS = 8 };
static struct idempotency *shared;
static _Atomic int holders[KEYS];
static _Atomic int broken;

static void *contend(void *arg)
{
    (void)arg;
    static const char *const names[KEYS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    for (int i = 0; i < ROUNDS; i++) {
        int n = i % KEYS;
        struct idempotency_key k = key_of(1, "posts_create", 0, names[n], "body");
        if (idempotency_begin(shared, &k) != OK)
            continue;
        if (atomic_fetch_add(&holders[n], 1) != 0)
            atomic_store(&broken, 1);
        atomic_fetch_sub(&holders[n], 1);
        idempotency_end(shared, &k);
    }
    return NULL;
}

static void test_one_holder_at_a_time(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    shared = idempotency_new(16);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, contend, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&broken), 0);
    idempotency_free(shared);
}

/* ---- truth ---- */

struct act {
    struct idempotency_key key;
    bool store_it;
    struct idempotency_answer does;
    enum err found;
    struct idempotency_answer answer;
};

static enum err act_tx(struct tx *tx, void *arg)
{
    struct act *a = arg;
    int64_t now_ms = clock_wall_ms(&store.clock.clock);
    a->found = idempotency_find(tx, &a->key, now_ms, &a->answer);
    if (a->found != ERR_NOT_FOUND || !a->store_it)
        return OK;
    return idempotency_store(tx, &a->key, now_ms, &a->does);
}

static enum err act(struct act *a)
{
    assert_int_equal(db_write(store.db, act_tx, a, NULL), OK);
    return a->found;
}

static void test_truth_remembers_for_a_day(void **state)
{
    (void)state;
    struct act first = {key_of(7, "posts_create", 0, "k1", "body"), true, {201, 12}, 0, {0}};
    assert_int_equal(act(&first), ERR_NOT_FOUND);
    struct act again = {key_of(7, "posts_create", 0, "k1", "body"), true, {500, 13}, 0, {0}};
    assert_int_equal(act(&again), OK);
    assert_int_equal(again.answer.status, 201);
    assert_int_equal(again.answer.object, 12);
    struct act changed = {key_of(7, "posts_create", 0, "k1", "other"), true, {500, 13}, 0, {0}};
    assert_int_equal(act(&changed), ERR_INVALID);
    struct act elsewhere = {key_of(7, "posts_create", 5, "k1", "body"), false, {0}, 0, {0}};
    assert_int_equal(act(&elsewhere), ERR_NOT_FOUND);
    struct act other = {key_of(8, "posts_create", 0, "k1", "body"), false, {0}, 0, {0}};
    assert_int_equal(act(&other), ERR_NOT_FOUND);

    manual_clock_advance(&store.clock, IDEMPOTENCY_KEEP_MS - 1);
    assert_int_equal(act(&again), OK);
    manual_clock_advance(&store.clock, 1);
    struct act later = {key_of(7, "posts_create", 0, "k1", "other"), true, {200, 0}, 0, {0}};
    assert_int_equal(act(&later), ERR_NOT_FOUND); /* the day is over: the key is free again */
    assert_int_equal(act(&later), OK);
    assert_int_equal(store_number(&store, "SELECT COUNT(*) FROM idempotency"), 1);
}

struct many {
    int from, to;
};

static enum err store_many(struct tx *tx, void *arg)
{
    struct many *m = arg;
    int64_t now_ms = clock_wall_ms(&store.clock.clock);
    for (int i = m->from; i < m->to; i++) {
        char text[20];
        snprintf(text, sizeof text, "key-%d", i);
        struct idempotency_key k = key_of(9, "posts_create", 0, text, "");
        TRY(idempotency_store(tx, &k, now_ms, &(struct idempotency_answer){.status = 204}));
    }
    return OK;
}

static void test_cleaning_goes_in_slices_and_spares_the_young(void **state)
{
    (void)state;
    struct many old = {0, 1200}, young = {1200, 1230};
    assert_int_equal(db_write(store.db, store_many, &old, NULL), OK);
    manual_clock_advance(&store.clock, IDEMPOTENCY_KEEP_MS);
    assert_int_equal(db_write(store.db, store_many, &young, NULL), OK);
    int64_t left = store_number(&store, "SELECT COUNT(*) FROM idempotency");
    int steps = 0;
    for (; left > 30 && steps < 10; steps++) {
        int64_t now_us = clock_mono_us(&store.clock.clock);
        int64_t next_us = idempotency_clean_step(store.db, &store.clock.clock);
        assert_true(next_us > now_us);
        int64_t after = store_number(&store, "SELECT COUNT(*) FROM idempotency");
        assert_true(left - after <= 500);
        left = after;
    }
    assert_int_equal(left, 30);
    assert_int_equal(steps, 3);
    idempotency_clean_step(store.db, &store.clock.clock);
    assert_int_equal(store_number(&store, "SELECT COUNT(*) FROM idempotency"), 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_keys_quoted_and_bare),
        cmocka_unit_test(test_knows_what_is_in_progress),
        cmocka_unit_test(test_one_holder_at_a_time),
        cmocka_unit_test(test_truth_remembers_for_a_day),
        cmocka_unit_test(test_cleaning_goes_in_slices_and_spares_the_young),
    };
    return cmocka_run_group_tests_name("api/edge/idempotency", tests, begin, end);
}
