/* Timelines: delivering posts to them, and the repairs of a single one, each of which is one script
 * in the viewer's slot that looks at the graph and at the timeline in the same act. Pages are read
 * in home.c, rebuilds are remembered in rebuild.c.
 *
 * A push is the hot path. It costs Redis one ZADD for each member: a dropped timeline is no sorted
 * set and refuses it, a post that is there already is counted as such by ZADD itself, and a post at
 * or below the floor is added below it, where nobody looks, until the next trim takes it out.
 * Trimming is left to one push in sixty-four, chosen by member and post: every timeline is trimmed
 * now and then, and no batch does more than its share. */
#include "base/hash.h"
#include "view/redis/driver.h"

enum { PUSH_A_FLUSH = 2048, TRIM_ONE_IN = 64 };

/* ---- pushing ---- */

static bool trims(uint64_t post, uint64_t member)
{
    return hash_u64(post ^ member * UINT64_C(0x9e3779b97f4a7c15)) % TRIM_ONE_IN == 0;
}

static void queue_push(struct redis_views *r, struct batch *b, uint64_t post,
                       const uint64_t *members, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct arg timeline = arg_account(KEY_TIMELINE, members[i]);
        batch_command(b, "ZADD", timeline, arg_post(post));
        if (trims(post, members[i]))
            batch_script(b, SCRIPT_trim, timeline, arg_number(r->views.cap));
    }
}

/* The replies to what queue_push queued, from command `at` on; returns where the next begin. */
static size_t note_push(struct redis_views *r, struct batch *b, size_t at, struct timeline_push *p,
                        const uint64_t *members, size_t n)
{
    size_t removed = 0, added = 0;
    for (size_t i = 0; i < n; i++) {
        added += batch_integer(b, at++, 0) == 1;
        if (trims(p->post, members[i]))
            removed += (size_t)batch_integer(b, at++, 0);
    }
    p->added += added;
    tally_add(r, TALLY_ENTRIES, (int64_t)added - (int64_t)removed);
    return at;
}

/* A run of one post's members, and where the next one begins. */
struct slice {
    size_t push, from, n;
};

static struct slice slice_at(const struct timeline_push *pushes, struct slice at, size_t *room)
{
    size_t left = pushes[at.push].n - at.from;
    at.n = left < *room ? left : *room;
    *room -= at.n;
    return at;
}

static struct slice slice_after(const struct timeline_push *pushes, struct slice at)
{
    at.from += at.n;
    return at.from < pushes[at.push].n ? at : (struct slice){.push = at.push + 1};
}

/* Members of as many posts as fit go in one round trip. */
static enum err push(struct timelines *base, struct timeline_push *pushes, size_t n)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, timelines);
    BORROWED struct batch *b = batch_borrow(&r->client);
    struct slice at = {0};
    enum err e = OK;
    for (size_t i = 0; i < n; i++)
        pushes[i].added = 0;
    while (!e && at.push < n) {
        struct slice s = at;
        batch_reset(b);
        for (size_t room = PUSH_A_FLUSH; room > 0 && s.push < n; s = slice_after(pushes, s)) {
            s = slice_at(pushes, s, &room);
            queue_push(r, b, pushes[s.push].post, pushes[s.push].members + s.from, s.n);
        }
        e = flush_pushes(r, b);
        size_t reply = 0;
        for (size_t room = PUSH_A_FLUSH; !e && room > 0 && at.push < n;
             at = slice_after(pushes, at)) {
            struct timeline_push *p = &pushes[at.push];
            at = slice_at(pushes, at, &room);
            reply = note_push(r, b, reply, p, p->members + at.from, at.n);
        }
    }
    tally_pour(r);
    return e;
}

static enum err retract_some(struct batch *b, uint64_t post, const uint64_t *members, size_t n,
                             size_t *removed)
{
    batch_reset(b);
    for (size_t i = 0; i < n; i++)
        batch_command(b, "ZREM", arg_account(KEY_TIMELINE, members[i]), arg_id(post));
    enum err e = batch_flush(b, FLUSH_PUSHED);
    for (size_t i = 0; !e && i < n; i++)
        *removed += batch_integer(b, i, 0) == 1;
    return e;
}

static enum err retract(struct timelines *base, uint64_t post, const uint64_t *members, size_t n,
                        size_t *removed)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, timelines);
    BORROWED struct batch *b = batch_borrow(&r->client);
    enum err e = OK;
    *removed = 0;
    for (size_t from = 0; !e && from < n; from += PUSH_A_FLUSH)
        e = retract_some(b, post, members + from, n - from < PUSH_A_FLUSH ? n - from : PUSH_A_FLUSH,
                         removed);
    tally_add(r, TALLY_ENTRIES, -(int64_t)*removed);
    tally_pour(r);
    return e;
}

/* ---- rebuilding ---- */

/* More than the cap is not worth sending: the newest one left out is the floor then. */
static void bound(const struct redis_views *r, const uint64_t *ids, size_t *n, uint64_t *floor)
{
    if (*n <= r->views.cap)
        return;
    *n = r->views.cap;
    if (ids[*n] > *floor)
        *floor = ids[*n];
}

static enum err rebuild(struct timelines *base, uint64_t viewer, enum view_rebuild step,
                        const uint64_t *ids, size_t n, uint64_t floor)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, timelines);
    bound(r, ids, &n, &floor);
    struct arg args[REBUILD_IDS] = {arg_number(r->views.cap), arg_post(floor), arg_posts(ids, n)};
    return rebuild_step(r, viewer, 't', step, args);
}

/* ---- backfill and forget ---- */

#define EDGE_ARGS(viewer, author)                                                                  \
    arg_people(viewer), arg_account(KEY_TIMELINE, (viewer)), arg_account(KEY_FOLLOWED, (viewer)),  \
        arg_number(viewer), arg_number(author)

static enum err backfill(struct timelines *base, uint64_t viewer, uint64_t author,
                         const uint64_t *ids, size_t n, uint64_t floor)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, timelines);
    BORROWED struct batch *b = batch_borrow(&r->client);
    bound(r, ids, &n, &floor);
    batch_script(b, SCRIPT_backfill, EDGE_ARGS(viewer, author), arg_number(r->views.cap),
                 arg_post(floor), arg_posts(ids, n));
    return flush_entries(r, b, FLUSH_REPLICATE, TALLY_ENTRIES);
}

static enum err forget(struct timelines *base, uint64_t viewer, uint64_t author,
                       const uint64_t *ids, size_t n)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, timelines);
    BORROWED struct batch *b = batch_borrow(&r->client);
    batch_script(b, SCRIPT_forget, EDGE_ARGS(viewer, author), arg_ids(ids, n));
    return flush_entries(r, b, FLUSH_REPLICATE, TALLY_ENTRIES);
}

static enum err stamp(struct timelines *base, uint64_t viewer, struct view_stamp *stamp, bool *same)
{
    (void)base, (void)viewer, (void)stamp;
    *same = false;
    return ERR_NEEDS_TRUTH; /* other nodes change things without our knowing */
}

const struct timelines_ops redis_timelines_ops = {
    .push = push,
    .retract = retract,
    .rebuild = rebuild,
    .backfill = backfill,
    .forget = forget,
    .home = redis_home,
    .stamp = stamp,
    .sweep = redis_sweep,
};
