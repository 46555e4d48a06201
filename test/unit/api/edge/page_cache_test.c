/* Kept pages over the real stack: whatever happens, what comes out of the cache is what would be
 * drawn afresh at that moment. */
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "api/edge/page_cache.h"
#include "api/render/render.h"
#include "base/check.h"
#include "base/rand.h"
#include "card_writes.h"
#include "model/post.h"
#include "world.h"

enum {
    BUDGET = 4 << 20,
    CAP = 60,
    STARS_FROM = 3,
    THE_CROWD = 7,
    SHARED_READINGS = 50,
    PATIENCE_MS = 20000,
    ROUNDS_OF_OTHERS = 10
};

static struct world w;
static struct page_cache *cache;

/* ---- pages ---- */

static void draw(uint64_t viewer, struct arena *arena, struct feed_page *page, struct buf *head,
                 struct buf *body)
{
    struct json_out j;
    enum err e =
        feed_read(w.views, w.cards, NULL, viewer, UINT64_MAX, FEED_LIMIT_DEFAULT, arena, page);
    if (e == ERR_NEEDS_TRUTH)
        e = feed_read(w.views, w.cards, w.db, viewer, UINT64_MAX, FEED_LIMIT_DEFAULT, arena, page);
    EXPECT(e == OK);
    json_out_init(&j, body);
    json_array_begin(&j);
    render_posts(&j, page->items, page->count, w.cards, arena);
    json_array_end(&j);
    buf_u64(head, page->next_below);
}

/* Looks for a page and takes a copy of it; if there is none it is to be drawn now. */
static bool find(uint64_t viewer, struct page_draft *draft, struct buf *head, struct buf *body)
{
    struct http_body *kept;
    world_hear_news(&w);
    if (!page_cache_find(cache, viewer, head, &kept)) {
        page_cache_begin(cache, viewer, draft);
        return false;
    }
    buf_str(body, kept->bytes);
    kept->release(kept);
    return true;
}

/* Reads as the API does. True: it was kept. */
static bool read_through(uint64_t viewer, struct buf *head, struct buf *body)
{
    struct page_draft draft;
    struct feed_page page;
    struct arena arena;
    buf_clear(head);
    buf_clear(body);
    if (find(viewer, &draft, head, body))
        return true;
    arena_init(&arena);
    draw(viewer, &arena, &page, head, body);
    page_cache_end(cache, &draft, &page, buf_view(head), buf_view(body));
    arena_done(&arena);
    return false;
}

static bool read_quietly(uint64_t viewer)
{
    struct buf head, body;
    buf_init(&head, 0);
    buf_init(&body, 0);
    bool kept = read_through(viewer, &head, &body);
    buf_done(&head);
    buf_done(&body);
    return kept;
}

/* Of shared views a page is kept only after its cards were filled in, and after the listener
 * follows its keys: that takes some reads, none of which is wrong, and as long as it takes. */
static bool is_kept_after(size_t readings, uint64_t viewer)
{
    bool kept = false;
    int64_t until = clock_mono_ms(clock_system()) + PATIENCE_MS;
    for (size_t i = 0; !kept && i < readings; i++)
        kept = read_quietly(viewer);
    while (!kept && w.invalidation && clock_mono_ms(clock_system()) < until) {
        sched_yield();
        kept = read_quietly(viewer);
    }
    return kept || read_quietly(viewer);
}

/* After as many readings as would do for a page that can be kept. */
static bool is_never_kept(uint64_t viewer)
{
    bool kept = false;
    for (size_t i = 0; !kept && i < (w.invalidation ? SHARED_READINGS : 3); i++)
        kept = read_quietly(viewer);
    return !kept;
}

static int open_world(void **state)
{
    (void)state;
    world_open_on(&w, STARS_FROM, test_drivers_wanted());
    world_start(&w, CAP);
    cache = page_cache_new(BUDGET, w.views, w.cards, w.invalidation);
    assert_non_null(cache);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    page_cache_free(cache);
    world_close(&w);
    return 0;
}

/* ---- one change at a time ---- */

