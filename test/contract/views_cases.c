/* The views contract: changes, what is saved comes back, what is lost is not believed. */
#include "views_cases.h"
#include "base/id.h"

/* ---- 1: changes ---- */

void changes_can_be_applied_again(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (int i = 0; i < 2; i++) {
        account(v, 1);
        follow(v, 1, 2);
        apply(v, VIEW_MUTE, true, 1, 3, 0);
        post_pulled(v, 2, 100);
        apply(v, VIEW_POST, true, 2, 101, DELIVERY_PUSH);
    }
    struct view_stats s;
    views_stats(v, &s);
    assert_int_equal(s.accounts, 3);
    assert_int_equal(s.follows, 1);
    assert_int_equal(s.pull_lists, 1);
    HOME_IS(v, 2, 0, 101, 100);
    HOME_IS(v, 1, 0, 100);
}

void changes_are_seen_in_order(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    const struct view_change changes[] = {
        {VIEW_FOLLOW, true, 1, 2, 0}, {VIEW_FOLLOW, false, 1, 2, 0}, {VIEW_FOLLOW, true, 1, 3, 0},
        {VIEW_MUTE, true, 1, 3, 0},   {VIEW_MUTE, false, 1, 3, 0},
    };
    assert_int_equal(views_apply(v, changes, COUNT_OF(changes)), OK);
    assert_false(sees(v, 1, 2));
    assert_true(sees(v, 1, 3));
    assert_int_equal(followers(v, 2).n, 0);
    assert_int_equal(followers(v, 3).n, 1);
}

void an_account_that_exists_is_not_reset(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    account(v, 1);
    follow(v, 2, 1);
    fan_out(v, 1, 50);
    account(v, 2);
    dropped_account(v, 2);
    HOME_IS(v, 2, 0, 50);
    assert_true(sees(v, 2, 1));
}

static void apply_event(struct views *v, enum view_change_kind kind, bool on, uint64_t event)
{
    struct view_change c = {kind, on, 1, 2, 0, event};
    assert_int_equal(views_apply(v, &c, 1), OK);
}

/* Several nodes apply their own commits, and once more those of a dead one: the event decides which
 * came last. A driver that gets changes in the order of commits is never asked. */
void the_latest_event_counts_in_whatever_order(void **state)
{
    struct fixture *f = *state;
    struct views *v = f->v;
    if (!f->driver->lasting)
        return;
    const uint64_t first = id_at(NOW_MS, 1, 7), second = id_at(NOW_MS, 900, 8),
                   third = id_at(NOW_MS + 1, 0, 0);
    account(v, 1);
    account(v, 2);
    apply_event(v, VIEW_FOLLOW, false, second);
    apply_event(v, VIEW_FOLLOW, true, first); /* late */
    assert_false(sees(v, 1, 2));
    assert_int_equal(followers(v, 2).n, 0);
    follow(v, 1, 2); /* as read from truth before the unfollow */
    assert_false(sees(v, 1, 2));
    apply_event(v, VIEW_FOLLOW, true, third);
    apply_event(v, VIEW_FOLLOW, false, second); /* again */
    assert_true(sees(v, 1, 2));
    assert_int_equal(followers(v, 2).n, 1);
    apply_event(v, VIEW_MUTE, true, second);
    apply_event(v, VIEW_MUTE, false, first);
    assert_false(sees(v, 1, 2));
    apply_event(v, VIEW_MUTE, false, third);
    assert_true(sees(v, 1, 2));
    struct view_change hide = {VIEW_HIDE, true, 2, 0, 0, second}, restore = hide;
    restore.on = false;
    restore.event = first;
    assert_int_equal(views_apply(v, &hide, 1), OK);
    assert_int_equal(views_apply(v, &restore, 1), OK);
    assert_false(sees(v, 1, 2));
    restore.event = third;
    assert_int_equal(views_apply(v, &restore, 1), OK);
    assert_int_equal(views_apply(v, &hide, 1), OK);
    assert_true(sees(v, 1, 2));
}

