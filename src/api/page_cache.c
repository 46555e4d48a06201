/* Kept pages.
 *
 * A first page is a function of two things: what home() and visible() of its viewer say, and the
 * cards of its posts, of their authors and of the viewer (likes). The first has a stamp
 * (views_stamp), each card of the second has a ticket (cards_tickets). A page is kept together with
 * the stamp and the tickets of everything that it was made of, and is answered when all of them are
 * the same still. Nobody has to remember whose page a change concerns, and nothing is sent to this
 * cache when something changes: it asks, at every read.
 *
 * Why no read ever shows what was removed before it began: a DELETE, an unfollow, a block, a mute,
 * a suspension gives a card another ticket or a viewer another stamp before it is answered. Both
 * are compared after the read began, so the page does not pass and is drawn anew, by the rules of
 * model/feed.c. The same holds for additions that were answered, for edits, names and counters.
 *
 * Why a page that passes is what would be drawn now: it was kept only when nothing at all changed
 * while it was read. The stamp is taken before and compared after. The cards' change counter is
 * taken before, the tickets after, and then the counter must be as it was; so every ticket belongs
 * to the very state that the page shows (view/memory/cards.c says why in detail). Stamps and
 * tickets never come back once they have changed; so at the moment when the stamp is found equal
 * the cards were those of the page, too, if their tickets are found equal afterwards.
 *
 * Which cards: those of the posts on the page, their authors', the viewer's; and the post that
 * showed that there is a next page, because the cursor hangs on it. Posts that were left out need
 * none: they are hidden by the graph, which the stamp covers, or gone, which is for ever. A page
 * that took ids from truth (below the floor), or lost an item because its author was just deleted,
 * is not kept: neither stamps nor tickets speak of that (`lasting`).
 *
 * As long as no card at all has changed since the last look, one counter stands for all tickets.
 * It is read before the tickets are compared, and a change counts itself once more after its
 * ticket has changed: that way the counter that is noted never covers more than was compared.
 *
 * Of views and cards that many nodes change, stamps and tickets would have to be fetched. There a
 * page is kept with a trace of all that was read for it, and the watch, which hears of changes,
 * says whether any of it is another now (port/watch.h). What was heard so far is not all that
 * happened so far; so whoever answers a request asks for news first and looks here afterwards.
 *
 * Places are in sets of four, a set in one cache line, each shard of them under a lock. A shard has
 * its part of the budget; a hand goes round its places and lets go of pages that were not asked for
 * since it came by last. Head and body of a page never change and are counted references: its place
 * holds one and every answer that is being sent another, so a body goes to the socket from where it
 * lies. What a page is compared by belongs to its place and is touched under the lock only. */
#include "api/page_cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"

