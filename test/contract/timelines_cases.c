/* The timelines contract: pushing, reading, rebuilding and backfilling timelines. */
#include "views_cases.h"

/* ---- 1: pushing ---- */

void a_push_adds_once(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    follow(v, 1, 9);
    follow(v, 2, 9);
    assert_int_equal(fan_out(v, 9, 10), 2);
    assert_int_equal(fan_out(v, 9, 10), 0);
    assert_int_equal(fan_out(v, 9, 30), 2);
    assert_int_equal(fan_out(v, 9, 20), 2); /* late */
    assert_int_equal(fan_out(v, 9, 20), 0);
    HOME_IS(v, 1, 0, 30, 20, 10);
    struct view_stats s;
    views_stats(v, &s);
    assert_int_equal(s.entries, 6);
}

/* Few and many members, none at all, the same person twice, a post that is there already. */
void several_posts_are_pushed_at_once(void **state)
{
    enum { MANY = 2100 };
    struct views *v = ((struct fixture *)*state)->v;
    static uint64_t crowd[MANY];
    for (uint64_t i = 0; i < PEOPLE; i++)
        follow(v, i + 1, 1000);
    struct members m = followers(v, 1000);
    assert_int_equal(m.n, PEOPLE);
    for (size_t i = 0; i < MANY; i++)
        crowd[i] = m.handles[i % PEOPLE];
    struct timeline_push pushes[] = {
        {.post = 30, .members = m.handles, .n = 2, .added = 99},
        {.post = 20, .members = m.handles, .n = 0, .added = 99},
        {.post = 10, .members = crowd, .n = MANY},
        {.post = 30, .members = m.handles + 1, .n = 2},
        {.post = 40, .members = m.handles, .n = PEOPLE},
    };
    assert_int_equal(timelines_push(v->timelines, pushes, COUNT_OF(pushes)), OK);
    const size_t added[] = {2, 0, PEOPLE, 1, PEOPLE};
    for (size_t i = 0; i < COUNT_OF(pushes); i++)
        assert_int_equal(pushes[i].added, added[i]);
    HOME_IS(v, 1, 0, 40, 30, 10);
    HOME_IS(v, 3, 0, 40, 30, 10);
    HOME_IS(v, 4, 0, 40, 10);
    HOME_IS(v, PEOPLE, 0, 40, 10);
    struct view_stats s;
    views_stats(v, &s);
    assert_int_equal(s.entries, 2 * PEOPLE + 3);
    assert_int_equal(timelines_push(v->timelines, pushes, COUNT_OF(pushes)), OK);
    for (size_t i = 0; i < COUNT_OF(pushes); i++)
        assert_int_equal(pushes[i].added, 0);
}

/* Each page as if it had been asked for alone: whole, exactly full, with more to come, empty, of a
 * part, from the middle. */
void several_audiences_are_read_at_once(void **state)
{
    enum { ROOM = 8 };
    struct views *v = ((struct fixture *)*state)->v;
    static const uint64_t counts[] = {0, 3, ROOM, ROOM + 1, 20};
    for (uint64_t a = 0; a < COUNT_OF(counts); a++) {
        account(v, 1000 + a);
        for (uint64_t i = 1; i <= counts[a]; i++)
            follow(v, i, 1000 + a);
    }
    struct audience_page pages[COUNT_OF(counts) + 2];
    uint64_t members[COUNT_OF(pages)][ROOM];
    for (size_t i = 0; i < COUNT_OF(pages); i++)
        pages[i] = (struct audience_page){.author = 1000 + i, .members = members[i], .max = ROOM};
    struct members all = followers(v, 1004);
    pages[5].author = pages[6].author = 1004;
    pages[5].cursor.after = all.handles[ROOM - 1];
    pages[6].cursor = (struct audience_cursor){
        .part = AUDIENCE_ACTIVE, .active_since_ms = NOW_MS + DAY_MS, .started_ms = NOW_MS};
    graph_audiences(v->graph, pages, COUNT_OF(pages));
    for (size_t i = 0; i < COUNT_OF(pages); i++) {
        struct audience_cursor cursor = {.part = pages[i].cursor.part,
                                         .active_since_ms = pages[i].cursor.active_since_ms,
                                         .started_ms = pages[i].cursor.started_ms};
        if (i == 5)
            cursor.after = all.handles[ROOM - 1];
        uint64_t alone[ROOM];
        size_t n = 0;
        enum err e = graph_audience(v->graph, pages[i].author, &cursor, alone, ROOM, &n);
        assert_int_equal(pages[i].error, OK);
        assert_int_equal(e, OK);
        assert_int_equal(pages[i].n, n);
        assert_memory_equal(members[i], alone, n * sizeof alone[0]);
        assert_int_equal(pages[i].cursor.end, cursor.end);
        assert_true(cursor.end || pages[i].cursor.after == cursor.after);
    }
    assert_int_equal(pages[2].n, ROOM);
    assert_true(pages[2].cursor.end);
    assert_false(pages[3].cursor.end);
    assert_int_equal(pages[5].n, ROOM);
}

