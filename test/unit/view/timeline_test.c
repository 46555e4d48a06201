/* One timeline against the simplest thing that does the same: a sorted array and linear search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "view/memory/timeline.h"

enum { IDS_MAX = 4000 };

struct naive {
    uint64_t ids[IDS_MAX]; /* rising */
    size_t n, cap;
    uint64_t floor;
};

static void naive_remove(struct naive *m, size_t at)
{
    m->n--;
    memmove(m->ids + at, m->ids + at + 1, (m->n - at) * sizeof m->ids[0]);
}

static void naive_raise(struct naive *m, uint64_t floor)
{
    if (floor > m->floor)
        m->floor = floor;
    while (m->n > 0 && m->ids[0] <= m->floor)
        naive_remove(m, 0);
}

static bool naive_add(struct naive *m, uint64_t id, bool trim)
{
    size_t at = 0;
    if (id <= m->floor)
        return false;
    while (at < m->n && m->ids[at] < id)
        at++;
    if (at < m->n && m->ids[at] == id)
        return false;
    memmove(m->ids + at + 1, m->ids + at, (m->n - at) * sizeof m->ids[0]);
    m->ids[at] = id;
    m->n++;
    if (trim && m->n > m->cap) {
        naive_raise(m, m->ids[0]);
        return at > 0;
    }
    return true;
}

static void compare(const struct timeline *t, const struct naive *m, struct rand *r)
{
    static uint64_t all[IDS_MAX], page[IDS_MAX];
    assert_int_equal(timeline_get(t, count), m->n);
    assert_int_equal(t->floor, m->floor);
    timeline_copy(t, all);
    assert_memory_equal(all, m->ids, m->n * sizeof all[0]);
    uint64_t below = m->n > 0 && rand_below(r, 2) ? m->ids[rand_below(r, m->n)] + rand_below(r, 2)
                     : rand_below(r, 2)           ? UINT64_MAX
                                                  : rand_below(r, 300);
    size_t max = rand_below(r, 50), n = timeline_read(t, below, page, max), expected = 0;
    for (size_t i = m->n; i > 0 && expected < max; i--)
        if (m->ids[i - 1] < below)
            assert_int_equal(page[expected++], m->ids[i - 1]);
    assert_int_equal(n, expected);
}

static size_t falling(struct rand *r, uint64_t *ids, size_t max, uint64_t top)
{
    size_t n = 0;
    for (uint64_t id = top; id > 0 && n < max; id -= 1 + rand_below(r, id < 6 ? id : 6))
        ids[n++] = id;
    return n;
}

static void a_random_life(uint64_t seed)
{
    static const uint32_t caps[] = {1, 2, 7, 29, 30, 31, 60, 61, 100, 1000};
    struct rand r;
    rand_seed(&r, seed);
    struct block_pool pool;
    block_pool_init(&pool);
    struct timeline_env env = {&pool, (uint32_t)seed, caps[seed % COUNT_OF(caps)], 0};
    struct timeline t = {.state = TIMELINE_READY};
    static struct naive m;
    m = (struct naive){.cap = env.cap};
    uint64_t top = 50;
    for (int step = 0; step < 600; step++) {
        uint64_t ids[200];
        switch (rand_below(&r, 12)) {
        default:
            top += rand_below(&r, 5);
            assert_int_equal(timeline_add(&t, &env, top), naive_add(&m, top, true));
            break;
        case 0:
        case 1: {
            uint64_t late = 1 + rand_below(&r, top);
            assert_int_equal(timeline_add(&t, &env, late), naive_add(&m, late, true));
            break;
        }
        case 2: {
            uint64_t id = m.n > 0 ? m.ids[rand_below(&r, m.n)] : 1;
            size_t before = m.n;
            for (size_t i = 0; i < m.n; i++)
                if (m.ids[i] == id)
                    naive_remove(&m, i--);
            assert_int_equal(timeline_remove(&t, &env, id), m.n < before);
            break;
        }
        case 3: {
            size_t n = falling(&r, ids, rand_below(&r, 60), top);
            for (size_t k = 0; k < n; k++)
                for (size_t i = 0; i < m.n; i++)
                    if (m.ids[i] == ids[k])
                        naive_remove(&m, i--);
            timeline_remove_all(&t, &env, ids, n);
            break;
        }
        case 4: {
            size_t n = falling(&r, ids, rand_below(&r, 150), top + rand_below(&r, 10));
            uint64_t floor = rand_below(&r, 3) ? 0 : rand_below(&r, top) / 2;
            naive_raise(&m, floor);
            for (size_t i = 0; i < n; i++)
                naive_add(&m, ids[i], false);
            while (m.n > m.cap)
                naive_raise(&m, m.ids[0]);
            timeline_merge(&t, &env, ids, n, floor);
            break;
        }
        }
        compare(&t, &m, &r);
        assert_int_equal(env.entries, m.n);
    }
    timeline_drop(&t, &env);
    assert_int_equal(env.entries, 0);
    assert_false(timeline_add(&t, &env, top + 100));
    block_pool_done(&pool);
}

