/* Everything that is derived from truth about who sees what: the follow graph both ways, home
 * timelines, celebrities' recent posts, who is hidden; the members of groups, and everybody's
 * inbox. Two engines: in memory with snapshots, Redis.
 *
 * The idea that keeps this simple: **a timeline may hold too much, never too little.** Reads
 * filter every entry by the graph as it is at that moment (views_visible) and by the post's own
 * card (deleted or not), so a late, repeated or misdirected delivery can add nothing that a
 * reader sees. What must hold is completeness: when the pipeline is drained, a timeline holds
 * every pushed post, by everyone its owner follows and by the owner, above its floor.
 *
 * The same holds of an **inbox**: it says in which order its owner's groups come, the one with the
 * latest activity first. What a reader is shown of them, and whether they are still a member, is
 * read from truth; so a group too many does no harm, and one that is missing would. A group is no
 * account: it is known by its members, has no timeline, and only audience() and neighbours() know
 * its name.
 *
 * The contract, checked line by line in test/contract/views_contract.c:
 *  1. apply() is idempotent and takes effect before it returns; changes to one account are seen
 *     in order.
 *  2. After apply(FOLLOW off / MUTE on / HIDE on) returned, no later visible() says yes for that
 *     pair.
 *  3. audience() visits every account that follows the author during the whole walk, at least
 *     once; those who come or go meanwhile may be missed or met. Members are handles of this
 *     engine, valid until it closes.
 *  4. push() adds the post to each member's timeline and trims it to the cap in one atomic act:
 *     no reader ever sees more than cap entries. Pushing again changes nothing. A push at or
 *     below the floor of a full timeline changes nothing that a reader sees (it may be counted as
 *     added). A push to a dropped timeline changes nothing.
 *  5. home() returns ids in falling order without duplicates: pushed and pulled together, below
 *     `below`. It is complete for ids above the floor it reports; a dropped or building timeline
 *     reports UINT64_MAX. Pulled posts of muted and hidden authors are left out.
 *  6. rebuild_begin() → pushes are collected from that moment → rebuild_end() merges them with
 *     the ids given: nothing pushed in between is lost. rebuild_anew() does the same over a
 *     timeline that is there: what it held is gone in the same act. Of several under way the
 *     first to end makes the timeline ready. rebuild_give_up() ends one without a result; when it
 *     was the last and none had ended, the timeline is dropped.
 *  7. backfill() and forget() look at the graph in the same atomic act as they change the
 *     timeline: backfill does nothing unless the viewer follows the author now, forget does
 *     nothing when they do.
 *  8. save(position) makes durable a state that holds at least the effects of every event up to
 *     position; a later open reports that position. A save that dies half-way leaves the
 *     previous one in place. An engine whose state outlives the process has nothing to save: its
 *     position is VIEWS_LASTING as soon as it was loaded from truth once.
 *  9. stamp() calls a stamp "same" only when home() and visible() of that viewer would answer as
 *     they did at every moment since it was brought up to date: a change that has returned is
 *     never overlooked. It may say "changed" without a reason.
 * 10. An engine that has lost its state, or a part of it, says so instead of answering from the
 *     rest: home() reports UINT64_MAX and rebuild_begin() ERR_CONFLICT, visible() ERR_NEEDS_TRUTH,
 *     audience() ERR_UNAVAILABLE, until it was loaded again.
 * 11. Of an engine that outlives the process (`remote`): save() makes a second copy of everything
 *     done before it, where there is a place for one. ERR_CONFLICT: some of what was done since the
 *     last save that succeeded may be lost (its only copy died); the next save begins anew. clear()
 *     takes everything away, cards included, and leaves the engine as one that lost its state (10);
 *     loaded() ends that. While doubt() is on it answers this process as one that lost its state,
 *     whatever it holds. is_complete() says whether it holds everything, doubted or not, and to
 *     everybody the same; ERR_UNAVAILABLE: nobody answers. Reads do not wait for an engine that is
 *     known to be away.
 * 12. After apply(MEMBER on) returned, audience(group) meets the member, and a ready inbox holds
 *     the group; after apply(MEMBER off) neither does, until something is pushed. A walk over a
 *     group's members promises what 3 says of followers; it may leave out members whose inbox is
 *     dropped, unless they are listened to.
 * 13. inbox_push() and apply(MESSAGE) raise the group's activity in each inbox to at least that
 *     given; who does not have the group gets it. Again, late or in another order: the greatest
 *     activity of all counts. A dropped inbox stays dropped.
 * 14. inbox() returns the groups in the order of falling activity, each once, all of those there
 *     are below `below`. ERR_NEEDS_TRUTH: it is dropped, building, or lost (10).
 * 15. inbox_begin(), inbox_anew(), inbox_end() and inbox_give_up() are to an inbox what 6 says of a
 *     timeline: what is pushed, joined and left between begin and end is not lost.
 * 16. After inbox_drop() returned an inbox is dropped until a rebuild that begins later has ended.
 *     One that was under way has no result: what it has read may be what was dropped.
 * 17. Whoever is listened to is told of everything that is pushed to them or dropped after listen()
 *     returned and that may have changed something. Never while a lock is held.
 * 18. A remote engine does not tell. Whoever reads home() and inbox() in a trace of its watch
 *     (port/watch.h) hears there of every change, and after touch() of each of these accounts
 *     what was read of their inbox is not the same any more, on no node.
 * 19. Of a remote engine: what is told by tell() is heard by everybody who reads on with hear(), at
 *     least once, in the order in which it was told, or else `missed` says that something was told
 *     that is not known any more: always so the first time. A trace in which it was read is not the
 *     same any more after the next tell(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct views;

enum view_change_kind {
    VIEW_ACCOUNT, /* `account` exists; value: when last seen (ms); on: its timeline and its inbox
                     start empty and complete; off: dropped (to be rebuilt when read) */
    VIEW_SEEN,    /* `account` was seen at `value` (ms) */
    VIEW_HIDE,    /* on: `account` is suspended or deleted, nobody but itself sees its posts */
    VIEW_FOLLOW,  /* on/off: `account` follows `other` */
    VIEW_MUTE,    /* on/off: `account` has muted `other` */
    VIEW_POST,    /* on: `account` posted `other` (post id): into the own timeline at once, and
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
                       An engine that is fed in the order of commits need not look. */
};

