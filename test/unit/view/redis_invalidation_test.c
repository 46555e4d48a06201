/* The invalidation listener's contract (port/invalidation.h) on real servers: everything that can
 * change a page is heard of, whoever changes it. What happens to connections and servers meanwhile
 * is another test. */
#include "base/check.h"
#include "card_writes.h"
#include "traced_page.h"

/* ---- what is noted ---- */

static void what_was_read_is_the_same_until_something_changes(void **state)
{
    struct fixture *f = *state;
    struct read_trace t;
    struct invalidation_stats before, after;
    note(f, &t);
    assert_in_range(t.count, 9, 20); /* three cards, three accounts, likes, and the views' */
    assert_true(same(f, &t));
    invalidation_stats(f->w, &before);
    for (int i = 0; i < 20; i++) {
        assert_true(ask(f->w));
        assert_true(same(f, &t));
    }
    invalidation_stats(f->w, &after);
    assert_int_equal(after.asked - before.asked, 20);
    assert_int_equal(after.round_trips - before.round_trips, 20);
    assert_int_equal(after.lost, before.lost);
    put_card(&f->mine, FIRST, AUTHOR, 2); /* our own changes are as good as others' */
    assert_true(ask(f->w));
    assert_false(same(f, &t));
    struct read_trace next;
    note(f, &next);
    assert_true(same(f, &next));
    assert_false(same(f, &t));
}

static bool is_whole(struct fixture *f)
{
    struct read_trace t;
    uint64_t ids[PAGE];
    invalidation_begin(f->w, &t);
    (void)draw(&f->mine, ids);
    invalidation_end(f->w, &t);
    return t.whole;
}

static void what_cannot_be_noted_is_not_whole(void **state)
{
    struct fixture *f = *state;
    struct read_trace t;
    assert_false(is_whole(f)); /* nobody listens yet */
    note(f, &t);
    assert_true(is_whole(f));
    cards_forget_account(f->other.c, AUTHOR); /* its change would not be told */
    assert_false(is_whole(f));
    put_account(&f->other, AUTHOR);
    assert_true(is_whole(f));
    cards_forget_post(f->other.c, FIRST);
    assert_false(is_whole(f));
    put_card(&f->other, FIRST, AUTHOR, 1);
    assert_true(is_whole(f));
    views_suspect(f->mine.v, true);
    assert_false(is_whole(f));
    views_suspect(f->mine.v, false);
    cards_suspect(f->mine.c, true);
    assert_false(is_whole(f));
    cards_suspect(f->mine.c, false);
    assert_true(is_whole(f));
}

static void a_page_of_too_many_things_is_not_whole(void **state)
{
    struct fixture *f = *state;
    enum { MANY = TRACE_READS_MAX + 20 };
    static struct post_card cards[MANY];
    static enum card_state states[MANY];
    uint64_t ids[MANY];
    struct read_trace t;
    struct arena arena;
    for (uint64_t i = 0; i < MANY; i++) {
        ids[i] = POST(100 + i);
        put_card(&f->other, ids[i], AUTHOR, 0);
    }
    note(f, &t);
    for (size_t n = MANY; n >= 100; n -= 100) {
        int64_t until = now_ms() + PATIENCE_MS;
        arena_init(&arena);
        do { /* the invalidation listener hears of some nodes later */
            invalidation_begin(f->w, &t);
            cards_posts(f->mine.c, ids, n, cards, states, &arena);
            invalidation_end(f->w, &t);
        } while (n < TRACE_READS_MAX && !t.whole && now_ms() < until);
        arena_done(&arena);
        assert_int_equal(t.whole, n < TRACE_READS_MAX);
    }
}

static void *draw_elsewhere(void *arg)
{
    struct fixture *f = arg;
    uint64_t ids[PAGE];
    (void)draw(&f->mine, ids);
    return NULL;
}

static void other_threads_are_not_in_the_trace(void **state)
{
    struct fixture *f = *state;
    struct read_trace t;
    pthread_t thread;
    note(f, &t);
    invalidation_begin(f->w, &t);
    assert_int_equal(pthread_create(&thread, NULL, draw_elsewhere, f), 0);
    pthread_join(thread, NULL);
    invalidation_end(f->w, &t);
    assert_true(t.whole);
    assert_int_equal(t.count, 0);
}

