/* Suggestions for misspelled words: near ones are found, far ones are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "ops/nearest.h"

static const char *const words[] = {"serve", "status", "check", "restore", "version"};

static const char *near(const char *typed)
{
    return nearest_word(typed, words, COUNT_OF(words));
}

static void slips_of_the_finger_find_their_word(void **state)
{
    (void)state;
    assert_string_equal(near("sevre"), "serve");
    assert_string_equal(near("stauts"), "status");
    assert_string_equal(near("chek"), "check");
    assert_string_equal(near("versions"), "version");
    assert_string_equal(near("serve"), "serve");
}

static void far_words_find_nothing(void **state)
{
    (void)state;
    assert_null(near("potato"));
    assert_null(near(""));
    assert_null(near("x"));
    char endless[200];
    memset(endless, 's', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    assert_null(near(endless));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slips_of_the_finger_find_their_word),
        cmocka_unit_test(far_words_find_nothing),
    };
    return cmocka_run_group_tests_name("ops/nearest", tests, NULL, NULL);
}
