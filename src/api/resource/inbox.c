/* The inbox over HTTP, and the mark of what was read. */
#include "model/inbox.h"
#include "api/edge/handlers.h"
#include "api/render/render.h"

enum { PAGE_TEXT_MAX = 512 * 1024 };

static enum err query_archived(struct call *c, bool *out)
{
    struct str text;
    enum err e = call_query_text(c, "archived", &text);
    *out = !e && text.ptr && str_eq(text, STR("true"));
    if (!e && text.ptr && !*out && !str_eq(text, STR("false")))
        e = call_fail(c, ERR_BAD_INPUT, "archived must be true or false");
    return e;
}

/* As many items as half a megabyte of text allows, and one at least; the server holds the answers
 * of slow readers. Returns where the next page begins. */
static uint64_t write_items(struct json_out *j, const struct inbox_page *page)
{
    size_t text = 0;
    for (size_t i = 0; i < page->count; i++) {
        text += page->items[i].last.body.len;
        if (i > 0 && text > PAGE_TEXT_MAX) {
            const struct inbox_item *last = &page->items[i - 1];
            return last->position ? last->position : last->activity;
        }
        render_inbox_item(j, &page->items[i]);
    }
    return page->next_below;
}

/* On the event loop as long as memory has everything, else on a thread that may block, without a
 * transaction: the views are asked before truth. */
enum err inbox_show(struct call *c, struct tx *tx)
{
    (void)tx;
    size_t limit;
    uint64_t below;
    bool archived;
    struct arena arena;     /* the request's own lasts until the answer has been read */
    struct inbox_page page; /* mostly empty: clearing it would cost more than reading it */
    TRY(call_page(c, INBOX_LIMIT_MAX, &limit, &below));
    TRY(query_archived(c, &archived));
    arena_init(&arena);
    enum err e = inbox_page_read(c->api->views, c->api->cards, c->blocking ? c->api->db : NULL,
                                 c->caller.account, below, archived, limit, &arena, &page);
    if (!e) {
        call_list_begin(c);
        call_list_end(c, write_items(&c->json, &page));
    }
    arena_done(&arena);
    return e;
}

struct read_mark {
    int64_t seq;
    struct inbox_item item;
};

enum err read_prepare(struct call *c)
{
    struct read_mark *m = c->work = ARENA_NEW(&c->x->arena, struct read_mark);
    m->seq = -1;
    TRY(call_body_number(c, "seq", 0, INT64_MAX, &m->seq));
    return m->seq < 0 ? call_fail(c, ERR_INVALID, "seq is missing") : OK;
}

enum err read_put(struct call *c, struct tx *tx)
{
    struct read_mark *m = c->work;
    return inbox_mark_read(tx, c->params[0], c->caller.account, m->seq, &c->x->arena, &m->item);
}

void read_render(struct call *c)
{
    const struct read_mark *m = c->work;
    render_inbox_item(&c->json, &m->item);
}