static void nothing_is_the_same_while_suspect(void **state)
{
    struct fixture *f = *state;
    struct read_trace before, during, after;
    uint64_t ids[PAGE];
    note(f, &before);
    invalidation_begin(f->w, &during);
    (void)draw(&f->mine, ids);
    invalidation_suspect(f->w, false); /* there is none: nothing happens */
    assert_true(same(f, &before));
    invalidation_suspect(f->w, true);
    invalidation_end(f->w, &during);
    assert_false(during.whole);
    assert_false(same(f, &before));
    assert_false(same(f, &during));
    invalidation_begin(f->w, &during);
    (void)draw(&f->mine, ids);
    invalidation_suspect(f->w, false);
    invalidation_end(f->w, &during);
    assert_false(during.whole);
    (void)ask(f->w);
    assert_false(same(f, &before));
    assert_false(same(f, &during));
    note(f, &after);
    assert_true(same(f, &after));
}

/* ---- changes ---- */

static void one_more_is_pushed(struct fixture *f)
{
    deliver(&f->other, AUTHOR, POST(10), false);
}

static void it_is_retracted(struct fixture *f)
{
    deliver(&f->other, AUTHOR, FIRST, true);
}

static void the_viewer_posts(struct fixture *f)
{
    post(&f->other, VIEWER, POST(10), DELIVERY_PUSH, true);
}

static void the_viewers_post_goes(struct fixture *f)
{
    post(&f->other, VIEWER, OWN, DELIVERY_PUSH, false);
}

static void the_star_posts(struct fixture *f)
{
    post(&f->other, STAR, POST(10), DELIVERY_PULL, true);
}

static void the_stars_post_goes(struct fixture *f)
{
    post(&f->other, STAR, STARS, DELIVERY_PULL, false);
}

static void an_author_becomes_a_star(struct fixture *f)
{
    post(&f->other, RISING, POST(10), DELIVERY_PULL, true);
}

static void one_more_is_followed(struct fixture *f)
{
    follow(&f->other, VIEWER, FRIEND, true);
}

static void the_author_is_unfollowed(struct fixture *f)
{
    follow(&f->other, VIEWER, AUTHOR, false);
}

static void the_first_is_muted(struct fixture *f)
{
    apply(&f->other,
          (struct view_change){.kind = VIEW_MUTE, .on = true, .account = VIEWER, .other = AUTHOR});
}

static void the_author_is_hidden(struct fixture *f)
{
    apply(&f->other, (struct view_change){.kind = VIEW_HIDE, .on = true, .account = AUTHOR});
}

static void the_card_is_changed(struct fixture *f)
{
    put_card(&f->other, FIRST, AUTHOR, 1);
}

static void the_post_is_deleted(struct fixture *f)
{
    cards_post_gone(f->other.c, FIRST);
}

static void the_card_is_forgotten(struct fixture *f)
{
    cards_forget_post(f->other.c, STARS);
}

static void the_counts_change(struct fixture *f)
{
    cards_post_counts(f->other.c, FIRST, 2, -1);
}

static void the_account_is_forgotten(struct fixture *f)
{
    cards_forget_account(f->other.c, AUTHOR);
}

static void one_more_is_liked(struct fixture *f)
{
    cards_like(f->other.c, VIEWER, OWN, true);
}

static void one_is_no_longer_liked(struct fixture *f)
{
    cards_like(f->other.c, VIEWER, LIKED, false);
}

static void the_timeline_is_dropped(struct fixture *f)
{
    bool wrapped = false;
    size_t dropped, all = 0;
    while (!wrapped) {
        assert_int_equal(timelines_sweep(f->other.v->timelines, 2000000, 10000, &dropped, &wrapped),
                         OK);
        all += dropped;
    }
    assert_true(all > 0);
}

static void the_timeline_is_built_anew(struct fixture *f)
{
    uint64_t id = OWN;
    assert_int_equal(timelines_anew(f->other.v->timelines, VIEWER), OK);
    assert_int_equal(timelines_end(f->other.v->timelines, VIEWER, &id, 1, 0), OK);
}

static void older_posts_are_filled_in(struct fixture *f)
{
    uint64_t id = POST(0);
    assert_int_equal(timelines_backfill(f->other.v->timelines, VIEWER, AUTHOR, &id, 1, 0), OK);
}

static void everything_is_flushed(struct fixture *f)
{
    for (size_t i = 0; i < f->servers.url.host_count; i++)
        freeReplyObject(servers_ask(&f->servers, i, "FLUSHALL"));
}

static void the_views_are_cleared(struct fixture *f)
{
    assert_int_equal(views_clear(f->other.v), OK);
}

typedef void (*doing)(struct fixture *f);

static const doing changes[] = {
    one_more_is_pushed,
    it_is_retracted,
    the_viewer_posts,
    the_viewers_post_goes,
    the_star_posts,
    the_stars_post_goes,
    an_author_becomes_a_star,
    one_more_is_followed,
    the_author_is_unfollowed,
    the_first_is_muted,
    the_author_is_hidden,
    the_card_is_changed,
    the_post_is_deleted,
    the_card_is_forgotten,
    the_counts_change,
    the_account_is_forgotten,
    one_more_is_liked,
    one_is_no_longer_liked,
    the_timeline_is_dropped,
    the_timeline_is_built_anew,
    older_posts_are_filled_in,
    everything_is_flushed,
    the_views_are_cleared,
};

