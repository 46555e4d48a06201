/* The engine's locks: held for a few dozen instructions, by a handful of
 * threads. Spinning a little before sleeping saves the switch that would cost
 * more than the wait. */
#pragma once

#include <pthread.h>

static inline void lock_init(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}
