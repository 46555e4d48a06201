/* The recorder step: what failed is written down before its message ends, what is due comes back,
 * keys wait in order, a store that refuses or loses its reply costs nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "pipe/state.h"
#include "world.h"

static struct world w;

enum { PEOPLE = 10 };
static enum err ill[PEOPLE]; /* what deliveries for an actor end with */

static enum err by_actor(struct world *world, const struct event *e, const uint64_t *members,
                         size_t n)
{
    (void)world, (void)members, (void)n;
    return e->actor < PEOPLE ? ill[e->actor] : OK;
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < PEOPLE; i++)
        ill[i] = OK;
    world_init(&w);
    w.before_sink = by_actor;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

static struct engine_stats stats_now(void)
{
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    return stats;
}

static const struct delivery_filter the_dead = {.state = DELIVERY_DEAD};

/* Makes the follow of that person a dead letter. */
static uint64_t make_dead(uint64_t actor)
{
    ill[actor] = ERR_TIMEOUT;
    uint64_t id = world_commit(&w, EVENT_FOLLOW_CREATED, actor, 1);
    world_pass(&w, 1200 * 1000);
    assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 1);
    return id;
}

/* ---- what is durable when ---- */

static void a_message_ends_when_its_failure_is_in_the_delivery_store(void **state)
{
    (void)state;
    world_engine(&w);
    world_run(&w);
    ill[1] = ERR_TIMEOUT;
    uint64_t id = world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run_relay(&w);
    engine_worker_step(w.engine);
    assert_int_equal(world_held(&w, LANE_GRAPH), 1);
    assert_int_equal(engine_settled_through(w.engine), id - 1);
    assert_false(engine_drained(w.engine));
    world_run_recorder(&w);
    assert_int_equal(world_held(&w, LANE_GRAPH), 0);
    assert_int_equal(engine_settled_through(w.engine), id);
    assert_int_equal(world_recorded(&w, DELIVERY_DELAYED), 1);
    assert_false(engine_drained(w.engine)); /* a retry is due some time */
}

static void a_store_that_refuses_loses_nothing(void **state)
{
    (void)state;
    world_engine(&w);
    world_run(&w);
    ill[1] = ERR_TIMEOUT;
    uint64_t id = world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    uint64_t behind = world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 1);
    w.faults->writes_fail = ERR_STORAGE_FULL;
    world_run_relay(&w);
    engine_worker_step(w.engine);
    int64_t due_us = engine_recorder_step(w.engine);
    assert_true(due_us > w.manual.mono_us && due_us <= w.manual.mono_us + 1000 * 1000);
    world_pass(&w, 5000);
    assert_int_equal(engine_settled_through(w.engine), id - 1);
    assert_int_equal(stats_now().lanes[LANE_GRAPH].failed, 1); /* not tried again meanwhile */
    w.faults->writes_fail = OK;
    world_pass(&w, 150);
    assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM deliveries"), 2);
    assert_int_equal(engine_settled_through(w.engine), behind);
    ill[1] = OK;
    world_drain(&w, 60 * 1000);
    assert_int_equal(w.log_count, 2);
    assert_int_equal(w.log[0].event, id);
}

/* A lost reply is neither success nor failure: the records are written again and change nothing.
 */
static void a_lost_reply_changes_nothing(void **state)
{
    (void)state;
    world_engine(&w);
    world_run(&w);
    ill[1] = ill[2] = ERR_TIMEOUT;
    uint64_t first = world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    uint64_t second = world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 1);
    uint64_t other = world_commit(&w, EVENT_FOLLOW_CREATED, 2, 1);
    for (int i = 0; i < 40; i++) {
        w.faults->lose_replies = 1;
        world_pass(&w, 300);
    }
    assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM deliveries"), 3);
    assert_int_equal(world_ask(&w, "SELECT MAX(tries) FROM deliveries"), 3);
    ill[1] = ill[2] = OK;
    for (int i = 0; i < 40; i++) {
        w.faults->lose_replies = 1;
        world_pass(&w, 300);
    }
    world_drain(&w, 3600 * 1000);
    assert_true(engine_drained(w.engine));
    assert_int_equal(world_deliveries_of(&w, first), 1);
    assert_int_equal(world_deliveries_of(&w, second), 1);
    assert_int_equal(world_deliveries_of(&w, other), 1);
    assert_int_equal(stats_now().blocked_keys, 0);
}

