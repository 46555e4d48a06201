/* Counters against the rows they count. Both numbers of a comparison come from one snapshot, so one
 * look is enough; repairing counts again inside a transaction. */
#include "base/check.h"
#include "model/truth_check.h"

enum { POSTS_A_READ = 100 };

enum counter { FOLLOWERS, FOLLOWING, POSTS, COUNTER_COUNT };
static const char *const counter_names[] = {"follower_count", "following_count", "post_count"};

struct counters {
    uint64_t account;
    int64_t stored[COUNTER_COUNT], actual[COUNTER_COUNT];
};

static enum err read_counters(struct tx *tx, void *arg)
{
    struct counters *c = arg;
    int64_t row[2 * COUNTER_COUNT] = {0};
    enum err e =
        tx_get_numbers(tx,
                       "SELECT follower_count, following_count, post_count, "
                       "(SELECT COUNT(*) FROM follows WHERE followee_id = $1), "
                       "(SELECT COUNT(*) FROM follows WHERE follower_id = $1), "
                       "(SELECT COUNT(*) FROM posts WHERE author_id = $1 AND deleted_at IS NULL) "
                       "FROM accounts WHERE id = $1",
                       DB_ARGS(DB_I64(c->account)), row, COUNT_OF(row));
    memcpy(c->stored, row, sizeof c->stored);
    memcpy(c->actual, row + COUNTER_COUNT, sizeof c->actual);
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err repair_counters(struct tx *tx, void *arg)
{
    const struct counters *c = arg;
    return tx_exec(
        tx,
        "UPDATE accounts SET "
        "follower_count = (SELECT COUNT(*) FROM follows WHERE followee_id = $1), "
        "following_count = (SELECT COUNT(*) FROM follows WHERE follower_id = $1), "
        "post_count = (SELECT COUNT(*) FROM posts WHERE author_id = $1 AND deleted_at IS NULL) "
        "WHERE id = $1",
        DB_ARGS(DB_I64(c->account)), NULL);
}

/* Both numbers come from one snapshot: no second look is needed. */
enum err check_counters(struct check *k, uint64_t account)
{
    struct counters c = {.account = account};
    enum err e = db_read(k->db, read_counters, &c, NULL);
    bool wrong = false;
    for (int i = 0; !e && i < COUNTER_COUNT; i++) {
        k->result->counters++;
        if (c.stored[i] == c.actual[i])
            continue;
        wrong = true;
        check_tell_counter(k, (struct check_difference){.account = account}, counter_names[i],
                           c.stored[i], c.actual[i]);
    }
    if (e || !wrong || !k->repair)
        return e;
    e = db_write(k->db, repair_counters, &c, NULL);
    k->result->repaired += !e;
    return e;
}

struct post_counters {
    uint64_t author, below;
    size_t count;
    struct {
        uint64_t id;
        int64_t likes, likes_actual, comments, comments_actual;
    } posts[POSTS_A_READ];
};

static enum err read_post_counters(struct tx *tx, void *arg)
{
    struct post_counters *c = arg;
    c->count = 0;
    struct db_rows rows =
        tx_rows(tx,
                "SELECT p.id, p.like_count, (SELECT COUNT(*) FROM likes WHERE post_id = p.id), "
                "p.comment_count, "
                "(SELECT COUNT(*) FROM comments WHERE post_id = p.id AND deleted_at IS NULL) "
                "FROM posts p WHERE p.author_id = $1 AND p.id < $2 AND p.deleted_at IS NULL "
                "ORDER BY p.id DESC LIMIT $3",
                DB_ARGS(DB_I64(c->author), DB_I64(c->below), DB_I64(POSTS_A_READ)));
    for (; c->count < POSTS_A_READ && db_next(&rows); c->count++) {
        c->posts[c->count].id = db_id(&rows, 0);
        c->posts[c->count].likes = db_i64(&rows, 1);
        c->posts[c->count].likes_actual = db_i64(&rows, 2);
        c->posts[c->count].comments = db_i64(&rows, 3);
        c->posts[c->count].comments_actual = db_i64(&rows, 4);
    }
    return db_rows_done(&rows);
}

/* Tells the caches in commit order, by events that are nobody's act. */
static enum err repair_post(struct tx *tx, void *arg)
{
    uint64_t id = *(const uint64_t *)arg;
    int64_t row[2]; /* likes, comments */
    enum err e = tx_get_numbers(tx,
                                "UPDATE posts SET "
                                "like_count = (SELECT COUNT(*) FROM likes WHERE post_id = $1), "
                                "comment_count = (SELECT COUNT(*) FROM comments WHERE post_id = $1 "
                                "AND deleted_at IS NULL) WHERE id = $1 "
                                "RETURNING like_count, comment_count",
                                DB_ARGS(DB_I64(id)), row, 2);
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    TRY(outbox_emit(tx, (struct event){.type = EVENT_POST_UNLIKED, .object = id, .value = row[0]}));
    return outbox_emit(
        tx, (struct event){.type = EVENT_POST_UNCOMMENTED, .object = id, .value = row[1]});
}

static enum err check_post(struct check *k, const struct post_counters *c, size_t i)
{
    uint64_t id = c->posts[i].id;
    bool likes = c->posts[i].likes != c->posts[i].likes_actual;
    bool comments = c->posts[i].comments != c->posts[i].comments_actual;
    k->result->counters += 2;
    if (likes)
        check_tell_counter(k, (struct check_difference){.post = id}, "like_count",
                           c->posts[i].likes, c->posts[i].likes_actual);
    if (comments)
        check_tell_counter(k, (struct check_difference){.post = id}, "comment_count",
                           c->posts[i].comments, c->posts[i].comments_actual);
    if (!k->repair || !(likes || comments))
        return OK;
    enum err e = db_write(k->db, repair_post, &id, NULL);
    k->result->repaired += !e;
    return e;
}

enum err check_post_counters(struct check *k, uint64_t account)
{
    struct post_counters *c = ARENA_NEW(&k->arena, struct post_counters);
    c->author = account;
    c->below = INT64_MAX;
    for (size_t seen = 0; seen < k->depth; seen += c->count) {
        enum err e = db_read(k->db, read_post_counters, c, NULL);
        for (size_t i = 0; !e && i < c->count; i++)
            e = check_post(k, c, i);
        if (e || c->count < POSTS_A_READ)
            return e;
        c->below = c->posts[c->count - 1].id;
    }
    return OK;
}
