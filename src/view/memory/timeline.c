/* Timelines.
 *
 * The invariant: **every id pushed to this timeline since it began, and every id merged into it, is
 * either stored, or at or below the floor, or was taken out on purpose.** A timeline that began
 * empty (a new account) or was rebuilt from truth is therefore complete above its floor. Each way
 * of losing an id raises the floor to it in the same act:
 *   - an append to a full timeline takes the oldest id out: the floor becomes that id;
 *   - an id older than all in a full timeline is not stored: the floor becomes that id;
 *   - a merge that overflows keeps the newest and raises the floor to the newest one left out;
 *   - a merge of ids that are complete only above some floor raises the floor to it, and ids at or
 *     below the new floor go: they would claim a completeness that is not there.
 *
 * The floor never falls while the timeline lives, so interleavings do not matter: whichever of a
 * push, a backfill and a rebuild comes first, the floor is the greatest of what each of them lost.
 * A rebuild that is under way collects from an empty start, under the same invariant, and its end
 * is a merge. When memory runs out the oldest ids make room early, or the timeline is dropped: both
 * are safe.
 *
 * To find out later whether a timeline changed takes no work of the push: an id that comes either
 * raises the count, or, when another makes room for it or it is not stored itself, the floor. So as
 * long as ids only come (floor, count) only rises, in that order of weight, and is equal only when
 * nothing came. Everything else is counted in env->changes.
 *
 * Ids lie in a chain of blocks, not in one array. People who follow the same accounts hold equally
 * many ids, and arrays would all have to grow at the same push, copying kilobytes each; a chain
 * grows by one block every thirty pushes and copies nothing. Reads begin at the newest end, where
 * the first page needs one or two blocks; inserting and removing move only what is newer, which is
 * little, because posts arrive and are deleted young. Chains of different stripes begin at
 * different places of their first block, so that not all take their next block at the same push,
 * either. */
#include "view/memory/timeline.h"

#include <string.h>

#include "base/check.h"

static struct block *newest_of(const struct timeline *t)
{
    return timeline_get(t, newest);
}

static struct block *oldest_of(const struct timeline *t)
{
    return timeline_get(t, oldest);
}

static unsigned block_begin(const struct timeline *t, const struct block *b)
{
    return b == oldest_of(t) ? timeline_get(t, first) : 0;
}

static unsigned block_end(const struct timeline *t, const struct block *b)
{
    return b == newest_of(t) ? timeline_get(t, used) : BLOCK_IDS;
}

static void count_by(struct timeline *t, struct timeline_env *env, int change)
{
    timeline_set(t, count, (uint32_t)((int64_t)timeline_get(t, count) + change));
    env->entries += change;
}

static void raise_floor(struct timeline *t, uint64_t id)
{
    if (id > t->floor)
        t->floor = id;
}

/* Something else happens to it than that an id comes. */
static void note_change(const struct timeline *t, const struct timeline_env *env)
{
    if (env->changes)
        env->changes[t - env->first]++;
}

/* ---- the two ends of the chain ---- */

static void set_empty(struct timeline *t)
{
    timeline_set(t, newest, NULL);
    timeline_set(t, oldest, NULL);
    timeline_set(t, used, 0);
    timeline_set(t, first, 0);
}

static uint8_t stagger(const struct timeline_env *env)
{
    return (uint8_t)(env->near * 7 % BLOCK_IDS);
}

static void link_newest(struct timeline *t, const struct timeline_env *env, struct block *b)
{
    struct block *before = newest_of(t);
    b->older = before;
    b->newer = NULL;
    timeline_set(t, newest, b);
    timeline_set(t, used, before ? 0 : stagger(env));
    if (before) {
        before->newer = b;
    } else {
        timeline_set(t, oldest, b);
        timeline_set(t, first, stagger(env));
    }
}

