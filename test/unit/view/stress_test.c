/* Everything at once, for the race detector: pushers, readers, people who follow and unfollow,
 * sweeps, rebuilds, saves. What is checked is what must hold at every moment, and at the end that
 * nothing is lost. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "card_writes.h"
#include "port/event.h"
#include "redis_place.h"
#include "view/memory/memory.h"
#include "view/redis/redis.h"

enum { PEOPLE = 600, STARS = 4, FANS = 10, CAP = 50, PULL_CAP = 20, THREADS = 7 };

static uint64_t posts = 4000;
static int card_changes = 20000;
static const char *driver = "memory";

/* Accounts 1 … STARS post; STARS + 1 … PEOPLE read. Readers whose number divides by FANS always
 * follow everybody: for them nothing may be missing. The others come and go. */
struct world {
    struct views *v;
    struct views *writers; /* the same through another door, where there is one */
    _Atomic bool stop;
    _Atomic uint64_t next_post;
    _Atomic int wrong;
    uint64_t seed;
};

static void require(struct world *w, bool good)
{
    if (!good)
        atomic_fetch_add(&w->wrong, 1);
}

static void change(struct world *w, enum view_change_kind kind, bool on, uint64_t account,
                   uint64_t other, int64_t value)
{
    struct view_change c = {kind, on, account, other, value};
    require(w, views_apply(w->writers, &c, 1) == OK);
}

static void *pusher(void *arg)
{
    struct world *w = arg;
    uint64_t post;
    while ((post = atomic_fetch_add(&w->next_post, 1)) <= posts) {
        uint64_t author = 1 + post % STARS;
        bool pulled = author == STARS;
        change(w, VIEW_POST, true, author, post, pulled ? DELIVERY_PULL : DELIVERY_PUSH);
        struct audience_cursor c = {.part = AUDIENCE_ALL, .end = pulled};
        while (!c.end) {
            uint64_t members[64];
            size_t n, added;
            require(w, graph_audience(w->v->graph, author, &c, members, 64, &n) == OK);
            require(w, timelines_push_one(w->writers->timelines, post, members, n, &added) == OK &&
                           added <= n);
        }
    }
    return NULL;
}

static void *reader(void *arg)
{
    struct world *w = arg;
    struct rand r;
    rand_seed(&r, w->seed);
    while (!atomic_load(&w->stop)) {
        uint64_t viewer = 1 + rand_below(&r, PEOPLE), ids[CAP * 2], floor;
        size_t n;
        require(w, timelines_home(w->v->timelines, viewer, UINT64_MAX, ids, CAP * 2, &n, &floor) ==
                       OK);
        require(w, n <= CAP + PULL_CAP);
        for (size_t i = 0; i < n; i++)
            require(w, ids[i] > floor && ids[i] <= posts && (i == 0 || ids[i] < ids[i - 1]));
        bool visible[STARS];
        uint64_t stars[STARS];
        for (uint64_t s = 0; s < STARS; s++)
            stars[s] = s + 1;
        require(w, graph_visible(w->v->graph, viewer, stars, STARS, visible) == OK);
        require(w, viewer % FANS != 0 || viewer <= STARS || visible[0]);
        require(w, graph_neighbours(w->v->graph, viewer, viewer % 2, 0, ids, CAP, &n) == OK);
    }
    return NULL;
}

static void *fickle(void *arg)
{
    struct world *w = arg;
    struct rand r;
    rand_seed(&r, w->seed);
    for (uint64_t fresh = PEOPLE + 1; !atomic_load(&w->stop); fresh++) {
        uint64_t viewer = STARS + 1 + rand_below(&r, PEOPLE - STARS),
                 star = 1 + rand_below(&r, STARS);
        if (viewer % FANS == 0)
            continue;
        bool on = rand_below(&r, 2);
        change(w, VIEW_FOLLOW, on, viewer, star, 0);
        bool visible;
        require(w, graph_visible(w->v->graph, viewer, &star, 1, &visible) == OK && visible == on);
        const uint64_t ids[] = {3, 2, 1};
        if (on)
            require(w, timelines_backfill(w->v->timelines, viewer, star, ids, 3, 0) == OK);
        else
            require(w, timelines_forget(w->v->timelines, viewer, star, ids, 3) == OK);
        change(w, VIEW_MUTE, on, viewer, star, 0);
        change(w, VIEW_MUTE, false, viewer, star, 0);
        change(w, VIEW_HIDE, on, viewer, 0, 0);
        if (fresh < PEOPLE + 2000)
            change(w, VIEW_FOLLOW, true, w->seed * 100000 + fresh, star, 0);
    }
    return NULL;
}

