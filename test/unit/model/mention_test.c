/* Mentions: what counts as a name in a text, and whom its event reaches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "model/mention.h"
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

static void expect_names(const char *text, const char *expected)
{
    struct mention_name names[MENTIONS_MAX];
    char found[1024] = "";
    size_t len = 0, n = mention_names(str_of(text), names);
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(found + len, sizeof found - len, "%s%.*s", i ? " " : "",
                                (int)names[i].len, names[i].text);
    if (strcmp(found, expected) != 0)
        fail_msg("'%s' names '%s', not '%s'", text, found, expected);
}

static void what_counts_as_a_name(void **state)
{
    (void)state;
    expect_names("", "");
    expect_names("@ada", "ada");
    expect_names("hello @Ada, and @bob.", "ada bob");
    expect_names("(@ada) \"@bob\" -@eve", "ada bob eve");
    expect_names("@ada @ADA @ada...", "ada");
    expect_names("@a.b_c9", "a.b_c9");
    expect_names("ada@example.org", "");
    expect_names("@ada@example.org", "");
    expect_names("https://example.org/@ada", "");
    expect_names("@@ada", "");
    expect_names("@ad @ @. @", "");
    expect_names("\xe4\xbd\xa0\xe5\xa5\xbd@ada\xe4\xbd\xa0", "ada");
    expect_names("@abcdefghijklmnopqrstuvwxyz0123", "abcdefghijklmnopqrstuvwxyz0123");
    expect_names("@abcdefghijklmnopqrstuvwxyz01234", "");
}

static void a_text_names_so_many_and_no_more(void **state)
{
    (void)state;
    char text[1024];
    size_t len = 0;
    struct mention_name names[MENTIONS_MAX];
    for (int i = 0; i < 3 * MENTIONS_MAX; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "@name%d ", i);
    assert_int_equal(mention_names((struct str){text, len}, names), MENTIONS_MAX);
    assert_memory_equal(names[MENTIONS_MAX - 1].text, "name19", 6);
    uint64_t most[MENTIONS_MAX];
    char memory[MENTION_DATA_MAX];
    for (size_t i = 0; i < MENTIONS_MAX; i++)
        most[i] = INT64_MAX;
    assert_true(mention_data(INT64_MAX, most, MENTIONS_MAX, memory).len <= EVENT_DATA_MAX);
}

/* The people in the newest event of mentions; 0 when there is none with this payload. */
static bool told(const char *payload)
{
    return world_i64(&w,
                     "SELECT COUNT(*) FROM outbox WHERE payload = $1 AND id = "
                     "(SELECT MAX(id) FROM outbox WHERE type = 'post.mentions')",
                     DB_ARGS(DB_TEXT(str_of(payload)))) == 1;
}

static bool named(uint64_t author, uint64_t post, const char *to)
{
    char payload[300];
    snprintf(payload, sizeof payload,
             "{\"actor\":\"%llu\",\"object\":\"%llu\",\"value\":0,\"data\":{\"to\":[%s]}}",
             (unsigned long long)author, (unsigned long long)post, to);
    return told(payload);
}

static const char *ids(uint64_t a, uint64_t b)
{
    static char text[64];
    snprintf(text, sizeof text, b ? "\"%llu\",\"%llu\"" : "\"%llu\"", (unsigned long long)a,
             (unsigned long long)b);
    return text;
}

static void those_who_are_there_are_told_once(void **state)
{
    (void)state;
    uint64_t before = w.events[EVENT_POST_MENTIONS];
    world_post(&w, ada, "nobody, not even @ada or @no.such.name");
    assert_int_equal(w.events[EVENT_POST_MENTIONS], before);
    uint64_t post = world_post(&w, ada, "@eve @bob @BOB @ada");
    assert_true(named(ada, post, ids(bob, eve)));
    world_act(&w, ACT_BLOCK, eve, ada);
    post = world_post(&w, ada, "@eve @bob");
    assert_true(named(ada, post, ids(bob, 0)));
    world_act(&w, ACT_UNBLOCK, eve, ada);
    world_act(&w, ACT_SUSPEND, 0, bob);
    post = world_post(&w, ada, "@eve @bob");
    assert_true(named(ada, post, ids(eve, 0)));
    world_act(&w, ACT_RESTORE, 0, bob);
    assert_int_equal(w.events[EVENT_POST_MENTIONS], before + 3);
}

static void an_edit_tells_those_who_were_not_named_before(void **state)
{
    (void)state;
    uint64_t post = world_post(&w, ada, "for @bob"), before = w.events[EVENT_POST_MENTIONS];
    struct deed d = {.act = ACT_EDIT, .who = ada, .what = post, .text = STR("for @bob only")};
    assert_int_equal(world_do(&w, &d), OK);
    assert_int_equal(w.events[EVENT_POST_MENTIONS], before);
    d.text = STR("for @bob and @eve");
    assert_int_equal(world_do(&w, &d), OK);
    assert_true(named(ada, post, ids(eve, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_counts_as_a_name),
        cmocka_unit_test(a_text_names_so_many_and_no_more),
        cmocka_unit_test(those_who_are_there_are_told_once),
        cmocka_unit_test(an_edit_tells_those_who_were_not_named_before),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
