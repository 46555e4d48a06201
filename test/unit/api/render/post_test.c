/* Posts are drawn in the promised shape, whether from fields or from fragments, and what was drawn
 * once is attached to the cards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "api/render/fragment.h"
#include "api/render/render.h"
#include "base/id.h"
#include "model/feed.h"
#include "view/memory/memory.h"

static struct arena arena;
static struct cards *cards;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena);
    cards = cards_memory_new(4 << 20, clock_system());
    return !cards;
}

static int teardown(void **state)
{
    (void)state;
    cards_free(cards);
    arena_done(&arena);
    return 0;
}

static struct feed_item item_of(const char *caption)
{
    return (struct feed_item){
        .card = {.id = id_at(INT64_C(1790000000123), 1, 2),
                 .author = 7,
                 .like_count = 3,
                 .caption = str_of(caption)},
        .author = {.id = 7, .username = STR("ada"), .display_name = STR("\"Ada\"")},
    };
}

static const char *draw(const struct feed_item *item, struct cards *attach_to)
{
    struct buf out;
    struct json_out j;
    buf_init(&out, 0);
    json_out_init(&j, &out);
    if (attach_to)
        render_posts(&j, item, 1, attach_to, &arena);
    else
        render_post(&j, item, &arena);
    const char *text = arena_str(&arena, buf_view(&out)).ptr;
    buf_done(&out);
    return text;
}

static void a_post_is_drawn_in_the_promised_shape(void **state)
{
    (void)state;
    struct feed_item item = item_of("say \"hi\"");
    char expected[1000];
    item.liked = true;
    snprintf(expected, sizeof expected,
             "{\"id\":\"%llu\",\"author\":{\"id\":\"7\",\"username\":\"ada\","
             "\"display_name\":\"\\\"Ada\\\"\",\"avatar_url\":null},"
             "\"caption\":\"say \\\"hi\\\"\",\"media\":[],"
             "\"like_count\":3,\"comment_count\":0,\"liked\":true,"
             "\"created_at\":\"2026-09-21T14:13:20.123Z\",\"edited_at\":null}",
             (unsigned long long)item.card.id);
    assert_string_equal(draw(&item, NULL), expected);
    item.liked = false;
    item.card.edited_at_ms = INT64_C(1790000000456);
    assert_non_null(strstr(draw(&item, NULL), "\"liked\":false,"));
    assert_non_null(strstr(draw(&item, NULL), "\"edited_at\":\"2026-09-21T14:13:20.456Z\"}"));
}

/* Fills the cards with the item, and gets it back from there. */
static struct feed_item from_cards(struct feed_item item, bool fill)
{
    uint64_t keys[] = {item.card.id, item.author.id};
    card_ticket tickets[2];
    enum card_state found;
    (void)cards_tickets(cards, keys, 2, tickets);
    const struct card_write fills[] = {
        {.kind = CARD_FILL_POST, .ticket = tickets[0], .post = &item.card},
        {.kind = CARD_FILL_ACCOUNT, .ticket = tickets[1], .account = &item.author}};
    if (fill)
        cards_write(cards, fills, 2);
    cards_posts(cards, &keys[0], 1, &item.card, &found, &arena);
    assert_int_equal(found, CARD_FOUND);
    cards_accounts(cards, &keys[1], 1, &item.author, &arena);
    assert_int_equal(item.author.id, keys[1]);
    item.author_ticket = tickets[1];
    item.ticketed = true;
    return item;
}

static void what_was_drawn_once_is_drawn_the_same_from_fragments(void **state)
{
    (void)state;
    static const char *const captions[] = {"plain", "", "\"\\ \n \x01 \x7f", "gr\xc3\xbc\xc3\x9f"};
    for (size_t i = 0; i < sizeof captions / sizeof captions[0]; i++) {
        struct feed_item given = item_of(captions[i]);
        given.card.id += i;
        struct feed_item first = from_cards(given, true);
        assert_null(first.card.fragments[DIALECT_V1].ptr);
        const char *drawn = draw(&first, cards);
        struct feed_item second = from_cards(given, false);
        assert_non_null(second.card.fragments[DIALECT_V1].ptr);
        assert_non_null(second.author.fragments[DIALECT_V1].ptr);
        assert_string_equal(draw(&second, cards), drawn);
        assert_string_equal(draw(&given, NULL), drawn);
    }
}

/* A fragment tells of the author: without their ticket a later change would not void it. */
static void a_post_without_its_authors_ticket_attaches_nothing(void **state)
{
    (void)state;
    struct feed_item item = item_of("text");
    item.card.id += 100;
    item = from_cards(item, true);
    item.ticketed = false;
    draw(&item, cards);
    assert_null(from_cards(item, false).card.fragments[DIALECT_V1].ptr);
}

static void a_fragment_of_another_version_is_drawn_anew(void **state)
{
    (void)state;
    struct feed_item item = item_of("text");
    const char *drawn = draw(&item, NULL);
    item.card.fragments[DIALECT_V1] = STR("?of tomorrow");
    item.author.fragments[DIALECT_V1] = STR("?of tomorrow");
    assert_string_equal(draw(&item, NULL), drawn);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_post_is_drawn_in_the_promised_shape),
        CASE(what_was_drawn_once_is_drawn_the_same_from_fragments),
        CASE(a_post_without_its_authors_ticket_attaches_nothing),
        CASE(a_fragment_of_another_version_is_drawn_anew),
    };
    return cmocka_run_group_tests_name("api/render/post", tests, NULL, NULL);
}
