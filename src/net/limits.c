/* Buckets are kept as one number each: the time at which the bucket will be full again
 * (`full_at_ns`; the "theoretical arrival time" of GCRA). Taking a token moves it by the token's
 * interval; a token is there while it is not more than burst × interval ahead of now. Nothing has
 * to be refilled, and a bucket whose time is past is full: indistinguishable from one that was
 * never there.
 *
 * Buckets lie in bounded caches, shards of them under a lock each. The worth of a bucket there is
 * its time: the one that is full, or nearest to it, gives way. */
#include "net/limits.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "base/check.h"
#include "base/hash.h"

enum { SHARDS = 64 };

#define NS_PER_S INT64_C(1000000000)

struct bucket {
    uint64_t class, key; /* the class plus one: never 0 */
    int64_t full_at_ns;
};

struct shard {
    _Alignas(64) pthread_mutex_t lock;
    struct cache buckets;
};

struct limits {
    struct clock *clock;
    struct shard shards[SHARDS];
};

static int64_t full_at(const void *slot)
{
    return ((const struct bucket *)slot)->full_at_ns;
}

static const struct cache_policy policy = {
    .slot_bytes = sizeof(struct bucket), .key_bytes = 2 * sizeof(uint64_t), .worth = full_at};

struct limits *limits_new(struct clock *clock, size_t entries_max)
{
    struct limits *l = aligned_alloc(64, (sizeof *l + 63) & ~(size_t)63);
    CHECK(l);
    l->clock = clock;
    size_t share = CACHE_WAYS;
    while (share * SHARDS < entries_max)
        share *= 2;
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&l->shards[i].lock, NULL);
        CHECK(cache_init(&l->shards[i].buckets, &policy, share, 0));
    }
    return l;
}

void limits_free(struct limits *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_destroy(&l->shards[i].lock);
        cache_done(&l->shards[i].buckets);
    }
    free(l);
}

static int64_t seconds_up(int64_t ns)
{
    return (ns + NS_PER_S - 1) / NS_PER_S;
}

static int64_t interval_of(int64_t rate_per_s)
{
    return rate_per_s > NS_PER_S ? 1 : NS_PER_S / rate_per_s;
}

static uint64_t hash_of(unsigned class, uint64_t key)
{
    return hash_u64(key ^ ((uint64_t) class << 56) ^ class);
}

static struct shard *shard_of(struct limits *l, uint64_t hash)
{
    return &l->shards[hash >> 58];
}

/* A missing bucket is full. */
static struct bucket *find(struct shard *shard, unsigned class, uint64_t key, bool make)
{
    uint64_t words[2] = {(uint64_t) class + 1, key}, hash = hash_of(class, key);
    struct bucket *b = cache_find(&shard->buckets, hash, words);
    if (!b && make) {
        b = cache_claim(&shard->buckets, hash, words, 0);
        b->full_at_ns = 0;
    }
    return b;
}

bool limits_take(struct limits *l, unsigned class, uint64_t key, int64_t rate_per_s, int64_t burst,
                 struct limit_state *out)
{
    *out = (struct limit_state){0};
    if (rate_per_s <= 0)
        return true;
    int64_t interval = interval_of(rate_per_s);
    if (burst < 1)
        burst = 1;
    if (burst > INT64_MAX / 4 / interval)
        burst = INT64_MAX / 4 / interval;
    int64_t capacity = burst * interval;
    int64_t now = clock_mono_us(l->clock) * 1000;

    struct shard *shard = shard_of(l, hash_of(class, key));
    pthread_mutex_lock(&shard->lock);
    struct bucket *bucket = find(shard, class, key, true);
    int64_t start = bucket->full_at_ns > now ? bucket->full_at_ns : now;
    int64_t after = start + interval;
    bool taken = after - now <= capacity;
    if (taken)
        bucket->full_at_ns = after;
    else
        after = start;
    pthread_mutex_unlock(&shard->lock);

    out->limit = burst;
    out->remaining = after - now >= capacity ? 0 : (capacity - (after - now)) / interval;
    out->reset_s = seconds_up(after - now);
    if (!taken)
        out->retry_after_s = seconds_up(after + interval - now - capacity);
    return taken;
}

/* A bucket that was forgotten meanwhile is full: nothing is owed to it. */
void limits_give_back(struct limits *l, unsigned class, uint64_t key, int64_t rate_per_s)
{
    if (rate_per_s <= 0)
        return;
    struct shard *shard = shard_of(l, hash_of(class, key));
    pthread_mutex_lock(&shard->lock);
    struct bucket *bucket = find(shard, class, key, false);
    if (bucket)
        bucket->full_at_ns -= interval_of(rate_per_s);
    pthread_mutex_unlock(&shard->lock);
}

uint64_t limits_peer_key(struct str peer)
{
    char text[INET6_ADDRSTRLEN];
    uint8_t address[16];
    if (peer.len < sizeof text && memchr(peer.ptr, ':', peer.len)) {
        memcpy(text, peer.ptr, peer.len);
        text[peer.len] = '\0';
        if (inet_pton(AF_INET6, text, address) == 1)
            return hash_bytes(address, 8);
    }
    return hash_bytes(peer.ptr, peer.len);
}