void members_need_not_be_sorted(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 200; i++)
        follow(v, i, 1000);
    struct members m = followers(v, 1000), mixed = {.n = m.n};
    for (size_t i = 0; i < m.n; i++)
        mixed.handles[i] = m.handles[i * 77 % m.n];
    assert_int_equal(push(v, 5, &mixed), 200);
    assert_int_equal(push(v, 5, &m), 0);
}

void a_timeline_never_exceeds_its_cap(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    follow(v, 1, 9);
    assert_int_equal(v->cap, CAP);
    for (uint64_t id = 1; id <= CAP; id++)
        fan_out(v, 9, id * 10);
    struct page p = home(v, 1);
    assert_int_equal(p.n, CAP);
    assert_int_equal(p.floor, 0);
    for (uint64_t id = CAP + 1; id <= 5 * CAP; id++) {
        assert_int_equal(fan_out(v, 9, id * 10), 1);
        p = home(v, 1);
        assert_true(p.n <= CAP);
        assert_int_equal(p.ids[0], id * 10);
        assert_int_equal(p.ids[p.n - 1], p.floor + 10); /* complete above the floor */
    }
    /* At or below the floor: nothing. Between the floor and the oldest: it falls out at once. */
    uint64_t floor = p.floor;
    fan_out(v, 9, floor);
    fan_out(v, 9, floor - 10);
    fan_out(v, 9, 5);
    struct page same = home(v, 1);
    assert_int_equal(same.n, p.n);
    assert_memory_equal(same.ids, p.ids, p.n * sizeof p.ids[0]);
    assert_int_equal(same.floor, floor);
    /* In between the stored ones: the oldest makes room. */
    fan_out(v, 9, p.ids[5] + 1);
    p = home(v, 1);
    assert_true(p.n <= CAP);
    assert_int_equal(p.ids[5], same.ids[5] + 1);
    assert_true(p.floor >= floor);
}

void pages_below_a_cursor_continue(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    follow(v, 1, 9);
    for (uint64_t id = 1; id <= 35; id++)
        fan_out(v, 9, id);
    uint64_t below = UINT64_MAX, expected = 35;
    for (;;) {
        struct page p = home_below(v, 1, below, 4);
        if (p.n == 0)
            break;
        for (size_t i = 0; i < p.n; i++)
            assert_int_equal(p.ids[i], expected--);
        below = p.ids[p.n - 1];
    }
    assert_int_equal(expected, 0);
}

void a_dropped_timeline_takes_nothing(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    account(v, 1);
    follow(v, 1, 9);
    struct members m = followers(v, 9);
    assert_int_equal(push(v, 5, &m), 1);
    size_t dropped;
    bool wrapped;
    assert_int_equal(timelines_sweep(v->timelines, NOW_MS + 5000, 1000, &dropped, &wrapped), OK);
    assert_int_equal(dropped, 2); /* the author's, too */
    assert_true(wrapped);
    assert_int_equal(push(v, 6, &m), 0);
    struct page p = home(v, 1);
    assert_int_equal(p.n, 0);
    assert_int_equal(p.floor, UINT64_MAX);
    struct view_stats s;
    views_stats(v, &s);
    assert_int_equal(s.dropped, 2);
    assert_int_equal(s.entries, 0);
}

