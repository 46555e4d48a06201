/* The writers: one queue, a few threads, each with a connection.
 *
 * A writer takes a job, runs it in a transaction and commits it. When more jobs wait than there are
 * writers, it takes its share of them into the same transaction: one COMMIT, one sync of the
 * server's log and fewer round trips for all, and hot rows (the counter of a viral post) are
 * changed many times by one transaction instead of being fought over by many. No savepoints
 * separate the jobs: a job that fails before it wrote anything simply fails, which is the common
 * case; after anything else the transaction is undone and its jobs are run apart, each in one of
 * its own.
 *
 * Jobs that follow each other in the queue with the same first statement have their first
 * statements run in one trip, before the first of them. They go in the order of their ids: two
 * groups that want the same rows wait for each other, at worst, and never in a circle. Those that
 * can be run as one are.
 *
 * Transactions that get in each other's way (SERIALIZABLE fails one of them) are run again. Fewer
 * writers in larger groups get in each other's way less: each failure halves the number of
 * transactions that may run at a time, and a while of peace allows one more. A transaction that
 * failed twice waits until it is alone in this process, so that only other nodes can fail it again;
 * that is tried a bounded number of times, with random pauses.
 *
 * Two writers in large groups also do more than four in small ones: what a transaction costs by
 * itself, here, at the server and in the commit hook, is shared by more jobs. So the others step in
 * only when no writer takes waiting jobs, because the two are held up by something slow.
 *
 * A transaction whose connection is lost is run again over a new one. While the server is away the
 * jobs at hand wait for retry_ms in all, and those that come later fail at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/sync.h"
#include "db/postgres_driver.h"

enum {
    CONTENTION_TRIES = 20,
    DROP_TRIES = 10, /* of a server that is there and drops us; for one that is away time counts */
    PAUSE_MIN_MS = 2,
    PAUSE_MAX_MS = 250,
    CALM_COMMITS = 32, /* peace after which one more may run */
    STEADY = 2,        /* so many run as a rule: one works while another waits for its COMMIT */
    STALLED_MS = 10,   /* no job was taken for this long: more writers may */
    GROUP_MS = 10      /* a group takes no more jobs after this */
};

/* ---- the queue ---- */

enum err pg_writers_submit(struct db *db, struct db_job *job)
{
    struct pg_writers *all = &pg_of(db)->writers;
    job->next = NULL;
    job->result = OK;
    job->detail[0] = '\0';

    enum err e = OK;
    pthread_mutex_lock(&all->lock);
    if (all->stopping) {
        e = ERR_STOPPING;
    } else if (atomic_load(&all->db->damaged)) {
        e = ERR_STORAGE_FAILED;
    } else if (all->waiting >= all->db->config.queue_max) {
        e = ERR_OVERLOADED;
    } else {
        *all->tail = job;
        all->tail = &job->next;
        all->waiting++;
    }
    /* The first waiting job wakes a writer; later ones need not. */
    bool wakes = e == OK && (all->waiting == 1 || all->inside < STEADY);
    pthread_mutex_unlock(&all->lock);
    if (wakes)
        pthread_cond_signal(&all->wake);
    return e;
}

static struct db_job *take_locked(struct pg_writers *all)
{
    struct db_job *job = all->head;
    if (!job)
        return NULL;
    all->head = job->next;
    if (!all->head)
        all->tail = &all->head;
    all->waiting--;
    return job;
}

static void put_in_slot(struct pg_writer *w, struct db_job *job)
{
    struct pg_slot *slot = &w->slots[w->count++];
    slot->job = job;
    slot->result = OK;
    slot->first_result = NULL;
    slot->offered = slot->taken = false;
}

static bool is_alike(const struct db_job *a, const struct db_job *b)
{
    return a->first.sql == b->first.sql && a->together == b->together;
}

/* `like`: only one that begins and is run like it; NULL: any. */
static bool take_more(struct pg_writer *w, const struct db_job *like)
{
    struct pg_writers *all = &w->db->writers;
    pthread_mutex_lock(&all->lock);
    bool fits = all->head && (!like || is_alike(all->head, like));
    struct db_job *job = fits ? take_locked(all) : NULL;
    pthread_mutex_unlock(&all->lock);
    if (job)
        put_in_slot(w, job);
    return job != NULL;
}

