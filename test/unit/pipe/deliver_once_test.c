/* Dedup behind sinks: acts in truth exactly once, acts outside never again blindly, and what
 * crashes, lost replies and operators make of that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "pipe/state.h"
#include "world.h"

static struct world w;
static enum err answer; /* of the sinks */
static size_t acts;     /* that happened */
static bool die_in_sink;

/* ---- sinks ---- */

static enum err send(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                     struct sink_result *result)
{
    (void)e, (void)members;
    CHECK(n == 1); /* behind a dedup memory, one by one */
    struct world *world = env->user;
    if (die_in_sink) {
        acts++;
        world->faults->dead = true;
        return OK;
    }
    if (answer == ERR_UNKNOWN_COMMIT)
        acts++; /* it did happen: only the answer was lost */
    if (answer)
        return answer;
    acts++;
    result->delivered = 1;
    return OK;
}

static enum err write_down(struct tx *tx, struct sink_env *env, const struct event *e,
                           uint64_t member, struct sink_result *result)
{
    (void)env;
    if (answer)
        return answer;
    result->delivered = 1;
    return tx_exec(tx,
                   "INSERT INTO meta (name, value) VALUES ('act', '1') ON CONFLICT (name) DO "
                   "UPDATE SET value = CAST(meta.value AS INTEGER) + 1",
                   DB_NO_ARGS, NULL) ||
                   e->actor != member
               ? ERR_INTERNAL
               : OK;
}

static void one_a_day(const struct event *e, uint64_t member, struct buf *out)
{
    (void)member;
    buf_printf(out, "day:%llu", (unsigned long long)e->object);
}

/* Who takes a like back and likes again is known by both. */
static void one_like(const struct event *e, uint64_t member, struct buf *out)
{
    (void)member;
    buf_printf(out, "like:%llu:%llu", (unsigned long long)e->object, (unsigned long long)e->actor);
}

static const struct rule acting_rules[] = {
    {.consumer = "mail",
     .on = EVENT_FOLLOW_CREATED,
     .audience = TO_ACTOR,
     .sink = send,
     .lane = LANE_GRAPH,
     .effect = EFFECT_OUTSIDE,
     .channel = "email",
     .dedup = DEDUP_BY_EVENT,
     .priority = PRIORITY_NORMAL,
     .late_means = "mail comes late"},
    {.consumer = "ledger",
     .on = EVENT_FOLLOW_REMOVED,
     .audience = TO_ACTOR,
     .tx_sink = write_down,
     .lane = LANE_GRAPH,
     .effect = EFFECT_TRUTH,
     .dedup = DEDUP_BY_EVENT,
     .priority = PRIORITY_NORMAL,
     .late_means = ""},
    {.consumer = "digest",
     .on = EVENT_MUTE_CREATED,
     .audience = TO_ACTOR,
     .sink = send,
     .lane = LANE_GRAPH,
     .effect = EFFECT_OUTSIDE,
     .channel = "email",
     .dedup = DEDUP_BY_KEY,
     .business_key = one_a_day,
     .priority = PRIORITY_NORMAL,
     .late_means = ""},
    {.consumer = "likes",
     .on = EVENT_LIKE_CREATED,
     .audience = TO_ACTOR,
     .sink = send,
     .lane = LANE_GRAPH,
     .effect = EFFECT_OUTSIDE,
     .channel = "email",
     .dedup = DEDUP_BY_KEY,
     .business_key = one_like,
     .priority = PRIORITY_NORMAL,
     .late_means = ""},
};

static int set_up(void **state)
{
    (void)state;
    world_init(&w);
    w.rules = acting_rules;
    w.rule_count = COUNT_OF(acting_rules);
    answer = OK;
    acts = 0;
    die_in_sink = false;
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

static int64_t written_down(void)
{
    return world_ask(&w, "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'act'");
}

static int64_t remembered(int done)
{
    return world_ask(&w, done ? "SELECT count(*) FROM dedup WHERE state = 1"
                              : "SELECT count(*) FROM dedup WHERE state = 0");
}

/* The process dies and everything is delivered again: the watermark was never saved. */
static void restart(void)
{
    world_crash(&w);
    w.faults->dead = false;
    world_engine(&w);
    world_run(&w);
}

/* ---- tests ---- */

static void an_act_outside_happens_once_over_restarts(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    for (int i = 0; i < 3; i++)
        restart();
    assert_int_equal(acts, 1);
    assert_int_equal(remembered(true), 1);
    assert_int_equal(stats_now().dedup_duplicates, 1); /* of this life */
    assert_true(engine_drained(w.engine));
}

static void an_act_in_truth_happens_once_over_restarts(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 1);
    world_run(&w);
    for (int i = 0; i < 3; i++)
        restart();
    assert_int_equal(written_down(), 1);
    assert_int_equal(remembered(true), 1);
    assert_int_equal(remembered(false), 0);
}

