/* Cards one at a time, for tests: each is one item of cards_write. */
#pragma once

#include "port/cards.h"

static inline card_ticket cards_ticket(struct cards *c, uint64_t key)
{
    card_ticket ticket;
    (void)cards_tickets(c, &key, 1, &ticket);
    return ticket;
}

static inline void cards_put_post(struct cards *c, card_ticket ticket, const struct post_card *post)
{
    cards_write(c, &(struct card_write){.kind = CARD_FILL_POST, .ticket = ticket, .post = post}, 1);
}

static inline void cards_change_post(struct cards *c, const struct post_card *post)
{
    cards_write(c, &(struct card_write){.kind = CARD_CHANGE_POST, .post = post}, 1);
}

static inline void cards_post_gone(struct cards *c, uint64_t id)
{
    cards_write(c, &(struct card_write){.kind = CARD_POST_GONE, .id = id}, 1);
}

static inline void cards_forget_post(struct cards *c, uint64_t id)
{
    cards_write(c, &(struct card_write){.kind = CARD_FORGET_POST, .id = id}, 1);
}

static inline void cards_post_counts(struct cards *c, uint64_t id, int64_t likes, int64_t comments)
{
    cards_write(c,
                &(struct card_write){
                    .kind = CARD_POST_COUNTS, .id = id, .likes = likes, .comments = comments},
                1);
}

/* An account of which only the username says something. */
static inline void cards_put_account(struct cards *c, card_ticket ticket, uint64_t id,
                                     struct str username)
{
    const struct account_card card = {.id = id, .username = username, .display_name = STR("")};
    cards_write(
        c, &(struct card_write){.kind = CARD_FILL_ACCOUNT, .ticket = ticket, .account = &card}, 1);
}

static inline void cards_forget_account(struct cards *c, uint64_t id)
{
    cards_write(c, &(struct card_write){.kind = CARD_FORGET_ACCOUNT, .id = id}, 1);
}

static inline void cards_put_likes(struct cards *c, card_ticket ticket, uint64_t viewer,
                                   const uint64_t *ids, size_t n, uint64_t floor)
{
    cards_write(c,
                &(struct card_write){.kind = CARD_FILL_LIKES,
                                     .ticket = ticket,
                                     .viewer = viewer,
                                     .ids = ids,
                                     .count = n,
                                     .floor = floor},
                1);
}

static inline void cards_like(struct cards *c, uint64_t viewer, uint64_t post, bool on)
{
    cards_write(c, &(struct card_write){.kind = CARD_LIKE, .viewer = viewer, .id = post, .on = on},
                1);
}
