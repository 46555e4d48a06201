/* The local signal: a ring of the latest ranges. Each has a number; a cursor holds the number of
 * the last one it has read, and the process's own start, so that a cursor of nobody is told from
 * one that has read nothing yet. A consumer that falls behind the ring has missed something. */
#include "signal/local.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"

enum { KEEP = 1 << 14, STARTED = 1 };

struct local_signal {
    struct signal signal;
    pthread_mutex_t lock;
    uint64_t published;               /* how many so far */
    struct signal_range ranges[KEEP]; /* number n is at n % KEEP */
};

static enum err publish(struct signal *base, const struct signal_range *ranges, size_t n)
{
    struct local_signal *s = CONTAINER_OF(base, struct local_signal, signal);
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < n; i++)
        s->ranges[s->published++ % KEEP] = ranges[i];
    pthread_mutex_unlock(&s->lock);
    return OK;
}

static enum err consume(struct signal *base, struct signal_cursor *cursor, struct signal_batch *out)
{
    struct local_signal *s = CONTAINER_OF(base, struct local_signal, signal);
    pthread_mutex_lock(&s->lock);
    uint64_t at = cursor->part[1];
    out->n = 0;
    out->missed = cursor->part[0] != STARTED || s->published - at > KEEP;
    if (out->missed)
        at = s->published;
    while (at < s->published && out->n < SIGNAL_BATCH_MAX)
        out->ranges[out->n++] = s->ranges[at++ % KEEP];
    out->more = at < s->published;
    *cursor = (struct signal_cursor){{STARTED, at}};
    pthread_mutex_unlock(&s->lock);
    return OK;
}

static enum err invalidate(struct signal *base, const uint64_t *accounts, size_t n)
{
    for (size_t i = 0; base->invalidated && i < n; i++)
        base->invalidated(base->invalidated_ctx, accounts[i]);
    return OK;
}

static void local_free(struct signal *base)
{
    struct local_signal *s = CONTAINER_OF(base, struct local_signal, signal);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static const struct signal_ops local_ops = {
    .publish = publish, .consume = consume, .invalidate = invalidate, .free = local_free};

struct signal *signal_local_new(void)
{
    struct local_signal *s = calloc(1, sizeof *s);
    CHECK(s);
    s->signal.ops = &local_ops;
    pthread_mutex_init(&s->lock, NULL);
    return &s->signal;
}
