/* The cards contract (port/cards.h), line by line, against every driver in the table below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "cards_cases.h"
#include "redis_place.h"
#include "view/memory/memory.h"
#include "view/redis/redis.h"

enum { BUDGET = 4 << 20 };

static struct cards *open_memory(struct clock *clock)
{
    return cards_memory_new(BUDGET, clock);
}

static struct cards *open_redis(enum redis_kind kind, struct clock *clock)
{
    struct redis_config config = {.url = redis_place_url(kind), .clock = clock};
    struct cards *c = NULL;
    redis_place_clear(kind);
    assert_int_equal(cards_redis_open(&config, &c), OK);
    return c;
}

static struct cards *open_single(struct clock *clock)
{
    return open_redis(REDIS_SINGLE, clock);
}
static struct cards *open_cluster(struct clock *clock)
{
    return open_redis(REDIS_CLUSTER, clock);
}

/* counts: it knows what it holds, and keeps its own budget. keeps: fragments, until they are
 * evicted or out of date. */
static const struct driver_row {
    const char *name;
    struct cards *(*open)(struct clock *clock);
    bool counts, keeps;
} drivers[] = {
    {"memory", open_memory, true, true},
    {"redis", open_single, false, false},
    {"redis-cluster", open_cluster, false, false},
};

static const struct driver_row *driver;

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    manual_clock_init(&f->clock, NOW_MS);
    arena_init(&f->arena);
    f->c = driver->open(&f->clock.clock);
    assert_non_null(f->c);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    cards_free(f->c);
    arena_done(&f->arena);
    free(f);
    return 0;
}

/* ---- words for what the tests say ---- */

static struct post_card card(uint64_t id, const char *caption)
{
    return (struct post_card){.id = id,
                              .author = id * 2,
                              .like_count = 3,
                              .comment_count = 4,
                              .edited_at_ms = 5,
                              .delivery = 1,
                              .caption = str_of(caption)};
}

static void fill(struct fixture *f, uint64_t id, const char *caption)
{
    struct post_card c = card(id, caption);
    cards_put_post(f->c, cards_ticket(f->c, id), &c);
}

static enum card_state get(struct fixture *f, uint64_t id, struct post_card *out)
{
    enum card_state state = CARD_GONE;
    cards_posts(f->c, &id, 1, out, &state, &f->arena);
    return state;
}

static enum card_state state_of(struct fixture *f, uint64_t id)
{
    struct post_card out;
    return get(f, id, &out);
}

static struct account_card get_account(struct fixture *f, uint64_t id)
{
    struct account_card out;
    cards_accounts(f->c, &id, 1, &out, &f->arena);
    return out;
}

/* ---- 1: what was put comes back ---- */

static void a_post_comes_back_as_it_was_put(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(state_of(f, 7), CARD_MISSING);
    char caption[] = "hello \\\"you\\\"";
    fill(f, 7, caption);
    fill(f, 8, "");
    caption[0] = 'X'; /* it was copied */
    struct post_card out;
    assert_int_equal(get(f, 7, &out), CARD_FOUND);
    assert_int_equal(out.id, 7);
    assert_int_equal(out.author, 14);
    assert_int_equal(out.like_count, 3);
    assert_int_equal(out.comment_count, 4);
    assert_int_equal(out.edited_at_ms, 5);
    assert_int_equal(out.delivery, 1);
    assert_true(str_eq(out.caption, STR("hello \\\"you\\\"")));
    assert_int_equal(get(f, 8, &out), CARD_FOUND);
    assert_int_equal(out.caption.len, 0);
}

static void a_copy_outlives_what_was_cached(void **state)
{
    struct fixture *f = *state;
    fill(f, 7, "first");
    struct post_card out;
    assert_int_equal(get(f, 7, &out), CARD_FOUND);
    struct post_card second = card(7, "second");
    cards_change_post(f->c, &second);
    cards_post_gone(f->c, 7);
    assert_true(str_eq(out.caption, STR("first")));
}

