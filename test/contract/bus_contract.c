/* The bus port's contract (src/port/bus.h), line by line, against every engine in the table below.
 * Time is handed in by the tests, so nothing here waits. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "bus/local.h"
#include "port/bus.h"

enum { LANES = 3, LIMIT = 100 };

struct factory {
    const char *name;
    struct bus *(*open)(size_t lanes, const size_t *limits);
};

static const struct factory factories[] = {
    {"local", bus_local_new},
};

struct fixture {
    const struct factory *factory;
    struct bus *bus;
};

static int open_bus(void **state)
{
    struct fixture *f = *state;
    const size_t limits[LANES] = {LIMIT, LIMIT, LIMIT};
    f->bus = f->factory->open(LANES, limits);
    return f->bus ? 0 : -1;
}

static int close_bus(void **state)
{
    struct fixture *f = *state;
    bus_free(f->bus);
    return 0;
}

static struct bus *bus_of(void **state)
{
    struct fixture *f = *state;
    return f->bus;
}

static struct bus_message message(uint16_t lane, uint64_t id)
{
    return (struct bus_message){
        .event = {.id = id, .actor = id * 10}, .lane = lane, .seat = id * 7};
}

static void publish(struct bus *b, uint16_t lane, uint64_t id)
{
    struct bus_message m = message(lane, id);
    assert_int_equal(bus_publish(b, &m), OK);
}

static struct bus_message take(struct bus *b, uint16_t lane, int64_t now_us)
{
    struct bus_message m;
    assert_true(bus_take(b, lane, now_us, &m));
    return m;
}

static bool nothing(struct bus *b, uint16_t lane, int64_t now_us)
{
    struct bus_message m;
    return !bus_take(b, lane, now_us, &m);
}

/* ---- 1: one taker at a time ---- */

static void a_message_is_carried_whole(void **state)
{
    struct bus *b = bus_of(state);
    struct bus_message m = {
        .event = {.id = 5,
                  .type = EVENT_POST_DELETED,
                  .version = 3,
                  .actor = 6,
                  .object = 7,
                  .value = -8},
        .rule = 9,
        .lane = 1,
        .cursor = {.part = AUDIENCE_REST, .active_since_ms = 10, .started_ms = 11, .after = 12},
        .until = 13,
        .seat = UINT64_MAX,
    };
    assert_int_equal(bus_publish(b, &m), OK);
    struct bus_message out = take(b, 1, 0);
    m.tag = out.tag; /* the engine's own */
    assert_int_equal(out.event.id, 5);
    assert_int_equal(out.event.type, EVENT_POST_DELETED);
    assert_int_equal(out.event.version, 3);
    assert_int_equal(out.event.actor, 6);
    assert_int_equal(out.event.object, 7);
    assert_int_equal(out.event.value, -8);
    assert_null(out.event.card);
    assert_int_equal(out.rule, 9);
    assert_int_equal(out.lane, 1);
    assert_int_equal(out.tries, 0);
    assert_int_equal(out.cursor.part, AUDIENCE_REST);
    assert_int_equal(out.cursor.active_since_ms, 10);
    assert_int_equal(out.cursor.started_ms, 11);
    assert_int_equal(out.cursor.after, 12);
    assert_false(out.cursor.end);
    assert_int_equal(out.until, 13);
    assert_true(out.seat == UINT64_MAX);
    bus_ack(b, &out);
}

static void a_taken_message_is_given_to_nobody_else(void **state)
{
    struct bus *b = bus_of(state);
    publish(b, 0, 1);
    struct bus_message m = take(b, 0, 0);
    assert_true(nothing(b, 0, INT64_MAX));
    bus_ack(b, &m);
    assert_true(nothing(b, 0, INT64_MAX));
}

static void lanes_do_not_mix(void **state)
{
    struct bus *b = bus_of(state);
    publish(b, 2, 1);
    assert_true(nothing(b, 0, 0));
    assert_true(nothing(b, 1, 0));
    struct bus_message m = take(b, 2, 0);
    bus_ack(b, &m);
}

enum { TAKERS = 3, CROWD = 20000 };

struct crowd {
    struct bus *bus;
    _Atomic uint32_t taken[CROWD];
    _Atomic uint32_t acked;
};

static void *crowd_take(void *arg)
{
    struct crowd *c = arg;
    struct bus_message m;
    while (atomic_load(&c->acked) < CROWD) {
        if (!bus_take(c->bus, 0, 0, &m)) {
            sched_yield();
            continue;
        }
        atomic_fetch_add(&c->taken[m.event.id], 1);
        if (m.event.id % 7 == 0 && m.tries == 0) {
            bus_retry(c->bus, &m, 0);
            continue;
        }
        bus_ack(c->bus, &m);
        atomic_fetch_add(&c->acked, 1);
    }
    return NULL;
}

