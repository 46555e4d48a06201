/* Quiet lanes at a real broker: they change hands, their listener changes its mind, their queue or
 * the broker goes away. Needs a broker (script/servers run rabbitmq -- …). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "broker.h"
#include "rabbitmq_place.h"

static enum err try_report(struct bus *b, uint64_t id)
{
    struct bus_message m = message(id);
    m.lane = QUIET;
    return bus_publish(b, &m);
}

static void report(struct bus *b, uint64_t first, uint64_t last)
{
    for (uint64_t id = first; id <= last;)
        id += try_report(b, id) == OK;
    AWAIT(stats_of_lane(b, QUIET).confirmed == stats_of_lane(b, QUIET).published) {}
}

static void expect_reports(struct bus *b, uint64_t first, uint64_t last)
{
    for (uint64_t id = first; id <= last; id++) {
        struct bus_message m = take_from(b, QUIET);
        assert_int_equal(m.event.id, id);
        bus_ack(b, &m);
    }
}

/* A node without workers gets them, too; what the first one held goes to the second, perhaps after
 * what it did not hold. */
static void a_quiet_lane_goes_from_one_listener_to_the_next(void **state)
{
    struct place *p = *state;
    struct bus *first = open_bus(p);
    p->config.publish_only = true;
    struct bus *second = open_bus(p);
    bus_listen(first, QUIET, true);
    report(second, 1, 500); /* more than the prefetch */
    expect_reports(first, 1, 10);
    for (int i = 0; i < 5; i++)
        take_from(first, QUIET);
    bus_listen(first, QUIET, false);
    bus_listen(second, QUIET, true);
    struct bus_message m;
    bool seen[501] = {false};
    for (int i = 11; i <= 500; i++) {
        m = take_from(second, QUIET);
        assert_in_range(m.event.id, 11, 500);
        assert_false(seen[m.event.id]);
        seen[m.event.id] = true;
        bus_ack(second, &m);
    }
    assert_false(bus_take(first, QUIET, now_us(), &m));
    assert_int_equal(stats_of(first).reconnects + stats_of(second).reconnects, 0);
    bus_free(first);
    bus_free(second);
    AWAIT(broker_count(p->quiet) == 0) {}
}

/* However often the listener changes its mind: what is acked is gone, all else comes. */
static void listening_on_and_off_loses_nothing(void **state)
{
    struct place *p = *state;
    enum { ROUNDS = 300, EACH = 20 };
    struct bus *b = open_bus(p);
    uint64_t next = 1;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 1; i <= EACH; i++)
            AWAIT(try_report(b, round * EACH + i) == OK) {}
        bus_listen(b, QUIET, true);
        struct bus_message m;
        for (uint64_t i = 0; i < round % 7; i++) {
            m = take_from(b, QUIET);
            assert_int_equal(m.event.id, next++);
            bus_ack(b, &m);
        }
        bus_take(b, QUIET, now_us(), &m); /* perhaps one is taken and not acked */
        bus_listen(b, QUIET, false);
        assert_false(bus_take(b, QUIET, now_us(), &m));
    }
    bus_listen(b, QUIET, true);
    expect_reports(b, next, (uint64_t)ROUNDS * EACH);
    assert_int_equal(stats_of(b).reconnects, 0);
    bus_free(b);
    AWAIT(broker_count(p->quiet) == 0) {}
}

static void a_transient_lane_drops_its_oldest_messages(void **state)
{
    struct place *p = *state;
    enum { KEPT = 20000, MORE = 300 };
    struct bus *b = open_bus(p);
    report(b, 1, KEPT + MORE);
    assert_int_equal(broker_count(p->quiet), KEPT);
    bus_listen(b, QUIET, true);
    expect_reports(b, MORE + 1, MORE + 100);
    assert_int_equal(broker_count(p->dead), 0);
    bus_free(b);
}

/* ---- bad luck ---- */

/* After a test that failed half-way the broker must be there for the next one. */
static int recover(void **state)
{
    broker_start();
    return forget_place(state);
}

/* The queue itself does not outlive the broker: what was reported then is sent again by others. */
static void listening_outlives_the_broker(void **state)
{
    struct place *p = *state;
    struct bus *b = open_bus(p);
    bus_listen(b, QUIET, true);
    report(b, 1, 10);
    expect_reports(b, 1, 10);
    broker_settle();
    broker_signal(SIGKILL);
    broker_start();
    int64_t since_us = now_us();
    AWAIT(stats_of(b).reconnects == 2) {}
    assert_true(now_us() - since_us < 15 * (int64_t)SECOND_US); /* on a busy machine, too */
    report(b, 11, 20);
    expect_reports(b, 11, 20);
    bus_free(b);
}

static void a_deleted_quiet_queue_is_declared_again(void **state)
{
    struct place *p = *state;
    struct bus *b = open_bus(p);
    for (int listened = 0; listened < 2; listened++) {
        bus_listen(b, QUIET, listened);
        report(b, 1, 1);
        broker_delete(p->quiet);
        report(b, 2, 2);
        bus_listen(b, QUIET, true);
        struct bus_message m;
        do {
            m = take_from(b, QUIET);
            bus_ack(b, &m);
        } while (m.event.id != 2);
    }
    bus_free(b);
}

#define TEST(function)     cmocka_unit_test_setup_teardown(function, make_place, forget_place)
#define BAD_LUCK(function) cmocka_unit_test_setup_teardown(function, make_place, recover)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_quiet_lane_goes_from_one_listener_to_the_next),
        TEST(listening_on_and_off_loses_nothing),
        TEST(a_transient_lane_drops_its_oldest_messages),
        TEST(a_deleted_quiet_queue_is_declared_again),
        BAD_LUCK(listening_outlives_the_broker),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