static void a_batch_answers_for_each(void **state)
{
    struct fixture *f = *state;
    uint64_t ids[100];
    struct post_card out[100];
    enum card_state states[100];
    for (size_t i = 0; i < 100; i++) {
        ids[i] = i + 1;
        if (i % 3 == 0)
            fill(f, i + 1, "caption");
        if (i % 3 == 1)
            cards_post_gone(f->c, i + 1);
    }
    cards_posts(f->c, ids, 100, out, states, &f->arena);
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(states[i], i % 3 == 0   ? CARD_FOUND
                                    : i % 3 == 1 ? CARD_GONE
                                                 : CARD_MISSING);
        if (i % 3 == 0)
            assert_int_equal(out[i].id, i + 1);
    }
    struct card_stats s;
    cards_stats(f->c, &s);
    assert_int_equal(s.post_hits, 34);
    assert_int_equal(s.post_misses, 66);
    if (!driver->counts)
        return;
    assert_int_equal(s.posts, 34);
    assert_int_equal(s.tombstones, 33);
}

static void accounts_come_back(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(get_account(f, 5).id, 0);
    char name[] = "ada";
    struct account_card in = {.id = 5,
                              .username = str_of(name),
                              .display_name = STR("Ada \"L.\""),
                              .avatar_url = STR("https://a.example/x")};
    struct card_write fill = {.kind = CARD_FILL_ACCOUNT, .account = &in};
    fill.ticket = cards_ticket(f->c, 5);
    cards_write(f->c, &fill, 1);
    name[0] = 'X'; /* it was copied */
    struct account_card out = get_account(f, 5);
    assert_int_equal(out.id, 5);
    assert_true(str_eq(out.username, STR("ada")));
    assert_true(str_eq(out.display_name, STR("Ada \"L.\"")));
    assert_true(str_eq(out.avatar_url, STR("https://a.example/x")));
    in = (struct account_card){.id = 5, .username = STR("eve"), .display_name = STR("")};
    cards_write(f->c, &fill, 1);
    struct account_card second = get_account(f, 5);
    assert_true(str_eq(second.username, STR("eve")));
    assert_int_equal(second.display_name.len, 0);
    assert_null(second.avatar_url.ptr);
    cards_forget_account(f->c, 5);
    assert_int_equal(get_account(f, 5).id, 0);
    assert_true(str_eq(out.username, STR("ada"))); /* a copy outlives what was cached */
}

/* ---- 2: a change wins over a fill that read before it ---- */

static void a_stale_fill_is_ignored(void **state)
{
    struct fixture *f = *state;
    struct post_card old = card(7, "old"), new = card(7, "new"), out;
    card_ticket before = cards_ticket(f->c, 7);
    cards_change_post(f->c, &new);
    cards_put_post(f->c, before, &old);
    assert_int_equal(get(f, 7, &out), CARD_FOUND);
    assert_true(str_eq(out.caption, STR("new")));

    before = cards_ticket(f->c, 7);
    cards_post_counts(f->c, 7, 100, -1);
    cards_put_post(f->c, before, &old);
    assert_int_equal(get(f, 7, &out), CARD_FOUND);
    assert_int_equal(out.like_count, 100);
    assert_int_equal(out.comment_count, 4);

    before = cards_ticket(f->c, 5);
    cards_forget_account(f->c, 5);
    cards_put_account(f->c, before, 5, STR("{}"));
    assert_int_equal(get_account(f, 5).id, 0);

    before = likes_ticket(f, 6);
    cards_like(f->c, 6, 70, true);
    cards_put_likes(f->c, before, 6, NULL, 0, 0);
    assert_int_equal(liked(f, 6, 70), ERR_NEEDS_TRUTH);
}

static void a_change_of_what_is_not_cached_counts_too(void **state)
{
    struct fixture *f = *state;
    struct post_card old = card(7, "old");
    card_ticket before = cards_ticket(f->c, 7);
    cards_post_counts(f->c, 7, 1, 1);
    cards_put_post(f->c, before, &old);
    assert_int_equal(state_of(f, 7), CARD_MISSING);
}

static void counts_change_one_by_one(void **state)
{
    struct fixture *f = *state;
    struct post_card out;
    fill(f, 7, "x");
    cards_post_counts(f->c, 7, -1, 9);
    cards_post_counts(f->c, 7, 0, -1);
    assert_int_equal(get(f, 7, &out), CARD_FOUND);
    assert_int_equal(out.like_count, 0);
    assert_int_equal(out.comment_count, 9);
}

