/* The server over real sockets: order, framing, threads, large answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "served.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "net/http_client.h"

static int start(void **state)
{
    struct served *s = malloc(sizeof *s);
    served_init(s);
    served_start(s);
    *state = s;
    return 0;
}

static int stop(void **state)
{
    served_done(*state);
    free(*state);
    return 0;
}

static void assert_answer(int fd, const char *body)
{
    struct buf b;
    buf_init(&b, 0);
    assert_true(raw_read_answer(fd, &b, false));
    const char *start_of_body = strstr(b.ptr, "\r\n\r\n");
    assert_non_null(start_of_body);
    assert_string_equal(start_of_body + 4, body);
    buf_done(&b);
}

static void answers_carry_the_usual_headers(void **state)
{
    int fd = raw_connect(*state);
    raw_send(fd, STR("GET /header HTTP/1.1\r\nHost: h\r\nX-Ask: why\r\n\r\n"));
    struct buf b;
    buf_init(&b, 0);
    assert_true(raw_read_answer(fd, &b, false));
    assert_int_equal(strncmp(b.ptr, "HTTP/1.1 200 OK\r\nDate: ", 23), 0);
    int day, year, hour, minute, second;
    char weekday[4], month[4];
    assert_int_equal(sscanf(b.ptr + 23, "%3s, %2d %3s %4d %2d:%2d:%2d GMT\r\n", weekday, &day,
                            month, &year, &hour, &minute, &second),
                     7);
    assert_true(year >= 2024 && day >= 1 && day <= 31);
    assert_non_null(strstr(b.ptr, "\r\nContent-Type: text/plain\r\n"));
    assert_non_null(strstr(b.ptr, "\r\nContent-Length: 42\r\n"));
    assert_non_null(strstr(b.ptr, "\r\nX-Told: <why>\r\n"));
    assert_null(strstr(b.ptr, "Connection:"));
    buf_done(&b);
    close(fd);
}

static void connections_are_kept(void **state)
{
    int fd = raw_connect(*state);
    for (int i = 0; i < 50; i++) {
        raw_send(fd, STR("GET /echo?a HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_answer(fd, "GET /echo?a peer=127.0.0.1 control=0 body=");
        raw_send(fd, STR("POST /later HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"));
        assert_answer(fd, "POST /later peer=127.0.0.1 control=0 body=abc");
    }
    close(fd);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    int fd = raw_connect(*state);
    struct buf b;
    buf_init(&b, 0);
    for (int i = 0; i < 300; i++) {
        buf_printf(&b, "POST /%s?%d HTTP/1.1\r\nHost: h\r\n", i % 3 ? "later" : "echo", i);
        if (i % 2)
            buf_printf(&b, "Content-Length: 2\r\n\r\nxy");
        else
            buf_printf(&b, "Transfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n");
    }
    raw_send(fd, buf_view(&b));
    for (int i = 0; i < 300; i++) {
        char expected[100];
        snprintf(expected, sizeof expected, "POST /%s?%d peer=127.0.0.1 control=0 body=xy",
                 i % 3 ? "later" : "echo", i);
        assert_answer(fd, expected);
    }
    buf_done(&b);
    close(fd);
}

/* More than the server will keep: it must stop reading, and go on later. */
static void pipelining_while_one_is_in_flight_waits(void **state)
{
    enum { COUNT = 5000 };
    struct served *s = *state;
    int fd = raw_connect(s);
    struct buf b;
    buf_init(&b, 0);
    buf_str(&b, STR("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"));
    for (int i = 0; i < COUNT; i++)
        buf_printf(&b, "GET /echo?%d HTTP/1.1\r\nHost: h\r\n\r\n", i);
    raw_send(fd, buf_view(&b));
    served_await_held(s, 1);
    served_release(s);
    assert_answer(fd, "GET /hold peer=127.0.0.1 control=0 body=");
    for (int i = 0; i < COUNT; i++) {
        char expected[100];
        snprintf(expected, sizeof expected, "GET /echo?%d peer=127.0.0.1 control=0 body=", i);
        assert_answer(fd, expected);
    }
    buf_done(&b);
    close(fd);
}

