/* Cursors: they come back as they went, and nothing else does. */
#include "test.h"

#include "api/edge/cursor.h"

static const uint8_t secret[CURSOR_SECRET_BYTES] = "an unguessable secret, 32 bytes";
static const struct cursor sample = {.list = 77, .position = 123456789012345678, .owner = 42};

static struct str write_sample(char out[CURSOR_TEXT_LEN])
{
    cursor_write(secret, &sample, out);
    return (struct str){out, CURSOR_TEXT_LEN};
}

static void test_comes_back(void **state)
{
    (void)state;
    char text[CURSOR_TEXT_LEN];
    const char *why = NULL;
    const uint64_t positions[] = {1, 2, 1u << 20, INT64_MAX, UINT64_MAX - 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        struct cursor c = {cursor_list("feed_show", 0), positions[i], i * 1000};
        uint64_t position = 0;
        cursor_write(secret, &c, text);
        assert_int_equal(
            cursor_read(secret, (struct str){text, sizeof text}, c.list, c.owner, &position, &why),
            OK);
        assert_true(position == positions[i]);
    }
}

static void test_every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    char text[CURSOR_TEXT_LEN];
    struct str cursor = write_sample(text);
    uint8_t bytes[64];
    size_t n;
    assert_true(str_base64url_decode(cursor, bytes, sizeof bytes, &n));
    assert_int_equal(str_base64url_size(n), CURSOR_TEXT_LEN);
    for (size_t bit = 0; bit < n * 8; bit++) {
        uint8_t forged[64];
        char forged_text[CURSOR_TEXT_LEN];
        const char *why = NULL;
        uint64_t position = 7;
        memcpy(forged, bytes, n);
        forged[bit / 8] ^= (uint8_t)(1u << bit % 8);
        str_base64url(forged, n, forged_text);
        struct str view = {forged_text, sizeof forged_text};
        assert_int_equal(cursor_read(secret, view, sample.list, sample.owner, &position, &why),
                         ERR_BAD_INPUT);
        assert_non_null(why);
        assert_int_equal(position, 7); /* untouched */
        /* also for one who claims exactly the forged fields: the MAC itself must fail */
        struct cursor claim = {0};
        for (int i = 0; i < 4; i++)
            claim.list = claim.list << 8 | forged[i];
        for (int i = 12; i < 20; i++)
            claim.owner = claim.owner << 8 | forged[i];
        assert_int_equal(cursor_read(secret, view, claim.list, claim.owner, &position, &why),
                         ERR_BAD_INPUT);
    }
}

static void test_every_changed_character_is_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < CURSOR_TEXT_LEN; i++) {
        for (int c = 0; c < 256; c++) {
            char text[CURSOR_TEXT_LEN];
            const char *why = NULL;
            uint64_t position;
            struct str view = write_sample(text);
            if (text[i] == (char)c)
                continue;
            text[i] = (char)c;
            assert_int_equal(cursor_read(secret, view, sample.list, sample.owner, &position, &why),
                             ERR_BAD_INPUT);
        }
    }
}

static void test_foreign_ones_are_refused_with_a_reason(void **state)
{
    (void)state;
    char text[CURSOR_TEXT_LEN];
    const char *why = NULL;
    uint64_t position;
    struct str view = write_sample(text);
    assert_int_equal(cursor_read(secret, view, sample.list, 43, &position, &why), ERR_BAD_INPUT);
    assert_non_null(strstr(why, "another caller"));
    assert_int_equal(cursor_read(secret, view, 78, sample.owner, &position, &why), ERR_BAD_INPUT);
    assert_non_null(strstr(why, "another list"));
    uint8_t other[CURSOR_SECRET_BYTES] = "another secret";
    assert_int_equal(cursor_read(other, view, sample.list, sample.owner, &position, &why),
                     ERR_BAD_INPUT);
    assert_non_null(strstr(why, "not one of ours"));
}

static void test_other_lengths_are_refused(void **state)
{
    (void)state;
    char text[CURSOR_TEXT_LEN + 4];
    const char *why = NULL;
    uint64_t position;
    write_sample(text);
    memcpy(text + CURSOR_TEXT_LEN, "AAAA", 4);
    for (size_t len = 0; len <= sizeof text; len++) {
        enum err e = cursor_read(secret, (struct str){text, len}, sample.list, sample.owner,
                                 &position, &why);
        assert_int_equal(e, len == CURSOR_TEXT_LEN ? OK : ERR_BAD_INPUT);
    }
}

static void test_lists_are_told_apart(void **state)
{
    (void)state;
    uint32_t followers = cursor_list("followers_list", 1);
    assert_int_equal(followers, cursor_list("followers_list", 1));
    assert_int_not_equal(followers, cursor_list("followers_list", 2));
    assert_int_not_equal(followers, cursor_list("following_list", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_back),
        cmocka_unit_test(test_every_flipped_bit_is_noticed),
        cmocka_unit_test(test_every_changed_character_is_noticed),
        cmocka_unit_test(test_foreign_ones_are_refused_with_a_reason),
        cmocka_unit_test(test_other_lengths_are_refused),
        cmocka_unit_test(test_lists_are_told_apart),
    };
    return cmocka_run_group_tests_name("api/edge/cursor", tests, NULL, NULL);
}
