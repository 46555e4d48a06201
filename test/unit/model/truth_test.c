/* Loading the views from truth, finding and repairing what differs, and explaining. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/inbox.h"
#include "model/rebuild.h"
#include "model/truth.h"
#include "world.h"

enum { CAP = 10 };

static struct world w;
static uint64_t ada, bob, eve;

static int open_world(void **state)
{
    (void)state;
    world_open(&w, 3);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

static int fresh(void **state)
{
    (void)state;
    world_stop(&w);
    world_clear(&w);
    world_start(&w, CAP);
    ada = world_account(&w, "ada");
    bob = world_account(&w, "bob");
    eve = world_account(&w, "eve");
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_act(&w, ACT_FOLLOW, eve, bob);
    world_act(&w, ACT_FOLLOW, ada, eve);
    for (int i = 0; i < 3; i++) {
        uint64_t post = world_post(&w, bob, "text");
        world_act(&w, ACT_LIKE, ada, post);
        world_act(&w, ACT_COMMENT, eve, post);
        world_post(&w, eve, "text");
    }
    world_drain(&w);
    return 0;
}

static void count_difference(void *arg, const struct check_difference *d)
{
    (void)d;
    (*(uint64_t *)arg)++;
}

static struct check_result check(bool repair)
{
    struct check_result result;
    uint64_t told = 0;
    assert_int_equal(truth_check(w.db, w.views, w.cards, 0, 100, 50, repair,
                                 (struct check_report){count_difference, &told}, &result),
                     OK);
    assert_int_equal(told, result.feed_errors + result.counter_errors + result.edge_errors +
                               result.inbox_errors);
    return result;
}

static void assert_clean(void)
{
    struct check_result r = check(false);
    assert_int_equal(r.feed_errors, 0);
    assert_int_equal(r.counter_errors, 0);
    assert_int_equal(r.edge_errors, 0);
    assert_int_equal(r.inbox_errors, 0);
}

static void a_healthy_world_has_no_differences(void **state)
{
    (void)state;
    struct check_result r = check(false);
    assert_int_equal(r.feeds, 3);
    assert_int_equal(r.edges, 6); /* each from both ends */
    assert_int_equal(r.feed_errors + r.counter_errors + r.edge_errors, 0);
    assert_true(r.next_account == 0);
}

static void checking_goes_on_where_it_stopped(void **state)
{
    (void)state;
    struct check_result r;
    uint64_t from = 0, feeds = 0;
    do {
        assert_int_equal(
            truth_check(w.db, w.views, w.cards, from, 2, 50, false, (struct check_report){0}, &r),
            OK);
        feeds += r.feeds;
        from = r.next_account;
    } while (from);
    assert_int_equal(feeds, 3);
}

static enum err break_counters(struct tx *tx, void *arg)
{
    (void)arg;
    enum err e = tx_exec(tx, "UPDATE accounts SET follower_count = 7, post_count = 0 WHERE id = $1",
                         DB_ARGS(DB_I64(bob)), NULL);
    return e ? e : tx_exec(tx, "UPDATE posts SET like_count = 9", DB_NO_ARGS, NULL);
}

static void wrong_counters_are_found_and_repaired(void **state)
{
    (void)state;
    assert_int_equal(db_write(w.db, break_counters, NULL, NULL), OK);
    struct check_result r = check(false);
    assert_int_equal(r.counter_errors, 2 + 6);
    assert_int_equal(r.repaired, 0);
    r = check(true);
    assert_int_equal(r.repaired, 1 + 6);
    assert_clean();
}

static void wrong_edges_are_found_and_repaired(void **state)
{
    (void)state;
    world_apply(&w, (struct view_change){.kind = VIEW_FOLLOW, .account = ada, .other = bob});
    world_apply(
        &w, (struct view_change){.kind = VIEW_FOLLOW, .on = true, .account = bob, .other = ada});
    struct check_result r = check(false);
    assert_int_equal(r.edge_errors, 4); /* each from both ends */
    assert_true(r.feed_errors >= 1);
    check(true);
    assert_clean();
}

static void wrong_feeds_are_found_and_repaired(void **state)
{
    (void)state;
    uint64_t ids[CAP], floor;
    size_t n;
    assert_int_equal(timelines_home(w.views->timelines, ada, UINT64_MAX, ids, CAP, &n, &floor), OK);
    assert_int_equal(n, 6);
    /* Unfollowing in the views alone lets forget() take bob's posts out of the timeline. */
    world_apply(&w, (struct view_change){.kind = VIEW_FOLLOW, .account = ada, .other = bob});
    assert_int_equal(timelines_forget(w.views->timelines, ada, bob, ids, n), OK);
    world_apply(
        &w, (struct view_change){.kind = VIEW_FOLLOW, .on = true, .account = ada, .other = bob});
    world_apply(&w,
                (struct view_change){.kind = VIEW_MUTE, .on = true, .account = eve, .other = bob});
    world_apply(&w, (struct view_change){.kind = VIEW_HIDE, .on = true, .account = eve});
    struct check_result r = check(false);
    assert_int_equal(r.feed_errors, 2);
    r = check(true);
    assert_true(r.repaired >= 2);
    assert_clean();
}

