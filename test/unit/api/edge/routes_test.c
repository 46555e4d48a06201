/* The route table: every row is found, nothing else is, and the rows keep the promises of their
 * columns. */
#include "test.h"

#include "api/edge/routes.h"
#include "api/edge/schemas.h"

static bool match(enum http_method method, const char *path, struct route_match *m)
{
    return routes_match(method, str_of(path), m);
}

static const char *name_of(enum http_method method, const char *path)
{
    struct route_match m;
    if (!match(method, path, &m))
        return "";
    return m.route ? m.route->name : "405";
}

static void test_finds_every_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < route_count; i++) {
        const struct route *r = &routes[i];
        char path[200];
        size_t len = 0, ids = 0;
        bool named = false;
        for (size_t k = 0; k < r->path.len;) {
            if (strncmp(r->path.ptr + k, "{name}", 6) == 0) {
                len += (size_t)sprintf(path + len, "crm-2.b_c");
                k += 6;
                named = true;
            } else if (r->path.ptr[k] == '{') {
                len += (size_t)sprintf(path + len, "%zu", 100 + ids++);
                k += strcspn(r->path.ptr + k, "}") + 1;
            } else {
                path[len++] = r->path.ptr[k++];
            }
        }
        struct route_match m;
        assert_true(routes_match(r->method, (struct str){path, len}, &m));
        assert_ptr_equal(m.route, r);
        assert_int_equal(m.param_count, ids);
        for (size_t k = 0; k < ids; k++)
            assert_int_equal(m.params[k], 100 + k);
        if (named)
            assert_str_equal(m.name, STR("crm-2.b_c"));
        else
            assert_null(m.name.ptr);
        assert_true(m.methods & 1u << r->method);
    }
}

static void test_literals_win_over_ids(void **state)
{
    (void)state;
    assert_string_equal(name_of(HTTP_M_DELETE, "/v1/sessions/current"), "sessions_end_current");
    assert_string_equal(name_of(HTTP_M_DELETE, "/v1/sessions/7"), "sessions_end");
    assert_string_equal(name_of(HTTP_M_GET, "/v1/groups/invitations"), "invitations_list");
    assert_string_equal(name_of(HTTP_M_GET, "/v1/groups/7"), "groups_show");
}

static void test_an_id_is_a_plain_positive_number(void **state)
{
    (void)state;
    assert_string_equal(name_of(HTTP_M_GET, "/v1/posts/1"), "posts_show");
    assert_string_equal(name_of(HTTP_M_GET, "/v1/posts/9223372036854775807"), "posts_show");
    const char *bad[] = {
        "/v1/posts/0",
        "/v1/posts/007",
        "/v1/posts/-1",
        "/v1/posts/+1",
        "/v1/posts/1e3",
        "/v1/posts/1.0",
        "/v1/posts/ 1",
        "/v1/posts/%31",
        "/v1/posts/0x1",
        "/v1/posts/me",
        "/v1/posts/{id}",
        "/v1/posts/9223372036854775808",
        "/v1/posts/18446744073709551617",
        "/v1/posts/99999999999999999999999999999999999999999",
        "/v1/posts/1\xd9\xa1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_string_equal(name_of(HTTP_M_GET, bad[i]), "");
}

static void test_a_name_is_short_and_plain(void **state)
{
    (void)state;
    assert_string_equal(name_of(HTTP_M_PUT, "/v1/events/consumers/a"), "consumers_save");
    assert_string_equal(name_of(HTTP_M_DELETE, "/v1/events/consumers/42"), "consumers_delete");
    assert_string_equal(
        name_of(HTTP_M_PUT, "/v1/events/consumers/0123456789012345678901234567890123456789"),
        "consumers_save");
    const char *bad[] = {
        "/v1/events/consumers/",
        "/v1/events/consumers/01234567890123456789012345678901234567890",
        "/v1/events/consumers/CRM",
        "/v1/events/consumers/a b",
        "/v1/events/consumers/a%20b",
        "/v1/events/consumers/a/b",
        "/v1/events/consumers/\xc3\xa9",
        "/v1/events/consumers/{name}",
        "/v1/events/consumers/a\r\nx",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_string_equal(name_of(HTTP_M_PUT, bad[i]), "");
}

/* A keyed write leaves a row whatever it does; what removes goes on, whatever the overload guard
 * says. So do logging in, of which an account has a bounded number of rows, and the operator. */
static void test_what_makes_the_store_grow_says_so(void **state)
{
    (void)state;
    for (size_t i = 0; i < route_count; i++) {
        const struct route *r = &routes[i];
        bool keyed = (r->flags & ROUTE_KEYED) != 0;
        bool import = strcmp(r->name, "admin_import") == 0;
        bool sign_up = strcmp(r->name, "accounts_create") == 0;
        bool expected = (keyed && r->method != HTTP_M_DELETE) || import || sign_up;
        if (((r->flags & ROUTE_GROWS) != 0) != expected)
            fail_msg("%s: wrong about GROWS", r->name);
        assert_int_equal((r->flags & ROUTE_BULK) != 0, import);
    }
}

/* One thread runs all transactions of an embedded store: statements, and nothing else. */
static void test_writes_parse_before_their_transaction_and_render_after_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < route_count; i++) {
        const struct route *r = &routes[i];
        bool write = r->mode == MODE_WRITE;
        if ((write && r->request) != (r->prepare != NULL))
            fail_msg("%s: a write with a body has PREPARE, nothing else has", r->name);
        if ((write && r->response) != (r->render != NULL))
            fail_msg("%s: a write with an answer has RENDER, nothing else has", r->name);
    }
}

