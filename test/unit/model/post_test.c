/* Posts, likes and comments: limits, who may see and change what, and counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rand.h"
#include "model/post.h"
#include "world.h"

static struct world w;
static uint64_t ada, bob, eve;

static int open_world(void **state)
{
    (void)state;
    world_open(&w, 2);
    ada = world_account(&w, "ada");
    bob = world_account(&w, "bob");
    eve = world_account(&w, "eve");
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

static enum err post_text(uint64_t author, struct str text)
{
    struct deed d = {.act = ACT_POST, .who = author, .text = text};
    return world_do(&w, &d);
}

static enum err act(enum act kind, uint64_t who, uint64_t what)
{
    struct deed d = {.act = kind, .who = who, .what = what, .text = STR("other text")};
    return world_do(&w, &d);
}

static int64_t number(const char *sql, uint64_t id)
{
    return world_i64(&w, sql, DB_ARGS(DB_I64(id)));
}

/* `n` times the same code point. */
static struct str repeat(const char *code_point, size_t n, char *out)
{
    size_t len = strlen(code_point);
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * len, code_point, len);
    return (struct str){out, n * len};
}

struct told {
    struct post_new in;
    struct arena arena;
    struct account_card author;
};

static enum err create_and_tell(struct tx *tx, void *arg)
{
    struct told *t = arg;
    struct post_card card;
    t->in.author_card = &t->author;
    return post_create(tx, &t->in, &t->arena, &card);
}

static void the_author_is_told_as_the_post_is_counted(void **state)
{
    (void)state;
    struct told t = {.in = {.author = bob, .caption = STR("hello")}};
    arena_init(&t.arena);
    assert_int_equal(db_write(w.db, create_and_tell, &t, NULL), OK);
    assert_true(t.author.id == bob);
    assert_string_equal(t.author.username.ptr, "bob");
    assert_string_equal(t.author.display_name.ptr, "");
    assert_null(t.author.avatar_url.ptr);
    assert_int_equal(number("SELECT post_count FROM accounts WHERE id = $1", bob), 1);
    t.in.author = 4711;
    assert_int_equal(db_write(w.db, create_and_tell, &t, NULL), ERR_FORBIDDEN);
    arena_done(&t.arena);
}

static void captions_are_limited_by_code_points(void **state)
{
    (void)state;
    char *text = malloc(4 * (CAPTION_MAX_CHARS + 1));
    static const char *const points[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\xa6"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(post_text(ada, repeat(points[i], CAPTION_MAX_CHARS, text)), OK);
        assert_int_equal(post_text(ada, repeat(points[i], CAPTION_MAX_CHARS + 1, text)),
                         ERR_INVALID);
    }
    free(text);
    assert_int_equal(post_text(ada, STR("")), ERR_INVALID);
    assert_int_equal(post_text(ada, STR("a\0b")), ERR_INVALID);
    assert_int_equal(post_text(ada, STR("\xff")), ERR_INVALID);
    assert_int_equal(post_text(ada, STR("\xc0\x80")), ERR_INVALID);     /* overlong */
    assert_int_equal(post_text(ada, STR("\xed\xa0\x80")), ERR_INVALID); /* half a surrogate pair */
    assert_int_equal(number("SELECT post_count FROM accounts WHERE id = $1", ada), 4);
}

static void only_the_active_may_post(void **state)
{
    (void)state;
    uint64_t gone = world_account(&w, "gone");
    world_act(&w, ACT_SUSPEND, 0, gone);
    assert_int_equal(post_text(gone, STR("hello")), ERR_FORBIDDEN);
    assert_int_equal(post_text(99, STR("hello")), ERR_FORBIDDEN);
    assert_int_equal(number("SELECT post_count FROM accounts WHERE id = $1", gone), 0);
}

static void the_delivery_is_decided_once(void **state)
{
    (void)state;
    uint64_t star = world_account(&w, "star");
    uint64_t early = world_post(&w, star, "pushed");
    world_act(&w, ACT_FOLLOW, ada, star);
    world_act(&w, ACT_FOLLOW, bob, star); /* the second follower makes a celebrity here */
    uint64_t famous = world_post(&w, star, "pulled");
    world_act(&w, ACT_UNFOLLOW, ada, star);
    world_act(&w, ACT_UNFOLLOW, bob, star);
    uint64_t late = world_post(&w, star, "pushed again");
    assert_int_equal(number("SELECT delivery FROM posts WHERE id = $1", early), DELIVERY_PUSH);
    assert_int_equal(number("SELECT delivery FROM posts WHERE id = $1", famous), DELIVERY_PULL);
    assert_int_equal(number("SELECT delivery FROM posts WHERE id = $1", late), DELIVERY_PUSH);
}

