/* The hash map: random histories beside a plain array, keys that lie badly, removal while walking,
 * and memory that runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/map.h"
#include "base/rand.h"

/* ---- the allocation that fails ---- */

static int allocations_left = -1; /* -1: all succeed */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    if (allocations_left == 0)
        return NULL;
    if (allocations_left > 0)
        allocations_left--;
    return __real_calloc(n, size);
}

/* ---- random histories ---- */

enum { KEYS = 150, STEPS = 20000, WORDS_MAX = 5 };

struct model {
    struct map map;
    struct rand rand;
    size_t key_words, entry_words;
    bool in[KEYS];
    uint64_t value[KEYS];
    size_t count;
};

/* The i-th key; of several words they differ in the last. */
static void make_key(const struct model *m, size_t i, uint64_t key[WORDS_MAX])
{
    for (size_t w = 0; w < m->key_words; w++)
        key[w] = 7;
    key[m->key_words - 1] = i + 1;
}

static size_t number_of(const struct model *m, const uint64_t *entry)
{
    return (size_t)entry[m->key_words - 1] - 1;
}

static void check_all(const struct model *m)
{
    uint64_t key[WORDS_MAX];
    size_t walked = 0;
    assert_int_equal(m->map.count, m->count);
    assert_true(m->map.count * 8 <= m->map.size * 5);
    for (size_t i = 0; i < KEYS; i++) {
        make_key(m, i, key);
        const uint64_t *entry = map_find(&m->map, key);
        assert_int_equal(entry != NULL, m->in[i]);
        if (entry && m->entry_words > m->key_words)
            assert_true(entry[m->entry_words - 1] == m->value[i]);
    }
    for (uint64_t *e = map_next(&m->map, NULL); e; e = map_next(&m->map, e)) {
        assert_true(m->in[number_of(m, e)]);
        walked++;
    }
    assert_int_equal(walked, m->count);
}

static void put_one(struct model *m, size_t i)
{
    uint64_t key[WORDS_MAX];
    bool made;
    make_key(m, i, key);
    uint64_t *entry = map_put(&m->map, key, &made);
    assert_non_null(entry);
    assert_int_equal(made, !m->in[i]);
    if (m->entry_words > m->key_words) {
        assert_true(entry[m->entry_words - 1] == (made ? 0 : m->value[i]));
        entry[m->entry_words - 1] = m->value[i] = rand_u64(&m->rand);
    }
    m->count += made;
    m->in[i] = true;
}

static void remove_one(struct model *m, size_t i)
{
    uint64_t key[WORDS_MAX];
    make_key(m, i, key);
    void *entry = map_find(&m->map, key);
    assert_int_equal(entry != NULL, m->in[i]);
    if (!entry)
        return;
    map_remove(&m->map, entry);
    m->in[i] = false;
    m->count--;
}

struct sweep {
    struct model *model;
    size_t third;
    bool seen[KEYS];
};

static bool drop_third(void *entry, void *ctx)
{
    struct sweep *s = ctx;
    size_t i = number_of(s->model, entry);
    s->seen[i] = true;
    if (i % 3 != s->third)
        return false;
    assert_true(s->model->in[i]);
    s->model->in[i] = false;
    s->model->count--;
    return true;
}

static void sweep_some(struct model *m)
{
    struct sweep s = {.model = m, .third = rand_below(&m->rand, 3)};
    bool before[KEYS];
    memcpy(before, m->in, sizeof before);
    map_sweep(&m->map, drop_third, &s);
    assert_memory_equal(s.seen, before, sizeof before);
}

static void run_history(size_t key_words, size_t entry_words, uint64_t seed)
{
    struct model m = {.key_words = key_words, .entry_words = entry_words};
    rand_seed(&m.rand, seed);
    map_init(&m.map, entry_words * 8, key_words * 8);
    for (int i = 0; i < STEPS; i++) {
        size_t key = rand_below(&m.rand, KEYS);
        uint64_t what = rand_below(&m.rand, 1000);
        bool filling = i / 2000 % 2 == 0; /* it fills up and empties in turns */
        if (what < 4)
            sweep_some(&m);
        else if (what < 5) {
            map_clear(&m.map);
            memset(m.in, 0, sizeof m.in);
            m.count = 0;
        } else if (what < (filling ? 700 : 300))
            put_one(&m, key);
        else
            remove_one(&m, key);
        if (i % 16 == 0)
            check_all(&m);
    }
    check_all(&m);
    map_done(&m.map);
}

static void histories_agree_with_a_plain_array(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run_history(1, 1, seed);
        run_history(1, 2, seed);
        run_history(2, 3, seed);
        run_history(3, 5, seed);
    }
}

