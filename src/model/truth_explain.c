/* Why a post is, or is not, in somebody's feed.
 *
 * Everything that could matter is looked up: the post, its author, the relation of the two people,
 * how the post travels, and what the views hold at this moment. First truth alone says what should
 * be shown; then an actual read says what is. The verdict names the first reason that decides it,
 * in the order in which the feed's definition names them, and where the two disagree, what that
 * means: a delivery still on its way, or a fault. */
#include <stdarg.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/id.h"
#include "model/account.h"
#include "model/feed.h"
#include "model/truth.h"

enum { EVENTS_LOOKED_AT = 200, VERDICT_MAX = 300 };

struct story {
    uint64_t viewer, post;
    struct arena *arena;
    /* truth */
    bool viewer_found, post_found, author_found;
    struct str viewer_name, author_name;
    uint64_t author;
    enum account_state author_state;
    int64_t delivery, deleted_at_ms;
    int64_t followed_at_ms, muted_at_ms, blocked_at_ms, blocked_by_at_ms; /* 0: no */
    uint64_t event; /* of the posting, while its outbox row is there; 0: done and removed */
    /* views */
    bool known, away, dropped, in_views, visible_now;
    uint64_t floor;
    /* what a read shows */
    bool shown;
};

/* ---- gathering ---- */

static enum err read_name(struct tx *tx, uint64_t id, struct arena *arena, bool *found,
                          struct str *name, enum account_state *state)
{
    struct db_rows rows;
    enum err e = tx_query(tx, "SELECT username, state FROM accounts WHERE id = $1",
                          DB_ARGS(DB_I64(id)), &rows);
    if (e)
        return e;
    *found = db_next(&rows);
    if (*found) {
        *name = arena_str(arena, db_text(&rows, 0));
        *state = (enum account_state)db_i64(&rows, 1);
    }
    return db_rows_done(&rows);
}

static enum err read_since(struct tx *tx, const char *sql, uint64_t from, uint64_t to,
                           int64_t *at_ms)
{
    *at_ms = 0;
    enum err e = tx_get_i64(tx, sql, DB_ARGS(DB_I64(from), DB_I64(to)), at_ms);
    return e == ERR_NOT_FOUND ? OK : e;
}

/* The posting's event was given its id right after the post was: if its row is still there it is
 * among the next ones. */
static enum err find_event(struct tx *tx, struct story *s)
{
    struct db_rows rows;
    enum err e = tx_query(
        tx, "SELECT id, type, version, payload FROM outbox WHERE id > $1 ORDER BY id LIMIT $2",
        DB_ARGS(DB_I64(s->post), DB_I64(EVENTS_LOOKED_AT)), &rows);
    if (e)
        return e;
    while (!s->event && db_next(&rows)) {
        struct event event;
        if (event_from_row(db_id(&rows, 0), db_text(&rows, 1), db_i64(&rows, 2), db_text(&rows, 3),
                           &event) == OK &&
            event.type == EVENT_POST_CREATED && event.object == s->post)
            s->event = event.id;
    }
    return db_rows_done(&rows);
}

static enum err read_relation(struct tx *tx, struct story *s)
{
    enum err e =
        read_since(tx, "SELECT created_at FROM follows WHERE follower_id = $1 AND followee_id = $2",
                   s->viewer, s->author, &s->followed_at_ms);
    if (!e)
        e = read_since(tx, "SELECT created_at FROM mutes WHERE muter_id = $1 AND muted_id = $2",
                       s->viewer, s->author, &s->muted_at_ms);
    if (!e)
        e = read_since(tx,
                       "SELECT created_at FROM blocks WHERE blocker_id = $1 AND blocked_id = $2",
                       s->viewer, s->author, &s->blocked_at_ms);
    if (!e)
        e = read_since(tx,
                       "SELECT created_at FROM blocks WHERE blocker_id = $1 AND blocked_id = $2",
                       s->author, s->viewer, &s->blocked_by_at_ms);
    return e;
}

