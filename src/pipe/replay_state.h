/* The inside of the replays' runner, shared by replay.c, which walks and begins, and replay_save.c,
 * which saves how far a job got. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "pipe/replay_walk.h"
#include "pipe/replay_window.h"

enum {
    ROWS_A_READ = 256,
    JOBS_KNOWN = 64, /* the newest jobs, whose allowed channels are remembered */
};

#define SECOND_US INT64_C(1000000)

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
    int64_t rate, tokens_millionth, filled_us;

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

enum err replays_write(struct replays *r, tx_fn run, void *arg);
/* Logs a failure, unless one was logged a moment ago. */
void replays_complain(struct replays *r, int64_t now_us, const char *message, uint64_t job,
                      enum err e);
bool replays_is_rest_note(const char *note);

/* What the table should say of the job. */
const char *replays_wanted_note(const struct replays *r, const struct slot *s);
/* Saves how far it got. True: it was done, and the job is over when that was asked for. */
bool replays_save(struct replays *r, struct slot *s, bool finish, int64_t now_us);
