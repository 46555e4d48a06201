/* The views contract: what is saved comes back. */
#include "views_cases.h"

/* ---- 8: saving ---- */

/* What a state that outlives its process reports as the position of any save. */
static uint64_t position_of(const struct fixture *f, uint64_t saved)
{
    return f->engine->lasting ? VIEWS_LASTING : saved;
}

void a_saved_state_comes_back(void **state)
{
    struct fixture *f = *state;
    struct views *v = f->v;
    assert_int_equal(v->loaded_position, 0); /* nothing was there yet */
    for (uint64_t i = 1; i <= 300; i++) {
        account(v, i);
        follow(v, i, 1000);
        follow(v, i, i % 7 + 1);
        apply(v, VIEW_SEEN, true, i, 0, NOW_MS + (int64_t)i * 1000);
    }
    apply(v, VIEW_MUTE, true, 3, 1000, 0);
    apply(v, VIEW_HIDE, true, 6, 0, 0);
    dropped_account(v, 2000);
    for (uint64_t id = 1; id <= CAP + 10; id++)
        fan_out(v, 1000, id * 10);
    for (uint64_t id = 1; id <= PULL_CAP + 3; id++)
        post_pulled(v, 5, id * 10 + 5);
    dropped_account(v, 2001);
    assert_int_equal(views_rebuild_begin(v, 2001), OK);
    struct page before = home(v, 4);
    assert_int_equal(views_save(v, 4711), OK);
    struct view_stats s1, s2;
    views_stats(v, &s1);
    assert_int_equal(s1.saved_position, position_of(f, 4711));
    assert_true(s1.save_bytes > 0 || f->engine->lasting);
    if (!f->engine->lasting)
        post_pulled(v, 5, 99999); /* after the save: not in it */
    reopen(f);
    v = f->v;
    assert_int_equal(v->loaded_position, position_of(f, 4711));
    views_stats(v, &s2);
    assert_int_equal(s2.accounts, s1.accounts);
    assert_int_equal(s2.follows, s1.follows);
    assert_int_equal(s2.entries, s1.entries);
    assert_int_equal(s2.pull_lists, s1.pull_lists);
    if (!f->engine->lasting) /* what was being rebuilt */
        assert_int_equal(s2.dropped, s1.dropped + 1);
    assert_int_equal(s2.saved_position, position_of(f, 4711));
    struct page after = home(v, 4);
    assert_int_equal(after.n, before.n);
    assert_int_equal(after.floor, before.floor);
    assert_memory_equal(after.ids, before.ids, before.n * sizeof before.ids[0]);
    assert_false(sees(v, 3, 1000));
    assert_true(sees(v, 4, 1000));
    assert_false(sees(v, 5, 6));
    assert_int_equal(followers(v, 1000).n, 300);
    struct audience_cursor active = {AUDIENCE_ACTIVE, NOW_MS + 250000, NOW_MS + 999000, 0, false};
    assert_int_equal(walk(v, 1000, active, 64).n, 51);
    assert_int_equal(views_rebuild_begin(v, 2001), OK);
    assert_int_equal(home(v, 2000).floor, UINT64_MAX);
}

void without_a_save_nothing_comes_back(void **state)
{
    struct fixture *f = *state;
    account(f->v, 1);
    reopen(f);
    assert_int_equal(f->v->loaded_position, position_of(f, 0));
    struct view_stats s;
    views_stats(f->v, &s);
    assert_int_equal(s.accounts, f->engine->lasting ? 1 : 0);
}

void the_last_save_counts(void **state)
{
    struct fixture *f = *state;
    follow(f->v, 1, 9);
    fan_out(f->v, 9, 10);
    assert_int_equal(views_save(f->v, 1), OK);
    fan_out(f->v, 9, 20);
    assert_int_equal(views_save(f->v, 2), OK);
    reopen(f);
    assert_int_equal(f->v->loaded_position, position_of(f, 2));
    HOME_IS(f->v, 1, 0, 20, 10);
    fan_out(f->v, 9, 20); /* replayed: harmless */
    fan_out(f->v, 9, 30);
    HOME_IS(f->v, 1, 0, 30, 20, 10);
}
