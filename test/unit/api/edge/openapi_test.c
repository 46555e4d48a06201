/* The documents: drawn from the table, whole, and consistent in themselves. */
#include "test.h"

#include <jansson.h>

#include "api/edge/dispatcher.h"

static json_t *document(void)
{
    struct buf text;
    buf_init(&text, 0);
    openapi_render(&text);
    json_error_t error;
    json_t *root = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("%s at %d: %.60s", error.text, error.position, text.ptr + error.position - 30);
    buf_done(&text);
    return root;
}

/* Every "$ref":"#/a/b/c" must lead somewhere. */
static size_t check_refs(json_t *root, json_t *at)
{
    size_t refs = 0, index;
    const char *key;
    json_t *value;
    json_array_foreach(at, index, value) refs += check_refs(root, value);
    json_object_foreach(at, key, value)
    {
        if (strcmp(key, "$ref") != 0 || !json_is_string(value)) {
            refs += check_refs(root, value);
            continue;
        }
        char path[200];
        snprintf(path, sizeof path, "%s", json_string_value(value));
        json_t *target = root;
        char *rest = NULL;
        assert_string_equal(strtok_r(path, "/", &rest), "#");
        for (char *step; (step = strtok_r(NULL, "/", &rest));)
            target = json_object_get(target, step);
        if (!target)
            fail_msg("%s leads nowhere", json_string_value(value));
        refs++;
    }
    return refs;
}

static void test_is_whole_and_its_references_lead_somewhere(void **state)
{
    (void)state;
    json_t *root = document();
    assert_string_equal(json_string_value(json_object_get(root, "openapi")), "3.1.0");
    assert_true(check_refs(root, root) > 200);
    json_decref(root);
}

static void test_describes_every_route(void **state)
{
    (void)state;
    json_t *root = document();
    json_t *paths = json_object_get(root, "paths");
    size_t operations = 0;
    const char *path, *method;
    json_t *item, *operation;
    json_object_foreach(paths, path, item) operations += json_object_size(item);
    assert_int_equal(operations, route_count);
    json_object_foreach(paths, path, item)
    {
        json_object_foreach(item, method, operation)
        {
            assert_true(json_is_string(json_object_get(operation, "x-policy")));
            assert_true(json_is_array(json_object_get(operation, "security")));
            json_t *responses = json_object_get(operation, "responses");
            bool open =
                strcmp(json_string_value(json_object_get(operation, "x-policy")), "anyone") == 0;
            assert_true(open || json_object_get(responses, "401"));
            if (strchr(path, '{'))
                assert_non_null(json_object_get(responses, "404"));
        }
    }
    json_decref(root);
}

static void test_the_page_shows_every_route_and_is_balanced(void **state)
{
    (void)state;
    struct buf page;
    buf_init(&page, 0);
    docs_render(&page);
    buf_append(&page, "", 1);
    for (size_t i = 0; i < route_count; i++) {
        char anchor[100];
        snprintf(anchor, sizeof anchor, "<details id=\"%s\">", routes[i].name);
        assert_non_null(strstr(page.ptr, anchor));
    }
    for (int e = 1; e < ERR_COUNT; e++) { /* where the types of problems lead */
        char code[ERR_CODE_MAX], anchor[100];
        err_code((enum err)e, code);
        snprintf(anchor, sizeof anchor, " id=\"problem-%s\">", code);
        assert_non_null(strstr(page.ptr, anchor));
    }
    const char *tags[] = {"details", "summary", "div",  "dl", "dt",   "dd",   "pre",   "section",
                          "h2",      "nav",     "main", "p",  "span", "code", "style", "a"};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        char open[20], close[20];
        int opened = 0, closed = 0;
        snprintf(open, sizeof open, "<%s", tags[i]);
        snprintf(close, sizeof close, "</%s>", tags[i]);
        size_t len = strlen(open);
        for (const char *at = page.ptr; (at = strstr(at, open)); at += len)
            opened += at[len] == '>' || at[len] == ' ';
        for (const char *at = page.ptr; (at = strstr(at, close)); at += len)
            closed++;
        if (opened != closed)
            fail_msg("%s: %d opened, %d closed", tags[i], opened, closed);
    }
    /* nothing is fetched from anywhere */
    assert_null(strstr(page.ptr, "<script"));
    assert_null(strstr(page.ptr, "<link"));
    assert_null(strstr(page.ptr, "src="));
    assert_null(strstr(page.ptr, "url("));
    buf_done(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_whole_and_its_references_lead_somewhere),
        cmocka_unit_test(test_describes_every_route),
        cmocka_unit_test(test_the_page_shows_every_route_and_is_balanced),
    };
    return cmocka_run_group_tests_name("api/edge/openapi", tests, NULL, NULL);
}