/* Which part of the followers a walk visits. The first page fixes `active_since` and `started`,
 * so that ACTIVE and REST together always cover everyone: REST leaves out only those whose last
 * visit lies between the two moments; somebody who woke up meanwhile is met again, which is
 * harmless. A visit that is reported after a walk began counts as not before its start, also when
 * the clock was set back. */
enum audience_part { AUDIENCE_ALL, AUDIENCE_ACTIVE, AUDIENCE_REST };

struct audience_cursor {
    enum audience_part part;
    int64_t active_since_ms;
    int64_t started_ms;
    uint64_t after; /* the engine's position; 0 at the start */
    bool end;       /* set when the walk is over */
};

/* One of several pages that are asked for at once; as views_audience's arguments. */
struct audience_page {
    uint64_t author;
    struct audience_cursor cursor;
    uint64_t *members;
    size_t max, n;
    enum err error; /* of this page: then its cursor is as it was */
};

/* One of several posts that are pushed at once. */
struct view_push {
    uint64_t post;
    const uint64_t *members;
    size_t n, added;
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

/* A viewer's state as of some moment, in the engine's own words. All zeros: of no moment. */
struct view_stamp {
    uint64_t part[6];
};

/* A group in somebody's inbox. Activities are ids of events, so no two in one inbox are equal. */
struct inbox_entry {
    uint64_t group;
    uint64_t activity;
};

/* One of several messages that are pushed at once. */
struct inbox_push {
    uint64_t group, activity;
    const uint64_t *members;
    size_t n, changed;
};

/* Entries of a group's log that change nobody's inbox, by their numbers. Group 0: of any group, and
 * not all of them could be told. */
struct group_news {
    uint64_t group;
    int64_t first, last;
};
enum { NEWS_HEARD_MAX = 4096 };
struct news_heard {
    struct group_news news[NEWS_HEARD_MAX];
    size_t n;
    bool missed; /* something that was told since is not among them and never will be */
    bool more;   /* hear on */
};

/* How far somebody has heard. All zeros: nothing yet. */
struct news_cursor {
    uint64_t part[2];
};

/* What of an account has changed. */
enum view_part { VIEW_PART_TIMELINE = 1, VIEW_PART_INBOX = 2 };

/* Groups that an inbox is sure to hold. An engine may drop one that would hold more: its owner's
 * pages come from truth then. */
enum { INBOX_MAX = 20000 };

enum view_rebuild { VIEW_REBUILD_BEGIN, VIEW_REBUILD_ANEW, VIEW_REBUILD_END, VIEW_REBUILD_GIVE_UP };

struct views_ops {
    enum err (*apply)(struct views *v, const struct view_change *changes, size_t n);
    enum err (*audience)(struct views *v, uint64_t author, struct audience_cursor *cursor,
                         uint64_t *members, size_t max, size_t *n);
    enum err (*push)(struct views *v, uint64_t post, const uint64_t *members, size_t n,
                     size_t *added);
    enum err (*retract)(struct views *v, uint64_t post, const uint64_t *members, size_t n,
                        size_t *removed);
    /* Several of the above in one trip. NULL: they are done one after the other. */
    void (*audiences)(struct views *v, struct audience_page *pages, size_t n);
    enum err (*pushes)(struct views *v, struct view_push *pushes, size_t n);
    enum err (*inbox_pushes)(struct views *v, struct inbox_push *pushes, size_t n);
    enum err (*rebuild)(struct views *v, uint64_t viewer, enum view_rebuild step,
                        const uint64_t *ids, size_t n, uint64_t floor);
    enum err (*edge)(struct views *v, uint64_t viewer, uint64_t author, bool backfill,
                     const uint64_t *ids, size_t n, uint64_t floor);
    enum err (*home)(struct views *v, uint64_t viewer, uint64_t below, uint64_t *ids, size_t max,
                     size_t *n, uint64_t *floor);
    enum err (*visible)(struct views *v, uint64_t viewer, const uint64_t *authors, size_t n,
                        bool *out);
    enum err (*stamp)(struct views *v, uint64_t viewer, struct view_stamp *stamp, bool *same);
    enum err (*seen)(struct views *v, const uint64_t *members, size_t n, int64_t since_ms,
                     bool *out);
    enum err (*sweep)(struct views *v, int64_t seen_before_ms, size_t max_accounts, size_t *dropped,
                      bool *wrapped);
    enum err (*neighbours)(struct views *v, uint64_t account, bool followers, uint64_t after,
                           uint64_t *ids, size_t max, size_t *n);
    enum err (*inbox_push)(struct views *v, uint64_t group, uint64_t activity,
                           const uint64_t *members, size_t n, size_t *changed);
    enum err (*inbox_drop)(struct views *v, const uint64_t *members, size_t n);
    enum err (*inbox_rebuild)(struct views *v, uint64_t account, enum view_rebuild step,
                              const struct inbox_entry *entries, size_t n);
    enum err (*inbox)(struct views *v, uint64_t account, uint64_t below, struct inbox_entry *out,
                      size_t max, size_t *n);
    enum err (*listen)(struct views *v, uint64_t account, bool on);
    enum err (*save)(struct views *v, uint64_t position);
    /* Of a remote engine; NULL elsewhere. */
    enum err (*clear)(struct views *v);
    enum err (*loaded)(struct views *v);
    enum err (*is_complete)(struct views *v, bool *complete);
    enum err (*touch)(struct views *v, const uint64_t *accounts, size_t n);
    enum err (*tell)(struct views *v, const struct group_news *news, size_t n);
    enum err (*hear)(struct views *v, struct news_cursor *cursor, struct news_heard *out);
    void (*doubt)(struct views *v, bool on);
    void (*stats)(struct views *v, struct view_stats *out);
    void (*free)(struct views *v);
};

/* A position beyond all others: the state outlives the process, and what was applied to it need
 * not be applied again at a start. */
#define VIEWS_LASTING UINT64_MAX

struct views {
    const struct views_ops *ops;
    uint64_t loaded_position; /* what the state found at open covers; 0: nothing was found, or it
                                 is not complete */
    size_t cap;               /* entries a timeline holds at most */
    bool remote;              /* other nodes use the same state, and every call may block: never on
                                 an event loop */
    uint64_t epoch; /* positions in walks (audience_cursor.after) mean something only to views of
                       the same epoch */
    /* Whom to tell of changes (17): set before the first listen(), called by any thread, must not
     * block. */
    void (*changed)(void *ctx, uint64_t account, enum view_part what);
    void *changed_ctx;
};

/* Makes changes visible; called after their COMMIT and before the answer. */
static inline enum err views_apply(struct views *v, const struct view_change *changes, size_t n)
{
    return v->ops->apply(v, changes, n);
}

/* The next at most `max` of an author's followers, or of a group's members; sets cursor->end with
 * the last page. */
static inline enum err views_audience(struct views *v, uint64_t author,
                                      struct audience_cursor *cursor, uint64_t *members, size_t max,
                                      size_t *n)
{
    return v->ops->audience(v, author, cursor, members, max, n);
}

static inline enum err views_push(struct views *v, uint64_t post, const uint64_t *members, size_t n,
                                  size_t *added)
{
    return v->ops->push(v, post, members, n, added);
}

/* Several walks, each a page further. */
static inline void views_audiences(struct views *v, struct audience_page *pages, size_t n)
{
    if (v->ops->audiences) {
        v->ops->audiences(v, pages, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct audience_page *p = &pages[i];
        struct audience_cursor cursor = p->cursor;
        p->n = 0;
        p->error = views_audience(v, p->author, &cursor, p->members, p->max, &p->n);
        if (!p->error)
            p->cursor = cursor;
    }
}

/* Several posts, each to members of its own. An error: any of them may have been pushed. */
static inline enum err views_pushes(struct views *v, struct view_push *pushes, size_t n)
{
    if (v->ops->pushes)
        return v->ops->pushes(v, pushes, n);
    enum err e = OK;
    for (size_t i = 0; i < n && !e; i++)
        e = views_push(v, pushes[i].post, pushes[i].members, pushes[i].n, &pushes[i].added);
    return e;
}

/* Takes a post out of the members' timelines: housekeeping after a delete. */
static inline enum err views_retract(struct views *v, uint64_t post, const uint64_t *members,
                                     size_t n, size_t *removed)
{
    return v->ops->retract(v, post, members, n, removed);
}

/* ERR_CONFLICT: the timeline is there already, nothing to rebuild. */
static inline enum err views_rebuild_begin(struct views *v, uint64_t viewer)
{
    return v->ops->rebuild(v, viewer, VIEW_REBUILD_BEGIN, NULL, 0, 0);
}

/* ERR_CONFLICT: it is not there, or a rebuild of it is under way already. */
static inline enum err views_rebuild_anew(struct views *v, uint64_t viewer)
{
    return v->ops->rebuild(v, viewer, VIEW_REBUILD_ANEW, NULL, 0, 0);
}

/* `ids` (falling) are all posts that belong there above `floor` (0: all there are). */
static inline enum err views_rebuild_end(struct views *v, uint64_t viewer, const uint64_t *ids,
                                         size_t n, uint64_t floor)
{
    return v->ops->rebuild(v, viewer, VIEW_REBUILD_END, ids, n, floor);
}

/* Truth could not be read: whoever began must say so. */
static inline enum err views_rebuild_give_up(struct views *v, uint64_t viewer)
{
    return v->ops->rebuild(v, viewer, VIEW_REBUILD_GIVE_UP, NULL, 0, 0);
}

/* `ids` (falling) are all pushed posts of the author above `floor` (0: all there are). */
static inline enum err views_backfill(struct views *v, uint64_t viewer, uint64_t author,
                                      const uint64_t *ids, size_t n, uint64_t floor)
{
    return v->ops->edge(v, viewer, author, true, ids, n, floor);
}

static inline enum err views_forget(struct views *v, uint64_t viewer, uint64_t author,
                                    const uint64_t *ids, size_t n)
{
    return v->ops->edge(v, viewer, author, false, ids, n, 0);
}

/* The newest at most `max` candidates below `below` (UINT64_MAX: from the top). *floor: complete
 * above it; go on from truth at and below it (0: there is nothing below). ERR_NOT_FOUND: no such
 * account. */
static inline enum err views_home(struct views *v, uint64_t viewer, uint64_t below, uint64_t *ids,
                                  size_t max, size_t *n, uint64_t *floor)
{
    return v->ops->home(v, viewer, below, ids, max, n, floor);
}

/* out[i]: may `viewer` see posts of authors[i] in the home feed right now? (self: yes; otherwise
 * follows, has not muted, and the author is not hidden) */
static inline enum err views_visible(struct views *v, uint64_t viewer, const uint64_t *authors,
                                     size_t n, bool *out)
{
    return v->ops->visible(v, viewer, authors, n, out);
}

/* Brings *stamp up to date. *same: it was already, so whatever was made of what home() and
 * visible() said after the stamp was taken is still right. ERR_NOT_FOUND: no such account;
 * ERR_NEEDS_TRUTH: this engine cannot tell without asking elsewhere. */
static inline enum err views_stamp(struct views *v, uint64_t viewer, struct view_stamp *stamp,
                                   bool *same)
{
    return v->ops->stamp(v, viewer, stamp, same);
}

/* One bounded slice of the walk over all accounts that drops the timelines and inboxes of those not
 * seen since; *dropped: how many timelines. */
static inline enum err views_sweep(struct views *v, int64_t seen_before_ms, size_t max_accounts,
                                   size_t *dropped, bool *wrapped)
{
    return v->ops->sweep(v, seen_before_ms, max_accounts, dropped, wrapped);
}

/* out[i]: has this member been here since? As far as is known: to decide what to spend on whom. */
static inline enum err views_seen(struct views *v, const uint64_t *members, size_t n,
                                  int64_t since_ms, bool *out)
{
    return v->ops->seen(v, members, n, since_ms, out);
}

/* Account ids, in rising order above `after`: followers of / followed by `account`. Followers of a
 * group: its members (ERR_NOT_FOUND: it may have none). For `check`. */
static inline enum err views_neighbours(struct views *v, uint64_t account, bool followers,
                                        uint64_t after, uint64_t *ids, size_t max, size_t *n)
{
    return v->ops->neighbours(v, account, followers, after, ids, max, n);
}

/* ---- inboxes ---- */

/* *changed: in how many inboxes the activity rose. */
static inline enum err views_inbox_push(struct views *v, uint64_t group, uint64_t activity,
                                        const uint64_t *members, size_t n, size_t *changed)
{
    return v->ops->inbox_push(v, group, activity, members, n, changed);
}

/* Several messages, each to members of its own. An error: any of them may have been pushed. */
static inline enum err views_inbox_pushes(struct views *v, struct inbox_push *pushes, size_t n)
{
    if (v->ops->inbox_pushes)
        return v->ops->inbox_pushes(v, pushes, n);
    enum err e = OK;
    for (size_t i = 0; i < n && !e; i++)
        e = views_inbox_push(v, pushes[i].group, pushes[i].activity, pushes[i].members, pushes[i].n,
                             &pushes[i].changed);
    return e;
}

/* For those who will not be pushed to: members of a large group who have not been here for long. */
static inline enum err views_inbox_drop(struct views *v, const uint64_t *members, size_t n)
{
    return v->ops->inbox_drop(v, members, n);
}

/* The errors of the four are those of timelines. */
static inline enum err views_inbox_begin(struct views *v, uint64_t account)
{
    return v->ops->inbox_rebuild(v, account, VIEW_REBUILD_BEGIN, NULL, 0);
}
static inline enum err views_inbox_anew(struct views *v, uint64_t account)
{
    return v->ops->inbox_rebuild(v, account, VIEW_REBUILD_ANEW, NULL, 0);
}

/* `entries` (falling by activity) are all groups of the account. ERR_CONFLICT: there is no result;
 * a reader goes on with what they have read. */
static inline enum err views_inbox_end(struct views *v, uint64_t account,
                                       const struct inbox_entry *entries, size_t n)
{
    return v->ops->inbox_rebuild(v, account, VIEW_REBUILD_END, entries, n);
}
static inline enum err views_inbox_give_up(struct views *v, uint64_t account)
{
    return v->ops->inbox_rebuild(v, account, VIEW_REBUILD_GIVE_UP, NULL, 0);
}

/* The next groups below `below`, the activity of the last entry so far (UINT64_MAX: from the top).
 * A page may be shorter than `max` though there is more; one with nothing is the end. An engine may
 * know activities without their node: then what falls into one millisecond comes on one page, if it
 * fits, so that the next one may as well be read from truth; when `below` comes from truth it may
 * repeat what was in the same millisecond. ERR_NOT_FOUND: no such account. */
static inline enum err views_inbox(struct views *v, uint64_t account, uint64_t below,
                                   struct inbox_entry *out, size_t max, size_t *n)
{
    return v->ops->inbox(v, account, below, out, max, n);
}

/* Tells views->changed from now on, or no longer. On again, or off again: no difference. A post
 * that is pulled changes nobody's timeline and is not told of. ERR_METHOD: this engine cannot. */
static inline enum err views_listen(struct views *v, uint64_t account, bool on)
{
    return v->ops->listen(v, account, on);
}

static inline enum err views_save(struct views *v, uint64_t position)
{
    return v->ops->save(v, position);
}
/* The seven below: remote engines only. */
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
/* Something of these people has changed that is in truth alone: whoever watches them, wherever,
 * looks again. */
static inline enum err views_touch(struct views *v, const uint64_t *accounts, size_t n)
{
    return v->ops->touch(v, accounts, n);
}
/* To all nodes, whoever listens there. ERR_UNAVAILABLE: nobody knows whether it was told. */
static inline enum err views_tell(struct views *v, const struct group_news *news, size_t n)
{
    return v->ops->tell(v, news, n);
}
/* What was told since. */
static inline enum err views_hear(struct views *v, struct news_cursor *cursor,
                                  struct news_heard *out)
{
    return v->ops->hear(v, cursor, out);
}
static inline void views_doubt(struct views *v, bool on)
{
    v->ops->doubt(v, on);
}
static inline void views_stats(struct views *v, struct view_stats *out)
{
    v->ops->stats(v, out);
}
static inline void views_free(struct views *v)
{
    v->ops->free(v);
}
