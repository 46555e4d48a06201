/* The graph contract: visibility, walks over followers, neighbours. (Members of groups are met in
 * inboxes_cases.c.) */
#include "base/id.h"
#include "views_cases.h"

/* ---- 1: what is hidden stays hidden ---- */

void removals_count_at_once(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    follow(v, 1, 2);
    assert_true(sees(v, 1, 2));
    assert_false(sees(v, 2, 1));
    apply(v, VIEW_MUTE, true, 1, 2, 0);
    assert_false(sees(v, 1, 2));
    apply(v, VIEW_MUTE, false, 1, 2, 0);
    assert_true(sees(v, 1, 2));
    apply(v, VIEW_HIDE, true, 2, 0, 0);
    assert_false(sees(v, 1, 2));
    assert_true(sees(v, 2, 2)); /* only to itself */
    apply(v, VIEW_HIDE, false, 2, 0, 0);
    assert_true(sees(v, 1, 2));
    unfollow(v, 1, 2);
    assert_false(sees(v, 1, 2));
}

void strangers_are_not_visible(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    uint64_t authors[200];
    bool out[200];
    for (size_t i = 0; i < 200; i++) {
        authors[i] = i + 1;
        if (i % 3 == 0)
            follow(v, 500, i + 1);
    }
    assert_int_equal(graph_visible(v->graph, 500, authors, 200, out), OK);
    for (size_t i = 0; i < 200; i++)
        assert_int_equal(out[i], i % 3 == 0);
    assert_false(sees(v, 999, 1)); /* unknown viewer */
    assert_false(sees(v, 500, 999));
    assert_true(sees(v, 999, 999));
}

/* ---- 2: the audience ---- */

void the_audience_is_everyone_once(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= PEOPLE; i++)
        follow(v, i * 10, 5);
    for (size_t page = 1; page <= 500; page += page < 10 ? 1 : 97) {
        struct members m = walk(v, 5, (struct audience_cursor){.part = AUDIENCE_ALL},
                                page > PEOPLE ? PEOPLE : page);
        assert_int_equal(m.n, PEOPLE);
        for (size_t i = 1; i < m.n; i++)
            assert_true(m.handles[i] > m.handles[i - 1]);
    }
    struct members m = followers(v, 5);
    assert_int_equal(push(v, 7, &m), PEOPLE);
    for (uint64_t i = 1; i <= PEOPLE; i++)
        HOME_IS(v, i * 10, 0, 7);
}

void the_last_page_says_that_it_is_the_last(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 100; i++)
        follow(v, i * 10, 5);
    assert_int_equal(walk(v, 5, (struct audience_cursor){.part = AUDIENCE_ALL}, 100).pages, 1);
    assert_int_equal(walk(v, 5, (struct audience_cursor){.part = AUDIENCE_ALL}, 50).pages, 2);
    assert_int_equal(walk(v, 5, (struct audience_cursor){.part = AUDIENCE_ALL}, 99).pages, 2);
    struct members none = walk(v, 777, (struct audience_cursor){.part = AUDIENCE_ALL}, 10);
    assert_int_equal(none.n, 0);
    assert_int_equal(none.pages, 1);
}

void who_follows_throughout_is_met_though_others_come_and_go(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 200; i++)
        follow(v, i, 1000);
    struct members all = followers(v, 1000);
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    struct members met = {.n = 0};
    for (uint64_t i = 1; !cursor.end; i++) {
        size_t n;
        assert_int_equal(graph_audience(v->graph, 1000, &cursor, met.handles + met.n, 10, &n), OK);
        met.n += n;
        if (i <= 50)
            unfollow(v, i * 2, 1000); /* the even ones go, from the beginning on */
        follow(v, 2000 + i, 1000);
    }
    size_t odd = 0;
    for (size_t i = 0; i < met.n; i++)
        for (size_t k = 0; k < all.n; k += 2) /* handles of 1, 3, 5 … */
            odd += met.handles[i] == all.handles[k];
    assert_int_equal(odd, 100);
}