struct scene {
    uint64_t viewer, author, star, stranger, post, own;
};

/* The viewer follows an author, whose posts are pushed, and a star, whose posts are pulled. */
static struct scene make_scene(void)
{
    struct scene s = {.viewer = world_account(&w, "viewer"),
                      .author = world_account(&w, "author"),
                      .star = world_account(&w, "star"),
                      .stranger = world_account(&w, "stranger")};
    world_act(&w, ACT_FOLLOW, s.viewer, s.author);
    world_act(&w, ACT_FOLLOW, s.viewer, s.star);
    world_act(&w, ACT_FOLLOW, s.author, s.star);
    world_act(&w, ACT_FOLLOW, s.stranger, s.star);
    world_drain(&w);
    s.post = world_post(&w, s.author, "pushed");
    world_post(&w, s.star, "pulled");
    s.own = world_post(&w, s.viewer, "own");
    world_drain(&w);
    assert_true(is_kept_after(1, s.viewer));
    return s;
}

/* After this act the page must have been drawn anew, and only once. */
static void shows(const struct scene *s, enum act act, uint64_t who, uint64_t what)
{
    world_act(&w, act, who, what);
    assert_false(read_quietly(s->viewer));
    world_drain(&w);
    assert_true(is_kept_after(1, s->viewer));
}

static void test_every_kind_of_change_draws_the_page_anew(void **state)
{
    (void)state;
    struct scene s = make_scene();
    shows(&s, ACT_LIKE, s.viewer, s.post);
    shows(&s, ACT_LIKE, s.stranger, s.post); /* the counter */
    shows(&s, ACT_UNLIKE, s.viewer, s.post);
    shows(&s, ACT_COMMENT, s.stranger, s.post);
    shows(&s, ACT_EDIT, s.author, s.post);
    shows(&s, ACT_UPDATE, s.author, 0);
    shows(&s, ACT_UPDATE, s.star, 0);
    shows(&s, ACT_MUTE, s.viewer, s.star);
    shows(&s, ACT_UNMUTE, s.viewer, s.star);
    shows(&s, ACT_SUSPEND, 0, s.author);
    shows(&s, ACT_RESTORE, 0, s.author);
    shows(&s, ACT_POST, s.viewer, 0);
    shows(&s, ACT_POST, s.star, 0);
    shows(&s, ACT_DELETE, s.author, s.post);
    shows(&s, ACT_UNFOLLOW, s.viewer, s.author);
    shows(&s, ACT_FOLLOW, s.viewer, s.author);
    shows(&s, ACT_BLOCK, s.star, s.viewer);
    world_act(&w, ACT_POST, s.author, 0);
    world_drain(&w);
    assert_false(read_quietly(s.viewer));
}

/* The rules change cards together (a like its counter, too); each counts by itself. */
static void test_every_card_counts_by_itself(void **state)
{
    (void)state;
    struct scene s = make_scene();
    cards_like(w.cards, s.viewer, s.post, true);
    assert_false(read_quietly(s.viewer));
    assert_true(is_kept_after(0, s.viewer));
    cards_post_counts(w.cards, s.post, 1, -1);
    assert_false(read_quietly(s.viewer));
    assert_true(is_kept_after(0, s.viewer));
    cards_forget_account(w.cards, s.viewer); /* an author, too */
    assert_false(read_quietly(s.viewer));
    assert_true(is_kept_after(1, s.viewer));
}

/* What lies below the floor of a timeline is for truth to say, every time. */
static void test_a_page_out_of_truth_is_not_kept(void **state)
{
    (void)state;
    uint64_t viewer = world_account(&w, "viewer");
    world_stop(&w);
    world_start(&w, FEED_LIMIT_DEFAULT / 2);
    page_cache_free(cache);
    cache = page_cache_new(BUDGET, w.views, w.cards, w.invalidation);
    for (int i = 0; i < FEED_LIMIT_DEFAULT; i++) {
        if (i <= FEED_LIMIT_DEFAULT / 2)
            assert_true(is_kept_after(2, viewer));
        else
            assert_true(is_never_kept(viewer));
        world_post(&w, viewer, "text");
    }
}

