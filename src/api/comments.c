/* Comments over HTTP. */
#include "api/handlers.h"
#include "model/post.h"

enum { COMMENTS_DEFAULT = 50, COMMENTS_MAX = 200 };

enum err comments_create(struct call *c, struct tx *tx)
{
    struct str body;
    uint64_t id;
    enum err e = call_body_text(c, "body", true, &body);
    if (!e)
        e = comment_create(tx, c->params[0], c->caller.account, body, &c->json, &id);
    if (e)
        return e;
    c->status = 201;
    return OK;
}

/* Oldest first: the cursor is the last id shown, and the first page begins at the beginning. */
enum err comments_list(struct call *c, struct tx *tx)
{
    size_t limit, n;
    uint64_t after, last;
    enum err e = call_page(c, COMMENTS_DEFAULT, COMMENTS_MAX, &limit, &after);
    if (e)
        return e;
    if (after == UINT64_MAX)
        after = 0;
    call_list_begin(c);
    e = comment_list(tx, c->params[0], c->caller.account, after, limit, &c->json, &n, &last);
    if (!e)
        call_list_end(c, n == limit ? last : 0);
    return e;
}

enum err comments_delete(struct call *c, struct tx *tx)
{
    c->status = 204;
    return comment_delete(tx, c->params[0], c->caller.account, clock_wall_ms(c->api->clock));
}
