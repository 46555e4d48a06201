/* The hub: a hash table of streams by person, in shards with a lock each, and in front of it a
 * table of counters that answers "nobody" for nearly everybody without any lock.
 *
 * Streams are chained through themselves, those of one person in one chain; so there is no entry
 * per person, and how many streams a person has is counted by walking a chain of a few. A counter
 * belongs to many people: zero means that none of them listens, anything else that the shard must
 * be asked.
 *
 * Locks: a shard's lock is held to change or walk a chain, never to send. Who sends takes
 * references, lets go, and then calls the streams, whose own locks are thus never taken under a
 * shard's. */
#include "net/hub.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "net/stream_state.h"

enum { SHARDS = 64, SHARD_BITS = 6, BUCKETS_MIN = 16 };

/* Counters per stream that the node has room for: fewer, and the shards are asked in vain. */
enum { COUNTERS_PER_STREAM = 4, COUNTERS_MIN = 1024, COUNTERS_MAX = 1 << 20 };

struct shard {
    _Alignas(64) pthread_mutex_t lock;
    struct stream **buckets;
    size_t bucket_count;
    size_t stream_count;
    size_t person_count;
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
    for (size_t i = 0; i < SHARDS; i++)
        pthread_mutex_init(&h->shards[i].lock, NULL);
    return h;
}

void hub_free(struct hub *h)
{
    if (!h)
        return;
    CHECK(atomic_load(&h->streams) == 0);
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_destroy(&h->shards[i].lock);
        free(h->shards[i].buckets);
    }
    free(h->counters);
    free(h);
}

static void count(_Atomic uint64_t *counter, uint64_t n)
{
    if (n > 0)
        atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* ---- the table, under the lock of the shard ---- */

static struct shard *shard_of(struct hub *h, uint64_t hash)
{
    return &h->shards[hash >> (64 - SHARD_BITS)];
}

static _Atomic uint32_t *counter_of(struct hub *h, uint64_t hash)
{
    return &h->counters[(hash >> 16) & h->counter_mask];
}

static struct stream **bucket_of(const struct shard *shard, uint64_t hash)
{
    return &shard->buckets[hash & (shard->bucket_count - 1)];
}

static void grow(struct shard *shard)
{
    if (shard->stream_count < shard->bucket_count)
        return;
    struct shard grown = {.bucket_count =
                              shard->bucket_count > 0 ? shard->bucket_count * 2 : BUCKETS_MIN};
    grown.buckets = calloc(grown.bucket_count, sizeof *grown.buckets);
    CHECK(grown.buckets); /* eight bytes a stream */
    for (size_t i = 0; i < shard->bucket_count; i++) {
        struct stream *next;
        for (struct stream *s = shard->buckets[i]; s; s = next) {
            next = s->hub_next;
            struct stream **bucket = bucket_of(&grown, hash_u64(s->person));
            s->hub_next = *bucket;
            *bucket = s;
        }
    }
    free(shard->buckets);
    shard->buckets = grown.buckets;
    shard->bucket_count = grown.bucket_count;
}

/* The person's streams; `out` may be NULL, else each comes with a reference. */
static unsigned find(const struct shard *shard, uint64_t hash, uint64_t person, struct stream **out)
{
    unsigned n = 0;
    if (shard->bucket_count == 0)
        return 0;
    for (struct stream *s = *bucket_of(shard, hash); s; s = s->hub_next) {
        if (s->person != person)
            continue;
        if (out)
            out[n] = stream_ref(s);
        n++;
    }
    return n;
}

/* ---- joining and leaving ---- */

static enum err join(struct hub *h, struct shard *shard, uint64_t hash, struct stream *s)
{
    unsigned has = find(shard, hash, s->person, NULL);
    if (has >= h->config.person_max)
        return ERR_RATE_LIMITED;
    grow(shard);
    struct stream **bucket = bucket_of(shard, hash);
    s->hub_next = *bucket;
    *bucket = stream_ref(s);
    s->joined = true;
    shard->stream_count++;
    atomic_fetch_add(counter_of(h, hash), 1);
    if (has == 0) {
        shard->person_count++;
        if (h->config.listen)
            h->config.listen(h->config.ctx, s->person, true);
    }
    return OK;
}

enum err hub_join(struct hub *h, uint64_t person, struct stream *s)
{
    CHECK(!s->hub);
    enum err e = ERR_OVERLOADED;
    if (atomic_fetch_add(&h->streams, 1) < h->config.streams_max) {
        uint64_t hash = hash_u64(person);
        struct shard *shard = shard_of(h, hash);
        s->person = person;
        pthread_mutex_lock(&shard->lock);
        e = join(h, shard, hash, s);
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

static bool leave(struct hub *h, struct shard *shard, uint64_t hash, struct stream *s)
{
    if (!s->joined)
        return false;
    struct stream **link = bucket_of(shard, hash);
    while (*link != s)
        link = &(*link)->hub_next;
    *link = s->hub_next;
    s->joined = false;
    shard->stream_count--;
    atomic_fetch_sub(counter_of(h, hash), 1);
    if (find(shard, hash, s->person, NULL) == 0) {
        shard->person_count--;
        if (h->config.listen)
            h->config.listen(h->config.ctx, s->person, false);
    }
    return true;
}

void hub_leave(struct hub *h, struct stream *s)
{
    uint64_t hash = hash_u64(s->person);
    struct shard *shard = shard_of(h, hash);
    pthread_mutex_lock(&shard->lock);
    bool left = leave(h, shard, hash, s);
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
    unsigned n = find(shard, hash, person, out);
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
    bool has = find(shard, hash, person, NULL) > 0;
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
        out->persons += shard->person_count;
        pthread_mutex_unlock(&shard->lock);
    }
    out->joined = atomic_load_explicit(&h->joined, memory_order_relaxed);
    out->refused = atomic_load_explicit(&h->refused, memory_order_relaxed);
    out->sent = atomic_load_explicit(&h->sent, memory_order_relaxed);
    out->merged = atomic_load_explicit(&h->merged, memory_order_relaxed);
    out->slow = atomic_load_explicit(&h->slow, memory_order_relaxed);
}