static void it_behaves_like_a_sorted_array(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++)
        a_random_life(seed);
}

static void filling_keeps_the_newest_and_raises_the_floor(void **state)
{
    (void)state;
    struct block_pool pool;
    block_pool_init(&pool);
    uint64_t ids[500], out[500];
    for (size_t i = 0; i < 500; i++)
        ids[i] = 10 * (i + 1);
    for (uint32_t near = 0; near < 40; near++) {
        for (size_t n = 0; n <= 500; n += 61) {
            struct timeline_env env = {&pool, near, 100, 0};
            struct timeline t = {.state = TIMELINE_READY};
            timeline_fill(&t, &env, ids, n, 3);
            size_t kept = n < 100 ? n : 100;
            assert_int_equal(timeline_get(&t, count), kept);
            timeline_copy(&t, out);
            assert_memory_equal(out, ids + n - kept, kept * sizeof out[0]);
            assert_int_equal(t.floor, n > 100 ? ids[n - 101] : 3);
            assert_true(timeline_add(&t, &env, 9999));
            assert_int_equal(timeline_read(&t, UINT64_MAX, out, 1), 1);
            assert_int_equal(out[0], 9999);
            timeline_drop(&t, &env);
        }
    }
    block_pool_done(&pool);
}

static void blocks_are_used_again(void **state)
{
    (void)state;
    struct block_pool pool;
    block_pool_init(&pool);
    struct timeline_env env = {&pool, 3, 90, 0};
    struct timeline t = {.state = TIMELINE_READY};
    for (uint64_t id = 1; id <= 200; id++)
        timeline_add(&t, &env, id);
    uint64_t bytes = block_pool_bytes(&pool);
    assert_true(bytes <= 5 * sizeof(struct block));
    for (uint64_t id = 201; id <= 20000; id++)
        assert_true(timeline_add(&t, &env, id));
    assert_int_equal(t.floor, 20000 - 90);
    for (int i = 0; i < 50; i++) {
        timeline_drop(&t, &env);
        t.state = TIMELINE_READY;
        for (uint64_t id = 1; id <= 90; id++)
            timeline_add(&t, &env, id);
    }
    assert_int_equal(block_pool_bytes(&pool), bytes);
    block_pool_done(&pool);
}

static void not_all_take_a_block_at_the_same_push(void **state)
{
    (void)state;
    enum { TIMELINES = 900 };
    static struct timeline all[TIMELINES];
    struct block_pool pool;
    block_pool_init(&pool);
    uint64_t before = 0, most = 0;
    for (uint64_t id = 1; id <= 200; id++) {
        for (uint32_t i = 0; i < TIMELINES; i++) {
            struct timeline_env env = {&pool, i, 1000, 0};
            all[i].state = TIMELINE_READY;
            timeline_add(&all[i], &env, id);
        }
        uint64_t taken = (block_pool_bytes(&pool) - before) / sizeof(struct block);
        before += taken * sizeof(struct block);
        if (id > 1 && taken > most)
            most = taken;
    }
    assert_true(most <= TIMELINES / 20);
    block_pool_done(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_behaves_like_a_sorted_array),
        cmocka_unit_test(filling_keeps_the_newest_and_raises_the_floor),
        cmocka_unit_test(blocks_are_used_again),
        cmocka_unit_test(not_all_take_a_block_at_the_same_push),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
