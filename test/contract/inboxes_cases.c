/* The inboxes contract, and of the graph the members of groups. */
#include <string.h>

#include "base/id.h"
#include "views_cases.h"

/* ---- words ---- */

enum { GROUP = 50000, OTHER = 50001, THIRD = 50002, LIST = 400 };

struct list {
    struct inbox_entry entries[LIST];
    size_t n;
};

static void change(struct views *v, enum view_change_kind kind, bool on, uint64_t who,
                   uint64_t group, int64_t value, uint64_t event)
{
    struct view_change c = {kind, on, who, group, value, event};
    assert_int_equal(views_apply(v, &c, 1), OK);
}

static void join(struct views *v, uint64_t who, uint64_t group, uint64_t event)
{
    change(v, VIEW_MEMBER, true, who, group, 0, event);
}

static void leave(struct views *v, uint64_t who, uint64_t group, uint64_t event)
{
    change(v, VIEW_MEMBER, false, who, group, 0, event);
}

static void write_to(struct views *v, uint64_t who, uint64_t group, uint64_t event)
{
    change(v, VIEW_MESSAGE, true, who, group, 0, event);
}

static size_t deliver(struct views *v, uint64_t group, uint64_t event)
{
    struct members m = followers(v, group);
    size_t changed = 77777;
    assert_int_equal(inboxes_push_one(v->inboxes, group, event, m.handles, m.n, &changed), OK);
    return changed;
}

/* A person's handle, from a group that they alone are in. A walk may leave out dropped inboxes. */
static uint64_t handle_of(struct views *v, uint64_t who)
{
    bool dropped = inboxes_begin(v->inboxes, who) == OK;
    change(v, VIEW_MEMBER, true, who, 90000 + who, 0, 1);
    struct members m = followers(v, 90000 + who);
    assert_int_equal(m.n, 1);
    if (dropped)
        assert_int_equal(inboxes_give_up(v->inboxes, who), OK);
    change(v, VIEW_MEMBER, false, who, 90000 + who, 0, 2);
    return m.handles[0];
}

static struct list inbox_below(struct views *v, uint64_t who, uint64_t below, size_t max)
{
    struct list l;
    assert_int_equal(inboxes_read(v->inboxes, who, below, l.entries, max, &l.n), OK);
    assert_true(l.n <= max);
    for (size_t i = 0; i < l.n; i++)
        assert_true(i == 0 || l.entries[i].activity <= l.entries[i - 1].activity);
    return l;
}

static bool is_dropped(struct views *v, uint64_t who)
{
    struct list l;
    enum err e = inboxes_read(v->inboxes, who, UINT64_MAX, l.entries, LIST, &l.n);
    assert_true(e == OK || (e == ERR_NEEDS_TRUTH && l.n == 0));
    return e != OK;
}

static void assert_inbox(struct views *v, uint64_t who, const struct inbox_entry *expected,
                         size_t n)
{
    struct list l = inbox_below(v, who, UINT64_MAX, LIST);
    assert_int_equal(l.n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(l.entries[i].group, expected[i].group);
        assert_int_equal(l.entries[i].activity, expected[i].activity);
    }
}

#define INBOX_IS(v, who, ...)                                                                      \
    assert_inbox((v), (who), (const struct inbox_entry[]){__VA_ARGS__},                            \
                 sizeof((const struct inbox_entry[]){__VA_ARGS__}) / sizeof(struct inbox_entry))

static void assert_empty(struct views *v, uint64_t who)
{
    assert_int_equal(inbox_below(v, who, UINT64_MAX, LIST).n, 0);
}

static struct view_stats stats(struct views *v)
{
    struct view_stats s;
    views_stats(v, &s);
    return s;
}

/* ---- 2, and 3 of the graph: members ---- */

