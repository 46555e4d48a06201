/* Posts and likes over HTTP. */
#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "model/feed.h"
#include "model/post.h"

enum { LIKES_MAX = 200 };

static int64_t now_ms(struct call *c)
{
    return clock_wall_ms(c->api->clock);
}

/* A post that the caller may see, as it stands in this transaction. */
static enum err find_post(struct call *c, struct tx *tx, uint64_t id, struct feed_item *out)
{
    size_t count;
    TRY(feed_hydrate(c->api->cards, tx, c->caller.account, &id, 1, &c->x->arena, out, &count));
    return count ? OK : call_fail(c, ERR_NOT_FOUND, "no such post");
}

void posts_render(struct call *c)
{
    render_post(&c->json, c->work, &c->x->arena);
}

/* The post that the path names, or that was made under the key. */
enum err posts_repeat(struct call *c, struct tx *tx)
{
    struct post_card card;
    uint64_t id = c->params[0] ? c->params[0] : c->object;
    c->work = ARENA_NEW(&c->x->arena, struct feed_item);
    TRY(post_get(tx, id, c->caller.account, &c->x->arena, &card));
    return find_post(c, tx, id, c->work);
}

struct new_post {
    struct feed_item item; /* first: posts_render knows this part */
    struct post_new in;
    struct account_card author; /* as cached before the transaction; id 0: not cached */
};

/* Cards of another process are further away than the row that is changed anyway. */
enum err posts_prepare(struct call *c)
{
    struct tx says = {0};
    struct new_post *p = c->work = ARENA_NEW(&c->x->arena, struct new_post);
    p->in.author = c->caller.account;
    if (c->api->cards->shared)
        p->in.author_card = &p->item.author;
    TRY(call_body_text(c, "caption", true, &p->in.caption));
    TRY(call_checked(c, &says, post_check(&says, &p->in)));
    p->in.checked = true;
    if (!p->in.author_card)
        cards_accounts(c->api->cards, &p->in.author, 1, &p->author, &c->x->arena);
    return OK;
}

void posts_first_statement(struct call *c)
{
    if (c->api->cards->shared)
        post_first_statement(&c->job, c->caller.account);
}

enum err posts_create(struct call *c, struct tx *tx)
{
    struct new_post *p = c->work;
    p->item = (struct feed_item){.author = p->author};
    TRY(post_create(tx, &p->in, &c->x->arena, &p->item.card));
    c->object = p->item.card.id;
    if (!p->item.author.id)
        TRY(feed_author(c->api->cards, tx, p->in.author, &c->x->arena, &p->item.author));
    return OK;
}

void posts_render_new(struct call *c)
{
    const struct feed_item *item = c->work;
    posts_render(c);
    http_add_header(c->x, "Location", "/v1/posts/%llu", (unsigned long long)item->card.id);
}

enum err posts_show(struct call *c, struct tx *tx)
{
    struct post_card card;
    struct feed_item item;
    TRY(post_get(tx, c->params[0], c->caller.account, &c->x->arena, &card));
    TRY(find_post(c, tx, card.id, &item));
    render_post(&c->json, &item, &c->x->arena);
    return OK;
}

struct post_change {
    struct feed_item item; /* first: posts_render knows this part */
    struct str caption;
};

enum err posts_prepare_change(struct call *c)
{
    struct post_change *p = c->work = ARENA_NEW(&c->x->arena, struct post_change);
    return call_body_text(c, "caption", true, &p->caption);
}

enum err posts_update(struct call *c, struct tx *tx)
{
    struct post_change *p = c->work;
    struct post_card card;
    TRY(post_edit(tx, c->params[0], c->caller.account, p->caption, now_ms(c), &c->x->arena, &card));
    return find_post(c, tx, card.id, &p->item);
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
    TRY(call_page(c, FEED_LIMIT_MAX, &limit, &below));
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
    c->work = ARENA_NEW(&c->x->arena, struct feed_item);
    return find_post(c, tx, c->params[0], c->work);
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
    TRY(call_page(c, LIKES_MAX, &limit, &below));
    TRY(post_likes(tx, c->params[0], c->caller.account, below, limit, &c->x->arena, found, &n));
    call_list_accounts(c, found, n, limit);
    return OK;
}
