/* Limits on waiting and on numbers, with small values, and draining. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "served.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/proxy.h"

enum { LONG_MS = 60 * 1000 };

/* All limits far away; a test sets its own. */
static void init(struct served *s)
{
    served_init(s);
    s->config.head_timeout_ms = s->config.idle_timeout_ms = LONG_MS;
    s->config.write_timeout_ms = s->config.body_grace_ms = LONG_MS;
}

static uint64_t timeouts(const struct http_stats *stats)
{
    return stats->timeouts;
}

static uint64_t connections(const struct http_stats *stats)
{
    return stats->connections;
}

static uint64_t refused(const struct http_stats *stats)
{
    return stats->refused;
}

static void idle_connections_are_closed_in_silence(void **state)
{
    (void)state;
    struct served s;
    init(&s);
    s.config.idle_timeout_ms = 60;
    s.config.head_timeout_ms = 80; /* also of who never spoke */
    served_start(&s);
    int never_spoke = raw_connect(&s), spoke = raw_connect(&s), busy = raw_connect(&s);
    raw_send(busy, STR("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"));
    raw_send(spoke, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_int_equal(raw_status(spoke), 200);
    raw_assert_closed(never_spoke);
    raw_assert_closed(spoke);
    served_await_stat(&s, timeouts, 2);
    served_await_held(&s, 1); /* a request in flight is not idle */
    served_release(&s);
    assert_int_equal(raw_status(busy), 200);
    close(never_spoke);
    close(spoke);
    close(busy);
    served_done(&s);
}

/* Slowloris: bytes keep coming, the head never ends. */
static void slow_heads_are_answered_408(void **state)
{
    (void)state;
    struct served s;
    init(&s);
    s.config.head_timeout_ms = 80;
    served_start(&s);
    int fd = raw_connect(&s), blank = raw_connect(&s);
    raw_send(blank, STR("\r\n"));
    raw_send(fd, STR("GET / HTTP/1.1\r\nHost: h\r\n"));
    int64_t start = clock_mono_ms(clock_system());
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 5) == 0) {
        assert_true(clock_mono_ms(clock_system()) - start < PATIENCE_MS);
        if (!raw_try_send(fd, STR("X: y\r\n")))
            break;
    }
    assert_int_equal(raw_status(fd), 408);
    raw_assert_closed(blank); /* who sent nothing of a head gets no answer */
    served_await_stat(&s, timeouts, 2);
    close(fd);
    close(blank);
    served_done(&s);
}

