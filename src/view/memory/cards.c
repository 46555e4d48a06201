/* The in-memory cards driver.
 *
 * Shards, chosen by the key's hash, each with one latch, a bucket cache for each kind (posts,
 * accounts, like sets, groups, and what the groups of an account are to it) and the tombstones of
 * deleted posts. The budget is divided once, by fixed shares, among kinds and shards.
 *
 * Tickets are the generations of key stripes. A change raises the generation of its key under the
 * shard's latch; a fill compares its ticket under the same latch. So a fill either was there before
 * the change, which then replaced or removed it, or sees a newer generation and gives up. Keys that
 * share a stripe make each other's fills fail now and then, which costs a fill and nothing else.
 *
 * `changes` counts changes of all keys, before and after the generation is raised, all under the
 * latch that a get of that key takes, too. A reader that remembers `changes`, then gets cards, then
 * takes tickets and finds `changes` as it was, has tickets of exactly the states that it got: a
 * change after one of the gets and before the ticket would have counted itself before it raised the
 * generation. A reader that remembers `changes`, then finds the tickets as they were, may from then
 * on compare `changes` alone: a change that the tickets did not show yet counts itself once more
 * after it raised the generation. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "view/memory/bucket_cache.h"
#include "view/memory/card_entry.h"
#include "view/memory/latch.h"
#include "view/memory/like_set.h"
#include "view/memory/member_set.h"
#include "view/memory/memory.h"
#include "view/memory/tombstones.h"

enum {
    SHARDS_MAX = 64,
    SHARD_MIN_BYTES = 1 << 20,
    GENERATIONS_MIN = 1 << 12,
    GENERATIONS_MAX = 1 << 17,
    GENERATIONS_SHARE = 64, /* at most one part in this many of the budget, if it is large */
    LOOKAHEAD = 32,         /* keys prefetched at a time */
};

enum kind { POSTS, ACCOUNTS, LIKES, GROUPS, MEMBERS, KINDS };

/* Shares of the budget, in 32nds. */
static const size_t shares[KINDS] = {
    [POSTS] = 17, [ACCOUNTS] = 4, [LIKES] = 4, [GROUPS] = 3, [MEMBERS] = 2};
enum { SHARE_TOMBSTONES = 2, SHARES = 32 };