void a_member_is_met_and_has_the_group(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 300; i++)
        account(v, i);
    for (int again = 0; again < 2; again++)
        for (uint64_t i = 1; i <= 300; i++)
            join(v, i, GROUP, i);
    join(v, 7, OTHER, 500);
    assert_int_equal(followers(v, GROUP).n, 300);
    assert_int_equal(followers(v, OTHER).n, 1);
    INBOX_IS(v, 7, {OTHER, 500}, {GROUP, 7});
    assert_int_equal(stats(v).groups, 2);
    assert_int_equal(stats(v).memberships, 301);
    assert_int_equal(stats(v).inbox_entries, 301);
    for (int again = 0; again < 2; again++)
        leave(v, 7, GROUP, 600);
    INBOX_IS(v, 7, {OTHER, 500});
    assert_int_equal(followers(v, GROUP).n, 299);
    leave(v, 7, OTHER, 601);
    assert_empty(v, 7);
    assert_int_equal(followers(v, OTHER).n, 0);
    assert_int_equal(stats(v).groups, 1);
    assert_int_equal(stats(v).memberships, 299);
    assert_int_equal(stats(v).inbox_entries, 299);
    join(v, 7, OTHER, 700);
    INBOX_IS(v, 7, {OTHER, 700});
    /* As it is loaded: the activity to begin with is what truth says. */
    change(v, VIEW_MEMBER, true, 8, OTHER, 650, 0);
    INBOX_IS(v, 8, {OTHER, 650}, {GROUP, 8});
}

void a_group_is_no_account(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    struct page p;
    struct list l;
    uint64_t ids[10];
    size_t n;
    account(v, 1);
    account(v, 2);
    follow(v, 2, 1);
    join(v, 1, GROUP, 10);
    join(v, 2, GROUP, 11);
    fan_out(v, 1, 20);
    assert_int_equal(stats(v).accounts, 2);
    assert_int_equal(stats(v).follows, 1);
    assert_int_equal(stats(v).dropped, 0);
    assert_int_equal(stats(v).timelines, 2);
    assert_int_equal(stats(v).entries, 1);
    assert_int_equal(timelines_home(v->timelines, GROUP, UINT64_MAX, p.ids, 10, &p.n, &p.floor),
                     ERR_NOT_FOUND);
    assert_int_equal(timelines_begin(v->timelines, GROUP), ERR_NOT_FOUND);
    assert_int_equal(inboxes_read(v->inboxes, GROUP, UINT64_MAX, l.entries, 10, &l.n),
                     ERR_NOT_FOUND);
    assert_int_equal(inboxes_begin(v->inboxes, GROUP), ERR_NOT_FOUND);
    assert_int_equal(inboxes_read(v->inboxes, 4711, UINT64_MAX, l.entries, 10, &l.n),
                     ERR_NOT_FOUND);
    assert_false(sees(v, 1, GROUP));
    HOME_IS(v, 2, 0, 20);
    assert_int_equal(graph_neighbours(v->graph, GROUP, true, 0, ids, 10, &n), OK);
    assert_int_equal(n, 2);
    assert_true(ids[0] == 1 && ids[1] == 2);
    assert_int_equal(graph_neighbours(v->graph, 1, false, 0, ids, 10, &n), OK);
    assert_int_equal(n, 0);
    assert_int_equal(graph_neighbours(v->graph, 1, true, 0, ids, 10, &n), OK);
    assert_int_equal(n, 1);
}

void the_latest_word_about_a_member_counts(void **state)
{
    struct fixture *f = *state;
    if (!f->driver->lasting) /* gets events in the order of commits */
        return;
    account(f->v, 1);
    leave(f->v, 1, GROUP, 40);
    join(f->v, 1, GROUP, 30);
    assert_empty(f->v, 1);
    assert_int_equal(followers(f->v, GROUP).n, 0);
    change(f->v, VIEW_MEMBER, true, 1, GROUP, 35, 0); /* read from truth a moment ago */
    assert_int_equal(followers(f->v, GROUP).n, 0);
    join(f->v, 1, GROUP, 50);
    leave(f->v, 1, GROUP, 45);
    INBOX_IS(f->v, 1, {GROUP, 50});
    assert_int_equal(followers(f->v, GROUP).n, 1);
}

static size_t walk_part(struct views *v, enum audience_part part, struct members *m)
{
    struct audience_cursor c = {part, NOW_MS - DAY_MS, NOW_MS + 200000, 0, false};
    *m = walk(v, GROUP, c, 7);
    return m->n;
}