static enum err read_truth(struct tx *tx, void *arg)
{
    struct story *s = arg;
    enum account_state ignored;
    struct db_rows rows;
    enum err e = read_name(tx, s->viewer, s->arena, &s->viewer_found, &s->viewer_name, &ignored);
    if (!e)
        e = tx_query(tx, "SELECT author_id, delivery, deleted_at FROM posts WHERE id = $1",
                     DB_ARGS(DB_I64(s->post)), &rows);
    if (e)
        return e;
    s->post_found = db_next(&rows);
    if (s->post_found) {
        s->author = db_id(&rows, 0);
        s->delivery = db_i64(&rows, 1);
        s->deleted_at_ms = db_i64(&rows, 2);
    }
    e = db_rows_done(&rows);
    if (e || !s->post_found)
        return e;
    e = read_name(tx, s->author, s->arena, &s->author_found, &s->author_name, &s->author_state);
    if (!e)
        e = read_relation(tx, s);
    if (!e)
        e = find_event(tx, s);
    return e;
}

static enum err look_at_views(struct views *views, struct story *s)
{
    uint64_t top;
    size_t n;
    enum err e = views_home(views, s->viewer, s->post + 1, &top, 1, &n, &s->floor);
    if (!e) {
        s->dropped = s->floor == UINT64_MAX;
        s->in_views = n == 1 && top == s->post;
        if (s->author)
            e = views_visible(views, s->viewer, &s->author, 1, &s->visible_now);
    }
    s->away = e == ERR_UNAVAILABLE || e == ERR_TIMEOUT || e == ERR_NEEDS_TRUTH;
    s->dropped |= s->away; /* whatever they would say: truth is read */
    s->known = !e || s->away;
    return s->known || e == ERR_NOT_FOUND ? OK : e;
}

static enum err read_feed(struct db *db, struct views *views, struct cards *cards, struct story *s)
{
    struct feed_page *page = ARENA_NEW(s->arena, struct feed_page);
    enum err e = feed_peek(views, cards, db, s->viewer, s->post + 1, 1, s->arena, page);
    s->shown = !e && page->count == 1 && page->items[0].card.id == s->post;
    return e == ERR_NOT_FOUND ? OK : e;
}

/* ---- telling ---- */

static const char *when(struct story *s, int64_t at_ms)
{
    char *text = arena_alloc(s->arena, TIME_TEXT_LEN + 1);
    time_format(at_ms, text);
    return text;
}

