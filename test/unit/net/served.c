/* The fixture of the server tests; see served.h. Every wait ends after PATIENCE_MS with a failure.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "served.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

struct later {
    struct pool_task task;
    struct http_exchange *x;
};

static void echo(struct http_exchange *x)
{
    static const char *names[] = {"GET",   "HEAD",   "POST",    "PUT",
                                  "PATCH", "DELETE", "OPTIONS", "OTHER"};
    x->content_type = STR("text/plain");
    buf_printf(&x->out, "%s %.*s peer=%.*s control=%d body=", names[x->method], STR_ARG(x->target),
               STR_ARG(x->peer), x->control);
    buf_str(&x->out, x->body);
}

/* Held answers are written only when they are sent. */
static void complete(struct http_exchange *x)
{
    struct served *s = x->user;
    char thread[16] = "";
    pthread_getname_np(pthread_self(), thread, sizeof thread);
    atomic_fetch_add(&s->completed, 1);
    if (strncmp(thread, "http-", 5) == 0)
        atomic_fetch_add(&s->completed_on_loop, 1);
    echo(x);
}

static void run_later(struct pool_task *task)
{
    struct http_exchange *x = CONTAINER_OF(task, struct later, task)->x;
    echo(x);
    http_answer(x);
}

static void handle(void *ctx, struct http_exchange *x)
{
    struct served *s = ctx;
    struct str n_text;
    uint64_t n = 0;
    if (http_query(x, STR("n"), &n_text))
        CHECK(str_parse_u64(n_text, &n));
    if (str_eq(x->path, STR("/later"))) {
        struct later *later = ARENA_NEW(&x->arena, struct later);
        *later = (struct later){.task.run = run_later, .x = x};
        CHECK(pool_submit(s->pool, &later->task));
        return;
    }
    if (str_eq(x->path, STR("/hold"))) {
        pthread_mutex_lock(&s->lock);
        CHECK(s->held_count < SERVED_HELD_MAX);
        s->held[s->held_count++] = x;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        return;
    }
    if (str_eq(x->path, STR("/release")))
        served_release(s);
    if (str_eq(x->path, STR("/big"))) {
        char *to = buf_reserve(&x->out, n);
        CHECK(to);
        for (size_t i = 0; i < n; i++)
            to[i] = (char)('a' + i % 23);
        x->out.len = n;
    } else if (str_eq(x->path, STR("/status"))) {
        x->status = (int)n;
    } else {
        echo(x);
    }
    if (str_eq(x->path, STR("/header"))) {
        struct str asked = http_header(x, STR("x-aSk"));
        http_add_header(x, "X-Told", "<%.*s>", STR_ARG(asked));
    }
    x->close = str_eq(x->path, STR("/close"));
    http_answer(x);
}

void served_init(struct served *s)
{
    *s = (struct served){0};
    http_config_default(&s->config);
    s->config.listen_port = 0;
    s->config.loops = 2;
    s->config.handler = handle;
    s->config.handler_ctx = s;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
}

void served_start(struct served *s)
{
    char why[200] = "";
    s->pool = pool_new(2, 1024, "later");
    if (http_server_start(&s->config, &s->server, why) != OK)
        fail_msg("%s", why);
}

void served_done(struct served *s)
{
    http_server_free(s->server);
    served_release(s);
    pool_free(s->pool);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
}

void served_await_held(struct served *s, size_t count)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_MS / 1000;
    pthread_mutex_lock(&s->lock);
    int r = 0;
    while (s->held_count < count && r == 0)
        r = pthread_cond_timedwait(&s->changed, &s->lock, &until);
    pthread_mutex_unlock(&s->lock);
    assert_int_equal(r, 0);
}

void served_release(struct served *s)
{
    struct http_exchange *held[SERVED_HELD_MAX];
    pthread_mutex_lock(&s->lock);
    size_t n = s->held_count;
    s->held_count = 0;
    memcpy(held, s->held, sizeof held);
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < n; i++) {
        held[i]->user = s;
        http_answer_by(held[i], complete);
    }
}

void served_await_stat(struct served *s, uint64_t (*read)(const struct http_stats *),
                       uint64_t value)
{
    struct http_stats stats;
    for (int i = 0; i < PATIENCE_MS; i++) {
        http_server_stats(s->server, &stats);
        if (read(&stats) == value)
            return;
        poll(NULL, 0, 1);
    }
    fail_msg("the counter reads %lu, not %lu", (unsigned long)read(&stats), (unsigned long)value);
}

int raw_connect(const struct served *s)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(http_server_port(s->server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return fd;
}

bool raw_try_send(int fd, struct str bytes)
{
    size_t sent = 0;
    while (sent < bytes.len) {
        ssize_t n = send(fd, bytes.ptr + sent, bytes.len - sent, MSG_NOSIGNAL);
        if (n < 0) {
            assert_true(errno == EPIPE || errno == ECONNRESET);
            return false;
        }
        sent += (size_t)n;
    }
    return true;
}

void raw_send(int fd, struct str bytes)
{
    assert_true(raw_try_send(fd, bytes));
}

/* Exactly n bytes; false at the end of the stream. */
static bool read_bytes(int fd, struct buf *out, size_t n)
{
    while (n > 0) {
        char *to = buf_reserve(out, n + 1);
        assert_non_null(to);
        ssize_t got = recv(fd, to, n, 0);
        if (got < 0 && errno != ECONNRESET)
            fail_msg("no answer: %s", strerror(errno));
        if (got <= 0)
            return false;
        out->len += (size_t)got;
        n -= (size_t)got;
        out->ptr[out->len] = '\0';
    }
    return true;
}

bool raw_read_answer(int fd, struct buf *out, bool no_body)
{
    buf_clear(out);
    do {
        if (!read_bytes(fd, out, 1))
            return false;
    } while (out->len < 4 || memcmp(out->ptr + out->len - 4, "\r\n\r\n", 4) != 0);
    const char *length = strstr(out->ptr, "Content-Length: ");
    if (!length || no_body)
        return true;
    return read_bytes(fd, out, (size_t)strtoul(length + 16, NULL, 10));
}

int raw_status(int fd)
{
    struct buf out;
    buf_init(&out, 0);
    int status = 0;
    if (raw_read_answer(fd, &out, false)) {
        assert_int_equal(strncmp(out.ptr, "HTTP/1.1 ", 9), 0);
        status = atoi(out.ptr + 9);
    }
    buf_done(&out);
    return status;
}

void raw_assert_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);
    if (n > 0 || (n < 0 && errno != ECONNRESET))
        fail_msg("the connection is open");
}