/* ---- keys that lie badly ---- */

static size_t farthest(const struct map *m)
{
    size_t most = 0;
    for (char *e = map_next(m, NULL); e; e = map_next(m, e)) {
        size_t at = (size_t)(e - m->entries) / m->entry_bytes;
        size_t from_home = (at - (size_t)map_hash(m, e)) & (m->size - 1);
        most = from_home > most ? from_home : most;
    }
    return most;
}

/* Rising numbers, multiples of large powers of two, addresses, ids of one node: no long runs. */
static void no_pattern_of_numbers_makes_long_runs(void **state)
{
    (void)state;
    static const uint64_t steps[] = {
        1, 64, 4096, UINT64_C(1) << 22, UINT64_C(1) << 32, UINT64_C(1) << 44};
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        struct map m;
        map_init(&m, 8, 8);
        for (uint64_t i = 1; i <= 100000; i++) {
            uint64_t key = i * steps[s];
            assert_non_null(map_put(&m, &key, NULL));
        }
        assert_int_equal(m.count, 100000);
        assert_in_range(farthest(&m), 0, 120);
        map_done(&m);
    }
}

/* A peer that chooses long keys cannot know their places: they depend on the key of the process,
 * not on a mix that can be inverted. */
static void long_keys_are_hashed_under_the_key_of_the_process(void **state)
{
    (void)state;
    struct map m;
    map_init(&m, 16, 16);
    for (uint64_t i = 1; i <= 50000; i++) {
        uint64_t key[2] = {i << 40, i << 48 | 1};
        assert_true(map_hash(&m, key) == hash_bytes(key, sizeof key));
        assert_non_null(map_put(&m, key, NULL));
    }
    assert_int_equal(m.count, 50000);
    assert_in_range(farthest(&m), 0, 120);
    map_done(&m);
}

static void keys_differ_by_any_word(void **state)
{
    (void)state;
    struct map m;
    const uint64_t keys[][2] = {{1, 0}, {1, 1}, {2, 0}, {2, 1}};
    map_init(&m, 24, 16);
    for (uint64_t i = 0; i < 4; i++)
        ((uint64_t *)map_put(&m, keys[i], NULL))[2] = i;
    for (uint64_t i = 0; i < 4; i++)
        assert_true(((uint64_t *)map_find(&m, keys[i]))[2] == i);
    assert_null(map_find(&m, (const uint64_t[]){3, 0}));
    map_done(&m);
}

/* ---- memory ---- */

static void an_empty_map_costs_nothing(void **state)
{
    (void)state;
    struct map m;
    uint64_t key = 1;
    map_init(&m, 8, 8);
    assert_int_equal(map_bytes(&m), 0);
    assert_null(map_find(&m, &key));
    assert_null(map_next(&m, NULL));
    map_clear(&m);
    map_done(&m);
}

/* Fails the Nth allocation: what was there is still there, and the same put succeeds later. */
static void without_memory_nothing_changes(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    for (int nth = 0; nth < 9; nth++) {
        struct map m;
        uint64_t failed = 0;
        map_init(&m, 8, 8);
        allocations_left = nth;
        for (uint64_t key = 1; key <= COUNT; key++) {
            size_t before = m.count;
            if (map_put(&m, &key, NULL))
                continue;
            failed++;
            assert_int_equal(m.count, before);
            allocations_left = -1;
            assert_non_null(map_put(&m, &key, NULL));
        }
        allocations_left = -1;
        assert_int_equal(failed, nth < 8); /* a thousand keys take eight tables */
        for (uint64_t key = 1; key <= COUNT; key++)
            assert_non_null(map_find(&m, &key));
        map_done(&m);
    }
}

static void reserved_room_needs_no_allocation(void **state)
{
    (void)state;
    struct map m;
    map_init(&m, 8, 8);
    assert_true(map_reserve(&m, 1000));
    size_t size = m.size;
    allocations_left = 0;
    assert_false(map_reserve(&m, 100000));
    for (uint64_t key = 1; key <= 1000; key++)
        assert_non_null(map_put(&m, &key, NULL));
    allocations_left = -1;
    assert_int_equal(m.size, size);
    map_done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histories_agree_with_a_plain_array),
        cmocka_unit_test(no_pattern_of_numbers_makes_long_runs),
        cmocka_unit_test(long_keys_are_hashed_under_the_key_of_the_process),
        cmocka_unit_test(keys_differ_by_any_word),
        cmocka_unit_test(an_empty_map_costs_nothing),
        cmocka_unit_test(without_memory_nothing_changes),
        cmocka_unit_test(reserved_room_needs_no_allocation),
    };
    return cmocka_run_group_tests_name("base/map", tests, NULL, NULL);
}
