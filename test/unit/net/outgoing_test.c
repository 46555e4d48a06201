/* The outgoing client against a real server, and against sockets that behave badly: what each
 * failure is called decides whether a delivery is tried again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "net/listen.h"
#include "net/outgoing.h"
#include "served.h"

enum { MANY = 3000 };

static struct served server;
static struct outgoing *client;

struct heard {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int count;
    enum err e;
    int status;
    int64_t retry_after_ms;
    char body[4096];
};

static void heard_init(struct heard *h)
{
    *h = (struct heard){.e = ERR_INTERNAL};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
}

static void on_done(void *ctx, enum err e, const struct outgoing_answer *answer)
{
    struct heard *h = ctx;
    pthread_mutex_lock(&h->lock);
    h->count++;
    h->e = e;
    h->status = answer->status;
    h->retry_after_ms = answer->retry_after_ms;
    snprintf(h->body, sizeof h->body, "%.*s", (int)answer->body.len,
             answer->body.len ? answer->body.ptr : "");
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

static void await(struct heard *h, int count)
{
    pthread_mutex_lock(&h->lock);
    while (h->count < count)
        pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

static void send_to(uint16_t port, const char *path, struct str body, int64_t timeout_ms,
                    struct heard *h)
{
    static const char *const headers[] = {"Content-Type: text/plain", "X-Test: yes", NULL};
    char url[200];
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", port, path);
    outgoing_send(client, &(struct outgoing_request){.method = "POST",
                                                     .url = url,
                                                     .headers = headers,
                                                     .body = body,
                                                     .timeout_ms = timeout_ms,
                                                     .done = on_done,
                                                     .ctx = h});
}

static int set_up(void **state)
{
    (void)state;
    struct outgoing_config config;
    outgoing_config_default(&config);
    config.answer_max = 3000;
    served_init(&server);
    served_start(&server);
    client = outgoing_new(&config);
    assert_non_null(client);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    outgoing_free(client);
    served_done(&server);
    return 0;
}

static void test_answers(void **state)
{
    (void)state;
    struct heard h;
    heard_init(&h);
    uint16_t port = http_server_port(server.server);
    send_to(port, "/echo?a=1", STR("hello"), PATIENCE_MS, &h);
    await(&h, 1);
    assert_int_equal(h.e, OK);
    assert_int_equal(h.status, 200);
    assert_non_null(strstr(h.body, "POST"));
    assert_non_null(strstr(h.body, "/echo?a=1"));
    assert_non_null(strstr(h.body, "hello"));
    send_to(port, "/status?n=503", STR(""), PATIENCE_MS, &h);
    await(&h, 2);
    assert_int_equal(h.e, OK); /* an answer, and the caller's to judge */
    assert_int_equal(h.status, 503);
    send_to(port, "/big?n=5000", STR("x"), PATIENCE_MS, &h);
    await(&h, 3);
    assert_int_equal(h.e, ERR_TOO_LARGE);
    assert_int_equal(h.status, 200);
}

static void test_many(void **state)
{
    (void)state;
    struct heard h;
    heard_init(&h);
    for (int i = 0; i < MANY; i++)
        send_to(http_server_port(server.server), "/echo", STR("many"), PATIENCE_MS, &h);
    await(&h, MANY);
    struct outgoing_stats stats;
    outgoing_stats(client, &stats);
    assert_int_equal(stats.answered, MANY);
    assert_int_equal(stats.under_way, 0);
    struct http_stats of_server;
    http_server_stats(server.server, &of_server);
    assert_true(of_server.accepted <= 64); /* connections are kept */
}

/* A port without a listener. */
static uint16_t free_port(void)
{
    uint16_t port = 0;
    char why[200];
    int fd = listen_tcp("127.0.0.1", &port, false, why);
    assert_true(fd >= 0);
    close(fd);
    return port;
}

static void test_what_failures_are_called(void **state)
{
    (void)state;
    struct heard h;
    heard_init(&h);
    send_to(free_port(), "/", STR("x"), PATIENCE_MS, &h);
    await(&h, 1);
    assert_int_equal(h.e, ERR_UNAVAILABLE); /* no server is there: it did not happen */
    send_to(http_server_port(server.server), "/hold", STR("x"), 200, &h);
    await(&h, 2);
    assert_int_equal(h.e, ERR_UNKNOWN_COMMIT); /* it was sent, and no answer came */
    send_to(http_server_port(server.server), "/close", STR("x"), PATIENCE_MS, &h);
    await(&h, 3);
    outgoing_send(client, &(struct outgoing_request){.method = "GET",
                                                     .url = "gopher://127.0.0.1/",
                                                     .timeout_ms = 1000,
                                                     .done = on_done,
                                                     .ctx = &h});
    await(&h, 4);
    assert_int_equal(h.e, ERR_BAD_INPUT);
    outgoing_send(client, &(struct outgoing_request){.method = "GET",
                                                     .url = "file:///etc/hostname",
                                                     .timeout_ms = 1000,
                                                     .done = on_done,
                                                     .ctx = &h});
    await(&h, 5);
    assert_int_equal(h.e, ERR_BAD_INPUT);
    served_release(&server);
}

static void test_limits_and_the_end(void **state)
{
    (void)state;
    struct heard h;
    heard_init(&h);
    outgoing_free(client);
    struct outgoing_config config;
    outgoing_config_default(&config);
    config.under_way_max = 2;
    client = outgoing_new(&config);
    uint16_t port = http_server_port(server.server);
    send_to(port, "/hold", STR("x"), PATIENCE_MS, &h);
    send_to(port, "/hold", STR("x"), PATIENCE_MS, &h);
    served_await_held(&server, 2);
    struct heard refused;
    heard_init(&refused);
    send_to(port, "/echo", STR("x"), PATIENCE_MS, &refused);
    assert_int_equal(refused.count, 1);
    assert_int_equal(refused.e, ERR_OVERLOADED);
    outgoing_free(client); /* calls under way end with an unknown outcome */
    client = NULL;
    assert_int_equal(h.count, 2);
    assert_int_equal(h.e, ERR_UNKNOWN_COMMIT);
    served_release(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_failures_are_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_limits_and_the_end, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
