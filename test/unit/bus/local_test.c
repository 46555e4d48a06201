/* What the in-process bus adds to the contract: it keeps its memory small and its messages apart
 * while thousands come and go in every state. Checked against a naive model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "bus/local.h"

enum { MODEL_MAX = 3000 };

enum model_state { GONE, READY, DELAYED, TAKEN };

struct model {
    enum model_state state[MODEL_MAX];
    int64_t due[MODEL_MAX];
    uint16_t tries[MODEL_MAX];
    struct bus_message taken[MODEL_MAX];
    size_t held;
};

static void check_counts(struct bus *b, const struct model *m, uint64_t published)
{
    uint64_t ready = 0, delayed = 0, taken = 0;
    for (uint64_t i = 0; i < published; i++) {
        ready += m->state[i] == READY;
        delayed += m->state[i] == DELAYED;
        taken += m->state[i] == TAKEN;
    }
    struct bus_lane_stats stats;
    bus_lane_stats(b, 0, &stats);
    /* Delayed ones that are due move over with the next take. */
    assert_int_equal(stats.ready + stats.delayed, ready + delayed);
    assert_int_equal(stats.taken, taken);
}

static void take_one(struct bus *b, struct model *m, int64_t now_us)
{
    bool expected = false;
    for (int i = 0; i < MODEL_MAX && !expected; i++)
        expected = m->state[i] == READY || (m->state[i] == DELAYED && m->due[i] <= now_us);
    struct bus_message out;
    assert_int_equal(bus_take(b, 0, now_us, &out), expected);
    if (!expected)
        return;
    uint64_t id = out.event.id;
    assert_true(m->state[id] == READY || (m->state[id] == DELAYED && m->due[id] <= now_us));
    assert_int_equal(out.tries, m->tries[id]);
    m->state[id] = TAKEN;
    m->taken[id] = out;
}

static void give_back_one(struct bus *b, struct model *m, struct rand *r, int64_t now_us)
{
    uint64_t from = rand_below(r, MODEL_MAX);
    for (uint64_t i = 0; i < MODEL_MAX; i++) {
        uint64_t id = (from + i) % MODEL_MAX;
        if (m->state[id] != TAKEN)
            continue;
        if (rand_below(r, 3)) {
            bus_ack(b, &m->taken[id]);
            m->state[id] = GONE;
            m->held--;
        } else {
            m->due[id] = now_us + (int64_t)rand_below(r, 200);
            m->tries[id]++;
            m->state[id] = DELAYED;
            bus_retry(b, &m->taken[id], m->due[id]);
        }
        return;
    }
}

static void behaves_like_the_model_for(uint64_t seed)
{
    struct rand r;
    rand_seed(&r, seed);
    const size_t limit = 1 + (size_t)rand_below(&r, 400);
    struct bus *b = bus_local_new(1, &limit);
    struct model *m = calloc(1, sizeof *m);
    uint64_t published = 0;
    int64_t now_us = 0;
    for (int round = 0; round < 8000; round++) {
        now_us += (int64_t)rand_below(&r, 4);
        switch (rand_below(&r, 3)) {
        case 0: {
            struct bus_message msg = {.event = {.id = published}};
            if (published == MODEL_MAX)
                break;
            enum err e = bus_publish(b, &msg);
            assert_int_equal(e, m->held < limit ? OK : ERR_OVERLOADED);
            if (e == OK) {
                m->state[published++] = READY;
                m->held++;
            }
            break;
        }
        case 1:
            take_one(b, m, now_us);
            break;
        default:
            give_back_one(b, m, &r, now_us);
        }
        if (round % 512 == 0)
            check_counts(b, m, published);
    }
    check_counts(b, m, published);
    bus_free(b);
    free(m);
}

static void every_history_agrees_with_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 25; seed++)
        behaves_like_the_model_for(seed);
}

static void freed_slots_are_used_again(void **state)
{
    (void)state;
    const size_t limit = 1000;
    struct bus *b = bus_local_new(1, &limit);
    uint32_t highest = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        struct bus_message m = {.event = {.id = i}};
        assert_int_equal(bus_publish(b, &m), OK);
        assert_true(bus_take(b, 0, 0, &m));
        uint32_t slot = (uint32_t)m.tag;
        highest = slot > highest ? slot : highest;
        bus_ack(b, &m);
    }
    assert_int_equal(highest, 0);
    bus_free(b);
}