/* A person without a timeline may have an inbox, and the other way round. */
void active_and_rest_are_all_who_have_an_inbox(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    struct members m;
    for (uint64_t i = 1; i <= 100; i++) {
        apply(v, VIEW_ACCOUNT, true, i, 0, i <= 30 ? NOW_MS : NOW_MS - 9 * DAY_MS);
        join(v, i, GROUP, i);
    }
    assert_int_equal(walk_part(v, AUDIENCE_ACTIVE, &m), 30);
    assert_int_equal(walk_part(v, AUDIENCE_REST, &m), 70);
    uint64_t cold[70];
    memcpy(cold, m.handles, sizeof cold);
    assert_int_equal(inboxes_drop(v->inboxes, cold, 20), OK);
    assert_int_equal(walk_part(v, AUDIENCE_REST, &m), 50);
    for (size_t i = 0; i < m.n; i++)
        for (size_t k = 0; k < 20; k++)
            assert_int_not_equal(m.handles[i], cold[k]);
    /* All are swept; two come back, one to the feed and one to the inbox. */
    size_t dropped;
    bool wrapped;
    assert_int_equal(timelines_sweep(v->timelines, NOW_MS - DAY_MS, 10000, &dropped, &wrapped), OK);
    assert_int_equal(dropped, 70);
    assert_int_equal(walk_part(v, AUDIENCE_REST, &m), 0);
    assert_int_equal(timelines_begin(v->timelines, 60), OK);
    assert_int_equal(timelines_end(v->timelines, 60, NULL, 0, 0), OK);
    assert_int_equal(inboxes_begin(v->inboxes, 61), OK);
    assert_int_equal(walk_part(v, AUDIENCE_REST, &m), 1); /* from the beginning on */
    assert_int_equal(inboxes_end(v->inboxes, 61, NULL, 0), OK);
    assert_int_equal(walk_part(v, AUDIENCE_REST, &m), 1);
    size_t changed;
    assert_int_equal(inboxes_push_one(v->inboxes, GROUP, 900, m.handles, m.n, &changed), OK);
    INBOX_IS(v, 61, {GROUP, 900});
    assert_true(is_dropped(v, 60));
    assert_int_equal(stats(v).inboxes, 31);
    assert_int_equal(stats(v).timelines, 31);
}

void members_say_whether_they_were_here(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    struct members m;
    bool here[100];
    size_t count = 0;
    for (uint64_t i = 1; i <= 100; i++) {
        apply(v, VIEW_ACCOUNT, true, i, 0, i <= 30 ? NOW_MS : NOW_MS - 9 * DAY_MS);
        join(v, i, GROUP, i);
    }
    m = followers(v, GROUP);
    assert_int_equal(m.n, 100);
    assert_int_equal(graph_seen_since(v->graph, m.handles, m.n, NOW_MS - DAY_MS, here), OK);
    for (size_t i = 0; i < m.n; i++)
        count += here[i];
    assert_int_equal(count, 30);
    assert_int_equal(walk_part(v, AUDIENCE_ACTIVE, &m), 30);
    assert_int_equal(graph_seen_since(v->graph, m.handles, m.n, NOW_MS - DAY_MS, here), OK);
    for (size_t i = 0; i < m.n; i++)
        assert_true(here[i]);
    assert_int_equal(walk_part(v, AUDIENCE_REST, &m), 70);
    assert_int_equal(graph_seen_since(v->graph, m.handles, m.n, NOW_MS - DAY_MS, here), OK);
    for (size_t i = 0; i < m.n; i++)
        assert_false(here[i]);
}

void several_messages_go_at_once(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 3; i++) {
        account(v, i);
        join(v, i, GROUP, i);
    }
    join(v, 1, OTHER, 10);
    struct members all = followers(v, GROUP), one = followers(v, OTHER);
    struct inbox_push pushes[] = {{GROUP, 600, all.handles, all.n, 77},
                                  {OTHER, 500, one.handles, one.n, 77},
                                  {GROUP, 550, all.handles, all.n, 77},
                                  {OTHER, 700, one.handles, 0, 77}};
    assert_int_equal(inboxes_push(v->inboxes, pushes, 4), OK);
    assert_true(pushes[0].changed == 3 && pushes[1].changed == 1);
    assert_true(pushes[2].changed == 0 && pushes[3].changed == 0);
    INBOX_IS(v, 1, {GROUP, 600}, {OTHER, 500});
    INBOX_IS(v, 3, {GROUP, 600});
    pushes[1].activity = 0;
    assert_int_not_equal(inboxes_push(v->inboxes, pushes, 4), OK);
}

/* ---- 1: activity ---- */

