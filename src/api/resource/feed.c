/* GET /v1/feed. Runs on the event loop as long as everything is in memory, and again on a thread
 * that may block when it is not. First pages are answered as they were kept, if they still are what
 * would be drawn. Those of shared views are drawn in step, all that wait at once; a page that needs
 * more than views and cards is drawn on its own, as ever. */
#include "model/feed.h"
#include "api/edge/handlers.h"
#include "api/edge/page_cache.h"
#include "api/render/fragment.h"
#include "api/render/render.h"
#include "base/check.h"
#include "model/post.h"

/* The page that nearly all reads ask for: no cursor, the usual length. */
static bool is_first_page(const struct call *c)
{
    return c->api->pages && c->x->query.len == 0;
}

static void draw_items(struct call *c, const struct feed_page *page)
{
    call_list_begin(c);
    render_posts(&c->json, page->items, page->count, c->api->cards, &c->x->arena);
    call_list_end(c, page->next_below);
}

static enum err draw_page(struct call *c, struct feed_page *page)
{
    struct api *api = c->api;
    size_t limit;
    uint64_t below;
    TRY(call_page(c, FEED_LIMIT_MAX, &limit, &below));
    TRY(feed_draw(api->views, api->cards, c->blocking ? api->db : NULL, c->caller.account, below,
                  limit, DIALECT_V1, &c->x->arena, page));
    draw_items(c, page);
    return OK;
}

static bool find_kept(struct call *c)
{
    return page_cache_find(c->api->pages, c->caller.account, &c->x->head, &c->x->kept);
}

/* On the loop, of views that other nodes change, too: a kept page is sent when every earlier change
 * has arrived. Nothing is drawn here. */
static enum err show_if_kept(struct call *c)
{
    if (c->invalidations == INVALIDATIONS_HEARD && find_kept(c))
        return OK;
    if (c->invalidations == INVALIDATIONS_UNASKED &&
        page_cache_has(c->api->pages, c->caller.account))
        c->invalidations = INVALIDATIONS_WANTED;
    return ERR_NEEDS_TRUTH;
}

/* Keeps the page that was drawn behind `mark` in the head, if it can be. NULL: it failed. */
static void keep(struct call *c, struct page_draft *draft, const struct feed_page *page,
                 size_t mark)
{
    struct http_exchange *x = c->x;
    bool good = !x->head.failed && !x->out.failed;
    page_cache_end(c->api->pages, draft, good ? page : NULL,
                   (struct str){x->head.ptr ? x->head.ptr + mark : "", x->head.len - mark},
                   buf_view(&x->out));
}

enum err feed_show(struct call *c, struct tx *tx)
{
    (void)tx;
    struct feed_page page;
    struct page_draft draft;
    c->in_step = true;
    if (!is_first_page(c))
        return draw_page(c, &page);
    if (c->api->invalidation && !c->blocking)
        return show_if_kept(c);
    if (!c->api->invalidation && find_kept(c))
        return OK;
    page_cache_begin(c->api->pages, c->caller.account, &draft);
    size_t mark = c->x->head.len;
    enum err e = draw_page(c, &page);
    keep(c, &draft, e ? NULL : &page, mark);
    return e;
}

/* ---- in step ---- */

struct step {
    struct call *call;
    size_t limit;
    struct page_draft *draft; /* NULL: not to be kept */
};

static void draw_in_step(struct step *s, const struct page_read *read,
                         void (*done)(struct call *c, enum err e))
{
    struct feed_page page;
    size_t mark = s->call->x->head.len;
    enum err e = feed_step(read, s->limit, &page);
    if (!e)
        draw_items(s->call, &page);
    if (s->draft)
        keep(s->call, s->draft, e ? NULL : &page, mark);
    done(s->call, e);
}

/* Further pages, and requests that are refused, are the handler's. */
void feed_show_in_step(struct call **calls, size_t n, void (*done)(struct call *c, enum err e))
{
    struct page_source *source = calls[0]->api->page_source;
    struct arena arena;
    struct step steps[PAGE_READS_MAX];
    struct page_read reads[PAGE_READS_MAX];
    size_t count = 0;
    CHECK(n <= PAGE_READS_MAX);
    arena_init(&arena);
    for (size_t i = 0; i < n; i++) {
        struct call *c = calls[i];
        struct step *s = &steps[count];
        uint64_t below;
        if (call_page(c, FEED_LIMIT_MAX, &s->limit, &below) != OK || below != UINT64_MAX) {
            done(c, ERR_NEEDS_TRUTH);
            continue;
        }
        s->call = c;
        s->draft = is_first_page(c) ? ARENA_NEW(&arena, struct page_draft) : NULL;
        if (s->draft)
            page_cache_begin_step(c->api->pages, c->caller.account, s->draft);
        reads[count++] = (struct page_read){.viewer = c->caller.account,
                                            .max = feed_step_size(s->limit),
                                            .trace = s->draft ? &s->draft->trace : NULL};
    }
    if (count > 0)
        page_source_read(source, reads, count, &arena);
    for (size_t i = 0; i < count; i++)
        draw_in_step(&steps[i], &reads[i], done);
    arena_done(&arena);
}
