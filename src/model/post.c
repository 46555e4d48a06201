/* Posts and likes.
 *
 * Whether a post is pushed or pulled is decided here, once, from the author's class at the moment
 * of posting, and stored with the row: nothing that happens to the author later can double or lose
 * it. Creating is the hottest write of all and takes few statements: the counter (which also
 * answers "active?" and "celebrity?"), the row, the outbox row.
 */
#include "model/post.h"

#include "base/id.h"
#include "model/account.h"
#include "model/follow.h"
#include "model/mention.h"
#include "model/text.h"

#define POST_COLUMNS                                                                               \
    "p.id, p.author_id, p.caption, p.delivery, p.like_count, p.comment_count, p.edited_at"

static enum err check_caption(struct tx *tx, struct str caption)
{
    return text_check(tx, caption, "caption", CAPTION_MAX_CHARS, TEXT_FREE);
}

enum err post_check(struct tx *says, const struct post_new *in)
{
    return check_caption(says, in->caption);
}

static void read_card(struct db_rows *rows, struct arena *arena, struct post_card *out)
{
    *out = (struct post_card){
        .id = db_id(rows, 0),
        .author = db_id(rows, 1),
        .caption = arena_str(arena, db_text(rows, 2)),
        .delivery = (uint8_t)db_i64(rows, 3),
        .like_count = (uint32_t)db_i64(rows, 4),
        .comment_count = (uint32_t)db_i64(rows, 5),
        .edited_at_ms = db_i64(rows, 6),
    };
}

/* One text at one address: a job's first statement is recognized by it. */
static const char count_and_tell_sql[] =
    "UPDATE accounts SET post_count = post_count + 1 WHERE id = $1 AND state = 0 "
    "RETURNING celebrity, id, username, display_name, avatar_url";

void post_first_statement(struct db_job *job, uint64_t author)
{
    job->first = (struct db_statement){count_and_tell_sql, {DB_I64(author)}, 1};
}

/* Counts the post; the changed row also names the author. */
static enum err count_post_and_tell(struct tx *tx, const struct post_new *in, struct arena *arena,
                                    int64_t *celebrity)
{
    struct db_rows rows = tx_rows(tx, count_and_tell_sql, DB_ARGS(DB_I64(in->author)));
    bool found = db_next(&rows);
    if (found) {
        *celebrity = db_i64(&rows, 0);
        account_card_read(&rows, 1, arena, in->author_card);
    }
    enum err e = db_rows_done(&rows);
    return !e && !found ? ERR_NOT_FOUND : e;
}

static enum err count_post(struct tx *tx, uint64_t author, int64_t *celebrity)
{
    static const struct db_update count =
        DB_UPDATE("accounts", "post_count = post_count + 1", "AND state = 0", "celebrity");
    return tx_update_numbers(tx, &count, DB_ARGS(DB_I64(author)), celebrity, 1);
}

enum err post_create(struct tx *tx, const struct post_new *in, struct arena *arena,
                     struct post_card *out)
{
    if (!in->checked)
        TRY(post_check(tx, in));
    int64_t celebrity;
    enum err e = in->author_card ? count_post_and_tell(tx, in, arena, &celebrity)
                                 : count_post(tx, in->author, &celebrity);
    if (e == ERR_NOT_FOUND)
        return tx_fail(tx, ERR_FORBIDDEN, "the account may not post");
    if (e)
        return e;
    uint64_t id = in->id ? in->id : id_next(tx->ids);
    enum delivery delivery = celebrity ? DELIVERY_PULL : DELIVERY_PUSH;
    TRY(tx_exec(tx, "INSERT INTO posts (id, author_id, caption, delivery) VALUES ($1, $2, $3, $4)",
                DB_ARGS(DB_I64(id), DB_I64(in->author), DB_TEXT(in->caption), DB_I64(delivery)),
                NULL));
    struct post_card *card = ARENA_NEW(arena, struct post_card);
    *card = (struct post_card){.id = id,
                               .author = in->author,
                               .delivery = (uint8_t)delivery,
                               .caption = arena_str(arena, in->caption)};
    *out = *card;
    TRY(mentions_emit(tx,
                      &(struct mentioning){.by = in->author, .object = id, .text = in->caption}));
    return outbox_emit(tx, (struct event){.type = EVENT_POST_CREATED,
                                          .actor = in->author,
                                          .object = id,
                                          .value = delivery,
                                          .card = card});
}

/* Missing, deleted, of a hidden author or one in a block with the viewer: all the same answer. */
static enum err no_such_post(struct tx *tx)
{
    return tx_fail(tx, ERR_NOT_FOUND, "no such post");
}

