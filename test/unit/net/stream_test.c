/* Streams over real sockets: what arrives, in which order, and how they begin and end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "streamed.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

static uint64_t bad_requests(const struct http_stats *stats)
{
    return stats->bad_requests;
}

static uint64_t connections(const struct http_stats *stats)
{
    return stats->connections;
}

static uint64_t timeouts(const struct http_stats *stats)
{
    return stats->timeouts;
}

static void frames_arrive_in_order(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    streamed_start(&t);
    struct listener l;
    listener_open(&l, &t, 7);
    listener_expect(&l, 0, "hello", "7"); /* sent before the start */
    assert_int_equal(l.retry_ms, STREAM_RETRY_MS);
    assert_int_equal(l.comments, 1); /* what the handler had written */
    for (uint64_t id = 1; id <= 500; id++)
        streamed_send(&t, 7, id, "{\"a\":1}");
    streamed_send(&t, 8, 1000, "{}"); /* somebody else's */
    const uint64_t person = 7;
    const struct frame_text bare = {.data = STR("")};
    assert_int_equal(hub_send(t.hub, &person, 1, &bare), 1);
    for (uint64_t id = 1; id <= 500; id++)
        listener_expect(&l, id, "message", "{\"a\":1}");
    listener_expect(&l, 0, "", "");
    listener_close(&l);
    streamed_await_streams(&t, 0);
    streamed_done(&t);
}

/* A frame larger than what one system call sends, and many between small ones. */
static void large_frames_arrive_whole(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    t.buffer_max = 16 * 1024 * 1024;
    streamed_start(&t);
    struct listener l;
    listener_open(&l, &t, 7);
    listener_expect(&l, 0, "hello", "7");
    static char data[FRAME_DATA_MAX + 1];
    memset(data, 'x', FRAME_DATA_MAX);
    for (uint64_t id = 1; id <= 400; id++)
        streamed_send(&t, 7, id, data + (id % 3 == 0 ? 0 : FRAME_DATA_MAX - id));
    for (uint64_t id = 1; id <= 400; id++)
        listener_expect(&l, id, "message", data + (id % 3 == 0 ? 0 : FRAME_DATA_MAX - id));
    listener_close(&l);
    streamed_done(&t);
}

/* Live events that wait while the head is not yet out: only the newest of a kind and key leaves. */
static void newer_events_take_the_place_of_older_ones(void **state)
{
    (void)state;
    struct frame_text events[] = {
        {.id = 1, .kind = 1, .key = 10, .data = STR("a")},
        {.id = 2, .kind = 1, .key = 11, .data = STR("b")},
        {.id = 3, .kind = 1, .key = 10, .data = STR("c")},
        {.id = 2, .kind = 1, .key = 10, .data = STR("older than c")},
        {.id = 1, .kind = 2, .key = 10, .data = STR("d")},
        {.id = 4, .data = STR("e")},
        {.id = 4, .data = STR("f")},
        {.id = 2, .kind = 1, .key = 11, .data = STR("as new as b, but later")},
    };
    const enum stream_outcome outcomes[] = {
        STREAM_TAKEN, STREAM_TAKEN, STREAM_MERGED, STREAM_MERGED,
        STREAM_TAKEN, STREAM_TAKEN, STREAM_TAKEN,  STREAM_MERGED,
    };
    struct streamed t;
    streamed_init(&t);
    streamed_start(&t);
    int fd = raw_connect(&t.served);
    raw_send(fd, STR("GET /hold?person=7 HTTP/1.1\r\nHost: h\r\n\r\n"));
    served_await_held(&t.served, 1);

    struct stream *s = stream_new(&encoding_sse, 0, 0);
    for (size_t i = 0; i < COUNT_OF(events); i++) {
        struct frame *f = frame_new(&events[i], &encoding_sse);
        assert_int_equal(stream_send(s, f), outcomes[i]);
        frame_unref(f);
    }
    http_add_header(t.served.held[0], "X-Extra", "yes");
    stream_start(s, t.served.held[0]);
    t.served.held_count = 0;
    struct listener l;
    listener_over(&l, fd);
    listener_expect(&l, 3, "", "c");
    listener_expect(&l, 1, "", "d");
    listener_expect(&l, 4, "", "e");
    listener_expect(&l, 4, "", "f");
    listener_expect(&l, 2, "", "as new as b, but later");
    stream_close(s, "over");
    listener_expect(&l, 0, "bye", "{\"reason\":\"over\"}");
    listener_expect_end(&l);
    stream_unref(s);
    listener_close(&l);
    streamed_done(&t);
}

