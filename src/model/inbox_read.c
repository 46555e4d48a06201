/* Reading the inbox: order and candidates from the views, everything that is shown from cards, or
 * else from truth, which fills them (inbox_cards.h).
 *
 * A page is gathered in chunks of candidates. Each chunk is one question to the views and at most
 * one query (inbox_rows), whatever the person's number of groups; truth alone would look at all of
 * them for every page. Groups that the person has left are passed over: the views may still name
 * them.
 *
 * The snapshot begins after the views were asked, so it holds whatever made them say so. What the
 * snapshot knows and the views do not know yet is a message that is being delivered: its group
 * stands where it stood, with the new message shown, until the delivery moves it.
 *
 * **Position.** A driver may know activities without their node (port/inboxes.h). Truth has the
 * whole of it; so a candidate stands where truth says, unless truth has gone on since. Drained,
 * that is exactly the order of inbox_from_truth, and a cursor means the same to both. Of a group
 * that has gone on, the node of its latest message is taken for that of the one before; so the last
 * of a page, which such a driver names again with the next, is found to be no lower than it was.
 *
 * An inbox that was dropped is built again by the first to read it: collecting begins first, truth
 * is read afterwards (inboxes_begin). Where that cannot be, because another reader does it or
 * shared views are away or have lost something, the page comes from truth, and no more than a few
 * at a time. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/id.h"
#include "model/inbox.h"
#include "model/inbox_cards.h"

enum {
    CHUNK_MAX = INBOX_LIMIT_MAX,
    CHUNK_MIN = 16,
    CHUNK_SLACK = 3, /* one to see whether there is more, and some that the person has left */
    IN_VAIN_MAX = 4, /* chunks with nothing for the page: archived groups. Truth knows which. */
    REBUILDS_MAX = 32,
    FROM_TRUTH_MAX = 16,
};

#define NODE_MASK (((UINT64_C(1) << ID_NODE_BITS) - 1) << ID_COUNTER_BITS)

static _Atomic int rebuilds, from_truth; /* under way */

struct reading {
    struct views *views;
    struct cards *cards; /* NULL: others change them, too */
    struct db *db;       /* NULL: memory alone */
    uint64_t account;
    bool archived;
    size_t limit;
    struct arena *arena;
    struct inbox_page *page;
    bool truth_failed; /* and not the views, for which truth can speak */
};

/* ---- bringing an inbox back ---- */

struct whole {
    uint64_t account;
    struct inbox_entry *entries;
    size_t max, n;
};

static enum err read_whole(struct tx *tx, void *arg)
{
    struct whole *w = arg;
    return inbox_all_from_truth(tx, w->account, w->entries, w->max, &w->n);
}

static enum err fill(struct views *views, struct db *db, uint64_t account)
{
    struct whole w = {.account = account, .max = INBOX_MAX + 1};
    w.entries = malloc(w.max * sizeof *w.entries);
    CHECK(w.entries);
    enum err e = db_read(db, read_whole, &w, NULL);
    FAULT(rebuild_before_install);
    if (!e && w.n <= INBOX_MAX) {
        e = inboxes_end(views->inboxes, account, w.entries, w.n);
    } else {
        (void)inboxes_give_up(views->inboxes, account);
        e = e ? e : ERR_CONFLICT;
    }
    free(w.entries);
    return e;
}

enum err inbox_rebuild(struct views *views, struct db *db, uint64_t account, bool anew)
{
    enum err e = ERR_OVERLOADED;
    if (atomic_fetch_add(&rebuilds, 1) < REBUILDS_MAX) {
        e = anew ? inboxes_anew(views->inboxes, account) : inboxes_begin(views->inboxes, account);
        if (!e)
            e = fill(views, db, account);
    }
    atomic_fetch_sub(&rebuilds, 1);
    return e;
}

