/* Timelines: delivering a post to them, the repairs of a single one (backfill, removal, rebuild,
 * drop), and reading a page.
 *
 * A push is the hot path, and bound by memory: each member costs one line of the timelines column
 * and one line of a block somewhere in the pool. So the loop asks for both some members ahead, and
 * the members come sorted, which makes the first nearly sequential and lets a run of neighbours
 * share one latch.
 *
 * A page is the timeline's newest ids merged with the pull lists of those one follows who have one.
 * Which ones do is one bit per account, checked for every followee: 125 KB for a million accounts
 * stay in the cache, nothing has to be kept up to date per viewer, and an unfollow counts at once.
 */
#include <string.h>

#include "view/memory/driver.h"

enum { HEADER_AHEAD = 32, TAIL_AHEAD = 14 };
enum { PULL_CHUNK = 256, SOURCE_IDS = 4, MERGE_CHUNK = 32 };

/* ---- delivery ---- */

static void push_post(struct memory_views *m, struct timeline_push *p)
{
    const uint64_t *members = p->members, post = p->post;
    size_t n = p->n;
    struct timeline *timelines = m->timelines;
    struct timeline_env env = timeline_env_of(m, 0);
    size_t total = 0;
    check_handles(m, members, n);
    for (size_t i = 0; i < n && i < HEADER_AHEAD; i++)
        __builtin_prefetch(&timelines[members[i]], 1);
    for (size_t i = 0; i < n && i < TAIL_AHEAD; i++)
        timeline_prefetch(&timelines[members[i]], env.cap);
    for (size_t i = 0; i < n;) {
        uint64_t stripe = members[i] >> STRIPE_BITS;
        env.near = (uint32_t)stripe;
        latch_lock(&m->latches[stripe]);
        do {
            if (i + HEADER_AHEAD < n)
                __builtin_prefetch(&timelines[members[i + HEADER_AHEAD]], 1);
            if (i + TAIL_AHEAD < n)
                timeline_prefetch(&timelines[members[i + TAIL_AHEAD]], env.cap);
            total += timeline_add(&timelines[members[i]], &env, post);
            i++;
        } while (i < n && members[i] >> STRIPE_BITS == stripe);
        latch_unlock(&m->latches[stripe]);
    }
    p->added = total;
    tally_add(m, &(struct tally){.entries = env.entries});
}

static enum err push(struct timelines *base, struct timeline_push *pushes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        push_post(CONTAINER_OF(base, struct memory_views, timelines_port), &pushes[i]);
    return OK;
}

static enum err retract(struct timelines *base, uint64_t post, const uint64_t *members, size_t n,
                        size_t *removed)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, timelines_port);
    struct timeline_env env = timeline_env_of(m, 0);
    check_handles(m, members, n);
    *removed = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t slot = (uint32_t)members[i];
        if (i + HEADER_AHEAD < n)
            __builtin_prefetch(&m->timelines[members[i + HEADER_AHEAD]], 1);
        if (i + TAIL_AHEAD < n)
            timeline_prefetch(&m->timelines[members[i + TAIL_AHEAD]], env.cap);
        env.near = stripe_of(slot);
        person_lock(m, slot);
        *removed += timeline_remove(&m->timelines[slot], &env, post);
        person_unlock(m, slot);
    }
    tally_add(m, &(struct tally){.entries = env.entries});
    return OK;
}

/* ---- repairs ---- */

/* Backfill works in a timeline that is being rebuilt, too: the rebuild may have read truth before
 * the follow. A dropped one needs nothing: its rebuild will read truth after it. */
static enum err edge(struct memory_views *m, uint64_t viewer, uint64_t author, bool backfill,
                     const uint64_t *ids, size_t n, uint64_t floor)
{
    uint32_t slot = account_find(m, viewer), other = account_find(m, author);
    if (slot == DIRECTORY_NONE || other == DIRECTORY_NONE)
        return ERR_NOT_FOUND;
    struct timeline *t = &m->timelines[slot];
    struct timeline_env env = timeline_env_of(m, slot);
    person_lock(m, slot);
    bool follows = slot_list_has(&m->people[slot].following, other);
    if (t->state != TIMELINE_DROPPED && follows == backfill) {
        if (backfill)
            timeline_merge(t, &env, ids, n, floor);
        else
            timeline_remove_all(t, &env, ids, n);
    }
    person_unlock(m, slot);
    tally_add(m, &(struct tally){.entries = env.entries});
    return OK;
}

