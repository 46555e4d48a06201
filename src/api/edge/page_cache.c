/* Kept pages (ADR 0007, 0019).
 *
 * A first page depends on two things: what home() and visible() of its viewer say, and the cards of
 * its posts, of their authors and of the viewer (likes). The first has a stamp (timelines_stamp),
 * each card has a ticket (cards_tickets). A page is kept with the stamp and all tickets, and is
 * answered only while each of them is the same. A change gives a card another ticket or a viewer
 * another stamp before it is answered, and neither ever comes back; so no read shows what was
 * removed before it began.
 *
 * A page is kept only when nothing changed while it was read. The stamp is taken before and
 * compared after. The cards' change counter is taken before, the tickets after, and then the
 * counter must be as it was: so every ticket belongs to the state that the page shows.
 *
 * The post that showed that there is a next page counts too, because the cursor depends on it. A
 * page that took ids from truth (below the floor), or lost an item because its author was just
 * deleted, is not kept: neither stamps nor tickets cover that (`lasting`).
 *
 * While no card at all has changed since the last look, one counter stands for all tickets. It is
 * read before the tickets are compared, so the noted counter never covers more than was compared.
 *
 * With shared views a page is kept with a trace of everything that was read for it, and the
 * invalidation listener says whether any of it has changed (port/invalidation.h). A request first
 * waits until every earlier invalidation has arrived.
 *
 * Slots are in caches of base/cache.h, each under a lock and with its part of the budget; pages
 * that were not asked for since the hand came by last give way. Head and body of a page never
 * change and are reference-counted: the slot holds one reference and every answer on its way
 * another, so a body is sent from where it lies. Everything else is touched under the lock. */
#include "api/edge/page_cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/cache.h"
#include "base/check.h"
#include "base/hash.h"

enum {
    SHARDS_MAX = 64,
    SHARD_BYTES_MIN = 256 * 1024,
    SLOT_BYTES = 4096, /* of the budget for each slot: pages are mostly larger */
    KEYS_MAX = 2 * FEED_LIMIT_DEFAULT + 2,
    AHEAD_BYTES = 2048,
};

struct page {
    struct http_body body;
    _Atomic uint32_t refs;
    struct view_stamp stamp;
    uint64_t card_changes; /* the tickets are known to have been the same at this count */
    size_t size_bytes;
    struct str head;
    uint16_t key_count;
    bool asked_for;
    uint64_t generation; /* of the trace */
    uint64_t words[];    /* the keys, their tickets, or the trace's reads; then head and body */
};

_Static_assert(sizeof(struct traced_read) == sizeof(uint64_t), "a read is a word");

struct slot {
    uint64_t viewer;
    struct page *page;
};

struct shard {
    _Alignas(64) pthread_mutex_t lock;
    struct cache pages;
    uint64_t hits, misses;
};

struct page_cache {
    struct views *views;
    struct cards *cards;
    struct invalidation *invalidation;
    size_t shard_mask;
    size_t fixed_bytes, bytes_max;
    struct shard shards[];
};

static void release_page(struct http_body *body)
{
    struct page *p = CONTAINER_OF(body, struct page, body);
    if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
        free(p);
}

static int64_t slot_worth(const void *slot)
{
    return ((const struct slot *)slot)->page->asked_for;
}

static void slot_pass(void *slot)
{
    ((struct slot *)slot)->page->asked_for = false;
}

static size_t slot_bytes(const void *slot)
{
    return ((const struct slot *)slot)->page->size_bytes;
}

static void slot_release(void *slot)
{
    release_page(&((struct slot *)slot)->page->body);
}

static const struct cache_policy policy = {.slot_bytes = sizeof(struct slot),
                                           .key_bytes = sizeof(uint64_t),
                                           .worth = slot_worth,
                                           .pass = slot_pass,
                                           .bytes = slot_bytes,
                                           .release = slot_release};

struct page_cache *page_cache_new(size_t bytes_max, struct views *views, struct cards *cards,
                                  struct invalidation *invalidation)
{
    if (bytes_max < SHARD_BYTES_MIN)
        return NULL;
    size_t shards = 1;
    while (shards < SHARDS_MAX && bytes_max / (shards * 2) >= SHARD_BYTES_MIN)
        shards *= 2;
    size_t size = sizeof(struct page_cache) + shards * sizeof(struct shard);
    struct page_cache *c = aligned_alloc(64, (size + 63) / 64 * 64);
    CHECK(c);
    memset(c, 0, size);
    c->views = views;
    c->cards = cards;
    c->invalidation = invalidation;
    c->shard_mask = shards - 1;
    c->bytes_max = bytes_max;
    c->fixed_bytes = size;
    for (size_t i = 0; i < shards; i++) {
        struct shard *s = &c->shards[i];
        size_t share = bytes_max / shards;
        pthread_mutex_init(&s->lock, NULL);
        CHECK(cache_init(&s->pages, &policy, share / SLOT_BYTES, share));
        size_t table = cache_table_bytes(&s->pages);
        s->pages.bytes_max = (bytes_max - size) / shards - table;
        c->fixed_bytes += table;
    }
    return c;
}

