/* The graph: follows, blocks, mutes. Every change is one transaction that keeps the counters
 * equal to the edges and fires celebrity crossings exactly once. All are idempotent: doing it
 * again changes and emits nothing. */
#pragma once

#include "base/arena.h"
#include "port/cards.h"
#include "port/db.h"
#include "port/event.h"

struct follow_policy {
    int64_t celebrity_threshold; /* as it is now, see model/celebrity.h */
    int64_t max_following;
};

/* ERR_INVALID: oneself, or more than max_following. ERR_FORBIDDEN: a block lies between the two.
 * ERR_NOT_FOUND. */
enum err follow_create(struct tx *tx, uint64_t follower, uint64_t followee,
                       const struct follow_policy *p, bool *changed);
/* As many of these as can go together, which `taken` says: both accounts are active, no block lies
 * between them, no account follows more than it may, and the follow is new. Nothing is done for the
 * others, which are follow_create's. A few statements for all, and in a shared store one event for
 * several follows of one account (follow_all.h). `kept` lives until the commit hook has returned.
 */
struct follow_new {
    uint64_t follower, followee;
    bool taken;
    bool present; /* not taken, because it is there: follow_create would change nothing */
};
enum err follow_create_all(struct tx *tx, struct follow_new *follows, size_t n,
                           const struct follow_policy *p, struct arena *arena, struct arena *kept);
enum err follow_remove(struct tx *tx, uint64_t follower, uint64_t followee,
                       const struct follow_policy *p, bool *changed);
/* The same for a follow that did not end by the follower's wish: the event says how. */
enum err follow_remove_as(struct tx *tx, uint64_t follower, uint64_t followee, enum follow_end how,
                          const struct follow_policy *p, bool *changed);
/* Ends follows both ways. ERR_INVALID: oneself. */
enum err block_create(struct tx *tx, uint64_t blocker, uint64_t blocked,
                      const struct follow_policy *p, bool *changed);
enum err block_remove(struct tx *tx, uint64_t blocker, uint64_t blocked, bool *changed);
enum err mute_create(struct tx *tx, uint64_t muter, uint64_t muted, bool *changed);
enum err mute_remove(struct tx *tx, uint64_t muter, uint64_t muted, bool *changed);

/* Whom the account has muted: the first `max`, in rising order. */
enum err mute_ids(struct tx *tx, uint64_t muter, uint64_t *ids, size_t max, size_t *n);

/* Is there a block between the two, in either direction? */
enum err block_between(struct tx *tx, uint64_t a, uint64_t b, bool *blocked);
/* May `account` begin something with `other`? ERR_NOT_FOUND: the other is not active.
 * ERR_FORBIDDEN: a block lies between the two. */
enum err check_may_meet(struct tx *tx, uint64_t account, uint64_t other);

/* Lists of people that hang on an account. */
enum people { PEOPLE_FOLLOWERS, PEOPLE_FOLLOWING, PEOPLE_BLOCKED, PEOPLE_MUTED };

/* In falling account-id order below `below`. Followers and followees leave out accounts in a block
 * with the viewer; all leave out those that are not active. */
enum err follow_list(struct tx *tx, uint64_t account, enum people people, uint64_t viewer,
                     uint64_t below, size_t limit, struct arena *arena, struct account_card *out,
                     size_t *n);
