/* Rebuilds derived state from truth, account by account, while the server runs.
 *
 * A timeline is begun anew in one act of the views: from then on it collects pushes, and readers
 * meanwhile get their pages from truth, as after a restart. Truth is read after that moment, so a
 * post that the snapshot does not show was pushed, or will be, while the timeline collects. No
 * reader ever sees a page from a half-made timeline. A reader may begin a rebuild of the same
 * timeline at the same time; the first to end makes it ready, which the views guarantee.
 *
 * Inboxes are made anew in the same way (inbox_rebuild).
 *
 * Counters are counted again by the check's own repair, each in a transaction of its own: the rows
 * and the number that counts them change together or not at all.
 *
 * "Changed" is what an operator wants to know afterwards: was anything wrong? For timelines the ids
 * before and after are compared as far as both are complete and below the moment at which it began;
 * an older post whose fan-out arrives just then counts as a difference. */
#include "model/rebuild.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/id.h"
#include "model/account.h"
#include "model/feed.h"
#include "model/inbox.h"
#include "model/truth_check.h"

enum { INBOX_COMPARED = 1000 }; /* groups of an inbox that are looked at for what was wrong */

static const char *const names[REBUILD_KINDS] = {"timelines", "counters", "inboxes"};

const char *rebuild_name(enum rebuild_what what)
{
    CHECK(what < REBUILD_KINDS);
    return names[what];
}

bool rebuild_parse(struct str name, enum rebuild_what *what)
{
    for (int i = 0; i < REBUILD_KINDS; i++) {
        if (str_eq(name, str_of(names[i]))) {
            *what = (enum rebuild_what)i;
            return true;
        }
    }
    return false;
}

struct rebuilding {
    struct db *db;
    struct views *views;
    struct cards *cards;
    struct arena arena; /* of one account */
};

/* ---- timelines ---- */

/* What readers are offered from memory, newest first, at most as many as a timeline holds. */
struct offer {
    uint64_t *ids;
    size_t count;
    uint64_t floor; /* complete above it; UINT64_MAX: there is no timeline */
};

static enum err read_offer(struct rebuilding *b, uint64_t viewer, struct offer *out)
{
    size_t cap = b->views->cap;
    out->ids = ARENA_ARRAY(&b->arena, uint64_t, cap);
    enum err e = timelines_home(b->views->timelines, viewer, UINT64_MAX, out->ids, cap, &out->count,
                                &out->floor);
    if (!e && out->count == cap && out->ids[cap - 1] - 1 > out->floor)
        out->floor = out->ids[cap - 1] - 1; /* there may be more below, which was not asked for */
    return e;
}

/* Ids at or below `low`, where one of the two is silent, and above `high` do not count. */
static bool differ(const struct offer *a, const struct offer *b, uint64_t low, uint64_t high)
{
    size_t i = 0, k = 0;
    while (i < a->count && a->ids[i] > high)
        i++;
    while (k < b->count && b->ids[k] > high)
        k++;
    for (;; i++, k++) {
        uint64_t x = i < a->count && a->ids[i] > low ? a->ids[i] : 0;
        uint64_t y = k < b->count && b->ids[k] > low ? b->ids[k] : 0;
        if (x != y)
            return true;
        if (x == 0)
            return false;
    }
}

static enum err rebuild_timeline(struct rebuilding *b, uint64_t viewer, bool *changed)
{
    struct offer before, now;
    uint64_t began = id_next(b->db->ids); /* above every post so far */
    TRY(read_offer(b, viewer, &before));
    if (before.floor == UINT64_MAX)
        return OK;
    bool truth_failed;
    enum err e = feed_rebuild(b->views, b->db, viewer, true, &truth_failed);
    if (e) /* dropped or begun by another meanwhile: then it is made from truth anyhow */
        return e == ERR_CONFLICT ? OK : e;
    TRY(read_offer(b, viewer, &now));
    if (now.floor == UINT64_MAX)
        return OK;
    *changed = differ(&before, &now, before.floor > now.floor ? before.floor : now.floor, began);
    return OK;
}

/* ---- inboxes ---- */

struct inbox_offer {
    struct inbox_entry *entries;
    size_t count;
    bool there;
};

static enum err read_inbox(struct rebuilding *b, uint64_t account, struct inbox_offer *out)
{
    size_t max = INBOX_COMPARED, n = 0;
    uint64_t below = UINT64_MAX;
    out->entries = ARENA_ARRAY(&b->arena, struct inbox_entry, max);
    out->count = 0;
    out->there = false;
    do {
        enum err e = inboxes_read(b->views->inboxes, account, below, out->entries + out->count,
                                  max - out->count, &n);
        if (e)
            return e == ERR_NEEDS_TRUTH ? OK : e;
        out->count += n;
        below = n ? out->entries[out->count - 1].activity : 0;
    } while (n > 0 && out->count < max);
    out->there = true;
    return OK;
}

