/* The views contract: engines that outlive the process and are shared by others. */
#include "views_cases.h"

/* ---- 10 and 11 ---- */

/* Nothing to follow here for an engine of this process alone. */
static bool is_remote(const struct fixture *f)
{
    const struct views *v = f->v;
    assert_int_equal(v->remote, f->engine->lasting);
    assert_int_equal(v->ops->clear != NULL, v->remote);
    assert_int_equal(v->ops->loaded != NULL, v->remote);
    assert_int_equal(v->ops->is_complete != NULL, v->remote);
    assert_int_equal(v->ops->doubt != NULL, v->remote);
    return v->remote;
}

static bool is_complete(struct views *v)
{
    bool complete = false;
    assert_int_equal(views_is_complete(v, &complete), OK);
    return complete;
}

static void assert_says_that_it_lost_everything(struct views *v)
{
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    uint64_t ids[4], author = 9;
    bool visible;
    size_t n = 7;
    assert_int_equal(home(v, 1).floor, UINT64_MAX);
    assert_int_equal(home(v, 1).n, 0);
    assert_int_equal(home_below(v, 1, 15, 10).floor, UINT64_MAX);
    assert_int_equal(home(v, 4711).floor, UINT64_MAX); /* who exists is not known */
    assert_int_equal(views_visible(v, 1, &author, 1, &visible), ERR_NEEDS_TRUTH);
    assert_int_equal(views_audience(v, 9, &cursor, ids, 4, &n), ERR_UNAVAILABLE);
    assert_int_equal(n, 0);
    struct audience_page page = {.author = 9, .members = ids, .max = 4, .n = 7};
    views_audiences(v, &page, 1);
    assert_int_equal(page.error, ERR_UNAVAILABLE);
    assert_int_equal(page.n, 0);
    assert_false(page.cursor.end);
    assert_int_equal(views_rebuild_begin(v, 1), ERR_CONFLICT);
    assert_int_equal(views_rebuild_anew(v, 1), ERR_CONFLICT);
    assert_int_equal(views_neighbours(v, 1, false, 0, ids, 4, &n), ERR_NEEDS_TRUTH);
}

void a_cleared_engine_has_lost_everything(void **state)
{
    struct fixture *f = *state;
    if (!is_remote(f))
        return;
    follow(f->v, 1, 9);
    fan_out(f->v, 9, 10);
    post_pulled(f->v, 9, 20);
    apply(f->v, VIEW_HIDE, true, 3, 0, 0);
    assert_true(is_complete(f->v));
    assert_int_equal(views_clear(f->v), OK);
    assert_false(is_complete(f->v));
    assert_says_that_it_lost_everything(f->v);
    /* Told again meanwhile: a change is taken, and does not look like the whole. */
    follow(f->v, 1, 9);
    assert_says_that_it_lost_everything(f->v);
    assert_int_equal(views_loaded(f->v), OK);
    assert_true(is_complete(f->v));
    assert_true(sees(f->v, 1, 9));
    assert_int_equal(home(f->v, 1).floor, UINT64_MAX); /* to be rebuilt: nobody may believe it */
    assert_int_equal(views_rebuild_begin(f->v, 1), OK);
    assert_int_equal(views_rebuild_end(f->v, 1, NULL, 0, 0), OK);
    assert_int_equal(home(f->v, 1).n, 0); /* nothing of before: neither pushed nor pulled */
    follow(f->v, 1, 3);
    assert_true(sees(f->v, 1, 3));
    uint64_t ids[4];
    size_t n;
    assert_int_equal(views_neighbours(f->v, 3, true, 0, ids, 4, &n), OK);
    assert_int_equal(n, 1);
    reopen(f);
    assert_int_equal(f->v->loaded_position, VIEWS_LASTING);
}

void a_cleared_engine_is_not_found_complete(void **state)
{
    struct fixture *f = *state;
    if (!is_remote(f))
        return;
    assert_int_equal(views_clear(f->v), OK);
    assert_int_equal(views_save(f->v, 1), OK); /* makes nothing complete */
    assert_false(is_complete(f->v));
    assert_int_equal(views_clear(f->v), OK);
    assert_false(is_complete(f->v));
}

void a_doubted_engine_answers_as_one_that_lost_everything(void **state)
{
    struct fixture *f = *state;
    if (!is_remote(f))
        return;
    follow(f->v, 1, 9);
    fan_out(f->v, 9, 10);
    dropped_account(f->v, 2);
    assert_int_equal(views_rebuild_begin(f->v, 2), OK);
    views_doubt(f->v, true);
    assert_says_that_it_lost_everything(f->v);
    assert_true(is_complete(f->v)); /* doubted or not */
    assert_says_that_it_lost_everything(f->v);
    /* What was begun before is not installed; what is changed meanwhile counts. */
    assert_int_equal(views_rebuild_end(f->v, 2, (const uint64_t[]){5}, 1, 0), ERR_CONFLICT);
    unfollow(f->v, 1, 9);
    account(f->v, 8); /* may be an old one whose beginning is told again */
    assert_int_equal(views_save(f->v, 1), OK);
    views_doubt(f->v, false);
    HOME_IS(f->v, 1, 0, 10);
    assert_false(sees(f->v, 1, 9));
    assert_int_equal(home(f->v, 2).floor, UINT64_MAX);
    assert_int_equal(home(f->v, 8).floor, UINT64_MAX);
}

void doubt_is_of_one_process(void **state)
{
    struct fixture *f = *state;
    if (!is_remote(f))
        return;
    follow(f->v, 1, 9);
    fan_out(f->v, 9, 10);
    struct views *other = f->engine->open(&f->place);
    views_doubt(f->v, true);
    assert_says_that_it_lost_everything(f->v);
    HOME_IS(other, 1, 0, 10);
    assert_int_equal(views_clear(other), OK); /* and clearing is of all */
    assert_says_that_it_lost_everything(other);
    views_doubt(f->v, false);
    assert_says_that_it_lost_everything(f->v);
    assert_false(is_complete(f->v));
    assert_int_equal(views_loaded(other), OK);
    assert_true(is_complete(f->v));
    views_free(other);
}

void saves_go_on_while_nobody_dies(void **state)
{
    struct fixture *f = *state;
    if (!is_remote(f))
        return;
    struct views *other = f->engine->open(&f->place);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(views_save(f->v, i), OK);
        assert_int_equal(views_save(other, i), OK);
    }
    views_free(other);
}
