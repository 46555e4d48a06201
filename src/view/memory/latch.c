/* The slow half of a latch: spin, then sleep on a futex.
 *
 * State 2 means that a sleeper may be there. A thread that has waited takes the latch in state 2,
 * since it cannot know whether others still sleep: at worst one wake-up is wasted. */
#include "view/memory/latch.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 60 };

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void latch_wait(struct latch *l)
{
    for (int i = 0; i < SPINS; i++) {
        uint32_t expected = 0;
        if (atomic_load_explicit(&l->state, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&l->state, &expected, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        pause_briefly();
    }
    while (atomic_exchange_explicit(&l->state, 2, memory_order_acquire) != 0)
        (void)syscall(SYS_futex, &l->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

void latch_wake(struct latch *l)
{
    (void)syscall(SYS_futex, &l->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
