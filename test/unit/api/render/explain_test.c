/* Every reason for which a post is or is not in a feed has its words, and nothing disagrees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "api/render/render.h"
#include "api/resource/explain.h"
#include "world.h"

enum { CAP = 10 };

static struct world w;

static int open_world(void **state)
{
    (void)state;
    world_open(&w, 3);
    world_start(&w, CAP);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

struct asked {
    const struct explanation *found;
    struct explained_events events;
};

static enum err read_events(struct tx *tx, void *arg)
{
    struct asked *a = arg;
    return explain_events(tx, w.engine, a->found, &a->events);
}

static json_t *explain(uint64_t viewer, uint64_t post)
{
    struct buf text;
    struct json_out j;
    struct arena arena;
    struct explanation found;
    arena_init(&arena);
    buf_init(&text, 0);
    json_out_init(&j, &text);
    assert_int_equal(truth_explain(w.db, w.views, w.cards, viewer, post, &arena, &found), OK);
    struct asked asked = {.found = &found};
    assert_int_equal(db_read(w.db, read_events, &asked, NULL), OK);
    render_explanation(&j, &found, &asked.events);
    json_t *answer = json_loadb(text.ptr, text.len, 0, NULL);
    assert_non_null(answer);
    buf_done(&text);
    arena_done(&arena);
    return answer;
}

static void assert_verdict(uint64_t viewer, uint64_t post, bool visible, const char *word)
{
    json_t *answer = explain(viewer, post);
    const char *verdict = json_string_value(json_object_get(answer, "verdict"));
    assert_int_equal(json_is_true(json_object_get(answer, "visible")), visible);
    if (!strstr(verdict, word))
        fail_msg("\"%s\" does not say \"%s\"", verdict, word);
    assert_true(json_array_size(json_object_get(answer, "facts")) > 0);
    json_decref(answer);
}

static void every_reason_has_its_words(void **state)
{
    (void)state;
    uint64_t ada = world_account(&w, "ada"), bob = world_account(&w, "bob"),
             eve = world_account(&w, "eve");
    world_act(&w, ACT_FOLLOW, ada, bob);
    world_act(&w, ACT_FOLLOW, eve, bob);
    world_drain(&w);
    uint64_t post = world_post(&w, bob, "why?");
    assert_verdict(ada, post, false, "under way");
    world_drain(&w);
    assert_verdict(ada, post, true, "pushed");
    assert_verdict(bob, post, true, "own");
    assert_verdict(ada, 12345, false, "no such post");
    assert_verdict(12345, post, false, "no such account");
    world_act(&w, ACT_MUTE, ada, bob);
    assert_verdict(ada, post, false, "muted");
    world_act(&w, ACT_UNMUTE, ada, bob);
    world_act(&w, ACT_SUSPEND, 0, bob);
    assert_verdict(ada, post, false, "suspended");
    world_act(&w, ACT_RESTORE, 0, bob);
    world_act(&w, ACT_UNFOLLOW, ada, bob);
    assert_verdict(ada, post, false, "not followed");
    world_act(&w, ACT_BLOCK, bob, ada);
    assert_verdict(ada, post, false, "block");
    world_act(&w, ACT_DELETE, bob, post);
    assert_verdict(eve, post, false, "deleted");
    uint64_t old = world_post(&w, bob, "old");
    for (int i = 0; i < 2 * CAP; i++)
        world_post(&w, bob, "newer");
    world_drain(&w);
    assert_verdict(eve, old, true, "from truth");
    world_act(&w, ACT_DELETE_ACCOUNT, 0, bob);
    assert_verdict(eve, old, false, "deleted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reason_has_its_words),
    };
    return cmocka_run_group_tests_name("api/render/explain", tests, open_world, close_world);
}
