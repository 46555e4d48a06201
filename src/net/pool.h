/* Threads for work that may block (SQL reads, argon2): a bounded queue, oldest first. In a pool
 * with shares no owner has more than so many tasks in the queue, and owners take turns: who has one
 * task waits for one of each other owner, not for all of theirs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool;

/* Embed it in your own struct; the pool owns it from pool_submit until run() is called. */
struct pool_task {
    void (*run)(struct pool_task *task);
    struct pool_task *next;
    uint64_t owner; /* whose share it takes; of pools with shares */
    uint64_t round; /* the pool's own */
};

struct pool *pool_new(unsigned threads, size_t queue_max, const char *name);
void pool_set_share(struct pool *p, size_t tasks); /* before the first task; 0: no shares */
/* false: full or stopping, or the owner's share is in the queue already */
bool pool_submit(struct pool *p, struct pool_task *task);
/* For a task that runs: takes at most `max` of those that wait, oldest first, to be run along with
 * it. Returns how many. */
size_t pool_take(struct pool *p, struct pool_task **tasks, size_t max);
size_t pool_depth(struct pool *p);
void pool_free(struct pool *p); /* runs what is queued, then joins */
