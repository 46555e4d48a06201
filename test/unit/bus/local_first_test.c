/* Two buses as one: where a message goes, and that whatever is said of it finds its way back. The
 * remote bus is another one in this process, so that the tests can look into both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "bus/local.h"
#include "bus/local_first.h"

enum { LANES = 3, KEPT = 0, QUIET = 1, FAR = 2, ROOM = 4, LIMIT = 100 };

struct pair {
    struct bus *local, *remote, *bus;
};

static struct pair open_pair(size_t remote_limit)
{
    const size_t here[LANES] = {LIMIT, LIMIT, LIMIT};
    const size_t there[LANES] = {remote_limit, remote_limit, remote_limit};
    struct pair p = {bus_local_new(LANES, here), bus_local_new(LANES, there), NULL};
    bus_local_quiet(p.remote, 1U << QUIET);
    p.bus = bus_local_first_new(p.local, p.remote, 1U << KEPT, ROOM);
    return p;
}

static enum err publish(struct bus *b, uint16_t lane, uint64_t id)
{
    struct bus_message m = {.event = {.id = id}, .lane = lane};
    return bus_publish(b, &m);
}

static void publish_many(struct bus *b, uint16_t lane, uint64_t first, uint64_t last)
{
    for (uint64_t id = first; id <= last; id++)
        assert_int_equal(publish(b, lane, id), OK);
}

static uint64_t holds(struct bus *b, uint16_t lane)
{
    struct bus_lane_stats stats;
    bus_lane_stats(b, lane, &stats);
    return stats.ready + stats.delayed + stats.taken;
}

static struct bus_message take(struct bus *b, uint16_t lane)
{
    struct bus_message m;
    assert_true(bus_take(b, lane, INT64_MAX, &m));
    return m;
}

static void a_lane_is_kept_here_while_there_is_room(void **state)
{
    (void)state;
    struct pair p = open_pair(LIMIT);
    publish_many(p.bus, KEPT, 1, 3); /* holding is not on yet */
    assert_int_equal(holds(p.remote, KEPT), 3);
    bus_local_first_hold(p.bus, true);
    publish_many(p.bus, KEPT, 4, 10);
    assert_int_equal(holds(p.local, KEPT), ROOM);
    assert_int_equal(holds(p.remote, KEPT), 6);
    assert_int_equal(holds(p.bus, KEPT), 10);
    struct bus_message m = take(p.local, KEPT);
    bus_retry(p.local, &m, 0);
    m = take(p.local, KEPT);
    publish_many(p.bus, KEPT, 11, 11); /* delayed and taken ones need room, too */
    assert_int_equal(holds(p.local, KEPT), ROOM);
    bus_ack(p.local, &m);
    publish_many(p.bus, KEPT, 12, 12);
    assert_int_equal(holds(p.local, KEPT), ROOM);
    publish_many(p.bus, FAR, 1, 1);
    assert_int_equal(holds(p.remote, FAR), 1);
    bus_local_first_hold(p.bus, false);
    m = take(p.local, KEPT);
    bus_ack(p.local, &m);
    publish_many(p.bus, KEPT, 13, 13);
    assert_int_equal(holds(p.local, KEPT), ROOM - 1);
    bus_free(p.bus);
}

static void a_continuation_always_has_a_place(void **state)
{
    (void)state;
    struct pair p = open_pair(2);
    bus_local_first_hold(p.bus, true);
    publish_many(p.bus, KEPT, 1, ROOM + 2);
    assert_int_equal(publish(p.bus, KEPT, 50), ERR_OVERLOADED);
    struct bus_message m = take(p.bus, KEPT);
    assert_int_equal(bus_publish_rest(p.bus, &m), OK);
    assert_int_equal(holds(p.local, KEPT), ROOM + 1);
    bus_local_first_hold(p.bus, false);
    assert_int_equal(bus_publish_rest(p.bus, &m), OK);
    assert_int_equal(holds(p.remote, KEPT), 3);
    bus_ack(p.bus, &m);
    bus_free(p.bus);
}

/* Work that never ends here does not keep away what came from afar. */
static void what_came_from_afar_is_not_kept_waiting(void **state)
{
    (void)state;
    struct pair p = open_pair(LIMIT);
    publish_many(p.bus, KEPT, 1000, 1009);
    bus_local_first_hold(p.bus, true);
    int from_afar = 0;
    for (uint64_t id = 1; id <= 60; id++) {
        struct bus_message m;
        while (holds(p.local, KEPT) < ROOM)
            publish_many(p.bus, KEPT, id, id);
        assert_false(bus_take(p.bus, FAR, 0, &m)); /* looking elsewhere is not a turn */
        m = take(p.bus, KEPT);
        from_afar += m.event.id >= 1000;
        bus_ack(p.bus, &m);
    }
    assert_int_equal(from_afar, 10);
    bus_free(p.bus);
}

