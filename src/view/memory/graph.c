/* The graph as delivery and reads see it: walking an author's followers or a group's members,
 * visibility between two accounts, and neighbours. */
#include "base/check.h"
#include "view/memory/driver.h"

enum { READ_MIN = 256, READ_MAX = 1024, VISIBLE_CHUNK = 64, NEIGHBOUR_CHUNK = 256 };

/* ---- audiences ---- */

/* Visits from now on count as not before the walk's start; see account_seen. */
static void note_walk(struct memory_views *m, const struct audience_cursor *c)
{
    if (c->part == AUDIENCE_ALL)
        return;
    uint32_t started = seen_seconds(c->started_ms);
    uint32_t before = atomic_load(&m->walked_at);
    while (before < started && !atomic_compare_exchange_weak(&m->walked_at, &before, started)) {
    }
}
static bool wanted(struct memory_views *m, const struct seen_filter *f, _Atomic uint64_t *awake,
                   uint32_t slot)
{
    if (!flag_get(awake, slot) && !flag_get(m->listening, slot))
        return false;
    /* Not read in vain: it is a line of memory for each follower. In one order with walked_at. */
    return f->part == AUDIENCE_ALL || seen_filter_takes(f, atomic_load(&m->seen[slot]));
}

static size_t read_followers(struct memory_views *m, uint32_t author, uint64_t from, uint32_t *out,
                             size_t max)
{
    if (from >= ACCOUNTS_MAX)
        return 0;
    person_lock(m, author);
    size_t n = follower_set_read(&m->people[author].followers, (uint32_t)from, out, max);
    person_unlock(m, author);
    return n;
}

/* Followers are copied in chunks under the latch and filtered outside it. When the page is full the
 * rest of the chunk is still looked through, so that the last page can say that it is the last. */
static void read_page(struct memory_views *m, uint64_t author, struct audience_cursor *cursor,
                      uint64_t *members, size_t max, size_t *n)
{
    uint32_t slot = directory_find(&m->directory, author);
    *n = 0;
    if (slot == DIRECTORY_NONE) {
        cursor->end = true;
        return;
    }
    struct seen_filter filter = seen_filter_of(cursor);
    _Atomic uint64_t *awake = flag_get(m->grouped, slot) ? m->inbox_awake : m->awake;
    note_walk(m, cursor);
    while (!cursor->end) {
        uint32_t chunk[READ_MAX];
        size_t room = max - *n + 1; /* one more shows whether this is the end */
        size_t ask = room < READ_MIN ? READ_MIN : room < READ_MAX ? room : READ_MAX;
        size_t got = read_followers(m, slot, cursor->after, chunk, ask);
        for (size_t i = 0; i < got; i++) {
            if (wanted(m, &filter, awake, chunk[i])) {
                if (*n == max)
                    return; /* `after` lies before this one */
                members[(*n)++] = chunk[i];
            }
            cursor->after = (uint64_t)chunk[i] + 1;
        }
        cursor->end = got < ask;
        if (*n == max)
            break;
    }
}

static void audiences(struct graph *base, struct audience_page *pages, size_t n)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, graph);
    bool lost = is_lost(m);
    for (size_t i = 0; i < n; i++) {
        struct audience_page *p = &pages[i];
        p->n = 0;
        p->error = lost ? ERR_UNAVAILABLE : OK;
        if (!lost)
            read_page(m, p->author, &p->cursor, p->members, p->max, &p->n);
    }
}

static enum err seen_since(struct graph *base, const uint64_t *members, size_t n, int64_t since_ms,
                           bool *out)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, graph);
    uint32_t since = seen_seconds(since_ms);
    check_handles(m, members, n);
    for (size_t i = 0; i < n; i++)
        out[i] = atomic_load_explicit(&m->seen[members[i]], memory_order_relaxed) >= since;
    return OK;
}

/* ---- visible ---- */

static bool may_see(struct memory_views *m, const struct person *p, uint32_t author)
{
    return author != DIRECTORY_NONE && slot_list_has(&p->following, author) &&
           !(p->mutes && slot_list_has(p->mutes, author)) && !flag_get(m->hidden, author);
}

static enum err visible(struct graph *base, uint64_t viewer, const uint64_t *authors, size_t n,
                        bool *out)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, graph);
    uint32_t slot = directory_find(&m->directory, viewer);
    if (is_lost(m))
        return ERR_NEEDS_TRUTH;
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
static enum err neighbours(struct graph *base, uint64_t account, bool followers, uint64_t after,
                           uint64_t *ids, size_t max, size_t *n)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, graph);
    uint32_t slot = directory_find(&m->directory, account);
    *n = 0;
    if (is_lost(m))
        return ERR_NEEDS_TRUTH;
    if (slot == DIRECTORY_NONE)
        return ERR_NOT_FOUND;
    uint32_t chunk[NEIGHBOUR_CHUNK], from = 0;
    size_t got;
    do {
        got = max > 0 ? read_neighbours(m, slot, followers, from, chunk, NEIGHBOUR_CHUNK) : 0;
        for (size_t i = 0; i < got; i++)
            if (m->ids[chunk[i]] > after)
                heap_offer(ids, n, max, m->ids[chunk[i]]);
        from = got > 0 ? chunk[got - 1] + 1 : 0;
    } while (got == NEIGHBOUR_CHUNK);
    for (size_t left = *n; left > 1; left--) { /* the greatest goes to the end, again and again */
        uint64_t id = ids[0];
        ids[0] = ids[left - 1];
        ids[left - 1] = id;
        heap_sink(ids, left - 1, 0);
    }
    return OK;
}

/* ---- extent ---- */

static enum err extent(struct graph *base, uint64_t author, uint64_t after, uint64_t *passed,
                       uint64_t *all)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, graph);
    uint32_t slot = directory_find(&m->directory, author);
    if (is_lost(m))
        return ERR_UNAVAILABLE;
    *passed = *all = 0;
    if (slot == DIRECTORY_NONE)
        return OK;
    person_lock(m, slot);
    const struct follower_set *followers = &m->people[slot].followers;
    *all = followers->count;
    *passed = after >= ACCOUNTS_MAX ? *all : follower_set_below(followers, (uint32_t)after);
    person_unlock(m, slot);
    return OK;
}

const struct graph_ops memory_graph_ops = {.audiences = audiences,
                                           .visible = visible,
                                           .seen_since = seen_since,
                                           .neighbours = neighbours,
                                           .extent = extent};
