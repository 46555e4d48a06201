/* The parts of the cards driver: bucket caches and tombstones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "port/cards.h"
#include "view/memory/bucket_cache.h"
#include "view/memory/tombstones.h"

static struct bucket_cache_entry *entry(uint64_t key, size_t size)
{
    struct bucket_cache_entry *e = calloc(1, sizeof *e + size);
    e->key = key;
    return e;
}

static void put(struct bucket_cache *s, uint64_t key, size_t size)
{
    bucket_cache_put(s, hash_u64(key), entry(key, size));
}

static struct bucket_cache_entry *find(struct bucket_cache *s, uint64_t key)
{
    bucket_cache_prefetch_bucket(s, hash_u64(key));
    bucket_cache_prefetch_entry(s, hash_u64(key), key);
    return bucket_cache_find(s, hash_u64(key), key);
}

static void a_bucket_cache_keeps_its_budget(void **state)
{
    (void)state;
    struct bucket_cache s;
    enum { BUDGET = 100000 };
    assert_true(bucket_cache_init(&s, BUDGET));
    size_t table = cache_table_bytes(&s.cache);
    for (uint64_t key = 1; key <= 5000; key++) {
        put(&s, key, key % 900);
        assert_true(s.cache.bytes <= s.cache.bytes_max);
        assert_true(s.cache.bytes + table <= BUDGET);
        assert_non_null(find(&s, key)); /* the newest is there */
    }
    size_t counted = 0, bytes = 0;
    for (uint64_t key = 1; key <= 5000; key++) {
        struct bucket_cache_entry *e = find(&s, key);
        counted += e != NULL;
        bytes += e ? e->bytes : 0;
    }
    assert_int_equal(counted, s.cache.count);
    assert_int_equal(bytes, s.cache.bytes);
    assert_true(s.cache.bytes > s.cache.bytes_max / 2);
    bucket_cache_done(&s);
}

static void what_is_too_large_is_not_kept(void **state)
{
    (void)state;
    struct bucket_cache s;
    assert_true(bucket_cache_init(&s, 20000));
    put(&s, 1, 100);
    put(&s, 1, 19000); /* takes the old one's place, and is not kept itself */
    assert_null(find(&s, 1));
    assert_int_equal(s.cache.count, 0);
    assert_int_equal(s.cache.bytes, 0);
    bucket_cache_done(&s);
    assert_true(bucket_cache_init(&s, 0)); /* nothing at all fits */
    put(&s, 1, 1);
    assert_null(find(&s, 1));
    bucket_cache_done(&s);
}

static void a_full_bucket_evicts_unused_entries(void **state)
{
    (void)state;
    struct bucket_cache s;
    assert_true(bucket_cache_init(&s, 1 << 20));
    for (uint64_t key = 1; key <= CACHE_WAYS; key++) /* all in one bucket */
        bucket_cache_put(&s, 7, entry(key, 10));
    for (uint64_t key = 1; key <= CACHE_WAYS; key++)
        if (key != 5)
            assert_non_null(bucket_cache_find(&s, 7, key));
    bucket_cache_put(&s, 7, entry(100, 10));
    assert_null(bucket_cache_find(&s, 7, 5));
    assert_int_equal(s.cache.count, CACHE_WAYS);
    for (uint64_t key = 200; key < 300; key++) { /* even when all are wanted */
        bucket_cache_put(&s, 7, entry(key, 10));
        assert_non_null(bucket_cache_find(&s, 7, key));
        assert_int_equal(s.cache.count, CACHE_WAYS);
    }
    assert_true(bucket_cache_remove(&s, 7, 299));
    assert_false(bucket_cache_remove(&s, 7, 299));
    bucket_cache_done(&s);
}

static void tombstones_expire_and_stay_bounded(void **state)
{
    (void)state;
    struct tombstones g;
    tombstones_init(&g, 64 * 1024);
    int64_t now = INT64_C(1800000000000);
    tombstones_add(&g, 1, now);
    tombstones_add(&g, 1, now);
    assert_int_equal(tombstones_count(&g), 1);
    assert_true(tombstones_has(&g, 1, now));
    assert_false(tombstones_has(&g, 2, now));
    assert_true(tombstones_has(&g, 1, now + TOMBSTONE_MS - 1));
    assert_false(tombstones_has(&g, 1, now + TOMBSTONE_MS));
    for (uint64_t id = 2; id < 200000; id++) {
        tombstones_add(&g, id, now);
        assert_true(tombstones_has(&g, id, now));
        assert_true(tombstones_bytes(&g) <= 64 * 1024);
    }
    for (uint64_t id = 200000 - g.marks_max; id < 200000; id++) /* at least one table's worth */
        assert_true(tombstones_has(&g, id, now));
    tombstones_done(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_cache_keeps_its_budget),
        cmocka_unit_test(what_is_too_large_is_not_kept),
        cmocka_unit_test(a_full_bucket_evicts_unused_entries),
        cmocka_unit_test(tombstones_expire_and_stay_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
