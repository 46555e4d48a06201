/* A page from what a page source has read: the filters, the next page and the floor, one by one.
 * That it is what feed_read() shows is for the histories (sim/feed_histories_cluster). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "model/feed.h"

enum { LIMIT = 4, MAX = 7, AUTHOR = 900 };

static const struct account_card author = {.id = AUTHOR};
static struct post_card cards[MAX];
static struct page_candidate candidates[MAX];
static struct page_read read;
static struct feed_page page;

/* Posts n, n - 1, … 1, all visible. */
static void candidates_are(size_t n, uint64_t floor)
{
    for (size_t i = 0; i < n; i++) {
        cards[i] = (struct post_card){.id = n - i, .author = AUTHOR};
        candidates[i] = (struct page_candidate){.id = n - i,
                                                .state = CARD_FOUND,
                                                .visible = true,
                                                .card = &cards[i],
                                                .author = &author};
    }
    read = (struct page_read){
        .max = MAX, .good = true, .floor = floor, .candidates = candidates, .n = n};
}

static void assert_page(size_t count, uint64_t newest, uint64_t next_below, uint64_t beyond)
{
    assert_int_equal(feed_step(&read, LIMIT, &page), OK);
    assert_int_equal(page.count, count);
    if (count > 0)
        assert_int_equal(page.items[0].card.id, newest);
    assert_int_equal(page.next_below, next_below);
    assert_int_equal(page.beyond, beyond);
    assert_true(page.lasting);
}

static void assert_left_to_the_reader(void)
{
    assert_int_equal(feed_step(&read, LIMIT, &page), ERR_NEEDS_TRUTH);
}

static void a_page_ends_where_the_next_begins(void **state)
{
    (void)state;
    candidates_are(0, 0);
    assert_page(0, 0, 0, 0);
    candidates_are(LIMIT, 0);
    assert_page(LIMIT, 4, 0, 0);
    candidates_are(LIMIT + 1, 0);
    assert_page(LIMIT, 5, 2, 1);
    candidates_are(MAX, 0);
    assert_page(LIMIT, 7, 4, 3);
}

static void what_is_filtered_is_not_shown(void **state)
{
    (void)state;
    candidates_are(MAX, 0);
    candidates[0].visible = false;
    candidates[2].state = CARD_GONE;
    candidates[3].liked = true;
    assert_page(LIMIT, 6, 2, 1);
    assert_int_equal(page.items[1].card.id, 4);
    assert_true(page.items[1].liked);
    assert_false(page.items[0].liked);
    candidates[6].visible = false;
    assert_left_to_the_reader(); /* there may be more than was read */
    read.n = MAX - 1;
    assert_page(LIMIT, 6, 0, 0);
}

static void what_is_missing_matters_on_the_page_only(void **state)
{
    (void)state;
    candidates_are(LIMIT + 1, 0);
    candidates[LIMIT].state = CARD_MISSING;
    assert_page(LIMIT, 5, 2, 1);
    candidates[1].author = NULL;
    assert_left_to_the_reader();
    candidates[1].visible = false;
    assert_left_to_the_reader(); /* now the missing one is on the page */
    candidates_are(LIMIT, 0);
    read.good = false;
    assert_left_to_the_reader();
}

static void below_the_floor_truth_is_asked(void **state)
{
    (void)state;
    candidates_are(MAX, 3); /* 7 to 4 are complete */
    assert_page(LIMIT, 7, 4, 0);
    candidates[0].visible = false;
    assert_left_to_the_reader();
    candidates_are(MAX, 4);
    assert_left_to_the_reader();
    candidates_are(2, UINT64_MAX);
    assert_left_to_the_reader();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_ends_where_the_next_begins),
        cmocka_unit_test(what_is_filtered_is_not_shown),
        cmocka_unit_test(what_is_missing_matters_on_the_page_only),
        cmocka_unit_test(below_the_floor_truth_is_asked),
    };
    return cmocka_run_group_tests_name("model/feed_step", tests, NULL, NULL);
}
