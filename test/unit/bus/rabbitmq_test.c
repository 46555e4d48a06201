/* What the RabbitMQ driver adds to the contract: a broker that dies, hangs, blocks or loses a
 * queue, other nodes, delays that are longer than a moment, and foreign messages. Needs a broker
 * (script/servers run rabbitmq -- …). Every test has queues of its own. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "broker.h"
#include "bus/rabbitmq.h"
#include "bus/rabbitmq_wire.h"
#include "rabbitmq_place.h"

static void await_confirmed(struct bus *b, uint64_t n)
{
    AWAIT(stats_of(b).confirmed >= n) {}
}

/* ---- opening ---- */

static void assert_refused(const struct rabbitmq_config *config, enum err expected,
                           const char *says)
{
    char detail[RABBITMQ_DETAIL_SIZE];
    struct bus *b = NULL;
    assert_int_equal(bus_rabbitmq_open(config, &b, detail), expected);
    assert_null(b);
    assert_non_null(strstr(detail, says));
    assert_null(strstr(detail, "fantail-")); /* the password's beginning */
}

static void a_broker_that_cannot_be_used_is_refused_in_words(void **state)
{
    struct place *p = *state;
    struct bus *b = open_bus(p);
    bus_free(b);
    struct rabbitmq_config c = p->config;
    c.url = "amqp://127.0.0.1:1/";
    assert_refused(&c, ERR_UNAVAILABLE, "127.0.0.1:1");
    c.url = "http://127.0.0.1/";
    assert_refused(&c, ERR_BAD_INPUT, "amqp://");
    c.url = "amqps://127.0.0.1/";
    assert_refused(&c, ERR_BAD_INPUT, "amqps");
    char url[200];
    const char *at = strchr(broker_url(), '@');
    snprintf(url, sizeof url, "amqp://fantail:fantail-wrong%s", at);
    c.url = url;
    assert_refused(&c, ERR_UNAUTHENTICATED, "ACCESS_REFUSED");
    c = p->config;
    c.prefix = "no spaces";
    assert_refused(&c, ERR_BAD_INPUT, "name");
}

static void a_queue_with_other_arguments_is_refused_in_words(void **state)
{
    struct place *p = *state;
    broker_declare_plain(p->queue);
    assert_refused(&p->config, ERR_CONFLICT, p->queue);
    struct rabbitmq_config c = p->config;
    broker_delete(p->queue);
    bus_free(open_bus(p));
    c.delivery_limit = 7;
    assert_refused(&c, ERR_CONFLICT, "x-delivery-limit");
}

/* ---- foreign messages ---- */

static void what_cannot_be_read_goes_to_the_dead_letters(void **state)
{
    struct place *p = *state;
    struct bus *b = open_bus(p);
    static uint8_t bytes[300000];
    struct bus_message m = message(1);
    publish(b, 1);
    await_confirmed(b, 1);
    broker_put(p->queue, "", 0);
    broker_put(p->queue, "hello", 5);
    broker_put(p->queue, bytes, sizeof bytes); /* several frames */
    rabbitmq_wire_write(&m, 0, bytes);
    bytes[0] = RABBITMQ_WIRE_VERSION + 1;
    broker_put(p->queue, bytes, RABBITMQ_WIRE_SIZE);
    publish(b, 2);
    for (uint64_t id = 1; id <= 2; id++) {
        m = take(b);
        assert_int_equal(m.event.id, id);
        bus_ack(b, &m);
    }
    AWAIT(broker_count(p->dead) == 4) {}
    assert_int_equal(stats_of(b).reconnects, 0);
    bus_free(b);
}

static void messages_of_version_1_are_still_taken(void **state)
{
    struct place *p = *state;
    uint8_t bytes[RABBITMQ_WIRE_SIZE];
    struct bus_message m = message(7);
    struct bus *b = open_bus(p);
    rabbitmq_wire_write(&m, 0, bytes);
    bytes[0] = 1;
    uint32_t sum = (uint32_t)hash_checksum(bytes, RABBITMQ_WIRE_SIZE_1 - 4, 1);
    memcpy(bytes + RABBITMQ_WIRE_SIZE_1 - 4, &sum, 4);
    broker_put(p->queue, bytes, RABBITMQ_WIRE_SIZE_1);
    m = take(b);
    assert_int_equal(m.event.id, 7);
    assert_int_equal(m.term, 0);
    assert_int_equal(m.report.kind, REPORT_NONE);
    bus_ack(b, &m);
    bus_free(b);
}