/* One busy group never costs a slow reader its stream: what waits is one live event, again and
 * again. */
static void a_hot_group_does_not_fill_the_buffer(void **state)
{
    (void)state;
    enum { ROUNDS = 20000, GROUPS = 3 };
    struct streamed t;
    streamed_init(&t);
    t.buffer_max = 4096;
    streamed_start(&t);
    struct listener l;
    listener_open(&l, &t, 7);
    const uint64_t person = 7;
    for (uint64_t id = 1; id <= ROUNDS; id++)
        for (uint64_t group = 1; group <= GROUPS; group++) {
            char data[512]; /* long, so that the socket fills up */
            snprintf(data, sizeof data, "%lu%0400d", (unsigned long)group, 0);
            const struct frame_text text = {
                .id = id, .kind = 1, .key = group, .data = str_of(data)};
            assert_int_equal(hub_send(t.hub, &person, 1, &text), 1);
        }
    struct hub_stats stats;
    hub_stats(t.hub, &stats);
    assert_int_equal(stats.sent, (uint64_t)ROUNDS * GROUPS);
    assert_true(stats.merged > 0);
    assert_int_equal(stats.slow, 0);
    uint64_t last[GROUPS + 1] = {0};
    listener_expect(&l, 0, "hello", "7");
    while (last[1] < ROUNDS || last[2] < ROUNDS || last[3] < ROUNDS) {
        assert_true(listener_next(&l));
        unsigned group = (unsigned)(l.data.ptr[0] - '0');
        assert_true(l.id > last[group]); /* never back, never twice */
        last[group] = l.id;
    }
    listener_close(&l);
    streamed_done(&t);
}

static void requests_before_it_are_answered_and_bytes_behind_it_dropped(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    streamed_start(&t);
    static const char *paths[] = {"stream", "later"};
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        int fd = raw_connect(&t.served);
        char bytes[6000];
        int n = snprintf(bytes, sizeof bytes,
                         "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"
                         "GET /%s?person=%zu HTTP/1.1\r\nHost: h\r\nX-Long: %03000d\r\n\r\n"
                         "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n\r\n",
                         paths[i], i, 0);
        raw_send(fd, (struct str){bytes, (size_t)n});
        assert_int_equal(raw_status(fd), 200);
        struct listener l;
        listener_over(&l, fd);
        listener_expect(&l, 0, "hello", i == 0 ? "0" : "1");
        raw_send(fd, STR("garbage\x01\xff"));
        streamed_send(&t, i, 1, "still here");
        listener_expect(&l, 1, "message", "still here");
        /* There is an end to it. */
        static const char much[STREAM_STRAY_MAX];
        raw_send(fd, (struct str){much, sizeof much});
        listener_expect_end(&l);
        served_await_stat(&t.served, bad_requests, i + 1);
        streamed_await_streams(&t, 0);
        listener_close(&l);
    }
    streamed_done(&t);
}

/* The stream's own request comes out of the backlog: it was read while another was answered. */
static void a_stream_out_of_the_backlog(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    t.served.config.loops = 1;
    streamed_start(&t);
    int fd = raw_connect(&t.served);
    char bytes[8000];
    int n = snprintf(bytes, sizeof bytes,
                     "GET /hold?person=5 HTTP/1.1\r\nHost: h\r\n\r\n"
                     "GET /stream?person=6 HTTP/1.1\r\nHost: h\r\nX-Long: %05000d\r\n\r\nxyz",
                     0);
    raw_send(fd, (struct str){bytes, (size_t)n});
    served_await_held(&t.served, 1);
    t.served.held_count = 0;
    http_answer(t.served.held[0]);
    assert_int_equal(raw_status(fd), 200);
    struct listener l;
    listener_over(&l, fd);
    listener_expect(&l, 0, "hello", "6");
    streamed_send(&t, 6, 1, "a");
    listener_expect(&l, 1, "message", "a");
    static const char much[STREAM_STRAY_MAX - 2]; /* with "xyz" one too many */
    raw_send(fd, (struct str){much, sizeof much});
    listener_expect_end(&l);
    listener_close(&l);
    streamed_done(&t);
}

