/* The outside pool: many calls at a time, each done once, whatever fails, crashes or is slow; and
 * unknown outcomes are reported so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "world.h"

enum { CALLS_MAX = 4096, PEOPLE = 48 };

static struct world w;

/* The other side: calls that were begun and have not ended, and how often each person was reached.
 */
static struct outside_call *open_calls[CALLS_MAX];
static size_t open_count, most_open;
static uint32_t happened[PEOPLE + 1];
static bool at_once;
static char last_data[EVENT_DATA_MAX + 1];

static void begin_call(struct sink_env *env, struct outside_call *call)
{
    (void)env;
    snprintf(last_data, sizeof last_data, "%.*s", (int)call->event->data.len,
             call->event->data.len ? call->event->data.ptr : "");
    if (at_once) {
        happened[call->member]++;
        call->result.delivered = 1;
        outside_end(call, OK);
        return;
    }
    assert_true(open_count < CALLS_MAX);
    open_calls[open_count++] = call;
    most_open = open_count > most_open ? open_count : most_open;
}

static void end_call(size_t at, enum err e)
{
    struct outside_call *call = open_calls[at];
    open_calls[at] = open_calls[--open_count];
    if (e == OK) {
        happened[call->member]++;
        call->result.delivered = 1;
    }
    outside_end(call, e);
}

static const struct rule rules[] = {
    {.consumer = "mail",
     .on = EVENT_FOLLOW_CREATED,
     .audience = TO_ACTOR,
     .outside = begin_call,
     .lane = LANE_OUTSIDE,
     .batch = 1,
     .priority = PRIORITY_NORMAL,
     .effect = EFFECT_OUTSIDE,
     .channel = "email",
     .dedup = DEDUP_BY_EVENT},
    {.consumer = "listed",
     .on = EVENT_MUTE_CREATED,
     .audience = TO_LISTED,
     .reads_data = true,
     .outside = begin_call,
     .lane = LANE_OUTSIDE,
     .batch = 8,
     .priority = PRIORITY_NORMAL,
     .effect = EFFECT_OUTSIDE,
     .channel = "email",
     .dedup = DEDUP_BY_EVENT},
};