static void an_act_in_truth_whose_reply_is_lost_is_not_repeated(void **state)
{
    (void)state;
    world_engine(&w);
    world_run(&w);
    world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 1);
    world_run_relay(&w);
    w.faults->lose_replies = 1;
    engine_worker_step(w.engine);
    world_drain(&w, 60 * 1000);
    assert_int_equal(written_down(), 1);
    assert_int_equal(world_recorded(&w, DELIVERY_DONE), 1);
    assert_int_equal(stats_now().dedup_duplicates, 1);
}

static void an_act_in_truth_that_fails_leaves_no_claim(void **state)
{
    (void)state;
    world_engine(&w);
    answer = ERR_TIMEOUT;
    world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 1);
    world_run(&w);
    assert_int_equal(world_ask(&w, "SELECT count(*) FROM dedup"), 0);
    answer = OK;
    world_drain(&w, 60 * 1000);
    assert_int_equal(written_down(), 1);
}

static void two_events_of_one_business_key_act_once(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit(&w, EVENT_MUTE_CREATED, 1, 20);
    world_commit(&w, EVENT_MUTE_CREATED, 2, 20);
    world_commit(&w, EVENT_MUTE_CREATED, 2, 21);
    world_run(&w);
    assert_int_equal(acts, 2);
    assert_int_equal(stats_now().dedup_duplicates, 1);
}

static void liking_again_after_taking_it_back_acts_once(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit(&w, EVENT_LIKE_CREATED, 1, 70);
    world_commit(&w, EVENT_LIKE_REMOVED, 1, 70);
    world_commit(&w, EVENT_LIKE_CREATED, 1, 70);
    world_run(&w);
    assert_int_equal(acts, 1);
    assert_int_equal(stats_now().dedup_duplicates, 1);
    world_commit(&w, EVENT_LIKE_CREATED, 2, 70); /* somebody else */
    world_commit(&w, EVENT_LIKE_CREATED, 1, 71); /* something else */
    world_run(&w);
    assert_int_equal(acts, 3);
}

static void a_failed_act_gives_its_claim_back_and_is_retried(void **state)
{
    (void)state;
    world_engine(&w);
    answer = ERR_UNAVAILABLE;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    assert_int_equal(remembered(false), 0);
    assert_int_equal(world_recorded(&w, DELIVERY_DELAYED), 1);
    answer = OK;
    world_drain(&w, 60 * 1000);
    assert_int_equal(acts, 1);
    assert_int_equal(remembered(true), 1);
}

/* The outcome is unknown: an operator decides. */
static void an_unknown_outcome_is_a_dead_letter_at_once(void **state)
{
    (void)state;
    world_engine(&w);
    answer = ERR_UNKNOWN_COMMIT;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    assert_int_equal(acts, 1);
    assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 1);
    assert_int_equal(
        world_ask(&w, "SELECT COUNT(*) FROM deliveries WHERE reason = 'UNKNOWN_COMMIT'"), 1);
    assert_int_equal(remembered(false), 1);
    assert_int_equal(stats_now().dedup_unknown, 1);
    answer = OK;
    world_pass(&w, 3600 * 1000);
    restart();
    assert_int_equal(acts, 1);
}

static void an_operator_may_order_an_unknown_act_again(void **state)
{
    (void)state;
    world_engine(&w);
    answer = ERR_UNKNOWN_COMMIT;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    answer = OK;
    assert_int_equal(world_redrive(&w, &(struct delivery_filter){.state = DELIVERY_DEAD}), 1);
    world_drain(&w, 10 * 1000);
    assert_int_equal(acts, 2);
    assert_int_equal(world_recorded(&w, DELIVERY_DONE), 1);
    assert_int_equal(remembered(true), 1);
    assert_int_equal(remembered(false), 0);
}

