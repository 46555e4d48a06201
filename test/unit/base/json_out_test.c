/* The JSON writer: structure, numbers, escaping, ceilings, misuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>

#include "base/json_out.h"
#include "base/rand.h"
#include "child.h"

static struct buf out;
static struct json_out j;

static int set_up(void **state)
{
    (void)state;
    buf_init(&out, 0);
    json_out_init(&j, &out);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    buf_done(&out);
    return 0;
}

static void assert_text(struct str expected)
{
    if (!str_eq(buf_view(&out), expected))
        fail_msg("got %.*s, expected %.*s", STR_ARG(buf_view(&out)), STR_ARG(expected));
}

static void test_structure(void **state)
{
    (void)state;
    json_object_begin(&j);
    json_put(&j, "id", id, 42);
    json_put(&j, "text", str, STR("a\"b"));
    json_key(&j, STR("list"));
    json_array_begin(&j);
    json_i64(&j, -1);
    json_u64(&j, UINT64_MAX);
    json_bool(&j, true);
    json_bool(&j, false);
    json_nil(&j);
    json_object_begin(&j);
    json_object_end(&j);
    json_array_begin(&j);
    json_array_end(&j);
    json_raw(&j, STR("{\"raw\":1}"));
    json_array_end(&j);
    json_put(&j, "at", time, 0);
    json_object_end(&j);
    assert_int_equal(j.depth, 0);
    assert_text(
        STR("{\"id\":\"42\",\"text\":\"a\\\"b\",\"list\":[-1,18446744073709551615,true,false,null,"
            "{},[],{\"raw\":1}],\"at\":\"1970-01-01T00:00:00.000Z\"}"));
}

static void test_single_values(void **state)
{
    (void)state;
    json_i64(&j, INT64_MIN);
    assert_text(STR("-9223372036854775808"));
    buf_clear(&out);
    json_str(&j, (struct str){NULL, 0});
    assert_text(STR("\"\""));
    buf_clear(&out);
    json_id(&j, UINT64_MAX);
    assert_text(STR("\"18446744073709551615\""));
}

static void test_escapes_every_byte(void **state)
{
    (void)state;
    for (int c = 0; c < 128; c++) {
        /* At every place of a word: the look-ahead works on eight bytes. */
        for (size_t at = 0; at < 20; at++) {
            char text[20];
            memset(text, 'x', sizeof text);
            text[at] = (char)c;
            buf_clear(&out);
            json_out_init(&j, &out);
            json_array_begin(&j);
            json_str(&j, (struct str){text, sizeof text});
            json_array_end(&j);
            json_t *parsed = json_loadb(out.ptr, out.len, JSON_ALLOW_NUL, NULL);
            assert_non_null(parsed);
            json_t *value = json_array_get(parsed, 0);
            assert_int_equal(json_string_length(value), sizeof text);
            assert_memory_equal(json_string_value(value), text, sizeof text);
            json_decref(parsed);
        }
    }
    buf_clear(&out);
    json_escape(&out, STR("\b\t\n\f\r\"\\/\x1f\x7f\0"));
    assert_text(STR("\\b\\t\\n\\f\\r\\\"\\\\/\\u001f\x7f\\u0000"));
}

static void test_random_texts_read_back(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "a",   "\"", "\\", "\n", "\x01", "word", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x90\xa6",
        "\x1f"};
    struct rand r;
    rand_seed(&r, 7);
    for (int round = 0; round < 5000; round++) {
        char text[256];
        size_t n = 0;
        for (uint64_t i = rand_below(&r, 40); i > 0; i--) {
            const char *piece = pieces[rand_below(&r, sizeof pieces / sizeof *pieces)];
            size_t length = strlen(piece);
            memcpy(text + n, piece, length);
            n += length;
        }
        buf_clear(&out);
        json_array_begin(&j);
        json_str(&j, (struct str){text, n});
        json_array_end(&j);
        json_t *parsed = json_loadb(out.ptr, out.len, 0, NULL);
        assert_non_null(parsed);
        assert_int_equal(json_string_length(json_array_get(parsed, 0)), n);
        assert_memory_equal(json_string_value(json_array_get(parsed, 0)), text, n);
        json_decref(parsed);
    }
}

static void test_doubles_read_back(void **state)
{
    (void)state;
    const double values[] = {0.0,     0.1,     1.0 / 3, 1e300,         -2.5,
                             DBL_MIN, DBL_MAX, 5e-324,  123456789.125, 1e22};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        buf_clear(&out);
        json_f64(&j, values[i]);
        buf_append(&out, "", 1);
        assert_true(strtod(out.ptr, NULL) == values[i]);
    }
    buf_clear(&out);
    json_f64(&j, 0.1);
    assert_text(STR("0.1")); /* the shortest, not 0.10000000000000001 */
    buf_clear(&out);
    json_f64(&j, NAN);
    json_f64(&j, INFINITY);
    assert_text(STR("nullnull"));
}

static void test_ceiling(void **state)
{
    (void)state;
    struct buf small;
    buf_init(&small, 64);
    json_out_init(&j, &small);
    json_object_begin(&j);
    for (int i = 0; i < 100; i++)
        json_put(&j, "key", str, STR("value\n"));
    json_object_end(&j);
    assert_true(small.failed);
    assert_true(small.len <= 64);
    buf_done(&small);
}

static void value_without_key(void *arg)
{
    (void)arg;
    json_object_begin(&j);
    json_nil(&j);
}

static void key_in_array(void *arg)
{
    (void)arg;
    json_array_begin(&j);
    json_key(&j, STR("k"));
}

static void key_without_value(void *arg)
{
    (void)arg;
    json_object_begin(&j);
    json_key(&j, STR("k"));
    json_object_end(&j);
}

static void wrong_end(void *arg)
{
    (void)arg;
    json_object_begin(&j);
    json_array_end(&j);
}

static void too_deep(void *arg)
{
    (void)arg;
    for (int i = 0; i <= JSON_OUT_DEPTH; i++)
        json_array_begin(&j);
}

static void as_deep_as_allowed(void *arg)
{
    (void)arg;
    for (int i = 0; i < JSON_OUT_DEPTH; i++)
        json_array_begin(&j);
}

static void test_misuse_is_caught(void **state)
{
    (void)state;
    assert_int_equal(signal_of(value_without_key, NULL), SIGABRT);
    assert_int_equal(signal_of(key_in_array, NULL), SIGABRT);
    assert_int_equal(signal_of(key_without_value, NULL), SIGABRT);
    assert_int_equal(signal_of(wrong_end, NULL), SIGABRT);
    assert_int_equal(signal_of(too_deep, NULL), SIGABRT);
    assert_int_equal(signal_of(as_deep_as_allowed, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_structure, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_single_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_escapes_every_byte, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_texts_read_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_doubles_read_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ceiling, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_misuse_is_caught, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("base/json_out", tests, NULL, NULL);
}
