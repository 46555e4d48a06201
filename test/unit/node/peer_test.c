/* Reports between nodes: they come back as they were, the version before understands them and is
 * understood, and no bytes do harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "node/peer.h"

enum { ROUNDS = 20000 };

/* ---- reports ---- */

static void assert_same(const struct node_report *a, const struct node_report *b)
{
    assert_int_equal(a->known, b->known);
    assert_int_equal(a->views, b->views);
    assert_int_equal(a->bus, b->bus);
    assert_int_equal(a->leads, b->leads);
    assert_int_equal(a->quarantined, b->quarantined);
    assert_true(a->undone == b->undone);
}

static void a_report_comes_back(void **state)
{
    static const uint64_t undone[] = {0, 1, 4711, INT64_MAX, UINT64_MAX};
    (void)state;
    for (unsigned bits = 0; bits < 16; bits++) {
        for (size_t i = 0; i < sizeof undone / sizeof *undone; i++) {
            struct node_report told = {.known = true,
                                       .views = bits & 1,
                                       .bus = bits & 2,
                                       .leads = bits & 4,
                                       .quarantined = bits & 8,
                                       .undone = undone[i]};
            struct node_report heard;
            char text[PEER_TEXT_MAX];
            node_report_encode(&told, text);
            assert_true(node_report_decode(str_of(text), &heard));
            assert_same(&told, &heard);
        }
    }
}

static void the_version_before_and_this_one_understand_each_other(void **state)
{
    (void)state;
    struct node_report heard;
    assert_true(node_report_decode(STR("views=1 bus=1 leads=1 aside=1 undone=12"), &heard));
    assert_same(&heard, &(struct node_report){true, true, true, true, true, 12});
    /* What that version searches for. */
    char text[PEER_TEXT_MAX];
    node_report_encode(&(struct node_report){true, true, true, true, false, 34}, text);
    assert_non_null(strstr(text, "views=1 bus=1"));
    assert_non_null(strstr(text, "leads=1"));
    assert_int_equal(strtoull(strstr(text, "undone=") + 7, NULL, 10), 34);
}

static void a_newer_program_may_say_more_but_not_otherwise(void **state)
{
    (void)state;
    struct node_report heard;
    assert_true(node_report_decode(
        STR("views=1 bus=0 leads=0 quarantined=0 undone=5 mood=good v=1"), &heard));
    assert_int_equal(heard.undone, 5);
    assert_false(
        node_report_decode(STR("views=1 bus=0 leads=0 quarantined=0 undone=5 v=2"), &heard));
    assert_same(&heard, &(struct node_report){0});
}

static void what_is_no_report_says_nothing(void **state)
{
    static const char *const wrong[] = {
        "",
        " ",
        "=",
        "views",
        "views=1",
        "views=1 bus=1 leads=0 undone=5",
        "views=1 bus=1 leads=0 quarantined=0 undone=",
        "views=1 bus=1 leads=0 quarantined=0 undone=-1",
        "views=1 bus=1 leads=0 quarantined=0 undone=18446744073709551616",
        "views=2 bus=1 leads=0 quarantined=0 undone=5",
        "views=1  bus=1 leads=0 quarantined=0 undone=5",
        "views=1 views=0 bus=1 leads=0 quarantined=0 undone=5",
        "xviews=1 bus=1 leads=0 quarantined=0 undone=5",
        "views=1 bus=1 leads=0 quarantined=0 undone=5 v=",
        "views=1 bus=1 leads=0 quarantined=0 undone=5 v=x",
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct node_report heard = {.known = true, .views = true, .undone = 1};
        if (node_report_decode(str_of(wrong[i]), &heard))
            fail_msg("'%s' was understood", wrong[i]);
        assert_same(&heard, &(struct node_report){0});
    }
    char longest[PEER_TEXT_MAX + 1];
    node_report_encode(&(struct node_report){.known = true}, longest);
    size_t len = strlen(longest);
    longest[len] = ' ';
    memset(longest + len + 1, '=', sizeof longest - len - 1);
    struct node_report heard;
    assert_true(node_report_decode((struct str){longest, PEER_TEXT_MAX - 1}, &heard));
    assert_false(node_report_decode((struct str){longest, PEER_TEXT_MAX}, &heard));
}

/* ---- notices ---- */

static struct leader_notice some_notice(void)
{
    struct leader_notice n = {.number = 1023};
    snprintf(n.address, sizeof n.address, "http://[2001:db8::1]:8080");
    for (int lane = 0; lane < LANE_COUNT; lane++)
        n.lanes[lane] = (struct lane_override){.known = true,
                                               .concurrency = (uint32_t)lane + 1,
                                               .rate = lane % 2 ? UINT32_MAX : 0,
                                               .stopped = lane % 3 == 0};
    return n;
}

static void assert_same_notice(const struct leader_notice *a, const struct leader_notice *b)
{
    assert_int_equal(a->number, b->number);
    assert_string_equal(a->address, b->address);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        const struct lane_override *x = &a->lanes[lane], *y = &b->lanes[lane];
        assert_true(x->known == y->known && x->concurrency == y->concurrency &&
                    x->rate == y->rate && x->stopped == y->stopped);
    }
}

static void a_notice_comes_back(void **state)
{
    (void)state;
    struct leader_notice told = some_notice(), heard;
    char text[PEER_TEXT_MAX];
    leader_notice_encode(&told, text);
    assert_true(leader_notice_decode(str_of(text), &heard));
    assert_same_notice(&told, &heard);
    told.lanes[LANE_SMALL].known = false; /* as from a program without that lane */
    told.lanes[LANE_SMALL] = (struct lane_override){0};
    leader_notice_encode(&told, text);
    assert_true(leader_notice_decode(str_of(text), &heard));
    assert_same_notice(&told, &heard);
}

