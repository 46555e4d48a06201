/* Reading the home feed: what comes from memory and what from truth, paging through the floor,
 * rebuilds, and fills that race with changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "base/rand.h"
#include "model/feed.h"
#include "model/post.h"
#include "world.h"

enum { CAP = 10, IDS = 400 };

static struct world w;
static struct arena arena;
static struct feed_page page;

static int open_world(void **state)
{
    (void)state;
    world_open(&w, 3);
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

static int fresh(void **state)
{
    (void)state;
    world_stop(&w);
    world_clear(&w);
    world_start(&w, CAP);
    return 0;
}

static enum err read_page(bool blocking, uint64_t viewer, uint64_t below, size_t limit)
{
    arena_reset(&arena);
    return feed_read(w.views, w.cards, blocking ? w.db : NULL, viewer, below, limit, &arena, &page);
}

static void assert_feed_is_the_oracle(uint64_t viewer)
{
    static uint64_t expected[IDS], shown[IDS];
    size_t n = world_oracle(&w, viewer, expected, IDS);
    for (size_t limit = 1; limit <= 7; limit += 3) {
        assert_int_equal(world_feed(&w, viewer, limit, shown, IDS), n);
        assert_memory_equal(shown, expected, n * sizeof *shown);
    }
}

static void an_empty_feed_is_the_last_page(void **state)
{
    (void)state;
    uint64_t ada = world_account(&w, "ada");
    assert_int_equal(read_page(false, ada, UINT64_MAX, 20), OK);
    assert_int_equal(page.count, 0);
    assert_true(page.next_below == 0);
    assert_int_equal(read_page(false, 4711, UINT64_MAX, 20), ERR_NOT_FOUND);
}

static void ones_own_post_is_there_at_once(void **state)
{
    (void)state;
    uint64_t ada = world_account(&w, "ada");
    uint64_t post = world_post(&w, ada, "hello \"world\"");
    assert_int_equal(read_page(true, ada, UINT64_MAX, 20), OK);
    assert_int_equal(page.count, 1);
    assert_true(page.items[0].card.id == post);
    assert_true(str_eq(page.items[0].card.caption, STR("hello \"world\"")));
    assert_string_equal(page.items[0].author.username.ptr, "ada");
    assert_true(page.next_below == 0);
}

static void a_page_comes_from_memory_once_it_was_filled(void **state)
{
    (void)state;
    uint64_t ada = world_account(&w, "ada"), bob = world_account(&w, "bob");
    world_act(&w, ACT_FOLLOW, ada, bob);
    for (int i = 0; i < 5; i++)
        world_post(&w, bob, "post");
    world_drain(&w);
    assert_int_equal(read_page(false, ada, UINT64_MAX, 20), ERR_NEEDS_TRUTH); /* author and likes */
    assert_int_equal(read_page(true, ada, UINT64_MAX, 20), OK);
    assert_int_equal(page.count, 5);
    assert_int_equal(read_page(false, ada, UINT64_MAX, 20), OK);
    assert_int_equal(page.count, 5);
    assert_int_equal(read_page(false, ada, UINT64_MAX, 2), OK);
    assert_int_equal(page.count, 2);
    assert_true(page.next_below == page.items[1].card.id);
    assert_int_equal(read_page(false, ada, page.next_below, 3), OK);
    assert_int_equal(page.count, 3);
    assert_true(page.next_below == 0); /* it says so at once, without an empty page */
}

static void what_was_removed_is_gone_before_any_delivery(void **state)
{
    (void)state;
    uint64_t ada = world_account(&w, "ada"), bob = world_account(&w, "bob"),
             eve = world_account(&w, "eve");
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_act(&w, ACT_FOLLOW, ada, eve);
    uint64_t kept = world_post(&w, bob, "kept"), deleted = world_post(&w, bob, "deleted");
    world_post(&w, eve, "muted");
    world_drain(&w);
    assert_int_equal(read_page(true, ada, UINT64_MAX, 20), OK);
    assert_int_equal(page.count, 3);
    world_act(&w, ACT_DELETE, bob, deleted);
    world_act(&w, ACT_MUTE, ada, eve);
    assert_int_equal(read_page(false, ada, UINT64_MAX, 20), OK);
    assert_int_equal(page.count, 1);
    assert_true(page.items[0].card.id == kept);
    world_act(&w, ACT_UNMUTE, ada, eve);
    world_act(&w, ACT_SUSPEND, 0, eve);
    world_act(&w, ACT_UNFOLLOW, ada, bob);
    assert_int_equal(read_page(false, ada, UINT64_MAX, 20), OK);
    assert_int_equal(page.count, 0);
    world_act(&w, ACT_RESTORE, 0, eve);
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_drain(&w);
    assert_feed_is_the_oracle(ada); /* and both are back */
    assert_int_equal(read_page(true, ada, UINT64_MAX, 20), OK);
    assert_int_equal(page.count, 2);
}

