/* Inboxes from truth. Reading them through the views: inbox_read.c.
 *
 * What is unread is a subtraction: the group counts its messages, and a member's mark holds how
 * many there were up to it. So neither a message nor a read touches more than one member's row,
 * however many members there are. Mentions are rows, counted above the mark; so are deleted
 * messages, which both numbers still hold.
 *
 * Reading is two questions: which groups in which order, and what is shown of them. A view may
 * answer the first, whatever it holds. The second is asked here, and what was found is kept in
 * cards only until something of it changes (inbox_cards.h); so nothing is shown that is not so. */
#include "model/inbox.h"

#include <string.h>

#include "base/check.h"
#include "base/id.h"

enum err inbox_from_truth(struct tx *tx, uint64_t account, uint64_t below, bool archived,
                          size_t limit, uint64_t *groups, uint64_t *activities, size_t *n)
{
    *n = 0;
    struct db_rows rows = tx_rows(
        tx,
        "SELECT s.id, s.activity FROM (SELECT g.id AS id, CASE WHEN m.joined_id > g.last_id "
        "THEN m.joined_id ELSE g.last_id END AS activity FROM group_members m "
        "JOIN groups g ON g.id = m.group_id WHERE m.account_id = $1 AND m.left_seq IS NULL "
        "AND m.archived = $3) AS s WHERE s.activity < $2 ORDER BY s.activity DESC LIMIT $4",
        DB_ARGS(DB_I64(account), DB_BELOW(below), DB_I64(archived), DB_I64(limit)));
    while (*n < limit && db_next(&rows)) {
        groups[*n] = db_id(&rows, 0);
        activities[*n] = db_id(&rows, 1);
        (*n)++;
    }
    return db_rows_done(&rows);
}

enum err inbox_all_from_truth(struct tx *tx, uint64_t account, struct inbox_entry *out, size_t max,
                              size_t *n)
{
    *n = 0;
    struct db_rows rows = tx_rows(
        tx,
        "SELECT g.id, CASE WHEN m.joined_id > g.last_id THEN m.joined_id ELSE g.last_id END AS "
        "activity FROM group_members m JOIN groups g ON g.id = m.group_id "
        "WHERE m.account_id = $1 AND m.left_seq IS NULL ORDER BY activity DESC LIMIT $2",
        DB_ARGS(DB_I64(account), DB_I64(max)));
    while (*n < max && db_next(&rows))
        out[(*n)++] = (struct inbox_entry){db_id(&rows, 0), db_id(&rows, 1)};
    return db_rows_done(&rows);
}

static void read_item(struct db_rows *rows, struct arena *arena, struct inbox_item *out)
{
    enum { MORE = GROUP_COLUMN_COUNT };
    group_read_columns(rows, arena, &out->group);
    const struct group *g = &out->group;
    out->activity = group_activity(g);
    out->peer = db_id(rows, MORE + 7);
    out->position = 0;
    out->mentions = db_i64(rows, MORE);
    out->deleted = db_i64(rows, MORE + 8);
    out->unread = g->messages - g->read_count - out->deleted;
    out->last = (struct group_entry){0};
    if (db_is_null(rows, MORE + 1))
        return;
    out->last = (struct group_entry){
        .group = g->id,
        .seq = g->last_seq,
        .kind = ENTRY_MESSAGE,
        .author = db_id(rows, MORE + 1),
        .client_id = arena_str_or_null(arena, db_text(rows, MORE + 2)),
        .body = arena_str_or_null(arena, db_text(rows, MORE + 3)),
        .created_at_ms = db_i64(rows, MORE + 4),
        .edited_at_ms = db_i64(rows, MORE + 5),
        .deleted = !db_is_null(rows, MORE + 6),
    };
}

void inbox_hide_unseen(struct inbox_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct group *g = &items[i].group;
        if (g->history != GROUP_HISTORY_ALL && g->last_seq < g->joined_seq)
            items[i].last = (struct group_entry){0};
    }
}