static enum err backfill(struct timelines *base, uint64_t viewer, uint64_t author,
                         const uint64_t *ids, size_t n, uint64_t floor)
{
    return edge(CONTAINER_OF(base, struct memory_views, timelines_port), viewer, author, true, ids,
                n, floor);
}

static enum err forget(struct timelines *base, uint64_t viewer, uint64_t author,
                       const uint64_t *ids, size_t n)
{
    return edge(CONTAINER_OF(base, struct memory_views, timelines_port), viewer, author, false, ids,
                n, 0);
}

static void begin_building(struct memory_views *m, uint32_t slot)
{
    struct timeline *t = &m->timelines[slot];
    m->changes[slot]++;
    if (t->state == TIMELINE_DROPPED)
        t->state = TIMELINE_BUILDING;
    if (t->builders < TIMELINE_BUILDERS_MAX)
        t->builders++;
    flag_set(m->awake, slot, true);
}

static void drop_timeline(struct memory_views *m, uint32_t slot, struct timeline_env *env)
{
    timeline_drop(&m->timelines[slot], env);
    flag_set(m->awake, slot, false);
}

/* Two readers may rebuild the same timeline at once: both collect into the same ring, the first to
 * end makes it ready, the second finds it complete and changes nothing. `builders` counts those
 * under way, so that the timeline is not dropped, or begun anew, between the two ends: the second
 * would then bring back a state from before pushes that were not collected. A rebuild that is
 * neither ended nor given up is never counted down; the price is one timeline that is not dropped
 * until the next start. */
static enum err rebuild(struct timelines *base, uint64_t viewer, enum view_rebuild step,
                        const uint64_t *ids, size_t n, uint64_t floor)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, timelines_port);
    uint32_t slot = account_find(m, viewer);
    bool lost = is_lost(m);
    if (lost && (step == VIEW_REBUILD_BEGIN || step == VIEW_REBUILD_ANEW))
        return ERR_CONFLICT;
    if (slot == DIRECTORY_NONE)
        return ERR_NOT_FOUND;
    struct timeline *t = &m->timelines[slot];
    struct timeline_env env = timeline_env_of(m, slot);
    enum err e = lost && step == VIEW_REBUILD_END ? ERR_CONFLICT : OK; /* of another state */
    person_lock(m, slot);
    if (step == VIEW_REBUILD_BEGIN) {
        if (t->state == TIMELINE_READY)
            e = ERR_CONFLICT;
        else
            begin_building(m, slot);
    } else if (step == VIEW_REBUILD_ANEW) {
        if (t->state != TIMELINE_READY || t->builders > 0) {
            e = ERR_CONFLICT;
        } else {
            timeline_drop(t, &env);
            begin_building(m, slot);
        }
    } else {
        if (t->builders > 0 && t->builders < TIMELINE_BUILDERS_MAX)
            t->builders--;
        if (t->state == TIMELINE_BUILDING && step == VIEW_REBUILD_END && !lost) {
            t->state = TIMELINE_READY;
            timeline_merge(t, &env, ids, n, floor);
        } else if (t->state == TIMELINE_BUILDING && t->builders == 0) {
            drop_timeline(m, slot, &env);
        } else if (t->state == TIMELINE_DROPPED) {
            e = ERR_CONFLICT; /* no rebuild began: pushes meanwhile were not collected */
        }
    }
    person_unlock(m, slot);
    tally_add(m, &(struct tally){.entries = env.entries});
    return e;
}

/* The audience leaves out people whose timeline is dropped. That loses nothing: a rebuild begins
 * before it reads truth, so it either finds a post there or is awake when that post's audience is
 * walked. */