/* ---- 3: gone is gone ---- */

static void nothing_brings_a_deleted_post_back(void **state)
{
    struct fixture *f = *state;
    fill(f, 7, "x");
    cards_post_gone(f->c, 7);
    assert_int_equal(state_of(f, 7), CARD_GONE);
    fill(f, 7, "late fill");
    struct post_card late = card(7, "late edit");
    cards_change_post(f->c, &late);
    cards_post_counts(f->c, 7, 1, 1);
    assert_int_equal(state_of(f, 7), CARD_GONE);
    manual_clock_advance(&f->clock, TOMBSTONE_MS - 1);
    assert_int_equal(state_of(f, 7), CARD_GONE);
    fill(f, 7, "x");
    assert_int_equal(state_of(f, 7), CARD_GONE);
    manual_clock_advance(&f->clock, 1);
    assert_int_equal(state_of(f, 7), CARD_MISSING);
}

static void marks_live_as_long_however_many_come_after(void **state)
{
    struct fixture *f = *state;
    for (uint64_t day = 0; day < 30; day++) {
        for (uint64_t i = 1; i <= 20; i++)
            cards_post_gone(f->c, day * 100 + i);
        for (uint64_t past = 0; past <= day; past++)
            for (uint64_t i = 1; i <= 20; i++)
                assert_int_equal(state_of(f, past * 100 + i),
                                 day - past < 7 ? CARD_GONE : CARD_MISSING);
        manual_clock_advance(&f->clock, TOMBSTONE_MS / 7);
    }
    struct card_stats s;
    cards_stats(f->c, &s);
    assert_true(s.tombstones <= 20 * 15); /* expired ones do go */
}

/* ---- 5: the budget ---- */

static void memory_stays_under_the_budget(void **state)
{
    struct fixture *f = *state;
    if (!driver->counts)
        return;
    char caption[2001];
    memset(caption, 'c', sizeof caption - 1);
    caption[sizeof caption - 1] = 0;
    struct card_stats s;
    uint64_t many[400];
    for (size_t i = 0; i < COUNT_OF(many); i++)
        many[i] = 1000 - i;
    for (uint64_t id = 1; id <= 20000; id++) {
        fill(f, id, caption + id % 2000);
        cards_put_account(f->c, cards_ticket(f->c, id), id, (struct str){caption, 200});
        cards_put_likes(f->c, likes_ticket(f, id), id, many, id % COUNT_OF(many), 0);
        cards_post_gone(f->c, id + 1000000);
        if (id % 500 == 0) {
            cards_stats(f->c, &s);
            assert_true(s.bytes <= s.bytes_max);
            assert_int_equal(s.bytes_max, BUDGET);
        }
    }
    assert_true(s.posts > 1000);
    assert_true(s.accounts > 500);
    assert_true(s.like_sets > 50);
}

static void what_is_looked_at_stays(void **state)
{
    struct fixture *f = *state;
    if (!driver->counts)
        return;
    char caption[300];
    memset(caption, 'c', sizeof caption - 1);
    caption[sizeof caption - 1] = 0;
    enum { LOVED = 100 };
    for (uint64_t id = 1; id <= LOVED; id++)
        fill(f, id, caption);
    for (uint64_t id = 1000; id < 60000; id++) {
        fill(f, id, caption);
        state_of(f, id % LOVED + 1);
    }
    size_t kept = 0;
    for (uint64_t id = 1; id <= LOVED; id++)
        kept += state_of(f, id) == CARD_FOUND;
    assert_true(kept >= LOVED * 8 / 10);
}

/* ---- 6: tickets ---- */

enum { KEYS = 3, THE_POST = 7, THE_ACCOUNT = 5, THE_VIEWER = 6 };

static const uint64_t keys[KEYS] = {THE_POST, THE_ACCOUNT, THE_VIEWER | UINT64_C(1) << 63};

struct tickets {
    uint64_t changes;
    card_ticket of[KEYS];
};

static struct tickets take_tickets(struct fixture *f)
{
    struct tickets t;
    t.changes = cards_tickets(f->c, keys, KEYS, t.of);
    return t;
}