void the_greatest_activity_counts(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    for (uint64_t i = 1; i <= 3; i++) {
        account(v, i);
        join(v, i, GROUP, 1);
        join(v, i, OTHER, 2);
        join(v, i, THIRD, 3);
    }
    INBOX_IS(v, 1, {THIRD, 3}, {OTHER, 2}, {GROUP, 1});
    assert_int_equal(deliver(v, GROUP, 30), 3);
    assert_int_equal(deliver(v, GROUP, 30), 0);
    assert_int_equal(deliver(v, OTHER, 20), 3);
    INBOX_IS(v, 2, {GROUP, 30}, {OTHER, 20}, {THIRD, 3});
    assert_int_equal(deliver(v, GROUP, 25), 0); /* late */
    assert_int_equal(deliver(v, THIRD, 22), 3);
    INBOX_IS(v, 3, {GROUP, 30}, {THIRD, 22}, {OTHER, 20});
    join(v, 3, GROUP, 1); /* told again: it does not fall back */
    INBOX_IS(v, 3, {GROUP, 30}, {THIRD, 22}, {OTHER, 20});
}

void who_writes_has_it_at_once(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    account(v, 1);
    join(v, 1, GROUP, 1);
    join(v, 1, OTHER, 2);
    write_to(v, 1, GROUP, 10);
    INBOX_IS(v, 1, {GROUP, 10}, {OTHER, 2});
    write_to(v, 1, GROUP, 9);
    INBOX_IS(v, 1, {GROUP, 10}, {OTHER, 2});
    assert_int_equal(deliver(v, GROUP, 10), 0);
    dropped_account(v, 2);
    write_to(v, 2, GROUP, 11);
    assert_true(is_dropped(v, 2));
}

void a_stranger_gets_what_is_pushed(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    account(v, 1);
    account(v, 2);
    join(v, 1, GROUP, 1);
    struct members m = followers(v, GROUP);
    leave(v, 1, GROUP, 2);
    size_t changed;
    assert_int_equal(inboxes_push_one(v->inboxes, GROUP, 10, m.handles, m.n, &changed), OK);
    assert_int_equal(changed, 1);
    INBOX_IS(v, 1, {GROUP, 10}); /* too much: the reader knows that they have left */
    uint64_t two = handle_of(v, 2);
    assert_int_equal(inboxes_push_one(v->inboxes, OTHER, 20, &two, 1, &changed), OK);
    INBOX_IS(v, 2, {OTHER, 20});
    assert_int_equal(followers(v, OTHER).n, 0);
}

void a_dropped_inbox_takes_nothing(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    account(v, 2);
    join(v, 1, GROUP, 1);
    join(v, 2, GROUP, 2);
    uint64_t both[2] = {handle_of(v, 2), handle_of(v, 1)};
    size_t changed;
    assert_int_equal(inboxes_push_one(v->inboxes, GROUP, 10, both, 2, &changed), OK);
    assert_int_equal(changed, 1);
    assert_true(is_dropped(v, 1));
    INBOX_IS(v, 2, {GROUP, 10});
    assert_int_equal(stats(v).inboxes, 1);
}

/* ---- 3: pages ---- */

void pages_of_an_inbox_continue(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    account(v, 1);
    for (uint64_t i = 1; i <= 200; i++)
        join(v, 1, GROUP + i, i);
    for (uint64_t i = 1; i <= 200; i += 3) /* every third has spoken since */
        write_to(v, 1, GROUP + i, 1000 + i);
    for (size_t size = 1; size <= 64; size = size * 2 + 1) {
        uint64_t below = UINT64_MAX, seen = 0;
        bool met[201] = {false};
        for (struct list l;; below = l.entries[l.n - 1].activity) {
            l = inbox_below(v, 1, below, size);
            if (l.n == 0)
                break;
            for (size_t i = 0; i < l.n; i++, seen++) {
                uint64_t which = l.entries[i].group - GROUP;
                assert_true(l.entries[i].activity < below);
                assert_true(which >= 1 && which <= 200 && !met[which]);
                assert_int_equal(l.entries[i].activity, which % 3 == 1 ? 1000 + which : which);
                met[which] = true;
            }
        }
        assert_int_equal(seen, 200);
    }
    assert_int_equal(inbox_below(v, 1, UINT64_MAX, 0).n, 0);
    assert_int_equal(inbox_below(v, 1, 1, 10).n, 0);
}

