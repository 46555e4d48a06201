/* The replays' runner: walks the outbox for every running job and hands what matches to the engine.
 *
 * One caller steps it; the engine tells it outcomes from its own threads. What both touch (which
 * jobs there are, their windows, what they are allowed) is behind one lock, which is never held
 * over SQL or a call of the host: the host may tell an outcome from inside begin.
 *
 * What must hold:
 *  1. Events of a job are begun in the order of their ids, each once in the life of a slot.
 *  2. The saved position never passes an event that is begun and not told; position and counts are
 *     saved in one transaction and speak of the same events. So after a crash at any moment the job
 *     goes on with what it has not saved, at most one window, and its counts are right.
 *  3. The jobs' table decides whether a job runs. Operators change it there and poke; this file
 *     notices at the next step, or when a save finds that the job is not running any more. A job
 *     that was paused begins nothing more, and its slot is given up when its window is empty and
 *     saved. A job that was cancelled or ended is forgotten at once.
 *  4. A save whose outcome is unknown is looked up before the next one, never repeated blindly. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/sync.h"
#include "pipe/bucket.h"
#include "pipe/replay_walk.h"
#include "pipe/replay_window.h"

enum {
    ROWS_A_READ = 256,
    JOBS_KNOWN = 64,       /* the newest jobs, whose allowed channels are remembered */
    BEGIN_A_STEP = 32,     /* events of one job: the others have their turn */
    BURST_PARTS = 10,      /* a bucket holds a tenth of a second */
    RATE_MAX = 1000000,    /* more is no limit that anybody would notice */
    ROOM_AGAIN_US = 10000, /* the engine had no room */
};

#define SECOND_US    INT64_C(1000000)
#define LOG_AGAIN_US (10 * SECOND_US)

struct slot {
    uint64_t job;  /* 0: free */
    bool stopping; /* paused */
    struct replay_spec spec;
    uint64_t last;

    /* The step's alone: the walk, */
    uint64_t read_to; /* rows up to here were read */
    bool read_all;
    struct replay_found found[ROWS_A_READ];
    size_t found_at, found_count;
    uint64_t walked; /* everything up to here was begun or passed over */

    /* what the table knows, */
    uint64_t saved;
    int64_t save_due_us; /* the next save by time */
    bool save_failed;    /* and is not tried before that */
    uint64_t unsure;     /* the position of a save whose outcome is not known; 0: none */
    struct job_counts unsure_counts;
    char note[JOB_NOTE_MAX];  /* while it does not rest */
    char shown[JOB_NOTE_MAX]; /* as it is in the table */

    /* and the rate. */
    struct bucket bucket;

    /* Behind the lock, like `job`, which the step alone writes. */
    struct replay_window window;
};

struct grant {
    uint64_t job;
    struct replay_spec spec;
};

struct replays {
    struct db *db;
    struct clock *clock;
    const struct rule *rules;
    size_t rule_count;
    struct replay_host host;
    _Atomic bool poked;

    pthread_mutex_t lock;
    struct slot slots[JOBS_OPEN_MAX];
    struct grant grants[JOBS_KNOWN];
    size_t grant_count;

    /* The step's alone. */
    size_t turn; /* whose turn it is first */
    const char *rest;
    int64_t rest_until_us, look_after_us, log_after_us;
    struct job open[JOBS_OPEN_MAX], newest[JOBS_KNOWN];
    size_t open_count, newest_count;
    struct grant fresh[JOBS_KNOWN];
};

static const char late_note[] = "live freshness is over its target";
static const char guard_note[] = "the store is at risk";

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
    atomic_store(&r->poked, true); /* what was running before the start goes on */
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

static enum err write(struct replays *r, tx_fn run, void *arg)
{
    return r->host.write ? r->host.write(r->host.ctx, run, arg) : db_write(r->db, run, arg, NULL);
}

