/* The byte buffer: growth, the ceiling to the byte, what a failure leaves behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>

#include "base/buf.h"

static void test_grows_and_keeps_its_bytes(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 0);
    for (int i = 0; i < 10000; i++)
        buf_append(&b, "abcdefg", 7);
    assert_int_equal(b.len, 70000);
    assert_false(b.failed);
    for (size_t i = 0; i < b.len; i++)
        assert_int_equal(b.ptr[i], "abcdefg"[i % 7]);
    buf_done(&b);
    assert_null(b.ptr);
}

static void test_ceiling_is_exact(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    for (int i = 0; i < 1000; i++)
        buf_append(&b, "x", 1);
    assert_false(b.failed);
    assert_int_equal(b.len, 1000);
    assert_true(b.cap <= 1000);
    buf_append(&b, NULL, 0);
    assert_false(b.failed);
    buf_append(&b, "y", 1);
    assert_true(b.failed);
    assert_int_equal(b.len, 1000);
    buf_done(&b);
}

static void test_failure_leaves_a_prefix(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 10);
    buf_str(&b, STR("12345"));
    buf_str(&b, STR("too long by far"));
    assert_true(b.failed);
    buf_str(&b, STR("6")); /* would fit, but then there would be a hole before it */
    buf_u64(&b, 7);
    buf_printf(&b, "%d", 8);
    assert_null(buf_reserve(&b, 1));
    assert_true(str_eq(buf_view(&b), STR("12345")));
    buf_clear(&b);
    buf_str(&b, STR("abc"));
    assert_false(b.failed);
    assert_true(str_eq(buf_view(&b), STR("abc")));
    buf_done(&b);
}

static void test_absurd_sizes_fail(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 0);
    buf_str(&b, STR("x"));
    assert_null(buf_reserve(&b, SIZE_MAX));
    assert_true(b.failed);
    buf_clear(&b);
    assert_null(buf_reserve(&b, SIZE_MAX - 1));
    buf_done(&b);
}

static void test_prints(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 12);
    buf_printf(&b, "%s-%d", "abc", 42);
    assert_true(str_eq(buf_view(&b), STR("abc-42")));
    buf_printf(&b, "%06d", 7); /* exactly to the ceiling: the NUL of printf must not count */
    assert_false(b.failed);
    assert_true(str_eq(buf_view(&b), STR("abc-42000007")));
    buf_printf(&b, "!");
    assert_true(b.failed);
    buf_done(&b);
}

static void test_decimal(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 0);
    uint64_t value = 1;
    for (int i = 0; i < 64; i++, value <<= 1) {
        const uint64_t around[] = {value - 1, value, value + 1};
        for (size_t k = 0; k < 3; k++) {
            char expected[32];
            snprintf(expected, sizeof expected, "%" PRIu64, around[k]);
            buf_clear(&b);
            buf_u64(&b, around[k]);
            assert_true(str_eq(buf_view(&b), str_of(expected)));
        }
    }
    buf_clear(&b);
    buf_u64(&b, UINT64_MAX);
    assert_true(str_eq(buf_view(&b), STR("18446744073709551615")));
    buf_done(&b);
}

static void test_over_foreign_memory(void **state)
{
    (void)state;
    char memory[9] = "........";
    struct buf b = buf_over(memory, 8);
    buf_str(&b, STR("1234567"));
    buf_str(&b, STR("8"));
    assert_false(b.failed);
    assert_ptr_equal(b.ptr, memory);
    buf_str(&b, STR("9"));
    assert_true(b.failed);
    assert_int_equal(memory[8], '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows_and_keeps_its_bytes),
        cmocka_unit_test(test_ceiling_is_exact),
        cmocka_unit_test(test_failure_leaves_a_prefix),
        cmocka_unit_test(test_absurd_sizes_fail),
        cmocka_unit_test(test_prints),
        cmocka_unit_test(test_decimal),
        cmocka_unit_test(test_over_foreign_memory),
    };
    return cmocka_run_group_tests_name("base/buf", tests, NULL, NULL);
}
