/* Fan-out: how long until everyone has a post. The whole embedded server runs in this process,
 * without HTTP: a post is a transaction of the model with its outbox row, committed with fsync; the
 * relay, the lanes and the workers carry it on; it is over when the engine says that nothing is
 * undone. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rand.h"
#include "bench/events.h"
#include "bench/world.h"
#include "model/post.h"

enum {
    FILLER = 0,        /* account 0: everyone follows it, its posts fill the timelines */
    LARGE = 1,         /* followed by `followers` accounts */
    SWEEP_FIRST = 2,   /* authors of growing size */
    STREAM_FIRST = 10, /* many authors with 200 followers each */
    STREAM_AUTHORS = 1000,
    STREAM_FOLLOWERS = 200,
    STREAM_POSTS = 10000,
    STREAM_WINDOW = 512,
    READERS_FIRST = 2000, /* accounts above this follow the large authors */
};

static const int64_t sweep_sizes[] = {10000, 50000, 100000, 200000, 400000};

/* Every account follows the filler; the large authors are followed by a random part of the readers.
 */
static size_t large_follows(void *ctx, int64_t follower, int64_t *out, size_t max)
{
    const struct bench *b = ctx;
    size_t n = 0;
    (void)max;
    if (follower != FILLER)
        out[n++] = FILLER;
    if (follower < READERS_FIRST)
        return n;
    int64_t readers = b->accounts - READERS_FIRST;
    struct rand r;
    rand_seed(&r, (uint64_t)follower);
    if (rand_below(&r, (uint64_t)readers) < (uint64_t)b->followers)
        out[n++] = LARGE;
    for (size_t i = 0; i < COUNT_OF(sweep_sizes); i++) {
        if (rand_below(&r, (uint64_t)readers) < (uint64_t)sweep_sizes[i])
            out[n++] = SWEEP_FIRST + (int64_t)i;
    }
    /* 1,000 stream authors × 200 followers, spread over all readers */
    uint64_t expected = (uint64_t)STREAM_AUTHORS * STREAM_FOLLOWERS;
    for (uint64_t left = expected; left > 0;
         left -= left < (uint64_t)readers ? left : (uint64_t)readers) {
        if (rand_below(&r, (uint64_t)readers) < left)
            out[n++] = STREAM_FIRST + (int64_t)rand_below(&r, STREAM_AUTHORS);
    }
    return n;
}

static enum err write_world(struct world *w, struct db *db, void *ctx)
{
    struct bench *b = ctx;
    bench_say(b, "writing %lld accounts and their follows", (long long)b->accounts);
    enum err e = world_write_accounts(w, db);
    if (!e)
        e = world_write_follows(w, db, 0, b->accounts, large_follows, b);
    if (!e && b->entries > 0)
        e = world_write_posts(w, db, FILLER, FILLER + 1, b->entries, DELIVERY_PUSH);
    return e;
}

static enum err read_filler_tx(struct tx *tx, void *arg)
{
    struct db_rows rows;
    uint64_t *ids = arg;
    enum err e =
        tx_query(tx, "SELECT id FROM posts ORDER BY id DESC LIMIT 1000", DB_NO_ARGS, &rows);
    if (e)
        return e;
    while (db_next(&rows))
        *ids++ = db_id(&rows, 0);
    return db_rows_done(&rows);
}

/* Gives every account its timeline: what reading would do one by one. */
static enum err fill_timelines(struct world *w, struct bench *b, struct api *api)
{
    uint64_t ids[1000];
    enum err e = db_read(api->db, read_filler_tx, ids, NULL);
    for (int64_t i = 0; !e && i < w->accounts; i++) {
        uint64_t account = world_account(w, i);
        e = timelines_begin(api->views->timelines, account);
        if (!e)
            e = timelines_end(api->views->timelines, account, ids, (size_t)b->entries, 0);
        if (e == ERR_CONFLICT)
            e = OK;
    }
    return e;
}

static enum err post_tx(struct tx *tx, void *arg)
{
    const uint64_t *author = arg;
    struct arena arena;
    struct post_card card;
    arena_init(&arena);
    enum err e = post_create(
        tx, &(struct post_new){.author = *author, .caption = STR("What a view up here.")}, &arena,
        &card);
    if (!e)
        tx->events.items[tx->events.count - 1].card = NULL; /* it dies with this arena */
    arena_done(&arena);
    return e;
}

