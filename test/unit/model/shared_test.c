/* What changes when views and cards are shared by many nodes: the feed while they are away or have
 * lost something, events in one trip, and what truth knows about it all. The views and cards of a
 * real stack stand behind a wall that lets through what the test wants. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/celebrity.h"
#include "model/event_views.h"
#include "model/post.h"
#include "model/truth.h"
#include "model/views_state.h"
#include "world.h"

enum { CAP = 10, IDS = 400, FROM_TRUTH_MAX = 16 };

/* ---- the wall ---- */

static struct world w;
static struct arena arena;
static struct feed_page page;

static struct {
    struct views views;
    struct cards cards;
    struct graph graph;
    struct timelines timelines;
    struct views_ops views_ops;
    struct graph_ops graph_ops;
    struct timelines_ops timelines_ops;
    struct cards_ops cards_ops;
    enum err home, visible, rebuild, apply; /* what is said instead of an answer */
    bool lost, cards_lie;
    int asked, applies, writes, finds;
    struct view_change changes[16];
    struct card_write written[16];
    size_t change_count, write_count;
} wall;

static enum err wall_home(struct timelines *v, uint64_t viewer, uint64_t below, uint64_t *ids,
                          size_t max, size_t *n, uint64_t *floor)
{
    (void)v;
    wall.asked++;
    *n = 0;
    *floor = UINT64_MAX;
    if (wall.home || wall.lost)
        return wall.home;
    return timelines_home(w.views->timelines, viewer, below, ids, max, n, floor);
}

static enum err wall_visible(struct graph *v, uint64_t viewer, const uint64_t *authors, size_t n,
                             bool *out)
{
    (void)v;
    wall.asked++;
    if (wall.visible || wall.lost)
        return wall.visible ? wall.visible : ERR_NEEDS_TRUTH;
    return graph_visible(w.views->graph, viewer, authors, n, out);
}

static enum err wall_rebuild(struct timelines *v, uint64_t viewer, enum view_rebuild step,
                             const uint64_t *ids, size_t n, uint64_t floor)
{
    (void)v;
    wall.asked++;
    if (wall.rebuild || wall.lost)
        return wall.rebuild ? wall.rebuild : ERR_CONFLICT;
    return w.views->timelines->ops->rebuild(w.views->timelines, viewer, step, ids, n, floor);
}

static enum err wall_apply(struct views *v, const struct view_change *changes, size_t n)
{
    (void)v;
    wall.applies++;
    for (size_t i = 0; i < n && wall.change_count < COUNT_OF(wall.changes); i++)
        wall.changes[wall.change_count++] = changes[i];
    return wall.apply;
}

static void wall_posts(struct cards *c, const uint64_t *ids, size_t n, struct post_card *out,
                       enum card_state *state, struct arena *a)
{
    (void)c;
    wall.finds++;
    cards_posts(w.cards, ids, n, out, state, a);
    for (size_t i = 0; wall.cards_lie && i < n; i++)
        if (state[i] == CARD_FOUND)
            out[i].caption = STR("of yesterday");
}

static void wall_write(struct cards *c, const struct card_write *writes, size_t n)
{
    (void)c;
    wall.writes++;
    for (size_t i = 0; i < n && wall.write_count < COUNT_OF(wall.written); i++)
        wall.written[wall.write_count++] = writes[i];
    cards_write(w.cards, writes, n);
}