/* ---- loading ---- */

enum { CROWD = 60, EACH_FOLLOWS = 40, LOADED = CROWD * EACH_FOLLOWS };

/* As a loader does it: no event, many at once; or as an import does, an event for each follower.
 * Person p (1 …) follows the next ones, around. One follows itself, which is nothing. */
static void load_crowd_at(struct views *v, int64_t at_ms)
{
    struct view_change *changes = calloc(LOADED + 1, sizeof *changes);
    size_t n = 0;
    assert_non_null(changes);
    for (uint64_t p = 0; p < CROWD; p++) {
        account(v, p + 1);
        for (uint64_t k = 1; k <= EACH_FOLLOWS; k++)
            changes[n++] = (struct view_change){.kind = VIEW_FOLLOW,
                                                .on = true,
                                                .account = p + 1,
                                                .other = (p + k) % CROWD + 1,
                                                .event = at_ms ? id_at(at_ms, 1, (uint32_t)p) : 0};
    }
    changes[n++] = (struct view_change){
        .kind = VIEW_FOLLOW, .on = true, .account = 7, .other = 7, .event = changes[0].event};
    assert_int_equal(views_apply(v, changes, n), OK);
    free(changes);
}

static void load_crowd(struct views *v)
{
    load_crowd_at(v, 0);
}

static void assert_crowd(struct views *v, uint64_t without)
{
    struct view_stats stats;
    for (uint64_t p = 0; p < CROWD; p++) {
        assert_int_equal(followers(v, p + 1).n, EACH_FOLLOWS - (p + 1 == without));
        for (uint64_t k = 1; k < CROWD; k++)
            assert_int_equal(sees(v, p + 1, (p + k) % CROWD + 1),
                             k <= EACH_FOLLOWS && !(p == 0 && (p + k) % CROWD + 1 == without));
    }
    views_stats(v, &stats);
    assert_int_equal(stats.accounts, CROWD);
    assert_int_equal(stats.follows, LOADED - (without > 0));
}

void many_follows_at_once_are_each_there(void **state)
{
    struct fixture *f = *state;
    account(f->v, 1);
    account(f->v, 5);
    post_pulled(f->v, 5, 1000); /* all who are loaded must learn of it */
    load_crowd(f->v);
    assert_crowd(f->v, 0);
    for (uint64_t p = 1; p <= CROWD; p++) {
        struct page page = home(f->v, p);
        assert_int_equal(page.n, p == 5 || sees(f->v, p, 5));
    }
    load_crowd(f->v); /* again: no difference */
    assert_crowd(f->v, 0);
}

/* Somebody unfollowed after the loader had read its slice. */
void what_is_loaded_late_undoes_no_event(void **state)
{
    struct fixture *f = *state;
    if (!f->v->remote)
        return; /* fed in the order of commits */
    account(f->v, 1);
    account(f->v, 3);
    const struct view_change gone = {
        .kind = VIEW_FOLLOW, .account = 1, .other = 3, .event = UINT64_C(9) << 40};
    assert_int_equal(views_apply(f->v, &gone, 1), OK);
    load_crowd(f->v);
    assert_crowd(f->v, 3);
}

void many_follows_with_events_are_each_there(void **state)
{
    struct fixture *f = *state;
    account(f->v, 1);
    account(f->v, 5);
    post_pulled(f->v, 5, 1000);
    load_crowd_at(f->v, NOW_MS);
    assert_crowd(f->v, 0);
    for (uint64_t p = 1; p <= CROWD; p++)
        assert_int_equal(home(f->v, p).n, p == 5 || sees(f->v, p, 5));
    load_crowd_at(f->v, NOW_MS); /* again, as the leader does */
    assert_crowd(f->v, 0);
}

/* An unfollow that is later than an import is not undone by it, one that is earlier undoes nothing;
 * and both are known to each other, whichever comes first. */
