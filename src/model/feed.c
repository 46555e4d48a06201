/* Reading the home feed.
 *
 * A page is gathered in chunks of candidates, newest first, and then drawn. Candidates come from
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
 * request's arena. */
#include "model/feed.h"

#include "base/fault.h"
#include "model/account.h"
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
    size_t limit;
    struct arena *arena;
    struct feed_page *page;
};

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

/* Brings a dropped timeline back. OK also when somebody else did so first. */
static enum err rebuild(struct reading *r)
{
    enum err e = views_rebuild_begin(r->views, r->viewer);
    if (e)
        return e == ERR_CONFLICT ? OK : e;
    size_t cap = r->views->cap;
    struct arena arena;
    arena_init(&arena);
    struct truth_ids t = {.viewer = r->viewer,
                          .below = UINT64_MAX,
                          .limit = cap + 1, /* one more tells whether there is anything below */
                          .for_timeline = true,
                          .arena = &arena,
                          .ids = ARENA_ARRAY(&arena, uint64_t, cap + 1)};
    e = db_read(r->db, read_truth_ids, &t, NULL);
    if (!e) {
        FAULT(rebuild_before_install);
        bool below = t.count > cap;
        e = views_rebuild_end(r->views, r->viewer, t.ids, below ? cap : t.count,
                              below ? t.ids[cap] : 0);
    } else {
        (void)views_rebuild_give_up(r->views, r->viewer);
    }
    arena_done(&arena);
    return e == ERR_CONFLICT ? OK : e;
}

/* ---- cards ---- */

struct post_fill {
    uint64_t ids[CHUNK_MAX];
    card_ticket tickets[CHUNK_MAX];
    size_t at[CHUNK_MAX]; /* where in the chunk it belongs */
    struct post_card cards[CHUNK_MAX];
    enum card_state state[CHUNK_MAX];
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
        f->at[f->count] = i;
        f->tickets[f->count++] = cards_ticket(r->cards, c->ids[i]);
    }
    enum err e = db_read(r->db, read_posts, f, NULL);
    if (e)
        return e;
    for (size_t k = 0; k < f->count; k++) {
        c->state[f->at[k]] = f->state[k];
        if (f->state[k] == CARD_GONE) {
            cards_post_gone(r->cards, f->ids[k]);
            continue;
        }
        c->cards[f->at[k]] = f->cards[k];
        cards_put_post(r->cards, f->tickets[k], &f->cards[k]);
    }
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
    enum err e = n > 0 ? views_visible(r->views, r->viewer, authors, n, answers) : OK;
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

/* The next candidates below *below from the views. *silent: the views have nothing more to say, and
 * below *below it is for truth to answer (0: nobody has anything more). */
