/* Inboxes: the order of a person's groups, the one with the latest activity first. Readers take the
 * content, and whether they are still a member, from truth; so a group too many does no harm, and a
 * missing one would.
 *
 * The contract, checked in test/contract/inboxes_cases.c:
 *  1. push() and apply(MESSAGE) raise the group's activity in each inbox to at least that given; an
 *     inbox without the group gets it. Again, late or in another order: the greatest activity of
 *     all counts. A dropped inbox stays dropped.
 *  2. After apply(MEMBER on) returned a ready inbox holds the group; after apply(MEMBER off) it
 *     does not, until something is pushed.
 *  3. read() returns the groups in the order of falling activity, each once, all of those there are
 *     below `below`. ERR_NEEDS_TRUTH: it is dropped, building, lost or suspect.
 *  4. begin(), anew(), end() and give_up() are to an inbox what port/timelines.h says of a
 *     timeline: what is pushed, joined and left between begin and end is not lost.
 *  5. After drop() returned an inbox is dropped until a rebuild that begins later has ended. One
 *     that was under way has no result: what it has read may be what was dropped. */
#pragma once

#include "port/timelines.h"

struct inboxes;

/* A group in an inbox. Activities are ids of events, so no two in one inbox are equal. */
struct inbox_entry {
    uint64_t group;
    uint64_t activity;
};

/* *changed: in how many inboxes the activity rose. */
struct inbox_push {
    uint64_t group, activity;
    const uint64_t *members;
    size_t n, changed;
};

/* Groups that an inbox is sure to hold. A driver may drop one that would hold more: its owner's
 * pages come from truth then. */
enum { INBOX_MAX = 20000 };

struct inboxes_ops {
    enum err (*push)(struct inboxes *b, struct inbox_push *pushes, size_t n);
    enum err (*drop)(struct inboxes *b, const uint64_t *members, size_t n);
    enum err (*rebuild)(struct inboxes *b, uint64_t account, enum view_rebuild step,
                        const struct inbox_entry *entries, size_t n);
    enum err (*read)(struct inboxes *b, uint64_t account, uint64_t below, struct inbox_entry *out,
                     size_t max, size_t *n);
};

struct inboxes {
    const struct inboxes_ops *ops;
};

/* Several messages, each to members of its own. An error: any of them may have been pushed. */
static inline enum err inboxes_push(struct inboxes *b, struct inbox_push *pushes, size_t n)
{
    return b->ops->push(b, pushes, n);
}

static inline enum err inboxes_push_one(struct inboxes *b, uint64_t group, uint64_t activity,
                                        const uint64_t *members, size_t n, size_t *changed)
{
    struct inbox_push push = {group, activity, members, n, 0};
    enum err e = b->ops->push(b, &push, 1);
    *changed = push.changed;
    return e;
}

/* For members who will not be pushed to: those of a large group who were not active lately. */
static inline enum err inboxes_drop(struct inboxes *b, const uint64_t *members, size_t n)
{
    return b->ops->drop(b, members, n);
}

/* The errors of the four are those of timelines. */
static inline enum err inboxes_begin(struct inboxes *b, uint64_t account)
{
    return b->ops->rebuild(b, account, VIEW_REBUILD_BEGIN, NULL, 0);
}
static inline enum err inboxes_anew(struct inboxes *b, uint64_t account)
{
    return b->ops->rebuild(b, account, VIEW_REBUILD_ANEW, NULL, 0);
}

/* `entries` (falling by activity) are all groups of the account. ERR_CONFLICT: there is no result;
 * a reader goes on with what they have read. */
static inline enum err inboxes_end(struct inboxes *b, uint64_t account,
                                   const struct inbox_entry *entries, size_t n)
{
    return b->ops->rebuild(b, account, VIEW_REBUILD_END, entries, n);
}
static inline enum err inboxes_give_up(struct inboxes *b, uint64_t account)
{
    return b->ops->rebuild(b, account, VIEW_REBUILD_GIVE_UP, NULL, 0);
}

/* The next groups below `below`, the activity of the last entry so far (UINT64_MAX: from the top).
 * A page may be shorter than `max` though there is more; one with nothing is the end. A driver may
 * know activities without their node: then what falls into one millisecond comes on one page, if it
 * fits, so that the next one may as well be read from truth; when `below` comes from truth it may
 * repeat what was in the same millisecond. ERR_NOT_FOUND: no such account. */
static inline enum err inboxes_read(struct inboxes *b, uint64_t account, uint64_t below,
                                    struct inbox_entry *out, size_t max, size_t *n)
{
    return b->ops->read(b, account, below, out, max, n);
}