/* The key that has another ticket since `before`, which is brought up to date; 0: none. */
static uint64_t changed_key(struct fixture *f, struct tickets *before)
{
    struct tickets now = take_tickets(f);
    uint64_t key = 0;
    for (size_t i = 0; i < KEYS; i++) {
        if (now.of[i] != before->of[i]) {
            assert_int_equal(key, 0); /* far apart: no stripe holds two of them */
            key = keys[i] & INT64_MAX;
        }
    }
    if (f->c->shared) /* others may have changed anything */
        assert_true(now.changes != before->changes);
    else
        assert_int_equal(key != 0, now.changes != before->changes);
    *before = now;
    return key;
}

static void change_all(struct fixture *f, struct tickets *t)
{
    struct post_card c = card(THE_POST, "new");
    cards_change_post(f->c, &c);
    assert_int_equal(changed_key(f, t), THE_POST);
    cards_post_counts(f->c, THE_POST, 1, -1);
    assert_int_equal(changed_key(f, t), THE_POST);
    cards_forget_account(f->c, THE_ACCOUNT);
    assert_int_equal(changed_key(f, t), THE_ACCOUNT);
    cards_like(f->c, THE_VIEWER, THE_POST, true);
    assert_int_equal(changed_key(f, t), THE_VIEWER);
    cards_like(f->c, THE_VIEWER, THE_POST, false);
    assert_int_equal(changed_key(f, t), THE_VIEWER);
}

static void every_change_gives_another_ticket(void **state)
{
    struct fixture *f = *state;
    struct tickets t = take_tickets(f);
    change_all(f, &t); /* nothing is cached */
    fill(f, THE_POST, "old");
    cards_put_account(f->c, t.of[1], THE_ACCOUNT, STR("{}"));
    cards_put_likes(f->c, t.of[2], THE_VIEWER, NULL, 0, 0);
    assert_int_equal(changed_key(f, &t), 0); /* fills change nothing */
    change_all(f, &t);
    cards_post_gone(f->c, THE_POST);
    assert_int_equal(changed_key(f, &t), THE_POST);
}

static void evictions_and_looks_keep_tickets(void **state)
{
    struct fixture *f = *state;
    if (!driver->counts)
        return;
    char caption[2000];
    memset(caption, 'x', sizeof caption - 1);
    caption[sizeof caption - 1] = 0;
    fill(f, THE_POST, caption);
    struct tickets t = take_tickets(f);
    for (uint64_t id = 1000; id < 1000 + 4 * BUDGET / sizeof caption; id++)
        fill(f, id, caption);
    assert_int_equal(state_of(f, THE_POST), CARD_MISSING);
    assert_int_equal(changed_key(f, &t), 0);
}

/* ---- 7: many at once ---- */

static void many_things_are_written_in_their_order(void **state)
{
    struct fixture *f = *state;
    uint64_t subjects[] = {1, 2, 3, 50, 51};
    card_ticket t[COUNT_OF(subjects)];
    struct post_card one = card(1, "one"), two = card(2, "two"), edited = card(1, "edited"),
                     late = card(3, "late"), four = card(4, "four");
    const struct account_card fifty = {.id = 50, .username = STR("fifty")};
    const struct account_card fifty_one = {.id = 51, .username = STR("fifty-one")};
    cards_tickets(f->c, subjects, COUNT_OF(subjects), t);
    cards_forget_account(f->c, 51);
    const struct card_write writes[] = {
        {.kind = CARD_FILL_POST, .ticket = t[0], .post = &one},
        {.kind = CARD_FILL_POST, .ticket = t[1], .post = &two},
        {.kind = CARD_CHANGE_POST, .post = &edited},
        {.kind = CARD_POST_COUNTS, .id = 1, .likes = 9, .comments = -1},
        {.kind = CARD_POST_GONE, .id = 3},
        {.kind = CARD_FILL_POST, .ticket = t[2], .post = &late},
        {.kind = CARD_FILL_ACCOUNT, .ticket = t[3], .account = &fifty},
        {.kind = CARD_FILL_ACCOUNT, .ticket = t[4], .account = &fifty_one},
        {.kind = CARD_CHANGE_POST, .post = &four},
        {.kind = CARD_FORGET_POST, .id = 4},
    };
    cards_write(f->c, writes, COUNT_OF(writes));
    struct post_card out[4];
    enum card_state found[4];
    struct account_card accounts[2];
    cards_posts(f->c, (const uint64_t[]){1, 2, 3, 4}, 4, out, found, &f->arena);
    assert_int_equal(found[0], CARD_FOUND);
    assert_true(str_eq(out[0].caption, STR("edited")));
    assert_int_equal(out[0].like_count, 9);
    assert_int_equal(found[1], CARD_FOUND);
    assert_int_equal(found[2], CARD_GONE);
    assert_int_equal(found[3], CARD_MISSING);
    cards_accounts(f->c, subjects + 3, 2, accounts, &f->arena);
    assert_true(str_eq(accounts[0].username, STR("fifty")));
    assert_int_equal(accounts[1].id, 0); /* its ticket was older than a change */
    cards_write(f->c, NULL, 0);
}

