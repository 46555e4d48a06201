/* The breaker counts; it never looks at a clock or a lane itself.
 *
 * A healthy lane pays one atomic read before a step and one atomic addition after it. The lock is
 * taken only when there is something to decide: a failure, a window with failures in it, the end of
 * a window, or a breaker that is not closed. An addition that slips in between the reading of the
 * window's time and its end is counted in the next window, which changes no verdict worth having.
 *
 * A window begins with the first count after the last one ended, not on a grid: a burst after a
 * pause is seen whole.
 *
 * A probe is not told apart from a delivery that began before the breaker opened and ends while the
 * probe is under way. Either says how things are now; the worst that follows is one more probe. */
#include "pipe/breaker.h"

#include <string.h>

#include "base/check.h"
#include "base/sync.h"

_Static_assert((int)ERR_COUNT <= (int)BREAKER_REASONS,
               "every kind of error has a count of its own");

static enum breaker_state state_of(struct breaker *b)
{
    return (enum breaker_state)atomic_load_explicit(&b->state, memory_order_acquire);
}

/* ---- under the lock ---- */

static void begin_window(struct breaker *b, int64_t now_us)
{
    memset(b->failed, 0, sizeof b->failed);
    b->key_count = 0;
    atomic_store(&b->any_failed, false);
    atomic_store(&b->total, 0);
    atomic_store(&b->window_us, now_us);
}

static void change(struct breaker *b, enum breaker_state state, enum err reason, int64_t now_us,
                   int64_t now_ms)
{
    b->reason = reason;
    b->since_ms = now_ms;
    b->probes = 0;
    b->probing = false;
    b->probe_after_us = 0;
    begin_window(b, now_us);
    atomic_store_explicit(&b->state, (int)state, memory_order_release);
}

static int64_t probe_delay_us(uint32_t probes)
{
    static const int64_t ladder_s[] = {2, 8, 32, 128, 240};
    return ladder_s[probes < COUNT_OF(ladder_s) ? probes : COUNT_OF(ladder_s) - 1] * 1000 * 1000;
}

/* Opens the breaker if the window as it stands is reason enough. */
static bool judge(struct breaker *b, int64_t now_us, int64_t now_ms)
{
    uint64_t total = atomic_load(&b->total);
    if (total < BREAKER_MIN || !atomic_load(&b->any_failed) || b->key_count < BREAKER_KEYS)
        return false;
    int worst = 1;
    for (int i = 2; i < ERR_COUNT; i++) {
        if (b->failed[i] > b->failed[worst])
            worst = i;
    }
    uint64_t failed = b->failed[worst];
    if (failed <= total - failed) /* half is not most */
        return false;
    change(b, BREAKER_OPEN, (enum err)worst, now_us, now_ms);
    b->opened++;
    b->opened_total = total;
    b->opened_failed = failed;
    b->probe_after_us = now_us + probe_delay_us(0);
    return true;
}

/* Key 0: the failure belongs to no key, so it counts as one of many keys. */
static void note_key(struct breaker *b, uint64_t key)
{
    for (uint32_t i = 0; i < b->key_count; i++) {
        if (b->keys[i] == key && key != 0)
            return;
    }
    if (key == 0)
        b->key_count = BREAKER_KEYS;
    else if (b->key_count < BREAKER_KEYS)
        b->keys[b->key_count++] = key;
}

static bool count_closed(struct breaker *b, enum err result, uint32_t n, uint64_t key,
                         int64_t now_us, int64_t now_ms)
{
    if (now_us - atomic_load(&b->window_us) >= BREAKER_WINDOW_US) {
        /* Successes that were counted without the lock may have made the sample large enough. */
        if (judge(b, now_us, now_ms))
            return true;
        begin_window(b, now_us);
    }
    atomic_fetch_add(&b->total, n);
    if (result) {
        b->failed[result] += n;
        note_key(b, key);
        atomic_store(&b->any_failed, true);
    }
    return judge(b, now_us, now_ms);
}