static uint64_t wall_tickets(struct cards *c, const uint64_t *keys, size_t n, card_ticket *out)
{
    (void)c;
    return cards_tickets(w.cards, keys, n, out);
}
static void wall_accounts(struct cards *c, const uint64_t *ids, size_t n, struct account_card *out,
                          struct arena *a)
{
    (void)c;
    cards_accounts(w.cards, ids, n, out, a);
}
static enum err wall_liked(struct cards *c, uint64_t viewer, const uint64_t *ids, size_t n,
                           bool *out)
{
    (void)c;
    return cards_liked(w.cards, viewer, ids, n, out);
}
static void build_wall(void)
{
    memset(&wall, 0, sizeof wall);
    wall.views_ops = (struct views_ops){.apply = wall_apply};
    wall.graph_ops = (struct graph_ops){.visible = wall_visible};
    wall.timelines_ops = (struct timelines_ops){.home = wall_home, .rebuild = wall_rebuild};
    wall.graph.ops = &wall.graph_ops;
    wall.timelines.ops = &wall.timelines_ops;
    wall.cards_ops = (struct cards_ops){.tickets = wall_tickets,
                                        .posts = wall_posts,
                                        .accounts = wall_accounts,
                                        .liked = wall_liked,
                                        .write = wall_write};
    wall.views = (struct views){.ops = &wall.views_ops,
                                .graph = &wall.graph,
                                .timelines = &wall.timelines,
                                .cap = CAP,
                                .remote = true};
    wall.cards = (struct cards){.ops = &wall.cards_ops, .shared = true};
}

/* ---- the world ---- */

static uint64_t ada, bob, eve;

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

/* ada follows bob, whose posts are pushed, and eve, whose posts are pulled. */
static int fresh(void **state)
{
    (void)state;
    world_stop(&w);
    world_clear(&w);
    world_start(&w, CAP);
    build_wall();
    ada = world_account(&w, "ada");
    bob = world_account(&w, "bob");
    eve = world_account(&w, "eve");
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_act(&w, ACT_FOLLOW, ada, eve);
    world_act(&w, ACT_FOLLOW, bob, eve);
    world_act(&w, ACT_FOLLOW, world_account(&w, "joe"), eve);
    for (int i = 0; i < 2 * CAP; i++) {
        uint64_t post = world_post(&w, i % 3 ? bob : eve, "today");
        if (i % 4 == 0)
            world_act(&w, ACT_LIKE, ada, post);
        if (i % 5 == 0)
            world_post(&w, ada, "my own");
    }
    world_drain(&w);
    return 0;
}

static enum err read_page(struct db *db, uint64_t viewer, uint64_t below, size_t limit)
{
    arena_reset(&arena);
    return feed_read(&wall.views, &wall.cards, db, viewer, below, limit, &arena, &page);
}

/* All pages, and what is drawn of each post. */
static void assert_feed_is_the_oracle(uint64_t viewer)
{
    uint64_t expected[IDS];
    size_t n = world_oracle(&w, viewer, expected, IDS);
    for (size_t limit = 1; limit <= 7; limit += 3) {
        size_t at = 0;
        uint64_t below = UINT64_MAX;
        do {
            assert_int_equal(read_page(w.db, viewer, below, limit), OK);
            assert_true(page.count <= limit && at + page.count <= n);
            for (size_t i = 0; i < page.count; i++, at++) {
                const struct feed_item *item = &page.items[i];
                assert_true(item->card.id == expected[at]);
                assert_true(item->author.username.len > 0);
                assert_false(str_eq(item->card.caption, STR("of yesterday")));
                assert_int_equal(item->liked,
                                 world_i64(&w,
                                           "SELECT COUNT(*) FROM likes WHERE account_id = $1 "
                                           "AND post_id = $2",
                                           DB_ARGS(DB_I64(viewer), DB_I64(item->card.id))));
            }
            below = page.next_below;
        } while (below > 0);
        assert_int_equal(at, n);
    }
}

/* ---- the feed ---- */

static void a_loop_never_asks_what_is_remote(void **state)
{
    (void)state;
    assert_int_equal(read_page(NULL, ada, UINT64_MAX, 20), ERR_NEEDS_TRUTH);
    assert_int_equal(wall.asked, 0);
    assert_int_equal(wall.finds, 0);
    assert_int_equal(read_page(w.db, ada, UINT64_MAX, 20), OK);
    assert_true(wall.asked > 0);
}

static void views_that_are_there_are_used(void **state)
{
    (void)state;
    assert_feed_is_the_oracle(ada);
    assert_true(wall.finds > 0);
}

