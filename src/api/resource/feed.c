/* GET /v1/feed. Runs on the event loop as long as everything is in memory, and again on a thread
 * that may block when it is not. First pages are answered as they were kept, if they still are what
 * would be drawn. */
#include "model/feed.h"
#include "api/edge/handlers.h"
#include "api/edge/page_cache.h"
#include "api/render/render.h"
#include "model/post.h"

/* The page that everybody asks for: no cursor, the usual length. */
static bool is_first_page(const struct call *c)
{
    return c->api->pages && c->x->query.len == 0;
}

static enum err draw_page(struct call *c, struct feed_page *page)
{
    struct api *api = c->api;
    size_t limit;
    uint64_t below;
    TRY(call_page(c, FEED_LIMIT_DEFAULT, FEED_LIMIT_MAX, &limit, &below));
    TRY(feed_read(api->views, api->cards, c->blocking ? api->db : NULL, c->caller.account, below,
                  limit, &c->x->arena, page));
    call_list_begin(c);
    render_posts(&c->json, page->items, page->count, api->cards, &c->x->arena);
    call_list_end(c, page->next_below);
    return OK;
}

static bool find_kept(struct call *c)
{
    return page_cache_find(c->api->pages, c->caller.account, &c->x->head, &c->x->kept);
}

/* On the loop, of views that other nodes change, too: a kept page is answered when all has been
 * heard that was changed before the request came. Nothing is drawn here. */
static enum err show_if_kept(struct call *c)
{
    if (c->invalidations == INVALIDATIONS_HEARD && find_kept(c))
        return OK;
    if (c->invalidations == INVALIDATIONS_UNASKED &&
        page_cache_has(c->api->pages, c->caller.account))
        c->invalidations = INVALIDATIONS_WANTED;
    return ERR_NEEDS_TRUTH;
}

enum err feed_show(struct call *c, struct tx *tx)
{
    (void)tx;
    struct http_exchange *x = c->x;
    struct feed_page page;
    struct page_draft draft;
    if (!is_first_page(c))
        return draw_page(c, &page);
    if (c->api->invalidation && !c->blocking)
        return show_if_kept(c);
    if (!c->api->invalidation && find_kept(c))
        return OK;
    page_cache_begin(c->api->pages, c->caller.account, &draft);
    size_t mark = x->head.len;
    enum err e = draw_page(c, &page);
    bool good = !e && !x->head.failed && !x->out.failed;
    page_cache_end(c->api->pages, &draft, good ? &page : NULL,
                   (struct str){x->head.ptr ? x->head.ptr + mark : "", x->head.len - mark},
                   buf_view(&x->out));
    return e;
}