/* Drops and rebuilds those who come and go; the faithful were seen just now. */
static void *keeper(void *arg)
{
    struct world *w = arg;
    struct rand r;
    rand_seed(&r, w->seed);
    while (!atomic_load(&w->stop)) {
        size_t dropped;
        bool wrapped;
        require(w, timelines_sweep(w->v->timelines, 1000000, 200, &dropped, &wrapped) == OK);
        uint64_t viewer = STARS + 1 + rand_below(&r, PEOPLE - STARS);
        if (timelines_begin(w->v->timelines, viewer) == OK)
            timelines_end(w->v->timelines, viewer, (const uint64_t[]){2, 1}, 2, 0);
        struct view_stats s;
        views_stats(w->v, &s);
        require(w, s.accounts >= PEOPLE);
    }
    return NULL;
}

static void *saver(void *arg)
{
    struct world *w = arg;
    uint64_t position = 1;
    do {
        require(w, views_save(w->v, position++) == OK);
    } while (!atomic_load(&w->stop));
    return NULL;
}

/* ---- the drivers ---- */

static enum redis_kind kind(void)
{
    return strcmp(driver, "redis") == 0 ? REDIS_SINGLE : REDIS_CLUSTER;
}

static void clear(void)
{
    if (strcmp(driver, "memory") != 0)
        redis_place_clear(kind());
}

static struct redis_config redis_config(void)
{
    return (struct redis_config){.url = redis_place_url(kind()),
                                 .timeline_cap = CAP,
                                 .pull_cap = PULL_CAP,
                                 .clock = clock_system()};
}

static struct views *open_views(const char *path)
{
    struct views *v = NULL;
    struct memory_views_config config = {path, CAP, PULL_CAP, clock_system()};
    if (strcmp(driver, "memory") == 0) {
        assert_int_equal(views_memory_open(&config, &v), OK);
        return v;
    }
    struct redis_config redis = redis_config();
    assert_int_equal(views_redis_open(&redis, &v), OK);
    assert_int_equal(views_loaded(v), OK);
    return v;
}

static struct cards *open_cards(void)
{
    struct cards *c = NULL;
    struct redis_config redis = redis_config();
    if (strcmp(driver, "memory") == 0)
        return cards_memory_new(1 << 20, clock_system());
    assert_int_equal(cards_redis_open(&redis, &c), OK);
    return c;
}

static void nothing_is_lost_when_all_work_at_once(void **state)
{
    (void)state;
    char folder[] = "/tmp/fantail-stress-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/views", folder);
    struct world world = {.seed = 5}, *w = &world;
    clear();
    w->v = w->writers = open_views(path);
    if (strcmp(driver, "memory") != 0)
        w->writers = open_views(path); /* as another process would */
    atomic_store(&w->next_post, 1);
    for (uint64_t i = 1; i <= PEOPLE; i++) {
        bool faithful = i % FANS == 0 || i <= STARS;
        change(w, VIEW_ACCOUNT, true, i, 0, faithful ? 2000000 : 0);
        for (uint64_t s = 1; s <= STARS && i > STARS; s++)
            change(w, VIEW_FOLLOW, true, i, s, 0);
    }
    struct view_stats counted;
    views_stats(w->writers, &counted); /* hands on what it has counted */
    void *(*const jobs[THREADS])(void *) = {pusher, pusher, reader, reader, fickle, keeper, saver};
    pthread_t threads[THREADS];
    for (uint64_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, jobs[i], w), 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    atomic_store(&w->stop, true);
    for (int i = 2; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&w->wrong), 0);
    for (uint64_t i = STARS + 1; i <= PEOPLE; i++) {
        uint64_t ids[CAP * 2], floor;
        size_t n;
        if (i % FANS != 0)
            continue;
        assert_int_equal(timelines_home(w->v->timelines, i, UINT64_MAX, ids, CAP * 2, &n, &floor),
                         OK);
        assert_true(floor < posts - PULL_CAP);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(ids[k], posts - k);
        assert_int_equal(n, posts - floor);
    }
    if (w->writers != w->v)
        views_free(w->writers);
    views_free(w->v);
    struct views *again = open_views(path);
    assert_true(again->loaded_position > 0);
    views_free(again);
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

/* ---- cards ---- */

struct deck {
    struct cards *c;
    _Atomic bool stop;
    _Atomic int wrong;
};

enum { KEYS = 300 };

/* Truth here: a post's likes only grow; a change carries the new number, a fill what was read a
 * moment ago. */
static _Atomic uint32_t true_likes[KEYS + 1];

