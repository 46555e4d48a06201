/* Events for the engine's benchmarks. Every account follows the next five, so each post goes to the
 * five before; there are no celebrities, and no fan-out is more than a page.
 *
 * A source keeps its transactions in a fixed set of places. A place is free, or its job is with the
 * store; the store's thread frees it (or, closed, submits it again) when the commit is done. */
#include "bench/events.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/hash.h"
#include "model/follow.h"
#include "model/post.h"

enum { FILL_A_COMMIT = 1000, TICK_NS = 1000 * 1000, FOLLOW_EVERY = 5, POLL_NS = 50 * 1000 };

static void pause_ns(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* ---- the world ---- */

static size_t neighbours(void *ctx, int64_t follower, int64_t *out, size_t max)
{
    const struct world *w = ctx;
    CHECK(max >= EVENTS_FOLLOWERS);
    for (int i = 0; i < EVENTS_FOLLOWERS; i++)
        out[i] = (follower + 1 + i) % w->accounts;
    return EVENTS_FOLLOWERS;
}

static enum err write_world(struct world *w, struct db *db, void *ctx)
{
    (void)ctx;
    enum err e = world_write_accounts(w, db);
    return e ? e : world_write_follows(w, db, 0, w->accounts, neighbours, w);
}

enum err events_make_world(struct world *w, struct bench *b, char why[300])
{
    bench_say(b, "writing %lld accounts, each followed by %d", (long long)w->accounts,
              EVENTS_FOLLOWERS);
    enum err e = world_write(w, write_world, NULL, why);
    return e ? e : world_fill_timelines(w, why);
}

/* ---- many at once ---- */

static enum err post(struct tx *tx, uint64_t author)
{
    struct arena arena;
    struct post_card card;
    arena_init(&arena);
    enum err e = post_create(
        tx, &(struct post_new){.author = author, .caption = STR("What a view.")}, &arena, &card);
    if (!e)
        tx->events.items[tx->events.count - 1].card = NULL; /* it dies with this arena */
    arena_done(&arena);
    return e;
}

/* Authors in a mixed order, the same in each run. */
static uint64_t author_of(const struct world *w, int64_t from, int64_t to, int64_t number)
{
    return world_account(w, from + (int64_t)(hash_u64((uint64_t)number) % (uint64_t)(to - from)));
}

struct filling {
    const struct world *world;
    int64_t from, to, first, count;
};

static enum err fill_tx(struct tx *tx, void *arg)
{
    const struct filling *f = arg;
    enum err e = OK;
    for (int64_t i = 0; !e && i < f->count; i++)
        e = post(tx, author_of(f->world, f->from, f->to, f->first + i));
    return e;
}

enum err events_fill(const struct world *w, struct db *db, int64_t from, int64_t to, int64_t count)
{
    struct filling f = {.world = w, .from = from, .to = to};
    enum err e = OK;
    for (; !e && f.first < count; f.first += f.count) {
        int64_t left = count - f.first;
        f.count = left < FILL_A_COMMIT ? left : FILL_A_COMMIT;
        e = db_write(db, fill_tx, &f, NULL);
    }
    return e;
}

/* ---- one by one ---- */

struct place {
    struct db_job job;
    struct event_source *source;
    int64_t number;
    struct place *next; /* free */
};

struct event_source {
    const struct world *world;
    struct db *db;
    int64_t from, to;
    bool posts_only;
    double rate;
    pthread_t ticker;
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t freed;
    struct place *free;
    size_t busy;
    bool stopped;
    int64_t numbers, committed, left_out;
    double start_s;
    struct place places[];
};

/* An account follows one that it does not follow yet, and unfollows it when that pair comes again.
 */
static enum err follow_or_not(struct tx *tx, const struct event_source *s, int64_t number)
{
    const struct world *w = s->world;
    static const struct follow_policy policy = {.celebrity_threshold = INT64_MAX,
                                                .max_following = INT64_MAX};
    int64_t follower = s->from + number / FOLLOW_EVERY % (s->to - s->from);
    uint64_t a = world_account(w, follower);
    uint64_t b = world_account(w, (follower + EVENTS_FOLLOWERS + 1) % w->accounts);
    bool changed;
    enum err e = follow_create(tx, a, b, &policy, &changed);
    return e || changed ? e : follow_remove(tx, a, b, &policy, &changed);
}

static enum err run_place(struct tx *tx, struct db_job *job)
{
    const struct place *p = CONTAINER_OF(job, struct place, job);
    const struct event_source *s = p->source;
    if (!s->posts_only && p->number % FOLLOW_EVERY == FOLLOW_EVERY - 1)
        return follow_or_not(tx, s, p->number);
    return post(tx, author_of(s->world, s->from, s->to, p->number));
}

static void place_done(struct db_job *job, enum err result, const char *detail)
{
    struct place *p = CONTAINER_OF(job, struct place, job);
    struct event_source *s = p->source;
    (void)detail;
    CHECK(result == OK);
    pthread_mutex_lock(&s->lock);
    s->committed++;
    bool again = s->rate == 0 && !s->stopped;
    if (again) {
        p->number = s->numbers++;
    } else {
        p->next = s->free;
        s->free = p;
        s->busy--;
        pthread_cond_signal(&s->freed);
    }
    pthread_mutex_unlock(&s->lock);
    if (again)
        CHECK(db_submit(s->db, job) == OK);
}

static bool submit_one(struct event_source *s)
{
    pthread_mutex_lock(&s->lock);
    struct place *p = s->free;
    if (p) {
        s->free = p->next;
        s->busy++;
        p->number = s->numbers++;
    } else {
        s->left_out++;
    }
    pthread_mutex_unlock(&s->lock);
    if (p)
        CHECK(db_submit(s->db, &p->job) == OK);
    return p != NULL;
}

static void *tick(void *arg)
{
    struct event_source *s = arg;
    for (int64_t sent = 0;;) {
        pthread_mutex_lock(&s->lock);
        bool stopped = s->stopped;
        pthread_mutex_unlock(&s->lock);
        if (stopped)
            return NULL;
        int64_t due = (int64_t)((bench_now_s() - s->start_s) * s->rate);
        for (; sent < due; sent++)
            submit_one(s);
        pause_ns(TICK_NS);
    }
}

struct event_source *event_source_start(const struct world *w, struct db *db, int64_t from,
                                        int64_t to, size_t window, double rate, bool posts_only)
{
    struct event_source *s = calloc(1, sizeof *s + window * sizeof s->places[0]);
    CHECK(s && window > 0);
    *s = (struct event_source){
        .world = w, .db = db, .from = from, .to = to, .posts_only = posts_only, .rate = rate};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->freed, NULL);
    for (size_t i = 0; i < window; i++) {
        s->places[i] = (struct place){
            .job = {.run = run_place, .done = place_done}, .source = s, .next = s->free};
        s->free = &s->places[i];
    }
    s->start_s = bench_now_s();
    if (rate > 0)
        CHECK(pthread_create(&s->ticker, NULL, tick, s) == 0);
    else
        for (size_t i = 0; i < window; i++)
            submit_one(s);
    return s;
}

