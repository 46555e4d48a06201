/* Messages: sending, editing, deleting.
 *
 * Sending is the hot path and takes few statements: the group's row (which also answers "a member?
 * active? sent before? a chat with a block in it?" and gives the number), the entry, the outbox
 * row, and the sender's own read mark. Only the first has an answer to wait for. It refuses by
 * changing nothing; the refused job then finds out why.
 *
 * Where statements are trips, messages that wait go together (message_send_all): one statement asks
 * for all of them what the group's row answers, and the numbers are counted from there; then come
 * the groups' rows, all entries, all read marks and all events, a statement each. A message that is
 * refused, or was sent before, takes no number and goes by itself.
 *
 * The event's id is taken before the number, so ids and numbers of one group may be in another
 * order when many nodes write: the row keeps the greatest id, which is all that inboxes are ordered
 * by.
 *
 * A message with mentions has a second event, just before its own: mentioned members come first,
 * and no other message has to be checked for mentions. */
#include <string.h>

#include "base/hash.h"
#include "base/id.h"
#include "model/follow.h"
#include "model/group.h"
#include "model/text.h"

/* ---- sending ---- */

enum err message_check(struct tx *tx, const struct message_new *in)
{
    TRY(text_check(tx, in->body, "body", MESSAGE_MAX_CHARS, TEXT_FREE));
    if (in->mention_count > MESSAGE_MENTIONS_MAX)
        return tx_fail(tx, ERR_INVALID, "at most %d mentions", MESSAGE_MENTIONS_MAX);
    if (!in->client_id.ptr)
        return OK;
    bool printable = in->client_id.len > 0 && in->client_id.len <= MESSAGE_CLIENT_ID_MAX;
    for (size_t i = 0; i < in->client_id.len && printable; i++)
        printable = in->client_id.ptr[i] >= ' ' && in->client_id.ptr[i] < 0x7f;
    if (!printable)
        return tx_fail(tx, ERR_INVALID, "client_id must be 1 to %d printable characters",
                       MESSAGE_CLIENT_ID_MAX);
    return OK;
}

static int64_t hash_of(struct str body)
{
    return (int64_t)hash_checksum(body.ptr, body.len, 0);
}

#define MESSAGE_COLUMNS "seq, author_id, client_id, body, created_at, edited_at, deleted_at"

static void read_message(struct db_rows *rows, uint64_t group, struct arena *arena,
                         struct group_entry *out)
{
    *out = (struct group_entry){
        .group = group,
        .kind = ENTRY_MESSAGE,
        .seq = db_i64(rows, 0),
        .author = db_id(rows, 1),
        .client_id = arena_str_or_null(arena, db_text(rows, 2)),
        .body = arena_str_or_null(arena, db_text(rows, 3)),
        .created_at_ms = db_i64(rows, 4),
        .edited_at_ms = db_i64(rows, 5),
        .deleted = !db_is_null(rows, 6),
    };
}

/* The message that this author sent under this client_id, as it is now. */
static enum err find_sent(struct tx *tx, const struct message_new *in, struct arena *arena,
                          struct group_entry *out, bool *same)
{
    struct db_rows rows =
        tx_rows(tx,
                "SELECT " MESSAGE_COLUMNS ", sent_hash "
                "FROM group_log WHERE group_id = $1 AND author_id = $2 AND client_id = $3",
                DB_ARGS(DB_I64(in->group), DB_I64(in->author), DB_TEXT(in->client_id)));
    bool found = db_next(&rows);
    if (found) {
        read_message(&rows, in->group, arena, out);
        /* Of a deleted message nothing is left to compare with. */
        *same = db_is_null(&rows, 7) || db_i64(&rows, 7) == hash_of(in->body);
    }
    TRY(db_rows_done(&rows));
    return found ? OK : ERR_NOT_FOUND;
}

