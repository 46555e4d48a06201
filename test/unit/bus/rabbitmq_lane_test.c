/* A lane against a broker that is played by the test: acks cover exactly what was done with,
 * whatever the order, and the lane's idea of what the broker holds comes right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "bus/rabbitmq.h"
#include "bus/rabbitmq_lane.h"

enum { PREFETCH = 20, DELIVERIES = 5000, SECOND_US = 1000 * 1000 };

static struct lane_slot *deliver(struct rabbitmq_lane *l, uint64_t delivery)
{
    struct bus_message m = {.event = {.id = delivery}};
    return rabbitmq_lane_deliver(l, delivery, &m);
}

static struct bus_message deliver_and_take(struct rabbitmq_lane *l, uint64_t delivery)
{
    struct bus_message m;
    lane_queue_make_ready(&l->queue, deliver(l, delivery));
    assert_true(lane_queue_take(&l->queue, 0, &m));
    assert_int_equal(m.event.id, delivery);
    return m;
}

static void release(struct rabbitmq_lane *l, const struct bus_message *m)
{
    struct lane_slot *h = lane_queue_find(&l->queue, m->tag, SLOT_TAKEN);
    assert_non_null(h);
    rabbitmq_lane_release(l, h);
}

static void acks_are_put_together_where_nothing_is_held_below(void **state)
{
    (void)state;
    struct rabbitmq_lane l;
    rabbitmq_lane_init(&l, 0, 100, PREFETCH);
    struct bus_message m[6];
    uint64_t delivery;
    bool multiple;
    for (uint64_t d = 1; d <= 5; d++)
        m[d] = deliver_and_take(&l, d);
    assert_false(rabbitmq_lane_next_ack(&l, &delivery, &multiple));
    release(&l, &m[2]);
    release(&l, &m[1]);
    release(&l, &m[4]);
    assert_true(rabbitmq_lane_next_ack(&l, &delivery, &multiple));
    assert_true(delivery == 2 && multiple); /* 1 and 2 */
    assert_true(rabbitmq_lane_next_ack(&l, &delivery, &multiple));
    assert_true(delivery == 4 && !multiple); /* 3 is held */
    assert_false(rabbitmq_lane_next_ack(&l, &delivery, &multiple));
    release(&l, &m[3]);
    release(&l, &m[5]);
    assert_true(rabbitmq_lane_next_ack(&l, &delivery, &multiple));
    assert_true(delivery == 5 && multiple);
    assert_false(rabbitmq_lane_next_ack(&l, &delivery, &multiple));
    rabbitmq_lane_done(&l);
}

static void a_broker_that_sends_too_much_is_noticed(void **state)
{
    (void)state;
    struct rabbitmq_lane l;
    rabbitmq_lane_init(&l, 0, 100, 2);
    struct bus_message m = deliver_and_take(&l, 1);
    assert_non_null(deliver(&l, 2));
    assert_null(deliver(&l, 3));
    release(&l, &m);
    assert_null(deliver(&l, 3)); /* the ack is not sent yet */
    uint64_t delivery;
    bool multiple;
    assert_true(rabbitmq_lane_next_ack(&l, &delivery, &multiple));
    assert_non_null(deliver(&l, 3));
    rabbitmq_lane_done(&l);
}

static void what_is_given_back_after_a_break_is_ignored(void **state)
{
    (void)state;
    struct rabbitmq_lane l;
    struct bus_lane_stats stats;
    rabbitmq_lane_init(&l, 0, 100, 2);
    l.at_broker = 3;
    struct bus_message old = deliver_and_take(&l, 1);
    lane_queue_make_ready(&l.queue, deliver(&l, 2));
    rabbitmq_lane_lost(&l);
    rabbitmq_lane_stats(&l, 0, &stats);
    assert_int_equal(stats.ready, 3);
    assert_int_equal(stats.taken, 0);
    assert_null(lane_queue_find(&l.queue, old.tag, SLOT_TAKEN));
    struct bus_message again[2]; /* all slots: one of them is the old one's, in another use */
    for (uint64_t d = 1; d <= 2; d++)
        again[d - 1] = deliver_and_take(&l, d);
    assert_null(lane_queue_find(&l.queue, old.tag, SLOT_TAKEN));
    release(&l, &again[0]);
    release(&l, &again[1]);
    rabbitmq_lane_done(&l);
}

/* ---- any order ---- */

enum fate { UNSENT, UNACKED, RELEASED, GONE };