static void a_forgotten_post_is_filled_again(void **state)
{
    struct fixture *f = *state;
    card_ticket before = cards_ticket(f->c, THE_POST);
    struct post_card old = card(THE_POST, "old"), new = card(THE_POST, "new");
    cards_put_post(f->c, before, &old);
    cards_forget_post(f->c, THE_POST);
    assert_int_equal(state_of(f, THE_POST), CARD_MISSING);
    cards_put_post(f->c, before, &old);
    assert_int_equal(state_of(f, THE_POST), CARD_MISSING); /* it was read before */
    cards_put_post(f->c, cards_ticket(f->c, THE_POST), &new);
    assert_int_equal(state_of(f, THE_POST), CARD_FOUND);
    cards_post_gone(f->c, THE_POST);
    cards_forget_post(f->c, THE_POST);
    cards_put_post(f->c, cards_ticket(f->c, THE_POST), &new);
    assert_true(state_of(f, THE_POST) != CARD_FOUND); /* gone is gone */
}

static void more_than_one_trip_can_carry(void **state)
{
    struct fixture *f = *state;
    enum { MANY = 2500 };
    static struct post_card cards[MANY];
    static struct card_write writes[MANY];
    for (uint64_t i = 0; i < MANY; i++) {
        cards[i] = card(1000 + i, "x");
        writes[i] = (struct card_write){.kind = CARD_CHANGE_POST, .post = &cards[i]};
    }
    cards_write(f->c, writes, MANY);
    for (uint64_t i = 0; i < MANY; i += 499)
        assert_int_equal(state_of(f, 1000 + i), CARD_FOUND);
    assert_int_equal(state_of(f, 1000 + MANY - 1), CARD_FOUND);
}

/* ---- 8: suspect ---- */

static void suspect_cards_show_nothing_and_take_no_fill(void **state)
{
    struct fixture *f = *state;
    bool liked;
    uint64_t post = THE_POST;
    card_ticket t = cards_ticket(f->c, THE_ACCOUNT), likes;
    fill(f, THE_POST, "old");
    cards_put_account(f->c, t, THE_ACCOUNT, STR("{}"));
    likes = cards_ticket(f->c, cards_likes_key(THE_VIEWER));
    cards_put_likes(f->c, likes, THE_VIEWER, NULL, 0, 0);
    card_ticket before = cards_ticket(f->c, THE_POST + 1);
    cards_suspect(f->c, true);
    assert_int_equal(state_of(f, THE_POST), CARD_MISSING);
    assert_int_equal(get_account(f, THE_ACCOUNT).id, 0);
    assert_int_equal(cards_liked(f->c, THE_VIEWER, &post, 1, &liked), ERR_NEEDS_TRUTH);
    struct post_card stale = card(THE_POST + 1, "stale"), new = card(THE_POST, "new"),
                     also_stale = card(THE_POST + 2, "stale");
    cards_put_post(f->c, before, &stale);
    cards_put_post(f->c, cards_ticket(f->c, THE_POST + 2), &also_stale);
    cards_change_post(f->c, &new); /* the truth is written */
    cards_suspect(f->c, false);
    assert_int_equal(state_of(f, THE_POST + 1), CARD_MISSING);
    assert_int_equal(state_of(f, THE_POST + 2), CARD_MISSING);
    struct post_card out;
    enum card_state found;
    cards_posts(f->c, &post, 1, &out, &found, &f->arena);
    assert_int_equal(found, CARD_FOUND);
    assert_true(str_eq(out.caption, STR("new")));
}