/* A single post, and when its commit was done: noted on the writer's thread, right after the events
 * were handed to the engine, because this thread may wake up later than the fan-out ends. */
struct timed_post {
    struct db_job job;
    uint64_t author;
    double committed_s;
    _Atomic bool done;
};

static enum err timed_run(struct tx *tx, struct db_job *job)
{
    return post_tx(tx, &CONTAINER_OF(job, struct timed_post, job)->author);
}

static void timed_done(struct db_job *job, enum err result, const char *detail)
{
    struct timed_post *p = CONTAINER_OF(job, struct timed_post, job);
    (void)detail;
    CHECK(result == OK);
    p->committed_s = bench_now_s();
    atomic_store(&p->done, true);
}

/* One post by `author`: milliseconds from its commit until everyone has it; *members: to how many.
 */
static double one_post(struct world *w, struct api *api, int64_t author, double *members,
                       double *commit_ms)
{
    struct timed_post p = {.job = {.run = timed_run, .done = timed_done},
                           .author = world_account(w, author)};
    events_wait_delivered(api->engine);
    uint64_t before = events_deliveries(api->engine);
    double start_s = bench_now_s();
    CHECK(db_submit(api->db, &p.job) == OK);
    while (!atomic_load(&p.done))
        usleep(50);
    events_wait_delivered(api->engine);
    double end_s = bench_now_s();
    *members = (double)(events_deliveries(api->engine) - before);
    *commit_ms = (p.committed_s - start_s) * 1e3;
    return (end_s - p.committed_s) * 1e3;
}

/* The median of several posts by one author. */
static double measure_author(struct world *w, struct bench *b, struct api *api, int64_t author,
                             double *members, double *commit_ms)
{
    enum { POSTS_MAX = 32 };
    double times[POSTS_MAX], commits[POSTS_MAX];
    size_t n = (size_t)(b->rounds * 3 < POSTS_MAX ? b->rounds * 3 : POSTS_MAX);
    for (size_t i = 0; i < n; i++)
        times[i] = one_post(w, api, author, members, &commits[i]);
    *commit_ms = bench_median(commits, n);
    return bench_median(times, n);
}

/* ---- the stream ---- */

struct stream {
    struct world *world;
    struct db *db;
    _Atomic int64_t next;
    pthread_mutex_t lock;
    int64_t done; /* under the lock */
    pthread_cond_t over;
};

struct stream_job {
    struct db_job job;
    struct stream *stream;
    uint64_t author;
};

static enum err stream_run(struct tx *tx, struct db_job *job)
{
    struct stream_job *s = CONTAINER_OF(job, struct stream_job, job);
    return post_tx(tx, &s->author);
}

static void stream_submit(struct stream_job *s)
{
    int64_t number = atomic_fetch_add(&s->stream->next, 1);
    if (number >= STREAM_POSTS)
        return;
    s->author = world_account(s->stream->world, STREAM_FIRST + number % STREAM_AUTHORS);
    CHECK(db_submit(s->stream->db, &s->job) == OK);
}

static void stream_done(struct db_job *job, enum err result, const char *detail)
{
    struct stream_job *s = CONTAINER_OF(job, struct stream_job, job);
    (void)detail;
    CHECK(result == OK);
    stream_submit(s);
    /* Counted last: when all are, the stream is gone. */
    struct stream *stream = s->stream;
    pthread_mutex_lock(&stream->lock);
    if (++stream->done == STREAM_POSTS)
        pthread_cond_signal(&stream->over);
    pthread_mutex_unlock(&stream->lock);
}

/* Deliveries a second from the first submit until everyone has everything. */
static double run_stream(struct world *w, struct api *api, double *posts_per_s)
{
    static struct stream_job jobs[STREAM_WINDOW];
    struct stream s = {.world = w, .db = api->db};
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.over, NULL);
    events_wait_delivered(api->engine);
    uint64_t before = events_deliveries(api->engine);
    double start_s = bench_now_s();
    for (size_t i = 0; i < STREAM_WINDOW; i++) {
        jobs[i] =
            (struct stream_job){.job = {.run = stream_run, .done = stream_done}, .stream = &s};
        stream_submit(&jobs[i]);
    }
    pthread_mutex_lock(&s.lock);
    while (s.done < STREAM_POSTS)
        pthread_cond_wait(&s.over, &s.lock);
    pthread_mutex_unlock(&s.lock);
    *posts_per_s = STREAM_POSTS / (bench_now_s() - start_s);
    events_wait_delivered(api->engine);
    double took_s = bench_now_s() - start_s;
    pthread_cond_destroy(&s.over);
    pthread_mutex_destroy(&s.lock);
    return (double)(events_deliveries(api->engine) - before) / took_s;
}

