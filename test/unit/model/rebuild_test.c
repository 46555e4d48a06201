/* Rebuilds: wrong views are right afterwards, right ones stay, and no reader notices meanwhile.
 *
 * There is no engine here: what it would do is done by the commit hook, so that the pipeline is
 * drained at every moment, and a test can leave out what it wants to be missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/log.h"
#include "model/account.h"
#include "model/event_views.h"
#include "model/feed.h"
#include "model/follow.h"
#include "model/post.h"
#include "model/rebuild.h"
#include "plain_db.h"
#include "view/memory/memory.h"

#define NOW_MS INT64_C(1800000000000)

enum { CAP = 30, FEED_MAX = 400 };

struct fixture {
    struct manual_clock clock;
    struct id_gen ids;
    struct plain_db *plain;
    struct db *db;
    struct views *views;
    struct timelines_ops ops;
    enum err (*real_rebuild)(struct timelines *t, uint64_t viewer, enum view_rebuild step,
                             const uint64_t *ids, size_t n, uint64_t floor);
    struct cards *cards;
    bool loses; /* nothing is delivered */
    void (*on_step)(struct fixture *f, uint64_t viewer, enum view_rebuild step); /* after it */
    uint64_t author;
    unsigned anew;
};

static struct fixture *world; /* the views' table has no room for a context */

static void deliver(struct fixture *f, const struct event *e)
{
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    while (!cursor.end) {
        uint64_t members[8];
        size_t n, added;
        assert_int_equal(graph_audience(f->views->graph, e->actor, &cursor, members, 8, &n), OK);
        assert_int_equal(timelines_push_one(f->views->timelines, e->object, members, n, &added),
                         OK);
    }
}

static void committed(void *ctx, const struct event *events, size_t n)
{
    struct fixture *f = ctx;
    for (size_t i = 0; i < n; i++) {
        event_apply(f->views, f->cards, &events[i]);
        if (events[i].type == EVENT_POST_CREATED && events[i].value == DELIVERY_PUSH && !f->loses)
            deliver(f, &events[i]);
    }
}

static enum err traced_rebuild(struct timelines *t, uint64_t viewer, enum view_rebuild step,
                               const uint64_t *ids, size_t n, uint64_t floor)
{
    enum err e = world->real_rebuild(t, viewer, step, ids, n, floor);
    world->anew += step == VIEW_REBUILD_ANEW && !e;
    if (world->on_step && !e)
        world->on_step(world, viewer, step);
    return e;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    manual_clock_init(&f->clock, NOW_MS);
    id_gen_init(&f->ids, &f->clock.clock, 1);
    f->plain = plain_db_new(&f->clock.clock, &f->ids);
    f->db = plain_db_port(f->plain);
    f->db->on_commit = committed;
    f->db->on_commit_ctx = f;
    struct memory_views_config config = {
        .timeline_cap = CAP, .pull_cap = CAP, .clock = &f->clock.clock};
    assert_int_equal(views_memory_open(&config, &f->views), OK);
    f->ops = *f->views->timelines->ops;
    f->real_rebuild = f->ops.rebuild;
    f->ops.rebuild = traced_rebuild;
    f->views->timelines->ops = &f->ops;
    f->cards = cards_memory_new(1 << 20, &f->clock.clock);
    world = f;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    cards_free(f->cards);
    views_free(f->views);
    plain_db_free(f->plain);
    free(f);
    return 0;
}

/* ---- acts ---- */

enum act { ACCOUNT, FOLLOW, POST, DELETE, LIKE, COMMENT, SUSPEND, DELETE_ACCOUNT };

struct deed {
    enum act act;
    uint64_t who, what, id;
    const char *text;
    struct arena arena; /* a post's card lives in it until the commit hook has seen it */
};

static enum err run_deed(struct tx *tx, void *arg)
{
    struct deed *d = arg;
    const struct follow_policy policy = {.celebrity_threshold = 1000, .max_following = 1000};
    struct account_new account = {.username = str_of(d->text), .seen_at_ms = NOW_MS};
    struct post_new post = {.author = d->who, .caption = STR("text")};
    struct comment comment = {0};
    struct post_card card;
    bool changed;
    enum err e = OK;
    switch (d->act) {
    case ACCOUNT:
        e = account_create(tx, &account, &d->id);
        break;
    case FOLLOW:
        e = follow_create(tx, d->who, d->what, &policy, &changed);
        break;
    case POST:
        e = post_create(tx, &post, &d->arena, &card);
        d->id = card.id;
        break;
    case DELETE:
        e = post_delete(tx, d->what, d->who, NOW_MS);
        break;
    case LIKE:
        e = post_like(tx, d->what, d->who, true, NOW_MS, &changed);
        break;
    case COMMENT:
        e = comment_create(tx, 0, d->what, d->who, STR("text"), &d->arena, &comment);
        d->id = comment.id;
        break;
    case SUSPEND:
        e = account_suspend(tx, d->what, true);
        break;
    case DELETE_ACCOUNT:
        e = account_delete(tx, d->what);
        break;
    }
    return e;
}