struct getting {
    uint64_t id, viewer;
    struct post_card card;
    struct arena arena;
};

static enum err get(struct tx *tx, void *arg)
{
    struct getting *g = arg;
    return post_get(tx, g->id, g->viewer, &g->arena, &g->card);
}

static enum err get_post(uint64_t id, uint64_t viewer, struct post_card *card, char *caption)
{
    struct getting g = {.id = id, .viewer = viewer};
    arena_init(&g.arena);
    enum err e = db_read(w.db, get, &g, NULL);
    if (!e && card)
        *card = g.card;
    if (!e && caption)
        snprintf(caption, 100, "%.*s", STR_ARG(g.card.caption));
    arena_done(&g.arena);
    return e;
}

static void edits_keep_the_former_captions(void **state)
{
    (void)state;
    uint64_t id = world_post(&w, ada, "first");
    struct deed d = {.act = ACT_EDIT, .who = bob, .what = id, .text = STR("mine now")};
    assert_int_equal(world_do(&w, &d), ERR_FORBIDDEN);
    d = (struct deed){.act = ACT_EDIT, .who = ada, .what = id, .text = STR("say \"second\"")};
    assert_int_equal(world_do(&w, &d), OK);
    assert_int_equal(world_do(&w, &d), OK); /* the same again: nothing became true */
    d.text = STR("third");                  /* in the same millisecond */
    assert_int_equal(world_do(&w, &d), OK);
    d.text = STR("");
    assert_int_equal(world_do(&w, &d), ERR_INVALID);
    assert_int_equal(number("SELECT COUNT(*) FROM post_versions WHERE post_id = $1", id), 2);
    assert_int_equal(w.events[EVENT_POST_EDITED], 2);
    char caption[100];
    struct post_card card;
    assert_int_equal(get_post(id, bob, &card, caption), OK);
    assert_string_equal(caption, "third");
    assert_true(card.edited_at_ms > 0);
}

static void deleting_is_soft_final_and_for_the_author(void **state)
{
    (void)state;
    uint64_t id = world_post(&w, bob, "to be deleted");
    int64_t count = number("SELECT post_count FROM accounts WHERE id = $1", bob);
    assert_int_equal(act(ACT_DELETE, ada, id), ERR_FORBIDDEN);
    assert_int_equal(act(ACT_DELETE, bob, id), OK);
    assert_int_equal(act(ACT_DELETE, bob, id), ERR_NOT_FOUND);
    assert_int_equal(act(ACT_DELETE, 0, id), ERR_NOT_FOUND);
    assert_int_equal(act(ACT_EDIT, bob, id), ERR_NOT_FOUND);
    assert_int_equal(act(ACT_LIKE, ada, id), ERR_NOT_FOUND);
    assert_int_equal(act(ACT_COMMENT, ada, id), ERR_NOT_FOUND);
    assert_int_equal(get_post(id, bob, NULL, NULL), ERR_NOT_FOUND);
    assert_int_equal(number("SELECT post_count FROM accounts WHERE id = $1", bob), count - 1);
    assert_int_equal(number("SELECT COUNT(*) FROM posts WHERE id = $1", id), 1);
    uint64_t by_admin = world_post(&w, bob, "an operator deletes it");
    assert_int_equal(act(ACT_DELETE, 0, by_admin), OK);
}