static void a_message_given_out_too_often_goes_to_the_dead_letters(void **state)
{
    struct place *p = *state;
    p->config.delivery_limit = 2;
    struct bus *b = open_bus(p);
    publish(b, 1);
    await_confirmed(b, 1);
    for (int i = 0; i < 3; i++) {
        take(b); /* and a crash instead of an ack */
        bus_free(b);
        b = open_bus(p);
    }
    AWAIT(broker_count(p->dead) == 1) {}
    bus_free(b);
}

/* ---- delays ---- */

static void delayed_retries_come_not_early_and_not_much_later(void **state)
{
    struct place *p = *state;
    static const int64_t delays_ms[] = {0, 300, 1999, 2000, 3300, 4100};
    struct bus *b = open_bus(p);
    int64_t due_us[COUNT_OF(delays_ms)];
    for (uint64_t i = 0; i < COUNT_OF(delays_ms); i++)
        publish(b, i);
    struct bus_message taken[COUNT_OF(delays_ms)];
    for (uint64_t i = 0; i < COUNT_OF(delays_ms); i++)
        taken[i] = take(b);
    for (uint64_t i = 0; i < COUNT_OF(delays_ms); i++) {
        taken[i].until = i + 100;
        due_us[i] = now_us() + delays_ms[i] * 1000;
        bus_retry(b, &taken[i], due_us[i]);
    }
    assert_int_equal(stats_of(b).delayed + stats_of(b).ready, COUNT_OF(delays_ms));
    for (uint64_t i = 0; i < COUNT_OF(delays_ms); i++) {
        struct bus_message m = take(b);
        int64_t late_us = now_us() - due_us[m.event.id];
        assert_int_equal(m.event.id, i);
        assert_int_equal(m.tries, 1);
        assert_int_equal(m.until, i + 100);
        assert_in_range(late_us, 0, 1500 * 1000);
        bus_ack(b, &m);
    }
    assert_int_equal(stats_of(b).retried, COUNT_OF(delays_ms));
    assert_int_equal(stats_of(b).reconnects, 0); /* it was quiet for longer than two heartbeats */
    bus_free(b);
}

/* More retries than the prefetch: those that would take up all room wait at the broker. */
static void retries_do_not_keep_fresh_messages_out(void **state)
{
    struct place *p = *state;
    enum { MANY = 60, PREFETCH = 10 };
    p->config.prefetch = PREFETCH;
    struct bus *b = open_bus(p);
    for (uint64_t id = 1; id <= MANY; id++)
        publish(b, id);
    for (int i = 0; i < MANY; i++) {
        struct bus_message m = take(b);
        assert_int_equal(m.tries, 0);
        bus_retry(b, &m, now_us() + 1500 * 1000);
    }
    publish(b, 1000);
    bool fresh = false;
    uint64_t seen[MANY + 1] = {0};
    for (int i = 0; i < MANY + 1; i++) {
        struct bus_message m = take(b);
        fresh |= m.event.id == 1000;
        if (m.event.id <= MANY) {
            assert_int_equal(m.tries, 1);
            seen[m.event.id]++;
        }
        bus_ack(b, &m);
    }
    assert_true(fresh);
    for (int id = 1; id <= MANY; id++)
        assert_int_equal(seen[id], 1);
    bus_free(b);
}

/* ---- several nodes ---- */

static void two_nodes_share_a_lane(void **state)
{
    struct place *p = *state;
    enum { MESSAGES = 2000 };
    struct bus *nodes[2] = {open_bus(p), open_bus(p)};
    for (uint64_t id = 0; id < MESSAGES;) {
        struct bus_message m = message(id);
        id += bus_publish(nodes[0], &m) == OK;
    }
    static uint8_t seen[MESSAGES];
    uint64_t got[2] = {0, 0};
    memset(seen, 0, sizeof seen);
    AWAIT(got[0] + got[1] == MESSAGES)
    {
        for (int n = 0; n < 2; n++) {
            struct bus_message m;
            while (bus_take(nodes[n], 0, now_us(), &m)) {
                assert_int_equal(seen[m.event.id]++, 0);
                bus_ack(nodes[n], &m);
                got[n]++;
            }
        }
    }
    assert_true(got[0] > MESSAGES / 10 && got[1] > MESSAGES / 10);
    bus_free(nodes[0]);
    bus_free(nodes[1]);
}