static void many_takers_get_each_message_once(void **state)
{
    struct bus *b = bus_of(state);
    struct crowd *c = calloc(1, sizeof *c);
    c->bus = b;
    pthread_t takers[TAKERS];
    for (int i = 0; i < TAKERS; i++)
        pthread_create(&takers[i], NULL, crowd_take, c);
    for (uint64_t id = 0; id < CROWD;) {
        struct bus_message m = message(0, id);
        if (bus_publish(b, &m) == OK)
            id++;
        else
            sched_yield();
    }
    for (int i = 0; i < TAKERS; i++)
        pthread_join(takers[i], NULL);
    for (uint64_t id = 0; id < CROWD; id++)
        assert_int_equal(c->taken[id], id % 7 == 0 ? 2 : 1);
    free(c);
}

/* ---- 2: order ---- */

static void messages_come_out_in_the_order_they_went_in(void **state)
{
    struct bus *b = bus_of(state);
    uint64_t next_in = 1, next_out = 1;
    struct rand r;
    rand_seed(&r, 1);
    for (int round = 0; round < 2000; round++) {
        if (next_in - next_out < LIMIT && rand_below(&r, 2)) {
            publish(b, 0, next_in++);
        } else if (next_out < next_in) {
            struct bus_message m = take(b, 0, 0);
            assert_int_equal(m.event.id, next_out++);
            bus_ack(b, &m);
        }
    }
}

static void retried_messages_come_in_the_order_of_their_time(void **state)
{
    struct bus *b = bus_of(state);
    struct rand r;
    rand_seed(&r, 2);
    int64_t due[LIMIT];
    for (uint64_t id = 0; id < LIMIT; id++)
        publish(b, 0, id);
    for (uint64_t id = 0; id < LIMIT; id++) {
        struct bus_message m = take(b, 0, 0);
        due[id] = (int64_t)rand_below(&r, 50);
        bus_retry(b, &m, due[id]);
    }
    int64_t last_due = 0;
    uint64_t last_id = 0;
    for (int i = 0; i < LIMIT; i++) {
        struct bus_message m = take(b, 0, 1000);
        int64_t d = due[m.event.id];
        assert_true(d > last_due || (d == last_due && m.event.id >= last_id));
        last_due = d;
        last_id = m.event.id;
        bus_ack(b, &m);
    }
}

/* ---- 3: retry ---- */

static void a_retried_message_waits_for_its_delay(void **state)
{
    struct bus *b = bus_of(state);
    publish(b, 0, 1);
    struct bus_message m = take(b, 0, 100);
    assert_true(bus_next_due_us(b, 0) == INT64_MAX);
    bus_retry(b, &m, 500);
    assert_int_equal(bus_next_due_us(b, 0), 500);
    assert_true(nothing(b, 0, 499));
    m = take(b, 0, 500);
    assert_int_equal(m.event.id, 1);
    assert_int_equal(m.tries, 1);
    assert_true(bus_next_due_us(b, 0) == INT64_MAX);
    bus_retry(b, &m, 600);
    m = take(b, 0, 600);
    assert_int_equal(m.tries, 2);
    bus_ack(b, &m);
    assert_true(nothing(b, 0, INT64_MAX));
}

static void a_retried_message_comes_back_as_it_was_given_back(void **state)
{
    struct bus *b = bus_of(state);
    publish(b, 0, 1);
    struct bus_message m = take(b, 0, 0);
    m.cursor.after = 77;
    m.cursor.part = AUDIENCE_REST;
    m.until = 88;
    bus_retry(b, &m, 1);
    m = take(b, 0, 1);
    assert_int_equal(m.cursor.after, 77);
    assert_int_equal(m.cursor.part, AUDIENCE_REST);
    assert_int_equal(m.until, 88);
    assert_int_equal(m.seat, 7);
    bus_ack(b, &m);
}

static void delayed_messages_do_not_hold_up_others(void **state)
{
    struct bus *b = bus_of(state);
    publish(b, 0, 1);
    publish(b, 0, 2);
    struct bus_message m = take(b, 0, 0);
    bus_retry(b, &m, 1000);
    m = take(b, 0, 0);
    assert_int_equal(m.event.id, 2);
    bus_ack(b, &m);
    assert_true(nothing(b, 0, 999));
}

static void the_count_of_tries_does_not_wrap(void **state)
{
    struct bus *b = bus_of(state);
    struct bus_message m = message(0, 1);
    m.tries = UINT16_MAX;
    assert_int_equal(bus_publish(b, &m), OK);
    m = take(b, 0, 0);
    bus_retry(b, &m, 0);
    m = take(b, 0, 0);
    assert_int_equal(m.tries, UINT16_MAX);
    bus_ack(b, &m);
}