void a_retracted_post_is_out(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 100; i++)
        follow(v, i, 1000);
    for (uint64_t id = 1; id <= CAP; id++)
        fan_out(v, 1000, id);
    struct members m = followers(v, 1000);
    size_t removed;
    for (uint64_t id = 1; id <= CAP; id += 2) {
        assert_int_equal(timelines_retract(v->timelines, id, m.handles, m.n, &removed), OK);
        assert_int_equal(removed, 100);
        assert_int_equal(timelines_retract(v->timelines, id, m.handles, m.n, &removed), OK);
        assert_int_equal(removed, 0);
    }
    struct page p = home(v, 50);
    assert_int_equal(p.n, CAP / 2);
    for (size_t i = 0; i < p.n; i++)
        assert_int_equal(p.ids[i], CAP - 2 * i);
}

/* ---- 2: home ---- */

void the_home_of_an_unknown_account_is_not_found(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    struct page p;
    assert_int_equal(timelines_home(v->timelines, 123, UINT64_MAX, p.ids, 10, &p.n, &p.floor),
                     ERR_NOT_FOUND);
}

void pushed_and_pulled_come_together(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    follow(v, 1, 8);
    follow(v, 1, 9);
    fan_out(v, 9, 10);
    post_pulled(v, 8, 15);
    fan_out(v, 9, 20);
    post_pulled(v, 8, 25);
    fan_out(v, 9, 15); /* both ways: once */
    HOME_IS(v, 1, 0, 25, 20, 15, 10);
    struct page p = home_below(v, 1, 20, 2);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.ids[0], 15);
    assert_int_equal(p.ids[1], 10);
    unfollow(v, 1, 8); /* the pull list no longer counts */
    HOME_IS(v, 1, 0, 20, 15, 10);
    follow(v, 1, 8);
    HOME_IS(v, 1, 0, 25, 20, 15, 10);
    apply(v, VIEW_POST, false, 8, 25, DELIVERY_PULL);
    HOME_IS(v, 1, 0, 20, 15, 10);
}

/* Muting many busy authors must not make every page a search through all their posts. */
void pull_lists_of_the_muted_and_hidden_are_passed_over(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    enum { LISTS = 600 }; /* more than a reader looks at in one go */
    for (uint64_t author = 1001; author <= 1000 + LISTS; author++) {
        follow(v, 1, author);
        post_pulled(v, author, author * 10);
        if (author % 3 == 0)
            apply(v, VIEW_MUTE, true, 1, author, 0);
        if (author % 3 == 1)
            apply(v, VIEW_HIDE, true, author, 0, 0);
    }
    uint64_t ids[LISTS], floor;
    size_t n;
    assert_int_equal(timelines_home(v->timelines, 1, UINT64_MAX, ids, LISTS, &n, &floor), OK);
    assert_int_equal(n, LISTS / 3);
    assert_int_equal(floor, 0);
    for (size_t i = 0; i < n; i++)
        assert_true(ids[i] / 10 % 3 == 2 && (i == 0 || ids[i] < ids[i - 1]));
    for (uint64_t author = 1001; author <= 1000 + LISTS; author++) {
        apply(v, VIEW_MUTE, false, 1, author, 0);
        apply(v, VIEW_HIDE, false, author, 0, 0);
    }
    assert_int_equal(timelines_home(v->timelines, 1, UINT64_MAX, ids, LISTS, &n, &floor), OK);
    assert_int_equal(n, LISTS);
}

void many_pull_lists_are_merged(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    enum { AUTHORS = 300 };
    for (uint64_t a = 1; a <= AUTHORS; a++)
        follow(v, 1000, a);
    for (uint64_t id = 1; id <= AUTHORS * 5; id++)
        post_pulled(v, id * 7 % AUTHORS + 1, id);
    struct page p = home_below(v, 1000, UINT64_MAX, 2000);
    assert_int_equal(p.n, AUTHORS * 5);
    assert_int_equal(p.floor, 0);
    for (uint64_t max = 1; max <= 90; max += 13) {
        p = home_below(v, 1000, 800, max);
        assert_int_equal(p.n, max);
        for (size_t i = 0; i < max; i++)
            assert_int_equal(p.ids[i], 799 - i);
    }
}