/* A node that only publishes learns from the broker what the others have taken. */
static void the_limit_counts_what_other_nodes_do(void **state)
{
    struct place *p = *state;
    p->limits[0] = 50;
    p->config.publish_only = true;
    struct bus *publisher = open_bus(p);
    struct bus_message m = message(1);
    for (int i = 0; i < 50; i++)
        publish(publisher, (uint64_t)i);
    assert_int_equal(bus_publish(publisher, &m), ERR_OVERLOADED);
    struct bus *second = open_bus(p); /* finds them there */
    AWAIT(bus_publish(second, &m) == ERR_OVERLOADED) {}
    p->config.publish_only = false;
    struct bus *taker = open_bus(p);
    AWAIT(bus_publish(publisher, &m) == OK)
    {
        if (bus_take(taker, 0, now_us(), &m))
            bus_ack(taker, &m);
    }
    bus_free(taker);
    bus_free(publisher);
    bus_free(second);
}

static _Atomic int woken;

static void on_ready(void *context, uint16_t lane)
{
    assert_ptr_equal(context, &woken);
    if (lane == 0)
        atomic_fetch_add(&woken, 1);
}

static void takers_are_told_when_something_comes(void **state)
{
    struct place *p = *state;
    p->config.on_ready = on_ready;
    p->config.context = &woken;
    atomic_store(&woken, 0);
    struct bus *b = open_bus(p);
    publish(b, 1);
    AWAIT(atomic_load(&woken) == 1) {}
    struct bus_message m;
    assert_true(bus_take(b, 0, now_us(), &m));
    bus_retry(b, &m, now_us() + 2500 * 1000);
    AWAIT(atomic_load(&woken) == 2) {}
    assert_true(bus_next_due_us(b, 0) < INT64_MAX || stats_of(b).ready == 1);
    bus_free(b);
}

/* ---- bad luck ---- */

/* Publishes and takes all the time, whatever happens to the broker. No call may take long. */
static struct traffic {
    struct bus *bus; /* NULL: no traffic */
    pthread_t publisher, taker;
    _Atomic bool stop;
    _Atomic uint64_t accepted, acked;
    _Atomic int64_t slowest_us;
    uint8_t *seen;
} traffic;

enum { TRAFFIC_MAX = 400000 };

static void note_time(struct traffic *t, int64_t began_us)
{
    int64_t took_us = now_us() - began_us;
    if (took_us > atomic_load(&t->slowest_us))
        atomic_store(&t->slowest_us, took_us);
}

static void *publish_all_the_time(void *arg)
{
    struct traffic *t = arg;
    while (!atomic_load(&t->stop) && atomic_load(&t->accepted) < TRAFFIC_MAX) {
        struct bus_message m = message(atomic_load(&t->accepted));
        int64_t began_us = now_us();
        enum err e = bus_publish(t->bus, &m);
        note_time(t, began_us);
        if (e == OK)
            atomic_fetch_add(&t->accepted, 1);
        usleep(e ? 1000 : 50);
    }
    return NULL;
}

static void *take_all_the_time(void *arg)
{
    struct traffic *t = arg;
    int64_t end_us = now_us() + PATIENCE_S * (int64_t)SECOND_US;
    for (;;) {
        uint64_t distinct = atomic_load(&t->acked);
        if ((atomic_load(&t->stop) && distinct == atomic_load(&t->accepted)) || now_us() > end_us)
            return NULL;
        struct bus_message m;
        int64_t began_us = now_us();
        bool found = bus_take(t->bus, 0, began_us, &m);
        if (found) {
            bus_ack(t->bus, &m);
            if (!t->seen[m.event.id]++)
                atomic_fetch_add(&t->acked, 1);
        }
        note_time(t, began_us);
        if (!found)
            usleep(500);
    }
}

static struct traffic *begin_traffic(const struct place *p)
{
    struct traffic *t = &traffic;
    *t = (struct traffic){.bus = open_bus(p), .seen = calloc(TRAFFIC_MAX, 1)};
    pthread_create(&t->publisher, NULL, publish_all_the_time, t);
    pthread_create(&t->taker, NULL, take_all_the_time, t);
    return t;
}

