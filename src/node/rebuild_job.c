/* Everything that is known about a rebuild is in its row, so the step keeps nothing between calls:
 * it looks which job is the oldest that runs, does one slice after the saved position, saves the
 * new one and says when the next slice is due. An operator's pause or cancel is seen by the save,
 * which then changes nothing. */
#include "node/rebuild_job.h"

#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "model/rebuild.h"
#include "ops/overload_guard.h"
#include "pipe/jobs.h"

enum {
    SLICE_MAX = 100,             /* accounts */
    SLICES_A_SECOND = 10,        /* a slow job does small slices often */
    IDLE_US = 1000 * 1000,       /* until the table is looked at again */
    FAILED_US = 5 * 1000 * 1000, /* until a slice that failed is tried again */
};

struct look {
    struct job jobs[JOBS_OPEN_MAX];
    size_t count;
};

static enum err read_open(struct tx *tx, void *arg)
{
    struct look *l = arg;
    return job_list(tx, true, UINT64_MAX, l->jobs, JOBS_OPEN_MAX, &l->count);
}

static bool kind_of(const struct job *job, enum rebuild_what *what)
{
    struct str kind = str_of(job->kind), prefix = STR("rebuild.");
    return str_starts(kind, prefix) &&
           rebuild_parse((struct str){kind.ptr + prefix.len, kind.len - prefix.len}, what);
}

/* The oldest that runs; they come newest first. NULL: none. */
static const struct job *choose(const struct look *l, enum rebuild_what *what)
{
    for (size_t i = l->count; i-- > 0;) {
        if (l->jobs[i].state == JOB_RUNNING && kind_of(&l->jobs[i], what))
            return &l->jobs[i];
    }
    return NULL;
}

struct saving {
    uint64_t job, position;
    struct job_counts counts;
    const char *note;
    bool done;
    enum job_state end; /* with done */
    int64_t now_ms;
};

static enum err save(struct tx *tx, void *arg)
{
    const struct saving *s = arg;
    TRY(job_advance(tx, s->job, s->position, &s->counts, s->note, false, s->now_ms));
    return s->done ? job_set_state(tx, s->job, s->end, NULL, s->now_ms) : OK;
}

static void save_now(struct api *api, struct saving *s)
{
    s->now_ms = clock_wall_ms(api->clock);
    enum err e = db_write(api->db, save, s, NULL);
    if (e && e != ERR_CONFLICT) /* paused or cancelled meanwhile */
        log_warn("a rebuild's position could not be saved; its last slice will be done again",
                 LOG_ID("job", s->job), LOG_CSTR("error", err_name(e)));
}

/* Why it rests is written once, not each second. */
static int64_t rest(struct api *api, const struct job *job, int64_t now_us)
{
    char why[120] = "", note[JOB_NOTE_MAX];
    overload_guard_why(api->overload_guard, why);
    snprintf(note, sizeof note, "rests: %s", why);
    if (!str_starts(str_of(job->note), STR("rests")))
        save_now(api, &(struct saving){.job = job->id, .position = job->position, .note = note});
    return now_us + IDLE_US;
}

static int64_t slice_failed(struct api *api, const struct job *job, enum err e, int64_t now_us)
{
    enum err_class class = err_class(e);
    bool passing =
        class == ERR_CLASS_RETRY || class == ERR_CLASS_SHED || class == ERR_CLASS_RECONCILE;
    save_now(api, &(struct saving){.job = job->id,
                                   .position = job->position,
                                   .note = err_title(e),
                                   .done = !passing,
                                   .end = JOB_FAILED});
    log_warn("a slice of a rebuild failed", LOG_ID("job", job->id), LOG_CSTR("error", err_name(e)));
    return now_us + FAILED_US;
}

static size_t slice_size(int64_t rate)
{
    int64_t size = rate > 0 ? rate / SLICES_A_SECOND : SLICE_MAX;
    return size < 1 ? 1 : size > SLICE_MAX ? SLICE_MAX : (size_t)size;
}

int64_t rebuild_job_step(struct api *api)
{
    int64_t now_us = clock_mono_us(api->clock);
    struct look look = {.count = 0};
    enum rebuild_what what;
    enum err e = db_read(api->db, read_open, &look, NULL);
    const struct job *job = e ? NULL : choose(&look, &what);
    if (!job)
        return now_us + IDLE_US;
    if (api->overload_guard && overload_guard_level(api->overload_guard) >= 1)
        return rest(api, job, now_us);
    uint64_t next = job->position, seen = 0, changed = 0;
    bool end = false;
    e = rebuild_slice(api->db, api->views, api->cards, what, job->position, job->last,
                      slice_size(job->rate), &next, &end, &seen, &changed);
    if (e)
        return slice_failed(api, job, e, now_us);
    atomic_fetch_add(&api->rebuilt, changed);
    save_now(api, &(struct saving){.job = job->id,
                                   .position = end ? job->last : next,
                                   .counts = {.seen = seen, .acted = changed},
                                   .note = "",
                                   .done = end,
                                   .end = JOB_DONE});
    FAULT(rebuild_between_slices);
    return job->rate > 0 ? now_us + (int64_t)(seen * 1000 * 1000 / (uint64_t)job->rate) : now_us;
}