static bool leaves_the_page(const struct scene *s)
{
    uint64_t elsewhere = world_post(&w, s->stranger, "not for the viewer");
    world_act(&w, ACT_LIKE, s->author, elsewhere);
    world_act(&w, ACT_FOLLOW, s->stranger, s->author);
    world_act(&w, ACT_MUTE, s->stranger, s->author);
    world_act(&w, ACT_UPDATE, s->stranger, 0);
    world_act(&w, ACT_UNMUTE, s->stranger, s->author);
    world_act(&w, ACT_UNFOLLOW, s->stranger, s->author);
    world_act(&w, ACT_DELETE, s->stranger, elsewhere);
    world_drain(&w);
    return read_quietly(s->viewer);
}

/* Shared views may call a page stale without a change (port/invalidation.h, 3): two keys in one
 * place, or another test that empties its database of the same Redis. So they get some rounds. */
static void test_what_concerns_others_leaves_the_page(void **state)
{
    (void)state;
    struct scene s = make_scene();
    bool left = leaves_the_page(&s);
    for (int round = 1; !left && w.invalidation && round < ROUNDS_OF_OTHERS; round++) {
        assert_true(is_kept_after(1, s.viewer));
        left = leaves_the_page(&s);
    }
    assert_true(left);
}

/* The cursor hangs on a post that the page does not show. */
static void test_the_post_beyond_the_page_counts(void **state)
{
    (void)state;
    uint64_t viewer = world_account(&w, "viewer"), author = world_account(&w, "author");
    world_act(&w, ACT_FOLLOW, viewer, author);
    uint64_t last = world_post(&w, author, "the last");
    world_drain(&w);
    for (int i = 0; i < FEED_LIMIT_DEFAULT; i++)
        world_post(&w, viewer, "one of a page");
    world_drain(&w);
    struct buf head, body;
    buf_init(&head, 0);
    buf_init(&body, 0);
    assert_true(is_kept_after(1, viewer));
    assert_true(read_through(viewer, &head, &body));
    assert_false(str_eq(buf_view(&head), STR("0")));
    world_act(&w, ACT_DELETE, author, last); /* and cleaning up has not reached the viewer yet */
    assert_false(read_through(viewer, &head, &body));
    assert_str_equal(buf_view(&head), STR("0"));
    buf_done(&head);
    buf_done(&body);
}

static void test_a_page_that_changed_while_it_was_read_is_not_kept(void **state)
{
    (void)state;
    struct scene s = make_scene();
    const struct {
        enum act act;
        uint64_t who, what;
    } acts[] = {
        {ACT_LIKE, s.viewer, s.post},   {ACT_EDIT, s.author, s.post},
        {ACT_MUTE, s.viewer, s.star},   {ACT_POST, s.star, 0},
        {ACT_SUSPEND, 0, s.star},       {ACT_DELETE, s.author, s.post},
        {ACT_UNMUTE, s.viewer, s.star},
    };
    for (size_t i = 0; i < COUNT_OF(acts); i++) {
        struct page_draft draft;
        struct feed_page page;
        struct buf head, body;
        struct arena arena;
        arena_init(&arena);
        buf_init(&head, 0);
        buf_init(&body, 0);
        world_act(&w, ACT_POST, s.viewer, 0); /* so that there is none */
        assert_false(find(s.viewer, &draft, &head, &body));
        draw(s.viewer, &arena, &page, &head, &body);
        world_act(&w, acts[i].act, acts[i].who, acts[i].what);
        page_cache_end(cache, &draft, &page, buf_view(&head), buf_view(&body));
        assert_false(find(s.viewer, &draft, &head, &body));
        page_cache_end(cache, &draft, NULL, STR(""), STR(""));
        buf_done(&head);
        buf_done(&body);
        arena_done(&arena);
    }
}

/* ---- at random ---- */

struct history {
    struct rand rand;
    uint64_t people[THE_CROWD];
    bool deleted[THE_CROWD];
    uint64_t posts[600], comments[200];
    size_t post_count, comment_count;
    uint64_t reads, hits;
};