/* Groups that speak in the same millisecond on several nodes. */
void nothing_is_lost_between_the_view_and_truth(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    enum { GROUPS = 60, NODES = 4, SIZE = 8 };
    struct inbox_entry truth[GROUPS];
    account(v, 1);
    for (uint64_t i = 0; i < GROUPS; i++) {
        uint64_t ms = NOW_MS + i / 6, node = 1 + i % NODES, counter = i * 7 % 5;
        truth[i] = (struct inbox_entry){GROUP + i,
                                        (ms << ID_NODE_BITS | node) << ID_COUNTER_BITS | counter};
        join(v, 1, GROUP + i, truth[i].activity);
    }
    for (size_t pages = 1; pages <= 5; pages++) { /* so many from the view, the rest from truth */
        int met[GROUPS] = {0};
        uint64_t below = UINT64_MAX;
        for (size_t p = 0; p < pages; p++) {
            struct list l = inbox_below(v, 1, below, SIZE);
            assert_true(l.n > 0);
            for (size_t i = 0; i < l.n; i++)
                met[l.entries[i].group - GROUP]++;
            below = l.entries[l.n - 1].activity;
        }
        for (size_t i = 0; i < GROUPS; i++)
            met[i] += truth[i].activity < below;
        for (size_t i = 0; i < GROUPS; i++)
            assert_int_equal(met[i], 1);
    }
    for (size_t from = 0; from < GROUPS; from++) { /* the other way: it may repeat, not lose */
        int met[GROUPS] = {0};
        uint64_t below = truth[from].activity;
        for (struct list l;; below = l.entries[l.n - 1].activity) {
            l = inbox_below(v, 1, below, SIZE);
            if (l.n == 0)
                break;
            for (size_t i = 0; i < l.n; i++)
                met[l.entries[i].group - GROUP]++;
        }
        for (size_t i = 0; i < GROUPS; i++) {
            assert_true(met[i] <= 1);
            assert_true(met[i] == 1 || truth[i].activity >= truth[from].activity);
        }
    }
}

/* More of them than a page holds, and some with the same number on their nodes. */
void a_busy_millisecond_is_read_in_pages(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    enum { GROUPS = 24, NODES = 3, SIZE = 4 };
    account(v, 1);
    for (uint64_t i = 0; i < GROUPS; i++)
        join(v, 1, GROUP + i,
             ((uint64_t)NOW_MS << ID_NODE_BITS | (1 + i % NODES)) << ID_COUNTER_BITS | i / NODES);
    int met[GROUPS] = {0};
    uint64_t below = UINT64_MAX;
    for (struct list l;; below = l.entries[l.n - 1].activity) {
        l = inbox_below(v, 1, below, SIZE);
        if (l.n == 0)
            break;
        for (size_t i = 0; i < l.n; i++)
            met[l.entries[i].group - GROUP]++;
    }
    for (size_t i = 0; i < GROUPS; i++)
        assert_int_equal(met[i], 1);
}

/* ---- 4: rebuilding ---- */

#define ENTRIES(...)                                                                               \
    (const struct inbox_entry[]){__VA_ARGS__},                                                     \
        sizeof((const struct inbox_entry[]){__VA_ARGS__}) / sizeof(struct inbox_entry)

void what_happens_during_a_rebuild_is_kept(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    join(v, 1, GROUP, 1);
    join(v, 1, OTHER, 2);
    assert_true(is_dropped(v, 1));
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK);
    assert_true(is_dropped(v, 1)); /* not yet */
    assert_int_equal(deliver(v, GROUP, 50), 1);
    leave(v, 1, OTHER, 51);
    join(v, 1, THIRD, 52);
    join(v, 1, THIRD + 1, 53);
    leave(v, 1, THIRD + 1, 54);
    leave(v, 1, THIRD + 2, 55);
    join(v, 1, THIRD + 2, 56);
    write_to(v, 1, THIRD + 3, 57);
    assert_true(is_dropped(v, 1));
    /* Truth was read before all that. */
    assert_int_equal(inboxes_end(v->inboxes, 1,
                                 ENTRIES({THIRD + 3, 49}, {GROUP, 40}, {OTHER, 30}, {THIRD + 1, 20},
                                         {THIRD + 2, 10}, {THIRD + 4, 5})),
                     OK);
    INBOX_IS(v, 1, {THIRD + 3, 57}, {THIRD + 2, 56}, {THIRD, 52}, {GROUP, 50}, {THIRD + 4, 5});
    assert_int_equal(inboxes_begin(v->inboxes, 1), ERR_CONFLICT);
    assert_int_equal(inboxes_begin(v->inboxes, 777), ERR_NOT_FOUND);
    assert_int_equal(stats(v).inbox_entries, 5);
    assert_int_equal(stats(v).inboxes, 1);
    assert_int_equal(inboxes_anew(v->inboxes, 1), OK);
    assert_int_equal(stats(v).inbox_entries, 0);
    assert_int_equal(inboxes_end(v->inboxes, 1, NULL, 0), OK);
    assert_empty(v, 1);
}