struct shard {
    _Alignas(64) struct latch latch;
    struct bucket_cache caches[KINDS];
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

static uint64_t memory_tickets(struct cards *base, const uint64_t *keys, size_t n, card_ticket *out)
{
    struct memory_cards *c = CONTAINER_OF(base, struct memory_cards, cards);
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

/* ---- reading ---- */

/* Hashes the keys, at most LOOKAHEAD, and asks for what may be cached under them. */
static void look_ahead(struct memory_cards *c, enum kind kind, const uint64_t *ids, size_t n,
                       uint64_t *hashes)
{
    for (size_t i = 0; i < n; i++) {
        hashes[i] = hash_u64(ids[i]);
        bucket_cache_prefetch_bucket(&shard_of(c, hashes[i])->caches[kind], hashes[i]);
    }
    for (size_t i = 0; i < n; i++)
        bucket_cache_prefetch_entry(&shard_of(c, hashes[i])->caches[kind], hashes[i], ids[i]);
}

static void *find(struct shard *s, enum kind kind, uint64_t hash, uint64_t id)
{
    return bucket_cache_find(&s->caches[kind], hash, id); /* what every entry begins with */
}

/* Fragments that may tell of an author who has changed since. */
static void drop_outdated(struct memory_cards *c, struct post_card *card)
{
    card_ticket now = atomic_load(generation_of(c, hash_u64(card->author)));
    for (size_t i = 0; i < CARD_DIALECTS; i++) {
        if (card->author_tickets[i] != now)
            card->fragments[i] = (struct str){NULL, 0};
    }
}

static enum card_state find_post(struct memory_cards *c, uint64_t hash, uint64_t id,
                                 struct post_card *out, struct arena *arena)
{
    struct shard *s = shard_of(c, hash);
    enum card_state state = CARD_MISSING;
    latch_lock(&s->latch);
    const struct post_entry *e = find(s, POSTS, hash, id);
    if (e) {
        post_entry_get(e, out, arena);
        state = CARD_FOUND;
    } else if (is_gone(c, s, id)) {
        state = CARD_GONE;
    }
    latch_unlock(&s->latch);
    if (e)
        drop_outdated(c, out);
    return state;
}

static void memory_posts(struct cards *base, const uint64_t *ids, size_t n, struct post_card *out,
                         enum card_state *state, struct arena *arena)
{
    struct memory_cards *c = CONTAINER_OF(base, struct memory_cards, cards);
    uint64_t hits = 0, hashes[LOOKAHEAD];
    bool suspect = is_suspect(c);
    for (size_t i = 0; i < n; i++) {
        size_t at = i % LOOKAHEAD, left = n - i;
        if (at == 0)
            look_ahead(c, POSTS, ids + i, left < LOOKAHEAD ? left : LOOKAHEAD, hashes);
        state[i] = suspect ? CARD_MISSING : find_post(c, hashes[at], ids[i], &out[i], arena);
        hits += state[i] == CARD_FOUND;
    }
    atomic_fetch_add_explicit(&c->post_hits, hits, memory_order_relaxed);
    if (n > hits)
        atomic_fetch_add_explicit(&c->post_misses, n - hits, memory_order_relaxed);
}

static void find_account(struct memory_cards *c, uint64_t hash, uint64_t id,
                         struct account_card *out, struct arena *arena)
{
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    const struct account_entry *e = find(s, ACCOUNTS, hash, id);
    if (e)
        account_entry_get(e, out, arena);
    latch_unlock(&s->latch);
}

static void memory_accounts(struct cards *base, const uint64_t *ids, size_t n,
                            struct account_card *out, struct arena *arena)
{
    struct memory_cards *c = CONTAINER_OF(base, struct memory_cards, cards);
    uint64_t hashes[LOOKAHEAD];
    bool suspect = is_suspect(c);
    for (size_t i = 0; i < n; i++) {
        size_t at = i % LOOKAHEAD, left = n - i;
        if (at == 0)
            look_ahead(c, ACCOUNTS, ids + i, left < LOOKAHEAD ? left : LOOKAHEAD, hashes);
        out[i].id = 0;
        if (!suspect)
            find_account(c, hashes[at], ids[i], &out[i], arena);
    }
}

static enum err memory_liked(struct cards *base, uint64_t viewer, const uint64_t *ids, size_t n,
                             bool *out)
{
    struct memory_cards *c = CONTAINER_OF(base, struct memory_cards, cards);
    uint64_t hash = hash_u64(viewer);
    struct shard *s = shard_of(c, hash);
    if (is_suspect(c))
        return ERR_NEEDS_TRUTH;
    latch_lock(&s->latch);
    const struct like_set *set = find(s, LIKES, hash, viewer);
    bool known = set && like_set_knows(set, ids, n, out);
    latch_unlock(&s->latch);
    return known ? OK : ERR_NEEDS_TRUTH;
}

static void find_group(struct memory_cards *c, uint64_t hash, uint64_t id, struct group_card *out,
                       struct arena *arena)
{
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    const struct group_entry *e = find(s, GROUPS, hash, id);
    if (e)
        group_entry_get(e, out, arena);
    latch_unlock(&s->latch);
}

static void memory_groups(struct cards *base, const uint64_t *ids, size_t n, struct group_card *out,
                          struct arena *arena)
{
    struct memory_cards *c = CONTAINER_OF(base, struct memory_cards, cards);
    uint64_t hashes[LOOKAHEAD];
    bool suspect = is_suspect(c);
    for (size_t i = 0; i < n; i++) {
        size_t at = i % LOOKAHEAD, left = n - i;
        if (at == 0)
            look_ahead(c, GROUPS, ids + i, left < LOOKAHEAD ? left : LOOKAHEAD, hashes);
        out[i].id = 0;
        if (!suspect)
            find_group(c, hashes[at], ids[i], &out[i], arena);
    }
}

static bool is_same(struct memory_cards *c, uint64_t key, card_ticket ticket)
{
    return atomic_load(generation_of(c, hash_u64(key))) == ticket;
}

/* Besides its own, a membership has the tickets of what it may be changed by from outside. */
static bool is_current(struct memory_cards *c, const struct member_card *m)
{
    return !m->stale && is_same(c, cards_members_key(m->group), m->members_ticket) &&
           (!m->peer || is_same(c, m->peer, m->peer_ticket));
}

static void memory_members(struct cards *base, uint64_t account, const uint64_t *groups, size_t n,
                           struct member_card *out)
{
    struct memory_cards *c = CONTAINER_OF(base, struct memory_cards, cards);
    uint64_t hash = hash_u64(account);
    struct shard *s = shard_of(c, hash);
    bool suspect = is_suspect(c);
    latch_lock(&s->latch);
    const struct member_set *set = find(s, MEMBERS, hash, account);
    for (size_t i = 0; i < n; i++) {
        const struct member_card *m = set ? member_set_find(set, groups[i], i) : NULL;
        out[i] = m ? *m : (struct member_card){0};
        if (m && (suspect || !is_current(c, m)))
            out[i].group = 0;
    }
    latch_unlock(&s->latch);
}

/* ---- writing: each under the latch of the key's shard. What was allocated for it before comes as
 * `e`, NULL without memory; true: the cache has taken it over ---- */

static bool put(struct shard *s, enum kind kind, uint64_t hash, void *e)
{
    bucket_cache_put(&s->caches[kind], hash, e);
    return true;
}

/* A change always leaves the cache right: when it cannot store the new card, the old one goes. */
static bool put_post(struct memory_cards *c, struct shard *s, uint64_t hash,
                     const struct card_write *w, struct post_entry *e)
{
    bool change = w->kind == CARD_CHANGE_POST;
    if (change)
        changed(c, hash);
    if (is_gone(c, s, w->post->id) || (!change && is_stale(c, hash, w->ticket)))
        return false;
    if (!e)
        bucket_cache_remove(&s->caches[POSTS], hash, w->post->id);
    return e && put(s, POSTS, hash, e);
}

/* What is there stays but for the fragment; counters may have moved since the renderer got it. */
static bool attach_post(struct shard *s, uint64_t hash, const struct card_write *w,
                        struct post_entry *e)
{
    const struct post_entry *old = find(s, POSTS, hash, w->post->id);
    if (e && old && str_eq(old->card.caption, e->card.caption)) {
        e->card.author = old->card.author;
        e->card.like_count = old->card.like_count;
        e->card.comment_count = old->card.comment_count;
        e->card.edited_at_ms = old->card.edited_at_ms;
        e->card.delivery = old->card.delivery;
        return put(s, POSTS, hash, e);
    }
    return false;
}

static void remove_card(struct memory_cards *c, struct shard *s, uint64_t hash,
                        const struct card_write *w)
{
    enum kind kind = w->kind == CARD_FORGET_ACCOUNT ? ACCOUNTS
                     : w->kind == CARD_FORGET_GROUP ? GROUPS
                                                    : POSTS;
    changed(c, hash);
    bucket_cache_remove(&s->caches[kind], hash, w->id);
    if (w->kind == CARD_POST_GONE)
        tombstones_add(&s->tombstones, w->id, clock_wall_ms(c->clock));
}

static uint32_t count_within(int64_t n)
{
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static void count_post(struct memory_cards *c, struct shard *s, uint64_t hash,
                       const struct card_write *w)
{
    changed(c, hash);
    struct post_entry *e = find(s, POSTS, hash, w->id);
    if (e && w->likes >= 0)
        e->card.like_count = count_within(w->likes);
    if (e && w->comments >= 0)
        e->card.comment_count = count_within(w->comments);
}

/* A fill, or a fragment for what is there. */
static bool put_account(struct memory_cards *c, struct shard *s, uint64_t hash,
                        const struct card_write *w, struct account_entry *e)
{
    const struct account_entry *old = NULL;
    bool attach = w->kind == CARD_ATTACH_ACCOUNT;
    if (attach)
        old = find(s, ACCOUNTS, hash, w->account->id);
    bool good =
        attach ? old && account_entry_matches(old, w->account) : !is_stale(c, hash, w->ticket);
    return e && good && put(s, ACCOUNTS, hash, e);
}

/* The set lies where the viewer's hash says, under that shard's latch; its tickets are its own. */
static uint64_t likes_generation(uint64_t viewer)
{
    return hash_u64(cards_likes_key(viewer));
}

static void set_like(struct memory_cards *c, struct shard *s, uint64_t hash,
                     const struct card_write *w)
{
    changed(c, likes_generation(w->viewer));
    struct like_set *set = find(s, LIKES, hash, w->viewer);
    if (set && w->on) {
        struct like_set *now = like_set_add(set, w->id);
        if (!now)
            bucket_cache_remove(&s->caches[LIKES], hash, w->viewer);
        else if (now != set)
            put(s, LIKES, hash, now);
    } else if (set) {
        like_set_remove(set, w->id);
    }
}

static void put_members(struct memory_cards *c, struct shard *s, uint64_t hash,
                        const struct card_write *w)
{
    if (is_stale(c, hash_u64(cards_inbox_key(w->viewer)), w->ticket))
        return;
    struct member_set *set =
        member_set_new(w->viewer, w->members, w->count, find(s, MEMBERS, hash, w->viewer));
    if (set)
        put(s, MEMBERS, hash, set);
}

static void forget_member(struct memory_cards *c, struct shard *s, uint64_t hash,
                          const struct card_write *w)
{
    changed(c, hash_u64(cards_inbox_key(w->viewer)));
    struct member_set *set = find(s, MEMBERS, hash, w->viewer);
    if (set)
        member_set_forget(set, w->id);
}

/* ---- the driver ---- */

static size_t fixed_bytes(const struct memory_cards *c)
{
    return sizeof *c + (c->generation_mask + 1) * sizeof c->generations[0] +
           (c->shard_mask + 1) * sizeof *c->shards;
}

static void memory_stats(struct cards *base, struct card_stats *out)
{
    struct memory_cards *c = CONTAINER_OF(base, struct memory_cards, cards);
    *out = (struct card_stats){
        .post_hits = atomic_load(&c->post_hits),
        .post_misses = atomic_load(&c->post_misses),
        .bytes = fixed_bytes(c),
        .bytes_max = c->bytes_max,
    };
    for (size_t i = 0; i <= c->shard_mask; i++) {
        struct shard *s = &c->shards[i];
        latch_lock(&s->latch);
        out->posts += s->caches[POSTS].cache.count;
        out->accounts += s->caches[ACCOUNTS].cache.count;
        out->like_sets += s->caches[LIKES].cache.count;
        out->groups += s->caches[GROUPS].cache.count;
        out->member_sets += s->caches[MEMBERS].cache.count;
        out->tombstones += tombstones_count(&s->tombstones);
        out->bytes += tombstones_bytes(&s->tombstones);
        for (size_t kind = 0; kind < KINDS; kind++)
            out->bytes += bucket_cache_bytes(&s->caches[kind]);
        latch_unlock(&s->latch);
    }
}

static void memory_free(struct cards *base)
{
    struct memory_cards *c = CONTAINER_OF(base, struct memory_cards, cards);
    for (size_t i = 0; i <= c->shard_mask && c->shards; i++) {
        for (size_t kind = 0; kind < KINDS; kind++)
            bucket_cache_done(&c->shards[i].caches[kind]);
        tombstones_done(&c->shards[i].tombstones);
    }
    free(c->shards);
    free(c);
}

static void memory_suspect(struct cards *base, bool on)
{
    atomic_store(&CONTAINER_OF(base, struct memory_cards, cards)->suspect, on);
}

/* What decides on the shard, and the entry that the write may leave in the cache. */
static uint64_t prepare(const struct card_write *w, void **fresh)
{
    switch (w->kind) {
    case CARD_FILL_POST:
    case CARD_CHANGE_POST:
    case CARD_ATTACH_POST:
        *fresh = post_entry_new(w->post, w->kind == CARD_ATTACH_POST ? w : NULL);
        return w->post->id;
    case CARD_FILL_ACCOUNT:
    case CARD_ATTACH_ACCOUNT:
        *fresh = account_entry_new(w->account, w->kind == CARD_ATTACH_ACCOUNT ? w : NULL);
        return w->account->id;
    case CARD_FILL_LIKES:
        *fresh = like_set_new(w->viewer, w->ids, w->count, w->floor);
        return w->viewer;
    case CARD_FILL_GROUP:
        *fresh = group_entry_new(w->group);
        return w->group->id;
    case CARD_LIKE:
    case CARD_FILL_MEMBERS:
    case CARD_FORGET_MEMBER:
        return w->viewer;
    case CARD_POST_GONE:
    case CARD_FORGET_POST:
    case CARD_FORGET_ACCOUNT:
    case CARD_POST_COUNTS:
    case CARD_FORGET_GROUP:
    case CARD_FORGET_MEMBERS:
        break;
    }
    return w->id;
}

static bool write_under_latch(struct memory_cards *c, struct shard *s, uint64_t hash,
                              const struct card_write *w, void *fresh)
{
    switch (w->kind) {
    case CARD_FILL_POST:
    case CARD_CHANGE_POST:
        return put_post(c, s, hash, w, fresh);
    case CARD_ATTACH_POST:
        return attach_post(s, hash, w, fresh);
    case CARD_FILL_ACCOUNT:
    case CARD_ATTACH_ACCOUNT:
        return put_account(c, s, hash, w, fresh);
    case CARD_FILL_LIKES:
        return fresh && !is_stale(c, likes_generation(w->viewer), w->ticket) &&
               put(s, LIKES, hash, fresh);
    case CARD_FILL_GROUP:
        return fresh && !is_stale(c, hash, w->ticket) && put(s, GROUPS, hash, fresh);
    case CARD_FILL_MEMBERS:
        put_members(c, s, hash, w);
        break;
    case CARD_FORGET_MEMBER:
        forget_member(c, s, hash, w);
        break;
    case CARD_FORGET_MEMBERS:
        changed(c, hash_u64(cards_members_key(w->id)));
        break;
    case CARD_POST_GONE:
    case CARD_FORGET_POST:
    case CARD_FORGET_ACCOUNT:
    case CARD_FORGET_GROUP:
        remove_card(c, s, hash, w);
        break;
    case CARD_POST_COUNTS:
        count_post(c, s, hash, w);
        break;
    case CARD_LIKE:
        set_like(c, s, hash, w);
        break;
    }
    return false;
}

static void write_one(struct memory_cards *c, const struct card_write *w)
{
    void *fresh = NULL;
    uint64_t id = prepare(w, &fresh), hash = hash_u64(id);
    struct shard *s = shard_of(c, hash);
    latch_lock(&s->latch);
    bool taken = id != 0 && write_under_latch(c, s, hash, w, fresh);
    latch_unlock(&s->latch);
    if (!taken)
        free(fresh);
}

static void memory_write(struct cards *base, const struct card_write *writes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        write_one(CONTAINER_OF(base, struct memory_cards, cards), &writes[i]);
}

static const struct cards_ops memory_ops = {
    .tickets = memory_tickets,
    .posts = memory_posts,
    .accounts = memory_accounts,
    .liked = memory_liked,
    .groups = memory_groups,
    .members = memory_members,
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
    size_t share = (bytes_max > fixed ? bytes_max - fixed : 0) / shards / SHARES;
    for (size_t i = 0; i < shards && good; i++) {
        struct shard *s = &c->shards[i];
        for (size_t kind = 0; kind < KINDS && good; kind++)
            good = bucket_cache_init(&s->caches[kind], share * shares[kind]);
        tombstones_init(&s->tombstones, share * SHARE_TOMBSTONES);
    }
    if (!good) {
        memory_free(&c->cards);
        return NULL;
    }
    return &c->cards;
}