__attribute__((format(printf, 2, 3))) static void fact(struct json_out *j, const char *format, ...)
{
    char text[VERDICT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_str(j, str_of(text));
}

static void tell_relation(struct json_out *j, struct story *s)
{
    const char *viewer = s->viewer_name.ptr, *author = s->author_name.ptr;
    if (s->author == s->viewer) {
        fact(j, "%s wrote it: own posts are always shown", viewer);
        return;
    }
    if (s->followed_at_ms)
        fact(j, "%s has followed %s since %s", viewer, author, when(s, s->followed_at_ms));
    else
        fact(j, "%s does not follow %s", viewer, author);
    if (s->muted_at_ms)
        fact(j, "%s has muted %s since %s", viewer, author, when(s, s->muted_at_ms));
    if (s->blocked_at_ms)
        fact(j, "%s has blocked %s since %s", viewer, author, when(s, s->blocked_at_ms));
    if (s->blocked_by_at_ms)
        fact(j, "%s has blocked %s since %s", author, viewer, when(s, s->blocked_by_at_ms));
}

static void tell_views(struct json_out *j, struct story *s)
{
    if (!s->known) {
        fact(j, "the views do not know %s", s->viewer_name.ptr);
        return;
    }
    if (s->away) {
        fact(j, "the views cannot be asked, or have lost something: reads answer from truth");
        return;
    }
    if (s->dropped) {
        fact(j, "the timeline of %s is not in memory: it is rebuilt at the next read",
             s->viewer_name.ptr);
    } else {
        fact(j, "the id is %sin the timeline or a pull list that %s reads now",
             s->in_views ? "" : "not ", s->viewer_name.ptr);
        if (s->post <= s->floor)
            fact(j, "it lies at or below the timeline's floor (%llu): reads answer from truth",
                 (unsigned long long)s->floor);
        else
            fact(j, "it lies above the timeline's floor (%llu): reads answer from memory",
                 (unsigned long long)s->floor);
    }
    fact(j, "the graph in memory says that %s %s see this author", s->viewer_name.ptr,
         s->visible_now ? "may" : "may not");
}

static void tell_facts(struct json_out *j, struct story *s)
{
    if (!s->viewer_found)
        fact(j, "there is no account %llu", (unsigned long long)s->viewer);
    if (!s->post_found) {
        fact(j, "there is no post %llu", (unsigned long long)s->post);
        return;
    }
    fact(j, "posted by %s (%llu) at %s", s->author_name.ptr, (unsigned long long)s->author,
         when(s, id_time_ms(s->post)));
    if (s->deleted_at_ms)
        fact(j, "deleted at %s", when(s, s->deleted_at_ms));
    if (s->author_state != ACCOUNT_ACTIVE)
        fact(j, "its author's account is %s",
             s->author_state == ACCOUNT_SUSPENDED ? "suspended" : "deleted");
    tell_relation(j, s);
    fact(j, "its delivery is %s, decided when it was posted",
         s->delivery == DELIVERY_PUSH ? "push: it is put into the followers' timelines"
                                      : "pull: followers merge it in when they read");
    if (s->event)
        fact(j, "its event %llu is still in the outbox: under way, or done since the last save",
             (unsigned long long)s->event);
    else
        fact(j, "its event has left the outbox: delivery was completed");
    tell_views(j, s);
}

/* Why truth says that it is not shown; NULL when it is. */
static const char *reason_against(const struct story *s)
{
    if (!s->viewer_found)
        return "there is no such account";
    if (!s->post_found)
        return "there is no such post";
    if (s->deleted_at_ms)
        return "the post was deleted";
    if (s->author == s->viewer)
        return NULL;
    if (s->author_state != ACCOUNT_ACTIVE)
        return s->author_state == ACCOUNT_SUSPENDED ? "its author is suspended"
                                                    : "its author's account was deleted";
    if (s->blocked_at_ms || s->blocked_by_at_ms)
        return "a block lies between the two accounts";
    if (!s->followed_at_ms)
        return "its author is not followed";
    if (s->muted_at_ms)
        return "its author is muted";
    return NULL;
}

static const char *how_shown(const struct story *s)
{
    if (s->author == s->viewer)
        return "it is the reader's own";
    if (s->dropped || s->post <= s->floor)
        return "its author is followed, and this part of the feed is read from truth";
    return s->delivery == DELIVERY_PUSH
               ? "its author is followed, and it was pushed into the timeline"
               : "its author is followed, and it is pulled when reading";
}

static void write_verdict(struct json_out *j, const struct story *s, const char *against)
{
    char text[VERDICT_MAX];
    if (against && !s->shown)
        snprintf(text, sizeof text, "It is not shown because %s.", against);
    else if (!against && s->shown)
        snprintf(text, sizeof text, "It is shown because %s.", how_shown(s));
    else if (against)
        snprintf(text, sizeof text, "It is shown although %s: run 'fantail check --repair'.",
                 against);
    else if (s->event)
        snprintf(text, sizeof text,
                 "It should be shown and is not yet: its delivery is under way.");
    else
        snprintf(text, sizeof text, "It should be shown and is not: run 'fantail check --repair'.");
    json_put(j, "verdict", str, str_of(text));
}

enum err truth_explain(struct db *db, struct views *views, struct cards *cards, uint64_t viewer,
                       uint64_t post, struct json_out *j)
{
    struct arena arena;
    arena_init(&arena);
    struct story s = {.viewer = viewer,
                      .post = post,
                      .arena = &arena,
                      .viewer_name = STR("the reader"),
                      .author_name = STR("its author")};
    enum err e = db_read(db, read_truth, &s, NULL);
    if (!e)
        e = look_at_views(views, &s);
    if (!e && s.known)
        e = read_feed(db, views, cards, &s);
    if (!e) {
        const char *against = reason_against(&s);
        json_object_begin(j);
        json_put(j, "viewer", id, viewer);
        json_put(j, "post", id, post);
        json_put(j, "visible", bool, s.shown);
        json_put(j, "expected", bool, !against);
        write_verdict(j, &s, against);
        json_key(j, STR("facts"));
        json_array_begin(j);
        tell_facts(j, &s);
        json_array_end(j);
        json_object_end(j);
    }
    arena_done(&arena);
    return e;
}
