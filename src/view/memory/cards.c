/* The in-memory cards engine.
 *
 * Shards, chosen by the key's hash, each with one latch, three shelves (posts, accounts, like sets)
 * and the graves of deleted posts. The budget is divided once, by fixed shares, among kinds and
 * shards.
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

#include "base/check.h"
#include "base/hash.h"
#include "view/memory/graves.h"
#include "view/memory/latch.h"
#include "view/memory/memory.h"
#include "view/memory/shelf.h"

enum {
    SHARDS_MAX = 64,
    SHARD_MIN_BYTES = 1 << 20,
    GENERATIONS_MIN = 1 << 12,
    GENERATIONS_MAX = 1 << 17,
    GENERATIONS_SHARE = 64, /* at most one part in this many of the budget, if it is large */
    LIKES_MAX = 1000,
    LOOKAHEAD = 32, /* keys prefetched at a time */
    /* shares of the budget, in sixteenths */
    SHARE_POSTS = 11,
    SHARE_ACCOUNTS = 2,
    SHARE_LIKES = 2,
    SHARE_GRAVES = 1,
};

struct post_entry {
    struct shelf_entry base;
    struct post_card card; /* caption_json points to `caption` */
    char caption[];
};

struct account_entry {
    struct shelf_entry base;
    size_t len;
    char json[];
};

/* The posts a person likes: complete above the floor. */
struct likes_entry {
    struct shelf_entry base;
    uint64_t floor;
    uint32_t count, capacity;
    uint64_t ids[]; /* rising */
};

struct shard {
    _Alignas(64) struct latch latch;
    struct shelf posts, accounts, likes;
    struct graves graves;
};

