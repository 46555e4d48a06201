/* Long work that an operator started: the table `jobs`. A job goes on after a restart from its
 * position; everything up to the position is done, what lies beyond may be done again. */
#pragma once

#include "port/db.h"

enum job_state { JOB_RUNNING, JOB_PAUSED, JOB_DONE, JOB_CANCELLED, JOB_FAILED, JOB_STATES };
const char *job_state_name(enum job_state state); /* "running" … */

enum { JOB_SPEC_MAX = 1000, JOB_NOTE_MAX = 160, JOB_KIND_MAX = 24, JOBS_OPEN_MAX = 8 };

struct job_counts {
    uint64_t seen, acted, repeated, suppressed, failed;
};

struct job {
    uint64_t id;
    char kind[JOB_KIND_MAX]; /* "replay", "rebuild.timelines", "rebuild.counters" */
    enum job_state state;
    char spec[JOB_SPEC_MAX]; /* JSON */
    int64_t rate;            /* a second; 0: no limit */
    uint64_t position, last, total;
    struct job_counts counts;
    int64_t created_ms, changed_ms;
    char note[JOB_NOTE_MAX]; /* why it failed, or why it rests at the moment */
};

/* A running job of this kind, spec, rate, position, last and total; the rest is not looked at.
 * ERR_CONFLICT: JOBS_OPEN_MAX are open already. Gives job->id and the times. */
enum err job_create(struct tx *tx, struct job *job, int64_t now_ms);
enum err job_get(struct tx *tx, uint64_t id, struct job *out); /* ERR_NOT_FOUND */
/* Newest first below `below` (UINT64_MAX: from the newest); open ones (running, paused) only when
 * asked. */
enum err job_list(struct tx *tx, bool open_only, uint64_t below, struct job *out, size_t max,
                  size_t *n);
/* Moves the position, adds to the counts, sets the note (NULL: as it is; what is too long is cut).
 * The position never goes back. ERR_CONFLICT, and nothing happens: the job is not running any more,
 * nor paused when `also_paused`: what was under way when it was paused counts, too. */
enum err job_advance(struct tx *tx, uint64_t id, uint64_t position, const struct job_counts *add,
                     const char *note, bool also_paused, int64_t now_ms);
/* Of a running or paused one; it goes on at this rate. ERR_CONFLICT with a detail: it has ended. */
enum err job_set_rate(struct tx *tx, uint64_t id, int64_t rate, int64_t now_ms);
/* RUNNING ⇄ PAUSED → CANCELLED; RUNNING → CANCELLED | DONE | FAILED. ERR_CONFLICT with a detail
 * otherwise (also when it is in that state already). The note as above. */
enum err job_set_state(struct tx *tx, uint64_t id, enum job_state state, const char *note,
                       int64_t now_ms);