static struct shard *shard_of(struct page_cache *c, uint64_t hash)
{
    return &c->shards[(hash >> 48) & c->shard_mask];
}

void page_cache_free(struct page_cache *c)
{
    if (!c)
        return;
    for (size_t i = 0; i <= c->shard_mask; i++) {
        struct shard *s = &c->shards[i];
        cache_done(&s->pages);
        pthread_mutex_destroy(&s->lock);
    }
    free(c);
}

/* ---- looking ---- */

static bool cards_are_the_same(struct page_cache *c, struct page *p)
{
    card_ticket now[KEYS_MAX];
    if (cards_tickets(c->cards, NULL, 0, NULL) == p->card_changes)
        return true;
    uint64_t changes = cards_tickets(c->cards, p->words, p->key_count, now);
    if (memcmp(now, p->words + p->key_count, p->key_count * sizeof now[0]) != 0)
        return false;
    p->card_changes = changes;
    return true;
}

static const struct traced_read *reads_of(const struct page *p)
{
    return (const struct traced_read *)p->words;
}

static bool is_right(struct page_cache *c, struct page *p, uint64_t viewer)
{
    bool same;
    if (c->invalidation)
        return invalidation_same(c->invalidation, p->generation, reads_of(p), p->key_count);
    return timelines_stamp(c->views->timelines, viewer, &p->stamp, &same) == OK && same &&
           cards_are_the_same(c, p);
}

/* Pages of thousands of people do not stay in the processor's caches. While the stamp is looked up,
 * which is a walk through memory of its own, the page is already on its way. */
static void fetch_ahead(const struct page *p)
{
    const char *bytes = (const char *)p;
    for (size_t at = 0; at < AHEAD_BYTES; at += 64)
        __builtin_prefetch(bytes + at);
}

/* The lock is held. The viewer's page, if it is right; one that is not will never be again. */
static struct page *find_right(struct page_cache *c, struct shard *s, uint64_t hash,
                               uint64_t viewer)
{
    struct slot *slot = cache_find(&s->pages, hash, &viewer);
    if (!slot)
        return NULL;
    fetch_ahead(slot->page);
    if (is_right(c, slot->page, viewer))
        return slot->page;
    cache_remove(&s->pages, slot);
    return NULL;
}

bool page_cache_has(struct page_cache *c, uint64_t viewer)
{
    uint64_t hash = hash_u64(viewer);
    struct shard *s = shard_of(c, hash);
    pthread_mutex_lock(&s->lock);
    bool has = find_right(c, s, hash, viewer) != NULL;
    pthread_mutex_unlock(&s->lock);
    return has;
}

bool page_cache_find(struct page_cache *c, uint64_t viewer, struct buf *head,
                     struct http_body **body)
{
    uint64_t hash = hash_u64(viewer);
    struct shard *s = shard_of(c, hash);
    pthread_mutex_lock(&s->lock);
    struct page *p = find_right(c, s, hash, viewer);
    if (p) {
        buf_str(head, p->head);
        *body = &p->body;
        atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
        p->asked_for = true;
        s->hits++;
    }
    pthread_mutex_unlock(&s->lock);
    return p != NULL;
}

/* ---- keeping ---- */

_Static_assert((int)KEYS_MAX <= (int)TRACE_READS_MAX, "keys and tickets fit where a trace does");

/* The keys of all cards that the page shows. */
static size_t gather_keys(const struct feed_page *page, uint64_t viewer, uint64_t *keys)
{
    size_t n = 0;
    keys[n++] = cards_likes_key(viewer);
    if (page->beyond)
        keys[n++] = page->beyond;
    for (size_t i = 0; i < page->count; i++)
        keys[n++] = page->items[i].card.id;
    size_t authors = n;
    for (size_t i = 0; i < page->count; i++) {
        uint64_t author = page->items[i].card.author;
        size_t k = authors;
        while (k < n && keys[k] != author)
            k++;
        if (k == n)
            keys[n++] = author;
    }
    return n;
}

