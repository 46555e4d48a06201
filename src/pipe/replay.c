/* The replays' runner: walks the outbox for every running job and hands what matches to the engine.
 *
 * One caller steps it; the engine reports outcomes from its own threads. One lock guards what both
 * touch (the jobs, their windows, their permissions); it is never held over SQL or a call of the
 * host: the host may report an outcome from inside begin.
 *
 * What must hold:
 *  1. Events of a job are begun in the order of their ids, each once in the life of a slot.
 *  2. The saved position never passes an event that is begun and has no outcome; position and
 *     counts are saved in one transaction and speak of the same events. So after a crash at any
 *     moment the job goes on with what it has not saved, at most one window, and its counts are
 *     right.
 *  3. The jobs' table decides whether a job runs. Operators change it there and poke; the next step
 *     notices (replay_jobs.c), or a save finds that the job is not running any more. A job that was
 *     paused begins nothing more, and its slot is given up when its window is empty and saved. A
 *     job that was cancelled or ended is forgotten at once.
 *  4. A save whose outcome is unknown is looked up before the next one, never repeated blindly. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/sync.h"
#include "pipe/replay_state.h"

enum {
    BEGIN_A_STEP = 32,     /* events of one job: the others have their turn */
    ROOM_AGAIN_US = 10000, /* the engine had no room */
};

#define LOG_AGAIN_US (10 * SECOND_US)

struct replays *replays_new(struct db *db, struct clock *clock, const struct rule *rules,
                            size_t rule_count, struct replay_host host)
{
    struct replays *r = calloc(1, sizeof *r);
    CHECK(r);
    r->db = db;
    r->clock = clock;
    r->rules = rules;
    r->rule_count = rule_count;
    r->host = host;
    lock_init_spinning(&r->lock);
    atomic_store(&r->poked, true); /* jobs that ran before the start continue */
    return r;
}

void replays_forget(struct replays *r)
{
    memset(r->slots, 0, sizeof r->slots);
    r->grant_count = r->turn = 0;
    r->rest = NULL;
    r->rest_until_us = r->look_after_us = 0;
    atomic_store(&r->poked, true);
}

