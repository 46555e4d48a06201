/* Marks gather in one bounded array under a lock; a step takes a slice off its end and writes it in
 * one transaction. The slice is small, so that the one writer is never held up for longer than a
 * few posts take. An event loop cannot write to remote views: the step does that, too. */
#include "api/edge/last_seen.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/id.h"

enum { SLICE = 256, VIEWED_MAX = 1024, EVERY_MS = 60 * 1000, LOOK_EVERY_MS = 1000 };

struct mark {
    uint64_t account, session;
    int64_t at_ms;
};

struct last_seen {
    struct db *db;
    struct views *views;
    struct clock *clock;
    struct session_terms sessions;
    int64_t due_us; /* the step's own */
    pthread_mutex_t lock;
    size_t count, max;
    size_t viewed; /* marks of which remote views know */
    struct mark marks[];
};

struct last_seen *last_seen_new(struct db *db, struct views *views, struct clock *clock,
                                struct session_terms sessions, size_t marks_max)
{
    struct last_seen *s = calloc(1, sizeof *s + marks_max * sizeof(struct mark));
    CHECK(s);
    s->db = db;
    s->views = views;
    s->clock = clock;
    s->sessions = sessions;
    s->max = marks_max;
    s->due_us = clock_mono_us(clock) + EVERY_MS * INT64_C(1000);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void last_seen_free(struct last_seen *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static struct view_change change_of(const struct mark *m)
{
    return (struct view_change){
        .kind = VIEW_LAST_SEEN, .on = true, .account = m->account, .value = m->at_ms};
}

void last_seen_mark(struct last_seen *s, uint64_t account, uint64_t session)
{
    struct mark mark = {account, session, clock_wall_ms(s->clock)};
    struct view_change change = change_of(&mark);
    if (!s->views->remote)
        (void)views_apply(s->views, &change, 1);
    pthread_mutex_lock(&s->lock);
    if (s->count < s->max)
        s->marks[s->count++] = mark;
    pthread_mutex_unlock(&s->lock);
}

struct slice {
    const struct mark *marks;
    size_t count;
    struct session_terms sessions;
};

static enum err write_slice(struct tx *tx, void *arg)
{
    const struct slice *slice = arg;
    enum err e = OK;
    for (size_t i = 0; i < slice->count && !e; i++) {
        const struct mark *m = &slice->marks[i];
        e = tx_exec(tx, "UPDATE accounts SET seen_at = $2 WHERE id = $1 AND seen_at < $2",
                    DB_ARGS(DB_I64(m->account), DB_I64(m->at_ms)), NULL);
        if (!e && m->session)
            e = tx_exec(tx,
                        "UPDATE sessions SET used_at = $3, expires_at = $4 "
                        "WHERE account_id = $1 AND id = $2 AND used_at < $3",
                        DB_ARGS(DB_I64(m->account), DB_I64(m->session), DB_I64(m->at_ms),
                                DB_I64(session_expires_ms(id_time_ms(m->session), m->at_ms,
                                                          slice->sessions))),
                        NULL);
    }
    return e;
}

/* A mark that cannot be written now is dropped: the next visit makes another. */
int64_t last_seen_step(struct last_seen *s)
{
    struct view_change changes[VIEWED_MAX];
    struct mark marks[SLICE];
    size_t viewed = 0, taken = 0;
    int64_t now_us = clock_mono_us(s->clock), soon_us = now_us + LOOK_EVERY_MS * INT64_C(1000);
    pthread_mutex_lock(&s->lock);
    for (size_t i = s->viewed; s->views->remote && i < s->count && viewed < VIEWED_MAX; i++)
        changes[viewed++] = change_of(&s->marks[i]);
    if (now_us >= s->due_us || s->count >= s->max / 2)
        taken = s->count < SLICE ? s->count : SLICE;
    s->count -= taken;
    s->viewed = s->count;
    memcpy(marks, s->marks + s->count, taken * sizeof *marks);
    bool more = taken > 0 && s->count > 0;
    pthread_mutex_unlock(&s->lock);
    if (viewed > 0)
        (void)views_apply(s->views, changes, viewed);
    struct slice slice = {marks, taken, s->sessions};
    if (taken > 0)
        (void)db_write(s->db, write_slice, &slice, NULL);
    if (more)
        return now_us;
    if (now_us >= s->due_us) {
        s->due_us = now_us + EVERY_MS * INT64_C(1000);
        if (!s->views->remote)
            return s->due_us;
    }
    return s->due_us < soon_us ? s->due_us : soon_us;
}
