/* Idle connections, for the pools of readers of both drivers. Their number is the limit on reads at
 * a time. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct idle {
    pthread_mutex_t lock;
    pthread_cond_t returned;
    void **items; /* a stack: the warmest is taken first */
    size_t count, max;
};

void idle_init(struct idle *i, size_t max);
void idle_done(struct idle *i);
/* NULL: none came back within wait_ms. */
void *idle_take(struct idle *i, int64_t wait_ms);
void idle_give(struct idle *i, void *item);
