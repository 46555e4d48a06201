/* The arithmetic of stalls: against the worked examples in the text on outboxes and inboxes that
 * the design begins from, one test each with its words, and against a simulation in small steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/check.h"
#include "base/rand.h"
#include "plan/capacity.h"

#define MINUTES(n) ((n)*60.0)

static void near_by(double found, double expected, int line)
{
    if (fabs(found - expected) > 1e-6 * (1 + fabs(expected)))
        fail_msg("line %d: %f, expected %f", line, found, expected);
}
#define NEAR(found, expected) near_by(found, expected, __LINE__)

static struct capacity_answer relay(struct capacity_question q)
{
    struct capacity_answer a;
    capacity_relay(&q, &a);
    return a;
}

static struct capacity_consumer_answer consumer(struct capacity_question q, double drain)
{
    struct capacity_consumer c = {.name = "c", .per_event = 1, .drain = drain};
    struct capacity_consumer_answer a;
    capacity_consumer(&q, &c, &a);
    return a;
}

/* "At 2,000 signups per second with six downstream consumers, five minutes of producer lag is
 * 600,000 undrained outbox rows and 3.6 million delayed downstream deliveries. The catch-up wave
 * can still dominate the next hour." It adds up; an hour is what a relay of 2,167 rows a second
 * takes, 8% faster than live traffic. */
static void five_minutes_of_sign_ups(void **state)
{
    (void)state;
    struct capacity_question q = {
        .inflow = 2000, .stall_s = MINUTES(5), .relay_drain = 2000 + 600000 / 3600.0};
    struct capacity_answer a = relay(q);
    NEAR(a.backlog, 600000);
    NEAR(a.recovery_s, 3600);
    NEAR(6 * consumer(q, 10000).backlog, 3600000);
    /* the same as one consumer that makes six deliveries of an event */
    struct capacity_consumer all = {.name = "all", .per_event = 6, .drain = 60000};
    struct capacity_consumer_answer sum;
    capacity_consumer(&q, &all, &sum);
    NEAR(sum.backlog, 3600000);
    NEAR(sum.inflow, 12000);
    NEAR(sum.recovery_s, 3600);
}

/* "An order platform doing 150 successful writes per second … four downstream consumers … really
 * absorbing 600 downstream deliveries per second." "Drain falls to 120 rows per second for 30
 * minutes … Backlog still grows by 30 rows per second, which becomes 54,000 undrained rows … a
 * recovered drain rate of 360 rows per second gives only 210 rows per second of net catch-up." It
 * adds up: the relay needs 257 s. */
static void half_an_hour_of_a_slow_relay(void **state)
{
    (void)state;
    struct capacity_question q = {
        .inflow = 150, .stall_s = MINUTES(30), .stall_drain = 120, .relay_drain = 360};
    struct capacity_answer a = relay(q);
    NEAR(4 * consumer(q, 1000).inflow, 600);
    NEAR(a.growth, 30);
    NEAR(a.backlog, 54000);
    NEAR(a.net, 210);
    NEAR(a.recovery_s, 54000 / 210.0);
    /* "Assume the outbox poller drains 300 rows per second in steady state. That looks safe." */
    q.stall_drain = 300;
    NEAR(relay(q).growth, 0);
    NEAR(relay(q).backlog, 0);
    NEAR(relay(q).recovery_s, 0);
}

/* "Those 54,000 producer rows then become 216,000 downstream deliveries. If the entitlement
 * consumer safely handles only 250 messages per second … the producer may look recovered while the
 * slowest consumer is still materially behind." It adds up when read with care: of the 216,000 the
 * entitlement consumer owes its quarter, 54,000, and works them off at 250 - 150 = 100 a second, in
 * 9 minutes, when the relay has been even for five. (All 216,000 at 250 a second would be 14.4
 * minutes, but no consumer has all of them.) */
static void the_slowest_consumer_is_behind_longest(void **state)
{
    (void)state;
    struct capacity_question q = {
        .inflow = 150, .stall_s = MINUTES(30), .stall_drain = 120, .relay_drain = 360};
    NEAR(4 * consumer(q, 1000).backlog, 216000);
    struct capacity_consumer_answer entitlement = consumer(q, 250);
    NEAR(entitlement.backlog, 54000);
    NEAR(entitlement.net, 100);
    NEAR(entitlement.recovery_s, 540);
    assert_true(entitlement.recovery_s > 2 * relay(q).recovery_s);
    /* One that is faster than the relay waits for it. */
    NEAR(consumer(q, 1000).recovery_s, relay(q).recovery_s);
    NEAR(consumer(q, 1000).net, 210);
}

