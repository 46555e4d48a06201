/* The directory, and the two things beneath it: columns and latches. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "view/memory/column.h"
#include "view/memory/directory.h"
#include "view/memory/latch.h"

enum { ACCOUNTS = 20000 };

static uint64_t id_of(uint32_t slot)
{
    return (slot + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15) >> 1;
}

static void every_account_is_found_and_no_other(void **state)
{
    (void)state;
    struct directory d;
    assert_true(directory_init(&d, 0));
    assert_int_equal(directory_find(&d, 0), DIRECTORY_NONE);
    for (uint32_t slot = 0; slot < ACCOUNTS; slot++) {
        assert_int_equal(directory_find(&d, id_of(slot)), DIRECTORY_NONE);
        assert_true(directory_insert(&d, id_of(slot), slot));
        assert_int_equal(directory_find(&d, id_of(slot)), slot);
    }
    for (uint32_t slot = 0; slot < ACCOUNTS; slot++) {
        directory_prefetch(&d, id_of(slot));
        assert_int_equal(directory_find(&d, id_of(slot)), slot);
        assert_int_equal(directory_find(&d, id_of(slot) + 1), DIRECTORY_NONE);
    }
    assert_true(directory_bytes(&d) <= ACCOUNTS * 100);
    directory_done(&d);
}

struct race {
    struct directory d;
    _Atomic uint32_t inserted;
    _Atomic bool wrong;
};

static void *look_up(void *arg)
{
    struct race *race = arg;
    for (uint32_t done = 0; done < ACCOUNTS;) {
        done = atomic_load(&race->inserted);
        for (uint32_t slot = done > 100 ? done - 100 : 0; slot < done; slot++)
            if (directory_find(&race->d, id_of(slot)) != slot)
                atomic_store(&race->wrong, true);
    }
    return NULL;
}

static void lookups_go_on_while_it_grows(void **state)
{
    (void)state;
    struct race race = {.inserted = 0};
    assert_true(directory_init(&race.d, 0));
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, look_up, &race), 0);
    for (uint32_t slot = 0; slot < ACCOUNTS; slot++) {
        assert_true(directory_insert(&race.d, id_of(slot), slot));
        atomic_store(&race.inserted, slot + 1);
    }
    pthread_join(reader, NULL);
    assert_false(atomic_load(&race.wrong));
    directory_done(&race.d);
}

static void a_column_grows_in_place(void **state)
{
    (void)state;
    struct column c;
    assert_true(column_init(&c, 12, 300000));
    char *base = c.base;
    for (size_t count = 1; count <= 300000; count += 29999) {
        assert_true(column_extend(&c, count));
        assert_true(c.usable >= count);
        assert_ptr_equal(c.base, base);
        assert_int_equal(base[(count - 1) * 12], 0);
        base[count * 12 - 1] = 1;
    }
    assert_true(column_extend(&c, 300000));
    base[300000 * 12 - 1] = 1;
    assert_false(column_extend(&c, 300001));
    column_done(&c);
}

struct counted {
    struct latch latch;
    uint64_t n; /* plain: the latch guards it */
};

static void *count_up(void *arg)
{
    struct counted *c = arg;
    for (int i = 0; i < 50000; i++) {
        latch_lock(&c->latch);
        c->n++;
        latch_unlock(&c->latch);
    }
    return NULL;
}

static void a_latch_lets_one_in(void **state)
{
    (void)state;
    struct counted c = {.n = 0};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, &c), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(c.n, 200000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_account_is_found_and_no_other),
        cmocka_unit_test(lookups_go_on_while_it_grows),
        cmocka_unit_test(a_column_grows_in_place),
        cmocka_unit_test(a_latch_lets_one_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
