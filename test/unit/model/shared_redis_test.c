/* Remote views, loaded from truth while all nodes work, against the oracle. The argument is the
 * kind of Redis; script/servers starts it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/rand.h"
#include "model/event_views.h"
#include "model/follow_all.h"
#include "model/truth.h"
#include "redis_place.h"
#include "view/redis/redis.h"
#include "world.h"

enum { CAP = 10, PEOPLE = 40, POSTS = 300, ACTS = 600, IDS = 1000, DEPTH = 60 };

static enum redis_kind kind;
static struct world w;
static struct views *views;
static struct cards *cards;
static struct rand rnd;
static uint64_t people[PEOPLE], posts[POSTS], authors[POSTS];
static size_t post_count;

static db_commit_hook world_hook;
static bool with_redis; /* the commit hook writes to Redis, too */

static void committed(void *ctx, const struct event *events, size_t n)
{
    world_hook(ctx, events, n);
    if (with_redis)
        EXPECT(event_apply_all(views, cards, events, n) == OK);
}

static uint64_t somebody(void)
{
    return people[rand_below(&rnd, PEOPLE)];
}

/* Whatever is not possible just now is refused, which is as well. */
static void act_at_random(void)
{
    static const enum act edges[] = {ACT_FOLLOW, ACT_FOLLOW, ACT_FOLLOW, ACT_UNFOLLOW,
                                     ACT_MUTE,   ACT_UNMUTE, ACT_BLOCK,  ACT_UNBLOCK};
    struct deed d = {.who = somebody(), .what = somebody(), .text = STR("text")};
    uint64_t choice = rand_below(&rnd, 100);
    size_t post = post_count ? rand_below(&rnd, post_count) : 0;
    if (choice < 60) {
        d.act = edges[rand_below(&rnd, COUNT_OF(edges))];
    } else if (choice < 80 && post_count < POSTS) {
        d.act = ACT_POST;
    } else if (choice < 90 && post_count > 0) {
        d = (struct deed){.act = choice < 85 ? ACT_DELETE : ACT_EDIT,
                          .who = authors[post],
                          .what = posts[post],
                          .text = STR("other")};
    } else {
        d.act = choice < 93 ? ACT_SUSPEND : ACT_RESTORE;
        d.what = d.who;
    }
    if (world_do(&w, &d) == OK && d.act == ACT_POST) {
        authors[post_count] = d.who;
        posts[post_count++] = d.id;
    }
}

static int open_world(void **state)
{
    (void)state;
    world_open(&w, 3);
    world_start(&w, CAP);
    rand_seed(&rnd, 4711);
    for (size_t i = 0; i < PEOPLE; i++) {
        char name[20];
        snprintf(name, sizeof name, "person%zu", i);
        people[i] = world_account(&w, name);
    }
    for (int i = 0; i < ACTS; i++)
        act_at_random();
    world_hook = w.db->on_commit;
    w.db->on_commit = committed;
    struct redis_config config = {.url = redis_place_url(kind),
                                  .store = "test",
                                  .timeline_cap = CAP,
                                  .pull_cap = CAP,
                                  .clock = &w.clock.clock};
    redis_place_clear(kind);
    EXPECT(views_redis_open(&config, &views) == OK);
    EXPECT(cards_redis_open(&config, &cards) == OK);
    with_redis = true;
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    with_redis = false;
    views_free(views);
    cards_free(cards);
    world_close(&w);
    return 0;
}

static void assert_feeds_are_exact(void)
{
    struct arena arena;
    static struct feed_page page;
    arena_init(&arena);
    for (size_t i = 0; i < PEOPLE; i++) {
        uint64_t expected[IDS], below = UINT64_MAX;
        size_t n = world_oracle(&w, people[i], expected, IDS), at = 0;
        do {
            assert_int_equal(feed_read(views, cards, w.db, people[i], below, 7, &arena, &page), OK);
            for (size_t k = 0; k < page.count; k++, at++)
                assert_true(at < n && page.items[k].card.id == expected[at]);
            below = page.next_below;
            arena_reset(&arena);
        } while (below > 0);
        assert_int_equal(at, n);
    }
    arena_done(&arena);
}

static void print_difference(void *arg, const struct check_difference *d)
{
    (void)arg;
    print_error("kind %d of account %llu, group %llu, post %llu: %zu missing, %zu too many\n",
                d->kind, (unsigned long long)d->account, (unsigned long long)d->group,
                (unsigned long long)d->post, d->missing_count, d->extra_count);
}