static int set_up(void **state)
{
    (void)state;
    open_count = most_open = 0;
    at_once = false;
    memset(happened, 0, sizeof happened);
    world_init(&w);
    w.rules = rules;
    w.rule_count = COUNT_OF(rules);
    world_engine(&w);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

static void run(void)
{
    bool more;
    do {
        more = world_run(&w) > 0;
        more |= engine_outside_step(w.engine) <= clock_mono_us(w.clock);
    } while (more);
}

static uint64_t dead(void)
{
    return (uint64_t)plain_db_ask(w.store, "SELECT COUNT(*) FROM deliveries WHERE state = 4");
}

static void drain(void)
{
    for (int i = 0; i < 2000 && !(engine_drained(w.engine) && open_count == 0); i++) {
        run();
        while (open_count > 0)
            end_call(open_count - 1, OK);
        run();
        manual_clock_advance(&w.manual, 1000);
    }
    assert_true(engine_drained(w.engine));
}

static enum err emit_listed(struct tx *tx, void *arg)
{
    return outbox_emit(tx,
                       (struct event){.type = EVENT_MUTE_CREATED, .actor = 1, .data = str_of(arg)});
}

/* ---- tests ---- */

static void test_many_at_a_time(void **state)
{
    (void)state;
    for (uint64_t who = 1; who <= PEOPLE; who++)
        world_commit(&w, EVENT_FOLLOW_CREATED, who, 1);
    uint64_t writes = w.writes;
    run();
    assert_int_equal(open_count, PEOPLE); /* none waits for another */
    assert_true(w.writes - writes <= 8);  /* claims are written together */
    while (open_count > 0)
        end_call(0, OK);
    run();
    assert_true(engine_drained(w.engine));
    for (uint64_t who = 1; who <= PEOPLE; who++)
        assert_int_equal(happened[who], 1);
    assert_int_equal(plain_db_ask(w.store, "SELECT COUNT(*) FROM dedup WHERE state = 1"), PEOPLE);
}

/* The lane's concurrency holds, and can be changed while it runs. */
static void test_concurrency(void **state)
{
    (void)state;
    engine_set_lane(w.engine, LANE_OUTSIDE, 5, 0);
    for (uint64_t who = 1; who <= PEOPLE; who++)
        world_commit(&w, EVENT_FOLLOW_CREATED, who, 1);
    run();
    assert_int_equal(open_count, 5);
    end_call(0, OK);
    run();
    assert_int_equal(open_count, 5);
    engine_set_lane(w.engine, LANE_OUTSIDE, 9, 0);
    run();
    assert_int_equal(open_count, 9);
    drain();
    assert_int_equal(most_open, 9);
}

/* A call that hangs holds up no other: views continue, and so do other calls. */
static void test_a_slow_call_holds_up_no_other(void **state)
{
    (void)state;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    run();
    assert_int_equal(open_count, 1);
    at_once = true;
    for (uint64_t who = 2; who <= PEOPLE; who++)
        world_commit(&w, EVENT_FOLLOW_CREATED, who, 1);
    run();
    for (uint64_t who = 2; who <= PEOPLE; who++)
        assert_int_equal(happened[who], 1);
    assert_false(engine_drained(w.engine));
    end_call(0, OK);
    run();
    assert_true(engine_drained(w.engine));
}

static void test_failures_are_tried_again(void **state)
{
    (void)state;
    world_commit(&w, EVENT_FOLLOW_CREATED, 3, 1);
    run();
    open_calls[0]->result.retry_after_ms = 60000;
    end_call(0, ERR_UNAVAILABLE);
    run();
    assert_int_equal(plain_db_ask(w.store, "SELECT COUNT(*) FROM dedup"), 0); /* given back */
    manual_clock_advance(&w.manual, 59000);
    run();
    assert_int_equal(open_count, 0); /* the other side asked for a minute */
    manual_clock_advance(&w.manual, 30000);
    run();
    assert_int_equal(open_count, 1);
    drain();
    assert_int_equal(happened[3], 1);
}

static void test_unknown_is_never_repeated(void **state)
{
    (void)state;
    world_commit(&w, EVENT_FOLLOW_CREATED, 3, 1);
    run();
    end_call(0, ERR_UNKNOWN_COMMIT);
    run();
    assert_int_equal(dead(), 1);
    /* … and the same when the process died before it ended */
    world_commit(&w, EVENT_FOLLOW_CREATED, 4, 1);
    run();
    assert_int_equal(open_count, 1);
    world_crash(&w);
    open_count = 0;
    world_engine(&w);
    manual_clock_advance(&w.manual, 3600 * 1000);
    drain();
    assert_int_equal(dead(), 2);
    assert_int_equal(happened[3] + happened[4], 0);
}

/* The accounts in the event's data, page by page, each once. */
static void test_a_list_in_the_data(void **state)
{
    (void)state;
    static char list[] =
        "{\"to\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\"]}";
    assert_int_equal(db_write(&w.db, emit_listed, list, NULL), OK);
    run();
    assert_int_equal(open_count, 8);
    assert_string_equal(last_data, list);
    end_call(2, ERR_UNAVAILABLE);
    while (open_count > 0)
        end_call(0, OK);
    run();
    manual_clock_advance(&w.manual, 60000);
    drain();
    for (uint64_t who = 1; who <= 11; who++)
        assert_int_equal(happened[who], 1);
    assert_int_equal(happened[12], 0);
}

/* Of a page one call failed and one is unknown: what is unknown decides. */
static void test_unknown_comes_before_failed(void **state)
{
    (void)state;
    static char list[] = "{\"to\":[\"1\",\"2\",\"3\"]}";
    assert_int_equal(db_write(&w.db, emit_listed, list, NULL), OK);
    run();
    assert_int_equal(open_count, 3);
    for (size_t i = 0; i < 3; i++) /* whichever was begun first */
        if (open_calls[i]->member == 1) {
            end_call(i, ERR_UNAVAILABLE);
            break;
        }
    end_call(open_calls[0]->member == 2 ? 0 : 1, ERR_UNKNOWN_COMMIT);
    end_call(0, OK);
    run();
    assert_int_equal(dead(), 1);
    assert_int_equal(happened[3], 1);
}

static enum breaker_state breaker(void)
{
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    return stats.lanes[LANE_OUTSIDE].breaker.state;
}

/* The lane stops because most calls fail. The message that should probe it is one that the bus
 * brings twice, so no call tells how things are now: the next message must be a probe again. */
static void test_a_duplicate_is_no_probe(void **state)
{
    (void)state;
    struct bus_message twice;
    w.bus->exact = false;
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    assert_true(bus_take(w.bus, LANE_OUTSIDE, clock_mono_us(w.clock), &twice));
    bus_ack(w.bus, &twice);
    assert_int_equal(bus_publish(w.bus, &twice), OK);
    drain();
    for (uint64_t who = 2; who <= PEOPLE; who++)
        world_commit(&w, EVENT_FOLLOW_CREATED, who, 1);
    run();
    while (open_count > 0)
        end_call(0, ERR_UNAVAILABLE);
    engine_outside_step(w.engine);
    assert_int_equal(breaker(), BREAKER_OPEN);
    manual_clock_advance(&w.manual, 2500);
    assert_int_equal(bus_publish(w.bus, &twice), OK);
    engine_outside_step(w.engine);
    assert_int_equal(open_count, 0);
    drain();
    assert_int_equal(breaker(), BREAKER_CLOSED);
    for (uint64_t who = 1; who <= PEOPLE; who++)
        assert_int_equal(happened[who], 1);
}

/* Random endings, errors, lost replies and crashes: no person is reached twice, and none less than
 * once without a dead letter that says so. */
static void test_random_histories(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rand r;
        rand_seed(&r, seed);
        tear_down(NULL);
        set_up(NULL);
        uint64_t people = 0;
        for (int i = 0; i < 400; i++) {
            switch (rand_below(&r, 12)) {
            case 0:
            case 1:
                if (people < PEOPLE)
                    world_commit(&w, EVENT_FOLLOW_CREATED, ++people, 1);
                break;
            case 2:
                if (rand_below(&r, 8) > 0)
                    break;
                world_crash(&w);
                open_count = 0; /* calls under way never report */
                world_engine(&w);
                break;
            case 3:
                w.faults->lose_replies = rand_below(&r, 8) == 0;
                engine_outside_step(w.engine);
                w.faults->lose_replies = 0;
                break;
            case 4:
                if (open_count > 0)
                    end_call(rand_below(&r, open_count), ERR_UNAVAILABLE);
                break;
            case 5:
                if (open_count > 0 && rand_below(&r, 4) == 0)
                    end_call(rand_below(&r, open_count), ERR_UNKNOWN_COMMIT);
                break;
            case 6:
                manual_clock_advance(&w.manual, (int64_t)rand_below(&r, 5000));
                break;
            case 7:
                run();
                break;
            case 8:
                engine_outside_step(w.engine);
                break;
            default:
                if (open_count > 0)
                    end_call(rand_below(&r, open_count), OK);
            }
        }
        manual_clock_advance(&w.manual, 3600 * 1000);
        drain();
        uint64_t missed = 0;
        for (uint64_t who = 1; who <= people; who++) {
            assert_true(happened[who] <= 1);
            missed += happened[who] == 0;
        }
        assert_true(dead() >= missed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_concurrency, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_slow_call_holds_up_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failures_are_tried_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unknown_is_never_repeated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_list_in_the_data, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unknown_comes_before_failed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_duplicate_is_no_probe, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_histories, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
