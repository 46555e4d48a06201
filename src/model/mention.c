/* Mentions: from @username to accounts.
 *
 * Names are looked up in the transaction that writes the text. So the event says who was named when
 * it was written, whatever becomes of the names later, and a replay reaches the same people; and
 * every consumer finds a list of accounts (TO_LISTED) instead of a text to read. It costs one
 * statement, and only where a text holds an @. */
#include "model/mention.h"

#include "base/check.h"

static bool in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

/* What stands before the @ of a name. */
static bool ends_before(struct str text, size_t at)
{
    char before = at > 0 ? text.ptr[at - 1] : ' ';
    return !in_name(before) && before != '@' && before != '/';
}

static bool has_name(const struct mention_name *names, size_t n, const struct mention_name *name)
{
    for (size_t i = 0; i < n; i++)
        if (names[i].len == name->len && memcmp(names[i].text, name->text, name->len) == 0)
            return true;
    return false;
}

size_t mention_names(struct str text, struct mention_name out[MENTIONS_MAX])
{
    size_t n = 0, at = 0;
    while (n < MENTIONS_MAX && at < text.len) {
        const char *found = memchr(text.ptr + at, '@', text.len - at);
        if (!found)
            break;
        size_t sign = (size_t)(found - text.ptr), end = sign + 1;
        while (end < text.len && in_name(text.ptr[end]))
            end++;
        at = end;
        if (!ends_before(text, sign) || (end < text.len && text.ptr[end] == '@'))
            continue;
        while (end > sign + 1 && text.ptr[end - 1] == '.')
            end--;
        struct mention_name name;
        struct str written = {text.ptr + sign + 1, end - sign - 1};
        if (username_normalize(written, name.text, &name.len) && !has_name(out, n, &name))
            out[n++] = name;
    }
    return n;
}

struct str mention_data(uint64_t post, const uint64_t *to, size_t n, char memory[MENTION_DATA_MAX])
{
    struct buf out = buf_over(memory, MENTION_DATA_MAX);
    buf_str(&out, STR("{"));
    if (post) {
        buf_str(&out, STR("\"post\":\""));
        buf_u64(&out, post);
        buf_str(&out, n > 0 ? STR("\",") : STR("\""));
    }
    for (size_t i = 0; i < n; i++) {
        buf_str(&out, i > 0 ? STR(",\"") : STR("\"to\":[\""));
        buf_u64(&out, to[i]);
        buf_str(&out, STR("\""));
    }
    buf_str(&out, n > 0 ? STR("]}") : STR("}"));
    CHECK(!out.failed);
    return buf_view(&out);
}

/* The first of `names` stands for those that are not there. */
static enum err look_up(struct tx *tx, uint64_t by, const struct mention_name *names, size_t n,
                        uint64_t ids[MENTIONS_MAX], size_t *found)
{
    struct db_value args[MENTIONS_MAX + 1];
    for (size_t i = 0; i < MENTIONS_MAX; i++) {
        const struct mention_name *name = &names[i < n ? i : 0];
        args[i] = DB_TEXT(((struct str){name->text, name->len}));
    }
    args[MENTIONS_MAX] = DB_I64(by);
    return tx_get_ids(
        tx,
        "SELECT a.id FROM accounts a WHERE a.username IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
        "$11, $12, $13, $14, $15, $16, $17, $18, $19, $20) AND a.state = 0 AND a.id <> $21 "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = $21 AND blocked_id = a.id) "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = a.id AND blocked_id = $21) "
        "ORDER BY a.id",
        args, COUNT_OF(args), ids, MENTIONS_MAX, found);
}

enum err mentions_emit(struct tx *tx, const struct mentioning *m)
{
    struct mention_name names[MENTIONS_MAX], before[MENTIONS_MAX];
    uint64_t ids[MENTIONS_MAX];
    char memory[MENTION_DATA_MAX];
    size_t n = mention_names(m->text, names), found = 0, kept = 0;
    size_t known = n > 0 ? mention_names(m->before, before) : 0;
    for (size_t i = 0; i < n; i++)
        if (!has_name(before, known, &names[i]))
            names[kept++] = names[i];
    if (kept == 0)
        return OK;
    TRY(look_up(tx, m->by, names, kept, ids, &found));
    if (found == 0)
        return OK;
    return outbox_emit(
        tx, (struct event){.type = m->comment_on ? EVENT_COMMENT_MENTIONS : EVENT_POST_MENTIONS,
                           .actor = m->by,
                           .object = m->object,
                           .data = mention_data(m->comment_on, ids, found, memory)});
}
