/* The bus port's contract (src/port/bus.h), line by line, against every driver in the table below.
 * Time is handed in by the tests. A driver that is exact answers at once; behind a network (exact
 * is false) the tests wait for what must come, and before they say that nothing comes they wait
 * until the driver has nothing ready. No connection breaks here: so all lines hold for all. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rand.h"
#include "broker.h"
#include "bus/local.h"
#include "bus/local_first.h"
#include "bus/rabbitmq.h"
#include "port/bus.h"

enum { LANES = 4, QUIET = 3, LIMIT = 100, ROOM = 30, PATIENCE_S = 20 };

/* A place is where a driver that keeps messages keeps them: a new one for each test. */
struct factory {
    const char *name;
    struct bus *(*open)(const size_t *limits, const char *place);
    void (*forget)(const char *place);
    bool keeps_order; /* false: made of two, each of which does */
};

static struct bus *open_local(const size_t *limits, const char *place)
{
    (void)place;
    struct bus *b = bus_local_new(LANES, limits);
    bus_local_quiet(b, 1U << QUIET);
    return b;
}

static void forget_local(const char *place)
{
    (void)place;
}

static const char *const lane_names[LANES] = {"first", "second", "third", "quiet"};

/* The prefetch leaves room for all that the tests take or delay at once. */
static struct bus *open_rabbitmq(const size_t *limits, const char *place)
{
    static struct manual_clock clock;
    char detail[RABBITMQ_DETAIL_SIZE];
    struct bus *b = NULL;
    manual_clock_init(&clock, 1);
    struct rabbitmq_config config = {.url = broker_url(),
                                     .prefix = place,
                                     .lanes = LANES,
                                     .lane_names = lane_names,
                                     .lane_limits = limits,
                                     .quiet = 1U << QUIET,
                                     .transient = 1U << QUIET,
                                     .prefetch = 3 * LIMIT,
                                     .clock = &clock.clock};
    if (bus_rabbitmq_open(&config, &b, detail))
        print_error("%s\n", detail);
    return b;
}

static void forget_rabbitmq(const char *place)
{
    broker_forget(place, lane_names, LANES);
}

/* The room here and the limit there are the limit together; the quiet lane has no room here. */
static struct bus *local_first_over(struct bus *(*open)(const size_t *limits, const char *place),
                                    const size_t *limits, const char *place)
{
    size_t here[LANES], there[LANES];
    for (int i = 0; i < LANES; i++) {
        here[i] = limits[i];
        there[i] = i == QUIET ? limits[i] : limits[i] - ROOM;
    }
    struct bus *remote = open(there, place);
    if (!remote)
        return NULL;
    struct bus *b =
        bus_local_first_new(bus_local_new(LANES, here), remote, (1U << QUIET) - 1, ROOM);
    bus_local_first_hold(b, true);
    return b;
}

static struct bus *open_local_first(const size_t *limits, const char *place)
{
    return local_first_over(open_local, limits, place);
}

static struct bus *open_local_first_rabbitmq(const size_t *limits, const char *place)
{
    return local_first_over(open_rabbitmq, limits, place);
}

static const struct factory factories[] = {
    {"local", open_local, forget_local, true},
    {"local-first", open_local_first, forget_local, false},
    {"rabbitmq", open_rabbitmq, forget_rabbitmq, true},
    {"local-first-rabbitmq", open_local_first_rabbitmq, forget_rabbitmq, false},
};
enum { DRIVERS_HERE = 2 }; /* the first ones need no network */

struct fixture {
    const struct factory *factory;
    struct bus *bus;
    char place[40];
};

static const size_t limits[LANES] = {LIMIT, LIMIT, LIMIT, LIMIT};

static int open_bus(void **state)
{
    static unsigned places;
    struct fixture *f = *state;
    snprintf(f->place, sizeof f->place, "contract-%d-%u", (int)getpid(), ++places);
    f->bus = f->factory->open(limits, f->place);
    return f->bus ? 0 : -1;
}

