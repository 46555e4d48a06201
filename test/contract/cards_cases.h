/* What the parts of the cards contract share. */
#pragma once

#include "base/clock.h"
#include "card_writes.h"

#define NOW_MS INT64_C(1800000000000)

struct fixture {
    struct cards *c;
    struct manual_clock clock;
    struct arena arena;
};

static inline card_ticket likes_ticket(struct fixture *f, uint64_t viewer)
{
    return cards_ticket(f->c, cards_likes_key(viewer));
}

/* Whether it is known; ERR_NEEDS_TRUTH: it is not. */
static inline enum err liked(struct fixture *f, uint64_t viewer, uint64_t post)
{
    bool out = false;
    return cards_liked(f->c, viewer, &post, 1, &out);
}

/* Likes: cards_like_cases.c. */
void likes_are_known_or_truth_is_asked(void **state);
void likes_change(void **state);
void a_like_set_keeps_the_newest_thousand(void **state);

/* Groups and members: cards_group_cases.c. */
void a_group_comes_back_until_it_is_forgotten(void **state);
void members_are_known_until_something_of_them_changes(void **state);
void a_stale_fill_of_members_is_ignored(void **state);
void a_fill_keeps_what_it_does_not_speak_of(void **state);
