/* Buckets are kept as one number each: the time at which the bucket will be full again
 * (`full_at_ns`; the "theoretical arrival time" of GCRA). Taking a token moves it by the token's
 * interval; a token is there while it is not more than burst × interval ahead of now. Nothing has
 * to be refilled, and a bucket whose time is past is full: indistinguishable from one that was
 * never there.
 *
 * The table is a set-associative cache: a key may live in one set of SET_SIZE slots only, so that a
 * lookup is a scan of three cache lines and the table never grows. Shards of sets share a lock. */
#include "net/limits.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

enum { SET_SIZE = 8, SHARDS = 64 };

#define NS_PER_S INT64_C(1000000000)

struct slot {
    uint64_t key;
    int64_t full_at_ns; /* 0: empty */
    uint32_t class;
};

struct shard {
    _Alignas(64) pthread_mutex_t lock;
};

struct limits {
    struct clock *clock;
    size_t set_mask;
    struct slot *slots;
    struct shard shards[SHARDS];
};

struct limits *limits_new(struct clock *clock, size_t entries_max)
{
    size_t sets = SHARDS;
    while (sets * SET_SIZE < entries_max)
        sets *= 2;
    struct limits *l = aligned_alloc(64, (sizeof *l + 63) & ~(size_t)63);
    CHECK(l);
    l->clock = clock;
    l->set_mask = sets - 1;
    l->slots = calloc(sets * SET_SIZE, sizeof *l->slots);
    CHECK(l->slots);
    for (size_t i = 0; i < SHARDS; i++)
        pthread_mutex_init(&l->shards[i].lock, NULL);
    return l;
}

void limits_free(struct limits *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < SHARDS; i++)
        pthread_mutex_destroy(&l->shards[i].lock);
    free(l->slots);
    free(l);
}

/* The slot of the key in its set; when it has none, the one that is full, or nearest to it. */
static struct slot *find_slot(struct slot *set, unsigned class, uint64_t key)
{
    struct slot *fullest = set;
    for (size_t i = 0; i < SET_SIZE; i++) {
        if (set[i].key == key && set[i].class == class && set[i].full_at_ns != 0)
            return &set[i];
        if (set[i].full_at_ns < fullest->full_at_ns)
            fullest = &set[i];
    }
    *fullest = (struct slot){.key = key, .class = class};
    return fullest;
}

static int64_t seconds_up(int64_t ns)
{
    return (ns + NS_PER_S - 1) / NS_PER_S;
}

static int64_t interval_of(int64_t rate_per_s)
{
    return rate_per_s > NS_PER_S ? 1 : NS_PER_S / rate_per_s;
}

static size_t set_of(const struct limits *l, unsigned class, uint64_t key)
{
    return (size_t)hash_u64(key ^ ((uint64_t) class << 56) ^ class) & l->set_mask;
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

    size_t set = set_of(l, class, key);
    struct shard *shard = &l->shards[set % SHARDS];
    pthread_mutex_lock(&shard->lock);
    struct slot *slot = find_slot(&l->slots[set * SET_SIZE], class, key);
    int64_t start = slot->full_at_ns > now ? slot->full_at_ns : now;
    int64_t after = start + interval;
    bool taken = after - now <= capacity;
    if (taken)
        slot->full_at_ns = after;
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
    size_t set = set_of(l, class, key);
    struct shard *shard = &l->shards[set % SHARDS];
    pthread_mutex_lock(&shard->lock);
    struct slot *slots = &l->slots[set * SET_SIZE];
    for (size_t i = 0; i < SET_SIZE; i++) {
        if (slots[i].key == key && slots[i].class == class && slots[i].full_at_ns != 0) {
            int64_t back = slots[i].full_at_ns - interval_of(rate_per_s);
            slots[i].full_at_ns = back > 0 ? back : 0;
            break;
        }
    }
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