/* The process dies between the act and its confirmation. */
static void a_crash_after_the_act_is_unknown_and_never_repeated_blindly(void **state)
{
    (void)state;
    world_engine(&w);
    world_run(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run_relay(&w);
    die_in_sink = true;
    engine_worker_step(w.engine);
    die_in_sink = false;
    restart();
    assert_int_equal(acts, 1);
    assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 1);
    world_pass(&w, 3600 * 1000);
    assert_int_equal(acts, 1);
}

static void a_store_that_refuses_the_claim_means_no_act(void **state)
{
    (void)state;
    world_engine(&w);
    world_run(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run_relay(&w);
    w.faults->writes_fail = ERR_STORAGE_FULL;
    engine_worker_step(w.engine);
    assert_int_equal(acts, 0);
    w.faults->writes_fail = OK;
    world_drain(&w, 60 * 1000);
    assert_int_equal(acts, 1);
}

/* A rule that acted outside acts in truth since an upgrade, and the old claim was never confirmed:
 * the outcome is still unknown. */
static void a_claim_that_was_never_confirmed_stops_an_act_in_truth_as_well(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 1);
    world_run(&w);
    restart();
    world_do(&w, "UPDATE dedup SET state = CASE state WHEN 0 THEN 1 ELSE 0 END");
    world_do(&w, "DELETE FROM deliveries");
    restart();
    assert_int_equal(written_down(), 1);
    assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 1);
    assert_int_equal(world_redrive(&w, &(struct delivery_filter){.state = DELIVERY_DEAD}), 1);
    world_drain(&w, 10 * 1000);
    assert_int_equal(written_down(), 2); /* ordered by a person */
    assert_int_equal(world_recorded(&w, DELIVERY_DONE), 1);
}

static void old_memory_goes_with_the_watermark(void **state)
{
    (void)state;
    w.config.dedup_ms = 6 * 3600 * 1000;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    for (int hour = 0; hour < 5; hour++) {
        manual_clock_advance(&w.manual, 3600 * 1000);
        engine_watermark_step(w.engine);
    }
    assert_int_equal(remembered(true), 1);
    for (int hour = 0; hour < 5; hour++) {
        manual_clock_advance(&w.manual, 3600 * 1000);
        for (int i = 0; i < 5; i++)
            engine_watermark_step(w.engine);
    }
    assert_int_equal(world_ask(&w, "SELECT count(*) FROM dedup WHERE state = 1"), 0);
}

/* ---- replays ---- */

struct creating {
    const char *spec;
    int64_t now_ms;
    struct job job;
};

static enum err run_create(struct tx *tx, void *arg)
{
    struct creating *c = arg;
    struct replay_spec spec;
    char why[200];
    enum err e =
        replay_spec_parse(str_of(c->spec), acting_rules, COUNT_OF(acting_rules), &spec, why);
    if (e)
        return e;
    replay_job_init(&c->job, &spec, 0, 1, c->now_ms);
    return job_create(tx, &c->job, c->now_ms);
}

static void replay(const char *spec)
{
    struct creating c = {.spec = spec, .now_ms = w.manual.wall_ms};
    assert_int_equal(db_write(&w.db, run_create, &c, NULL), OK);
    engine_jobs_changed(w.engine);
    for (int i = 0; i < 50; i++) {
        engine_replay_step(w.engine);
        world_pass(&w, 1000);
    }
}

static int64_t job_says(const char *column)
{
    char sql[100];
    snprintf(sql, sizeof sql, "SELECT %s FROM jobs ORDER BY id DESC LIMIT 1", column);
    return world_ask(&w, sql);
}

static void a_replay_acts_outside_only_when_allowed_and_not_twice(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    engine_watermark_step(w.engine);
    manual_clock_advance(&w.manual, 1000);
    replay("{\"consumer\":\"mail\"}");
    assert_int_equal(acts, 1);
    assert_int_equal(job_says("suppressed"), 1);
    replay("{\"consumer\":\"mail\",\"allow\":[\"email\"]}");
    assert_int_equal(acts, 1);
    assert_int_equal(job_says("repeated"), 1); /* the dedup memory remembers */
    world_do(&w, "DELETE FROM dedup");
    replay("{\"consumer\":\"mail\",\"allow\":[\"email\"]}");
    assert_int_equal(acts, 2);
    assert_int_equal(job_says("acted"), 1);
}

