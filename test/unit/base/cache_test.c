/* The bounded cache: random histories beside a plain array, its bounds, which slots give way, and
 * that each is released once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cache.h"
#include "base/hash.h"
#include "base/rand.h"

/* ---- pointers under a budget of bytes, by a clock ---- */

enum { KEYS = 400, STEPS = 50000 };

struct thing {
    uint64_t key;
    size_t bytes;
    bool used;
};

struct slot {
    uint64_t key;
    struct thing *thing;
};

static struct thing *held[KEYS + 1]; /* by key; NULL: released */
static size_t held_count, held_bytes;

static int64_t is_used(const void *slot)
{
    return ((const struct slot *)slot)->thing->used;
}

static void pass(void *slot)
{
    ((struct slot *)slot)->thing->used = false;
}

static size_t bytes_of(const void *slot)
{
    return ((const struct slot *)slot)->thing->bytes;
}

static void release(void *slot)
{
    struct thing *t = ((struct slot *)slot)->thing;
    assert_ptr_equal(held[t->key], t); /* once, and only what is there */
    held[t->key] = NULL;
    held_count--;
    held_bytes -= t->bytes;
    free(t);
}

static const struct cache_policy clock_policy = {
    .slot_bytes = sizeof(struct slot),
    .key_bytes = 8,
    .worth = is_used,
    .pass = pass,
    .bytes = bytes_of,
    .release = release,
};

static bool put(struct cache *c, uint64_t key, size_t bytes)
{
    struct slot *s = cache_claim(c, hash_u64(key), &key, bytes);
    if (!s)
        return false;
    struct thing *t = malloc(sizeof *t);
    assert_non_null(t);
    *t = (struct thing){key, bytes, false};
    assert_true(s->key == key);
    s->thing = t;
    assert_null(held[key]);
    held[key] = t;
    held_count++;
    held_bytes += bytes;
    return true;
}

static struct slot *find(struct cache *c, uint64_t key)
{
    cache_prefetch(c, hash_u64(key));
    struct slot *s = cache_find(c, hash_u64(key), &key);
    assert_ptr_equal(s ? s->thing : NULL, held[key]);
    return s;
}

static void run_history(size_t slots, size_t bytes_max, uint64_t seed)
{
    struct cache c;
    struct rand r;
    rand_seed(&r, seed);
    assert_true(cache_init(&c, &clock_policy, slots, bytes_max));
    for (int i = 0; i < STEPS; i++) {
        uint64_t key = 1 + rand_below(&r, KEYS);
        uint64_t what = rand_below(&r, 10);
        struct slot *s = find(&c, key);
        if (what < 5) {
            size_t bytes = rand_below(&r, bytes_max / 3);
            assert_int_equal(put(&c, key, bytes), bytes <= bytes_max / 4);
        } else if (what < 6 && s) {
            cache_remove(&c, s);
            assert_null(held[key]);
        } else if (s) {
            s->thing->used = true;
        }
        assert_int_equal(c.count, held_count);
        assert_int_equal(c.bytes, held_bytes);
        assert_true(c.bytes <= bytes_max && c.count <= (slots < CACHE_WAYS ? CACHE_WAYS : slots));
    }
    cache_done(&c);
    assert_int_equal(held_count, 0);
    cache_done(&c); /* once more is harmless */
}

static void histories_agree_with_a_plain_array(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        run_history(1024, 100000, seed);  /* the bytes bound it */
        run_history(64, 100000000, seed); /* the slots */
        run_history(1, 1000, seed);       /* one set */
    }
}

static void what_is_used_stays(void **state)
{
    (void)state;
    struct cache c;
    assert_true(cache_init(&c, &clock_policy, 1024, 10000));
    for (uint64_t key = 1; key <= 20; key++)
        assert_true(put(&c, key, 100));
    for (uint64_t key = 21; key <= KEYS; key++) {
        for (uint64_t used = 1; used <= 20; used++) {
            struct slot *s = find(&c, used);
            assert_non_null(s);
            s->thing->used = true;
        }
        assert_true(put(&c, key, 100));
    }
    assert_int_equal(c.count, 100);
    cache_done(&c);
}

