/* Home timelines: which posts were delivered to whom, and which must be pulled.
 *
 * **A timeline may hold too much, never too little.** Reads filter every entry by the graph as it
 * is at that moment (graph_visible) and by the post's own card (deleted or not), so a late,
 * repeated or misdirected delivery adds nothing that a reader sees. What must hold is completeness:
 * when the pipeline is drained, a timeline holds every pushed post, by everyone its owner follows
 * and by the owner, above its floor.
 *
 * The contract, checked in test/contract/timelines_cases.c and stamp_cases.c:
 *  1. push() adds each post to its members' timelines and trims them to the cap in one atomic act:
 *     no reader ever sees more than cap entries. Pushing again changes nothing. A push at or below
 *     the floor of a full timeline changes nothing that a reader sees (it may be counted as added).
 *     A push to a dropped timeline changes nothing.
 *  2. home() returns ids in falling order without duplicates: pushed and pulled together, below
 *     `below`. It is complete for ids above the floor it reports; a dropped or building timeline
 *     reports UINT64_MAX. Pulled posts of muted and hidden authors are left out.
 *  3. begin() → pushes are collected from that moment → end() merges them with the ids given:
 *     nothing pushed in between is lost. anew() does the same over a timeline that is there: what
 *     it held is gone in the same act. Of several under way the first to end makes the timeline
 *     ready. give_up() ends one without a result; when it was the last and none had ended, the
 *     timeline is dropped.
 *  4. backfill() and forget() look at the graph in the same atomic act as they change the timeline:
 *     backfill does nothing unless the viewer follows the author now, forget does nothing when they
 *     do.
 *  5. stamp() calls a stamp "same" only when home() and visible() of that viewer would answer as
 *     they did at every moment since it was brought up to date: a change that has returned is
 *     never overlooked. It may say "changed" without a reason.
 *  6. While the state is lost or suspect home() reports UINT64_MAX, begin() and anew() answer
 *     ERR_CONFLICT, spread() answers ERR_UNAVAILABLE, and a rebuild that began before has no
 *     result.
 *  7. A driver may keep with each reader whose posts are pulled. Then home() may leave out an
 *     author's pulled posts until spread() has said, after the first of them, that there is no
 *     more to do: from then on, who follows the author finds them, also who follows later. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct timelines;

struct timeline_push {
    uint64_t post;
    const uint64_t *members;
    size_t n, added;
};

/* A viewer's state as of some moment, in the driver's own words. All zeros: of no moment. */
struct view_stamp {
    uint64_t part[6];
};

/* The steps of a rebuild, of a timeline or an inbox. */
enum view_rebuild { VIEW_REBUILD_BEGIN, VIEW_REBUILD_ANEW, VIEW_REBUILD_END, VIEW_REBUILD_GIVE_UP };

struct timelines_ops {
    enum err (*push)(struct timelines *t, struct timeline_push *pushes, size_t n);
    enum err (*retract)(struct timelines *t, uint64_t post, const uint64_t *members, size_t n,
                        size_t *removed);
    enum err (*rebuild)(struct timelines *t, uint64_t viewer, enum view_rebuild step,
                        const uint64_t *ids, size_t n, uint64_t floor);
    enum err (*backfill)(struct timelines *t, uint64_t viewer, uint64_t author, const uint64_t *ids,
                         size_t n, uint64_t floor);
    enum err (*forget)(struct timelines *t, uint64_t viewer, uint64_t author, const uint64_t *ids,
                       size_t n);
    enum err (*home)(struct timelines *t, uint64_t viewer, uint64_t below, uint64_t *ids,
                     size_t max, size_t *n, uint64_t *floor);
    enum err (*stamp)(struct timelines *t, uint64_t viewer, struct view_stamp *stamp, bool *same);
    enum err (*spread)(struct timelines *t, uint64_t author, size_t *told, bool *more);
    enum err (*sweep)(struct timelines *t, int64_t seen_before_ms, size_t max_accounts,
                      size_t *dropped, bool *wrapped);
};

struct timelines {
    const struct timelines_ops *ops;
};