/* From the beginning again, the invalidation listener and the connections being what they are. */
static void reload(struct fixture *f)
{
    everything_is_flushed(f);
    assert_int_equal(views_clear(f->other.v), OK);
    load(f);
    (void)ask(f->w); /* what was flushed has been heard of: it does not fall into the next trace */
}

/* As note(), by a page source, together with somebody else's page. */
static void note_in_step(struct fixture *f, struct read_trace *trace)
{
    struct page_source *source = page_source_redis_new(f->mine.v, f->mine.c);
    int64_t until = now_ms() + PATIENCE_MS;
    struct read_trace other;
    struct arena arena;
    arena_init(&arena);
    do {
        struct page_read reads[] = {{.viewer = OTHER_VIEWER, .max = PAGE, .trace = &other},
                                    {.viewer = VIEWER, .max = PAGE, .trace = trace}};
        invalidation_init(f->w, &other);
        invalidation_init(f->w, trace);
        page_source_read(source, reads, COUNT_OF(reads), &arena);
        invalidation_end(f->w, &other);
        invalidation_end(f->w, trace);
        assert_true(reads[1].good || !trace->whole);
        assert_true(!reads[1].good || reads[1].n >= 3);
        if (!trace->whole)
            a_moment();
    } while (!trace->whole && now_ms() < until);
    assert_true(trace->whole);
    arena_done(&arena);
    page_source_free(source);
}

static void assert_changes_are_heard_of(struct fixture *f,
                                        void (*noting)(struct fixture *f, struct read_trace *t))
{
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        struct read_trace t;
        noting(f, &t);
        assert_true(ask(f->w));
        assert_true(same(f, &t));
        changes[i](f);
        assert_true(ask(f->w));
        if (same(f, &t))
            fail_msg("change %zu was not heard of", i);
        reload(f);
    }
}

static void whatever_changes_a_page_is_heard_of(void **state)
{
    assert_changes_are_heard_of(*state, note);
}

static void whatever_changes_a_page_read_in_step_is_heard_of(void **state)
{
    assert_changes_are_heard_of(*state, note_in_step);
}

/* The script, which other pages than the first are read by, and lists that are not there yet. */
static void what_scripts_read_is_heard_of_as_well(void **state)
{
    struct fixture *f = *state;
    static const doing some[] = {one_more_is_pushed, the_star_posts, the_first_is_muted,
                                 an_author_becomes_a_star, the_timeline_is_dropped};
    for (size_t i = 0; i < COUNT_OF(some); i++) {
        struct read_trace t;
        uint64_t ids[CAP], floor;
        size_t n;
        int64_t until = now_ms() + PATIENCE_MS;
        do {
            invalidation_begin(f->w, &t); /* below something: no first page */
            assert_int_equal(
                timelines_home(f->mine.v->timelines, VIEWER, POST(800), ids, CAP, &n, &floor), OK);
            invalidation_end(f->w, &t);
        } while (!t.whole && now_ms() < until);
        assert_true(t.whole);
        assert_int_equal(n, 3);
        assert_true(ask(f->w));
        assert_true(same(f, &t));
        some[i](f);
        assert_true(ask(f->w));
        if (same(f, &t))
            fail_msg("change %zu was not heard of", i);
        reload(f);
    }
}

static void what_does_not_concern_a_page_leaves_it_the_same(void **state)
{
    struct fixture *f = *state;
    struct read_trace t;
    note(f, &t);
    put_card(&f->other, ELSEWHERE, STRANGER, 1);
    cards_post_gone(f->other.c, ELSEWHERE);
    put_account(&f->other, STRANGER);
    put_likes(&f->other, OTHER_VIEWER);
    cards_like(f->other.c, OTHER_VIEWER, FIRST, true);
    follow(&f->other, OTHER_VIEWER, STRANGER, true);
    follow(&f->other, OTHER_VIEWER, AUTHOR, true);
    follow(&f->other, VIEWER, AUTHOR, true); /* as before */
    deliver(&f->other, FRIEND, ELSEWHERE, false);
    deliver(&f->other, AUTHOR, FIRST, false); /* again: it is there */
    post(&f->other, OTHER_VIEWER, ELSEWHERE, DELIVERY_PUSH, true);
    apply(&f->other,
          (struct view_change){.kind = VIEW_LAST_SEEN, .account = VIEWER, .value = 9000000});
    int64_t until = now_ms() + PATIENCE_MS;
    while (views_save(f->other.v, 1) != OK && now_ms() < until)
        a_moment();
    (void)cards_ticket(f->other.c, FIRST);
    assert_true(ask(f->w));
    assert_true(same(f, &t));
}