struct event_source_end event_source_stop(struct event_source *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopped = true;
    pthread_mutex_unlock(&s->lock);
    if (s->rate > 0)
        pthread_join(s->ticker, NULL);
    pthread_mutex_lock(&s->lock);
    while (s->busy > 0)
        pthread_cond_wait(&s->freed, &s->lock);
    struct event_source_end end = {
        .committed = s->committed, .left_out = s->left_out, .seconds = bench_now_s() - s->start_s};
    pthread_mutex_unlock(&s->lock);
    pthread_cond_destroy(&s->freed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return end;
}

/* ---- waiting ---- */

uint64_t events_deliveries(struct engine *engine)
{
    struct engine_stats s;
    uint64_t sum = 0;
    engine_stats(engine, &s);
    for (size_t i = 0; i < LANE_COUNT; i++)
        sum += s.lanes[i].delivered + s.lanes[i].repeated;
    return sum;
}

void events_wait_delivered(struct engine *engine)
{
    while (!engine_drained(engine))
        pause_ns(POLL_NS);
}

static enum err find_pending(struct tx *tx, void *arg)
{
    int64_t *id = arg;
    enum err e = tx_get_i64(tx, "SELECT id FROM outbox WHERE state = 0 LIMIT 1", DB_NO_ARGS, id);
    if (e == ERR_NOT_FOUND)
        *id = 0;
    return e == ERR_NOT_FOUND ? OK : e;
}

enum err events_wait_settled(struct engine *engine, struct db *db)
{
    int64_t pending = 1;
    enum err e = OK;
    events_wait_delivered(engine);
    while (!e && pending) {
        e = db_read(db, find_pending, &pending, NULL);
        if (pending)
            pause_ns(POLL_NS * 20);
    }
    return e;
}
