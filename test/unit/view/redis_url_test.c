/* Redis URLs, taken apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "view/redis/url.h"

static struct redis_url parse(const char *text)
{
    struct redis_url u;
    const char *why;
    assert_int_equal(redis_url_parse(str_of(text), &u, &why), OK);
    assert_null(why);
    return u;
}

static void a_server_has_defaults(void **state)
{
    (void)state;
    struct redis_url u = parse("redis://localhost");
    assert_false(u.cluster);
    assert_int_equal(u.host_count, 1);
    assert_string_equal(u.hosts[0].host, "localhost");
    assert_int_equal(u.hosts[0].port, 6379);
    assert_int_equal(u.db, 0);
    assert_string_equal(u.password, "");
}

static void everything_can_be_said(void **state)
{
    (void)state;
    struct redis_url u = parse("redis://fan%40tail:p%3Ass%2F%40@[::1]:7000/3");
    assert_string_equal(u.user, "fan@tail");
    assert_string_equal(u.password, "p:ss/@");
    assert_string_equal(u.hosts[0].host, "::1");
    assert_int_equal(u.hosts[0].port, 7000);
    assert_int_equal(u.db, 3);
    u = parse("redis://:secret@h");
    assert_string_equal(u.user, "");
    assert_string_equal(u.password, "secret");
}

static void a_cluster_has_several_hosts(void **state)
{
    (void)state;
    struct redis_url u = parse("redis-cluster://:x@a:1,b,[fe80::2]:3/");
    assert_true(u.cluster);
    assert_int_equal(u.host_count, 3);
    assert_string_equal(u.hosts[1].host, "b");
    assert_int_equal(u.hosts[1].port, 6379);
    assert_string_equal(u.hosts[2].host, "fe80::2");
    assert_int_equal(u.hosts[2].port, 3);
}

static void what_is_malformed_is_refused_without_repeating_it(void **state)
{
    static const char *const bad[] = {
        "",
        "http://h",
        "redis://",
        "redis://a,b",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:x",
        "redis://h/x",
        "redis://h/-1",
        "redis-cluster://h/1",
        "redis-cluster://a,,b",
        "redis://secret@h",
        "redis://u:@h",
        "redis://u:%zz@h",
        "redis://u:%00@h",
        "redis://[::1",
        "redis://[::1]x",
        "redis://h:",
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct redis_url u;
        const char *why = NULL;
        assert_int_equal(redis_url_parse(str_of(bad[i]), &u, &why), ERR_BAD_INPUT);
        assert_non_null(why);
        assert_null(strstr(why, "secret"));
    }
    char many[URL_HOSTS_MAX * 2 + 64] = "redis-cluster://a", *at = many + strlen(many);
    for (int i = 0; i < URL_HOSTS_MAX; i++, at += 2)
        memcpy(at, ",a", 3);
    struct redis_url u;
    const char *why;
    assert_int_equal(redis_url_parse(str_of(many), &u, &why), ERR_BAD_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_has_defaults),
        cmocka_unit_test(everything_can_be_said),
        cmocka_unit_test(a_cluster_has_several_hosts),
        cmocka_unit_test(what_is_malformed_is_refused_without_repeating_it),
    };
    return cmocka_run_group_tests_name("redis url", tests, NULL, NULL);
}
