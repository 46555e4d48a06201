/* A lock of four bytes, one for every 64 neighbouring accounts: sections are short (a push is some
 * 20 ns, a page of followers a microsecond), so a waiter first spins briefly, then sleeps in the
 * kernel, because the holder may have been preempted. Not fair, not recursive. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct latch {
    _Atomic uint32_t state; /* 0 free, 1 held, 2 held and a thread may sleep */
};

void latch_wait(struct latch *l);
void latch_wake(struct latch *l);

static inline void latch_lock(struct latch *l)
{
    uint32_t expected = 0;
    if (!atomic_compare_exchange_strong_explicit(&l->state, &expected, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        latch_wait(l);
}

static inline void latch_unlock(struct latch *l)
{
    if (atomic_exchange_explicit(&l->state, 0, memory_order_release) == 2)
        latch_wake(l);
}