/* ---- who may run ---- */

static bool is_open_locked(const struct pg_writers *all)
{
    return !all->alone && all->alone_waiting == 0 && all->inside < all->allowed;
}

static bool is_steady_locked(const struct pg_writers *all)
{
    return all->inside < STEADY || pg_now_ms() - all->taken_ms >= STALLED_MS;
}

/* Sleeps until something changes, or, where only patience is asked for, for a while. */
static void sleep_locked(struct pg_writers *all)
{
    if (!all->head || !is_open_locked(all)) {
        pthread_cond_wait(&all->wake, &all->lock);
        return;
    }
    struct timespec until = cond_deadline(STALLED_MS);
    (void)pthread_cond_timedwait(&all->wake, &all->lock, &until);
}

/* Waits for a first job and for room to run it; *share: how many jobs of the queue are ours. False
 * when stopping and nothing is left. */
static bool enter_with_job(struct pg_writer *w, size_t *share)
{
    struct pg_writers *all = &w->db->writers;
    pthread_mutex_lock(&all->lock);
    while (!(all->head && is_open_locked(all) && is_steady_locked(all)) &&
           !(all->stopping && !all->head))
        sleep_locked(all);
    size_t writers = all->allowed < STEADY ? all->allowed : STEADY;
    *share = writers > 0 ? all->waiting / writers : 0; /* 0: stopping, and there are none */
    struct db_job *job = take_locked(all);
    if (job) {
        all->inside++;
        all->taken_ms = pg_now_ms();
    }
    bool more = all->head && is_open_locked(all);
    pthread_mutex_unlock(&all->lock);
    if (more)
        pthread_cond_signal(&all->wake);
    w->count = 0;
    if (job)
        put_in_slot(w, job);
    if (*share > all->db->config.group_max)
        *share = all->db->config.group_max;
    return job != NULL;
}

/* For another try; alone: with no other transaction inside. */
static void enter_again(struct pg_writers *all, bool alone)
{
    LOCK_SCOPE(&all->lock);
    if (alone) {
        all->alone_waiting++;
        while (all->alone || all->inside > 0)
            pthread_cond_wait(&all->room, &all->lock);
        all->alone_waiting--;
        all->alone = true;
    } else {
        while (!is_open_locked(all))
            pthread_cond_wait(&all->room, &all->lock);
    }
    all->inside++;
}

static void leave(struct pg_writers *all, bool contended)
{
    pthread_mutex_lock(&all->lock);
    all->inside--;
    all->alone = false;
    if (contended) {
        all->allowed = all->allowed > 1 ? all->allowed / 2 : 1;
        all->calm = 0;
    } else if (all->allowed < all->count && ++all->calm >= CALM_COMMITS) {
        all->allowed++;
        all->calm = 0;
    }
    pthread_mutex_unlock(&all->lock);
    pthread_cond_broadcast(&all->room);
    pthread_cond_signal(&all->wake); /* a writer that takes a job wakes the next when there is
                                        more */
}

/* ---- first statements ---- */

static void forget_first(struct pg_writer *w)
{
    for (size_t i = 0; i < w->count; i++) {
        PQclear(w->slots[i].first_result);
        w->slots[i].first_result = NULL;
    }
}

/* Is there an n-th job behind the one in slot `at` that is like it: a slot's, or, up to `share` in
 * all, one of the queue? */
static bool has_alike(struct pg_writer *w, size_t at, size_t n, size_t share)
{
    const struct db_job *job = w->slots[at].job;
    return (at + n < w->count || (w->count < share && take_more(w, job))) &&
           is_alike(w->slots[at + n].job, job);
}

static uint64_t id_of(const struct pg_slot *slot)
{
    return (uint64_t)slot->job->first.args[0].number;
}

/* Runs the first statements of the job in slot `at` and of those that follow it with the same one:
 * slots, and jobs taken from the queue up to `share` in all. A single one is left to its job. */