static void due_messages_and_fresh_ones_take_turns(void **state)
{
    (void)state;
    const size_t limit = 1000;
    struct bus *b = bus_local_new(1, &limit);
    struct bus_message m;
    for (uint64_t i = 0; i < 100; i++) {
        m = (struct bus_message){.event = {.id = i}};
        bus_publish(b, &m);
        bus_take(b, 0, 0, &m);
        bus_retry(b, &m, 10);
    }
    m = (struct bus_message){.event = {.id = 500}};
    bus_publish(b, &m); /* in the queue before the others are due */
    assert_true(bus_take(b, 0, 10, &m));
    assert_int_equal(m.event.id, 500);
    m = (struct bus_message){.event = {.id = 501}};
    bus_publish(b, &m); /* behind those that came due by then, not behind all */
    int position = 0;
    do {
        assert_true(bus_take(b, 0, 10, &m));
        position++;
    } while (m.event.id != 501);
    assert_in_range(position, 1, 99);
    bus_free(b);
}

static void take_id(struct bus *b, uint64_t id, struct bus_message *m)
{
    assert_true(bus_take(b, 0, 0, m));
    assert_int_equal(m->event.id, id);
}

/* Also those that were delayed, and came back into the queue behind others. */
static void what_goes_back_is_in_its_old_order(void **state)
{
    (void)state;
    enum { MANY = 700 }; /* several chunks of slots */
    const size_t limit = MANY;
    struct bus *b = bus_local_new(1, &limit);
    struct bus_message m, acked[2];
    bus_local_quiet(b, 1);
    for (uint64_t id = 0; id < MANY; id++) {
        m = (struct bus_message){.event = {.id = id}};
        assert_int_equal(bus_publish(b, &m), OK);
    }
    bus_listen(b, 0, true);
    take_id(b, 0, &m);
    bus_retry(b, &m, 0); /* the last one now */
    for (uint64_t id = 1; id < MANY; id++)
        take_id(b, id, &acked[id % 2]);
    bus_ack(b, &acked[0]);
    bus_ack(b, &acked[1]);
    take_id(b, 0, &m);
    for (int round = 0; round < 2; round++) {
        bus_listen(b, 0, false);
        bus_listen(b, 0, true);
        for (uint64_t id = 1; id < MANY - 2; id++)
            take_id(b, id, &m);
        take_id(b, 0, &m);
        assert_int_equal(m.tries, 1);
        assert_false(bus_take(b, 0, INT64_MAX, &m));
    }
    bus_free(b);
}

/* In every state; afterwards the slots are as good as new. */
static void a_bus_that_was_told_to_forget_is_empty(void **state)
{
    (void)state;
    enum { EACH = 200 };
    const size_t limit = 3 * EACH;
    struct bus *b = bus_local_new(1, &limit);
    struct bus_message old[2 * EACH], m;
    struct bus_lane_stats stats;
    for (int round = 0; round < 3; round++) {
        for (uint64_t id = 0; id < 3 * EACH; id++) {
            m = (struct bus_message){.event = {.id = id}};
            assert_int_equal(bus_publish(b, &m), OK);
        }
        for (uint64_t id = 0; id < 2 * EACH; id++)
            take_id(b, id, &old[id]);
        for (uint64_t id = 0; id < EACH; id++)
            bus_retry(b, &old[id], 10);
        bus_local_forget(b);
        bus_lane_stats(b, 0, &stats);
        assert_int_equal(stats.ready + stats.delayed + stats.taken, 0);
        assert_false(bus_take(b, 0, INT64_MAX, &m));
        assert_true(bus_next_due_us(b, 0) == INT64_MAX);
        for (uint64_t id = EACH; id < 2 * EACH; id++)
            bus_ack(b, &old[id]);
        bus_lane_stats(b, 0, &stats);
        assert_int_equal(stats.acked, 0);
    }
    bus_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_history_agrees_with_the_model),
        cmocka_unit_test(freed_slots_are_used_again),
        cmocka_unit_test(due_messages_and_fresh_ones_take_turns),
        cmocka_unit_test(what_goes_back_is_in_its_old_order),
        cmocka_unit_test(a_bus_that_was_told_to_forget_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