static void slow_bodies_are_answered_408(void **state)
{
    (void)state;
    struct served s;
    init(&s);
    s.config.body_grace_ms = 50;
    s.config.body_min_rate = 100000;
    served_start(&s);
    int slow = raw_connect(&s);
    raw_send(slow, STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nabc"));
    assert_int_equal(raw_status(slow), 408);
    raw_assert_closed(slow);
    served_await_stat(&s, timeouts, 1);

    /* One that is slower than the grace but fast enough on the whole gets through. */
    char part[20000];
    memset(part, 'x', sizeof part);
    int fast = raw_connect(&s);
    raw_send(fast, STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n"));
    for (int i = 0; i < 5; i++) {
        raw_send(fast, (struct str){part, sizeof part});
        poll(NULL, 0, 20);
    }
    assert_int_equal(raw_status(fast), 200);
    close(slow);
    close(fast);
    served_done(&s);
}

static void who_never_speaks_has_as_long_as_a_head(void **state)
{
    (void)state;
    struct served s;
    init(&s);
    s.config.head_timeout_ms = 80;
    served_start(&s);
    int never_spoke = raw_connect(&s), spoke = raw_connect(&s);
    raw_send(spoke, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_int_equal(raw_status(spoke), 200);
    raw_assert_closed(never_spoke);
    served_await_stat(&s, timeouts, 1);
    raw_send(spoke, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_int_equal(raw_status(spoke), 200); /* between requests there is more time */
    close(never_spoke);
    close(spoke);
    served_done(&s);
}

static void readers_that_take_a_little_now_and_then_are_closed(void **state)
{
    (void)state;
    struct served s;
    init(&s);
    s.config.body_grace_ms = 200;
    s.config.body_min_rate = 100000000;
    served_start(&s);
    int fd = raw_connect(&s);
    char bytes[4096];
    raw_send(fd, STR("GET /big?n=40000000 HTTP/1.1\r\nHost: h\r\n\r\n"));
    size_t total = 0;
    int64_t start = clock_mono_ms(clock_system());
    for (ssize_t n; (n = recv(fd, bytes, sizeof bytes, 0)) > 0; total += (size_t)n) {
        assert_true(clock_mono_ms(clock_system()) - start < PATIENCE_MS);
        poll(NULL, 0, 5);
    }
    assert_true(total < 40000000);
    served_await_stat(&s, timeouts, 1);
    close(fd);
    served_done(&s);
}

static void an_address_has_so_many_connections_and_trusted_proxies_have_more(void **state)
{
    (void)state;
    struct served s;
    struct proxies proxies;
    char why[200];
    for (int trusted = 0; trusted < 2; trusted++) {
        init(&s);
        assert_true(proxies_parse(trusted ? "127.0.0.0/8" : "", &proxies, why));
        s.config.address_max = 2;
        s.config.proxies = &proxies;
        served_start(&s);
        int first = raw_connect(&s), second = raw_connect(&s);
        raw_send(first, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
        raw_send(second, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_int_equal(raw_status(first), 200);
        assert_int_equal(raw_status(second), 200);
        int third = raw_connect(&s);
        if (trusted)
            raw_send(third, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_int_equal(raw_status(third), trusted ? 200 : 429);
        close(third);
        close(first);
        served_await_stat(&s, connections, 1);
        first = raw_connect(&s); /* there is room again */
        raw_send(first, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_int_equal(raw_status(first), 200);
        close(first);
        close(second);
        served_done(&s);
    }
}

static void readers_that_stop_are_closed(void **state)
{
    (void)state;
    struct served s;
    init(&s);
    s.config.write_timeout_ms = 400;
    served_start(&s);
    int fd = raw_connect(&s);
    raw_send(fd, STR("GET /big?n=40000000 HTTP/1.1\r\nHost: h\r\n\r\n"));
    served_await_stat(&s, timeouts, 1);
    served_await_stat(&s, connections, 0);
    close(fd);

    /* One that reads, if slowly, is not: each pause is shorter than the limit, all of them longer.
     */
    fd = raw_connect(&s);
    raw_send(fd, STR("GET /big?n=40000000 HTTP/1.1\r\nHost: h\r\n\r\n"));
    size_t total = 0;
    char *buffer = malloc(1 << 20);
    assert_non_null(buffer);
    for (;;) {
        ssize_t n = recv(fd, buffer, 1 << 20, 0);
        assert_true(n > 0);
        total += (size_t)n;
        if (total > 40000000)
            break;
        poll(NULL, 0, total < 25000000 ? 30 : 0);
    }
    free(buffer);
    served_await_stat(&s, timeouts, 1);
    close(fd);
    served_done(&s);
}

static void connections_beyond_the_limit_are_told_so(void **state)
{
    (void)state;
    struct served s;
    init(&s);
    s.config.connections_max = 4;
    char path[] = "/tmp/fantail-control-XXXXXX";
    int made = mkstemp(path);
    assert_true(made >= 0);
    close(made);
    unlink(path);
    s.config.control_path = path;
    served_start(&s);
    int fds[4];
    for (size_t i = 0; i < COUNT_OF(fds); i++) {
        fds[i] = raw_connect(&s);
        raw_send(fds[i], STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_int_equal(raw_status(fds[i]), 200);
    }
    int extra = raw_connect(&s);
    struct buf b;
    buf_init(&b, 0);
    raw_try_send(extra, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_true(raw_read_answer(extra, &b, false));
    assert_int_equal(strncmp(b.ptr, "HTTP/1.1 503 ", 13), 0);
    assert_non_null(strstr(b.ptr, "\r\nRetry-After: "));
    assert_non_null(strstr(b.ptr, "\r\nConnection: close\r\n"));
    raw_assert_closed(extra);
    close(extra);
    buf_done(&b);
    served_await_stat(&s, refused, 1);
    served_await_stat(&s, connections, 4);

    raw_send(fds[0], STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n")); /* the others go on */
    assert_int_equal(raw_status(fds[0]), 200);
    close(fds[0]);
    served_await_stat(&s, connections, 3);
    fds[0] = raw_connect(&s); /* and one that leaves makes room */
    raw_send(fds[0], STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_int_equal(raw_status(fds[0]), 200);
    for (size_t i = 0; i < COUNT_OF(fds); i++)
        close(fds[i]);
    served_done(&s);
}

/* Unfinished bodies of one loop are bounded together: 64 MiB. */
static void bodies_are_bounded_together(void **state)
{
    (void)state;
    enum { FITTING = 60, TOO_MANY = 70 };
    struct served s;
    init(&s);
    s.config.loops = 1;
    served_start(&s);
    char *body = calloc(1, HTTP_BODY_MAX);
    assert_non_null(body);
    int fds[TOO_MANY];
    for (size_t i = 0; i < TOO_MANY; i++) {
        fds[i] = raw_connect(&s);
        raw_send(fds[i],
                 STR("PUT /status?n=200 HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n"));
        raw_send(fds[i], (struct str){body, HTTP_BODY_MAX - 1});
    }
    int shed = 0;
    for (size_t i = TOO_MANY; i-- > 0;) {
        bool sent = raw_try_send(fds[i], STR("!"));
        int status = raw_status(fds[i]);
        assert_true(status == 200 || status == 503);
        assert_true(sent || status == 503);
        shed += status == 503;
        close(fds[i]);
    }
    assert_true(shed > 0 && shed <= TOO_MANY - FITTING);
    free(body);
    int fd = raw_connect(&s); /* and all of it comes back */
    raw_send(fd, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_int_equal(raw_status(fd), 200);
    close(fd);
    served_done(&s);
}

struct stopper {
    struct served *s;
    pthread_t thread;
    int64_t grace_ms;
    int64_t took_ms;
};

static void *run_stop(void *arg)
{
    struct stopper *p = arg;
    int64_t start = clock_mono_ms(clock_system());
    http_server_stop(p->s->server, p->grace_ms);
    p->took_ms = clock_mono_ms(clock_system()) - start;
    return NULL;
}

static void draining_finishes_what_is_in_flight(void **state)
{
    (void)state;
    struct served s;
    init(&s);
    served_start(&s);
    int idle = raw_connect(&s), busy = raw_connect(&s), half = raw_connect(&s);
    raw_send(idle, STR("GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_int_equal(raw_status(idle), 200);
    raw_send(half, STR("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na"));
    raw_send(busy, STR("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"));
    served_await_held(&s, 1);

    struct stopper stopper = {.s = &s, .grace_ms = PATIENCE_MS};
    assert_int_equal(pthread_create(&stopper.thread, NULL, run_stop, &stopper), 0);
    raw_assert_closed(idle); /* so draining has begun */
    struct buf b;
    buf_init(&b, 0);
    raw_send(half, STR("bc"));
    assert_true(raw_read_answer(half, &b, false));
    assert_non_null(strstr(b.ptr, "\r\nConnection: close\r\n"));
    assert_non_null(strstr(b.ptr, "body=abc"));
    served_release(&s);
    assert_true(raw_read_answer(busy, &b, false));
    assert_int_equal(strncmp(b.ptr, "HTTP/1.1 200 ", 13), 0);
    assert_non_null(strstr(b.ptr, "\r\nConnection: close\r\n"));
    raw_assert_closed(busy);
    pthread_join(stopper.thread, NULL);
    assert_true(stopper.took_ms < PATIENCE_MS);
    buf_done(&b);
    close(idle);
    close(busy);
    close(half);
    served_done(&s);
}

static void draining_ends_after_its_grace(void **state)
{
    (void)state;
    struct served s;
    init(&s);
    served_start(&s);
    int fd = raw_connect(&s);
    raw_send(fd, STR("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"));
    served_await_held(&s, 1);
    struct stopper stopper = {.s = &s, .grace_ms = 100};
    run_stop(&stopper);
    assert_true(stopper.took_ms >= 100 && stopper.took_ms < PATIENCE_MS);
    raw_assert_closed(fd);
    close(fd);
    served_done(&s); /* answers it, too late */
}

/* Answers race with the end of the loops, over and over. */
static void stopping_under_load_is_clean(void **state)
{
    (void)state;
    for (int round = 0; round < 15; round++) {
        struct served s;
        init(&s);
        served_start(&s);
        int fds[12];
        for (size_t i = 0; i < COUNT_OF(fds); i++) {
            fds[i] = raw_connect(&s);
            for (int k = 0; k < 20; k++)
                raw_try_send(fds[i],
                             STR("POST /later HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"));
        }
        http_server_stop(s.server, round % 3);
        http_server_free(s.server);
        s.server = NULL;
        for (size_t i = 0; i < COUNT_OF(fds); i++)
            close(fds[i]);
        served_done(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_connections_are_closed_in_silence),
        cmocka_unit_test(slow_heads_are_answered_408),
        cmocka_unit_test(slow_bodies_are_answered_408),
        cmocka_unit_test(who_never_speaks_has_as_long_as_a_head),
        cmocka_unit_test(readers_that_take_a_little_now_and_then_are_closed),
        cmocka_unit_test(an_address_has_so_many_connections_and_trusted_proxies_have_more),
        cmocka_unit_test(readers_that_stop_are_closed),
        cmocka_unit_test(connections_beyond_the_limit_are_told_so),
        cmocka_unit_test(bodies_are_bounded_together),
        cmocka_unit_test(draining_finishes_what_is_in_flight),
        cmocka_unit_test(draining_ends_after_its_grace),
        cmocka_unit_test(stopping_under_load_is_clean),
    };
    return cmocka_run_group_tests_name("net/server_waits", tests, NULL, NULL);
}