static void a_held_answer_is_written_on_its_loop(void **state)
{
    struct served *s = *state;
    int fd[4];
    for (int i = 0; i < 4; i++) {
        fd[i] = raw_connect(s);
        raw_send(fd[i], STR("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"));
        served_await_held(s, (size_t)i + 1);
    }
    close(fd[3]); /* whose answer nobody reads */
    served_release(s);
    for (int i = 0; i < 3; i++) {
        assert_answer(fd[i], "GET /hold peer=127.0.0.1 control=0 body=");
        close(fd[i]);
    }
    http_server_stop(s->server, 0);
    assert_int_equal(s->completed, 4);
    assert_int_equal(s->completed_on_loop, 4);
}

/* Whoever holds it may have something to end with it. */
static void an_answer_that_comes_after_the_end_is_still_written(void **state)
{
    struct served *s = *state;
    int fd = raw_connect(s);
    raw_send(fd, STR("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"));
    served_await_held(s, 1);
    http_server_stop(s->server, 0);
    served_release(s);
    assert_int_equal(s->completed, 1);
    assert_int_equal(s->completed_on_loop, 0);
    close(fd);
}

static void a_request_may_come_byte_by_byte(void **state)
{
    struct str bytes = STR("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                           "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    int fd = raw_connect(*state);
    for (size_t cut = 1; cut < bytes.len;
         cut++) { /* TCP_NODELAY is not set here: some are merged, that is fine */
        raw_send(fd, (struct str){bytes.ptr, cut});
        raw_send(fd, (struct str){bytes.ptr + cut, bytes.len - cut});
        assert_answer(fd, "POST /echo peer=127.0.0.1 control=0 body=abc");
    }
    for (size_t i = 0; i < bytes.len; i++)
        raw_send(fd, (struct str){bytes.ptr + i, 1});
    assert_answer(fd, "POST /echo peer=127.0.0.1 control=0 body=abc");
    close(fd);
}

static void head_has_no_body_but_its_length(void **state)
{
    int fd = raw_connect(*state);
    struct buf b;
    buf_init(&b, 0);
    raw_send(
        fd,
        STR("HEAD /big?n=1234 HTTP/1.1\r\nHost: h\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_true(raw_read_answer(fd, &b, true));
    assert_non_null(strstr(b.ptr, "\r\nContent-Length: 1234\r\n"));
    assert_answer(fd, "GET /echo peer=127.0.0.1 control=0 body=");
    raw_send(fd, STR("GET /status?n=204 HTTP/1.1\r\nHost: h\r\n\r\nGET /status?n=404 "
                     "HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_true(raw_read_answer(fd, &b, true));
    assert_int_equal(strncmp(b.ptr, "HTTP/1.1 204 No Content\r\n", 25), 0);
    assert_null(strstr(b.ptr, "\r\nContent-"));
    assert_non_null(strstr(b.ptr, "\r\nX-Content-Type-Options: nosniff\r\n"));
    assert_true(raw_read_answer(fd, &b, false));
    assert_int_equal(strncmp(b.ptr, "HTTP/1.1 404 Not Found\r\n", 24), 0);
    assert_non_null(strstr(b.ptr, "\r\nContent-Length: 0\r\n"));
    buf_done(&b);
    close(fd);
}

static void http_1_0_and_close_are_honoured(void **state)
{
    static const struct {
        struct str request;
        const char *header; /* NULL: kept without a word */
        bool closed;
    } cases[] = {
        {{"GET /echo HTTP/1.0\r\n\r\n", 22}, "\r\nConnection: close\r\n", true},
        {{"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 46},
         "\r\nConnection: keep-alive\r\n",
         false},
        {{"GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 50},
         "\r\nConnection: close\r\n",
         true},
        {{"GET /close HTTP/1.1\r\nHost: h\r\n\r\n", 32}, "\r\nConnection: close\r\n", true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int fd = raw_connect(*state);
        struct buf b;
        buf_init(&b, 0);
        raw_send(fd, cases[i].request);
        assert_true(raw_read_answer(fd, &b, false));
        assert_non_null(strstr(b.ptr, cases[i].header));
        if (cases[i].closed) {
            raw_assert_closed(fd);
        } else {
            raw_send(fd, cases[i].request);
            assert_int_equal(raw_status(fd), 200);
        }
        buf_done(&b);
        close(fd);
    }
}

static void a_half_closed_client_gets_its_answer(void **state)
{
    struct served *s = *state;
    int fd = raw_connect(s);
    raw_send(fd, STR("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"));
    served_await_held(s, 1);
    shutdown(fd, SHUT_WR);
    served_release(s);
    assert_int_equal(raw_status(fd), 200);
    raw_assert_closed(fd);
    close(fd);
}

static void continue_is_sent_when_asked_for(void **state)
{
    int fd = raw_connect(*state);
    struct buf b;
    buf_init(&b, 0);
    raw_send(
        fd,
        STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"));
    assert_true(raw_read_answer(fd, &b, true));
    assert_string_equal(b.ptr, "HTTP/1.1 100 Continue\r\n\r\n");
    raw_send(fd, STR("abc"));
    assert_answer(fd, "POST /echo peer=127.0.0.1 control=0 body=abc");
    raw_send(fd, STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: "
                     "100-continue\r\n\r\nabc"));
    assert_answer(fd, "POST /echo peer=127.0.0.1 control=0 body=abc");
    raw_send(fd, STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999\r\nExpect: "
                     "100-continue\r\n\r\n"));
    assert_int_equal(raw_status(fd), 413);
    raw_assert_closed(fd);
    buf_done(&b);
    close(fd);
}

static void huge_answers_reach_slow_readers(void **state)
{
    enum { SIZE = 24 * 1024 * 1024 };
    int fd = raw_connect(*state);
    char request[100];
    int n = snprintf(request, sizeof request, "GET /big?n=%d HTTP/1.1\r\nHost: h\r\n\r\n", SIZE);
    raw_send(fd, (struct str){request, (size_t)n});
    raw_send(fd, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    struct buf b;
    buf_init(&b, 0);
    assert_true(raw_read_answer(fd, &b, false));
    const char *body = strstr(b.ptr, "\r\n\r\n") + 4;
    assert_int_equal(b.ptr + b.len - body, SIZE);
    for (size_t i = 0; i < SIZE; i++)
        if (body[i] != (char)('a' + i % 23))
            fail_msg("byte %zu is wrong", i);
    assert_answer(fd, "GET /echo peer=127.0.0.1 control=0 body=");
    buf_done(&b);
    close(fd);
}

static void an_answer_beyond_its_limit_is_500(void **state)
{
    struct served *s = *state;
    int fd = raw_connect(s);
    raw_send(fd, STR("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"));
    served_await_held(s, 1);
    s->held[0]->out.max = 10;
    served_release(s);
    struct buf b;
    buf_init(&b, 0);
    assert_true(raw_read_answer(fd, &b, false));
    assert_int_equal(strncmp(b.ptr, "HTTP/1.1 500 ", 13), 0);
    assert_non_null(strstr(b.ptr, "\"status\":500"));
    buf_done(&b);
    raw_send(fd, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_answer(fd, "GET /echo peer=127.0.0.1 control=0 body=");
    close(fd);
}

/* A handler may answer other exchanges of its own loop; the requests that wait behind those are
 * handled after it, never inside it. */
static void a_handler_may_answer_others(void **state)
{
    (void)state;
    struct served s;
    served_init(&s);
    s.config.loops = 1;
    served_start(&s);
    int held[5], releaser = raw_connect(&s);
    for (size_t i = 0; i < COUNT_OF(held); i++) {
        held[i] = raw_connect(&s);
        raw_send(held[i],
                 STR("GET /hold HTTP/1.1\r\nHost: h\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    }
    served_await_held(&s, COUNT_OF(held));
    raw_send(releaser, STR("GET /release HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_answer(releaser, "GET /release peer=127.0.0.1 control=0 body=");
    for (size_t i = 0; i < COUNT_OF(held); i++) {
        assert_answer(held[i], "GET /hold peer=127.0.0.1 control=0 body=");
        assert_answer(held[i], "GET /echo peer=127.0.0.1 control=0 body=");
        close(held[i]);
    }
    close(releaser);
    served_done(&s);
}

static uint64_t connections(const struct http_stats *stats)
{
    return stats->connections;
}

static void answers_to_those_who_left_are_dropped(void **state)
{
    struct served *s = *state;
    for (size_t i = 1; i <= 20; i++) {
        int fd = raw_connect(s);
        raw_send(fd, STR("POST /hold HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"));
        served_await_held(s, i);
        const struct linger reset = {.l_onoff = 1};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fd);
    }
    served_await_stat(s, connections, 0);
    assert_int_equal(s->held[3]->body.len, 3); /* the request is still all there */
    served_release(s);
    int fd = raw_connect(s);
    raw_send(fd, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_int_equal(raw_status(fd), 200);
    close(fd);
}

/* The contract of http_answer: any thread, and at any time until the exchange is answered. */
static void answers_may_come_after_the_server_has_gone(void **state)
{
    (void)state;
    struct served s;
    served_init(&s);
    served_start(&s);
    int fd = raw_connect(&s);
    raw_send(fd, STR("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"));
    served_await_held(&s, 1);
    http_server_stop(s.server, 0);
    http_server_free(s.server);
    s.server = NULL;
    served_release(&s);
    raw_assert_closed(fd);
    close(fd);
    served_done(&s);
}

struct caller {
    pthread_t thread;
    uint16_t port;
    int failures;
};

static void *call_often(void *arg)
{
    struct caller *c = arg;
    struct http_client *client = http_client_tcp("127.0.0.1", c->port);
    struct buf body;
    buf_init(&body, 0);
    for (int i = 0; client && i < 300; i++) {
        int status = 0;
        char sent[32], expected[100];
        int n = snprintf(sent, sizeof sent, "%d", i);
        snprintf(expected, sizeof expected, "POST /later peer=127.0.0.1 control=0 body=%d", i);
        enum err e = http_client_call(client, "POST", "/later", NULL, (struct str){sent, (size_t)n},
                                      &status, &body, 10000);
        if (e != OK || status != 200 || !str_eq(buf_view(&body), str_of(expected)))
            c->failures++;
    }
    if (!client)
        c->failures++;
    buf_done(&body);
    http_client_free(client);
    return NULL;
}

static void many_threads_answer_many_connections(void **state)
{
    struct served *s = *state;
    struct caller callers[8];
    for (size_t i = 0; i < COUNT_OF(callers); i++) {
        callers[i] = (struct caller){.port = http_server_port(s->server)};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
    }
    for (size_t i = 0; i < COUNT_OF(callers); i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].failures, 0);
    }
    struct http_stats stats;
    http_server_stats(s->server, &stats);
    assert_true(stats.requests >= 8 * 300);
}

static void problems_are_json_and_close(void **state)
{
    int fd = raw_connect(*state);
    /* The bytes that follow would be a request of their own if the connection went on. */
    raw_send(
        fd,
        STR("GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    struct buf b;
    buf_init(&b, 0);
    assert_true(raw_read_answer(fd, &b, false));
    assert_int_equal(strncmp(b.ptr, "HTTP/1.1 400 Bad Request\r\n", 26), 0);
    assert_non_null(strstr(b.ptr, "\r\nContent-Type: application/problem+json\r\n"));
    assert_non_null(strstr(b.ptr, "\r\nConnection: close\r\n"));
    assert_string_equal(strstr(b.ptr, "\r\n\r\n") + 4,
                        "{\"type\":\"/docs#problem-bad_input\",\"code\":\"bad_input\","
                        "\"title\":\"Bad Request\",\"status\":400,"
                        "\"detail\":\"a carriage return must be followed by a line feed\"}");
    raw_assert_closed(fd);
    buf_done(&b);
    close(fd);
}

static void each_refusal_has_its_status(void **state)
{
    struct buf many_lines, long_line;
    buf_init(&many_lines, 0);
    buf_init(&long_line, 0);
    buf_str(&many_lines, STR("GET / HTTP/1.1\r\nHost: h\r\n"));
    for (int i = 0; i < 200; i++)
        buf_str(&many_lines, STR("A: b\r\n"));
    buf_str(&many_lines, STR("\r\n"));
    buf_str(&long_line, STR("GET / HTTP/1.1\r\nHost: h\r\nX: "));
    memset(buf_reserve(&long_line, 300000), 'x', 300000);
    long_line.len += 300000;
    const struct {
        struct str bytes;
        int status;
    } cases[] = {
        {STR("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: "
             "chunked\r\n\r\n"),
         400},
        {STR("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
         400},
        {STR("GET / HTTP/1.1\nHost: h\n\n"), 400},
        {STR("GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n"), 400},
        {STR("GET / HTTP/1.1\r\nHost : h\r\n\r\n"), 400},
        {STR("GET / HTTP/1.1\r\n\r\n"), 400},
        {STR("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400},
        {STR("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1048577\r\n\r\nabc"), 413},
        {STR("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\nabc"), 413},
        {STR("POST / HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n"), 417},
        {STR("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n"), 501},
        {STR("GET / HTTP/3.0\r\nHost: h\r\n\r\n"), 505},
        {buf_view(&many_lines), 431},
        {buf_view(&long_line), 431},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int fd = raw_connect(*state);
        raw_try_send(fd, cases[i].bytes);
        assert_int_equal(raw_status(fd), cases[i].status);
        raw_assert_closed(fd);
        close(fd);
    }
    buf_done(&many_lines);
    buf_done(&long_line);
}

/* A client that sends all of a body that is too large must still be able to read why. */
static void a_refused_body_does_not_reset_the_answer(void **state)
{
    enum { SIZE = 2 * 1024 * 1024 };
    char *bytes = calloc(1, SIZE);
    assert_non_null(bytes);
    for (int i = 0; i < 5; i++) {
        int fd = raw_connect(*state);
        raw_send(fd, STR("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2097152\r\n\r\n"));
        raw_send(fd, (struct str){bytes, SIZE});
        assert_int_equal(raw_status(fd), 413);
        close(fd);
    }
    free(bytes);
}

static void two_servers_do_not_share_a_port(void **state)
{
    struct served *s = *state;
    struct http_config config = s->config;
    config.listen_port = http_server_port(s->server);
    struct http_server *second = NULL;
    char why[200] = "";
    for (config.loops = 1; config.loops <= 2; config.loops++) {
        assert_int_equal(http_server_start(&config, &second, why), ERR_UNAVAILABLE);
        assert_non_null(strstr(why, "address in use"));
        assert_null(second);
    }
}

static void the_control_socket_is_its_owners(void **state)
{
    (void)state;
    /* Deep enough that the path does not fit a socket address. */
    char folder[300] = "/tmp/fantail-net-XXXXXX";
    assert_non_null(mkdtemp(folder));
    size_t root_len = strlen(folder);
    snprintf(folder + root_len, sizeof folder - root_len, "/%0120d", 7);
    assert_int_equal(mkdir(folder, 0700), 0);
    char path[400];
    snprintf(path, sizeof path, "%s/control.sock", folder);

    for (int round = 0; round < 2;
         round++) { /* the second finds the file that the first is made to leave */
        struct served s;
        served_init(&s);
        s.config.control_path = path;
        s.config.listen_host = round == 0 ? "127.0.0.1" : NULL;
        served_start(&s);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);

        struct http_client *c = http_client_unix(path);
        assert_non_null(c);
        struct buf body;
        buf_init(&body, 0);
        int status = 0;
        assert_int_equal(http_client_call(c, "GET", "/echo", NULL, STR(""), &status, &body, 5000),
                         OK);
        assert_int_equal(status, 200);
        assert_true(str_eq(buf_view(&body), STR("GET /echo peer= control=1 body=")));
        http_client_free(c);
        buf_done(&body);

        struct http_server *second = NULL;
        char why[200] = "";
        struct http_config again = s.config;
        again.listen_port = 0;
        assert_int_equal(http_server_start(&again, &second, why), ERR_UNAVAILABLE);
        assert_non_null(strstr(why, "address in use"));

        char aside[420];
        snprintf(aside, sizeof aside, "%s.aside", path);
        if (round == 0)
            assert_int_equal(rename(path, aside), 0);
        served_done(&s);
        if (round == 0)
            assert_int_equal(rename(aside, path), 0);
        else
            assert_int_not_equal(stat(path, &st), 0);
    }
    assert_null(http_client_unix(path));
    rmdir(folder);
    folder[root_len] = '\0';
    rmdir(folder);
}

int main(void)
{
#define SERVED(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        SERVED(answers_carry_the_usual_headers),
        SERVED(connections_are_kept),
        SERVED(pipelined_requests_are_answered_in_order),
        SERVED(pipelining_while_one_is_in_flight_waits),
        SERVED(a_held_answer_is_written_on_its_loop),
        SERVED(an_answer_that_comes_after_the_end_is_still_written),
        SERVED(a_request_may_come_byte_by_byte),
        SERVED(head_has_no_body_but_its_length),
        SERVED(http_1_0_and_close_are_honoured),
        SERVED(a_half_closed_client_gets_its_answer),
        SERVED(continue_is_sent_when_asked_for),
        SERVED(huge_answers_reach_slow_readers),
        SERVED(an_answer_beyond_its_limit_is_500),
        cmocka_unit_test(a_handler_may_answer_others),
        SERVED(answers_to_those_who_left_are_dropped),
        cmocka_unit_test(answers_may_come_after_the_server_has_gone),
        SERVED(many_threads_answer_many_connections),
        SERVED(problems_are_json_and_close),
        SERVED(each_refusal_has_its_status),
        SERVED(a_refused_body_does_not_reset_the_answer),
        SERVED(two_servers_do_not_share_a_port),
        cmocka_unit_test(the_control_socket_is_its_owners),
    };
    return cmocka_run_group_tests_name("net/server", tests, NULL, NULL);
}
