/* The removal of everything that belonged to a deleted account, in bounded slices.
 *
 * account_delete has already hidden it all: what is left is housekeeping that must never hold the
 * writer for long. Each slice looks at what is still there and removes at most `max` rows, so it
 * can be cut off and begun again anywhere. Every row that goes takes its count with it, and every
 * edge says so by an event, so that counters never drift from rows and the views never from truth.
 */
#include "model/account.h"
#include "model/follow.h"
#include "model/group.h"

/* What a slice does for one kind of row: reads at most `max`, removes them. *found: how many there
 * were. */
typedef enum err (*purge_part)(struct tx *tx, uint64_t account, size_t max, size_t *found);

enum { SLICE_MAX = 500 };

struct pair {
    uint64_t id;
    int64_t value;
};

/* Reads (id, number) rows first and changes afterwards: no statement runs while another walks the
 * table. */
static enum err read_pairs(struct tx *tx, const char *sql, uint64_t account, size_t max,
                           struct pair *out, size_t *n)
{
    struct db_rows rows;
    *n = 0;
    if (max > SLICE_MAX)
        max = SLICE_MAX;
    enum err e = tx_query(tx, sql, DB_ARGS(DB_I64(account), DB_I64(max)), &rows);
    if (e)
        return e;
    while (*n < max && db_next(&rows)) {
        out[*n] = (struct pair){.id = db_id(&rows, 0), .value = db_i64(&rows, 1)};
        (*n)++;
    }
    return db_rows_done(&rows);
}

/* A row that is gone by now (with many writers somebody may have been faster) took its count along.
 */

/* The edges of one direction. They end like any other: counters, class crossings and events come
 * with it. */
static enum err purge_edges(struct tx *tx, uint64_t account, size_t max, bool followers,
                            const struct follow_policy *policy, size_t *found)
{
    struct pair rows[SLICE_MAX];
    const char *followers_sql = "SELECT follower_id, 0 FROM follows WHERE followee_id = $1 "
                                "ORDER BY follower_id LIMIT $2";
    const char *following_sql = "SELECT followee_id, 0 FROM follows WHERE follower_id = $1 "
                                "ORDER BY followee_id LIMIT $2";
    enum err e =
        read_pairs(tx, followers ? followers_sql : following_sql, account, max, rows, found);
    bool changed;
    for (size_t i = 0; !e && i < *found; i++)
        e = follow_remove_as(tx, followers ? rows[i].id : account, followers ? account : rows[i].id,
                             FOLLOW_ENDED_ACCOUNT, policy, &changed);
    return e;
}

static enum err purge_likes(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    struct pair rows[SLICE_MAX];
    enum err e = read_pairs(
        tx, "SELECT post_id, 0 FROM likes WHERE account_id = $1 ORDER BY post_id LIMIT $2", account,
        max, rows, found);
    for (size_t i = 0; !e && i < *found; i++) {
        int64_t count = 0, removed = 0;
        e = tx_exec(tx, "DELETE FROM likes WHERE post_id = $1 AND account_id = $2",
                    DB_ARGS(DB_I64(rows[i].id), DB_I64(account)), &removed);
        if (!e && removed == 0)
            continue;
        if (!e)
            e = tx_get_i64(tx,
                           "UPDATE posts SET like_count = like_count - 1 WHERE id = $1 "
                           "RETURNING like_count",
                           DB_ARGS(DB_I64(rows[i].id)), &count);
        if (e == ERR_NOT_FOUND) { /* the post itself is gone */
            e = OK;
            continue;
        }
        if (!e)
            e = outbox_emit(tx, (struct event){.type = EVENT_POST_UNLIKED,
                                               .actor = account,
                                               .object = rows[i].id,
                                               .value = count});
    }
    return e;
}

/* The row itself says, as it goes, which post it still counts for: 0 when it was deleted already.
 */
static enum err purge_comments(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    struct pair rows[SLICE_MAX];
    enum err e =
        read_pairs(tx, "SELECT id, 0 FROM comments WHERE author_id = $1 ORDER BY id LIMIT $2",
                   account, max, rows, found);
    for (size_t i = 0; !e && i < *found; i++) {
        int64_t post = 0, count = 0;
        e = tx_get_i64(tx,
                       "DELETE FROM comments WHERE id = $1 "
                       "RETURNING CASE WHEN deleted_at IS NULL THEN post_id ELSE 0 END",
                       DB_ARGS(DB_I64(rows[i].id)), &post);
        if (!e && post != 0)
            e = tx_get_i64(tx,
                           "UPDATE posts SET comment_count = comment_count - 1 WHERE id = $1 "
                           "RETURNING comment_count",
                           DB_ARGS(DB_I64(post)), &count);
        if (e == ERR_NOT_FOUND) { /* the comment, or its post, is gone by now */
            e = OK;
            continue;
        }
        if (!e && post != 0)
            e = outbox_emit(tx, (struct event){.type = EVENT_POST_UNCOMMENTED,
                                               .actor = account,
                                               .object = (uint64_t)post,
                                               .value = count});
    }
    return e;
}

