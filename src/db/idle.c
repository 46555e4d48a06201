/* Whoever finds nothing idle waits a bounded time and is then turned away, so that a slow disk or
 * server makes callers fail instead of pile up. */
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
    void *item = NULL;
    pthread_mutex_lock(&i->lock);
    if (i->count == 0) {
        struct timespec deadline = cond_deadline(wait_ms);
        int waited = 0;
        while (i->count == 0 && waited != ETIMEDOUT)
            waited = pthread_cond_timedwait(&i->returned, &i->lock, &deadline);
    }
    if (i->count)
        item = i->items[--i->count];
    pthread_mutex_unlock(&i->lock);
    return item;
}

void idle_give(struct idle *i, void *item)
{
    pthread_mutex_lock(&i->lock);
    CHECK(i->count < i->max);
    i->items[i->count++] = item;
    pthread_mutex_unlock(&i->lock);
    pthread_cond_signal(&i->returned);
}