static enum err next_from_views(struct reading *r, uint64_t *below, struct chunk *c, bool *silent)
{
    uint64_t floor;
    size_t max = chunk_size(r);
    c->from_truth = false;
    *silent = false;
    enum err e = views_home(r->views, r->viewer, *below, c->ids, max, &c->count, &floor);
    if (e)
        return e;
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
    enum err e = db_read(r->db, read_truth_ids, &t, NULL);
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

/* ---- drawing ---- */

struct draw_fill {
    uint64_t authors[FEED_LIMIT_MAX];
    card_ticket tickets[FEED_LIMIT_MAX];
    struct str json[FEED_LIMIT_MAX];
    size_t author_count;
    bool want_likes;
    card_ticket likes_ticket;
    uint64_t viewer;
    const uint64_t *posts;
    size_t post_count;
    bool *liked;
    uint64_t likes[LIKES_KEPT];
    size_t like_count;
    struct arena *arena;
};

/* The accounts' fragments as JSON; an account that is deleted gets none. */
static enum err load_authors(struct tx *tx, const uint64_t *ids, size_t n, struct arena *arena,
                             struct str *json)
{
    struct db_rows rows;
    for (size_t i = 0; i < n; i++)
        json[i] = (struct str){0};
    enum err e = tx_query(tx,
                          "SELECT id, username, display_name, avatar_url FROM accounts "
                          "WHERE id IN (SELECT id FROM ids($1)) AND state <> 2",
                          DB_ARGS(DB_IDS(ids, n)), &rows);
    if (e)
        return e;
    struct buf text;
    struct json_out j;
    buf_init(&text, 0);
    while (db_next(&rows)) {
        struct account a = {.id = db_id(&rows, 0),
                            .username = db_text(&rows, 1),
                            .display_name = db_text(&rows, 2),
                            .avatar_url = db_text(&rows, 3)};
        buf_clear(&text);
        json_out_init(&j, &text);
        account_write_brief(&j, &a);
        for (size_t i = 0; i < n; i++) {
            if (ids[i] == a.id)
                json[i] = arena_str(arena, buf_view(&text));
        }
    }
    buf_done(&text);
    return db_rows_done(&rows);
}

static enum err load_liked(struct tx *tx, uint64_t viewer, const uint64_t *posts, size_t n,
                           bool *liked)
{
    struct db_rows rows;
    memset(liked, 0, n * sizeof *liked);
    enum err e = tx_query(tx,
                          "SELECT post_id FROM likes WHERE account_id = $1 "
                          "AND post_id IN (SELECT id FROM ids($2))",
                          DB_ARGS(DB_I64(viewer), DB_IDS(posts, n)), &rows);
    if (e)
        return e;
    while (db_next(&rows)) {
        uint64_t id = db_id(&rows, 0);
        for (size_t i = 0; i < n; i++)
            liked[i] = liked[i] || posts[i] == id;
    }
    return db_rows_done(&rows);
}

static enum err read_draw(struct tx *tx, void *arg)
{
    struct draw_fill *f = arg;
    enum err e = OK;
    if (f->author_count > 0)
        e = load_authors(tx, f->authors, f->author_count, f->arena, f->json);
    if (e || !f->want_likes)
        return e;
    e = load_liked(tx, f->viewer, f->posts, f->post_count, f->liked);
    if (e)
        return e;
    struct db_rows rows;
    f->like_count = 0;
    e = tx_query(tx,
                 "SELECT post_id FROM likes WHERE account_id = $1 ORDER BY post_id DESC LIMIT $2",
                 DB_ARGS(DB_I64(f->viewer), DB_I64(LIKES_KEPT)), &rows);
    if (e)
        return e;
    while (f->like_count < LIKES_KEPT && db_next(&rows))
        f->likes[f->like_count++] = db_id(&rows, 0);
    return db_rows_done(&rows);
}

static void want_author(struct reading *r, struct draw_fill *f, uint64_t author)
{
    for (size_t i = 0; i < f->author_count; i++) {
        if (f->authors[i] == author)
            return;
    }
    f->authors[f->author_count] = author;
    f->tickets[f->author_count++] = cards_ticket(r->cards, author);
}

/* Gets what memory lacks for drawing and keeps it there. */
static enum err fill_draw(struct reading *r, const uint64_t *authors, struct str *json, size_t n,
                          const uint64_t *posts, bool *liked, bool want_likes)
{
    struct draw_fill *f = ARENA_NEW(r->arena, struct draw_fill);
    f->arena = r->arena;
    f->viewer = r->viewer;
    f->posts = posts;
    f->post_count = n;
    f->liked = liked;
    f->want_likes = want_likes;
    if (want_likes)
        f->likes_ticket = cards_ticket(r->cards, cards_likes_key(r->viewer));
    for (size_t i = 0; i < n; i++) {
        if (!json[i].ptr)
            want_author(r, f, authors[i]);
    }
    enum err e = db_read(r->db, read_draw, f, NULL);
    if (e)
        return e;
    for (size_t k = 0; k < f->author_count; k++) {
        if (!f->json[k].ptr)
            continue;
        cards_put_account(r->cards, f->tickets[k], f->authors[k], f->json[k]);
        for (size_t i = 0; i < n; i++) {
            if (authors[i] == f->authors[k])
                json[i] = f->json[k];
        }
    }
    if (want_likes) {
        bool all = f->like_count < LIKES_KEPT;
        cards_put_likes(r->cards, f->likes_ticket, r->viewer, f->likes, f->like_count,
                        all ? 0 : f->likes[f->like_count - 1] - 1);
    }
    return OK;
}

/* Drops the items without an author: deleted since the page was gathered. */
static void put_drawn(struct feed_item *items, size_t *count, const struct str *json,
                      const bool *liked)
{
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        if (!json[i].ptr)
            continue;
        items[kept].card = items[i].card;
        items[kept].author_json = json[i];
        items[kept].liked = liked[i];
        kept++;
    }
    *count = kept;
}

