/* The table of jobs: every statement about it is here, each by key or through the index of what is
 * open, of which there are at most JOBS_OPEN_MAX.
 *
 * Two parties write to a row: the worker of the job (position, counts, note) and the
 * operator (state). So every change names the states it may be made in and changes nothing
 * otherwise; no lock is held between looking and writing. */
#include "pipe/jobs.h"

#include "base/check.h"
#include "base/id.h"

static const struct {
    const char *name;
    const char *asked; /* "cannot be …" */
    uint8_t from;      /* bits of the states that lead to it */
} states[JOB_STATES] = {
    [JOB_RUNNING] = {"running", "resumed", 1 << JOB_PAUSED},
    [JOB_PAUSED] = {"paused", "paused", 1 << JOB_RUNNING},
    [JOB_DONE] = {"done", "finished", 1 << JOB_RUNNING},
    [JOB_CANCELLED] = {"cancelled", "cancelled", 1 << JOB_RUNNING | 1 << JOB_PAUSED},
    [JOB_FAILED] = {"failed", "failed", 1 << JOB_RUNNING},
};

const char *job_state_name(enum job_state state)
{
    CHECK(state < JOB_STATES);
    return states[state].name;
}

/* NULL: the note stays as it is. */
static struct db_value note_value(const char *note)
{
    return note ? DB_TEXT(str_cut(str_of(note), JOB_NOTE_MAX - 1)) : DB_NULL;
}

/* ---- reading ---- */

#define JOB_COLUMNS                                                                                \
    "id, kind, state, spec, rate, position, last, total, seen, acted, repeated, suppressed, "      \
    "failed, created_at, changed_at, note"

static void read_job(struct db_rows *rows, void *job)
{
    struct job *out = job;
    int64_t state = db_i64(rows, 2);
    *out = (struct job){
        .id = db_id(rows, 0),
        /* A state that this program does not know is nothing that it may go on with. */
        .state = state >= 0 && state < JOB_STATES ? (enum job_state)state : JOB_FAILED,
        .rate = db_i64(rows, 4),
        .position = db_id(rows, 5),
        .last = db_id(rows, 6),
        .total = db_id(rows, 7),
        .counts = {.seen = db_id(rows, 8),
                   .acted = db_id(rows, 9),
                   .repeated = db_id(rows, 10),
                   .suppressed = db_id(rows, 11),
                   .failed = db_id(rows, 12)},
        .created_ms = db_i64(rows, 13),
        .changed_ms = db_i64(rows, 14),
    };
    str_copy(out->kind, sizeof out->kind, db_text(rows, 1));
    str_copy(out->spec, sizeof out->spec, db_text(rows, 3));
    str_copy(out->note, sizeof out->note, db_text(rows, 15));
}

enum err job_get(struct tx *tx, uint64_t id, struct job *out)
{
    enum err e = tx_get_row(tx, "SELECT " JOB_COLUMNS " FROM jobs WHERE id = $1",
                            DB_ARGS(DB_I64(id)), read_job, out);
    return e == ERR_NOT_FOUND ? tx_fail(tx, e, "there is no such job") : e;
}

enum err job_list(struct tx *tx, bool open_only, uint64_t below, struct job *out, size_t max,
                  size_t *n)
{
    static const char open_jobs[] = "SELECT " JOB_COLUMNS " FROM jobs "
                                    "WHERE state <= 1 AND id < $1 ORDER BY id DESC LIMIT $2";
    static const char all_jobs[] = "SELECT " JOB_COLUMNS " FROM jobs "
                                   "WHERE id < $1 ORDER BY id DESC LIMIT $2";
    return tx_get_rows(tx, open_only ? open_jobs : all_jobs, DB_ARGS(DB_BELOW(below), DB_I64(max)),
                       read_job, out, sizeof *out, max, n);
}

/* ---- writing ---- */

