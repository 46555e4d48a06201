/* Reading the inbox through the views against the same from truth: random histories of groups,
 * members, messages and dropped inboxes, drained and in the middle of it. Runs on either set of
 * drivers (test/support/drivers.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/rand.h"
#include "model/inbox.h"
#include "world.h"

enum { PEOPLE = 6, GROUPS_MAX = 60, CAP = 10, ROUNDS = 25, ACTS = 30 };

static struct world w;
static struct arena arena;
static struct rand rnd;
static uint64_t people[PEOPLE], handles[PEOPLE], groups[GROUPS_MAX];
static size_t group_count;
static uint64_t from_memory; /* pages */

static int open_world(void **state)
{
    (void)state;
    world_open_on(&w, 1000, test_drivers_wanted());
    arena_init(&arena);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    arena_done(&arena);
    world_close(&w);
    return 0;
}

/* What the engine calls an account: members are named so. */
static uint64_t handle_of(uint64_t account)
{
    struct view_change change = {.kind = VIEW_MEMBER, .on = true, .account = account, .other = 7};
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    uint64_t handle = 0;
    size_t n = 0;
    EXPECT(world_apply(&w, change) == OK);
    EXPECT(graph_audience(w.views->graph, change.other, &cursor, &handle, 1, &n) == OK && n == 1);
    change.on = false;
    EXPECT(world_apply(&w, change) == OK);
    return handle;
}

static int fresh(void **state)
{
    (void)state;
    world_stop(&w);
    world_clear(&w);
    test_drivers_lose_views(&w.drivers);
    world_start(&w, CAP);
    group_count = 0;
    for (size_t i = 0; i < PEOPLE; i++) {
        char name[20];
        snprintf(name, sizeof name, "person%zu", i);
        people[i] = world_account(&w, name);
        handles[i] = handle_of(people[i]);
    }
    return 0;
}

/* ---- acts ---- */

struct wish {
    enum { MAKE, SAY, ADD, LEAVE, ARCHIVE } what;
    uint64_t who, group, other;
    bool on;
    uint64_t made;
};

static enum err carry_out(struct tx *tx, void *arg)
{
    struct wish *a = arg;
    struct group g;
    struct group_entry entry;
    enum member_outcome outcome;
    bool repeated;
    enum err e = OK;
    switch (a->what) {
    case MAKE: {
        const struct group_new in = {
            .owner = a->who, .name = STR("g"), .members = &a->other, .member_count = 1};
        e = group_create(tx, &in, &arena, &g);
        a->made = g.id;
        return e;
    }
    case SAY: {
        const struct message_new in = {.group = a->group, .author = a->who, .body = STR("hi")};
        return message_send(tx, &in, &arena, &entry, &repeated);
    }
    case ADD:
        return group_member_put(tx, a->group, a->who, a->other, &(struct member_wish){0}, &outcome);
    case LEAVE:
        return group_member_remove(tx, a->group, a->who, a->who);
    case ARCHIVE:
        return group_update(tx, a->group, a->who,
                            &(struct group_change){.set_archived = true, .archived = a->on}, &arena,
                            &g);
    }
    return e;
}

static enum err act(struct wish a)
{
    enum err e = db_write(w.db, carry_out, &a, NULL);
    arena_reset(&arena);
    if (!e && a.what == MAKE)
        groups[group_count++] = a.made;
    return e;
}

static uint64_t somebody(void)
{
    return people[rand_below(&rnd, PEOPLE)];
}

/* Whatever is not possible just now is refused, which is as well. */
static void act_at_random(void)
{
    uint64_t dice = rand_below(&rnd, 100), a = somebody(), b = somebody();
    uint64_t handle = handles[rand_below(&rnd, PEOPLE)];
    uint64_t group = group_count ? groups[rand_below(&rnd, group_count)] : 0;
    if (!group || (dice < 15 && group_count < GROUPS_MAX)) {
        (void)act((struct wish){MAKE, a, 0, a == b ? people[0] == a ? people[1] : people[0] : b,
                                false, 0});
    } else if (dice < 65) {
        (void)act((struct wish){SAY, a, group, 0, false, 0});
    } else if (dice < 78) {
        (void)act((struct wish){ADD, a, group, b, false, 0});
    } else if (dice < 86) {
        (void)act((struct wish){LEAVE, a, group, 0, false, 0});
    } else if (dice < 94) {
        (void)act((struct wish){ARCHIVE, a, group, 0, rand_below(&rnd, 2) == 0, 0});
    } else if (dice < 97) {
        assert_int_equal(inboxes_drop(w.views->inboxes, &handle, 1), OK);
    } else { /* a late delivery to somebody who may have left, or was never there */
        size_t changed;
        uint64_t activity = 1 + rand_below(&rnd, 1000);
        assert_int_equal(inboxes_push_one(w.views->inboxes, group, activity, &handle, 1, &changed),
                         OK);
    }
    if (rand_below(&rnd, 3) == 0)
        world_step(&w);
}

