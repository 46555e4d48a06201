/* One actor's messages one after another, others freely: random histories of takes, retries,
 * continuations and ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

#include "base/rand.h"
#include "bus/local.h"
#include "pipe/order.h"

static struct bus_message message(uint64_t id, uint64_t actor)
{
    return (struct bus_message){.event = {.id = id, .actor = actor}, .lane = 0};
}

static void later_messages_of_a_taken_actor_wait_their_turn(void **state)
{
    (void)state;
    struct order o;
    order_init(&o);
    struct bus_message a1 = message(1, 5), a2 = message(2, 5), a3 = message(3, 5);
    struct bus_message b1 = message(4, 6), out;
    assert_true(order_admit(&o, &a1));
    assert_false(order_admit(&o, &a2));
    assert_false(order_admit(&o, &a3));
    assert_true(order_admit(&o, &b1));
    assert_false(order_next(&o, &out));
    assert_true(order_admit(&o, &a1)); /* back from its retry */
    assert_true(order_finish(&o, &a1));
    assert_true(order_next(&o, &out));
    assert_int_equal(out.event.id, 2);
    assert_false(order_next(&o, &out));
    assert_true(order_finish(&o, &a2));
    assert_true(order_next(&o, &out));
    assert_int_equal(out.event.id, 3);
    assert_false(order_finish(&o, &a3));
    assert_false(order_finish(&o, &b1));
    assert_int_equal(o.actor_count, 0);
    order_done(&o);
}

static void two_rules_on_one_event_take_turns_too(void **state)
{
    (void)state;
    struct order o;
    order_init(&o);
    struct bus_message first = message(1, 5), second = message(1, 5), out;
    second.rule = 1;
    assert_true(order_admit(&o, &first));
    assert_false(order_admit(&o, &second));
    assert_true(order_finish(&o, &first));
    assert_true(order_next(&o, &out));
    assert_int_equal(out.rule, 1);
    assert_false(order_finish(&o, &out));
    order_done(&o);
}

enum { ACTORS = 300, MESSAGES = 3000, AT_WORK = 40 };

static void random_histories_keep_each_actors_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct rand r;
        rand_seed(&r, seed);
        struct order o;
        order_init(&o);
        uint64_t actors = 1 + rand_below(&r, ACTORS);
        uint64_t last_done[ACTORS + 1] = {0};
        bool busy[ACTORS + 1] = {false};
        struct bus_message at_work[AT_WORK];
        size_t working = 0, done = 0;
        uint64_t next_id = 1;
        while (done < MESSAGES) {
            struct bus_message m;
            bool got = false;
            if (working < AT_WORK && rand_below(&r, 2)) {
                if (order_next(&o, &m)) {
                    got = true;
                } else if (next_id <= MESSAGES) {
                    m = message(next_id++, 1 + rand_below(&r, actors));
                    got = order_admit(&o, &m);
                }
            }
            if (got) {
                assert_false(busy[m.event.actor]);
                assert_true(m.event.id > last_done[m.event.actor]);
                busy[m.event.actor] = true;
                at_work[working++] = m;
            } else if (working) {
                size_t i = (size_t)rand_below(&r, working);
                m = at_work[i];
                if (rand_below(&r, 3) == 0) {
                    assert_true(order_admit(&o, &m)); /* retried: still its own */
                    continue;
                }
                at_work[i] = at_work[--working];
                busy[m.event.actor] = false;
                last_done[m.event.actor] = m.event.id;
                order_finish(&o, &m);
                done++;
            }
        }
        assert_int_equal(o.actor_count, 0);
        assert_false(order_has_next(&o));
        order_done(&o);
    }
}

/* ---- several takers ---- */

enum { TAKERS = 3, CROWD = 60000, CROWD_ACTORS = 3 };

static struct {
    struct order order;
    struct bus *bus;
    _Atomic uint64_t last[CROWD_ACTORS + 1];
    _Atomic int inside[CROWD_ACTORS + 1];
    _Atomic int done;
    _Atomic int broken;
} crowd;

static void *crowd_work(void *arg)
{
    struct bus_message m;
    while (atomic_load(&crowd.done) < CROWD) {
        int kept = 0;
        if (!order_next(&crowd.order, &m) &&
            !order_take(&crowd.order, crowd.bus, 0, 0, 10, &kept, &m)) {
            sched_yield();
            continue;
        }
        uint64_t actor = m.event.actor;
        if (atomic_fetch_add(&crowd.inside[actor], 1) != 0 ||
            atomic_exchange(&crowd.last[actor], m.event.id) > m.event.id)
            atomic_fetch_add(&crowd.broken, 1);
        atomic_fetch_sub(&crowd.inside[actor], 1);
        bus_ack(crowd.bus, &m);
        order_finish(&crowd.order, &m);
        atomic_fetch_add(&crowd.done, 1);
    }
    return arg;
}

/* Who takes first is admitted first, however the takers are interrupted in between. */
static void several_takers_keep_each_actors_order(void **state)
{
    (void)state;
    const size_t limit = 1000;
    crowd.bus = bus_local_new(1, &limit);
    order_init(&crowd.order);
    pthread_t takers[TAKERS];
    for (int i = 0; i < TAKERS; i++)
        pthread_create(&takers[i], NULL, crowd_work, NULL);
    for (uint64_t id = 1; id <= CROWD;) {
        struct bus_message m = message(id, 1 + id % CROWD_ACTORS);
        if (bus_publish(crowd.bus, &m) == OK)
            id++;
        else
            sched_yield();
    }
    for (int i = 0; i < TAKERS; i++)
        pthread_join(takers[i], NULL);
    assert_int_equal(crowd.broken, 0);
    assert_int_equal(crowd.order.actor_count, 0);
    order_done(&crowd.order);
    bus_free(crowd.bus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_messages_of_a_taken_actor_wait_their_turn),
        cmocka_unit_test(two_rules_on_one_event_take_turns_too),
        cmocka_unit_test(random_histories_keep_each_actors_order),
        cmocka_unit_test(several_takers_keep_each_actors_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
