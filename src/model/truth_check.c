/* Comparing what is derived with truth, one account at a time: its counters, its edges in the
 * graph, its feed and its inbox, page by page, with the oracle.
 *
 * The server goes on working meanwhile, so a difference counts only when it is still there after a
 * second and a third look. A feed is put right by applying, for every post that is missing or too
 * much, what truth says about the post, its author and the two people's relation. A dropped
 * timeline is not brought back for being looked at. */
#include "model/truth_check.h"

#include "base/check.h"
#include "model/account.h"
#include "model/feed.h"
#include "model/sinks.h"

enum { IDS_SHOWN = 20 };

/* ---- feeds ---- */

bool look_is_same(const struct look *l)
{
    return l->oracle_count == l->shown_count &&
           memcmp(l->oracle, l->shown, l->shown_count * sizeof *l->shown) == 0;
}

enum err look_at(struct look *l)
{
    struct check *k = l->check;
    enum err e = OK;
    if (!l->oracle) {
        l->oracle = ARENA_ARRAY(&k->arena, uint64_t, k->depth);
        l->shown = ARENA_ARRAY(&k->arena, uint64_t, k->depth);
    }
    for (int i = 0; !e && i < CHECK_LOOKS; i++) {
        e = l->read_shown(l);
        if (!e)
            e = db_read(k->db, l->read_oracle, l, NULL);
        if (!e && look_is_same(l))
            return OK;
    }
    return e;
}

static enum err read_oracle(struct tx *tx, void *arg)
{
    struct look *f = arg;
    return feed_oracle(tx, f->account, UINT64_MAX, f->check->depth, f->oracle, &f->oracle_count);
}

static enum err read_shown(struct look *f)
{
    struct check *k = f->check;
    struct feed_page *page = ARENA_NEW(&k->arena, struct feed_page);
    uint64_t below = UINT64_MAX;
    f->shown_count = 0;
    while (below > 0 && f->shown_count < k->depth) {
        struct arena arena;
        size_t left = k->depth - f->shown_count;
        arena_init(&arena);
        enum err e = feed_peek(k->views, k->cards, k->db, f->account, below,
                               left < FEED_LIMIT_MAX ? left : FEED_LIMIT_MAX, &arena, page);
        arena_done(&arena);
        if (e)
            return e;
        for (size_t i = 0; i < page->count; i++)
            f->shown[f->shown_count++] = page->items[i].card.id;
        below = page->next_below;
    }
    return OK;
}

static bool holds(const uint64_t *falling, size_t n, uint64_t id)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (falling[middle] > id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && falling[low] == id;
}

/* Calls `visit` for the ids of `a` that are not in `b` (both falling), at most `max` of them. */
static enum err each_only_in(const uint64_t *a, size_t n, const uint64_t *b, size_t m, size_t max,
                             enum err (*visit)(void *ctx, uint64_t id), void *ctx)
{
    enum err e = OK;
    for (size_t i = 0; !e && i < n && max > 0; i++) {
        if (holds(b, m, a[i]))
            continue;
        e = visit(ctx, a[i]);
        max--;
    }
    return e;
}

struct id_list {
    uint64_t ids[IDS_SHOWN];
    size_t count;
};

static enum err list_id(void *ctx, uint64_t id)
{
    struct id_list *list = ctx;
    list->ids[list->count++] = id;
    return OK;
}

static void report_feed(struct check *k, const struct look *f)
{
    struct id_list missing = {.count = 0}, extra = {.count = 0};
    each_only_in(f->oracle, f->oracle_count, f->shown, f->shown_count, IDS_SHOWN, list_id,
                 &missing);
    each_only_in(f->shown, f->shown_count, f->oracle, f->oracle_count, IDS_SHOWN, list_id, &extra);
    check_tell(k, &(struct check_difference){.kind = DIFFERENCE_FEED,
                                             .account = f->account,
                                             .missing = missing.ids,
                                             .missing_count = missing.count,
                                             .extra = extra.ids,
                                             .extra_count = extra.count});
}

/* ---- putting a feed right ---- */

struct post_truth {
    uint64_t viewer, post, author;
    bool exists, hidden, follows, muted;
    int64_t delivery;
};

static enum err read_post_truth(struct tx *tx, void *arg)
{
    struct post_truth *p = arg;
    int64_t row[5] = {0};
    enum err e = tx_get_numbers(
        tx,
        "SELECT p.author_id, p.delivery, a.state, "
        "(SELECT COUNT(*) FROM follows WHERE follower_id = $2 AND followee_id = p.author_id), "
        "(SELECT COUNT(*) FROM mutes WHERE muter_id = $2 AND muted_id = p.author_id) "
        "FROM posts p JOIN accounts a ON a.id = p.author_id "
        "WHERE p.id = $1 AND p.deleted_at IS NULL",
        DB_ARGS(DB_I64(p->post), DB_I64(p->viewer)), row, COUNT_OF(row));
    p->exists = !e;
    p->author = (uint64_t)row[0];
    p->delivery = row[1];
    p->hidden = row[2] != ACCOUNT_ACTIVE;
    p->follows = row[3] > 0;
    p->muted = row[4] > 0;
    return e == ERR_NOT_FOUND ? OK : e;
}

struct repairing {
    struct check *check;
    uint64_t viewer;
};

/* How the two people stand to each other may change while it is repaired, and a repair must not
 * undo a removal that was answered meanwhile. So it is said again by events, in the order of the
 * commits, like everything that becomes true. */
