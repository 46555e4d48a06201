/* The table of error kinds: what retry policy and the API rely on. CHECK itself, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "child.h"

static void test_table_is_consistent(void **state)
{
    (void)state;
    enum { KINDS = ERR_NO_MEMORY + 1 };
    for (int i = 0; i < KINDS; i++) {
        enum err e = (enum err)i;
        int status = err_http_status(e);
        assert_true(strlen(err_name(e)) > 0 && strlen(err_title(e)) > 0);
        assert_int_equal(err_class(e) == ERR_CLASS_NONE, e == OK);
        /* Only the caller's own faults are answered with 4xx, everything of ours with 5xx. */
        assert_int_equal(err_class(e) == ERR_CLASS_CLIENT, status >= 400 && status < 500);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(err_name(e), err_name((enum err)k));
    }
}

static void test_known_rows(void **state)
{
    (void)state;
    assert_int_equal(OK, 0);
    assert_string_equal(err_name(ERR_NOT_FOUND), "NOT_FOUND");
    char code[ERR_CODE_MAX];
    err_code(ERR_NOT_FOUND, code);
    assert_string_equal(code, "not_found");
    assert_int_equal(err_http_status(ERR_NOT_FOUND), 404);
    assert_int_equal(err_class(ERR_UNKNOWN_COMMIT), ERR_CLASS_RECONCILE);
    assert_int_equal(err_class(ERR_OVERLOADED), ERR_CLASS_SHED);
    assert_int_equal(err_class(ERR_STORAGE_FULL), ERR_CLASS_RETRY);
}

static void fail_a_check(void *arg)
{
    CHECK(arg == NULL);
}

static void name_no_error(void *arg)
{
    (void)arg;
    err_name((enum err)9999);
}

static void test_check_stays_on(void **state)
{
    (void)state;
    int something = 0;
    assert_int_equal(signal_of(fail_a_check, NULL), 0);
    assert_int_equal(signal_of(fail_a_check, &something), SIGABRT);
    assert_int_equal(signal_of(name_no_error, NULL), SIGABRT);
}

static void test_a_cause_is_kept_until_it_is_cleared(void **state)
{
    (void)state;
    char many[2 * ERR_CAUSE_MAX];
    err_cause_clear();
    assert_string_equal(err_cause(), "");
    err_cause_set("disk I/O error");
    err_cause_set("");
    assert_string_equal(err_cause(), "disk I/O error");
    memset(many, 'x', sizeof many);
    many[sizeof many - 1] = '\0';
    err_cause_set(many);
    assert_int_equal(strlen(err_cause()), ERR_CAUSE_MAX - 1);
    err_cause_clear();
    assert_string_equal(err_cause(), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_consistent),
        cmocka_unit_test(test_known_rows),
        cmocka_unit_test(test_check_stays_on),
        cmocka_unit_test(test_a_cause_is_kept_until_it_is_cleared),
    };
    return cmocka_run_group_tests_name("base/err", tests, NULL, NULL);
}