static void unlink_oldest(struct timeline *t, struct timeline_env *env)
{
    struct block *b = oldest_of(t);
    if (b->newer) {
        b->newer->older = NULL;
        timeline_set(t, oldest, b->newer);
        timeline_set(t, first, 0);
    } else {
        set_empty(t);
    }
    block_give_back(env->pool, env->near, b);
}

static void unlink_newest(struct timeline *t, struct timeline_env *env)
{
    struct block *b = newest_of(t);
    if (b->older) {
        b->older->newer = NULL;
        timeline_set(t, newest, b->older);
        timeline_set(t, used, BLOCK_IDS);
    } else {
        set_empty(t);
    }
    block_give_back(env->pool, env->near, b);
}

static void forget_oldest(struct timeline *t, struct timeline_env *env)
{
    struct block *b = oldest_of(t);
    unsigned first = timeline_get(t, first);
    raise_floor(t, b->ids[first]);
    timeline_set(t, first, (uint8_t)(first + 1));
    count_by(t, env, -1);
    if (first + 1 == block_end(t, b))
        unlink_oldest(t, env);
}

/* Room for one more at the newest end. False: the timeline had to be dropped for want of memory. */
static bool make_room(struct timeline *t, struct timeline_env *env)
{
    if (newest_of(t) && timeline_get(t, used) < BLOCK_IDS)
        return true;
    struct block *b = block_take(env->pool, env->near);
    while (!b && timeline_get(t, count) >
                     BLOCK_IDS) { /* the oldest block's ids go, its memory stays ours */
        forget_oldest(t, env);
        b = block_take(env->pool, env->near);
    }
    if (!b) {
        timeline_drop(t, env);
        return false;
    }
    link_newest(t, env, b);
    return true;
}

static void append(struct timeline *t, struct timeline_env *env, uint64_t id)
{
    uint8_t used = timeline_get(t, used);
    newest_of(t)->ids[used] = id;
    timeline_set(t, used, (uint8_t)(used + 1));
    count_by(t, env, 1);
}

/* ---- finding ---- */

struct spot {
    struct block *block; /* NULL: nowhere, the timeline is empty */
    unsigned at; /* of the first id there that is ≥ the wanted one; may be the block's end */
    bool found;
};

/* From the newest end: what is looked for is mostly young. */
static struct spot find(const struct timeline *t, uint64_t id)
{
    struct spot s = {newest_of(t), 0, false};
    if (s.block && timeline_get(t, used) == 0) /* room was made, nothing put there yet */
        s.block = s.block->older;
    if (!s.block)
        return s;
    while (s.block->older && s.block->ids[block_begin(t, s.block)] > id)
        s.block = s.block->older;
    s.at = block_end(t, s.block);
    for (unsigned begin = block_begin(t, s.block); s.at > begin && s.block->ids[s.at - 1] >= id;)
        s.at--;
    s.found = s.at < block_end(t, s.block) && s.block->ids[s.at] == id;
    return s;
}

/* ---- one id ---- */

/* Everything from the spot on moves one place towards the newest end, which has room. */
static void insert_at(struct timeline *t, struct timeline_env *env, struct spot s, uint64_t id)
{
    append(t, env, 0);
    struct block *b = newest_of(t);
    unsigned at = timeline_get(t, used) - 1u;
    while (b != s.block || at > s.at) {
        if (at > 0) {
            b->ids[at] = b->ids[at - 1];
            at--;
        } else {
            b->ids[0] = b->older->ids[BLOCK_IDS - 1];
            b = b->older;
            at = BLOCK_IDS - 1;
            if (b == s.block && at + 1 == s.at) { /* it belongs between the two blocks */
                b = b->newer;
                at = 0;
                break;
            }
        }
    }
    b->ids[at] = id;
}