static uint64_t below(struct history *h, uint64_t n)
{
    return rand_below(&h->rand, n);
}

static uint64_t pick(struct history *h, const uint64_t *of, size_t n)
{
    if (n == 0)
        return 1;
    size_t recent = n < 10 ? n : 10;
    return of[below(h, 4) ? n - 1 - below(h, recent) : below(h, n)];
}

static void do_something(struct history *h)
{
    static const enum act acts[] = {
        ACT_POST,    ACT_POST,    ACT_POST,   ACT_FOLLOW,  ACT_FOLLOW, ACT_UNFOLLOW,
        ACT_BLOCK,   ACT_UNBLOCK, ACT_MUTE,   ACT_UNMUTE,  ACT_EDIT,   ACT_DELETE,
        ACT_LIKE,    ACT_LIKE,    ACT_UNLIKE, ACT_COMMENT, ACT_UPDATE, ACT_UNCOMMENT,
        ACT_SUSPEND, ACT_RESTORE, ACT_RESTORE};
    char text[32];
    struct deed d = {.act = acts[below(h, COUNT_OF(acts))],
                     .who = h->people[below(h, THE_CROWD)],
                     .what = h->people[below(h, THE_CROWD)]};
    snprintf(text, sizeof text, "text %llu", (unsigned long long)below(h, 1000000));
    d.text = str_of(text);
    if (d.act >= ACT_EDIT && d.act <= ACT_COMMENT)
        d.what = pick(h, h->posts, h->post_count);
    if (d.act == ACT_UNCOMMENT)
        d.what = pick(h, h->comments, h->comment_count);
    if (d.act == ACT_DELETE || d.act == ACT_EDIT)
        d.who = (uint64_t)world_i64(
            &w, "SELECT COALESCE((SELECT author_id FROM posts WHERE id = $1), 0)",
            DB_ARGS(DB_I64(d.what)));
    if (world_do(&w, &d) != OK)
        return; /* refused: also fine */
    if (d.act == ACT_POST && h->post_count < COUNT_OF(h->posts))
        h->posts[h->post_count++] = d.id;
    if (d.act == ACT_COMMENT && h->comment_count < COUNT_OF(h->comments))
        h->comments[h->comment_count++] = d.id;
}

static void let_time_pass(struct history *h)
{
    const int64_t day_ms = INT64_C(24) * 3600 * 1000;
    size_t dropped;
    bool wrapped;
    manual_clock_advance(&w.clock, 2 * day_ms);
    for (size_t i = 0; i < THE_CROWD; i++) {
        if (below(h, 2))
            world_apply(&w, (struct view_change){.kind = VIEW_LAST_SEEN,
                                                 .account = h->people[i],
                                                 .value = clock_wall_ms(&w.clock.clock)});
    }
    EXPECT(timelines_sweep(w.views->timelines, clock_wall_ms(&w.clock.clock) - day_ms, 100,
                           &dropped, &wrapped) == OK);
}

static void delete_a_person(struct history *h)
{
    size_t i = below(h, THE_CROWD);
    if (h->deleted[i] || below(h, 10))
        return;
    h->deleted[i] = true;
    world_act(&w, ACT_DELETE_ACCOUNT, 0, h->people[i]);
}

static void step(struct history *h)
{
    switch (below(h, 40)) {
    case 0:
        let_time_pass(h);
        return;
    case 1:
        world_drain(&w);
        return;
    case 2:
        delete_a_person(h);
        return;
    default:
        if (below(h, 3))
            do_something(h);
        else
            world_step(&w);
        manual_clock_advance(&w.clock, (int64_t)below(h, 20));
    }
}

