/* The home feed: the newest posts by the people you follow now and by yourself, minus deleted,
 * blocked and muted, newest first, to any depth. Views and cards only make the answer faster. */
#pragma once

#include "base/arena.h"
#include "port/cards.h"
#include "port/db.h"
#include "port/page_source.h"
#include "port/rule.h"
#include "port/views.h"

enum { FEED_LIMIT_MAX = 100, FEED_LIMIT_DEFAULT = 20 };

struct feed_item {
    struct post_card card;
    struct account_card author; /* id 0: a fragment of the card tells of them (feed_draw) */
    card_ticket author_ticket;  /* from before the author was read */
    bool ticketed;              /* there is one */
    bool liked;
};

struct feed_page {
    struct feed_item items[FEED_LIMIT_MAX];
    size_t count;
    uint64_t next_below; /* where the next page begins; 0: this was the last */
    /* What else the page depends on, for the page cache. */
    uint64_t beyond; /* the post that showed that there is more; 0: none was looked at */
    bool lasting; /* made of views and cards alone: it is right for as long as they are the same */
};

/* One page. With db NULL it works from memory alone and returns ERR_NEEDS_TRUTH when that is not
 * enough: then call it again with a db on a thread that may block (never inside a transaction:
 * it begins its own reads, each after the tickets for what it will fill were taken). That call
 * also fills the caches and rebuilds a dropped timeline. Shared views are never asked without a db;
 * with one, their being away, or having lost something, costs a reader time and no more:
 * ERR_OVERLOADED when too many are served from truth already. */
enum err feed_read(struct views *views, struct cards *cards, struct db *db, uint64_t viewer,
                   uint64_t below, size_t limit, struct arena *arena, struct feed_page *page);

/* The same for a renderer: authors are left out of what it has attached a fragment to. */
enum err feed_draw(struct views *views, struct cards *cards, struct db *db, uint64_t viewer,
                   uint64_t below, size_t limit, uint8_t dialect, struct arena *arena,
                   struct feed_page *page);

/* The same, without rebuilding a dropped timeline: for checks, which must not change what they
 * look at. */
enum err feed_peek(struct views *views, struct cards *cards, struct db *db, uint64_t viewer,
                   uint64_t below, size_t limit, struct arena *arena, struct feed_page *page);

/* The first page, of what a page source has read with max = feed_step_size(limit).
 * ERR_NEEDS_TRUTH: call feed_read(). */
enum err feed_step(const struct page_read *read, size_t limit, struct feed_page *page);
size_t feed_step_size(size_t limit);

/* Makes a dropped timeline from truth; `anew`: one that is there. ERR_CONFLICT: there was nothing
 * to do, or another does it, or something was dropped meanwhile; ERR_OVERLOADED: too many are under
 * way, or, when *truth_failed, what reading truth said. */
enum err feed_rebuild(struct views *views, struct db *db, uint64_t viewer, bool anew,
                      bool *truth_failed);

/* Hydrates posts whose ids are known to be visible (profiles, single posts): fills author and
 * liked, leaves out what is gone. In a read it looks into the caches first; it never fills them,
 * because the snapshot may be older than they. */
enum err feed_hydrate(struct cards *cards, struct tx *tx, uint64_t viewer, const uint64_t *ids,
                      size_t n, struct arena *arena, struct feed_item *items, size_t *count);

/* A post's author, from the cache or else from truth. ERR_NOT_FOUND: deleted. */
enum err feed_author(struct cards *cards, struct tx *tx, uint64_t author, struct arena *arena,
                     struct account_card *out);

/* The feed's ids straight from truth, by merging the followees' own newest posts: cost grows
 * with the number of people followed, not with the number of posts stored. `for_timeline`: what
 * belongs into a timeline instead of what is seen: other people's pulled posts are left out, and
 * muted and suspended authors stay in, so that unmuting and restoring bring their posts back
 * without a rebuild. */
enum err feed_from_truth(struct tx *tx, uint64_t viewer, uint64_t below, size_t limit,
                         bool for_timeline, struct arena *arena, uint64_t *ids, size_t *n);

/* The oracle: one plain SQL query over truth that says what the feed is. Slow and obviously
 * right. */
enum err feed_oracle(struct tx *tx, uint64_t viewer, uint64_t below, size_t limit, uint64_t *ids,
                     size_t *n);