static void blocks_and_suspensions_hide_posts(void **state)
{
    (void)state;
    uint64_t id = world_post(&w, eve, "hidden?");
    assert_int_equal(get_post(id, ada, NULL, NULL), OK);
    assert_int_equal(get_post(id, 0, NULL, NULL), OK);
    world_act(&w, ACT_BLOCK, ada, eve);
    assert_int_equal(get_post(id, ada, NULL, NULL), ERR_NOT_FOUND);
    assert_int_equal(act(ACT_LIKE, ada, id), ERR_NOT_FOUND);
    assert_int_equal(act(ACT_COMMENT, ada, id), ERR_NOT_FOUND);
    assert_int_equal(act(ACT_DELETE, ada, id), ERR_NOT_FOUND);
    uint64_t own = world_post(&w, ada, "and the other way");
    assert_int_equal(get_post(own, eve, NULL, NULL), ERR_NOT_FOUND);
    world_act(&w, ACT_UNBLOCK, ada, eve);
    assert_int_equal(get_post(id, ada, NULL, NULL), OK);
    world_act(&w, ACT_SUSPEND, 0, eve);
    assert_int_equal(get_post(id, ada, NULL, NULL), ERR_NOT_FOUND);
    assert_int_equal(get_post(id, eve, NULL, NULL), OK);
    world_act(&w, ACT_RESTORE, 0, eve);
}

static void liking_twice_is_one_like(void **state)
{
    (void)state;
    uint64_t id = world_post(&w, ada, "like me");
    assert_int_equal(act(ACT_LIKE, bob, id), OK);
    assert_int_equal(act(ACT_LIKE, bob, id), OK);
    assert_int_equal(act(ACT_LIKE, ada, id), OK);
    assert_int_equal(number("SELECT like_count FROM posts WHERE id = $1", id), 2);
    assert_int_equal(w.events[EVENT_POST_LIKED], 2);
    assert_int_equal(act(ACT_UNLIKE, bob, id), OK);
    assert_int_equal(act(ACT_UNLIKE, bob, id), OK);
    assert_int_equal(number("SELECT like_count FROM posts WHERE id = $1", id), 1);
    assert_int_equal(w.events[EVENT_POST_UNLIKED], 1);
    assert_int_equal(w.events[EVENT_LIKE_CREATED], 2);
    assert_int_equal(w.events[EVENT_LIKE_REMOVED], 1);
    /* One's own like concerns nobody else; bob's and its end concern ada. */
    assert_int_equal(number("SELECT COUNT(*) FROM outbox WHERE type IN ('like.created', "
                            "'like.removed') AND payload LIKE '%\"object\":\"' || $1 || "
                            "'\",\"value\":0,\"subject\":%'",
                            id),
                     2);
}

/* ---- comments ---- */

struct listing {
    uint64_t post, viewer, after;
    size_t limit, n;
    uint64_t last;
    struct arena arena;
};

static enum err read_comments(struct tx *tx, void *arg)
{
    struct listing *l = arg;
    struct comment found[10];
    enum err e = comment_list(tx, l->post, l->viewer, l->after, l->limit, &l->arena, found, &l->n);
    l->last = !e && l->n ? found[l->n - 1].id : 0;
    for (size_t i = 0; !e && i < l->n; i++)
        assert_true(str_eq(found[i].body, STR("a \"comment\"")));
    return e;
}

static enum err read_likes(struct tx *tx, void *arg)
{
    struct listing *l = arg;
    struct account_card found[10];
    enum err e = post_likes(tx, l->post, l->viewer, UINT64_MAX, l->limit, &l->arena, found, &l->n);
    l->last = !e && l->n ? found[l->n - 1].id : 0;
    return e;
}

static uint64_t comment(uint64_t who, uint64_t post)
{
    struct deed d = {.act = ACT_COMMENT, .who = who, .what = post, .text = STR("a \"comment\"")};
    assert_int_equal(world_do(&w, &d), OK);
    return d.id;
}