static void whatever_fails_the_feed_is_exact(void **state)
{
    (void)state;
    enum err *const ways[] = {&wall.home, &wall.visible, &wall.rebuild};
    static const enum err errors[] = {ERR_UNAVAILABLE, ERR_TIMEOUT};
    uint64_t people[] = {ada, bob, eve};
    for (size_t way = 0; way < COUNT_OF(ways); way++) {
        for (size_t i = 0; i < COUNT_OF(errors); i++) {
            build_wall();
            *ways[way] = errors[i];
            wall.lost = false;
            for (size_t k = 0; k < COUNT_OF(people); k++)
                assert_feed_is_the_oracle(people[k]);
        }
    }
    build_wall();
    wall.home = ERR_NOT_FOUND; /* an account that they do not know yet */
    assert_feed_is_the_oracle(ada);
}

/* What is cached beside them may be as old: none of it is shown. */
static void views_that_lost_something_show_nothing_of_it(void **state)
{
    (void)state;
    wall.lost = wall.cards_lie = true;
    assert_feed_is_the_oracle(ada);
    assert_feed_is_the_oracle(bob);
    assert_int_equal(wall.finds, 0);
}

/* The commit's change did not reach the views. */
static void removals_count_at_the_next_read_also_then(void **state)
{
    (void)state;
    uint64_t post = world_post(&w, bob, "soon gone");
    world_drain(&w);
    db_commit_hook hook = w.db->on_commit;
    w.db->on_commit = NULL;
    wall.home = ERR_UNAVAILABLE;
    assert_int_equal(read_page(w.db, ada, UINT64_MAX, 1), OK);
    assert_true(page.items[0].card.id == post);
    world_act(&w, ACT_DELETE, bob, post);
    assert_feed_is_the_oracle(ada);
    world_act(&w, ACT_MUTE, ada, eve);
    assert_feed_is_the_oracle(ada);
    world_act(&w, ACT_UNFOLLOW, ada, bob);
    assert_feed_is_the_oracle(ada);
    world_act(&w, ACT_BLOCK, eve, bob);
    assert_feed_is_the_oracle(bob);
    w.db->on_commit = hook;
}

/* ---- how many at a time ---- */

static struct {
    struct db db;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int inside, calls;
    bool open;
    enum err error;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static enum err gate_read(struct db *db, tx_fn run, void *arg, char *detail)
{
    (void)db, (void)run, (void)arg, (void)detail;
    pthread_mutex_lock(&gate.lock);
    gate.inside++;
    gate.calls++;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.open)
        pthread_cond_wait(&gate.changed, &gate.lock);
    gate.inside--;
    pthread_mutex_unlock(&gate.lock);
    return gate.error;
}

static const struct db_ops gate_ops = {.read = gate_read};

static void *read_through_the_gate(void *arg)
{
    struct feed_page *own = calloc(1, sizeof *own);
    struct arena a;
    arena_init(&a);
    CHECK(own);
    *(enum err *)arg = feed_read(&wall.views, &wall.cards, &gate.db, ada, UINT64_MAX, 20, &a, own);
    arena_done(&a);
    free(own);
    return NULL;
}

static void only_some_are_served_from_truth_at_a_time(void **state)
{
    (void)state;
    pthread_t threads[FROM_TRUTH_MAX];
    enum err results[FROM_TRUTH_MAX], one_more;
    gate.db.ops = &gate_ops;
    gate.open = false;
    gate.error = OK;
    wall.home = ERR_UNAVAILABLE;
    for (size_t i = 0; i < FROM_TRUTH_MAX; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_through_the_gate, &results[i]), 0);
    pthread_mutex_lock(&gate.lock);
    while (gate.inside < FROM_TRUTH_MAX)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    read_through_the_gate(&one_more);
    assert_int_equal(one_more, ERR_OVERLOADED);
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    for (size_t i = 0; i < FROM_TRUTH_MAX; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(results[i], OK);
    }
    read_through_the_gate(&one_more); /* there is room again */
    assert_int_equal(one_more, OK);
}

static void a_store_that_is_away_is_asked_once(void **state)
{
    (void)state;
    enum err result;
    gate.db.ops = &gate_ops;
    gate.open = true;
    gate.error = ERR_UNAVAILABLE;
    gate.calls = 0;
    read_through_the_gate(&result); /* cards are filled: authors and likes need truth */
    assert_int_equal(result, ERR_UNAVAILABLE);
    assert_int_equal(gate.calls, 1);
}