/* Every person's page, out of the cache and afresh. */
static void compare_all(struct history *h, uint64_t seed, int at)
{
    struct buf head, body, fresh_head, fresh_body;
    buf_init(&head, 0);
    buf_init(&body, 0);
    buf_init(&fresh_head, 0);
    buf_init(&fresh_body, 0);
    for (size_t i = 0; i < THE_CROWD; i++) {
        struct feed_page page;
        struct arena arena;
        if (h->deleted[i])
            continue;
        h->hits += read_through(h->people[i], &head, &body);
        h->reads++;
        arena_init(&arena);
        buf_clear(&fresh_head);
        buf_clear(&fresh_body);
        draw(h->people[i], &arena, &page, &fresh_head, &fresh_body);
        arena_done(&arena);
        if (!str_eq(buf_view(&body), buf_view(&fresh_body)) ||
            !str_eq(buf_view(&head), buf_view(&fresh_head)))
            fail_msg("seed %llu, step %d: kept %.*s %.*s, drawn %.*s %.*s",
                     (unsigned long long)seed, at, STR_ARG(buf_view(&head)),
                     STR_ARG(buf_view(&body)), STR_ARG(buf_view(&fresh_head)),
                     STR_ARG(buf_view(&fresh_body)));
    }
    buf_done(&head);
    buf_done(&body);
    buf_done(&fresh_head);
    buf_done(&fresh_body);
}

static void run_history(uint64_t seed, int steps)
{
    static struct history h;
    static const size_t caps[] = {10, 21, 30, 100}; /* around a page's length, and ample */
    memset(&h, 0, sizeof h);
    rand_seed(&h.rand, seed);
    world_stop(&w);
    world_clear(&w);
    world_start(&w, caps[seed % COUNT_OF(caps)]);
    page_cache_free(cache);
    cache = page_cache_new(BUDGET, w.views, w.cards, w.invalidation);
    for (size_t i = 0; i < THE_CROWD; i++) {
        char name[16];
        snprintf(name, sizeof name, "person%zu", i);
        h.people[i] = world_account(&w, name);
    }
    for (int at = 0; at < steps; at++) {
        step(&h);
        compare_all(&h, seed, at);
    }
    assert_true(h.hits * 4 > h.reads); /* the pages are of some use, and so is this test */
    assert_true(h.hits < h.reads);
}

static void test_kept_pages_are_what_would_be_drawn(void **state)
{
    (void)state;
    const char *given = getenv("PAGE_SEED");
    uint64_t first = given ? strtoull(given, NULL, 10) : 1;
    uint64_t histories = given ? 1 : test_drivers_wanted() == TEST_CLUSTER ? 6 : 40;
    for (uint64_t seed = first; seed < first + histories; seed++)
        run_history(seed, 500);
}

/* ---- bounds ---- */

/* An answer may be on its way for long after its page was let go. */
static void test_a_body_lives_until_it_is_released(void **state)
{
    (void)state;
    struct scene s = make_scene();
    struct http_body *first, *second;
    struct buf head, body;
    buf_init(&head, 0);
    buf_init(&body, 0);
    assert_true(page_cache_find(cache, s.viewer, &head, &first));
    assert_true(page_cache_find(cache, s.viewer, &head, &second));
    assert_ptr_equal(first, second);
    buf_str(&body, first->bytes);
    first->release(first);
    world_act(&w, ACT_DELETE, s.author, s.post);
    assert_false(read_quietly(s.viewer));
    page_cache_free(cache);
    cache = NULL;
    assert_str_equal(second->bytes, buf_view(&body));
    second->release(second);
    buf_done(&head);
    buf_done(&body);
}

static void test_memory_stays_under_the_budget(void **state)
{
    (void)state;
    struct page_cache_stats s;
    assert_null(page_cache_new(0, w.views, w.cards, w.invalidation));
    page_cache_free(cache);
    cache = page_cache_new(1 << 20, w.views, w.cards, w.invalidation);
    char long_text[2000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    uint64_t people[100];
    for (size_t i = 0; i < COUNT_OF(people); i++) {
        char name[16];
        snprintf(name, sizeof name, "p%03zu", i);
        people[i] = world_account(&w, name);
        for (int k = 0; k < 10; k++)
            world_post(&w, people[i], long_text); /* a page of 20 KB */
    }
    world_drain(&w);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT_OF(people); i++) {
            read_quietly(people[i]);
            read_quietly(people[0]); /* a reader that comes again and again stays */
            page_cache_stats(cache, &s);
            assert_true(s.bytes <= s.bytes_max && s.bytes_max == 1 << 20);
        }
    }
    assert_true(s.pages > 10 && s.pages < COUNT_OF(people));
    assert_true(s.hits >= 250 && s.hits + s.misses == 600);
}

