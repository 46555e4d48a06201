/* The timelines contract, line 5: a stamp is never called the same when an answer has become
 * another. */
#include "base/rand.h"
#include "views_cases.h"

static bool is_same(struct views *v, uint64_t viewer, struct view_stamp *stamp)
{
    bool same = true;
    assert_int_equal(timelines_stamp(v->timelines, viewer, stamp, &same), OK);
    return same;
}

/* A driver may be unable to tell; then it must say so for every account. */
static bool driver_can_tell(struct views *v)
{
    struct view_stamp stamp = {{0}};
    bool same;
    account(v, 1);
    return timelines_stamp(v->timelines, 1, &stamp, &same) != ERR_NEEDS_TRUTH;
}

void a_stamp_is_the_same_while_nothing_happens(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    struct view_stamp stamp = {{0}};
    bool same = true;
    if (!driver_can_tell(v))
        return;
    assert_int_equal(timelines_stamp(v->timelines, 999, &stamp, &same), ERR_NOT_FOUND);
    follow(v, 1, 2);
    post_pulled(v, 2, 100);
    assert_false(is_same(v, 1, &stamp)); /* zeros are of no moment */
    assert_true(is_same(v, 1, &stamp));
    home(v, 1);
    sees(v, 1, 2);
    apply(v, VIEW_LAST_SEEN, true, 1, 0, NOW_MS + 1);
    assert_true(is_same(v, 1, &stamp));
    struct view_stamp of_another = {{0}};
    assert_false(is_same(v, 2, &of_another));
}

void every_change_of_a_viewer_shows_in_the_stamp(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    struct view_stamp stamp = {{0}};
    if (!driver_can_tell(v))
        return;
    is_same(v, 1, &stamp);
    follow(v, 1, 2);
    assert_false(is_same(v, 1, &stamp));
    apply(v, VIEW_MUTE, true, 1, 2, 0);
    assert_false(is_same(v, 1, &stamp));
    apply(v, VIEW_MUTE, false, 1, 2, 0);
    assert_false(is_same(v, 1, &stamp));
    fan_out(v, 2, 100);
    assert_false(is_same(v, 1, &stamp));
    fan_out(v, 2, 90); /* late */
    assert_false(is_same(v, 1, &stamp));
    struct members m = followers(v, 2);
    size_t removed;
    assert_int_equal(timelines_retract(v->timelines, 100, m.handles, m.n, &removed), OK);
    assert_false(is_same(v, 1, &stamp));
    fan_out(v, 2, 100); /* the same newest id and the same count as before the retraction */
    assert_false(is_same(v, 1, &stamp));
    assert_int_equal(timelines_backfill(v->timelines, 1, 2, (const uint64_t[]){80}, 1, 0), OK);
    assert_false(is_same(v, 1, &stamp));
    apply(v, VIEW_POST, true, 1, 110, DELIVERY_PUSH);
    assert_false(is_same(v, 1, &stamp));
    apply(v, VIEW_POST, false, 1, 110, 0);
    assert_false(is_same(v, 1, &stamp));
    unfollow(v, 1, 2);
    assert_false(is_same(v, 1, &stamp));
    assert_int_equal(timelines_forget(v->timelines, 1, 2, (const uint64_t[]){90, 80}, 2), OK);
    assert_false(is_same(v, 1, &stamp));
    size_t dropped;
    bool wrapped;
    assert_int_equal(timelines_sweep(v->timelines, NOW_MS + DAY_MS, 100, &dropped, &wrapped), OK);
    assert_false(is_same(v, 1, &stamp));
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    assert_int_equal(timelines_end(v->timelines, 1, NULL, 0, 0), OK);
    assert_false(is_same(v, 1, &stamp));
}

/* A full timeline keeps its count; every push shows nevertheless. */
static void fill_up(struct views *v, struct view_stamp *stamp)
{
    for (uint64_t i = 0; i < 3 * CAP; i++) {
        fan_out(v, 2, 1000 + i);
        assert_false(is_same(v, 1, stamp));
        fan_out(v, 2, 1000 + i);
        assert_true(is_same(v, 1, stamp)); /* pushed again: nothing changed */
    }
}

void changes_of_others_show_where_they_count(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    struct view_stamp stamp = {{0}};
    if (!driver_can_tell(v))
        return;
    follow(v, 1, 2);
    follow(v, 1, 3);
    is_same(v, 1, &stamp);
    post_pulled(v, 3, 100); /* a list appears */
    assert_false(is_same(v, 1, &stamp));
    post_pulled(v, 3, 101);
    assert_false(is_same(v, 1, &stamp));
    apply(v, VIEW_POST, false, 3, 101, 0);
    assert_false(is_same(v, 1, &stamp));
    apply(v, VIEW_HIDE, true, 3, 0, 0);
    assert_false(is_same(v, 1, &stamp));
    apply(v, VIEW_HIDE, false, 3, 0, 0);
    assert_false(is_same(v, 1, &stamp));
    post_pulled(v, 50, 102); /* of an author who is not followed */
    assert_true(is_same(v, 1, &stamp));
    follow(v, 51, 52);
    fan_out(v, 52, 103);
    assert_true(is_same(v, 1, &stamp));
    fill_up(v, &stamp);
}

