/* The blocking client: one connection, one request at a time, one deadline over all of a call.
 *
 * The server may have closed a kept connection since the last call. The client checks before it
 * sends. When it finds out only afterwards (no byte of an answer came), it sends a request that may
 * be repeated once more on a new connection, and reports one that may not (POST, PATCH) as
 * ERR_UNKNOWN_COMMIT: the server may have carried it out. */
#include "net/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <llhttp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/listen.h"

enum { READ_SIZE = 16 * 1024, CONNECT_TIMEOUT_MS = 5000, HEAD_KEPT_MAX = 16 * 1024 };

struct http_client {
    char *socket_path; /* or: */
    char *host;
    uint16_t port;
    int fd;
    bool used; /* the connection has carried a call */
    struct buf request;
    struct buf head; /* of the last answer: "name:value\n", as far as there is room */
    char read_buffer[READ_SIZE];
};

/* One answer as it is read. */
struct answer {
    struct http_client *client;
    struct buf *body;
    bool to_head; /* of a HEAD request: no body follows */
    bool began, complete, keep_alive;
    int status;
};

static int64_t now_ms(void)
{
    return clock_mono_ms(clock_system());
}

static void disconnect(struct http_client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->used = false;
}

/* Waits for `events`; false: the deadline passed. */
static bool await(int fd, short events, int64_t deadline_ms)
{
    for (;;) {
        int64_t left = deadline_ms - now_ms();
        if (left <= 0)
            return false;
        struct pollfd p = {.fd = fd, .events = events};
        int r = poll(&p, 1, left > 60000 ? 60000 : (int)left);
        if (r > 0)
            return true;
        if (r < 0 && errno != EINTR)
            return true; /* the call that follows reports it */
    }
}

