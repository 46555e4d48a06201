/* The inside of the replays' runner, shared by its two files: replay.c runs the jobs that have a
 * slot; replay_jobs.c decides which have one, by the jobs' table. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "pipe/bucket.h"
#include "pipe/replay_walk.h"
#include "pipe/replay_window.h"

enum {
    ROWS_A_READ = 256,
    JOBS_KNOWN = 64, /* the newest jobs, whose allowed channels are remembered */
};

#define SECOND_US INT64_C(1000000)

struct replay_slot {
    uint64_t job;  /* 0: free */
    bool stopping; /* paused */
    struct replay_spec spec;
    uint64_t last;

    /* The step's alone: the walk, */
    uint64_t read_to; /* rows up to here were read */
    bool read_all;
    struct replay_found found[ROWS_A_READ];
    size_t found_at, found_count;
    uint64_t settled_after, settled_through; /* when they were read; see replay_is_settled */
    uint64_t walked;                         /* everything up to here was begun or passed over */

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

struct replay_grant {
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
    struct replay_slot slots[JOBS_OPEN_MAX];
    struct replay_grant grants[JOBS_KNOWN];
    size_t grant_count;

    /* The step's alone. */
    size_t turn; /* whose turn it is first */
    const char *rest;
    int64_t rest_until_us, look_after_us, log_after_us;
    struct job open[JOBS_OPEN_MAX], newest[JOBS_KNOWN];
    size_t open_count, newest_count;
    struct replay_grant fresh[JOBS_KNOWN];
};

/* ---- replay.c ---- */

enum err replays_write(struct replays *r, tx_fn run, void *arg);
/* Logs a failure, unless one was logged a moment ago. */
void replays_complain(struct replays *r, int64_t now_us, const char *message, uint64_t job,
                      enum err e);

/* ---- replay_jobs.c ---- */

extern const char replay_late_note[], replay_guard_note[];
bool replay_is_rest_note(const char *note); /* it says why a job rests, and goes with that */
/* The job's slot; job 0: a free one. NULL: there is none. */
struct replay_slot *replays_slot(struct replays *r, uint64_t job);
void replays_give_up(struct replays *r, struct replay_slot *s);
/* What the table says counts from here on. */
void replays_look_at_jobs(struct replays *r, int64_t now_us);
