/* The fixture of the stream tests; see streamed.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "streamed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

enum { LONG_MS = 60 * 1000 };

struct later {
    struct pool_task task;
    struct streamed *t;
    struct http_exchange *x;
};

static void open_stream(struct streamed *t, struct http_exchange *x)
{
    struct str text;
    uint64_t person = 0;
    CHECK(http_query(x, STR("person"), &text) && str_parse_u64(text, &person));
    struct stream *s = stream_new(&encoding_sse, t->buffer_max, t->lifetime_ms);
    enum err e = hub_join(t->hub, person, s);
    if (e == OK) {
        struct frame *hello =
            frame_new(&(struct frame_text){.name = STR("hello"), .data = text}, &encoding_sse);
        stream_send(s, hello);
        frame_unref(hello);
        buf_str(&x->out, STR(": first\n\n"));
        http_add_header(x, "X-Extra", "yes");
        stream_start(s, x);
    } else {
        x->status = err_http_status(e);
        http_answer(x);
    }
    stream_unref(s);
}

static void run_later(struct pool_task *task)
{
    struct later *later = CONTAINER_OF(task, struct later, task);
    open_stream(later->t, later->x);
}

static void handle(void *ctx, struct http_exchange *x)
{
    struct streamed *t = ctx;
    struct served *s = &t->served;
    if (str_eq(x->path, STR("/stream"))) {
        open_stream(t, x);
    } else if (str_eq(x->path, STR("/later"))) {
        struct later *later = ARENA_NEW(&x->arena, struct later);
        *later = (struct later){.task.run = run_later, .t = t, .x = x};
        CHECK(pool_submit(s->pool, &later->task));
    } else if (str_eq(x->path, STR("/hold"))) {
        pthread_mutex_lock(&s->lock);
        CHECK(s->held_count < SERVED_HELD_MAX);
        s->held[s->held_count++] = x;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    } else {
        buf_str(&x->out, x->body);
        http_answer(x);
    }
}

void streamed_init(struct streamed *t)
{
    *t = (struct streamed){.hub_config = {.streams_max = 100000, .person_max = 8}};
    served_init(&t->served);
    struct http_config *c = &t->served.config;
    c->handler = handle;
    c->handler_ctx = t;
    c->connections_max = 100000;
    c->head_timeout_ms = c->idle_timeout_ms = LONG_MS;
    c->write_timeout_ms = c->body_grace_ms = c->stream_heartbeat_ms = LONG_MS;
}

void streamed_start(struct streamed *t)
{
    t->hub = hub_new(&t->hub_config);
    served_start(&t->served);
}

void streamed_start_held(struct streamed *t)
{
    struct http_exchange *held[SERVED_HELD_MAX];
    struct served *s = &t->served;
    pthread_mutex_lock(&s->lock);
    size_t n = s->held_count;
    s->held_count = 0;
    memcpy(held, s->held, sizeof held);
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < n; i++)
        open_stream(t, held[i]);
}

void streamed_done(struct streamed *t)
{
    http_server_free(t->served.server);
    t->served.server = NULL;
    streamed_start_held(t); /* nobody is left to send them to */
    served_done(&t->served);
    hub_free(t->hub); /* which checks that all are gone */
}

void streamed_await_streams(struct streamed *t, uint64_t count)
{
    struct hub_stats stats;
    for (int i = 0; i < PATIENCE_MS; i++) {
        hub_stats(t->hub, &stats);
        if (stats.streams == count)
            return;
        poll(NULL, 0, 1);
    }
    fail_msg("%lu streams, not %lu", (unsigned long)stats.streams, (unsigned long)count);
}

void streamed_send(struct streamed *t, uint64_t person, uint64_t id, const char *data)
{
    const struct frame_text text = {.name = STR("message"), .id = id, .data = str_of(data)};
    hub_send(t->hub, &person, 1, &text);
}

/* ---- the client ---- */