static bool changed_meanwhile(struct page_cache *c, struct page_draft *draft)
{
    bool same;
    return cards_tickets(c->cards, NULL, 0, NULL) != draft->card_changes ||
           timelines_stamp(c->views->timelines, draft->viewer, &draft->stamp, &same) != OK || !same;
}

static void count_miss(struct page_cache *c, uint64_t viewer)
{
    struct shard *s = shard_of(c, hash_u64(viewer));
    pthread_mutex_lock(&s->lock);
    s->misses++;
    pthread_mutex_unlock(&s->lock);
}

void page_cache_begin_step(struct page_cache *c, uint64_t viewer, struct page_draft *draft)
{
    CHECK(c->invalidation);
    draft->viewer = viewer;
    draft->in_step = true;
    invalidation_init(c->invalidation, &draft->trace);
}

void page_cache_begin(struct page_cache *c, uint64_t viewer, struct page_draft *draft)
{
    bool same;
    count_miss(c, viewer);
    draft->viewer = viewer;
    draft->in_step = false;
    if (c->invalidation) {
        invalidation_begin(c->invalidation, &draft->trace);
        return;
    }
    draft->stamp = (struct view_stamp){0};
    draft->card_changes = cards_tickets(c->cards, NULL, 0, NULL);
    draft->good = timelines_stamp(c->views->timelines, viewer, &draft->stamp, &same) == OK;
}

/* What the page will be compared by. False: it cannot be kept. */
static bool end_draft(struct page_cache *c, struct page_draft *draft, const struct feed_page *page,
                      uint64_t words[2 * TRACE_READS_MAX], size_t *keys, size_t *count)
{
    if (c->invalidation) {
        const struct read_trace *t = &draft->trace;
        invalidation_end(c->invalidation, &draft->trace);
        *keys = *count = t->count;
        memcpy(words, t->reads, t->count * sizeof t->reads[0]);
        return page && page->lasting && t->whole &&
               invalidation_same(c->invalidation, t->generation, t->reads, t->count);
    }
    if (!page || !draft->good || !page->lasting || page->count > FEED_LIMIT_DEFAULT)
        return false;
    *keys = gather_keys(page, draft->viewer, words);
    *count = 2 * *keys;
    (void)cards_tickets(c->cards, words, *keys, words + *keys);
    return !changed_meanwhile(c, draft);
}

void page_cache_end(struct page_cache *c, struct page_draft *draft, const struct feed_page *page,
                    struct str head, struct str body)
{
    uint64_t words[2 * TRACE_READS_MAX];
    size_t keys, count;
    if (draft->in_step && page)
        count_miss(c, draft->viewer); /* one that failed is drawn again, and counted then */
    if (!end_draft(c, draft, page, words, &keys, &count))
        return;
    uint64_t hash = hash_u64(draft->viewer);
    struct shard *s = shard_of(c, hash);
    size_t size = sizeof(struct page) + count * sizeof words[0] + head.len + body.len;
    struct page *p = malloc(size);
    if (!p)
        return;
    char *bytes = (char *)(p->words + count);
    *p = (struct page){.body = {.bytes = {bytes + head.len, body.len}, .release = release_page},
                       .refs = 1,
                       .size_bytes = size,
                       .head = {bytes, head.len},
                       .key_count = (uint16_t)keys};
    if (c->invalidation) {
        p->generation = draft->trace.generation;
    } else {
        p->stamp = draft->stamp;
        p->card_changes = draft->card_changes;
    }
    memcpy(p->words, words, count * sizeof words[0]);
    if (head.len > 0)
        memcpy(bytes, head.ptr, head.len);
    if (body.len > 0)
        memcpy(bytes + head.len, body.ptr, body.len);

    pthread_mutex_lock(&s->lock);
    struct slot *slot = cache_claim(&s->pages, hash, &draft->viewer, size);
    if (slot)
        slot->page = p;
    pthread_mutex_unlock(&s->lock);
    if (!slot)
        release_page(&p->body);
}

void page_cache_stats(struct page_cache *c, struct page_cache_stats *out)
{
    *out = (struct page_cache_stats){0};
    if (!c)
        return;
    out->bytes = c->fixed_bytes;
    out->bytes_max = c->bytes_max;
    for (size_t i = 0; i <= c->shard_mask; i++) {
        struct shard *s = &c->shards[i];
        pthread_mutex_lock(&s->lock);
        out->hits += s->hits;
        out->misses += s->misses;
        out->pages += s->pages.count;
        out->bytes += s->pages.bytes;
        pthread_mutex_unlock(&s->lock);
    }
}
