/* Groups with everything at once, for the race detector: senders, people who join and leave,
 * readers, drops, sweeps, rebuilds, listeners, saves. What is checked is what must hold at every
 * moment, and at the end that nobody misses a message. */
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
#include "base/clock.h"
#include "base/rand.h"
#include "redis_place.h"
#include "view/memory/memory.h"
#include "view/redis/redis.h"

enum {
    PEOPLE = 400,
    GROUPS = 12,
    FICKLE = 5,
    THREADS = 8,
    GROUP_BASE = 100000,
    PATIENCE_MS = 60000
};

static uint64_t messages = 6000;
static const char *driver = "memory";

/* Everybody whose number does not divide by FICKLE is in all groups from the beginning; `last` is
 * what truth says about a group, and is written before anybody is told. Groups with an even number
 * are large: who was not seen lately is dropped instead of being pushed to. */
static struct world {
    struct views *v;
    _Atomic bool stop;
    _Atomic uint64_t next;
    _Atomic uint64_t last[GROUPS];
    _Atomic uint64_t heard;
    _Atomic int wrong;
} w;

/* The first few are shown: a count alone tells nothing. */
static void note_wrong(const char *what, int line)
{
    if (atomic_fetch_add(&w.wrong, 1) < 5)
        fprintf(stderr, "# line %d: %s does not hold\n", line, what);
}