void listener_over(struct listener *l, int fd)
{
    *l = (struct listener){.fd = fd};
    struct buf head;
    buf_init(&head, 0);
    assert_true(raw_read_answer(fd, &head, false));
    if (strncmp(head.ptr, "HTTP/1.1 200 OK\r\n", 17) != 0)
        fail_msg("%s", head.ptr);
    assert_null(strstr(head.ptr, "Content-Length"));
    assert_non_null(strstr(head.ptr, "\r\nConnection: close\r\n"));
    assert_non_null(strstr(head.ptr, "\r\nContent-Type: text/event-stream\r\n"));
    assert_non_null(strstr(head.ptr, "\r\nCache-Control: no-store\r\n"));
    assert_non_null(strstr(head.ptr, "\r\nX-Accel-Buffering: no\r\n"));
    assert_non_null(strstr(head.ptr, "\r\nX-Extra: yes\r\n"));
    buf_done(&head);
    buf_init(&l->in, 0);
}

static void ask(struct listener *l, int fd, uint64_t person)
{
    char request[128];
    int n = snprintf(request, sizeof request, "GET /stream?person=%lu HTTP/1.1\r\nHost: h\r\n\r\n",
                     (unsigned long)person);
    raw_send(fd, (struct str){request, (size_t)n});
    listener_over(l, fd);
}

void listener_open(struct listener *l, const struct streamed *t, uint64_t person)
{
    ask(l, raw_connect(&t->served), person);
}

void listener_open_narrow(struct listener *l, const struct streamed *t, uint64_t person)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    const int small = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(http_server_port(t->served.server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ask(l, fd, person);
}

void listener_close(struct listener *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    buf_done(&l->in);
}

static bool read_more(struct listener *l)
{
    if (l->used > 0) {
        memmove(l->in.ptr, l->in.ptr + l->used, l->in.len - l->used);
        l->in.len -= l->used;
        l->used = 0;
    }
    char *to = buf_reserve(&l->in, 4096);
    assert_non_null(to);
    ssize_t n = recv(l->fd, to, 4096, 0);
    if (n < 0 && errno != ECONNRESET)
        fail_msg("nothing comes: %s", strerror(errno));
    if (n <= 0)
        return false;
    l->in.len += (size_t)n;
    return true;
}

static void read_line(struct listener *l, struct str line)
{
    if (str_starts(line, STR(":"))) {
        l->comments++;
    } else if (str_starts(line, STR("retry: "))) {
        l->retry_ms = (unsigned)strtoul(line.ptr + 7, NULL, 10);
    } else if (str_starts(line, STR("id: "))) {
        assert_true(str_parse_u64((struct str){line.ptr + 4, line.len - 4}, &l->id));
    } else if (str_starts(line, STR("event: "))) {
        snprintf(l->name, sizeof l->name, "%.*s", (int)line.len - 7, line.ptr + 7);
    } else if (str_starts(line, STR("data: "))) {
        l->data = (struct str){line.ptr + 6, line.len - 6};
    } else {
        fail_msg("a line that is none: <%.*s>", STR_ARG(line));
    }
}

/* One block of lines up to an empty one. False: the stream ended. */
static bool read_block(struct listener *l)
{
    const char *end;
    while (l->in.len == l->used ||
           !(end = memmem(l->in.ptr + l->used, l->in.len - l->used, "\n\n", 2)))
        if (!read_more(l))
            return false;
    struct str rest = {l->in.ptr + l->used, (size_t)(end - l->in.ptr) - l->used}, line;
    l->id = 0;
    l->name[0] = '\0';
    l->data = (struct str){0};
    while (str_split(&rest, '\n', &line))
        read_line(l, line);
    l->used = (size_t)(end - l->in.ptr) + 2;
    return true;
}

bool listener_next(struct listener *l)
{
    do {
        if (!read_block(l))
            return false;
    } while (!l->data.ptr);
    return true;
}

void listener_expect(struct listener *l, uint64_t id, const char *name, const char *data)
{
    assert_true(listener_next(l));
    assert_int_equal(l->id, id);
    assert_string_equal(l->name, name);
    if (!str_eq(l->data, str_of(data)))
        fail_msg("<%.*s>, not <%s>", STR_ARG(l->data), data);
}

void listener_expect_end(struct listener *l)
{
    if (listener_next(l))
        fail_msg("<%s> came, not the end", l->name);
    assert_int_equal(l->in.len,
                     l->used); /* an end that was meant is not in the middle of a frame */
}

void listener_await_comments(struct listener *l, unsigned count)
{
    while (l->comments < count)
        assert_true(read_block(l));
}