/* ---- groups ---- */

static uint64_t birds, cakes;

static enum err make_group(struct tx *tx, void *arg)
{
    const uint64_t members[] = {bob, eve};
    struct arena arena;
    struct group g;
    arena_init(&arena);
    enum err e = group_create(
        tx,
        &(struct group_new){.owner = ada, .name = STR("g"), .members = members, .member_count = 2},
        &arena, &g);
    *(uint64_t *)arg = g.id;
    arena_done(&arena);
    return e;
}

static enum err say(struct tx *tx, void *arg)
{
    struct arena arena;
    struct group_entry entry;
    bool repeated;
    arena_init(&arena);
    enum err e = message_send(
        tx, &(struct message_new){.group = *(uint64_t *)arg, .author = ada, .body = STR("hello")},
        &arena, &entry, &repeated);
    arena_done(&arena);
    return e;
}

static int fresh_groups(void **state)
{
    fresh(state);
    uint64_t *made[] = {&birds, &cakes};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(db_write(w.db, make_group, made[i], NULL), OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(db_write(w.db, say, i < 3 ? &cakes : &birds, NULL), OK);
    world_drain(&w);
    return 0;
}

static uint64_t top_of(uint64_t account)
{
    struct inbox_entry top = {0};
    size_t n;
    assert_int_equal(inboxes_read(w.views->inboxes, account, UINT64_MAX, &top, 1, &n), OK);
    return top.group;
}

static enum err break_groups(struct tx *tx, void *arg)
{
    (void)arg;
    enum err e = tx_exec(tx, "UPDATE groups SET messages = 9, member_count = 9 WHERE id = $1",
                         DB_ARGS(DB_I64(birds)), NULL);
    if (!e)
        e = tx_exec(tx, "UPDATE groups SET seq = seq + 1, last_seq = 1 WHERE id = $1",
                    DB_ARGS(DB_I64(cakes)), NULL);
    return e ? e
             : tx_exec(tx, "UPDATE group_members SET read_count = 2 WHERE account_id = $1",
                       DB_ARGS(DB_I64(bob)), NULL);
}

static void wrong_counters_of_groups_are_found_and_repaired(void **state)
{
    (void)state;
    assert_clean();
    assert_int_equal(db_write(w.db, break_groups, NULL, NULL), OK);
    struct check_result r = check(false);
    assert_int_equal(r.counter_errors, 2 + 3 + 2); /* a gap in the numbers is one, too */
    r = check(true);
    assert_int_equal(r.repaired, 2 + 2);
    assert_clean();
}

static void wrong_inboxes_and_members_are_found_and_repaired(void **state)
{
    (void)state;
    struct check_result r = check(false);
    assert_int_equal(r.inboxes, 3);
    assert_true(top_of(bob) == birds && top_of(eve) == birds);
    /* bob is no member, in the views alone */
    world_apply(&w, (struct view_change){.kind = VIEW_MEMBER, .account = bob, .other = birds});
    r = check(false);
    assert_int_equal(r.edge_errors, 1);
    assert_int_equal(r.inbox_errors, 1);
    check(true);
    assert_clean();
    assert_true(top_of(bob) == birds);
    assert_int_equal(db_write(w.db, say, &cakes, NULL), OK); /* he gets messages again */
    world_drain(&w);
    assert_true(top_of(bob) == cakes);
}

static void inboxes_are_rebuilt(void **state)
{
    (void)state;
    uint64_t next, seen, changed;
    bool end;
    world_apply(&w, (struct view_change){.kind = VIEW_MEMBER, .account = bob, .other = birds});
    world_apply(
        &w, (struct view_change){.kind = VIEW_MEMBER, .on = true, .account = bob, .other = birds});
    assert_true(top_of(bob) == cakes);
    assert_int_equal(rebuild_slice(w.db, w.views, w.cards, REBUILD_INBOXES, 0, UINT64_MAX, 100,
                                   &next, &end, &seen, &changed),
                     OK);
    assert_true(end);
    assert_int_equal(seen, 3);
    assert_int_equal(changed, 1);
    assert_true(top_of(bob) == birds);
    assert_clean();
    assert_int_equal(rebuild_slice(w.db, w.views, w.cards, REBUILD_INBOXES, 0, UINT64_MAX, 100,
                                   &next, &end, &seen, &changed),
                     OK);
    assert_int_equal(changed, 0);
}

/* The world's views, with an act at the worst moment: between the look at truth that led to a
 * repair and the repair itself. */
struct meddled {
    struct views views;
    enum act act;
    uint64_t who, what;
    uint64_t reader, author; /* hidden from each other by the act */
    bool acted;
};

static enum err meddled_apply(struct views *v, const struct view_change *changes, size_t n)
{
    struct meddled *m = (struct meddled *)v;
    if (!m->acted) {
        m->acted = true;
        world_act(&w, m->act, m->who, m->what);
    }
    enum err e = views_apply(w.views, changes, n);
    bool visible;
    assert_int_equal(graph_visible(w.views->graph, m->reader, &m->author, 1, &visible), OK);
    assert_false(visible); /* what was removed stays so, from its answer on */
    return e;
}

static void repair_while(enum act act, uint64_t who, uint64_t what, uint64_t reader,
                         uint64_t author)
{
    static const struct views_ops ops = {.apply = meddled_apply};
    struct meddled m = {.views = {.ops = &ops,
                                  .graph = w.views->graph,
                                  .timelines = w.views->timelines,
                                  .inboxes = w.views->inboxes,
                                  .cap = w.cap},
                        .act = act,
                        .who = who,
                        .what = what,
                        .reader = reader,
                        .author = author};
    struct check_result result;
    assert_int_equal(
        truth_check(w.db, &m.views, w.cards, 0, 100, 50, true, (struct check_report){0}, &result),
        OK);
    world_drain(&w);
    assert_clean();
}

static void a_repair_never_undoes_what_happens_meanwhile(void **state)
{
    (void)state;
    /* An edge that the views lost, and its owner unfollows during the repair. */
    world_apply(&w, (struct view_change){.kind = VIEW_FOLLOW, .account = ada, .other = bob});
    repair_while(ACT_UNFOLLOW, ada, bob, ada, bob);
    /* A mute that truth does not know of, and one that is made during the repair. */
    world_apply(&w,
                (struct view_change){.kind = VIEW_MUTE, .on = true, .account = eve, .other = bob});
    repair_while(ACT_MUTE, eve, bob, eve, bob);
    /* The same for a suspension. */
    world_apply(&w, (struct view_change){.kind = VIEW_HIDE, .on = true, .account = eve});
    repair_while(ACT_SUSPEND, eve, eve, ada, eve);
}

static void views_come_up_from_truth_and_from_a_snapshot(void **state)
{
    (void)state;
    world_act(&w, ACT_MUTE, ada, eve);
    world_act(&w, ACT_SUSPEND, 0, bob);
    uint64_t star = world_account(&w, "star");
    world_act(&w, ACT_FOLLOW, ada, star);
    world_act(&w, ACT_FOLLOW, eve, star);
    world_act(&w, ACT_FOLLOW, world_account(&w, "fan"), star);
    for (int i = 0; i < CAP + 5; i++)
        world_post(&w, star, "pulled");
    world_drain(&w);
    assert_clean();
    world_stop(&w);
    world_start(&w, CAP); /* from truth */
    assert_clean();
    world_drain(&w);
    world_save(&w);
    world_act(&w, ACT_UNMUTE, ada, eve);
    world_act(&w, ACT_UNFOLLOW, eve, star);
    world_post(&w, star, "after the snapshot");
    world_stop(&w); /* without delivering any of it */
    world_start(&w, CAP);
    assert_true(w.views->loaded_position > 0);
    world_drain(&w);
    assert_clean();
}

static uint64_t loads;
static void count_progress(void *arg, uint64_t done, uint64_t total)
{
    (void)arg;
    assert_true(done <= total);
    loads++;
}

static void loading_tells_how_far_it_is(void **state)
{
    (void)state;
    loads = 0;
    assert_int_equal(truth_load_views(w.db, w.views, count_progress, NULL),
                     OK); /* again: changes nothing */
    assert_true(loads >= 1);
    assert_clean();
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup(test, fresh)
    const struct CMUnitTest tests[] = {
        FRESH(a_healthy_world_has_no_differences),
        FRESH(checking_goes_on_where_it_stopped),
        FRESH(wrong_counters_are_found_and_repaired),
        FRESH(wrong_edges_are_found_and_repaired),
        FRESH(wrong_feeds_are_found_and_repaired),
        cmocka_unit_test_setup(wrong_counters_of_groups_are_found_and_repaired, fresh_groups),
        cmocka_unit_test_setup(wrong_inboxes_and_members_are_found_and_repaired, fresh_groups),
        cmocka_unit_test_setup(inboxes_are_rebuilt, fresh_groups),
        FRESH(a_repair_never_undoes_what_happens_meanwhile),
        FRESH(views_come_up_from_truth_and_from_a_snapshot),
        FRESH(loading_tells_how_far_it_is),
    };
    return cmocka_run_group_tests_name("model/truth", tests, open_world, close_world);
}