enum {
    SHARDS_MAX = 64,
    SHARD_BYTES_MIN = 256 * 1024,
    WAYS = 4,
    PLACE_BYTES = 4096, /* of the budget for each place: pages are mostly larger */
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

_Static_assert(sizeof(struct watch_read) == sizeof(uint64_t), "a read is a word");

struct place {
    uint64_t viewer;
    struct page *page; /* NULL: free */
};

struct shard {
    _Alignas(64) pthread_mutex_t lock;
    struct place *places;
    size_t hand;
    size_t bytes, bytes_max; /* of pages */
    uint64_t pages, hits, misses;
};

struct page_cache {
    struct views *views;
    struct cards *cards;
    struct watch *watch;
    size_t shard_mask, set_mask;
    size_t fixed_bytes, bytes_max;
    struct shard shards[];
};

static size_t place_count(const struct page_cache *c)
{
    return (c->set_mask + 1) * WAYS;
}

struct page_cache *page_cache_new(size_t bytes_max, struct views *views, struct cards *cards,
                                  struct watch *watch)
{
    if (bytes_max < SHARD_BYTES_MIN)
        return NULL;
    size_t shards = 1, sets = 1;
    while (shards < SHARDS_MAX && bytes_max / (shards * 2) >= SHARD_BYTES_MIN)
        shards *= 2;
    while (shards * sets * 2 * WAYS <= bytes_max / PLACE_BYTES)
        sets *= 2;
    size_t size = sizeof(struct page_cache) + shards * sizeof(struct shard);
    struct page_cache *c = aligned_alloc(64, (size + 63) / 64 * 64);
    CHECK(c);
    memset(c, 0, size);
    c->views = views;
    c->cards = cards;
    c->watch = watch;
    c->shard_mask = shards - 1;
    c->set_mask = sets - 1;
    c->bytes_max = bytes_max;
    c->fixed_bytes = size + shards * sets * WAYS * sizeof(struct place);
    for (size_t i = 0; i < shards; i++) {
        struct shard *s = &c->shards[i];
        pthread_mutex_init(&s->lock, NULL);
        s->bytes_max = (bytes_max - c->fixed_bytes) / shards;
        s->places = aligned_alloc(64, sets * WAYS * sizeof(struct place));
        CHECK(s->places);
        memset(s->places, 0, sets * WAYS * sizeof(struct place));
    }
    return c;
}

/* ---- places ---- */

static struct shard *shard_of(struct page_cache *c, uint64_t hash)
{
    return &c->shards[(hash >> 48) & c->shard_mask];
}

static struct place *set_of(const struct page_cache *c, const struct shard *s, uint64_t hash)
{
    return &s->places[(hash & c->set_mask) * WAYS];
}

static struct place *find_place(struct place *set, uint64_t viewer)
{
    for (size_t i = 0; i < WAYS; i++) {
        if (set[i].viewer == viewer && set[i].page)
            return &set[i];
    }
    return NULL;
}

static void release_page(struct http_body *body)
{
    struct page *p = CONTAINER_OF(body, struct page, body);
    if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
        free(p);
}

static void empty_place(struct shard *s, struct place *p)
{
    if (!p->page)
        return;
    s->bytes -= p->page->size_bytes;
    s->pages--;
    release_page(&p->page->body);
    *p = (struct place){0};
}

/* Where the viewer's page goes: where the old one is, a free place, or that of a page nobody asked
 * for lately. */
static struct place *choose_place(struct place *set, uint64_t viewer)
{
    struct place *chosen = find_place(set, viewer);
    for (size_t i = 0; !chosen && i < WAYS; i++) {
        if (!set[i].page)
            chosen = &set[i];
    }
    for (size_t i = 0; !chosen && i < WAYS; i++) {
        if (!set[i].page->asked_for)
            chosen = &set[i];
        set[i].page->asked_for = false;
    }
    return chosen ? chosen : &set[viewer % WAYS];
}

/* Makes room for `size` bytes. Two rounds take every page's mark away and then the page. */
static void make_room(const struct page_cache *c, struct shard *s, size_t size)
{
    for (size_t steps = 2 * place_count(c); s->bytes + size > s->bytes_max && steps > 0; steps--) {
        struct place *p = &s->places[s->hand];
        s->hand = (s->hand + 1) % place_count(c);
        if (p->page && p->page->asked_for)
            p->page->asked_for = false;
        else
            empty_place(s, p);
    }
}

void page_cache_free(struct page_cache *c)
{
    if (!c)
        return;
    for (size_t i = 0; i <= c->shard_mask; i++) {
        struct shard *s = &c->shards[i];
        for (size_t k = 0; k < place_count(c); k++)
            empty_place(s, &s->places[k]);
        free(s->places);
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

static const struct watch_read *reads_of(const struct page *p)
{
    return (const struct watch_read *)p->words;
}

static bool is_right(struct page_cache *c, struct page *p, uint64_t viewer)
{
    bool same;
    if (c->watch)
        return watch_same(c->watch, p->generation, reads_of(p), p->key_count);
    return views_stamp(c->views, viewer, &p->stamp, &same) == OK && same &&
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
    struct place *place = find_place(set_of(c, s, hash), viewer);
    if (!place)
        return NULL;
    fetch_ahead(place->page);
    if (is_right(c, place->page, viewer))
        return place->page;
    empty_place(s, place);
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

_Static_assert((int)KEYS_MAX <= (int)WATCH_READS_MAX, "keys and tickets fit where a trace does");

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
           views_stamp(c->views, draft->viewer, &draft->stamp, &same) != OK || !same;
}

void page_cache_begin(struct page_cache *c, uint64_t viewer, struct page_draft *draft)
{
    bool same;
    uint64_t hash = hash_u64(viewer);
    struct shard *s = shard_of(c, hash);
    pthread_mutex_lock(&s->lock);
    s->misses++;
    pthread_mutex_unlock(&s->lock);
    draft->viewer = viewer;
    if (c->watch) {
        watch_begin(c->watch, &draft->trace);
        return;
    }
    draft->stamp = (struct view_stamp){0};
    draft->card_changes = cards_tickets(c->cards, NULL, 0, NULL);
    draft->good = views_stamp(c->views, viewer, &draft->stamp, &same) == OK;
}

/* What the page will be compared by. False: it cannot be kept. */
static bool end_draft(struct page_cache *c, struct page_draft *draft, const struct feed_page *page,
                      uint64_t words[2 * WATCH_READS_MAX], size_t *keys, size_t *count)
{
    if (c->watch) {
        const struct watch_trace *t = &draft->trace;
        watch_end(c->watch, &draft->trace);
        *keys = *count = t->count;
        memcpy(words, t->reads, t->count * sizeof t->reads[0]);
        return page && page->lasting && t->whole &&
               watch_same(c->watch, t->generation, t->reads, t->count);
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
    uint64_t words[2 * WATCH_READS_MAX];
    size_t keys, count;
    if (!end_draft(c, draft, page, words, &keys, &count))
        return;
    uint64_t hash = hash_u64(draft->viewer);
    struct shard *s = shard_of(c, hash);
    size_t size = sizeof(struct page) + count * sizeof words[0] + head.len + body.len;
    struct page *p = size <= s->bytes_max ? malloc(size) : NULL;
    if (!p)
        return;
    char *bytes = (char *)(p->words + count);
    *p = (struct page){.body = {.bytes = {bytes + head.len, body.len}, .release = release_page},
                       .refs = 1,
                       .size_bytes = size,
                       .head = {bytes, head.len},
                       .key_count = (uint16_t)keys};
    if (c->watch) {
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
    struct place *place = choose_place(set_of(c, s, hash), draft->viewer);
    empty_place(s, place);
    make_room(c, s, size);
    *place = (struct place){draft->viewer, p};
    s->bytes += size;
    s->pages++;
    pthread_mutex_unlock(&s->lock);
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
        out->pages += s->pages;
        out->bytes += s->bytes;
        pthread_mutex_unlock(&s->lock);
    }
}
