/* Groups, their members, their log, and a person's inbox as JSON. */
#include "model/group.h"
#include "api/render/render.h"
#include "base/id.h"
#include "model/inbox.h"

void render_group(struct json_out *j, const struct group *g)
{
    bool chat = g->kind == GROUP_CHAT;
    json_object_begin(j);
    json_put(j, "id", id, g->id);
    json_put(j, "kind", str, chat ? STR("chat") : STR("group"));
    render_put_str(j, "name", chat ? (struct str){NULL, 0} : g->name);
    json_put(j, "history", str, str_of(group_history_name(g->history)));
    json_put(j, "member_count", i64, g->member_count);
    json_put(j, "seq", i64, g->seq);
    json_put(j, "created_at", time, id_time_ms(g->id));
    json_put(j, "role", str, str_of(group_role_name(g->role)));
    json_put(j, "muted", bool, g->muted);
    json_put(j, "archived", bool, g->archived);
    json_put(j, "read_seq", i64, g->read_seq);
    json_put(j, "joined_seq", i64, g->joined_seq);
    json_key(j, STR("peer"));
    if (g->peer.id)
        render_account_card(j, &g->peer);
    else
        json_nil(j);
    json_object_end(j);
}

void render_group_member(struct json_out *j, const struct group_member *m)
{
    bool member = m->joined_id != 0;
    json_object_begin(j);
    render_account_card_members(j, &m->account);
    json_put(j, "state", str, member ? STR("member") : STR("invited"));
    json_put(j, "role", str, str_of(group_role_name(m->role)));
    json_key(j, STR("joined_seq"));
    member ? json_i64(j, m->joined_seq) : json_nil(j);
    render_put_time(j, "joined_at", member ? id_time_ms(m->joined_id) : 0);
    json_object_end(j);
}

void render_group_invitation(struct json_out *j, const struct group_invitation *i)
{
    json_object_begin(j);
    json_put(j, "group_id", id, i->group);
    json_put(j, "name", str, i->name);
    json_put(j, "member_count", i64, i->member_count);
    json_put(j, "invited_by", id, i->invited_by);
    json_put(j, "created_at", time, i->created_at_ms);
    json_object_end(j);
}

void render_group_entry(struct json_out *j, const struct group_entry *e)
{
    json_object_begin(j);
    json_put(j, "group_id", id, e->group);
    json_put(j, "seq", i64, e->seq);
    json_put(j, "kind", str, str_of(group_entry_kind_name(e->kind)));
    render_put_str(j, "client_id", e->client_id);
    json_put(j, "author_id", id, e->author);
    render_put_str(j, "body", e->body);
    json_put(j, "created_at", time, e->created_at_ms);
    render_put_time(j, "edited_at", e->edited_at_ms);
    json_put(j, "deleted", bool, e->deleted);
    if (e->target_seq)
        json_put(j, "target_seq", i64, e->target_seq);
    if (e->subject)
        json_put(j, "subject_id", id, e->subject);
    json_object_end(j);
}

void render_inbox_item(struct json_out *j, const struct inbox_item *item)
{
    json_object_begin(j);
    json_key(j, STR("group"));
    render_group(j, &item->group);
    json_put(j, "unread", i64, item->unread);
    json_put(j, "mentions", i64, item->mentions);
    json_key(j, STR("last_message"));
    if (item->last.seq)
        render_group_entry(j, &item->last);
    else
        json_nil(j);
    json_put(j, "activity_at", time, id_time_ms(item->activity));
    json_object_end(j);
}
