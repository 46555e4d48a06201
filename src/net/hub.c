/* The hub: a map from person to their streams, in shards with a lock each, and in front of it a
 * table of counters that answers "nobody" for nearly everybody without any lock.
 *
 * The streams of one person are chained through themselves: a few at most. A counter belongs to
 * many people: zero means that none of them listens, anything else that the shard must be asked.
 *
 * Locks: a shard's lock is held to change or walk a chain, never to send. Who sends takes
 * references, lets go, and then calls the streams, whose own locks are thus never taken under a
 * shard's. */
#include "net/hub.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/map.h"
#include "net/stream_state.h"

enum { SHARDS = 64, SHARD_BITS = 6 };

/* Counters per stream that the node has room for: fewer, and the shards are asked in vain. */
enum { COUNTERS_PER_STREAM = 4, COUNTERS_MIN = 1024, COUNTERS_MAX = 1 << 20 };

struct person {
    uint64_t key; /* one more than their id: never 0 */
    struct stream *first;
    size_t count; /* of streams */
};

struct shard {
    _Alignas(64) pthread_mutex_t lock;
    struct map persons;
    size_t stream_count;
};

struct hub {
    struct hub_config config;
    _Atomic uint32_t *counters;
    uint64_t counter_mask;
    _Atomic uint64_t streams; /* those about to join, too */
    _Atomic uint64_t joined, refused, sent, merged, slow;
    struct shard shards[SHARDS];
};

struct hub *hub_new(const struct hub_config *config)
{
    CHECK(config->person_max >= 1 && config->person_max <= HUB_PERSON_MAX);
    struct hub *h = aligned_alloc(64, (sizeof *h + 63) & ~(size_t)63);
    CHECK(h);
    memset(h, 0, sizeof *h);
    h->config = *config;
    size_t counters = COUNTERS_MIN;
    while (counters < COUNTERS_MAX && counters / COUNTERS_PER_STREAM < config->streams_max)
        counters *= 2;
    h->counter_mask = counters - 1;
    h->counters = calloc(counters, sizeof *h->counters);
    CHECK(h->counters);
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&h->shards[i].lock, NULL);
        map_init(&h->shards[i].persons, sizeof(struct person), sizeof(uint64_t));
    }
    return h;
}

void hub_free(struct hub *h)
{
    if (!h)
        return;
    CHECK(atomic_load(&h->streams) == 0);
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_destroy(&h->shards[i].lock);
        map_done(&h->shards[i].persons);
    }
    free(h->counters);
    free(h);
}

