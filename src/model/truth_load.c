/* Bringing the views up from truth, when there is no saved state to begin with, and from the
 * outbox, when there is.
 *
 * Every table is walked by its primary key in slices, each in a snapshot of its own, so that a walk
 * over twenty million edges holds no snapshot open for long. Rows go to the views by the thousand.
 *
 * Views of this process are loaded before it opens: nothing is written meanwhile. Remote ones are
 * loaded while everybody goes on, and every commit since they were cleared is applied to them as it
 * happens. What a slice shows may be older than that: it names no event, and so never counts
 * against one that does. What a slice no longer shows was committed after the clearing and is told
 * by its event. Their slices are small: a row is read much faster than it is sent.
 *
 * Pull lists hold at most as many ids as timelines do (views->cap); one more than that is given, so
 * that a full list knows that there is something below it. */
#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "model/account.h"
#include "model/event_views.h"
#include "model/truth.h"

enum {
    ROWS_A_READ = 100 * 1000,
    REMOTE_ROWS_A_READ = 10 * 1000,
    AUTHORS_A_READ = 500,
    EVENTS_A_READ = 10 * 1000,
    CHANGES_A_CALL = 1024,
    PROGRESS_EVERY_MS = 100,
    OUTBOX_PARKED = 2, /* what nobody here understands waits for a decision, or for an upgrade */
};

struct load {
    struct db *db;
    struct views *views;
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    uint64_t done, total;
    size_t slice; /* rows */
    int64_t reported_ms;
    uint64_t after[2]; /* the key of the last row read */
    bool end;          /* of this walk */
    size_t count;
    struct view_change changes[CHANGES_A_CALL];
};

static enum err flush(struct load *l)
{
    enum err e = l->count > 0 ? views_apply(l->views, l->changes, l->count) : OK;
    l->done += l->count;
    l->count = 0;
    int64_t now_ms = clock_mono_ms(clock_system());
    if (l->progress && now_ms - l->reported_ms >= PROGRESS_EVERY_MS) {
        l->reported_ms = now_ms;
        l->progress(l->arg, l->done < l->total ? l->done : l->total, l->total);
    }
    return e;
}

static enum err add(struct load *l, struct view_change c)
{
    l->changes[l->count++] = c;
    return l->count == CHANGES_A_CALL ? flush(l) : OK;
}

static enum err read_total(struct tx *tx, void *arg)
{
    struct load *l = arg;
    int64_t total = 0;
    enum err e = tx_get_i64(tx,
                            "SELECT CAST(COUNT(*) + COALESCE(SUM(following_count), 0) + "
                            "(SELECT COALESCE(SUM(member_count), 0) FROM groups) AS BIGINT) "
                            "FROM accounts",
                            DB_NO_ARGS, &total);
    l->total = total > 0 ? (uint64_t)total : 0;
    return e;
}

static enum err read_accounts(struct tx *tx, void *arg)
{
    struct load *l = arg;
    struct db_rows rows =
        tx_rows(tx, "SELECT id, seen_at, state FROM accounts WHERE id > $1 ORDER BY id LIMIT $2",
                DB_ARGS(DB_I64(l->after[0]), DB_I64(l->slice)));
    enum err e = OK;
    size_t n = 0;
    while (!e && db_next(&rows)) {
        uint64_t id = db_id(&rows, 0);
        l->after[0] = id;
        n++;
        e = add(l, (struct view_change){
                       .kind = VIEW_ACCOUNT, .account = id, .value = db_i64(&rows, 1)});
        if (!e && db_i64(&rows, 2) != ACCOUNT_ACTIVE)
            e = add(l, (struct view_change){.kind = VIEW_HIDE, .on = true, .account = id});
    }
    l->end = n < l->slice;
    enum err ended = db_rows_done(&rows);
    return e ? e : ended;
}

/* Rows of two keys and a value. */
static enum err read_edges(struct tx *tx, struct load *l, const char *sql,
                           enum view_change_kind kind)
{
    struct db_rows rows =
        tx_rows(tx, sql, DB_ARGS(DB_I64(l->after[0]), DB_I64(l->after[1]), DB_I64(l->slice)));
    enum err e = OK;
    size_t n = 0;
    bool member = kind == VIEW_MEMBER; /* group first: the members of one lie together */
    while (!e && db_next(&rows)) {
        l->after[0] = db_id(&rows, 0);
        l->after[1] = db_id(&rows, 1);
        n++;
        e = add(l, (struct view_change){.kind = kind,
                                        .on = true,
                                        .account = l->after[member],
                                        .other = l->after[!member],
                                        .value = db_i64(&rows, 2)});
    }
    l->end = n < l->slice;
    enum err ended = db_rows_done(&rows);
    return e ? e : ended;
}

static enum err read_follows(struct tx *tx, void *arg)
{
    return read_edges(tx, arg,
                      "SELECT follower_id, followee_id, 0 FROM follows "
                      "WHERE (follower_id, followee_id) > ($1, $2) "
                      "ORDER BY follower_id, followee_id LIMIT $3",
                      VIEW_FOLLOW);
}