/* A chat takes nothing new when one of the two is gone or blocks the other. */
static enum err check_chat(struct tx *tx, const struct group *g, uint64_t author)
{
    if (g->kind != GROUP_CHAT)
        return OK;
    int64_t blocks = 0;
    if (g->member_count < 2)
        return tx_fail(tx, ERR_FORBIDDEN, "the other account is gone");
    TRY(tx_get_i64(tx,
                   "SELECT COUNT(*) FROM group_members o JOIN blocks b "
                   "ON (b.blocker_id = o.account_id AND b.blocked_id = $2) "
                   "OR (b.blocker_id = $2 AND b.blocked_id = o.account_id) "
                   "WHERE o.group_id = $1 AND o.account_id <> $2",
                   DB_ARGS(DB_I64(g->id), DB_I64(author)), &blocks));
    return blocks ? tx_fail(tx, ERR_FORBIDDEN, "a block lies between the two accounts") : OK;
}

/* The group's row was not changed: why not? */
static enum err explain_refusal(struct tx *tx, const struct message_new *in, struct arena *arena,
                                struct group_entry *out, bool *repeated)
{
    struct group g;
    bool same = false;
    TRY(group_get(tx, in->group, in->author, arena, &g));
    enum err e = in->client_id.ptr ? find_sent(tx, in, arena, out, &same) : ERR_NOT_FOUND;
    if (!e && !same)
        return tx_fail(tx, ERR_INVALID, "this client_id was used with another body");
    *repeated = !e;
    if (e != ERR_NOT_FOUND)
        return e;
    TRY(check_chat(tx, &g, in->author));
    return tx_fail(tx, ERR_FORBIDDEN, "the account may not write");
}

static enum err mention(struct tx *tx, const struct message_new *in, uint64_t event, int64_t seq)
{
    uint64_t ids[MESSAGE_MENTIONS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < in->mention_count; i++) {
        size_t k = 0;
        while (k < n && ids[k] != in->mentions[i])
            k++;
        if (k == n)
            ids[n++] = in->mentions[i];
    }
    if (n == 0)
        return OK;
    int64_t written = 0;
    TRY(tx_exec(tx,
                "INSERT INTO group_mentions (account_id, group_id, seq) "
                "SELECT m.account_id, m.group_id, $2 FROM ids($3) AS i "
                "CROSS JOIN group_members m WHERE m.group_id = $1 "
                "AND m.account_id = i.id AND m.left_seq IS NULL",
                DB_ARGS(DB_I64(in->group), DB_I64(seq), DB_IDS(ids, n)), &written));
    if (written != (int64_t)n)
        return tx_fail(tx, ERR_INVALID, "only members can be mentioned");
    return outbox_emit(tx, (struct event){.id = event,
                                          .type = EVENT_GROUP_MENTIONS,
                                          .actor = in->group,
                                          .object = in->author,
                                          .value = seq});
}

/* What must hold for a number to be given. The condition on a chat names the other member by the
 * row of the pair's group; a plain group never gets there. */
#define ALLOWED                                                                                    \
    "AND EXISTS (SELECT 1 FROM group_members WHERE group_id = $1 AND account_id = $2 "             \
    "AND left_seq IS NULL) "                                                                       \
    "AND EXISTS (SELECT 1 FROM accounts WHERE id = $2 AND state = 0) "                             \
    "AND NOT EXISTS (SELECT 1 FROM group_log WHERE group_id = $1 AND author_id = $2 "              \
    "AND client_id = $3) "                                                                         \
    "AND (kind = 0 OR (member_count = 2 AND NOT EXISTS (SELECT 1 FROM group_members o "            \
    "JOIN blocks b ON (b.blocker_id = o.account_id AND b.blocked_id = $2) "                        \
    "OR (b.blocker_id = $2 AND b.blocked_id = o.account_id) "                                      \
    "WHERE o.group_id = $1 AND o.account_id <> $2)))"

#define LATEST "last_id = CASE WHEN last_id < $4 THEN $4 ELSE last_id END"

/* Its number and the count of messages with it. ERR_NOT_FOUND: something does not allow it. */
static enum err take_number(struct tx *tx, const struct message_new *in, uint64_t event,
                            int64_t number[2])
{
    static const struct db_update count =
        DB_UPDATE("groups", "seq = seq + 1, messages = messages + 1, last_seq = seq + 1, " LATEST,
                  ALLOWED, "seq, messages");
    return tx_update_numbers(tx, &count,
                             DB_ARGS(DB_I64(in->group), DB_I64(in->author),
                                     DB_TEXT_OR_NULL(in->client_id), DB_I64(event)),
                             number, 2);
}