static void a_notice_of_the_version_before_is_understood(void **state)
{
    (void)state;
    struct leader_notice heard;
    assert_true(leader_notice_decode(
        STR("node=3 address=http://10.0.0.1:80 lanes=small:10:0,cleanup:2:400:stopped,new:1:1"),
        &heard));
    assert_int_equal(heard.number, 3);
    assert_string_equal(heard.address, "http://10.0.0.1:80");
    assert_true(heard.lanes[LANE_CLEANUP].known && heard.lanes[LANE_CLEANUP].stopped);
    assert_int_equal(heard.lanes[LANE_CLEANUP].rate, 400);
    assert_true(heard.lanes[LANE_SMALL].known && !heard.lanes[LANE_SMALL].stopped);
    assert_false(heard.lanes[LANE_GRAPH].known);
    /* and so it reads ours */
    struct leader_notice told = some_notice();
    char text[PEER_TEXT_MAX], address[256] = "";
    unsigned number = 0;
    leader_notice_encode(&told, text);
    assert_int_equal(sscanf(text, "node=%u address=%255s", &number, address), 2);
    assert_int_equal(number, 1023);
    assert_string_equal(address, told.address);
}

/* Half a list of lanes would say something else. */
static void lanes_that_do_not_fit_are_left_out(void **state)
{
    (void)state;
    struct leader_notice told = some_notice(), heard;
    memset(told.address, 'a', sizeof told.address - 1);
    memcpy(told.address, "http://", 7);
    for (int lane = 0; lane < LANE_COUNT; lane++)
        told.lanes[lane] = (struct lane_override){true, UINT32_MAX, UINT32_MAX, true};
    char text[PEER_TEXT_MAX];
    leader_notice_encode(&told, text);
    assert_true(leader_notice_decode(str_of(text), &heard));
    assert_string_equal(heard.address, told.address);
    for (int lane = 0; lane < LANE_COUNT; lane++)
        assert_false(heard.lanes[lane].known);
}

static void a_malformed_notice_names_no_leader(void **state)
{
    static const char *const wrong[] = {
        "",
        "node=1",
        "address=http://a",
        "node=x address=http://a",
        "node=4294967296 address=http://a",
        "node=1 address=",
        "node=1 address=ftp://a",
        "node=1 address=http://a\x01",
        "node=1 address=http://\xc3\xa4",
        "node=1 address=http://a lanes=small",
        "node=1 address=http://a lanes=small:1",
        "node=1 address=http://a lanes=small:1:x",
        "node=1 address=http://a lanes=small:1:4294967296",
        "node=1 address=http://a lanes=small:1:1:soon",
        "node=1 address=http://a lanes=,",
        "node=1 address=http://a v=2",
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct leader_notice heard = some_notice();
        if (leader_notice_decode(str_of(wrong[i]), &heard))
            fail_msg("'%s' was understood", wrong[i]);
        assert_same_notice(&heard, &(struct leader_notice){0});
    }
    char text[400] = "node=1 address=http://";
    memset(text + strlen(text), 'a', sizeof text - 1 - strlen(text));
    struct leader_notice heard;
    assert_false(leader_notice_decode(str_of(text), &heard));
}

/* Texts that were damaged at random: whatever is understood can be written again and means the
 * same. */
static void no_bytes_do_harm(void **state)
{
    (void)state;
    struct rand r;
    rand_seed(&r, 11);
    struct leader_notice told = some_notice();
    char notice[PEER_TEXT_MAX], report[PEER_TEXT_MAX], again[PEER_TEXT_MAX];
    size_t understood = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct leader_notice n, n2;
        struct node_report p, p2;
        memset(notice, 0, sizeof notice);
        memset(report, 0, sizeof report);
        leader_notice_encode(&told, notice);
        node_report_encode(&(struct node_report){true, true, false, true, false, rand_u64(&r)},
                           report);
        for (uint64_t k = rand_below(&r, 4); k > 0; k--) {
            notice[rand_below(&r, sizeof notice)] = (char)rand_u64(&r);
            report[rand_below(&r, 80)] = (char)rand_u64(&r);
        }
        struct str text = {notice, rand_below(&r, 2) ? strnlen(notice, sizeof notice)
                                                     : rand_below(&r, sizeof notice)};
        if (leader_notice_decode(text, &n)) {
            leader_notice_encode(&n, again);
            assert_true(leader_notice_decode(str_of(again), &n2));
            assert_same_notice(&n, &n2);
            understood++;
        }
        if (node_report_decode((struct str){report, strnlen(report, sizeof report)}, &p)) {
            node_report_encode(&p, again);
            assert_true(node_report_decode(str_of(again), &p2));
            assert_same(&p, &p2);
            understood++;
        }
    }
    assert_true(understood > ROUNDS / 10 && understood < 2 * ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_comes_back),
        cmocka_unit_test(the_version_before_and_this_one_understand_each_other),
        cmocka_unit_test(a_newer_program_may_say_more_but_not_otherwise),
        cmocka_unit_test(what_is_no_report_says_nothing),
        cmocka_unit_test(a_notice_comes_back),
        cmocka_unit_test(a_notice_of_the_version_before_is_understood),
        cmocka_unit_test(lanes_that_do_not_fit_are_left_out),
        cmocka_unit_test(a_malformed_notice_names_no_leader),
        cmocka_unit_test(no_bytes_do_harm),
    };
    return cmocka_run_group_tests_name("node/peer", tests, NULL, NULL);
}
