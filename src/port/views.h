/* The state derived from truth: this header changes it, saves it, loads it and hands out the three
 * ports that read and deliver: port/graph.h, port/timelines.h and port/inboxes.h. Two drivers: in
 * memory with snapshots, Redis.
 *
 * One apply() changes all three, because the changes of one account must be seen in their order.
 *
 * The contract, checked in test/contract/views_cases.c:
 *  1. apply() is idempotent and takes effect before it returns; changes to one account are seen in
 *     order.
 *  2. save(position) makes durable a state that holds at least the effects of every event up to
 *     position; a later open reports that position. A save that dies half-way leaves the previous
 *     one in place. A driver whose state outlives the process has nothing to save: its position is
 *     VIEWS_LASTING as soon as it was loaded from truth once.
 *  3. A driver that has lost its state, or a part of it, says so instead of answering from the
 *     rest, until it was loaded again; how is said in the three ports.
 *  4. clear() takes everything away, of shared views also the cards, and leaves the driver as one
 *     that lost its state; loaded() ends that. While suspect() is on the driver answers this
 *     process as one that lost its state, whatever it holds. is_complete() says whether it holds
 *     everything, suspect or not, the same on every node; ERR_UNAVAILABLE: no answer.
 *  5. Of a `remote` driver: save() makes a second copy of everything done before it, where there is
 *     a place for one. ERR_CONFLICT: some of what was done since the last save that succeeded may
 *     be lost (its only copy died); the next save begins anew. One that is not remote answers so
 *     while its state is lost: there is nothing worth saving. Reads do not wait for a driver that
 *     is known to be away.
 *  6. listening() names those of an audience's members to whom a signal must go. After
 *     listen(account, on) returned, it names the account after every push that a reader may have
 *     missed who read after that. A remote driver names all of them: it does not know who is
 *     listened to at other nodes. */
#pragma once

#include "port/graph.h"
#include "port/inboxes.h"
#include "port/timelines.h"

struct views;

enum view_change_kind {
    VIEW_ACCOUNT,   /* `account` exists; value: when last seen (ms); on: its timeline and its inbox
                       start empty and complete; off: dropped (to be rebuilt when read) */
    VIEW_LAST_SEEN, /* `account` was seen at `value` (ms) */
    VIEW_HIDE,      /* on: `account` is suspended or deleted, only itself sees its posts */
    VIEW_FOLLOW,    /* on/off: `account` follows `other` */
    VIEW_MUTE,      /* on/off: `account` has muted `other` */
    VIEW_POST,      /* on: `account` posted `other` (post id): into the own timeline at once, and
                       into the author's pull list when value is DELIVERY_PULL; off: takes it out of
                       both again */
    VIEW_MEMBER,  /* on/off: `account` is a member of group `other`; on: the group's activity in the
                     inbox is at least the greater of `event` and `value` */
    VIEW_MESSAGE, /* the message `event` in group `other` concerns `account`, who wrote it or is
                     named in it: into the inbox at once */
};

struct view_change {
    enum view_change_kind kind;
    bool on;
    uint64_t account;
    uint64_t other;
    int64_t value;
    uint64_t event; /* the event that tells of it; of two changes of one edge or one account's being
                       hidden the one of the greater event counts, in whatever order they come. 0:
                       read from truth, or applied in order: counts unless an event said otherwise.
                       A driver that is fed in the order of commits need not look. */
};

struct view_stats {
    uint64_t accounts, follows, timelines, entries, dropped, pull_lists, bytes;
    uint64_t timeline_bytes; /* of bytes: the timelines' entries, slack and headers */
    uint64_t groups;         /* that have a member */
    uint64_t memberships, inboxes, inbox_entries; /* inboxes: not dropped */
    uint64_t inbox_bytes;                         /* of bytes: entries, slack and headers */
    uint64_t saved_position;
    int64_t saved_at_ms, save_took_ms, save_bytes;
};

struct views_ops {
    enum err (*apply)(struct views *v, const struct view_change *changes, size_t n);
    enum err (*listen)(struct views *v, uint64_t account, bool on);
    size_t (*listening)(struct views *v, const uint64_t *members, size_t n, uint64_t *accounts);
    enum err (*save)(struct views *v, uint64_t position);
    enum err (*clear)(struct views *v);
    enum err (*loaded)(struct views *v);
    enum err (*is_complete)(struct views *v, bool *complete);
    void (*suspect)(struct views *v, bool on);
    void (*stats)(struct views *v, struct view_stats *out);
    void (*free)(struct views *v);
};

/* A position beyond all others: the state outlives the process, and what was applied to it need
 * not be applied again at a start. */
#define VIEWS_LASTING UINT64_MAX

struct views {
    const struct views_ops *ops;
    struct graph *graph;
    struct timelines *timelines;
    struct inboxes *inboxes;
    uint64_t loaded_position; /* what the state found at open covers; 0: nothing was found, or it
                                 is not complete */
    size_t cap;               /* entries a timeline holds at most */
    bool remote;              /* other nodes use the same state, and every call may block: never on
                                 an event loop */
    uint64_t epoch; /* positions in walks (audience_cursor.after) mean something only to views of
                       the same epoch */
};

/* Makes changes visible; called after their COMMIT and before the answer. */
static inline enum err views_apply(struct views *v, const struct view_change *changes, size_t n)
{
    return v->ops->apply(v, changes, n);
}

/* The account has an open stream in this process, or no longer. On again, or off again: no
 * difference. */
static inline enum err views_listen(struct views *v, uint64_t account, bool on)
{
    return v->ops->listen(v, account, on);
}

/* The account ids of those members (handles) who are listened to; how many. Never blocks. */
static inline size_t views_listening(struct views *v, const uint64_t *members, size_t n,
                                     uint64_t *accounts)
{
    return v->ops->listening(v, members, n, accounts);
}

static inline enum err views_save(struct views *v, uint64_t position)
{
    return v->ops->save(v, position);
}
static inline enum err views_clear(struct views *v)
{
    return v->ops->clear(v);
}
static inline enum err views_loaded(struct views *v)
{
    return v->ops->loaded(v);
}
static inline enum err views_is_complete(struct views *v, bool *complete)
{
    return v->ops->is_complete(v, complete);
}
static inline void views_suspect(struct views *v, bool on)
{
    v->ops->suspect(v, on);
}
static inline void views_stats(struct views *v, struct view_stats *out)
{
    v->ops->stats(v, out);
}
static inline void views_free(struct views *v)
{
    v->ops->free(v);
}
