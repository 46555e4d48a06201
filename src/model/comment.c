/* Comments under posts.
 *
 * A comment is deleted softly and stops counting in the same transaction. The counter counts
 * everyone's; a list leaves out those whose authors are hidden or in a block with the reader. */
#include "base/id.h"
#include "model/account.h"
#include "model/follow.h"
#include "model/post.h"

static enum err check_body(struct tx *tx, struct str body)
{
    if (body.len == 0)
        return tx_fail(tx, ERR_INVALID, "body must not be empty");
    if (!str_is_utf8(body))
        return tx_fail(tx, ERR_INVALID, "body is not valid UTF-8");
    if (memchr(body.ptr, 0, body.len))
        return tx_fail(tx, ERR_INVALID, "body holds a NUL character");
    if (str_count_chars(body) > COMMENT_MAX_CHARS)
        return tx_fail(tx, ERR_INVALID, "body is longer than %d characters", COMMENT_MAX_CHARS);
    return OK;
}

static void write_comment(struct json_out *j, uint64_t id, uint64_t post,
                          const struct account *author, struct str body)
{
    json_object_begin(j);
    json_put(j, "id", id, id);
    json_put(j, "post_id", id, post);
    json_key(j, STR("author"));
    account_write_brief(j, author);
    json_put(j, "body", str, body);
    json_put(j, "created_at", time, id_time_ms(id));
    json_object_end(j);
}

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

/* Moves the post's counter and tells the caches where it stands now. */
static enum err count_comment(struct tx *tx, uint64_t post, uint64_t author, int64_t delta)
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

enum err comment_create_as(struct tx *tx, uint64_t id, uint64_t post, uint64_t author,
                           struct str body, struct json_out *j)
{
    enum err e = check_body(tx, body);
    if (!e)
        e = check_post(tx, post, author);
    if (e)
        return e;
    struct arena arena;
    struct account account;
    arena_init(&arena);
    e = account_get(tx, author, &arena, &account);
    if (!e && account.state != ACCOUNT_ACTIVE)
        e = tx_fail(tx, ERR_FORBIDDEN, "the account may not comment");
    if (!e)
        e = tx_exec(tx,
                    "INSERT INTO comments (id, post_id, author_id, body) VALUES ($1, $2, $3, $4)",
                    DB_ARGS(DB_I64(id), DB_I64(post), DB_I64(author), DB_TEXT(body)), NULL);
    if (!e)
        e = count_comment(tx, post, author, 1);
    if (!e && j)
        write_comment(j, id, post, &account, body);
    arena_done(&arena);
    return e;
}

enum err comment_create(struct tx *tx, uint64_t post, uint64_t author, struct str body,
                        struct json_out *j, uint64_t *id)
{
    *id = id_next(tx->ids);
    return comment_create_as(tx, *id, post, author, body, j);
}

enum err comment_list(struct tx *tx, uint64_t post, uint64_t viewer, uint64_t after, size_t limit,
                      struct json_out *j, size_t *n, uint64_t *last)
{
    *n = 0;
    *last = 0;
    enum err e = check_post(tx, post, viewer);
    if (e)
        return e;
    struct db_rows rows;
    e = tx_query(
        tx,
        "SELECT c.id, c.body, a.id, a.username, a.display_name, a.avatar_url "
        "FROM comments c JOIN accounts a ON a.id = c.author_id "
        "WHERE c.post_id = $1 AND c.id > $3 AND c.deleted_at IS NULL AND a.state = 0 "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = $2 AND blocked_id = a.id) "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = a.id AND blocked_id = $2) "
        "ORDER BY c.id LIMIT $4",
        DB_ARGS(DB_I64(post), DB_I64(viewer), DB_I64(after), DB_I64(limit)), &rows);
    if (e)
        return e;
    while (db_next(&rows)) {
        struct account author = {.id = db_id(&rows, 2),
                                 .username = db_text(&rows, 3),
                                 .display_name = db_text(&rows, 4),
                                 .avatar_url = db_text(&rows, 5)};
        *last = db_id(&rows, 0);
        write_comment(j, *last, post, &author, db_text(&rows, 1));
        (*n)++;
    }
    return db_rows_done(&rows);
}

enum err comment_delete(struct tx *tx, uint64_t id, uint64_t editor, int64_t now_ms)
{
    struct db_rows rows;
    enum err e = tx_query(tx,
                          "SELECT c.post_id, c.author_id, p.author_id FROM comments c "
                          "JOIN posts p ON p.id = c.post_id "
                          "WHERE c.id = $1 AND c.deleted_at IS NULL AND p.deleted_at IS NULL",
                          DB_ARGS(DB_I64(id)), &rows);
    if (e)
        return e;
    bool found = db_next(&rows);
    uint64_t post = found ? db_id(&rows, 0) : 0;
    uint64_t author = found ? db_id(&rows, 1) : 0;
    uint64_t post_author = found ? db_id(&rows, 2) : 0;
    e = db_rows_done(&rows);
    if (!e && !found)
        e = tx_fail(tx, ERR_NOT_FOUND, "no such comment");
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
        e = count_comment(tx, post, author, -1);
    return e;
}
