/* The inside of the Redis cards driver, shared by its files. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "port/cards.h"
#include "view/redis/client.h"
#include "view/redis/pending_invalidations.h"

enum {
    VERSION_MS = 60000,
    LIKES_MAX = 1000,
    /* A post's card: 'Q', then little-endian numbers, then the caption. Cards of an earlier format
     * begin with 'P' and hold an escaped caption: they have the same numbers, and count as
     * missing. */
    CARD_AUTHOR = 1,
    CARD_LIKES = 9,
    CARD_COMMENTS = 13,
    CARD_EDITED = 17,
    CARD_DELIVERY = 25,
    CARD_CAPTION = 26,
    /* An account's: 'B', three lengths of two bytes, then username, display name, avatar URL */
    ACCOUNT_LENGTHS = 1,
    ACCOUNT_TEXTS = 7,
    ACCOUNT_NO_TEXT = 0xffff,
};

enum card_kind {
    CARD_POST = 'P',
    CARD_ACCOUNT = 'B',
    CARD_LIKED = 'L',
    CARD_VERSION = 'V',
    CARD_DRAWN_ACCOUNT = 'A', /* JSON, of the version before: forgotten here, never written */
};

struct redis_cards {
    struct cards cards;
    struct client client;
    struct clock *clock;
    int64_t life_ms;
    _Atomic uint64_t post_hits, post_misses, looks;
    _Atomic bool suspect;
    _Atomic uint64_t restarts_trusted; /* see cards_are_lost */
    _Atomic uint64_t epoch;
    _Atomic int64_t look_at_ms;
    struct pending pending;
};

/* ---- cards.c ---- */

uint64_t cards_new_version(struct redis_cards *c);
/* Keys: the kind, and what it is about as hash tag. */
struct key card_key(enum card_kind kind, uint64_t id);
/* What lies at a card's key; texts are copied into the arena. */
enum card_state cards_read_post(struct redis_cards *c, struct str s, uint64_t id,
                                struct post_card *out, struct arena *arena);
bool cards_read_account(struct str s, uint64_t id, struct account_card *out, struct arena *arena);
/* May nothing be believed that lies there? */
bool cards_are_lost(struct redis_cards *c);

static inline bool card_is_owed(struct redis_cards *c, enum card_kind kind, uint64_t id)
{
    return pending_state(&c->pending, (char)kind, id) != PENDING_NONE;
}

/* ---- cards_write.c ---- */

/* Writes pending changes, if it is time to try. Called before any other command to Redis. */
void cards_pay(struct redis_cards *c);

void redis_write(struct cards *base, const struct card_write *writes, size_t n);