void the_latest_event_counts_among_many_follows(void **state)
{
    struct fixture *f = *state;
    if (!f->driver->lasting)
        return; /* fed in the order of commits */
    struct view_change gone = {
        .kind = VIEW_FOLLOW, .account = 1, .other = 3, .event = id_at(NOW_MS + 5, 0, 0)};
    account(f->v, 1);
    account(f->v, 3);
    assert_int_equal(views_apply(f->v, &gone, 1), OK);
    load_crowd_at(f->v, NOW_MS); /* late */
    assert_crowd(f->v, 3);
    load_crowd_at(f->v, NOW_MS + 10);
    assert_crowd(f->v, 0);
    assert_int_equal(views_apply(f->v, &gone, 1), OK); /* late itself */
    assert_crowd(f->v, 0);
    load_crowd_at(f->v, NOW_MS); /* later ones came since: no difference */
    assert_int_equal(views_apply(f->v, &gone, 1), OK);
    assert_crowd(f->v, 0);
    gone.event = id_at(NOW_MS + 20, 0, 0);
    assert_int_equal(views_apply(f->v, &gone, 1), OK);
    assert_crowd(f->v, 3);
}

/* ---- 2: saving ---- */

/* What a state that outlives its process reports as the position of any save. */
static uint64_t position_of(const struct fixture *f, uint64_t saved)
{
    return f->driver->lasting ? VIEWS_LASTING : saved;
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
        apply(v, VIEW_LAST_SEEN, true, i, 0, NOW_MS + (int64_t)i * 1000);
    }
    apply(v, VIEW_MUTE, true, 3, 1000, 0);
    apply(v, VIEW_HIDE, true, 6, 0, 0);
    dropped_account(v, 2000);
    for (uint64_t id = 1; id <= CAP + 10; id++)
        fan_out(v, 1000, id * 10);
    for (uint64_t id = 1; id <= PULL_CAP + 3; id++)
        post_pulled(v, 5, id * 10 + 5);
    dropped_account(v, 2001);
    assert_int_equal(timelines_begin(v->timelines, 2001), OK);
    struct page before = home(v, 4);
    assert_int_equal(views_save(v, 4711), OK);
    struct view_stats s1, s2;
    views_stats(v, &s1);
    assert_int_equal(s1.saved_position, position_of(f, 4711));
    assert_true(s1.save_bytes > 0 || f->driver->lasting);
    if (!f->driver->lasting)
        post_pulled(v, 5, 99999); /* after the save: not in it */
    reopen(f);
    v = f->v;
    assert_int_equal(v->loaded_position, position_of(f, 4711));
    views_stats(v, &s2);
    assert_int_equal(s2.accounts, s1.accounts);
    assert_int_equal(s2.follows, s1.follows);
    assert_int_equal(s2.entries, s1.entries);
    assert_int_equal(s2.pull_lists, s1.pull_lists);
    if (!f->driver->lasting) /* rebuilds under way */
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
    assert_int_equal(timelines_begin(v->timelines, 2001), OK);
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
    assert_int_equal(s.accounts, f->driver->lasting ? 1 : 0);
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

/* ---- 3 to 5: lost, cleared, suspect ---- */

/* Are there others who use the same state? */
static bool is_remote(const struct fixture *f)
{
    assert_int_equal(f->v->remote, f->driver->lasting);
    return f->v->remote;
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
    assert_int_equal(graph_visible(v->graph, 1, &author, 1, &visible), ERR_NEEDS_TRUTH);
    assert_int_equal(graph_audience(v->graph, 9, &cursor, ids, 4, &n), ERR_UNAVAILABLE);
    assert_int_equal(n, 0);
    struct audience_page page = {.author = 9, .members = ids, .max = 4, .n = 7};
    graph_audiences(v->graph, &page, 1);
    assert_int_equal(page.error, ERR_UNAVAILABLE);
    assert_int_equal(page.n, 0);
    assert_false(page.cursor.end);
    assert_int_equal(timelines_begin(v->timelines, 1), ERR_CONFLICT);
    assert_int_equal(timelines_anew(v->timelines, 1), ERR_CONFLICT);
    assert_int_equal(graph_neighbours(v->graph, 1, false, 0, ids, 4, &n), ERR_NEEDS_TRUTH);
}