static int close_bus(void **state)
{
    struct fixture *f = *state;
    bus_free(f->bus);
    f->factory->forget(f->place);
    return 0;
}

static struct bus *bus_of(void **state)
{
    struct fixture *f = *state;
    return f->bus;
}

static bool keeps_order(void **state)
{
    struct fixture *f = *state;
    return f->factory->keeps_order;
}

static struct bus_message message(uint16_t lane, uint64_t id)
{
    return (struct bus_message){
        .event = {.id = id, .actor = id * 10}, .lane = lane, .slot = id * 7};
}

static void publish(struct bus *b, uint16_t lane, uint64_t id)
{
    struct bus_message m = message(lane, id);
    assert_int_equal(bus_publish(b, &m), OK);
}

static struct bus_lane_stats stats_of(struct bus *b, uint16_t lane)
{
    struct bus_lane_stats stats;
    bus_lane_stats(b, lane, &stats);
    return stats;
}

static int64_t patience_ends_us(void)
{
    return clock_mono_us(clock_system()) + PATIENCE_S * INT64_C(1000000);
}

static bool may_wait(struct bus *b, int64_t end_us)
{
    if (b->exact || clock_mono_us(clock_system()) > end_us)
        return false;
    sched_yield();
    return true;
}

static struct bus_message take(struct bus *b, uint16_t lane, int64_t now_us)
{
    struct bus_message m;
    int64_t end_us = patience_ends_us();
    while (!bus_take(b, lane, now_us, &m))
        assert_true(may_wait(b, end_us));
    return m;
}

static bool nothing(struct bus *b, uint16_t lane, int64_t now_us)
{
    struct bus_message m;
    int64_t end_us = patience_ends_us();
    while (stats_of(b, lane).ready > 0 && may_wait(b, end_us))
        ;
    return !bus_take(b, lane, now_us, &m);
}

static void await_confirms(struct bus *b, uint16_t lane)
{
    int64_t end_us = patience_ends_us();
    while (stats_of(b, lane).confirmed < stats_of(b, lane).published)
        assert_true(may_wait(b, end_us));
}

/* ---- 1: one taker at a time ---- */

static void assert_same_report(const struct bus_report *a, const struct bus_report *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->error, b->error);
    assert_int_equal(a->at_end, b->at_end);
    assert_int_equal(a->ahead, b->ahead);
    assert_int_equal(a->node, b->node);
    assert_true(a->next == b->next);
    assert_int_equal(a->members, b->members);
    assert_int_equal(a->delivered, b->delivered);
    assert_int_equal(a->repeated, b->repeated);
    assert_int_equal(a->skipped, b->skipped);
    assert_int_equal(a->duplicates, b->duplicates);
    assert_int_equal(a->suppressed, b->suppressed);
    assert_true(a->asked_ms == b->asked_ms);
}

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
        .kind = 14,
        .slot = UINT64_MAX,
        .owner = 15,
        .replay = 16,
        .term = UINT64_MAX - 17,
        .report = {.kind = REPORT_FAILED,
                   .error = ERR_NO_MEMORY,
                   .at_end = true,
                   .ahead = true,
                   .node = UINT16_MAX,
                   .next = UINT64_MAX - 18,
                   .members = UINT32_MAX,
                   .delivered = 19,
                   .repeated = 20,
                   .skipped = 21,
                   .duplicates = 22,
                   .suppressed = 23,
                   .asked_ms = -24},
    };
    assert_int_equal(bus_publish(b, &m), OK);
    struct bus_message out = take(b, 1, 0);
    m.tag = out.tag; /* the driver's own */
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
    assert_int_equal(out.kind, 14);
    assert_true(out.slot == UINT64_MAX);
    assert_int_equal(out.owner, 15);
    assert_int_equal(out.replay, 16);
    assert_true(out.term == UINT64_MAX - 17);
    assert_same_report(&out.report, &m.report);
    bus_ack(b, &out);
}

