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

enum err inbox_show(struct call *c, struct tx *tx)
{
    uint64_t groups[INBOX_LIMIT_MAX + 1], activities[INBOX_LIMIT_MAX + 1], below;
    size_t limit, n = 0, count = 0;
    bool archived;
    enum err e = call_page(c, INBOX_LIMIT_DEFAULT, INBOX_LIMIT_MAX, &limit, &below);
    if (!e)
        e = query_archived(c, &archived);
    if (!e) /* one more than the page, to know whether it is the last */
        e = inbox_from_truth(tx, c->caller.account, below, archived, limit + 1, groups, activities,
                             &n);
    if (e)
        return e;
    bool more = n > limit;
    n = more ? limit : n;
    struct inbox_item *items = ARENA_ARRAY(&c->x->arena, struct inbox_item, n + 1);
    e = inbox_items(tx, c->caller.account, groups, n, &c->x->arena, items, &count);
    if (e)
        return e;
    call_list_begin(c);
    for (size_t i = 0; i < count; i++)
        inbox_item_write(&c->json, &items[i]);
    call_list_end(c, more ? activities[n - 1] : 0);
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
