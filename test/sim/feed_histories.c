/* The oracle test: thousands of seeded random histories over the real stack (store, views, caches,
 * bus, engine), one thread, a clock moved by hand.
 *
 * A history is a random walk through everything that can change a feed: posts, edits, deletes,
 * likes, comments, follows, blocks, mutes, suspensions, deleted accounts, crossings of the
 * celebrity threshold and moves of the threshold itself, timelines dropped for inactivity,
 * snapshots, and restarts that lose all memory and come back from a snapshot or from truth.
 * Timelines are tiny, so that reading runs through their floor all the time. At any moment, with
 * the engine in the middle of its work, a person reads, and then must hold:
 *   - pages fall strictly, nothing comes twice;
 *   - nothing is shown that the oracle would not show at this moment (removals never lag);
 *   - one's own posts are all there (they do not lag either);
 *   - the content (caption, author, counters, liked) is what truth says;
 *   - memory alone gives the same page, or says that it needs truth. At the end, and sometimes in
 *     between, the engine is drained; then every feed must equal the oracle to its full depth, and
 *     the check must find no difference in feeds, counters and edges.
 *
 *     feed_histories [--count N] [--seed FIRST] [--long]
 *
 * With FANTAIL_TEST_DRIVERS=cluster the same over PostgreSQL, Redis and RabbitMQ
 * (support/drivers.h), with this process as the leader. There a snapshot is a second copy, and a
 * restart goes on with the views as they are, or loads them. Servers take their own time, so a seed
 * says what is done, not exactly how far the engine was when it happened.
 *
 * Prints the seed of a failing history and ends; `--seed S --count 1` runs that one again. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rand.h"
#include "model/account.h"
#include "model/celebrity.h"
#include "model/post.h"
#include "model/truth.h"
#include "world.h"

enum {
    PEOPLE_MAX = 9,
    POSTS_MAX = 400,
    COMMENTS_MAX = 100,
    FEED_MAX = POSTS_MAX,
    COUNT_NORMAL = 2000,
    COUNT_LONG = 100000,
    HISTORIES_A_STORE = 500
};

static const int64_t day_ms = INT64_C(24) * 3600 * 1000;

struct history {
    struct world *w;
    struct rand rand;
    uint64_t seed;
    size_t cap;
    uint64_t people[PEOPLE_MAX];
    bool deleted[PEOPLE_MAX];
    size_t people_count;
    uint64_t posts[POSTS_MAX];
    size_t post_count;
    uint64_t comments[COMMENTS_MAX];
    size_t comment_count;
    int step;
    bool loud;
};

static uint64_t pages_in_step; /* that a page source could draw, in all histories */

static uint64_t below(struct history *h, uint64_t n)
{
    return rand_below(&h->rand, n);
}

__attribute__((format(printf, 2, 3))) static _Noreturn void failed(struct history *h,
                                                                   const char *format, ...)
{
    va_list args;
    printf("# history %llu, step %d: ", (unsigned long long)h->seed, h->step);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n# run it again: feed_histories --seed %llu --count 1\nnot ok 1 - every feed equals "
           "the oracle\n",
           (unsigned long long)h->seed);
    fflush(stdout);
    abort();
}

