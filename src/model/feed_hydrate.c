/* Hydrating posts: adds authors and likes to their cards; and pages that are read from truth alone.
 *
 * A page from truth is one snapshot, and asks neither views nor cards: a reader gets it while those
 * are away or suspect. It costs the store more than any other read of a feed; so only some run at a
 * time, and further readers get 503 with Retry-After, so that they do not slow down all writes. */
#include "model/feed_hydrate.h"

#include <stdatomic.h>

#include "model/account.h"
#include "model/post.h"

enum err feed_load_authors(struct tx *tx, const uint64_t *ids, size_t n, struct arena *arena,
                           struct account_card *out)
{
    memset(out, 0, n * sizeof *out);
    struct db_rows rows = tx_rows(tx,
                                  "SELECT " ACCOUNT_CARD_COLUMNS " FROM accounts a "
                                  "WHERE a.id IN (SELECT id FROM ids($1)) AND a.state <> 2",
                                  DB_ARGS(DB_IDS(ids, n)));
    while (db_next(&rows)) {
        struct account_card card;
        account_card_read(&rows, 0, arena, &card);
        for (size_t i = 0; i < n; i++) {
            if (ids[i] == card.id)
                out[i] = card;
        }
    }
    return db_rows_done(&rows);
}

enum err feed_load_liked(struct tx *tx, uint64_t viewer, const uint64_t *posts, size_t n,
                         bool *liked)
{
    memset(liked, 0, n * sizeof *liked);
    struct db_rows rows = tx_rows(tx,
                                  "SELECT post_id FROM likes WHERE account_id = $1 "
                                  "AND post_id IN (SELECT id FROM ids($2))",
                                  DB_ARGS(DB_I64(viewer), DB_IDS(posts, n)));
    while (db_next(&rows)) {
        uint64_t id = db_id(&rows, 0);
        for (size_t i = 0; i < n; i++)
            liked[i] = liked[i] || posts[i] == id;
    }
    return db_rows_done(&rows);
}

/* Drops the items without an author: deleted since the page was gathered. */
void feed_put_hydrated(struct feed_item *items, size_t *count, const struct account_card *authors,
                       const bool *liked)
{
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        if (!authors[i].id)
            continue;
        if (kept != i)
            items[kept].card = items[i].card;
        items[kept].author = authors[i];
        items[kept].ticketed = false;
        items[kept].liked = liked[i];
        kept++;
    }
    *count = kept;
}

/* What truth says of authors and, for a viewer, of likes. */
static enum err hydrate_items(struct tx *tx, uint64_t viewer, struct arena *arena,
                              struct feed_item *items, size_t *count)
{
    uint64_t authors[FEED_LIMIT_MAX], posts[FEED_LIMIT_MAX];
    struct account_card found[FEED_LIMIT_MAX];
    bool liked[FEED_LIMIT_MAX] = {false};
    for (size_t i = 0; i < *count; i++) {
        authors[i] = items[i].card.author;
        posts[i] = items[i].card.id;
    }
    TRY(feed_load_authors(tx, authors, *count, arena, found));
    if (viewer)
        TRY(feed_load_liked(tx, viewer, posts, *count, liked));
    feed_put_hydrated(items, count, found, liked);
    return OK;
}

/* ---- pages from truth alone ---- */

enum { FROM_TRUTH_MAX = 16 /* at a time: about as many as a store has cores to merge on */ };

static _Atomic int from_truth; /* under way */

struct truth_page {
    uint64_t viewer, below;
    size_t limit;
    struct arena *arena;
    struct feed_page *page;
};

static enum err read_truth_page(struct tx *tx, void *arg)
{
    struct truth_page *t = arg;
    struct feed_page *page = t->page;
    uint64_t ids[FEED_LIMIT_MAX + 1];
    enum card_state state[FEED_LIMIT_MAX + 1];
    size_t n;
    page->count = 0;
    page->next_below = page->beyond = 0;
    page->lasting = false;
    /* one more shows whether there is a next page */
    TRY(feed_from_truth(tx, t->viewer, t->below, t->limit + 1, false, t->arena, ids, &n));
    if (n == 0)
        return OK;
    bool more = n > t->limit;
    n = more ? t->limit : n;
    struct post_card *cards = ARENA_ARRAY(t->arena, struct post_card, n);
    enum err e = posts_load(tx, ids, n, t->arena, cards, state);
    for (size_t i = 0; !e && i < n; i++)
        if (state[i] == CARD_FOUND)
            page->items[page->count++].card = cards[i];
    if (e || page->count == 0)
        return e;
    page->next_below = more ? ids[n - 1] : 0;
    return hydrate_items(tx, t->viewer, t->arena, page->items, &page->count);
}

enum err feed_page_from_truth(struct db *db, uint64_t viewer, uint64_t below, size_t limit,
                              struct arena *arena, struct feed_page *page)
{
    struct truth_page t = {viewer, below, limit, arena, page};
    enum err e = ERR_OVERLOADED;
    if (atomic_fetch_add(&from_truth, 1) < FROM_TRUTH_MAX)
        e = db_read(db, read_truth_page, &t, NULL);
    atomic_fetch_sub(&from_truth, 1);
    return e;
}

/* ---- posts whose ids are known ---- */

/* In a write the caches do not show yet what the transaction did: truth alone. */
static enum err hydrate_cards(struct cards *cards, struct tx *tx, const uint64_t *ids, size_t n,
                              struct arena *arena, struct post_card *out, enum card_state *state)
{
    if (tx->writable)
        return posts_load(tx, ids, n, arena, out, state);
    cards_posts(cards, ids, n, out, state, arena);
    uint64_t missing[FEED_LIMIT_MAX];
    size_t at[FEED_LIMIT_MAX], count = 0;
    for (size_t i = 0; i < n; i++) {
        if (state[i] != CARD_MISSING)
            continue;
        at[count] = i;
        missing[count++] = ids[i];
    }
    if (count == 0)
        return OK;
    struct post_card *found = ARENA_ARRAY(arena, struct post_card, count);
    enum card_state found_state[FEED_LIMIT_MAX];
    enum err e = posts_load(tx, missing, count, arena, found, found_state);
    for (size_t k = 0; !e && k < count; k++) {
        out[at[k]] = found[k];
        state[at[k]] = found_state[k];
    }
    return e;
}

enum err feed_hydrate(struct cards *cards, struct tx *tx, uint64_t viewer, const uint64_t *ids,
                      size_t n, struct arena *arena, struct feed_item *items, size_t *count)
{
    enum card_state state[FEED_LIMIT_MAX];
    *count = 0;
    if (n == 0 || n > FEED_LIMIT_MAX)
        return n == 0 ? OK : ERR_BAD_INPUT;
    struct post_card *found = ARENA_ARRAY(arena, struct post_card, n);
    TRY(hydrate_cards(cards, tx, ids, n, arena, found, state));
    for (size_t i = 0; i < n; i++) {
        if (state[i] == CARD_FOUND)
            items[(*count)++].card = found[i];
    }
    return *count > 0 ? hydrate_items(tx, viewer, arena, items, count) : OK;
}

enum err feed_author(struct cards *cards, struct tx *tx, uint64_t author, struct arena *arena,
                     struct account_card *out)
{
    cards_accounts(cards, &author, 1, out, arena);
    if (out->id)
        return OK;
    enum err e = feed_load_authors(tx, &author, 1, arena, out);
    return !e && !out->id ? tx_fail(tx, ERR_NOT_FOUND, "no such account") : e;
}
