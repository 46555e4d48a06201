/* Locks, conditions and threads. */
#include "base/sync.h"

#include <signal.h>

void lock_init_spinning(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

struct timespec cond_deadline_us(int64_t us_from_now)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + us_from_now % 1000000 * 1000;
    return (struct timespec){t.tv_sec + us_from_now / 1000000 + ns / 1000000000, ns % 1000000000};
}

struct timespec cond_deadline(int64_t ms_from_now)
{
    return cond_deadline_us(ms_from_now * 1000);
}

bool thread_start(struct thread *t, const char *name, void *(*main)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    t->started = pthread_create(&t->id, NULL, main, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (t->started)
        pthread_setname_np(t->id, name);
    return t->started;
}

void thread_join(struct thread *t)
{
    if (t->started)
        pthread_join(t->id, NULL);
    t->started = false;
}
