/* Reading the home feed.
 *
 * A page is gathered in chunks of candidates, newest first, and then hydrated. Candidates come from
 * the views as long as those are complete (above their floor), and from truth below it or when the
 * timeline is dropped. Views may offer too much, never too little; so every candidate from the
 * views passes two filters, the post's own card (gone or not) and the graph as it is now.
 *
 * Why no read shows what was removed before it began: a DELETE marks the card gone, and an
 * unfollow, block, mute or suspension changes the graph, before it is answered; the filters run
 * after the read began, so they see it. Whatever comes from truth instead comes from a snapshot
 * that began after the read did, and a snapshot holds all that was answered before it.
 *
 * Why a fill never brings back what was changed: the ticket for a key is taken first, then a new
 * snapshot is begun, then the put names the ticket. A change that the snapshot does not show was
 * applied after the snapshot began, so after the ticket was taken, and the cache refuses the put.
 * That is why this file begins its own reads and takes no transaction of its caller. In the same
 * way a rebuild begins to collect pushes first and reads truth afterwards.
 *
 * When all that a page needs is in memory, nothing here blocks and nothing is allocated outside the
 * request's arena. Views that are shared by many nodes are never in memory; when they cannot be
 * asked, or say that they have lost something, the whole page is read from truth (feed_hydrate.c).
 */
#include "base/fault.h"
#include "model/feed_hydrate.h"
#include "model/post.h"

enum {
    CHUNK_MIN = 16,
    CHUNK_MAX = FEED_LIMIT_MAX + 4,
    CHUNK_SLACK = 3, /* one to see whether there is more, and some that the filters may take */
    LIKES_KEPT = 1000,
};

struct reading {
    struct views *views;
    struct cards *cards;
    struct db *db; /* NULL: from memory alone */
    uint64_t viewer;
    bool may_rebuild;
    int dialect; /* of the renderer; -1: none */
    size_t limit;
    struct arena *arena;
    struct feed_page *page;
    bool truth_failed;
};

/* It matters which of the two failed: truth can answer for the views. */
static enum err read_truth(struct reading *r, tx_fn run, void *arg)
{
    enum err e = db_read(r->db, run, arg, NULL);
    r->truth_failed = e != OK;
    return e;
}

struct chunk {
    uint64_t ids[CHUNK_MAX];
    struct post_card cards[CHUNK_MAX];
    enum card_state state[CHUNK_MAX];
    size_t count;
    bool from_truth; /* the graph was looked at in truth already */
};

/* ---- candidates from truth ---- */

struct truth_ids {
    uint64_t viewer, below;
    size_t limit;
    bool for_timeline;
    struct arena *arena;
    uint64_t *ids;
    size_t count;
};

static enum err read_truth_ids(struct tx *tx, void *arg)
{
    struct truth_ids *t = arg;
    return feed_from_truth(tx, t->viewer, t->below, t->limit, t->for_timeline, t->arena, t->ids,
                           &t->count);
}

enum err feed_rebuild(struct views *views, struct db *db, uint64_t viewer, bool anew,
                      bool *truth_failed)
{
    *truth_failed = false;
    TRY(anew ? timelines_anew(views->timelines, viewer)
             : timelines_begin(views->timelines, viewer));
    size_t cap = views->cap;
    struct arena arena;
    arena_init(&arena);
    struct truth_ids t = {.viewer = viewer,
                          .below = UINT64_MAX,
                          .limit = cap + 1, /* one more shows whether there is anything below */
                          .for_timeline = true,
                          .arena = &arena,
                          .ids = ARENA_ARRAY(&arena, uint64_t, cap + 1)};
    enum err e = db_read(db, read_truth_ids, &t, NULL);
    *truth_failed = e != OK;
    if (!e) {
        FAULT(rebuild_before_install);
        bool below = t.count > cap;
        e = timelines_end(views->timelines, viewer, t.ids, below ? cap : t.count,
                          below ? t.ids[cap] : 0);
    } else {
        (void)timelines_give_up(views->timelines, viewer);
    }
    arena_done(&arena);
    return e;
}

