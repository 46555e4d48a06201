/* Comments under posts.
 *
 * A comment is deleted softly and stops counting in the same transaction. The counter counts
 * everyone's. The post's author sees every comment and may delete it; a list leaves out for all
 * others those by people whom the post's author blocks, and those by people in a block with the
 * reader. Comments of hidden accounts are shown to no one. */
#include "base/id.h"
#include "model/account.h"
#include "model/follow.h"
#include "model/mention.h"
#include "model/post.h"
#include "model/text.h"

/* Is comment c, by account a under post p, shown to $2? */
#define SHOWN                                                                                      \
    "c.deleted_at IS NULL AND a.state = 0 AND (p.author_id = $2 OR (NOT EXISTS (SELECT 1 FROM "    \
    "blocks WHERE blocker_id = p.author_id AND blocked_id = a.id) AND NOT EXISTS (SELECT 1 FROM "  \
    "blocks WHERE blocker_id = $2 AND blocked_id = a.id) AND NOT EXISTS (SELECT 1 FROM blocks "    \
    "WHERE blocker_id = a.id AND blocked_id = $2))) "

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

enum err comment_count(struct tx *tx, uint64_t id, uint64_t post, uint64_t author, int64_t delta)
{
    static const struct db_update add =
        DB_UPDATE("posts", "comment_count = comment_count + $2", "", "comment_count, author_id");
    int64_t row[2] = {0}; /* comments, the post's author */
    TRY(tx_update_numbers(tx, &add, DB_ARGS(DB_I64(post), DB_I64(delta)), row, 2));
    TRY(outbox_emit(
        tx, (struct event){.type = delta > 0 ? EVENT_POST_COMMENTED : EVENT_POST_UNCOMMENTED,
                           .actor = author,
                           .object = post,
                           .value = row[0]}));
    char memory[MENTION_DATA_MAX];
    return outbox_emit(
        tx, (struct event){.type = delta > 0 ? EVENT_COMMENT_CREATED : EVENT_COMMENT_DELETED,
                           .actor = author,
                           .subject = (uint64_t)row[1] != author ? (uint64_t)row[1] : 0,
                           .object = id,
                           .data = mention_data(post, NULL, 0, memory)});
}

enum err comment_create(struct tx *tx, uint64_t id, uint64_t post, uint64_t author, struct str body,
                        struct arena *arena, struct comment *out)
{
    TRY(text_check(tx, body, "body", COMMENT_MAX_CHARS, TEXT_FREE));
    struct account account;
    TRY(check_post(tx, post, author));
    TRY(account_get(tx, author, arena, &account));
    if (account.state != ACCOUNT_ACTIVE)
        return tx_fail(tx, ERR_FORBIDDEN, "the account may not comment");
    *out = (struct comment){id ? id : id_next(tx->ids), post, account_card_of(&account),
                            arena_str(arena, body)};
    TRY(tx_exec(tx, "INSERT INTO comments (id, post_id, author_id, body) VALUES ($1, $2, $3, $4)",
                DB_ARGS(DB_I64(out->id), DB_I64(post), DB_I64(author), DB_TEXT(body)), NULL));
    TRY(mentions_emit(tx, &(struct mentioning){
                              .by = author, .object = out->id, .comment_on = post, .text = body}));
    return comment_count(tx, out->id, post, author, 1);
}

enum err comment_get(struct tx *tx, uint64_t id, uint64_t viewer, struct arena *arena,
                     struct comment *out)
{
    struct db_rows rows = tx_rows(tx,
                                  "SELECT c.post_id, c.body, " ACCOUNT_CARD_COLUMNS " "
                                  "FROM comments c JOIN accounts a ON a.id = c.author_id "
                                  "JOIN posts p ON p.id = c.post_id WHERE c.id = $1 AND " SHOWN,
                                  DB_ARGS(DB_I64(id), DB_I64(viewer)));
    bool found = db_next(&rows);
    if (found) {
        *out = (struct comment){
            .id = id, .post = db_id(&rows, 0), .body = arena_str(arena, db_text(&rows, 1))};
        account_card_read(&rows, 2, arena, &out->author);
    }
    TRY(db_rows_done(&rows));
    return found ? check_post(tx, out->post, viewer)
                 : tx_fail(tx, ERR_NOT_FOUND, "no such comment");
}

enum err comment_list(struct tx *tx, uint64_t post, uint64_t viewer, uint64_t after, size_t limit,
                      struct arena *arena, struct comment *out, size_t *n)
{
    *n = 0;
    TRY(check_post(tx, post, viewer));
    struct db_rows rows =
        tx_rows(tx,
                "SELECT c.id, c.body, " ACCOUNT_CARD_COLUMNS " "
                "FROM comments c JOIN accounts a ON a.id = c.author_id "
                "JOIN posts p ON p.id = c.post_id WHERE c.post_id = $1 AND c.id > $3 AND " SHOWN
                "ORDER BY c.id LIMIT $4",
                DB_ARGS(DB_I64(post), DB_I64(viewer), DB_I64(after), DB_I64(limit)));
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
    if (e)
        return e == ERR_NOT_FOUND ? tx_fail(tx, e, "no such comment") : e;
    uint64_t post = (uint64_t)row[0], author = (uint64_t)row[1], post_author = (uint64_t)row[2];
    if (editor != author && editor != post_author) {
        bool blocked;
        TRY(check_post(tx, post, editor));
        TRY(block_between(tx, author, editor, &blocked));
        return blocked ? tx_fail(tx, ERR_NOT_FOUND, "no such comment")
                       : tx_fail(tx, ERR_FORBIDDEN, "only its author and the post's may delete it");
    }
    /* The transaction that changes the row takes the count with it: of two, one finds none left. */
    int64_t changed = 0;
    TRY(tx_exec(tx, "UPDATE comments SET deleted_at = $2 WHERE id = $1 AND deleted_at IS NULL",
                DB_ARGS(DB_I64(id), DB_I64(now_ms)), &changed));
    if (changed == 0)
        return tx_fail(tx, ERR_NOT_FOUND, "no such comment");
    return comment_count(tx, id, post, author, -1);
}