/* A group with activity since it began may have moved by itself; one too many does no harm, and one
 * that was left goes with the rebuild. What counts is a group that was missing or too low. */
static bool was_wrong(const struct inbox_offer *before, const struct inbox_offer *now,
                      uint64_t began)
{
    uint64_t floor =
        before->count < INBOX_COMPARED ? 0 : before->entries[before->count - 1].activity;
    for (size_t i = 0; i < now->count; i++) {
        const struct inbox_entry *x = &now->entries[i];
        if (x->activity >= began || x->activity < floor)
            continue;
        bool found = false;
        for (size_t k = 0; k < before->count && !found; k++)
            found =
                before->entries[k].group == x->group && before->entries[k].activity == x->activity;
        if (!found)
            return true;
    }
    return false;
}

static enum err rebuild_inbox(struct rebuilding *b, uint64_t account, bool *changed)
{
    struct inbox_offer before, now;
    uint64_t began = id_next(b->db->ids); /* above every message so far */
    TRY(read_inbox(b, account, &before));
    if (!before.there)
        return OK;
    enum err e = inbox_rebuild(b->views, b->db, account, true);
    if (e) /* dropped or begun by another meanwhile: then it is made from truth anyhow */
        return e == ERR_CONFLICT ? OK : e;
    e = read_inbox(b, account, &now);
    if (!e && now.there)
        *changed = was_wrong(&before, &now, began);
    return e;
}

/* ---- counters ---- */

static enum err rebuild_counters(struct rebuilding *b, uint64_t account, bool *changed)
{
    struct check_result result = {0};
    struct check k = {.db = b->db,
                      .views = b->views,
                      .cards = b->cards,
                      .depth = SIZE_MAX,
                      .repair = true,
                      .result = &result};
    arena_init(&k.arena);
    enum err e = OK;
    for (int which = COUNTERS_ACCOUNT; !e && which <= COUNTERS_READ_MARKS; which++)
        e = check_counters(&k, account, (enum counter_family)which);
    arena_done(&k.arena);
    *changed = result.counter_errors > 0;
    return e;
}

/* ---- the walk ---- */

struct people {
    uint64_t after, last;
    size_t max, count;
    struct {
        uint64_t id;
        bool active;
    } * rows;
};

/* All accounts and not only the active ones: a long run of others must not make one slice long. */
static enum err read_people(struct tx *tx, void *arg)
{
    struct people *p = arg;
    p->count = 0;
    struct db_rows rows = tx_rows(
        tx, "SELECT id, state FROM accounts WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3",
        DB_ARGS(DB_I64(p->after), DB_I64(p->last), DB_I64(p->max)));
    for (; p->count < p->max && db_next(&rows); p->count++) {
        p->rows[p->count].id = db_id(&rows, 0);
        p->rows[p->count].active = db_i64(&rows, 1) == ACCOUNT_ACTIVE;
    }
    return db_rows_done(&rows);
}

static enum err rebuild_account(struct rebuilding *b, enum rebuild_what what, uint64_t account,
                                uint64_t *changed)
{
    bool different = false;
    enum err e = what == REBUILD_TIMELINES ? rebuild_timeline(b, account, &different)
                 : what == REBUILD_INBOXES ? rebuild_inbox(b, account, &different)
                                           : rebuild_counters(b, account, &different);
    arena_reset(&b->arena);
    *changed += different;
    return e == ERR_NOT_FOUND ? OK : e; /* deleted meanwhile */
}

enum err rebuild_slice(struct db *db, struct views *views, struct cards *cards,
                       enum rebuild_what what, uint64_t after, uint64_t last, size_t max,
                       uint64_t *next, bool *end, uint64_t *seen, uint64_t *changed)
{
    struct rebuilding b = {.db = db, .views = views, .cards = cards};
    struct arena arena;
    arena_init(&arena);
    arena_init(&b.arena);
    struct people people = {
        .after = after, .last = last < INT64_MAX ? last : INT64_MAX, .max = max};
    people.rows = arena_alloc(&arena, max * sizeof *people.rows);
    *next = after;
    *end = false;
    *seen = *changed = 0;
    enum err e = db_read(db, read_people, &people, NULL);
    for (size_t i = 0; !e && i < people.count; i++) {
        if (people.rows[i].active)
            e = rebuild_account(&b, what, people.rows[i].id, changed);
        if (e)
            break;
        *seen += people.rows[i].active;
        *next = people.rows[i].id;
    }
    *end = !e && (people.count < max || *next >= last);
    arena_done(&b.arena);
    arena_done(&arena);
    return e;
}
