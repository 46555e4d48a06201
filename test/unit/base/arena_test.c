/* The arena: alignment, zeroes, no overlaps, reset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/arena.h"
#include "base/rand.h"

static void test_aligned_zeroed_apart(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    struct arena a;
    struct rand r;
    struct {
        unsigned char *p;
        size_t size;
    } *blocks = calloc(COUNT, sizeof *blocks);
    arena_init(&a);
    rand_seed(&r, 2);
    for (int round = 0; round < 3;
         round++) { /* after a reset memory is used again: it must be clean again */
        for (size_t i = 0; i < COUNT; i++) {
            size_t size = rand_below(&r, 20) == 0 ? rand_below(&r, 40000) : rand_below(&r, 300);
            unsigned char *p = arena_alloc(&a, size);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % 16, 0);
            for (size_t k = 0; k < size; k++)
                assert_int_equal(p[k], 0);
            memset(p, (int)(i % 255 + 1), size);
            blocks[i].p = p;
            blocks[i].size = size;
        }
        for (size_t i = 0; i < COUNT; i++) {
            for (size_t k = 0; k < blocks[i].size; k++)
                assert_int_equal(blocks[i].p[k], i % 255 + 1);
        }
        arena_reset(&a);
    }
    arena_done(&a);
    free(blocks);
}

static void test_reset_keeps_one_chunk(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a);
    arena_reset(&a); /* of nothing */
    void *first = arena_alloc(&a, 100);
    for (int i = 0; i < 10; i++)
        arena_alloc(&a, 100000);
    arena_reset(&a);
    assert_ptr_equal(arena_alloc(&a, 100), first);
    arena_done(&a);
    arena_done(&a); /* twice is harmless */
}

static void test_large_first_then_small(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a);
    char *large = arena_alloc(&a, 1000000);
    char *small = arena_alloc(&a, 10);
    large[999999] = 1;
    small[9] = 1;
    arena_reset(&a);
    assert_int_equal(((char *)arena_alloc(&a, 10))[9], 0);
    arena_done(&a);
}

static void test_texts(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a);
    struct str copy = arena_str(&a, STR("with\0nul"));
    assert_true(str_eq(copy, STR("with\0nul")));
    assert_int_equal(copy.ptr[copy.len], '\0');
    struct str empty = arena_str(&a, (struct str){NULL, 0});
    assert_non_null(empty.ptr);
    assert_int_equal(empty.ptr[0], '\0');
    struct str text = arena_printf(&a, "%s:%05d", "x", 42);
    assert_string_equal(text.ptr, "x:00042");
    assert_int_equal(text.len, 7);
    struct str wide = arena_printf(&a, "%50000d", 1); /* larger than a chunk */
    assert_int_equal(wide.len, 50000);
    assert_int_equal(wide.ptr[49999], '1');
    int *numbers = ARENA_ARRAY(&a, int, 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(numbers[i], 0);
    assert_non_null(arena_alloc(&a, 0));
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_aligned_zeroed_apart),
        cmocka_unit_test(test_reset_keeps_one_chunk),
        cmocka_unit_test(test_large_first_then_small),
        cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests_name("base/arena", tests, NULL, NULL);
}
