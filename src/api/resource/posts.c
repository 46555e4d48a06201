/* Posts and likes over HTTP. */
#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "model/feed.h"
#include "model/post.h"

enum { LIKES_DEFAULT = 50, LIKES_MAX = 200 };

static int64_t now_ms(struct call *c)
{
    return clock_wall_ms(c->api->clock);
}

/* A post that the caller may see, as it stands in this transaction. */
static enum err answer_post(struct call *c, struct tx *tx, uint64_t id)
{
    struct feed_item item;
    size_t count;
    TRY(feed_hydrate(c->api->cards, tx, c->caller.account, &id, 1, &c->x->arena, &item, &count));
    if (count == 0)
        return call_fail(c, ERR_NOT_FOUND, "no such post");
    render_post(&c->json, &item, &c->x->arena);
    return OK;
}

/* Not for what will be refused: it would have been counted in vain, and its neighbours with it. */
void posts_first_statement(struct call *c)
{
    if (!c->api->cards->shared)
        return;
    const json_t *caption = json_object_get(c->body, "caption");
    struct str text = {json_string_value(caption), json_string_length(caption)};
    if (text.ptr && post_caption_fits(text))
        post_first_statement(&c->job, c->caller.account);
}

enum err posts_create(struct call *c, struct tx *tx)
{
    struct post_new in = {.author = c->caller.account};
    struct feed_item item = {0};
    /* Cards of another process are further away than the row that is changed here anyway. */
    if (c->api->cards->shared)
        in.author_card = &item.author;
    TRY(call_body_text(c, "caption", true, &in.caption));
    TRY(post_create(tx, &in, &c->x->arena, &item.card));
    if (!in.author_card)
        TRY(feed_author(c->api->cards, tx, in.author, &c->x->arena, &item.author));
    render_post(&c->json, &item, &c->x->arena);
    c->status = 201;
    http_add_header(c->x, "Location", "/v1/posts/%llu", (unsigned long long)item.card.id);
    return OK;
}

enum err posts_show(struct call *c, struct tx *tx)
{
    struct post_card card;
    TRY(post_get(tx, c->params[0], c->caller.account, &c->x->arena, &card));
    return answer_post(c, tx, card.id);
}

enum err posts_update(struct call *c, struct tx *tx)
{
    struct post_card card;
    struct str caption;
    TRY(call_body_text(c, "caption", true, &caption));
    TRY(post_edit(tx, c->params[0], c->caller.account, caption, now_ms(c), &c->x->arena, &card));
    return answer_post(c, tx, card.id);
}

enum err posts_delete(struct call *c, struct tx *tx)
{
    c->status = 204;
    return post_delete(tx, c->params[0], c->caller.account, now_ms(c));
}

enum err posts_by_account(struct call *c, struct tx *tx)
{
    size_t limit, n = 0, count = 0;
    uint64_t below, ids[FEED_LIMIT_MAX + 1];
    struct account account = {0};
    struct relationship relationship;
    TRY(call_page(c, FEED_LIMIT_DEFAULT, FEED_LIMIT_MAX, &limit, &below));
    TRY(call_find_account(c, tx, c->params[0], &account, &relationship));
    /* one more than the page, to know whether it is the last */
    if (!relationship.blocking)
        TRY(posts_by_author(tx, account.id, below, limit + 1, ids, &n));
    bool more = n > limit;
    n = more ? limit : n;
    struct feed_item *items = ARENA_ARRAY(&c->x->arena, struct feed_item, n + 1);
    TRY(feed_hydrate(c->api->cards, tx, c->caller.account, ids, n, &c->x->arena, items, &count));
    call_list_begin(c);
    for (size_t i = 0; i < count; i++)
        render_post(&c->json, &items[i], &c->x->arena);
    call_list_end(c, more ? ids[n - 1] : 0);
    return OK;
}

static enum err set_like(struct call *c, struct tx *tx, bool on)
{
    bool changed;
    TRY(post_like(tx, c->params[0], c->caller.account, on, now_ms(c), &changed));
    return answer_post(c, tx, c->params[0]);
}

enum err like_put(struct call *c, struct tx *tx)
{
    return set_like(c, tx, true);
}

enum err like_delete(struct call *c, struct tx *tx)
{
    return set_like(c, tx, false);
}

enum err likes_list(struct call *c, struct tx *tx)
{
    size_t limit, n;
    uint64_t below;
    struct account_card found[LIKES_MAX];
    TRY(call_page(c, LIKES_DEFAULT, LIKES_MAX, &limit, &below));
    TRY(post_likes(tx, c->params[0], c->caller.account, below, limit, &c->x->arena, found, &n));
    call_list_accounts(c, found, n, limit);
    return OK;
}
