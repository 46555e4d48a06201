/* Slices: parsing, UTF-8, percent-decoding, hex, base64url. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/check.h"
#include "base/rand.h"
#include "base/str.h"

static void test_compares(void **state)
{
    (void)state;
    assert_true(str_eq(STR(""), (struct str){NULL, 0}));
    assert_true(str_eq(STR("abc"), STR("abc")));
    assert_false(str_eq(STR("abc"), STR("abd")));
    assert_false(str_eq(STR("abc"), STR("ab")));
    assert_true(str_eq(STR("a\0b"), STR("a\0b")));
    assert_false(str_eq(STR("a\0b"), STR("a\0c")));
    assert_true(str_eq_nocase(STR("Content-Type"), STR("cONTENT-tYPE")));
    assert_false(
        str_eq_nocase(STR("a["), STR("A{"))); /* '[' and '{' differ in the same bit as letters */
    assert_false(str_eq_nocase(STR("\xc3\x84"), STR("\xc3\xa4")));
    assert_true(str_starts(STR("Bearer x"), STR("Bearer ")));
    assert_true(str_starts(STR(""), STR("")));
    assert_false(str_starts(STR("Bear"), STR("Bearer")));
    assert_int_equal(str_of(NULL).len, 0);
}

static void test_trims_and_splits(void **state)
{
    (void)state;
    assert_true(str_eq(str_trim(STR(" \t a b \t")), STR("a b")));
    assert_true(str_eq(str_trim(STR(" \t ")), STR("")));
    assert_true(str_eq(str_trim(STR("")), STR("")));
    assert_true(str_eq(str_trim(STR("\na\n")), STR("\na\n")));

    struct str rest = STR("a,,b,"), part;
    assert_true(str_split(&rest, ',', &part));
    assert_true(str_eq(part, STR("a")));
    assert_true(str_split(&rest, ',', &part));
    assert_true(str_eq(part, STR("")));
    assert_true(str_split(&rest, ',', &part));
    assert_true(str_eq(part, STR("b")));
    assert_false(str_split(&rest, ',', &part));
    rest = STR("");
    assert_false(str_split(&rest, ',', &part));
    rest = STR("whole");
    assert_true(str_split(&rest, ',', &part));
    assert_true(str_eq(part, STR("whole")));
    assert_int_equal(rest.len, 0);
}

static void test_parses_numbers(void **state)
{
    (void)state;
    uint64_t u = 7;
    int64_t i = 7;
    assert_true(str_parse_u64(STR("0"), &u) && u == 0);
    assert_true(str_parse_u64(STR("18446744073709551615"), &u) && u == UINT64_MAX);
    assert_true(str_parse_i64(STR("9223372036854775807"), &i) && i == INT64_MAX);
    assert_true(str_parse_i64(STR("-9223372036854775808"), &i) && i == INT64_MIN);
    assert_true(str_parse_i64(STR("-0"), &i) && i == 0);
    u = 7;
    i = 7;
    const struct str bad[] = {STR(""),
                              STR("+1"),
                              STR(" 1"),
                              STR("1 "),
                              STR("1a"),
                              STR("0x1"),
                              STR("1."),
                              STR("--1"),
                              STR("-"),
                              STR("18446744073709551616"),
                              STR("99999999999999999999"),
                              STR("1\0"),
                              STR("\xd9\xa1")};
    for (size_t k = 0; k < COUNT_OF(bad); k++) {
        assert_false(str_parse_u64(bad[k], &u));
        assert_false(str_parse_i64(bad[k], &i));
    }
    assert_false(str_parse_u64(STR("-1"), &u));
    assert_false(str_parse_i64(STR("9223372036854775808"), &i));
    assert_false(str_parse_i64(STR("-9223372036854775809"), &i));
    assert_int_equal(u, 7); /* untouched on failure */
    assert_int_equal(i, 7);
}

