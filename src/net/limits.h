/* Rate limits: token buckets by class and key (an account id, or the hash of an address), in a
 * table of fixed size. A bucket that is full again is forgotten without loss; when a table sees
 * more busy keys than it has room for, the one nearest to full is forgotten, which favours its
 * owner. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/str.h"

struct limits;

/* For RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset and Retry-After. */
struct limit_state {
    int64_t limit;         /* the burst */
    int64_t remaining;     /* that may be taken at once, now */
    int64_t reset_s;       /* until the bucket is full again, rounded up */
    int64_t retry_after_s; /* 0 when taken, else at least 1 */
};

/* At most about `entries_max` buckets at a time (rounded up to a power of two), 24 bytes each. */
struct limits *limits_new(struct clock *clock, size_t entries_max);
void limits_free(struct limits *l);

/* Takes one token. A rate of 0 or less: no limit, *out all zero. `burst` is at least 1. Any thread.
 */
bool limits_take(struct limits *l, unsigned class, uint64_t key, int64_t rate_per_s, int64_t burst,
                 struct limit_state *out);

/* Gives a token back that was taken at this rate for something that did not happen. */
void limits_give_back(struct limits *l, unsigned class, uint64_t key, int64_t rate_per_s);

/* The key of a peer's address as in http_exchange.peer. An IPv6 peer commands at least a /64, so
 * that is what counts. */
uint64_t limits_peer_key(struct str peer);
