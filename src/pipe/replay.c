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
 *  4. A save whose outcome is unknown is looked up before the next one (replay_save.c). */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/sync.h"
#include "pipe/replay_state.h"

enum {
    BEGIN_A_STEP = 32,     /* events of one job: the others have their turn */
    BURST_PARTS = 10,      /* a bucket holds a tenth of a second */
    RATE_MAX = 1000000,    /* more is no limit that anybody would notice */
    ROOM_AGAIN_US = 10000, /* the engine had no room */
};

#define TOKEN        INT64_C(1000000)
#define LOG_AGAIN_US (10 * SECOND_US)

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

bool replays_is_rest_note(const char *note)
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
    enum err e = job_list(tx, true, UINT64_MAX, r->open, JOBS_OPEN_MAX, &r->open_count);
    return e ? e : job_list(tx, false, UINT64_MAX, r->newest, JOBS_KNOWN, &r->newest_count);
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
    enum err e = replays_write(r, run_refusal, &x);
    if (!e || e == ERR_CONFLICT)
        return;
    replays_complain(r, now_us, "a replay that cannot run could not be marked as failed", job->id,
                     e);
    r->look_after_us = now_us + SECOND_US; /* once more */
    atomic_store(&r->poked, true);
}

static int64_t bucket_size(const struct slot *s)
{
    int64_t size = s->rate * TOKEN / BURST_PARTS;
    return size < TOKEN ? TOKEN : size;
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
    *s = (struct slot){.job = job->id, .spec = spec, .rate = rate_of(job), .filled_us = now_us};
    s->last = job->last < last ? job->last : last;
    s->walked = s->read_to = s->saved = job->position > after ? job->position : after;
    s->save_due_us = now_us + SECOND_US;
    s->tokens_millionth = bucket_size(s);
    snprintf(s->shown, sizeof s->shown, "%s", job->note);
    if (!replays_is_rest_note(job->note))
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
        s->rate = rate_of(job);
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
    enum err e = db_read(r->db, read_jobs, r, NULL);
    if (!e)
        match_grants(r);
    return e;
}

/* What the table says counts from here on. */
static void look_at_jobs(struct replays *r, int64_t now_us)
{
    if (now_us < r->look_after_us || !atomic_exchange(&r->poked, false))
        return;
    enum err e = db_read(r->db, read_jobs, r, NULL);
    if (e) {
        replays_complain(r, now_us, "the jobs cannot be read", 0, e);
        r->look_after_us = now_us + SECOND_US;
        atomic_store(&r->poked, true);
        return;
    }
    match_grants(r);
    match_slots(r, now_us);
}

/* ---- beginning ---- */

static bool take_token(struct slot *s, int64_t now_us, int64_t *due_us)
{
    if (s->rate == 0)
        return true;
    int64_t size = bucket_size(s), elapsed_us = now_us - s->filled_us;
    s->filled_us = now_us;
    /* A second fills any bucket, and keeps the product far from overflow. */
    s->tokens_millionth += earlier(elapsed_us, SECOND_US) * s->rate;
    if (s->tokens_millionth > size)
        s->tokens_millionth = size;
    if (s->tokens_millionth < TOKEN) {
        *due_us = now_us + (TOKEN - s->tokens_millionth + s->rate - 1) / s->rate;
        return false;
    }
    s->tokens_millionth -= TOKEN;
    return true;
}

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
    if (!take_token(s, now_us, due_us))
        return false;
    if (enter(r, s, f->event.id)) {
        if (r->host.begin(r->host.ctx, s->job, &f->event, f->rule_mask))
            return true;
        undo_enter(r, s);
        *due_us = now_us + ROOM_AGAIN_US;
    }
    s->tokens_millionth += s->rate > 0 ? TOKEN : 0;
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
    if (over || strcmp(replays_wanted_note(r, s), s->shown) != 0)
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
    if (save_is_due(r, s, over, now_us) && replays_save(r, s, over && !s->stopping, now_us)) {
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