/* ---- keys ---- */

static void a_dead_letter_blocks_its_own_key_only(void **state)
{
    (void)state;
    world_engine(&w);
    make_dead(1);
    assert_int_equal(stats_now().blocked_keys, 1);
    ill[1] = OK;
    uint64_t later[3];
    for (uint64_t i = 0; i < 3; i++)
        later[i] = world_commit(&w, EVENT_FOLLOW_REMOVED, 1, i);
    for (uint64_t actor = 2; actor < 8; actor++)
        world_commit(&w, EVENT_FOLLOW_CREATED, actor, 1);
    world_run(&w);
    assert_int_equal(w.log_count, 6);
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_deliveries_of(&w, later[i]), 0);
    assert_int_equal(world_recorded(&w, DELIVERY_WAITING), 3);
    assert_int_equal(engine_settled_through(w.engine), w.last_committed);
    assert_true(engine_drained(w.engine)); /* nothing is due: a person must decide */
    world_pass(&w, 24 * 3600 * 1000);
    assert_int_equal(w.log_count, 6);
}

static void a_re_driven_key_goes_on_in_order(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t dead = make_dead(1);
    uint64_t later[3];
    for (uint64_t i = 0; i < 3; i++)
        later[i] = world_commit(&w, EVENT_FOLLOW_REMOVED, 1, i);
    world_run(&w);
    ill[1] = OK;
    assert_int_equal(world_redrive(&w, &the_dead), 1);
    uint64_t last = world_commit(&w, EVENT_FOLLOW_CREATED, 1, 9); /* still behind the others */
    world_drain(&w, 5000);
    assert_true(engine_drained(w.engine));
    const uint64_t expected[] = {dead, later[0], later[1], later[2], last};
    assert_int_equal(w.log_count, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(w.log[i].event, expected[i]);
    assert_int_equal(stats_now().blocked_keys, 0);
    uint64_t free = world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 10);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, free), 1);
    assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM deliveries"), 5); /* no trace of it */
}

static void a_re_driven_one_that_fails_again_climbs_again(void **state)
{
    (void)state;
    world_engine(&w);
    make_dead(1);
    assert_int_equal(world_redrive(&w, &the_dead), 1);
    world_run(&w);
    assert_int_equal(world_recorded(&w, DELIVERY_DELAYED), 1);
    assert_int_equal(world_ask(&w, "SELECT tries FROM deliveries"), 1);
    world_pass(&w, 1200 * 1000);
    assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 1);
}

static void discarding_a_dead_letter_frees_its_key(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t dead = make_dead(1);
    ill[1] = OK;
    uint64_t behind = world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 1);
    world_run(&w);
    assert_int_equal(world_discard(&w, &the_dead), 1);
    world_drain(&w, 5000);
    assert_int_equal(world_deliveries_of(&w, dead), 0);
    assert_int_equal(world_deliveries_of(&w, behind), 1);
    assert_int_equal(stats_now().blocked_keys, 0);
    assert_int_equal(world_ask(&w, "SELECT COUNT(*) FROM deliveries WHERE detail = 'not needed'"),
                     1);
}

/* Everything of a key is given up, so that no row is left to free it when it is done. */
static void a_key_whose_rows_are_all_discarded_goes_on(void **state)
{
    (void)state;
    world_engine(&w);
    make_dead(1);
    world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 1);
    world_run(&w);
    assert_int_equal(world_discard(&w, &(struct delivery_filter){.key = 1}), 2);
    ill[1] = OK;
    world_run(&w);
    assert_int_equal(stats_now().blocked_keys, 0);
    uint64_t next = world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 2);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, next), 1);
}

static void tell_of_a_change(void *ctx, const struct event_list *events)
{
    (void)events;
    struct world *world = ctx;
    world->faults->before_commit = NULL;
    world->faults->lose_replies = 1;
    engine_deliveries_changed(world->engine);
}

/* A signal comes while the step is in its transaction, and that transaction fails: the signal is
 * not lost. */
