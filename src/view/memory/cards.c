/* The in-memory cards driver.
 *
 * Shards, chosen by the key's hash, each with one latch, three bucket caches (posts, accounts, like
 * sets) and the tombstones of deleted posts. The budget is divided once, by fixed shares, among
 * kinds and shards.
 *
 * Tickets are the generations of key stripes. A change raises the generation of its key under the
 * shard's latch; a fill compares its ticket under the same latch. So a fill either was there before
 * the change, which then replaced or removed it, or sees a newer generation and gives up. Keys that
 * share a stripe make each other's fills fail now and then, which costs a fill and nothing else.
 *
 * `changes` counts changes of all keys, before and after the generation is raised, all under the
 * latch that a get of that key takes, too. Whoever remembers `changes`, then gets cards, then takes
 * tickets and finds `changes` as it was, has tickets of exactly the states that it got: a change
 * after one of the gets and before the ticket would have counted itself before it raised the
 * generation. Whoever remembers `changes`, then finds the tickets as they were, may from then on
 * compare `changes` alone: a change that the tickets did not show yet counts itself once more after
 * it raised the generation. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "view/memory/bucket_cache.h"
#include "view/memory/card_entry.h"
#include "view/memory/latch.h"
#include "view/memory/like_set.h"
#include "view/memory/memory.h"
#include "view/memory/tombstones.h"

enum {
    SHARDS_MAX = 64,
    SHARD_MIN_BYTES = 1 << 20,
    GENERATIONS_MIN = 1 << 12,
    GENERATIONS_MAX = 1 << 17,
    GENERATIONS_SHARE = 64, /* at most one part in this many of the budget, if it is large */
    LOOKAHEAD = 32,         /* keys prefetched at a time */
    /* shares of the budget, in sixteenths */
    SHARE_POSTS = 11,
    SHARE_ACCOUNTS = 2,
    SHARE_LIKES = 2,
    SHARE_TOMBSTONES = 1,
};

struct shard {
    _Alignas(64) struct latch latch;
    struct bucket_cache posts, accounts, likes;
    struct tombstones tombstones;
};

struct memory_cards {
    struct cards cards;
    struct clock *clock;
    size_t bytes_max;
    size_t shard_mask;
    struct shard *shards;
    _Atomic uint64_t post_hits, post_misses;
    _Atomic uint64_t changes;
    _Atomic bool suspect;
    size_t generation_mask;
    _Atomic uint64_t generations[];
};

/* A key's hash: the upper half chooses the shard, the lower half the bucket, the middle the
 * generation. */
static struct shard *shard_of(struct memory_cards *c, uint64_t hash)
{
    return &c->shards[(hash >> 56) & c->shard_mask];
}

static _Atomic uint64_t *generation_of(struct memory_cards *c, uint64_t hash)
{
    return &c->generations[(hash >> 32) & c->generation_mask];
}

static struct memory_cards *memory_of(struct cards *c)
{
    return (struct memory_cards *)c;
}

static uint64_t memory_tickets(struct cards *base, const uint64_t *keys, size_t n, card_ticket *out)
{
    struct memory_cards *c = memory_of(base);
    uint64_t changes = atomic_load(&c->changes);
    for (size_t i = 0; i < n; i++)
        out[i] = atomic_load(generation_of(c, hash_u64(keys[i])));
    return changes;
}

static void changed(struct memory_cards *c, uint64_t hash)
{
    atomic_fetch_add(&c->changes, 1);
    atomic_fetch_add(generation_of(c, hash), 1);
    atomic_fetch_add(&c->changes, 1);
}

static bool is_suspect(struct memory_cards *c)
{
    return atomic_load_explicit(&c->suspect, memory_order_relaxed);
}

/* May a fill with this ticket still be taken? */
static bool is_stale(struct memory_cards *c, uint64_t hash, card_ticket ticket)
{
    return is_suspect(c) || atomic_load(generation_of(c, hash)) != ticket;
}

static bool is_gone(struct memory_cards *c, struct shard *s, uint64_t id)
{
    return tombstones_count(&s->tombstones) > 0 &&
           tombstones_has(&s->tombstones, id, clock_wall_ms(c->clock));
}

/* ---- posts ---- */

static enum card_state find_post(struct memory_cards *c, uint64_t hash, uint64_t id,
                                 struct post_card *out, struct arena *arena)
{
    struct shard *s = shard_of(c, hash);
    enum card_state state = CARD_MISSING;
    latch_lock(&s->latch);
    const struct post_entry *e = (struct post_entry *)bucket_cache_find(&s->posts, hash, id);
    if (e) {
        post_entry_get(e, out, arena);
        state = CARD_FOUND;
    } else if (is_gone(c, s, id)) {
        state = CARD_GONE;
    }
    latch_unlock(&s->latch);
    return state;
}

