/* Pull lists: like a sorted array with a floor, also while somebody writes. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rand.h"
#include "view/memory/pull_list.h"

static void it_keeps_the_newest_in_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        enum { TOP = 400 };
        struct rand r;
        rand_seed(&r, seed);
        bool added[TOP + 1] = {false};
        int64_t bytes = 0;
        size_t cap = 1 + seed * 3;
        uint64_t floor = 0;
        struct pull_list *l = pull_list_new(&bytes);
        for (int step = 0; step < 500; step++) {
            uint64_t id = 1 + rand_below(&r, TOP);
            if (rand_below(&r, 5) == 0) {
                pull_list_remove(l, id);
                added[id] = false;
            } else if (id > floor) {
                assert_true(pull_list_add(l, id, cap, &bytes));
                added[id] = true;
            } else {
                assert_true(pull_list_add(l, id, cap, &bytes)); /* changes nothing */
            }
            size_t n = 0, at = 0;
            for (uint64_t i = TOP; i > 0; i--) /* whoever is the cap + 1st falls out */
                if (added[i] && ++n > cap) {
                    floor = i > floor ? i : floor;
                    added[i] = false;
                }
            uint64_t ids[TOP], got_floor, below = 1 + rand_below(&r, TOP + 10),
                                          above = rand_below(&r, TOP);
            size_t got = pull_list_read(l, below, above, ids, TOP, &got_floor);
            for (uint64_t i = TOP; i > 0; i--)
                if (added[i] && i < below && i > above)
                    assert_int_equal(ids[at++], i);
            assert_int_equal(got, at);
            assert_int_equal(got_floor, floor);
        }
        pull_list_raise_floor(l, TOP + 5);
        uint64_t id, got_floor;
        pull_list_read(l, UINT64_MAX, UINT64_MAX, &id, 1, &got_floor);
        assert_int_equal(got_floor, TOP + 5);
        pull_list_free(l);
    }
}

struct race {
    struct pull_list *l;
    _Atomic bool stop;
    _Atomic uint64_t done; /* ids up to this one have been added */
    _Atomic bool wrong;
};

static void *read_on(void *arg)
{
    struct race *race = arg;
    while (!atomic_load(&race->stop)) {
        uint64_t ids[64], floor, done = atomic_load(&race->done);
        size_t n = pull_list_read(race->l, UINT64_MAX, 0, ids, 64, &floor);
        bool good = done == 0 || (n > 0 && ids[0] >= done);
        for (size_t i = 1; i < n; i++)
            good &= ids[i] == ids[i - 1] - 1; /* a whole state: no holes, nothing twice */
        good &= n == 0 || ids[n - 1] > floor;
        good &= n == 64 || n == 0 || ids[n - 1] == floor + 1;
        if (!good)
            atomic_store(&race->wrong, true);
    }
    return NULL;
}

static void readers_see_whole_states(void **state)
{
    (void)state;
    int64_t bytes = 0;
    struct race race = {.l = pull_list_new(&bytes)};
    pthread_t readers[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_on, &race), 0);
    for (uint64_t id = 1; id <= 30000; id++) {
        assert_true(pull_list_add(race.l, id, 200, &bytes));
        atomic_store(&race.done, id);
    }
    atomic_store(&race.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    assert_false(atomic_load(&race.wrong));
    pull_list_free(race.l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_keeps_the_newest_in_any_order),
        cmocka_unit_test(readers_see_whole_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
