/* The bounded cache. Keys are written atomically, for the sake of readers that only want to
 * prefetch; the rest of a slot is its owner's. A slot without a key has no meaning, whatever bytes
 * its owner left in it. */
#include "base/cache.h"

#include <sys/mman.h>

#include "base/check.h"

bool cache_init(struct cache *c, const struct cache_policy *policy, size_t slots_max,
                size_t bytes_max)
{
    CHECK((policy->key_bytes == 8 || policy->key_bytes == 16) &&
          policy->slot_bytes >= policy->key_bytes && policy->slot_bytes % 8 == 0);
    size_t sets = 1;
    while (sets * 2 * CACHE_WAYS <= slots_max)
        sets *= 2;
    *c = (struct cache){.policy = policy, .set_mask = sets - 1, .bytes_max = bytes_max};
    /* Fresh pages are zero, begin on a cache line and cost nothing until they are touched. */
    void *slots = mmap(NULL, cache_table_bytes(c), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED)
        return false;
    c->slots = slots;
    return true;
}

size_t cache_table_bytes(const struct cache *c)
{
    return (c->set_mask + 1) * CACHE_WAYS * c->policy->slot_bytes;
}

static char *slot_at(const struct cache *c, size_t i)
{
    return c->slots + i * c->policy->slot_bytes;
}

static bool is_free(const char *slot)
{
    return *(const uint64_t *)slot == 0;
}

static void set_key(const struct cache *c, char *slot, const uint64_t *key)
{
    uint64_t *words = (uint64_t *)slot;
    if (c->policy->key_bytes == 16)
        words[1] = key[1];
    __atomic_store_n(words, key[0], __ATOMIC_RELAXED);
}

void cache_remove(struct cache *c, void *slot)
{
    static const uint64_t none[2];
    if (c->policy->bytes)
        c->bytes -= c->policy->bytes(slot);
    c->count--;
    set_key(c, slot, none);
    if (c->policy->release)
        c->policy->release(slot);
}

void cache_done(struct cache *c)
{
    if (!c->slots)
        return;
    for (size_t i = 0; c->count > 0 && i < (c->set_mask + 1) * CACHE_WAYS; i++)
        if (!is_free(slot_at(c, i)))
            cache_remove(c, slot_at(c, i));
    munmap(c->slots, cache_table_bytes(c));
    *c = (struct cache){0};
}

/* Two rounds of the hand are enough: the first takes all worth away. */
static void make_room(struct cache *c, size_t bytes)
{
    while (c->bytes + bytes > c->bytes_max) {
        char *slot = slot_at(c, c->hand);
        c->hand = (c->hand + 1) % ((c->set_mask + 1) * CACHE_WAYS);
        if (is_free(slot))
            continue;
        if (c->policy->pass && c->policy->worth(slot) > 0)
            c->policy->pass(slot);
        else
            cache_remove(c, slot);
    }
}

/* A free slot of the set, or the slot of least worth. When even that one is worth something, the
 * clock has gone round the set: every slot loses its worth. */
static char *free_slot(struct cache *c, uint64_t hash)
{
    char *least = NULL;
    int64_t least_worth = 0;
    for (size_t way = 0; way < CACHE_WAYS; way++) {
        char *slot = cache_slot(c, hash, way, c->policy->slot_bytes);
        if (is_free(slot))
            return slot;
        int64_t worth = c->policy->worth(slot);
        if (!least || worth < least_worth) {
            least = slot;
            least_worth = worth;
        }
    }
    for (size_t way = 0; way < CACHE_WAYS && c->policy->pass && least_worth > 0; way++)
        c->policy->pass(cache_slot(c, hash, way, c->policy->slot_bytes));
    cache_remove(c, least);
    return least;
}

void *cache_claim(struct cache *c, uint64_t hash, const void *key, size_t bytes)
{
    CHECK(*(const uint64_t *)key != 0);
    char *slot = cache_find(c, hash, key);
    if (slot)
        cache_remove(c, slot);
    if (bytes > c->bytes_max / 4)
        return NULL;
    make_room(c, bytes);
    if (!slot)
        slot = free_slot(c, hash);
    set_key(c, slot, key);
    c->bytes += bytes;
    c->count++;
    return slot;
}