enum err post_get(struct tx *tx, uint64_t id, uint64_t viewer, struct arena *arena,
                  struct post_card *out)
{
    struct db_rows rows = tx_rows(tx,
                                  "SELECT " POST_COLUMNS ", a.state "
                                  "FROM posts p JOIN accounts a ON a.id = p.author_id "
                                  "WHERE p.id = $1 AND p.deleted_at IS NULL",
                                  DB_ARGS(DB_I64(id)));
    bool shown = db_next(&rows);
    if (shown) {
        read_card(&rows, arena, out);
        shown = db_i64(&rows, 7) == ACCOUNT_ACTIVE || out->author == viewer;
    }
    TRY(db_rows_done(&rows));
    bool blocked = false;
    if (shown && viewer && out->author != viewer)
        TRY(block_between(tx, out->author, viewer, &blocked));
    return shown && !blocked ? OK : no_such_post(tx);
}

/* The former caption, under the time it was replaced; two edits in one millisecond are told apart.
 */
static enum err keep_version(struct tx *tx, uint64_t id, int64_t now_ms)
{
    int64_t row[2] = {0}; /* the latest, how many */
    TRY(tx_get_numbers(tx,
                       "SELECT COALESCE(MAX(replaced_at), 0), COUNT(*) FROM post_versions "
                       "WHERE post_id = $1",
                       DB_ARGS(DB_I64(id)), row, 2));
    int64_t latest = row[0];
    if (row[1] >= POST_EDITS_MAX)
        return tx_fail(tx, ERR_CONFLICT, "a post can be edited %d times", POST_EDITS_MAX);
    return tx_exec(tx,
                   "INSERT INTO post_versions (post_id, replaced_at, caption) "
                   "SELECT id, $2, caption FROM posts WHERE id = $1",
                   DB_ARGS(DB_I64(id), DB_I64(now_ms > latest ? now_ms : latest + 1)), NULL);
}

enum err post_edit(struct tx *tx, uint64_t id, uint64_t editor, struct str caption, int64_t now_ms,
                   struct arena *arena, struct post_card *out)
{
    TRY(check_caption(tx, caption));
    struct post_card *card = ARENA_NEW(arena, struct post_card);
    TRY(post_get(tx, id, editor, arena, card));
    if (card->author != editor)
        return tx_fail(tx, ERR_FORBIDDEN, "only its author may edit a post");
    if (str_eq(caption, card->caption)) { /* nothing became true */
        *out = *card;
        return OK;
    }
    TRY(keep_version(tx, id, now_ms));
    TRY(tx_exec(tx, "UPDATE posts SET caption = $2, edited_at = $3 WHERE id = $1",
                DB_ARGS(DB_I64(id), DB_TEXT(caption), DB_I64(now_ms)), NULL));
    TRY(mentions_emit(tx,
                      &(struct mentioning){
                          .by = editor, .object = id, .text = caption, .before = card->caption}));
    card->caption = arena_str(arena, caption);
    card->edited_at_ms = now_ms;
    *out = *card;
    return outbox_emit(
        tx, (struct event){.type = EVENT_POST_EDITED, .actor = editor, .object = id, .card = card});
}

/* The author of the post, if the viewer may see it. */
static enum err visible_author(struct tx *tx, uint64_t id, uint64_t viewer, uint64_t *author)
{
    int64_t row[3] = {0}; /* author, state, blocks between author and viewer */
    enum err e = tx_get_numbers(tx,
                                "SELECT p.author_id, a.state, "
                                "(SELECT COUNT(*) FROM blocks WHERE blocker_id = $2 "
                                "AND blocked_id = p.author_id) + (SELECT COUNT(*) FROM blocks "
                                "WHERE blocker_id = p.author_id AND blocked_id = $2) "
                                "FROM posts p JOIN accounts a ON a.id = p.author_id "
                                "WHERE p.id = $1 AND p.deleted_at IS NULL",
                                DB_ARGS(DB_I64(id), DB_I64(viewer)), row, 3);
    *author = (uint64_t)row[0];
    bool hidden =
        e == ERR_NOT_FOUND || row[2] > 0 || (row[1] != ACCOUNT_ACTIVE && *author != viewer);
    return hidden ? no_such_post(tx) : e;
}

enum err post_delete(struct tx *tx, uint64_t id, uint64_t editor, int64_t now_ms)
{
    uint64_t author = 0;
    enum err e = OK;
    if (editor != 0)
        e = visible_author(tx, id, editor, &author);
    if (!e && author != editor)
        e = tx_fail(tx, ERR_FORBIDDEN, "only its author may delete a post");
    if (e)
        return e;
    int64_t row[2] = {0}; /* author, delivery */
    e = tx_get_numbers(tx,
                       "UPDATE posts SET deleted_at = $2 WHERE id = $1 AND deleted_at IS NULL "
                       "RETURNING author_id, delivery",
                       DB_ARGS(DB_I64(id), DB_I64(now_ms)), row, 2);
    if (e == ERR_NOT_FOUND)
        e = no_such_post(tx);
    if (!e)
        e = tx_exec(tx, "UPDATE accounts SET post_count = post_count - 1 WHERE id = $1",
                    DB_ARGS(DB_I64(row[0])), NULL);
    if (!e)
        e = outbox_emit(tx, (struct event){.type = EVENT_POST_DELETED,
                                           .actor = (uint64_t)row[0],
                                           .object = id,
                                           .value = row[1]});
    return e;
}