static void apply_acks(struct rabbitmq_lane *l, enum fate *fates, uint64_t sent)
{
    uint64_t delivery;
    bool multiple;
    while (rabbitmq_lane_next_ack(l, &delivery, &multiple)) {
        assert_in_range(delivery, 1, sent);
        assert_int_equal(fates[delivery], RELEASED);
        for (uint64_t d = multiple ? 1 : delivery; d <= delivery; d++) {
            assert_int_not_equal(fates[d], UNACKED); /* a taker still works on that one */
            fates[d] = GONE;
        }
    }
    for (uint64_t d = 1; d <= sent; d++)
        assert_int_not_equal(fates[d], RELEASED);
}

static void exactly_what_was_released_is_acked_for(uint64_t seed)
{
    struct rand r;
    rand_seed(&r, seed);
    struct rabbitmq_lane l;
    rabbitmq_lane_init(&l, 0, 100, PREFETCH);
    static enum fate fates[DELIVERIES + 1];
    struct bus_message taken[PREFETCH];
    memset(fates, 0, sizeof fates);
    uint64_t sent = 0;
    size_t n = 0;
    while (sent < DELIVERIES) {
        switch (rand_below(&r, 5)) {
        case 0:
        case 1:
            if (l.unacked + l.acks_count < PREFETCH) {
                taken[n++] = deliver_and_take(&l, ++sent);
                fates[sent] = UNACKED;
            }
            break;
        case 2:
        case 3:
            if (n) {
                size_t i = (size_t)rand_below(&r, n);
                release(&l, &taken[i]);
                fates[taken[i].event.id] = RELEASED;
                taken[i] = taken[--n];
            }
            break;
        default:
            if (rand_below(&r, 4) == 0)
                apply_acks(&l, fates, sent);
        }
        assert_int_equal(l.unacked, n);
        assert_int_equal(l.queue.taken, n);
    }
    rabbitmq_lane_done(&l);
}

static void exactly_what_was_released_is_acked(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++)
        exactly_what_was_released_is_acked_for(seed);
}

/* ---- numbers ---- */

static void ask(struct rabbitmq_lane *l)
{
    l->acts_before = l->acts_at_ask;
    l->acts_at_ask = l->acts;
}

static void the_brokers_count_is_believed_when_nothing_moves_or_it_is_far_off(void **state)
{
    (void)state;
    struct rabbitmq_lane l;
    rabbitmq_lane_init(&l, 0, 100, PREFETCH);
    l.at_broker = 50;
    l.acts = 7;
    ask(&l);
    rabbitmq_lane_counted(&l, 40, 0); /* it may have crossed messages on their way */
    assert_int_equal(rabbitmq_lane_holds(&l, 0), 50);
    ask(&l);
    rabbitmq_lane_counted(&l, 40, 3);
    assert_int_equal(rabbitmq_lane_holds(&l, 0), 50);
    rabbitmq_lane_counted(&l, 40, 0);
    assert_int_equal(rabbitmq_lane_holds(&l, 0), 40);
    l.acts++;
    ask(&l);
    rabbitmq_lane_counted(&l, 1000, 5);
    assert_int_equal(rabbitmq_lane_holds(&l, 0), 1005);
    rabbitmq_lane_done(&l);
}

static void what_left_for_a_delay_queue_counts_until_it_is_back(void **state)
{
    (void)state;
    struct rabbitmq_lane l;
    struct bus_lane_stats stats;
    rabbitmq_lane_init(&l, 0, 100, PREFETCH);
    l.at_broker = 2;
    const int64_t start_us = INT64_C(1000000) * SECOND_US;
    const int64_t delays_s[] = {8, 240};
    for (uint64_t d = 1; d <= 2; d++) {
        struct bus_message m = deliver_and_take(&l, d);
        struct lane_slot *h = lane_queue_find(&l.queue, m.tag, SLOT_TAKEN);
        rabbitmq_lane_leave(&l, h, start_us, delays_s[d - 1] * SECOND_US);
        rabbitmq_lane_release(&l, lane_queue_find(&l.queue, m.tag, SLOT_LEAVING));
    }
    const struct {
        int64_t after_s;
        uint64_t delayed, ready;
    } expected[] = {{0, 2, 0}, {7, 2, 0}, {11, 1, 1}, {239, 1, 1}, {243, 0, 2}, {9999, 0, 2}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        rabbitmq_lane_stats(&l, start_us + expected[i].after_s * SECOND_US, &stats);
        assert_int_equal(stats.delayed, expected[i].delayed);
        assert_int_equal(stats.ready, expected[i].ready);
    }
    rabbitmq_lane_done(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acks_are_put_together_where_nothing_is_held_below),
        cmocka_unit_test(a_broker_that_sends_too_much_is_noticed),
        cmocka_unit_test(what_is_given_back_after_a_break_is_ignored),
        cmocka_unit_test(exactly_what_was_released_is_acked),
        cmocka_unit_test(the_brokers_count_is_believed_when_nothing_moves_or_it_is_far_off),
        cmocka_unit_test(what_left_for_a_delay_queue_counts_until_it_is_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
