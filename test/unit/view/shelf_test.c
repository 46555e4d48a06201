/* The parts of the cards engine: shelves and graves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "port/cards.h"
#include "view/memory/graves.h"
#include "view/memory/shelf.h"

static struct shelf_entry *entry(uint64_t key, size_t size)
{
    struct shelf_entry *e = calloc(1, sizeof *e + size);
    e->key = key;
    return e;
}

static void put(struct shelf *s, uint64_t key, size_t size)
{
    shelf_put(s, hash_u64(key), entry(key, size));
}

static struct shelf_entry *find(struct shelf *s, uint64_t key)
{
    shelf_prefetch_bucket(s, hash_u64(key));
    shelf_prefetch_entry(s, hash_u64(key), key);
    return shelf_find(s, hash_u64(key), key);
}

static void a_shelf_keeps_its_budget(void **state)
{
    (void)state;
    struct shelf s;
    enum { BUDGET = 100000 };
    assert_true(shelf_init(&s, BUDGET));
    size_t table = (s.mask + 1) * sizeof(struct shelf_bucket);
    for (uint64_t key = 1; key <= 5000; key++) {
        put(&s, key, key % 900);
        assert_true(s.bytes <= s.bytes_max);
        assert_true(s.bytes + table <= BUDGET);
        assert_non_null(find(&s, key)); /* the newest is there */
    }
    size_t counted = 0, bytes = 0;
    for (uint64_t key = 1; key <= 5000; key++) {
        struct shelf_entry *e = find(&s, key);
        counted += e != NULL;
        bytes += e ? e->bytes : 0;
    }
    assert_int_equal(counted, s.count);
    assert_int_equal(bytes, s.bytes);
    assert_true(s.bytes > s.bytes_max / 2);
    shelf_done(&s);
}

static void what_is_too_large_is_not_kept(void **state)
{
    (void)state;
    struct shelf s;
    assert_true(shelf_init(&s, 20000));
    put(&s, 1, 100);
    put(&s, 1, 19000); /* takes the old one's place, and is not kept itself */
    assert_null(find(&s, 1));
    assert_int_equal(s.count, 0);
    assert_int_equal(s.bytes, 0);
    shelf_done(&s);
    assert_true(shelf_init(&s, 0)); /* nothing at all fits */
    put(&s, 1, 1);
    assert_null(find(&s, 1));
    shelf_done(&s);
}

static void a_full_bucket_gives_up_what_nobody_looks_at(void **state)
{
    (void)state;
    struct shelf s;
    assert_true(shelf_init(&s, 1 << 20));
    for (uint64_t key = 1; key <= BUCKET_WAYS; key++) /* all in one bucket */
        shelf_put(&s, 7, entry(key, 10));
    for (uint64_t key = 1; key <= BUCKET_WAYS; key++)
        if (key != 5)
            assert_non_null(shelf_find(&s, 7, key));
    shelf_put(&s, 7, entry(100, 10));
    assert_null(shelf_find(&s, 7, 5));
    assert_int_equal(s.count, BUCKET_WAYS);
    for (uint64_t key = 200; key < 300; key++) { /* even when all are wanted */
        shelf_put(&s, 7, entry(key, 10));
        assert_non_null(shelf_find(&s, 7, key));
        assert_int_equal(s.count, BUCKET_WAYS);
    }
    assert_true(shelf_remove(&s, 7, 299));
    assert_false(shelf_remove(&s, 7, 299));
    shelf_done(&s);
}

static void graves_expire_and_stay_bounded(void **state)
{
    (void)state;
    struct graves g;
    graves_init(&g, 64 * 1024);
    int64_t now = INT64_C(1800000000000);
    graves_add(&g, 1, now);
    graves_add(&g, 1, now);
    assert_int_equal(graves_count(&g), 1);
    assert_true(graves_has(&g, 1, now));
    assert_false(graves_has(&g, 2, now));
    assert_true(graves_has(&g, 1, now + TOMBSTONE_MS - 1));
    assert_false(graves_has(&g, 1, now + TOMBSTONE_MS));
    for (uint64_t id = 2; id < 200000; id++) {
        graves_add(&g, id, now);
        assert_true(graves_has(&g, id, now));
        assert_true(graves_bytes(&g) <= 64 * 1024);
    }
    for (uint64_t id = 200000 - g.marks_max; id < 200000; id++) /* at least one yard's worth */
        assert_true(graves_has(&g, id, now));
    graves_done(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shelf_keeps_its_budget),
        cmocka_unit_test(what_is_too_large_is_not_kept),
        cmocka_unit_test(a_full_bucket_gives_up_what_nobody_looks_at),
        cmocka_unit_test(graves_expire_and_stay_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