void a_cleared_driver_has_lost_everything(void **state)
{
    struct fixture *f = *state;
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
    assert_int_equal(home(f->v, 1).floor, UINT64_MAX); /* to be rebuilt: no reader may trust it */
    assert_int_equal(timelines_begin(f->v->timelines, 1), OK);
    assert_int_equal(timelines_end(f->v->timelines, 1, NULL, 0, 0), OK);
    assert_int_equal(home(f->v, 1).n, 0); /* nothing of before: neither pushed nor pulled */
    follow(f->v, 1, 3);
    assert_true(sees(f->v, 1, 3));
    uint64_t ids[4];
    size_t n;
    assert_int_equal(graph_neighbours(f->v->graph, 3, true, 0, ids, 4, &n), OK);
    assert_int_equal(n, 1);
    if (!is_remote(f))
        return;
    reopen(f);
    assert_int_equal(f->v->loaded_position, VIEWS_LASTING);
}

void a_cleared_driver_is_not_found_complete(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(views_clear(f->v), OK);
    /* Makes nothing complete. */
    assert_int_equal(views_save(f->v, 1), is_remote(f) ? OK : ERR_CONFLICT);
    assert_false(is_complete(f->v));
    assert_int_equal(views_clear(f->v), OK);
    assert_false(is_complete(f->v));
}

void a_suspect_driver_answers_as_one_that_lost_everything(void **state)
{
    struct fixture *f = *state;
    follow(f->v, 1, 9);
    fan_out(f->v, 9, 10);
    dropped_account(f->v, 2);
    assert_int_equal(timelines_begin(f->v->timelines, 2), OK);
    views_suspect(f->v, true);
    assert_says_that_it_lost_everything(f->v);
    assert_true(is_complete(f->v)); /* suspect or not */
    assert_says_that_it_lost_everything(f->v);
    /* An earlier rebuild is not installed; changes meanwhile count. */
    assert_int_equal(timelines_end(f->v->timelines, 2, (const uint64_t[]){5}, 1, 0), ERR_CONFLICT);
    unfollow(f->v, 1, 9);
    account(f->v, 8); /* may be an old one whose creation is applied again */
    assert_int_equal(views_save(f->v, 1), OK);
    views_suspect(f->v, false);
    HOME_IS(f->v, 1, 0, 10);
    assert_false(sees(f->v, 1, 9));
    assert_int_equal(home(f->v, 2).floor, UINT64_MAX);
    assert_int_equal(home(f->v, 8).floor, UINT64_MAX);
}

void suspicion_is_of_one_process(void **state)
{
    struct fixture *f = *state;
    if (!is_remote(f))
        return;
    follow(f->v, 1, 9);
    fan_out(f->v, 9, 10);
    struct views *other = f->driver->open(&f->place);
    views_suspect(f->v, true);
    assert_says_that_it_lost_everything(f->v);
    HOME_IS(other, 1, 0, 10);
    assert_int_equal(views_clear(other), OK); /* and clearing is of all */
    assert_says_that_it_lost_everything(other);
    views_suspect(f->v, false);
    assert_says_that_it_lost_everything(f->v);
    assert_false(is_complete(f->v));
    assert_int_equal(views_loaded(other), OK);
    assert_true(is_complete(f->v));
    views_free(other);
}

void saves_succeed_while_no_master_dies(void **state)
{
    struct fixture *f = *state;
    if (!is_remote(f))
        return;
    struct views *other = f->driver->open(&f->place);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(views_save(f->v, i), OK);
        assert_int_equal(views_save(other, i), OK);
    }
    views_free(other);
}