static void *filler(void *arg)
{
    struct deck *d = arg;
    struct rand r;
    rand_seed(&r, 11);
    while (!atomic_load(&d->stop)) {
        uint64_t id = 1 + rand_below(&r, KEYS);
        card_ticket ticket = cards_ticket(d->c, id);
        struct post_card card = {.id = id,
                                 .author = id,
                                 .like_count = atomic_load(&true_likes[id]),
                                 .caption = STR("x")};
        cards_put_post(d->c, ticket, &card);
        cards_put_account(d->c, cards_ticket(d->c, id), id, STR("{}"));
        cards_put_likes(d->c, cards_ticket(d->c, cards_likes_key(id)), id, (const uint64_t[]){9, 8},
                        2, 0);
    }
    return NULL;
}

/* As a renderer does with what it got; a fragment that is there already must be whole. */
static void attach(struct deck *d, const struct post_card *got, const enum card_state *states,
                   const struct account_card *accounts)
{
    struct card_write writes[40];
    size_t n = 0;
    for (size_t i = 0; i < 20; i++) {
        struct str there = states[i] == CARD_FOUND ? got[i].fragments[1] : STR("drawn");
        if (there.ptr && !str_eq(there, STR("drawn")))
            atomic_fetch_add(&d->wrong, 1);
        if (states[i] == CARD_FOUND)
            writes[n++] = (struct card_write){
                .kind = CARD_ATTACH_POST, .post = &got[i], .dialect = 1, .fragment = STR("drawn")};
        if (accounts[i].id)
            writes[n++] = (struct card_write){
                .kind = CARD_ATTACH_ACCOUNT, .account = &accounts[i], .fragment = STR("drawn")};
    }
    cards_write(d->c, writes, n);
}

static void *looker(void *arg)
{
    struct deck *d = arg;
    struct rand r;
    rand_seed(&r, 12);
    struct arena arena;
    arena_init(&arena);
    while (!atomic_load(&d->stop)) {
        uint64_t ids[20];
        uint32_t least[20];
        struct post_card out[20];
        enum card_state states[20];
        struct account_card accounts[20];
        bool liked[2];
        for (size_t i = 0; i < 20; i++) {
            ids[i] = 1 + rand_below(&r, KEYS);
            least[i] = atomic_load(&true_likes[ids[i]]);
        }
        cards_posts(d->c, ids, 20, out, states, &arena);
        for (size_t i = 0; i < 20;
             i++) /* the number is told to the cards right after it became true */
            if (states[i] == CARD_FOUND &&
                (out[i].id != ids[i] || out[i].like_count + 1 < least[i]))
                atomic_fetch_add(&d->wrong, 1);
        cards_accounts(d->c, ids, 20, accounts, &arena);
        attach(d, out, states, accounts);
        cards_liked(d->c, ids[0], ids, 2, liked);
        arena_reset(&arena);
    }
    arena_done(&arena);
    return NULL;
}

static void a_change_always_wins_over_a_fill(void **state)
{
    (void)state;
    clear();
    struct deck d = {.c = open_cards()};
    void *(*const jobs[])(void *) = {filler, filler, looker};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, jobs[i], &d), 0);
    struct rand r;
    rand_seed(&r, 13);
    struct cards *writer = strcmp(driver, "memory") == 0 ? d.c : open_cards();
    for (int i = 0; i < card_changes; i++) {
        uint64_t id = 1 + rand_below(&r, KEYS);
        uint32_t likes = atomic_fetch_add(&true_likes[id], 1) + 1;
        cards_post_counts(writer, id, likes, -1);
        cards_like(writer, id, 5 + rand_below(&r, 10), rand_below(&r, 2));
        if (rand_below(&r, 50) == 0)
            cards_forget_account(writer, id);
        if (rand_below(&r, 500) == 0)
            cards_post_gone(writer, id);
    }
    atomic_store(&d.stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&d.wrong), 0);
    struct arena arena;
    arena_init(&arena);
    for (uint64_t id = 1; id <= KEYS; id++) {
        struct post_card out;
        enum card_state found;
        cards_posts(d.c, &id, 1, &out, &found, &arena);
        if (found == CARD_FOUND)
            assert_int_equal(out.like_count, atomic_load(&true_likes[id]));
    }
    arena_done(&arena);
    if (writer != d.c)
        cards_free(writer);
    cards_free(d.c);
}

/* The driver's name is the argument; memory when there is none. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_when_all_work_at_once),
        cmocka_unit_test(a_change_always_wins_over_a_fill),
    };
    if (argc > 1) {
        driver = argv[1];
        posts = 400;
        card_changes = 3000;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