/* Candidates from the views; a dropped inbox is there afterwards if it could be built. */
static enum err candidates(struct views *views, struct db *db, uint64_t account, uint64_t below,
                           struct inbox_entry *out, size_t max, size_t *n)
{
    enum err e = inboxes_read(views->inboxes, account, below, out, max, n);
    if (e != ERR_NEEDS_TRUTH || !db)
        return e;
    (void)inbox_rebuild(views, db, account, false); /* in vain: the next line says so */
    return inboxes_read(views->inboxes, account, below, out, max, n);
}

/* ---- a page ---- */

struct shown {
    uint64_t account;
    uint64_t groups[CHUNK_MAX];
    size_t n;
    struct arena *arena;
    struct inbox_item *items;
    size_t count;
};

static enum err read_items(struct tx *tx, void *arg)
{
    struct shown *s = arg;
    return inbox_rows(tx, s->account, s->groups, s->n, s->arena, s->items, &s->count);
}

/* What is shown of a chunk. */
static enum err show(struct reading *r, struct shown *s, struct inbox_look *look)
{
    if (!r->cards ||
        !inbox_look(look, r->cards, r->account, s->groups, s->n, r->arena, s->items, &s->count)) {
        if (!r->db)
            return ERR_NEEDS_TRUTH;
        if (r->cards)
            inbox_fill_begin(look);
        enum err e = db_read(r->db, read_items, s, NULL);
        r->truth_failed = e != OK;
        if (e)
            return e;
        if (r->cards)
            inbox_fill_end(look, s->items, s->count, r->arena);
    }
    inbox_hide_unseen(s->items, s->count);
    return OK;
}

static bool is_same_event(uint64_t a, uint64_t b)
{
    return ((a ^ b) & ~NODE_MASK) == 0;
}

static int by_position(const void *a, const void *b)
{
    const struct inbox_item *x = a, *y = b;
    return x->position < y->position ? 1 : x->position > y->position ? -1 : 0;
}

/* Where the views have it, with the node that truth knows. */
static void set_positions(struct inbox_item *items, size_t count, const struct inbox_entry *entries,
                          size_t n)
{
    size_t at = 0; /* items come in the order of the entries, some are left out */
    for (size_t i = 0; i < count; i++) {
        while (at < n && entries[at].group != items[i].group.id)
            at++;
        CHECK(at < n);
        uint64_t seen = entries[at].activity;
        if (is_same_event(seen, items[i].activity))
            items[i].position = items[i].activity;
        else
            items[i].position = seen & NODE_MASK ? seen : seen | (items[i].activity & NODE_MASK);
    }
    qsort(items, count, sizeof *items, by_position);
}

/* The one that the page before ended with, and that has gone on: whatever node is taken for its. */
static bool is_cursor(const struct inbox_item *item, uint64_t below)
{
    return item->position != item->activity && ((item->position ^ below) & ~NODE_MASK) == 0;
}

/* Puts on the page what belongs there: one more than the limit shows that there is more. */
static size_t take(struct reading *r, const struct inbox_item *items, size_t count, uint64_t below)
{
    struct inbox_page *page = r->page;
    size_t taken = 0;
    for (size_t i = 0; i < count && page->count <= r->limit; i++) {
        const struct inbox_item *item = &items[i];
        if (item->position >= below || is_cursor(item, below) ||
            item->group.archived != r->archived)
            continue;
        page->items[page->count++] = *item;
        taken++;
    }
    return taken;
}

static size_t chunk_size(const struct reading *r)
{
    size_t size = r->limit + 1 - r->page->count + CHUNK_SLACK;
    return size < CHUNK_MIN ? CHUNK_MIN : size > CHUNK_MAX ? CHUNK_MAX : size;
}