/* "4,000 writes per second … six consumers … 24,000 downstream deliveries per second … 20 minutes …
 * up to 4.8 million durable rows if drain fully stalls." "10,000 outbox rows per second. Net
 * catch-up is only 6,000 … about 13 minutes … 28.8 million deliveries." It adds up: 800 s. */
static void twenty_minutes_of_a_campaign(void **state)
{
    (void)state;
    struct capacity_question q = {.inflow = 4000, .stall_s = MINUTES(20), .relay_drain = 10000};
    struct capacity_answer a = relay(q);
    NEAR(a.backlog, 4800000);
    NEAR(a.net, 6000);
    NEAR(a.recovery_s, 800); /* 13 min 20 s */
    NEAR(6 * consumer(q, 10000).inflow, 24000);
    NEAR(6 * consumer(q, 10000).backlog, 28800000);
}

/* "If two critical consumers write to inbox tables and can safely process only 3,000 messages per
 * second each, their net catch-up over live traffic may be closer to 2,000. Their recovery time is
 * now closer to 40 minutes." It does not add up: each of the two gets all 4,000 live deliveries a
 * second, so at 3,000 it falls behind by another 1,000 a second, stall or no stall, and never
 * recovers. A net of 2,000 and 40 minutes belong to 6,000 a second: to consumers of that rate, or
 * to one consumer that two workers of 3,000 share. */
static void three_thousand_a_second_never_catch_up(void **state)
{
    (void)state;
    struct capacity_question q = {.inflow = 4000, .stall_s = MINUTES(20), .relay_drain = 10000};
    struct capacity_consumer_answer a = consumer(q, 3000);
    NEAR(a.net, -1000);
    NEAR(a.recovery_s, -1);
    struct capacity_consumer c = {.name = "c", .per_event = 1, .drain = 3000};
    NEAR(capacity_backlog_at(&q, &c, MINUTES(20)), 4800000);
    NEAR(capacity_backlog_at(&q, &c, MINUTES(60)), 4800000 + 1000 * MINUTES(40));

    struct capacity_consumer_answer right = consumer(q, 6000);
    NEAR(right.net, 2000);
    NEAR(right.recovery_s, MINUTES(40));
    /* each of two workers with half of the deliveries: the same 40 minutes */
    struct capacity_consumer half = {.name = "half", .per_event = 0.5, .drain = 3000};
    capacity_consumer(&q, &half, &right);
    NEAR(right.net, 1000);
    NEAR(right.backlog, 2400000);
    NEAR(right.recovery_s, MINUTES(40));
}

/* "What one week of dedup memory costs per consumer": the text names no number. */
static void a_week_of_duplicate_memory(void **state)
{
    (void)state;
    struct capacity_consumer c = {
        .name = "mail", .per_event = 1, .drain = 10000, .dedup_days = 7, .bytes_per_entry = 100};
    struct capacity_consumer_answer a;
    capacity_consumer(&(struct capacity_question){.inflow = 150, .relay_drain = 360}, &c, &a);
    NEAR(a.dedup_entries, 90720000);
    NEAR(a.dedup_bytes, 9072000000);
    capacity_consumer(&(struct capacity_question){.inflow = 4000, .relay_drain = 10000}, &c, &a);
    NEAR(a.dedup_entries, 2419200000);
    c.dedup_days = 0;
    capacity_consumer(&(struct capacity_question){.inflow = 4000, .relay_drain = 10000}, &c, &a);
    NEAR(a.dedup_bytes, 0);
}

static void what_only_just_keeps_up_never_catches_up(void **state)
{
    (void)state;
    struct capacity_question q = {.inflow = 100, .stall_s = 60, .relay_drain = 100};
    NEAR(relay(q).recovery_s, -1);
    NEAR(consumer(q, 1000).recovery_s, -1); /* the relay never gives it the rest */
    q.relay_drain = 99;
    NEAR(relay(q).net, -1);
    NEAR(relay(q).recovery_s, -1);
    q.relay_drain = 200;
    NEAR(consumer(q, 100).recovery_s, -1);
    /* Without a stall the one that just keeps up owes nothing; the one that does not, does. */
    q.stall_s = 0;
    NEAR(relay(q).recovery_s, 0);
    NEAR(consumer(q, 100).recovery_s, 0);
    NEAR(consumer(q, 99).recovery_s, -1);
    q.relay_drain = 100;
    NEAR(relay(q).recovery_s, 0);
    q.relay_drain = 99;
    NEAR(relay(q).recovery_s, -1);
}