/* A message on its way into the log. */
struct sending {
    const struct message_new *in;
    struct group_entry *out;
    uint64_t event;
    int64_t seq, messages; /* its number, and how many messages there are with it */
};

/* The log's rows, and the senders' own read marks: a sender of several has read up to the last.
 */
static enum err write_sent(struct tx *tx, const struct sending *all, size_t n, struct arena *arena)
{
    enum { LOG = 8, MARK = 4 };
    struct db_value one_log[LOG], one_mark[MARK];
    struct db_value *log = n == 1 ? one_log : ARENA_ARRAY(arena, struct db_value, n * LOG);
    struct db_value *marks = n == 1 ? one_mark : ARENA_ARRAY(arena, struct db_value, n * MARK);
    size_t marked = 0;
    for (size_t i = 0; i < n; i++) {
        const struct sending *s = &all[i];
        const struct message_new *in = s->in;
        bool named = in->client_id.ptr != NULL, last = true;
        const struct db_value row[LOG] = {DB_I64(in->group),
                                          DB_I64(s->seq),
                                          DB_I64(in->author),
                                          DB_TEXT_OR_NULL(in->client_id),
                                          DB_TEXT(in->body),
                                          DB_I64(s->messages),
                                          named ? DB_I64(hash_of(in->body)) : DB_NULL,
                                          DB_I64(s->out->created_at_ms)};
        memcpy(&log[i * LOG], row, sizeof row);
        for (size_t k = i + 1; k < n && last; k++)
            last = all[k].in->author != in->author || all[k].in->group != in->group;
        const struct db_value mark[MARK] = {DB_I64(in->group), DB_I64(in->author), DB_I64(s->seq),
                                            DB_I64(s->messages)};
        if (last)
            memcpy(&marks[marked++ * MARK], mark, sizeof mark);
    }
    TRY(tx_exec_each(tx,
                     "INSERT INTO group_log (group_id, seq, kind, author_id, client_id, body, "
                     "messages, sent_hash, created_at) VALUES ($1, $2, 0, $3, $4, $5, $6, $7, $8)",
                     log, LOG, n));
    return tx_exec_each(tx,
                        "UPDATE group_members SET read_seq = $3, read_count = $4 "
                        "WHERE group_id = $1 AND account_id = $2",
                        marks, MARK, marked);
}

static void fill_entry(struct tx *tx, struct sending *s)
{
    *s->out = (struct group_entry){
        .group = s->in->group,
        .author = s->in->author,
        .seq = s->seq,
        .kind = ENTRY_MESSAGE,
        .client_id = s->in->client_id,
        .body = s->in->body,
        .created_at_ms = clock_wall_ms(tx->ids->clock),
    };
}

static struct event event_of(const struct sending *s)
{
    return (struct event){.id = s->event,
                          .type = EVENT_GROUP_MESSAGE,
                          .actor = s->in->group,
                          .object = s->in->author,
                          .value = s->seq};
}

enum err message_send(struct tx *tx, const struct message_new *in, struct arena *arena,
                      struct group_entry *out, bool *repeated)
{
    int64_t number[2];
    *repeated = false;
    if (!in->checked)
        TRY(message_check(tx, in));
    uint64_t mentions = in->mention_count ? id_next(tx->ids) : 0;
    struct sending s = {.in = in, .out = out, .event = id_next(tx->ids)};
    enum err e = take_number(tx, in, s.event, number);
    if (e == ERR_NOT_FOUND)
        return explain_refusal(tx, in, arena, out, repeated);
    if (e)
        return e;
    s.seq = number[0];
    s.messages = number[1];
    fill_entry(tx, &s);
    TRY(write_sent(tx, &s, 1, arena));
    TRY(mention(tx, in, mentions, s.seq));
    return outbox_emit(tx, event_of(&s));
}

/* ---- sending many ---- */

/* The groups' rows as they are, and the messages that may get a number in them. Numbers are given
 * here and written behind: a store that runs several transactions at a time fails the one whose row
 * was changed by another meanwhile. */
struct group_row {
    int64_t seq, messages;
};

static void read_group_row(struct db_rows *rows, void *out)
{
    *(struct group_row *)out = (struct group_row){db_i64(rows, 0), db_i64(rows, 1)};
}

