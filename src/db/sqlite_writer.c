/* The one writer: a queue of jobs and a thread that commits them in groups.
 *
 * A sync costs as much as dozens of transactions, so everything that is waiting (up to group_max)
 * is run in one BEGIN … COMMIT. While the disk works for one group, the next one gathers: groups
 * grow by themselves with the load.
 *
 * A savepoint around each job would cost as much as a statement or two, and a copy of every page
 * that the job changes. Nearly all jobs that fail do so before they write anything, and then there
 * is nothing to undo. So groups run without savepoints, until a job fails that had changed rows:
 * then all of the group is rolled back and run again, each job under a savepoint, and so are the
 * next GUARDED_GROUPS, in case more such jobs follow.
 *
 * A job ends in one of four ways:
 * - committed: the hook sees the group's events, then done(OK), in the order of the group;
 * - failed by itself: nothing of it is left, the others are untouched; done(its error);
 * - no space: the COMMIT (or a statement) found the disk full: done(ERR_STORAGE_FULL), and the next
 *   group simply tries again;
 * - the store failed: a sync or a write went wrong, so the content of the disk is unknown: `fatal`
 *   is called once, this group ends as ERR_UNKNOWN_COMMIT, all others as ERR_STORAGE_FAILED, and
 *   nothing is ever acknowledged again by this process.
 *
 * A full disk (and a few rarer errors) makes SQLite roll back the whole transaction in the middle
 * of a job. The jobs that ran before it are then run again without it, which their contract allows.
 * After GROUP_TRIES such losses the rest of the group fails with the same error instead of trying
 * on.
 *
 * Answers, hook included, are given between groups and outside the lock, so done() may submit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/fault.h"
#include "db/sqlite_driver.h"

enum { GROUP_TRIES = 3, GUARDED_GROUPS = 64, EVENTS_KEEP = 64, GROUP_EVENTS_KEEP = 4096 };

/* ---- the queue ---- */

enum err writer_submit(struct db *db, struct db_job *job)
{
    struct writer *w = &sqlite_of(db)->writer;
    job->next = NULL;
    job->result = OK;
    job->detail[0] = '\0';
    job->submitted_us = clock_mono_us(clock_system());

    enum err e = OK;
    bool asleep = false;
    pthread_mutex_lock(&w->lock);
    if (w->stopping) {
        e = ERR_STOPPING;
    } else if (w->failed) {
        e = ERR_STORAGE_FAILED;
    } else if (w->waiting >= w->db->config.queue_max) {
        e = ERR_OVERLOADED;
    } else {
        *w->tail = job;
        w->tail = &job->next;
        w->waiting++;
        asleep = w->asleep;
        w->asleep = false;
    }
    pthread_mutex_unlock(&w->lock);
    if (asleep)
        pthread_cond_signal(&w->wake);
    return e;
}

/* Fills w->group; waits for the first job. False when stopping and nothing is left. */
static bool take_group(struct writer *w)
{
    LOCK_SCOPE(&w->lock);
    while (!w->taken && !w->head && !w->stopping) {
        w->asleep = true;
        pthread_cond_wait(&w->wake, &w->lock);
    }
    w->asleep = false;
    if (!w->taken) {
        w->taken = w->head;
        w->head = NULL;
        w->tail = &w->head;
    }
    w->group_count = 0;
    while (w->taken && w->group_count < w->db->config.group_max) {
        struct group_slot *slot = &w->group[w->group_count++];
        slot->job = w->taken;
        slot->out = false;
        w->taken = slot->job->next;
    }
    w->waiting -= w->group_count;
    return w->group_count > 0;
}

static bool has_failed(struct writer *w)
{
    LOCK_SCOPE(&w->lock);
    return w->failed;
}

void writer_fail(struct writer *w, const char *why)
{
    pthread_mutex_lock(&w->lock);
    bool first = !w->failed;
    w->failed = true;
    pthread_mutex_unlock(&w->lock);
    if (first && w->db->base.fatal)
        w->db->base.fatal(w->db->base.fatal_ctx, why);
}

/* ---- the group ---- */

static bool in_transaction(struct writer *w)
{
    return !sqlite3_get_autocommit(w->connection.handle);
}

/* Runs a transaction control statement through the same cache as the models' SQL. */
static enum err control(struct writer *w, const char *sql, char detail[TX_DETAIL_MAX])
{
    struct sqlite_tx tx;
    sqlite_tx_begin(&tx, w->db, &w->connection, true);
    enum err e = statement_exec(&tx.base, sql, DB_NO_ARGS, NULL);
    if (e)
        memcpy(detail, tx.base.detail, TX_DETAIL_MAX);
    return e;
}