/* ---- events in one trip ---- */

static void events_go_in_one_trip_each(void **state)
{
    (void)state;
    struct post_card card = {.id = 70, .author = bob, .caption = STR("x")};
    const struct event events[] = {
        {.id = 101, .type = EVENT_FOLLOW_REMOVED, .actor = ada, .object = bob},
        {.id = 102, .type = EVENT_POST_CREATED, .actor = bob, .object = 70, .card = &card},
        {.id = 103, .type = EVENT_POST_LIKED, .actor = ada, .object = 70, .value = 4},
        {.id = 104, .type = EVENT_BLOCK_CREATED, .actor = ada, .object = eve},
        {.id = 105, .type = EVENT_ACCOUNT_SUSPENDED, .actor = eve},
        {.id = 106, .type = EVENT_POST_EDITED, .actor = bob, .object = 71},
    };
    assert_int_equal(event_apply_all(&wall.views, &wall.cards, events, COUNT_OF(events)), OK);
    assert_int_equal(wall.applies, 1);
    assert_int_equal(wall.writes, 1);
    static const struct {
        enum view_change_kind kind;
        bool on;
        uint64_t event;
    } changes[] = {{VIEW_FOLLOW, false, 101}, {VIEW_POST, true, 102}, {VIEW_HIDE, true, 105}};
    assert_int_equal(wall.change_count, COUNT_OF(changes));
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        assert_int_equal(wall.changes[i].kind, changes[i].kind);
        assert_int_equal(wall.changes[i].on, changes[i].on);
        assert_int_equal(wall.changes[i].event, changes[i].event);
    }
    static const enum card_write_kind writes[] = {CARD_CHANGE_POST, CARD_LIKE, CARD_POST_COUNTS,
                                                  CARD_FORGET_ACCOUNT, CARD_FORGET_POST};
    assert_int_equal(wall.write_count, COUNT_OF(writes));
    for (size_t i = 0; i < COUNT_OF(writes); i++)
        assert_int_equal(wall.written[i].kind, writes[i]);
    assert_int_equal(wall.written[4].id, 71);
    wall.apply = ERR_UNAVAILABLE;
    assert_int_equal(event_apply_all(&wall.views, &wall.cards, events, COUNT_OF(events)),
                     ERR_UNAVAILABLE);
    assert_int_equal(event_apply_all(&wall.views, &wall.cards, events + 3, 1), OK); /* no change */
    assert_int_equal(event_apply_all(&wall.views, &wall.cards, NULL, 0), OK);
}

static void an_edit_that_is_read_back_makes_only_shared_cards_forget(void **state)
{
    (void)state;
    const struct event edited = {.id = 106, .type = EVENT_POST_EDITED, .actor = bob, .object = 71};
    const struct event created = {.id = 107, .type = EVENT_POST_CREATED, .actor = bob, .object = 7};
    wall.cards.shared = false;
    assert_int_equal(event_apply_all(&wall.views, &wall.cards, &edited, 1), OK);
    assert_int_equal(wall.write_count, 0);
    wall.cards.shared = true;
    assert_int_equal(event_apply_all(&wall.views, &wall.cards, &created, 1), OK);
    assert_int_equal(wall.write_count, 0);
    event_apply(&wall.views, &wall.cards, &edited);
    assert_int_equal(wall.write_count, 1);
}

/* ---- what truth knows ---- */

struct views_state {
    uint64_t lost, loaded;
};

static enum err read_state(struct tx *tx, void *arg)
{
    struct views_state *s = arg;
    return views_state_read(tx, &s->lost, &s->loaded);
}

static struct views_state state_now(void)
{
    struct views_state s;
    assert_int_equal(db_read(w.db, read_state, &s, NULL), OK);
    return s;
}

static enum err write_loaded(struct tx *tx, void *arg)
{
    return views_state_loaded(tx, *(uint64_t *)arg);
}