static int connect_one(const struct addrinfo *a, int64_t deadline_ms)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int error = 0;
    socklen_t len = sizeof error;
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
        error = errno;
        if (error == EINPROGRESS && await(fd, POLLOUT, deadline_ms) &&
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
            error = errno;
    }
    if (error != 0) {
        close(fd);
        return -1;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int connect_tcp(const char *host, uint16_t port, int64_t deadline_ms)
{
    char service[8];
    snprintf(service, sizeof service, "%u", (unsigned)port);
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    if (getaddrinfo(host, service, &wanted, &found) != 0)
        return -1;
    int fd = -1;
    for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
        fd = connect_one(a, deadline_ms);
    freeaddrinfo(found);
    return fd;
}

static bool reconnect(struct http_client *c, int64_t deadline_ms)
{
    int64_t latest_ms = now_ms() + CONNECT_TIMEOUT_MS;
    if (deadline_ms > latest_ms)
        deadline_ms = latest_ms;
    disconnect(c);
    if (c->socket_path) {
        c->fd = connect_unix(c->socket_path);
        if (c->fd >= 0)
            fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
    } else {
        c->fd = connect_tcp(c->host, c->port, deadline_ms);
    }
    return c->fd >= 0;
}

static struct http_client *new_client(void)
{
    struct http_client *c = calloc(1, sizeof *c);
    CHECK(c);
    c->fd = -1;
    buf_init(&c->request, 0);
    buf_init(&c->head, HEAD_KEPT_MAX);
    return c;
}

static struct http_client *connected_or_null(struct http_client *c)
{
    if (reconnect(c, now_ms() + CONNECT_TIMEOUT_MS))
        return c;
    http_client_free(c);
    return NULL;
}

struct http_client *http_client_unix(const char *socket_path)
{
    struct http_client *c = new_client();
    c->socket_path = strdup(socket_path);
    CHECK(c->socket_path);
    return connected_or_null(c);
}

struct http_client *http_client_later(const char *host, uint16_t port)
{
    struct http_client *c = new_client();
    c->host = strdup(host);
    CHECK(c->host);
    c->port = port;
    return c;
}

struct http_client *http_client_tcp(const char *host, uint16_t port)
{
    return connected_or_null(http_client_later(host, port));
}

void http_client_free(struct http_client *c)
{
    if (!c)
        return;
    disconnect(c);
    buf_done(&c->request);
    buf_done(&c->head);
    free(c->socket_path);
    free(c->host);
    free(c);
}

/* ---- the answer ---- */

static int on_begin(llhttp_t *parser)
{
    struct answer *a = parser->data;
    buf_clear(&a->client->head); /* what a 100 Continue said is of no interest */
    return 0;
}

static int on_head_part(llhttp_t *parser, const char *at, size_t len)
{
    struct answer *a = parser->data;
    buf_append(&a->client->head, at, len);
    return 0;
}

static int on_name_end(llhttp_t *parser)
{
    return on_head_part(parser, ":", 1);
}

static int on_value_end(llhttp_t *parser)
{
    return on_head_part(parser, "\n", 1);
}

static int on_head_end(llhttp_t *parser)
{
    struct answer *a = parser->data;
    a->status = parser->status_code;
    a->keep_alive = llhttp_should_keep_alive(parser);
    return a->to_head ? 1 : 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t len)
{
    struct answer *a = parser->data;
    buf_append(a->body, at, len);
    return 0;
}

static int on_answer_end(llhttp_t *parser)
{
    struct answer *a = parser->data;
    if (a->status / 100 == 1)
        return 0; /* 100 Continue: the answer proper follows */
    a->complete = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t answer_settings = {
    .on_message_begin = on_begin,
    .on_header_field = on_head_part,
    .on_header_field_complete = on_name_end,
    .on_header_value = on_head_part,
    .on_header_value_complete = on_value_end,
    .on_headers_complete = on_head_end,
    .on_body = on_body,
    .on_message_complete = on_answer_end,
};

static enum err send_request(struct http_client *c, int64_t deadline_ms)
{
    size_t sent = 0;
    while (sent < c->request.len) {
        ssize_t n = send(c->fd, c->request.ptr + sent, c->request.len - sent, MSG_NOSIGNAL);
        if (n >= 0) {
            sent += (size_t)n;
        } else if (errno == EAGAIN) {
            if (!await(c->fd, POLLOUT, deadline_ms))
                return ERR_TIMEOUT;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            break; /* it may have answered before it closed: a 413, a 503 */
        } else if (errno != EINTR) {
            return ERR_UNAVAILABLE;
        }
    }
    return OK;
}

static enum err read_answer(struct http_client *c, struct answer *a, int64_t deadline_ms)
{
    llhttp_t parser;
    llhttp_init(&parser, HTTP_RESPONSE, &answer_settings);
    parser.data = a;
    while (!a->complete) {
        ssize_t n = recv(c->fd, c->read_buffer, sizeof c->read_buffer, 0);
        if (n > 0) {
            a->began = true;
            llhttp_errno_t r = llhttp_execute(&parser, c->read_buffer, (size_t)n);
            if (r != HPE_OK && !a->complete)
                return ERR_UNAVAILABLE;
            if (a->body->failed)
                return ERR_TOO_LARGE;
        } else if (n < 0 && errno == EAGAIN) {
            if (!await(c->fd, POLLIN, deadline_ms))
                return ERR_TIMEOUT;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (!a->began || n < 0 || llhttp_finish(&parser) != HPE_PAUSED || !a->complete) {
            /* An answer that ends with the connection has ended in llhttp_finish. */
            return ERR_UNAVAILABLE;
        }
    }
    return OK;
}

static enum err try_call(struct http_client *c, struct answer *a, int64_t deadline_ms)
{
    buf_clear(a->body);
    buf_clear(&c->head);
    a->complete = false;
    enum err e = send_request(c, deadline_ms);
    if (!e)
        e = read_answer(c, a, deadline_ms);
    if (!e && a->keep_alive)
        c->used = true;
    else
        disconnect(c);
    return e;
}

/* Nothing is expected on a connection between two calls: readable means closed. */
static bool was_closed(const struct http_client *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    return c->fd < 0 || poll(&p, 1, 0) != 0;
}

static bool may_repeat(const char *method)
{
    return strcmp(method, "POST") != 0 && strcmp(method, "PATCH") != 0;
}

static void write_request(struct http_client *c, const char *method, const char *target,
                          const char *headers, struct str body)
{
    buf_clear(&c->request);
    const char *host = c->host ? c->host : "localhost";
    bool bracketed = strchr(host, ':') != NULL; /* an IPv6 address */
    buf_printf(&c->request, "%s %s HTTP/1.1\r\nHost: %s%s%s\r\n%s", method, target,
               bracketed ? "[" : "", host, bracketed ? "]" : "", headers ? headers : "");
    if (body.len > 0 || !may_repeat(method) || strcmp(method, "PUT") == 0)
        buf_printf(&c->request, "Content-Length: %zu\r\n", body.len);
    buf_append(&c->request, "\r\n", 2);
    if (body.len > 0)
        buf_str(&c->request, body);
}

enum err http_client_call(struct http_client *c, const char *method, const char *target,
                          const char *headers, struct str request_body, int *status,
                          struct buf *body, int64_t timeout_ms)
{
    int64_t deadline_ms = now_ms() + timeout_ms;
    write_request(c, method, target, headers, request_body);
    if (c->request.failed)
        return ERR_NO_MEMORY;
    struct answer a = {.client = c, .body = body, .to_head = strcmp(method, "HEAD") == 0};
    if (was_closed(c) && !reconnect(c, deadline_ms))
        return ERR_UNAVAILABLE;
    bool kept = c->used;
    enum err e = try_call(c, &a, deadline_ms);
    if (e == ERR_UNAVAILABLE && !a.began && kept && may_repeat(method)) {
        if (!reconnect(c, deadline_ms))
            return ERR_UNAVAILABLE;
        e = try_call(c, &a, deadline_ms);
    }
    if (!e)
        *status = a.status;
    return e == ERR_UNAVAILABLE && !may_repeat(method) ? ERR_UNKNOWN_COMMIT : e;
}

struct str http_client_header(const struct http_client *c, const char *name)
{
    struct str rest = buf_view(&c->head), line, found;
    while (str_split(&rest, '\n', &line)) {
        if (str_split(&line, ':', &found) && str_eq_nocase(found, str_of(name)))
            return str_trim(line);
    }
    return (struct str){NULL, 0};
}