static void reading_goes_on_below_the_floor(void **state)
{
    (void)state;
    uint64_t ada = world_account(&w, "ada"), bob = world_account(&w, "bob"),
             eve = world_account(&w, "eve");
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_act(&w, ACT_FOLLOW, ada, eve);
    for (int i = 0; i < 2 * CAP; i++)
        world_post(&w, i % 3 ? bob : eve, "many");
    world_drain(&w);
    assert_feed_is_the_oracle(ada);
    assert_int_equal(read_page(true, ada, UINT64_MAX, CAP), OK);
    assert_int_equal(page.count, CAP);
    assert_true(page.next_below > 0);
    assert_int_equal(read_page(false, ada, page.next_below, CAP), ERR_NEEDS_TRUTH);
}

static void pulled_posts_are_merged_in(void **state)
{
    (void)state;
    uint64_t star = world_account(&w, "star"), fans[4];
    for (size_t i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "fan%zu", i);
        fans[i] = world_account(&w, name);
        world_post(&w, fans[i], "mine");
        world_act(&w, ACT_FOLLOW, fans[i], star); /* the third makes a celebrity */
        world_post(&w, star, "news");
    }
    world_drain(&w);
    for (size_t i = 0; i < 4; i++)
        assert_feed_is_the_oracle(fans[i]);
    for (int i = 0; i < 2 * CAP; i++) /* beyond what a pull list holds */
        world_post(&w, star, "more news");
    world_drain(&w);
    for (size_t i = 0; i < 4; i++)
        assert_feed_is_the_oracle(fans[i]);
    for (size_t i = 0; i < 3; i++) /* ceases: what was pulled stays readable */
        world_act(&w, ACT_UNFOLLOW, fans[i], star);
    world_post(&w, star, "pushed again");
    world_drain(&w);
    for (size_t i = 0; i < 4; i++)
        assert_feed_is_the_oracle(fans[i]);
}

static void a_dropped_timeline_comes_back_whole_when_read(void **state)
{
    (void)state;
    uint64_t ada = world_account(&w, "ada"), bob = world_account(&w, "bob"),
             eve = world_account(&w, "eve");
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_act(&w, ACT_FOLLOW, ada, eve);
    world_act(&w, ACT_MUTE, ada, eve);
    for (int i = 0; i < CAP; i++)
        world_post(&w, i % 2 ? bob : eve, "before");
    world_drain(&w);
    manual_clock_advance(&w.clock, INT64_C(40) * 24 * 3600 * 1000);
    size_t dropped;
    bool wrapped;
    assert_int_equal(timelines_sweep(w.views->timelines, clock_wall_ms(&w.clock.clock) - 1000, 100,
                                     &dropped, &wrapped),
                     OK);
    assert_int_equal(dropped, 3);
    world_post(&w, bob, "while away");
    world_drain(&w);
    arena_reset(&arena);
    assert_int_equal(feed_peek(w.views, w.cards, w.db, ada, UINT64_MAX, 20, &arena, &page), OK);
    assert_int_equal(page.count, CAP / 2 + 1);
    assert_int_equal(read_page(false, ada, UINT64_MAX, 20),
                     ERR_NEEDS_TRUTH); /* a look did not bring it back */
    assert_int_equal(read_page(true, ada, UINT64_MAX, 20), OK);
    assert_int_equal(page.count, CAP / 2 + 1);
    assert_int_equal(read_page(false, ada, UINT64_MAX, 3), OK);
    world_act(&w, ACT_UNMUTE, ada, eve); /* the rebuild kept what was muted then */
    assert_feed_is_the_oracle(ada);
}

/* ---- fills that race with changes ---- */

static const struct db_ops *real_ops;
static struct db_ops racing_ops;
static void (*between)(
    void); /* runs once, after the next snapshot was read and before anything is kept */

static enum err read_and_race(struct db *db, tx_fn run, void *arg, char *detail)
{
    enum err e = real_ops->read(db, run, arg, detail);
    void (*now)(void) = between;
    between = NULL;
    if (now)
        now();
    return e;
}

static void race(void (*change)(void))
{
    real_ops = w.db->ops;
    racing_ops = *real_ops;
    racing_ops.read = read_and_race;
    w.db->ops = &racing_ops;
    between = change;
}