static enum err open_ahead(struct pg_writer *w, struct pg_tx *tx, size_t at, size_t share)
{
    const char *first = w->slots[at].job->first.sql;
    struct pg_slot *order[PG_FIRST_MAX] = {&w->slots[at]};
    size_t n = 1;
    if (!first || tx->careful || w->slots[at].first_result)
        return OK;
    while (n < PG_FIRST_MAX && has_alike(w, at, n, share)) {
        struct pg_slot *slot = &w->slots[at + n];
        size_t place = n++;
        for (; place > 0 && id_of(order[place - 1]) > id_of(slot); place--)
            order[place] = order[place - 1];
        order[place] = slot;
    }
    if (n == 1)
        return OK;
    const struct db_statement *firsts[PG_FIRST_MAX];
    PGresult *results[PG_FIRST_MAX];
    for (size_t i = 0; i < n; i++)
        firsts[i] = &order[i]->job->first;
    enum err e = pg_tx_run_first(tx, firsts, n, results);
    for (size_t i = 0; i < n && !e; i++)
        order[i]->first_result = results[i];
    return e;
}

/* ---- together ---- */

/* Those that were taken come first, in their order, as they come in what was done: events and
 * answers follow the slots. Their events, which are in slot `at` now, go with the first of them. */
static void sort_slots(struct pg_writer *w, size_t at, size_t n)
{
    struct pg_slot sorted[PG_TOGETHER_MAX];
    struct event_list events = w->slots[at].events;
    size_t count = 0;
    w->slots[at].events = (struct event_list){0};
    for (int taken = 1; taken >= 0; taken--)
        for (size_t i = 0; i < n; i++)
            if (w->slots[at + i].taken == taken)
                sorted[count++] = w->slots[at + i];
    for (size_t i = 0; i < n && events.items; i++) {
        struct event_list other = sorted[i].events;
        sorted[i].events = events;
        events = other;
    }
    CHECK(!events.items);
    memcpy(&w->slots[at], sorted, n * sizeof *sorted);
    for (size_t i = 1; i < n; i++)
        event_list_clear(&w->slots[at + i].events);
}

/* Runs the job in slot `at` and those like it behind it as one, as far as they can be. */
static enum err run_together(struct pg_writer *w, struct pg_tx *tx, size_t at, size_t share)
{
    struct db_job *jobs[PG_TOGETHER_MAX] = {w->slots[at].job};
    bool taken[PG_TOGETHER_MAX] = {false};
    size_t n = 1;
    if (!jobs[0]->together || tx->careful || w->slots[at].offered)
        return OK;
    for (; n < PG_TOGETHER_MAX && has_alike(w, at, n, share); n++)
        jobs[n] = w->slots[at + n].job;
    if (n == 1)
        return OK;
    pg_tx_next_job(tx);
    event_list_clear(&w->slots[at].events);
    tx->base.events = w->slots[at].events;
    enum err e = pg_tx_end_job(tx, jobs[0]->together(&tx->base, jobs, n, taken));
    w->slots[at].events = tx->base.events;
    if (e) {
        pg_tx_poison(tx, e, PG_REFUSED, "jobs did not run together");
        return e;
    }
    for (size_t i = 0; i < n; i++) {
        struct pg_slot *slot = &w->slots[at + i];
        slot->offered = true;
        slot->taken = taken[i];
        slot->result = OK;
    }
    sort_slots(w, at, n);
    CHECK(w->slots[at].taken || w->slots[at].events.count == 0);
    return OK;
}

/* ---- one try ---- */

/* Runs one job in the group's transaction. False: the transaction must be undone because of it. */
static bool run_slot(struct pg_tx *tx, struct pg_slot *slot)
{
    struct db_job *job = slot->job;
    pg_tx_next_job(tx);
    if (slot->first_result)
        pg_tx_give_first(tx, &job->first, slot->first_result);
    slot->first_result = NULL;
    event_list_clear(&slot->events);
    tx->base.events = slot->events;
    job->detail[0] = '\0';
    slot->result = pg_tx_end_job(tx, job->run(&tx->base, job));
    slot->events = tx->base.events;
    if (slot->result)
        memcpy(job->detail, tx->base.detail, TX_DETAIL_MAX);
    bool left = pg_tx_end_first(tx);
    return !tx->poison && !(slot->result && tx->wrote) && !left;
}