/* ---- 4: limits ---- */

static void a_full_lane_refuses_and_keeps_no_trace(void **state)
{
    struct bus *b = bus_of(state);
    for (uint64_t id = 0; id < LIMIT; id++)
        publish(b, 0, id);
    struct bus_message m = message(0, 999);
    assert_int_equal(bus_publish(b, &m), ERR_OVERLOADED);
    publish(b, 1, 1); /* the others are not full */
    struct bus_lane_stats stats;
    bus_lane_stats(b, 0, &stats);
    assert_int_equal(stats.published, LIMIT);
    for (uint64_t id = 0; id < LIMIT; id++) {
        m = take(b, 0, 0);
        assert_int_equal(m.event.id, id);
        bus_ack(b, &m);
    }
    assert_true(nothing(b, 0, INT64_MAX));
}

static void taken_and_delayed_messages_count(void **state)
{
    struct bus *b = bus_of(state);
    for (uint64_t id = 0; id < LIMIT; id++)
        publish(b, 0, id);
    struct bus_message taken = take(b, 0, 0);
    struct bus_message delayed = take(b, 0, 0);
    bus_retry(b, &delayed, 1000);
    struct bus_message m = message(0, 999);
    assert_int_equal(bus_publish(b, &m), ERR_OVERLOADED);
    bus_ack(b, &taken);
    assert_int_equal(bus_publish(b, &m), OK);
    assert_int_equal(bus_publish(b, &m), ERR_OVERLOADED);
}

static void a_continuation_may_exceed_the_limit(void **state)
{
    struct bus *b = bus_of(state);
    for (uint64_t id = 0; id < LIMIT; id++)
        publish(b, 0, id);
    struct bus_message m = take(b, 0, 0);
    assert_int_equal(bus_publish_rest(b, &m), OK);
    bus_ack(b, &m);
    assert_int_equal(bus_publish(b, &m), ERR_OVERLOADED);
}

static void the_numbers_add_up(void **state)
{
    struct bus *b = bus_of(state);
    for (uint64_t id = 0; id < 10; id++)
        publish(b, 0, id);
    struct bus_message m;
    for (int i = 0; i < 3; i++) {
        m = take(b, 0, 0);
        bus_ack(b, &m);
    }
    m = take(b, 0, 0);
    bus_retry(b, &m, 1000);
    take(b, 0, 0);
    struct bus_lane_stats stats;
    bus_lane_stats(b, 0, &stats);
    assert_int_equal(stats.ready, 5);
    assert_int_equal(stats.delayed, 1);
    assert_int_equal(stats.taken, 1);
    assert_int_equal(stats.published, 10);
    assert_int_equal(stats.acked, 3);
    assert_int_equal(stats.retried, 1);
}

#define CONTRACT(test)                                                                             \
    {                                                                                              \
#test, test                                                                                \
    }

static const struct {
    const char *name;
    CMUnitTestFunction run;
} contract[] = {
    CONTRACT(a_message_is_carried_whole),
    CONTRACT(a_taken_message_is_given_to_nobody_else),
    CONTRACT(lanes_do_not_mix),
    CONTRACT(many_takers_get_each_message_once),
    CONTRACT(messages_come_out_in_the_order_they_went_in),
    CONTRACT(retried_messages_come_in_the_order_of_their_time),
    CONTRACT(a_retried_message_waits_for_its_delay),
    CONTRACT(a_retried_message_comes_back_as_it_was_given_back),
    CONTRACT(delayed_messages_do_not_hold_up_others),
    CONTRACT(the_count_of_tries_does_not_wrap),
    CONTRACT(a_full_lane_refuses_and_keeps_no_trace),
    CONTRACT(taken_and_delayed_messages_count),
    CONTRACT(a_continuation_may_exceed_the_limit),
    CONTRACT(the_numbers_add_up),
};

/* One group for all engines: a test run has one plan. */
int main(void)
{
    static struct fixture fixtures[COUNT_OF(factories)];
    static struct CMUnitTest tests[COUNT_OF(factories) * COUNT_OF(contract)];
    static char names[COUNT_OF(tests)][100];
    for (size_t i = 0; i < COUNT_OF(tests); i++) {
        const struct factory *factory = &factories[i / COUNT_OF(contract)];
        size_t line = i % COUNT_OF(contract);
        fixtures[i / COUNT_OF(contract)].factory = factory;
        snprintf(names[i], sizeof names[i], "%s: %s", factory->name, contract[line].name);
        tests[i] = (struct CMUnitTest){names[i], contract[line].run, open_bus, close_bus,
                                       &fixtures[i / COUNT_OF(contract)]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