static void measure_stream(struct world *w, struct bench *b, struct api *api)
{
    enum { ROUNDS_MAX = 16 };
    double rates[ROUNDS_MAX], posts[ROUNDS_MAX];
    size_t n = (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
    for (size_t i = 0; i < n; i++)
        rates[i] = run_stream(w, api, &posts[i]);
    bench_number(b, "stream_per_s", bench_median(rates, n),
                 "deliveries/s, 10,000 posts x 200, with commits");
    bench_number(b, "stream_posts_per_s", bench_median(posts, n), "durable posts/s meanwhile");
}

/* ---- all of it ---- */

static void measure(struct world *w, struct bench *b, struct api *api)
{
    struct view_stats views;
    views_stats(api->views, &views);
    double entries = (double)views.entries;
    bench_number(b, "accounts", (double)views.accounts, "");
    bench_number(b, "timeline_entries", entries, "");

    double members = 0, commit_ms = 0, smallest_ns = 0, large_ns = 0;
    for (size_t i = 0; i < COUNT_OF(sweep_sizes); i++) {
        if (sweep_sizes[i] > b->accounts / 2)
            continue;
        double ms = measure_author(w, b, api, SWEEP_FIRST + (int64_t)i, &members, &commit_ms);
        char name[48];
        snprintf(name, sizeof name, "sweep.%.0f", members);
        bench_number(b, name, ms, "ms");
        if (smallest_ns == 0)
            smallest_ns = ms * 1e6 / members;
    }
    double ms = measure_author(w, b, api, LARGE, &members, &commit_ms);
    char name[48];
    snprintf(name, sizeof name, "sweep.%.0f", members);
    bench_number(b, name, ms, "ms");
    large_ns = ms * 1e6 / members;
    bench_number(b, "one_followers", members, "followers of the large author");
    bench_number(b, "one_ms", ms, "ms from its commit until all have it (median)");
    bench_number(b, "one_commit_ms", commit_ms, "ms for the commit itself");
    bench_number(b, "one_per_s", members / ((ms + commit_ms) / 1e3),
                 "deliveries/s, commit included");
    bench_number(b, "marginal_ratio", smallest_ns > 0 ? large_ns / smallest_ns : 1,
                 "cost per delivery, largest against smallest fan-out");
    measure_stream(w, b, api);
    views_stats(api->views, &views);
    bench_number(b, "bytes_per_entry", (double)views.timeline_bytes / (double)views.entries,
                 "bytes per timeline entry, headers and slack included");
    bench_number(b, "rss_mib", (double)process_rss(getpid()) / 1048576, "MiB resident");
}

int bench_fan_out(struct bench *b)
{
    struct world w;
    struct runtime *runtime;
    char why[300];
    b->settings.celebrity_threshold = 1000000000;
    b->settings.celebrity_adaptive = false;
    b->settings.snapshot_every_ms = 3600000;
    if (!world_init(&w, b))
        return command_fail(b->in, "cannot make a folder in $TMPDIR or /tmp");
    enum err e = world_write(&w, write_world, b, why);
    if (!e) { /* opened anew, as every start does: the graph comes from truth */
        bench_say(b, "loading the graph, filling %lld timelines with %lld entries",
                  (long long)b->accounts, (long long)b->entries);
        e = runtime_open(&w.settings, NULL, NULL, &runtime, why);
    }
    if (!e) {
        e = fill_timelines(&w, b, runtime_api(runtime));
        if (!e && runtime_start_workers(runtime))
            measure(&w, b, runtime_api(runtime));
        runtime_close(runtime, 0);
    }
    world_done(&w);
    return e ? command_fail(b->in, "%s", why) : EXIT_DONE;
}
