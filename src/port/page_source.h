/* Reading the first pages of several viewers at once, from views and cards that many nodes share.
 *
 * Each read of shared views and cards is a round trip. One page on its own needs five of them, one
 * after the other, and its thread sleeps through each. So requests that wait for a page go
 * together: what all of them need is read in two or three round trips, whatever their number, and
 * what several of them show is read once.
 *
 * The contract, checked in test/unit/view/redis_pages_test.c:
 *  1. What a good read says of its candidates is what timelines_home(), cards_posts(),
 *     graph_visible(), cards_accounts() and cards_liked() say, each at some moment between the call
 *     and its return. So nothing is shown that was removed before the call.
 *  2. A read that is not good says nothing: something has to be asked of truth, or a server is
 *     away. Its viewer is served by the ports themselves, one by one.
 *  3. Whether one read is good does not depend on what the others ask for, unless a server is away.
 *  4. A read with a trace (port/invalidation.h, invalidation_init) notes there all that it depends
 *     on; one that is not good leaves a trace that is not whole.
 *
 * Any thread. One driver: Redis. */
#pragma once

#include "base/arena.h"
#include "port/cards.h"
#include "port/invalidation.h"

enum { PAGE_READS_MAX = 64 };

struct page_candidate {
    uint64_t id;
    enum card_state state;
    bool visible, liked;
    const struct post_card *card;      /* of CARD_FOUND; shared with other reads */
    const struct account_card *author; /* its author's; NULL: not cached */
};

struct page_read {
    uint64_t viewer;
    size_t max;               /* candidates wanted */
    struct read_trace *trace; /* NULL: none is wanted */
    bool good;
    uint64_t floor; /* complete above it, as timelines_home() says */
    struct page_candidate *candidates;
    size_t n; /* fewer than max: there are no more above the floor */
};

struct page_source;

struct page_source_ops {
    void (*read)(struct page_source *s, struct page_read *reads, size_t n, struct arena *arena);
    void (*free)(struct page_source *s);
};

struct page_source {
    const struct page_source_ops *ops;
};

/* Everything that is found lies in the arena. At most PAGE_READS_MAX at a time. */
static inline void page_source_read(struct page_source *s, struct page_read *reads, size_t n,
                                    struct arena *arena)
{
    s->ops->read(s, reads, n, arena);
}

static inline void page_source_free(struct page_source *s)
{
    s->ops->free(s);
}
