/* The window against a broker that confirms in any order, one or many at a time, refuses some and
 * breaks off: every parcel is settled exactly once, nothing is forgotten, and what is sent again
 * keeps its order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "bus/rabbitmq_window.h"

enum { CAPACITY = 16, PARCELS = 3000 };

static struct rabbitmq_parcel *add(struct rabbitmq_window *w, uint64_t id)
{
    struct rabbitmq_parcel *p = rabbitmq_window_add(w, false);
    if (p)
        p->message = (struct bus_message){.event = {.id = id}, .lane = (uint16_t)(id % 2)};
    return p;
}

static uint64_t sent_id(struct rabbitmq_window *w)
{
    struct rabbitmq_parcel *p = rabbitmq_window_send(w);
    return p ? p->message.event.id : 0;
}

static void settle_one(struct rabbitmq_window *w, uint64_t number, uint64_t id)
{
    struct rabbitmq_parcel *p = rabbitmq_window_settle(w, number, false);
    assert_non_null(p);
    assert_int_equal(p->message.event.id, id);
    rabbitmq_window_drop(w, p);
    assert_null(rabbitmq_window_settle(w, number, false));
}

static void parcels_are_sent_in_order_and_refused_when_full(void **state)
{
    (void)state;
    struct rabbitmq_window w;
    rabbitmq_window_init(&w, 3);
    assert_null(rabbitmq_window_send(&w));
    for (uint64_t id = 1; id <= 3; id++)
        assert_non_null(add(&w, id));
    assert_null(add(&w, 4));
    assert_int_equal(sent_id(&w), 1);
    assert_int_equal(sent_id(&w), 2);
    settle_one(&w, 1, 1);
    assert_non_null(add(&w, 4));
    assert_int_equal(sent_id(&w), 3);
    assert_int_equal(sent_id(&w), 4);
    assert_int_equal(rabbitmq_window_count(&w, 0), 2);
    assert_int_equal(rabbitmq_window_count(&w, 1), 1);
    rabbitmq_window_done(&w);
}

static void confirms_of_what_was_never_sent_settle_nothing(void **state)
{
    (void)state;
    struct rabbitmq_window w;
    rabbitmq_window_init(&w, 3);
    add(&w, 1);
    assert_null(rabbitmq_window_settle(&w, 0, true));
    assert_null(rabbitmq_window_settle(&w, 1, true));
    assert_int_equal(sent_id(&w), 1);
    assert_null(rabbitmq_window_settle(&w, 2, true));
    assert_null(rabbitmq_window_settle(&w, UINT64_MAX, true));
    assert_null(rabbitmq_window_settle(&w, UINT64_MAX, false));
    settle_one(&w, 1, 1);
    assert_null(rabbitmq_window_settle(&w, 1, true));
    rabbitmq_window_done(&w);
}

static void a_broken_connection_sends_again_what_was_not_confirmed(void **state)
{
    (void)state;
    struct rabbitmq_window w;
    rabbitmq_window_init(&w, 8);
    for (uint64_t id = 1; id <= 6; id++)
        add(&w, id);
    for (uint64_t id = 1; id <= 4; id++)
        assert_int_equal(sent_id(&w), id);
    settle_one(&w, 2, 2);
    rabbitmq_window_lost(&w);
    const uint64_t left[] = {1, 3, 4, 5, 6};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(sent_id(&w), left[i]);
    assert_null(rabbitmq_window_send(&w));
    settle_one(&w, 1, 1); /* the numbers began anew */
    settle_one(&w, 2, 3);
    rabbitmq_window_done(&w);
}

/* One parcel stays unconfirmed while a thousand others come and go: the numbers do not run into
 * each other. */
static void a_gap_does_not_confuse_the_numbers(void **state)
{
    (void)state;
    struct rabbitmq_window w;
    rabbitmq_window_init(&w, 4);
    add(&w, 1);
    assert_int_equal(sent_id(&w), 1);
    uint64_t number = 1, sent = 0;
    for (uint64_t id = 2; id < 1000; id++) {
        add(&w, id);
        if (!rabbitmq_window_has_waiting(&w))
            break;
        assert_int_equal(sent_id(&w), id);
        settle_one(&w, ++number, id);
        sent++;
    }
    assert_true(sent >= 4); /* then it pauses … */
    settle_one(&w, 1, 1);
    assert_true(rabbitmq_window_has_waiting(&w)); /* … until the gap is closed */
    rabbitmq_window_done(&w);
}

struct world {
    struct rabbitmq_window w;
    uint64_t added;
    uint8_t settled[PARCELS + 1];
    uint64_t by_number[PARCELS]; /* what the broker got, by its numbers */
    uint64_t numbers;
    uint64_t done;
};

static void settle_many(struct world *x, struct rand *r)
{
    if (x->numbers == 0)
        return;
    uint64_t number = 1 + rand_below(r, x->numbers);
    bool multiple = rand_below(r, 2), refused = rand_below(r, 8) == 0;
    struct rabbitmq_parcel *p;
    while ((p = rabbitmq_window_settle(&x->w, number, multiple))) {
        uint64_t id = p->message.event.id;
        assert_false(x->settled[id]);
        if (!multiple)
            assert_int_equal(id, x->by_number[number]);
        if (refused) {
            rabbitmq_window_again(&x->w, p);
            continue;
        }
        x->settled[id] = 1;
        x->done++;
        rabbitmq_window_drop(&x->w, p);
    }
}

static void every_parcel_is_settled_once_for(uint64_t seed)
{
    static struct world x;
    x = (struct world){.added = 0};
    struct rand r;
    rand_seed(&r, seed);
    rabbitmq_window_init(&x.w, CAPACITY);
    while (x.done < PARCELS) {
        uint64_t act = rand_below(&r, 20);
        if (act == 0 || x.numbers + 1 == COUNT_OF(x.by_number)) {
            rabbitmq_window_lost(&x.w);
            x.numbers = 0;
        } else if (act < 9) {
            if (x.added < PARCELS && add(&x.w, x.added + 1))
                x.added++;
        } else if (act < 16) {
            struct rabbitmq_parcel *p = rabbitmq_window_send(&x.w);
            if (p)
                x.by_number[++x.numbers] = p->message.event.id;
        } else {
            settle_many(&x, &r);
        }
        assert_int_equal(x.w.own, x.added - x.done);
        assert_int_equal(rabbitmq_window_count(&x.w, 0) + rabbitmq_window_count(&x.w, 1), x.w.own);
    }
    rabbitmq_window_done(&x.w);
}

static void every_parcel_is_settled_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        every_parcel_is_settled_once_for(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parcels_are_sent_in_order_and_refused_when_full),
        cmocka_unit_test(confirms_of_what_was_never_sent_settle_nothing),
        cmocka_unit_test(a_broken_connection_sends_again_what_was_not_confirmed),
        cmocka_unit_test(a_gap_does_not_confuse_the_numbers),
        cmocka_unit_test(every_parcel_is_settled_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
