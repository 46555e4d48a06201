/* The views contract (port/views.h), line by line, against every engine in the table below. A new
 * engine is one more row: how to open it on a folder of its own, and whether it survives being
 * opened again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "port/event.h"
#include "view/memory/memory.h"

enum { CAP = 40, PULL_CAP = 10, PEOPLE = 400 };

#define NOW_MS INT64_C(1800000000000)
#define DAY_MS INT64_C(86400000)

struct place {
    char folder[64];
    char path[96];
    struct manual_clock clock;
};

static struct views *open_memory(struct place *p)
{
    struct memory_views_config config = {p->path, CAP, PULL_CAP, &p->clock.clock};
    struct views *v = NULL;
    assert_int_equal(views_memory_open(&config, &v), OK);
    return v;
}

static const struct engine_row {
    const char *name;
    struct views *(*open)(struct place *p);
} engines[] = {
    {"memory", open_memory},
};

static const struct engine_row *engine;

struct fixture {
    struct place place;
    struct views *v;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    snprintf(f->place.folder, sizeof f->place.folder, "/tmp/fantail-views-XXXXXX");
    assert_non_null(mkdtemp(f->place.folder));
    snprintf(f->place.path, sizeof f->place.path, "%s/views", f->place.folder);
    manual_clock_init(&f->place.clock, NOW_MS);
    f->v = engine->open(&f->place);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    static const char *const endings[] = {"", ".part", ".damaged"};
    if (f->v)
        views_free(f->v);
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s%s", f->place.path, endings[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(f->place.folder), 0);
    free(f);
    return 0;
}

static void reopen(struct fixture *f)
{
    views_free(f->v);
    f->v = engine->open(&f->place);
}

/* ---- words for what the tests say ---- */

static void apply(struct views *v, enum view_change_kind kind, bool on, uint64_t account,
                  uint64_t other, int64_t value)
{
    struct view_change c = {kind, on, account, other, value};
    assert_int_equal(views_apply(v, &c, 1), OK);
}

static void account(struct views *v, uint64_t id)
{
    apply(v, VIEW_ACCOUNT, true, id, 0, NOW_MS);
}

static void follow(struct views *v, uint64_t viewer, uint64_t author)
{
    apply(v, VIEW_FOLLOW, true, viewer, author, 0);
}

static void unfollow(struct views *v, uint64_t viewer, uint64_t author)
{
    apply(v, VIEW_FOLLOW, false, viewer, author, 0);
}

static void post_pulled(struct views *v, uint64_t author, uint64_t post)
{
    apply(v, VIEW_POST, true, author, post, DELIVERY_PULL);
}

static bool sees(struct views *v, uint64_t viewer, uint64_t author)
{
    bool out = false;
    assert_int_equal(views_visible(v, viewer, &author, 1, &out), OK);
    return out;
}

struct members {
    uint64_t handles[PEOPLE * 2];
    size_t n, pages;
};

static struct members walk(struct views *v, uint64_t author, struct audience_cursor cursor,
                           size_t page)
{
    struct members m = {.n = 0};
    while (!cursor.end) {
        size_t n = 0;
        assert_true(m.n + page <= COUNT_OF(m.handles));
        assert_int_equal(views_audience(v, author, &cursor, m.handles + m.n, page, &n), OK);
        assert_true(n <= page);
        m.n += n;
        m.pages++;
    }
    return m;
}

static struct members followers(struct views *v, uint64_t author)
{
    return walk(v, author, (struct audience_cursor){.part = AUDIENCE_ALL}, 64);
}

static size_t push(struct views *v, uint64_t post, const struct members *m)
{
    size_t added = 0;
    assert_int_equal(views_push(v, post, m->handles, m->n, &added), OK);
    return added;
}

static size_t fan_out(struct views *v, uint64_t author, uint64_t post)
{
    struct members m = followers(v, author);
    return push(v, post, &m);
}

struct page {
    uint64_t ids[2000];
    size_t n;
    uint64_t floor;
};

