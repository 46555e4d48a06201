/* GET /v1/feed. Runs on the event loop as long as everything is in memory, and again on a thread
 * that may block when it is not. First pages are answered as they were kept, if they still are what
 * would be drawn. */
#include "model/feed.h"
#include "api/handlers.h"
#include "api/page_cache.h"
#include "model/post.h"

/* The page that everybody asks for: no cursor, the usual length. Of views that others change, too,
 * none is kept: nobody here would notice. */
static bool is_first_page(const struct call *c)
{
    return c->api->pages && !c->api->views->remote && c->x->query.len == 0;
}

static enum err draw_page(struct call *c, struct feed_page *page)
{
    struct api *api = c->api;
    size_t limit;
    uint64_t below;
    enum err e = call_page(c, FEED_LIMIT_DEFAULT, FEED_LIMIT_MAX, &limit, &below);
    if (!e)
        e = feed_read(api->views, api->cards, c->blocking ? api->db : NULL, c->caller.account,
                      below, limit, &c->x->arena, page);
    if (e)
        return e;
    call_list_begin(c);
    for (size_t i = 0; i < page->count; i++)
        post_write(&c->json, &page->items[i].card, page->items[i].author_json,
                   page->items[i].liked);
    call_list_end(c, page->next_below);
    return OK;
}

enum err feed_show(struct call *c, struct tx *tx)
{
    (void)tx;
    struct http_exchange *x = c->x;
    struct feed_page page;
    if (!is_first_page(c))
        return draw_page(c, &page);
    struct page_draft draft;
    if (page_cache_find(c->api->pages, c->caller.account, &draft, &x->head, &x->kept))
        return OK;
    size_t mark = x->head.len;
    enum err e = draw_page(c, &page);
    if (!e && !x->head.failed && !x->out.failed)
        page_cache_keep(c->api->pages, &draft, &page,
                        (struct str){x->head.ptr ? x->head.ptr + mark : "", x->head.len - mark},
                        buf_view(&x->out));
    return e;
}