static void losses_are_counted_and_loads_noted(void **state)
{
    (void)state;
    uint64_t lost = 0, before = state_now().lost, seen;
    assert_int_equal(views_state_lost(w.db, &lost), OK);
    assert_int_equal(lost, before + 1);
    seen = lost;
    assert_int_equal(views_state_lost(w.db, &lost), OK); /* in the middle of a load */
    assert_int_equal(lost, before + 2);
    assert_int_equal(db_write(w.db, write_loaded, &seen, NULL), OK);
    assert_int_equal(state_now().loaded, seen);
    assert_int_equal(state_now().lost, lost);
    assert_int_equal(db_write(w.db, write_loaded, &lost, NULL), OK);
    assert_int_equal(db_write(w.db, write_loaded, &seen, NULL), OK); /* one who comes late */
    assert_int_equal(state_now().loaded, lost);
}

static void a_store_has_one_name_for_ever(void **state)
{
    (void)state;
    char first[STORE_ID_MAX], second[STORE_ID_MAX];
    assert_int_equal(store_id_read(w.db, first), OK);
    assert_int_equal(strlen(first), STORE_ID_MAX - 1);
    assert_int_equal(store_id_read(w.db, second), OK);
    assert_string_equal(first, second);
}

static void an_explanation_does_not_need_the_views(void **state)
{
    (void)state;
    uint64_t post = world_post(&w, bob, "why");
    struct explanation found;
    for (int lost = 0; lost < 2; lost++) {
        build_wall();
        wall.home = lost ? OK : ERR_UNAVAILABLE;
        wall.lost = lost == 1;
        assert_int_equal(truth_explain(w.db, &wall.views, &wall.cards, ada, post, &arena, &found),
                         OK);
        assert_true(found.shown);
        assert_true(found.away);
    }
}

/* ---- the threshold ---- */

static void the_others_follow_the_keeper_that_moves(void **state)
{
    (void)state;
    struct celebrity_keeper leader, other;
    assert_int_equal(
        celebrity_keeper_init(&leader, w.db, &w.clock.clock, true, 1000, 100, 10000, 500), OK);
    assert_int_equal(
        celebrity_keeper_init(&other, w.db, &w.clock.clock, true, 1000, 100, 10000, 500), OK);
    for (int i = 0; i < 100; i++)
        celebrity_observe(&leader, 900, 5000000);
    manual_clock_advance(&w.clock, 20000);
    (void)celebrity_keeper_step(&leader);
    assert_int_equal(celebrity_threshold(&leader), 800);
    assert_int_equal(celebrity_threshold(&other), 1000);
    assert_int_equal(celebrity_keeper_follow(&other), OK);
    assert_int_equal(celebrity_threshold(&other), 800);
    /* What it observed before it came to lead says nothing about now. */
    for (int i = 0; i < 100; i++)
        celebrity_observe(&other, 700, 5000000);
    manual_clock_advance(&w.clock, 20000);
    assert_int_equal(celebrity_keeper_follow(&other), OK);
    manual_clock_advance(&w.clock, 20000);
    (void)celebrity_keeper_step(&other);
    assert_int_equal(celebrity_threshold(&other), 800);
    celebrity_keeper_done(&leader);
    celebrity_keeper_done(&other);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, fresh)
    const struct CMUnitTest tests[] = {
        CASE(a_loop_never_asks_what_is_remote),
        CASE(views_that_are_there_are_used),
        CASE(whatever_fails_the_feed_is_exact),
        CASE(views_that_lost_something_show_nothing_of_it),
        CASE(removals_count_at_the_next_read_also_then),
        CASE(only_some_are_served_from_truth_at_a_time),
        CASE(a_store_that_is_away_is_asked_once),
        CASE(events_go_in_one_trip_each),
        CASE(an_edit_that_is_read_back_makes_only_shared_cards_forget),
        CASE(losses_are_counted_and_loads_noted),
        CASE(a_store_has_one_name_for_ever),
        CASE(an_explanation_does_not_need_the_views),
        CASE(the_others_follow_the_keeper_that_moves),
    };
    return cmocka_run_group_tests_name("model/shared", tests, open_world, close_world);
}
