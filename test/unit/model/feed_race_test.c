/* Readers on threads of their own while one writer posts, deletes, mutes and unfollows: no read may
 * show what was removed before it began. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/rand.h"
#include "model/feed.h"
#include "world.h"

enum { READERS = 2, DEEDS = 4000, CAP = 50, KEPT = 64 };

static struct world w;
static uint64_t reader, author, other;

/* What the writer has seen answered. A number that is even says "shown", odd says "hidden"; it
 * changes only after the answer, so a reader that meets the same odd number before and after its
 * read was hidden from throughout. */
static _Atomic uint64_t hidden_epoch;
static _Atomic size_t deleted_count;
static _Atomic uint64_t deleted[DEEDS];
static _Atomic bool over;
static _Atomic uint64_t reads, failures;

static bool was_deleted(uint64_t id, size_t before)
{
    for (size_t i = 0; i < before; i++) {
        if (atomic_load(&deleted[i]) == id)
            return true;
    }
    return false;
}

static void check_page(const struct feed_page *page, size_t deleted_before, bool hidden)
{
    uint64_t last = UINT64_MAX;
    for (size_t i = 0; i < page->count; i++) {
        const struct post_card *card = &page->items[i].card;
        bool wrong = card->id >= last || was_deleted(card->id, deleted_before) ||
                     (hidden && card->author == other);
        if (wrong)
            atomic_fetch_add(&failures, 1);
        last = card->id;
    }
}

static void *read_all_the_time(void *arg)
{
    struct feed_page *page = arg;
    struct arena arena;
    arena_init(&arena);
    while (!atomic_load(&over)) {
        size_t before = atomic_load(&deleted_count);
        uint64_t epoch = atomic_load(&hidden_epoch);
        arena_reset(&arena);
        enum err e = feed_read(w.views, w.cards, NULL, reader, UINT64_MAX, 30, &arena, page);
        if (e == ERR_NEEDS_TRUTH)
            e = feed_read(w.views, w.cards, w.db, reader, UINT64_MAX, 30, &arena, page);
        if (e)
            atomic_fetch_add(&failures, 1);
        else
            check_page(page, before, epoch % 2 == 1 && atomic_load(&hidden_epoch) == epoch);
        atomic_fetch_add(&reads, 1);
    }
    arena_done(&arena);
    return NULL;
}

static void set_hidden(struct rand *r)
{
    static const enum act acts[][2] = {
        {ACT_MUTE, ACT_UNMUTE}, {ACT_UNFOLLOW, ACT_FOLLOW}, {ACT_SUSPEND, ACT_RESTORE}};
    static size_t kind;
    bool hide = atomic_load(&hidden_epoch) % 2 == 0;
    if (hide) {
        kind = rand_below(r, 3);
        world_act(&w, acts[kind][0], reader, other);
        atomic_fetch_add(&hidden_epoch, 1);
    } else {
        atomic_fetch_add(&hidden_epoch, 1); /* before the act: it may show from then on */
        world_act(&w, acts[kind][1], reader, other);
    }
}

static void delete_one(uint64_t *posts, size_t *count, struct rand *r)
{
    size_t i = rand_below(r, *count);
    uint64_t id = posts[i];
    posts[i] = posts[--*count];
    world_act(&w, ACT_DELETE, 0, id);
    size_t at = atomic_load(&deleted_count);
    atomic_store(&deleted[at], id);
    atomic_store(&deleted_count, at + 1);
}

static void write_all_the_time(void)
{
    uint64_t posts[KEPT];
    size_t count = 0;
    struct rand r;
    rand_seed(&r, 5);
    for (int i = 0; i < DEEDS; i++) {
        bool visible = atomic_load(&hidden_epoch) % 2 == 0;
        uint64_t dice = rand_below(&r, 10);
        if (dice < 5 && count < KEPT)
            posts[count++] = world_post(&w, visible && dice < 2 ? other : author, "text");
        else if (dice < 8 && count > 0)
            delete_one(posts, &count, &r);
        else if (dice == 8)
            set_hidden(&r);
        world_step(&w);
        manual_clock_advance(&w.clock, 1);
    }
}

static void no_read_shows_what_was_removed_before_it_began(void **state)
{
    (void)state;
    static struct feed_page pages[READERS];
    pthread_t threads[READERS];
    world_start(&w, CAP);
    reader = world_account(&w, "reader");
    author = world_account(&w, "author");
    other = world_account(&w, "other");
    world_act(&w, ACT_FOLLOW, reader, author);
    world_act(&w, ACT_FOLLOW, reader, other);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all_the_time, &pages[i]), 0);
    write_all_the_time();
    while (atomic_load(&reads) < 100)
        sched_yield();
    atomic_store(&over, true);
    for (size_t i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&failures), 0);
    assert_true(atomic_load(&deleted_count) > 100);
    if (atomic_load(&hidden_epoch) % 2 == 1) {
        world_act(&w, ACT_UNMUTE, reader, other);
        world_act(&w, ACT_RESTORE, 0, other);
        world_act(&w, ACT_FOLLOW, reader, other);
    }
    world_drain(&w);
    uint64_t shown[KEPT + 1], expected[KEPT + 1];
    size_t n = world_oracle(&w, reader, expected, KEPT + 1);
    assert_int_equal(world_feed(&w, reader, 30, shown, KEPT + 1), n);
    assert_memory_equal(shown, expected, n * sizeof *shown);
    printf("# %llu reads\n", (unsigned long long)atomic_load(&reads));
}

static int open_world(void **state)
{
    (void)state;
    world_open(&w, 1000);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_read_shows_what_was_removed_before_it_began),
    };
    return cmocka_run_group_tests_name("model/feed_race", tests, open_world, close_world);
}