static void a_change_that_is_told_during_a_failing_step_is_seen(void **state)
{
    (void)state;
    world_engine(&w);
    make_dead(1);
    world_do(&w, "UPDATE deliveries SET state = 6"); /* discarded, without a signal yet */
    world_run(&w);
    assert_int_equal(stats_now().blocked_keys, 1);
    ill[2] = ERR_TIMEOUT;
    world_commit(&w, EVENT_FOLLOW_CREATED, 2, 1);
    world_run_relay(&w);
    engine_worker_step(w.engine);
    w.faults->ctx = &w;
    w.faults->before_commit = tell_of_a_change;
    world_pass(&w, 500);
    assert_null(w.faults->before_commit);
    assert_int_equal(stats_now().blocked_keys, 1); /* the second person's; the first is free */
    ill[1] = OK;
    uint64_t next = world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 2);
    world_run(&w);
    assert_int_equal(world_deliveries_of(&w, next), 1);
}

/* The look at the keys fails after the commit: what was committed ends, the look is repeated. */
static void keys_that_cannot_be_read_are_read_later(void **state)
{
    (void)state;
    world_engine(&w);
    make_dead(1);
    world_discard(&w, &the_dead);
    w.faults->reads_fail = true;
    ill[2] = ERR_TIMEOUT;
    world_commit(&w, EVENT_FOLLOW_CREATED, 2, 1);
    world_run(&w);
    assert_int_equal(world_held(&w, LANE_GRAPH), 0);
    assert_int_equal(world_ask(&w, "SELECT LENGTH(history) - LENGTH(REPLACE(history, x'0a', '')) "
                                   "FROM deliveries WHERE state = 1"),
                     1); /* written once */
    assert_int_equal(stats_now().blocked_keys, 2);
    w.faults->reads_fail = false;
    world_pass(&w, 200);
    assert_int_equal(stats_now().blocked_keys, 1);
}

static void a_restart_keeps_blocked_keys_blocked(void **state)
{
    (void)state;
    world_engine(&w);
    uint64_t dead = make_dead(1);
    engine_watermark_step(w.engine);
    world_crash(&w);
    world_engine(&w);
    ill[1] = OK;
    uint64_t behind = world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 1);
    world_pass(&w, 5000);
    assert_int_equal(w.log_count, 0);
    assert_int_equal(world_redrive(&w, &the_dead), 1);
    world_drain(&w, 5000);
    assert_int_equal(w.log_count, 2);
    assert_int_equal(w.log[0].event, dead);
    assert_int_equal(w.log[1].event, behind);
}

/* Failures, crashes, re-drives and discards at random: each person's follows arrive in the order
 * they were made, each at least once, and no key stays blocked. */
static void random_histories_keep_each_persons_order(void **state)
{
    (void)state;
    world_done(&w);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        set_up(NULL);
        struct rand r;
        rand_seed(&r, seed);
        w.config.commit_queue_max = 1 + rand_below(&r, 50);
        w.lane_limits[LANE_GRAPH] = 1 + rand_below(&r, 20);
        world_engine(&w);
        size_t began[150], lives = 0;
        for (uint64_t i = 0; i < 150; i++) {
            ill[rand_below(&r, PEOPLE)] = rand_below(&r, 3) ? OK : ERR_TIMEOUT;
            world_commit(&w, rand_below(&r, 2) ? EVENT_FOLLOW_CREATED : EVENT_FOLLOW_REMOVED,
                         1 + rand_below(&r, PEOPLE - 1), i);
            switch (rand_below(&r, 12)) {
            case 0:
                world_pass(&w, (int64_t)rand_below(&r, 300 * 1000));
                break;
            case 1:
                world_redrive(&w, &the_dead);
                break;
            case 2:
                w.faults->lose_replies = 1;
                engine_recorder_step(w.engine);
                w.faults->lose_replies = 0;
                break;
            case 3:
                if (rand_below(&r, 3) == 0) {
                    w.views.loaded_position = w.saved_position = engine_settled_through(w.engine);
                    world_crash(&w);
                    world_engine(&w);
                    began[lives++] = w.log_count;
                }
                break;
            case 4:
                engine_watermark_step(w.engine);
                break;
            default:
                engine_relay_step(w.engine);
                engine_worker_step(w.engine);
                engine_recorder_step(w.engine);
            }
        }
        for (int i = 0; i < PEOPLE; i++)
            ill[i] = OK;
        for (int i = 0; i < 3; i++) {
            world_redrive(&w, &the_dead);
            world_pass(&w, 700 * 1000);
        }
        assert_true(engine_drained(w.engine));
        assert_int_equal(stats_now().blocked_keys, 0);
        uint64_t last[PEOPLE] = {0};
        bool seen[150] = {false};
        for (size_t i = 0, life = 0; i < w.log_count; i++) {
            for (; life < lives && began[life] <= i; life++)
                memset(last, 0, sizeof last); /* what the views lost comes again */
            if (w.log[i].event < last[w.log[i].actor])
                fail_msg("seed %d: %llu after %llu", (int)seed, (unsigned long long)w.log[i].event,
                         (unsigned long long)last[w.log[i].actor]);
            last[w.log[i].actor] = w.log[i].event;
            seen[w.log[i].object] = true;
        }
        for (size_t i = 0; i < 150; i++)
            assert_true(seen[i]);
        world_done(&w);
    }
    set_up(NULL);
}

