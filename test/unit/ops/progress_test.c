/* What a progress bar shows, at every width. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/progress.h"

static const int64_t second = 1000000;

static struct progress half(void)
{
    return (struct progress){.label = "importing", .total = 6000, .done = 3000, .began_us = 0};
}

static void a_line_tells_rate_and_time_left(void **state)
{
    (void)state;
    char out[200];
    struct progress p = half();
    progress_render(&p, 10 * second, 0, out, sizeof(out));
    assert_string_equal(out, "importing  50%  3,000 of 6,000, 300/s, 10 s left");
    p.total = 6000000;
    progress_render(&p, 10 * second, 0, out, sizeof(out));
    assert_non_null(strstr(out, "5:33 h left"));
    p.total = 0;
    progress_render(&p, 10 * second, 0, out, sizeof(out));
    assert_string_equal(out, "importing  3,000, 300/s");
}

static void a_bar_fills_in_proportion(void **state)
{
    (void)state;
    char out[200];
    struct progress p = half();
    progress_render(&p, 10 * second, 80, out, sizeof(out));
    size_t full = 0, empty = 0;
    for (const char *c = strchr(out, '[') + 1; *c != ']'; c++) {
        full += *c == '#';
        empty += *c == '.';
    }
    assert_in_range(full, empty - 1, empty + 1);
    p.done = p.total;
    progress_render(&p, 10 * second, 80, out, sizeof(out));
    assert_non_null(strchr(out, '['));
    assert_null(strchr(strchr(out, '['), '.'));
    assert_non_null(strstr(out, "100%"));
}

static void it_fits_every_width(void **state)
{
    (void)state;
    char out[400];
    struct progress p = half();
    for (unsigned width = 1; width < 200; width++) {
        progress_render(&p, 10 * second, width, out, sizeof(out));
        assert_in_range(strlen(out), 1, width);
    }
    progress_render(&p, 10 * second, 30, out, sizeof(out));
    assert_null(strchr(out, '['));
    assert_non_null(strstr(out, "50%"));
}

static void more_than_all_is_all(void **state)
{
    (void)state;
    char out[200];
    struct progress p = half();
    p.done = 9000;
    progress_render(&p, second, 80, out, sizeof(out));
    assert_non_null(strstr(out, "100%"));
    p.done = 0;
    progress_render(&p, 0, 80, out, sizeof(out));
    assert_non_null(strstr(out, "  0%"));
}

static void numbers_are_written_for_people(void **state)
{
    (void)state;
    char out[32];
    progress_print_count(0, out);
    assert_string_equal(out, "0");
    progress_print_count(999, out);
    assert_string_equal(out, "999");
    progress_print_count(1234567, out);
    assert_string_equal(out, "1,234,567");
    progress_print_count(UINT64_MAX, out);
    assert_string_equal(out, "18,446,744,073,709,551,615");
    progress_print_bytes(999, out);
    assert_string_equal(out, "999 B");
    progress_print_bytes(1500000, out);
    assert_string_equal(out, "1.5 MB");
    progress_print_bytes(64000000, out);
    assert_string_equal(out, "64 MB");
    progress_print_bytes(999999, out);
    assert_string_equal(out, "1.0 MB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_tells_rate_and_time_left),
        cmocka_unit_test(a_bar_fills_in_proportion),
        cmocka_unit_test(it_fits_every_width),
        cmocka_unit_test(more_than_all_is_all),
        cmocka_unit_test(numbers_are_written_for_people),
    };
    return cmocka_run_group_tests_name("ops/progress", tests, NULL, NULL);
}