/* As many ids as before, the same floor, and no read in between. */
void what_goes_and_comes_shows_nevertheless(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    struct view_stamp stamp = {{0}};
    if (!driver_can_tell(v))
        return;
    follow(v, 1, 2);
    fan_out(v, 2, 100);
    is_same(v, 1, &stamp);
    struct members m = followers(v, 2);
    size_t n;
    bool wrapped;
    assert_int_equal(timelines_retract(v->timelines, 100, m.handles, m.n, &n), OK);
    fan_out(v, 2, 101);
    assert_false(is_same(v, 1, &stamp));
    assert_int_equal(timelines_backfill(v->timelines, 1, 2, (const uint64_t[]){200, 199}, 2, 198),
                     OK);
    is_same(v, 1, &stamp);
    assert_int_equal(timelines_retract(v->timelines, 200, m.handles, m.n, &n), OK);
    assert_int_equal(timelines_backfill(v->timelines, 1, 2, (const uint64_t[]){201}, 1, 0), OK);
    assert_false(is_same(v, 1, &stamp));
    assert_int_equal(timelines_sweep(v->timelines, NOW_MS + DAY_MS, 100, &n, &wrapped), OK);
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){301, 300}, 2, 198), OK);
    assert_false(is_same(v, 1, &stamp));
}

/* ---- at random: whatever answers differently has another stamp ---- */

enum { CROWD = 8, STEPS = 6000, POSTS = 60 };

struct answers {
    uint64_t ids[CAP + CROWD * PULL_CAP];
    size_t n;
    uint64_t floor;
    bool visible[CROWD];
};

static void ask(struct views *v, uint64_t viewer, struct answers *a)
{
    uint64_t authors[CROWD];
    memset(a, 0, sizeof *a);
    for (size_t i = 0; i < CROWD; i++)
        authors[i] = i + 1;
    assert_int_equal(timelines_home(v->timelines, viewer, UINT64_MAX, a->ids, COUNT_OF(a->ids),
                                    &a->n, &a->floor),
                     OK);
    memset(a->ids + a->n, 0, (COUNT_OF(a->ids) - a->n) * sizeof a->ids[0]);
    assert_int_equal(graph_visible(v->graph, viewer, authors, CROWD, a->visible), OK);
}

static uint64_t someone(struct rand *r)
{
    return 1 + rand_below(r, CROWD);
}

static void rebuild(struct views *v, struct rand *r, uint64_t viewer, uint64_t newest)
{
    const uint64_t ids[] = {newest + 1, newest / 2 + 1};
    bool all = rand_below(r, 2);
    if (rand_below(r, 2)) {
        (void)timelines_begin(v->timelines, viewer);
        return;
    }
    (void)timelines_end(v->timelines, viewer, ids, 2, all ? 0 : newest / 2);
}

static void change_something(struct views *v, struct rand *r, uint64_t *newest)
{
    uint64_t a = someone(r), b = someone(r);
    uint64_t old = *newest > POSTS ? *newest - rand_below(r, POSTS) : 1;
    struct members m;
    size_t n;
    bool wrapped;
    *newest += 2;
    switch (rand_below(r, 14)) {
    case 0:
        apply(v, VIEW_FOLLOW, rand_below(r, 3) > 0, a, b, 0);
        break;
    case 1:
        apply(v, VIEW_MUTE, rand_below(r, 2), a, b, 0);
        break;
    case 2:
        apply(v, VIEW_HIDE, rand_below(r, 2), a, 0, 0);
        break;
    case 3:
        apply(v, VIEW_POST, true, a, *newest, DELIVERY_PUSH);
        break;
    case 4:
        post_pulled(v, 1 + a % 3, *newest);
        break;
    case 5:
        apply(v, VIEW_POST, false, a, old, 0);
        break;
    case 6:
        fan_out(v, a, old);
        break;
    case 7:
        m = followers(v, a);
        assert_int_equal(timelines_retract(v->timelines, old, m.handles, m.n, &n), OK);
        break;
    case 8:
        (void)timelines_backfill(v->timelines, a, b, (const uint64_t[]){old + 1}, 1,
                                 rand_below(r, 3) ? 0 : old);
        break;
    case 9:
        (void)timelines_forget(v->timelines, a, b, (const uint64_t[]){old}, 1);
        break;
    case 10:
        if (rand_below(r, 10) == 0)
            assert_int_equal(timelines_sweep(v->timelines, NOW_MS + DAY_MS, 2, &n, &wrapped), OK);
        break;
    case 11:
        rebuild(v, r, a, old);
        break;
    default:
        fan_out(v, a, *newest);
    }
}

void a_stamp_never_overlooks_a_difference(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    static struct answers before[CROWD + 1], after;
    struct view_stamp stamps[CROWD + 1] = {{{0}}};
    if (!driver_can_tell(v))
        return;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct rand r;
        uint64_t newest = seed * 1000000;
        size_t same = 0;
        rand_seed(&r, seed);
        for (uint64_t i = 1; i <= CROWD; i++)
            account(v, i);
        for (uint64_t i = 1; i <= CROWD; i++) {
            is_same(v, i, &stamps[i]);
            ask(v, i, &before[i]);
        }
        for (int step = 0; step < STEPS; step++) {
            for (uint64_t changes = rand_below(&r, 3); changes > 0; changes--)
                change_something(v, &r, &newest);
            change_something(v, &r, &newest);
            for (uint64_t i = 1; i <= CROWD; i++) {
                ask(v, i, &after);
                bool differs = memcmp(&after, &before[i], sizeof after) != 0;
                bool called_same = is_same(v, i, &stamps[i]);
                assert_false(differs && called_same);
                same += called_same;
                before[i] = after;
            }
        }
        assert_true(same > STEPS); /* and it is of some use */
    }
}