/* ---- claims ---- */

static void a_claim_whose_consumer_has_no_rule_is_buried(void **state)
{
    (void)state;
    world_engine(&w);
    ill[1] = ERR_TIMEOUT;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    world_do(&w, "UPDATE deliveries SET consumer = 'gone'");
    world_do(&w, "UPDATE delivery_counts SET consumer = 'gone'");
    world_pass(&w, 10 * 1000);
    assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 1);
    assert_int_equal(
        world_ask(&w, "SELECT COUNT(*) FROM deliveries WHERE reason = 'UNKNOWN_CONSUMER'"), 1);
}

static void many_due_rows_are_claimed_in_slices(void **state)
{
    (void)state;
    world_engine(&w);
    engine_stop_lane(w.engine, LANE_CLEANUP, false);
    for (uint64_t actor = 1; actor < PEOPLE; actor++)
        ill[actor] = ERR_TIMEOUT;
    for (int i = 0; i < PEOPLE; i++)
        w.followers[i] = 1;
    for (uint64_t i = 0; i < 400; i++) {
        world_commit(&w, EVENT_POST_CREATED, 1 + i % (PEOPLE - 1), i);
        engine_stop_lane(w.engine, LANE_SMALL, false); /* the breaker is not what is tested here */
        world_run(&w);
    }
    assert_int_equal(world_recorded(&w, DELIVERY_DELAYED), 400);
    for (uint64_t actor = 1; actor < PEOPLE; actor++)
        ill[actor] = OK;
    engine_stop_lane(w.engine, LANE_SMALL, false);
    world_move_to(&w, w.manual.mono_us + 3000 * 1000);
    engine_recorder_step(w.engine);
    assert_in_range(world_recorded(&w, DELIVERY_RETRYING), 1, RECORDER_CLAIMS);
    world_drain(&w, 5000);
    assert_int_equal(world_recorded(&w, DELIVERY_DONE), 400);
    assert_int_equal(w.log_count, 400);
}

/* The lane that counts is the one a retry is worked on in, not its rule's own. */
static void retries_of_a_stopped_lane_leave_room_for_the_others(void **state)
{
    (void)state;
    w.log_off = true;
    world_engine(&w);
    ill[1] = ill[2] = ERR_TIMEOUT;
    w.followers[2] = 1;
    world_commit(&w, EVENT_POST_CREATED, 2, 1);
    world_run(&w);
    world_do(&w,
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) "
             "INSERT INTO deliveries (id, event_id, type, version, payload, consumer, lane, "
             "order_key, part, active_since, started, after, until, epoch, state, tries, "
             "due_at, opened_at, changed_at, reason) SELECT id - i, event_id - i, type, "
             "version, payload, consumer, lane, order_key, 1, 0, 0, after, until, epoch, state, "
             "tries, due_at - 1000, opened_at, changed_at, reason FROM deliveries, n");
    ill[1] = ERR_TIMEOUT;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    engine_stop_lane(w.engine, LANE_ACTIVE, true);
    ill[1] = ill[2] = OK;
    world_pass(&w, 30 * 1000);
    assert_int_equal(world_ask(&w, "SELECT state FROM deliveries WHERE lane = 'graph'"),
                     DELIVERY_DONE);
    engine_stop_lane(w.engine, LANE_ACTIVE, false);
    world_drain(&w, 900 * 1000);
    assert_int_equal(world_recorded(&w, DELIVERY_DONE), 5002);
}