/* Brings a dropped timeline back. OK also when another reader did so first, or when too many are
 * under way: then truth answers. */
static enum err rebuild(struct reading *r)
{
    enum err e = feed_rebuild(r->views, r->db, r->viewer, false, &r->truth_failed);
    bool answered = e == ERR_CONFLICT || (e == ERR_OVERLOADED && !r->truth_failed);
    return answered ? OK : e;
}

/* ---- cards ---- */

struct post_fill {
    uint64_t ids[CHUNK_MAX];
    card_ticket tickets[CHUNK_MAX];
    size_t at[CHUNK_MAX]; /* where in the chunk it belongs */
    struct post_card cards[CHUNK_MAX];
    enum card_state state[CHUNK_MAX];
    struct card_write writes[CHUNK_MAX];
    size_t count;
    struct arena *arena;
};

static enum err read_posts(struct tx *tx, void *arg)
{
    struct post_fill *f = arg;
    return posts_load(tx, f->ids, f->count, f->arena, f->cards, f->state);
}

/* Loads the cards that memory lacks. What truth no longer has was deleted: it stays marked, so that
 * an id that cleaning up has not reached yet is looked up once and not at every read. */
static enum err fill_posts(struct reading *r, struct chunk *c)
{
    struct post_fill *f = ARENA_NEW(r->arena, struct post_fill);
    f->arena = r->arena;
    for (size_t i = 0; i < c->count; i++) {
        if (c->state[i] != CARD_MISSING)
            continue;
        f->ids[f->count] = c->ids[i];
        f->at[f->count++] = i;
    }
    (void)cards_tickets(r->cards, f->ids, f->count, f->tickets);
    TRY(read_truth(r, read_posts, f));
    for (size_t k = 0; k < f->count; k++) {
        c->state[f->at[k]] = f->state[k];
        f->writes[k] = (struct card_write){.kind = CARD_POST_GONE, .id = f->ids[k]};
        if (f->state[k] == CARD_GONE)
            continue;
        c->cards[f->at[k]] = f->cards[k];
        f->writes[k] = (struct card_write){
            .kind = CARD_FILL_POST, .ticket = f->tickets[k], .post = &f->cards[k]};
    }
    cards_write(r->cards, f->writes, f->count);
    return OK;
}

static enum err load_cards(struct reading *r, struct chunk *c)
{
    cards_posts(r->cards, c->ids, c->count, c->cards, c->state, r->arena);
    if (!r->db)
        return OK; /* take() says so when it meets a missing one that matters */
    for (size_t i = 0; i < c->count; i++) {
        if (c->state[i] == CARD_MISSING)
            return fill_posts(r, c);
    }
    return OK;
}

/* ---- gathering ---- */

static enum err look_at_graph(struct reading *r, const struct chunk *c, bool *visible)
{
    uint64_t authors[CHUNK_MAX];
    bool answers[CHUNK_MAX];
    size_t at[CHUNK_MAX], n = 0;
    for (size_t i = 0; i < c->count; i++) {
        visible[i] = c->from_truth;
        if (c->from_truth || c->state[i] != CARD_FOUND)
            continue;
        at[n] = i;
        authors[n++] = c->cards[i].author;
    }
    enum err e = n > 0 ? graph_visible(r->views->graph, r->viewer, authors, n, answers) : OK;
    for (size_t k = 0; !e && k < n; k++)
        visible[at[k]] = answers[k];
    return e;
}

/* Puts what passes the filters on the page. *more: the page is full and something is left over. */
static enum err take(struct reading *r, struct chunk *c, bool *more)
{
    bool visible[CHUNK_MAX];
    struct feed_page *page = r->page;
    enum err e = load_cards(r, c);
    if (!e)
        e = look_at_graph(r, c, visible);
    for (size_t i = 0; !e && i < c->count; i++) {
        bool missing = c->state[i] == CARD_MISSING;
        if (!missing && (c->state[i] == CARD_GONE || !visible[i]))
            continue;
        if (page->count == r->limit) {
            *more = true;
            page->beyond = c->ids[i];
            break;
        }
        if (missing)
            return ERR_NEEDS_TRUTH;
        page->items[page->count++].card = c->cards[i];
    }
    return e;
}