static enum err read_mutes(struct tx *tx, void *arg)
{
    return read_edges(tx, arg,
                      "SELECT muter_id, muted_id, 0 FROM mutes "
                      "WHERE (muter_id, muted_id) > ($1, $2) "
                      "ORDER BY muter_id, muted_id LIMIT $3",
                      VIEW_MUTE);
}

/* With the activity that the group begins with in the member's inbox: its last message, or the
 * joining. */
static enum err read_members(struct tx *tx, void *arg)
{
    return read_edges(tx, arg,
                      "SELECT m.group_id, m.account_id, CASE WHEN m.joined_id > g.last_id "
                      "THEN m.joined_id ELSE g.last_id END FROM group_members m "
                      "JOIN groups g ON g.id = m.group_id "
                      "WHERE (m.group_id, m.account_id) > ($1, $2) AND m.left_seq IS NULL "
                      "ORDER BY m.group_id, m.account_id LIMIT $3",
                      VIEW_MEMBER);
}

static enum err read_pulled_of(struct tx *tx, struct load *l, uint64_t author)
{
    struct db_rows rows = tx_rows(tx,
                                  "SELECT id FROM posts WHERE delivery = 1 AND author_id = $1 "
                                  "AND deleted_at IS NULL ORDER BY id DESC LIMIT $2",
                                  DB_ARGS(DB_I64(author), DB_I64(l->views->cap + 1)));
    enum err e = OK;
    while (!e && db_next(&rows))
        e = add(l, (struct view_change){.kind = VIEW_POST,
                                        .on = true,
                                        .account = author,
                                        .other = db_id(&rows, 0),
                                        .value = DELIVERY_PULL});
    enum err ended = db_rows_done(&rows);
    return e ? e : ended;
}

/* Hops from author to author in the index of pulled posts: cost grows with the number of authors
 * who have any, not with the number of posts. */
static enum err read_pulled(struct tx *tx, void *arg)
{
    struct load *l = arg;
    enum err e = OK;
    for (size_t i = 0; !e && i < AUTHORS_A_READ; i++) {
        int64_t author = 0;
        e = tx_get_i64(tx,
                       "SELECT author_id FROM posts WHERE delivery = 1 AND author_id > $1 "
                       "ORDER BY author_id LIMIT 1",
                       DB_ARGS(DB_I64(l->after[0])), &author);
        if (e == ERR_NOT_FOUND) {
            l->end = true;
            return OK;
        }
        if (e)
            return e;
        l->after[0] = (uint64_t)author;
        e = read_pulled_of(tx, l, (uint64_t)author);
    }
    return e;
}

static enum err walk(struct load *l, tx_fn read)
{
    l->after[0] = l->after[1] = 0;
    l->end = false;
    enum err e = OK;
    while (!e && !l->end)
        e = db_read(l->db, read, l, NULL);
    return e ? e : flush(l);
}

enum err truth_load_views(struct db *db, struct views *views,
                          void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg)
{
    struct arena arena;
    arena_init(&arena);
    struct load *l = ARENA_NEW(&arena, struct load);
    l->db = db;
    l->views = views;
    l->slice = views->remote ? REMOTE_ROWS_A_READ : ROWS_A_READ;
    l->progress = progress;
    l->arg = arg;
    static const tx_fn walks[] = {read_accounts, read_follows, read_mutes, read_members,
                                  read_pulled};
    enum err e = db_read(db, read_total, l, NULL);
    for (size_t i = 0; !e && i < sizeof walks / sizeof walks[0]; i++)
        e = walk(l, walks[i]);
    if (!e && progress)
        progress(arg, l->total, l->total);
    arena_done(&arena);
    return e;
}

/* ---- catching up ---- */

struct catch_up {
    struct views *views;
    struct cards *cards;
    uint64_t after;
    bool end;
};

static enum err read_events(struct tx *tx, void *arg)
{
    struct catch_up *c = arg;
    struct db_rows rows =
        tx_rows(tx,
                "SELECT id, type, version, payload, state FROM outbox WHERE id > $1 "
                "ORDER BY id LIMIT $2",
                DB_ARGS(DB_I64(c->after), DB_I64(EVENTS_A_READ)));
    size_t n = 0;
    while (db_next(&rows)) {
        struct event event;
        c->after = db_id(&rows, 0);
        n++;
        if (db_i64(&rows, 4) == OUTBOX_PARKED)
            continue;
        /* Of a later version, or damaged: never guessed. The relay will park it and say so. */
        enum event_unread why =
            event_read(c->after, db_text(&rows, 1), db_i64(&rows, 2), db_text(&rows, 3), &event);
        if (why == EVENT_READ)
            event_apply(c->views, c->cards, &event);
        else
            log_warn("an event that cannot be read was not applied", LOG_ID("event", c->after),
                     LOG_STR("type", db_text(&rows, 1)), LOG_CSTR("why", event_unread_name(why)));
    }
    c->end = n < EVENTS_A_READ;
    return db_rows_done(&rows);
}

enum err truth_catch_up(struct db *db, struct views *views, struct cards *cards, uint64_t position)
{
    struct catch_up c = {.views = views, .cards = cards, .after = position};
    enum err e = OK;
    while (!e && !c.end)
        e = db_read(db, read_events, &c, NULL);
    return e;
}
