/* Delivery: walking an author's followers, or a group's members, and writing a post into their
 * timelines. This is the hot path.
 *
 * A push is bound by memory: each member costs one line of the timelines column and one line of
 * a block somewhere in the pool. So the loop asks for both some members ahead, and the members come
 * sorted, which makes the first nearly sequential and lets a run of neighbours share one latch. */
#include "base/check.h"
#include "view/memory/engine.h"

enum { HEADER_AHEAD = 32, TAIL_AHEAD = 14, READ_MIN = 256, READ_MAX = 1024 };

/* How far in the past a visit may lie when it is reported: a request notes the time and the views
 * learn of it a moment later. Whoever was last seen within this much before a walk began is
 * therefore met by the walk over the rest, too. */
enum { SEEN_LAG_S = 60 };

struct seen_filter {
    enum audience_part part;
    uint32_t since, until;   /* seconds; the active are those seen at or after `since` */
    _Atomic uint64_t *awake; /* who has what is pushed to */
};

static struct seen_filter filter_of(struct memory_views *m, const struct audience_cursor *c,
                                    uint32_t slot)
{
    uint32_t started = seen_seconds(c->started_ms);
    return (struct seen_filter){c->part, seen_seconds(c->active_since_ms),
                                started > SEEN_LAG_S ? started - SEEN_LAG_S : 0,
                                flag_get(m->grouped, slot) ? m->inbox_awake : m->awake};
}

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

static bool wanted(struct memory_views *m, const struct seen_filter *f, uint32_t slot)
{
    if (!flag_get(f->awake, slot) && !flag_get(m->listening, slot))
        return false;
    if (f->part == AUDIENCE_ALL)
        return true;
    uint32_t seen = atomic_load(&m->seen[slot]); /* in one order with walked_at */
    if (f->part == AUDIENCE_ACTIVE)
        return seen >= f->since;
    return seen < f->since || seen >= f->until;
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
enum err memory_audience(struct views *v, uint64_t author, struct audience_cursor *cursor,
                         uint64_t *members, size_t max, size_t *n)
{
    struct memory_views *m = memory_of(v);
    uint32_t slot = directory_find(&m->directory, author);
    *n = 0;
    if (slot == DIRECTORY_NONE) {
        cursor->end = true;
        return OK;
    }
    struct seen_filter filter = filter_of(m, cursor, slot);
    note_walk(m, cursor);
    while (!cursor->end) {
        uint32_t chunk[READ_MAX];
        size_t room = max - *n + 1; /* one more tells whether this is the end */
        size_t ask = room < READ_MIN ? READ_MIN : room < READ_MAX ? room : READ_MAX;
        size_t got = read_followers(m, slot, cursor->after, chunk, ask);
        for (size_t i = 0; i < got; i++) {
            if (wanted(m, &filter, chunk[i])) {
                if (*n == max)
                    return OK; /* `after` lies before this one */
                members[(*n)++] = chunk[i];
            }
            cursor->after = (uint64_t)chunk[i] + 1;
        }
        cursor->end = got < ask;
        if (*n == max)
            break;
    }
    return OK;
}

void check_handles(struct memory_views *m, const uint64_t *members, size_t n)
{
    uint64_t all = atomic_load_explicit(&m->accounts, memory_order_acquire);
    uint64_t greatest = 0;
    for (size_t i = 0; i < n; i++)
        greatest = members[i] > greatest ? members[i] : greatest;
    CHECK(n == 0 || greatest < all);
}

enum err memory_seen(struct views *v, const uint64_t *members, size_t n, int64_t since_ms,
                     bool *out)
{
    struct memory_views *m = memory_of(v);
    uint32_t since = seen_seconds(since_ms);
    check_handles(m, members, n);
    for (size_t i = 0; i < n; i++)
        out[i] = atomic_load_explicit(&m->seen[members[i]], memory_order_relaxed) >= since;
    return OK;
}

enum err memory_push(struct views *v, uint64_t post, const uint64_t *members, size_t n,
                     size_t *added)
{
    struct memory_views *m = memory_of(v);
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
        uint64_t ears = ears_of(m, stripe), told = 0;
        do {
            if (i + HEADER_AHEAD < n)
                __builtin_prefetch(&timelines[members[i + HEADER_AHEAD]], 1);
            if (i + TAIL_AHEAD < n)
                timeline_prefetch(&timelines[members[i + TAIL_AHEAD]], env.cap);
            struct timeline *t = &timelines[members[i]];
            bool came = timeline_add(t, &env, post);
            total += came;
            if (ears && (came || t->state != TIMELINE_READY))
                told |= ears & stripe_bit((uint32_t)members[i]);
            i++;
        } while (i < n && members[i] >> STRIPE_BITS == stripe);
        latch_unlock(&m->latches[stripe]);
        if (told)
            tell(m, stripe, told, VIEW_PART_TIMELINE);
    }
    *added = total;
    tally_add(m, &(struct tally){.entries = env.entries});
    return OK;
}

enum err memory_retract(struct views *v, uint64_t post, const uint64_t *members, size_t n,
                        size_t *removed)
{
    struct memory_views *m = memory_of(v);
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