/* ---- 9 to 11: fragments ---- */

static void attach(struct fixture *f, const struct post_card *post, uint8_t dialect,
                   const char *fragment)
{
    cards_write(f->c,
                &(struct card_write){.kind = CARD_ATTACH_POST,
                                     .post = post,
                                     .ticket = cards_ticket(f->c, post->author),
                                     .dialect = dialect,
                                     .fragment = str_of(fragment)},
                1);
}

static void attach_account(struct fixture *f, const struct account_card *account, uint8_t dialect,
                           const char *fragment)
{
    cards_write(f->c,
                &(struct card_write){.kind = CARD_ATTACH_ACCOUNT,
                                     .account = account,
                                     .dialect = dialect,
                                     .fragment = str_of(fragment)},
                1);
}

/* The fragment, or none where the driver keeps none. */
static void assert_fragment(struct str fragment, const char *expected)
{
    if (driver->keeps)
        assert_true(str_eq(fragment, str_of(expected)));
    else
        assert_null(fragment.ptr);
}

static void each_dialect_gets_its_fragment_back(void **state)
{
    struct fixture *f = *state;
    struct post_card post;
    fill(f, 7, "text");
    assert_int_equal(get(f, 7, &post), CARD_FOUND);
    for (size_t i = 0; i < CARD_DIALECTS; i++)
        assert_null(post.fragments[i].ptr);
    attach(f, &post, 0, "first");
    assert_int_equal(get(f, 7, &post), CARD_FOUND);
    attach(f, &post, 1, "second");
    assert_int_equal(get(f, 7, &post), CARD_FOUND);
    assert_fragment(post.fragments[0], "first");
    assert_fragment(post.fragments[1], "second");
    attach(f, &post, 0, "again");
    cards_post_counts(f->c, 7, 77, -1);
    assert_int_equal(get(f, 7, &post), CARD_FOUND);
    assert_fragment(post.fragments[0], "again");
    assert_fragment(post.fragments[1], "second");
    assert_true(str_eq(post.caption, STR("text")));
    assert_int_equal(post.like_count, 77);

    cards_put_account(f->c, cards_ticket(f->c, 5), 5, STR("ada"));
    struct account_card account = get_account(f, 5);
    attach_account(f, &account, 1, "drawn");
    account = get_account(f, 5);
    assert_null(account.fragments[0].ptr);
    assert_fragment(account.fragments[1], "drawn");
    assert_true(str_eq(account.username, STR("ada")));
}

static void an_attachment_gives_no_ticket_and_no_old_counters(void **state)
{
    struct fixture *f = *state;
    struct post_card got, out;
    fill(f, THE_POST, "text");
    assert_int_equal(get(f, THE_POST, &got), CARD_FOUND);
    cards_post_counts(f->c, THE_POST, 50, 60); /* since the renderer got it */
    struct tickets t = take_tickets(f);
    attach(f, &got, 0, "drawn");
    assert_int_equal(changed_key(f, &t), 0);
    assert_int_equal(get(f, THE_POST, &out), CARD_FOUND);
    assert_fragment(out.fragments[0], "drawn");
    assert_int_equal(out.like_count, 50);
    assert_int_equal(out.comment_count, 60);
}

static void a_fragment_never_outlives_its_texts(void **state)
{
    struct fixture *f = *state;
    struct post_card got, out, new = card(7, "new");
    fill(f, 7, "old");
    assert_int_equal(get(f, 7, &got), CARD_FOUND);
    attach(f, &got, 0, "of old");
    cards_change_post(f->c, &new);
    assert_int_equal(get(f, 7, &out), CARD_FOUND);
    assert_null(out.fragments[0].ptr);
    attach(f, &got, 0, "of old"); /* drawn before, attached after the change */
    assert_int_equal(get(f, 7, &out), CARD_FOUND);
    assert_null(out.fragments[0].ptr);
    assert_true(str_eq(out.caption, STR("new")));
    cards_forget_post(f->c, 7);
    attach(f, &got, 0, "of old"); /* of what is not there */
    assert_int_equal(state_of(f, 7), CARD_MISSING);
    cards_post_gone(f->c, 7);
    attach(f, &got, 0, "of old");
    assert_true(state_of(f, 7) != CARD_FOUND);

    cards_put_account(f->c, cards_ticket(f->c, 5), 5, STR("ada"));
    struct account_card old = get_account(f, 5);
    attach_account(f, &old, 0, "of ada");
    cards_forget_account(f->c, 5);
    attach_account(f, &old, 0, "of ada");
    assert_int_equal(get_account(f, 5).id, 0);
    cards_put_account(f->c, cards_ticket(f->c, 5), 5, STR("eve"));
    attach_account(f, &old, 0, "of ada");
    assert_null(get_account(f, 5).fragments[0].ptr);
    assert_true(str_eq(get_account(f, 5).username, STR("eve")));
}

