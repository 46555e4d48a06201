/* Groups, their members, invitations and chats over HTTP. */
#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "model/chat.h"
#include "model/group.h"
#include "ops/hot_keys.h"

enum { MEMBERS_MAX = 200, INVITATIONS_MAX = 100 };

/* ---- groups ---- */

static enum err body_history(struct call *c, bool *given, enum group_history *out)
{
    struct str text = {NULL, 0};
    enum err e = call_body_text(c, "history", false, &text);
    *given = text.ptr != NULL;
    if (!e && text.ptr && !group_history_parse(text, out))
        e = call_fail(c, ERR_INVALID, "history must be joined or all");
    return e;
}

/* What a write of a group begins with, by which it is, and what it answers. */
struct group_call {
    struct group group;
    struct group_new in;
    struct group_change change;
};

static struct group_call *begin(struct call *c)
{
    struct group_call *g = ARENA_NEW(&c->x->arena, struct group_call);
    c->work = g;
    return g;
}

enum err groups_prepare(struct call *c)
{
    struct group_new *in = &begin(c)->in;
    bool given;
    in->owner = c->caller.account;
    TRY(call_body_text(c, "name", true, &in->name));
    TRY(body_history(c, &given, &in->history));
    return call_body_ids(c, "members", GROUP_FIRST_MEMBERS_MAX, &in->members, &in->member_count);
}

enum err groups_create(struct call *c, struct tx *tx)
{
    struct group_call *g = c->work;
    TRY(group_create(tx, &g->in, &c->x->arena, &g->group));
    c->object = g->group.id;
    return OK;
}

enum err groups_repeat(struct call *c, struct tx *tx)
{
    return group_get(tx, c->object, c->caller.account, &c->x->arena, &begin(c)->group);
}

void groups_render(struct call *c)
{
    const struct group_call *g = c->work;
    render_group(&c->json, &g->group);
}

void groups_render_new(struct call *c)
{
    const struct group_call *g = c->work;
    groups_render(c);
    http_add_header(c->x, "Location", "/v1/groups/%llu", (unsigned long long)g->group.id);
}

enum err groups_show(struct call *c, struct tx *tx)
{
    struct group group;
    TRY(group_get(tx, c->params[0], c->caller.account, &c->x->arena, &group));
    render_group(&c->json, &group);
    return OK;
}

static enum err body_own_flag(struct call *c, const char *name, bool *given, bool *out)
{
    const json_t *value = json_object_get(c->body, name);
    *given = value && !json_is_null(value);
    return call_body_flag(c, name, out);
}

enum err groups_prepare_change(struct call *c)
{
    struct group_change *change = &begin(c)->change;
    TRY(call_body_text(c, "name", false, &change->name));
    TRY(body_history(c, &change->set_history, &change->history));
    TRY(body_own_flag(c, "muted", &change->set_muted, &change->muted));
    return body_own_flag(c, "archived", &change->set_archived, &change->archived);
}

enum err groups_update(struct call *c, struct tx *tx)
{
    struct group_call *g = c->work;
    c->object = c->params[0];
    return group_update(tx, c->object, c->caller.account, &g->change, &c->x->arena, &g->group);
}

enum err chat_put(struct call *c, struct tx *tx)
{
    struct group_call *g = begin(c);
    bool made;
    TRY(chat_open(tx, c->caller.account, c->params[0], &c->x->arena, &g->group, &made));
    c->object = g->group.id;
    c->status = made ? 201 : 200;
    return OK;
}

/* ---- members ---- */

enum err members_list(struct call *c, struct tx *tx)
{
    size_t limit, n;
    uint64_t after, next;
    struct group_member found[MEMBERS_MAX];
    TRY(call_page(c, MEMBERS_MAX, &limit, &after));
    if (after == UINT64_MAX)
        after = 0;
    TRY(group_member_list(tx, c->params[0], c->caller.account, after, limit, &c->x->arena, found,
                          &n, &next));
    call_list_begin(c);
    for (size_t i = 0; i < n; i++)
        render_group_member(&c->json, &found[i]);
    call_list_end(c, next);
    return OK;
}

struct member_call {
    struct member_wish wish;
    struct group_member member;
};

enum err members_prepare(struct call *c)
{
    struct member_call *m = c->work = ARENA_NEW(&c->x->arena, struct member_call);
    struct str role = {NULL, 0};
    TRY(call_body_text(c, "role", false, &role));
    TRY(call_body_flag(c, "invite", &m->wish.invite));
    m->wish.set_role = role.ptr != NULL;
    if (role.ptr && !group_role_parse(role, &m->wish.role))
        return call_fail(c, ERR_INVALID, "role must be owner, admin or member");
    return OK;
}

void members_render(struct call *c)
{
    const struct member_call *m = c->work;
    render_group_member(&c->json, &m->member);
}

enum err members_put(struct call *c, struct tx *tx)
{
    struct member_call *m = c->work;
    enum member_outcome outcome;
    TRY(group_member_put(tx, c->params[0], c->caller.account, c->params[1], &m->wish, &outcome));
    TRY(group_member_get(tx, c->params[0], c->params[1], &c->x->arena, &m->member));
    c->status = outcome == MEMBER_JOINED || outcome == MEMBER_INVITED ? 201 : 200;
    return OK;
}

enum err members_repeat(struct call *c, struct tx *tx)
{
    struct member_call *m = c->work = ARENA_NEW(&c->x->arena, struct member_call);
    struct group group;
    TRY(group_get(tx, c->params[0], c->caller.account, &c->x->arena, &group));
    return group_member_get(tx, c->params[0], c->params[1], &c->x->arena, &m->member);
}

enum err members_delete(struct call *c, struct tx *tx)
{
    c->status = 204;
    return group_member_remove(tx, c->params[0], c->caller.account, c->params[1]);
}

enum err invitations_list(struct call *c, struct tx *tx)
{
    size_t limit, n;
    uint64_t below;
    struct group_invitation found[INVITATIONS_MAX];
    TRY(call_page(c, INVITATIONS_MAX, &limit, &below));
    TRY(group_invitation_list(tx, c->caller.account, below, limit, &c->x->arena, found, &n));
    call_list_begin(c);
    for (size_t i = 0; i < n; i++)
        render_group_invitation(&c->json, &found[i]);
    call_list_end(c, n == limit ? found[n - 1].group : 0);
    return OK;
}

/* ---- the limit of one group's log, as the rows of its writes name it ---- */

static int64_t rate(const struct settings *settings)
{
    return settings->group_rate;
}

static void written(struct api *api, uint64_t group, int64_t took_us)
{
    hot_keys_record(api->hot_groups, group, took_us, clock_mono_us(api->clock));
}

static void refused(struct api *api)
{
    hot_keys_refused(api->hot_groups);
}

const struct route_limit group_limit = {.noun = "group",
                                        .unit = "messages",
                                        .burst = 2,
                                        .rate = rate,
                                        .written = written,
                                        .refused = refused};