void the_floor_is_the_highest_of_all_lists(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    follow(v, 1, 8);
    follow(v, 1, 9);
    for (uint64_t id = 1; id <= PULL_CAP + 5; id++)
        post_pulled(v, 8, id * 10);
    fan_out(v, 9, 7);
    fan_out(v, 9, 77);
    struct page p = home(v, 1); /* pulled ids 10 … 50 fell out */
    assert_int_equal(p.floor, 50);
    assert_int_equal(p.n, PULL_CAP + 1);
    unfollow(v, 1, 8);
    HOME_IS(v, 1, 0, 77, 7);
    /* Out of order: an id older than all in a full list falls out at once. */
    for (uint64_t id = PULL_CAP + 5; id >= 1; id--)
        post_pulled(v, 9, 1000 + id);
    p = home(v, 1);
    assert_int_equal(p.floor, 1005);
    assert_int_equal(p.n, PULL_CAP);
}

/* More followers than one step of the spread tells, so that the last of them needs a second one. */
void every_follower_finds_a_pulled_post_once_it_is_spread(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    enum { FOLLOWERS = 4100, AUTHOR = 9 };
    struct view_change *c = calloc(2 * FOLLOWERS, sizeof *c);
    for (size_t i = 0; i < FOLLOWERS; i++) {
        c[i] = (struct view_change){.kind = VIEW_ACCOUNT, .on = true, .account = 100 + i};
        c[FOLLOWERS + i] = (struct view_change){
            .kind = VIEW_FOLLOW, .on = true, .account = 100 + i, .other = AUTHOR};
    }
    assert_int_equal(views_apply(v, c, (size_t)2 * FOLLOWERS), OK);
    free(c);
    post_pulled(v, AUTHOR, 25);
    bool more = true;
    size_t told, steps = 0;
    while (more && steps++ < FOLLOWERS)
        assert_int_equal(timelines_spread(v->timelines, AUTHOR, &told, &more), OK);
    assert_false(more);
    for (uint64_t follower = 100; follower < 100 + FOLLOWERS; follower += 41)
        HOME_IS(v, follower, 0, 25);
    HOME_IS(v, 100 + FOLLOWERS - 1, 0, 25);
    assert_int_equal(timelines_spread(v->timelines, AUTHOR, &told, &more), OK);
    assert_int_equal(told, 0); /* they know */
    account(v, 1);
    follow(v, 1, AUTHOR);
    HOME_IS(v, 1, 0, 25);
}

void own_posts_are_there_at_once(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    account(v, 1);
    post_pulled(v, 1, 5);
    apply(v, VIEW_POST, true, 1, 6, DELIVERY_PUSH);
    HOME_IS(v, 1, 0, 6, 5);
    apply(v, VIEW_POST, false, 1, 5, DELIVERY_PULL);
    HOME_IS(v, 1, 0, 6);
    dropped_account(v, 2);
    apply(v, VIEW_POST, true, 2, 7, DELIVERY_PUSH);
    assert_int_equal(home(v, 2).floor, UINT64_MAX);
}

/* ---- 3: rebuilding ---- */

void nothing_pushed_during_a_rebuild_is_lost(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    follow(v, 1, 9);
    assert_int_equal(home(v, 1).floor, UINT64_MAX);
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    assert_int_equal(home(v, 1).floor, UINT64_MAX); /* not yet */
    assert_int_equal(home(v, 1).n, 0);
    fan_out(v, 9, 50);
    fan_out(v, 9, 40);
    apply(v, VIEW_POST, true, 1, 45, DELIVERY_PUSH);
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){40, 30, 20}, 3, 10), OK);
    HOME_IS(v, 1, 10, 50, 45, 40, 30, 20);
    assert_int_equal(timelines_begin(v->timelines, 1), ERR_CONFLICT);
    assert_int_equal(timelines_begin(v->timelines, 777), ERR_NOT_FOUND);
}