static void race_is_over(void)
{
    assert_null(between);
    w.db->ops = real_ops;
}

static uint64_t raced_author, raced_post;

static void edit_it(void)
{
    struct deed d = {
        .act = ACT_EDIT, .who = raced_author, .what = raced_post, .text = STR("newer")};
    assert_int_equal(world_do(&w, &d), OK);
}

static void delete_it(void)
{
    world_act(&w, ACT_DELETE, raced_author, raced_post);
}

static void rename_author(void)
{
    struct deed d = {.act = ACT_UPDATE, .who = raced_author, .text = STR("Newer Name")};
    assert_int_equal(world_do(&w, &d), OK);
}

static void like_it(void)
{
    world_act(&w, ACT_LIKE, raced_author, raced_post);
}

/* A reader whose caches are empty: every card comes from truth. */
static uint64_t race_setup(const char *caption)
{
    uint64_t ada = world_account(&w, "ada");
    raced_author = ada;
    raced_post = world_post(&w, ada, caption);
    world_drain(&w);
    world_save(&w);
    world_stop(&w);
    world_start(&w, CAP);
    return ada;
}

static void a_fill_never_hides_a_later_edit(void **state)
{
    (void)state;
    uint64_t ada = race_setup("older");
    race(edit_it);
    assert_int_equal(read_page(true, ada, UINT64_MAX, 5), OK);
    race_is_over();
    assert_int_equal(read_page(true, ada, UINT64_MAX, 5), OK);
    assert_int_equal(page.count, 1);
    assert_true(str_eq(page.items[0].card.caption, STR("newer")));
}

static void a_fill_never_brings_back_a_deleted_post(void **state)
{
    (void)state;
    uint64_t ada = race_setup("older");
    race(delete_it);
    assert_int_equal(read_page(true, ada, UINT64_MAX, 5),
                     OK); /* began before the delete: either is fine */
    race_is_over();
    assert_int_equal(read_page(true, ada, UINT64_MAX, 5), OK);
    assert_int_equal(page.count, 0);
}

/* The first read of the page loads posts; the race is with the second one. */
static void (*second)(void);
static void arm_second(void)
{
    between = second;
}

static void a_fill_never_hides_a_later_name_or_like(void **state)
{
    (void)state;
    static void (*const changes[])(void) = {rename_author, like_it};
    for (size_t i = 0; i < 2; i++) {
        fresh(NULL);
        uint64_t ada = race_setup("text");
        second = changes[i];
        race(arm_second);
        assert_int_equal(read_page(true, ada, UINT64_MAX, 5), OK);
        race_is_over();
        assert_int_equal(read_page(true, ada, UINT64_MAX, 5), OK);
        assert_int_equal(page.count, 1);
        struct str name = page.items[0].author.display_name;
        assert_int_equal(str_eq(name, STR("Newer Name")), i == 0);
        assert_int_equal(page.items[0].liked, i == 1);
        assert_int_equal(page.items[0].card.like_count, i);
    }
}

static uint64_t push_target;
static void push_during_rebuild(void)
{
    world_post(&w, push_target, "while rebuilding");
    world_drain(&w);
}

static void a_push_during_a_rebuild_is_not_lost(void **state)
{
    (void)state;
    uint64_t ada = world_account(&w, "ada"), bob = world_account(&w, "bob");
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_post(&w, bob, "before");
    world_drain(&w);
    size_t dropped;
    bool wrapped;
    manual_clock_advance(&w.clock, 10000);
    timelines_sweep(w.views->timelines, clock_wall_ms(&w.clock.clock) - 1000, 100, &dropped,
                    &wrapped);
    assert_int_equal(dropped, 2);
    push_target = bob;
    race(push_during_rebuild);
    assert_int_equal(read_page(true, ada, UINT64_MAX, 5), OK);
    race_is_over();
    assert_int_equal(page.count, 2);
    assert_feed_is_the_oracle(ada);
}

/* ---- from truth ---- */

struct merging {
    uint64_t viewer, below;
    size_t limit, merged, plain;
    uint64_t a[IDS], b[IDS];
    struct arena *arena;
};

static enum err merge_and_ask(struct tx *tx, void *arg)
{
    struct merging *m = arg;
    enum err e =
        feed_from_truth(tx, m->viewer, m->below, m->limit, false, m->arena, m->a, &m->merged);
    return e ? e : feed_oracle(tx, m->viewer, m->below, m->limit, m->b, &m->plain);
}