void two_rebuilds_of_an_inbox_agree(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    join(v, 1, GROUP, 1);
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK);
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK);
    deliver(v, GROUP, 50);
    assert_int_equal(inboxes_end(v->inboxes, 1, ENTRIES({OTHER, 9}, {GROUP, 1})), OK);
    deliver(v, GROUP, 60);
    leave(v, 1, OTHER, 61);
    assert_int_equal(inboxes_anew(v->inboxes, 1), ERR_CONFLICT); /* the other one is under way */
    assert_int_equal(inboxes_end(v->inboxes, 1, ENTRIES({OTHER, 9}, {GROUP, 1})), OK);
    INBOX_IS(v, 1, {GROUP, 60});
}

void an_inbox_is_rebuilt_anew(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    assert_int_equal(inboxes_anew(v->inboxes, 777), ERR_NOT_FOUND);
    dropped_account(v, 2);
    assert_int_equal(inboxes_anew(v->inboxes, 2), ERR_CONFLICT);
    account(v, 1);
    join(v, 1, GROUP, 1);
    write_to(v, 1, OTHER, 2); /* does not belong there */
    assert_int_equal(inboxes_anew(v->inboxes, 1), OK);
    assert_true(is_dropped(v, 1));
    assert_int_equal(inboxes_anew(v->inboxes, 1), ERR_CONFLICT);
    deliver(v, GROUP, 30);
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK); /* a reader who came meanwhile */
    assert_int_equal(inboxes_give_up(v->inboxes, 1), OK);
    assert_int_equal(inboxes_end(v->inboxes, 1, ENTRIES({GROUP, 1})), OK);
    INBOX_IS(v, 1, {GROUP, 30});
    assert_int_equal(inboxes_anew(v->inboxes, 1), OK);
    assert_int_equal(inboxes_give_up(v->inboxes, 1), OK);
    assert_true(is_dropped(v, 1));
    assert_int_equal(deliver(v, GROUP, 40), 0);
    assert_int_equal(stats(v).inboxes, 0);
    assert_int_equal(stats(v).inbox_entries, 0);
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK);
    assert_int_equal(inboxes_end(v->inboxes, 1, ENTRIES({GROUP, 40})), OK);
    INBOX_IS(v, 1, {GROUP, 40});
    assert_int_equal(inboxes_end(v->inboxes, 2, ENTRIES({GROUP, 40})),
                     ERR_CONFLICT); /* no rebuild began */
    assert_true(is_dropped(v, 2));
}

void a_large_inbox_is_rebuilt(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    enum { MANY = 3000 };
    static struct inbox_entry entries[MANY], out[MANY + 1];
    size_t n;
    dropped_account(v, 1);
    join(v, 1, GROUP + 7, 1);
    for (uint64_t i = 0; i < MANY; i++)
        entries[i] = (struct inbox_entry){GROUP + i, MANY - i};
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK);
    deliver(v, GROUP + 7, MANY + 5);
    assert_int_equal(inboxes_end(v->inboxes, 1, entries, MANY), OK);
    assert_int_equal(inboxes_read(v->inboxes, 1, UINT64_MAX, out, MANY + 1, &n), OK);
    assert_int_equal(n, MANY);
    assert_int_equal(out[0].group, GROUP + 7);
    assert_int_equal(out[0].activity, MANY + 5);
    for (uint64_t i = 1; i < MANY; i++)
        assert_int_equal(out[i].group, GROUP + (i <= 7 ? i - 1 : i));
}

/* ---- 5: dropping ---- */