static bool drop_if_unseen(struct memory_views *m, uint32_t slot, uint32_t before,
                           struct tally *total)
{
    if (!flag_get(m->awake, slot) || atomic_load(&m->seen[slot]) >= before)
        return false;
    struct timeline *t = &m->timelines[slot];
    struct timeline_env env = timeline_env_of(m, slot);
    person_lock(m, slot);
    bool drop =
        t->state == TIMELINE_READY && t->builders == 0 && atomic_load(&m->seen[slot]) < before;
    if (drop)
        drop_timeline(m, slot, &env);
    person_unlock(m, slot);
    total->entries += env.entries;
    return drop;
}

/* Readers look at the pull lists of all whom they follow: there is nothing to be made known. */
static enum err spread(struct timelines *base, uint64_t author, size_t *told, bool *more)
{
    (void)base, (void)author;
    *told = 0;
    *more = false;
    return OK;
}

static enum err sweep(struct timelines *base, int64_t seen_before_ms, size_t max_accounts,
                      size_t *dropped, bool *wrapped)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, timelines_port);
    uint32_t accounts = atomic_load_explicit(&m->accounts, memory_order_acquire);
    uint32_t before = seen_seconds(seen_before_ms);
    uint32_t at = atomic_load(&m->sweep_at);
    struct tally t = {0};
    *dropped = 0;
    for (size_t i = 0; i < max_accounts && at < accounts; i++, at++) {
        *dropped += drop_if_unseen(m, at, before, &t);
        drop_inbox_if_unseen(m, at, before, &t);
    }
    *wrapped = at >= accounts;
    atomic_store(&m->sweep_at, *wrapped ? 0 : at);
    tally_add(m, &t);
    return OK;
}

/* ---- pages ---- */

/* The page so far: falling, at most `max`. */
struct page {
    uint64_t *ids;
    size_t n, max;
};

/* Merges `more` (falling) into the page in place, from the end; what does not fit falls off. */
static void page_merge(struct page *p, uint64_t *more, size_t count)
{
    size_t kept = 0, at = 0;
    for (size_t i = 0; i < count; i++) { /* leaves out what the page has already */
        while (at < p->n && p->ids[at] > more[i])
            at++;
        if (at == p->n || p->ids[at] != more[i])
            more[kept++] = more[i];
    }
    size_t i = p->n, j = kept;
    for (size_t over = i + j > p->max ? i + j - p->max : 0; over > 0; over--) {
        if (j == 0 || (i > 0 && p->ids[i - 1] < more[j - 1]))
            i--;
        else
            j--;
    }
    p->n = i + j;
    for (size_t to = p->n; j > 0; to--) {
        if (i > 0 && p->ids[i - 1] < more[j - 1]) {
            p->ids[to - 1] = p->ids[i - 1];
            i--;
        } else {
            p->ids[to - 1] = more[j - 1];
            j--;
        }
    }
}

/* A pull list on its way into the page: some ids ahead, copied out. */
struct source {
    struct pull_list *list;
    uint64_t ids[SOURCE_IDS];
    unsigned n, at;
};

/* The sources that have something for the page, as a heap by their next id. */
struct source_heap {
    size_t n;
    struct {
        uint64_t id;
        struct source *source;
    } items[PULL_CHUNK];
};

static void source_fill(struct source *s, uint64_t below, uint64_t above, uint64_t *floor)
{
    uint64_t list_floor;
    s->n = (unsigned)pull_list_read(s->list, below, above, s->ids, SOURCE_IDS, &list_floor);
    s->at = 0;
    if (list_floor > *floor)
        *floor = list_floor;
}

static void sources_sink(struct source_heap *h, size_t at)
{
    for (size_t child; (child = at * 2 + 1) < h->n; at = child) {
        if (child + 1 < h->n && h->items[child + 1].id > h->items[child].id)
            child++;
        if (h->items[at].id >= h->items[child].id)
            return;
        __typeof__(h->items[0]) moved = h->items[at];
        h->items[at] = h->items[child];
        h->items[child] = moved;
    }
}

