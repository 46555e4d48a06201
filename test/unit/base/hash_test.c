/* Hashes: known values of SipHash-1-3, the checksum's sensitivity and its fixed values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

static void test_siphash_1_3_known_values(void **state)
{
    (void)state;
    /* bytes 0, 1, 2 … under the key zero, from another implementation */
    static const struct {
        size_t n;
        uint64_t hash;
    } known[] = {
        {1, UINT64_C(0x68a914128e01e473)},  {7, UINT64_C(0x2f098ab0c751325a)},
        {8, UINT64_C(0xead411e67ebe2eea)},  {9, UINT64_C(0x75927f9d95124362)},
        {15, UINT64_C(0xf30eb725bb91c9ea)}, {16, UINT64_C(0x8972188433a5c5b7)},
        {63, UINT64_C(0x385d3e39e5f37359)},
    };
    const uint64_t key[2] = {0, 0};
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    for (size_t i = 0; i < COUNT_OF(known); i++)
        assert_true(hash_bytes_keyed(bytes, known[i].n, key) == known[i].hash);
}

static void test_process_key_is_used(void **state)
{
    (void)state;
    const uint64_t zero[2] = {0, 0};
    assert_true(hash_bytes("abc", 3) == hash_bytes("abc", 3));
    assert_true(hash_bytes("abc", 3) != hash_bytes("abd", 3));
    assert_true(hash_bytes("abc", 3) != hash_bytes_keyed("abc", 3, zero));
    assert_true(hash_bytes(NULL, 0) == hash_bytes("", 0));
}

static void test_u64_spreads(void **state)
{
    (void)state;
    /* Ids that differ by their counter only must fill a small table evenly. */
    enum { BUCKETS = 1024, KEYS = BUCKETS * 64 };
    static int seen[BUCKETS];
    for (uint64_t i = 0; i < KEYS; i++)
        seen[hash_u64(UINT64_C(1) << 60 | i << 12) % BUCKETS]++;
    for (int i = 0; i < BUCKETS; i++)
        assert_in_range(seen[i], 16, 160);
}

static void test_checksum_sees_every_bit(void **state)
{
    (void)state;
    for (size_t n = 0; n <= 100; n++) {
        unsigned char *bytes = malloc(n + 1); /* the heap, so that reading too far is noticed */
        memset(bytes, 0xa5, n + 1);
        uint64_t whole = hash_checksum(bytes, n, 1);
        assert_true(hash_checksum(bytes, n, 1) == whole);
        assert_true(hash_checksum(bytes, n, 2) != whole);
        assert_true(hash_checksum(bytes, n + 1, 1) != whole);
        for (size_t bit = 0; bit < n * 8; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_true(hash_checksum(bytes, n, 1) != whole);
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        free(bytes);
    }
}

static void test_checksum_sees_order_and_length(void **state)
{
    (void)state;
    unsigned char a[64] = {0}, b[64] = {0};
    a[0] = 1; /* the same word in another lane, in another round */
    b[8] = 1;
    assert_true(hash_checksum(a, 64, 0) != hash_checksum(b, 64, 0));
    b[8] = 0;
    b[32] = 1;
    assert_true(hash_checksum(a, 64, 0) != hash_checksum(b, 64, 0));
    memset(a, 0, sizeof a);
    for (size_t n = 1; n < 64; n++) /* zeroes count */
        assert_true(hash_checksum(a, n, 0) != hash_checksum(a, n - 1, 0));
}

static void test_checksum_is_fixed(void **state)
{
    (void)state;
    /* Stored in files: a change of these values makes every snapshot unreadable. */
    char text[] = "The fantail is a small bird that spreads its tail when it is told something.";
    assert_true(hash_checksum(text, 0, 0) == UINT64_C(0xec6755a93f9ddda8));
    assert_true(hash_checksum(text, strlen(text), 7) == UINT64_C(0xf8ea7f418a4e4ffd));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siphash_1_3_known_values),
        cmocka_unit_test(test_process_key_is_used),
        cmocka_unit_test(test_u64_spreads),
        cmocka_unit_test(test_checksum_sees_every_bit),
        cmocka_unit_test(test_checksum_sees_order_and_length),
        cmocka_unit_test(test_checksum_is_fixed),
    };
    return cmocka_run_group_tests_name("base/hash", tests, NULL, NULL);
}
