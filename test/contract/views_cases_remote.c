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
    assert_int_equal(v->ops->touch != NULL, v->remote);
    assert_int_equal(v->ops->tell != NULL, v->remote);
    assert_int_equal(v->ops->hear != NULL, v->remote);
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

/* ---- 19 ---- */

static struct news_heard heard; /* large */

static void tell(struct views *v, uint64_t group, int64_t first, int64_t last)
{
    struct group_news news = {group, first, last};
    assert_int_equal(views_tell(v, &news, 1), OK);
}

/* How many; all of them are of groups in rising order. */
static size_t hear_all(struct views *v, struct news_cursor *cursor, uint64_t next_group)
{
    size_t n = 0;
    do {
        assert_int_equal(views_hear(v, cursor, &heard), OK);
        assert_false(heard.missed);
        for (size_t i = 0; i < heard.n; i++, n++)
            assert_int_equal(heard.news[i].group, next_group + n);
    } while (heard.more);
    return n;
}

void what_is_told_is_heard_by_everybody_once_or_is_said_to_be_missed(void **state)
{
    struct fixture *f = *state;
    enum { MANY = 1000 };
    static struct group_news many[MANY];
    struct news_cursor mine = {{0}}, theirs = {{0}}, late = {{0}};
    if (!is_remote(f))
        return;
    struct views *other = f->engine->open(&f->place);
    for (int i = 0; i < 2; i++) { /* nothing was told, and nobody could say so */
        assert_int_equal(views_hear(f->v, &mine, &heard), OK);
        assert_true(heard.missed);
        assert_int_equal(heard.n, 0);
    }
    tell(other, 1, 4, 7);
    assert_int_equal(views_hear(f->v, &mine, &heard), OK);
    assert_true(heard.missed);
    assert_int_equal(views_hear(other, &theirs, &heard), OK);
    assert_int_equal(hear_all(f->v, &mine, 0), 0);
    late = mine;
    tell(other, 2, 5, INT64_MAX);
    tell(f->v, 3, 6, 6);
    assert_int_equal(hear_all(f->v, &mine, 2), 2);
    assert_int_equal(hear_all(f->v, &mine, 4), 0);
    assert_int_equal(views_hear(other, &theirs, &heard), OK);
    assert_int_equal(heard.n, 2);
    assert_int_equal(heard.news[0].first, 5);
    assert_int_equal(heard.news[0].last, INT64_MAX);
    assert_int_equal(heard.news[1].first, 6);
    assert_int_equal(heard.news[1].last, 6);
    for (size_t i = 0; i < MANY; i++)
        many[i] = (struct group_news){4 + i, 1, 2};
    assert_int_equal(views_tell(f->v, many, MANY), OK);
    assert_int_equal(hear_all(other, &theirs, 4), MANY);
    /* Whoever comes much later is not told everything, and knows. */
    size_t told = 0;
    do {
        assert_int_equal(views_tell(f->v, many, MANY), OK);
        theirs = late;
        assert_int_equal(views_hear(other, &theirs, &heard), OK);
        assert_true(++told < 10000);
    } while (!heard.missed);
    assert_int_equal(heard.n, 0);
    assert_int_equal(hear_all(other, &theirs, 0), 0);
    tell(f->v, 9, 1, 1);
    assert_int_equal(hear_all(other, &theirs, 9), 1);
    /* A loss is noticed as well. */
    assert_int_equal(views_clear(f->v), OK);
    assert_int_equal(views_hear(other, &theirs, &heard), OK);
    assert_true(heard.missed);
    assert_int_equal(views_loaded(f->v), OK);
    views_free(other);
}
