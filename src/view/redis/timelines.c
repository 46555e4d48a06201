/* Timelines: delivering posts to them, and the repairs of a single one, each of which is one script
 * in the viewer's slot that looks at the graph and at the timeline in the same act. Pages are read
 * in home.c, rebuilds are remembered in rebuild.c, pull lists are made known in spread.c.
 *
 * A push is the hot path. It costs Redis one ZADD for each member: a dropped timeline is no sorted
 * set and refuses it, a post that is there already is counted as such by ZADD itself, and a post at
 * or below the floor is added below it, where no read looks, until the next trim takes it out.
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

/* Members of as many posts as fit go in one round trip. */
static enum err push(struct timelines *base, struct timeline_push *pushes, size_t n)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, timelines);
    BORROWED struct batch *b = batch_borrow(&r->client);
    enum err e = OK;
    for (size_t i = 0; i < n; i++)
        pushes[i].added = 0;
    for (size_t at = 0, from = 0; !e && at < n;) {
        struct timeline_push *of[PUSH_A_FLUSH + 1]; /* whose ZADD it is; NULL: a trim */
        int64_t entries = 0;
        size_t count = 0;
        batch_reset(b);
        while (at < n && count < PUSH_A_FLUSH) {
            struct timeline_push *p = &pushes[at];
            if (from == p->n) {
                at++, from = 0;
                continue;
            }
            uint64_t member = p->members[from++];
            struct arg timeline = arg_account(KEY_TIMELINE, member);
            of[count++] = p;
            batch_command(b, "ZADD", timeline, arg_post(p->post));
            if (!trims(p->post, member))
                continue;
            of[count++] = NULL;
            batch_script(b, SCRIPT_trim, timeline, arg_number(r->views.cap));
        }
        e = flush_pushes(r, b);
        for (size_t i = 0; !e && i < count; i++) {
            int64_t reply = batch_integer(b, i, 0);
            entries += of[i] ? reply == 1 : -reply;
            if (of[i])
                of[i]->added += reply == 1;
        }
        tally_add(r, TALLY_ENTRIES, entries);
    }
    tally_pour(r);
    return e;
}

static enum err retract(struct timelines *base, uint64_t post, const uint64_t *members, size_t n,
                        size_t *removed)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, timelines);
    BORROWED struct batch *b = batch_borrow(&r->client);
    enum err e = OK;
    *removed = 0;
    for (size_t from = 0, some; !e && from < n; from += some) {
        some = n - from < PUSH_A_FLUSH ? n - from : PUSH_A_FLUSH;
        batch_reset(b);
        for (size_t i = from; i < from + some; i++)
            batch_command(b, "ZREM", arg_account(KEY_TIMELINE, members[i]), arg_id(post));
        e = batch_flush(b, FLUSH_PUSHED);
        for (size_t i = 0; !e && i < some; i++)
            *removed += batch_integer(b, i, 0) == 1;
    }
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
    .spread = redis_spread,
    .sweep = redis_sweep,
};
