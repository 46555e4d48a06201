/* The inbox over HTTP, and the mark of what was read. */
#include "model/inbox.h"
#include "api/handlers.h"

static enum err query_archived(struct call *c, bool *out)
{
    struct str text;
    enum err e = call_query_text(c, "archived", &text);
    *out = !e && text.ptr && str_eq(text, STR("true"));
    if (!e && text.ptr && !*out && !str_eq(text, STR("false")))
        e = call_fail(c, ERR_BAD_INPUT, "archived must be true or false");
    return e;
}

/* Always on a thread that may block, without a transaction: the views are asked before truth. */
enum err inbox_show(struct call *c, struct tx *tx)
{
    (void)tx;
    size_t limit;
    uint64_t below;
    bool archived;
    if (!c->blocking)
        return ERR_NEEDS_TRUTH;
    enum err e = call_page(c, INBOX_LIMIT_DEFAULT, INBOX_LIMIT_MAX, &limit, &below);
    if (!e)
        e = query_archived(c, &archived);
    if (e)
        return e;
    struct inbox_page *page = ARENA_NEW(&c->x->arena, struct inbox_page);
    e = inbox_page_read(c->api->views, c->api->db, c->caller.account, below, archived, limit,
                        &c->x->arena, page);
    if (e)
        return e;
    call_list_begin(c);
    for (size_t i = 0; i < page->count; i++)
        inbox_item_write(&c->json, &page->items[i]);
    call_list_end(c, page->next_below);
    return OK;
}

enum err read_put(struct call *c, struct tx *tx)
{
    struct inbox_item item;
    int64_t seq = -1;
    enum err e = call_body_number(c, "seq", 0, INT64_MAX, &seq);
    if (!e && seq < 0)
        e = call_fail(c, ERR_INVALID, "seq is missing");
    if (!e)
        e = inbox_mark_read(tx, c->params[0], c->caller.account, seq, &c->x->arena, &item);
    if (!e)
        inbox_item_write(&c->json, &item);
    return e;
}