void active_and_rest_are_everyone(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 300; i++) {
        follow(v, i, 1000);
        apply(v, VIEW_LAST_SEEN, true, i, 0, NOW_MS - (int64_t)i * DAY_MS);
    }
    struct audience_cursor active = {AUDIENCE_ACTIVE, NOW_MS - 100 * DAY_MS, NOW_MS, 0, false};
    struct audience_cursor rest = active;
    rest.part = AUDIENCE_REST;
    struct members a = walk(v, 1000, active, 7);
    assert_int_equal(a.n, 100);
    assert_int_equal(push(v, 60, &a), 100);
    HOME_IS(v, 100, 0, 60);
    assert_int_equal(home(v, 101).n, 0);
    /* A person becomes active between the two walks, or during the first. */
    apply(v, VIEW_LAST_SEEN, true, 200, 0, NOW_MS + 1);
    apply(v, VIEW_LAST_SEEN, true, 201, 0, NOW_MS + 400);
    apply(v, VIEW_LAST_SEEN, true, 202, 0, NOW_MS);
    struct members r = walk(v, 1000, rest, 7);
    assert_int_equal(push(v, 60, &r), 200);
    for (uint64_t i = 1; i <= 300; i++)
        HOME_IS(v, i, 0, 60);
}

void who_wakes_up_after_the_clock_was_set_back_is_met(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 3; i++) {
        follow(v, i, 1000);
        apply(v, VIEW_LAST_SEEN, true, i, 0, NOW_MS - (int64_t)i * 10 * DAY_MS);
    }
    struct audience_cursor active = {AUDIENCE_ACTIVE, NOW_MS - 15 * DAY_MS, NOW_MS, 0, false};
    struct audience_cursor rest = active;
    rest.part = AUDIENCE_REST;
    struct members a = walk(v, 1000, active, 7);
    assert_int_equal(push(v, 60, &a), 1);
    /* The first walk has passed them by; they come, and by the clock it is an hour earlier. */
    apply(v, VIEW_LAST_SEEN, true, 2, 0, NOW_MS - DAY_MS / 24);
    struct members r = walk(v, 1000, rest, 7);
    assert_int_equal(push(v, 60, &r), 2);
    for (uint64_t i = 1; i <= 3; i++)
        HOME_IS(v, i, 0, 60);
}

/* ---- the rest ---- */

void an_extent_counts_whom_a_walk_has_passed(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    uint64_t members[7], passed, all, met = 0;
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    size_t n;
    for (uint64_t i = 1; i <= 300; i++)
        follow(v, i, 1000);
    assert_int_equal(graph_extent(v->graph, 1000, 0, &passed, &all), OK);
    assert_int_equal(passed, 0);
    assert_int_equal(all, 300);
    while (!cursor.end) {
        assert_int_equal(graph_audience(v->graph, 1000, &cursor, members, 7, &n), OK);
        met += n;
        assert_int_equal(graph_extent(v->graph, 1000, cursor.after, &passed, &all), OK);
        assert_int_equal(passed, met);
        assert_int_equal(all, 300);
    }
    assert_int_equal(graph_extent(v->graph, 777, 0, &passed, &all), OK);
    assert_int_equal(all, 0);
}

void a_sweep_goes_in_slices_and_around(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 100; i++)
        apply(v, VIEW_ACCOUNT, true, i, 0, NOW_MS - (i % 2 ? 40 * DAY_MS : 0));
    size_t total = 0, slices = 0;
    bool wrapped = false;
    while (!wrapped) {
        size_t dropped;
        assert_int_equal(
            timelines_sweep(v->timelines, NOW_MS - 30 * DAY_MS, 30, &dropped, &wrapped), OK);
        assert_true(dropped <= 30);
        total += dropped;
        slices++;
    }
    assert_int_equal(total, 50);
    assert_true(slices >= 4);
    for (uint64_t i = 1; i <= 100; i++)
        assert_int_equal(home(v, i).floor, i % 2 ? UINT64_MAX : 0);
    size_t dropped;
    assert_int_equal(timelines_sweep(v->timelines, NOW_MS - 30 * DAY_MS, 1000, &dropped, &wrapped),
                     OK);
    assert_int_equal(dropped, 0);
    assert_true(wrapped);
}

void neighbours_come_by_id(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 0; i < 200; i++) {
        follow(v, (i * 37 % 200 + 1) * 5, 7777);
        follow(v, 8888, (i * 73 % 200 + 1) * 5);
    }
    for (int side = 0; side < 2; side++) {
        uint64_t after = 0, ids[17], expected = 5;
        size_t n;
        do {
            assert_int_equal(
                graph_neighbours(v->graph, side ? 8888 : 7777, !side, after, ids, 17, &n), OK);
            for (size_t i = 0; i < n; i++, expected += 5)
                assert_int_equal(ids[i], expected);
            after = n > 0 ? ids[n - 1] : after;
        } while (n > 0);
        assert_int_equal(expected, 1005);
    }
    uint64_t id;
    size_t n;
    assert_int_equal(graph_neighbours(v->graph, 123456, true, 0, &id, 1, &n), ERR_NOT_FOUND);
}