static void comments_come_oldest_first_and_hide_the_blocked(void **state)
{
    (void)state;
    uint64_t post = world_post(&w, ada, "discuss");
    uint64_t first = comment(bob, post), second = comment(eve, post), third = comment(ada, post);
    struct listing l = {.post = post, .viewer = bob, .limit = 10};
    arena_init(&l.arena);
    assert_int_equal(db_read(w.db, read_comments, &l, NULL), OK);
    assert_int_equal(l.n, 3);
    assert_true(l.last == third);
    l.limit = 1;
    assert_int_equal(db_read(w.db, read_comments, &l, NULL), OK);
    assert_true(l.last == first);
    l.after = first;
    l.limit = 10;
    world_act(&w, ACT_BLOCK, eve, bob);
    assert_int_equal(db_read(w.db, read_comments, &l, NULL), OK);
    assert_int_equal(l.n, 1);
    assert_int_equal(number("SELECT comment_count FROM posts WHERE id = $1", post),
                     3); /* everyone's */
    assert_int_equal(act(ACT_UNCOMMENT, bob, second), ERR_NOT_FOUND);
    world_act(&w, ACT_UNBLOCK, eve, bob);
    assert_int_equal(act(ACT_UNCOMMENT, bob, second), ERR_FORBIDDEN);
    assert_int_equal(act(ACT_UNCOMMENT, ada, second), OK); /* the post's author may */
    assert_int_equal(act(ACT_UNCOMMENT, eve, second), ERR_NOT_FOUND);
    assert_int_equal(act(ACT_UNCOMMENT, bob, first), OK);
    assert_int_equal(number("SELECT comment_count FROM posts WHERE id = $1", post), 1);
    l.after = 0;
    assert_int_equal(db_read(w.db, read_comments, &l, NULL), OK);
    assert_int_equal(l.n, 1);
    world_act(&w, ACT_LIKE, bob, post);
    world_act(&w, ACT_LIKE, eve, post);
    world_act(&w, ACT_SUSPEND, 0, eve);
    assert_int_equal(db_read(w.db, read_likes, &l, NULL), OK);
    assert_int_equal(l.n, 1);
    assert_true(l.last == bob);
    world_act(&w, ACT_RESTORE, 0, eve);
    arena_done(&l.arena);
}

static void comment_bodies_have_limits(void **state)
{
    (void)state;
    uint64_t post = world_post(&w, ada, "discuss");
    char text[COMMENT_MAX_CHARS + 1];
    struct deed d = {.act = ACT_COMMENT, .who = bob, .what = post};
    d.text = repeat("x", COMMENT_MAX_CHARS, text);
    assert_int_equal(world_do(&w, &d), OK);
    d.text = repeat("x", COMMENT_MAX_CHARS + 1, text);
    assert_int_equal(world_do(&w, &d), ERR_INVALID);
    d.text = STR("");
    assert_int_equal(world_do(&w, &d), ERR_INVALID);
    d.text = STR("\x80");
    assert_int_equal(world_do(&w, &d), ERR_INVALID);
}

static void like_and_comment_counters_never_drift(void **state)
{
    (void)state;
    enum { POSTS = 5, COMMENTS = 200, STEPS = 1500 };
    uint64_t people[] = {ada, bob, eve}, posts[POSTS], comments[COMMENTS];
    size_t commented = 0;
    struct rand r;
    rand_seed(&r, 3);
    for (size_t i = 0; i < POSTS; i++)
        posts[i] = world_post(&w, people[i % 3], "count me");
    for (int step = 0; step < STEPS; step++) {
        uint64_t who = people[rand_below(&r, 3)], post = posts[rand_below(&r, POSTS)];
        switch (rand_below(&r, 4)) {
        case 0:
            act(ACT_LIKE, who, post);
            break;
        case 1:
            act(ACT_UNLIKE, who, post);
            break;
        case 2:
            if (commented < COMMENTS)
                comments[commented++] = comment(who, post);
            break;
        default:
            if (commented > 0)
                act(ACT_UNCOMMENT, who, comments[rand_below(&r, commented)]);
        }
    }
    for (size_t i = 0; i < POSTS; i++) {
        assert_int_equal(
            number("SELECT like_count - (SELECT COUNT(*) FROM likes WHERE post_id = $1) "
                   "FROM posts WHERE id = $1",
                   posts[i]),
            0);
        assert_int_equal(
            number("SELECT comment_count - (SELECT COUNT(*) FROM comments "
                   "WHERE post_id = $1 AND deleted_at IS NULL) FROM posts WHERE id = $1",
                   posts[i]),
            0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_author_is_told_as_the_post_is_counted),
        cmocka_unit_test(captions_are_limited_by_code_points),
        cmocka_unit_test(only_the_active_may_post),
        cmocka_unit_test(the_delivery_is_decided_once),
        cmocka_unit_test(edits_keep_the_former_captions),
        cmocka_unit_test(deleting_is_soft_final_and_for_the_author),
        cmocka_unit_test(blocks_and_suspensions_hide_posts),
        cmocka_unit_test(liking_twice_is_one_like),
        cmocka_unit_test(comments_come_oldest_first_and_hide_the_blocked),
        cmocka_unit_test(comment_bodies_have_limits),
        cmocka_unit_test(like_and_comment_counters_never_drift),
    };
    return cmocka_run_group_tests_name("model/post", tests, open_world, close_world);
}