static enum err tell_relation(struct tx *tx, void *arg)
{
    struct post_truth *p = arg;
    enum err e = read_post_truth(tx, p);
    if (e || !p->exists || p->author == p->viewer)
        return e;
    const struct event facts[] = {
        {.type = p->hidden ? EVENT_ACCOUNT_SUSPENDED : EVENT_ACCOUNT_RESTORED, .actor = p->author},
        {.type = p->muted ? EVENT_MUTE_CREATED : EVENT_MUTE_REMOVED,
         .actor = p->viewer,
         .object = p->author},
        {.type = p->follows ? EVENT_FOLLOW_CREATED : EVENT_FOLLOW_REMOVED,
         .actor = p->viewer,
         .object = p->author},
    };
    for (size_t i = 0; !e && i < COUNT_OF(facts); i++)
        e = outbox_emit(tx, facts[i]);
    return e;
}

static enum err repair_relation(struct check *k, struct post_truth *p)
{
    bool visible, expected = p->follows && !p->muted && !p->hidden;
    enum err e = graph_visible(k->views->graph, p->viewer, &p->author, 1, &visible);
    return e || visible == expected ? e : db_write(k->db, tell_relation, p, NULL);
}

static enum err repair_post_in_feed(void *ctx, uint64_t post)
{
    struct repairing *r = ctx;
    struct check *k = r->check;
    struct post_truth p = {.viewer = r->viewer, .post = post};
    enum err e = db_read(k->db, read_post_truth, &p, NULL);
    bool own = !e && p.exists && p.author == r->viewer;
    if (!e && p.exists && !own)
        e = repair_relation(k, &p);
    if (e)
        return e;
    if (!p.exists) {
        cards_write(k->cards, &(struct card_write){.kind = CARD_POST_GONE, .id = post}, 1);
        return OK;
    }
    /* Views may hold too much: what follows only adds, and readers filter. */
    const struct view_change posted = {
        .kind = VIEW_POST, .on = true, .account = p.author, .other = post, .value = p.delivery};
    TRY(views_apply(k->views, &posted, 1));
    if (own || !p.follows || p.delivery == DELIVERY_PULL)
        return OK;
    struct sink_env env = {.db = k->db, .views = k->views, .cards = k->cards};
    struct event followed = {.type = EVENT_FOLLOW_CREATED, .actor = r->viewer, .object = p.author};
    struct sink_result ignored = {0};
    return sink_backfill(&env, &followed, &r->viewer, 1, &ignored);
}

static enum err repair_feed(struct check *k, struct look *f)
{
    struct repairing r = {.check = k, .viewer = f->account};
    enum err e = each_only_in(f->oracle, f->oracle_count, f->shown, f->shown_count, SIZE_MAX,
                              repair_post_in_feed, &r);
    if (!e)
        e = each_only_in(f->shown, f->shown_count, f->oracle, f->oracle_count, SIZE_MAX,
                         repair_post_in_feed, &r);
    if (!e)
        e = look_at(f);
    if (!e && look_is_same(f))
        k->result->repaired++;
    return e;
}

static enum err check_feed(struct check *k, uint64_t account)
{
    struct look f = {
        .check = k, .account = account, .read_oracle = read_oracle, .read_shown = read_shown};
    TRY(look_at(&f));
    k->result->feeds++;
    if (look_is_same(&f))
        return OK;
    k->result->feed_errors++;
    report_feed(k, &f);
    return k->repair ? repair_feed(k, &f) : OK;
}

/* ---- the walk ---- */

struct account_slice {
    uint64_t from;
    size_t limit;
    uint64_t *ids; /* room for limit + 1 */
    size_t count;
};

static enum err read_slice(struct tx *tx, void *arg)
{
    struct account_slice *s = arg;
    return tx_get_ids(
        tx, "SELECT id FROM accounts WHERE id >= $1 AND state <> 2 ORDER BY id LIMIT $2",
        DB_ARGS(DB_I64(s->from), DB_I64(s->limit + 1)), s->ids, s->limit + 1, &s->count);
}

/* The graph comes before the feed: a feed that is wrong for want of an edge is right after that. */
static enum err check_account(struct check *k, uint64_t account)
{
    TRY(check_counters(k, account, COUNTERS_ACCOUNT));
    TRY(check_counters(k, account, COUNTERS_POSTS));
    TRY(check_graph(k, account, CHECK_FOLLOWING));
    TRY(check_graph(k, account, CHECK_FOLLOWERS));
    TRY(check_feed(k, account));
    TRY(check_counters(k, account, COUNTERS_GROUPS));
    TRY(check_counters(k, account, COUNTERS_READ_MARKS));
    return check_inbox(k, account);
}

enum err truth_check(struct db *db, struct views *views, struct cards *cards, uint64_t from,
                     size_t limit, size_t depth, bool repair, struct check_report report,
                     struct check_result *result)
{
    struct check k = {.db = db,
                      .views = views,
                      .cards = cards,
                      .depth = depth > 0 ? depth : 1,
                      .repair = repair,
                      .members = true,
                      .report = report,
                      .result = result};
    struct arena arena;
    arena_init(&arena);
    arena_init(&k.arena);
    *result = (struct check_result){0};
    struct account_slice slice = {
        .from = from, .limit = limit, .ids = ARENA_ARRAY(&arena, uint64_t, limit + 1)};
    enum err e = db_read(db, read_slice, &slice, NULL);
    for (size_t i = 0; !e && i < slice.count && i < limit; i++) {
        e = check_account(&k, slice.ids[i]);
        if (e == ERR_NOT_FOUND)
            e = OK; /* deleted while it was being looked at */
        arena_reset(&k.arena);
    }
    if (!e && slice.count > limit)
        result->next_account = slice.ids[limit];
    arena_done(&k.arena);
    arena_done(&arena);
    return e == ERR_NEEDS_TRUTH ? ERR_UNAVAILABLE : e; /* the views have lost what they knew */
}