static void test_accepts_valid_utf8_only(void **state)
{
    (void)state;
    const struct str good[] = {
        STR(""),
        STR("plain ascii, longer than one word"),
        STR("\x7f"),
        STR("\xc2\x80"),
        STR("\xdf\xbf"),
        STR("\xe0\xa0\x80"),
        STR("\xed\x9f\xbf"),
        STR("\xee\x80\x80"),
        STR("\xef\xbf\xbf"),
        STR("\xf0\x90\x80\x80"),
        STR("\xf4\x8f\xbf\xbf"),
        STR("a\0b"),
        STR("1234567\xc3\xa4"),
        STR("\xf0\x9f\x90\xa6 birds"),
    };
    const struct str bad[] = {
        STR("\x80"),
        STR("\xbf"),
        STR("\xc0\x80"),
        STR("\xc1\xbf"),
        STR("\xc2"),
        STR("\xc2\x41"),
        STR("\xe0\x80\x80"),
        STR("\xe0\x9f\xbf"),
        STR("\xe1\x80"),
        STR("\xed\xa0\x80"),
        STR("\xed\xbf\xbf"),
        STR("\xf0\x80\x80\x80"),
        STR("\xf0\x8f\xbf\xbf"),
        STR("\xf0\x90\x80"),
        STR("\xf4\x90\x80\x80"),
        STR("\xf5\x80\x80\x80"),
        STR("\xfe"),
        STR("\xff"),
        STR("12345678\xff"),
        STR("1234567\xe2\x82"),
        STR("\xe2\x82\xac\xe2\x82"),
        STR("\xe2\x28\xa1"),
        STR("\xf0\x90\x28\xbc"),
        STR("\xf8\x88\x80\x80\x80"),
    };
    for (size_t i = 0; i < COUNT_OF(good); i++)
        assert_true(str_is_utf8(good[i]));
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(str_is_utf8(bad[i]));
}

static size_t encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[n] | c);
    return n;
}

static void test_every_code_point_is_right(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x120000; c++) {
        char text[4];
        struct str s = {text, encode(c, text)};
        bool valid = c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff);
        assert_int_equal(str_is_utf8(s), valid);
        if (valid)
            assert_int_equal(str_count_chars(s), 1);
        if (s.len > 1) {
            s.len--;
            assert_false(str_is_utf8(s));
        }
    }
    assert_int_equal(str_count_chars(STR("na\xc3\xafve \xf0\x9f\x90\xa6")), 7);
    assert_int_equal(str_count_chars(STR("")), 0);
}

static void test_decodes_urls(void **state)
{
    (void)state;
    char out[64];
    size_t n;
    assert_true(str_url_decode(STR("a+b%20c%2Bd%2f"), out, &n));
    assert_true(str_eq((struct str){out, n}, STR("a b c+d/")));
    assert_true(str_url_decode(STR("%00%ff"), out, &n));
    assert_true(str_eq((struct str){out, n}, STR("\0\xff")));
    assert_true(str_url_decode(STR(""), out, &n));
    assert_int_equal(n, 0);
    const struct str bad[] = {STR("%"),   STR("%2"),   STR("a%"), STR("%g0"),
                              STR("%0g"), STR("%%20"), STR("% 1")};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(str_url_decode(bad[i], out, &n));
    char in_place[] = "%41%42c";
    assert_true(str_url_decode(str_of(in_place), in_place, &n));
    assert_true(str_eq((struct str){in_place, n}, STR("ABc")));
}

static void test_hex(void **state)
{
    (void)state;
    char out[6];
    str_hex((const uint8_t *)"\x00\xaf\xff", 3, out);
    assert_memory_equal(out, "00afff", 6);
}

