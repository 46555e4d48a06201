/* Locks, conditions and threads of the kinds that the program needs more than once. */
#pragma once

#include <pthread.h>
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
void lock_init_spinning(pthread_mutex_t *lock);

/* Its deadlines are of the monotonic clock: cond_deadline. */
void cond_init(pthread_cond_t *cond);
struct timespec cond_deadline(int64_t ms_from_now);
struct timespec cond_deadline_us(int64_t us_from_now);

/* A thread that is started at most once; all zero: it was not. */
struct thread {
    pthread_t id;
    bool started;
};

/* False: the system has no room for another thread. The name has at most 15 characters. Signals
 * stay with the threads that were there before. */
bool thread_start(struct thread *t, const char *name, void *(*main)(void *), void *arg);
void thread_join(struct thread *t); /* waits for its end, if it was started */
