/* Query parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/http.h"

static void assert_query(struct str query, struct str name, bool found, const char *value)
{
    struct http_exchange x = {.query = query};
    arena_init(&x.arena);
    struct str got = STR("untouched");
    assert_int_equal(http_query(&x, name, &got), found);
    if (!found)
        assert_true(str_eq(got, STR("untouched")));
    else if (!value)
        assert_null(got.ptr);
    else
        assert_true(got.ptr && str_eq(got, str_of(value)));
    arena_done(&x.arena);
}

static void values_are_found_and_decoded(void **state)
{
    (void)state;
    assert_query(STR("limit=20&cursor=abc"), STR("cursor"), true, "abc");
    assert_query(STR("limit=20&cursor=abc"), STR("limit"), true, "20");
    assert_query(STR("q=a%20b+c%2Bd%26e"), STR("q"), true, "a b c+d&e");
    assert_query(STR("q=%C3%A9"), STR("q"), true, "\xc3\xa9");
    assert_query(STR("a=b=c"), STR("a"), true, "b=c");
    assert_query(STR("flag"), STR("flag"), true, "");
    assert_query(STR("flag="), STR("flag"), true, "");
    assert_query(STR("&&a=1&&"), STR("a"), true, "1");
    assert_query(STR("%71=1"), STR("q"), true, "1");
    assert_query(STR("a=1&a=2"), STR("a"), true, "1");
}

static void absent_is_not_empty(void **state)
{
    (void)state;
    assert_query(STR(""), STR("a"), false, NULL);
    assert_query((struct str){0}, STR("a"), false, NULL);
    assert_query(STR("ab=1"), STR("a"), false, NULL);
    assert_query(STR("A=1"), STR("a"), false, NULL);
    assert_query(STR("=1"), STR("a"), false, NULL);
    assert_query(STR("b=a=1"), STR("a"), false, NULL);
}

static void malformed_values_are_seen(void **state)
{
    (void)state;
    assert_query(STR("a=%"), STR("a"), true, NULL);
    assert_query(STR("a=%4"), STR("a"), true, NULL);
    assert_query(STR("a=%zz"), STR("a"), true, NULL);
    assert_query(STR("%zz=1&a=2"), STR("a"), true, "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found_and_decoded),
        cmocka_unit_test(absent_is_not_empty),
        cmocka_unit_test(malformed_values_are_seen),
    };
    return cmocka_run_group_tests_name("net/query", tests, NULL, NULL);
}