static struct page home_below(struct views *v, uint64_t viewer, uint64_t below, size_t max)
{
    struct page p;
    assert_int_equal(views_home(v, viewer, below, p.ids, max, &p.n, &p.floor), OK);
    assert_true(p.n <= max);
    for (size_t i = 0; i < p.n; i++) {
        assert_true(p.ids[i] < (i > 0 ? p.ids[i - 1] : below));
        assert_true(p.ids[i] > p.floor);
    }
    return p;
}

static struct page home(struct views *v, uint64_t viewer)
{
    return home_below(v, viewer, UINT64_MAX, 1000);
}

static void assert_home(struct views *v, uint64_t viewer, const uint64_t *ids, size_t n,
                        uint64_t floor)
{
    struct page p = home(v, viewer);
    assert_int_equal(p.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(p.ids[i], ids[i]);
    assert_int_equal(p.floor, floor);
}

#define HOME_IS(v, viewer, floor, ...)                                                             \
    assert_home((v), (viewer), (const uint64_t[]){__VA_ARGS__},                                    \
                sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (floor))

/* An account whose timeline has been dropped. */
static void dropped_account(struct views *v, uint64_t id)
{
    apply(v, VIEW_ACCOUNT, false, id, 0, NOW_MS);
}

/* ---- 1: changes ---- */

static void changes_can_be_applied_again(void **state)
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

static void changes_are_seen_in_order(void **state)
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

static void an_account_that_exists_is_not_reset(void **state)
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

/* ---- 2: what is hidden stays hidden ---- */

static void removals_count_at_once(void **state)
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
    assert_true(sees(v, 2, 2)); /* nobody but itself */
    apply(v, VIEW_HIDE, false, 2, 0, 0);
    assert_true(sees(v, 1, 2));
    unfollow(v, 1, 2);
    assert_false(sees(v, 1, 2));
}

static void strangers_are_not_visible(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    uint64_t authors[200];
    bool out[200];
    for (size_t i = 0; i < 200; i++) {
        authors[i] = i + 1;
        if (i % 3 == 0)
            follow(v, 500, i + 1);
    }
    assert_int_equal(views_visible(v, 500, authors, 200, out), OK);
    for (size_t i = 0; i < 200; i++)
        assert_int_equal(out[i], i % 3 == 0);
    assert_false(sees(v, 999, 1)); /* unknown viewer */
    assert_false(sees(v, 500, 999));
    assert_true(sees(v, 999, 999));
}

/* ---- 3: the audience ---- */

static void the_audience_is_everyone_once(void **state)
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

static void the_last_page_says_that_it_is_the_last(void **state)
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

static void who_follows_throughout_is_met_though_others_come_and_go(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 200; i++)
        follow(v, i, 1000);
    struct members all = followers(v, 1000);
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    struct members met = {.n = 0};
    for (uint64_t i = 1; !cursor.end; i++) {
        size_t n;
        assert_int_equal(views_audience(v, 1000, &cursor, met.handles + met.n, 10, &n), OK);
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

static void active_and_rest_are_everyone(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 300; i++) {
        follow(v, i, 1000);
        apply(v, VIEW_SEEN, true, i, 0, NOW_MS - (int64_t)i * DAY_MS);
    }
    struct audience_cursor active = {AUDIENCE_ACTIVE, NOW_MS - 100 * DAY_MS, NOW_MS, 0, false};
    struct audience_cursor rest = active;
    rest.part = AUDIENCE_REST;
    struct members a = walk(v, 1000, active, 7);
    assert_int_equal(a.n, 100);
    assert_int_equal(push(v, 60, &a), 100);
    HOME_IS(v, 100, 0, 60);
    assert_int_equal(home(v, 101).n, 0);
    /* Somebody wakes up between the two walks, or while the first went on. */
    apply(v, VIEW_SEEN, true, 200, 0, NOW_MS + 1);
    apply(v, VIEW_SEEN, true, 201, 0, NOW_MS + 400);
    apply(v, VIEW_SEEN, true, 202, 0, NOW_MS);
    struct members r = walk(v, 1000, rest, 7);
    assert_int_equal(push(v, 60, &r), 200);
    for (uint64_t i = 1; i <= 300; i++)
        HOME_IS(v, i, 0, 60);
}