static void a_taken_message_is_given_to_no_other(void **state)
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
        due[id] = 1 + (int64_t)rand_below(&r, 50);
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
    assert_int_equal(m.slot, 7);
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
    bool seen[LIMIT] = {false};
    for (uint64_t id = 0; id < LIMIT; id++) {
        m = take(b, 0, 0);
        assert_true(m.event.id == id || !keeps_order(state));
        assert_true(m.event.id < LIMIT && !seen[m.event.id]);
        seen[m.event.id] = true;
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
    await_confirms(b, 0);
    assert_int_equal(stats_of(b, 0).confirmed, 10);
}

/* ---- 5: what is kept ---- */

static void what_a_durable_bus_confirmed_outlives_it(void **state)
{
    struct fixture *f = *state;
    publish(f->bus, 0, 1);
    publish(f->bus, 0, 2);
    struct bus_message m = take(f->bus, 0, 0);
    bus_ack(f->bus, &m);
    take(f->bus, 0, 0); /* and never acked */
    await_confirms(f->bus, 0);
    bool durable = f->bus->durable;
    bus_free(f->bus);
    f->bus = f->factory->open(limits, f->place);
    assert_non_null(f->bus);
    if (durable) {
        m = take(f->bus, 0, 0);
        assert_int_equal(m.event.id, 2);
        bus_ack(f->bus, &m);
    }
    assert_true(nothing(f->bus, 0, INT64_MAX));
}

/* ---- 7: quiet lanes ---- */

/* Something went to the bus and came back: whatever was sent before has come, if it ever will. */
static void there_and_back(struct bus *b, uint16_t lane)
{
    publish(b, lane, 1);
    struct bus_message m = take(b, lane, 0);
    bus_ack(b, &m);
}

static void publish_quietly(struct bus *b, uint64_t first, uint64_t last)
{
    for (uint64_t id = first; id <= last; id++)
        publish(b, QUIET, id);
    await_confirms(b, QUIET);
}

static void expect_in_order(struct bus *b, uint64_t first, uint64_t last)
{
    for (uint64_t id = first; id <= last; id++) {
        struct bus_message m = take(b, QUIET, 0);
        assert_int_equal(m.event.id, id);
        bus_ack(b, &m);
    }
    assert_true(nothing(b, QUIET, INT64_MAX));
}

static void a_quiet_lane_gives_nothing_until_a_taker_listens(void **state)
{
    struct bus *b = bus_of(state);
    struct bus_message m;
    publish_quietly(b, 1, 5);
    there_and_back(b, 0);
    assert_false(bus_take(b, QUIET, INT64_MAX, &m));
    assert_int_equal(stats_of(b, QUIET).ready, 5);
    bus_listen(b, QUIET, true);
    expect_in_order(b, 1, 5);
    publish_quietly(b, 6, 7);
    expect_in_order(b, 6, 7);
}

static void a_lane_that_was_not_opened_as_quiet_is_always_heard(void **state)
{
    struct bus *b = bus_of(state);
    bus_listen(b, 1, false);
    there_and_back(b, 1);
}

static void what_was_taken_and_not_acked_goes_back_when_it_is_quiet_again(void **state)
{
    struct bus *b = bus_of(state);
    struct bus_message m;
    bus_listen(b, QUIET, true);
    publish_quietly(b, 1, 9);
    m = take(b, QUIET, 0);
    take(b, QUIET, 0);
    bus_ack(b, &m);
    take(b, QUIET, 0);
    bus_listen(b, QUIET, false);
    assert_false(bus_take(b, QUIET, INT64_MAX, &m));
    there_and_back(b, 0);
    assert_false(bus_take(b, QUIET, INT64_MAX, &m));
    bus_listen(b, QUIET, true);
    expect_in_order(b, 2, 9);
}

