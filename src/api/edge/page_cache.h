/* First pages of home feeds, kept as they were sent: body and Link line. A page is answered only
 * while it is, byte for byte, what a read of views and cards would draw now. Bounded; any thread;
 * never blocks for long. */
#pragma once

#include "base/buf.h"
#include "model/feed.h"
#include "net/http.h"
#include "port/invalidation.h"

struct page_cache;

/* What was true before a page was read. */
struct page_draft {
    uint64_t viewer;
    bool good;    /* the views could say */
    bool in_step; /* others are drawn with it */
    struct view_stamp stamp;
    uint64_t card_changes;
    struct read_trace trace; /* of shared views, in place of the two above */
};

struct page_cache_stats {
    uint64_t hits, misses, pages, bytes, bytes_max;
};

/* NULL when bytes_max is too small to keep a page, 0 above all. `invalidation`: of views and cards
 * that others change, too; NULL: these are this process's own. */
struct page_cache *page_cache_new(size_t bytes_max, struct views *views, struct cards *cards,
                                  struct invalidation *invalidation);
void page_cache_free(struct page_cache *c);

/* Of shared views: is there a page that has not changed, as far as is known here? It may be found
 * when all has been heard that happened until now (invalidation_ask). */
bool page_cache_has(struct page_cache *c, uint64_t viewer);
/* True: the head of the viewer's page is appended, and *body is its body, to be released. */
bool page_cache_find(struct page_cache *c, uint64_t viewer, struct buf *head,
                     struct http_body **body);
/* Now the page is read and drawn by this thread, and handed in. */
void page_cache_begin(struct page_cache *c, uint64_t viewer, struct page_draft *draft);
/* The same for a page that is read in step with others, of shared views: the page source adds to
 * draft->trace. One that is drawn on its own after all is begun again. */
void page_cache_begin_step(struct page_cache *c, uint64_t viewer, struct page_draft *draft);
/* Keeps what was drawn from `page` (NULL: it failed), unless something changed since the draft was
 * begun or the page cannot be kept at all. */
void page_cache_end(struct page_cache *c, struct page_draft *draft, const struct feed_page *page,
                    struct str head, struct str body);

void page_cache_stats(struct page_cache *c, struct page_cache_stats *out);