static bool is_same_name(const struct message_new *a, const struct message_new *b)
{
    return a->group == b->group && a->author == b->author && a->client_id.ptr && b->client_id.ptr &&
           str_eq(a->client_id, b->client_id);
}

/* May it go with the others? One that says something wrong, mentions an account, or has the name of
 * an earlier one goes by itself. */
static bool can_go_along(const struct message_new *in, size_t i)
{
    struct tx unused = {0}; /* takes the reason */
    bool can = in[i].mention_count == 0 && (in[i].checked || !message_check(&unused, &in[i]));
    for (size_t k = 0; k < i && can; k++)
        can = !is_same_name(&in[k], &in[i]);
    return can;
}

/* The last of them that is of this group. */
static const struct sending *last_of(const struct sending *all, size_t n, uint64_t group)
{
    while (n > 0 && all[n - 1].in->group != group)
        n--;
    return n > 0 ? &all[n - 1] : NULL;
}

/* Those that may be sent, with their numbers; *sent: how many. */
static enum err number_all(struct tx *tx, const struct message_new *in, struct group_entry *out,
                           size_t n, struct arena *arena, bool *taken, struct sending *all,
                           size_t *sent)
{
    enum { ASKED = 3 };
    struct db_value *asked = ARENA_ARRAY(arena, struct db_value, n * ASKED);
    struct group_row *rows = ARENA_ARRAY(arena, struct group_row, n);
    size_t *which = ARENA_ARRAY(arena, size_t, n), count = 0;
    bool *found = ARENA_ARRAY(arena, bool, n);
    for (size_t i = 0; i < n; i++) {
        const struct db_value row[ASKED] = {DB_I64(in[i].group), DB_I64(in[i].author),
                                            DB_TEXT_OR_NULL(in[i].client_id)};
        if (!can_go_along(in, i))
            continue;
        memcpy(&asked[count * ASKED], row, sizeof row);
        which[count++] = i;
    }
    TRY(tx_get_row_each(tx, "SELECT seq, messages FROM groups WHERE id = $1 " ALLOWED, asked, ASKED,
                        count, read_group_row, rows, sizeof *rows, found));
    *sent = 0;
    for (size_t k = 0; k < count; k++) {
        const struct message_new *m = &in[which[k]];
        if (!found[k])
            continue;
        const struct sending *before = last_of(all, *sent, m->group);
        taken[which[k]] = true;
        all[(*sent)++] =
            (struct sending){.in = m,
                             .out = &out[which[k]],
                             .event = id_next(tx->ids),
                             .seq = (before ? before->seq : rows[k].seq) + 1,
                             .messages = (before ? before->messages : rows[k].messages) + 1};
    }
    return OK;
}

enum err message_send_all(struct tx *tx, const struct message_new *in, size_t n,
                          struct arena *arena, struct group_entry *out, bool *taken)
{
    enum { ROW = 4 };
    struct sending *all = ARENA_ARRAY(arena, struct sending, n);
    struct db_value *groups = ARENA_ARRAY(arena, struct db_value, n * ROW);
    struct event *events = ARENA_ARRAY(arena, struct event, n);
    size_t sent, touched = 0;
    TRY(number_all(tx, in, out, n, arena, taken, all, &sent));
    for (size_t i = 0; i < sent; i++) {
        const struct db_value row[ROW] = {DB_I64(all[i].in->group), DB_I64(all[i].seq),
                                          DB_I64(all[i].messages), DB_I64(all[i].event)};
        if (last_of(all, sent, all[i].in->group) == &all[i])
            memcpy(&groups[touched++ * ROW], row, sizeof row);
        fill_entry(tx, &all[i]);
        events[i] = event_of(&all[i]);
    }
    TRY(tx_exec_each(tx,
                     "UPDATE groups SET seq = $2, messages = $3, last_seq = $2, " LATEST " "
                     "WHERE id = $1",
                     groups, ROW, touched));
    TRY(write_sent(tx, all, sent, arena));
    return outbox_emit_all(tx, events, sent);
}

/* ---- changing ---- */