static void test_near_misses_are_not_found(void **state)
{
    (void)state;
    const char *bad[] = {
        "",
        "/",
        "//",
        "*",
        "v1/feed",
        "/v1",
        "/v1/",
        "/v1/feed/",
        "/v1//feed",
        "//v1/feed",
        "/v1/feed//",
        "/V1/feed",
        "/v1/Feed",
        "/v1/feedx",
        "/v1/fee",
        "/v1/./feed",
        "/v1/x/../feed",
        "/v1/feed/1",
        "/v1/fe%65d",
        "/v1/feed%00",
        "/v1/feed;x=1",
        "/v1/posts/1/",
        "/v1/posts/1/likex",
        "/v1/posts/1/like/2",
        "/v1/accounts/1/2",
        "/v1/admin",
        "/v1/admin/",
        "/v1/admin/keys/x",
        "/healthz/",
        "/docs/index.html",
        "/v2/feed",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_string_equal(name_of(HTTP_M_GET, bad[i]), "");
    struct route_match m;
    assert_false(routes_match(HTTP_M_GET, STR("/v1/feed\0"), &m));
    char deep[4096];
    memset(deep, '/', sizeof deep);
    assert_false(routes_match(HTTP_M_GET, (struct str){deep, sizeof deep}, &m));
}

static void test_knows_the_methods_of_a_path(void **state)
{
    (void)state;
    struct route_match m;
    char text[ROUTE_METHODS_TEXT_MAX];
    assert_true(match(HTTP_M_POST, "/v1/feed", &m));
    assert_null(m.route);
    size_t len = routes_methods_text(m.methods, text);
    assert_str_equal(((struct str){text, len}), STR("GET, HEAD, OPTIONS"));
    assert_true(match(HTTP_M_GET, "/v1/posts/1/like", &m));
    assert_null(m.route);
    len = routes_methods_text(m.methods, text);
    assert_str_equal(((struct str){text, len}), STR("PUT, DELETE, OPTIONS"));
    assert_true(match(HTTP_M_OTHER, "/v1/feed", &m));
    assert_null(m.route);
    assert_true(match(HTTP_M_OPTIONS, "/v1/feed", &m));
    assert_null(m.route);
    assert_false(match(HTTP_M_OPTIONS, "/nowhere", &m));
    len = routes_methods_text(~0u, text); /* the longest there can be */
    assert_true(len < sizeof text);
}

static void test_head_is_get(void **state)
{
    (void)state;
    assert_string_equal(name_of(HTTP_M_HEAD, "/v1/feed"), "feed_show");
    assert_string_equal(name_of(HTTP_M_HEAD, "/v1/posts/1/like"), "405");
}

static void test_rows_are_consistent(void **state)
{
    (void)state;
    for (size_t i = 0; i < route_count; i++) {
        const struct route *r = &routes[i];
        assert_in_range(r->policy, POLICY_ANYONE, POLICY_ADMIN);
        assert_true(r->handler && r->summary[0]);
        if (r->request)
            assert_non_null(schema_find(r->request));
        if (r->response && !strchr(r->response, '/'))
            assert_non_null(schema_find(r->response));
        if (r->flags & ROUTE_BODY_OPTIONAL)
            assert_non_null(r->request);
        /* these belong to a write: its transaction, its answer's key, its {id} */
        if (r->first_statement || r->together || r->repeat || r->limit)
            assert_int_equal(r->mode, MODE_WRITE);
        /* an answer with a body is drawn again for each repeated key, never stored */
        if (r->flags & ROUTE_KEYED)
            assert_int_equal(r->repeat != NULL, r->render != NULL);
        else
            assert_null(r->repeat);
        if (r->limit)
            assert_non_null(memmem(r->path.ptr, r->path.len, "/{id}/", 6));
        if (r->request)
            assert_non_null(schema_find(r->request)->example);
        /* keys are looked up inside the write's own transaction, for callers with an account */
        if (r->flags & ROUTE_KEYED)
            assert_true(r->mode == MODE_WRITE && r->policy == POLICY_ACCOUNT);
        /* a change needs a caller, except for signing up and logging in */
        if (r->method != HTTP_M_GET)
            assert_true(r->policy != POLICY_ANYONE || r->rate == RATE_AUTH);
        if (r->method == HTTP_M_GET)
            assert_true(r->mode != MODE_WRITE);
        if (memmem(r->path.ptr, r->path.len, "/admin/", 7))
            assert_true(r->policy == POLICY_ADMIN || r->policy == POLICY_ADMIN_READ);
        if (r->flags & ROUTE_CONTROL) /* the dispatcher looks at it there */
            assert_int_equal(r->policy, POLICY_ADMIN);
        if (r->policy == POLICY_ADMIN_READ)
            assert_int_equal(r->method, HTTP_M_GET);
        assert_true(r->response ? r->success != 204 : r->success == 204);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(routes[k].name, r->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_every_row),
        cmocka_unit_test(test_literals_win_over_ids),
        cmocka_unit_test(test_an_id_is_a_plain_positive_number),
        cmocka_unit_test(test_a_name_is_short_and_plain),
        cmocka_unit_test(test_what_makes_the_store_grow_says_so),
        cmocka_unit_test(test_writes_parse_before_their_transaction_and_render_after_it),
        cmocka_unit_test(test_near_misses_are_not_found),
        cmocka_unit_test(test_knows_the_methods_of_a_path),
        cmocka_unit_test(test_head_is_get),
        cmocka_unit_test(test_rows_are_consistent),
    };
    return cmocka_run_group_tests_name("api/edge/routes", tests, NULL, NULL);
}