/* The wall clock is set while a retry waits: it comes all the same, at the latest after its delay
 * by the new time. */
static void a_clock_that_was_set_forward_brings_retries_at_once(void **state)
{
    (void)state;
    world_engine(&w);
    ill[1] = ERR_TIMEOUT;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    ill[1] = OK;
    w.manual.wall_ms += 3600 * 1000;
    world_pass(&w, 1000);
    assert_int_equal(w.log_count, 1);
}

/* ---- positions ---- */

static enum err fail_all(struct world *world, const struct event *e, const uint64_t *members,
                         size_t n)
{
    (void)e, (void)n;
    return *(const uint64_t *)world->user && members[0] >= *(const uint64_t *)world->user
               ? ERR_UNAVAILABLE
               : OK;
}

/* Retries of a walk move on page by page; a crash in the middle goes on where the delivery store
 * says. */
static void a_retry_goes_on_where_it_got(void **state)
{
    (void)state;
    uint64_t fail_from = 1;
    w.user = &fail_from;
    w.before_sink = fail_all;
    w.rules = world_small_rules;
    w.active_every = 0;
    w.followers[1] = 40;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    engine_watermark_step(w.engine);
    assert_int_equal(engine_settled_through(w.engine), id);
    size_t rows = (size_t)world_ask(&w, "SELECT COUNT(*) FROM deliveries");
    assert_in_range(rows, 1, 2);
    fail_from = 21;
    world_pass(&w, 3000); /* five pages, then it fails again */
    assert_int_equal(world_deliveries_of(&w, id), 20);
    assert_int_equal(world_ask(&w, "SELECT MAX(after) FROM deliveries WHERE state = 1"), 20);
    w.views.loaded_position = w.saved_position = world_commit(&w, EVENT_ACCOUNT_CREATED, 9, 0);
    world_crash(&w);
    world_engine(&w);
    fail_from = 0;
    world_drain(&w, 60 * 1000);
    assert_int_equal(world_deliveries_of(&w, id), 40);
    assert_int_equal(world_ask(&w, "SELECT SUM(members) FROM deliveries"), 40);
}

static void after_a_new_epoch_a_walk_begins_anew(void **state)
{
    (void)state;
    uint64_t fail_from = 1;
    w.user = &fail_from;
    w.before_sink = fail_all;
    w.rules = world_small_rules;
    w.active_every = 0;
    w.followers[1] = 40;
    world_engine(&w);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    fail_from = 21;
    world_pass(&w, 3000);
    w.views.loaded_position = w.saved_position = world_commit(&w, EVENT_ACCOUNT_CREATED, 9, 0);
    world_crash(&w);
    w.views.epoch = 2; /* the old positions mean nothing any more */
    world_engine(&w);
    fail_from = 0;
    w.log_count = 0;
    world_drain(&w, 60 * 1000);
    assert_int_equal(world_deliveries_of(&w, id), 40);
    assert_true(engine_drained(w.engine));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_message_ends_when_its_failure_is_in_the_delivery_store),
        TEST(a_store_that_refuses_loses_nothing),
        TEST(a_lost_reply_changes_nothing),
        TEST(a_dead_letter_blocks_its_own_key_only),
        TEST(a_re_driven_key_goes_on_in_order),
        TEST(a_re_driven_one_that_fails_again_climbs_again),
        TEST(discarding_a_dead_letter_frees_its_key),
        TEST(a_key_whose_rows_are_all_discarded_goes_on),
        TEST(a_change_that_is_told_during_a_failing_step_is_seen),
        TEST(keys_that_cannot_be_read_are_read_later),
        TEST(a_restart_keeps_blocked_keys_blocked),
        TEST(random_histories_keep_each_persons_order),
        TEST(a_claim_whose_consumer_has_no_rule_is_buried),
        TEST(many_due_rows_are_claimed_in_slices),
        TEST(retries_of_a_stopped_lane_leave_room_for_the_others),
        TEST(a_clock_that_was_set_forward_brings_retries_at_once),
        TEST(a_retry_goes_on_where_it_got),
        TEST(after_a_new_epoch_a_walk_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