/* ---- readers and writers at once ---- */

enum { READERS = 2, DEEDS = 3000, LIVING_MAX = 64 };

/* What the kept body is here, for the readers to look through. */
struct shown {
    uint64_t id, author, likes;
    bool liked;
};

static struct {
    uint64_t reader, author, other, star;
    /* Even says "shown", odd says "hidden". It changes after the answer that hides and before the
     * act that shows again: a reader that meets the same odd number before and after a read was
     * hidden from throughout. */
    _Atomic uint64_t hidden_epoch;
    _Atomic uint64_t deleted[DEEDS];
    _Atomic size_t deleted_count;
    _Atomic uint64_t pulled; /* the star's last post that was answered */
    _Atomic uint64_t liked;  /* a post that the reader likes for good; 0: none yet */
    _Atomic bool over;
    _Atomic uint64_t reads, hits, failures;
} race;

static bool was_deleted(uint64_t id, size_t before)
{
    for (size_t i = 0; i < before; i++) {
        if (atomic_load(&race.deleted[i]) == id)
            return true;
    }
    return false;
}

static bool race_read(struct buf *head, struct buf *body)
{
    struct page_draft draft;
    struct feed_page page;
    struct arena arena;
    buf_clear(head);
    buf_clear(body);
    if (find(race.reader, &draft, head, body))
        return true;
    arena_init(&arena);
    enum err e = feed_read(w.views, w.cards, NULL, race.reader, UINT64_MAX, FEED_LIMIT_DEFAULT,
                           &arena, &page);
    if (e == ERR_NEEDS_TRUTH)
        e = feed_read(w.views, w.cards, w.db, race.reader, UINT64_MAX, FEED_LIMIT_DEFAULT, &arena,
                      &page);
    EXPECT(e == OK);
    for (size_t i = 0; i < page.count; i++) {
        const struct feed_item *item = &page.items[i];
        struct shown s = {item->card.id, item->card.author, item->card.like_count, item->liked};
        buf_append(body, &s, sizeof s);
    }
    page_cache_end(cache, &draft, &page, buf_view(head), buf_view(body));
    arena_done(&arena);
    return false;
}

/* Everything that had been answered before the read began holds on the page. */
static bool page_is_right(struct str body, size_t deleted_before, bool hidden, uint64_t pulled,
                          uint64_t liked)
{
    uint64_t last = UINT64_MAX;
    size_t n = body.len / sizeof(struct shown);
    bool has_pulled = pulled == 0, good = true;
    for (size_t i = 0; i < n; i++) {
        struct shown s;
        memcpy(&s, body.ptr + i * sizeof s, sizeof s);
        good = good && s.id < last && !was_deleted(s.id, deleted_before) &&
               !(hidden && s.author == race.other) && (s.id != liked || (s.liked && s.likes > 0));
        has_pulled = has_pulled || s.id == pulled;
        last = s.id;
    }
    return good && (has_pulled || (n == FEED_LIMIT_DEFAULT && last > pulled));
}

static void *read_all_the_time(void *arg)
{
    struct buf head, body;
    (void)arg;
    buf_init(&head, 0);
    buf_init(&body, 0);
    while (!atomic_load(&race.over)) {
        size_t deleted_before = atomic_load(&race.deleted_count);
        uint64_t epoch = atomic_load(&race.hidden_epoch);
        uint64_t pulled = atomic_load(&race.pulled), liked = atomic_load(&race.liked);
        bool hit = race_read(&head, &body);
        bool hidden = epoch % 2 == 1 && atomic_load(&race.hidden_epoch) == epoch;
        if (!page_is_right(buf_view(&body), deleted_before, hidden, pulled, liked))
            atomic_fetch_add(&race.failures, 1);
        atomic_fetch_add(&race.hits, hit);
        atomic_fetch_add(&race.reads, 1);
    }
    buf_done(&head);
    buf_done(&body);
    return NULL;
}