struct memory_cards {
    struct cards cards;
    struct clock *clock;
    size_t bytes_max;
    size_t shard_mask;
    struct shard *shards;
    _Atomic uint64_t post_hits, post_misses;
    _Atomic uint64_t changes;
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

static bool is_stale(struct memory_cards *c, uint64_t hash, card_ticket ticket)
{
    return atomic_load(generation_of(c, hash)) != ticket;
}

/* ---- posts ---- */

static enum card_state find_post(struct memory_cards *c, uint64_t hash, uint64_t id,
                                 struct post_card *out, struct arena *arena)
{
    struct shard *s = shard_of(c, hash);
    enum card_state state = CARD_MISSING;
    latch_lock(&s->latch);
    const struct post_entry *e = (struct post_entry *)shelf_find(&s->posts, hash, id);
    if (e) {
        *out = e->card;
        out->caption_json = arena_str(arena, e->card.caption_json);
        state = CARD_FOUND;
    } else if (graves_count(&s->graves) > 0 &&
               graves_has(&s->graves, id, clock_wall_ms(c->clock))) {
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
    for (size_t from = 0; from < n; from += LOOKAHEAD) {
        uint64_t hashes[LOOKAHEAD];
        size_t count = n - from < LOOKAHEAD ? n - from : LOOKAHEAD;
        for (size_t i = 0; i < count; i++) {
            hashes[i] = hash_u64(ids[from + i]);
            shelf_prefetch_bucket(&shard_of(c, hashes[i])->posts, hashes[i]);
        }
        for (size_t i = 0; i < count; i++)
            shelf_prefetch_entry(&shard_of(c, hashes[i])->posts, hashes[i], ids[from + i]);
        for (size_t i = 0; i < count; i++) {
            state[from + i] = find_post(c, hashes[i], ids[from + i], &out[from + i], arena);
            hits += state[from + i] == CARD_FOUND;
        }
    }
    atomic_fetch_add_explicit(&c->post_hits, hits, memory_order_relaxed);
    if (n > hits)
        atomic_fetch_add_explicit(&c->post_misses, n - hits, memory_order_relaxed);
}

static struct post_entry *post_entry_new(const struct post_card *card)
{
    struct post_entry *e = malloc(sizeof *e + card->caption_json.len);
    if (!e)
        return NULL;
    e->base.key = card->id;
    e->card = *card;
    if (card->caption_json.len > 0)
        memcpy(e->caption, card->caption_json.ptr, card->caption_json.len);
    e->card.caption_json.ptr = e->caption;
    return e;
}

/* A change always leaves the cache right: when it cannot store the new card, the old one goes. */
static void memory_put_post(struct cards *base, card_ticket ticket, const struct post_card *card,
                            bool change)
{
    struct memory_cards *c = memory_of(base);
    if (card->id == 0)
        return;
    uint64_t hash = hash_u64(card->id);
    struct shard *s = shard_of(c, hash);
    struct post_entry *e = post_entry_new(card);
    latch_lock(&s->latch);
    if (change)
        changed(c, hash);
    if (!(graves_count(&s->graves) > 0 &&
          graves_has(&s->graves, card->id, clock_wall_ms(c->clock))) &&
        (change || !is_stale(c, hash, ticket))) {
        if (e)
            shelf_put(&s->posts, hash, &e->base);
        else
            shelf_remove(&s->posts, hash, card->id);
        e = NULL;
    }
    latch_unlock(&s->latch);
    free(e);
}

static void memory_post_gone(struct cards *base, uint64_t id)
{
    struct memory_cards *c = memory_of(base);
    if (id == 0)
        return;
    uint64_t hash = hash_u64(id);
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    changed(c, hash);
    shelf_remove(&s->posts, hash, id);
    graves_add(&s->graves, id, clock_wall_ms(c->clock));
    latch_unlock(&s->latch);
}

static uint32_t count_within(int64_t n)
{
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static void memory_post_counts(struct cards *base, uint64_t id, int64_t likes, int64_t comments)
{
    struct memory_cards *c = memory_of(base);
    uint64_t hash = hash_u64(id);
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    changed(c, hash);
    struct post_entry *e = (struct post_entry *)shelf_find(&s->posts, hash, id);
    if (e && likes >= 0)
        e->card.like_count = count_within(likes);
    if (e && comments >= 0)
        e->card.comment_count = count_within(comments);
    latch_unlock(&s->latch);
}

/* ---- accounts ---- */

static void memory_accounts(struct cards *base, const uint64_t *ids, size_t n, struct str *json,
                            struct arena *arena)
{
    struct memory_cards *c = memory_of(base);
    for (size_t from = 0; from < n; from += LOOKAHEAD) {
        uint64_t hashes[LOOKAHEAD];
        size_t count = n - from < LOOKAHEAD ? n - from : LOOKAHEAD;
        for (size_t i = 0; i < count; i++) {
            hashes[i] = hash_u64(ids[from + i]);
            shelf_prefetch_bucket(&shard_of(c, hashes[i])->accounts, hashes[i]);
        }
        for (size_t i = 0; i < count; i++)
            shelf_prefetch_entry(&shard_of(c, hashes[i])->accounts, hashes[i], ids[from + i]);
        for (size_t i = 0; i < count; i++) {
            struct shard *s = shard_of(c, hashes[i]);
            latch_lock(&s->latch);
            const struct account_entry *e =
                (struct account_entry *)shelf_find(&s->accounts, hashes[i], ids[from + i]);
            json[from + i] =
                e ? arena_str(arena, (struct str){e->json, e->len}) : (struct str){NULL, 0};
            latch_unlock(&s->latch);
        }
    }
}

static void memory_put_account(struct cards *base, card_ticket ticket, uint64_t id, struct str json)
{
    struct memory_cards *c = memory_of(base);
    uint64_t hash = hash_u64(id);
    struct shard *s = shard_of(c, hash);
    struct account_entry *e = id != 0 ? malloc(sizeof *e + json.len) : NULL;
    if (!e)
        return;
    e->base.key = id;
    e->len = json.len;
    if (json.len > 0)
        memcpy(e->json, json.ptr, json.len);
    latch_lock(&s->latch);
    if (!is_stale(c, hash, ticket)) {
        shelf_put(&s->accounts, hash, &e->base);
        e = NULL;
    }
    latch_unlock(&s->latch);
    free(e);
}

static void memory_forget_account(struct cards *base, uint64_t id)
{
    struct memory_cards *c = memory_of(base);
    uint64_t hash = hash_u64(id);
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    changed(c, hash);
    shelf_remove(&s->accounts, hash, id);
    latch_unlock(&s->latch);
}

/* ---- likes ---- */

static uint32_t likes_below(const struct likes_entry *e, uint64_t id) /* how many are */
{
    uint32_t low = 0, high = e->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (e->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

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
    enum err result = ERR_NEEDS_TRUTH;
    latch_lock(&s->latch);
    const struct likes_entry *e = (struct likes_entry *)shelf_find(&s->likes, hash, viewer);
    size_t i = 0;
    for (; e && i < n && ids[i] > e->floor; i++) {
        uint32_t at = likes_below(e, ids[i]);
        out[i] = at < e->count && e->ids[at] == ids[i];
    }
    if (e && i == n)
        result = OK;
    latch_unlock(&s->latch);
    return result;
}

static struct likes_entry *likes_entry_new(uint64_t viewer, uint32_t capacity)
{
    struct likes_entry *e = malloc(sizeof *e + capacity * sizeof e->ids[0]);
    if (e) {
        e->base.key = viewer;
        e->count = 0;
        e->capacity = capacity;
    }
    return e;
}

static void memory_put_likes(struct cards *base, card_ticket ticket, uint64_t viewer,
                             const uint64_t *ids, size_t n, uint64_t floor)
{
    struct memory_cards *c = memory_of(base);
    if (n > LIKES_MAX) {
        floor = ids[LIKES_MAX] > floor ? ids[LIKES_MAX] : floor;
        n = LIKES_MAX;
    }
    uint64_t hash = hash_u64(viewer);
    struct shard *s = shard_of(c, hash);
    struct likes_entry *e = viewer != 0 ? likes_entry_new(viewer, (uint32_t)n + 2) : NULL;
    if (!e)
        return;
    e->floor = floor;
    for (size_t i = n; i > 0; i--) {
        CHECK(i == n || ids[i - 1] > ids[i]);
        if (ids[i - 1] > floor)
            e->ids[e->count++] = ids[i - 1];
    }
    latch_lock(&s->latch);
    if (!is_stale(c, likes_generation(viewer), ticket)) {
        shelf_put(&s->likes, hash, &e->base);
        e = NULL;
    }
    latch_unlock(&s->latch);
    free(e);
}

/* A copy with more room in the place of a full set; NULL: it was let go for want of memory. */
static struct likes_entry *likes_grow(struct shard *s, uint64_t hash, struct likes_entry *e)
{
    uint64_t viewer = e->base.key;
    struct likes_entry *larger = likes_entry_new(viewer, e->capacity + e->capacity / 4 + 8);
    if (!larger) {
        shelf_remove(&s->likes, hash, viewer);
        return NULL;
    }
    larger->floor = e->floor;
    larger->count = e->count;
    memcpy(larger->ids, e->ids, e->count * sizeof e->ids[0]);
    shelf_put(&s->likes, hash, &larger->base);
    return (struct likes_entry *)shelf_find(&s->likes, hash, viewer);
}

static void likes_insert(struct shard *s, uint64_t hash, struct likes_entry *e, uint64_t post)
{
    uint32_t at = likes_below(e, post);
    if (post <= e->floor || (at < e->count && e->ids[at] == post))
        return;
    if (e->count >= LIKES_MAX) { /* the oldest makes room */
        uint64_t out = at == 0 ? post : e->ids[0];
        if (at > 0) {
            memmove(e->ids, e->ids + 1, (at - 1) * sizeof e->ids[0]);
            e->ids[at - 1] = post;
        }
        e->floor = out;
        return;
    }
    if (e->count == e->capacity && !(e = likes_grow(s, hash, e)))
        return;
    memmove(e->ids + at + 1, e->ids + at, (e->count - at) * sizeof e->ids[0]);
    e->ids[at] = post;
    e->count++;
}

static void memory_like(struct cards *base, uint64_t viewer, uint64_t post, bool on)
{
    struct memory_cards *c = memory_of(base);
    uint64_t hash = hash_u64(viewer);
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    changed(c, likes_generation(viewer));
    struct likes_entry *e = (struct likes_entry *)shelf_find(&s->likes, hash, viewer);
    if (e && on) {
        likes_insert(s, hash, e, post);
    } else if (e) {
        uint32_t at = likes_below(e, post);
        if (at < e->count && e->ids[at] == post) {
            e->count--;
            memmove(e->ids + at, e->ids + at + 1, (e->count - at) * sizeof e->ids[0]);
        }
    }
    latch_unlock(&s->latch);
}

/* ---- the engine ---- */

static size_t shelf_bytes(const struct shelf *s)
{
    return s->bytes + (s->mask + 1) * sizeof(struct shelf_bucket);
}

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
        out->posts += s->posts.count;
        out->accounts += s->accounts.count;
        out->like_sets += s->likes.count;
        out->tombstones += graves_count(&s->graves);
        out->bytes += shelf_bytes(&s->posts) + shelf_bytes(&s->accounts) + shelf_bytes(&s->likes) +
                      graves_bytes(&s->graves);
        latch_unlock(&s->latch);
    }
}

static void memory_free(struct cards *base)
{
    struct memory_cards *c = memory_of(base);
    for (size_t i = 0; i <= c->shard_mask && c->shards; i++) {
        shelf_done(&c->shards[i].posts);
        shelf_done(&c->shards[i].accounts);
        shelf_done(&c->shards[i].likes);
        graves_done(&c->shards[i].graves);
    }
    free(c->shards);
    free(c);
}

/* ---- many at once ---- */

static void forget_post(struct memory_cards *c, uint64_t id)
{
    uint64_t hash = hash_u64(id);
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    changed(c, hash);
    shelf_remove(&s->posts, hash, id);
    latch_unlock(&s->latch);
}

static void memory_write(struct cards *base, const struct card_write *writes, size_t n)
{
    for (const struct card_write *w = writes; w < writes + n; w++) {
        switch (w->kind) {
        case CARD_FILL_POST:
        case CARD_CHANGE_POST:
            memory_put_post(base, w->ticket, w->card, w->kind == CARD_CHANGE_POST);
            break;
        case CARD_FILL_ACCOUNT:
            memory_put_account(base, w->ticket, w->id, w->json);
            break;
        case CARD_POST_GONE:
            memory_post_gone(base, w->id);
            break;
        case CARD_FORGET_POST:
            forget_post(memory_of(base), w->id);
            break;
        case CARD_POST_COUNTS:
            memory_post_counts(base, w->id, w->likes, w->comments);
            break;
        case CARD_FORGET_ACCOUNT:
            memory_forget_account(base, w->id);
            break;
        case CARD_LIKE:
            memory_like(base, w->viewer, w->id, w->on);
            break;
        }
    }
}

static const struct cards_ops memory_ops = {
    .tickets = memory_tickets,
    .posts = memory_posts,
    .put_post = memory_put_post,
    .post_gone = memory_post_gone,
    .post_counts = memory_post_counts,
    .accounts = memory_accounts,
    .put_account = memory_put_account,
    .forget_account = memory_forget_account,
    .liked = memory_liked,
    .put_likes = memory_put_likes,
    .like = memory_like,
    .write = memory_write,
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
        good = shelf_init(&s->posts, share * SHARE_POSTS) &&
               shelf_init(&s->accounts, share * SHARE_ACCOUNTS) &&
               shelf_init(&s->likes, share * SHARE_LIKES);
        graves_init(&s->graves, share * SHARE_GRAVES);
    }
    if (!good) {
        memory_free(&c->cards);
        return NULL;
    }
    return &c->cards;
}