/* ERR_NEEDS_TRUTH: it is for truth to answer. */
static enum err gather(struct reading *r, uint64_t below)
{
    struct inbox_entry entries[CHUNK_MAX];
    struct shown s = {.account = r->account, .arena = r->arena};
    struct inbox_look look; /* large, and filled as far as it is used */
    uint64_t from = below;
    unsigned in_vain = 0;
    s.items = ARENA_ARRAY(r->arena, struct inbox_item, chunk_size(r)); /* the largest of them */
    while (r->page->count <= r->limit) {
        size_t n;
        enum err e = candidates(r->views, r->db, r->account, from, entries, chunk_size(r), &n);
        if (e || n == 0)
            return e;
        for (size_t i = 0; i < n; i++)
            s.groups[i] = entries[i].group;
        s.n = n;
        e = show(r, &s, &look);
        if (e)
            return e;
        set_positions(s.items, s.count, entries, n);
        in_vain = take(r, s.items, s.count, below) ? 0 : in_vain + 1;
        if (in_vain == IN_VAIN_MAX)
            return ERR_NEEDS_TRUTH;
        from = entries[n - 1].activity;
    }
    return OK;
}

static void finish(struct reading *r)
{
    struct inbox_page *page = r->page;
    bool more = page->count > r->limit;
    page->count = more ? r->limit : page->count;
    page->next_below = more ? page->items[page->count - 1].position : 0;
}

/* ---- from truth alone ---- */

struct truth_page {
    struct reading *r;
    uint64_t below;
};

static enum err read_truth_page(struct tx *tx, void *arg)
{
    struct truth_page *t = arg;
    struct reading *r = t->r;
    uint64_t groups[INBOX_LIMIT_MAX + 1], activities[INBOX_LIMIT_MAX + 1];
    size_t n = 0;
    struct inbox_page *page = r->page;
    page->count = 0;
    page->next_below = 0;
    /* one more than the page, to know whether it is the last */
    enum err e = inbox_from_truth(tx, r->account, t->below, r->archived, r->limit + 1, groups,
                                  activities, &n);
    bool more = n > r->limit;
    n = more ? r->limit : n;
    if (!e)
        e = inbox_items(tx, r->account, groups, n, r->arena, page->items, &page->count);
    if (!e && more)
        page->next_below = activities[n - 1];
    return e;
}

static enum err page_from_truth(struct reading *r, uint64_t below)
{
    struct truth_page t = {r, below};
    enum err e = ERR_OVERLOADED;
    if (atomic_fetch_add(&from_truth, 1) < FROM_TRUTH_MAX)
        e = db_read(r->db, read_truth_page, &t, NULL);
    atomic_fetch_sub(&from_truth, 1);
    return e;
}

static bool truth_knows(enum err e)
{
    return e == ERR_UNAVAILABLE || e == ERR_TIMEOUT || e == ERR_NEEDS_TRUTH || e == ERR_NOT_FOUND;
}

enum err inbox_page_read(struct views *views, struct cards *cards, struct db *db, uint64_t account,
                         uint64_t below, bool archived, size_t limit, struct arena *arena,
                         struct inbox_page *page)
{
    struct reading r = {.views = views,
                        .cards = cards->shared ? NULL : cards,
                        .db = db,
                        .account = account,
                        .archived = archived,
                        .limit = limit,
                        .arena = arena,
                        .page = page};
    CHECK(limit >= 1 && limit <= INBOX_LIMIT_MAX);
    page->count = 0;
    page->next_below = 0;
    if (!db && (archived || views->remote || cards->shared))
        return ERR_NEEDS_TRUTH;
    if (archived) /* mostly a few among many: the views would have to be read through for them */
        return page_from_truth(&r, below);
    enum err e = gather(&r, below);
    if (!e)
        finish(&r);
    return db && truth_knows(e) && !r.truth_failed ? page_from_truth(&r, below)
           : db || e != ERR_NOT_FOUND              ? e
                                                   : ERR_NEEDS_TRUTH;
}

/* ---- the top ---- */

enum err inbox_top(struct views *views, struct db *db, uint64_t account, struct inbox_entry *out,
                   size_t max, size_t *n)
{
    struct whole w = {.account = account, .entries = out, .max = max};
    enum err e = candidates(views, db, account, UINT64_MAX, out, max, n);
    if (!truth_knows(e))
        return e;
    e = db_read(db, read_whole, &w, NULL);
    *n = w.n;
    return e;
}
