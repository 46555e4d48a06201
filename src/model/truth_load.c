/* Bringing the views up from truth, when there is no saved state to begin with, and from the
 * outbox, when there is.
 *
 * Every table is walked by its primary key in slices, each in a snapshot of its own, so that a walk
 * over twenty million edges holds no snapshot open for long. Rows go to the views by the thousand.
 *
 * Views of this process are loaded before it opens: nothing is written meanwhile. Remote ones are
 * loaded while all nodes continue, and every commit since they were cleared is applied to them as
 * it happens. A slice's rows may be older than that: they name no event, and so never count against
 * one that does. A row that a slice no longer shows changed after the clearing, and its event
 * applies that. A thread sends them what was read while the next rows are read, many in one call:
 * the more edges of an account a call has, the less each costs.
 *
 * Pulled posts come before follows: so whoever is loaded as a follower of their authors learns of
 * them (timelines_spread), and no follower has to be visited for that.
 *
 * Pull lists hold at most as many ids as timelines do (views->cap); the load gives one more, so
 * that a full list knows that there is something below it. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "model/account.h"
#include "model/event_views.h"
#include "model/truth.h"

enum {
    ROWS_A_READ = 100 * 1000,
    REMOTE_ROWS_A_READ = 10 * 1000,
    AUTHORS_A_READ = 500,
    EVENTS_A_READ = 10 * 1000,
    CHANGES_A_CALL = 1024,
    REMOTE_CHANGES_A_CALL = 64 * 1024,
    PROGRESS_EVERY_MS = 100,
    OUTBOX_PARKED = 2, /* of an unknown type or version: waits for a decision, or for an upgrade */
};

/* Applies what was read, on a thread of its own. */
struct applier {
    struct views *views;
    struct thread thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct view_change *changes; /* in its hands, or to be filled again */
    size_t count;                /* 0: it has nothing to do */
    bool ends;
    enum err error; /* the first one: nothing is applied any more */
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
    size_t count, room;
    struct view_change *changes;
    struct applier *applier; /* NULL: applied where it is read */
};

static void *apply_main(void *arg)
{
    struct applier *a = arg;
    pthread_mutex_lock(&a->lock);
    while (a->count > 0 || !a->ends) {
        if (a->count == 0) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        enum err e = a->error;
        pthread_mutex_unlock(&a->lock);
        if (!e)
            e = views_apply(a->views, a->changes, a->count);
        pthread_mutex_lock(&a->lock);
        a->error = e;
        a->count = 0;
        pthread_cond_signal(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* Waits until the applier has done what it had, and gives it these; the buffers change places. */
static enum err give_to_applier(struct load *l)
{
    struct applier *a = l->applier;
    LOCK_SCOPE(&a->lock);
    while (a->count > 0)
        pthread_cond_wait(&a->changed, &a->lock);
    struct view_change *empty = a->changes;
    a->changes = l->changes;
    a->count = l->count;
    l->changes = empty;
    pthread_cond_signal(&a->changed);
    return a->error;
}

static enum err flush(struct load *l)
{
    enum err e = OK;
    if (l->count > 0)
        e = l->applier ? give_to_applier(l) : views_apply(l->views, l->changes, l->count);
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
    return l->count == l->room ? flush(l) : OK;
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

static struct view_change *changes_new(size_t n)
{
    struct view_change *changes = calloc(n, sizeof *changes);
    CHECK(changes);
    return changes;
}

/* What was handed over is applied when this returns. */
static enum err applier_end(struct applier *a)
{
    pthread_mutex_lock(&a->lock);
    a->ends = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    thread_join(&a->thread);
    free(a->changes);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    return a->error;
}

static enum err load_all(struct load *l)
{
    static const tx_fn walks[] = {read_accounts, read_pulled, read_follows, read_mutes,
                                  read_members};
    enum err e = db_read(l->db, read_total, l, NULL);
    for (size_t i = 0; !e && i < sizeof walks / sizeof walks[0]; i++)
        e = walk(l, walks[i]);
    return e;
}

enum err truth_load_views(struct db *db, struct views *views,
                          void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg)
{
    struct applier applier = {.views = views};
    struct load l = {.db = db,
                     .views = views,
                     .progress = progress,
                     .arg = arg,
                     .slice = views->remote ? REMOTE_ROWS_A_READ : ROWS_A_READ,
                     .room = views->remote ? REMOTE_CHANGES_A_CALL : CHANGES_A_CALL};
    l.changes = changes_new(l.room);
    if (views->remote) {
        pthread_mutex_init(&applier.lock, NULL);
        pthread_cond_init(&applier.changed, NULL);
        applier.changes = changes_new(l.room);
        if (thread_start(&applier.thread, "views-load", apply_main, &applier))
            l.applier = &applier;
    }
    enum err e = load_all(&l);
    if (views->remote) {
        enum err ended = applier_end(&applier);
        e = e ? e : ended;
    }
    if (!e && progress)
        progress(arg, l.total, l.total);
    free(l.changes);
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
        enum event_unread why = event_read_whole(c->after, db_text(&rows, 1), db_i64(&rows, 2),
                                                 db_text(&rows, 3), &event);
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
