/* The queue between commit hook and relay: order, its limit, and what it says when it is full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

#include "pipe/commit_queue.h"

static void push(struct commit_queue *h, uint64_t id)
{
    struct event e = {.id = id, .card = (const struct post_card *)&id};
    commit_queue_push(h, &e, (int64_t)id * 10);
}

static void events_come_out_in_order_without_their_card(void **state)
{
    (void)state;
    struct commit_queue h;
    commit_queue_init(&h, 5);
    uint64_t in = 1, out = 1;
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 5; i++)
            push(&h, in++);
        assert_int_equal(commit_queue_waiting(&h), 5);
        for (size_t i = 0; i < 5; i++) {
            const struct queued_event *o = commit_queue_at(&h, i);
            assert_int_equal(o->event.id, out + i);
            assert_int_equal(o->at_us, (int64_t)(out + i) * 10);
            assert_null(o->event.card);
        }
        commit_queue_pop(&h, 2);
        assert_int_equal(commit_queue_oldest(&h), out + 2);
        commit_queue_pop(&h, 3);
        out += 5;
        assert_int_equal(commit_queue_oldest(&h), 0);
    }
    assert_int_equal(h.missed, 0);
    commit_queue_done(&h);
}

static void a_full_queue_drops_and_says_up_to_where(void **state)
{
    (void)state;
    struct commit_queue h;
    commit_queue_init(&h, 3); /* not a power of two: the limit is exact all the same */
    for (uint64_t id = 1; id <= 5; id++)
        push(&h, id);
    assert_int_equal(commit_queue_waiting(&h), 3);
    assert_int_equal(h.missed, 5);
    assert_int_equal(h.offered, 5);
    commit_queue_pop(&h, 1);
    push(&h, 6); /* there is room again: what was missed stays missed */
    assert_int_equal(commit_queue_at(&h, 2)->event.id, 6);
    assert_int_equal(h.missed, 5);
    assert_int_equal(commit_queue_oldest(&h), 4); /* in the table alone, and not read yet */
    commit_queue_read(&h, 4);
    assert_int_equal(commit_queue_oldest(&h), 5);
    commit_queue_read(&h, 5);
    commit_queue_pop(&h, commit_queue_waiting(&h));
    assert_int_equal(commit_queue_oldest(&h), 0);
    commit_queue_done(&h);
}

static void an_event_told_twice_is_taken_once(void **state)
{
    (void)state;
    struct commit_queue h;
    commit_queue_init(&h, 3);
    push(&h, 1);
    push(&h, 2);
    push(&h, 2);
    push(&h, 1);
    assert_int_equal(commit_queue_waiting(&h), 2);
    commit_queue_done(&h);
}

enum { HANDED = 200000 };

static void *produce(void *arg)
{
    for (uint64_t id = 1; id <= HANDED; id++)
        push(arg, id);
    return NULL;
}

/* Whatever the consumer sees, a gap before an event is known by the time the event is seen. */
static void a_gap_is_known_before_what_follows_it(void **state)
{
    (void)state;
    struct commit_queue h;
    commit_queue_init(&h, 64);
    pthread_t producer;
    pthread_create(&producer, NULL, produce, &h);
    uint64_t last = 0;
    while (last < HANDED) {
        size_t waiting = commit_queue_waiting(&h);
        uint64_t missed = atomic_load(&h.missed);
        for (size_t i = 0; i < waiting; i++) {
            uint64_t id = commit_queue_at(&h, i)->event.id;
            assert_true(id == last + 1 || missed >= id - 1);
            assert_true(id > last);
            last = id;
        }
        commit_queue_pop(&h, waiting);
        if (waiting == 0 && missed == HANDED)
            break;
        if (waiting == 0)
            sched_yield();
    }
    pthread_join(producer, NULL);
    commit_queue_done(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_out_in_order_without_their_card),
        cmocka_unit_test(a_full_queue_drops_and_says_up_to_where),
        cmocka_unit_test(an_event_told_twice_is_taken_once),
        cmocka_unit_test(a_gap_is_known_before_what_follows_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