void replays_free(struct replays *r)
{
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void replays_poke(struct replays *r)
{
    atomic_store(&r->poked, true);
    r->host.wake(r->host.ctx);
}

enum err replays_write(struct replays *r, tx_fn run, void *arg)
{
    return r->host.write ? r->host.write(r->host.ctx, run, arg) : db_write(r->db, run, arg, NULL);
}

void replays_complain(struct replays *r, int64_t now_us, const char *message, uint64_t job,
                      enum err e)
{
    if (now_us < r->log_after_us || e == ERR_STOPPING)
        return;
    r->log_after_us = now_us + LOG_AGAIN_US;
    log_error(message, LOG_ID("job", job), LOG_CSTR("error", err_name(e)));
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- what the engine says ---- */

/* The step is woken when half a window is free, not for every event: each time it begins some. */
void replays_told(struct replays *r, uint64_t job, uint64_t event, const struct job_counts *what)
{
    pthread_mutex_lock(&r->lock);
    struct replay_slot *s = job != 0 ? replays_slot(r, job) : NULL;
    bool wake = false;
    if (s) {
        uint32_t before = s->window.count;
        replay_window_tell(&s->window, event, what);
        uint32_t after = s->window.count;
        wake = after < before &&
               (after == 0 || (before > REPLAY_WINDOW / 2 && after <= REPLAY_WINDOW / 2));
    }
    pthread_mutex_unlock(&r->lock);
    if (wake)
        r->host.wake(r->host.ctx);
}

bool replays_allow(struct replays *r, uint64_t job, const struct rule *rule)
{
    if (rule->effect != EFFECT_OUTSIDE)
        return true;
    bool allowed = false;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->grant_count && !allowed; i++)
        allowed = r->grants[i].job == job && replay_allows(&r->grants[i].spec, rule);
    pthread_mutex_unlock(&r->lock);
    return allowed;
}

/* ---- beginning ---- */

struct reading {
    const struct replays *replays;
    struct replay_slot *slot;
    size_t count;
    uint64_t reached;
    bool end;
};

static enum err run_reading(struct tx *tx, void *arg)
{
    struct reading *x = arg;
    return replay_walk(tx, &x->slot->spec, x->replays->rules, x->replays->rule_count,
                       x->slot->read_to, x->slot->last, x->slot->found, ROWS_A_READ, &x->count,
                       &x->reached, &x->end);
}

/* The next rows. False: they cannot be read now. */
static bool read_more(struct replays *r, struct replay_slot *s, int64_t now_us)
{
    struct reading x = {.replays = r, .slot = s};
    s->settled_after = s->settled_through = 0;
    if (r->host.unsaved) /* before the rows are read: they may only be further than this */
        r->host.unsaved(r->host.ctx, &s->settled_after, &s->settled_through);
    enum err e = db_read(r->db, run_reading, &x, NULL);
    s->found_at = s->found_count = 0;
    if (e) {
        replays_complain(r, now_us, "the outbox cannot be read for a replay", s->job, e);
        return false;
    }
    s->found_count = x.count;
    s->read_to = x.reached;
    s->read_all = x.end;
    if (x.count > 0)
        FAULT(replay_before_begin);
    return true;
}

/* Events that are done and not saved take up room, too: so a restart repeats one window at most. */
static bool enter(struct replays *r, struct replay_slot *s, uint64_t event)
{
    pthread_mutex_lock(&r->lock);
    bool entered = s->window.count + s->window.left.seen < REPLAY_WINDOW &&
                   replay_window_enter(&s->window, event);
    pthread_mutex_unlock(&r->lock);
    return entered;
}

static void undo_enter(struct replays *r, struct replay_slot *s)
{
    pthread_mutex_lock(&r->lock);
    replay_window_undo(&s->window);
    pthread_mutex_unlock(&r->lock);
}

/* Passes over a row that cannot be read: it goes through the window, so that it is counted once,
 * with its position. */
static bool pass_unreadable(struct replays *r, struct replay_slot *s, const struct replay_found *f)
{
    static const struct job_counts failure = {.failed = 1};
    if (!enter(r, s, f->event.id))
        return false;
    snprintf(s->note, sizeof s->note, "event %llu cannot be read: %s",
             (unsigned long long)f->event.id, event_unread_name(f->why));
    replays_told(r, s->job, f->event.id, &failure);
    return true;
}

/* Hands one event to the engine. False: not now; *due_us says when, if time will help. */
static bool begin(struct replays *r, struct replay_slot *s, const struct replay_found *f,
                  int64_t now_us, int64_t *due_us)
{
    if (!bucket_take(&s->bucket, now_us, 1, due_us))
        return false;
    if (enter(r, s, f->event.id)) {
        if (r->host.begin(r->host.ctx, s->job, &f->event, f->rule_mask))
            return true;
        undo_enter(r, s);
        *due_us = now_us + ROOM_AGAIN_US;
    }
    bucket_give_back(&s->bucket, 1);
    return false;
}

/* A turn of one job: reads once at most, begins BEGIN_A_STEP at most. Says when it wants its next;
 * INT64_MAX: when an outcome arrives. */
static int64_t go_on(struct replays *r, struct replay_slot *s, int64_t now_us)
{
    if (s->found_at == s->found_count) {
        if (s->read_all)
            return INT64_MAX;
        if (!read_more(r, s, now_us))
            return now_us + SECOND_US;
    }
    int64_t due_us = INT64_MAX;
    for (size_t i = 0; i < BEGIN_A_STEP && s->found_at < s->found_count; i++) {
        const struct replay_found *f = &s->found[s->found_at];
        if (f->kind == REPLAY_UNREADABLE && !pass_unreadable(r, s, f))
            return INT64_MAX;
        if (replay_is_settled(f, s->settled_after, s->settled_through) &&
            !begin(r, s, f, now_us, &due_us))
            return due_us;
        s->walked = f->event.id;
        s->found_at++;
    }
    if (s->found_at < s->found_count)
        return now_us;
    s->walked = s->read_to; /* what matched is in the window, the rest passed over */
    return s->read_all ? INT64_MAX : now_us;
}

/* ---- saving ---- */

struct save {
    uint64_t job, position;
    struct job_counts counts;
    const char *note; /* NULL: as it is */
    bool paused, finish;
    int64_t now_ms;
};

static enum err run_save(struct tx *tx, void *arg)
{
    const struct save *x = arg;
    enum err e = job_advance(tx, x->job, x->position, &x->counts, x->note, x->paused, x->now_ms);
    return e || !x->finish ? e : job_set_state(tx, x->job, JOB_DONE, NULL, x->now_ms);
}

static void note_saved(struct replays *r, struct replay_slot *s, uint64_t position,
                       const struct job_counts *counts)
{
    s->saved = position;
    pthread_mutex_lock(&r->lock);
    job_counts_take(&s->window.left, counts);
    pthread_mutex_unlock(&r->lock);
}

struct finding {
    uint64_t job;
    struct job found;
};

static enum err find_job(struct tx *tx, void *arg)
{
    struct finding *f = arg;
    return job_get(tx, f->job, &f->found);
}

/* Did the save happen? Counts change only together with the position, so the position tells. */
static enum err look_up_save(struct replays *r, struct replay_slot *s)
{
    struct finding f = {.job = s->job};
    TRY(db_read(r->db, find_job, &f, NULL));
    if (f.found.position >= s->unsure)
        note_saved(r, s, s->unsure, &s->unsure_counts);
    s->unsure = 0;
    return OK;
}

/* What the table should say of the job. */
static const char *wanted_note(const struct replays *r, const struct replay_slot *s)
{
    if (s->stopping)
        return replay_is_rest_note(s->shown) ? s->note : s->shown;
    return r->rest ? r->rest : s->note;
}

/* Saves position, counts and note in one transaction. True: it was done, and the job is over when
 * that was asked for. */
static bool save(struct replays *r, struct replay_slot *s, bool finish, int64_t now_us)
{
    const char *note = wanted_note(r, s);
    struct save x = {.job = s->job,
                     .note = strcmp(note, s->shown) != 0 ? note : NULL,
                     .paused = s->stopping,
                     .finish = finish,
                     .now_ms = clock_wall_ms(r->clock)};
    s->save_due_us = now_us + SECOND_US;
    s->save_failed = false;
    enum err e = s->unsure ? look_up_save(r, s) : OK;
    if (!e) {
        pthread_mutex_lock(&r->lock);
        x.position = replay_window_position(&s->window, s->walked);
        x.counts = s->window.left;
        pthread_mutex_unlock(&r->lock);
        FAULT(replay_before_save);
        e = replays_write(r, run_save, &x);
    }
    if (!e) {
        FAULT(replay_after_save);
        note_saved(r, s, x.position, &x.counts);
        if (x.note)
            snprintf(s->shown, sizeof s->shown, "%s", x.note);
        return true;
    }
    if (e == ERR_UNKNOWN_COMMIT && x.position > s->saved) {
        s->unsure = x.position;
        s->unsure_counts = x.counts;
    }
    bool changed = err_class(e) == ERR_CLASS_CLIENT; /* by an operator: the table decides */
    if (changed || e == ERR_UNKNOWN_COMMIT)
        atomic_store(&r->poked, true);
    if (!changed) {
        s->save_failed = true;
        replays_complain(r, now_us, "a replay's position could not be saved", s->job, e);
    }
    return false;
}

/* ---- the step ---- */

static void look_whether_to_rest(struct replays *r, int64_t now_us)
{
    if (r->rest && now_us < r->rest_until_us)
        return;
    r->rest = r->host.guarded(r->host.ctx)        ? replay_guard_note
              : r->host.live_is_late(r->host.ctx) ? replay_late_note
                                                  : NULL;
    r->rest_until_us = now_us + SECOND_US;
}

static bool save_is_due(struct replays *r, struct replay_slot *s, bool over, int64_t now_us)
{
    if (s->save_failed && now_us < s->save_due_us)
        return false;
    if (over || strcmp(wanted_note(r, s), s->shown) != 0)
        return true;
    pthread_mutex_lock(&r->lock);
    uint64_t position = replay_window_position(&s->window, s->walked);
    uint64_t left = s->window.left.seen;
    pthread_mutex_unlock(&r->lock);
    return position > s->saved && (left >= REPLAY_WINDOW / 2 || now_us >= s->save_due_us);
}

static int64_t serve(struct replays *r, struct replay_slot *s, int64_t now_us)
{
    int64_t due_us = INT64_MAX;
    if (!s->stopping && !r->rest)
        due_us = go_on(r, s, now_us);
    else if (r->rest)
        due_us = r->rest_until_us;
    pthread_mutex_lock(&r->lock);
    bool empty = s->window.count == 0;
    pthread_mutex_unlock(&r->lock);
    bool walked = s->read_all && s->found_at == s->found_count;
    bool over = empty && (s->stopping || walked);
    if (save_is_due(r, s, over, now_us) && save(r, s, over && !s->stopping, now_us)) {
        if (!over)
            return now_us; /* there is room again */
        replays_give_up(r, s);
        return INT64_MAX;
    }
    if (s->save_due_us <= now_us) /* nothing new to save */
        s->save_due_us = now_us + SECOND_US;
    return earlier(due_us, s->save_due_us);
}

int64_t replays_step(struct replays *r)
{
    int64_t now_us = clock_mono_us(r->clock);
    int64_t due_us = INT64_MAX;
    replays_look_at_jobs(r, now_us);
    look_whether_to_rest(r, now_us);
    for (size_t i = 0; i < JOBS_OPEN_MAX; i++) {
        struct replay_slot *s = &r->slots[(r->turn + i) % JOBS_OPEN_MAX];
        if (s->job != 0)
            due_us = earlier(due_us, serve(r, s, now_us));
    }
    r->turn = (r->turn + 1) % JOBS_OPEN_MAX;
    if (atomic_load(&r->poked))
        due_us = earlier(due_us, now_us > r->look_after_us ? now_us : r->look_after_us);
    return due_us;
}