static uint64_t do_deed(struct fixture *f, struct deed d)
{
    arena_init(&d.arena);
    assert_int_equal(db_write(f->db, run_deed, &d, NULL), OK);
    arena_done(&d.arena);
    return d.id;
}

static uint64_t act(struct fixture *f, enum act what, uint64_t who, uint64_t whom)
{
    return do_deed(f, (struct deed){.act = what, .who = who, .what = whom, .text = ""});
}

static uint64_t account(struct fixture *f, const char *name)
{
    return do_deed(f, (struct deed){.act = ACCOUNT, .text = name});
}

static void run_sql(struct fixture *f, const char *format, uint64_t id)
{
    char sql[200];
    snprintf(sql, sizeof sql, "%s%llu", format, (unsigned long long)id);
    plain_db_run(f->plain, sql);
}

/* ---- feeds ---- */

struct oracle {
    uint64_t viewer;
    uint64_t ids[FEED_MAX];
    size_t n;
};

static enum err read_oracle(struct tx *tx, void *arg)
{
    struct oracle *o = arg;
    return feed_oracle(tx, o->viewer, UINT64_MAX, FEED_MAX, o->ids, &o->n);
}

static bool feed_is_right(struct fixture *f, uint64_t viewer)
{
    struct oracle o = {.viewer = viewer};
    assert_int_equal(db_read(f->db, read_oracle, &o, NULL), OK);
    size_t n = 0;
    bool same = true;
    for (uint64_t below = UINT64_MAX; below > 0 && same;) {
        struct feed_page page;
        struct arena arena;
        arena_init(&arena);
        assert_int_equal(feed_peek(f->views, f->cards, f->db, viewer, below, 20, &arena, &page),
                         OK);
        arena_done(&arena);
        for (size_t i = 0; i < page.count && same; i++, n++)
            same = n < o.n && page.items[i].card.id == o.ids[n];
        below = page.next_below;
    }
    return same && n == o.n;
}

static size_t held(struct fixture *f, uint64_t viewer, uint64_t *floor)
{
    uint64_t ids[CAP * 4];
    size_t n;
    assert_int_equal(
        timelines_home(f->views->timelines, viewer, UINT64_MAX, ids, CAP * 4, &n, floor), OK);
    return n;
}

struct slice {
    uint64_t next, seen, changed;
    bool end;
};

static struct slice rebuild(struct fixture *f, enum rebuild_what what, uint64_t after,
                            uint64_t last, size_t max)
{
    struct slice s;
    assert_int_equal(rebuild_slice(f->db, f->views, f->cards, what, after, last, max, &s.next,
                                   &s.end, &s.seen, &s.changed),
                     OK);
    return s;
}

static struct slice rebuild_all(struct fixture *f, enum rebuild_what what)
{
    return rebuild(f, what, 0, UINT64_MAX, 1000);
}

/* ---- tests ---- */

static void names_are_read_and_written(void **state)
{
    (void)state;
    enum rebuild_what what;
    for (int i = 0; i < REBUILD_KINDS; i++) {
        assert_true(rebuild_parse(str_of(rebuild_name((enum rebuild_what)i)), &what));
        assert_int_equal(what, i);
    }
    assert_string_equal(rebuild_name(REBUILD_TIMELINES), "timelines");
    assert_false(rebuild_parse(STR("inbox"), &what));
    assert_false(rebuild_parse(STR(""), &what));
}

static void what_is_missing_or_too_much_is_put_right(void **state)
{
    struct fixture *f = *state;
    uint64_t ann = account(f, "ann"), bob = account(f, "bob"), cat = account(f, "cat");
    act(f, FOLLOW, ann, bob);
    act(f, FOLLOW, cat, bob);
    act(f, POST, bob, 0);
    f->loses = true;
    act(f, POST, bob, 0); /* has no followers */
    f->loses = false;
    uint64_t gone = act(f, POST, bob, 0);
    act(f, DELETE, bob, gone); /* stays in the timelines: there is no clean-up here */
    assert_false(feed_is_right(f, ann));
    struct slice s = rebuild_all(f, REBUILD_TIMELINES);
    assert_true(s.end);
    assert_int_equal(s.seen, 3);
    assert_int_equal(s.changed, 2); /* bob has his own post at once */
    assert_int_equal(s.next, cat);
    assert_true(feed_is_right(f, ann));
    assert_true(feed_is_right(f, cat));
    uint64_t floor;
    assert_int_equal(held(f, ann, &floor), 2); /* the dead id is gone, too */
    assert_int_equal(floor, 0);
    s = rebuild_all(f, REBUILD_TIMELINES);
    assert_int_equal(s.seen, 3);
    assert_int_equal(s.changed, 0);
    act(f, POST, bob, 0); /* and deliveries go on */
    assert_true(feed_is_right(f, ann));
}