static void await_traffic(struct traffic *t, uint64_t more)
{
    uint64_t before = atomic_load(&t->acked);
    AWAIT(atomic_load(&t->acked) >= before + more) {}
}

static void await_reconnects(struct bus *b, uint64_t n)
{
    AWAIT(stats_of(b).reconnects >= n) {}
}

static void join_traffic(struct traffic *t)
{
    atomic_store(&t->stop, true);
    pthread_join(t->publisher, NULL);
    pthread_join(t->taker, NULL);
}

static void drop_traffic(struct traffic *t)
{
    bus_free(t->bus);
    free(t->seen);
    t->bus = NULL;
}

/* Everything accepted was taken, and nothing else. */
static void end_traffic(struct traffic *t)
{
    join_traffic(t);
    uint64_t accepted = atomic_load(&t->accepted), wrong = 0;
    for (uint64_t id = 0; id < TRAFFIC_MAX; id++)
        wrong += (t->seen[id] > 0) != (id < accepted);
    uint64_t acked = atomic_load(&t->acked);
    drop_traffic(t);
    assert_int_equal(acked, accepted);
    assert_int_equal(wrong, 0);
    assert_true(atomic_load(&t->slowest_us) < 500 * 1000);
}

/* After a test that failed half-way the broker must be well for the next one. */
static int recover(void **state)
{
    broker_signal(SIGCONT);
    broker_start();
    broker_alarm(false);
    if (traffic.bus) {
        join_traffic(&traffic);
        drop_traffic(&traffic);
    }
    return forget_place(state);
}

static void a_killed_broker_loses_nothing(void **state)
{
    struct place *p = *state;
    struct traffic *t = begin_traffic(p);
    await_traffic(t, 500);
    broker_settle();
    broker_signal(SIGKILL);
    broker_start();
    await_traffic(t, 500);
    await_reconnects(t->bus, 2); /* both ways */
    end_traffic(t);
}

/* Shorter than the broker may be silent: nothing breaks. */
static void a_broker_that_pauses_is_waited_for(void **state)
{
    struct place *p = *state;
    p->config.heartbeat_s = 20;
    struct traffic *t = begin_traffic(p);
    await_traffic(t, 200);
    broker_signal(SIGSTOP);
    uint64_t accepted;
    do { /* until the window is full */
        accepted = atomic_load(&t->accepted);
        usleep(200 * 1000);
    } while (atomic_load(&t->accepted) > accepted);
    struct bus_message m = message(0);
    assert_int_equal(bus_publish_rest(t->bus, &m), ERR_OVERLOADED);
    broker_signal(SIGCONT);
    await_traffic(t, 200);
    assert_int_equal(stats_of(t->bus).reconnects, 0);
    end_traffic(t);
}

static void a_broker_that_hangs_is_given_up_and_found_again(void **state)
{
    struct place *p = *state;
    struct traffic *t = begin_traffic(p);
    await_traffic(t, 200);
    broker_signal(SIGSTOP);
    struct bus_message m = message(0);
    AWAIT(bus_publish_rest(t->bus, &m) == ERR_UNAVAILABLE) /* it was given up */ {}
    broker_signal(SIGCONT);
    await_traffic(t, 200);
    await_reconnects(t->bus, 1);
    end_traffic(t);
}

/* With the default heartbeat. Publishers notice in time, too. */
static void a_broker_that_hangs_is_given_up_in_time(void **state)
{
    struct place *p = *state;
    p->config.heartbeat_s = 0;
    struct bus *worker = open_bus(p);
    p->config.publish_only = true;
    p->config.quiet = 0;
    struct bus *publisher = open_bus(p);
    publish(publisher, 1);
    await_confirmed(publisher, 1);
    assert_true(bus_is_connected(worker) && bus_is_connected(publisher));
    broker_signal(SIGSTOP);
    int64_t since_us = now_us();
    AWAIT(!bus_is_connected(worker) && !bus_is_connected(publisher)) {}
    /* Ten seconds by the heartbeat, and what a busy machine adds. */
    assert_in_range(now_us() - since_us, 5 * SECOND_US, 25 * SECOND_US);
    publish(publisher, 2); /* waits for it */
    broker_signal(SIGCONT);
    since_us = now_us();
    AWAIT(bus_is_connected(worker) && bus_is_connected(publisher)) {}
    await_confirmed(publisher, 2);
    assert_true(now_us() - since_us < 15 * (int64_t)SECOND_US);
    bus_free(worker);
    bus_free(publisher);
}