#define require(good)                                                                              \
    do {                                                                                           \
        if (!(good))                                                                               \
            note_wrong(#good, __LINE__);                                                           \
    } while (0)

/* A busy server or replica may not answer in time. Callers try again then, and so does this: every
 * operation of views may be repeated. */
static bool is_busy(enum err e)
{
    return strcmp(driver, "memory") != 0 && (e == ERR_UNAVAILABLE || e == ERR_TIMEOUT);
}

#define require_in_the_end(operation)                                                              \
    do {                                                                                           \
        int64_t give_up = clock_mono_ms(clock_system()) + PATIENCE_MS;                             \
        enum err result;                                                                           \
        while (is_busy(result = (operation)) && clock_mono_ms(clock_system()) < give_up) {         \
        }                                                                                          \
        if (result != OK)                                                                          \
            note_wrong(#operation, __LINE__);                                                      \
    } while (0)

static void change(enum view_change_kind kind, bool on, uint64_t who, uint64_t group, int64_t value,
                   uint64_t event)
{
    struct view_change c = {kind, on, who, group, value, event};
    require_in_the_end(views_apply(w.v, &c, 1));
}

static void deliver(uint64_t group, uint64_t event, enum audience_part part)
{
    struct audience_cursor c = {part, 1000000, 2000000, 0, false};
    while (!c.end) {
        uint64_t members[64];
        size_t n, changed;
        require_in_the_end(graph_audience(w.v->graph, GROUP_BASE + group, &c, members, 64, &n));
        if (part == AUDIENCE_REST && group % 2 == 0)
            require_in_the_end(inboxes_drop(w.v->inboxes, members, n));
        else
            require_in_the_end(
                inboxes_push_one(w.v->inboxes, GROUP_BASE + group, event, members, n, &changed));
    }
}

static void *sender(void *arg)
{
    (void)arg;
    uint64_t event;
    while ((event = atomic_fetch_add(&w.next, 1)) <= messages) {
        uint64_t group = event % GROUPS, before = atomic_load(&w.last[group]);
        while (before < event && !atomic_compare_exchange_weak(&w.last[group], &before, event)) {
        }
        change(VIEW_MESSAGE, true, 1 + event % (FICKLE - 1), GROUP_BASE + group, 0, event);
        deliver(group, event, AUDIENCE_ACTIVE);
        deliver(group, event, AUDIENCE_REST);
    }
    return NULL;
}

static void *reader(void *arg)
{
    (void)arg;
    struct rand r;
    rand_seed(&r, 1);
    while (!atomic_load(&w.stop)) {
        uint64_t who = 1 + rand_below(&r, PEOPLE), below = UINT64_MAX, ids[20];
        bool met[GROUPS] = {false};
        struct inbox_entry out[GROUPS * 2];
        size_t n;
        enum err e = inboxes_read(w.v->inboxes, who, below, out, GROUPS * 2, &n);
        if (is_busy(e))
            continue;
        require(e == OK || (e == ERR_NEEDS_TRUTH && n == 0));
        require(n <= GROUPS);
        for (size_t i = 0; i < n; i++) {
            uint64_t g = out[i].group - GROUP_BASE;
            require(g < GROUPS && !met[g] && out[i].activity <= messages + GROUPS);
            require(i == 0 || out[i].activity <= out[i - 1].activity);
            met[g] = true;
        }
        require(e != OK || who % FICKLE == 0 || n == GROUPS);
        require_in_the_end(
            graph_neighbours(w.v->graph, GROUP_BASE + who % GROUPS, true, 0, ids, 20, &n));
    }
    return NULL;
}

static void *fickle(void *arg)
{
    (void)arg;
    struct rand r;
    rand_seed(&r, 2);
    for (uint64_t fresh = 1; !atomic_load(&w.stop); fresh++) {
        uint64_t who = FICKLE * (1 + rand_below(&r, PEOPLE / FICKLE));
        uint64_t group = GROUP_BASE + rand_below(&r, GROUPS);
        change(VIEW_MEMBER, rand_below(&r, 2), who, group, 1, 0);
        if (fresh < 500) /* new people in new groups */
            change(VIEW_MEMBER, true, PEOPLE * 10 + fresh, GROUP_BASE * 2 + fresh / 3, 1, 0);
    }
    return NULL;
}

/* Rebuilds from what truth says, as readers do. */
static void *keeper(void *arg)
{
    (void)arg;
    struct rand r;
    rand_seed(&r, 3);
    while (!atomic_load(&w.stop)) {
        uint64_t who = 1 + rand_below(&r, PEOPLE);
        struct inbox_entry read[GROUPS];
        size_t dropped, n = 0;
        bool wrapped;
        if (rand_below(&r, 20) == 0)
            require_in_the_end(timelines_sweep(w.v->timelines, 500000, 100, &dropped, &wrapped));
        if (inboxes_begin(w.v->inboxes, who) != OK)
            continue;
        for (uint64_t g = 0; g < GROUPS; g++) {
            struct inbox_entry e = {GROUP_BASE + g, atomic_load(&w.last[g])};
            e.activity = e.activity > 0 ? e.activity : 1;
            size_t at = n++;
            for (; at > 0 && read[at - 1].activity < e.activity; at--)
                read[at] = read[at - 1];
            read[at] = e;
        }
        enum err e = rand_below(&r, 8) ? inboxes_end(w.v->inboxes, who, read, n)
                                       : inboxes_give_up(w.v->inboxes, who);
        require(e == OK || e == ERR_CONFLICT || is_busy(e));
    }
    return NULL;
}

static void *listener(void *arg)
{
    (void)arg;
    for (uint64_t i = 1; !atomic_load(&w.stop); i++) {
        uint64_t members[64], found[64];
        struct audience_cursor cursor = {.part = AUDIENCE_ALL};
        size_t n;
        require_in_the_end(views_listen(w.v, 1 + i % PEOPLE, i % 3 > 0));
        if (graph_audience(w.v->graph, GROUP_BASE, &cursor, members, 64, &n) == OK)
            atomic_fetch_add(&w.heard, views_listening(w.v, members, n, found));
        struct view_stats s;
        views_stats(w.v, &s);
        require(s.accounts >= PEOPLE && s.groups >= 1);
        require_in_the_end(views_save(w.v, i));
    }
    return NULL;
}

static struct views *open_views(const char *path)
{
    struct views *v = NULL;
    struct memory_views_config memory = {path, 10, 10, clock_system()};
    if (strcmp(driver, "memory") == 0) {
        assert_int_equal(views_memory_open(&memory, &v), OK);
        return v;
    }
    enum redis_kind kind = strcmp(driver, "redis") == 0 ? REDIS_SINGLE : REDIS_CLUSTER;
    struct redis_config redis = {
        .url = redis_place_url(kind), .timeline_cap = 10, .pull_cap = 10, .clock = clock_system()};
    assert_int_equal(views_redis_open(&redis, &v), OK);
    assert_int_equal(views_loaded(v), OK);
    return v;
}

static void assert_nothing_is_missing(void)
{
    size_t there = 0;
    for (uint64_t who = 1; who <= PEOPLE; who++) {
        struct inbox_entry out[GROUPS];
        size_t n;
        enum err e = OK;
        if (who % FICKLE != 0)
            require_in_the_end((e = inboxes_read(w.v->inboxes, who, UINT64_MAX, out, GROUPS, &n),
                                e == ERR_NEEDS_TRUTH ? OK : e));
        if (who % FICKLE == 0 || e == ERR_NEEDS_TRUTH)
            continue;
        assert_int_equal(n, GROUPS);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(out[i].activity, atomic_load(&w.last[out[i].group - GROUP_BASE]));
        there++;
    }
    assert_true(there >= PEOPLE / 4);
}

static void no_member_misses_a_message(void **state)
{
    (void)state;
    char folder[] = "/tmp/fantail-inboxes-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/views", folder);
    if (strcmp(driver, "memory") != 0)
        redis_place_clear(strcmp(driver, "redis") == 0 ? REDIS_SINGLE : REDIS_CLUSTER);
    w.v = open_views(path);
    atomic_store(&w.next, 1);
    for (uint64_t who = 1; who <= PEOPLE; who++) {
        /* a third is swept and dropped, a third is dropped by large groups */
        change(VIEW_ACCOUNT, true, who, 0, (int64_t)(who % 3) * 700000, 0);
        for (uint64_t g = 0; g < GROUPS && who % FICKLE != 0; g++)
            change(VIEW_MEMBER, true, who, GROUP_BASE + g, 1, 0);
    }
    void *(*const jobs[THREADS])(void *) = {sender, sender, reader,   fickle,
                                            keeper, keeper, listener, reader};
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, jobs[i], NULL), 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    atomic_store(&w.stop, true);
    for (size_t i = 2; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_nothing_is_missing();
    assert_int_equal(atomic_load(&w.wrong), 0);
    assert_true(atomic_load(&w.heard) > 0);
    views_free(w.v);
    struct views *again = open_views(path);
    assert_true(again->loaded_position > 0);
    views_free(again);
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

/* The driver's name is the argument; memory when there is none. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_member_misses_a_message)};
    if (argc > 1) {
        driver = argv[1];
        messages = 250;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