static size_t chunk_size(const struct reading *r)
{
    size_t size = r->limit - r->page->count + CHUNK_SLACK;
    return size < CHUNK_MIN ? CHUNK_MIN : size > CHUNK_MAX ? CHUNK_MAX : size;
}

/* The next candidates below *below from the views. *silent: the views have nothing more, and truth
 * answers below *below (0: there is nothing more at all). */
static enum err next_from_views(struct reading *r, uint64_t *below, struct chunk *c, bool *silent)
{
    uint64_t floor;
    size_t max = chunk_size(r);
    c->from_truth = false;
    *silent = false;
    TRY(timelines_home(r->views->timelines, r->viewer, *below, c->ids, max, &c->count, &floor));
    size_t offered = c->count;
    while (c->count > 0 && c->ids[c->count - 1] <= floor)
        c->count--; /* not complete down there */
    *silent = c->count < offered || offered < max;
    if (c->count > 0)
        *below = c->ids[c->count - 1];
    if (!*silent)
        return OK;
    if (floor == 0)
        *below = 0;
    else if (floor < *below) /* also a dropped timeline: its floor is above everything */
        *below = floor + 1;
    return floor == UINT64_MAX ? ERR_NEEDS_TRUTH : OK;
}

static enum err next_from_truth(struct reading *r, uint64_t *below, struct chunk *c)
{
    struct truth_ids t = {.viewer = r->viewer,
                          .below = *below,
                          .limit = chunk_size(r),
                          .arena = r->arena,
                          .ids = c->ids};
    c->from_truth = true;
    r->page->lasting = false;
    enum err e = read_truth(r, read_truth_ids, &t);
    c->count = t.count;
    *below = !e && t.count == t.limit ? t.ids[t.count - 1] : 0;
    return e;
}

/* Fills the page with cards. `below`: where to begin. */
static enum err gather(struct reading *r, uint64_t below)
{
    struct chunk c;
    bool more = false, truth = false, rebuilt = false;
    while (below > 0 && !more) {
        if (r->page->count == r->limit && truth) {
            more = true; /* perhaps: not worth another look at truth */
            break;
        }
        enum err e;
        if (truth) {
            if (!r->db)
                return ERR_NEEDS_TRUTH;
            e = next_from_truth(r, &below, &c);
        } else {
            uint64_t from = below;
            e = next_from_views(r, &below, &c, &truth);
            if (e == ERR_NEEDS_TRUTH && r->db) {
                below = from; /* dropped */
                truth = !r->may_rebuild || rebuilt;
                if (truth && r->views->remote)
                    return ERR_NEEDS_TRUTH; /* they have lost something: cards may have, too */
                e = truth ? OK : rebuild(r);
                rebuilt = true;
                if (e)
                    return e;
                continue;
            }
        }
        if (!e)
            e = take(r, &c, &more);
        if (e)
            return e;
    }
    size_t count = r->page->count;
    r->page->next_below = more && count > 0 ? r->page->items[count - 1].card.id : 0;
    return OK;
}

/* ---- hydrating ---- */

struct hydration {
    uint64_t authors[FEED_LIMIT_MAX + 1]; /* and a place for the key of the viewer's likes */
    card_ticket tickets[FEED_LIMIT_MAX + 1];
    struct account_card found[FEED_LIMIT_MAX];
    struct card_write writes[FEED_LIMIT_MAX + 1];
    size_t author_count;
    bool want_likes;
    uint64_t viewer;
    const uint64_t *posts;
    size_t post_count;
    bool *liked;
    uint64_t likes[LIKES_KEPT];
    size_t like_count;
    struct arena *arena;
};