enum err inbox_items(struct tx *tx, uint64_t account, const uint64_t *groups, size_t n,
                     struct arena *arena, struct inbox_item *out, size_t *count)
{
    TRY(inbox_rows(tx, account, groups, n, arena, out, count));
    inbox_hide_unseen(out, *count);
    return OK;
}

enum err inbox_rows(struct tx *tx, uint64_t account, const uint64_t *groups, size_t n,
                    struct arena *arena, struct inbox_item *out, size_t *count)
{
    *count = 0;
    CHECK(n <= INBOX_LIMIT_MAX);
    if (n == 0)
        return OK;
    /* CROSS JOIN: SQLite then takes the tables in this order, and looks at no other group. */
    struct db_rows rows = tx_rows(
        tx,
        "SELECT " GROUP_COLUMNS ", (SELECT COUNT(*) FROM (SELECT 1 FROM group_mentions x "
        "WHERE x.account_id = m.account_id AND x.group_id = m.group_id AND x.seq > m.read_seq "
        "LIMIT $3) AS few), l.author_id, l.client_id, l.body, l.created_at, l.edited_at, "
        "l.deleted_at, CASE WHEN g.kind = 1 THEN (SELECT o.account_id FROM group_members o "
        "WHERE o.group_id = g.id AND o.account_id <> m.account_id LIMIT 1) END, "
        "(SELECT COUNT(*) FROM (SELECT 1 FROM group_log d WHERE d.group_id = m.group_id "
        "AND d.seq > m.read_seq AND d.deleted_at IS NOT NULL LIMIT $4) AS gone) FROM ids($2) AS i "
        "CROSS JOIN group_members m CROSS JOIN groups g " GROUP_PEER
        "LEFT JOIN group_log l ON l.group_id = g.id AND l.seq = g.last_seq "
        "WHERE m.group_id = i.id AND m.account_id = $1 AND m.left_seq IS NULL AND g.id = i.id",
        DB_ARGS(DB_I64(account), DB_IDS(groups, n), DB_I64(INBOX_MENTIONS_MAX),
                DB_I64(INBOX_DELETED_MAX)));
    /* They come in any order, and are wanted in that of `groups`. */
    struct inbox_item *found = ARENA_ARRAY(arena, struct inbox_item, n);
    while (db_next(&rows)) {
        struct inbox_item item;
        read_item(&rows, arena, &item);
        for (size_t i = 0; i < n; i++) {
            if (groups[i] == item.group.id && !found[i].group.id) {
                found[i] = item;
                break;
            }
        }
    }
    enum err e = db_rows_done(&rows);
    for (size_t i = 0; !e && i < n; i++) {
        if (found[i].group.id)
            out[(*count)++] = found[i];
    }
    return e;
}

enum err inbox_mark_read(struct tx *tx, uint64_t group, uint64_t account, int64_t seq,
                         struct arena *arena, struct inbox_item *out)
{
    struct group g;
    size_t count = 0;
    enum err e = group_get(tx, group, account, arena, &g);
    if (e)
        return e;
    if (seq > g.seq)
        seq = g.seq;
    if (seq > g.read_seq) {
        e = tx_exec(tx,
                    "UPDATE group_members SET read_seq = $3, read_count = "
                    "(SELECT messages FROM group_log WHERE group_id = $1 AND seq = $3) "
                    "WHERE group_id = $1 AND account_id = $2",
                    DB_ARGS(DB_I64(group), DB_I64(account), DB_I64(seq)), NULL);
        if (!e)
            e = outbox_emit(
                tx, (struct event){
                        .type = EVENT_GROUP_READ, .actor = group, .object = account, .value = seq});
    }
    if (!e)
        e = inbox_items(tx, account, &group, 1, arena, out, &count);
    return e ? e : count ? OK : ERR_INTERNAL;
}
