/* Signals: what the engine's sinks and the commit hook tell the nodes that hold open streams. A
 * signal names what is new (a kind, a key, a number) and the people whom it concerns; each node
 * sends it to those of them who are connected there. Two drivers: local, for a process of its own,
 * and Redis.
 *
 * The contract, checked in test/contract/signal_contract.c:
 *  1. A message that publish() took reaches `received` of every node that consumes, once or more,
 *     in the order of publication, whole: with all its receivers, perhaps in several parts. Or else
 *     consume() says `missed`: always so the first time, and after every possible loss.
 *  2. publish() of a driver that is not remote has called `received` before it returns, never
 *     fails and never blocks. consume() of such a driver has nothing to do.
 *  3. consume() waits for at most `wait_ms`, and returns earlier when something has come. One
 *     thread calls it at a time. An error: nothing is lost, the next call goes on from there.
 *  4. reset() forgets how far was consumed: the next consume() is a first one.
 *
 * publish() may be called by any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct signal;

/* What became new; `key` and `seq` mean what the kind says. */
enum signal_kind {
    SIGNAL_GROUP = 1,   /* group, the number of its entry */
    SIGNAL_READ,        /* group, how far it was read */
    SIGNAL_FEED,        /* author, the post */
    SIGNAL_FEED_PULLED, /* author, the post: to all who follow the author, whatever receivers it
                           names */
    SIGNAL_SESSION,     /* API key or 0, -: a session ended, or the account; with a key: the key was
                           revoked, for all whom it was used for */
    SIGNAL_MUTE,        /* author, 1: muted, 0: no longer */
    SIGNAL_EVERYBODY,   /* -, -: something was not published: all listeners read anew */
    SIGNAL_KINDS
};

struct signal_message {
    enum signal_kind kind;
    uint64_t key;
    int64_t seq;
    const uint64_t *receivers; /* account ids */
    size_t n;
};

/* Receivers of one call of publish() in all, at most. */
enum { SIGNAL_RECEIVERS_MAX = 4096 };

struct signal_ops {
    enum err (*publish)(struct signal *s, const struct signal_message *messages, size_t n);
    enum err (*consume)(struct signal *s, int64_t wait_ms, bool *missed);
    void (*reset)(struct signal *s);
    void (*free)(struct signal *s);
};

struct signal {
    const struct signal_ops *ops;
    bool remote; /* other nodes take part, and publish() and consume() may block */
    /* Set before the first publish() or consume(); called by the threads that call these, must not
     * block. NULL: no streams. */
    void (*received)(void *ctx, const struct signal_message *messages, size_t n);
    void *received_ctx;
};

/* ERR_UNAVAILABLE: it may have been published. */
static inline enum err signal_publish(struct signal *s, const struct signal_message *messages,
                                      size_t n)
{
    return s->ops->publish(s, messages, n);
}

/* Passes what was published since on to `received`. */
static inline enum err signal_consume(struct signal *s, int64_t wait_ms, bool *missed)
{
    return s->ops->consume(s, wait_ms, missed);
}

static inline void signal_reset(struct signal *s)
{
    s->ops->reset(s);
}

static inline void signal_free(struct signal *s)
{
    s->ops->free(s);
}
