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
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "port/event.h"
#include "view/memory/memory.h"

enum { PEOPLE = 600, STARS = 4, FANS = 10, CAP = 50, PULL_CAP = 20, POSTS = 4000, THREADS = 7 };

/* Accounts 1 … STARS post; STARS + 1 … PEOPLE read. Readers whose number divides by FANS always
 * follow everybody: for them nothing may be missing. The others come and go. */
struct world {
    struct views *v;
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
    require(w, views_apply(w->v, &c, 1) == OK);
}

static void *pusher(void *arg)
{
    struct world *w = arg;
    uint64_t post;
    while ((post = atomic_fetch_add(&w->next_post, 1)) <= POSTS) {
        uint64_t author = 1 + post % STARS;
        bool pulled = author == STARS;
        change(w, VIEW_POST, true, author, post, pulled ? DELIVERY_PULL : DELIVERY_PUSH);
        struct audience_cursor c = {.part = AUDIENCE_ALL, .end = pulled};
        while (!c.end) {
            uint64_t members[64];
            size_t n, added;
            require(w, views_audience(w->v, author, &c, members, 64, &n) == OK);
            require(w, views_push(w->v, post, members, n, &added) == OK && added <= n);
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
        require(w, views_home(w->v, viewer, UINT64_MAX, ids, CAP * 2, &n, &floor) == OK);
        require(w, n <= CAP + PULL_CAP);
        for (size_t i = 0; i < n; i++)
            require(w, ids[i] > floor && ids[i] <= POSTS && (i == 0 || ids[i] < ids[i - 1]));
        bool visible[STARS];
        uint64_t stars[STARS];
        for (uint64_t s = 0; s < STARS; s++)
            stars[s] = s + 1;
        require(w, views_visible(w->v, viewer, stars, STARS, visible) == OK);
        require(w, viewer % FANS != 0 || viewer <= STARS || visible[0]);
        require(w, views_neighbours(w->v, viewer, viewer % 2, 0, ids, CAP, &n) == OK);
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
        require(w, views_visible(w->v, viewer, &star, 1, &visible) == OK && visible == on);
        const uint64_t ids[] = {3, 2, 1};
        if (on)
            require(w, views_backfill(w->v, viewer, star, ids, 3, 0) == OK);
        else
            require(w, views_forget(w->v, viewer, star, ids, 3) == OK);
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
        require(w, views_sweep(w->v, 1000000, 200, &dropped, &wrapped) == OK);
        uint64_t viewer = STARS + 1 + rand_below(&r, PEOPLE - STARS);
        if (views_rebuild_begin(w->v, viewer) == OK)
            views_rebuild_end(w->v, viewer, (const uint64_t[]){2, 1}, 2, 0);
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

static void nothing_is_lost_when_all_work_at_once(void **state)
{
    (void)state;
    char folder[] = "/tmp/fantail-stress-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/views", folder);
    struct memory_views_config config = {path, CAP, PULL_CAP, clock_system()};
    struct world world = {.seed = 5}, *w = &world;
    assert_int_equal(views_memory_open(&config, &w->v), OK);
    atomic_store(&w->next_post, 1);
    for (uint64_t i = 1; i <= PEOPLE; i++) {
        bool faithful = i % FANS == 0 || i <= STARS;
        change(w, VIEW_ACCOUNT, true, i, 0, faithful ? 2000000 : 0);
        for (uint64_t s = 1; s <= STARS && i > STARS; s++)
            change(w, VIEW_FOLLOW, true, i, s, 0);
    }
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
        assert_int_equal(views_home(w->v, i, UINT64_MAX, ids, CAP * 2, &n, &floor), OK);
        assert_true(floor < POSTS - PULL_CAP);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(ids[k], POSTS - k);
        assert_int_equal(n, POSTS - floor);
    }
    views_free(w->v);
    struct views *again = NULL;
    assert_int_equal(views_memory_open(&config, &again), OK);
    assert_true(again->loaded_position > 0);
    views_free(again);
    unlink(path);
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
                                 .caption_json = STR("x")};
        cards_put_post(d->c, ticket, &card);
        cards_put_account(d->c, cards_ticket(d->c, id), id, STR("{}"));
        cards_put_likes(d->c, cards_ticket(d->c, cards_likes_key(id)), id, (const uint64_t[]){9, 8},
                        2, 0);
    }
    return NULL;
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
        struct str json[20];
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
        cards_accounts(d->c, ids, 20, json, &arena);
        cards_liked(d->c, ids[0], ids, 2, liked);
        arena_reset(&arena);
    }
    arena_done(&arena);
    return NULL;
}

static void a_change_always_wins_over_a_fill(void **state)
{
    (void)state;
    struct deck d = {.c = cards_memory_new(1 << 20, clock_system())};
    void *(*const jobs[])(void *) = {filler, filler, looker};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, jobs[i], &d), 0);
    struct rand r;
    rand_seed(&r, 13);
    for (int i = 0; i < 20000; i++) {
        uint64_t id = 1 + rand_below(&r, KEYS);
        uint32_t likes = atomic_fetch_add(&true_likes[id], 1) + 1;
        cards_post_counts(d.c, id, likes, -1);
        cards_like(d.c, id, 5 + rand_below(&r, 10), rand_below(&r, 2));
        if (rand_below(&r, 50) == 0)
            cards_forget_account(d.c, id);
        if (rand_below(&r, 500) == 0)
            cards_post_gone(d.c, id);
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
    cards_free(d.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_when_all_work_at_once),
        cmocka_unit_test(a_change_always_wins_over_a_fill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