static void assert_check_finds_nothing(void)
{
    struct check_result result;
    assert_int_equal(truth_check(w.db, views, cards, 0, PEOPLE + 1, DEPTH, false,
                                 (struct check_report){.difference = print_difference}, &result),
                     OK);
    assert_int_equal(result.feed_errors, 0);
    assert_int_equal(result.edge_errors, 0);
    assert_true(result.edges > 0);
}

static _Atomic int told;

static void progress(void *arg, uint64_t done, uint64_t total)
{
    (void)arg;
    assert_true(done <= total);
    told++;
}

struct loading {
    _Atomic bool over;
    enum err result;
};

static void *load(void *arg)
{
    struct loading *l = arg;
    l->result = truth_load_views(w.db, views, progress, NULL);
    atomic_store(&l->over, true);
    return NULL;
}

/* The engine's part (the rule "pulls"): followers learn of posts that were pulled during a load. */
static void spread_all(void)
{
    for (size_t i = 0; i < PEOPLE; i++) {
        bool more = true;
        while (more) {
            size_t n;
            assert_int_equal(timelines_spread(views->timelines, people[i], &n, &more), OK);
        }
    }
}

static void views_are_loaded_while_all_nodes_work(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        struct loading l = {.over = false};
        pthread_t thread;
        int acts = 0;
        told = 0;
        assert_int_equal(views_clear(views), OK);
        assert_int_equal(pthread_create(&thread, NULL, load, &l), 0);
        do
            act_at_random();
        while (++acts < 20 || !atomic_load(&l.over));
        pthread_join(thread, NULL);
        assert_int_equal(l.result, OK);
        assert_true(told > 0);
        assert_feeds_are_exact(); /* from truth */
        assert_int_equal(views_loaded(views), OK);
        spread_all();
        assert_feeds_are_exact(); /* rebuilds all timelines */
        assert_feeds_are_exact(); /* from them */
        assert_check_finds_nothing();
    }
}

/* The same events again, and some of them late: as from the node that leads. */
static void events_may_come_again_and_in_any_order(void **state)
{
    (void)state;
    assert_int_equal(views_clear(views), OK);
    assert_int_equal(truth_load_views(w.db, views, NULL, NULL), OK);
    assert_int_equal(views_loaded(views), OK);
    uint64_t a = people[0], b = people[1];
    char memory[EVENT_DATA_MAX];
    struct buf data = buf_over(memory, sizeof memory);
    followees_write((uint64_t[]){people[2], b}, 2, &data);
    const struct event story[] = {
        {.id = id_next(&w.ids), .type = EVENT_FOLLOW_REMOVED, .actor = a, .object = b},
        {.id = id_next(&w.ids),
         .type = EVENT_FOLLOWS_IMPORTED,
         .actor = a,
         .value = 2,
         .data = buf_view(&data)},
        {.id = id_next(&w.ids), .type = EVENT_FOLLOW_REMOVED, .actor = a, .object = people[2]},
        {.id = id_next(&w.ids), .type = EVENT_FOLLOW_CREATED, .actor = a, .object = b},
        {.id = id_next(&w.ids), .type = EVENT_MUTE_CREATED, .actor = a, .object = b},
        {.id = id_next(&w.ids), .type = EVENT_MUTE_REMOVED, .actor = a, .object = b},
        {.id = id_next(&w.ids), .type = EVENT_ACCOUNT_SUSPENDED, .actor = b},
        {.id = id_next(&w.ids), .type = EVENT_ACCOUNT_RESTORED, .actor = b},
    };
    for (int round = 0; round < 50; round++) {
        struct event told_now[2 * COUNT_OF(story)];
        size_t n = 0;
        for (size_t i = 0; i < COUNT_OF(story); i++) /* each at least once */
            told_now[n++] = story[i];
        while (n < COUNT_OF(told_now))
            told_now[n++] = story[rand_below(&rnd, COUNT_OF(story))];
        for (size_t i = n - 1; i > 0; i--) {
            size_t k = rand_below(&rnd, i + 1);
            struct event e = told_now[i];
            told_now[i] = told_now[k];
            told_now[k] = e;
        }
        assert_int_equal(event_apply_all(views, cards, told_now, n), OK);
        bool visible = false;
        assert_int_equal(graph_visible(views->graph, a, &b, 1, &visible), OK);
        assert_true(visible);
        assert_int_equal(graph_visible(views->graph, a, &people[2], 1, &visible), OK);
        assert_false(visible);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    kind = strcmp(argv[1], "redis") == 0 ? REDIS_SINGLE : REDIS_CLUSTER;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_are_loaded_while_all_nodes_work),
        cmocka_unit_test(events_may_come_again_and_in_any_order),
    };
    return cmocka_run_group_tests_name("model/shared_redis", tests, open_world, close_world);
}