void a_drop_spoils_rebuilds_under_way(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    dropped_account(v, 1);
    join(v, 1, GROUP, 1);
    uint64_t one = handle_of(v, 1);
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK); /* and reads truth */
    assert_int_equal(inboxes_drop(v->inboxes, &one, 1), OK);
    assert_int_equal(inboxes_end(v->inboxes, 1, ENTRIES({GROUP, 1})), ERR_CONFLICT);
    assert_true(is_dropped(v, 1));
    /* Others come between the drop and the late end: it is not theirs. */
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK);
    assert_int_equal(inboxes_drop(v->inboxes, &one, 1), OK);
    (void)inboxes_begin(v->inboxes, 1);
    (void)inboxes_end(v->inboxes, 1, ENTRIES({GROUP, 1}));
    assert_true(is_dropped(v, 1));
    (void)inboxes_give_up(v->inboxes, 1);
    /* Ready, while a second one is still under way. */
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK);
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK);
    assert_int_equal(inboxes_end(v->inboxes, 1, ENTRIES({GROUP, 20})), OK);
    INBOX_IS(v, 1, {GROUP, 20});
    assert_int_equal(inboxes_drop(v->inboxes, &one, 1), OK);
    assert_true(is_dropped(v, 1));
    (void)inboxes_begin(v->inboxes, 1);
    assert_int_equal(inboxes_end(v->inboxes, 1, ENTRIES({GROUP, 1})), ERR_CONFLICT);
    assert_true(is_dropped(v, 1));
    (void)inboxes_give_up(v->inboxes, 1);
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK);
    assert_int_equal(inboxes_end(v->inboxes, 1, ENTRIES({GROUP, 30})), OK);
    INBOX_IS(v, 1, {GROUP, 30});
    assert_int_equal(stats(v).inboxes, 1);
    assert_int_equal(inboxes_drop(v->inboxes, &one, 1), OK);
    assert_int_equal(inboxes_drop(v->inboxes, &one, 1), OK);
    assert_int_equal(stats(v).inboxes, 0);
    assert_int_equal(stats(v).inbox_entries, 0);
}

void a_sweep_takes_inboxes_along(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    size_t dropped;
    bool wrapped;
    for (uint64_t i = 1; i <= 3; i++) {
        apply(v, VIEW_ACCOUNT, true, i, 0, i == 3 ? NOW_MS + DAY_MS : NOW_MS);
        join(v, i, GROUP, i);
    }
    assert_int_equal(inboxes_anew(v->inboxes, 2), OK);
    assert_int_equal(timelines_sweep(v->timelines, NOW_MS + 1000, 10000, &dropped, &wrapped), OK);
    assert_int_equal(dropped, 2);
    assert_true(is_dropped(v, 1));
    INBOX_IS(v, 3, {GROUP, 3});
    deliver(v, GROUP, 40); /* the rebuild was not dropped in the middle */
    assert_int_equal(inboxes_end(v->inboxes, 2, ENTRIES({GROUP, 2})), OK);
    INBOX_IS(v, 2, {GROUP, 40});
    assert_int_equal(timelines_sweep(v->timelines, NOW_MS + 1000, 10000, &dropped, &wrapped), OK);
    assert_int_equal(dropped, 0); /* it had no timeline any more */
    assert_true(is_dropped(v, 2));
}

/* ---- of all views: saved, and lost ---- */

void groups_and_inboxes_come_back(void **state)
{
    struct fixture *f = *state;
    struct views *v = f->v;
    for (uint64_t i = 1; i <= 200; i++) {
        account(v, i);
        join(v, i, GROUP, i);
        join(v, i, GROUP + 1 + i % 7, 300 + i);
    }
    deliver(v, GROUP + 3, 900);
    leave(v, 9, GROUP, 901);
    dropped_account(v, 300);
    join(v, 300, GROUP, 902);
    assert_int_equal(inboxes_anew(v->inboxes, 10), OK); /* under way */
    struct list before[201];
    for (uint64_t i = 1; i <= 200; i++)
        if (i != 10)
            before[i] = inbox_below(v, i, UINT64_MAX, LIST);
    struct view_stats s1 = stats(v);
    assert_int_equal(views_save(v, 4711), OK);
    reopen(f);
    v = f->v;
    for (uint64_t i = 1; i <= 200; i++)
        if (i != 10)
            assert_inbox(v, i, before[i].entries, before[i].n);
    assert_true(is_dropped(v, 10));
    assert_true(is_dropped(v, 300));
    struct view_stats s2 = stats(v);
    assert_int_equal(s2.accounts, s1.accounts);
    assert_int_equal(s2.groups, s1.groups);
    assert_int_equal(s2.memberships, s1.memberships);
    assert_int_equal(s2.inbox_entries, s1.inbox_entries);
    uint64_t ids[300];
    size_t n;
    assert_int_equal(graph_neighbours(v->graph, GROUP, true, 0, ids, 300, &n), OK);
    assert_int_equal(n, 200);
    assert_int_equal(deliver(v, GROUP, 1000), f->driver->lasting ? 199 : 198);
    assert_int_equal(inbox_below(v, 11, UINT64_MAX, 1).entries[0].group, GROUP);
}