void two_rebuilds_at_once_agree(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    follow(v, 1, 9);
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    fan_out(v, 9, 50);
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){40}, 1, 0), OK);
    fan_out(v, 9, 60);
    timelines_end(v->timelines, 1, (const uint64_t[]){40}, 1, 0);
    HOME_IS(v, 1, 0, 60, 50, 40);
}

/* The second rebuild read truth before 60 was pushed and ends after the timeline might have been
 * dropped. */
void a_late_end_brings_no_old_state_back(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    follow(v, 1, 9);
    struct members m;
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    m = followers(v, 9);
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){40}, 1, 0), OK);
    size_t dropped;
    bool wrapped;
    assert_int_equal(timelines_sweep(v->timelines, NOW_MS + DAY_MS, 1000, &dropped, &wrapped), OK);
    push(v, 60, &m);
    timelines_begin(v->timelines, 1);
    timelines_end(v->timelines, 1, (const uint64_t[]){40}, 1, 0);
    struct page p = home(v, 1);
    assert_true(p.floor >= 60 || (p.n > 0 && p.ids[0] == 60));
}

void a_rebuild_keeps_the_newest(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    uint64_t ids[CAP * 2];
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        ids[i] = 1000 - i;
    dropped_account(v, 1);
    follow(v, 1, 9);
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    fan_out(v, 9, 2000);
    assert_int_equal(timelines_end(v->timelines, 1, ids, COUNT_OF(ids), 5), OK);
    struct page p = home(v, 1);
    assert_true(p.n <= CAP);
    assert_int_equal(p.ids[0], 2000);
    assert_int_equal(p.ids[1], 1000);
    assert_int_equal(p.ids[p.n - 1], p.floor + 1);
}

void a_rebuild_anew_replaces_what_was_there(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    struct view_stamp stamp = {{0}};
    struct view_stats before, after;
    bool same;
    account(v, 1);
    follow(v, 1, 9);
    for (uint64_t id = 1; id <= CAP + 5; id++)
        fan_out(v, 9, id * 10);
    timelines_stamp(v->timelines, 1, &stamp, &same);
    assert_int_equal(timelines_anew(v->timelines, 1), OK);
    timelines_stamp(v->timelines, 1, &stamp, &same);
    assert_false(same);
    assert_int_equal(home(v, 1).floor, UINT64_MAX); /* readers ask truth meanwhile */
    fan_out(v, 9, 500);
    assert_int_equal(timelines_backfill(v->timelines, 1, 9, (const uint64_t[]){33}, 1, 0), OK);
    views_stats(v, &before);
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){77, 7}, 2, 5), OK);
    timelines_stamp(v->timelines, 1, &stamp, &same);
    assert_false(same);
    HOME_IS(v, 1, 5, 500, 77, 33, 7);
    views_stats(v, &after);
    assert_int_equal(before.entries, 2);
    assert_int_equal(after.entries, 4);
    assert_int_equal(after.dropped, before.dropped);
    fan_out(v, 9, 600);
    HOME_IS(v, 1, 5, 600, 500, 77, 33, 7);
}

void a_rebuild_anew_wants_a_timeline_of_its_own(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    assert_int_equal(timelines_anew(v->timelines, 777), ERR_NOT_FOUND);
    dropped_account(v, 1);
    follow(v, 1, 9);
    assert_int_equal(timelines_anew(v->timelines, 1),
                     ERR_CONFLICT); /* it is made when it is read */
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    assert_int_equal(timelines_anew(v->timelines, 1), ERR_CONFLICT);
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){40}, 1, 0), OK);
    fan_out(v, 9, 60);
    /* The second read truth before 60: were it begun anew now, its end would hide that post. */
    assert_int_equal(timelines_anew(v->timelines, 1), ERR_CONFLICT);
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){40}, 1, 0), OK);
    HOME_IS(v, 1, 0, 60, 40);
    assert_int_equal(timelines_anew(v->timelines, 1), OK);
    assert_int_equal(timelines_anew(v->timelines, 1), ERR_CONFLICT);
    assert_int_equal(timelines_begin(v->timelines, 1), OK); /* a reader who came meanwhile */
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){60, 40}, 2, 0), OK);
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){60, 40}, 2, 0), OK);
    HOME_IS(v, 1, 0, 60, 40);
}

