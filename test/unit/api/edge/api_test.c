/* What handlers use: body fields, pages, lists and their Link header, over an exchange made by
 * hand. */
#include "test.h"

#include "api/edge/api.h"
#include "api/edge/cursor.h"
#include "api/edge/routes.h"

static struct api api;
static struct http_exchange x;
static struct call c;

static const struct route *find_route(const char *name)
{
    for (size_t i = 0; i < route_count; i++) {
        if (strcmp(routes[i].name, name) == 0)
            return &routes[i];
    }
    return NULL;
}

static int begin(void **state)
{
    (void)state;
    memset(api.secret, 7, sizeof api.secret);
    x = (struct http_exchange){.path = STR("/v1/accounts/5/followers")};
    buf_init(&x.head, HTTP_ANSWER_HEAD_MAX);
    buf_init(&x.out, HTTP_ANSWER_MAX);
    arena_init(&x.arena);
    c = (struct call){.api = &api, .x = &x, .route = find_route("followers_list"), .params = {5}};
    c.caller.account = 42;
    json_out_init(&c.json, &x.out);
    return 0;
}

static int end(void **state)
{
    (void)state;
    json_decref(c.body);
    buf_done(&x.head);
    buf_done(&x.out);
    arena_done(&x.arena);
    return 0;
}

static enum err page_of(const char *query, size_t *limit, uint64_t *position)
{
    x.query = str_of(query);
    c.detail[0] = '\0';
    return call_page(&c, 200, limit, position);
}

static void test_pages_have_bounds(void **state)
{
    (void)state;
    size_t limit;
    uint64_t position;
    assert_int_equal(page_of("", &limit, &position), OK);
    assert_true(limit == 50 && position == UINT64_MAX);
    assert_int_equal(page_of("limit=1", &limit, &position), OK);
    assert_int_equal(limit, 1);
    assert_int_equal(page_of("limit=200", &limit, &position), OK);
    const char *bad[] = {
        "limit=0",  "limit=201", "limit=-1",   "limit=",     "limit=x",
        "limit=1x", "limit=+1",  "limit=%zz",  "limit=1e1",  "limit",
        "cursor=",  "cursor=x",  "cursor=%00", "cursor=%zz", "limit=99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (page_of(bad[i], &limit, &position) != ERR_BAD_INPUT || !c.detail[0])
            fail_msg("accepted: %s", bad[i]);
    }
}

static void take_cursor(char cursor[CURSOR_TEXT_LEN + 1])
{
    json_t *page = json_loadb(x.out.ptr, x.out.len, 0, NULL);
    assert_non_null(page);
    const char *text = json_string_value(json_object_get(page, "next_cursor"));
    assert_non_null(text);
    assert_int_equal(strlen(text), CURSOR_TEXT_LEN);
    memcpy(cursor, text, CURSOR_TEXT_LEN + 1);
    json_decref(page);
}

static void test_a_list_leads_to_its_next_page(void **state)
{
    (void)state;
    char cursor[CURSOR_TEXT_LEN + 1], query[200], link[400];
    size_t limit;
    uint64_t position;
    x.query = STR("limit=3&cursor=old&x=<\"> ");
    call_list_begin(&c);
    json_i64(&c.json, 1);
    json_i64(&c.json, 2);
    call_list_end(&c, 777);
    take_cursor(cursor);
    snprintf(
        link, sizeof link,
        "Link: </v1/accounts/5/followers?limit=3&x=%%3C%%22%%3E%%20&cursor=%s>; rel=\"next\"\r\n",
        cursor);
    assert_str_equal(buf_view(&x.head), str_of(link));
    snprintf(query, sizeof query, "limit=3&cursor=%s", cursor);
    assert_int_equal(page_of(query, &limit, &position), OK);
    assert_true(limit == 3 && position == 777);
    /* not for another caller, another account's followers, or another list */
    c.caller.account = 43;
    assert_int_equal(page_of(query, &limit, &position), ERR_BAD_INPUT);
    c.caller.account = 42;
    c.params[0] = 6;
    assert_int_equal(page_of(query, &limit, &position), ERR_BAD_INPUT);
    c.params[0] = 5;
    c.route = find_route("following_list");
    assert_int_equal(page_of(query, &limit, &position), ERR_BAD_INPUT);
}

static void test_the_last_page_leads_nowhere(void **state)
{
    (void)state;
    call_list_begin(&c);
    call_list_end(&c, 0);
    assert_str_equal(buf_view(&x.out), STR("{\"items\":[],\"next_cursor\":null}"));
    assert_int_equal(x.head.len, 0);
}

static void test_body_fields_have_types(void **state)
{
    (void)state;
    struct str text = STR("untouched");
    c.body = json_loads("{\"a\":\"x\\u00e4\",\"n\":null,\"i\":1,\"o\":{}}", 0, NULL);
    assert_int_equal(call_body_text(&c, "a", true, &text), OK);
    assert_str_equal(text, STR("x\xc3\xa4"));
    text = STR("untouched");
    assert_int_equal(call_body_text(&c, "n", false, &text), OK);
    assert_int_equal(call_body_text(&c, "missing", false, &text), OK);
    assert_str_equal(text, STR("untouched"));
    assert_int_equal(call_body_text(&c, "n", true, &text), ERR_INVALID);
    assert_int_equal(call_body_text(&c, "missing", true, &text), ERR_INVALID);
    assert_string_equal(c.detail, "missing is missing");
    assert_int_equal(call_body_text(&c, "i", false, &text), ERR_INVALID);
    assert_int_equal(call_body_text(&c, "o", true, &text), ERR_INVALID);
    json_decref(c.body);
    c.body = NULL; /* a route whose body may be left out */
    assert_int_equal(call_body_text(&c, "a", false, &text), OK);
    assert_int_equal(call_body_text(&c, "a", true, &text), ERR_INVALID);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_pages_have_bounds),
        TEST(test_a_list_leads_to_its_next_page),
        TEST(test_the_last_page_leads_nowhere),
        TEST(test_body_fields_have_types),
    };
    return cmocka_run_group_tests_name("api/edge/api", tests, NULL, NULL);
}