void a_lost_driver_knows_no_inbox(void **state)
{
    struct fixture *f = *state;
    struct views *v = f->v;
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    struct list l;
    uint64_t ids[4];
    size_t n;
    if (!v->remote)
        return;
    account(v, 1);
    join(v, 1, GROUP, 1);
    dropped_account(v, 2);
    assert_int_equal(inboxes_begin(v->inboxes, 2), OK);
    for (int cleared = 0; cleared < 2; cleared++) {
        if (cleared)
            assert_int_equal(views_clear(v), OK);
        else
            views_suspect(v, true);
        assert_int_equal(inboxes_read(v->inboxes, 1, UINT64_MAX, l.entries, 4, &l.n),
                         ERR_NEEDS_TRUTH);
        assert_int_equal(inboxes_read(v->inboxes, 777, UINT64_MAX, l.entries, 4, &l.n),
                         ERR_NEEDS_TRUTH);
        assert_int_equal(inboxes_begin(v->inboxes, 1), ERR_CONFLICT);
        assert_int_equal(inboxes_anew(v->inboxes, 1), ERR_CONFLICT);
        assert_int_equal(graph_audience(v->graph, GROUP, &cursor, ids, 4, &n), ERR_UNAVAILABLE);
        if (!cleared) { /* an earlier rebuild has no result; applied changes count */
            assert_int_equal(inboxes_end(v->inboxes, 2, ENTRIES({GROUP, 1})), ERR_CONFLICT);
            join(v, 1, OTHER, 2);
            views_suspect(v, false);
            INBOX_IS(v, 1, {OTHER, 2}, {GROUP, 1});
            assert_true(is_dropped(v, 2));
        }
    }
    account(v, 1); /* may be an old one */
    change(v, VIEW_MEMBER, true, 1, GROUP, 1, 0);
    assert_int_equal(views_loaded(v), OK);
    assert_true(is_dropped(v, 1));
    assert_int_equal(followers(v, GROUP).n, 1);
    assert_int_equal(inboxes_begin(v->inboxes, 1), OK);
    deliver(v, GROUP, 7);
    assert_int_equal(inboxes_end(v->inboxes, 1, ENTRIES({GROUP, 1})), OK);
    INBOX_IS(v, 1, {GROUP, 7});
}

/* ---- 6 of all views: listening ---- */

/* Of the group's members, or the author's followers, as a walk meets them: who is signalled. */
static size_t signalled(struct views *v, uint64_t of, uint64_t accounts[LIST])
{
    uint64_t members[LIST];
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    size_t n;
    assert_int_equal(graph_audience(v->graph, of, &cursor, members, LIST, &n), OK);
    assert_true(cursor.end);
    return views_listening(v, members, n, accounts);
}

static void assert_signalled(struct views *v, uint64_t of, size_t n, uint64_t who)
{
    uint64_t accounts[LIST];
    assert_int_equal(signalled(v, of, accounts), n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(accounts[i], who + i);
}

void listeners_are_told(void **state)
{
    struct views *v = ((struct fixture *)*state)->v;
    account(v, 1);
    for (uint64_t i = 2; i <= 8; i++) {
        account(v, i);
        join(v, i, GROUP, i);
        follow(v, i, 1);
    }
    if (v->remote) { /* whoever it may be, at whichever node */
        assert_signalled(v, GROUP, 7, 2);
        assert_signalled(v, 1, 7, 2);
        assert_int_equal(views_listen(v, 7, true), OK);
        return;
    }
    assert_int_equal(views_listen(v, 777, true), ERR_NOT_FOUND);
    assert_signalled(v, GROUP, 0, 0);
    assert_int_equal(views_listen(v, 7, true), OK);
    assert_int_equal(views_listen(v, 7, true), OK);
    assert_signalled(v, GROUP, 1, 7);
    assert_signalled(v, 1, 1, 7);
    assert_int_equal(views_listen(v, 8, true), OK);
    assert_signalled(v, GROUP, 2, 7);
    assert_int_equal(views_listen(v, 8, false), OK);
    assert_int_equal(views_listen(v, 8, false), OK);
    /* Who has neither is met and signalled nevertheless. */
    uint64_t handle = handle_of(v, 7);
    assert_int_equal(inboxes_drop(v->inboxes, &handle, 1), OK);
    size_t dropped;
    bool wrapped;
    assert_int_equal(timelines_sweep(v->timelines, NOW_MS + DAY_MS, 10000, &dropped, &wrapped), OK);
    assert_int_equal(followers(v, GROUP).n, 1);
    assert_signalled(v, GROUP, 1, 7);
    assert_signalled(v, 1, 1, 7);
    assert_int_equal(views_listen(v, 7, false), OK);
    assert_signalled(v, GROUP, 0, 0);
    assert_int_equal(followers(v, GROUP).n, 0);
}