static void a_long_feed_keeps_its_floor(void **state)
{
    struct fixture *f = *state;
    uint64_t ann = account(f, "ann"), bob = account(f, "bob");
    act(f, FOLLOW, ann, bob);
    for (int i = 0; i < CAP * 3; i++)
        act(f, POST, bob, 0);
    uint64_t before, floor;
    size_t n = held(f, ann, &before);
    assert_int_equal(n, CAP);
    struct slice s = rebuild(f, REBUILD_TIMELINES, ann - 1, ann, 10);
    assert_int_equal(s.changed, 0);
    assert_int_equal(held(f, ann, &floor), CAP);
    assert_int_equal(floor, before);
    assert_true(feed_is_right(f, ann));
}

static void a_dropped_timeline_is_left_alone(void **state)
{
    struct fixture *f = *state;
    uint64_t ann = account(f, "ann"), bob = account(f, "bob");
    act(f, FOLLOW, ann, bob);
    act(f, POST, bob, 0);
    size_t dropped;
    bool wrapped;
    assert_int_equal(
        timelines_sweep(f->views->timelines, NOW_MS + 86400000, 1000, &dropped, &wrapped), OK);
    assert_int_equal(dropped, 2);
    struct slice s = rebuild_all(f, REBUILD_TIMELINES);
    assert_int_equal(s.seen, 2);
    assert_int_equal(s.changed, 0);
    assert_int_equal(f->anew, 0);
    uint64_t floor;
    held(f, ann, &floor);
    assert_int_equal(floor, UINT64_MAX);
    assert_true(feed_is_right(f, ann));
}

static void slices_walk_the_active_ones(void **state)
{
    struct fixture *f = *state;
    uint64_t ids[7];
    for (int i = 0; i < 7; i++) {
        char name[24];
        snprintf(name, sizeof name, "person%d", i);
        ids[i] = account(f, name);
    }
    act(f, SUSPEND, 0, ids[1]);
    act(f, DELETE_ACCOUNT, 0, ids[4]);
    uint64_t after = 0, seen = 0;
    bool end = false;
    for (int i = 0; !end; i++) {
        assert_true(i < 4);
        struct slice s = rebuild(f, REBUILD_TIMELINES, after, UINT64_MAX, 2);
        seen += s.seen;
        assert_true(s.next > after || s.end);
        after = s.next;
        end = s.end;
    }
    assert_int_equal(seen, 5);
    assert_int_equal(f->anew, 5);
    assert_int_equal(after, ids[6]);
    struct slice s = rebuild(f, REBUILD_TIMELINES, ids[2] - 1, ids[2], 10); /* one person */
    assert_int_equal(s.seen, 1);
    assert_int_equal(s.next, ids[2]);
    assert_true(s.end);
    s = rebuild(f, REBUILD_TIMELINES, ids[2], ids[3], 1); /* as many as asked for, and the last */
    assert_true(s.end);
    s = rebuild(f, REBUILD_TIMELINES, ids[6], UINT64_MAX, 10);
    assert_true(s.end);
    assert_int_equal(s.seen, 0);
    assert_int_equal(s.next, ids[6]);
}

static void post_and_read(struct fixture *f, uint64_t viewer, enum view_rebuild step)
{
    (void)step;
    f->on_step = NULL; /* the read below begins a rebuild of its own */
    act(f, POST, f->author, 0);
    assert_true(feed_is_right(f, viewer));
    struct arena arena;
    struct feed_page page;
    arena_init(&arena);
    assert_int_equal(feed_read(f->views, f->cards, f->db, viewer, UINT64_MAX, 20, &arena, &page),
                     OK);
    arena_done(&arena);
    act(f, POST, f->author, 0);
    assert_true(feed_is_right(f, viewer));
}

/* Posts and reads in the middle of it: nothing is lost, and no page is wrong. */
static void posts_and_reads_go_on(void **state)
{
    struct fixture *f = *state;
    uint64_t ann = account(f, "ann");
    f->author = account(f, "bob");
    act(f, FOLLOW, ann, f->author);
    for (int i = 0; i < 5; i++)
        act(f, POST, f->author, 0);
    f->on_step = post_and_read;
    struct slice s = rebuild(f, REBUILD_TIMELINES, ann - 1, ann, 1);
    assert_null(f->on_step); /* it was there */
    assert_int_equal(s.seen, 1);
    assert_int_equal(s.changed, 0); /* what came meanwhile is no difference */
    assert_true(feed_is_right(f, ann));
    uint64_t floor;
    assert_int_equal(held(f, ann, &floor), 7);
    assert_int_equal(floor, 0);
    assert_int_equal(timelines_anew(f->views->timelines, ann), OK); /* none is left half-way */
}