/* ---- looking ---- */

struct oracle {
    uint64_t account;
    bool archived;
    uint64_t groups[GROUPS_MAX + 1], activities[GROUPS_MAX + 1];
    size_t n;
};

static enum err ask_oracle(struct tx *tx, void *arg)
{
    struct oracle *o = arg;
    return inbox_from_truth(tx, o->account, UINT64_MAX, o->archived, GROUPS_MAX + 1, o->groups,
                            o->activities, &o->n);
}

/* What was read just now is answered again without the store, or not at all. */
static void assert_same_from_memory(uint64_t account, uint64_t below, bool archived, size_t limit,
                                    const struct inbox_page *page)
{
    static struct inbox_page again;
    enum err e =
        inbox_page_read(w.views, w.cards, NULL, account, below, archived, limit, &arena, &again);
    bool shared = w.views->remote || w.cards->shared;
    if (e == ERR_NEEDS_TRUTH)
        return;
    assert_int_equal(e, OK);
    assert_true(!shared && !archived);
    from_memory++;
    assert_int_equal(again.count, page->count);
    assert_int_equal(again.next_below, page->next_below);
    for (size_t i = 0; i < page->count; i++) {
        const struct inbox_item *a = &again.items[i], *b = &page->items[i];
        assert_int_equal(a->group.id, b->group.id);
        assert_int_equal(a->position, b->position);
        assert_int_equal(a->unread, b->unread);
        assert_int_equal(a->group.seq, b->group.seq);
        assert_int_equal(a->last.seq, b->last.seq);
    }
}

static size_t read_all(uint64_t account, bool archived, size_t limit, uint64_t *out)
{
    static struct inbox_page page;
    uint64_t below = UINT64_MAX;
    size_t n = 0;
    do {
        assert_int_equal(
            inbox_page_read(w.views, w.cards, w.db, account, below, archived, limit, &arena, &page),
            OK);
        assert_same_from_memory(account, below, archived, limit, &page);
        assert_true(page.count <= limit && n + page.count <= GROUPS_MAX);
        assert_true(page.count == limit || page.next_below == 0);
        for (size_t i = 0; i < page.count; i++)
            out[n++] = page.items[i].group.id;
        assert_true(page.next_below < below);
        below = page.next_below;
        arena_reset(&arena);
    } while (below);
    return n;
}

static void assert_inboxes_are_exact(void)
{
    static const size_t limits[] = {1, 3, 20, INBOX_LIMIT_MAX};
    for (size_t p = 0; p < PEOPLE; p++) {
        for (int archived = 0; archived < 2; archived++) {
            struct oracle o = {.account = people[p], .archived = archived};
            uint64_t got[GROUPS_MAX];
            assert_int_equal(db_read(w.db, ask_oracle, &o, NULL), OK);
            for (size_t i = 0; i < COUNT_OF(limits); i++) {
                assert_int_equal(read_all(people[p], archived, limits[i], got), o.n);
                assert_memory_equal(got, o.groups, o.n * sizeof *got);
            }
        }
    }
}

/* In the middle of things: the groups that truth has, each once, in whatever order. */
static void assert_nothing_is_missing(void)
{
    for (size_t p = 0; p < PEOPLE; p++) {
        struct oracle o = {.account = people[p]};
        uint64_t got[GROUPS_MAX];
        assert_int_equal(db_read(w.db, ask_oracle, &o, NULL), OK);
        assert_int_equal(read_all(people[p], false, 7, got), o.n);
        for (size_t i = 0; i < o.n; i++) {
            size_t times = 0;
            for (size_t k = 0; k < o.n; k++)
                times += got[k] == o.groups[i];
            assert_int_equal(times, 1);
        }
    }
}

/* ---- tests ---- */

static void an_inbox_is_what_truth_says_when_all_is_delivered(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        fresh(NULL);
        rand_seed(&rnd, seed);
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < ACTS; i++)
                act_at_random();
            assert_nothing_is_missing();
            world_drain(&w);
            assert_inboxes_are_exact();
        }
    }
    if (!w.views->remote)
        assert_true(from_memory > 10000); /* or the cards would keep little */
}

