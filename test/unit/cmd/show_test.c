/* Templates: from an answer of the server to what people read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/show.h"

static void shows(const char *template, const char *json, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    assert_non_null(out);
    assert_non_null(value);
    show_text(out, template, value);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
    json_decref(value);
}

static void values_are_found_by_path(void **state)
{
    (void)state;
    shows("{a} {b.c} {b.none}.", "{\"a\": \"x\", \"b\": {\"c\": 7}}", "x 7 .");
    shows("{a?none} {b?none}", "{\"b\": null}", "none none");
    shows("{.}", "\"text\"", "text");
    shows("{a}", "{\"a\": [1, \"b\", 2]}", "1,b,2");
    shows("{a}", "{\"a\": {\"b\": 1, \"c\": \"d\"}}", "b 1, c d");
    shows("{a+b}", "{\"a\": 1, \"b\": 2}", "3");
}

static void numbers_have_formats(void **state)
{
    (void)state;
    shows("{n:n} {n:ms} {n:bytes} {n:try|tries}", "{\"n\": 12345}",
          "12,345 12 s 12 kB 12,345 tries");
    shows("{n:try|tries} {z:ms}", "{\"n\": 1, \"z\": 0}", "1 try -");
    shows("{n:.1} {n:%}", "{\"n\": 0.25}", "0.2 25.0%");
    shows("{s?none:sums}", "{\"s\": {\"dead\": 1, \"done\": 0, \"new\": 1200}}",
          "1 dead, 1,200 new");
    shows("{s?none:sums}", "{\"s\": {\"dead\": 0}}", "none");
    shows("{t:ago} {t:since}", "{\"t\": null}", "- -");
}

static void fields_are_padded(void **state)
{
    (void)state;
    shows("|{a:5}|{a:-5}|{n:6n}|{a:1}|", "{\"a\": \"xyz\", \"n\": 1000}",
          "|  xyz|xyz  | 1,000|xyz|");
    shows("|{c?-:-4}|", "{}", "|-   |");
}

static void a_section_needs_its_values(void **state)
{
    (void)state;
    const char *template = "by {actor}[, about {object}[ ({why})]].";
    shows(template, "{\"actor\": \"a\"}", "by a.");
    shows(template, "{\"actor\": \"a\", \"object\": \"b\"}", "by a, about b.");
    shows(template, "{\"actor\": \"a\", \"object\": \"b\", \"why\": \"c\"}", "by a, about b (c).");
    shows("[{n:n} dead]", "{\"n\": 0}", "");
}

static void a_test_decides_about_its_section(void **state)
{
    (void)state;
    const char *template =
        "[?n>1 many][?n=1 one][?!n none][?s!=up  {s}][?n&s=up  good][?a|b  either]";
    shows(template, "{\"n\": 2, \"s\": \"up\"}", "many good");
    shows(template, "{\"n\": 1, \"s\": \"away\", \"b\": true}", "one away either");
    shows(template, "{\"n\": 0, \"s\": \"up\"}", "none");
    shows("[?a=null null][?items.state=dead dead]",
          "{\"a\": null, \"items\": [{\"state\": \"new\"}, {\"state\": \"dead\"}]}", "nulldead");
    shows("[?items.state=dead dead]", "{\"items\": [{\"state\": \"new\"}]}", "");
}

static void a_loop_goes_over_items_and_members(void **state)
{
    (void)state;
    shows("<items [?# , ]{id}[?/all !]>.",
          "{\"items\": [{\"id\": \"a\"}, {\"id\": \"b\"}], \"all\": 1}", "a!, b!.");
    shows("<items {id}>.", "{\"items\": []}", ".");
    shows("<parts {#}={n};>", "{\"parts\": {\"x\": {\"n\": 1}, \"y\": {\"n\": 2}}}", "x=1;y=2;");
    shows("<a <b {.}>;>", "{\"a\": [{\"b\": [1, 2]}, {\"b\": [3]}]}", "12;3;");
}

static void what_values_hold_is_no_template(void **state)
{
    (void)state;
    shows("{a}[ {b}]", "{\"a\": \"{b}[<x\", \"b\": \"]}>%s\"}", "{b}[<x ]}>%s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found_by_path),
        cmocka_unit_test(numbers_have_formats),
        cmocka_unit_test(fields_are_padded),
        cmocka_unit_test(a_section_needs_its_values),
        cmocka_unit_test(a_test_decides_about_its_section),
        cmocka_unit_test(a_loop_goes_over_items_and_members),
        cmocka_unit_test(what_values_hold_is_no_template),
    };
    return cmocka_run_group_tests_name("cmd/show", tests, NULL, NULL);
}
