/* What need not be applied again, and what must be nevertheless. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rand.h"
#include "pipe/applied.h"

static struct applied notes;

static int set_up(void **state)
{
    (void)state;
    applied_init(&notes);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    applied_done(&notes);
    return 0;
}

static void note(uint64_t term, uint64_t id)
{
    struct event e = {.id = id, .type = EVENT_POST_CREATED};
    applied_note(&notes, term, &e, 1);
}

static bool must_apply(uint64_t term, uint64_t id)
{
    struct event e = {.id = id, .type = EVENT_POST_CREATED}, left;
    return applied_sift(&notes, term, &e, 1, &left) == 1;
}

static void a_note_counts_once(void **state)
{
    (void)state;
    note(3, 77);
    assert_false(must_apply(3, 77));
    assert_true(must_apply(3, 77));
}

static void a_note_counts_in_its_term_alone(void **state)
{
    (void)state;
    note(3, 77);
    assert_true(must_apply(4, 77));
    note(4, 78);
    assert_true(must_apply(3, 78));
    note(4, 79);
    assert_true(must_apply(4, 77)); /* of the former term */
    note(3, 80);                    /* by a call that took long */
    assert_true(must_apply(4, 80));
    assert_true(must_apply(3, 80));
    assert_false(must_apply(4, 79));
}

static void who_does_not_lead_notes_nothing(void **state)
{
    (void)state;
    note(0, 77);
    assert_true(must_apply(0, 77));
    assert_true(must_apply(1, 77));
}

static void sifting_keeps_the_order_of_the_rest(void **state)
{
    (void)state;
    struct event events[6], left[6];
    for (size_t i = 0; i < 6; i++)
        events[i] = (struct event){.id = 10 + i, .type = EVENT_POST_CREATED};
    note(1, 11);
    note(1, 12);
    note(1, 15);
    assert_int_equal(applied_sift(&notes, 1, events, 6, left), 3);
    assert_int_equal(left[0].id, 10);
    assert_int_equal(left[1].id, 13);
    assert_int_equal(left[2].id, 14);
}

/* More than there is room for: some are forgotten, none is invented. */
static void nothing_is_taken_for_noted_that_was_not(void **state)
{
    (void)state;
    struct rand r;
    size_t forgotten = 0;
    rand_seed(&r, 7);
    for (size_t i = 0; i < 4 * APPLIED_MAX; i++)
        note(1, rand_u64(&r) | 1);
    for (size_t i = 0; i < 4 * APPLIED_MAX; i++)
        assert_true(must_apply(1, rand_u64(&r) & ~UINT64_C(1)));
    rand_seed(&r, 7);
    for (size_t i = 0; i < 4 * APPLIED_MAX; i++)
        forgotten += must_apply(1, rand_u64(&r) | 1);
    assert_true(forgotten >= 3 * (size_t)APPLIED_MAX);
    assert_true(forgotten < 4 * (size_t)APPLIED_MAX);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_note_counts_once),
        CASE(a_note_counts_in_its_term_alone),
        CASE(who_does_not_lead_notes_nothing),
        CASE(sifting_keeps_the_order_of_the_rest),
        CASE(nothing_is_taken_for_noted_that_was_not),
    };
    return cmocka_run_group_tests_name("applied", tests, NULL, NULL);
}
