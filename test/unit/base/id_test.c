/* Ids: order, uniqueness, clocks that misbehave, floors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/id.h"
#include "base/rand.h"

#define NOW INT64_C(1794731854000)

static void test_layout(void **state)
{
    (void)state;
    uint64_t id = id_at(NOW, 5, 7);
    assert_true(id_time_ms(id) == NOW);
    assert_int_equal(id >> 12 & 1023, 5);
    assert_int_equal(id & 4095, 7);
    assert_int_equal(id_at(ID_EPOCH_MS, 0, 0), 0);
    assert_int_equal(id_at(0, 0, 3), 3); /* before the epoch: the epoch */
    assert_true(id_at(INT64_MAX, 1023, 4095) == INT64_MAX);
    assert_true(id_at(NOW, 1023, 4095) < id_at(NOW + 1, 0, 0));
    assert_true(id_at(NOW, 1, 4095) < id_at(NOW, 2, 0));
}

static void test_rises_within_a_millisecond_and_overflows_into_the_next(void **state)
{
    (void)state;
    struct manual_clock m;
    struct id_gen g;
    manual_clock_init(&m, NOW);
    id_gen_init(&g, &m.clock, 9);
    uint64_t last = 0;
    for (int i = 0; i < 3 * 4096; i++) {
        uint64_t id = id_next(&g);
        assert_true(id > last);
        assert_int_equal(id >> 12 & 1023, 9);
        assert_int_equal(id_time_ms(id) - NOW, i / 4096);
        last = id;
    }
    manual_clock_advance(&m, 1); /* still behind what was borrowed */
    assert_true(id_next(&g) > last);
    manual_clock_advance(&m, 10);
    assert_true(id_time_ms(id_next(&g)) == NOW + 11);
}

static void test_never_goes_back_with_the_clock(void **state)
{
    (void)state;
    struct manual_clock m;
    struct id_gen g;
    struct rand r;
    manual_clock_init(&m, NOW);
    id_gen_init(&g, &m.clock, 0);
    rand_seed(&r, 4);
    uint64_t last = 0;
    for (int i = 0; i < 100000; i++) {
        if (rand_below(&r, 10) == 0)
            m.wall_ms = NOW + (int64_t)rand_below(&r, 7200000) - 3600000;
        uint64_t id = id_next(&g);
        assert_true(id > last);
        last = id;
    }
    m.wall_ms = -5; /* before 1970, too */
    assert_true(id_next(&g) > last);
}

static void test_raise(void **state)
{
    (void)state;
    struct rand r;
    rand_seed(&r, 5);
    for (int i = 0; i < 20000; i++) {
        struct manual_clock m;
        struct id_gen g;
        manual_clock_init(&m, NOW);
        id_gen_init(&g, &m.clock, (uint32_t)rand_below(&r, 1024));
        uint64_t floor = id_at(NOW + (int64_t)rand_below(&r, 5) - 2, (uint32_t)rand_below(&r, 1024),
                               (uint32_t)(4095 - rand_below(&r, 2) * rand_below(&r, 4096)));
        id_gen_raise(&g, floor);
        uint64_t first = id_next(&g);
        assert_true(first > floor);
        assert_int_equal(first >> 12 & 1023, g.node);
        id_gen_raise(&g, floor); /* a lower floor changes nothing */
        id_gen_raise(&g, 0);
        assert_true(id_next(&g) > first);
    }
}

enum { THREADS = 4, PER_THREAD = 50000 };

struct taker {
    pthread_t thread;
    struct id_gen *gen;
    uint64_t *ids;
};

static void *take_ids(void *arg)
{
    struct taker *t = arg;
    for (size_t i = 0; i < PER_THREAD; i++)
        t->ids[i] = id_next(t->gen);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void test_unique_across_threads(void **state)
{
    (void)state;
    struct id_gen g;
    struct taker takers[THREADS];
    uint64_t *all = calloc(THREADS * PER_THREAD, sizeof *all);
    id_gen_init(&g, clock_system(), 1);
    for (size_t i = 0; i < THREADS; i++) {
        takers[i].gen = &g;
        takers[i].ids = all + i * PER_THREAD;
        assert_int_equal(pthread_create(&takers[i].thread, NULL, take_ids, &takers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(takers[i].thread, NULL);
    for (size_t i = 0; i < THREADS; i++) { /* each thread sees its own rise */
        for (size_t k = 1; k < PER_THREAD; k++)
            assert_true(takers[i].ids[k] > takers[i].ids[k - 1]);
    }
    qsort(all, THREADS * PER_THREAD, sizeof *all, by_value);
    for (size_t i = 1; i < THREADS * PER_THREAD; i++)
        assert_true(all[i] != all[i - 1]);
    free(all);
}

static void test_text(void **state)
{
    (void)state;
    uint64_t id = 42;
    assert_true(id_parse(STR("1"), &id) && id == 1);
    assert_true(id_parse(STR("9223372036854775807"), &id) && id == INT64_MAX);
    id = 42;
    const struct str bad[] = {STR(""),
                              STR("0"),
                              STR("-1"),
                              STR("+1"),
                              STR("01"),
                              STR("1 "),
                              STR("1.0"),
                              STR("abc"),
                              STR("9223372036854775808"),
                              STR("18446744073709551617"),
                              STR("000000000000000000000001")};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(id_parse(bad[i], &id));
    assert_int_equal(id, 42);

    struct rand r;
    rand_seed(&r, 6);
    for (int i = 0; i < 10000; i++) {
        uint64_t given = (rand_u64(&r) >> (1 + rand_below(&r, 62))) | 1, back;
        char text[ID_TEXT_MAX];
        size_t n = id_format(given, text);
        assert_true(id_parse((struct str){text, n}, &back));
        assert_true(back == given);
    }
    char longest[ID_TEXT_MAX];
    assert_int_equal(id_format(UINT64_MAX, longest), 20);
    assert_int_equal(id_format(0, longest), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_rises_within_a_millisecond_and_overflows_into_the_next),
        cmocka_unit_test(test_never_goes_back_with_the_clock),
        cmocka_unit_test(test_raise),
        cmocka_unit_test(test_unique_across_threads),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests_name("base/id", tests, NULL, NULL);
}
