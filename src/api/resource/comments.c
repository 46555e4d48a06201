/* Comments over HTTP. */
#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "model/post.h"

enum { COMMENTS_MAX = 200 };

struct new_comment {
    struct str body;
    struct comment comment;
};

enum err comments_prepare(struct call *c)
{
    struct new_comment *n = c->work = ARENA_NEW(&c->x->arena, struct new_comment);
    return call_body_text(c, "body", true, &n->body);
}

enum err comments_create(struct call *c, struct tx *tx)
{
    struct new_comment *n = c->work;
    TRY(comment_create(tx, 0, c->params[0], c->caller.account, n->body, &c->x->arena, &n->comment));
    c->object = n->comment.id;
    return OK;
}

enum err comments_repeat(struct call *c, struct tx *tx)
{
    struct new_comment *n = c->work = ARENA_NEW(&c->x->arena, struct new_comment);
    return comment_get(tx, c->object, c->caller.account, &c->x->arena, &n->comment);
}

void comments_render(struct call *c)
{
    const struct new_comment *n = c->work;
    render_comment(&c->json, &n->comment);
}

/* Oldest first: the cursor is the last id shown, and the first page begins at the beginning. */
enum err comments_list(struct call *c, struct tx *tx)
{
    size_t limit, n;
    uint64_t after;
    struct comment found[COMMENTS_MAX];
    TRY(call_page(c, COMMENTS_MAX, &limit, &after));
    if (after == UINT64_MAX)
        after = 0;
    TRY(comment_list(tx, c->params[0], c->caller.account, after, limit, &c->x->arena, found, &n));
    call_list_begin(c);
    for (size_t i = 0; i < n; i++)
        render_comment(&c->json, &found[i]);
    call_list_end(c, n == limit ? found[n - 1].id : 0);
    return OK;
}

enum err comments_delete(struct call *c, struct tx *tx)
{
    c->status = 204;
    return comment_delete(tx, c->params[0], c->caller.account, clock_wall_ms(c->api->clock));
}
