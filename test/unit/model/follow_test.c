/* The graph: refusals, idempotence, and counters that never drift from the edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "base/rand.h"
#include "model/account.h"
#include "model/follow.h"
#include "world.h"

static struct world w;

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

static enum err act(enum act kind, uint64_t who, uint64_t what, bool *changed)
{
    struct deed d = {.act = kind, .who = who, .what = what};
    enum err e = world_do(&w, &d);
    if (changed)
        *changed = d.changed;
    return e;
}

static int64_t count_of(const char *sql, uint64_t id)
{
    return world_i64(&w, sql, DB_ARGS(DB_I64(id)));
}

static void following_oneself_and_the_unknown_is_refused(void **state)
{
    (void)state;
    uint64_t ada = world_account(&w, "ada");
    assert_int_equal(act(ACT_FOLLOW, ada, ada, NULL), ERR_INVALID);
    assert_int_equal(act(ACT_BLOCK, ada, ada, NULL), ERR_INVALID);
    assert_int_equal(act(ACT_MUTE, ada, ada, NULL), ERR_INVALID);
    assert_int_equal(act(ACT_FOLLOW, ada, 12345, NULL), ERR_NOT_FOUND);
    assert_int_equal(act(ACT_BLOCK, ada, 12345, NULL), ERR_NOT_FOUND);
    assert_int_equal(act(ACT_MUTE, ada, 12345, NULL), ERR_NOT_FOUND);
    assert_int_equal(count_of("SELECT following_count FROM accounts WHERE id = $1", ada), 0);
}

static void following_the_suspended_and_the_deleted_is_not_found(void **state)
{
    (void)state;
    uint64_t bob = world_account(&w, "bob"), eve = world_account(&w, "eve");
    world_act(&w, ACT_SUSPEND, 0, eve);
    assert_int_equal(act(ACT_FOLLOW, bob, eve, NULL), ERR_NOT_FOUND);
    world_act(&w, ACT_RESTORE, 0, eve);
    assert_int_equal(act(ACT_FOLLOW, bob, eve, NULL), OK);
    world_act(&w, ACT_DELETE_ACCOUNT, 0, eve);
    assert_int_equal(act(ACT_FOLLOW, bob, eve, NULL), ERR_NOT_FOUND);
    assert_int_equal(act(ACT_MUTE, bob, eve, NULL), ERR_NOT_FOUND);
}

static void repeating_changes_and_emits_nothing(void **state)
{
    (void)state;
    uint64_t a = world_account(&w, "rep.a"), b = world_account(&w, "rep.b");
    static const enum act pairs[][2] = {
        {ACT_FOLLOW, ACT_UNFOLLOW}, {ACT_BLOCK, ACT_UNBLOCK}, {ACT_MUTE, ACT_UNMUTE}};
    static const enum event_type types[][2] = {{EVENT_FOLLOW_CREATED, EVENT_FOLLOW_REMOVED},
                                               {EVENT_BLOCK_CREATED, EVENT_BLOCK_REMOVED},
                                               {EVENT_MUTE_CREATED, EVENT_MUTE_REMOVED}};
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < 2; k++) {
            bool changed;
            uint64_t before = w.events[types[i][k]];
            assert_int_equal(act(pairs[i][k], a, b, &changed), OK);
            assert_true(changed);
            assert_int_equal(act(pairs[i][k], a, b, &changed), OK);
            assert_false(changed);
            assert_int_equal(w.events[types[i][k]], before + 1);
        }
    }
    assert_int_equal(count_of("SELECT follower_count FROM accounts WHERE id = $1", b), 0);
}

static void a_block_ends_follows_both_ways_and_refuses_new_ones(void **state)
{
    (void)state;
    uint64_t a = world_account(&w, "blo.a"), b = world_account(&w, "blo.b");
    world_act(&w, ACT_FOLLOW, a, b);
    world_act(&w, ACT_FOLLOW, b, a);
    uint64_t ended = w.events[EVENT_FOLLOW_REMOVED];
    world_act(&w, ACT_BLOCK, a, b);
    assert_int_equal(w.events[EVENT_FOLLOW_REMOVED], ended + 2);
    assert_int_equal(
        count_of("SELECT follower_count + following_count FROM accounts WHERE id = $1", a), 0);
    assert_int_equal(
        count_of("SELECT follower_count + following_count FROM accounts WHERE id = $1", b), 0);
    assert_int_equal(act(ACT_FOLLOW, a, b, NULL), ERR_FORBIDDEN);
    assert_int_equal(act(ACT_FOLLOW, b, a, NULL), ERR_FORBIDDEN);
    world_act(&w, ACT_UNBLOCK, a, b);
    assert_int_equal(act(ACT_FOLLOW, b, a, NULL), OK);
}

/* Follows of the account that ended that way. */
static int64_t ended_as(uint64_t follower, enum follow_end how)
{
    char pattern[100];
    snprintf(pattern, sizeof pattern, "{\"actor\":\"%llu\",%%,\"value\":%d}",
             (unsigned long long)follower, (int)how);
    return world_i64(&w,
                     "SELECT COUNT(*) FROM outbox WHERE type = 'follow.removed' AND version = 2 "
                     "AND payload LIKE $1",
                     DB_ARGS(DB_TEXT(str_of(pattern))));
}

