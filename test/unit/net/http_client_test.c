/* The blocking client against scripted servers: each connection is answered with the next script.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "net/http_client.h"
#include "net/listen.h"

/* What one connection does for each request it reads; NULL ends the connection. An answer that
 * begins with '!' is sent and the connection then closed; "?" reads the request and closes without
 * a word;
 * "~" never answers. */
struct script {
    const char *answers[4];
};

struct scripted {
    int listener;
    uint16_t port;
    const struct script *scripts;
    size_t script_count;
    pthread_t thread;
    int requests;
};

static void read_request(int fd)
{
    /* Every request of these tests ends with an empty line, or with "END" in its body. */
    char text[4096];
    size_t len = 0;
    for (;;) {
        ssize_t n = recv(fd, text + len, sizeof text - 1 - len, 0);
        if (n <= 0)
            return;
        len += (size_t)n;
        text[len] = '\0';
        if (strncmp(text, "POST", 4) == 0 ? strstr(text, "END") != NULL
                                          : strstr(text, "\r\n\r\n") != NULL)
            return;
    }
}

static void play(struct scripted *s, int fd, const struct script *script)
{
    for (size_t i = 0; i < COUNT_OF(script->answers) && script->answers[i]; i++) {
        const char *answer = script->answers[i];
        read_request(fd);
        s->requests++;
        if (strcmp(answer, "?") == 0)
            return;
        if (strcmp(answer, "~") == 0) {
            char byte;
            while (recv(fd, &byte, 1, 0) > 0)
                ;
            return;
        }
        bool last = answer[0] == '!';
        struct str text = str_of(answer + last);
        for (size_t k = 0; k < text.len; k++) /* byte by byte */
            if (send(fd, text.ptr + k, 1, MSG_NOSIGNAL) < 0)
                return;
        if (last)
            return;
    }
}

static void *run_scripts(void *arg)
{
    struct scripted *s = arg;
    for (size_t i = 0; i < s->script_count; i++) {
        struct pollfd p = {.fd = s->listener, .events = POLLIN};
        poll(&p, 1, 10000); /* the listener does not block, what it accepts does */
        int fd = accept(s->listener, NULL, NULL);
        if (fd < 0)
            return NULL;
        play(s, fd, &s->scripts[i]);
        close(fd);
    }
    return NULL;
}

static struct http_client *scripted_start(struct scripted *s, const struct script *scripts,
                                          size_t count)
{
    char why[200];
    *s = (struct scripted){.scripts = scripts, .script_count = count};
    s->listener = listen_tcp("127.0.0.1", &s->port, false, why);
    assert_true(s->listener >= 0);
    assert_int_equal(pthread_create(&s->thread, NULL, run_scripts, s), 0);
    struct http_client *c = http_client_tcp("127.0.0.1", s->port);
    assert_non_null(c);
    return c;
}

static void scripted_end(struct scripted *s, struct http_client *c, int requests)
{
    http_client_free(c);
    pthread_join(s->thread, NULL);
    close(s->listener);
    assert_int_equal(s->requests, requests);
}

static void assert_call(struct http_client *c, const char *method, enum err expected,
                        int expected_status, const char *expected_body)
{
    struct buf body;
    buf_init(&body, 0);
    buf_str(&body, STR("left over"));
    int status = 0;
    struct str sent = strcmp(method, "POST") == 0 ? STR("END") : STR("");
    assert_int_equal(http_client_call(c, method, "/", "X: y\r\n", sent, &status, &body, 5000),
                     expected);
    if (expected == OK) {
        assert_int_equal(status, expected_status);
        assert_true(str_eq(buf_view(&body), str_of(expected_body)));
    }
    buf_done(&body);
}

static void every_framing_is_read(void **state)
{
    (void)state;
    static const struct script scripts[] = {
        {{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
          "HTTP/1.1 201 Created\r\nTransfer-Encoding: "
          "chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
          "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
          "!HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nup to the end"}},
    };
    struct scripted s;
    struct http_client *c = scripted_start(&s, scripts, COUNT_OF(scripts));
    assert_call(c, "GET", OK, 200, "abc");
    assert_call(c, "POST", OK, 201, "abc");
    assert_call(c, "POST", OK, 204, "");
    assert_call(c, "GET", OK, 404, "up to the end");
    scripted_end(&s, c, 4);
}

static void head_answers_have_no_body(void **state)
{
    (void)state;
    static const struct script scripts[] = {
        {{"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n",
          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}},
    };
    struct scripted s;
    struct http_client *c = scripted_start(&s, scripts, COUNT_OF(scripts));
    assert_call(c, "HEAD", OK, 200, "");
    assert_call(c, "GET", OK, 200, "ok");
    scripted_end(&s, c, 2);
}

