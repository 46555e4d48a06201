/* A caller that finds nothing idle waits a bounded time and is then turned away, so that a slow
 * disk or server makes callers fail instead of pile up. */
#include "db/idle.h"

#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/sync.h"

void idle_init(struct idle *i, size_t max)
{
    *i = (struct idle){.max = max};
    pthread_mutex_init(&i->lock, NULL);
    cond_init(&i->returned);
    i->items = calloc(max, sizeof *i->items);
    CHECK(i->items);
}

void idle_done(struct idle *i)
{
    free(i->items);
    pthread_cond_destroy(&i->returned);
    pthread_mutex_destroy(&i->lock);
}

void *idle_take(struct idle *i, int64_t wait_ms)
{
    struct timespec deadline = cond_deadline(wait_ms);
    LOCK_SCOPE(&i->lock);
    while (i->count == 0)
        if (pthread_cond_timedwait(&i->returned, &i->lock, &deadline) == ETIMEDOUT)
            return NULL;
    return i->items[--i->count];
}

void idle_give(struct idle *i, void *item)
{
    LOCK_SCOPE(&i->lock);
    CHECK(i->count < i->max);
    i->items[i->count++] = item;
    pthread_cond_signal(&i->returned);
}
