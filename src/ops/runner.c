/* An event count decides when a thread sleeps. A thread notes the count, runs its step, and sleeps
 * only while the count is still the one it noted before the step: so a wake-up at any moment after
 * the step began leads to another call. The waker raises the count first and looks for sleepers
 * second; a sleeper says that it sleeps first and looks at the count second; with both sequentially
 * consistent one of them sees the other. The kernel's futex compares the count once more when the
 * sleep begins, which closes the last gap.
 *
 * The waker clears `asleep` and wakes every thread, so that only the first of many wake-ups in a
 * row costs a system call: the threads may need a while to get a processor. A thread that woke by
 * itself leaves the flag set, which costs one needless call. */
#include "ops/runner.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

enum { LONG_SLICE_NS = 100 * 1000 * 1000 }; /* the longest that Linux grants */

/* The kernel's struct sched_attr, which the C library does not declare. */
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice_ns, deadline_ns, period_ns;
};

struct runner_thread {
    struct runner *runner;
    runner_step step;
    void *ctx;
    int nice;
    char name[16];
    pthread_t thread;
    bool joined;
};

struct runner {
    _Atomic uint32_t count; /* of wake-ups */
    _Atomic bool asleep;    /* a thread may sleep */
    _Atomic bool stopping;
    unsigned thread_count;
    struct runner_thread *threads[RUNNER_THREADS_MAX];
};

/* Sleeps while the count is `seen`, until `due_us` at the latest. Spurious returns are harmless. */
static void sleep_until(struct runner *r, uint32_t seen, int64_t due_us)
{
    struct timespec due = {.tv_sec = due_us / 1000000, .tv_nsec = due_us % 1000000 * 1000};
    atomic_store(&r->asleep, true);
    if (atomic_load(&r->count) == seen && !atomic_load(&r->stopping))
        syscall(SYS_futex, (uint32_t *)(void *)&r->count, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG,
                seen, due_us == INT64_MAX ? NULL : &due, NULL, FUTEX_BITSET_MATCH_ANY);
}

/* The thread gives way to others by its niceness and by a long slice. From Linux 6.12 on, a thread
 * that wakes up preempts a running one with a longer slice at once. Other running threads, however
 * nice, keep the processor to the end of their slice, and a request that passes through several
 * threads would wait for milliseconds (ADR 0022). Both are preferences: a system that refuses them
 * serves a little less evenly. */
static void step_back(int nice)
{
    id_t self = (id_t)syscall(SYS_gettid);
    int wanted = getpriority(PRIO_PROCESS, self) + nice;
    struct scheduling how = {
        .size = sizeof how, .policy = SCHED_OTHER, .nice = wanted, .slice_ns = LONG_SLICE_NS};
    if (syscall(SYS_sched_setattr, self, &how, 0) != 0)
        (void)setpriority(PRIO_PROCESS, self, wanted);
}

static void *run(void *arg)
{
    struct runner_thread *t = arg;
    struct runner *r = t->runner;
    if (t->nice != 0)
        step_back(t->nice);
    while (!atomic_load(&r->stopping)) {
        uint32_t seen = atomic_load(&r->count);
        int64_t due_us = t->step(t->ctx);
        if (due_us == INT64_MAX || due_us > clock_mono_us(clock_system()))
            sleep_until(r, seen, due_us);
    }
    return NULL;
}

struct runner *runner_new(void)
{
    struct runner *r = calloc(1, sizeof(*r));
    CHECK(r);
    return r;
}

bool runner_add(struct runner *r, const char *name, runner_step step, void *ctx, unsigned threads,
                int nice)
{
    for (unsigned i = 0; i < threads; i++) {
        if (r->thread_count == RUNNER_THREADS_MAX)
            return false;
        struct runner_thread *t = calloc(1, sizeof(*t));
        CHECK(t);
        t->runner = r;
        t->step = step;
        t->ctx = ctx;
        t->nice = nice;
        snprintf(t->name, sizeof(t->name), "%s", name);
        if (pthread_create(&t->thread, NULL, run, t) != 0) {
            free(t);
            return false;
        }
        pthread_setname_np(t->thread, t->name);
        r->threads[r->thread_count++] = t;
    }
    return true;
}

void runner_wake(struct runner *r)
{
    atomic_fetch_add(&r->count, 1);
    if (atomic_load(&r->asleep) && atomic_exchange(&r->asleep, false))
        syscall(SYS_futex, (uint32_t *)(void *)&r->count, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG,
                RUNNER_THREADS_MAX, NULL, NULL, FUTEX_BITSET_MATCH_ANY);
}

bool runner_stop(struct runner *r, int64_t within_ms)
{
    atomic_store(&r->stopping, true);
    runner_wake(r);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until); /* the only clock that pthread_timedjoin_np knows */
    until.tv_sec += within_ms / 1000;
    until.tv_nsec += within_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    bool all = true;
    for (unsigned i = 0; i < r->thread_count; i++) {
        struct runner_thread *t = r->threads[i];
        t->joined = t->joined || pthread_timedjoin_np(t->thread, NULL, &until) == 0;
        all = all && t->joined;
    }
    return all;
}

void runner_free(struct runner *r)
{
    for (unsigned i = 0; i < r->thread_count; i++) {
        CHECK(r->threads[i]->joined);
        free(r->threads[i]);
    }
    free(r);
}