static enum err read_hydration(struct tx *tx, void *arg)
{
    struct hydration *f = arg;
    enum err e = OK;
    if (f->author_count > 0)
        e = feed_load_authors(tx, f->authors, f->author_count, f->arena, f->found);
    if (e || !f->want_likes)
        return e;
    TRY(feed_load_liked(tx, f->viewer, f->posts, f->post_count, f->liked));
    return tx_get_ids(
        tx, "SELECT post_id FROM likes WHERE account_id = $1 ORDER BY post_id DESC LIMIT $2",
        DB_ARGS(DB_I64(f->viewer), DB_I64(LIKES_KEPT)), f->likes, LIKES_KEPT, &f->like_count);
}

static void want_author(struct hydration *f, uint64_t author)
{
    for (size_t i = 0; i < f->author_count; i++) {
        if (f->authors[i] == author)
            return;
    }
    f->authors[f->author_count++] = author;
}

/* Puts the rows onto the page and into the cards, all at once. */
static void keep_hydration(struct reading *r, struct hydration *f, const uint64_t *authors,
                           struct account_card *found, size_t n)
{
    size_t filled = 0;
    for (size_t k = 0; k < f->author_count; k++) {
        if (!f->found[k].id)
            continue;
        f->writes[filled++] = (struct card_write){
            .kind = CARD_FILL_ACCOUNT, .ticket = f->tickets[k], .account = &f->found[k]};
        for (size_t i = 0; i < n; i++) {
            if (authors[i] == f->authors[k])
                found[i] = f->found[k];
        }
    }
    if (f->want_likes) {
        bool all = f->like_count < LIKES_KEPT;
        f->writes[filled++] =
            (struct card_write){.kind = CARD_FILL_LIKES,
                                .ticket = f->tickets[f->author_count],
                                .viewer = r->viewer,
                                .ids = f->likes,
                                .count = f->like_count,
                                .floor = all ? 0 : f->likes[f->like_count - 1] - 1};
    }
    cards_write(r->cards, f->writes, filled);
}

/* Gets what the cards lack and keeps it there. */
static enum err fill_hydration(struct reading *r, const uint64_t *authors,
                               struct account_card *found, size_t n, const uint64_t *posts,
                               size_t post_count, bool *liked, bool want_likes)
{
    struct hydration *f = ARENA_NEW(r->arena, struct hydration);
    f->arena = r->arena;
    f->viewer = r->viewer;
    f->posts = posts;
    f->post_count = post_count;
    f->liked = liked;
    f->want_likes = want_likes;
    for (size_t i = 0; i < n; i++) {
        if (!found[i].id)
            want_author(f, authors[i]);
    }
    f->authors[f->author_count] = cards_likes_key(r->viewer);
    (void)cards_tickets(r->cards, f->authors, f->author_count + want_likes, f->tickets);
    TRY(read_truth(r, read_hydration, f));
    keep_hydration(r, f, authors, found, n);
    return OK;
}

/* Those of the items that no fragment tells of. */
struct authors {
    uint64_t ids[FEED_LIMIT_MAX];
    card_ticket tickets[FEED_LIMIT_MAX];
    struct account_card found[FEED_LIMIT_MAX];
    size_t at[FEED_LIMIT_MAX], n;
};

/* Fragments of this process alone: a renderer of another version may have drawn others. */
static bool is_drawn(const struct reading *r, const struct post_card *card)
{
    return r->dialect >= 0 && !r->cards->shared && card->fragments[r->dialect].ptr;
}

static bool find_authors(struct reading *r, struct authors *a)
{
    a->n = 0;
    for (size_t i = 0; i < r->page->count; i++) {
        struct feed_item *item = &r->page->items[i];
        item->author.id = 0;
        item->ticketed = false;
        if (is_drawn(r, &item->card))
            continue;
        a->at[a->n] = i;
        a->ids[a->n++] = item->card.author;
    }
    if (a->n == 0)
        return true;
    if (!r->cards->shared) /* those keep no fragments */
        (void)cards_tickets(r->cards, a->ids, a->n, a->tickets);
    cards_accounts(r->cards, a->ids, a->n, a->found, r->arena);
    bool all = true;
    for (size_t k = 0; k < a->n; k++)
        all = all && a->found[k].id;
    return all;
}

