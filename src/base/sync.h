/* Locks, conditions and threads of the kinds that the program needs more than once. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Takes a lock and holds it until the end of the enclosing block. */
#define LOCK_SCOPE(lock)                                                                           \
    __attribute__((cleanup(lock_scope_end), unused)) pthread_mutex_t *lock_held =                  \
        lock_scope_begin(lock)

static inline pthread_mutex_t *lock_scope_begin(pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    return lock;
}
static inline void lock_scope_end(pthread_mutex_t **lock)
{
    pthread_mutex_unlock(*lock);
}

/* For locks that are held for a copy or two: spinning a little beats sleeping. */
static inline void lock_init_spinning(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

/* Its deadlines are of the monotonic clock: cond_deadline. */
static inline void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

static inline struct timespec cond_deadline(int64_t ms_from_now)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + ms_from_now % 1000 * 1000000;
    return (struct timespec){t.tv_sec + ms_from_now / 1000 + ns / 1000000000, ns % 1000000000};
}

/* A thread that is started at most once; all zero: it was not. */
struct thread {
    pthread_t id;
    bool started;
};

/* False: the system has no room for another thread. The name has at most 15 characters. Signals
 * stay with the threads that were there before. */
static inline bool thread_start(struct thread *t, const char *name, void *(*main)(void *),
                                void *arg)
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

/* Waits for its end, if it was started. */
static inline void thread_join(struct thread *t)
{
    if (t->started)
        pthread_join(t->id, NULL);
    t->started = false;
}
