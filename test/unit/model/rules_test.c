/* The rule table, the immediate part of events, and what the sinks leave behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "model/event_views.h"
#include "model/rules.h"
#include "model/sinks.h"
#include "model/truth.h"
#include "world.h"

enum { CAP = 10, IDS = 100 };

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
    return 0;
}

static void assert_exact(uint64_t viewer)
{
    uint64_t shown[IDS], expected[IDS];
    size_t n = world_oracle(&w, viewer, expected, IDS);
    assert_int_equal(world_feed(&w, viewer, 7, shown, IDS), n);
    assert_memory_equal(shown, expected, n * sizeof *shown);
}

static void every_rule_says_what_it_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < model_rule_count; i++) {
        const struct rule *r = &model_rules[i];
        assert_non_null(r->consumer);
        assert_non_null(r->sink);
        assert_true(r->late_means && r->late_means[0]);
        assert_true(r->batch > 0);
        assert_int_equal(event_keep(r->on), EVENT_STORED); /* only those survive a crash */
        for (size_t k = 0; k < i; k++)
            assert_true(model_rules[k].on != r->on ||
                        strcmp(model_rules[k].consumer, r->consumer) != 0);
    }
}

/* A start may replay any suffix of the outbox onto a state that knows the end already. */
static void replaying_events_arrives_at_the_same_end(void **state)
{
    (void)state;
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_act(&w, ACT_FOLLOW, ada, eve);
    uint64_t gone = world_post(&w, bob, "to be deleted");
    world_post(&w, bob, "kept");
    world_act(&w, ACT_DELETE, bob, gone);
    world_act(&w, ACT_UNFOLLOW, ada, bob);
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_act(&w, ACT_MUTE, ada, eve);
    world_act(&w, ACT_UNMUTE, ada, eve);
    world_act(&w, ACT_SUSPEND, 0, eve);
    world_act(&w, ACT_RESTORE, 0, eve);
    world_post(&w, eve, "kept, too");
    world_drain(&w);
    assert_exact(ada);
    for (uint64_t from = 0; from < 3; from++) {
        assert_int_equal(truth_catch_up(w.db, w.views, w.cards, from ? gone : 0), OK);
        assert_exact(ada);
        assert_exact(bob);
    }
}

static enum err write_row(struct tx *tx, void *arg)
{
    const struct db_value *values = arg;
    return tx_exec(tx,
                   "INSERT INTO outbox (id, type, version, payload, state) "
                   "VALUES ($1, $2, $3, $4, $5)",
                   values, 5, NULL);
}

/* As if another program had written it: this one's own hook does not get it. */
static void outbox_row(const char *type, int64_t version, int state, uint64_t actor,
                       uint64_t object)
{
    char payload[100];
    snprintf(payload, sizeof payload, "{\"actor\":\"%llu\",\"object\":\"%llu\",\"value\":0}",
             (unsigned long long)actor, (unsigned long long)object);
    struct db_value values[] = {DB_I64(id_next(&w.ids)), DB_TEXT(str_of(type)), DB_I64(version),
                                DB_TEXT(str_of(payload)), DB_I64(state)};
    assert_int_equal(db_write(w.db, write_row, values, NULL), OK);
}

/* Catching up reads what is settled and what is pending, of every version that was ever written; it
 * passes over what is parked, although it could be read by now: an operator decides about it. */
static void catching_up_passes_over_what_is_parked(void **state)
{
    (void)state;
    enum { PENDING, SETTLED, PARKED };
    uint64_t n;
    size_t found;
    world_act(&w, ACT_FOLLOW, ada, bob);
    outbox_row("follow.removed", 1, PARKED, ada, bob);
    outbox_row("post.exploded", 1, PENDING, ada, bob);
    outbox_row("follow.removed", 3, PENDING, ada, bob);
    assert_int_equal(truth_catch_up(w.db, w.views, w.cards, 0), OK);
    assert_int_equal(graph_neighbours(w.views->graph, ada, false, 0, &n, 1, &found), OK);
    assert_true(found == 1 && n == bob);
    outbox_row("follow.removed", 1, SETTLED, ada, bob);
    assert_int_equal(truth_catch_up(w.db, w.views, w.cards, 0), OK);
    assert_int_equal(graph_neighbours(w.views->graph, ada, false, 0, &n, 1, &found), OK);
    assert_int_equal(found, 0);
}