static void test_base64url_known(void **state)
{
    (void)state;
    static const struct {
        struct str bytes, text;
    } known[] = {
        {{"", 0}, {"", 0}},
        {{"f", 1}, {"Zg", 2}},
        {{"fo", 2}, {"Zm8", 3}},
        {{"foo", 3}, {"Zm9v", 4}},
        {{"foob", 4}, {"Zm9vYg", 6}},
        {{"fooba", 5}, {"Zm9vYmE", 7}},
        {{"\xfb\xff", 2}, {"-_8", 3}},
    };
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        char text[16];
        uint8_t bytes[16];
        size_t n;
        assert_int_equal(str_base64url_size(known[i].bytes.len), known[i].text.len);
        str_base64url((const uint8_t *)known[i].bytes.ptr, known[i].bytes.len, text);
        assert_memory_equal(text, known[i].text.ptr, known[i].text.len);
        assert_true(str_base64url_decode(known[i].text, bytes, known[i].bytes.len, &n));
        assert_true(str_eq((struct str){(const char *)bytes, n}, known[i].bytes));
    }
}

static void test_base64url_refuses(void **state)
{
    (void)state;
    uint8_t bytes[64];
    size_t n;
    const struct str bad[] = {STR("Z"),    STR("Zm9vY"),  STR("Zg=="),
                              STR("Zh"),   STR("Zm9"),    STR("+/8"),
                              STR("Zm 9"), STR("Zm9v\n"), STR("\xc3\xa4\xc3\xa4")};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(str_base64url_decode(bad[i], bytes, sizeof bytes, &n));
    assert_true(str_base64url_decode(STR("Zm8"), bytes, 2, &n)); /* stays inside the capacity */
    assert_false(str_base64url_decode(STR("Zm8"), bytes, 1, &n));
    assert_false(str_base64url_decode(STR("Zm9v"), bytes, 2, &n));
}

static void test_base64url_round_trip(void **state)
{
    (void)state;
    struct rand r;
    rand_seed(&r, 1);
    for (int round = 0; round < 2000; round++) {
        uint8_t bytes[50], back[50];
        char text[70];
        size_t n = rand_below(&r, sizeof bytes + 1), m;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)rand_u64(&r);
        str_base64url(bytes, n, text);
        assert_true(str_base64url_decode((struct str){text, str_base64url_size(n)}, back, n, &m));
        assert_int_equal(m, n);
        assert_memory_equal(back, bytes, n);
    }
}

static void test_cuts_between_characters(void **state)
{
    (void)state;
    struct str euros = STR("a\xe2\x82\xac\xe2\x82\xac");
    assert_int_equal(str_cut(euros, 100).len, 7);
    assert_int_equal(str_cut(euros, 6).len, 4);
    assert_int_equal(str_cut(euros, 4).len, 4);
    assert_int_equal(str_cut(euros, 3).len, 1);
    assert_int_equal(str_cut(euros, 0).len, 0);
    assert_int_equal(str_cut(STR("ab\xff"), 100).len, 2);
}

static void test_copies_what_fits(void **state)
{
    (void)state;
    char out[4] = "xxx";
    str_copy(out, sizeof out, STR("abcdef"));
    assert_string_equal(out, "abc");
    str_copy(out, sizeof out, STR("abc"));
    assert_string_equal(out, "abc");
    str_copy(out, sizeof out, (struct str){NULL, 0});
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compares),
        cmocka_unit_test(test_trims_and_splits),
        cmocka_unit_test(test_parses_numbers),
        cmocka_unit_test(test_accepts_valid_utf8_only),
        cmocka_unit_test(test_cuts_between_characters),
        cmocka_unit_test(test_copies_what_fits),
        cmocka_unit_test(test_every_code_point_is_right),
        cmocka_unit_test(test_decodes_urls),
        cmocka_unit_test(test_hex),
        cmocka_unit_test(test_base64url_known),
        cmocka_unit_test(test_base64url_refuses),
        cmocka_unit_test(test_base64url_round_trip),
    };
    return cmocka_run_group_tests_name("base/str", tests, NULL, NULL);
}
