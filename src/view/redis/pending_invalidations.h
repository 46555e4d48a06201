/* Changes of cards that could not be written to Redis yet, by key. Any thread. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

struct pending_invalidation {
    uint64_t id; /* never 0 */
    char kind;   /* of card */
    bool gone;   /* a tombstone is owed; otherwise the card has to be forgotten */
};

enum pending_kind { PENDING_NONE, PENDING_FORGET, PENDING_GONE };

struct pending {
    pthread_mutex_t lock;
    struct map entries;
    _Atomic size_t count;           /* of them, readable without the lock */
    _Atomic int64_t blind_until_ms; /* too much was owed */
    int64_t pay_at_ms, life_ms;
};

/* life_ms: how long a card lives in Redis. When more is owed than can be remembered every card
 * reads as to be forgotten for that long. */
void pending_init(struct pending *d, int64_t life_ms);
void pending_done(struct pending *d);

void pending_add(struct pending *d, char kind, uint64_t id, bool gone);
enum pending_kind pending_state(struct pending *d, char kind, uint64_t id);
/* Some pending invalidations, if it is time to try again and no other thread does. */
size_t pending_due(struct pending *d, struct pending_invalidation *out, size_t max);
/* These were paid. */
void pending_remove(struct pending *d, const struct pending_invalidation *paid, size_t n);
