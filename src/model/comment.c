/* Comments under posts.
 *
 * A comment is deleted softly and stops counting in the same transaction. The counter counts
 * everyone's; a list leaves out those whose authors are hidden or in a block with the reader. */
#include "base/id.h"
#include "model/account.h"
#include "model/follow.h"
#include "model/post.h"
#include "model/text.h"

/* Is the post there for this person? The same answer as reading it. */
static enum err check_post(struct tx *tx, uint64_t post, uint64_t viewer)
{
    struct arena arena;
    struct post_card card;
    arena_init(&arena);
    enum err e = post_get(tx, post, viewer, &arena, &card);
    arena_done(&arena);
    return e;
}

enum err comment_count(struct tx *tx, uint64_t post, uint64_t author, int64_t delta)
{
    int64_t count;
    enum err e = tx_get_i64(tx,
                            "UPDATE posts SET comment_count = comment_count + $2 WHERE id = $1 "
                            "RETURNING comment_count",
                            DB_ARGS(DB_I64(post), DB_I64(delta)), &count);
    if (e)
        return e;
    return outbox_emit(
        tx, (struct event){.type = delta > 0 ? EVENT_POST_COMMENTED : EVENT_POST_UNCOMMENTED,
                           .actor = author,
                           .object = post,
                           .value = count});
}

enum err comment_create(struct tx *tx, uint64_t id, uint64_t post, uint64_t author, struct str body,
                        struct arena *arena, struct comment *out)
{
    enum err e = text_check(tx, body, "body", COMMENT_MAX_CHARS, TEXT_FREE);
    struct account account;
    if (!e)
        e = check_post(tx, post, author);
    if (!e)
        e = account_get(tx, author, arena, &account);
    if (!e && account.state != ACCOUNT_ACTIVE)
        e = tx_fail(tx, ERR_FORBIDDEN, "the account may not comment");
    if (e)
        return e;
    *out = (struct comment){id ? id : id_next(tx->ids), post, account_card_of(&account),
                            arena_str(arena, body)};
    e = tx_exec(tx, "INSERT INTO comments (id, post_id, author_id, body) VALUES ($1, $2, $3, $4)",
                DB_ARGS(DB_I64(out->id), DB_I64(post), DB_I64(author), DB_TEXT(body)), NULL);
    return e ? e : comment_count(tx, post, author, 1);
}

enum err comment_list(struct tx *tx, uint64_t post, uint64_t viewer, uint64_t after, size_t limit,
                      struct arena *arena, struct comment *out, size_t *n)
{
    *n = 0;
    enum err e = check_post(tx, post, viewer);
    if (e)
        return e;
    struct db_rows rows;
    e = tx_query(
        tx,
        "SELECT c.id, c.body, " ACCOUNT_CARD_COLUMNS " "
        "FROM comments c JOIN accounts a ON a.id = c.author_id "
        "WHERE c.post_id = $1 AND c.id > $3 AND c.deleted_at IS NULL AND a.state = 0 "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = $2 AND blocked_id = a.id) "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = a.id AND blocked_id = $2) "
        "ORDER BY c.id LIMIT $4",
        DB_ARGS(DB_I64(post), DB_I64(viewer), DB_I64(after), DB_I64(limit)), &rows);
    if (e)
        return e;
    for (; *n < limit && db_next(&rows); (*n)++) {
        out[*n] = (struct comment){
            .id = db_id(&rows, 0), .post = post, .body = arena_str(arena, db_text(&rows, 1))};
        account_card_read(&rows, 2, arena, &out[*n].author);
    }
    return db_rows_done(&rows);
}

enum err comment_delete(struct tx *tx, uint64_t id, uint64_t editor, int64_t now_ms)
{
    int64_t row[3] = {0};
    enum err e = tx_get_numbers(tx,
                                "SELECT c.post_id, c.author_id, p.author_id FROM comments c "
                                "JOIN posts p ON p.id = c.post_id "
                                "WHERE c.id = $1 AND c.deleted_at IS NULL AND p.deleted_at IS NULL",
                                DB_ARGS(DB_I64(id)), row, 3);
    if (e == ERR_NOT_FOUND)
        e = tx_fail(tx, ERR_NOT_FOUND, "no such comment");
    uint64_t post = (uint64_t)row[0], author = (uint64_t)row[1], post_author = (uint64_t)row[2];
    bool blocked = false;
    if (!e && editor != author && editor != post_author) {
        e = check_post(tx, post, editor);
        if (!e)
            e = block_between(tx, author, editor, &blocked);
        if (!e)
            e = blocked
                    ? tx_fail(tx, ERR_NOT_FOUND, "no such comment")
                    : tx_fail(tx, ERR_FORBIDDEN, "only its author and the post's may delete it");
    }
    /* Whoever changes the row takes the count with it: of two at once, one finds nothing left. */
    int64_t changed = 0;
    if (!e)
        e = tx_exec(tx, "UPDATE comments SET deleted_at = $2 WHERE id = $1 AND deleted_at IS NULL",
                    DB_ARGS(DB_I64(id), DB_I64(now_ms)), &changed);
    if (!e && changed == 0)
        e = tx_fail(tx, ERR_NOT_FOUND, "no such comment");
    if (!e)
        e = comment_count(tx, post, author, -1);
    return e;
}