/* Takes the newest id off the heap. */
static uint64_t sources_pop(struct source_heap *h, uint64_t above, uint64_t *floor)
{
    uint64_t id = h->items[0].id;
    struct source *s = h->items[0].source;
    if (++s->at == SOURCE_IDS)
        source_fill(s, id, above, floor);
    if (s->at < s->n)
        h->items[0].id = s->ids[s->at];
    else
        h->items[0] = h->items[--h->n];
    sources_sink(h, 0);
    return id;
}

/* Nothing at or below it can come onto the page any more. */
static uint64_t page_above(const struct page *p)
{
    return p->n < p->max ? 0 : p->max > 0 ? p->ids[p->n - 1] : UINT64_MAX;
}

/* Merges the pull lists of `authors` into the page. */
static void page_pull(struct memory_views *m, struct page *p, const uint32_t *authors, size_t n,
                      uint64_t below, uint64_t *floor)
{
    struct source sources[PULL_CHUNK];
    struct source_heap heap = {.n = 0};
    for (size_t i = 0; i < n; i++)
        __builtin_prefetch(&m->people[authors[i]].pull);
    for (size_t i = 0; i < n; i++) {
        sources[i].list = pull_of(m, authors[i]);
        __builtin_prefetch(sources[i].list);
    }
    for (size_t i = 0; i < n; i++) {
        source_fill(&sources[i], below, page_above(p), floor);
        if (sources[i].n > 0) {
            heap.items[heap.n].id = sources[i].ids[0];
            heap.items[heap.n++].source = &sources[i];
        }
    }
    for (size_t i = heap.n / 2; i > 0; i--)
        sources_sink(&heap, i - 1);
    while (heap.n > 0 && heap.items[0].id > page_above(p)) {
        uint64_t more[MERGE_CHUNK];
        uint64_t above = page_above(p);
        size_t count = 0;
        while (count < MERGE_CHUNK && count < p->max && heap.n > 0 && heap.items[0].id > above) {
            uint64_t id = sources_pop(&heap, above, floor);
            if (count == 0 || more[count - 1] != id) /* in two lists: still one post */
                more[count++] = id;
        }
        page_merge(p, more, count);
    }
}

/* Leaves out authors whose posts the viewer does not see anyway. Timelines hold at most their cap
 * of such ids; the lists of muted authors hold any number, and a page would have to be searched for
 * among all of them. */
static size_t keep_shown(struct memory_views *m, const struct slot_list *mutes, uint32_t *slots,
                         size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (!flag_get(m->hidden, slots[i]) && !(mutes && slot_list_has(mutes, slots[i])))
            slots[kept++] = slots[i];
    }
    return kept;
}

/* Slots of those that `l` holds from index *at on, who have a pull list; at most PULL_CHUNK. */
static size_t pulled_among(struct memory_views *m, const struct slot_list *l, uint32_t *at,
                           uint32_t *out)
{
    size_t n = 0;
    uint32_t i = *at;
    for (; i < l->count && n < PULL_CHUNK; i++) {
        uint32_t slot = l->slots[i];
        uint64_t word = atomic_load_explicit(&m->pulled[stripe_of(slot)], memory_order_relaxed);
        out[n] = slot; /* written anyway, counted if it is one: no branch */
        n += (word >> (slot % STRIPE_SLOTS)) & 1;
    }
    *at = i;
    return n;
}

static enum err home(struct timelines *base, uint64_t viewer, uint64_t below, uint64_t *ids,
                     size_t max, size_t *n, uint64_t *floor)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, timelines_port);
    uint32_t slot = account_find(m, viewer);
    *n = 0;
    *floor = UINT64_MAX;
    if (is_lost(m))
        return OK;
    if (slot == DIRECTORY_NONE)
        return ERR_NOT_FOUND;
    struct page page = {ids, 0, max};
    struct slot_list *following = &m->people[slot].following;
    uint32_t pulled[PULL_CHUNK];
    __builtin_prefetch(following);
    __builtin_prefetch(&m->timelines[slot]);
    person_lock(m, slot);
    __builtin_prefetch(following->slots);
    if (m->timelines[slot].state != TIMELINE_READY) {
        person_unlock(m, slot);
        return OK;
    }
    page.n = timeline_read(&m->timelines[slot], below, ids, max);
    uint64_t lowest = m->timelines[slot].floor;
    for (uint32_t from = 0;;) {
        uint32_t at = slot_list_at_least(following, from);
        size_t found = pulled_among(m, following, &at, pulled);
        bool more = at < following->count;
        from = found > 0 ? pulled[found - 1] + 1 : 0;
        found = keep_shown(m, m->people[slot].mutes, pulled, found);
        person_unlock(m, slot);
        if (found > 0)
            page_pull(m, &page, pulled, found, below, &lowest);
        if (!more)
            break;
        person_lock(m, slot);
    }
    while (page.n > 0 && ids[page.n - 1] <= lowest)
        page.n--;
    *n = page.n;
    *floor = lowest;
    return OK;
}
/* ---- stamps ---- */