void a_rebuild_given_up_leaves_nothing_half_done(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    struct view_stats stats;
    account(v, 1);
    follow(v, 1, 9);
    fan_out(v, 9, 50);
    assert_int_equal(timelines_anew(v->timelines, 1), OK);
    fan_out(v, 9, 60);
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    assert_int_equal(timelines_give_up(v->timelines, 1), OK); /* the other one goes on */
    fan_out(v, 9, 70);
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){60, 50}, 2, 0), OK);
    HOME_IS(v, 1, 0, 70, 60, 50);
    assert_int_equal(timelines_anew(v->timelines, 1), OK);
    assert_int_equal(timelines_give_up(v->timelines, 1), OK);
    assert_int_equal(home(v, 1).floor, UINT64_MAX);
    assert_int_equal(fan_out(v, 9, 80), 0); /* a dropped one takes nothing */
    views_stats(v, &stats);
    assert_int_equal(stats.entries, 0);
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){70}, 1, 0), OK);
    HOME_IS(v, 1, 0, 70);
}

/* ---- 4: backfill and forget ---- */

void backfill_wants_a_follower(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    account(v, 1);
    account(v, 9);
    const uint64_t ids[] = {30, 20, 10};
    assert_int_equal(timelines_backfill(v->timelines, 1, 9, ids, 3, 0), OK);
    assert_int_equal(home(v, 1).n, 0);
    follow(v, 1, 9);
    apply(v, VIEW_POST, true, 1, 25, DELIVERY_PUSH);
    assert_int_equal(timelines_backfill(v->timelines, 1, 9, ids, 3, 0), OK);
    assert_int_equal(timelines_backfill(v->timelines, 1, 9, ids, 3, 0), OK);
    HOME_IS(v, 1, 0, 30, 25, 20, 10);
    assert_int_equal(timelines_forget(v->timelines, 1, 9, ids, 3),
                     OK); /* still followed: nothing */
    HOME_IS(v, 1, 0, 30, 25, 20, 10);
    unfollow(v, 1, 9);
    assert_int_equal(timelines_forget(v->timelines, 1, 9, ids, 3), OK);
    HOME_IS(v, 1, 0, 25);
}

void an_incomplete_backfill_raises_the_floor(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    follow(v, 1, 8);
    follow(v, 1, 9);
    for (uint64_t id = 1; id <= 5; id++)
        fan_out(v, 8, id * 10);
    assert_int_equal(timelines_backfill(v->timelines, 1, 9, (const uint64_t[]){45, 35}, 2, 25), OK);
    HOME_IS(v, 1, 25, 50, 45, 40, 35, 30);
    assert_int_equal(timelines_backfill(v->timelines, 1, 9, (const uint64_t[]){45, 35}, 2, 7), OK);
    HOME_IS(v, 1, 25, 50, 45, 40, 35, 30); /* a floor never falls */
    uint64_t many[CAP + 20];
    for (size_t i = 0; i < COUNT_OF(many); i++)
        many[i] = 5000 - i * 3;
    assert_int_equal(timelines_backfill(v->timelines, 1, 9, many, COUNT_OF(many), 0), OK);
    struct page p = home(v, 1);
    assert_true(p.n <= CAP);
    assert_int_equal(p.ids[p.n - 1], p.floor + 3);
}

void backfill_during_a_rebuild_is_kept(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    account(v, 9);
    follow(v, 1, 9);
    assert_int_equal(timelines_backfill(v->timelines, 1, 9, (const uint64_t[]){9}, 1, 0),
                     OK); /* dropped: nothing */
    assert_int_equal(timelines_begin(v->timelines, 1), OK);
    assert_int_equal(timelines_backfill(v->timelines, 1, 9, (const uint64_t[]){45, 35}, 2, 25), OK);
    assert_int_equal(timelines_end(v->timelines, 1, (const uint64_t[]){50, 30, 20}, 3, 0), OK);
    HOME_IS(v, 1, 25, 50, 45, 35, 30);
}