static void who_wakes_up_after_the_clock_was_set_back_is_met(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 3; i++) {
        follow(v, i, 1000);
        apply(v, VIEW_SEEN, true, i, 0, NOW_MS - (int64_t)i * 10 * DAY_MS);
    }
    struct audience_cursor active = {AUDIENCE_ACTIVE, NOW_MS - 15 * DAY_MS, NOW_MS, 0, false};
    struct audience_cursor rest = active;
    rest.part = AUDIENCE_REST;
    struct members a = walk(v, 1000, active, 7);
    assert_int_equal(push(v, 60, &a), 1);
    /* The first walk has passed them by; they come, and by the clock it is an hour earlier. */
    apply(v, VIEW_SEEN, true, 2, 0, NOW_MS - DAY_MS / 24);
    struct members r = walk(v, 1000, rest, 7);
    assert_int_equal(push(v, 60, &r), 2);
    for (uint64_t i = 1; i <= 3; i++)
        HOME_IS(v, i, 0, 60);
}

/* ---- 4: pushing ---- */

static void a_push_adds_once(void **state)
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

static void members_need_not_be_sorted(void **state)
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

static void a_timeline_never_exceeds_its_cap(void **state)
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
    assert_int_equal(fan_out(v, 9, floor), 0);
    assert_int_equal(fan_out(v, 9, floor - 10), 0);
    struct page same = home(v, 1);
    assert_int_equal(same.n, p.n);
    assert_int_equal(same.floor, floor);
    /* In between the stored ones: the oldest makes room. */
    fan_out(v, 9, p.ids[5] + 1);
    p = home(v, 1);
    assert_true(p.n <= CAP);
    assert_int_equal(p.ids[5], same.ids[5] + 1);
    assert_true(p.floor >= floor);
}

static void pages_below_a_cursor_continue(void **state)
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

static void a_dropped_timeline_takes_nothing(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    account(v, 1);
    follow(v, 1, 9);
    struct members m = followers(v, 9);
    assert_int_equal(push(v, 5, &m), 1);
    size_t dropped;
    bool wrapped;
    assert_int_equal(views_sweep(v, NOW_MS + 5000, 1000, &dropped, &wrapped), OK);
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

static void a_retracted_post_is_out(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 100; i++)
        follow(v, i, 1000);
    for (uint64_t id = 1; id <= CAP; id++)
        fan_out(v, 1000, id);
    struct members m = followers(v, 1000);
    size_t removed;
    for (uint64_t id = 1; id <= CAP; id += 2) {
        assert_int_equal(views_retract(v, id, m.handles, m.n, &removed), OK);
        assert_int_equal(removed, 100);
        assert_int_equal(views_retract(v, id, m.handles, m.n, &removed), OK);
        assert_int_equal(removed, 0);
    }
    struct page p = home(v, 50);
    assert_int_equal(p.n, CAP / 2);
    for (size_t i = 0; i < p.n; i++)
        assert_int_equal(p.ids[i], CAP - 2 * i);
}

/* ---- 5: home ---- */

static void home_of_nobody_is_not_found(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    struct page p;
    assert_int_equal(views_home(v, 123, UINT64_MAX, p.ids, 10, &p.n, &p.floor), ERR_NOT_FOUND);
}

static void pushed_and_pulled_come_together(void **state)
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

/* Somebody who mutes many busy authors must not make every page a search through all their posts.
 */
static void pull_lists_of_the_muted_and_hidden_are_passed_over(void **state)
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
    assert_int_equal(views_home(v, 1, UINT64_MAX, ids, LISTS, &n, &floor), OK);
    assert_int_equal(n, LISTS / 3);
    assert_int_equal(floor, 0);
    for (size_t i = 0; i < n; i++)
        assert_true(ids[i] / 10 % 3 == 2 && (i == 0 || ids[i] < ids[i - 1]));
    for (uint64_t author = 1001; author <= 1000 + LISTS; author++) {
        apply(v, VIEW_MUTE, false, 1, author, 0);
        apply(v, VIEW_HIDE, false, author, 0, 0);
    }
    assert_int_equal(views_home(v, 1, UINT64_MAX, ids, LISTS, &n, &floor), OK);
    assert_int_equal(n, LISTS);
}