static void a_card_that_expires_is_heard_of(void **state)
{
    struct fixture *f = *state;
    struct read_trace t;
    struct redis_config config = f->config;
    struct cards *brief;
    config.invalidation = NULL;
    config.card_life_ms = 400;
    note(f, &t);
    assert_int_equal(cards_redis_open(&config, &brief), OK);
    struct post_card card = {.id = FIRST, .author = AUTHOR, .caption = STR("x")};
    cards_change_post(brief, &card);
    note(f, &t);
    int64_t until = now_ms() + PATIENCE_MS;
    while (same(f, &t) && now_ms() < until) {
        assert_true(ask(f->w));
        a_moment();
    }
    assert_false(same(f, &t));
    cards_free(brief);
}

/* ---- inboxes ---- */

static void note_inbox(struct fixture *f, struct read_trace *t, uint64_t account)
{
    int64_t until = now_ms() + PATIENCE_MS;
    struct inbox_entry entries[PAGE];
    size_t n;
    do { /* the invalidation listener hears of some nodes later */
        invalidation_begin(f->w, t);
        assert_int_equal(inboxes_read(f->mine.v->inboxes, account, UINT64_MAX, entries, PAGE, &n),
                         OK);
        invalidation_end(f->w, t);
    } while (!t->whole && now_ms() < until);
    assert_true(t->whole);
}

static void joins(struct fixture *f)
{
    apply(&f->other,
          (struct view_change){
              .kind = VIEW_MEMBER, .on = true, .account = VIEWER, .other = 900, .event = POST(20)});
}

static void is_pushed_to(struct fixture *f)
{
    const uint64_t viewer = VIEWER;
    size_t changed;
    assert_int_equal(inboxes_push_one(f->other.v->inboxes, 900, POST(21), &viewer, 1, &changed),
                     OK);
}

static void leaves(struct fixture *f)
{
    apply(&f->other, (struct view_change){
                         .kind = VIEW_MEMBER, .account = VIEWER, .other = 900, .event = POST(22)});
}

static void is_dropped(struct fixture *f)
{
    const uint64_t viewer = VIEWER;
    assert_int_equal(inboxes_drop(f->other.v->inboxes, &viewer, 1), OK);
}

static void whatever_changes_an_inbox_is_heard_of(void **state)
{
    struct fixture *f = *state;
    void (*const acts[])(struct fixture *) = {joins, is_pushed_to, leaves, is_dropped};
    struct read_trace page, inbox, other;
    note(f, &page);
    for (size_t i = 0; i < COUNT_OF(acts); i++) {
        note_inbox(f, &inbox, VIEWER);
        note_inbox(f, &other, OTHER_VIEWER);
        assert_true(ask(f->w));
        assert_true(same(f, &inbox));
        acts[i](f);
        assert_true(ask(f->w));
        assert_false(same(f, &inbox));
        assert_true(same(f, &other));
    }
    struct inbox_entry entries[PAGE];
    size_t n;
    invalidation_begin(f->w, &inbox);
    assert_int_equal(inboxes_read(f->mine.v->inboxes, VIEWER, UINT64_MAX, entries, PAGE, &n),
                     ERR_NEEDS_TRUTH);
    invalidation_end(f->w, &inbox);
    assert_false(inbox.whole);
}

int main(int argc, char **argv)
{
    if (argc < 2 || !servers_are_known()) {
        fprintf(stderr, "to be run by script/servers\n");
        return 2;
    }
    servers_script = argv[1];
#define CASE(name, kind)                                                                           \
    {                                                                                              \
#name " (" kind ")", name, set_up, tear_down, (void *)(uintptr_t)kind                      \
    }
#define BOTH(name) CASE(name, "redis"), CASE(name, "redis-cluster")
    const struct CMUnitTest tests[] = {
        BOTH(what_was_read_is_the_same_until_something_changes),
        BOTH(what_cannot_be_noted_is_not_whole),
        BOTH(a_page_of_too_many_things_is_not_whole),
        BOTH(other_threads_are_not_in_the_trace),
        BOTH(nothing_is_the_same_while_suspect),
        BOTH(whatever_changes_a_page_is_heard_of),
        BOTH(whatever_changes_a_page_read_in_step_is_heard_of),
        BOTH(what_scripts_read_is_heard_of_as_well),
        BOTH(what_does_not_concern_a_page_leaves_it_the_same),
        BOTH(a_card_that_expires_is_heard_of),
        BOTH(whatever_changes_an_inbox_is_heard_of),
    };
    return cmocka_run_group_tests_name("redis invalidation", tests, NULL, NULL);
}
