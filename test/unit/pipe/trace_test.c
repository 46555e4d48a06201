/* The ring of records: one event's story, what is left out of it, what is lost. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "pipe/trace.h"

static struct trace t;

static void add(uint64_t event, enum trace_kind kind, uint64_t n, uint64_t done, int64_t at_ms)
{
    struct trace_record r = {
        .event = event, .kind = (uint8_t)kind, .n = n, .done = done, .at_ms = at_ms};
    trace_add(&t, &r, 1);
}

struct found {
    struct trace_summary sum;
    struct trace_record records[64];
    size_t n, left_out;
};

static struct found find(uint64_t event, size_t max)
{
    struct found f;
    trace_find(&t, event, &f.sum, f.records, max, &f.n, &f.left_out);
    return f;
}

static void a_story_is_told_in_order_with_its_sums(void **state)
{
    (void)state;
    trace_init(&t, 64);
    add(7, TRACE_PUBLISHED, 2, 0, 100);
    add(8, TRACE_PUBLISHED, 1, 0, 101);
    add(7, TRACE_BATCH, 10, 9, 102);
    add(8, TRACE_BATCH, 5, 5, 103);
    add(7, TRACE_SKIPPED, 1, 0, 104);
    add(7, TRACE_SKIPPED, 0, 0, 104);
    add(7, TRACE_FAILED, 1, 0, 105);
    add(7, TRACE_DELAYED, 2000, 0, 105);
    add(7, TRACE_DUPLICATE, 3, 0, 106);
    add(7, TRACE_BATCH, 20, 20, 107);
    add(7, TRACE_DONE, 30, 29, 108);
    struct found f = find(7, 64);
    assert_int_equal(f.n, 9);
    assert_int_equal(f.left_out, 0);
    assert_int_equal(f.sum.batches, 2);
    assert_int_equal(f.sum.members, 30);
    assert_int_equal(f.sum.delivered, 29);
    assert_int_equal(f.sum.skipped, 2);
    assert_int_equal(f.sum.failed, 1);
    assert_int_equal(f.sum.duplicates, 3);
    assert_int_equal(f.sum.first_ms, 100);
    assert_int_equal(f.sum.last_ms, 108);
    assert_true(f.sum.complete);
    for (size_t i = 1; i < f.n; i++)
        assert_true(f.records[i].at_ms >= f.records[i - 1].at_ms);
    assert_int_equal(f.records[0].kind, TRACE_PUBLISHED);
    assert_int_equal(f.records[8].kind, TRACE_DONE);
    trace_done(&t);
}

static void nothing_is_known_of_a_stranger(void **state)
{
    (void)state;
    trace_init(&t, 64);
    add(7, TRACE_BATCH, 1, 1, 100);
    struct found f = find(9, 64);
    assert_int_equal(f.n, 0);
    assert_int_equal(f.left_out, 0);
    assert_int_equal(f.sum.first_ms, 0);
    assert_int_equal(f.sum.last_ms, 0);
    assert_true(f.sum.complete);
    trace_done(&t);
}

static void of_many_records_the_first_and_the_last_are_kept(void **state)
{
    (void)state;
    trace_init(&t, 128);
    for (int64_t i = 0; i < 100; i++)
        add(7, TRACE_BATCH, 1, 1, i);
    for (size_t max = 0; max <= 64; max++) {
        struct found f = find(7, max);
        assert_int_equal(f.n, max);
        assert_int_equal(f.left_out, 100 - max);
        assert_int_equal(f.sum.batches, 100);
        size_t first = max - max / 2;
        for (size_t i = 0; i < max; i++)
            assert_int_equal(f.records[i].at_ms, i < first ? i : 100 - max + i);
    }
    struct trace_summary sum;
    size_t n, left_out;
    trace_find(&t, 7, &sum, NULL, 0, &n, &left_out);
    assert_int_equal(sum.members, 100);
    assert_int_equal(left_out, 100);
    trace_done(&t);
}

static void the_oldest_are_overwritten_and_that_is_said(void **state)
{
    (void)state;
    trace_init(&t, 5); /* becomes 8 */
    assert_int_equal(t.capacity, 8);
    for (uint64_t event = 1; event <= 8; event++)
        add(event, TRACE_DONE, 0, 0, (int64_t)event);
    for (uint64_t event = 1; event <= 8; event++)
        assert_true(find(event, 4).sum.complete);

    add(9, TRACE_DONE, 0, 0, 9);
    add(10, TRACE_DONE, 0, 0, 10);
    assert_int_equal(find(1, 4).n, 0);
    assert_false(find(1, 4).sum.complete);
    assert_false(find(2, 4).sum.complete);
    assert_int_equal(find(3, 4).n, 1);
    assert_true(find(3, 4).sum.complete);
    assert_true(find(10, 4).sum.complete);
    trace_done(&t);
}