/* Publishes until the alarm has reached our connection: one stays unconfirmed. */
static uint64_t publish_until_blocked(struct bus *b, uint64_t id)
{
    int64_t since_us;
    do {
        publish(b, ++id);
        since_us = now_us();
        while (stats_of(b).confirmed < id && now_us() - since_us < SECOND_US)
            usleep(1000);
    } while (stats_of(b).confirmed == id);
    return id;
}

static void a_broker_in_need_is_spared_and_acks_still_go_through(void **state)
{
    struct place *p = *state;
    struct bus *b = open_bus(p);
    enum { BEFORE = 100 };
    for (uint64_t id = 1; id <= BEFORE; id++)
        publish(b, id);
    await_confirmed(b, BEFORE);
    broker_alarm(true);
    uint64_t last = publish_until_blocked(b, BEFORE);
    struct bus_message m;
    for (uint64_t id = 1; id < last; id++) { /* more than the prefetch: the acks get through */
        m = take(b);
        assert_int_equal(m.event.id, id);
        bus_ack(b, &m);
    }
    assert_int_equal(stats_of(b).confirmed, last - 1);
    broker_alarm(false);
    await_confirmed(b, last);
    m = take(b);
    assert_int_equal(m.event.id, last);
    bus_ack(b, &m);
    assert_int_equal(stats_of(b).reconnects, 0);
    bus_free(b);
}

static void what_was_taken_before_a_break_comes_again_and_its_old_ack_is_nothing(void **state)
{
    struct place *p = *state;
    struct bus *b = open_bus(p);
    publish(b, 1);
    publish(b, 2);
    struct bus_message old[2];
    old[0] = take(b);
    old[1] = take(b);
    broker_settle();
    broker_signal(SIGKILL);
    broker_start();
    AWAIT(stats_of(b).reconnects == 2) {}
    bus_ack(b, &old[0]);
    bus_retry(b, &old[1], now_us());
    bool seen[3] = {false, false, false};
    while (!seen[1] || !seen[2]) { /* an unconfirmed one may come twice */
        struct bus_message m = take(b);
        seen[m.event.id] = true;
        bus_ack(b, &m);
    }
    assert_int_equal(stats_of(b).retried, 0);
    bus_free(b);
    AWAIT(broker_count(p->queue) == 0) {}
}

static void a_deleted_queue_is_declared_again(void **state)
{
    struct place *p = *state;
    struct bus *b = open_bus(p);
    publish(b, 1);
    struct bus_message m = take(b);
    bus_ack(b, &m);
    broker_delete(p->queue);
    publish(b, 2);
    do {
        m = take(b);
        bus_ack(b, &m);
    } while (m.event.id != 2);
    assert_true(stats_of(b).reconnects >= 1);
    bus_free(b);
}

#define TEST(function)     cmocka_unit_test_setup_teardown(function, make_place, forget_place)
#define BAD_LUCK(function) cmocka_unit_test_setup_teardown(function, make_place, recover)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_broker_that_cannot_be_used_is_refused_in_words),
        TEST(a_queue_with_other_arguments_is_refused_in_words),
        TEST(what_cannot_be_read_goes_to_the_dead_letters),
        TEST(messages_of_version_1_are_still_taken),
        TEST(a_message_given_out_too_often_goes_to_the_dead_letters),
        TEST(delayed_retries_come_not_early_and_not_much_later),
        TEST(retries_do_not_keep_fresh_messages_out),
        TEST(two_nodes_share_a_lane),
        TEST(the_limit_counts_what_other_nodes_do),
        TEST(takers_are_told_when_something_comes),
        BAD_LUCK(a_killed_broker_loses_nothing),
        BAD_LUCK(a_broker_that_pauses_is_waited_for),
        BAD_LUCK(a_broker_that_hangs_is_given_up_and_found_again),
        BAD_LUCK(a_broker_that_hangs_is_given_up_in_time),
        BAD_LUCK(a_broker_in_need_is_spared_and_acks_still_go_through),
        BAD_LUCK(what_was_taken_before_a_break_comes_again_and_its_old_ack_is_nothing),
        BAD_LUCK(a_deleted_queue_is_declared_again),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