static void roll_back(struct writer *w)
{
    char detail[TX_DETAIL_MAX];
    if (in_transaction(w) && control(w, "ROLLBACK", detail) && in_transaction(w))
        writer_fail(w, detail);
}

enum ran {
    RAN,   /* the job succeeded, or failed and left nothing behind */
    LOST,  /* the whole transaction is gone, or must go, because of this job */
    SPILT, /* it failed and what it had changed is still there */
};

/* Nothing but the rows that it changed says that a failed job had written. */
static enum ran run_unguarded(struct writer *w, struct group_slot *slot)
{
    struct db_job *job = slot->job;
    sqlite3_int64 changes = sqlite3_total_changes64(w->connection.handle);
    struct sqlite_tx tx;
    sqlite_tx_begin(&tx, w->db, &w->connection, true);
    event_list_clear(&slot->events);
    tx.base.events = slot->events;
    slot->result = sqlite_tx_end(&tx, job->run(&tx.base, job));
    slot->events = tx.base.events;
    if (!slot->result && !in_transaction(w)) {
        slot->result = ERR_INTERNAL;
        snprintf(tx.base.detail, TX_DETAIL_MAX, "a job ended the transaction");
    }
    if (!slot->result)
        return RAN;
    memcpy(job->detail, tx.base.detail, TX_DETAIL_MAX);
    if (!in_transaction(w) || tx.poison == ERR_STORAGE_FAILED)
        return LOST;
    return sqlite3_total_changes64(w->connection.handle) == changes ? RAN : SPILT;
}

static enum ran run_guarded(struct writer *w, struct group_slot *slot)
{
    struct db_job *job = slot->job;
    char detail[TX_DETAIL_MAX];
    slot->result = control(w, "SAVEPOINT job", job->detail);
    if (slot->result)
        return LOST;
    enum ran ran = run_unguarded(w, slot);
    if (ran == LOST || (slot->result && control(w, "ROLLBACK TO job", detail)))
        return LOST;
    enum err e = control(w, "RELEASE job", detail);
    if (e && !slot->result) {
        slot->result = e;
        memcpy(job->detail, detail, TX_DETAIL_MAX);
    }
    return e ? LOST : RAN;
}

/* Runs every job that is not out, up to one that does not just end; *at is that one. */
static enum ran run_all(struct writer *w, bool guarded, struct group_slot **at, size_t *succeeded)
{
    *succeeded = 0;
    for (size_t i = 0; i < w->group_count; i++) {
        struct group_slot *slot = *at = &w->group[i];
        if (slot->out)
            continue;
        enum ran ran = guarded ? run_guarded(w, slot) : run_unguarded(w, slot);
        if (ran != RAN)
            return ran;
        *succeeded += slot->result == OK;
    }
    return RAN;
}

/* Ends every job that is not out. Those that failed by themselves too: what they objected to may
 * have been written by a job that is undone now. */
static void end_all(struct writer *w, enum err result, const char *detail)
{
    for (size_t i = 0; i < w->group_count; i++) {
        struct group_slot *slot = &w->group[i];
        if (slot->out)
            continue;
        slot->result = result;
        snprintf(slot->job->detail, TX_DETAIL_MAX, "%s", detail);
    }
}

static void commit(struct writer *w)
{
    char detail[TX_DETAIL_MAX];
    FAULT(db_before_commit);
    enum err e = control(w, "COMMIT", detail);
    if (e == OK) {
        FAULT(db_after_commit);
        atomic_fetch_add_explicit(&w->commits, 1, memory_order_relaxed);
        if (has_failed(w)) /* the checkpointer's disk failed meanwhile: acknowledge nothing */
            end_all(w, ERR_UNKNOWN_COMMIT, "");
        return;
    }
    roll_back(w);
    if (e == ERR_STORAGE_FAILED) {
        writer_fail(w, detail);
        end_all(w, ERR_UNKNOWN_COMMIT, "");
    } else {
        end_all(w, e, detail);
    }
}

