/* One inbox against a plain table of activities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "view/memory/inbox.h"

enum { GROUPS = 150 };

struct model {
    uint64_t activity[GROUPS]; /* 0: not there */
};

static void assert_equal(const struct inbox *b, const struct model *m, struct rand *r)
{
    struct inbox_entry out[GROUPS + 1];
    uint64_t below = rand_below(r, 2) ? UINT64_MAX : rand_below(r, 5000);
    size_t max = rand_below(r, 3) ? GROUPS + 1 : rand_below(r, 40), expected = 0;
    size_t n = inbox_read(b, below, out, max);
    for (size_t g = 0; g < GROUPS; g++)
        expected += m->activity[g] > 0 && m->activity[g] < below;
    assert_int_equal(n, expected < max ? expected : max);
    for (size_t i = 0; i < n; i++) {
        assert_true(out[i].activity < (i > 0 ? out[i - 1].activity : below));
        assert_int_equal(m->activity[out[i].group], out[i].activity);
    }
    for (size_t g = 0; n > 0 && g < GROUPS; g++) { /* none between them was left out */
        bool on_page = false;
        for (size_t i = 0; i < n; i++)
            on_page |= out[i].group == g;
        assert_true(on_page || m->activity[g] >= below || m->activity[g] < out[n - 1].activity);
    }
}

static void random_changes_agree(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct inbox b = {.state = INBOX_READY};
        struct inbox_env env = {0};
        struct model m = {{0}};
        struct rand r;
        size_t count = 0;
        rand_seed(&r, seed);
        for (uint64_t step = 1; step <= 2000; step++) {
            uint32_t g = (uint32_t)rand_below(&r, rand_below(&r, 2) ? 5 : GROUPS);
            if (rand_below(&r, 8) == 0) {
                assert_int_equal(inbox_leave(&b, &env, g), m.activity[g] > 0);
                m.activity[g] = 0;
            } else { /* mostly new, sometimes late; no two alike */
                uint64_t late = rand_below(&r, 4) ? 0 : rand_below(&r, 30);
                uint64_t activity = step > late ? (step - late) * 200 + g : g + 1;
                assert_int_equal(inbox_raise(&b, &env, g, activity), activity > m.activity[g]);
                if (activity > m.activity[g])
                    m.activity[g] = activity;
            }
            if (step % 10 == 0)
                assert_equal(&b, &m, &r);
        }
        for (size_t g = 0; g < GROUPS; g++)
            count += m.activity[g] > 0;
        assert_int_equal(env.entries, count);
        assert_true(env.bytes <= (int64_t)count * 20 + 96);
        inbox_done(&b, &env);
        assert_int_equal(env.entries, 0);
        assert_int_equal(env.bytes, 0);
    }
}

static void an_entry_takes_few_bytes(void **state)
{
    (void)state;
    struct inbox b = {.state = INBOX_READY};
    struct inbox_env env = {0};
    for (uint32_t n = 1; n <= INBOX_MAX; n++) {
        assert_true(inbox_raise(&b, &env, n, n));
        if (n >= 5)
            assert_true(env.bytes <= (int64_t)n * 20);
    }
    assert_int_equal(inbox_get(&b, count), INBOX_MAX);
    assert_true(inbox_raise(&b, &env, 1, INBOX_MAX + 1)); /* there is no need for room */
    assert_int_equal(b.state, INBOX_READY);
    assert_false(inbox_raise(&b, &env, INBOX_MAX + 1, INBOX_MAX + 2));
    assert_int_equal(b.state, INBOX_DROPPED); /* rather nothing than not all */
    assert_int_equal(env.bytes, 0);
    assert_false(inbox_raise(&b, &env, 1, INBOX_MAX + 3));
}

/* Too much for one that is being built: its rebuild has no result, and the next one has. */
static void a_full_one_under_way_is_spoiled(void **state)
{
    (void)state;
    struct inbox b = {.state = INBOX_DROPPED}, fresh = {.state = INBOX_DROPPED};
    struct inbox_env env = {0};
    assert_true(inbox_begin(&b));
    for (uint32_t n = 1; n <= INBOX_MAX + 1; n++)
        inbox_raise(&b, &env, n, n);
    assert_int_equal(b.state, INBOX_BUILDING);
    assert_true(inbox_fill(&fresh, &env, 0));
    assert_false(inbox_end(&b, &env, &fresh));
    assert_int_equal(b.state, INBOX_DROPPED);
    /* Not by itself, but together with what was read. */
    assert_true(inbox_begin(&b));
    inbox_raise(&b, &env, INBOX_MAX + 7, 1);
    assert_true(inbox_fill(&fresh, &env, INBOX_MAX));
    for (uint32_t n = 0; n < INBOX_MAX; n++) {
        inbox_get(&fresh, activities)[n] = n + 10;
        inbox_groups(&fresh)[n] = n;
    }
    assert_false(inbox_end(&b, &env, &fresh));
    assert_int_equal(b.state, INBOX_DROPPED);
    assert_true(inbox_begin(&b));
    assert_true(inbox_end(&b, &env, &fresh));
    assert_int_equal(b.state, INBOX_READY);
    inbox_done(&b, &env);
    assert_int_equal(env.bytes, 0);
    assert_int_equal(env.entries, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_changes_agree),
        cmocka_unit_test(an_entry_takes_few_bytes),
        cmocka_unit_test(a_full_one_under_way_is_spoiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
