/* A first page of the feed from what a page source has read, for many readers in step
 * (port/page_source.h). It is what feed_read() makes of the same answers: the two filters, the one
 * post more that tells of a next page, and the floor below which the views are silent. Whatever
 * feed_read() would have to fill, rebuild or read from truth is left to it. */
#include "model/feed.h"

enum {
    CHUNK_SLACK = 3, /* one to see whether there is more, and some that the filters may take */
    CHUNK_MIN = 16,
};

size_t feed_step_size(size_t limit)
{
    return limit + CHUNK_SLACK > CHUNK_MIN ? limit + CHUNK_SLACK : CHUNK_MIN;
}

static bool is_filtered(const struct page_candidate *c)
{
    return c->state == CARD_GONE || (c->state == CARD_FOUND && !c->visible);
}

enum err feed_step(const struct page_read *read, size_t limit, struct feed_page *page)
{
    bool more = false;
    page->count = 0;
    page->next_below = page->beyond = 0;
    page->lasting = true;
    if (!read->good || limit == 0 || limit > FEED_LIMIT_MAX)
        return ERR_NEEDS_TRUTH;
    size_t n = read->n;
    while (n > 0 && read->candidates[n - 1].id <= read->floor)
        n--; /* not complete down there */
    for (size_t i = 0; i < n && !more; i++) {
        const struct page_candidate *c = &read->candidates[i];
        if (is_filtered(c))
            continue;
        more = page->count == limit;
        if (more)
            page->beyond = c->id;
        else if (c->state == CARD_MISSING || !c->author)
            return ERR_NEEDS_TRUTH;
        else
            page->items[page->count++] =
                (struct feed_item){.card = *c->card, .author = *c->author, .liked = c->liked};
    }
    bool silent = n < read->max; /* the views have nothing more to say … */
    if (!more && !silent)
        return ERR_NEEDS_TRUTH;
    if (!more && read->floor > 0) { /* … but truth has */
        if (page->count < limit)
            return ERR_NEEDS_TRUTH;
        more = true; /* perhaps: not worth a look at truth */
    }
    page->next_below = more ? page->items[page->count - 1].card.id : 0;
    return OK;
}