/* A replayed event that has to wait behind its key goes to the delivery store. What brings it back
 * from there may not do what its replay may not. */
static void a_replayed_act_that_waited_in_the_delivery_store_is_suppressed_as_well(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    world_do(&w, "DELETE FROM dedup");
    answer = ERR_TIMEOUT;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 2);
    world_run(&w); /* its key is blocked */
    engine_watermark_step(w.engine);
    replay("{\"consumer\":\"mail\",\"to\":\"2100-01-01T00:00:00Z\"}");
    answer = OK;
    world_pass(&w, 1200 * 1000);
    assert_int_equal(acts, 2); /* the first, and the second when it was retried */
    assert_true(engine_drained(w.engine));
    assert_int_equal(stats_now().blocked_keys, 0);
}

/* Not even while the delivery store has no room, and the consumer no memory. */
static void an_unknown_outcome_is_not_repeated_because_the_recorder_is_full(void **state)
{
    (void)state;
    struct rule forgetful = acting_rules[0];
    forgetful.dedup = DEDUP_OFF;
    w.rules = &forgetful;
    w.rule_count = 1;
    world_engine(&w);
    answer = ERR_UNKNOWN_COMMIT;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run_relay(&w);
    const struct recorder_entry other = {.delivery_record = {.kind = RECORD_MOVE, .delivery = 1}};
    while (recorder_add(&w.engine->recorder, &other, false))
        continue;
    for (int i = 0; i < 5; i++) {
        engine_worker_step(w.engine);
        manual_clock_advance(&w.manual, 100);
    }
    assert_int_equal(acts, 1);
    world_pass(&w, 1000);
    assert_int_equal(world_recorded(&w, DELIVERY_DEAD), 1);
    assert_int_equal(acts, 1);
}

/* What a replay was allowed is known before the first retry of it is tried, also when the replays'
 * own step comes late. */
static void an_allowed_act_of_a_replay_is_retried_after_a_restart(void **state)
{
    (void)state;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    world_do(&w, "DELETE FROM dedup");
    engine_watermark_step(w.engine);
    answer = ERR_TIMEOUT;
    replay("{\"consumer\":\"mail\",\"to\":\"2100-01-01T00:00:00Z\",\"allow\":[\"email\"]}");
    assert_int_equal(world_recorded(&w, DELIVERY_DELAYED), 1);
    world_crash(&w);
    answer = OK;
    world_engine(&w);
    world_pass(&w, 10 * 1000); /* without a step of the replays */
    assert_int_equal(world_recorded(&w, DELIVERY_DONE), 1);
    assert_int_equal(acts, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_act_outside_happens_once_over_restarts),
        TEST(an_act_in_truth_happens_once_over_restarts),
        TEST(an_act_in_truth_whose_reply_is_lost_is_not_repeated),
        TEST(an_act_in_truth_that_fails_leaves_no_claim),
        TEST(two_events_of_one_business_key_act_once),
        TEST(liking_again_after_taking_it_back_acts_once),
        TEST(a_failed_act_gives_its_claim_back_and_is_retried),
        TEST(an_unknown_outcome_is_a_dead_letter_at_once),
        TEST(an_operator_may_order_an_unknown_act_again),
        TEST(a_crash_after_the_act_is_unknown_and_never_repeated_blindly),
        TEST(a_store_that_refuses_the_claim_means_no_act),
        TEST(a_claim_that_was_never_confirmed_stops_an_act_in_truth_as_well),
        TEST(old_memory_goes_with_the_watermark),
        TEST(a_replay_acts_outside_only_when_allowed_and_not_twice),
        TEST(a_replayed_act_that_waited_in_the_delivery_store_is_suppressed_as_well),
        TEST(an_allowed_act_of_a_replay_is_retried_after_a_restart),
        TEST(an_unknown_outcome_is_not_repeated_because_the_recorder_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
