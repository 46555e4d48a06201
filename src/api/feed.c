/* GET /v1/feed. Runs on the event loop as long as everything is in memory, and again on a thread
 * that may block when it is not. */
#include "model/feed.h"
#include "api/handlers.h"
#include "model/post.h"

enum err feed_show(struct call *c, struct tx *tx)
{
    (void)tx;
    struct api *api = c->api;
    struct feed_page page;
    size_t limit;
    uint64_t below;
    enum err e = call_page(c, FEED_LIMIT_DEFAULT, FEED_LIMIT_MAX, &limit, &below);
    if (!e)
        e = feed_read(api->views, api->cards, c->blocking ? api->db : NULL, c->caller.account,
                      below, limit, &c->x->arena, &page);
    if (e)
        return e;
    call_list_begin(c);
    for (size_t i = 0; i < page.count; i++)
        post_write(&c->json, &page.items[i].card, page.items[i].author_json, page.items[i].liked);
    call_list_end(c, page.next_below);
    return OK;
}
