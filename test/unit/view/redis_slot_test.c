/* Slots, keys and ids as Redis Cluster sees them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/id.h"
#include "view/redis/keys.h"

static void the_checksum_is_the_one_of_the_specification(void **state)
{
    (void)state;
    assert_int_equal(crc16("123456789", 9), 0x31C3);
    assert_int_equal(crc16("", 0), 0);
}

/* What a real server says to CLUSTER KEYSLOT. */
static void slots_are_those_of_the_server(void **state)
{
    static const struct {
        const char *key;
        uint16_t slot;
    } known[] = {
        {"foo", 12182},      {"bar", 5061},     {"hello", 866},        {"", 0},
        {"{foo}bar", 12182}, {"x{foo}", 12182}, {"a{foo}b{c}", 12182}, {"123456789", 12739},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(known); i++)
        assert_int_equal(slot_of(str_of(known[i].key)), known[i].slot);
}

static void a_tag_that_is_empty_or_open_is_none(void **state)
{
    (void)state;
    assert_int_equal(slot_of(STR("foo{}{bar}")), crc16("foo{}{bar}", 10) % SLOT_COUNT);
    assert_int_equal(slot_of(STR("foo{bar")), crc16("foo{bar", 7) % SLOT_COUNT);
    assert_int_equal(slot_of(STR("foo{{bar}}zap")), crc16("{bar", 4) % SLOT_COUNT);
}

static void all_keys_of_an_account_lie_in_one_slot(void **state)
{
    static const char kinds[] = "tbfmcFlr";
    size_t used[16] = {0};
    (void)state;
    for (uint64_t i = 1; i <= 4000; i++) {
        uint64_t account = id_at(ID_EPOCH_MS + (int64_t)i * 977, (uint32_t)i % 7, 0);
        struct key people = key_of_people(account);
        assert_int_equal(people.slot, slot_of(key_text(&people)));
        for (const char *kind = kinds; *kind; kind++) {
            struct key k = key_of_account((enum key_kind) * kind, account);
            assert_int_equal(k.slot, people.slot);
            assert_int_equal(k.slot, slot_of(key_text(&k)));
        }
        used[people.slot / (SLOT_COUNT / COUNT_OF(used))]++;
    }
    for (size_t i = 0; i < COUNT_OF(used); i++) /* 250 each, if it were perfect */
        assert_in_range(used[i], 150, 350);
}

static void ids_as_text_keep_their_order(void **state)
{
    static const uint64_t ids[] = {
        0, 1, 9, 10, 99, 4711, UINT64_C(378000000000000000), (uint64_t)INT64_MAX};
    char before[ID_DIGITS] = "", digits[ID_DIGITS];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        uint64_t back;
        id_digits(ids[i], digits);
        assert_true(id_from_digits((struct str){digits, ID_DIGITS}, &back));
        assert_int_equal(back, ids[i]);
        assert_true(i == 0 || memcmp(before, digits, ID_DIGITS) < 0);
        memcpy(before, digits, ID_DIGITS);
    }
    uint64_t id;
    assert_false(id_from_digits(STR("123"), &id));
    assert_false(id_from_digits(STR("000000000000000000x"), &id));
}

/* Scores are doubles: what is put there must come back as it was. */
static void scores_fit_into_a_double(void **state)
{
    uint64_t last = (uint64_t)INT64_MAX;
    (void)state;
    assert_true(event_score(last) < UINT64_C(1) << 53);
    assert_int_equal((uint64_t)(double)event_score(last), event_score(last));
    uint64_t a = id_at(ID_EPOCH_MS + 5, 1023, 7), b = id_at(ID_EPOCH_MS + 5, 0, 8);
    assert_true(event_score(a) < event_score(b)); /* the node says nothing about which was first */
    assert_int_equal(id_score(a), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checksum_is_the_one_of_the_specification),
        cmocka_unit_test(slots_are_those_of_the_server),
        cmocka_unit_test(a_tag_that_is_empty_or_open_is_none),
        cmocka_unit_test(all_keys_of_an_account_lie_in_one_slot),
        cmocka_unit_test(ids_as_text_keep_their_order),
        cmocka_unit_test(scores_fit_into_a_double),
    };
    return cmocka_run_group_tests_name("redis slots", tests, NULL, NULL);
}