static void an_unknown_event_is_left_alone(void **state)
{
    (void)state;
    struct event e = {.id = 1, .type = EVENT_BLOCK_CREATED, .actor = ada, .object = bob};
    event_apply(w.views, w.cards, &e); /* about nothing that views or caches hold */
    assert_exact(ada);
}

static void a_late_push_of_a_deleted_post_adds_nothing(void **state)
{
    (void)state;
    world_act(&w, ACT_FOLLOW, ada, bob);
    uint64_t post = world_post(&w, bob, "short-lived");
    world_drain(&w);
    world_act(&w, ACT_DELETE, bob, post);
    world_drain(&w);
    _Atomic int64_t threshold = 10000;
    struct sink_env env = {.db = w.db,
                           .views = w.views,
                           .cards = w.cards,
                           .clock = &w.clock.clock,
                           .celebrity_threshold = &threshold};
    struct event late = {.type = EVENT_POST_CREATED, .actor = bob, .object = post};
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    struct sink_result result = {0};
    uint64_t members[10], ids[IDS], floor;
    size_t n;
    assert_int_equal(graph_audience(w.views->graph, bob, &cursor, members, 10, &n), OK);
    assert_int_equal(n, 1);
    assert_int_equal(sink_push(&env, &late, members, n, &result), OK);
    assert_int_equal(result.delivered, 0);
    assert_int_equal(timelines_home(w.views->timelines, ada, UINT64_MAX, ids, IDS, &n, &floor), OK);
    assert_int_equal(n, 0);

    /* Among others: they are hidden from no one. */
    uint64_t shown[] = {post + 1, post + 2};
    struct event events[] = {{.type = EVENT_POST_CREATED, .actor = bob, .object = shown[0]},
                             late,
                             {.type = EVENT_POST_CREATED, .actor = bob, .object = shown[1]}};
    struct sink_call calls[] = {{.event = &events[0], .members = members, .n = 1},
                                {.event = &events[1], .members = members, .n = 1},
                                {.event = &events[2], .members = members, .n = 1}};
    assert_int_equal(timelines_push_one(w.views->timelines, shown[1], members, 1, &n), OK);
    assert_int_equal(sink_pushes(&env, calls, 3), OK);
    assert_true(calls[0].result.delivered == 1 && calls[0].result.repeated == 0);
    assert_true(calls[1].result.delivered == 0 && calls[1].result.skipped == 1);
    assert_true(calls[2].result.delivered == 0 && calls[2].result.repeated == 1);
    assert_int_equal(timelines_home(w.views->timelines, ada, UINT64_MAX, ids, IDS, &n, &floor), OK);
    assert_int_equal(n, 2);
}

/* ---- a store that loses its connection in the middle of a read, and reads again ---- */

static const struct db_ops *steady;
static int lost;

static enum err query_lost_once(struct tx *tx, const char *sql, const struct db_value *args,
                                size_t n, struct db_rows *rows)
{
    return lost++ == 0 ? ERR_UNAVAILABLE : steady->query(tx, sql, args, n, rows);
}

static enum err read_again(struct db *db, tx_fn run, void *arg, char *detail)
{
    enum err e = steady->read(db, run, arg, detail);
    return e == ERR_UNAVAILABLE ? steady->read(db, run, arg, detail) : e;
}

static void a_backfill_of_several_followees_survives_a_read_that_runs_again(void **state)
{
    (void)state;
    uint64_t post = world_post(&w, eve, "from before"), ids[IDS], floor;
    size_t n;
    world_drain(&w);
    const struct view_change follows[] = {
        {.kind = VIEW_FOLLOW, .on = true, .account = ada, .other = bob},
        {.kind = VIEW_FOLLOW, .on = true, .account = ada, .other = eve}};
    assert_int_equal(views_apply(w.views, follows, 2), OK); /* without the event that backfills */
    char data[128];
    snprintf(data, sizeof data, "{\"followees\":[\"%llu\",\"%llu\"]}", (unsigned long long)bob,
             (unsigned long long)eve);
    struct event e = {.type = EVENT_FOLLOWS_IMPORTED, .actor = ada, .data = str_of(data)};
    struct sink_env env = {.db = w.db, .views = w.views, .clock = &w.clock.clock};
    struct sink_result result = {0};
    const struct db_ops *own = w.db->ops;
    struct db_ops shaky = *own;
    steady = own;
    lost = 0;
    shaky.query = query_lost_once;
    shaky.read = read_again;
    w.db->ops = &shaky;
    enum err done = sink_backfill_all(&env, &e, &ada, 1, &result);
    w.db->ops = own;
    assert_int_equal(done, OK);
    assert_true(lost > 1);
    assert_int_equal(timelines_home(w.views->timelines, ada, UINT64_MAX, ids, IDS, &n, &floor), OK);
    assert_true(n == 1 && ids[0] == post);

    e.data = STR("{\"followees\":[]}"); /* nothing that a follow has written */
    assert_int_not_equal(sink_backfill_all(&env, &e, &ada, 1, &result), OK);
}