static void a_connection_closed_meanwhile_is_made_anew(void **state)
{
    (void)state;
    static const struct script scripts[] = {
        {{"!HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"}},
        {{"!HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nb"}},
        {{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nc",
          "?"}}, /* closes after the request was read */
        {{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nd"}},
    };
    struct scripted s;
    struct http_client *c = scripted_start(&s, scripts, COUNT_OF(scripts));
    assert_call(c, "GET", OK, 200, "a");
    poll(NULL, 0, 50); /* lets the end of the connection arrive: the next is a POST and would not be
                          repeated */
    assert_call(c, "POST", OK, 200, "b");
    assert_call(c, "GET", OK, 200, "c");
    assert_call(c, "GET", OK, 200, "d");
    scripted_end(&s, c, 5);
}

static void a_post_is_never_sent_twice(void **state)
{
    (void)state;
    static const struct script scripts[] = {
        {{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", "?"}},
        {{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb"}},
    };
    struct scripted s;
    struct http_client *c = scripted_start(&s, scripts, COUNT_OF(scripts));
    assert_call(c, "POST", OK, 200, "a");
    assert_call(c, "POST", ERR_UNKNOWN_COMMIT, 0, NULL);
    assert_call(c, "POST", OK, 200, "b");
    scripted_end(&s, c, 3);
}

static void broken_answers_are_errors(void **state)
{
    (void)state;
    static const struct script scripts[] = {
        {{"!HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"}},
        {{"!nonsense\r\n\r\n"}},
        {{"?"}},
    };
    struct scripted s;
    struct http_client *c = scripted_start(&s, scripts, COUNT_OF(scripts));
    assert_call(c, "GET", ERR_UNAVAILABLE, 0, NULL);
    assert_call(c, "GET", ERR_UNAVAILABLE, 0, NULL);
    assert_call(c, "GET", ERR_UNAVAILABLE, 0,
                NULL); /* a new connection is not tried a second time */
    scripted_end(&s, c, 3);
}

static void silence_times_out(void **state)
{
    (void)state;
    static const struct script scripts[] = {{{"~"}}};
    struct scripted s;
    struct http_client *c = scripted_start(&s, scripts, COUNT_OF(scripts));
    struct buf body;
    buf_init(&body, 0);
    int status = 0;
    assert_int_equal(http_client_call(c, "GET", "/", NULL, STR(""), &status, &body, 50),
                     ERR_TIMEOUT);
    buf_done(&body);
    scripted_end(&s, c, 1);
}

static void the_bodys_ceiling_is_kept(void **state)
{
    (void)state;
    static const struct script scripts[] = {
        {{"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n12345678"}}};
    struct scripted s;
    struct http_client *c = scripted_start(&s, scripts, COUNT_OF(scripts));
    struct buf body;
    buf_init(&body, 4);
    int status = 0;
    assert_int_equal(http_client_call(c, "GET", "/", NULL, STR(""), &status, &body, 5000),
                     ERR_TOO_LARGE);
    buf_done(&body);
    scripted_end(&s, c, 1);
}

static void an_absent_server_is_null(void **state)
{
    (void)state;
    char why[200];
    uint16_t port = 0;
    int fd = listen_tcp("127.0.0.1", &port, false, why);
    close(fd);
    assert_null(http_client_tcp("127.0.0.1", port));
    assert_null(http_client_unix("/tmp/fantail-no-such-socket"));
}

static void assert_header(const struct http_client *c, const char *name, const char *value)
{
    struct str got = http_client_header(c, name);
    if (value ? !str_eq(got, str_of(value)) : got.ptr != NULL)
        fail_msg("%s is '%.*s'", name, STR_ARG(got));
}

static void headers_of_the_last_answer_are_kept(void **state)
{
    (void)state;
    static const struct script scripts[] = {
        {{"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\nHTTP/1.1 200 OK\r\nX-Empty:\r\nX-One: 1\r\n"
          "x-two:  a: b \r\nX-One: again\r\nContent-Length: 0\r\n\r\n",
          "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "?"}},
        {{"?"}},
    };
    struct scripted s;
    struct http_client *c = scripted_start(&s, scripts, COUNT_OF(scripts));
    assert_header(c, "x-one", NULL);
    assert_call(c, "GET", OK, 200, "");
    assert_header(c, "x-one", "1");
    assert_header(c, "X-TWO", "a: b");
    assert_header(c, "x-empty", "");
    assert_header(c, "x-early", NULL);
    assert_header(c, "x-on", NULL);
    assert_call(c, "GET", OK, 200, "");
    assert_header(c, "x-one", NULL);
    assert_header(c, "content-length", "0");
    assert_call(c, "GET", ERR_UNAVAILABLE, 0, "");
    assert_header(c, "content-length", NULL);
    scripted_end(&s, c, 4);
}

static void later_connects_with_the_first_call(void **state)
{
    (void)state;
    static const struct script scripts[] = {{{NULL}},
                                            {{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"}}};
    struct scripted s;
    http_client_free(scripted_start(&s, scripts, COUNT_OF(scripts)));
    struct http_client *c = http_client_later("127.0.0.1", s.port);
    assert_call(c, "POST", OK, 200, "hi");
    scripted_end(&s, c, 1);
    c = http_client_later("127.0.0.1", s.port); /* no server listens there any more */
    assert_call(c, "POST", ERR_UNAVAILABLE, 0, "");
    http_client_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_framing_is_read),
        cmocka_unit_test(head_answers_have_no_body),
        cmocka_unit_test(a_connection_closed_meanwhile_is_made_anew),
        cmocka_unit_test(a_post_is_never_sent_twice),
        cmocka_unit_test(broken_answers_are_errors),
        cmocka_unit_test(silence_times_out),
        cmocka_unit_test(the_bodys_ceiling_is_kept),
        cmocka_unit_test(an_absent_server_is_null),
        cmocka_unit_test(headers_of_the_last_answer_are_kept),
        cmocka_unit_test(later_connects_with_the_first_call),
    };
    return cmocka_run_group_tests_name("net/http_client", tests, NULL, NULL);
}
