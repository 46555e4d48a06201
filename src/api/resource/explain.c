/* `GET /v1/admin/explain`: why a post is, or is not, in a feed.
 *
 * The model says what should be shown and what is (model/truth_explain.c). When the two differ, the
 * operator asks next whether the post will still come. So this file finds the two events that bring
 * a post into a timeline, and reads from the engine, the outbox and the delivery store how far each
 * has got. */
#include "api/resource/explain.h"

#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "base/id.h"

struct lookup {
    struct str user;
    struct arena *arena;
    struct account account;
};

static enum err look_up(struct tx *tx, void *arg)
{
    struct lookup *l = arg;
    return account_look_up(tx, l->user, l->arena, &l->account);
}

static bool is_posting(const void *ctx, const struct event *e)
{
    const struct explanation *s = ctx;
    return e->type == EVENT_POST_CREATED && e->object == s->post;
}

static bool is_follow(const void *ctx, const struct event *e)
{
    const struct explanation *s = ctx;
    bool one = e->type == EVENT_FOLLOW_CREATED && e->object == s->author;
    return e->actor == s->viewer && (one || e->type == EVENT_FOLLOWS_IMPORTED);
}

/* An event gets its id right after the row that it tells of. */
enum err explain_events(struct tx *tx, struct engine *engine, const struct explanation *found,
                        struct explained_events *out)
{
    uint64_t event;
    *out = (struct explained_events){.posting = {.event = 0}};
    if (!found->post_found)
        return OK;
    TRY(event_find(tx, found->post, is_posting, found, &event));
    if (event)
        TRY(event_standing_read(tx, engine, event, &out->posting));
    if (found->followed_at_ms <= ID_EPOCH_MS)
        return OK;
    TRY(event_find(tx, id_at(found->followed_at_ms, 0, 0) - 1, is_follow, found, &event));
    return event ? event_standing_read(tx, engine, event, &out->follow) : OK;
}

struct asking {
    struct engine *engine;
    const struct explanation *found;
    struct explained_events *events;
};

static enum err read_events(struct tx *tx, void *arg)
{
    struct asking *a = arg;
    return explain_events(tx, a->engine, a->found, a->events);
}

enum err admin_explain(struct call *c, struct tx *tx)
{
    (void)tx;
    struct api *api = c->api;
    struct lookup l = {.arena = &c->x->arena};
    struct explanation found;
    struct explained_events events;
    struct str text;
    uint64_t post;
    if (!http_query(c->x, STR("user"), &l.user) || !l.user.ptr)
        return call_fail(c, ERR_BAD_INPUT, "user is missing: an account id or a username");
    if (!http_query(c->x, STR("post"), &text) || !text.ptr || !id_parse(text, &post))
        return call_fail(c, ERR_BAD_INPUT, "post is missing or not an id");
    TRY(db_read(api->db, look_up, &l, c->detail));
    TRY(truth_explain(api->db, api->views, api->cards, l.account.id, post, &c->x->arena, &found));
    struct asking a = {api->engine, &found, &events};
    TRY(db_read(api->db, read_events, &a, c->detail));
    render_explanation(&c->json, &found, &events);
    return OK;
}