/* The budget is used: a cache is not emptied to make room for a little. */
static void no_more_goes_than_must(void **state)
{
    (void)state;
    struct cache c;
    assert_true(cache_init(&c, &clock_policy, 4096, 20000));
    for (uint64_t key = 1; key <= KEYS; key++) {
        size_t before = c.count;
        assert_true(put(&c, key, 100));
        assert_int_equal(c.count, before < 200 ? before + 1 : 200);
    }
    cache_done(&c);
}

/* ---- values, by their worth ---- */

struct value {
    uint64_t key[2];
    int64_t until;
};

static int64_t until_of(const void *slot)
{
    return ((const struct value *)slot)->until;
}

static const struct cache_policy value_policy = {
    .slot_bytes = sizeof(struct value),
    .key_bytes = 16,
    .worth = until_of,
};

static void the_least_worth_gives_way(void **state)
{
    (void)state;
    struct cache c;
    assert_true(cache_init(&c, &value_policy, CACHE_WAYS, 0));
    const uint64_t hash = 5; /* one set; all begin at the same slot */
    for (uint64_t i = 0; i < 3 * CACHE_WAYS; i++) {
        uint64_t key[2] = {1, i};
        struct value *v = cache_claim(&c, hash, key, 0);
        v->until = (int64_t)(i * 7 % 24); /* each once */
    }
    assert_int_equal(c.count, CACHE_WAYS);
    for (uint64_t i = 0; i < 3 * CACHE_WAYS; i++) {
        const struct value *v = cache_find(&c, hash, (const uint64_t[]){1, i});
        assert_int_equal(v != NULL, i * 7 % 24 >= 24 - CACHE_WAYS);
    }
    cache_done(&c);
}

static void keys_differ_by_either_word(void **state)
{
    (void)state;
    struct cache c;
    const uint64_t keys[][2] = {{1, 0}, {1, 1}, {2, 0}, {2, 1}};
    assert_true(cache_init(&c, &value_policy, CACHE_WAYS, 0));
    for (int i = 0; i < 4; i++)
        ((struct value *)cache_claim(&c, 3, keys[i], 0))->until = i + 1;
    for (int i = 0; i < 4; i++)
        assert_int_equal(((struct value *)cache_find(&c, 3, keys[i]))->until, i + 1);
    assert_null(cache_find(&c, 3, (const uint64_t[]){0, 0})); /* a free slot has no key */
    assert_null(cache_find(&c, 3, (const uint64_t[]){3, 0}));
    cache_remove(&c, cache_find(&c, 3, keys[1]));
    assert_null(cache_find(&c, 3, keys[1]));
    assert_non_null(cache_find(&c, 3, keys[0]));
    cache_done(&c);
}

/* With hashes that all fall into one set a peer can push out that set, and no more. */
static void a_crowded_set_leaves_the_others_alone(void **state)
{
    (void)state;
    struct cache c;
    const uint64_t own[2] = {9, 9};
    assert_true(cache_init(&c, &value_policy, 64 * CACHE_WAYS, 0));
    ((struct value *)cache_claim(&c, 1, own, 0))->until = 0;
    for (uint64_t i = 1; i <= 10000; i++)
        ((struct value *)cache_claim(&c, 2, (const uint64_t[]){i, i}, 0))->until = 1;
    assert_int_equal(c.count, CACHE_WAYS + 1);
    assert_non_null(cache_find(&c, 1, own));
    cache_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histories_agree_with_a_plain_array),
        cmocka_unit_test(what_is_used_stays),
        cmocka_unit_test(no_more_goes_than_must),
        cmocka_unit_test(the_least_worth_gives_way),
        cmocka_unit_test(keys_differ_by_either_word),
        cmocka_unit_test(a_crowded_set_leaves_the_others_alone),
    };
    return cmocka_run_group_tests_name("base/cache", tests, NULL, NULL);
}