enum err job_create(struct tx *tx, struct job *job, int64_t now_ms)
{
    int64_t open = 0;
    TRY(tx_get_i64(
        tx, "SELECT COUNT(*) FROM (SELECT id FROM jobs WHERE state <= 1 LIMIT $1) AS open_jobs",
        DB_ARGS(DB_I64(JOBS_OPEN_MAX)), &open));
    if (open >= JOBS_OPEN_MAX)
        return tx_fail(tx, ERR_CONFLICT,
                       "%d jobs are open, which is the limit: wait for one, or cancel one",
                       JOBS_OPEN_MAX);
    job->id = id_next(tx->ids);
    if (job->last > job->id) /* what comes later is no part of it, however a clock jumps */
        job->last = job->id;
    job->state = JOB_RUNNING;
    job->counts = (struct job_counts){0};
    job->created_ms = job->changed_ms = now_ms;
    job->note[0] = '\0';
    return tx_exec(tx,
                   "INSERT INTO jobs (id, kind, state, spec, rate, position, last, total, "
                   "created_at, changed_at) VALUES ($1, $2, 0, $3, $4, $5, $6, $7, $8, $8)",
                   DB_ARGS(DB_I64(job->id), DB_TEXT(str_of(job->kind)), DB_TEXT(str_of(job->spec)),
                           DB_I64(job->rate), DB_I64(job->position), DB_I64(job->last),
                           DB_I64(job->total), DB_I64(now_ms)),
                   NULL);
}

/* Why nothing was changed: it is not there, or not in the state that was expected. */
static enum err refuse(struct tx *tx, uint64_t id, const char *asked)
{
    int64_t state = 0;
    enum err e =
        tx_get_i64(tx, "SELECT state FROM jobs WHERE id = $1", DB_ARGS(DB_I64(id)), &state);
    if (e == ERR_NOT_FOUND)
        return tx_fail(tx, e, "there is no such job");
    if (e)
        return e;
    const char *name = state >= 0 && state < JOB_STATES ? states[state].name : "not known";
    return tx_fail(tx, ERR_CONFLICT, "the job is %s and cannot be %s", name, asked);
}

enum err job_advance(struct tx *tx, uint64_t id, uint64_t position, const struct job_counts *add,
                     const char *note, bool also_paused, int64_t now_ms)
{
    int64_t changed = 0;
    enum err e = tx_exec(
        tx,
        "UPDATE jobs SET position = CASE WHEN position < $2 THEN $2 ELSE position END, "
        "seen = seen + $3, acted = acted + $4, repeated = repeated + $5, "
        "suppressed = suppressed + $6, failed = failed + $7, note = COALESCE($8, note), "
        "changed_at = $9 WHERE id = $1 AND state <= $10",
        DB_ARGS(DB_I64(id), DB_I64(position), DB_I64(add->seen), DB_I64(add->acted),
                DB_I64(add->repeated), DB_I64(add->suppressed), DB_I64(add->failed),
                note_value(note), DB_I64(now_ms), DB_I64(also_paused ? JOB_PAUSED : JOB_RUNNING)),
        &changed);
    return e || changed > 0 ? e : refuse(tx, id, "advanced");
}

enum err job_set_rate(struct tx *tx, uint64_t id, int64_t rate, int64_t now_ms)
{
    int64_t changed = 0;
    TRY(tx_exec(tx, "UPDATE jobs SET rate = $2, changed_at = $3 WHERE id = $1 AND state <= 1",
                DB_ARGS(DB_I64(id), DB_I64(rate), DB_I64(now_ms)), &changed));
    return changed > 0 ? OK : refuse(tx, id, "given another rate");
}

/* The update names the state that was seen: when another transaction was faster, it changes no row
 * and the caller gets the present state. */
enum err job_set_state(struct tx *tx, uint64_t id, enum job_state state, const char *note,
                       int64_t now_ms)
{
    CHECK(state < JOB_STATES);
    int64_t seen = 0, changed = 0;
    enum err e = tx_get_i64(tx, "SELECT state FROM jobs WHERE id = $1", DB_ARGS(DB_I64(id)), &seen);
    if (e == ERR_NOT_FOUND)
        return tx_fail(tx, e, "there is no such job");
    if (!e && seen >= 0 && seen < JOB_STATES && states[state].from >> seen & 1)
        e = tx_exec(
            tx,
            "UPDATE jobs SET state = $2, note = COALESCE($3, note), changed_at = $4 "
            "WHERE id = $1 AND state = $5",
            DB_ARGS(DB_I64(id), DB_I64(state), note_value(note), DB_I64(now_ms), DB_I64(seen)),
            &changed);
    return e || changed > 0 ? e : refuse(tx, id, states[state].asked);
}