static void fail_reads(struct fixture *f, uint64_t viewer, enum view_rebuild step)
{
    (void)viewer;
    if (step == VIEW_REBUILD_ANEW && f->anew == 2)
        plain_db_faults(f->plain)->reads_fail = true;
}

static void a_store_that_fails_leaves_nothing_half_done(void **state)
{
    struct fixture *f = *state;
    uint64_t ann = account(f, "ann"), bob = account(f, "bob"), cat = account(f, "cat");
    act(f, FOLLOW, bob, ann);
    act(f, POST, ann, 0);
    f->on_step = fail_reads;
    struct slice s;
    assert_int_equal(rebuild_slice(f->db, f->views, f->cards, REBUILD_TIMELINES, 0, UINT64_MAX, 10,
                                   &s.next, &s.end, &s.seen, &s.changed),
                     ERR_UNAVAILABLE);
    assert_int_equal(s.next, ann); /* done so far */
    assert_int_equal(s.seen, 1);
    assert_false(s.end);
    plain_db_faults(f->plain)->reads_fail = false;
    f->on_step = NULL;
    assert_true(feed_is_right(f, bob));
    uint64_t floor;
    held(f, bob, &floor);
    assert_int_equal(floor, UINT64_MAX); /* dropped: the next reader makes it */
    s = rebuild(f, REBUILD_TIMELINES, s.next, UINT64_MAX, 10);
    assert_int_equal(s.next, cat);
    assert_true(s.end);
}

static void counters_are_counted_again(void **state)
{
    struct fixture *f = *state;
    uint64_t ann = account(f, "ann"), bob = account(f, "bob"), cat = account(f, "cat");
    act(f, FOLLOW, ann, bob);
    act(f, FOLLOW, cat, bob);
    uint64_t posts[3];
    for (int i = 0; i < 3; i++) {
        posts[i] = act(f, POST, bob, 0);
        act(f, LIKE, ann, posts[i]);
        act(f, COMMENT, cat, posts[i]);
    }
    assert_int_equal(rebuild_all(f, REBUILD_COUNTERS).changed, 0);
    run_sql(f, "UPDATE accounts SET follower_count = 7, post_count = 0 WHERE id = ", bob);
    run_sql(f, "UPDATE accounts SET following_count = 0 WHERE id = ", ann);
    run_sql(f, "UPDATE posts SET like_count = 9, comment_count = 8 WHERE id = ", posts[1]);
    struct slice s = rebuild_all(f, REBUILD_COUNTERS);
    assert_int_equal(s.seen, 3);
    assert_int_equal(s.changed, 2); /* accounts, not numbers */
    assert_int_equal(
        plain_db_ask(f->plain, "SELECT follower_count FROM accounts WHERE username = 'bob'"), 2);
    assert_int_equal(
        plain_db_ask(f->plain, "SELECT post_count FROM accounts WHERE username = 'bob'"), 3);
    assert_int_equal(
        plain_db_ask(f->plain, "SELECT following_count FROM accounts WHERE username = 'ann'"), 1);
    assert_int_equal(plain_db_ask(f->plain, "SELECT SUM(like_count) FROM posts"), 3);
    assert_int_equal(plain_db_ask(f->plain, "SELECT SUM(comment_count) FROM posts"), 3);
    struct post_card card;
    enum card_state found;
    struct arena arena;
    arena_init(&arena);
    cards_posts(f->cards, &posts[1], 1, &card, &found, &arena);
    assert_int_equal(found, CARD_FOUND);
    assert_int_equal(card.like_count, 1); /* the caches got it */
    assert_int_equal(card.comment_count, 1);
    arena_done(&arena);
    assert_int_equal(rebuild_all(f, REBUILD_COUNTERS).changed, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(names_are_read_and_written),
        TEST(what_is_missing_or_too_much_is_put_right),
        TEST(a_long_feed_keeps_its_floor),
        TEST(a_dropped_timeline_is_left_alone),
        TEST(slices_walk_the_active_ones),
        TEST(posts_and_reads_go_on),
        TEST(a_store_that_fails_leaves_nothing_half_done),
        TEST(counters_are_counted_again),
    };
    return cmocka_run_group_tests_name("model/rebuild", tests, NULL, NULL);
}
