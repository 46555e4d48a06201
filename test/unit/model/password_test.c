/* Passwords: which are refused, and that checking one takes its time whatever it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <sodium.h>

#include "base/check.h"
#include "base/clock.h"
#include "model/account.h"

static const char *const common[] = {
#include "model/guessed_passwords.def"
};

static void the_table_can_be_searched(void **state)
{
    (void)state;
    assert_true(COUNT_OF(common) >= 1000);
    for (size_t i = 0; i < COUNT_OF(common); i++) {
        assert_true(strlen(common[i]) >= PASSWORD_MIN);
        assert_true(i == 0 || strcmp(common[i - 1], common[i]) < 0);
        for (const char *p = common[i]; *p; p++)
            assert_false(isupper((unsigned char)*p));
        assert_true(password_is_common(str_of(common[i])));
    }
}

static void common_ones_are_known_in_any_case(void **state)
{
    (void)state;
    assert_true(password_is_common(STR("Password1")));
    assert_true(password_is_common(STR("ILOVEYOU")));
    assert_false(password_is_common(STR("correct horse battery")));
    assert_false(password_is_common(STR("")));
    assert_false(password_is_common(STR("password1\0x")));
    char longer[PASSWORD_MAX + 1];
    memset(longer, 'a', sizeof longer);
    assert_false(password_is_common((struct str){longer, sizeof longer}));
}

/* The least of three runs, in microseconds. */
static int64_t time_of(struct str password, struct str hash)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < 3; i++) {
        int64_t began = clock_mono_us(clock_system());
        assert_false(password_verify(password, hash));
        int64_t took = clock_mono_us(clock_system()) - began;
        least = took < least ? took : least;
    }
    return least;
}

/* A check that is skipped takes a thousandth. */
static void a_wrong_password_of_any_length_takes_as_long(void **state)
{
    (void)state;
    struct arena arena;
    struct str hash;
    char longer[4000];
    memset(longer, 'a', sizeof longer);
    arena_init(&arena);
    assert_true(sodium_init() >= 0);
    assert_int_equal(password_hash(STR("correct horse battery"), &arena, &hash), OK);
    assert_true(password_verify(STR("correct horse battery"), hash));
    int64_t usual = time_of(STR("correct horse batterz"), hash);
    assert_true(time_of((struct str){longer, sizeof longer}, hash) > usual / 4);
    assert_true(time_of(STR(""), hash) > usual / 4);
    assert_true(time_of(STR("correct horse battery"), (struct str){NULL, 0}) > usual / 4);
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_can_be_searched),
        cmocka_unit_test(common_ones_are_known_in_any_case),
        cmocka_unit_test(a_wrong_password_of_any_length_takes_as_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