static bool count_probe(struct breaker *b, enum err result, int64_t now_us, int64_t now_ms)
{
    if (!b->probing)
        return false;
    if (!result) {
        change(b, BREAKER_CLOSED, OK, now_us, now_ms);
        return true;
    }
    b->probing = false;
    b->probes++;
    b->probe_after_us = now_us + probe_delay_us(b->probes);
    return false;
}

/* ---- the interface ---- */

void breaker_init(struct breaker *b, int64_t now_us)
{
    memset(b, 0, sizeof *b);
    lock_init_spinning(&b->lock);
    change(b, BREAKER_CLOSED, OK, now_us, 0);
}

void breaker_done(struct breaker *b)
{
    pthread_mutex_destroy(&b->lock);
}

bool breaker_admits(struct breaker *b, int64_t now_us, bool *probe, int64_t *due_us)
{
    *probe = false;
    enum breaker_state state = state_of(b);
    if (state == BREAKER_CLOSED)
        return true;
    if (state == BREAKER_BY_HAND)
        return false;
    pthread_mutex_lock(&b->lock);
    state = state_of(b);
    if (state == BREAKER_OPEN && !b->probing) {
        *probe = b->probing = now_us >= b->probe_after_us;
        if (!*probe && b->probe_after_us < *due_us)
            *due_us = b->probe_after_us;
    }
    pthread_mutex_unlock(&b->lock);
    return *probe || state == BREAKER_CLOSED;
}

void breaker_unused(struct breaker *b)
{
    pthread_mutex_lock(&b->lock);
    b->probing = false;
    pthread_mutex_unlock(&b->lock);
}

static bool count(struct breaker *b, enum err result, uint32_t n, uint64_t key, int64_t now_us,
                  int64_t now_ms)
{
    CHECK((unsigned)result < ERR_COUNT);
    if (!result && state_of(b) == BREAKER_CLOSED && !atomic_load(&b->any_failed) &&
        now_us - atomic_load(&b->window_us) < BREAKER_WINDOW_US) {
        atomic_fetch_add(&b->total, n);
        return false;
    }
    bool changed = false;
    pthread_mutex_lock(&b->lock);
    switch (state_of(b)) {
    case BREAKER_CLOSED:
        changed = count_closed(b, result, n, key, now_us, now_ms);
        break;
    case BREAKER_OPEN:
        changed = count_probe(b, result, now_us, now_ms);
        break;
    case BREAKER_BY_HAND:
        break;
    }
    pthread_mutex_unlock(&b->lock);
    return changed;
}

bool breaker_count(struct breaker *b, enum err result, uint32_t n, int64_t now_us, int64_t now_ms)
{
    return n > 0 && count(b, result, n, 0, now_us, now_ms);
}

bool breaker_fail(struct breaker *b, enum err error, uint64_t key, int64_t now_us, int64_t now_ms)
{
    CHECK(error);
    return count(b, error, 1, key, now_us, now_ms);
}

void breaker_stop(struct breaker *b, int64_t now_us, int64_t now_ms)
{
    pthread_mutex_lock(&b->lock);
    if (state_of(b) != BREAKER_BY_HAND)
        change(b, BREAKER_BY_HAND, OK, now_us, now_ms);
    pthread_mutex_unlock(&b->lock);
}

void breaker_start(struct breaker *b, int64_t now_us)
{
    pthread_mutex_lock(&b->lock);
    if (state_of(b) != BREAKER_CLOSED)
        change(b, BREAKER_CLOSED, OK, now_us, 0);
    pthread_mutex_unlock(&b->lock);
}

static uint32_t clamp(uint64_t n)
{
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

void breaker_look(struct breaker *b, struct breaker_look *out)
{
    pthread_mutex_lock(&b->lock);
    *out = (struct breaker_look){
        .state = state_of(b),
        .reason = b->reason,
        .since_ms = b->since_ms,
        .opened = b->opened,
        .failed = clamp(b->opened_failed),
        .total = clamp(b->opened_total),
        .probe_after_us = b->probe_after_us,
    };
    pthread_mutex_unlock(&b->lock);
}
