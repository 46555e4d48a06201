/* Busy groups in bounded memory, against plain counting. */
#include "test.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/rand.h"
#include "ops/hot_keys.h"

enum { S = 1000 * 1000, GROUPS = 20000 };

static const struct hot_key *find(const struct hot_keys_look *l, uint64_t group)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->top[i].key == group)
            return &l->top[i];
    return NULL;
}

static void few_groups_are_counted_exactly(void **state)
{
    (void)state;
    struct hot_keys *h = hot_keys_new(5 * S);
    struct hot_keys_look look;
    hot_keys_look(h, 5 * S, &look);
    assert_int_equal(look.count, 0);
    assert_int_equal(look.p99_us, 0);
    for (uint64_t g = 1; g <= 30; g++)
        for (uint64_t k = 0; k < g * 2; k++)
            hot_keys_record(h, g, 1000, 6 * S);
    hot_keys_look(h, 15 * S, &look);
    assert_int_equal(look.count, HOT_KEYS_SHOWN);
    assert_int_equal(look.entries, 30 * 31);
    assert_true(look.window_s == 10);
    for (size_t i = 0; i < look.count; i++) {
        assert_int_equal(look.top[i].key, 30 - i);
        assert_int_equal(look.top[i].entries, 2 * (30 - i));
        assert_int_equal(look.top[i].at_most, look.top[i].entries);
        assert_true(look.top[i].per_s == (double)look.top[i].entries / 10);
    }
    hot_keys_free(h);
}

static void a_minute_later_it_is_forgotten(void **state)
{
    (void)state;
    struct hot_keys *h = hot_keys_new(0);
    struct hot_keys_look look;
    for (int i = 0; i < 100; i++)
        hot_keys_record(h, 7, 50000, 5 * S);
    hot_keys_look(h, 60 * S, &look);
    assert_int_equal(look.top[0].entries, 100);
    hot_keys_look(h, 69 * S, &look); /* the slice is in the window still */
    assert_int_equal(look.entries, 100);
    assert_true(look.window_s > 60 && look.window_s < 70);
    hot_keys_look(h, 70 * S, &look);
    assert_int_equal(look.count, 0);
    assert_int_equal(look.entries, 0);
    assert_int_equal(look.p99_us, 0);
    assert_int_equal(look.all_entries, 100); /* but not since the start */
    assert_true(look.all_p99 >= 50000);

    hot_keys_record(h, 8, 10, 71 * S); /* in the place of the first slice */
    hot_keys_look(h, 71 * S, &look);
    assert_int_equal(look.count, 1);
    assert_int_equal(look.top[0].key, 8);
    hot_keys_record(h, 9, 10, 2 * S); /* a straggler of a slice that is gone */
    hot_keys_look(h, 71 * S, &look);
    assert_int_equal(look.entries, 1);
    hot_keys_free(h);
}

/* Three busy groups among twenty thousand: the bounds hold for everyone that is shown, and the busy
 * ones come first. */
static void busy_groups_stand_out_of_many(void **state)
{
    (void)state;
    struct hot_keys *h = hot_keys_new(0);
    struct hot_keys_look look;
    struct rand r;
    uint64_t *truth = calloc(GROUPS + 1, sizeof *truth), total = 0;
    assert_non_null(truth);
    rand_seed(&r, 11);
    for (int64_t t = 0; t < 65; t++) {
        for (int i = 0; i < 3000; i++, total++) {
            uint64_t dice = rand_below(&r, 100), g = dice < 5    ? 1
                                                     : dice < 9  ? 2
                                                     : dice < 12 ? 3
                                                                 : 4 + rand_below(&r, GROUPS - 3);
            truth[g]++;
            hot_keys_record(h, g, 1 + (int64_t)g, t * S + i);
        }
    }
    hot_keys_look(h, 65 * S, &look);
    assert_int_equal(look.entries, total);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(look.top[i].key, i + 1);
    for (size_t i = 0; i < look.count; i++) {
        const struct hot_key *g = &look.top[i];
        assert_in_range(truth[g->key], g->entries, g->at_most);
        assert_true(g->at_most - g->entries <= total / HOT_KEYS_KEPT + 7);
    }
    assert_true(look.p50_us > 3);
    free(truth);
    hot_keys_free(h);
}

/* A group that comes with the last slice is measured against all that it may have hidden before. */
static void what_a_full_slice_may_hide_is_told(void **state)
{
    (void)state;
    struct hot_keys *h = hot_keys_new(0);
    struct hot_keys_look look;
    for (uint64_t k = 0; k < 10; k++)
        for (uint64_t g = 1; g <= 2 * HOT_KEYS_KEPT; g++)
            hot_keys_record(h, g, 1, 1 * S);
    for (int i = 0; i < 500; i++)
        hot_keys_record(h, 9999, 1, 12 * S);
    hot_keys_look(h, 13 * S, &look);
    const struct hot_key *late = find(&look, 9999);
    assert_non_null(late);
    assert_ptr_equal(late, &look.top[0]);
    assert_int_equal(late->entries, 500);
    assert_true(late->at_most > 500 && late->at_most <= 500 + 2 * 10);
    for (size_t i = 1; i < look.count; i++)
        assert_true(look.top[i].entries <= 10 && look.top[i].at_most >= 10);
    hot_keys_free(h);
}

static void *record_many(void *arg)
{
    struct hot_keys *h = arg;
    for (int i = 0; i < 20000; i++)
        hot_keys_record(h, (uint64_t)(i % 10) + 1, 5, i * 5000);
    return NULL;
}

static void many_threads_lose_nothing(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct hot_keys *h = hot_keys_new(0);
    struct hot_keys_look look;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, record_many, h), 0);
    for (int i = 0; i < 50; i++)
        hot_keys_look(h, 60 * S, &look);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    hot_keys_look(h, 100 * S, &look);
    assert_int_equal(look.all_entries, THREADS * 20000);
    assert_int_equal(look.count, 10);
    uint64_t sum = 0;
    for (size_t i = 0; i < look.count; i++)
        sum += look.top[i].entries;
    assert_int_equal(sum, look.entries);
    hot_keys_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_groups_are_counted_exactly),
        cmocka_unit_test(a_minute_later_it_is_forgotten),
        cmocka_unit_test(busy_groups_stand_out_of_many),
        cmocka_unit_test(what_a_full_slice_may_hide_is_told),
        cmocka_unit_test(many_threads_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