/* What to do when a try failed, and admission is still held. A single job's own failure is its
 * result; a taken key makes it run again carefully. */
static enum pg_end give_up(struct pg_writer *w, struct pg_tx *tx, bool *careful)
{
    enum pg_trouble trouble = tx->trouble;
    pg_tx_roll_back(tx);
    forget_first(w);
    if (pg_end_of(trouble) != PG_APART || w->count > 1)
        return pg_end_of(trouble);
    if (trouble == PG_CONFLICT && !*careful) {
        *careful = true;
        return PG_APART;
    }
    struct pg_slot *slot = &w->slots[0];
    if (tx->poison) { /* found out by COMMIT */
        slot->result = tx->poison;
        memcpy(slot->job->detail, tx->base.detail, TX_DETAIL_MAX);
    }
    pg_answer(w->db, slot);
    return PG_ENDED;
}

/* Runs the jobs in the slots, and up to `share` in all from the queue. */
static enum pg_end try_once(struct pg_writer *w, size_t share, bool *careful)
{
    char detail[TX_DETAIL_MAX];
    enum err e = pg_link_ensure(&w->link, detail);
    if (e) {
        for (size_t i = 0; i < w->count; i++)
            memcpy(w->slots[i].job->detail, detail, TX_DETAIL_MAX);
        return PG_AGAIN_NEW;
    }
    struct pg_tx tx;
    pg_tx_begin(&tx, &w->link, true);
    tx.careful = *careful;
    if (w->begins_first > 0) {
        w->begins_first--;
        if (pg_tx_begin_now(&tx))
            return give_up(w, &tx, careful);
        pg_ids_reach(w);
    }
    int64_t end_ms = pg_now_ms() + GROUP_MS;
    size_t ran = 0;
    for (size_t i = 0; i < w->count; i++)
        w->slots[i].offered = w->slots[i].taken = false;
    while (ran < w->count || (w->count < share && pg_now_ms() < end_ms && take_more(w, NULL))) {
        struct pg_slot *slot = &w->slots[ran];
        if (run_together(w, &tx, ran, share) || open_ahead(w, &tx, ran, share) ||
            (!slot->taken && !run_slot(&tx, slot)))
            return give_up(w, &tx, careful);
        ran++;
    }
    enum pg_end end = pg_commit(w, &tx);
    return end == PG_ENDED ? end : give_up(w, &tx, careful);
}

/* ---- again ---- */

