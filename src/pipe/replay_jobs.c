/* Which replays there are: the jobs' table decides. Operators change it there and poke; a look at
 * it gives each running job a slot and takes the slots of those that ended, and notes which
 * channels each of the newest jobs may use: deliveries of a job are retried after it has ended. */
#include <stdio.h>

#include "base/check.h"
#include "pipe/replay_state.h"

enum {
    BURST_PARTS = 10,   /* a bucket holds a tenth of a second */
    RATE_MAX = 1000000, /* more is as good as no limit */
};

const char replay_late_note[] = "live freshness is over its target";
const char replay_guard_note[] = "the store is at risk";

struct replay_slot *replays_slot(struct replays *r, uint64_t job)
{
    for (size_t i = 0; i < JOBS_OPEN_MAX; i++) {
        if (r->slots[i].job == job)
            return &r->slots[i];
    }
    return NULL;
}

bool replay_is_rest_note(const char *note)
{
    return strcmp(note, replay_late_note) == 0 || strcmp(note, replay_guard_note) == 0;
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
    enum err e = replays_write(r, run_refusal, &x);
    if (!e || e == ERR_CONFLICT)
        return;
    replays_complain(r, now_us, "a replay that cannot run could not be marked as failed", job->id,
                     e);
    r->look_after_us = now_us + SECOND_US; /* once more */
    atomic_store(&r->poked, true);
}

static void take_up(struct replays *r, const struct job *job, int64_t now_us)
{
    char why[200];
    struct replay_spec spec;
    struct replay_slot *s = replays_slot(r, 0);
    if (!s)
        return; /* as many as may be open are */
    if (replay_spec_parse(str_of(job->spec), r->rules, r->rule_count, &spec, why)) {
        refuse(r, job, why, now_us);
        return;
    }
    uint64_t after, last;
    replay_range(&spec, INT64_MAX, &after, &last);
    pthread_mutex_lock(&r->lock);
    *s = (struct replay_slot){
        .job = job->id,
        .spec = spec,
    };
    bucket_init(&s->bucket, rate_of(job), BURST_PARTS, now_us);
    s->last = job->last < last ? job->last : last;
    s->walked = s->read_to = s->saved = job->position > after ? job->position : after;
    s->save_due_us = now_us + SECOND_US;
    snprintf(s->shown, sizeof s->shown, "%s", job->note);
    if (!replay_is_rest_note(job->note))
        snprintf(s->note, sizeof s->note, "%s", job->note);
    pthread_mutex_unlock(&r->lock);
}

void replays_give_up(struct replays *r, struct replay_slot *s)
{
    pthread_mutex_lock(&r->lock);
    s->job = 0;
    pthread_mutex_unlock(&r->lock);
}

static void match_slots(struct replays *r, int64_t now_us)
{
    for (size_t i = 0; i < JOBS_OPEN_MAX; i++) {
        struct replay_slot *s = &r->slots[i];
        const struct job *job = NULL;
        for (size_t k = 0; k < r->open_count && s->job != 0; k++)
            job = r->open[k].id == s->job ? &r->open[k] : job;
        if (s->job != 0 && !job)
            replays_give_up(r, s);
        if (!job)
            continue;
        s->stopping = job->state != JOB_RUNNING;
        bucket_set_rate(&s->bucket, rate_of(job), now_us);
        snprintf(s->shown, sizeof s->shown, "%s", job->note);
    }
    for (size_t k = 0; k < r->open_count; k++) {
        const struct job *job = &r->open[k];
        if (is_replay(job) && job->state == JOB_RUNNING && !replays_slot(r, job->id))
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

void replays_look_at_jobs(struct replays *r, int64_t now_us)
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
