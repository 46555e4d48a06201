/* Groups, their members, invitations and chats over HTTP. */
#include "api/handlers.h"
#include "base/id.h"
#include "model/chat.h"
#include "model/group.h"

enum { MEMBERS_DEFAULT = 50, MEMBERS_MAX = 200, INVITATIONS_DEFAULT = 20, INVITATIONS_MAX = 100 };

enum err call_body_ids(struct call *c, const char *name, size_t max, const uint64_t **ids,
                       size_t *n)
{
    const json_t *value = c->body ? json_object_get(c->body, name) : NULL;
    *n = 0;
    if (!value || json_is_null(value))
        return OK;
    if (!json_is_array(value))
        return call_fail(c, ERR_INVALID, "%s must be an array of ids", name);
    size_t count = json_array_size(value);
    if (count > max)
        return call_fail(c, ERR_INVALID, "%s holds more than %zu ids", name, max);
    uint64_t *list = ARENA_ARRAY(&c->x->arena, uint64_t, count + 1);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(value, i);
        struct str text = {json_string_value(item), json_string_length(item)};
        if (!text.ptr || !id_parse(text, &list[i]))
            return call_fail(c, ERR_INVALID, "%s must be an array of ids", name);
    }
    *ids = list;
    *n = count;
    return OK;
}

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

enum err groups_create(struct call *c, struct tx *tx)
{
    struct group_new in = {.owner = c->caller.account};
    struct group group;
    bool given;
    enum err e = call_body_text(c, "name", true, &in.name);
    if (!e)
        e = body_history(c, &given, &in.history);
    if (!e)
        e = call_body_ids(c, "members", GROUP_FIRST_MEMBERS_MAX, &in.members, &in.member_count);
    if (!e)
        e = group_create(tx, &in, &c->x->arena, &group);
    if (e)
        return e;
    group_write(&c->json, &group);
    c->status = 201;
    http_add_header(c->x, "Location", "/v1/groups/%llu", (unsigned long long)group.id);
    return OK;
}

enum err groups_show(struct call *c, struct tx *tx)
{
    struct group group;
    enum err e = group_get(tx, c->params[0], c->caller.account, &c->x->arena, &group);
    if (!e)
        group_write(&c->json, &group);
    return e;
}

static enum err body_own_flag(struct call *c, const char *name, bool *given, bool *out)
{
    const json_t *value = json_object_get(c->body, name);
    *given = value && !json_is_null(value);
    return call_body_flag(c, name, out);
}

enum err groups_update(struct call *c, struct tx *tx)
{
    struct group_change change = {0};
    struct group group;
    enum err e = call_body_text(c, "name", false, &change.name);
    if (!e)
        e = body_history(c, &change.set_history, &change.history);
    if (!e)
        e = body_own_flag(c, "muted", &change.set_muted, &change.muted);
    if (!e)
        e = body_own_flag(c, "archived", &change.set_archived, &change.archived);
    if (!e)
        e = group_update(tx, c->params[0], c->caller.account, &change, &c->x->arena, &group);
    if (!e)
        group_write(&c->json, &group);
    return e;
}

enum err chat_put(struct call *c, struct tx *tx)
{
    struct group group;
    bool made;
    enum err e = chat_open(tx, c->caller.account, c->params[0], &c->x->arena, &group, &made);
    if (e)
        return e;
    group_write(&c->json, &group);
    c->status = made ? 201 : 200;
    return OK;
}

/* ---- members ---- */

enum err members_list(struct call *c, struct tx *tx)
{
    size_t limit;
    uint64_t after, next;
    enum err e = call_page(c, MEMBERS_DEFAULT, MEMBERS_MAX, &limit, &after);
    if (e)
        return e;
    if (after == UINT64_MAX)
        after = 0;
    call_list_begin(c);
    e = group_member_list(tx, c->params[0], c->caller.account, after, limit, &c->json, &next);
    if (!e)
        call_list_end(c, next);
    return e;
}

enum err members_put(struct call *c, struct tx *tx)
{
    struct member_wish wish = {0};
    struct str role = {NULL, 0};
    enum member_outcome outcome;
    enum err e = call_body_text(c, "role", false, &role);
    if (!e)
        e = call_body_flag(c, "invite", &wish.invite);
    if (e)
        return e;
    wish.set_role = role.ptr != NULL;
    if (role.ptr && !group_role_parse(role, &wish.role))
        return call_fail(c, ERR_INVALID, "role must be owner, admin or member");
    e = group_member_put(tx, c->params[0], c->caller.account, c->params[1], &wish, &outcome);
    if (!e)
        e = group_member_show(tx, c->params[0], c->params[1], &c->json);
    if (!e)
        c->status = outcome == MEMBER_JOINED || outcome == MEMBER_INVITED ? 201 : 200;
    return e;
}

enum err members_delete(struct call *c, struct tx *tx)
{
    c->status = 204;
    return group_member_remove(tx, c->params[0], c->caller.account, c->params[1]);
}

enum err invitations_list(struct call *c, struct tx *tx)
{
    size_t limit, n;
    uint64_t below, last;
    enum err e = call_page(c, INVITATIONS_DEFAULT, INVITATIONS_MAX, &limit, &below);
    if (e)
        return e;
    call_list_begin(c);
    e = group_invitation_list(tx, c->caller.account, below, limit, &c->json, &n, &last);
    if (!e)
        call_list_end(c, n == limit ? last : 0);
    return e;
}
