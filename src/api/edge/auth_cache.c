/* Caches of base/cache.h under 64 locks. The key is a cryptographic hash, so any of its bits choose
 * a set, and only tokens that truth accepted are stored: a stranger cannot fill it. Within a set
 * the entry that ends first gives way. A slot is one cache line.
 *
 * Forgets are numbered by one counter; `forgotten[stripe]` is the number of the last forget that
 * hit the stripe. Two accounts that share a stripe cost each other a needless look into truth, no
 * more. */
#include "api/edge/auth_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/cache.h"
#include "base/check.h"
#include "base/hash.h"

enum { SHARDS = 64, STRIPES = 16384 };

struct slot {
    uint8_t key[AUTH_KEY_BYTES];
    uint64_t stamp;
    int64_t valid_until_us;
    uint64_t account, session, key_id; /* a key has no session: its rate stands there */
    int32_t seen_at_s;
    uint16_t scopes;
    bool control;
    bool expires; /* a JWT, which has no session: that is when it does */
};

_Static_assert(sizeof(struct slot) == 64, "one line");

struct shard {
    _Alignas(64) pthread_mutex_t lock;
    struct cache slots;
};

struct auth_cache {
    struct shard shards[SHARDS];
    _Atomic uint64_t forgets;
    _Atomic uint64_t forgotten[STRIPES];
};

static int64_t worth(const void *slot)
{
    return ((const struct slot *)slot)->valid_until_us;
}

static const struct cache_policy policy = {
    .slot_bytes = sizeof(struct slot), .key_bytes = AUTH_KEY_BYTES, .worth = worth};

struct auth_cache *auth_cache_new(size_t entries_max)
{
    struct auth_cache *c = aligned_alloc(64, (sizeof *c + 63) / 64 * 64);
    CHECK(c);
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&c->shards[i].lock, NULL);
        CHECK(cache_init(&c->shards[i].slots, &policy, entries_max / SHARDS, 0));
    }
    return c;
}

void auth_cache_free(struct auth_cache *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_destroy(&c->shards[i].lock);
        cache_done(&c->shards[i].slots);
    }
    free(c);
}

static size_t stripe_of(uint64_t id)
{
    return hash_u64(id) % STRIPES;
}

uint64_t auth_cache_stamp(struct auth_cache *c)
{
    return atomic_load(&c->forgets);
}

void auth_cache_forget(struct auth_cache *c, uint64_t account_or_key)
{
    uint64_t number = atomic_fetch_add(&c->forgets, 1) + 1;
    _Atomic uint64_t *last = &c->forgotten[stripe_of(account_or_key)];
    uint64_t seen = atomic_load(last);
    while (seen < number && !atomic_compare_exchange_weak(last, &seen, number))
        ;
}

static bool is_forgotten(struct auth_cache *c, uint64_t stamp, uint64_t id)
{
    return id != 0 && atomic_load(&c->forgotten[stripe_of(id)]) > stamp;
}

static uint64_t hash_of(const uint8_t *key)
{
    uint64_t hash;
    memcpy(&hash, key + 8, sizeof hash);
    return hash;
}

static struct shard *shard_of(struct auth_cache *c, uint64_t hash)
{
    return &c->shards[(hash >> 48) % SHARDS];
}

static int32_t seconds_of(int64_t us)
{
    int64_t s = us / 1000000;
    return s < INT32_MIN ? INT32_MIN : s > INT32_MAX ? INT32_MAX : (int32_t)s;
}

static struct slot slot_with(const uint8_t *key, uint64_t stamp, const struct auth_entry *entry)
{
    struct slot s = {.stamp = stamp,
                     .valid_until_us = entry->valid_until_us,
                     .account = entry->caller.account,
                     .session = entry->caller.session,
                     .key_id = entry->caller.key,
                     .scopes = (uint16_t)entry->caller.scopes,
                     .control = entry->caller.control};
    if (s.key_id) {
        s.session = (uint64_t)entry->caller.key_rate;
    } else if (!s.session && entry->caller.expires_at_ms) {
        s.session = (uint64_t)entry->caller.expires_at_ms;
        s.expires = true;
    }
    memcpy(s.key, key, AUTH_KEY_BYTES);
    return s;
}

void auth_cache_put(struct auth_cache *c, const uint8_t key[AUTH_KEY_BYTES], uint64_t stamp,
                    const struct auth_entry *entry)
{
    uint64_t hash = hash_of(key);
    struct shard *shard = shard_of(c, hash);
    int32_t seen_at_s = seconds_of(entry->seen_at_us);
    pthread_mutex_lock(&shard->lock);
    struct slot *place = cache_find(&shard->slots, hash, key);
    bool newer = !place || stamp >= place->stamp; /* of two fillers: it knows more */
    if (place)
        seen_at_s = place->seen_at_s;
    else
        place = cache_claim(&shard->slots, hash, key, 0);
    if (newer) {
        *place = slot_with(key, stamp, entry);
        place->seen_at_s = seen_at_s;
    }
    pthread_mutex_unlock(&shard->lock);
}

bool auth_cache_find(struct auth_cache *c, const uint8_t key[AUTH_KEY_BYTES], int64_t now_us,
                     int64_t seen_every_us, struct caller *caller, bool *mark_last_seen)
{
    uint64_t hash = hash_of(key);
    struct shard *shard = shard_of(c, hash);
    bool found = false;
    *mark_last_seen = false;
    pthread_mutex_lock(&shard->lock);
    struct slot *s = cache_find(&shard->slots, hash, key);
    if (s && now_us < s->valid_until_us && !is_forgotten(c, s->stamp, s->account) &&
        !is_forgotten(c, s->stamp, s->key_id)) {
        found = true;
        *caller = (struct caller){.account = s->account,
                                  .session = s->expires || s->key_id ? 0 : s->session,
                                  .key = s->key_id,
                                  .key_rate = s->key_id ? (int64_t)s->session : 0,
                                  .expires_at_ms = s->expires ? (int64_t)s->session : 0,
                                  .scopes = s->scopes,
                                  .control = s->control};
        if (now_us - s->seen_at_s * INT64_C(1000000) >= seen_every_us && caller->account) {
            s->seen_at_s = seconds_of(now_us);
            *mark_last_seen = true;
        }
    }
    pthread_mutex_unlock(&shard->lock);
    return found;
}

bool auth_cache_knew(struct auth_cache *c, const uint8_t key[AUTH_KEY_BYTES])
{
    uint64_t hash = hash_of(key);
    struct shard *shard = shard_of(c, hash);
    pthread_mutex_lock(&shard->lock);
    bool there = cache_find(&shard->slots, hash, key) != NULL;
    pthread_mutex_unlock(&shard->lock);
    return there;
}

void auth_cache_drop(struct auth_cache *c, const uint8_t key[AUTH_KEY_BYTES])
{
    uint64_t hash = hash_of(key);
    struct shard *shard = shard_of(c, hash);
    pthread_mutex_lock(&shard->lock);
    struct slot *s = cache_find(&shard->slots, hash, key);
    if (s)
        cache_remove(&shard->slots, s);
    pthread_mutex_unlock(&shard->lock);
}