bool timeline_add_slow(struct timeline *t, struct timeline_env *env, uint64_t id)
{
    if (t->state == TIMELINE_DROPPED || id <= t->floor)
        return false;
    struct block *b = newest_of(t);
    bool newer = !b || b->ids[timeline_get(t, used) - 1] < id;
    if (!newer && find(t, id).found)
        return false;
    if (timeline_get(t, count) >= env->cap) {
        b = oldest_of(t);
        if (b->ids[timeline_get(t, first)] > id) {
            raise_floor(t, id);
            return false;
        }
        forget_oldest(t, env);
    }
    if (!make_room(t, env))
        return false;
    if (newer || timeline_get(t, count) == 0)
        append(t, env, id);
    else
        insert_at(t, env, find(t, id), id);
    return true;
}

bool timeline_remove(struct timeline *t, struct timeline_env *env, uint64_t id)
{
    struct spot s = find(t, id);
    if (!s.found)
        return false;
    note_change(t, env);
    struct block *b = s.block;
    for (unsigned at = s.at;;) {
        if (at + 1 < block_end(t, b)) {
            b->ids[at] = b->ids[at + 1];
            at++;
        } else if (b->newer) {
            b->ids[at] = b->newer->ids[0];
            b = b->newer;
            at = 0;
        } else {
            break;
        }
    }
    uint8_t used = (uint8_t)(timeline_get(t, used) - 1);
    timeline_set(t, used, used);
    count_by(t, env, -1);
    if (used == block_begin(t, newest_of(t)))
        unlink_newest(t, env);
    return true;
}

/* ---- many ids ---- */

/* Walks the stored ids from the newest down. */
struct descent {
    const struct timeline *t;
    const struct block *block;
    unsigned left; /* ids of the block not yet passed, its begin included */
};

static struct descent descend(const struct timeline *t)
{
    const struct block *b = newest_of(t);
    return (struct descent){t, b, b ? block_end(t, b) : 0};
}

static uint64_t descent_id(const struct descent *d) /* 0: the end */
{
    return d->block ? d->block->ids[d->left - 1] : 0;
}

static void descent_step(struct descent *d)
{
    if (--d->left == block_begin(d->t, d->block)) {
        d->block = d->block->older;
        d->left = BLOCK_IDS;
    }
}

/* Kept ids close up towards the oldest, then the freed end is cut off. */
void timeline_remove_all(struct timeline *t, struct timeline_env *env, const uint64_t *ids,
                         size_t n)
{
    struct block *to = oldest_of(t);
    unsigned to_at = timeline_get(t, first);
    size_t left = n; /* ids[left - 1] is the oldest not yet passed */
    note_change(t, env);
    uint32_t kept = 0;
    for (struct block *from = to; from; from = from->newer) {
        unsigned end = block_end(t, from);
        for (unsigned at = block_begin(t, from); at < end; at++) {
            uint64_t id = from->ids[at];
            while (left > 0 && ids[left - 1] < id)
                left--;
            if (left > 0 && ids[left - 1] == id)
                continue;
            if (to_at == BLOCK_IDS) {
                to = to->newer;
                to_at = 0;
            }
            to->ids[to_at++] = id;
            kept++;
        }
    }
    count_by(t, env, (int)(kept - timeline_get(t, count)));
    while (newest_of(t) && (kept == 0 || newest_of(t) != to))
        unlink_newest(t, env);
    if (kept > 0)
        timeline_set(t, used, (uint8_t)to_at);
}

static void free_chain(struct timeline *t, struct timeline_env *env)
{
    count_by(t, env, -(int)timeline_get(t, count));
    while (newest_of(t))
        unlink_newest(t, env);
}

/* A chain for `count` ids: all blocks full but the newest. False: no memory, nothing taken. */
static bool chain_new(struct timeline *t, struct timeline_env *env, uint32_t count)
{
    *t = (struct timeline){.floor = 0};
    uint32_t end = count > 0 ? stagger(env) + count : 0;
    for (uint32_t have = 0; have < end; have += BLOCK_IDS) {
        struct block *b = block_take(env->pool, env->near);
        if (!b) {
            free_chain(t, env);
            return false;
        }
        link_newest(t, env, b);
    }
    if (count > 0) {
        timeline_set(t, used, (uint8_t)((end - 1) % BLOCK_IDS + 1));
        count_by(t, env, (int)count);
    }
    return true;
}

