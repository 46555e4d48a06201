/* The table of keys with work against a naive model. What the keys do is the inflight set's, and
 * tested there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rand.h"
#include "pipe/order.h"

static void a_new_key_has_no_work_and_is_open(void **state)
{
    (void)state;
    struct order o;
    order_init(&o);
    assert_null(order_find(&o, 1, 7));
    struct order_key *key = order_get(&o, 1, 7);
    assert_int_equal(key->at_work, ORDER_NONE);
    assert_int_equal(key->queue.first, ORDER_NONE);
    assert_int_equal(key->queue.last, ORDER_NONE);
    assert_int_equal(key->to_record, 0);
    assert_false(key->blocked);
    assert_ptr_equal(order_get(&o, 1, 7), key);
    assert_null(order_find(&o, 2, 7)); /* another lane, another key */
    order_done(&o);
}

static void blocked_keys_are_counted_once_each(void **state)
{
    (void)state;
    struct order o;
    order_init(&o);
    struct order_key *key = order_get(&o, 0, 7);
    order_block(&o, key, true);
    order_block(&o, key, true);
    assert_int_equal(o.blocked, 1);
    order_block(&o, key, false);
    order_block(&o, key, false);
    assert_int_equal(o.blocked, 0);
    order_block(&o, key, true);
    order_drop(&o, key);
    assert_int_equal(o.blocked, 0);
    assert_int_equal(o.keys.count, 0);
    order_done(&o);
}

static void the_id_0_is_a_key_as_well(void **state)
{
    (void)state;
    struct order o;
    order_init(&o);
    order_get(&o, 0, 0)->to_record = 5;
    assert_int_equal(order_find(&o, 0, 0)->to_record, 5);
    order_drop(&o, order_find(&o, 0, 0));
    assert_null(order_find(&o, 0, 0));
    order_done(&o);
}

enum { LANES = 3, KEYS = 400 };

/* Few places and many keys: runs, gaps that are closed, growth. */
static void random_histories_match_a_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct rand r;
        rand_seed(&r, seed);
        struct order o;
        order_init(&o);
        static uint32_t held[LANES][KEYS + 1]; /* 0: not there */
        static bool blocked[LANES][KEYS + 1];
        size_t count = 0, blocked_count = 0;
        uint64_t keys = 1 + rand_below(&r, KEYS);
        for (int round = 0; round < 2000; round++) {
            uint8_t lane = (uint8_t)rand_below(&r, LANES);
            uint64_t key = rand_below(&r, keys + 1);
            struct order_key *place = order_find(&o, lane, key);
            assert_int_equal(place != NULL, held[lane][key] != 0);
            if (place) {
                assert_int_equal(place->to_record, held[lane][key]);
                assert_int_equal(place->blocked, blocked[lane][key]);
            }
            if (place && rand_below(&r, 2)) {
                order_drop(&o, place);
                held[lane][key] = 0;
                blocked_count -= blocked[lane][key];
                blocked[lane][key] = false;
                count--;
            } else if (place) {
                bool block = rand_below(&r, 2) != 0;
                order_block(&o, place, block);
                blocked_count = blocked_count + block - blocked[lane][key];
                blocked[lane][key] = block;
            } else {
                place = order_get(&o, lane, key);
                place->to_record = held[lane][key] = 1 + (uint32_t)round;
                count++;
            }
            assert_int_equal(o.keys.count, count);
            assert_int_equal(o.blocked, blocked_count);
        }
        for (uint8_t lane = 0; lane < LANES; lane++) {
            for (uint64_t key = 0; key <= KEYS; key++) {
                struct order_key *place = order_find(&o, lane, key);
                assert_int_equal(place ? place->to_record : 0, held[lane][key]);
                held[lane][key] = 0;
                blocked[lane][key] = false;
            }
        }
        order_done(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_key_has_no_work_and_is_open),
        cmocka_unit_test(blocked_keys_are_counted_once_each),
        cmocka_unit_test(the_id_0_is_a_key_as_well),
        cmocka_unit_test(random_histories_match_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