enum { STAMP_CHANGES, STAMP_FLOOR, STAMP_COUNT, STAMP_HIDES, STAMP_PULLS, STAMP_VERSIONS };

/* The versions of the pull lists of all authors in `following`, added up. Lists are never taken
 * away and their versions only rise, from above zero; so as long as the same people are followed,
 * equal sums mean that no list has changed or appeared. */
static uint64_t pull_versions(struct memory_views *m, const struct slot_list *following)
{
    uint32_t pulled[PULL_CHUNK];
    uint64_t sum = 0;
    for (uint32_t at = 0; at < following->count;) {
        size_t n = pulled_among(m, following, &at, pulled);
        for (size_t i = 0; i < n; i++)
            __builtin_prefetch(&m->people[pulled[i]].pull);
        for (size_t i = 0; i < n; i++) {
            const struct pull_list *l = pull_of(m, pulled[i]);
            sum += l ? pull_list_version(l) : 0;
        }
    }
    return sum;
}

/* Exact counters, no hash: two different states never have one stamp.
 *
 * The viewer's own part (graph, mutes, timeline) changes under the latch together with `changes`,
 * or is a new id, which raises (floor, count); all are read under the latch. `hides` is counted
 * after the flag is set: a reader that looked at the flags before finds another count after.
 *
 * Pull lists belong to others. Their versions are only added up when any list anywhere has changed
 * since the stamp, which `pulls` shows. A change counts itself before and after; `pulls` is read
 * before the versions. Suppose the versions miss a change: then its second count is still to come,
 * and once that change has returned, `pulls` differs from what this stamp holds. */
static enum err stamp(struct timelines *base, uint64_t viewer, struct view_stamp *stamp, bool *same)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, timelines_port);
    uint32_t slot = account_find(m, viewer);
    *same = false;
    if (is_lost(m))
        return ERR_NEEDS_TRUTH;
    if (slot == DIRECTORY_NONE)
        return ERR_NOT_FOUND;
    const struct timeline *t = &m->timelines[slot];
    __builtin_prefetch(t);
    __builtin_prefetch(&m->changes[slot]);
    struct view_stamp now;
    now.part[STAMP_HIDES] = atomic_load(&m->hides);
    now.part[STAMP_PULLS] = atomic_load(&m->pulls);
    person_lock(m, slot);
    now.part[STAMP_CHANGES] = m->changes[slot] + 1; /* zeros are no stamp */
    now.part[STAMP_FLOOR] = t->floor;
    now.part[STAMP_COUNT] = timeline_get(t, count);
    bool own = memcmp(now.part, stamp->part, STAMP_PULLS * sizeof now.part[0]) == 0;
    now.part[STAMP_VERSIONS] = own && now.part[STAMP_PULLS] == stamp->part[STAMP_PULLS]
                                   ? stamp->part[STAMP_VERSIONS]
                                   : pull_versions(m, &m->people[slot].following);
    person_unlock(m, slot);
    *same = own && now.part[STAMP_VERSIONS] == stamp->part[STAMP_VERSIONS];
    *stamp = now;
    return OK;
}

const struct timelines_ops memory_timelines_ops = {
    .push = push,
    .retract = retract,
    .rebuild = rebuild,
    .backfill = backfill,
    .forget = forget,
    .home = home,
    .stamp = stamp,
    .spread = spread,
    .sweep = sweep,
};