/* Drops the items without an author: deleted since the page was gathered. */
static void put_authors(struct reading *r, const struct authors *a, const bool *liked)
{
    struct feed_page *page = r->page;
    size_t kept = 0;
    for (size_t k = 0; k < a->n; k++) {
        struct feed_item *item = &page->items[a->at[k]];
        item->author = a->found[k];
        item->ticketed = !r->cards->shared;
        item->author_ticket = item->ticketed ? a->tickets[k] : 0;
    }
    for (size_t i = 0; i < page->count; i++) {
        page->items[i].liked = liked[i];
        if (!page->items[i].author.id && !is_drawn(r, &page->items[i].card))
            continue;
        if (kept != i)
            page->items[kept] = page->items[i];
        kept++;
    }
    page->lasting = page->lasting && page->count == kept;
    page->count = kept;
}

static enum err hydrate(struct reading *r)
{
    uint64_t posts[FEED_LIMIT_MAX];
    struct authors a;
    bool liked[FEED_LIMIT_MAX];
    size_t n = r->page->count;
    if (n == 0)
        return OK;
    for (size_t i = 0; i < n; i++)
        posts[i] = r->page->items[i].card.id;
    bool lacking = !find_authors(r, &a);
    enum err e = cards_liked(r->cards, r->viewer, posts, n, liked);
    bool want_likes = e == ERR_NEEDS_TRUTH;
    if (e && !want_likes)
        return e;
    if (lacking || want_likes) {
        if (!r->db)
            return ERR_NEEDS_TRUTH;
        TRY(fill_hydration(r, a.ids, a.found, a.n, posts, n, liked, want_likes));
    }
    put_authors(r, &a, liked);
    return OK;
}

/* Shared views that are away, have lost something or do not know an account yet: readers do not
 * notice. */
static bool truth_knows(enum err e)
{
    return e == ERR_UNAVAILABLE || e == ERR_TIMEOUT || e == ERR_NEEDS_TRUTH || e == ERR_NOT_FOUND;
}

static enum err read_page(struct reading *r, uint64_t below)
{
    r->page->count = 0;
    r->page->next_below = 0;
    r->page->beyond = 0;
    r->page->lasting = true;
    if (r->limit > FEED_LIMIT_MAX)
        r->limit = FEED_LIMIT_MAX;
    if (r->limit == 0)
        return ERR_BAD_INPUT;
    if (!r->db && (r->views->remote || r->cards->shared))
        return ERR_NEEDS_TRUTH; /* they are asked over the network: not on this thread */
    enum err e = gather(r, below);
    if (!e)
        e = hydrate(r);
    if (!e || !r->views->remote || r->truth_failed)
        return e;
    return truth_knows(e)
               ? feed_page_from_truth(r->db, r->viewer, below, r->limit, r->arena, r->page)
               : e;
}

enum err feed_read(struct views *views, struct cards *cards, struct db *db, uint64_t viewer,
                   uint64_t below, size_t limit, struct arena *arena, struct feed_page *page)
{
    struct reading r = {.views = views,
                        .cards = cards,
                        .db = db,
                        .viewer = viewer,
                        .may_rebuild = true,
                        .dialect = -1,
                        .limit = limit,
                        .arena = arena,
                        .page = page};
    return read_page(&r, below);
}

enum err feed_draw(struct views *views, struct cards *cards, struct db *db, uint64_t viewer,
                   uint64_t below, size_t limit, uint8_t dialect, struct arena *arena,
                   struct feed_page *page)
{
    struct reading r = {.views = views,
                        .cards = cards,
                        .db = db,
                        .viewer = viewer,
                        .may_rebuild = true,
                        .dialect = dialect,
                        .limit = limit,
                        .arena = arena,
                        .page = page};
    return read_page(&r, below);
}

enum err feed_peek(struct views *views, struct cards *cards, struct db *db, uint64_t viewer,
                   uint64_t below, size_t limit, struct arena *arena, struct feed_page *page)
{
    struct reading r = {.views = views,
                        .cards = cards,
                        .db = db,
                        .viewer = viewer,
                        .dialect = -1,
                        .limit = limit,
                        .arena = arena,
                        .page = page};
    return read_page(&r, below);
}
