/* Explains why a post is, or is not, in a person's feed.
 *
 * This file looks up everything that could matter: the post, its author, the relation of the two
 * people, how the post travels, and what the views hold at this moment. First truth alone says
 * whether it should show; then an actual read says whether it does. The reason is the first one
 * that decides, in the order in which the feed's definition names them. */
#include "model/feed.h"
#include "model/truth.h"

static enum err read_name(struct tx *tx, uint64_t id, struct arena *arena, bool *found,
                          struct str *name, enum account_state *state)
{
    struct db_rows rows =
        tx_rows(tx, "SELECT username, state FROM accounts WHERE id = $1", DB_ARGS(DB_I64(id)));
    *found = db_next(&rows);
    if (*found) {
        *name = arena_str(arena, db_text(&rows, 0));
        *state = (enum account_state)db_i64(&rows, 1);
    }
    return db_rows_done(&rows);
}

static enum err read_relation(struct tx *tx, struct explanation *s)
{
    int64_t since[4] = {0};
    TRY(tx_get_numbers(
        tx,
        "SELECT (SELECT created_at FROM follows WHERE follower_id = $1 AND followee_id = $2), "
        "(SELECT created_at FROM mutes WHERE muter_id = $1 AND muted_id = $2), "
        "(SELECT created_at FROM blocks WHERE blocker_id = $1 AND blocked_id = $2), "
        "(SELECT created_at FROM blocks WHERE blocker_id = $2 AND blocked_id = $1)",
        DB_ARGS(DB_I64(s->viewer), DB_I64(s->author)), since, 4));
    s->followed_at_ms = since[0];
    s->muted_at_ms = since[1];
    s->blocked_at_ms = since[2];
    s->blocked_by_at_ms = since[3];
    return OK;
}

static enum err read_truth(struct tx *tx, void *arg)
{
    struct explanation *s = arg;
    enum account_state ignored;
    TRY(read_name(tx, s->viewer, s->arena, &s->viewer_found, &s->viewer_name, &ignored));
    int64_t row[3] = {0};
    enum err e =
        tx_get_numbers(tx, "SELECT author_id, delivery, deleted_at FROM posts WHERE id = $1",
                       DB_ARGS(DB_I64(s->post)), row, 3);
    s->post_found = !e;
    s->author = (uint64_t)row[0];
    s->delivery = row[1];
    s->deleted_at_ms = row[2];
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    TRY(read_name(tx, s->author, s->arena, &s->author_found, &s->author_name, &s->author_state));
    return read_relation(tx, s);
}

static enum err look_at_views(struct views *views, struct explanation *s)
{
    uint64_t top;
    size_t n;
    enum err e = timelines_home(views->timelines, s->viewer, s->post + 1, &top, 1, &n, &s->floor);
    if (!e) {
        s->dropped = s->floor == UINT64_MAX;
        s->in_views = n == 1 && top == s->post;
        if (s->author)
            e = graph_visible(views->graph, s->viewer, &s->author, 1, &s->visible_now);
    }
    s->away = e == ERR_UNAVAILABLE || e == ERR_TIMEOUT || e == ERR_NEEDS_TRUTH;
    s->dropped |= s->away; /* whatever they would say: truth is read */
    s->known = !e || s->away;
    return s->known || e == ERR_NOT_FOUND ? OK : e;
}

static enum err read_feed(struct db *db, struct views *views, struct cards *cards,
                          struct explanation *s)
{
    struct feed_page *page = ARENA_NEW(s->arena, struct feed_page);
    enum err e = feed_peek(views, cards, db, s->viewer, s->post + 1, 1, s->arena, page);
    s->shown = !e && page->count == 1 && page->items[0].card.id == s->post;
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum hidden_as reason_against(const struct explanation *s)
{
    if (!s->viewer_found)
        return HIDDEN_NO_ACCOUNT;
    if (!s->post_found)
        return HIDDEN_NO_POST;
    if (s->deleted_at_ms)
        return HIDDEN_DELETED;
    if (s->author == s->viewer)
        return NOT_HIDDEN;
    if (s->author_state != ACCOUNT_ACTIVE)
        return s->author_state == ACCOUNT_SUSPENDED ? HIDDEN_SUSPENDED : HIDDEN_AUTHOR_DELETED;
    if (s->blocked_at_ms || s->blocked_by_at_ms)
        return HIDDEN_BLOCKED;
    if (!s->followed_at_ms)
        return HIDDEN_NOT_FOLLOWED;
    return s->muted_at_ms ? HIDDEN_MUTED : NOT_HIDDEN;
}

enum err truth_explain(struct db *db, struct views *views, struct cards *cards, uint64_t viewer,
                       uint64_t post, struct arena *arena, struct explanation *out)
{
    *out = (struct explanation){.arena = arena,
                                .viewer = viewer,
                                .post = post,
                                .viewer_name = STR("the reader"),
                                .author_name = STR("its author")};
    enum err e = db_read(db, read_truth, out, NULL);
    if (!e)
        e = look_at_views(views, out);
    if (!e && out->known)
        e = read_feed(db, views, cards, out);
    out->against = reason_against(out);
    return e;
}