/* ---- likes ---- */

/* Where the counter stands now, for the caches, and the fact, for those who follow it. The order of
 * one person's likes is that of their events: who takes a like back and likes again is known by
 * actor and object. */
static enum err count_like(struct tx *tx, uint64_t id, uint64_t account, bool on)
{
    static const struct db_update add =
        DB_UPDATE("posts", "like_count = like_count + $2", "", "like_count, author_id");
    int64_t row[2] = {0}; /* likes, the post's author */
    TRY(tx_update_numbers(tx, &add, DB_ARGS(DB_I64(id), DB_I64(on ? 1 : -1)), row, 2));
    TRY(outbox_emit(tx, (struct event){.type = on ? EVENT_POST_LIKED : EVENT_POST_UNLIKED,
                                       .actor = account,
                                       .object = id,
                                       .value = row[0]}));
    return outbox_emit(tx,
                       (struct event){.type = on ? EVENT_LIKE_CREATED : EVENT_LIKE_REMOVED,
                                      .actor = account,
                                      .subject = (uint64_t)row[1] != account ? (uint64_t)row[1] : 0,
                                      .object = id});
}

enum err post_unlike(struct tx *tx, uint64_t id, uint64_t account, bool *changed)
{
    int64_t rows = 0;
    enum err e = tx_exec(tx, "DELETE FROM likes WHERE post_id = $1 AND account_id = $2",
                         DB_ARGS(DB_I64(id), DB_I64(account)), &rows);
    *changed = rows > 0;
    if (!e && *changed)
        e = count_like(tx, id, account, false);
    return e == ERR_NOT_FOUND ? OK : e; /* the post itself is gone */
}

enum err post_like(struct tx *tx, uint64_t id, uint64_t viewer, bool on, int64_t now_ms,
                   bool *changed)
{
    uint64_t author;
    int64_t rows = 0;
    *changed = false;
    TRY(visible_author(tx, id, viewer, &author));
    if (!on)
        return post_unlike(tx, id, viewer, changed);
    enum err e = tx_exec(tx,
                         "INSERT INTO likes (post_id, account_id, created_at) VALUES ($1, $2, $3) "
                         "ON CONFLICT DO NOTHING",
                         DB_ARGS(DB_I64(id), DB_I64(viewer), DB_I64(now_ms)), &rows);
    *changed = rows > 0;
    return e || rows == 0 ? e : count_like(tx, id, viewer, true);
}

enum err post_likes(struct tx *tx, uint64_t id, uint64_t viewer, uint64_t below, size_t limit,
                    struct arena *arena, struct account_card *out, size_t *n)
{
    uint64_t author;
    *n = 0;
    TRY(visible_author(tx, id, viewer, &author));
    struct db_rows rows = tx_rows(
        tx,
        "SELECT " ACCOUNT_CARD_COLUMNS " FROM likes l JOIN accounts a ON a.id = l.account_id "
        "WHERE l.post_id = $1 AND l.account_id < $3 AND a.state = 0 "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = $2 AND blocked_id = a.id) "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = a.id AND blocked_id = $2) "
        "ORDER BY l.account_id DESC LIMIT $4",
        DB_ARGS(DB_I64(id), DB_I64(viewer), DB_BELOW(below), DB_I64(limit)));
    return account_cards_read(&rows, arena, out, limit, n);
}

/* ---- many at once ---- */

enum err posts_by_author(struct tx *tx, uint64_t author, uint64_t below, size_t limit,
                         uint64_t *ids, size_t *n)
{
    return tx_get_ids(tx,
                      "SELECT id FROM posts WHERE author_id = $1 AND id < $2 "
                      "AND deleted_at IS NULL ORDER BY id DESC LIMIT $3",
                      DB_ARGS(DB_I64(author), DB_BELOW(below), DB_I64(limit)), ids, limit, n);
}

enum err posts_load(struct tx *tx, const uint64_t *ids, size_t n, struct arena *arena,
                    struct post_card *out, enum card_state *state)
{
    for (size_t i = 0; i < n; i++)
        state[i] = CARD_GONE;
    if (n == 0)
        return OK;
    struct db_rows rows = tx_rows(tx,
                                  "SELECT " POST_COLUMNS " FROM posts p "
                                  "WHERE p.id IN (SELECT id FROM ids($1)) AND p.deleted_at IS NULL",
                                  DB_ARGS(DB_IDS(ids, n)));
    while (db_next(&rows)) {
        uint64_t id = db_id(&rows, 0);
        size_t i = 0;
        while (i < n && ids[i] != id)
            i++;
        if (i == n)
            continue;
        read_card(&rows, arena, &out[i]);
        state[i] = CARD_FOUND;
    }
    return db_rows_done(&rows);
}