static void what_a_former_listener_says_is_ignored(void **state)
{
    struct bus *b = bus_of(state);
    bus_listen(b, QUIET, true);
    publish_quietly(b, 1, 2);
    struct bus_message old[2], m;
    old[0] = take(b, QUIET, 0);
    old[1] = take(b, QUIET, 0);
    bus_listen(b, QUIET, false);
    bus_listen(b, QUIET, true);
    m = take(b, QUIET, 0);
    assert_int_equal(m.event.id, 1);
    bus_ack(b, &old[0]);
    bus_retry(b, &old[1], 0);
    assert_int_equal(stats_of(b, QUIET).acked, 0);
    assert_int_equal(stats_of(b, QUIET).retried, 0);
    bus_ack(b, &m);
    m = take(b, QUIET, 0);
    assert_int_equal(m.event.id, 2);
    assert_int_equal(m.tries, 0);
    bus_ack(b, &m);
    assert_true(nothing(b, QUIET, INT64_MAX));
    assert_int_equal(stats_of(b, QUIET).acked, 2);
}

static void a_quiet_lane_has_its_limit(void **state)
{
    struct bus *b = bus_of(state);
    struct bus_message m = message(QUIET, 999);
    publish_quietly(b, 1, LIMIT);
    assert_int_equal(bus_publish(b, &m), ERR_OVERLOADED);
    bus_listen(b, QUIET, true);
    expect_in_order(b, 1, LIMIT);
}

#define CONTRACT(test)                                                                             \
    {                                                                                              \
#test, test, false                                                                         \
    }
#define CONTRACT_OF_ORDER(test)                                                                    \
    {                                                                                              \
#test, test, true                                                                          \
    }

static const struct {
    const char *name;
    CMUnitTestFunction run;
    bool is_of_order; /* not for drivers made of two */
} contract[] = {
    CONTRACT(a_message_is_carried_whole),
    CONTRACT(a_taken_message_is_given_to_no_other),
    CONTRACT(lanes_do_not_mix),
    CONTRACT(many_takers_get_each_message_once),
    CONTRACT_OF_ORDER(messages_come_out_in_the_order_they_went_in),
    CONTRACT_OF_ORDER(retried_messages_come_in_the_order_of_their_time),
    CONTRACT(a_retried_message_waits_for_its_delay),
    CONTRACT(a_retried_message_comes_back_as_it_was_given_back),
    CONTRACT(delayed_messages_do_not_hold_up_others),
    CONTRACT(the_count_of_tries_does_not_wrap),
    CONTRACT(a_full_lane_refuses_and_keeps_no_trace),
    CONTRACT(taken_and_delayed_messages_count),
    CONTRACT(a_continuation_may_exceed_the_limit),
    CONTRACT(the_numbers_add_up),
    CONTRACT(what_a_durable_bus_confirmed_outlives_it),
    CONTRACT(a_quiet_lane_gives_nothing_until_a_taker_listens),
    CONTRACT(a_lane_that_was_not_opened_as_quiet_is_always_heard),
    CONTRACT(what_was_taken_and_not_acked_goes_back_when_it_is_quiet_again),
    CONTRACT(what_a_former_listener_says_is_ignored),
    CONTRACT(a_quiet_lane_has_its_limit),
};

/* One group for all drivers: a test run has one plan. */
int main(void)
{
    static struct fixture fixtures[COUNT_OF(factories)];
    static struct CMUnitTest tests[COUNT_OF(factories) * COUNT_OF(contract)];
    static char names[COUNT_OF(tests)][100];
    size_t drivers = broker_url() ? COUNT_OF(factories) : DRIVERS_HERE, n = 0;
    for (size_t i = 0; i < drivers; i++) {
        fixtures[i].factory = &factories[i];
        for (size_t line = 0; line < COUNT_OF(contract); line++) {
            if (contract[line].is_of_order && !factories[i].keeps_order)
                continue;
            snprintf(names[n], sizeof names[n], "%s: %s", factories[i].name, contract[line].name);
            tests[n] = (struct CMUnitTest){names[n], contract[line].run, open_bus, close_bus,
                                           &fixtures[i]};
            n++;
        }
    }
    return _cmocka_run_group_tests("bus", tests, n, NULL, NULL);
}