static void many_pull_lists_are_merged(void **state)
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

static void the_floor_is_the_highest_of_all_lists(void **state)
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

static void own_posts_are_there_at_once(void **state)
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

/* ---- 6: rebuilding ---- */

static void nothing_pushed_during_a_rebuild_is_lost(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    follow(v, 1, 9);
    assert_int_equal(home(v, 1).floor, UINT64_MAX);
    assert_int_equal(views_rebuild_begin(v, 1), OK);
    assert_int_equal(home(v, 1).floor, UINT64_MAX); /* not yet */
    assert_int_equal(home(v, 1).n, 0);
    fan_out(v, 9, 50);
    fan_out(v, 9, 40);
    apply(v, VIEW_POST, true, 1, 45, DELIVERY_PUSH);
    assert_int_equal(views_rebuild_end(v, 1, (const uint64_t[]){40, 30, 20}, 3, 10), OK);
    HOME_IS(v, 1, 10, 50, 45, 40, 30, 20);
    assert_int_equal(views_rebuild_begin(v, 1), ERR_CONFLICT);
    assert_int_equal(views_rebuild_begin(v, 777), ERR_NOT_FOUND);
}

static void two_rebuilds_at_once_agree(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    follow(v, 1, 9);
    assert_int_equal(views_rebuild_begin(v, 1), OK);
    assert_int_equal(views_rebuild_begin(v, 1), OK);
    fan_out(v, 9, 50);
    assert_int_equal(views_rebuild_end(v, 1, (const uint64_t[]){40}, 1, 0), OK);
    fan_out(v, 9, 60);
    views_rebuild_end(v, 1, (const uint64_t[]){40}, 1, 0);
    HOME_IS(v, 1, 0, 60, 50, 40);
}

/* The second rebuild read truth before 60 was pushed and ends after the timeline might have been
 * dropped. */
static void a_late_end_brings_no_old_state_back(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    follow(v, 1, 9);
    struct members m;
    assert_int_equal(views_rebuild_begin(v, 1), OK);
    m = followers(v, 9);
    assert_int_equal(views_rebuild_begin(v, 1), OK);
    assert_int_equal(views_rebuild_end(v, 1, (const uint64_t[]){40}, 1, 0), OK);
    size_t dropped;
    bool wrapped;
    assert_int_equal(views_sweep(v, NOW_MS + DAY_MS, 1000, &dropped, &wrapped), OK);
    push(v, 60, &m);
    views_rebuild_begin(v, 1);
    views_rebuild_end(v, 1, (const uint64_t[]){40}, 1, 0);
    struct page p = home(v, 1);
    assert_true(p.floor >= 60 || (p.n > 0 && p.ids[0] == 60));
}

static void a_rebuild_keeps_the_newest(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    uint64_t ids[CAP * 2];
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        ids[i] = 1000 - i;
    dropped_account(v, 1);
    follow(v, 1, 9);
    assert_int_equal(views_rebuild_begin(v, 1), OK);
    fan_out(v, 9, 2000);
    assert_int_equal(views_rebuild_end(v, 1, ids, COUNT_OF(ids), 5), OK);
    struct page p = home(v, 1);
    assert_true(p.n <= CAP);
    assert_int_equal(p.ids[0], 2000);
    assert_int_equal(p.ids[1], 1000);
    assert_int_equal(p.ids[p.n - 1], p.floor + 1);
}

/* ---- 7: backfill and forget ---- */