/* Several posts, each to members of its own. An error: any of them may have been pushed. */
static inline enum err timelines_push(struct timelines *t, struct timeline_push *pushes, size_t n)
{
    return t->ops->push(t, pushes, n);
}

static inline enum err timelines_push_one(struct timelines *t, uint64_t post,
                                          const uint64_t *members, size_t n, size_t *added)
{
    struct timeline_push push = {post, members, n, 0};
    enum err e = t->ops->push(t, &push, 1);
    *added = push.added;
    return e;
}

/* Takes a post out of the members' timelines: housekeeping after a delete. */
static inline enum err timelines_retract(struct timelines *t, uint64_t post,
                                         const uint64_t *members, size_t n, size_t *removed)
{
    return t->ops->retract(t, post, members, n, removed);
}

/* ERR_CONFLICT: the timeline is there already, nothing to rebuild. */
static inline enum err timelines_begin(struct timelines *t, uint64_t viewer)
{
    return t->ops->rebuild(t, viewer, VIEW_REBUILD_BEGIN, NULL, 0, 0);
}

/* ERR_CONFLICT: it is not there, or a rebuild of it is under way already. */
static inline enum err timelines_anew(struct timelines *t, uint64_t viewer)
{
    return t->ops->rebuild(t, viewer, VIEW_REBUILD_ANEW, NULL, 0, 0);
}

/* `ids` (falling) are all posts that belong there above `floor` (0: all there are). */
static inline enum err timelines_end(struct timelines *t, uint64_t viewer, const uint64_t *ids,
                                     size_t n, uint64_t floor)
{
    return t->ops->rebuild(t, viewer, VIEW_REBUILD_END, ids, n, floor);
}

/* Truth could not be read: the caller of begin() must say so. */
static inline enum err timelines_give_up(struct timelines *t, uint64_t viewer)
{
    return t->ops->rebuild(t, viewer, VIEW_REBUILD_GIVE_UP, NULL, 0, 0);
}

/* `ids` (falling) are all pushed posts of the author above `floor` (0: all there are). */
static inline enum err timelines_backfill(struct timelines *t, uint64_t viewer, uint64_t author,
                                          const uint64_t *ids, size_t n, uint64_t floor)
{
    return t->ops->backfill(t, viewer, author, ids, n, floor);
}

static inline enum err timelines_forget(struct timelines *t, uint64_t viewer, uint64_t author,
                                        const uint64_t *ids, size_t n)
{
    return t->ops->forget(t, viewer, author, ids, n);
}

/* The newest at most `max` candidates below `below` (UINT64_MAX: from the top). *floor: complete
 * above it; go on from truth at and below it (0: there is nothing below). ERR_NOT_FOUND: no such
 * account. */
static inline enum err timelines_home(struct timelines *t, uint64_t viewer, uint64_t below,
                                      uint64_t *ids, size_t max, size_t *n, uint64_t *floor)
{
    return t->ops->home(t, viewer, below, ids, max, n, floor);
}

/* Brings *stamp up to date. *same: it was already, so whatever was made of what home() and
 * visible() said after the stamp was taken is still right. ERR_NOT_FOUND: no such account;
 * ERR_NEEDS_TRUTH: this driver cannot tell without asking elsewhere. */
static inline enum err timelines_stamp(struct timelines *t, uint64_t viewer,
                                       struct view_stamp *stamp, bool *same)
{
    return t->ops->stamp(t, viewer, stamp, same);
}

/* One bounded part of making an author's pulled posts known to those who follow the author. *told:
 * how many learned of it now; *more: call again. */
static inline enum err timelines_spread(struct timelines *t, uint64_t author, size_t *told,
                                        bool *more)
{
    return t->ops->spread(t, author, told, more);
}

/* One bounded slice of the walk over all accounts that drops the timelines and inboxes of those not
 * seen since; *dropped: how many timelines. */
static inline enum err timelines_sweep(struct timelines *t, int64_t seen_before_ms,
                                       size_t max_accounts, size_t *dropped, bool *wrapped)
{
    return t->ops->sweep(t, seen_before_ms, max_accounts, dropped, wrapped);
}
