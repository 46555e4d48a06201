/* Threads for work that may block (SQL reads, argon2): a bounded queue, oldest first. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct pool;

/* Embed it in your own struct; the pool owns it from pool_submit until run() is called. */
struct pool_task {
    void (*run)(struct pool_task *task);
    struct pool_task *next;
};

struct pool *pool_new(unsigned threads, size_t queue_max, const char *name);
bool pool_submit(struct pool *p, struct pool_task *task); /* false: full or stopping */
/* For a task that runs: takes at most `max` of those that wait, oldest first, to be run along with
 * it. Returns how many. */
size_t pool_take(struct pool *p, struct pool_task **tasks, size_t max);
size_t pool_depth(struct pool *p);
void pool_free(struct pool *p); /* runs what is queued, then joins */
