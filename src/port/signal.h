/* What nodes tell each other about things that are in truth alone: entries of a group's log that
 * change no inbox, and accounts of which something else has changed (a read mark, the end of a
 * session). Two drivers: local, for a process of its own, and Redis.
 *
 * The contract, checked in test/contract/signal_contract.c:
 *  1. Every consumer that reads on gets each published range at least once, in the order of
 *     publication, or else `missed` says that something was published that is not known any more:
 *     always so the first time.
 *  2. Of a remote driver: after the next publish() a trace (port/invalidation.h) in which consume()
 *     was called is not the same any more.
 *  3. invalidate(): whoever watches these accounts looks again, on every node. A driver that is not
 *     remote calls `invalidated` for each before it returns; with a remote one a trace in which the
 *     account's inbox was read is not the same any more.
 *
 * Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct signal;

/* Entries of a group, by their numbers. Group 0: of any group, and not all of them could be
 * published. */
struct signal_range {
    uint64_t group;
    int64_t first, last;
};

enum { SIGNAL_BATCH_MAX = 4096 };
struct signal_batch {
    struct signal_range ranges[SIGNAL_BATCH_MAX];
    size_t n;
    bool missed; /* something published since is not among them and never will be */
    bool more;   /* consume again */
};

/* How far a consumer has read. All zeros: nothing yet. */
struct signal_cursor {
    uint64_t part[2];
};

struct signal_ops {
    enum err (*publish)(struct signal *s, const struct signal_range *ranges, size_t n);
    enum err (*consume)(struct signal *s, struct signal_cursor *cursor, struct signal_batch *out);
    enum err (*invalidate)(struct signal *s, const uint64_t *accounts, size_t n);
    void (*free)(struct signal *s);
};

struct signal {
    const struct signal_ops *ops;
    bool remote; /* other nodes take part, and every call may block */
    /* Set before the first invalidate(), called by any thread, must not block. */
    void (*invalidated)(void *ctx, uint64_t account);
    void *invalidated_ctx;
};

/* ERR_UNAVAILABLE: it may have been published. */
static inline enum err signal_publish(struct signal *s, const struct signal_range *ranges, size_t n)
{
    return s->ops->publish(s, ranges, n);
}

/* What was published since. An error: cursor is as it was. */
static inline enum err signal_consume(struct signal *s, struct signal_cursor *cursor,
                                      struct signal_batch *out)
{
    return s->ops->consume(s, cursor, out);
}

static inline enum err signal_invalidate(struct signal *s, const uint64_t *accounts, size_t n)
{
    return s->ops->invalidate(s, accounts, n);
}

static inline void signal_free(struct signal *s)
{
    s->ops->free(s);
}
