/* Who follows whom, who is a member of which group, who has muted whom, who is hidden. The edges
 * change by views_apply() (port/views.h), where the drivers are listed.
 *
 * A group is no account: it is known by its members, has no timeline, and only audiences() and
 * neighbours() know its name.
 *
 * The contract, checked in test/contract/graph_cases.c:
 *  1. After apply(FOLLOW off / MUTE on / HIDE on) returned, no later visible() says yes for that
 *     pair.
 *  2. audiences() visits every account that follows the author during the whole walk, at least
 *     once; those who come or go meanwhile may be missed or met. Members are handles of this
 *     driver, valid until it closes.
 *  3. After apply(MEMBER on) returned, a walk over the group meets the member; after apply(MEMBER
 *     off) it does not. Such a walk promises what 2 says of followers; it may leave out members
 *     whose inbox is dropped, unless views_listen is on for them.
 *  4. While the state is lost or suspect visible() and neighbours() answer ERR_NEEDS_TRUTH,
 *     audiences() and extent() ERR_UNAVAILABLE.
 *  5. extent() counts at `after` 0 none as passed, and where a walk ended all of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct graph;

/* Which part of the followers a walk visits. The first page fixes `active_since` and `started`, so
 * that ACTIVE and REST together always cover everyone: REST leaves out only those whose last visit
 * lies between the two moments; a person who returned meanwhile is met again, which is harmless. A
 * visit that is reported after a walk began counts as not before its start, also when the clock was
 * set back. */
enum audience_part { AUDIENCE_ALL, AUDIENCE_ACTIVE, AUDIENCE_REST };

struct audience_cursor {
    enum audience_part part;
    int64_t active_since_ms;
    int64_t started_ms;
    uint64_t after; /* the driver's position; 0 at the start */
    bool end;       /* set when the walk is over */
};

/* The next at most `max` of an author's followers, or of a group's members; the last page sets
 * cursor.end. */
struct audience_page {
    uint64_t author;
    struct audience_cursor cursor;
    uint64_t *members;
    size_t max, n;
    enum err error; /* of this page: then its cursor is as it was */
};

struct graph_ops {
    void (*audiences)(struct graph *g, struct audience_page *pages, size_t n);
    enum err (*visible)(struct graph *g, uint64_t viewer, const uint64_t *authors, size_t n,
                        bool *out);
    enum err (*seen_since)(struct graph *g, const uint64_t *members, size_t n, int64_t since_ms,
                           bool *out);
    enum err (*neighbours)(struct graph *g, uint64_t account, bool followers, uint64_t after,
                           uint64_t *ids, size_t max, size_t *n);
    enum err (*extent)(struct graph *g, uint64_t author, uint64_t after, uint64_t *passed,
                       uint64_t *all);
};

struct graph {
    const struct graph_ops *ops;
};

/* Several walks, each a page further. */
static inline void graph_audiences(struct graph *g, struct audience_page *pages, size_t n)
{
    g->ops->audiences(g, pages, n);
}

/* One of them. On an error the cursor is as it was. */
static inline enum err graph_audience(struct graph *g, uint64_t author,
                                      struct audience_cursor *cursor, uint64_t *members, size_t max,
                                      size_t *n)
{
    struct audience_page page = {author, *cursor, members, max, 0, OK};
    g->ops->audiences(g, &page, 1);
    *cursor = page.cursor;
    *n = page.n;
    return page.error;
}

/* out[i]: may `viewer` see posts of authors[i] in the home feed right now? (self: yes; otherwise
 * follows, has not muted, and the author is not hidden) */
static inline enum err graph_visible(struct graph *g, uint64_t viewer, const uint64_t *authors,
                                     size_t n, bool *out)
{
    return g->ops->visible(g, viewer, authors, n, out);
}

/* out[i]: was this member active since? As far as is known: to decide what to spend on whom. */
static inline enum err graph_seen_since(struct graph *g, const uint64_t *members, size_t n,
                                        int64_t since_ms, bool *out)
{
    return g->ops->seen_since(g, members, n, since_ms, out);
}

/* How many follow an author or are members of a group, and how many of them lie at or before the
 * position `after` of a walk, whether the walk gives them or leaves them out. For estimates. */
static inline enum err graph_extent(struct graph *g, uint64_t author, uint64_t after,
                                    uint64_t *passed, uint64_t *all)
{
    return g->ops->extent(g, author, after, passed, all);
}

/* Account ids, in rising order above `after`: followers of / followed by `account`. Followers of a
 * group: its members (ERR_NOT_FOUND: it may have none). For `check`. */
static inline enum err graph_neighbours(struct graph *g, uint64_t account, bool followers,
                                        uint64_t after, uint64_t *ids, size_t max, size_t *n)
{
    return g->ops->neighbours(g, account, followers, after, ids, max, n);
}
