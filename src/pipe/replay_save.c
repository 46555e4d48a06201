/* Saving how far a replay got: position, counts and note, in one transaction.
 *
 * A save whose outcome is unknown is looked up before the next one, never repeated blindly: counts
 * change only together with the position, so the position in the table says whether it happened. */
#include <stdio.h>

#include "base/fault.h"
#include "pipe/replay_state.h"

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
    enum err e = db_read(r->db, find_job, &f, NULL);
    if (e)
        return e;
    if (f.found.position >= s->unsure)
        note_saved(r, s, s->unsure, &s->unsure_counts);
    s->unsure = 0;
    return OK;
}

const char *replays_wanted_note(const struct replays *r, const struct slot *s)
{
    if (s->stopping)
        return replays_is_rest_note(s->shown) ? s->note : s->shown;
    return r->rest ? r->rest : s->note;
}

bool replays_save(struct replays *r, struct slot *s, bool finish, int64_t now_us)
{
    const char *note = replays_wanted_note(r, s);
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
    bool changed = err_class(e) == ERR_CLASS_CLIENT; /* by somebody else: the table decides */
    if (changed || e == ERR_UNKNOWN_COMMIT)
        atomic_store(&r->poked, true);
    if (!changed) {
        s->save_failed = true;
        replays_complain(r, now_us, "a replay's position could not be saved", s->job, e);
    }
    return false;
}