static void pause_before_try(struct pg_writer *w, int tries)
{
    int64_t most = PAUSE_MIN_MS;
    for (int i = 1; i < tries && most < PAUSE_MAX_MS; i++)
        most *= 2;
    most = most < PAUSE_MAX_MS ? most : PAUSE_MAX_MS;
    int64_t us = (int64_t)rand_below(&w->jitter, (uint64_t)most * 1000) + 100;
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static void end_all(struct pg_writer *w, enum err result)
{
    for (size_t i = 0; i < w->count; i++) {
        w->slots[i].result = result;
        pg_answer(w->db, &w->slots[i]);
    }
}

struct patience {
    int contentions, losses, drops;
};

/* Lets others run, waits, and comes back for the next try; false when patience is over and every
 * job was answered so. */
static bool come_back(struct pg_writer *w, enum pg_end end, struct patience *p)
{
    struct pg_writers *all = &w->db->writers;
    leave(all, end == PG_AGAIN_LATER);
    atomic_fetch_add_explicit(&all->retries, 1, memory_order_relaxed);
    bool over;
    if (end == PG_AGAIN_LATER) {
        over = ++p->contentions >= CONTENTION_TRIES;
        if (!over && p->contentions > 1)
            pause_before_try(w, p->contentions);
    } else {
        int64_t away_ms = pg_absence_lasted_ms(w->db);
        p->drops += away_ms == 0;
        over = p->drops >= DROP_TRIES || away_ms >= w->db->config.retry_ms;
        if (!over && p->losses++ > 0) /* the first time a new connection is all it takes */
            pause_before_try(w, p->losses + 4);
    }
    if (over) {
        end_all(w, ERR_UNAVAILABLE);
        return false;
    }
    enter_again(all, p->contentions > 1);
    return true;
}

/* The jobs in the slots (and further ones up to `share`) to their ends; admission is held at the
 * beginning and not at the end. */
static void write_slots(struct pg_writer *w, size_t share)
{
    struct patience patience = {0};
    bool careful = false;
    for (;;) {
        enum pg_end end = PG_ENDED;
        if (atomic_load(&w->db->damaged))
            end_all(w, ERR_STORAGE_FAILED);
        else
            end = try_once(w, share, &careful);
        if (end == PG_ENDED) {
            leave(&w->db->writers, false);
            return;
        }
        if (end == PG_APART && w->count > 1)
            break;
        if (end != PG_APART && !come_back(w, end, &patience))
            return;
    }
    /* One by one. Slot 0 is where a single job is run: its list of events changes places. */
    size_t count = w->count;
    for (size_t i = 0; i < count; i++) {
        struct pg_slot first = w->slots[0];
        w->slots[0] = w->slots[i];
        w->slots[i] = first;
        w->count = 1;
        if (i > 0)
            enter_again(&w->db->writers, false);
        write_slots(w, 0);
    }
}

static void *writer_main(void *arg)
{
    struct pg_writer *w = arg;
    size_t share;
    while (enter_with_job(w, &share)) {
        write_slots(w, share);
        pg_db_measure(w->db, &w->link);
    }
    return NULL;
}

/* ---- life cycle ---- */

struct pg_slot *pg_slots_new(const struct pg_db *db)
{
    struct pg_slot *slots = calloc(db->config.group_max, sizeof *slots);
    CHECK(slots);
    return slots;
}

void pg_slots_free(const struct pg_db *db, struct pg_slot *slots)
{
    for (size_t i = 0; i < db->config.group_max; i++)
        event_list_done(&slots[i].events);
    free(slots);
}

void pg_writers_init(struct pg_writers *all, struct pg_db *db)
{
    *all = (struct pg_writers){.db = db, .count = (size_t)db->config.writers};
    all->allowed = all->count;
    all->tail = &all->head;
    pthread_mutex_init(&all->lock, NULL);
    cond_init(&all->wake);
    pthread_cond_init(&all->room, NULL);
    pg_order_init(&all->order);
    all->list = calloc(all->count, sizeof *all->list);
    CHECK(all->list);
    for (size_t i = 0; i < all->count; i++) {
        struct pg_writer *w = &all->list[i];
        w->db = db;
        pg_link_init(&w->link, db, PG_WRITER);
        rand_seed(&w->jitter, (uint64_t)(uintptr_t)w ^ (uint64_t)pg_now_ms());
        w->slots = pg_slots_new(db);
    }
}

enum err pg_writers_start(struct pg_writers *all)
{
    for (size_t i = 0; i < all->count; i++) {
        if (!thread_start(&all->list[i].thread, "db-writer", writer_main, &all->list[i]))
            return ERR_NO_MEMORY;
    }
    return OK;
}

void pg_writers_stop(struct pg_writers *all)
{
    pthread_mutex_lock(&all->lock);
    all->stopping = true;
    pthread_mutex_unlock(&all->lock);
    pthread_cond_broadcast(&all->wake);
    for (size_t i = 0; i < all->count; i++)
        thread_join(&all->list[i].thread);
}

void pg_writers_done(struct pg_writers *all)
{
    for (size_t i = 0; i < all->count; i++) {
        pg_link_done(&all->list[i].link);
        pg_slots_free(all->db, all->list[i].slots);
    }
    free(all->list);
    pg_order_done(&all->order);
    pthread_cond_destroy(&all->wake);
    pthread_cond_destroy(&all->room);
    pthread_mutex_destroy(&all->lock);
}