static void adopt_chain(struct timeline *t, const struct timeline *from)
{
    timeline_set(t, newest, newest_of(from));
    timeline_set(t, oldest, oldest_of(from));
    timeline_set(t, used, timeline_get(from, used));
    timeline_set(t, first, timeline_get(from, first));
    timeline_set(t, count, timeline_get(from, count));
}

/* The union of what is stored and `ids`, from the newest down, without duplicates, above `floor`.
 */
struct union_walk {
    struct descent stored;
    const uint64_t *ids;
    size_t n, i;
    uint64_t floor;
};

static uint64_t union_next(struct union_walk *w) /* 0: the end */
{
    uint64_t a = descent_id(&w->stored);
    uint64_t b = w->i < w->n ? w->ids[w->i] : 0;
    uint64_t id = a > b ? a : b;
    if (id <= w->floor)
        return 0;
    if (a == id)
        descent_step(&w->stored);
    w->i += b == id;
    return id;
}

void timeline_merge(struct timeline *t, struct timeline_env *env, const uint64_t *ids, size_t n,
                    uint64_t floor)
{
    for (size_t i = 1; i < n; i++)
        CHECK(ids[i] < ids[i - 1]);
    note_change(t, env);
    raise_floor(t, floor);
    struct union_walk count = {descend(t), ids, n, 0, t->floor};
    uint32_t kept = 0;
    uint64_t left_out = 0;
    for (uint64_t id; (id = union_next(&count)) != 0; kept++) {
        if (kept == env->cap) {
            left_out = id;
            break;
        }
    }
    struct timeline merged;
    if (!chain_new(&merged, env, kept)) {
        timeline_drop(t, env);
        return;
    }
    struct union_walk fill = {descend(t), ids, n, 0, t->floor};
    for (struct block *b = newest_of(&merged); b; b = b->older)
        for (unsigned at = block_end(&merged, b), begin = block_begin(&merged, b); at > begin; at--)
            b->ids[at - 1] = union_next(&fill);
    free_chain(t, env);
    adopt_chain(t, &merged);
    raise_floor(t, left_out);
}

void timeline_fill(struct timeline *t, struct timeline_env *env, const uint64_t *ids, size_t n,
                   uint64_t floor)
{
    note_change(t, env);
    t->floor = floor;
    if (n > env->cap) {
        raise_floor(t, ids[n - env->cap - 1]);
        ids += n - env->cap;
        n = env->cap;
    }
    struct timeline chain;
    if (!chain_new(&chain, env, (uint32_t)n)) {
        timeline_drop(t, env);
        return;
    }
    for (struct block *b = oldest_of(&chain); b; b = b->newer) {
        unsigned begin = block_begin(&chain, b), end = block_end(&chain, b);
        memcpy(b->ids + begin, ids, (end - begin) * sizeof *ids);
        ids += end - begin;
    }
    adopt_chain(t, &chain);
}

void timeline_drop(struct timeline *t, struct timeline_env *env)
{
    note_change(t, env);
    free_chain(t, env);
    t->floor = 0;
    t->state = TIMELINE_DROPPED;
}

/* ---- reading ---- */

size_t timeline_read(const struct timeline *t, uint64_t below, uint64_t *ids, size_t max)
{
    struct spot s = find(t, below);
    size_t n = 0;
    for (const struct block *b = s.block; b && n < max; b = b->older) {
        unsigned end = b == s.block ? s.at : block_end(t, b);
        for (unsigned at = end, begin = block_begin(t, b); at > begin && n < max; at--)
            ids[n++] = b->ids[at - 1];
    }
    return n;
}

void timeline_copy(const struct timeline *t, uint64_t *ids)
{
    for (const struct block *b = oldest_of(t); b; b = b->newer) {
        unsigned begin = block_begin(t, b), end = block_end(t, b);
        memcpy(ids, b->ids + begin, (end - begin) * sizeof *ids);
        ids += end - begin;
    }
}