static enum err purge(struct tx *tx, void *arg)
{
    bool more = true;
    enum err e = OK;
    while (!e && more)
        e = account_purge_slice(tx, *(const uint64_t *)arg, 10, &w.policy, &more);
    return e;
}

static void the_event_says_how_a_follow_ended(void **state)
{
    (void)state;
    uint64_t a = world_account(&w, "end.a"), b = world_account(&w, "end.b");
    uint64_t c = world_account(&w, "end.c");
    world_act(&w, ACT_FOLLOW, a, b);
    world_act(&w, ACT_UNFOLLOW, a, b);
    assert_int_equal(ended_as(a, FOLLOW_ENDED_UNFOLLOW), 1);
    world_act(&w, ACT_FOLLOW, a, b);
    world_act(&w, ACT_FOLLOW, b, a);
    world_act(&w, ACT_BLOCK, b, a);
    assert_int_equal(ended_as(a, FOLLOW_ENDED_BLOCK), 1);
    assert_int_equal(ended_as(b, FOLLOW_ENDED_BLOCK), 1);
    world_act(&w, ACT_FOLLOW, a, c);
    world_act(&w, ACT_FOLLOW, c, b);
    world_act(&w, ACT_DELETE_ACCOUNT, 0, c);
    assert_int_equal(db_write(w.db, purge, &c, NULL), OK);
    assert_int_equal(ended_as(a, FOLLOW_ENDED_ACCOUNT), 1);
    assert_int_equal(ended_as(c, FOLLOW_ENDED_ACCOUNT), 1);
    assert_int_equal(ended_as(a, FOLLOW_ENDED_UNFOLLOW), 1);
}

static void one_can_follow_only_so_many(void **state)
{
    (void)state;
    uint64_t a = world_account(&w, "max.a"), b = world_account(&w, "max.b");
    uint64_t c = world_account(&w, "max.c"), d = world_account(&w, "max.d");
    w.policy.max_following = 2;
    assert_int_equal(act(ACT_FOLLOW, a, b, NULL), OK);
    assert_int_equal(act(ACT_FOLLOW, a, c, NULL), OK);
    assert_int_equal(act(ACT_FOLLOW, a, d, NULL), ERR_INVALID);
    assert_int_equal(act(ACT_FOLLOW, a, c, NULL), OK); /* there already: no reason to refuse */
    world_act(&w, ACT_UNFOLLOW, a, b);
    assert_int_equal(act(ACT_FOLLOW, a, d, NULL), OK);
    w.policy.max_following = 1000;
    assert_int_equal(count_of("SELECT following_count FROM accounts WHERE id = $1", a), 2);
}

/* ---- lists ---- */

struct listing {
    uint64_t account, viewer, below;
    bool followers;
    size_t limit, n;
    uint64_t last;
    struct arena arena;
};

static enum err read_list(struct tx *tx, void *arg)
{
    struct listing *l = arg;
    struct account_card found[10];
    enum err e = follow_list(tx, l->account, l->followers ? PEOPLE_FOLLOWERS : PEOPLE_FOLLOWING,
                             l->viewer, l->below, l->limit, &l->arena, found, &l->n);
    l->last = !e && l->n ? found[l->n - 1].id : 0;
    return e;
}

static void lists_hide_the_blocked_and_the_inactive(void **state)
{
    (void)state;
    uint64_t star = world_account(&w, "list.star"), viewer = world_account(&w, "list.viewer");
    uint64_t fans[4];
    for (size_t i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "list.fan%zu", i);
        fans[i] = world_account(&w, name);
        world_act(&w, ACT_FOLLOW, fans[i], star);
    }
    world_act(&w, ACT_BLOCK, viewer, fans[0]);
    world_act(&w, ACT_BLOCK, fans[1], viewer);
    world_act(&w, ACT_SUSPEND, 0, fans[2]);
    struct listing l = {
        .account = star, .viewer = viewer, .below = UINT64_MAX, .followers = true, .limit = 10};
    arena_init(&l.arena);
    assert_int_equal(db_read(w.db, read_list, &l, NULL), OK);
    assert_int_equal(l.n, 1);
    assert_true(l.last == fans[3]);
    world_act(&w, ACT_RESTORE, 0, fans[2]);
    l.viewer = 0; /* no caller: no blocks */
    l.limit = 3;
    assert_int_equal(db_read(w.db, read_list, &l, NULL), OK);
    assert_int_equal(l.n, 3);
    assert_true(l.last == fans[1]); /* falling ids */
    l.below = l.last;
    assert_int_equal(db_read(w.db, read_list, &l, NULL), OK);
    assert_int_equal(l.n, 1);
    l = (struct listing){.account = fans[3], .below = UINT64_MAX, .limit = 10, .arena = l.arena};
    assert_int_equal(db_read(w.db, read_list, &l, NULL), OK);
    assert_int_equal(l.n, 1);
    assert_true(l.last == star);
    arena_done(&l.arena);
}

