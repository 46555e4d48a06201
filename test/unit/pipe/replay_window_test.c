/* The window: told in any order, left in order, with the right counts at every moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rand.h"
#include "pipe/replay_window.h"

static void it_holds_so_many(void **state)
{
    (void)state;
    struct replay_window w = {.count = 0};
    const struct job_counts what = {.acted = 1};
    for (uint64_t i = 1; i <= REPLAY_WINDOW; i++)
        assert_true(replay_window_enter(&w, i * 10));
    assert_false(replay_window_enter(&w, 99999));
    assert_int_equal(replay_window_position(&w, 99998), 9);
    assert_false(replay_window_tell(&w, 15, &what));
    assert_true(replay_window_tell(&w, 20, &what));
    assert_false(replay_window_tell(&w, 20, &what));
    assert_int_equal(w.left.seen, 0);
    assert_false(replay_window_enter(&w, 99999));
    assert_true(replay_window_tell(&w, 10, &what));
    assert_int_equal(w.left.seen, 2);
    assert_int_equal(w.left.acted, 2);
    assert_int_equal(replay_window_position(&w, 99998), 29);
    assert_true(replay_window_enter(&w, 99999));
    replay_window_undo(&w);
    assert_int_equal(w.count, REPLAY_WINDOW - 2);
}

/* Against the plain truth of it: a list of all events and whether each has its outcome. */
static void any_order_gives_the_same_end(void **state)
{
    (void)state;
    enum { EVENTS = 4000 };
    static bool told[EVENTS];
    struct rand r;
    rand_seed(&r, 7);
    for (int round = 0; round < 20; round++) {
        struct replay_window w = {.count = 0};
        uint64_t entered = 0, done = 0;
        memset(told, 0, sizeof told);
        while (done < EVENTS) {
            if (entered < EVENTS && rand_below(&r, 2) == 0 &&
                replay_window_enter(&w, entered * 3 + 5))
                entered++;
            uint64_t span = entered - done;
            uint64_t i = done + (span > 0 ? rand_below(&r, span) : 0);
            struct job_counts what = {.seen = 50, .acted = i, .failed = i % 2};
            if (i < entered && rand_below(&r, 3) == 0) {
                assert_int_equal(replay_window_tell(&w, i * 3 + 5, &what), !told[i]);
                told[i] = true;
            }
            while (done < entered && told[done])
                done++;
            assert_int_equal(w.left.seen, done);
            assert_int_equal(w.left.acted, done * (done - 1) / 2 * (done > 0));
            assert_int_equal(w.left.failed, done / 2);
            assert_int_equal(w.count, entered - done);
            uint64_t walked = entered * 3 + 4;
            assert_int_equal(replay_window_position(&w, walked),
                             done < entered ? done * 3 + 4 : walked);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_holds_so_many),
        cmocka_unit_test(any_order_gives_the_same_end),
    };
    return cmocka_run_group_tests_name("pipe/replay_window", tests, NULL, NULL);
}