/* A post's fragment may tell of its author. */
static void a_fragment_never_outlives_the_author_it_tells_of(void **state)
{
    struct fixture *f = *state;
    enum card_state found;
    struct post_card post;
    if (!driver->keeps)
        return;
    fill(f, 7, "a post");
    assert_int_equal(get(f, 7, &post), CARD_FOUND);
    attach(f, &post, 0, "with its author");
    found = get(f, 7, &post);
    assert_int_equal(found, CARD_FOUND);
    assert_fragment(post.fragments[0], "with its author");
    card_ticket before = cards_ticket(f->c, post.author);
    cards_forget_account(f->c, post.author);
    assert_int_equal(get(f, 7, &post), CARD_FOUND);
    assert_null(post.fragments[0].ptr);
    const struct card_write late = {.kind = CARD_ATTACH_POST,
                                    .post = &post,
                                    .ticket = before,
                                    .dialect = 0,
                                    .fragment = STR("drawn before the change")};
    cards_write(f->c, &late, 1);
    assert_int_equal(get(f, 7, &post), CARD_FOUND);
    assert_null(post.fragments[0].ptr);
    attach(f, &post, 0, "anew");
    assert_int_equal(get(f, 7, &post), CARD_FOUND);
    assert_fragment(post.fragments[0], "anew");
}

/* The driver's name is the argument; "memory" when there is none. */
int main(int argc, char **argv)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_post_comes_back_as_it_was_put),
        CASE(a_copy_outlives_what_was_cached),
        CASE(a_batch_answers_for_each),
        CASE(accounts_come_back),
        CASE(a_stale_fill_is_ignored),
        CASE(a_change_of_what_is_not_cached_counts_too),
        CASE(counts_change_one_by_one),
        CASE(nothing_brings_a_deleted_post_back),
        CASE(marks_live_as_long_however_many_come_after),
        CASE(likes_are_known_or_truth_is_asked),
        CASE(likes_change),
        CASE(a_like_set_keeps_the_newest_thousand),
        CASE(memory_stays_under_the_budget),
        CASE(what_is_looked_at_stays),
        CASE(every_change_gives_another_ticket),
        CASE(evictions_and_looks_keep_tickets),
        CASE(many_things_are_written_in_their_order),
        CASE(a_forgotten_post_is_filled_again),
        CASE(more_than_one_trip_can_carry),
        CASE(suspect_cards_show_nothing_and_take_no_fill),
        CASE(each_dialect_gets_its_fragment_back),
        CASE(an_attachment_gives_no_ticket_and_no_old_counters),
        CASE(a_fragment_never_outlives_its_texts),
        CASE(a_fragment_never_outlives_the_author_it_tells_of),
        CASE(a_group_comes_back_until_it_is_forgotten),
        CASE(members_are_known_until_something_of_them_changes),
        CASE(a_stale_fill_of_members_is_ignored),
        CASE(a_fill_keeps_what_it_does_not_speak_of),
    };
    const char *wanted = argc > 1 ? argv[1] : "memory";
    for (size_t i = 0; i < COUNT_OF(drivers); i++)
        if (strcmp(drivers[i].name, wanted) == 0)
            driver = &drivers[i];
    if (!driver) {
        fprintf(stderr, "no such driver: %s\n", wanted);
        return 2;
    }
    return cmocka_run_group_tests_name(driver->name, tests, NULL, NULL);
}