/* ---- random histories ---- */

enum { PEOPLE = 12, STEPS = 3000 };

static void check_counters(const uint64_t *people)
{
    for (size_t i = 0; i < PEOPLE; i++) {
        assert_int_equal(
            count_of(
                "SELECT follower_count - (SELECT COUNT(*) FROM follows WHERE followee_id = $1) "
                "FROM accounts WHERE id = $1",
                people[i]),
            0);
        assert_int_equal(
            count_of(
                "SELECT following_count - (SELECT COUNT(*) FROM follows WHERE follower_id = $1) "
                "FROM accounts WHERE id = $1",
                people[i]),
            0);
    }
    assert_int_equal(world_i64(&w,
                               "SELECT COUNT(*) FROM follows f JOIN blocks b ON "
                               "(b.blocker_id = f.follower_id AND b.blocked_id = f.followee_id) OR "
                               "(b.blocked_id = f.follower_id AND b.blocker_id = f.followee_id)",
                               DB_NO_ARGS),
                     0);
}

/* The class as the definition says it, kept beside: hysteresis, and one event for each crossing. */
static void counters_and_crossings_never_drift(void **state)
{
    (void)state;
    uint64_t people[PEOPLE];
    bool celebrity[PEOPLE] = {false};
    uint64_t became = 0, ceased = 0;
    world_clear(&w);
    w.policy.celebrity_threshold = 5;
    for (size_t i = 0; i < PEOPLE; i++) {
        char name[32];
        snprintf(name, sizeof name, "drift%zu", i);
        people[i] = world_account(&w, name);
    }
    struct rand r;
    rand_seed(&r, 7);
    for (int step = 0; step < STEPS; step++) {
        static const enum act kinds[] = {ACT_FOLLOW,   ACT_FOLLOW,   ACT_FOLLOW, ACT_FOLLOW,
                                         ACT_UNFOLLOW, ACT_UNFOLLOW, ACT_BLOCK,  ACT_UNBLOCK,
                                         ACT_MUTE,     ACT_UNMUTE};
        uint64_t a = people[rand_below(&r, PEOPLE)], b = people[rand_below(&r, PEOPLE / 3)];
        enum err e = act(kinds[rand_below(&r, sizeof kinds / sizeof kinds[0])], a, b, NULL);
        assert_true(e == OK || e == ERR_INVALID || e == ERR_FORBIDDEN);
        for (size_t i = 0; i < PEOPLE; i++) {
            int64_t followers =
                count_of("SELECT COUNT(*) FROM follows WHERE followee_id = $1", people[i]);
            if (!celebrity[i] && followers >= 5) {
                celebrity[i] = true;
                became++;
            } else if (celebrity[i] && followers * 100 < 5 * 80) {
                celebrity[i] = false;
                ceased++;
            }
            if (step % 50 == 0)
                assert_int_equal(
                    count_of("SELECT celebrity FROM accounts WHERE id = $1", people[i]),
                    celebrity[i]);
        }
        assert_int_equal(w.events[EVENT_AUTHOR_BECAME_CELEBRITY], became);
        assert_int_equal(w.events[EVENT_AUTHOR_CEASED_CELEBRITY], ceased);
        if (step % 100 == 0)
            check_counters(people);
    }
    check_counters(people);
    assert_true(became > 5 && ceased > 5); /* the walk did cross, both ways */
    w.policy.celebrity_threshold = 3;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(following_oneself_and_the_unknown_is_refused),
        cmocka_unit_test(following_the_suspended_and_the_deleted_is_not_found),
        cmocka_unit_test(repeating_changes_and_emits_nothing),
        cmocka_unit_test(a_block_ends_follows_both_ways_and_refuses_new_ones),
        cmocka_unit_test(the_event_says_how_a_follow_ended),
        cmocka_unit_test(one_can_follow_only_so_many),
        cmocka_unit_test(lists_hide_the_blocked_and_the_inactive),
        cmocka_unit_test(counters_and_crossings_never_drift),
    };
    return cmocka_run_group_tests_name("model/follow", tests, open_world, close_world);
}