static enum err draw(struct reading *r)
{
    uint64_t authors[FEED_LIMIT_MAX], posts[FEED_LIMIT_MAX];
    struct str json[FEED_LIMIT_MAX];
    bool liked[FEED_LIMIT_MAX];
    size_t n = r->page->count;
    if (n == 0)
        return OK;
    for (size_t i = 0; i < n; i++) {
        authors[i] = r->page->items[i].card.author;
        posts[i] = r->page->items[i].card.id;
    }
    cards_accounts(r->cards, authors, n, json, r->arena);
    bool lacking = false;
    for (size_t i = 0; i < n; i++)
        lacking = lacking || !json[i].ptr;
    enum err e = cards_liked(r->cards, r->viewer, posts, n, liked);
    bool want_likes = e == ERR_NEEDS_TRUTH;
    if (e && !want_likes)
        return e;
    if (lacking || want_likes) {
        if (!r->db)
            return ERR_NEEDS_TRUTH;
        e = fill_draw(r, authors, json, n, posts, liked, want_likes);
        if (e)
            return e;
    }
    put_drawn(r->page->items, &r->page->count, json, liked);
    r->page->lasting = r->page->lasting && r->page->count == n;
    return OK;
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
    enum err e = gather(r, below);
    return e ? e : draw(r);
}

enum err feed_read(struct views *views, struct cards *cards, struct db *db, uint64_t viewer,
                   uint64_t below, size_t limit, struct arena *arena, struct feed_page *page)
{
    struct reading r = {.views = views,
                        .cards = cards,
                        .db = db,
                        .viewer = viewer,
                        .may_rebuild = true,
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
                        .limit = limit,
                        .arena = arena,
                        .page = page};
    return read_page(&r, below);
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
    uint64_t authors[FEED_LIMIT_MAX], posts[FEED_LIMIT_MAX];
    struct str json[FEED_LIMIT_MAX];
    bool liked[FEED_LIMIT_MAX] = {false};
    *count = 0;
    if (n == 0 || n > FEED_LIMIT_MAX)
        return n == 0 ? OK : ERR_BAD_INPUT;
    struct post_card *found = ARENA_ARRAY(arena, struct post_card, n);
    enum err e = hydrate_cards(cards, tx, ids, n, arena, found, state);
    for (size_t i = 0; !e && i < n; i++) {
        if (state[i] != CARD_FOUND)
            continue;
        authors[*count] = found[i].author;
        posts[*count] = found[i].id;
        items[(*count)++].card = found[i];
    }
    if (e || *count == 0)
        return e;
    e = load_authors(tx, authors, *count, arena, json);
    if (!e && viewer)
        e = load_liked(tx, viewer, posts, *count, liked);
    if (!e)
        put_drawn(items, count, json, liked);
    return e;
}

enum err feed_author(struct cards *cards, struct tx *tx, uint64_t author, struct arena *arena,
                     struct str *json)
{
    cards_accounts(cards, &author, 1, json, arena);
    if (json->ptr)
        return OK;
    enum err e = load_authors(tx, &author, 1, arena, json);
    return !e && !json->ptr ? tx_fail(tx, ERR_NOT_FOUND, "no such account") : e;
}