static void write_group(struct writer *w)
{
    char detail[TX_DETAIL_MAX];
    for (int lost = 0;;) {
        enum err e = control(w, "BEGIN IMMEDIATE", detail);
        if (e) {
            if (e == ERR_STORAGE_FAILED)
                writer_fail(w, detail);
            end_all(w, e, detail);
            return;
        }
        size_t succeeded;
        struct group_slot *at;
        enum ran ran = run_all(w, w->guarded > 0, &at, &succeeded);
        if (ran == RAN) {
            if (succeeded)
                commit(w);
            else
                roll_back(w);
            return;
        }
        roll_back(w);
        if (ran == SPILT) {
            w->guarded = GUARDED_GROUPS;
            continue;
        }
        if (at->result == ERR_STORAGE_FAILED)
            writer_fail(w, at->job->detail);
        at->out = true;
        if (at->result == ERR_STORAGE_FAILED || ++lost == GROUP_TRIES) {
            end_all(w, at->result, at->job->detail);
            return;
        }
    }
}

/* ---- answers ---- */

/* The hook sees the events of the whole group at once: a thread that it wakes finds them all. */
static void tell_committed(struct writer *w)
{
    struct db *db = &w->db->base;
    if (!db->on_commit)
        return;
    for (size_t i = 0; i < w->group_count; i++) {
        struct group_slot *slot = &w->group[i];
        for (size_t k = 0; !slot->result && k < slot->events.count; k++)
            event_list_add(&w->events, &slot->events.items[k]);
    }
    if (w->events.count)
        db->on_commit(db->on_commit_ctx, w->events.items, w->events.count);
    event_list_clear(&w->events);
    if (w->events.capacity > GROUP_EVENTS_KEEP)
        event_list_done(&w->events);
}

static void measure(struct writer *w)
{
    int64_t now_us = clock_mono_us(clock_system());
    for (size_t i = 0; i < w->group_count; i++) {
        int64_t since_us = w->group[i].job->submitted_us;
        bool met = checkpointer_met(&w->db->checkpointer, since_us);
        hist_record(met ? &w->checkpoint_write_us : &w->write_us,
                    now_us > since_us ? (uint64_t)(now_us - since_us) : 1);
    }
}

static void answer(struct group_slot *slot)
{
    struct db_job *job = slot->job;
    if (slot->result == OK)
        FAULT(outbox_after_commit);
    if (slot->events.capacity > EVENTS_KEEP)
        event_list_done(&slot->events);
    job->result = slot->result;
    job->done(job, slot->result, job->detail);
}

static void answer_group(struct writer *w)
{
    size_t committed = 0, full = 0;
    for (size_t i = 0; i < w->group_count; i++) {
        committed += w->group[i].result == OK;
        full += w->group[i].result == ERR_STORAGE_FULL;
    }
    if (full || committed)
        atomic_store(&w->full, full > 0);
    /* A log that is copied can be written over again without any new space. */
    if (full)
        checkpointer_want(&w->db->checkpointer);
    atomic_fetch_add_explicit(&w->transactions, committed, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->failures, w->group_count - committed, memory_order_relaxed);
    tell_committed(w);
    measure(w);
    for (size_t i = 0; i < w->group_count; i++)
        answer(&w->group[i]);
}

/* One group; false when stopping and everything is answered. */
static bool writer_step(struct writer *w)
{
    if (!take_group(w))
        return false;
    if (has_failed(w)) {
        end_all(w, ERR_STORAGE_FAILED, "");
    } else {
        checkpointer_enter(&w->db->checkpointer);
        write_group(w);
        checkpointer_leave(&w->db->checkpointer);
        w->guarded -= w->guarded > 0;
    }
    answer_group(w);
    return true;
}

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    while (writer_step(w))
        ;
    return NULL;
}

/* ---- life cycle ---- */

void writer_init(struct writer *w, struct sqlite_db *db)
{
    *w = (struct writer){.db = db};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->tail = &w->head;
    w->group = calloc(db->config.group_max, sizeof *w->group);
    CHECK(w->group);
}

enum err writer_open(struct writer *w, char detail[TX_DETAIL_MAX])
{
    return connection_open(&w->connection, &w->db->config, CONNECTION_WRITER, detail);
}

enum err writer_start(struct writer *w)
{
    return thread_start(&w->thread, "db-writer", writer_main, w) ? OK : ERR_NO_MEMORY;
}

void writer_stop(struct writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    w->asleep = false;
    pthread_mutex_unlock(&w->lock);
    pthread_cond_signal(&w->wake);
    thread_join(&w->thread);
}

void writer_done(struct writer *w)
{
    connection_close(&w->connection, !w->failed);
    for (size_t i = 0; i < w->db->config.group_max; i++)
        event_list_done(&w->group[i].events);
    event_list_done(&w->events);
    free(w->group);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
}