static void nothing_comes_in(void **state)
{
    (void)state;
    struct capacity_question q = {.stall_s = 60};
    NEAR(relay(q).recovery_s, 0);
    NEAR(consumer(q, 0).recovery_s, 0);
    NEAR(consumer(q, 0).backlog, 0);
    /* A consumer that wants none of the events. */
    struct capacity_consumer none = {.name = "none"};
    struct capacity_consumer_answer a;
    q = (struct capacity_question){.inflow = 10, .stall_s = 60, .relay_drain = 20};
    capacity_consumer(&q, &none, &a);
    NEAR(a.backlog, 0);
    NEAR(a.recovery_s, 60); /* no sooner than the relay */
}

/* The closed forms against the thing itself: a relay and a consumer with a queue each, in steps. */
static void the_formulas_are_what_happens(void **state)
{
    (void)state;
    struct rand r;
    rand_seed(&r, 2);
    for (int round = 0; round < 300; round++) {
        struct capacity_question q = {.inflow = 10 + (double)rand_below(&r, 100),
                                      .stall_s = 10 + (double)rand_below(&r, 50),
                                      .stall_drain = (double)rand_below(&r, 130),
                                      .relay_drain = (double)rand_below(&r, 300)};
        struct capacity_consumer c = {
            .name = "c",
            .per_event = (double)rand_below(&r, 5) * 0.5,
            .drain = (double)rand_below(&r, 400),
        };
        const double step = 0.01;
        double in_outbox = 0, in_queue = 0, owed_max = 1;
        for (int i = 0; i < 20000; i++) {
            double t = i * step;
            double expected = capacity_backlog_at(&q, &c, t);
            double owed = in_outbox * c.per_event + in_queue;
            owed_max = fmax(owed_max, fmax(owed, expected));
            /* each step may be wrong by what flows within one */
            if (fabs(owed - expected) > 0.02 * owed_max + 2 * step * (c.drain + 300 * c.per_event))
                fail_msg("round %d, %f s: %f, expected %f (inflow %f, stall %f at %f, relay %f, "
                         "%f of an event, drain %f)",
                         round, t, owed, expected, q.inflow, q.stall_s, q.stall_drain,
                         q.relay_drain, c.per_event, c.drain);
            in_outbox += q.inflow * step;
            double moved = fmin(in_outbox, (t < q.stall_s ? q.stall_drain : q.relay_drain) * step);
            in_outbox -= moved;
            in_queue += moved * c.per_event;
            in_queue -= fmin(in_queue, c.drain * step);
        }
        struct capacity_consumer_answer a;
        capacity_consumer(&q, &c, &a);
        NEAR(a.backlog, capacity_backlog_at(&q, &c, q.stall_s));
        if (a.recovery_s >= 0) {
            NEAR(capacity_backlog_at(&q, &c, q.stall_s + a.recovery_s), 0);
            if (a.recovery_s > 1 && c.per_event > 0)
                assert_true(capacity_backlog_at(&q, &c, q.stall_s + 0.9 * a.recovery_s) > 0);
        } else {
            assert_true(c.per_event == 0 || capacity_backlog_at(&q, &c, 1e9) > 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_minutes_of_sign_ups),
        cmocka_unit_test(half_an_hour_of_a_slow_relay),
        cmocka_unit_test(the_slowest_consumer_is_behind_longest),
        cmocka_unit_test(twenty_minutes_of_a_campaign),
        cmocka_unit_test(three_thousand_a_second_never_catch_up),
        cmocka_unit_test(a_week_of_duplicate_memory),
        cmocka_unit_test(what_only_just_keeps_up_never_catches_up),
        cmocka_unit_test(nothing_comes_in),
        cmocka_unit_test(the_formulas_are_what_happens),
    };
    return cmocka_run_group_tests_name("plan/capacity", tests, NULL, NULL);
}
