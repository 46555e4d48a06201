/* The gate before the JSON parser. */
#include "test.h"

#include "api/edge/body.h"
#include "base/buf.h"

static enum err parse(struct str raw, char detail[200])
{
    json_t *value = NULL;
    detail[0] = '\0';
    enum err e = body_parse(raw, &value, detail, 200);
    if (e) {
        assert_null(value);
        assert_true(detail[0] != '\0');
    } else {
        assert_true(json_is_object(value));
        json_decref(value);
    }
    return e;
}

static void test_lets_objects_through(void **state)
{
    (void)state;
    char detail[200];
    const char *good[] = {
        "{}",
        " \r\n\t{\"a\":1} \n",
        "{\"a\":{\"b\":[1,2.5,true,null,\"x\"]}}",
        "{\"a\":9007199254740993}",
        "{\"a\":\"\\u00e4\\n\\\"\\ud83d\\ude00\"}",
        "{\"a\":\"{[{[\"}",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(parse(str_of(good[i]), detail), OK);
}

static void test_refuses_what_is_not_an_object(void **state)
{
    (void)state;
    char detail[200];
    const char *bad[] = {
        "",
        " ",
        "[]",
        "1",
        "\"x\"",
        "null",
        "{",
        "}",
        "{]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":.5}",
        "{\"a\":1.}",
        "{\"a\":tru}",
        "{\"a\":NaN}",
        "{\"a\":Infinity}",
        "{} {}",
        "{}x",
        "/**/{}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\u0000\"}",
        "{\"a\":1e999}",
        "{\"a\":99999999999999999999}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (parse(str_of(bad[i]), detail) != ERR_BAD_INPUT)
            fail_msg("accepted: %s", bad[i]);
    }
    assert_int_equal(parse(STR("{\"a\":\"x\0y\"}"), detail), ERR_BAD_INPUT);
    assert_int_equal(parse(STR("\xef\xbb\xbf{}"), detail), ERR_BAD_INPUT);
}

static void test_refuses_duplicate_keys(void **state)
{
    (void)state;
    char detail[200];
    assert_int_equal(parse(STR("{\"a\":1,\"a\":1}"), detail), ERR_BAD_INPUT);
    assert_non_null(strstr(detail, "twice"));
    assert_int_equal(parse(STR("{\"a\":1,\"\\u0061\":2}"), detail), ERR_BAD_INPUT);
    assert_int_equal(parse(STR("{\"o\":{\"a\":1,\"b\":2,\"a\":3}}"), detail), ERR_BAD_INPUT);
}

static void test_refuses_bad_utf8(void **state)
{
    (void)state;
    char detail[200];
    assert_int_equal(parse(STR("{\"a\":\"\xff\"}"), detail), ERR_BAD_INPUT);
    assert_int_equal(parse(STR("{\"a\":\"\xc0\xaf\"}"), detail), ERR_BAD_INPUT);
    assert_int_equal(parse(STR("{\"a\":\"\xed\xa0\x80\"}"), detail), ERR_BAD_INPUT);
    assert_int_equal(parse(STR("{\"\xf8\":1}"), detail), ERR_BAD_INPUT);
}

/* {"a":{"a":…}} with so many levels. */
static struct str nested(struct buf *out, size_t levels, const char *open, const char *close)
{
    buf_clear(out);
    for (size_t i = 0; i < levels; i++)
        buf_printf(out, "%s", open);
    buf_str(out, STR("1"));
    for (size_t i = 0; i < levels; i++)
        buf_printf(out, "%s", close);
    return buf_view(out);
}

static void test_bounds_the_depth(void **state)
{
    (void)state;
    char detail[200];
    struct buf text;
    buf_init(&text, 0);
    assert_int_equal(parse(nested(&text, BODY_DEPTH_MAX, "{\"a\":", "}"), detail), OK);
    assert_int_equal(parse(nested(&text, BODY_DEPTH_MAX + 1, "{\"a\":", "}"), detail),
                     ERR_BAD_INPUT);
    assert_non_null(strstr(detail, "deeper"));
    assert_int_equal(parse(nested(&text, 10000, "{\"a\":", "}"), detail), ERR_BAD_INPUT);
    assert_int_equal(parse(nested(&text, 30000, "[", ""), detail), ERR_BAD_INPUT);
    buf_done(&text);
}

static void test_depth_looks_past_strings(void **state)
{
    (void)state;
    assert_int_equal(body_depth(STR("{\"[[[[\":\"{{{{\"}")), 1);
    assert_int_equal(body_depth(STR("{\"a\\\"[[[\":[1]}")), 2);
    assert_int_equal(body_depth(STR("{\"a\\\\\":[[1]]}")), 3);
    assert_int_equal(body_depth(STR("]]]][")), 1);
    assert_int_equal(body_depth(STR("\"\\")), 0);
    assert_int_equal(body_depth(STR("")), 0);
}

static void test_bounds_the_size(void **state)
{
    (void)state;
    char detail[200];
    char *text = malloc(BODY_JSON_MAX + 1);
    memset(text, ' ', BODY_JSON_MAX + 1);
    memcpy(text, "{}", 2);
    assert_int_equal(parse((struct str){text, BODY_JSON_MAX}, detail), OK);
    assert_int_equal(parse((struct str){text, BODY_JSON_MAX + 1}, detail), ERR_TOO_LARGE);
    free(text);
}

static void test_knows_content_types(void **state)
{
    (void)state;
    assert_true(body_type_is_json((struct str){NULL, 0}));
    assert_true(body_type_is_json(STR("application/json")));
    assert_true(body_type_is_json(STR("Application/JSON; charset=utf-8")));
    assert_true(body_type_is_json(STR("application/json ;charset=utf-8")));
    assert_false(body_type_is_json(STR("text/plain")));
    assert_false(body_type_is_json(STR("application/jsonx")));
    assert_false(body_type_is_json(STR("application/x-www-form-urlencoded")));
    assert_false(body_type_is_json(STR("text/plain; application/json")));
    assert_true(body_type_is_ndjson(STR("application/x-ndjson")));
    assert_false(body_type_is_ndjson(STR("application/json")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lets_objects_through),
        cmocka_unit_test(test_refuses_what_is_not_an_object),
        cmocka_unit_test(test_refuses_duplicate_keys),
        cmocka_unit_test(test_refuses_bad_utf8),
        cmocka_unit_test(test_bounds_the_depth),
        cmocka_unit_test(test_depth_looks_past_strings),
        cmocka_unit_test(test_bounds_the_size),
        cmocka_unit_test(test_knows_content_types),
    };
    return cmocka_run_group_tests_name("api/edge/body", tests, NULL, NULL);
}
