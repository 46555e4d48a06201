/* Reading: a page of candidates, who is visible, who is next to whom.
 *
 * A page is the timeline's newest ids merged with the pull lists of those one follows who have one.
 * Which ones do is one bit per account, checked for everybody followed: 125 KB for a million
 * accounts stay in the cache, nothing has to be kept up to date per viewer, and an unfollow counts
 * at once. */
#include <string.h>

#include "view/memory/engine.h"

enum { PULL_CHUNK = 256, SOURCE_IDS = 4, MERGE_CHUNK = 32, VISIBLE_CHUNK = 64 };

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

/* Leaves out whose posts the viewer would not be shown anyway. Timelines hold at most their cap of
 * such ids; the lists of everybody muted hold any number, and a page would have to be searched for
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

enum err memory_home(struct views *v, uint64_t viewer, uint64_t below, uint64_t *ids, size_t max,
                     size_t *n, uint64_t *floor)
{
    struct memory_views *m = memory_of(v);
    uint32_t slot = account_find(m, viewer);
    *n = 0;
    *floor = UINT64_MAX;
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

static bool may_see(struct memory_views *m, const struct person *p, uint32_t author)
{
    return author != DIRECTORY_NONE && slot_list_has(&p->following, author) &&
           !(p->mutes && slot_list_has(p->mutes, author)) && !flag_get(m->hidden, author);
}

enum err memory_visible(struct views *v, uint64_t viewer, const uint64_t *authors, size_t n,
                        bool *out)
{
    struct memory_views *m = memory_of(v);
    uint32_t slot = directory_find(&m->directory, viewer);
    for (size_t from = 0; from < n; from += VISIBLE_CHUNK) {
        size_t count = n - from < VISIBLE_CHUNK ? n - from : VISIBLE_CHUNK;
        uint32_t slots[VISIBLE_CHUNK];
        for (size_t i = 0; i < count; i++)
            directory_prefetch(&m->directory, authors[from + i]);
        for (size_t i = 0; i < count; i++)
            slots[i] = directory_find(&m->directory, authors[from + i]);
        if (slot != DIRECTORY_NONE)
            person_lock(m, slot);
        for (size_t i = 0; i < count; i++)
            out[from + i] = authors[from + i] == viewer ||
                            (slot != DIRECTORY_NONE && may_see(m, &m->people[slot], slots[i]));
        if (slot != DIRECTORY_NONE)
            person_unlock(m, slot);
    }
    return OK;
}

/* ---- stamps ---- */

enum { STAMP_CHANGES, STAMP_FLOOR, STAMP_COUNT, STAMP_HIDES, STAMP_PULLS, STAMP_VERSIONS };

/* The versions of the pull lists of everybody in `following`, added up. Lists are never taken away
 * and their versions only rise, from above zero; so as long as the same people are followed, equal
 * sums mean that no list has changed or appeared. */
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
 * after the flag is set: whoever looked at the flags before finds another count after.
 *
 * Pull lists belong to others. Their versions are only added up when any list anywhere has changed
 * since the stamp, which `pulls` tells. A change counts itself before and after; `pulls` is read
 * before the versions. Suppose the versions miss a change: then its second count is still to come,
 * and once that change has returned, `pulls` differs from what this stamp holds. */
enum err memory_stamp(struct views *v, uint64_t viewer, struct view_stamp *stamp, bool *same)
{
    struct memory_views *m = memory_of(v);
    uint32_t slot = account_find(m, viewer);
    *same = false;
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

/* ---- neighbours ---- */

/* The smallest ids are gathered in a heap with the greatest on top. */
static void heap_sink(uint64_t *heap, size_t n, size_t at)
{
    for (size_t child; (child = at * 2 + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] > heap[child])
            child++;
        if (heap[at] >= heap[child])
            return;
        uint64_t id = heap[at];
        heap[at] = heap[child];
        heap[child] = id;
    }
}

static void heap_offer(uint64_t *heap, size_t *n, size_t max, uint64_t id)
{
    if (*n == max) {
        if (id < heap[0]) {
            heap[0] = id;
            heap_sink(heap, *n, 0);
        }
        return;
    }
    size_t at = (*n)++;
    for (; at > 0 && heap[(at - 1) / 2] < id; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = id;
}

static size_t read_neighbours(struct memory_views *m, uint32_t slot, bool followers, uint32_t from,
                              uint32_t *out, size_t max)
{
    const struct person *p = &m->people[slot];
    size_t n = 0;
    person_lock(m, slot);
    if (followers) {
        n = follower_set_read(&p->followers, from, out, max);
    } else {
        for (uint32_t i = slot_list_at_least(&p->following, from);
             i < p->following.count && n < max; i++)
            out[n++] = p->following.slots[i];
    }
    person_unlock(m, slot);
    return n;
}

/* Slots are not in the order of ids, so all neighbours are looked at for each page: for checks, not
 * for serving. */
enum err memory_neighbours(struct views *v, uint64_t account, bool followers, uint64_t after,
                           uint64_t *ids, size_t max, size_t *n)
{
    struct memory_views *m = memory_of(v);
    uint32_t slot = directory_find(&m->directory, account);
    *n = 0;
    if (slot == DIRECTORY_NONE)
        return ERR_NOT_FOUND;
    uint32_t chunk[PULL_CHUNK], from = 0;
    size_t got;
    do {
        got = max > 0 ? read_neighbours(m, slot, followers, from, chunk, PULL_CHUNK) : 0;
        for (size_t i = 0; i < got; i++)
            if (m->ids[chunk[i]] > after)
                heap_offer(ids, n, max, m->ids[chunk[i]]);
        from = got > 0 ? chunk[got - 1] + 1 : 0;
    } while (got == PULL_CHUNK);
    for (size_t left = *n; left > 1; left--) { /* the greatest goes to the end, again and again */
        uint64_t id = ids[0];
        ids[0] = ids[left - 1];
        ids[left - 1] = id;
        heap_sink(ids, left - 1, 0);
    }
    return OK;
}
