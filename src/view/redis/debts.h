/* Changes of cards that could not be written to Redis yet, by key. Any thread. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct debt {
    uint64_t id; /* never 0 */
    char kind;   /* of card */
    bool gone;   /* a tombstone is owed; otherwise the card has to be forgotten */
};

enum debt_state { DEBT_NONE, DEBT_FORGET, DEBT_GONE };

struct debts {
    pthread_mutex_t lock;
    struct debt *places; /* open addressing; id 0: free */
    _Atomic size_t count;
    _Atomic int64_t blind_until_ms; /* too much was owed */
    int64_t pay_at_ms, life_ms;
};

/* life_ms: how long a card lives in Redis. When more is owed than can be remembered every card
 * reads as to be forgotten for that long. */
void debts_init(struct debts *d, int64_t life_ms);
void debts_done(struct debts *d);

void debts_add(struct debts *d, char kind, uint64_t id, bool gone);
enum debt_state debts_state(struct debts *d, char kind, uint64_t id);
/* Some of what is owed, if it is time to try again and nobody else does. */
size_t debts_due(struct debts *d, struct debt *out, size_t max);
/* These were paid. */
void debts_strike(struct debts *d, const struct debt *paid, size_t n);