static enum err delete_some(struct tx *tx, const char *sql, uint64_t key, size_t max, size_t *found)
{
    int64_t changed = 0;
    enum err e = tx_exec(tx, sql, DB_ARGS(DB_I64(key), DB_I64(max)), &changed);
    *found = (size_t)changed;
    return e;
}

/* One post a slice: it may have any number of likes and comments, which go first. */
static enum err purge_posts(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    struct pair post;
    size_t posts, gone;
    enum err e =
        read_pairs(tx, "SELECT id, delivery FROM posts WHERE author_id = $1 ORDER BY id LIMIT $2",
                   account, 1, &post, &posts);
    *found = posts;
    if (e || posts == 0)
        return e;
    e = delete_some(tx,
                    "DELETE FROM likes WHERE post_id = $1 AND account_id IN "
                    "(SELECT account_id FROM likes WHERE post_id = $1 LIMIT $2)",
                    post.id, max, &gone);
    if (e || gone == max)
        return e;
    e = delete_some(tx,
                    "DELETE FROM comments WHERE id IN "
                    "(SELECT id FROM comments WHERE post_id = $1 ORDER BY id LIMIT $2)",
                    post.id, max, &gone);
    if (e || gone == max)
        return e;
    e = delete_some(tx,
                    "DELETE FROM post_versions WHERE post_id = $1 AND replaced_at IN "
                    "(SELECT replaced_at FROM post_versions WHERE post_id = $1 LIMIT $2)",
                    post.id, max, &gone);
    if (e || gone == max)
        return e;
    e = tx_exec(tx, "DELETE FROM posts WHERE id = $1", DB_ARGS(DB_I64(post.id)), NULL);
    if (!e)
        e = outbox_emit(tx, (struct event){.type = EVENT_POST_DELETED,
                                           .actor = account,
                                           .object = post.id,
                                           .value = post.value});
    return e;
}

static enum err purge_muting(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    struct pair rows[SLICE_MAX];
    enum err e = read_pairs(
        tx, "SELECT muted_id, 0 FROM mutes WHERE muter_id = $1 ORDER BY muted_id LIMIT $2", account,
        max, rows, found);
    for (size_t i = 0; !e && i < *found; i++) {
        e = tx_exec(tx, "DELETE FROM mutes WHERE muter_id = $1 AND muted_id = $2",
                    DB_ARGS(DB_I64(account), DB_I64(rows[i].id)), NULL);
        if (!e)
            e = outbox_emit(
                tx,
                (struct event){.type = EVENT_MUTE_REMOVED, .actor = account, .object = rows[i].id});
    }
    return e;
}

static enum err purge_muted_by(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    struct pair rows[SLICE_MAX];
    enum err e = read_pairs(
        tx, "SELECT muter_id, 0 FROM mutes WHERE muted_id = $1 ORDER BY muter_id LIMIT $2", account,
        max, rows, found);
    for (size_t i = 0; !e && i < *found; i++) {
        e = tx_exec(tx, "DELETE FROM mutes WHERE muter_id = $1 AND muted_id = $2",
                    DB_ARGS(DB_I64(rows[i].id), DB_I64(account)), NULL);
        if (!e)
            e = outbox_emit(
                tx,
                (struct event){.type = EVENT_MUTE_REMOVED, .actor = rows[i].id, .object = account});
    }
    return e;
}

static enum err purge_blocking(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    return delete_some(tx,
                       "DELETE FROM blocks WHERE blocker_id = $1 AND blocked_id IN "
                       "(SELECT blocked_id FROM blocks WHERE blocker_id = $1 LIMIT $2)",
                       account, max, found);
}

static enum err purge_blocked_by(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    return delete_some(tx,
                       "DELETE FROM blocks WHERE blocked_id = $1 AND blocker_id IN "
                       "(SELECT blocker_id FROM blocks WHERE blocked_id = $1 LIMIT $2)",
                       account, max, found);
}

static enum err purge_idempotency(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    return delete_some(tx,
                       "DELETE FROM idempotency WHERE account_id = $1 AND (route, key) IN "
                       "(SELECT route, key FROM idempotency WHERE account_id = $1 LIMIT $2)",
                       account, max, found);
}

static const purge_part parts[] = {
    purge_posts,    purge_likes,      purge_comments,    purge_muting,      purge_muted_by,
    purge_blocking, purge_blocked_by, purge_idempotency, group_purge_slice,
};

enum err account_purge_slice(struct tx *tx, uint64_t id, size_t max,
                             const struct follow_policy *policy, bool *more)
{
    *more = false;
    for (int followers = 0; followers < 2; followers++) {
        size_t found = 0;
        enum err e = purge_edges(tx, id, max, followers, policy, &found);
        *more = found > 0;
        if (e || *more)
            return e;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        size_t found = 0;
        enum err e = parts[i](tx, id, max, &found);
        if (e)
            return e;
        if (found > 0) {
            *more = true; /* this slice is used up; the next one looks again from the beginning */
            return OK;
        }
    }
    return tx_exec(tx, "UPDATE accounts SET post_count = 0 WHERE id = $1", DB_ARGS(DB_I64(id)),
                   NULL);
}
