/* Stops a lane in which most deliveries fail for one reason, instead of letting it fill the dead
 * letters.
 *
 * Deliveries are counted in windows of BREAKER_WINDOW_US. When a window, or the one that is
 * running, has at least BREAKER_MIN deliveries and more than half of them failed for the same
 * reason, the breaker opens, unless all its failures are of fewer than BREAKER_KEYS keys: those
 * have a trouble of their own, which is no reason to hold up the others. Open, it lets one delivery
 * through at a time, as a probe, after 2, 8, 32, 128, then each 240 s; the first that succeeds
 * closes it. An operator may stop a lane by hand, which no probe undoes, or open it again at once.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
    BREAKER_MIN = 20,
    BREAKER_KEYS = 3,
    BREAKER_WINDOW_US = 10 * 1000 * 1000,
    BREAKER_REASONS = 32
};

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_BY_HAND };

struct breaker {
    /* Read without the lock, written under it; `total` is also counted up without it. */
    _Atomic int state;         /* enum breaker_state */
    _Atomic int64_t window_us; /* when the running window began */
    _Atomic uint64_t total;    /* deliveries in it */
    _Atomic bool any_failed;   /* in it */

    pthread_mutex_t lock;
    enum err reason; /* OPEN: what most failed for */
    int64_t since_ms;
    int64_t probe_after_us;
    uint32_t probes;                  /* that failed since it opened */
    bool probing;                     /* one is under way */
    uint64_t opened;                  /* times */
    uint64_t failed[BREAKER_REASONS]; /* in the running window, by enum err */
    uint64_t keys[BREAKER_KEYS];      /* the first different ones that failed in it */
    uint32_t key_count;
    uint64_t opened_total, opened_failed; /* of the window that opened it */
};

void breaker_init(struct breaker *b, int64_t now_us);
void breaker_done(struct breaker *b);

/* May a delivery begin? Open: true for a probe whose time has come (then *probe; deliver one, and
 * report its outcome by breaker_count or breaker_unused), else *due_us is lowered to when to ask
 * again. It stays as it is while a probe is under way and while stopped by hand: then the call that
 * changes the state is what to wake up for. */
bool breaker_admits(struct breaker *b, int64_t now_us, bool *probe, int64_t *due_us);
void breaker_unused(struct breaker *b); /* a probe found nothing to deliver */
/* n deliveries ended with `result` (OK or the error). True: the breaker changed its state just now
 * (look with breaker_look, and log it). What began before it opened and ends while no probe is
 * under way says nothing any more, and is not counted. */
bool breaker_count(struct breaker *b, enum err result, uint32_t n, int64_t now_us, int64_t now_ms);
/* One delivery of this key failed; failures told by breaker_count count as many keys. */
bool breaker_fail(struct breaker *b, enum err error, uint64_t key, int64_t now_us, int64_t now_ms);
void breaker_stop(struct breaker *b, int64_t now_us, int64_t now_ms); /* by hand */
void breaker_start(struct breaker *b, int64_t now_us); /* closes it, whatever it was */

struct breaker_look {
    enum breaker_state state;
    enum err reason;
    int64_t since_ms; /* wall time of the last change; 0: closed since the start */
    uint64_t opened;
    uint32_t failed, total; /* of the window that opened it */
    int64_t probe_after_us; /* OPEN */
};
void breaker_look(struct breaker *b, struct breaker_look *out);