static void a_dropped_inbox_is_there_again_after_one_read(void **state)
{
    (void)state;
    struct inbox_entry entries[4];
    uint64_t got[GROUPS_MAX];
    size_t n;
    for (int i = 0; i < 5; i++)
        EXPECT(act((struct wish){MAKE, people[0], 0, people[1], false, 0}) == OK);
    world_drain(&w);
    assert_int_equal(inboxes_drop(w.views->inboxes, &handles[1], 1), OK);
    assert_int_equal(inboxes_read(w.views->inboxes, people[1], UINT64_MAX, entries, 4, &n),
                     ERR_NEEDS_TRUTH);
    assert_int_equal(read_all(people[1], false, 3, got), 5);
    assert_int_equal(inboxes_read(w.views->inboxes, people[1], UINT64_MAX, entries, 4, &n), OK);
    assert_true(n > 0);
    assert_inboxes_are_exact();
    assert_int_equal(inbox_rebuild(w.views, w.db, people[1], false), ERR_CONFLICT);
    assert_int_equal(inbox_rebuild(w.views, w.db, people[1], true), OK);
    assert_inboxes_are_exact();
}

static void archived_groups_do_not_hide_the_rest(void **state)
{
    (void)state;
    for (int i = 0; i < GROUPS_MAX; i++)
        EXPECT(act((struct wish){MAKE, people[0], 0, people[1], false, 0}) == OK);
    for (int i = 2; i < GROUPS_MAX; i++) /* all but the two at the end */
        EXPECT(act((struct wish){ARCHIVE, people[1], groups[i], 0, true, 0}) == OK);
    world_drain(&w);
    uint64_t got[GROUPS_MAX];
    assert_int_equal(read_all(people[1], false, 1, got), 2);
    assert_true(got[0] == groups[1] && got[1] == groups[0]);
    assert_inboxes_are_exact();
}

static enum err say_in_all(struct tx *tx, void *arg)
{
    (void)arg;
    struct group_entry entry;
    bool repeated;
    enum err e = OK;
    for (size_t i = 0; !e && i < group_count; i++) {
        const struct message_new in = {.group = groups[i], .author = people[0], .body = STR("hi")};
        e = message_send(tx, &in, &arena, &entry, &repeated);
    }
    return e;
}

/* What is said between the pages is not delivered yet, so the group is where it was, as far as the
 * views know. In one transaction: several of them in one millisecond. */
static void a_group_that_speaks_between_two_pages_does_not_come_twice(void **state)
{
    (void)state;
    static struct inbox_page page;
    for (int i = 0; i < 8; i++)
        EXPECT(act((struct wish){MAKE, people[0], 0, people[1], false, 0}) == OK);
    EXPECT(db_write(w.db, say_in_all, NULL, NULL) == OK);
    world_drain(&w);
    manual_clock_advance(&w.clock, 10);
    uint64_t below = UINT64_MAX;
    for (int i = 7; i >= 0; i--) {
        assert_int_equal(
            inbox_page_read(w.views, w.cards, w.db, people[1], below, false, 1, &arena, &page), OK);
        assert_int_equal(page.count, 1);
        assert_int_equal(page.items[0].group.id, groups[i]);
        below = page.next_below;
        EXPECT(act((struct wish){SAY, people[0], groups[i], 0, false, 0}) == OK);
    }
    assert_int_equal(below, 0);
    world_drain(&w);
    assert_inboxes_are_exact();
}

static void an_account_that_the_views_do_not_know_is_read_from_truth(void **state)
{
    (void)state;
    static struct inbox_page page;
    assert_int_equal(
        inbox_page_read(w.views, w.cards, w.db, 4711, UINT64_MAX, false, 5, &arena, &page), OK);
    assert_int_equal(page.count, 0);
    if (!w.views->remote)
        return;
    EXPECT(act((struct wish){MAKE, people[0], 0, people[1], false, 0}) == OK);
    views_suspect(w.views, true);
    uint64_t got[GROUPS_MAX];
    assert_int_equal(read_all(people[1], false, 5, got), 1);
    views_suspect(w.views, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_dropped_inbox_is_there_again_after_one_read, fresh),
        cmocka_unit_test_setup(archived_groups_do_not_hide_the_rest, fresh),
        cmocka_unit_test_setup(a_group_that_speaks_between_two_pages_does_not_come_twice, fresh),
        cmocka_unit_test_setup(an_account_that_the_views_do_not_know_is_read_from_truth, fresh),
        cmocka_unit_test_setup(an_inbox_is_what_truth_says_when_all_is_delivered, fresh),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