static void cleaning_up_takes_ids_out_of_timelines(void **state)
{
    (void)state;
    uint64_t ids[IDS], floor;
    size_t n;
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_act(&w, ACT_FOLLOW, ada, eve);
    uint64_t deleted = world_post(&w, eve, "deleted");
    world_post(&w, bob, "unfollowed");
    uint64_t kept = world_post(&w, eve, "kept");
    world_drain(&w);
    world_act(&w, ACT_DELETE, eve, deleted);
    world_act(&w, ACT_UNFOLLOW, ada, bob);
    world_drain(&w);
    assert_int_equal(timelines_home(w.views->timelines, ada, UINT64_MAX, ids, IDS, &n, &floor), OK);
    assert_int_equal(n, 1);
    assert_true(ids[0] == kept);
}

static int64_t left_of(uint64_t account)
{
    return world_i64(&w,
                     "SELECT (SELECT COUNT(*) FROM posts WHERE author_id = $1) + "
                     "(SELECT COUNT(*) FROM follows WHERE follower_id = $1 OR followee_id = $1) + "
                     "(SELECT COUNT(*) FROM likes WHERE account_id = $1) + "
                     "(SELECT COUNT(*) FROM comments WHERE author_id = $1) + "
                     "(SELECT COUNT(*) FROM mutes WHERE muter_id = $1 OR muted_id = $1) + "
                     "(SELECT COUNT(*) FROM blocks WHERE blocker_id = $1 OR blocked_id = $1)",
                     DB_ARGS(DB_I64(account)));
}

static void a_deleted_account_leaves_nothing_and_counters_right(void **state)
{
    (void)state;
    uint64_t mallory = world_account(&w, "mallory");
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_act(&w, ACT_FOLLOW, bob, ada);
    world_act(&w, ACT_MUTE, bob, eve);
    world_act(&w, ACT_BLOCK, mallory, bob);
    uint64_t post = world_post(&w, ada, "liked and commented");
    world_act(&w, ACT_LIKE, bob, post);
    world_act(&w, ACT_COMMENT, bob, post);
    for (int i = 0; i < 20; i++)
        world_act(&w, ACT_LIKE, ada, world_post(&w, bob, "theirs"));
    world_drain(&w);
    world_act(&w, ACT_DELETE_ACCOUNT, 0, bob);
    uint64_t shown[IDS];
    assert_int_equal(world_feed(&w, ada, 5, shown, IDS), 1); /* at once */
    world_drain(&w);
    assert_int_equal(left_of(bob), 0);
    assert_exact(ada);
    struct check_result result;
    assert_int_equal(
        truth_check(w.db, w.views, w.cards, 0, 10, IDS, false, (struct check_report){0}, &result),
        OK);
    assert_int_equal(result.counter_errors + result.edge_errors + result.feed_errors, 0);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup(test, fresh)
    const struct CMUnitTest tests[] = {
        FRESH(every_rule_says_what_it_does),
        FRESH(replaying_events_arrives_at_the_same_end),
        FRESH(catching_up_passes_over_what_is_parked),
        FRESH(an_unknown_event_is_left_alone),
        FRESH(a_late_push_of_a_deleted_post_adds_nothing),
        FRESH(a_backfill_of_several_followees_survives_a_read_that_runs_again),
        FRESH(cleaning_up_takes_ids_out_of_timelines),
        FRESH(a_deleted_account_leaves_nothing_and_counters_right),
    };
    return cmocka_run_group_tests_name("model/rules", tests, open_world, close_world);
}