static void merging_equals_the_oracle_over_random_worlds(void **state)
{
    (void)state;
    enum { PEOPLE = 10, WORLDS = 15, POSTS = 150 };
    static struct merging m;
    struct rand r;
    rand_seed(&r, 11);
    world_stop(&w);
    for (int world = 0; world < WORLDS; world++) {
        uint64_t people[PEOPLE], posts[POSTS];
        world_clear(&w);
        for (size_t i = 0; i < PEOPLE; i++) {
            char name[32];
            snprintf(name, sizeof name, "p%d.%zu", world, i);
            people[i] = world_account(&w, name);
        }
        for (size_t i = 0; i < POSTS; i++) {
            uint64_t a = people[rand_below(&r, PEOPLE)], b = people[rand_below(&r, PEOPLE)];
            static const enum act kinds[] = {ACT_FOLLOW, ACT_FOLLOW, ACT_UNFOLLOW,
                                             ACT_MUTE,   ACT_UNMUTE, ACT_BLOCK};
            struct deed d = {.act = kinds[rand_below(&r, 6)], .who = a, .what = b};
            world_do(&w, &d);
            /* a few people post most */
            posts[i] = world_post(&w, people[rand_below(&r, 1 + rand_below(&r, PEOPLE))], "text");
            if (rand_below(&r, 5) == 0) {
                d = (struct deed){.act = ACT_DELETE, .what = posts[rand_below(&r, i + 1)]};
                world_do(&w, &d);
            }
        }
        world_act(&w, ACT_SUSPEND, 0, people[rand_below(&r, PEOPLE)]);
        world_act(&w, ACT_DELETE_ACCOUNT, 0, people[1 + rand_below(&r, PEOPLE - 1)]);
        for (int look = 0; look < 40; look++) {
            m.viewer = people[rand_below(&r, PEOPLE)];
            m.below = rand_below(&r, 3) ? posts[rand_below(&r, POSTS)] : UINT64_MAX;
            m.limit = 1 + rand_below(&r, rand_below(&r, 2) ? 10 : IDS);
            m.arena = &arena;
            arena_reset(&arena);
            assert_int_equal(db_read(w.db, merge_and_ask, &m, NULL), OK);
            assert_int_equal(m.merged, m.plain);
            assert_memory_equal(m.a, m.b, m.merged * sizeof *m.a);
        }
    }
}

struct hydrating {
    uint64_t viewer, ids[3];
    struct feed_item items[3];
    size_t count;
};

static enum err hydrate(struct tx *tx, void *arg)
{
    struct hydrating *h = arg;
    return feed_hydrate(w.cards, tx, h->viewer, h->ids, 3, &arena, h->items, &h->count);
}

static void hydrating_leaves_out_what_is_gone(void **state)
{
    (void)state;
    uint64_t ada = world_account(&w, "ada"), bob = world_account(&w, "bob");
    static struct hydrating h;
    h = (struct hydrating){.viewer = bob};
    for (size_t i = 0; i < 3; i++)
        h.ids[i] = world_post(&w, ada, "text");
    world_act(&w, ACT_LIKE, bob, h.ids[0]);
    world_act(&w, ACT_DELETE, ada, h.ids[1]);
    for (int i = 0; i < 2; i++) {
        arena_reset(&arena);
        assert_int_equal((i ? db_write : db_read)(w.db, hydrate, &h, NULL), OK);
        assert_int_equal(h.count, 2);
        assert_true(h.items[0].liked && !h.items[1].liked);
        assert_int_equal(h.items[0].card.like_count, 1);
        assert_true(h.items[1].card.id == h.ids[2]);
    }
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup(test, fresh)
    const struct CMUnitTest tests[] = {
        FRESH(an_empty_feed_is_the_last_page),
        FRESH(ones_own_post_is_there_at_once),
        FRESH(a_page_comes_from_memory_once_it_was_filled),
        FRESH(what_was_removed_is_gone_before_any_delivery),
        FRESH(reading_goes_on_below_the_floor),
        FRESH(pulled_posts_are_merged_in),
        FRESH(a_dropped_timeline_comes_back_whole_when_read),
        FRESH(a_fill_never_hides_a_later_edit),
        FRESH(a_fill_never_brings_back_a_deleted_post),
        FRESH(a_fill_never_hides_a_later_name_or_like),
        FRESH(a_push_during_a_rebuild_is_not_lost),
        FRESH(merging_equals_the_oracle_over_random_worlds),
        FRESH(hydrating_leaves_out_what_is_gone),
    };
    return cmocka_run_group_tests_name("model/feed", tests, open_world, close_world);
}
