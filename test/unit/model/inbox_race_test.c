/* Readers of an inbox on threads of their own while one writer sends, deletes, marks as read,
 * leaves and joins: no read may be older than what was answered before it began, and none may show
 * two moments at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/rand.h"
#include "model/inbox.h"
#include "world.h"

enum { READERS = 2, DEEDS = 4000, CAP = 50 };

static struct world w;
static uint64_t reader, other, group, fickle; /* the reader leaves the latter and comes back */

/* What the writer has seen answered. */
static _Atomic int64_t answered_seq, read_seq, deleted_seq;
static _Atomic uint64_t left_epoch; /* odd: has left, as hidden_epoch in feed_race_test.c */
static _Atomic bool over;
static _Atomic uint64_t reads, from_memory, failures;

struct seen {
    int64_t seq, read, deleted;
    uint64_t epoch;
};

static struct seen look(void)
{
    return (struct seen){.seq = atomic_load(&answered_seq),
                         .read = atomic_load(&read_seq),
                         .deleted = atomic_load(&deleted_seq),
                         .epoch = atomic_load(&left_epoch)};
}

static bool is_right(const struct inbox_item *item, const struct seen *before)
{
    const struct group *g = &item->group;
    if (g->id == fickle)
        return before->epoch % 2 == 0 || atomic_load(&left_epoch) != before->epoch;
    bool shown = item->last.body.ptr != NULL;
    return g->seq >= before->seq && g->read_seq >= before->read && g->read_seq <= g->seq &&
           item->unread >= 0 && item->unread <= g->seq - g->read_seq &&
           !(shown && item->last.seq <= before->deleted) &&
           !(item->last.author == reader && item->unread > 0);
}

static void *read_all_the_time(void *arg)
{
    struct inbox_page *page = arg;
    struct arena arena;
    arena_init(&arena);
    while (!atomic_load(&over)) {
        struct seen before = look();
        bool found = false;
        arena_reset(&arena);
        enum err e =
            inbox_page_read(w.views, w.cards, NULL, reader, UINT64_MAX, false, 20, &arena, page);
        atomic_fetch_add(&from_memory, e == OK);
        if (e == ERR_NEEDS_TRUTH)
            e = inbox_page_read(w.views, w.cards, w.db, reader, UINT64_MAX, false, 20, &arena,
                                page);
        for (size_t i = 0; !e && i < page->count; i++) {
            found = found || page->items[i].group.id == group;
            if (!is_right(&page->items[i], &before))
                atomic_fetch_add(&failures, 1);
        }
        if (e || !found)
            atomic_fetch_add(&failures, 1);
        atomic_fetch_add(&reads, 1);
    }
    arena_done(&arena);
    return NULL;
}

/* ---- writing ---- */

struct wish {
    enum { SAY, SAY_OWN, ERASE, READ, LEAVE, JOIN, MAKE } what;
    int64_t seq;
    uint64_t made;
    struct arena arena;
};

static enum err carry_out(struct tx *tx, void *arg)
{
    struct wish *a = arg;
    struct group_entry entry;
    struct inbox_item item;
    struct group g;
    enum member_outcome outcome;
    bool repeated;
    enum err e = OK;
    switch (a->what) {
    case SAY:
    case SAY_OWN:
        e = message_send(tx,
                         &(struct message_new){.group = group,
                                               .author = a->what == SAY ? other : reader,
                                               .body = STR("hi")},
                         &a->arena, &entry, &repeated);
        a->seq = entry.seq;
        return e;
    case ERASE:
        return message_delete(tx, group, a->seq, other, &a->arena, &entry);
    case READ:
        return inbox_mark_read(tx, group, reader, a->seq, &a->arena, &item);
    case LEAVE:
        return group_member_remove(tx, fickle, reader, reader);
    case JOIN:
        return group_member_put(tx, fickle, other, reader, &(struct member_wish){0}, &outcome);
    case MAKE:
        e = group_create(
            tx,
            &(struct group_new){
                .owner = other, .name = STR("g"), .members = &reader, .member_count = 1},
            &a->arena, &g);
        a->made = g.id;
        return e;
    }
    return e;
}

static struct wish act(struct wish a)
{
    arena_init(&a.arena);
    EXPECT(db_write(w.db, carry_out, &a, NULL) == OK);
    arena_done(&a.arena);
    return a;
}

static void leave_or_join(void)
{
    if (atomic_load(&left_epoch) % 2 == 0) {
        act((struct wish){.what = LEAVE});
        atomic_fetch_add(&left_epoch, 1);
    } else {
        atomic_fetch_add(&left_epoch, 1); /* before the act: it may show from then on */
        act((struct wish){.what = JOIN});
    }
}

static void write_all_the_time(void)
{
    struct rand r;
    int64_t last = 0; /* of the other's messages, not deleted */
    rand_seed(&r, 7);
    for (int i = 0; i < DEEDS; i++) {
        uint64_t dice = rand_below(&r, 10);
        if (dice < 4) {
            last = act((struct wish){.what = SAY}).seq;
            atomic_store(&answered_seq, last);
        } else if (dice < 6) {
            int64_t seq = act((struct wish){.what = SAY_OWN}).seq;
            atomic_store(&answered_seq, seq);
            atomic_store(&read_seq, seq);
            last = 0;
        } else if (dice < 7 && last) {
            act((struct wish){.what = ERASE, .seq = last});
            atomic_store(&deleted_seq, last); /* and it is the last message: none below is shown */
            last = 0;
        } else if (dice < 9) {
            act((struct wish){.what = READ, .seq = atomic_load(&answered_seq)});
            atomic_store(&read_seq, atomic_load(&answered_seq));
        } else {
            leave_or_join();
        }
        if (rand_below(&r, 4) == 0) /* a pause, in which pages come from memory */
            sched_yield();
        world_step(&w);
        manual_clock_advance(&w.clock, 1);
    }
}

static void no_read_is_older_than_what_was_answered_before_it(void **state)
{
    (void)state;
    static struct inbox_page pages[READERS];
    pthread_t threads[READERS];
    world_start(&w, CAP);
    reader = world_account(&w, "reader");
    other = world_account(&w, "other");
    group = act((struct wish){.what = MAKE}).made;
    fickle = act((struct wish){.what = MAKE}).made;
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all_the_time, &pages[i]), 0);
    write_all_the_time();
    while (atomic_load(&reads) < 100 || atomic_load(&from_memory) < 10)
        sched_yield();
    atomic_store(&over, true);
    for (size_t i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&failures), 0);
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
        cmocka_unit_test(no_read_is_older_than_what_was_answered_before_it),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