static void hide_or_show(struct rand *r)
{
    static const enum act acts[][2] = {
        {ACT_MUTE, ACT_UNMUTE}, {ACT_UNFOLLOW, ACT_FOLLOW}, {ACT_SUSPEND, ACT_RESTORE}};
    static size_t kind;
    if (atomic_load(&race.hidden_epoch) % 2 == 0) {
        kind = rand_below(r, COUNT_OF(acts));
        world_act(&w, acts[kind][0], race.reader, race.other);
        atomic_fetch_add(&race.hidden_epoch, 1);
    } else {
        atomic_fetch_add(&race.hidden_epoch, 1);
        world_act(&w, acts[kind][1], race.reader, race.other);
    }
}

static void write_all_the_time(void)
{
    uint64_t living[LIVING_MAX];
    size_t count = 0;
    struct rand r;
    rand_seed(&r, 11);
    for (int i = 0; i < DEEDS; i++) {
        uint64_t dice = rand_below(&r, 12);
        bool shown = atomic_load(&race.hidden_epoch) % 2 == 0;
        if (dice < 4 && count < LIVING_MAX) {
            living[count++] = world_post(&w, shown && dice < 2 ? race.other : race.author, "text");
        } else if (dice < 7 && count > 0) {
            size_t k = rand_below(&r, count), at = atomic_load(&race.deleted_count);
            uint64_t id = living[k];
            living[k] = living[--count];
            world_act(&w, ACT_DELETE, 0, id);
            atomic_store(&race.deleted[at], id);
            atomic_store(&race.deleted_count, at + 1);
        } else if (dice == 7) {
            hide_or_show(&r);
        } else if (dice == 8) {
            atomic_store(&race.pulled, world_post(&w, race.star, "pulled"));
        } else if (dice == 9) {
            uint64_t id = atomic_load(&race.pulled);
            if (id > 0) {
                world_act(&w, ACT_LIKE, race.reader, id);
                atomic_store(&race.liked, id);
            }
        } else if (i % 4 == 0) {
            sched_yield(); /* some time without changes, for pages to be kept */
            uint64_t reads = atomic_load(&race.reads);
            while (atomic_load(&race.reads) < reads + 3)
                sched_yield();
        }
        world_step(&w);
        manual_clock_advance(&w.clock, 1);
    }
}

static void test_no_kept_page_shows_what_was_removed_before_the_read(void **state)
{
    (void)state;
    pthread_t threads[READERS];
    struct scene s = make_scene();
    race.reader = s.viewer;
    race.author = s.author;
    race.star = s.star;
    race.other = world_account(&w, "other");
    world_act(&w, ACT_FOLLOW, race.reader, race.other);
    world_drain(&w);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all_the_time, NULL), 0);
    write_all_the_time();
    atomic_store(&race.over, true);
    for (size_t i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    printf("# %llu reads, %llu kept pages\n", (unsigned long long)atomic_load(&race.reads),
           (unsigned long long)atomic_load(&race.hits));
    assert_int_equal(atomic_load(&race.failures), 0);
    assert_true(atomic_load(&race.hits) > 100);
    assert_true(atomic_load(&race.deleted_count) > 100 && atomic_load(&race.hidden_epoch) > 20);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {
        CASE(test_every_kind_of_change_draws_the_page_anew),
        CASE(test_every_card_counts_by_itself),
        CASE(test_what_concerns_others_leaves_the_page),
        CASE(test_a_page_out_of_truth_is_not_kept),
        CASE(test_the_post_beyond_the_page_counts),
        CASE(test_a_page_that_changed_while_it_was_read_is_not_kept),
        CASE(test_kept_pages_are_what_would_be_drawn),
        CASE(test_a_body_lives_until_it_is_released),
        CASE(test_memory_stays_under_the_budget),
        CASE(test_no_kept_page_shows_what_was_removed_before_the_read),
    };
    return cmocka_run_group_tests_name("api/edge/page_cache", tests, NULL, NULL);
}
