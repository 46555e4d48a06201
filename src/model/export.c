/* A person's own data, part by part: every part is one statement that answers the same columns, so
 * that one function reads them all. */
#include "base/check.h"
#include "model/account.h"

/* $1 account, $2 after, $3 limit; id (the key to go on from), other, text, at_ms, two counts */
static const char *const parts[] = {
    [EXPORT_SESSIONS] = "SELECT id, 0, label, used_at, 0, 0 FROM sessions "
                        "WHERE account_id = $1 AND id > $2 ORDER BY id LIMIT $3",
    [EXPORT_FOLLOWING] = "SELECT followee_id, 0, '', created_at, 0, 0 FROM follows "
                         "WHERE follower_id = $1 AND followee_id > $2 ORDER BY followee_id "
                         "LIMIT $3",
    [EXPORT_FOLLOWERS] = "SELECT follower_id, 0, '', created_at, 0, 0 FROM follows "
                         "WHERE followee_id = $1 AND follower_id > $2 ORDER BY follower_id "
                         "LIMIT $3",
    [EXPORT_BLOCKS] = "SELECT blocked_id, 0, '', created_at, 0, 0 FROM blocks "
                      "WHERE blocker_id = $1 AND blocked_id > $2 ORDER BY blocked_id LIMIT $3",
    [EXPORT_MUTES] = "SELECT muted_id, 0, '', created_at, 0, 0 FROM mutes "
                     "WHERE muter_id = $1 AND muted_id > $2 ORDER BY muted_id LIMIT $3",
    [EXPORT_POSTS] = "SELECT id, 0, caption, 0, like_count, comment_count FROM posts "
                     "WHERE author_id = $1 AND id > $2 AND deleted_at IS NULL ORDER BY id LIMIT $3",
    [EXPORT_COMMENTS] = "SELECT id, post_id, body, 0, 0, 0 FROM comments WHERE author_id = $1 "
                        "AND id > $2 AND deleted_at IS NULL ORDER BY id LIMIT $3",
    [EXPORT_LIKES] = "SELECT post_id, 0, '', created_at, 0, 0 FROM likes "
                     "WHERE account_id = $1 AND post_id > $2 ORDER BY post_id LIMIT $3",
    [EXPORT_GROUPS] = "SELECT m.group_id, m.joined_id, g.name, 0, m.role, 0 FROM group_members m "
                      "JOIN groups g ON g.id = m.group_id WHERE m.account_id = $1 "
                      "AND m.group_id > $2 AND m.left_seq IS NULL ORDER BY m.group_id LIMIT $3",
};

enum err account_export(struct tx *tx, uint64_t id, enum export_part part, uint64_t after,
                        struct arena *arena, struct export_row out[EXPORT_PAGE], size_t *n)
{
    CHECK(part < EXPORT_PARTS);
    *n = 0;
    struct db_rows rows =
        tx_rows(tx, parts[part], DB_ARGS(DB_I64(id), DB_I64(after), DB_I64(EXPORT_PAGE)));
    for (; *n < EXPORT_PAGE && db_next(&rows); (*n)++)
        out[*n] = (struct export_row){.id = db_id(&rows, 0),
                                      .other = db_id(&rows, 1),
                                      .text = arena_str(arena, db_text(&rows, 2)),
                                      .at_ms = db_i64(&rows, 3),
                                      .counts = {db_i64(&rows, 4), db_i64(&rows, 5)}};
    return db_rows_done(&rows);
}
