/* The removal of everything that belonged to a deleted account, in bounded slices.
 *
 * account_delete has already hidden it all: what is left is housekeeping that must never hold the
 * writer for long. Each slice looks at what is still there and removes at most `max` rows, so it
 * can be cut off and begun again anywhere. Every row that goes takes its count with it, and every
 * edge says so by an event, so that counters never drift from rows and the views never from truth.
 */
#include "base/check.h"
#include "model/account.h"
#include "model/follow.h"
#include "model/group.h"
#include "model/post.h"

/* What a slice does for one kind of row: reads at most `max`, removes them. *found: how many there
 * were. */
typedef enum err (*purge_part)(struct tx *tx, uint64_t account, size_t max, size_t *found);

enum { SLICE_MAX = 500 };

/* Reads the ids first and changes afterwards: no statement runs while another walks the table. */
static enum err read_ids(struct tx *tx, const char *sql, uint64_t account, size_t max,
                         uint64_t ids[SLICE_MAX], size_t *n)
{
    max = max < SLICE_MAX ? max : SLICE_MAX;
    return tx_get_ids(tx, sql, DB_ARGS(DB_I64(account), DB_I64(max)), ids, max, n);
}

/* The edges of one direction. They end like any other: counters, class crossings and events come
 * with it. */
static enum err purge_edges(struct tx *tx, uint64_t account, size_t max, bool followers,
                            const struct follow_policy *policy, size_t *found)
{
    uint64_t ids[SLICE_MAX];
    const char *followers_sql = "SELECT follower_id FROM follows WHERE followee_id = $1 "
                                "ORDER BY follower_id LIMIT $2";
    const char *following_sql = "SELECT followee_id FROM follows WHERE follower_id = $1 "
                                "ORDER BY followee_id LIMIT $2";
    TRY(read_ids(tx, followers ? followers_sql : following_sql, account, max, ids, found));
    bool changed;
    for (size_t i = 0; i < *found; i++)
        TRY(follow_remove_as(tx, followers ? ids[i] : account, followers ? account : ids[i],
                             FOLLOW_ENDED_ACCOUNT, policy, &changed));
    return OK;
}

/* A row that is gone by now (with many writers another may have been faster) took its count along;
 * so did a post that is gone. */
static enum err purge_likes(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    uint64_t ids[SLICE_MAX];
    TRY(read_ids(tx, "SELECT post_id FROM likes WHERE account_id = $1 ORDER BY post_id LIMIT $2",
                 account, max, ids, found));
    bool changed;
    for (size_t i = 0; i < *found; i++)
        TRY(post_unlike(tx, ids[i], account, &changed));
    return OK;
}

/* The row itself says, as it goes, which post it still counts for: 0 when it was deleted already.
 */
static enum err purge_comments(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    uint64_t ids[SLICE_MAX];
    enum err e = read_ids(tx, "SELECT id FROM comments WHERE author_id = $1 ORDER BY id LIMIT $2",
                          account, max, ids, found);
    for (size_t i = 0; !e && i < *found; i++) {
        int64_t post = 0;
        e = tx_get_i64(tx,
                       "DELETE FROM comments WHERE id = $1 "
                       "RETURNING CASE WHEN deleted_at IS NULL THEN post_id ELSE 0 END",
                       DB_ARGS(DB_I64(ids[i])), &post);
        if (!e && post != 0)
            e = comment_count(tx, ids[i], (uint64_t)post, account, -1);
        if (e == ERR_NOT_FOUND) /* the comment, or its post, is gone by now */
            e = OK;
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
    static const char *const belongings[] = {
        "DELETE FROM likes WHERE post_id = $1 AND account_id IN "
        "(SELECT account_id FROM likes WHERE post_id = $1 LIMIT $2)",
        "DELETE FROM comments WHERE id IN "
        "(SELECT id FROM comments WHERE post_id = $1 ORDER BY id LIMIT $2)",
        "DELETE FROM post_versions WHERE post_id = $1 AND replaced_at IN "
        "(SELECT replaced_at FROM post_versions WHERE post_id = $1 LIMIT $2)",
    };
    int64_t row[2]; /* id, delivery */
    enum err e = tx_get_numbers(
        tx, "SELECT id, delivery FROM posts WHERE author_id = $1 ORDER BY id LIMIT 1",
        DB_ARGS(DB_I64(account)), row, 2);
    *found = !e;
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    uint64_t post = (uint64_t)row[0];
    for (size_t i = 0; i < COUNT_OF(belongings); i++) {
        size_t gone;
        e = delete_some(tx, belongings[i], post, max, &gone);
        if (e || gone == max)
            return e;
    }
    TRY(tx_exec(tx, "DELETE FROM posts WHERE id = $1", DB_ARGS(DB_I64(post)), NULL));
    return outbox_emit(
        tx, (struct event){
                .type = EVENT_POST_DELETED, .actor = account, .object = post, .value = row[1]});
}

/* `muting`: the accounts that it mutes; else those that mute it. */
static enum err purge_mutes(struct tx *tx, uint64_t account, size_t max, bool muting, size_t *found)
{
    uint64_t ids[SLICE_MAX];
    TRY(read_ids(tx,
                 muting
                     ? "SELECT muted_id FROM mutes WHERE muter_id = $1 ORDER BY muted_id LIMIT $2"
                     : "SELECT muter_id FROM mutes WHERE muted_id = $1 ORDER BY muter_id LIMIT $2",
                 account, max, ids, found));
    bool changed;
    for (size_t i = 0; i < *found; i++)
        TRY(mute_remove(tx, muting ? account : ids[i], muting ? ids[i] : account, &changed));
    return OK;
}

static enum err purge_muting(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    return purge_mutes(tx, account, max, true, found);
}

static enum err purge_muted_by(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    return purge_mutes(tx, account, max, false, found);
}

/* Rows that count for nothing and that no view holds: one statement each. */
static enum err purge_plain(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    static const char *const plain[] = {
        "DELETE FROM blocks WHERE blocker_id = $1 AND blocked_id IN "
        "(SELECT blocked_id FROM blocks WHERE blocker_id = $1 LIMIT $2)",
        "DELETE FROM blocks WHERE blocked_id = $1 AND blocker_id IN "
        "(SELECT blocker_id FROM blocks WHERE blocked_id = $1 LIMIT $2)",
        "DELETE FROM idempotency WHERE account_id = $1 AND (route, key) IN "
        "(SELECT route, key FROM idempotency WHERE account_id = $1 LIMIT $2)",
    };
    *found = 0;
    for (size_t i = 0; i < COUNT_OF(plain) && *found == 0; i++)
        TRY(delete_some(tx, plain[i], account, max, found));
    return OK;
}

static const purge_part parts[] = {
    purge_posts,    purge_likes, purge_comments,    purge_muting,
    purge_muted_by, purge_plain, group_purge_slice,
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
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        size_t found = 0;
        TRY(parts[i](tx, id, max, &found));
        *more = found > 0;
        if (*more)
            return OK; /* this slice is used up; the next one looks again from the beginning */
    }
    return tx_exec(tx, "UPDATE accounts SET post_count = 0 WHERE id = $1", DB_ARGS(DB_I64(id)),
                   NULL);
}