static void what_is_forgotten_is_gone_and_its_takers_are_ignored(void **state)
{
    (void)state;
    struct pair p = open_pair(LIMIT);
    bus_local_first_hold(p.bus, true);
    publish_many(p.bus, KEPT, 1, ROOM + 1); /* the last one is afar */
    struct bus_message taken = take(p.bus, KEPT), other = take(p.bus, KEPT);
    struct bus_message delayed = take(p.bus, KEPT);
    bus_retry(p.bus, &delayed, 5);
    assert_int_equal(bus_next_due_us(p.bus, KEPT), 5);
    bus_local_first_hold(p.bus, false);
    bus_local_first_forget(p.bus);
    assert_int_equal(holds(p.local, KEPT), 0);
    assert_true(bus_next_due_us(p.bus, KEPT) == INT64_MAX);
    bus_ack(p.bus, &taken);
    struct bus_message m = take(p.bus, KEPT);
    assert_int_equal(m.event.id, ROOM + 1);
    bus_ack(p.bus, &m);
    assert_false(bus_take(p.bus, KEPT, INT64_MAX, &m));
    bus_local_first_hold(p.bus, true);
    publish_many(p.bus, KEPT, 21, 20 + ROOM); /* in the slots of the old ones */
    for (uint64_t id = 21; id <= 20 + ROOM; id++) {
        m = take(p.bus, KEPT);
        bus_retry(p.bus, &other, 0);
        bus_ack(p.bus, &taken);
        assert_int_equal(m.event.id, id);
        bus_ack(p.bus, &m);
    }
    assert_int_equal(holds(p.bus, KEPT), 0);
    bus_free(p.bus);
}

static void quiet_lanes_are_the_remote_ones(void **state)
{
    (void)state;
    struct pair p = open_pair(LIMIT);
    struct bus_message m;
    bus_local_first_hold(p.bus, true);
    publish_many(p.bus, QUIET, 1, 1);
    assert_false(bus_take(p.bus, QUIET, 0, &m));
    bus_listen(p.bus, QUIET, true);
    m = take(p.bus, QUIET);
    bus_listen(p.bus, QUIET, false);
    assert_false(bus_take(p.bus, QUIET, 0, &m));
    assert_int_equal(holds(p.remote, QUIET), 1);
    assert_true(bus_is_connected(p.bus));
    bus_free(p.bus);
}

/* ---- any order ---- */

enum { MESSAGES = 3000, HELD_MAX = 40 };

/* Each message is acked at the bus that had it, once, whatever else is out at the time. */
static void every_history_ends_with_nothing_left_for(uint64_t seed)
{
    struct rand r;
    rand_seed(&r, seed);
    struct pair p = open_pair(LIMIT);
    struct bus_message taken[HELD_MAX];
    uint8_t seen[MESSAGES + 1] = {0};
    uint64_t published = 0, acked = 0;
    size_t n = 0;
    while (acked < MESSAGES) {
        switch (rand_below(&r, 4)) {
        case 0:
            bus_local_first_hold(p.bus, rand_below(&r, 4) > 0);
            if (published < MESSAGES && publish(p.bus, KEPT, published + 1) == OK)
                published++;
            break;
        case 1:
            if (n < HELD_MAX && bus_take(p.bus, KEPT, INT64_MAX, &taken[n]))
                n++;
            break;
        default: {
            if (n == 0)
                break;
            size_t i = (size_t)rand_below(&r, n);
            if (rand_below(&r, 5) == 0) {
                bus_retry(p.bus, &taken[i], 0);
            } else {
                bus_ack(p.bus, &taken[i]);
                assert_int_equal(seen[taken[i].event.id]++, 0);
                acked++;
            }
            taken[i] = taken[--n];
        }
        }
        assert_int_equal(holds(p.bus, KEPT), published - acked);
    }
    assert_int_equal(holds(p.local, KEPT) + holds(p.remote, KEPT), 0);
    bus_free(p.bus);
}

static void every_history_ends_with_nothing_left(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        every_history_ends_with_nothing_left_for(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_is_kept_here_while_there_is_room),
        cmocka_unit_test(a_continuation_always_has_a_place),
        cmocka_unit_test(what_came_from_afar_is_not_kept_waiting),
        cmocka_unit_test(what_is_forgotten_is_gone_and_its_takers_are_ignored),
        cmocka_unit_test(quiet_lanes_are_the_remote_ones),
        cmocka_unit_test(every_history_ends_with_nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
