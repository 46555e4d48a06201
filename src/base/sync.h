/* Locks and conditions of the kinds that the program needs more than once. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <time.h>

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