static void head_is_answered_with_the_head(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    streamed_start(&t);
    int fd = raw_connect(&t.served);
    raw_send(fd, STR("HEAD /stream?person=7 HTTP/1.1\r\nHost: h\r\n\r\n"));
    struct listener l;
    listener_over(&l, fd);
    listener_expect_end(&l);
    assert_int_equal(l.comments, 0);
    streamed_await_streams(&t, 0);
    listener_close(&l);
    streamed_done(&t);
}

static void http_1_0_gets_it_too(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    streamed_start(&t);
    int fd = raw_connect(&t.served);
    raw_send(fd, STR("GET /later?person=7 HTTP/1.0\r\n\r\n"));
    struct listener l;
    listener_over(&l, fd);
    listener_expect(&l, 0, "hello", "7");
    listener_close(&l);
    streamed_done(&t);
}

/* ---- peers that go ---- */

static void the_end_of_a_peer_is_noticed(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    streamed_start(&t);
    struct listener closes, half_closes, resets;
    listener_open(&closes, &t, 1);
    listener_open(&half_closes, &t, 2);
    listener_open(&resets, &t, 3);
    streamed_await_streams(&t, 3);
    listener_close(&closes);
    streamed_await_streams(&t, 2);
    listener_expect(&half_closes, 0, "hello", "2");
    assert_int_equal(shutdown(half_closes.fd, SHUT_WR), 0);
    listener_expect_end(&half_closes);
    streamed_await_streams(&t, 1);
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(resets.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    listener_close(&resets);
    streamed_await_streams(&t, 0);
    served_await_stat(&t.served, connections, 0);
    listener_close(&half_closes);
    streamed_done(&t);
}

static void peers_that_go_before_the_start(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    streamed_start(&t);
    int gone = raw_connect(&t.served), half = raw_connect(&t.served);
    raw_send(gone, STR("GET /hold?person=1 HTTP/1.1\r\nHost: h\r\n\r\n"));
    raw_send(half, STR("GET /hold?person=2 HTTP/1.1\r\nHost: h\r\n\r\n"));
    served_await_held(&t.served, 2);
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(gone, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(gone);
    assert_int_equal(shutdown(half, SHUT_WR), 0);
    served_await_stat(&t.served, connections, 1);
    poll(NULL, 0, 20); /* for the half close to be read; either way the outcome is the same */
    streamed_start_held(&t);
    struct listener l;
    listener_over(&l, half);
    streamed_await_streams(&t, 0);
    listener_close(&l);
    streamed_done(&t);
}

/* ---- slow ones ---- */

static void a_slow_reader_is_cut_off_and_others_go_on(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    t.buffer_max = 16 * 1024;
    t.served.config.loops = 1;
    streamed_start(&t);
    struct listener slow, quick, same_person;
    listener_open_narrow(&slow, &t, 1);
    listener_open(&quick, &t, 2);
    listener_open(&same_person, &t, 1);
    listener_expect(&quick, 0, "hello", "2");
    listener_expect(&same_person, 0, "hello", "1");
    char data[1001];
    memset(data, 'x', 1000);
    data[1000] = '\0';
    const uint64_t persons[] = {1, 2};
    struct hub_stats stats;
    uint64_t id = 0;
    do {
        assert_true(++id < 100000);
        const struct frame_text text = {.id = id, .data = STR("")};
        struct frame_text longer = text;
        longer.data = str_of(data);
        hub_send(t.hub, persons, 2, &longer);
        listener_expect(&quick, id, "", data);
        listener_expect(&same_person, id, "", data);
        hub_stats(t.hub, &stats);
    } while (stats.slow == 0);
    streamed_await_streams(&t, 2);
    streamed_send(&t, 1, 1, "a");
    listener_expect(&same_person, 1, "message", "a");
    /* It reads what had left us before, in order, and then the end. */
    listener_expect(&slow, 0, "hello", "1");
    uint64_t got = 0;
    for (;; got++) {
        int more = listener_next(&slow);
        if (!more)
            break;
        assert_int_equal(slow.id, got + 1);
    }
    assert_true(got > 0 && got < id);
    hub_stats(t.hub, &stats);
    assert_int_equal(stats.slow, 1);
    listener_close(&slow);
    listener_close(&quick);
    listener_close(&same_person);
    streamed_done(&t);
}

static void a_reader_that_stands_still_is_cut_off_by_time(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    t.buffer_max = 64 * 1024 * 1024;
    t.served.config.write_timeout_ms = 100;
    streamed_start(&t);
    struct listener still;
    listener_open_narrow(&still, &t, 1);
    static char data[FRAME_DATA_MAX];
    memset(data, 'x', FRAME_DATA_MAX - 1);
    for (uint64_t id = 1; id <= 1000; id++)
        streamed_send(&t, 1, id, data);
    streamed_await_streams(&t, 0);
    struct hub_stats stats;
    hub_stats(t.hub, &stats);
    assert_int_equal(stats.slow, 0);
    listener_close(&still);
    served_await_stat(&t.served, connections, 0);
    streamed_done(&t);
}

/* What was sent fits our socket's buffer, so that nothing stalls here; but nobody takes it there. A
 * peer that vanished without a word looks the same. */
static void a_peer_that_acknowledges_nothing_is_cut_off_by_the_kernel(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    t.served.config.write_timeout_ms = 300;
    streamed_start(&t);
    struct listener vanished, there;
    listener_open_narrow(&vanished, &t, 1);
    listener_open(&there, &t, 2);
    char data[2001];
    memset(data, 'x', sizeof data - 1);
    data[sizeof data - 1] = '\0';
    for (uint64_t id = 1; id <= 6; id++)
        streamed_send(&t, 1, id, data);
    streamed_await_streams(&t, 1);
    served_await_stat(&t.served, timeouts, 1);
    assert_true(hub_has(t.hub, 2));
    listener_close(&vanished);
    listener_close(&there);
    streamed_done(&t);
}

/* ---- time ---- */

static void silence_is_broken_by_heartbeats(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    t.served.config.stream_heartbeat_ms = 40;
    streamed_start(&t);
    struct listener a, b;
    listener_open(&a, &t, 1);
    listener_open(&b, &t, 2);
    int64_t start = clock_mono_ms(clock_system());
    listener_await_comments(&a, 5); /* one is the handler's */
    listener_await_comments(&b, 5);
    assert_true(clock_mono_ms(clock_system()) - start >= 4 * 40 - 40);
    streamed_send(&t, 1, 1, "a");
    listener_expect(&a, 1, "message", "a");
    served_await_stat(&t.served, timeouts, 0);
    listener_close(&a);
    listener_close(&b);
    streamed_done(&t);
}

static void a_lifetime_ends_with_a_goodbye(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    t.served.config.stream_heartbeat_ms = 50;
    t.lifetime_ms = 120;
    streamed_start(&t);
    struct listener l;
    int64_t start = clock_mono_ms(clock_system());
    listener_open(&l, &t, 1);
    listener_expect(&l, 0, "hello", "1");
    listener_expect(&l, 0, "bye", "{\"reason\":\"expired\"}");
    listener_expect_end(&l);
    assert_true(clock_mono_ms(clock_system()) - start >= 110);
    streamed_await_streams(&t, 0);
    listener_close(&l);
    streamed_done(&t);
}

/* ---- limits ---- */

static int ask(struct streamed *t, const char *who)
{
    int fd = raw_connect(&t->served);
    char request[128];
    int n =
        snprintf(request, sizeof request, "GET /stream?person=%s HTTP/1.1\r\nHost: h\r\n\r\n", who);
    raw_send(fd, (struct str){request, (size_t)n});
    int status = raw_status(fd);
    close(fd);
    return status;
}

static void limits_by_person_and_by_node(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    t.hub_config.person_max = 2;
    t.hub_config.streams_max = 3;
    streamed_start(&t);
    struct listener l[3];
    listener_open(&l[0], &t, 1);
    listener_open(&l[1], &t, 1);
    assert_int_equal(ask(&t, "1"), 429);
    listener_open(&l[2], &t, 2);
    assert_int_equal(ask(&t, "3"), 503);
    struct hub_stats stats;
    hub_stats(t.hub, &stats);
    assert_int_equal(stats.streams, 3);
    assert_int_equal(stats.persons, 2);
    assert_int_equal(stats.refused, 2);
    listener_close(&l[0]);
    streamed_await_streams(&t, 2);
    listener_open(&l[0], &t, 1); /* there is room again */
    hub_close(t.hub, 1, "revoked");
    listener_expect(&l[0], 0, "hello", "1");
    listener_expect(&l[0], 0, "bye", "{\"reason\":\"revoked\"}");
    listener_expect_end(&l[0]);
    listener_expect(&l[1], 0, "hello", "1");
    listener_expect(&l[1], 0, "bye", "{\"reason\":\"revoked\"}");
    listener_expect_end(&l[1]);
    streamed_await_streams(&t, 1);
    assert_false(hub_has(t.hub, 1));
    assert_true(hub_has(t.hub, 2));
    for (int i = 0; i < 3; i++)
        listener_close(&l[i]);
    streamed_done(&t);
}

/* ---- the server's end ---- */

static void a_stop_says_goodbye(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    struct streamed t;
    streamed_init(&t);
    streamed_start(&t);
    struct listener l[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        listener_open(&l[i], &t, i);
    int64_t start = clock_mono_ms(clock_system());
    http_server_stop(t.served.server, PATIENCE_MS);
    assert_true(clock_mono_ms(clock_system()) - start < PATIENCE_MS / 2);
    unsigned different = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        assert_true(listener_next(&l[i])); /* hello */
        listener_expect(&l[i], 0, "bye", "{\"reason\":\"stopping\"}");
        assert_true(l[i].retry_ms >= 500 && l[i].retry_ms < 5000);
        different += l[i].retry_ms != l[0].retry_ms;
        listener_expect_end(&l[i]);
        listener_close(&l[i]);
    }
    assert_true(different > COUNT / 2);
    streamed_done(&t);
}

static void a_stop_does_not_wait_for_who_does_not_read(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    t.buffer_max = 64 * 1024 * 1024;
    streamed_start(&t);
    struct listener still;
    listener_open_narrow(&still, &t, 1);
    static char data[FRAME_DATA_MAX];
    memset(data, 'x', FRAME_DATA_MAX - 1);
    for (uint64_t id = 1; id <= 1000; id++)
        streamed_send(&t, 1, id, data);
    int64_t start = clock_mono_ms(clock_system());
    http_server_stop(t.served.server, 200);
    assert_true(clock_mono_ms(clock_system()) - start < PATIENCE_MS / 2);
    streamed_await_streams(&t, 0);
    listener_close(&still);
    streamed_done(&t);
}

/* A handler that comes too late: its loop has ended. */
static void a_start_after_the_servers_end(void **state)
{
    (void)state;
    struct streamed t;
    streamed_init(&t);
    streamed_start(&t);
    int fd = raw_connect(&t.served);
    raw_send(fd, STR("GET /hold?person=1 HTTP/1.1\r\nHost: h\r\n\r\n"));
    served_await_held(&t.served, 1);
    struct stream *s = stream_new(&encoding_sse, 0, 0);
    assert_int_equal(hub_join(t.hub, 1, s), OK);
    http_server_free(t.served.server);
    t.served.server = NULL;
    streamed_send(&t, 1, 1, "waits");
    t.served.held_count = 0;
    stream_start(s, t.served.held[0]);
    assert_true(stream_has_ended(s));
    assert_false(hub_has(t.hub, 1));
    stream_unref(s);
    close(fd);
    streamed_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_arrive_in_order),
        cmocka_unit_test(large_frames_arrive_whole),
        cmocka_unit_test(newer_events_take_the_place_of_older_ones),
        cmocka_unit_test(a_hot_group_does_not_fill_the_buffer),
        cmocka_unit_test(requests_before_it_are_answered_and_bytes_behind_it_dropped),
        cmocka_unit_test(a_stream_out_of_the_backlog),
        cmocka_unit_test(head_is_answered_with_the_head),
        cmocka_unit_test(http_1_0_gets_it_too),
        cmocka_unit_test(the_end_of_a_peer_is_noticed),
        cmocka_unit_test(peers_that_go_before_the_start),
        cmocka_unit_test(a_slow_reader_is_cut_off_and_others_go_on),
        cmocka_unit_test(a_reader_that_stands_still_is_cut_off_by_time),
        cmocka_unit_test(a_peer_that_acknowledges_nothing_is_cut_off_by_the_kernel),
        cmocka_unit_test(silence_is_broken_by_heartbeats),
        cmocka_unit_test(a_lifetime_ends_with_a_goodbye),
        cmocka_unit_test(limits_by_person_and_by_node),
        cmocka_unit_test(a_stop_says_goodbye),
        cmocka_unit_test(a_stop_does_not_wait_for_who_does_not_read),
        cmocka_unit_test(a_start_after_the_servers_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
