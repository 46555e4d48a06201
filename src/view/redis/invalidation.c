/* The invalidation listener: traces, and whether they are still valid.
 *
 * Keys fall into places of a table by their hash. Each place counts the received changes of keys in
 * it. To note a key is to remember its place and the count there, before it is read; it is the same
 * as long as the count is. Two keys in one place cost a page now and then.
 *
 * The **generation** stands for everything at once: it changes when some push message may have been
 * missed (a connection was lost) or are not to be believed (a suspicion), and nothing noted in
 * another one is the same. It changes before the loss can be overlooked: a trace of the new
 * generation uses nothing of what was lost.
 *
 * A thread has one trace at a time, found through a thread-local variable: reads are many layers
 * below the cache that keeps the page. invalidation_listener.c receives the push messages. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "view/redis/client.h"
#include "view/redis/invalidation_driver.h"

static _Thread_local struct {
    struct invalidation *invalidation;
    struct read_trace *trace;
} current;

static uint32_t place_of(struct str key)
{
    return (uint32_t)hash_bytes(key.ptr, key.len) & (INVALIDATION_PLACES - 1);
}

/* The hash with all last visits changes with every visit. Whatever else it says is also said by the
 * timelines: one that is dropped or made known is another key's change as well. */
static bool is_passed_over(struct str key)
{
    return key.len >= 2 && key.ptr[0] == KEY_PEOPLE && key.ptr[1] == '{';
}

/* ---- traces ---- */

static void redis_init(struct invalidation *base, struct read_trace *trace)
{
    struct redis_invalidation *w = redis_invalidation_of(base);
    trace->generation = atomic_load(&w->generation); /* before the look at the suspicion */
    trace->whole = !atomic_load(&w->suspect);
    trace->count = 0;
}

static void redis_begin(struct invalidation *base, struct read_trace *trace)
{
    CHECK(!current.invalidation);
    redis_init(base, trace);
    current.invalidation = base;
    current.trace = trace;
}

static void redis_end(struct invalidation *base, struct read_trace *trace)
{
    struct redis_invalidation *w = redis_invalidation_of(base);
    if (atomic_load(&w->generation) != trace->generation)
        trace->whole = false;
    if (current.trace != trace)
        return; /* nobody's own */
    CHECK(current.invalidation == base);
    current.invalidation = NULL;
    current.trace = NULL;
}

bool invalidation_traces(struct invalidation *w)
{
    return w && current.invalidation == w && current.trace->whole;
}

void invalidation_spoil(struct invalidation *w)
{
    if (w && current.invalidation == w)
        current.trace->whole = false;
}

void invalidation_note(struct invalidation *base, struct str key)
{
    if (invalidation_traces(base))
        invalidation_note_in(base, current.trace, key);
}

void invalidation_note_in(struct invalidation *base, struct read_trace *t, struct str key)
{
    struct redis_invalidation *w = redis_invalidation_of(base);
    if (!t->whole || is_passed_over(key))
        return;
    uint32_t place = place_of(key);
    for (unsigned i = 0; i < t->count; i++)
        if (t->reads[i].place == place)
            return; /* the count at its first reading is the one that matters */
    if (t->count == TRACE_READS_MAX) {
        t->whole = false;
        return;
    }
    t->reads[t->count++] = (struct traced_read){place, atomic_load(&w->places[place])};
}

/* ---- changes ---- */

void invalidation_heard(struct invalidation *base, struct str key)
{
    struct redis_invalidation *w = redis_invalidation_of(base);
    if (!w || is_passed_over(key))
        return;
    atomic_fetch_add(&w->places[place_of(key)], 1);
    atomic_fetch_add_explicit(&w->changes, 1, memory_order_relaxed);
}

void invalidation_lost(struct invalidation *base)
{
    struct redis_invalidation *w = redis_invalidation_of(base);
    atomic_fetch_add(&w->generation, 1);
    atomic_fetch_add_explicit(&w->lost, 1, memory_order_relaxed);
}

static bool redis_same(struct invalidation *base, uint64_t generation,
                       const struct traced_read *reads, size_t n)
{
    struct redis_invalidation *w = redis_invalidation_of(base);
    if (atomic_load(&w->suspect) || atomic_load(&w->generation) != generation)
        return false;
    for (size_t i = 0; i < n; i++)
        if (atomic_load_explicit(&w->places[reads[i].place % INVALIDATION_PLACES],
                                 memory_order_acquire) != reads[i].version)
            return false;
    return true;
}

/* A reader that sees the suspicion gone sees another generation than traces begun during it. */
static void redis_suspect(struct invalidation *base, bool on)
{
    struct redis_invalidation *w = redis_invalidation_of(base);
    pthread_mutex_lock(&w->lock);
    if (on && !atomic_load(&w->suspect)) {
        atomic_store(&w->suspect, true);
        invalidation_lost(base);
    } else if (!on && atomic_load(&w->suspect)) {
        invalidation_lost(base);
        atomic_store(&w->suspect, false);
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- the driver ---- */

static void redis_stats(struct invalidation *base, struct invalidation_stats *out)
{
    struct redis_invalidation *w = redis_invalidation_of(base);
    *out = (struct invalidation_stats){.asked = atomic_load(&w->asked),
                                       .round_trips = atomic_load(&w->round_trips),
                                       .changes = atomic_load(&w->changes),
                                       .lost = atomic_load(&w->lost)};
}

static void redis_free(struct invalidation *base)
{
    struct redis_invalidation *w = redis_invalidation_of(base);
    listener_stop(w);
    explicit_bzero(w->url.password, sizeof w->url.password);
    free(w->places);
    free(w);
}

static const struct invalidation_ops redis_ops = {
    .init = redis_init,
    .begin = redis_begin,
    .end = redis_end,
    .same = redis_same,
    .ask = listener_ask,
    .suspect = redis_suspect,
    .stats = redis_stats,
    .free = redis_free,
};

enum err invalidation_redis_open(const struct redis_config *config, struct invalidation **out)
{
    struct redis_invalidation *w = calloc(1, sizeof *w);
    CHECK(w);
    enum err e = client_url(config, &w->url);
    if (e) {
        free(w);
        return e;
    }
    w->invalidation.ops = &redis_ops;
    w->places = calloc(INVALIDATION_PLACES, sizeof *w->places);
    CHECK(w->places);
    atomic_init(&w->generation, 1);
    listener_start(w);
    *out = &w->invalidation;
    return OK;
}
