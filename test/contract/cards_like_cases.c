/* The cards contract of likes: what is known of a viewer's likes, down to which id. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "cards_cases.h"

static bool likes(struct fixture *f, uint64_t viewer, uint64_t post)
{
    bool out = false;
    assert_int_equal(cards_liked(f->c, viewer, &post, 1, &out), OK);
    return out;
}

void likes_are_known_or_truth_is_asked(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(liked(f, 1, 10), ERR_NEEDS_TRUTH);
    cards_like(f->c, 1, 10, true); /* not loaded: stays so */
    assert_int_equal(liked(f, 1, 10), ERR_NEEDS_TRUTH);
    cards_put_likes(f->c, likes_ticket(f, 1), 1, (const uint64_t[]){30, 20, 10}, 3, 5);
    assert_true(likes(f, 1, 10));
    assert_true(likes(f, 1, 30));
    assert_false(likes(f, 1, 25));
    assert_false(likes(f, 1, 6));
    assert_int_equal(liked(f, 1, 5), ERR_NEEDS_TRUTH); /* at the floor: not known */
    bool out[3];
    assert_int_equal(cards_liked(f->c, 1, (const uint64_t[]){30, 20, 4}, 3, out), ERR_NEEDS_TRUTH);
    cards_put_likes(f->c, likes_ticket(f, 1), 1, (const uint64_t[]){30}, 1, 0);
    assert_false(likes(f, 1, 1)); /* all there are */
    cards_put_likes(f->c, likes_ticket(f, 2), 2, NULL, 0, 0);
    assert_false(likes(f, 2, 30));
    assert_int_equal(cards_liked(f->c, 2, NULL, 0, NULL), OK);
}

void likes_change(void **state)
{
    struct fixture *f = *state;
    cards_put_likes(f->c, likes_ticket(f, 1), 1, (const uint64_t[]){30, 10}, 2, 0);
    cards_like(f->c, 1, 20, true);
    cards_like(f->c, 1, 20, true);
    cards_like(f->c, 1, 10, false);
    cards_like(f->c, 1, 11, false);
    assert_true(likes(f, 1, 20));
    assert_false(likes(f, 1, 10));
    assert_true(likes(f, 1, 30));
    for (uint64_t id = 100; id < 600; id++)
        cards_like(f->c, 1, id, true);
    for (uint64_t id = 100; id < 600; id++)
        assert_true(likes(f, 1, id));
    assert_false(likes(f, 1, 600));
}

void a_like_set_keeps_the_newest_thousand(void **state)
{
    struct fixture *f = *state;
    uint64_t ids[1500];
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        ids[i] = 10000 - 2 * i;
    cards_put_likes(f->c, likes_ticket(f, 1), 1, ids, COUNT_OF(ids), 0);
    assert_true(likes(f, 1, ids[999]));
    assert_int_equal(liked(f, 1, ids[1000]), ERR_NEEDS_TRUTH);
    cards_like(f->c, 1, 20000, true); /* the oldest makes room */
    assert_true(likes(f, 1, 20000));
    assert_int_equal(liked(f, 1, ids[999]), ERR_NEEDS_TRUTH);
    assert_true(likes(f, 1, ids[998]));
    cards_like(f->c, 1, ids[998] - 1, true); /* older than all: falls out at once */
    assert_int_equal(liked(f, 1, ids[998] - 1), ERR_NEEDS_TRUTH);
    cards_like(f->c, 1, 9999, true);
    assert_true(likes(f, 1, 9999));
    assert_false(likes(f, 1, 9997));
}
