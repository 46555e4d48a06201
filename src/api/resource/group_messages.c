/* Messages over HTTP: a group's log is read by plain numbers, which clients keep and compare
 * anyway; a gap between two that they know is a range to ask for. */
#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "model/group.h"

enum { ENTRIES_DEFAULT = 50, ENTRIES_MAX = 200 };

/* Under an Idempotency-Key the message's number is kept, and the answer is written anew when it is
 * asked for again. So a text is stored once, and its deletion has nothing to look for. */
static void answer(struct call *c, const struct group_entry *message)
{
    render_group_entry(&c->json, message);
    if (c->idempotency_key.ptr)
        c->kept = arena_printf(&c->x->arena, "%lld", (long long)message->seq);
}

enum err messages_repeat(struct call *c, struct tx *tx, struct str kept)
{
    uint64_t seq;
    struct group_entry message;
    enum err e = str_parse_u64(kept, &seq) ? OK : ERR_INTERNAL;
    if (!e)
        e = message_again(tx, c->params[0], (int64_t)seq, c->caller.account, &c->x->arena,
                          &message);
    if (!e)
        render_group_entry(&c->json, &message);
    return e == ERR_NOT_FOUND ? ERR_INTERNAL : e; /* entries stay: there must be one */
}

static struct str text_of(const json_t *text)
{
    return (struct str){json_string_value(text), json_string_length(text)};
}

/* What is not as it should be is left to the handler to say. */
void messages_first_statement(struct call *c)
{
    const json_t *client_id = json_object_get(c->body, "client_id");
    if (!c->api->db->shared || json_array_size(json_object_get(c->body, "mentions")) ||
        (client_id && !json_is_string(client_id)))
        return;
    message_first_statement(
        &c->job, &(struct message_new){.group = c->params[0],
                                       .author = c->caller.account,
                                       .client_id = text_of(client_id),
                                       .body = text_of(json_object_get(c->body, "body"))});
}

enum err messages_send(struct call *c, struct tx *tx)
{
    struct message_new in = {.group = c->params[0], .author = c->caller.account};
    struct group_entry message;
    bool repeated;
    TRY(call_body_text(c, "body", true, &in.body));
    TRY(call_body_text(c, "client_id", false, &in.client_id));
    TRY(call_body_ids(c, "mentions", MESSAGE_MENTIONS_MAX, &in.mentions, &in.mention_count));
    TRY(message_send(tx, &in, &c->x->arena, &message, &repeated));
    answer(c, &message);
    c->status = repeated ? 200 : 201;
    return OK;
}

enum err messages_edit(struct call *c, struct tx *tx)
{
    struct group_entry message;
    struct str body;
    TRY(call_body_text(c, "body", true, &body));
    TRY(message_edit(tx, c->params[0], (int64_t)c->params[1], c->caller.account, body, &c->x->arena,
                     &message));
    answer(c, &message);
    return OK;
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
