/* For whom a proxy asks: what is believed, and whose word counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "net/proxy.h"

#define TRUSTED "10.0.0.0/8, 192.168.1.7 ::1,2001:db8:1::/48"

static struct proxies trusted(void)
{
    struct proxies p;
    char why[200] = "";
    if (!proxies_parse(TRUSTED, &p, why))
        fail_msg("%s", why);
    return p;
}

static void networks_are_read_and_mistakes_named(void **state)
{
    (void)state;
    struct proxies p = trusted();
    char why[200];
    assert_int_equal(p.count, 4);
    const char *inside[] = {"10.0.0.1", "10.255.1.2", "192.168.1.7", "::1", "2001:db8:1:ffff::9"};
    const char *outside[] = {"11.0.0.1", "192.168.1.8", "::2",      "2001:db8:2::9",
                             "",         "x",           "127.0.0.1"};
    for (size_t i = 0; i < COUNT_OF(inside); i++)
        assert_true(proxies_trust(&p, str_of(inside[i])));
    for (size_t i = 0; i < COUNT_OF(outside); i++)
        assert_false(proxies_trust(&p, str_of(outside[i])));
    const char *wrong[] = {"10.0.0.0/33", "::/129",      "10.0.0", "a",
                           "10.0.0.1/",   "10.0.0.1/-1", "/8"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_false(proxies_parse(wrong[i], &p, why));
    assert_true(proxies_parse("0.0.0.0/0", &p, why));
    assert_true(proxies_trust(&p, STR("203.0.113.9")));
    assert_false(proxies_trust(&p, STR("2001:db8::1"))); /* every IPv4 address, and no other */
    assert_true(proxies_parse(" , ", &p, why));
    assert_int_equal(p.count, 0);
}

static void lists_are_read_from_the_right(void **state)
{
    (void)state;
    static const struct {
        const char *forwarded_for, *second, *forwarded, *wanted;
    } rows[] = {
        {NULL, NULL, NULL, "10.0.0.1"},
        {"203.0.113.9", NULL, NULL, "203.0.113.9"},
        {"203.0.113.9:4711", NULL, NULL, "203.0.113.9"},
        {"1.2.3.4, 203.0.113.9", NULL, NULL, "203.0.113.9"}, /* the first was the client's own */
        {"1.2.3.4, 203.0.113.9, 10.2.2.2,192.168.1.7", NULL, NULL, "203.0.113.9"},
        {"1.2.3.4", "203.0.113.9", NULL, "203.0.113.9"}, /* two lines are one list */
        {"10.9.9.9, 10.8.8.8", NULL, NULL, "10.9.9.9"},  /* all are trusted */
        {"203.0.113.9, nonsense", NULL, NULL, "10.0.0.1"},
        {"nonsense, 10.8.8.8", NULL, NULL, "10.8.8.8"},
        {"", NULL, NULL, "10.0.0.1"},
        {",,,", NULL, NULL, "10.0.0.1"},
        {"2001:DB8:9::0:1", NULL, NULL, "2001:db8:9::1"},
        {"[2001:db8:9::1]:80", NULL, NULL, "2001:db8:9::1"},
        {"::ffff:203.0.113.9", NULL, NULL, "203.0.113.9"},
        {NULL, NULL, "for=203.0.113.9", "203.0.113.9"},
        {NULL, NULL, "for=1.2.3.4, proto=https; For=\"203.0.113.9:80\";by=10.0.0.1", "203.0.113.9"},
        {NULL, NULL, "for=\"[2001:db8:9::1]:80\", for=10.3.3.3", "2001:db8:9::1"},
        {NULL, NULL, "for=203.0.113.9, for=unknown", "10.0.0.1"},
        {NULL, NULL, "for=_hidden, for=10.3.3.3", "10.3.3.3"},
        {NULL, NULL, "proto=https", "10.0.0.1"},
        {"203.0.113.9", NULL, "for=203.0.113.9", "203.0.113.9"},
        {"203.0.113.9", NULL, "for=1.2.3.4", "10.0.0.1"}, /* which of them did the proxy write? */
    };
    struct proxies p = trusted();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct http_header headers[4] = {{STR("Host"), STR("h")}};
        size_t n = 1;
        if (rows[i].forwarded_for)
            headers[n++] =
                (struct http_header){STR("X-Forwarded-For"), str_of(rows[i].forwarded_for)};
        if (rows[i].forwarded)
            headers[n++] = (struct http_header){STR("forwarded"), str_of(rows[i].forwarded)};
        if (rows[i].second)
            headers[n++] = (struct http_header){STR("x-forwarded-for"), str_of(rows[i].second)};
        char out[PROXY_ADDRESS_MAX], got[PROXY_ADDRESS_MAX];
        struct str client = proxies_client(&p, headers, n, STR("10.0.0.1"), out);
        assert_true(client.len < sizeof got);
        memcpy(got, client.ptr, client.len);
        got[client.len] = '\0';
        assert_string_equal(got, rows[i].wanted);
    }
}

/* Only the right end of a long list counts. */
static void long_lists_are_read_in_bounds(void **state)
{
    (void)state;
    char list[4000] = "203.0.113.9";
    for (int i = 0; i < 300; i++)
        strcat(list, ",10.0.0.2");
    struct proxies p = trusted();
    struct http_header header = {STR("X-Forwarded-For"), str_of(list)};
    char out[PROXY_ADDRESS_MAX];
    assert_true(str_eq(proxies_client(&p, &header, 1, STR("10.0.0.1"), out), STR("10.0.0.2")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_are_read_and_mistakes_named),
        cmocka_unit_test(lists_are_read_from_the_right),
        cmocka_unit_test(long_lists_are_read_in_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
