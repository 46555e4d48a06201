/* Messages over HTTP: a group's log is read by plain numbers, which clients keep and compare
 * anyway; a gap between two that they know is a range to ask for. */
#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "model/group.h"

enum { ENTRIES_DEFAULT = 50, ENTRIES_MAX = 200 };

struct message_call {
    struct group_entry message; /* what is answered */
    struct message_new in;
    bool repeated;
};

void messages_render(struct call *c)
{
    const struct message_call *m = c->work;
    render_group_entry(&c->json, &m->message);
}

/* Who has left reads on what they wrote. */
enum err messages_repeat(struct call *c, struct tx *tx)
{
    struct message_call *m = c->work = ARENA_NEW(&c->x->arena, struct message_call);
    return message_again(tx, c->params[0], (int64_t)c->object, c->caller.account, &c->x->arena,
                         &m->message);
}

enum err messages_prepare(struct call *c)
{
    struct tx says = {0};
    struct message_call *m = c->work = ARENA_NEW(&c->x->arena, struct message_call);
    m->in = (struct message_new){.group = c->params[0], .author = c->caller.account};
    TRY(call_body_text(c, "body", true, &m->in.body));
    TRY(call_body_text(c, "client_id", false, &m->in.client_id));
    TRY(call_body_ids(c, "mentions", MESSAGE_MENTIONS_MAX, &m->in.mentions, &m->in.mention_count));
    TRY(call_checked(c, &says, message_check(&says, &m->in)));
    m->in.checked = true;
    return OK;
}

enum err messages_send(struct call *c, struct tx *tx)
{
    struct message_call *m = c->work;
    TRY(message_send(tx, &m->in, &c->x->arena, &m->message, &m->repeated));
    c->object = (uint64_t)m->message.seq;
    c->status = m->repeated ? 200 : 201;
    return OK;
}

enum err messages_send_together(struct call *const *calls, size_t n, struct tx *tx, bool *taken)
{
    struct arena *arena = &calls[0]->x->arena;
    struct message_new *in = ARENA_ARRAY(arena, struct message_new, n);
    struct group_entry *out = ARENA_ARRAY(arena, struct group_entry, n);
    for (size_t i = 0; i < n; i++)
        in[i] = ((const struct message_call *)calls[i]->work)->in;
    TRY(message_send_all(tx, in, n, arena, out, taken));
    for (size_t i = 0; i < n; i++) {
        struct message_call *m = calls[i]->work;
        if (!taken[i])
            continue;
        m->message = out[i];
        m->repeated = false;
        calls[i]->status = 201;
    }
    return OK;
}

enum err messages_prepare_edit(struct call *c)
{
    struct message_call *m = c->work = ARENA_NEW(&c->x->arena, struct message_call);
    return call_body_text(c, "body", true, &m->in.body);
}

enum err messages_edit(struct call *c, struct tx *tx)
{
    struct message_call *m = c->work;
    c->object = c->params[1];
    return message_edit(tx, c->params[0], (int64_t)c->object, c->caller.account, m->in.body,
                        &c->x->arena, &m->message);
}

enum err messages_delete(struct call *c, struct tx *tx)
{
    struct group_entry message;
    enum err e = message_delete(tx, c->params[0], (int64_t)c->params[1], c->caller.account,
                                &c->x->arena, &message);
    c->status = 204;
    return e;
}

/* ---- reading ---- */

enum err messages_list(struct call *c, struct tx *tx)
{
    int64_t after = -1, before = 0, limit = ENTRIES_DEFAULT;
    TRY(call_query_number(c, "after", 0, INT64_MAX, &after));
    TRY(call_query_number(c, "before", 1, INT64_MAX, &before));
    TRY(call_query_number(c, "limit", 1, ENTRIES_MAX, &limit));
    if (after >= 0 && before)
        return call_fail(c, ERR_BAD_INPUT, "give after or before, not both");
    struct log_range range = {
        .after = after, .before = before ? before : INT64_MAX, .limit = (size_t)limit};
    struct log_page page;
    struct arena arena; /* the request's own lasts until the answer has been read */
    arena_init(&arena);
    enum err e = group_log_read(tx, c->params[0], c->caller.account, &range, &arena, &page);
    if (!e) {
        call_list_begin(c);
        for (size_t i = 0; i < page.count; i++)
            render_group_entry(&c->json, &page.entries[i]);
    }
    arena_done(&arena);
    if (e)
        return e;
    json_array_end(&c->json);
    json_key(&c->json, STR("next"));
    page.next ? json_i64(&c->json, page.next) : json_nil(&c->json);
    json_object_end(&c->json);
    if (page.next)
        http_add_header(c->x, "Link", "</v1/groups/%llu/messages?%s=%lld&limit=%lld>; rel=\"next\"",
                        (unsigned long long)c->params[0], after >= 0 ? "after" : "before",
                        (long long)page.next, (long long)limit);
    return OK;
}