static void memory_posts(struct cards *base, const uint64_t *ids, size_t n, struct post_card *out,
                         enum card_state *state, struct arena *arena)
{
    struct memory_cards *c = memory_of(base);
    uint64_t hits = 0;
    bool suspect = is_suspect(c);
    for (size_t from = 0; from < n; from += LOOKAHEAD) {
        uint64_t hashes[LOOKAHEAD];
        size_t count = n - from < LOOKAHEAD ? n - from : LOOKAHEAD;
        for (size_t i = 0; i < count; i++) {
            hashes[i] = hash_u64(ids[from + i]);
            bucket_cache_prefetch_bucket(&shard_of(c, hashes[i])->posts, hashes[i]);
        }
        for (size_t i = 0; i < count; i++)
            bucket_cache_prefetch_entry(&shard_of(c, hashes[i])->posts, hashes[i], ids[from + i]);
        for (size_t i = 0; i < count; i++) {
            state[from + i] = suspect
                                  ? CARD_MISSING
                                  : find_post(c, hashes[i], ids[from + i], &out[from + i], arena);
            hits += state[from + i] == CARD_FOUND;
        }
    }
    atomic_fetch_add_explicit(&c->post_hits, hits, memory_order_relaxed);
    if (n > hits)
        atomic_fetch_add_explicit(&c->post_misses, n - hits, memory_order_relaxed);
}

/* A change always leaves the cache right: when it cannot store the new card, the old one goes. */
static void put_post(struct memory_cards *c, const struct card_write *w)
{
    bool change = w->kind == CARD_CHANGE_POST;
    uint64_t id = w->post->id, hash = hash_u64(id);
    if (id == 0)
        return;
    struct shard *s = shard_of(c, hash);
    struct post_entry *e = post_entry_new(w->post, NULL);
    latch_lock(&s->latch);
    if (change)
        changed(c, hash);
    if (!is_gone(c, s, id) && (change || !is_stale(c, hash, w->ticket))) {
        if (e)
            bucket_cache_put(&s->posts, hash, &e->base);
        else
            bucket_cache_remove(&s->posts, hash, id);
        e = NULL;
    }
    latch_unlock(&s->latch);
    free(e);
}

/* What is there stays but for the fragment; counters may have moved since the renderer got it. */
static void attach_post(struct memory_cards *c, const struct card_write *w)
{
    uint64_t id = w->post->id, hash = hash_u64(id);
    struct shard *s = shard_of(c, hash);
    struct post_entry *e = post_entry_new(w->post, w);
    latch_lock(&s->latch);
    const struct post_entry *old = (struct post_entry *)bucket_cache_find(&s->posts, hash, id);
    if (e && old && str_eq(old->card.caption, e->card.caption)) {
        e->card.author = old->card.author;
        e->card.like_count = old->card.like_count;
        e->card.comment_count = old->card.comment_count;
        e->card.edited_at_ms = old->card.edited_at_ms;
        e->card.delivery = old->card.delivery;
        bucket_cache_put(&s->posts, hash, &e->base);
        e = NULL;
    }
    latch_unlock(&s->latch);
    free(e);
}

static void remove_post(struct memory_cards *c, const struct card_write *w)
{
    uint64_t hash = hash_u64(w->id);
    struct shard *s = shard_of(c, hash);
    if (w->id == 0)
        return;
    latch_lock(&s->latch);
    changed(c, hash);
    bucket_cache_remove(&s->posts, hash, w->id);
    if (w->kind == CARD_POST_GONE)
        tombstones_add(&s->tombstones, w->id, clock_wall_ms(c->clock));
    latch_unlock(&s->latch);
}