static void backfill_wants_a_follower(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    account(v, 1);
    account(v, 9);
    const uint64_t ids[] = {30, 20, 10};
    assert_int_equal(views_backfill(v, 1, 9, ids, 3, 0), OK);
    assert_int_equal(home(v, 1).n, 0);
    follow(v, 1, 9);
    apply(v, VIEW_POST, true, 1, 25, DELIVERY_PUSH);
    assert_int_equal(views_backfill(v, 1, 9, ids, 3, 0), OK);
    assert_int_equal(views_backfill(v, 1, 9, ids, 3, 0), OK);
    HOME_IS(v, 1, 0, 30, 25, 20, 10);
    assert_int_equal(views_forget(v, 1, 9, ids, 3), OK); /* still followed: nothing */
    HOME_IS(v, 1, 0, 30, 25, 20, 10);
    unfollow(v, 1, 9);
    assert_int_equal(views_forget(v, 1, 9, ids, 3), OK);
    HOME_IS(v, 1, 0, 25);
}

static void an_incomplete_backfill_raises_the_floor(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    follow(v, 1, 8);
    follow(v, 1, 9);
    for (uint64_t id = 1; id <= 5; id++)
        fan_out(v, 8, id * 10);
    assert_int_equal(views_backfill(v, 1, 9, (const uint64_t[]){45, 35}, 2, 25), OK);
    HOME_IS(v, 1, 25, 50, 45, 40, 35, 30);
    assert_int_equal(views_backfill(v, 1, 9, (const uint64_t[]){45, 35}, 2, 7), OK);
    HOME_IS(v, 1, 25, 50, 45, 40, 35, 30); /* a floor never falls */
    uint64_t many[CAP + 20];
    for (size_t i = 0; i < COUNT_OF(many); i++)
        many[i] = 5000 - i * 3;
    assert_int_equal(views_backfill(v, 1, 9, many, COUNT_OF(many), 0), OK);
    struct page p = home(v, 1);
    assert_true(p.n <= CAP);
    assert_int_equal(p.ids[p.n - 1], p.floor + 3);
}

static void backfill_during_a_rebuild_is_kept(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    account(v, 9);
    follow(v, 1, 9);
    assert_int_equal(views_backfill(v, 1, 9, (const uint64_t[]){9}, 1, 0),
                     OK); /* dropped: nothing */
    assert_int_equal(views_rebuild_begin(v, 1), OK);
    assert_int_equal(views_backfill(v, 1, 9, (const uint64_t[]){45, 35}, 2, 25), OK);
    assert_int_equal(views_rebuild_end(v, 1, (const uint64_t[]){50, 30, 20}, 3, 0), OK);
    HOME_IS(v, 1, 25, 50, 45, 35, 30);
}

/* ---- 8: saving ---- */

static void a_saved_state_comes_back(void **state)
{
    struct fixture *f = *state;
    struct views *v = f->v;
    assert_int_equal(v->loaded_position, 0);
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
    assert_int_equal(s1.saved_position, 4711);
    assert_true(s1.save_bytes > 0);
    post_pulled(v, 5, 99999); /* after the save: not in it */
    reopen(f);
    v = f->v;
    assert_int_equal(v->loaded_position, 4711);
    views_stats(v, &s2);
    assert_int_equal(s2.accounts, s1.accounts);
    assert_int_equal(s2.follows, s1.follows);
    assert_int_equal(s2.entries, s1.entries);
    assert_int_equal(s2.pull_lists, s1.pull_lists);
    assert_int_equal(s2.dropped, s1.dropped + 1); /* what was being rebuilt */
    assert_int_equal(s2.saved_position, 4711);
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

static void without_a_save_nothing_comes_back(void **state)
{
    struct fixture *f = *state;
    account(f->v, 1);
    reopen(f);
    assert_int_equal(f->v->loaded_position, 0);
    struct view_stats s;
    views_stats(f->v, &s);
    assert_int_equal(s.accounts, 0);
}

static void the_last_save_counts(void **state)
{
    struct fixture *f = *state;
    follow(f->v, 1, 9);
    fan_out(f->v, 9, 10);
    assert_int_equal(views_save(f->v, 1), OK);
    fan_out(f->v, 9, 20);
    assert_int_equal(views_save(f->v, 2), OK);
    reopen(f);
    assert_int_equal(f->v->loaded_position, 2);
    HOME_IS(f->v, 1, 0, 20, 10);
    fan_out(f->v, 9, 20); /* replayed: harmless */
    fan_out(f->v, 9, 30);
    HOME_IS(f->v, 1, 0, 30, 20, 10);
}

/* ---- the rest ---- */

static void a_sweep_goes_in_slices_and_around(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 100; i++)
        apply(v, VIEW_ACCOUNT, true, i, 0, NOW_MS - (i % 2 ? 40 * DAY_MS : 0));
    size_t total = 0, slices = 0;
    bool wrapped = false;
    while (!wrapped) {
        size_t dropped;
        assert_int_equal(views_sweep(v, NOW_MS - 30 * DAY_MS, 30, &dropped, &wrapped), OK);
        assert_true(dropped <= 30);
        total += dropped;
        slices++;
    }
    assert_int_equal(total, 50);
    assert_true(slices >= 4);
    for (uint64_t i = 1; i <= 100; i++)
        assert_int_equal(home(v, i).floor, i % 2 ? UINT64_MAX : 0);
    size_t dropped;
    assert_int_equal(views_sweep(v, NOW_MS - 30 * DAY_MS, 1000, &dropped, &wrapped), OK);
    assert_int_equal(dropped, 0);
    assert_true(wrapped);
}