/* Logs a failure, unless one was logged a moment ago. */
static void complain(struct replays *r, int64_t now_us, const char *message, uint64_t job,
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

static struct slot *slot_of(struct replays *r, uint64_t job)
{
    for (size_t i = 0; i < JOBS_OPEN_MAX; i++) {
        if (r->slots[i].job == job)
            return &r->slots[i];
    }
    return NULL;
}

/* The step is woken when half a window is free, not for every event: each time it begins some. */
void replays_told(struct replays *r, uint64_t job, uint64_t event, const struct job_counts *what)
{
    pthread_mutex_lock(&r->lock);
    struct slot *s = job != 0 ? slot_of(r, job) : NULL;
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

/* ---- which jobs there are ---- */

static bool is_rest_note(const char *note)
{
    return strcmp(note, late_note) == 0 || strcmp(note, guard_note) == 0;
}

static bool is_replay(const struct job *job)
{
    return strcmp(job->kind, "replay") == 0;
}

static int64_t rate_of(const struct job *job)
{
    int64_t rate = job->rate < 0 ? REPLAY_RATE_DEFAULT : job->rate;
    return rate < RATE_MAX ? rate : RATE_MAX;
}

static enum err read_jobs(struct tx *tx, void *arg)
{
    struct replays *r = arg;
    TRY(job_list(tx, true, UINT64_MAX, r->open, JOBS_OPEN_MAX, &r->open_count));
    return job_list(tx, false, UINT64_MAX, r->newest, JOBS_KNOWN, &r->newest_count);
}

struct refusal {
    uint64_t job;
    const char *why;
    int64_t now_ms;
};

static enum err run_refusal(struct tx *tx, void *arg)
{
    const struct refusal *x = arg;
    return job_set_state(tx, x->job, JOB_FAILED, x->why, x->now_ms);
}

/* A job whose spec means nothing to this program, perhaps after an upgrade: it fails, with why. */
static void refuse(struct replays *r, const struct job *job, const char *why, int64_t now_us)
{
    struct refusal x = {.job = job->id, .why = why, .now_ms = clock_wall_ms(r->clock)};
    enum err e = write(r, run_refusal, &x);
    if (!e || e == ERR_CONFLICT)
        return;
    complain(r, now_us, "a replay that cannot run could not be marked as failed", job->id, e);
    r->look_after_us = now_us + SECOND_US; /* once more */
    atomic_store(&r->poked, true);
}

static void take_up(struct replays *r, const struct job *job, int64_t now_us)
{
    char why[200];
    struct replay_spec spec;
    struct slot *s = slot_of(r, 0);
    if (!s)
        return; /* as many as may be open are */
    if (replay_spec_parse(str_of(job->spec), r->rules, r->rule_count, &spec, why)) {
        refuse(r, job, why, now_us);
        return;
    }
    uint64_t after, last;
    replay_range(&spec, INT64_MAX, &after, &last);
    pthread_mutex_lock(&r->lock);
    *s = (struct slot){
        .job = job->id,
        .spec = spec,
    };
    bucket_init(&s->bucket, rate_of(job), BURST_PARTS, now_us);
    s->last = job->last < last ? job->last : last;
    s->walked = s->read_to = s->saved = job->position > after ? job->position : after;
    s->save_due_us = now_us + SECOND_US;
    snprintf(s->shown, sizeof s->shown, "%s", job->note);
    if (!is_rest_note(job->note))
        snprintf(s->note, sizeof s->note, "%s", job->note);
    pthread_mutex_unlock(&r->lock);
}

static void give_up(struct replays *r, struct slot *s)
{
    pthread_mutex_lock(&r->lock);
    s->job = 0;
    pthread_mutex_unlock(&r->lock);
}

static void match_slots(struct replays *r, int64_t now_us)
{
    for (size_t i = 0; i < JOBS_OPEN_MAX; i++) {
        struct slot *s = &r->slots[i];
        const struct job *job = NULL;
        for (size_t k = 0; k < r->open_count && s->job != 0; k++)
            job = r->open[k].id == s->job ? &r->open[k] : job;
        if (s->job != 0 && !job)
            give_up(r, s);
        if (!job)
            continue;
        s->stopping = job->state != JOB_RUNNING;
        bucket_set_rate(&s->bucket, rate_of(job), now_us);
        snprintf(s->shown, sizeof s->shown, "%s", job->note);
    }
    for (size_t k = 0; k < r->open_count; k++) {
        const struct job *job = &r->open[k];
        if (is_replay(job) && job->state == JOB_RUNNING && !slot_of(r, job->id))
            take_up(r, job, now_us);
    }
}

static void match_grants(struct replays *r)
{
    size_t n = 0;
    const struct {
        const struct job *jobs;
        size_t count;
    } lists[] = {{r->open, r->open_count}, {r->newest, r->newest_count}};
    for (size_t l = 0; l < COUNT_OF(lists); l++) {
        for (size_t k = 0; k < lists[l].count && n < JOBS_KNOWN; k++) {
            const struct job *job = &lists[l].jobs[k];
            char why[200];
            if (!is_replay(job) || job->state == JOB_CANCELLED ||
                replay_spec_parse(str_of(job->spec), r->rules, r->rule_count, &r->fresh[n].spec,
                                  why))
                continue;
            r->fresh[n++].job = job->id;
        }
    }
    pthread_mutex_lock(&r->lock);
    memcpy(r->grants, r->fresh, n * sizeof r->fresh[0]);
    r->grant_count = n;
    pthread_mutex_unlock(&r->lock);
}

enum err replays_recover(struct replays *r)
{
    TRY(db_read(r->db, read_jobs, r, NULL));
    match_grants(r);
    return OK;
}

/* What the table says counts from here on. */
static void look_at_jobs(struct replays *r, int64_t now_us)
{
    if (now_us < r->look_after_us || !atomic_exchange(&r->poked, false))
        return;
    enum err e = db_read(r->db, read_jobs, r, NULL);
    if (e) {
        complain(r, now_us, "the jobs cannot be read", 0, e);
        r->look_after_us = now_us + SECOND_US;
        atomic_store(&r->poked, true);
        return;
    }
    match_grants(r);
    match_slots(r, now_us);
}

/* ---- beginning ---- */

struct reading {
    const struct replays *replays;
    struct slot *slot;
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
static bool read_more(struct replays *r, struct slot *s, int64_t now_us)
{
    struct reading x = {.replays = r, .slot = s};
    enum err e = db_read(r->db, run_reading, &x, NULL);
    s->found_at = s->found_count = 0;
    if (e) {
        complain(r, now_us, "the outbox cannot be read for a replay", s->job, e);
        return false;
    }
    s->found_count = x.count;
    s->read_to = x.reached;
    s->read_all = x.end;
    if (x.count > 0)
        FAULT(replay_before_begin);
    return true;
}

/* What is done and not saved takes up room, too: that is why a restart repeats one window at most.
 */
static bool enter(struct replays *r, struct slot *s, uint64_t event)
{
    pthread_mutex_lock(&r->lock);
    bool entered = s->window.count + s->window.left.seen < REPLAY_WINDOW &&
                   replay_window_enter(&s->window, event);
    pthread_mutex_unlock(&r->lock);
    return entered;
}

static void undo_enter(struct replays *r, struct slot *s)
{
    pthread_mutex_lock(&r->lock);
    replay_window_undo(&s->window);
    pthread_mutex_unlock(&r->lock);
}

/* Passes over a row that cannot be read: it goes through the window, so that it is counted once,
 * with its position. */
static bool pass_unreadable(struct replays *r, struct slot *s, const struct replay_found *f)
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
static bool begin(struct replays *r, struct slot *s, const struct replay_found *f, int64_t now_us,
                  int64_t *due_us)
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
 * INT64_MAX: when something is told. */
static int64_t go_on(struct replays *r, struct slot *s, int64_t now_us)
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
        if (f->kind == REPLAY_SETTLED && !begin(r, s, f, now_us, &due_us))
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

static void note_saved(struct replays *r, struct slot *s, uint64_t position,
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
static enum err look_up_save(struct replays *r, struct slot *s)
{
    struct finding f = {.job = s->job};
    TRY(db_read(r->db, find_job, &f, NULL));
    if (f.found.position >= s->unsure)
        note_saved(r, s, s->unsure, &s->unsure_counts);
    s->unsure = 0;
    return OK;
}

/* What the table should say of the job. */
static const char *wanted_note(const struct replays *r, const struct slot *s)
{
    if (s->stopping)
        return is_rest_note(s->shown) ? s->note : s->shown;
    return r->rest ? r->rest : s->note;
}

/* Saves position, counts and note in one transaction. True: it was done, and the job is over when
 * that was asked for. */
static bool save(struct replays *r, struct slot *s, bool finish, int64_t now_us)
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
        e = write(r, run_save, &x);
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
    bool changed = err_class(e) == ERR_CLASS_CLIENT; /* by somebody else: the table decides */
    if (changed || e == ERR_UNKNOWN_COMMIT)
        atomic_store(&r->poked, true);
    if (!changed) {
        s->save_failed = true;
        complain(r, now_us, "a replay's position could not be saved", s->job, e);
    }
    return false;
}

/* ---- the step ---- */

static void look_whether_to_rest(struct replays *r, int64_t now_us)
{
    if (r->rest && now_us < r->rest_until_us)
        return;
    r->rest = r->host.guarded(r->host.ctx)        ? guard_note
              : r->host.live_is_late(r->host.ctx) ? late_note
                                                  : NULL;
    r->rest_until_us = now_us + SECOND_US;
}

static bool save_is_due(struct replays *r, struct slot *s, bool over, int64_t now_us)
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

static int64_t serve(struct replays *r, struct slot *s, int64_t now_us)
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
        give_up(r, s);
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
    look_at_jobs(r, now_us);
    look_whether_to_rest(r, now_us);
    for (size_t i = 0; i < JOBS_OPEN_MAX; i++) {
        struct slot *s = &r->slots[(r->turn + i) % JOBS_OPEN_MAX];
        if (s->job != 0)
            due_us = earlier(due_us, serve(r, s, now_us));
    }
    r->turn = (r->turn + 1) % JOBS_OPEN_MAX;
    if (atomic_load(&r->poked))
        due_us = earlier(due_us, now_us > r->look_after_us ? now_us : r->look_after_us);
    return due_us;
}