static uint32_t count_within(int64_t n)
{
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static void count_post(struct memory_cards *c, const struct card_write *w)
{
    uint64_t hash = hash_u64(w->id);
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    changed(c, hash);
    struct post_entry *e = (struct post_entry *)bucket_cache_find(&s->posts, hash, w->id);
    if (e && w->likes >= 0)
        e->card.like_count = count_within(w->likes);
    if (e && w->comments >= 0)
        e->card.comment_count = count_within(w->comments);
    latch_unlock(&s->latch);
}

/* ---- accounts ---- */

static void find_account(struct memory_cards *c, uint64_t hash, uint64_t id,
                         struct account_card *out, struct arena *arena)
{
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    const struct account_entry *e =
        (struct account_entry *)bucket_cache_find(&s->accounts, hash, id);
    if (e)
        account_entry_get(e, out, arena);
    latch_unlock(&s->latch);
}

static void memory_accounts(struct cards *base, const uint64_t *ids, size_t n,
                            struct account_card *out, struct arena *arena)
{
    struct memory_cards *c = memory_of(base);
    bool suspect = is_suspect(c);
    for (size_t from = 0; from < n; from += LOOKAHEAD) {
        uint64_t hashes[LOOKAHEAD];
        size_t count = n - from < LOOKAHEAD ? n - from : LOOKAHEAD;
        for (size_t i = 0; i < count; i++) {
            hashes[i] = hash_u64(ids[from + i]);
            bucket_cache_prefetch_bucket(&shard_of(c, hashes[i])->accounts, hashes[i]);
        }
        for (size_t i = 0; i < count; i++)
            bucket_cache_prefetch_entry(&shard_of(c, hashes[i])->accounts, hashes[i],
                                        ids[from + i]);
        for (size_t i = 0; i < count; i++) {
            out[from + i].id = 0;
            if (!suspect)
                find_account(c, hashes[i], ids[from + i], &out[from + i], arena);
        }
    }
}

/* A fill, or a fragment for what is there. */
static void put_account(struct memory_cards *c, const struct card_write *w)
{
    bool attach = w->kind == CARD_ATTACH_ACCOUNT;
    uint64_t id = w->account->id, hash = hash_u64(id);
    if (id == 0)
        return;
    struct shard *s = shard_of(c, hash);
    struct account_entry *e = account_entry_new(w->account, attach ? w : NULL);
    latch_lock(&s->latch);
    const struct account_entry *old =
        attach ? (struct account_entry *)bucket_cache_find(&s->accounts, hash, id) : NULL;
    if (e &&
        (attach ? old && account_entry_matches(old, &e->card) : !is_stale(c, hash, w->ticket))) {
        bucket_cache_put(&s->accounts, hash, &e->base);
        e = NULL;
    }
    latch_unlock(&s->latch);
    free(e);
}

static void forget_account(struct memory_cards *c, uint64_t id)
{
    uint64_t hash = hash_u64(id);
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    changed(c, hash);
    bucket_cache_remove(&s->accounts, hash, id);
    latch_unlock(&s->latch);
}

/* ---- likes ---- */

/* The set lies where the viewer's hash says, under that shard's latch; its tickets are its own. */
static uint64_t likes_generation(uint64_t viewer)
{
    return hash_u64(cards_likes_key(viewer));
}

static enum err memory_liked(struct cards *base, uint64_t viewer, const uint64_t *ids, size_t n,
                             bool *out)
{
    struct memory_cards *c = memory_of(base);
    uint64_t hash = hash_u64(viewer);
    struct shard *s = shard_of(c, hash);
    if (is_suspect(c))
        return ERR_NEEDS_TRUTH;
    latch_lock(&s->latch);
    const struct like_set *set = (struct like_set *)bucket_cache_find(&s->likes, hash, viewer);
    bool known = set && like_set_knows(set, ids, n, out);
    latch_unlock(&s->latch);
    return known ? OK : ERR_NEEDS_TRUTH;
}

static void put_likes(struct memory_cards *c, const struct card_write *w)
{
    uint64_t hash = hash_u64(w->viewer);
    struct shard *s = shard_of(c, hash);
    struct like_set *set =
        w->viewer != 0 ? like_set_new(w->viewer, w->ids, w->count, w->floor) : NULL;
    if (!set)
        return;
    latch_lock(&s->latch);
    if (!is_stale(c, likes_generation(w->viewer), w->ticket)) {
        bucket_cache_put(&s->likes, hash, &set->base);
        set = NULL;
    }
    latch_unlock(&s->latch);
    free(set);
}

static void set_like(struct memory_cards *c, const struct card_write *w)
{
    uint64_t hash = hash_u64(w->viewer);
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    changed(c, likes_generation(w->viewer));
    struct like_set *set = (struct like_set *)bucket_cache_find(&s->likes, hash, w->viewer);
    if (set && w->on) {
        struct like_set *now = like_set_add(set, w->id);
        if (!now)
            bucket_cache_remove(&s->likes, hash, w->viewer);
        else if (now != set)
            bucket_cache_put(&s->likes, hash, &now->base);
    } else if (set) {
        like_set_remove(set, w->id);
    }
    latch_unlock(&s->latch);
}

/* ---- the driver ---- */

static size_t fixed_bytes(const struct memory_cards *c)
{
    return sizeof *c + (c->generation_mask + 1) * sizeof c->generations[0] +
           (c->shard_mask + 1) * sizeof *c->shards;
}

static void memory_stats(struct cards *base, struct card_stats *out)
{
    struct memory_cards *c = memory_of(base);
    *out = (struct card_stats){
        .post_hits = atomic_load(&c->post_hits),
        .post_misses = atomic_load(&c->post_misses),
        .bytes = fixed_bytes(c),
        .bytes_max = c->bytes_max,
    };
    for (size_t i = 0; i <= c->shard_mask; i++) {
        struct shard *s = &c->shards[i];
        latch_lock(&s->latch);
        out->posts += s->posts.cache.count;
        out->accounts += s->accounts.cache.count;
        out->like_sets += s->likes.cache.count;
        out->tombstones += tombstones_count(&s->tombstones);
        out->bytes += bucket_cache_bytes(&s->posts) + bucket_cache_bytes(&s->accounts) +
                      bucket_cache_bytes(&s->likes) + tombstones_bytes(&s->tombstones);
        latch_unlock(&s->latch);
    }
}

static void memory_free(struct cards *base)
{
    struct memory_cards *c = memory_of(base);
    for (size_t i = 0; i <= c->shard_mask && c->shards; i++) {
        bucket_cache_done(&c->shards[i].posts);
        bucket_cache_done(&c->shards[i].accounts);
        bucket_cache_done(&c->shards[i].likes);
        tombstones_done(&c->shards[i].tombstones);
    }
    free(c->shards);
    free(c);
}

static void memory_suspect(struct cards *base, bool on)
{
    atomic_store(&memory_of(base)->suspect, on);
}

static void write_one(struct memory_cards *c, const struct card_write *w)
{
    switch (w->kind) {
    case CARD_FILL_POST:
    case CARD_CHANGE_POST:
        put_post(c, w);
        break;
    case CARD_ATTACH_POST:
        attach_post(c, w);
        break;
    case CARD_POST_GONE:
    case CARD_FORGET_POST:
        remove_post(c, w);
        break;
    case CARD_POST_COUNTS:
        count_post(c, w);
        break;
    case CARD_FILL_ACCOUNT:
    case CARD_ATTACH_ACCOUNT:
        put_account(c, w);
        break;
    case CARD_FORGET_ACCOUNT:
        forget_account(c, w->id);
        break;
    case CARD_FILL_LIKES:
        put_likes(c, w);
        break;
    case CARD_LIKE:
        set_like(c, w);
        break;
    }
}

static void memory_write(struct cards *base, const struct card_write *writes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        write_one(memory_of(base), &writes[i]);
}

static const struct cards_ops memory_ops = {
    .tickets = memory_tickets,
    .posts = memory_posts,
    .accounts = memory_accounts,
    .liked = memory_liked,
    .write = memory_write,
    .suspect = memory_suspect,
    .stats = memory_stats,
    .free = memory_free,
};

struct cards *cards_memory_new(size_t bytes_max, struct clock *clock)
{
    size_t generations = GENERATIONS_MIN;
    while (generations < GENERATIONS_MAX &&
           generations * 2 * sizeof(uint64_t) <= bytes_max / GENERATIONS_SHARE)
        generations *= 2;
    struct memory_cards *c = calloc(1, sizeof *c + generations * sizeof c->generations[0]);
    if (!c)
        return NULL;
    c->generation_mask = generations - 1;
    c->cards.ops = &memory_ops;
    c->clock = clock;
    c->bytes_max = bytes_max;
    size_t shards = 1;
    while (shards < SHARDS_MAX && bytes_max / (shards * 2) >= SHARD_MIN_BYTES)
        shards *= 2;
    c->shard_mask = shards - 1;
    c->shards = aligned_alloc(64, shards * sizeof *c->shards);
    bool good = c->shards != NULL;
    if (good)
        memset(c->shards, 0, shards * sizeof *c->shards);
    size_t fixed = fixed_bytes(c);
    size_t share = (bytes_max > fixed ? bytes_max - fixed : 0) / shards / 16;
    for (size_t i = 0; i < shards && good; i++) {
        struct shard *s = &c->shards[i];
        good = bucket_cache_init(&s->posts, share * SHARE_POSTS) &&
               bucket_cache_init(&s->accounts, share * SHARE_ACCOUNTS) &&
               bucket_cache_init(&s->likes, share * SHARE_LIKES);
        tombstones_init(&s->tombstones, share * SHARE_TOMBSTONES);
    }
    if (!good) {
        memory_free(&c->cards);
        return NULL;
    }
    return &c->cards;
}