static void neighbours_come_by_id(void **state)
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
            assert_int_equal(views_neighbours(v, side ? 8888 : 7777, !side, after, ids, 17, &n),
                             OK);
            for (size_t i = 0; i < n; i++, expected += 5)
                assert_int_equal(ids[i], expected);
            after = n > 0 ? ids[n - 1] : after;
        } while (n > 0);
        assert_int_equal(expected, 1005);
    }
    uint64_t id;
    size_t n;
    assert_int_equal(views_neighbours(v, 123456, true, 0, &id, 1, &n), ERR_NOT_FOUND);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(changes_can_be_applied_again),
        CASE(changes_are_seen_in_order),
        CASE(an_account_that_exists_is_not_reset),
        CASE(removals_count_at_once),
        CASE(strangers_are_not_visible),
        CASE(the_audience_is_everyone_once),
        CASE(the_last_page_says_that_it_is_the_last),
        CASE(who_follows_throughout_is_met_though_others_come_and_go),
        CASE(active_and_rest_are_everyone),
        CASE(who_wakes_up_after_the_clock_was_set_back_is_met),
        CASE(a_push_adds_once),
        CASE(members_need_not_be_sorted),
        CASE(a_timeline_never_exceeds_its_cap),
        CASE(pages_below_a_cursor_continue),
        CASE(a_dropped_timeline_takes_nothing),
        CASE(a_retracted_post_is_out),
        CASE(home_of_nobody_is_not_found),
        CASE(pushed_and_pulled_come_together),
        CASE(pull_lists_of_the_muted_and_hidden_are_passed_over),
        CASE(many_pull_lists_are_merged),
        CASE(the_floor_is_the_highest_of_all_lists),
        CASE(own_posts_are_there_at_once),
        CASE(nothing_pushed_during_a_rebuild_is_lost),
        CASE(two_rebuilds_at_once_agree),
        CASE(a_late_end_brings_no_old_state_back),
        CASE(a_rebuild_keeps_the_newest),
        CASE(backfill_wants_a_follower),
        CASE(an_incomplete_backfill_raises_the_floor),
        CASE(backfill_during_a_rebuild_is_kept),
        CASE(a_saved_state_comes_back),
        CASE(without_a_save_nothing_comes_back),
        CASE(the_last_save_counts),
        CASE(a_sweep_goes_in_slices_and_around),
        CASE(neighbours_come_by_id),
    };
    int failed = 0;
    for (size_t i = 0; i < COUNT_OF(engines); i++) {
        engine = &engines[i];
        failed += cmocka_run_group_tests_name(engine->name, tests, NULL, NULL);
    }
    return failed;
}