/* A message that the member may see, with its group; deleted ones, too. */
static enum err find_message(struct tx *tx, uint64_t group, int64_t seq, uint64_t member,
                             struct arena *arena, struct group *g, struct group_entry *out)
{
    *out = (struct group_entry){0};
    TRY(group_get(tx, group, member, arena, g));
    struct db_rows rows = tx_rows(tx,
                                  "SELECT " MESSAGE_COLUMNS " FROM group_log "
                                  "WHERE group_id = $1 AND seq = $2 AND kind = 0",
                                  DB_ARGS(DB_I64(group), DB_I64(seq)));
    bool found = db_next(&rows);
    if (found)
        read_message(&rows, group, arena, out);
    TRY(db_rows_done(&rows));
    bool seen = found && (g->history == GROUP_HISTORY_ALL || seq >= g->joined_seq ||
                          out->author == member); /* one's own of an earlier membership, too */
    return seen ? OK : tx_fail(tx, ERR_NOT_FOUND, "no such message");
}

enum err message_edit(struct tx *tx, uint64_t group, int64_t seq, uint64_t editor, struct str body,
                      struct arena *arena, struct group_entry *out)
{
    struct group g;
    struct group_appended at;
    TRY(text_check(tx, body, "body", MESSAGE_MAX_CHARS, TEXT_FREE));
    TRY(find_message(tx, group, seq, editor, arena, &g, out));
    if (out->author != editor)
        return tx_fail(tx, ERR_FORBIDDEN, "only its author may edit a message");
    if (out->deleted)
        return tx_fail(tx, ERR_CONFLICT, "the message is deleted");
    TRY(check_chat(tx, &g, editor));
    if (str_eq(out->body, body))
        return OK; /* the same again: nothing became true */
    TRY(group_append(tx,
                     &(struct group_append){
                         .group = group, .author = editor, .kind = ENTRY_EDIT, .target_seq = seq},
                     &at));
    out->body = body;
    out->edited_at_ms = at.at_ms;
    return tx_exec(
        tx,
        "UPDATE group_log SET body = $3, edited_at = $4, edited_seq = $5 "
        "WHERE group_id = $1 AND seq = $2",
        DB_ARGS(DB_I64(group), DB_I64(seq), DB_TEXT(body), DB_I64(at.at_ms), DB_I64(at.seq)), NULL);
}

static enum err erase(struct tx *tx, uint64_t group, int64_t seq, int64_t now_ms)
{
    TRY(tx_exec(tx,
                "UPDATE group_log SET body = NULL, sent_hash = NULL, deleted_at = $3 "
                "WHERE group_id = $1 AND seq = $2",
                DB_ARGS(DB_I64(group), DB_I64(seq), DB_I64(now_ms)), NULL));
    return tx_exec(tx, "DELETE FROM group_mentions WHERE group_id = $1 AND seq = $2",
                   DB_ARGS(DB_I64(group), DB_I64(seq)), NULL);
}

enum err message_delete(struct tx *tx, uint64_t group, int64_t seq, uint64_t editor,
                        struct arena *arena, struct group_entry *out)
{
    struct group g;
    struct group_appended at;
    TRY(find_message(tx, group, seq, editor, arena, &g, out));
    bool own = out->author == editor;
    if (!own && g.role == GROUP_MEMBER)
        return tx_fail(tx, ERR_FORBIDDEN, "only its author and the group's admins may delete it");
    if (out->deleted)
        return tx_fail(tx, ERR_NOT_FOUND, "no such message");
    out->body = (struct str){NULL, 0};
    out->deleted = true;
    TRY(group_append(tx,
                     &(struct group_append){.group = group,
                                            .author = editor,
                                            .kind = own ? ENTRY_DELETE : ENTRY_MODERATION,
                                            .target_seq = seq},
                     &at));
    return erase(tx, group, seq, at.at_ms);
}

enum err message_mentioned(struct tx *tx, uint64_t group, int64_t seq,
                           uint64_t out[MESSAGE_MENTIONS_MAX], size_t *n)
{
    return tx_get_ids(tx,
                      "SELECT account_id FROM group_mentions WHERE group_id = $1 AND seq = $2 "
                      "ORDER BY account_id LIMIT $3",
                      DB_ARGS(DB_I64(group), DB_I64(seq), DB_I64(MESSAGE_MENTIONS_MAX)), out,
                      MESSAGE_MENTIONS_MAX, n);
}
