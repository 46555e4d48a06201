/* First pages of home feeds, kept as they were sent: body and Link line. A page is answered only
 * while it is, byte for byte, what a read of views and cards would draw now. Bounded; any thread;
 * never blocks for long. */
#pragma once

#include "base/buf.h"
#include "model/feed.h"
#include "net/http.h"

struct page_cache;

/* What was true before a page was read. */
struct page_draft {
    uint64_t viewer;
    struct view_stamp stamp;
    uint64_t card_changes;
    bool good; /* the views could say */
};

struct page_cache_stats {
    uint64_t hits, misses, pages, bytes, bytes_max;
};

/* NULL when bytes_max is too small to keep a page, 0 above all. */
struct page_cache *page_cache_new(size_t bytes_max, struct views *views, struct cards *cards);
void page_cache_free(struct page_cache *c);

/* True: the head of the viewer's page is appended, and *body is its body, to be released. False:
 * *draft is begun; now read and draw the page, and hand it in. */
bool page_cache_find(struct page_cache *c, uint64_t viewer, struct page_draft *draft,
                     struct buf *head, struct http_body **body);
/* Keeps what was drawn from `page`, unless something changed since the draft was begun or the page
 * cannot be kept at all. */
void page_cache_keep(struct page_cache *c, struct page_draft *draft, const struct feed_page *page,
                     struct str head, struct str body);

void page_cache_stats(struct page_cache *c, struct page_cache_stats *out);
