/* Slot lists and follower sets against a plain array of flags, across the border between list and
 * bitmap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "view/memory/capacity.h"
#include "view/memory/slot_set.h"

enum { SLOTS = 300000 };

static bool there[SLOTS];

static void compare(const struct follower_set *f, struct rand *r, size_t count)
{
    static uint32_t out[2000];
    assert_int_equal(f->count, count);
    uint32_t from = (uint32_t)rand_below(r, SLOTS);
    for (int page = 0; page < 5; page++) {
        size_t max = 1 + rand_below(r, 2000), n = follower_set_read(f, from, out, max), at = 0;
        uint32_t slot = from;
        for (; slot < SLOTS && at < max; slot++)
            if (there[slot]) {
                assert_true(at < n);
                assert_int_equal(out[at++], slot);
            }
        assert_int_equal(n, at);
        if (n < max)
            break;
        from = out[n - 1] + 1;
    }
}

static void a_set_is_right_on_both_sides_of_the_border(void **state)
{
    (void)state;
    struct rand r;
    rand_seed(&r, 42);
    struct follower_set f = {0};
    int64_t bytes = 0;
    size_t count = 0;
    memset(there, 0, sizeof there);
    /* up past the border, down again, up again; spread, then dense */
    for (int phase = 0; phase < 6; phase++) {
        bool adding = phase % 2 == 0;
        uint32_t range = phase < 3 ? SLOTS : 12000;
        size_t until = adding ? 6000 : 1000;
        while (adding ? count < until : count > until) {
            uint32_t slot = (uint32_t)rand_below(&r, range);
            if (!adding && !there[slot] && rand_below(&r, 50)) { /* find one that is there */
                uint32_t found;
                if (follower_set_read(&f, slot, &found, 1) == 0)
                    continue;
                slot = found;
            }
            if (adding) {
                bool added;
                assert_int_equal(follower_set_add(&f, slot, &added, &bytes), OK);
                assert_int_equal(added, !there[slot]);
                count += added;
            } else {
                bool removed = follower_set_remove(&f, slot, &bytes);
                assert_int_equal(removed, there[slot]);
                count -= removed;
            }
            there[slot] = adding;
            if (rand_below(&r, 200) == 0)
                compare(&f, &r, count);
        }
        assert_int_equal(f.capacity == FOLLOWERS_BITMAP, adding);
        compare(&f, &r, count);
    }
    follower_set_done(&f, &bytes);
    assert_int_equal(bytes, 0);
}

static void an_account_at_the_border_is_not_converted_to_and_fro(void **state)
{
    (void)state;
    struct follower_set f = {0};
    int64_t bytes = 0;
    bool added;
    for (uint32_t i = 0; i <= FOLLOWERS_LIST_MAX; i++)
        follower_set_add(&f, i * 3, &added, &bytes);
    assert_int_equal(f.capacity, FOLLOWERS_BITMAP);
    for (uint32_t i = 0; i < 100; i++) {
        follower_set_remove(&f, i * 3, &bytes);
        assert_int_equal(f.capacity, FOLLOWERS_BITMAP);
    }
    follower_set_done(&f, &bytes);
    assert_int_equal(bytes, 0);
}

static void a_loaded_set_is_like_a_grown_one(void **state)
{
    (void)state;
    for (uint32_t count = 0; count < 10000; count = count * 2 + 1) {
        struct follower_set f = {0};
        int64_t bytes = 0;
        assert_int_equal(follower_set_reserve(&f, count, &bytes), OK);
        for (uint32_t i = 0; i < count; i++)
            follower_set_append(&f, i * 5);
        assert_int_equal(follower_set_close(&f, &bytes), OK);
        assert_int_equal(f.capacity == FOLLOWERS_BITMAP, count > FOLLOWERS_LIST_MAX);
        bool added;
        follower_set_add(&f, 7, &added, &bytes);
        assert_true(added);
        uint32_t out[3];
        assert_int_equal(follower_set_read(&f, 6, out, 3), count > 2 ? (count > 3 ? 3 : 2) : 1);
        assert_int_equal(out[0], 7);
        follower_set_done(&f, &bytes);
        assert_int_equal(bytes, 0);
    }
}

static void a_list_finds_its_places(void **state)
{
    (void)state;
    struct slot_list l = {0};
    int64_t bytes = 0;
    bool added;
    assert_int_equal(slot_list_at_least(&l, 5), 0);
    for (uint32_t n = 0; n < 300; n++) {
        assert_int_equal(slot_list_add(&l, (n * 7919 % 300) * 2 + 1, &added, &bytes), OK);
        assert_true(added);
    }
    for (uint32_t slot = 0; slot <= 602; slot++) {
        assert_int_equal(slot_list_at_least(&l, slot), slot / 2 < 300 ? slot / 2 : 300);
        assert_int_equal(slot_list_has(&l, slot), slot % 2 == 1 && slot < 600);
    }
    assert_false(slot_list_remove(&l, 2));
    assert_true(slot_list_remove(&l, 3));
    assert_false(slot_list_has(&l, 3));
    slot_list_done(&l, &bytes);
    assert_int_equal(bytes, 0);
}

static void capacities_grow_by_a_quarter(void **state)
{
    (void)state;
    uint32_t c = 0;
    for (uint32_t next; c < 1000000; c = next) {
        next = capacity_next(c);
        assert_true(next > c);
        if (c >= 64)
            assert_true(next - c <= c / 4);
        for (uint32_t count = c + 1; count <= next; count += 1 + count / 50)
            assert_int_equal(capacity_for(count), next);
        assert_int_equal(capacity_for(next), next);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_is_right_on_both_sides_of_the_border),
        cmocka_unit_test(an_account_at_the_border_is_not_converted_to_and_fro),
        cmocka_unit_test(a_loaded_set_is_like_a_grown_one),
        cmocka_unit_test(a_list_finds_its_places),
        cmocka_unit_test(capacities_grow_by_a_quarter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