static void part_of_a_story_is_not_the_whole(void **state)
{
    (void)state;
    trace_init(&t, 8);
    add(5, TRACE_PUBLISHED, 0, 0, 50);
    add(5, TRACE_BATCH, 1, 1, 51);
    add(6, TRACE_PUBLISHED, 0, 0, 52);
    for (uint64_t event = 20; event < 26; event++)
        add(event, TRACE_DONE, 0, 0, 60);
    struct found f = find(5, 4);
    assert_int_equal(f.n, 1);
    assert_false(f.sum.complete);
    assert_true(find(6, 4).sum.complete);
    trace_done(&t);
}

/* Ids go on when the wall clock is set back: times alone would call this story whole. */
static void a_clock_that_was_set_back_does_not_make_it_lie(void **state)
{
    (void)state;
    trace_init(&t, 8);
    add(100, TRACE_PUBLISHED, 0, 0, 9000);
    for (uint64_t event = 101; event <= 108; event++)
        add(event, TRACE_DONE, 0, 0, 10);
    assert_false(find(100, 4).sum.complete);
    assert_true(find(101, 4).sum.complete);
    trace_done(&t);
}

static void more_than_the_ring_holds_may_come_at_once(void **state)
{
    (void)state;
    trace_init(&t, 8);
    struct trace_record many[20] = {0};
    for (uint64_t i = 0; i < 20; i++)
        many[i] = (struct trace_record){.event = i + 1, .kind = TRACE_DONE};
    trace_add(&t, many, 20);
    assert_int_equal(t.written, 20);
    assert_int_equal(find(12, 4).n, 0);
    assert_int_equal(find(13, 4).n, 1);
    assert_true(find(13, 4).sum.complete);
    assert_false(find(12, 4).sum.complete);
    trace_add(&t, many, 0);
    assert_int_equal(t.written, 20);
    trace_done(&t);
}

static void every_kind_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < TRACE_KINDS; i++) {
        const char *name = trace_kind_name((enum trace_kind)i);
        assert_non_null(name);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(name, trace_kind_name((enum trace_kind)k));
    }
}

/* ---- a reader beside writers ---- */

static _Atomic bool stop;

static void *write_on(void *arg)
{
    (void)arg;
    struct trace_record batch[32] = {0};
    for (uint64_t event = 1000; !stop; event++) {
        for (size_t i = 0; i < 32; i++)
            batch[i] = (struct trace_record){
                .event = event, .kind = TRACE_BATCH, .n = 1, .done = 1, .at_ms = (int64_t)event};
        trace_add(&t, batch, 32);
        sched_yield(); /* the reader must get the lock at times */
    }
    return NULL;
}

static void what_is_told_beside_writers_is_whole_or_says_so(void **state)
{
    (void)state;
    trace_init(&t, 1 << 14);
    pthread_t writer;
    stop = false;
    assert_int_equal(pthread_create(&writer, NULL, write_on, NULL), 0);
    for (int i = 0, whole = 0; i < 2000 || whole < 100; i++) {
        pthread_mutex_lock(&t.lock);
        uint64_t event = t.written ? t.records[(t.written - 1) & (t.capacity - 1)].event : 1000;
        pthread_mutex_unlock(&t.lock);
        event -= event > 1300 ? (uint64_t)(i % 300) : 0;
        struct found f = find(event, 8);
        assert_true(f.sum.batches <= 32);
        if (f.sum.complete && f.sum.batches == 32)
            whole++;
        if (f.sum.complete && f.sum.batches)
            assert_int_equal(f.sum.batches, 32);
    }
    stop = true;
    pthread_join(writer, NULL);
    trace_done(&t);
}

/* Printed, not judged: other things run on the same machine. */
static void how_long_a_search_takes(void **state)
{
    (void)state;
    trace_init(&t, 1 << 16);
    for (uint64_t i = 0; i < 1 << 17; i++)
        add(i, TRACE_BATCH, 1, 1, (int64_t)i);
    struct clock *clock = clock_system();
    int64_t start_us = clock_mono_us(clock);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(find((1 << 17) - 1 - i, 8).n, 1);
    int64_t search_us = clock_mono_us(clock) - start_us;
    struct trace_record batch[64] = {0};
    start_us = clock_mono_us(clock);
    for (int i = 0; i < 20000; i++)
        trace_add(&t, batch, 64);
    int64_t add_us = clock_mono_us(clock) - start_us;
    print_message("# search of 65536 records: %.0f us; record: %.1f ns\n", (double)search_us / 100,
                  (double)add_us * 1000 / (20000.0 * 64));
    trace_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_story_is_told_in_order_with_its_sums),
        cmocka_unit_test(nothing_is_known_of_a_stranger),
        cmocka_unit_test(of_many_records_the_first_and_the_last_are_kept),
        cmocka_unit_test(the_oldest_are_overwritten_and_that_is_said),
        cmocka_unit_test(part_of_a_story_is_not_the_whole),
        cmocka_unit_test(a_clock_that_was_set_back_does_not_make_it_lie),
        cmocka_unit_test(more_than_the_ring_holds_may_come_at_once),
        cmocka_unit_test(every_kind_has_a_name),
        cmocka_unit_test(what_is_told_beside_writers_is_whole_or_says_so),
        cmocka_unit_test(how_long_a_search_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
