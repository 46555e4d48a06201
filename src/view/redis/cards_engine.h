/* The inside of the Redis cards engine, shared by its files. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/rand.h"
#include "port/cards.h"
#include "view/redis/batch.h"
#include "view/redis/debts.h"
#include "view/redis/keys.h"
#include "view/redis/script.h"

enum {
    VERSION_MS = 60000,
    LIKES_MAX = 1000,
    CARD_BATCHES_MAX = 64, /* spare ones */
    /* the form of a post's card: 'P', then little-endian numbers, then the caption */
    CARD_AUTHOR = 1,
    CARD_LIKES = 9,
    CARD_COMMENTS = 13,
    CARD_EDITED = 17,
    CARD_DELIVERY = 25,
    CARD_CAPTION = 26,
};

enum card_kind { CARD_POST = 'P', CARD_ACCOUNT = 'A', CARD_LIKED = 'L', CARD_VERSION = 'V' };

struct redis_cards {
    struct cards cards;
    struct link *link;
    struct clock *clock;
    int64_t life_ms;
    _Atomic uint64_t post_hits, post_misses, looks;
    _Atomic bool doubted;
    _Atomic uint64_t restarts_trusted; /* see cards_are_lost */
    _Atomic uint64_t epoch;
    _Atomic int64_t look_at_ms;

    pthread_mutex_t lock; /* of what follows */
    struct rand rand;
    struct batch *spare[CARD_BATCHES_MAX];
    size_t spare_count;
    struct debts debts; /* has a lock of its own */
};

static inline struct redis_cards *redis_cards_of(struct cards *c)
{
    return (struct redis_cards *)c;
}

/* ---- cards.c ---- */

struct batch *cards_borrow(struct redis_cards *c);
void cards_give_back(struct redis_cards *c, struct batch *b);
uint64_t cards_new_version(struct redis_cards *c);
/* Keys: the kind, and what it is about as hash tag. */
void card_key(struct key *k, enum card_kind kind, uint64_t id);
/* May nothing be believed that lies there? */
bool cards_are_lost(struct redis_cards *c);

static inline bool card_is_owed(struct redis_cards *c, enum card_kind kind, uint64_t id)
{
    return debts_state(&c->debts, (char)kind, id) != DEBT_NONE;
}

/* ---- cards_write.c ---- */

/* Writes what is owed, if it is time to try. Called before anything else is asked of Redis. */
void cards_pay(struct redis_cards *c);

void redis_put_post(struct cards *base, card_ticket ticket, const struct post_card *card,
                    bool change);
void redis_post_gone(struct cards *base, uint64_t id);
void redis_post_counts(struct cards *base, uint64_t id, int64_t likes, int64_t comments);
void redis_put_account(struct cards *base, card_ticket ticket, uint64_t id, struct str json);
void redis_forget_account(struct cards *base, uint64_t id);
void redis_put_likes(struct cards *base, card_ticket ticket, uint64_t viewer, const uint64_t *ids,
                     size_t n, uint64_t floor);
void redis_like(struct cards *base, uint64_t viewer, uint64_t post, bool on);
void redis_write(struct cards *base, const struct card_write *writes, size_t n);
