/* Which origins are allowed, and the headers they get. */
#include "test.h"

#include "api/edge/cors.h"

static struct http_exchange exchange;

static int begin(void **state)
{
    (void)state;
    exchange = (struct http_exchange){0};
    buf_init(&exchange.head, 4096);
    return 0;
}

static int end(void **state)
{
    (void)state;
    buf_done(&exchange.head);
    return 0;
}

static bool head_has(const char *line)
{
    struct str head = buf_view(&exchange.head);
    return head.len > 0 && memmem(head.ptr, head.len, line, strlen(line)) != NULL;
}

static void test_allows_only_listed_origins(void **state)
{
    (void)state;
    const char *list = "https://app.example, http://localhost:5173";
    assert_true(cors_allows(list, STR("https://app.example")));
    assert_true(cors_allows(list, STR("HTTPS://APP.EXAMPLE")));
    assert_true(cors_allows(list, STR("http://localhost:5173")));
    assert_false(cors_allows(list, STR("http://app.example")));
    assert_false(cors_allows(list, STR("https://app.example.evil")));
    assert_false(cors_allows(list, STR("https://evil.app.example")));
    assert_false(cors_allows(list, STR("https://app.example,")));
    assert_false(cors_allows(list, STR("null")));
    assert_false(cors_allows(list, STR("")));
    assert_false(cors_allows("", STR("https://app.example")));
    assert_false(cors_allows(",,", STR("")));
}

static void test_star_allows_any_sane_origin(void **state)
{
    (void)state;
    assert_true(cors_allows("*", STR("https://anything.example:8443")));
    assert_false(cors_allows("*", (struct str){NULL, 0}));
    assert_false(cors_allows("*", STR("https://a b")));
    assert_false(cors_allows("*", STR("https://a\r\nSet-Cookie: x")));
    char longest[300];
    memset(longest, 'a', sizeof longest);
    assert_true(cors_allows("*", (struct str){longest, 255}));
    assert_false(cors_allows("*", (struct str){longest, 256}));
}

static void test_echoes_and_varies_without_credentials(void **state)
{
    (void)state;
    cors_add_headers("*", STR("https://app.example"), &exchange);
    assert_true(head_has("Access-Control-Allow-Origin: https://app.example\r\n"));
    assert_true(head_has("Vary: Origin\r\n"));
    assert_false(head_has("Credentials"));
}

static void test_varies_even_when_it_says_no(void **state)
{
    (void)state;
    cors_add_headers("https://app.example", STR("https://evil.example"), &exchange);
    assert_true(head_has("Vary: Origin\r\n"));
    assert_false(head_has("Access-Control"));
}

static void test_says_nothing_when_off(void **state)
{
    (void)state;
    cors_add_headers("", STR("https://app.example"), &exchange);
    assert_int_equal(exchange.head.len, 0);
}

static void test_preflight_names_methods_and_headers(void **state)
{
    (void)state;
    cors_add_preflight(&exchange, STR("GET, HEAD, OPTIONS"));
    assert_true(head_has("Access-Control-Allow-Methods: GET, HEAD, OPTIONS\r\n"));
    assert_true(head_has("authorization"));
    assert_true(head_has("idempotency-key"));
    assert_true(head_has("fantail-account"));
    assert_true(head_has("content-type"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allows_only_listed_origins),
        cmocka_unit_test(test_star_allows_any_sane_origin),
        cmocka_unit_test_setup_teardown(test_echoes_and_varies_without_credentials, begin, end),
        cmocka_unit_test_setup_teardown(test_varies_even_when_it_says_no, begin, end),
        cmocka_unit_test_setup_teardown(test_says_nothing_when_off, begin, end),
        cmocka_unit_test_setup_teardown(test_preflight_names_methods_and_headers, begin, end),
    };
    return cmocka_run_group_tests_name("api/edge/cors", tests, NULL, NULL);
}
