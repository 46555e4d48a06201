/* The pool: one mutex, one list, N threads. Tasks block for tens of microseconds at least, so the
 * lock is not what they wait for. The same holds for the walk over the list of a pool with shares:
 * its queue is short.
 *
 * With shares, the list is sorted by round. An owner's first task joins the round that is being
 * served, each further one the round after its last: one task of every owner in each round. */
#include "net/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/sync.h"

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct pool_task *first, *last;
    size_t depth, queue_max, share_max;
    uint64_t round; /* of the task that was taken last */
    bool stopping;
    unsigned thread_count;
    char name[12];
    struct thread threads[];
};

/* The lock is held. NULL: none waits. */
static struct pool_task *pop(struct pool *p)
{
    struct pool_task *task = p->first;
    if (!task)
        return NULL;
    p->first = task->next;
    if (!p->first)
        p->last = NULL;
    p->depth--;
    p->round = task->round;
    task->next = NULL;
    return task;
}

static void *run_tasks(void *arg)
{
    struct pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->first && !p->stopping)
            pthread_cond_wait(&p->work, &p->lock);
        struct pool_task *task = pop(p);
        if (!task)
            break; /* stopping, and nothing left */
        pthread_mutex_unlock(&p->lock);
        task->run(task);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct pool *pool_new(unsigned threads, size_t queue_max, const char *name)
{
    CHECK(threads > 0 && queue_max > 0);
    struct pool *p = calloc(1, sizeof *p + threads * sizeof p->threads[0]);
    CHECK(p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    p->queue_max = queue_max;
    snprintf(p->name, sizeof p->name, "%s", name);

    for (unsigned i = 0; i < threads; i++) {
        char thread_name[16];
        snprintf(thread_name, sizeof thread_name, "%s-%u", p->name, i % 1000);
        CHECK(thread_start(&p->threads[i], thread_name, run_tasks, p));
        p->thread_count++;
    }
    return p;
}

void pool_set_share(struct pool *p, size_t tasks)
{
    p->share_max = tasks;
}

static void insert_after(struct pool *p, struct pool_task *before, struct pool_task *task)
{
    task->next = before ? before->next : p->first;
    *(before ? &before->next : &p->first) = task;
    if (!task->next)
        p->last = task;
}

/* False: the owner's share is in the queue already. */
static bool insert_by_round(struct pool *p, struct pool_task *task)
{
    size_t waiting = 0;
    task->round = p->round;
    for (const struct pool_task *other = p->first; other; other = other->next) {
        if (other->owner == task->owner) {
            waiting++;
            task->round = other->round + 1;
        }
    }
    if (waiting >= p->share_max)
        return false;
    struct pool_task *before = NULL, *next = p->first;
    for (; next && next->round <= task->round; next = next->next)
        before = next;
    insert_after(p, before, task);
    return true;
}

/* The lock is held. */
static bool insert(struct pool *p, struct pool_task *task)
{
    if (p->stopping || p->depth >= p->queue_max)
        return false;
    if (p->share_max > 0)
        return insert_by_round(p, task);
    insert_after(p, p->last, task);
    return true;
}

bool pool_submit(struct pool *p, struct pool_task *task)
{
    pthread_mutex_lock(&p->lock);
    bool taken = insert(p, task);
    if (taken) {
        p->depth++;
        pthread_cond_signal(&p->work);
    }
    pthread_mutex_unlock(&p->lock);
    return taken;
}

size_t pool_take(struct pool *p, struct pool_task **tasks, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&p->lock);
    while (n < max && p->first)
        tasks[n++] = pop(p);
    pthread_mutex_unlock(&p->lock);
    return n;
}

size_t pool_depth(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    size_t depth = p->depth;
    pthread_mutex_unlock(&p->lock);
    return depth;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->thread_count; i++)
        thread_join(&p->threads[i]);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