__attribute__((format(printf, 2, 3))) static void tell(struct history *h, const char *format, ...)
{
    va_list args;
    if (!h->loud)
        return;
    printf("# %4d ", h->step);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

/* ---- reading in the middle of things ---- */

static bool holds(const uint64_t *ids, size_t n, uint64_t id)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

struct drawn {
    uint64_t viewer;
    const struct feed_item *item;
    bool same;
};

static enum err compare_item(struct tx *tx, void *arg)
{
    struct drawn *d = arg;
    struct db_rows rows;
    enum err e = tx_query(
        tx,
        "SELECT p.caption, p.like_count, p.comment_count, a.display_name, "
        "(SELECT COUNT(*) FROM likes WHERE post_id = p.id AND account_id = $2), p.author_id "
        "FROM posts p JOIN accounts a ON a.id = p.author_id WHERE p.id = $1",
        DB_ARGS(DB_I64(d->item->card.id), DB_I64(d->viewer)), &rows);
    if (e)
        return e;
    if (db_next(&rows)) {
        d->same = str_eq(d->item->card.caption, db_text(&rows, 0)) &&
                  d->item->card.like_count == (uint32_t)db_i64(&rows, 1) &&
                  d->item->card.comment_count == (uint32_t)db_i64(&rows, 2) &&
                  str_eq(d->item->author.display_name, db_text(&rows, 3)) &&
                  d->item->liked == (db_i64(&rows, 4) != 0) &&
                  d->item->card.author == db_id(&rows, 5);
    }
    return db_rows_done(&rows);
}

static void check_drawn(struct history *h, uint64_t viewer, const struct feed_page *page)
{
    for (size_t i = 0; i < page->count; i++) {
        struct drawn d = {.viewer = viewer, .item = &page->items[i]};
        EXPECT(db_read(h->w->db, compare_item, &d, NULL) == OK);
        if (!d.same)
            failed(h,
                   "post %llu is drawn for %llu otherwise than truth has it: %.*s likes %u "
                   "comments %u liked %d %.*s",
                   (unsigned long long)d.item->card.id, (unsigned long long)viewer,
                   STR_ARG(d.item->card.caption), d.item->card.like_count,
                   d.item->card.comment_count, d.item->liked, STR_ARG(d.item->author.display_name));
    }
}

/* Memory alone must give the same page as with truth at hand, when it gives one. */
static void check_memory(struct history *h, uint64_t viewer, uint64_t from, size_t limit,
                         const struct feed_page *page)
{
    struct feed_page other;
    struct arena arena;
    arena_init(&arena);
    enum err e = feed_read(h->w->views, h->w->cards, NULL, viewer, from, limit, &arena, &other);
    if (e != OK && e != ERR_NEEDS_TRUTH)
        failed(h, "a read from memory says %s", err_name(e));
    bool same = e || (other.count == page->count && other.next_below == page->next_below);
    for (size_t i = 0; !e && same && i < page->count; i++)
        same = other.items[i].card.id == page->items[i].card.id &&
               other.items[i].liked == page->items[i].liked;
    if (!same)
        failed(h, "memory alone shows %llu another page", (unsigned long long)viewer);
    arena_done(&arena);
}

/* So must a page source, for everybody at once. */
static void check_in_step(struct history *h, uint64_t viewer, size_t limit,
                          const struct feed_page *page)
{
    struct page_read reads[PAGE_READS_MAX];
    struct feed_page other;
    struct arena arena;
    size_t n = 0;
    if (!h->w->page_source)
        return;
    arena_init(&arena);
    reads[n++] = (struct page_read){.viewer = viewer, .max = feed_step_size(limit)};
    for (size_t i = 0; i < h->people_count && n < PAGE_READS_MAX; i++)
        reads[n++] = (struct page_read){.viewer = h->people[i],
                                        .max = feed_step_size(1 + below(h, FEED_LIMIT_MAX))};
    page_source_read(h->w->page_source, reads, n, &arena);
    if (feed_step(&reads[0], limit, &other) == OK) {
        bool same = other.count == page->count && other.next_below == page->next_below;
        for (size_t i = 0; same && i < page->count; i++)
            same = other.items[i].card.id == page->items[i].card.id &&
                   other.items[i].liked == page->items[i].liked &&
                   other.items[i].card.like_count == page->items[i].card.like_count &&
                   str_eq(other.items[i].author.username, page->items[i].author.username);
        if (!same)
            failed(h, "in step %llu is shown another page", (unsigned long long)viewer);
        pages_in_step++;
    }
    arena_done(&arena);
}

/* Walks the whole feed; returns how many posts it shows. */
static size_t read_feed(struct history *h, uint64_t viewer, uint64_t *ids)
{
    size_t n = 0, limit = 1 + below(h, 8);
    uint64_t from = UINT64_MAX;
    while (from > 0) {
        struct feed_page page;
        struct arena arena;
        arena_init(&arena);
        enum err e =
            feed_read(h->w->views, h->w->cards, h->w->db, viewer, from, limit, &arena, &page);
        if (e)
            failed(h, "reading the feed of %llu says %s", (unsigned long long)viewer, err_name(e));
        uint64_t last = from;
        for (size_t i = 0; i < page.count; i++) {
            uint64_t id = page.items[i].card.id;
            if (id >= last || n == FEED_MAX)
                failed(h, "the feed of %llu does not fall at %llu", (unsigned long long)viewer,
                       (unsigned long long)id);
            last = ids[n++] = id;
        }
        if (page.count > limit || page.next_below >= from ||
            (page.next_below && page.next_below != last))
            failed(h, "a page of %llu ends wrongly", (unsigned long long)viewer);
        check_memory(h, viewer, from, limit, &page);
        if (from == UINT64_MAX)
            check_in_step(h, viewer, limit, &page);
        if (below(h, 3) == 0)
            check_drawn(h, viewer, &page);
        from = page.next_below;
        arena_done(&arena);
    }
    return n;
}

static void check_read(struct history *h, size_t person)
{
    uint64_t viewer = h->people[person], shown[FEED_MAX], expected[FEED_MAX];
    if (h->deleted[person])
        return;
    if (below(h, 2))
        world_apply(h->w, (struct view_change){.kind = VIEW_LAST_SEEN,
                                               .account = viewer,
                                               .value = clock_wall_ms(&h->w->clock.clock)});
    size_t n = read_feed(h, viewer, shown);
    size_t all = world_oracle(h->w, viewer, expected, FEED_MAX);
    for (size_t i = 0; i < n; i++) {
        if (!holds(expected, all, shown[i]))
            failed(h, "%llu sees %llu, which is deleted, unfollowed, muted, blocked or hidden",
                   (unsigned long long)viewer, (unsigned long long)shown[i]);
    }
    for (size_t i = 0; i < all; i++) {
        int64_t author = world_i64(h->w, "SELECT author_id FROM posts WHERE id = $1",
                                   DB_ARGS(DB_I64(expected[i])));
        if ((uint64_t)author == viewer && !holds(shown, n, expected[i]))
            failed(h, "%llu does not see the own post %llu", (unsigned long long)viewer,
                   (unsigned long long)expected[i]);
    }
}

/* ---- after draining ---- */

static void check_exact(struct history *h)
{
    world_drain(h->w);
    for (size_t i = 0; i < h->people_count; i++) {
        uint64_t shown[FEED_MAX], expected[FEED_MAX];
        if (h->deleted[i])
            continue;
        size_t n = read_feed(h, h->people[i], shown);
        size_t all = world_oracle(h->w, h->people[i], expected, FEED_MAX);
        for (size_t k = 0; k < (n > all ? n : all); k++) {
            if (k >= n || k >= all || shown[k] != expected[k])
                failed(h,
                       "the drained feed of %llu differs at %zu: shows %llu of %zu, truth has %llu "
                       "of %zu",
                       (unsigned long long)h->people[i], k,
                       k < n ? (unsigned long long)shown[k] : 0ULL, n,
                       k < all ? (unsigned long long)expected[k] : 0ULL, all);
        }
    }
}

static void tell_difference(void *arg, const struct check_difference *d)
{
    failed(arg, "the check finds kind %d of account %llu, post %llu, counter %s: %lld, not %lld",
           d->kind, (unsigned long long)d->account, (unsigned long long)d->post,
           d->counter ? d->counter : "none", (long long)d->stored, (long long)d->actual);
}

static void check_everything(struct history *h)
{
    struct check_result result;
    check_exact(h);
    EXPECT(truth_check(h->w->db, h->w->views, h->w->cards, 0, PEOPLE_MAX, FEED_MAX, false,
                       (struct check_report){tell_difference, h}, &result) == OK);
    EXPECT(!result.feed_errors && !result.counter_errors && !result.edge_errors);
}

/* ---- what happens ---- */

static void restart(struct history *h)
{
    bool without_snapshot = below(h, 3) == 0;
    tell(h, "restart %s", without_snapshot ? "from truth" : "from the snapshot");
    world_stop(h->w);
    if (without_snapshot)
        world_forget_snapshot(h->w);
    world_start(h->w, h->cap);
}

static void drop_inactive(struct history *h)
{
    size_t dropped;
    bool wrapped;
    manual_clock_advance(&h->w->clock, (int64_t)below(h, 3) * day_ms);
    EXPECT(timelines_sweep(h->w->views->timelines, clock_wall_ms(&h->w->clock.clock) - day_ms, 100,
                           &dropped, &wrapped) == OK);
    tell(h, "drop %zu timelines", dropped);
}

/* The operator, or the keeper, moves the threshold; the sweep fires the crossings. */
static void move_threshold(struct history *h)
{
    struct celebrity_keeper k;
    h->w->policy.celebrity_threshold = 2 + (int64_t)below(h, 4);
    tell(h, "threshold %d", (int)h->w->policy.celebrity_threshold);
    EXPECT(celebrity_keeper_init(&k, h->w->db, &h->w->clock.clock, false,
                                 h->w->policy.celebrity_threshold, 1, 1000, 500) == OK);
    while (k.crossing)
        celebrity_keeper_step(&k);
    celebrity_keeper_done(&k);
}

static void work_a_little(struct history *h)
{
    for (uint64_t i = below(h, 6); i > 0; i--)
        world_step(h->w);
    manual_clock_advance(&h->w->clock, (int64_t)below(h, 50));
    if (below(h, 4) == 0)
        engine_watermark_step(h->w->engine);
}

static size_t somebody(struct history *h)
{
    return below(h, h->people_count);
}

static uint64_t some_post(struct history *h)
{
    if (h->post_count == 0)
        return 1;
    /* mostly a recent one */
    size_t back =
        below(h, 3) ? below(h, h->post_count < 8 ? h->post_count : 8) : below(h, h->post_count);
    return h->posts[h->post_count - 1 - back];
}

static struct deed some_deed(struct history *h, char text[40])
{
    static const enum act kinds[] = {
        ACT_POST,    ACT_POST,    ACT_POST,     ACT_POST,     ACT_POST,    ACT_POST,
        ACT_POST,    ACT_POST,    ACT_FOLLOW,   ACT_FOLLOW,   ACT_FOLLOW,  ACT_FOLLOW,
        ACT_FOLLOW,  ACT_FOLLOW,  ACT_UNFOLLOW, ACT_UNFOLLOW, ACT_DELETE,  ACT_DELETE,
        ACT_EDIT,    ACT_LIKE,    ACT_LIKE,     ACT_UNLIKE,   ACT_COMMENT, ACT_UNCOMMENT,
        ACT_BLOCK,   ACT_UNBLOCK, ACT_UNBLOCK,  ACT_MUTE,     ACT_UNMUTE,  ACT_UPDATE,
        ACT_SUSPEND, ACT_RESTORE, ACT_RESTORE};
    struct deed d = {.act = kinds[below(h, sizeof kinds / sizeof kinds[0])],
                     .who = h->people[somebody(h)]};
    if (below(h, 300) == 0)
        d.act = ACT_DELETE_ACCOUNT;
    int len = snprintf(text, 40, "text %d", h->step);
    d.text = (struct str){text, (size_t)len};
    switch (d.act) {
    case ACT_POST: /* a few people post most, more than a timeline or a pull list holds */
        d.who = h->people[below(h, 1 + somebody(h))];
        break;
    case ACT_FOLLOW: /* and most follow them */
        d.what = h->people[below(h, 1 + somebody(h))];
        break;
    case ACT_UPDATE:
        break;
    case ACT_EDIT:
    case ACT_LIKE:
    case ACT_UNLIKE:
    case ACT_COMMENT:
        d.what = some_post(h);
        break;
    case ACT_DELETE:
        d.what = some_post(h);
        d.who = below(h, 2) ? d.who : 0;
        break;
    case ACT_UNCOMMENT:
        d.what = h->comment_count ? h->comments[below(h, h->comment_count)] : 1;
        break;
    default:
        d.what = h->people[somebody(h)];
    }
    return d;
}

static void note_deed(struct history *h, const struct deed *d)
{
    if (d->act == ACT_POST)
        h->posts[h->post_count++] = d->id;
    if (d->act == ACT_COMMENT && h->comment_count < COMMENTS_MAX)
        h->comments[h->comment_count++] = d->id;
    for (size_t i = 0; d->act == ACT_DELETE_ACCOUNT && i < h->people_count; i++)
        h->deleted[i] = h->deleted[i] || h->people[i] == d->what;
}

static void act(struct history *h)
{
    char text[40];
    struct deed d = some_deed(h, text);
    if (d.act == ACT_POST && below(h, 40) == 0) /* an import brings an old one */
        d.id = id_at(clock_wall_ms(h->w->ids.clock) - (int64_t)below(h, 1000000), 9,
                     (uint32_t)h->step);
    enum err e = world_do(h->w, &d);
    tell(h, "act %d by %llu on %llu made %llu: %s", d.act, (unsigned long long)d.who,
         (unsigned long long)d.what, (unsigned long long)d.id, err_name(e));
    if (e && err_class(e) != ERR_CLASS_CLIENT)
        failed(h, "act %d says %s", d.act, err_name(e));
    if (!e)
        note_deed(h, &d);
}

static void go_on(struct history *h)
{
    uint64_t dice = below(h, 100);
    if (dice < 62)
        act(h);
    else if (dice < 80)
        work_a_little(h);
    else if (dice < 91)
        check_read(h, somebody(h));
    else if (dice < 94)
        drop_inactive(h);
    else if (dice < 96)
        world_save(h->w);
    else if (dice < 97)
        restart(h);
    else if (dice < 98)
        move_threshold(h);
    else
        check_exact(h);
}

static void run(struct world *w, uint64_t seed, bool loud)
{
    struct history h = {.w = w, .seed = seed, .loud = loud};
    rand_seed(&h.rand, seed);
    world_stop(w);
    world_clear(w);
    h.cap = below(&h, 4) ? 10 : 10 + below(&h, 15);
    w->policy.celebrity_threshold = 3;
    world_start(w, h.cap);
    h.people_count = 4 + below(&h, PEOPLE_MAX - 3);
    for (size_t i = 0; i < h.people_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "person%zu", i);
        h.people[i] = world_account(w, name);
    }
    int steps = 60 + (int)below(&h, 240);
    for (h.step = 0; h.step < steps; h.step++)
        go_on(&h);
    check_everything(&h);
    restart(&h);
    check_everything(&h);
}

int main(int argc, char **argv)
{
    const char *wanted = getenv("FANTAIL_HISTORIES");
    uint64_t count = wanted ? strtoull(wanted, NULL, 10) : COUNT_NORMAL, first = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--long") == 0)
            count = COUNT_LONG;
        else if (strcmp(argv[i], "--count") == 0 && i + 1 < argc)
            count = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            first = strtoull(argv[++i], NULL, 10);
    }
    enum test_drivers_kind kind = test_drivers_wanted();
    struct world w;
    printf("1..1\n");
    fflush(stdout);
    for (uint64_t seed = first; seed < first + count; seed++) {
        bool fresh = (seed - first) % HISTORIES_A_STORE == 0; /* before its clock outruns the ids */
        if (fresh && seed > first)
            world_close(&w);
        if (fresh)
            world_open_on(&w, 3, kind);
        run(&w, seed, count == 1);
    }
    if (count > 0)
        world_close(&w);
    EXPECT(kind != TEST_CLUSTER || count < 24 || pages_in_step > 0);
    printf("ok 1 - every feed equals the oracle over %llu histories\n", (unsigned long long)count);
    return 0;
}