static void count(_Atomic uint64_t *counter, uint64_t n)
{
    if (n > 0)
        atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* ---- the map, under the lock of the shard ---- */

static struct shard *shard_of(struct hub *h, uint64_t hash)
{
    return &h->shards[hash >> (64 - SHARD_BITS)];
}

static _Atomic uint32_t *counter_of(struct hub *h, uint64_t hash)
{
    return &h->counters[(hash >> 16) & h->counter_mask];
}

static struct person *person_of(const struct shard *shard, uint64_t id)
{
    return map_find(&shard->persons, &(uint64_t){id + 1});
}

/* The person's streams, with a reference each. */
static unsigned find(const struct shard *shard, uint64_t person, struct stream **out)
{
    const struct person *p = person_of(shard, person);
    unsigned n = 0;
    for (struct stream *s = p ? p->first : NULL; s; s = s->hub_next)
        out[n++] = stream_ref(s);
    return n;
}

/* ---- joining and leaving ---- */

static enum err join(struct hub *h, struct shard *shard, struct stream *s)
{
    uint64_t key = s->person + 1;
    struct person *p = map_put(&shard->persons, &key, NULL);
    CHECK(p); /* some bytes for each who has a connection already */
    if (p->count >= h->config.person_max)
        return ERR_RATE_LIMITED;
    s->hub_next = p->first;
    p->first = stream_ref(s);
    s->joined = true;
    shard->stream_count++;
    atomic_fetch_add(counter_of(h, hash_u64(s->person)), 1);
    if (p->count++ == 0 && h->config.listen)
        h->config.listen(h->config.ctx, s->person, true);
    return OK;
}

enum err hub_join(struct hub *h, uint64_t person, struct stream *s)
{
    CHECK(!s->hub);
    enum err e = ERR_OVERLOADED;
    if (atomic_fetch_add(&h->streams, 1) < h->config.streams_max) {
        struct shard *shard = shard_of(h, hash_u64(person));
        s->person = person;
        pthread_mutex_lock(&shard->lock);
        e = join(h, shard, s);
        pthread_mutex_unlock(&shard->lock);
    }
    if (e != OK) {
        atomic_fetch_sub(&h->streams, 1);
        count(&h->refused, 1);
        return e;
    }
    s->hub = h;
    count(&h->joined, 1);
    return OK;
}

static bool leave(struct hub *h, struct shard *shard, struct stream *s)
{
    if (!s->joined)
        return false;
    struct person *p = person_of(shard, s->person);
    struct stream **link = &p->first;
    while (*link != s)
        link = &(*link)->hub_next;
    *link = s->hub_next;
    s->joined = false;
    shard->stream_count--;
    atomic_fetch_sub(counter_of(h, hash_u64(s->person)), 1);
    if (--p->count == 0) {
        map_remove(&shard->persons, p);
        if (h->config.listen)
            h->config.listen(h->config.ctx, s->person, false);
    }
    return true;
}

void hub_leave(struct hub *h, struct stream *s)
{
    struct shard *shard = shard_of(h, hash_u64(s->person));
    pthread_mutex_lock(&shard->lock);
    bool left = leave(h, shard, s);
    pthread_mutex_unlock(&shard->lock);
    if (left) {
        stream_unref(s);
        atomic_fetch_sub(&h->streams, 1);
    }
}

/* ---- sending ---- */

/* The person's streams, with a reference each; asks the shard only where somebody may be. */
static unsigned listeners(struct hub *h, uint64_t person, struct stream *out[HUB_PERSON_MAX])
{
    uint64_t hash = hash_u64(person);
    if (atomic_load_explicit(counter_of(h, hash), memory_order_relaxed) == 0)
        return 0;
    struct shard *shard = shard_of(h, hash);
    pthread_mutex_lock(&shard->lock);
    unsigned n = find(shard, person, out);
    pthread_mutex_unlock(&shard->lock);
    return n;
}

/* The change of which the caller tells must be visible before the counters are looked at: who joins
 * counts first and reads afterwards, so that one of the two sees the other. */
static void look_after_change(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

size_t hub_send(struct hub *h, const uint64_t *persons, size_t n, const struct frame_text *text)
{
    struct frame *f = NULL; /* made when there is somebody to send it to */
    uint64_t outcomes[4] = {0};
    look_after_change();
    for (size_t i = 0; i < n; i++) {
        struct stream *streams[HUB_PERSON_MAX];
        unsigned found = listeners(h, persons[i], streams);
        if (found > 0 && !f)
            f = frame_new(text);
        for (unsigned j = 0; j < found; j++) {
            outcomes[stream_send(streams[j], f)]++;
            stream_unref(streams[j]);
        }
    }
    if (f)
        frame_unref(f);
    size_t sent = outcomes[STREAM_TAKEN] + outcomes[STREAM_MERGED];
    count(&h->sent, sent);
    count(&h->merged, outcomes[STREAM_MERGED]);
    count(&h->slow, outcomes[STREAM_SLOW]);
    return sent;
}

void hub_close(struct hub *h, uint64_t person, const char *reason)
{
    struct stream *streams[HUB_PERSON_MAX];
    look_after_change();
    unsigned found = listeners(h, person, streams);
    for (unsigned i = 0; i < found; i++) {
        stream_close(streams[i], reason);
        stream_unref(streams[i]);
    }
}

/* ---- questions ---- */

bool hub_has(struct hub *h, uint64_t person)
{
    uint64_t hash = hash_u64(person);
    look_after_change();
    if (atomic_load_explicit(counter_of(h, hash), memory_order_relaxed) == 0)
        return false;
    struct shard *shard = shard_of(h, hash);
    pthread_mutex_lock(&shard->lock);
    bool has = person_of(shard, person) != NULL;
    pthread_mutex_unlock(&shard->lock);
    return has;
}

void hub_stats(struct hub *h, struct hub_stats *out)
{
    *out = (struct hub_stats){0};
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &h->shards[i];
        pthread_mutex_lock(&shard->lock);
        out->streams += shard->stream_count;
        out->persons += shard->persons.count;
        pthread_mutex_unlock(&shard->lock);
    }
    out->joined = atomic_load_explicit(&h->joined, memory_order_relaxed);
    out->refused = atomic_load_explicit(&h->refused, memory_order_relaxed);
    out->sent = atomic_load_explicit(&h->sent, memory_order_relaxed);
    out->merged = atomic_load_explicit(&h->merged, memory_order_relaxed);
    out->slow = atomic_load_explicit(&h->slow, memory_order_relaxed);
}
