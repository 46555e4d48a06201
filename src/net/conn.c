/* The connection's state machine.
 *
 *   NEW or IDLE → HEAD → BODY → BUSY → WRITE → IDLE …, or → LINGER → closed, or → STREAM ⇄
 * STREAM_WRITE
 *
 * with the steps that take no time left out: a GET that arrives whole goes IDLE → BUSY → IDLE
 * inside one read callback. One request is in flight at a time, so answers are in order by
 * construction; bytes that arrive meanwhile go to the backlog once, and reading stops until it is
 * used up.
 *
 * Lists: a connection is in the list of its state. NEW, IDLE, HEAD and LINGER have one constant
 * limit each, so their lists are sorted by age and only their heads are looked at; BODY, WRITE and
 * STREAM_WRITE are looked through, because progress counts there. STREAM: see conn_stream.c.
 *
 * Closing: uv_close takes a turn of the loop, so a struct conn stays valid to the end of the
 * callback that closed it; every step after something that may close looks at the state again. An
 * exchange that a handler still has is cut off (`conn` = NULL) and lives on until it is answered.
 */
#include "net/conn.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/fault.h"
#include "net/limits.h"
#include "net/peers.h"
#include "net/proxy.h"
#include "net/stream_state.h"

enum {
    LINGER_MS = 1000,
    LINGER_DRAINING_MS = 200,
    LINGER_BYTES_MAX = 4 * 1024 * 1024, /* discarded at most: four bodies' worth */
};

/* ---- states ---- */

static void leave_list(struct conn *c)
{
    struct conn_list *list = &c->loop->conns[c->state];
    if (c->prev)
        c->prev->next = c->next;
    else
        list->first = c->next;
    if (c->next)
        c->next->prev = c->prev;
    else
        list->last = c->prev;
}

static void enter_state(struct conn *c, enum conn_state state)
{
    struct conn_list *list = &c->loop->conns[state];
    c->state = (uint8_t)state;
    c->since_ms = loop_now_ms(c->loop);
    c->next = NULL;
    c->prev = list->last;
    if (list->last)
        list->last->next = c;
    else
        list->first = c;
    list->last = c;
}

void conn_change_state(struct conn *c, enum conn_state state)
{
    leave_list(c);
    enter_state(c, state);
}

/* ---- closing ---- */

static void on_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    struct loop *loop = c->loop;
    CHECK(c->x == NULL);
    buf_done(&c->backlog);
    atomic_fetch_sub_explicit(loop->connections, 1, memory_order_relaxed);
    if (c->counted)
        peers_leave(loop->peers, c->peer_key);
    free(c);
    loop_conn_closed(loop);
}

static void drop_exchange(struct conn *c)
{
    loop_recycle_exchange(c->loop, c->x);
    c->x = NULL;
}

void conn_close(struct conn *c)
{
    if (c->state == CONN_CLOSING)
        return;
    if (c->x && c->state == CONN_BUSY && !c->x->answered) {
        c->x->conn = NULL;
        c->x = NULL;
    } else if (c->x && c->state != CONN_WRITE) { /* a write in progress ends in on_written */
        drop_exchange(c);
    }
    leave_list(c);
    c->state = CONN_CLOSING;
    uv_close(&c->uv.handle, on_closed);
    struct stream *s = c->stream;
    c->stream = NULL;
    if (s)
        stream_end(s);
}

/* Says that no more will come and waits for the peer to have read the answer. Closing at once while
 * unread bytes are in the socket would send a reset, which may overtake the answer. */
static void linger(struct conn *c)
{
    uv_os_fd_t fd;
    if (c->eof || uv_fileno(&c->uv.handle, &fd) != 0 || shutdown(fd, SHUT_WR) != 0) {
        conn_close(c);
        return;
    }
    c->progress = 0;
    conn_change_state(c, CONN_LINGER);
    conn_start_reading(c);
}

/* ---- sending ---- */

static void resume(struct conn *c);

static void answer_is_out(struct conn *c)
{
    struct stream *s = c->x->stream;
    if (c->x->x.method != HTTP_M_HEAD) /* else it ends with the exchange: the head was all */
        c->x->stream = NULL;
    else
        s = NULL;
    drop_exchange(c);
    if (s) {
        conn_stream_begin(c, s);
    } else if (c->keep) {
        conn_change_state(c, CONN_IDLE);
        if (!c->feeding)
            resume(c);
    } else if (c->linger || c->backlog.len > c->backlog_used) {
        linger(c);
    } else {
        conn_close(c);
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct exchange *e = CONTAINER_OF(req, struct exchange, write);
    struct conn *c = e->conn;
    struct loop *loop = c->loop;
    loop->unsent -= e->unsent;
    if (status == 0) {
        LOOP_COUNT(loop, bytes_out, e->unsent);
        if (c->state != CONN_CLOSING) {
            answer_is_out(c);
            return;
        }
    }
    drop_exchange(c);
    conn_close(c);
}

/* What the peer has not acknowledged yet: in our queue and in the socket's buffer. The queue alone
 * would not do: it moves only when a third of that buffer is free, which a slow but honest reader
 * may take minutes for. */
size_t conn_unacknowledged(struct conn *c)
{
    size_t left = uv_stream_get_write_queue_size(&c->uv.stream);
    uv_os_fd_t fd;
    int in_socket = 0;
    if (uv_fileno(&c->uv.handle, &fd) == 0 && ioctl(fd, SIOCOUTQ, &in_socket) == 0)
        left += (size_t)in_socket;
    return left;
}

/* What uv_try_write did not take. */
static void send_rest(struct conn *c, size_t sent, size_t total)
{
    struct exchange *e = c->x;
    struct loop *loop = c->loop;
    e->unsent = total - sent;
    if (e->unsent > UNSENT_MAX - loop->unsent) {
        e->unsent = 0;
        conn_close(c);
        return;
    }
    uv_buf_t parts[2];
    unsigned count = 0;
    if (sent < e->wire.len) {
        parts[count++] = uv_buf_init(e->wire.ptr + sent, (unsigned)(e->wire.len - sent));
        sent = e->wire.len;
    }
    if (sent < total)
        parts[count++] = uv_buf_init((char *)exchange_body(e).ptr + (sent - e->wire.len),
                                     (unsigned)(total - sent));
    if (uv_write(&e->write, &c->uv.stream, parts, count, on_written) != 0) {
        e->unsent = 0;
        conn_close(c);
        return;
    }
    loop->unsent += e->unsent;
    c->progress = c->answer_bytes = conn_unacknowledged(c);
    uv_update_time(&loop->uv); /* making a large answer may have taken a while */
    conn_change_state(c, CONN_WRITE);
    c->answered_ms = c->since_ms;
}

/* Renders and sends c->x. */
static void send_answer(struct conn *c)
{
    struct exchange *e = c->x;
    struct loop *loop = c->loop;
    bool asked_to_close = !e->request.keep_alive;
    c->keep = !asked_to_close && !e->x.close && !loop->draining && !c->eof && !e->stream;
    if (!c->keep && !asked_to_close)
        c->linger = true;
    answer_render(e, loop_date(loop), c->keep);
    FAULT(answer_before_send);

    size_t total = e->wire.len + e->wire_body_len;
    uv_buf_t parts[2] = {uv_buf_init(e->wire.ptr, (unsigned)e->wire.len),
                         uv_buf_init((char *)exchange_body(e).ptr, (unsigned)e->wire_body_len)};
    int sent = uv_try_write(&c->uv.stream, parts, e->wire_body_len > 0 ? 2 : 1);
    if (sent > 0)
        LOOP_COUNT(loop, bytes_out, (uint64_t)sent);
    if (sent >= 0 && (size_t)sent == total)
        answer_is_out(c);
    else if (sent >= 0 || sent == UV_EAGAIN)
        send_rest(c, sent < 0 ? 0 : (size_t)sent, total);
    else
        conn_close(c);
}

void conn_answer(struct exchange *e)
{
    struct conn *c = e->conn;
    if (!c) {
        loop_recycle_exchange(e->loop, e);
        return;
    }
    e->answered = true; /* no longer the handler's: from here on closing takes the exchange along */
    send_answer(c);
}

static void need_exchange(struct conn *c)
{
    if (c->x)
        return;
    c->x = loop_take_exchange(c->loop);
    c->x->conn = c;
}

/* Answers with a problem and closes. The request may be half read or not begun. */
static void fail(struct conn *c, int status, const char *detail)
{
    need_exchange(c);
    struct exchange *e = c->x;
    e->x.method = e->request.method;
    e->x.close = true;
    answer_problem(&e->x, status, detail);
    if (status == 503 || status == 429)
        http_add_header(&e->x, "Retry-After", "1");
    c->linger = true;
    send_answer(c);
}

/* ---- reading ---- */

static void dispatch(struct conn *c)
{
    struct loop *loop = c->loop;
    struct exchange *e = c->x;
    conn_change_state(c, CONN_BUSY);
    struct str peer = {c->peer, c->peer_len};
    char client[PROXY_ADDRESS_MAX];
    if (c->proxied)
        peer = proxies_client(loop->config.proxies, e->request.headers, e->request.header_count,
                              peer, client);
    exchange_present(e, peer, c->control, loop->index);
    LOOP_COUNT(loop, requests, 1);
    loop->handed_out++;
    loop->current = e;
    loop->config.handler(loop->config.handler_ctx, &e->x);
    /* `e` may have another owner now. */
    loop->current = NULL;
}

static void send_continue(struct conn *c)
{
    static char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    uv_buf_t part = uv_buf_init(text, sizeof text - 1);
    c->x->request.expects_continue = false;
    /* Nothing else is on its way out, so it fits unless the peer is gone. */
    if (uv_try_write(&c->uv.stream, &part, 1) != (int)sizeof text - 1)
        conn_close(c);
}

static void await_more(struct conn *c, size_t came)
{
    struct loop *loop = c->loop;
    struct exchange *e = c->x;
    if (!e->request.head_complete) {
        if (c->state <= CONN_IDLE)
            conn_change_state(c, CONN_HEAD);
        return;
    }
    if (c->state != CONN_BODY) {
        conn_change_state(c, CONN_BODY);
        c->progress = 0;
    }
    c->progress += came;
    loop->body_held += e->request.body.len - e->body_held;
    e->body_held = e->request.body.len;
    if (loop->body_held > BODIES_MAX)
        fail(c, 503, "too many large requests at once");
    else if (e->request.expects_continue && e->request.body.len == 0)
        send_continue(c);
}

/* Reads requests out of `bytes` until they are used up or one is in flight. Returns how many were
 * used. */
static size_t feed(struct conn *c, const char *bytes, size_t n)
{
    size_t used = 0;
    c->feeding = true;
    while (used < n && c->state <= CONN_BODY) {
        need_exchange(c);
        enum request_verdict verdict;
        size_t came = request_feed(&c->x->request, bytes + used, n - used, &verdict);
        used += came;
        if (verdict == REQUEST_DONE) {
            dispatch(c);
        } else if (verdict == REQUEST_MORE) {
            await_more(c, came);
        } else {
            LOOP_COUNT(c->loop, bad_requests, 1);
            fail(c, c->x->request.problem_status, c->x->request.problem_detail);
        }
    }
    c->feeding = false;
    return used;
}

static void stop_reading(struct conn *c)
{
    if (c->reading)
        uv_read_stop(&c->uv.stream);
    c->reading = false;
}

/* Keeps what came while a request is in flight; one read's worth at most, because reading stops. */
static void keep_for_later(struct conn *c, const char *bytes, size_t n)
{
    stop_reading(c);
    if (c->backlog_used == c->backlog.len) {
        buf_clear(&c->backlog);
        c->backlog_used = 0;
    }
    buf_append(&c->backlog, bytes, n);
    if (c->backlog.failed)
        conn_close(c);
}

static bool is_stream(const struct conn *c)
{
    return c->state == CONN_STREAM || c->state == CONN_STREAM_WRITE;
}

/* After an answer from outside feed(): continues with the bytes that were kept. */
static void resume(struct conn *c)
{
    if (c->backlog_used < c->backlog.len) {
        c->backlog_used +=
            feed(c, c->backlog.ptr + c->backlog_used, c->backlog.len - c->backlog_used);
        if (is_stream(c))
            conn_stream_drop_backlog(c);
        if (c->backlog_used == c->backlog.len) {
            buf_done(&c->backlog);
            c->backlog_used = 0;
        }
    }
    if (c->state > CONN_BODY || c->backlog_used < c->backlog.len)
        return;
    if (c->eof)
        conn_close(c);
    else
        conn_start_reading(c);
}

static void on_end(struct conn *c, ssize_t status)
{
    bool in_flight = c->state == CONN_BUSY || c->state == CONN_WRITE;
    if (status == UV_EOF && in_flight) {
        /* Half closed: the client may still want the answer. */
        c->eof = true;
        c->keep = false;
        stop_reading(c);
    } else {
        if (status == UV_ETIMEDOUT)
            LOOP_COUNT(c->loop, timeouts, 1);
        conn_close(c);
    }
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct conn *c = stream->data;
    if (nread <= 0) {
        if (nread < 0)
            on_end(c, nread);
        return;
    }
    size_t n = (size_t)nread;
    LOOP_COUNT(c->loop, bytes_in, n);
    if (c->state == CONN_LINGER) {
        c->progress += n;
        if (c->progress > LINGER_BYTES_MAX)
            conn_close(c);
        return;
    }
    size_t used = is_stream(c) ? 0 : feed(c, buf->base, n);
    if (is_stream(c))
        conn_stream_stray(c, n - used);
    else if (used < n && (c->state == CONN_BUSY || c->state == CONN_WRITE))
        keep_for_later(c, buf->base + used, n - used);
}

static void on_buffer_wanted(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct conn *c = handle->data;
    *buf = uv_buf_init(c->loop->read_buffer, READ_BUFFER_SIZE);
}

void conn_start_reading(struct conn *c)
{
    if (c->reading)
        return;
    c->reading = true;
    if (uv_read_start(&c->uv.stream, on_buffer_wanted, on_read) != 0)
        conn_close(c);
}

/* ---- accepting ---- */

static struct conn *new_conn(struct loop *loop)
{
    struct conn *c = calloc(1, sizeof *c);
    CHECK(c); /* as for arenas: without a few hundred bytes nothing can go on */
    c->loop = loop;
    buf_init(&c->backlog, READ_BUFFER_SIZE);
    return c;
}

static void note_peer(struct conn *c)
{
    struct sockaddr_storage address;
    int len = sizeof address;
    if (uv_tcp_getpeername(&c->uv.tcp, (struct sockaddr *)&address, &len) != 0)
        return;
    if (uv_ip_name((struct sockaddr *)&address, c->peer, sizeof c->peer) != 0)
        c->peer[0] = '\0';
    /* An IPv4 peer of an IPv6 socket is the same peer. */
    static const char mapped[] = "::ffff:";
    if (strncmp(c->peer, mapped, sizeof mapped - 1) == 0 && strchr(c->peer, '.'))
        memmove(c->peer, c->peer + sizeof mapped - 1, strlen(c->peer) - sizeof mapped + 2);
    c->peer_len = (uint8_t)strlen(c->peer);
}

/* Counts the connection, unless it is one of a trusted proxy, whose clients share them. */
static bool enter_peer(struct conn *c)
{
    const struct http_config *config = &c->loop->config;
    struct str peer = {c->peer, c->peer_len};
    c->proxied = config->proxies && proxies_trust(config->proxies, peer);
    if (!c->loop->peers || c->proxied)
        return true;
    c->peer_key = limits_peer_key(peer);
    c->counted = peers_enter(c->loop->peers, c->peer_key);
    return c->counted;
}

void conn_accept(struct loop *loop, uv_stream_t *listener, bool control)
{
    struct conn *c = new_conn(loop);
    if (control)
        uv_pipe_init(&loop->uv, &c->uv.pipe, 0);
    else
        uv_tcp_init(&loop->uv, &c->uv.tcp);
    c->uv.handle.data = c;
    c->control = control;
    loop->conn_count++;
    unsigned open = 1 + atomic_fetch_add_explicit(loop->connections, 1, memory_order_relaxed);
    enter_state(c, CONN_NEW);
    if (uv_accept(listener, &c->uv.stream) != 0) {
        conn_close(c);
        return;
    }
    /* The operator must get in when the server is full. */
    if (!control && open > loop->config.connections_max) {
        LOOP_COUNT(loop, refused, 1);
        if (open > loop->config.connections_max + REFUSED_MAX)
            conn_close(c);
        else
            fail(c, 503, "too many connections");
        return;
    }
    if (!control) {
        note_peer(c);
        if (!enter_peer(c)) {
            LOOP_COUNT(loop, refused, 1);
            if (open > loop->config.connections_max / 2) /* being told takes a while */
                conn_close(c);
            else
                fail(c, 429, "too many connections from this address");
            return;
        }
    }
    LOOP_COUNT(loop, accepted, 1);
    conn_start_reading(c);
}

/* ---- limits on waiting ---- */

/* Sends `detail` to connections that have been in a state for too long, or closes them when it is
 * NULL. */
static void expire(struct loop *loop, enum conn_state state, int64_t since_ms, const char *detail)
{
    struct conn *c;
    while ((c = loop->conns[state].first) && c->since_ms <= since_ms) {
        if (state != CONN_LINGER)
            LOOP_COUNT(loop, timeouts, 1);
        if (detail && c->x && c->x->request.head.len > 0)
            fail(c, 408, detail);
        else
            conn_close(c);
    }
}

static void check_bodies(struct loop *loop, int64_t now)
{
    struct conn *next;
    for (struct conn *c = loop->conns[CONN_BODY].first; c; c = next) {
        next = c->next;
        int64_t late_ms = now - c->since_ms - loop->config.body_grace_ms;
        if (late_ms <= 0 || (int64_t)c->progress * 1000 >= late_ms * loop->config.body_min_rate)
            continue;
        LOOP_COUNT(loop, timeouts, 1);
        fail(c, 408, "the body arrives too slowly");
    }
}

/* Of an answer: a reader that takes a little now and then holds as much as one that takes nothing.
 * A stream has no end by which to measure it, and holds little. */
static bool is_read_too_slowly(const struct conn *c, size_t left, int64_t now)
{
    const struct http_config *config = &c->loop->config;
    int64_t late_ms = now - c->answered_ms - config->body_grace_ms;
    size_t taken = c->answer_bytes > left ? c->answer_bytes - left : 0;
    return c->state == CONN_WRITE && late_ms > 0 &&
           (int64_t)taken * 1000 < late_ms * config->body_min_rate;
}

static void check_writes(struct loop *loop, enum conn_state state, int64_t now)
{
    struct conn *next;
    for (struct conn *c = loop->conns[state].first; c; c = next) {
        next = c->next;
        size_t left = conn_unacknowledged(c);
        bool stalled = left == c->progress;
        if (!stalled) {
            c->progress = left;
            c->since_ms = now;
        }
        if ((stalled && now - c->since_ms >= loop->config.write_timeout_ms) ||
            is_read_too_slowly(c, left, now)) {
            LOOP_COUNT(loop, timeouts, 1);
            conn_close(c);
        }
    }
}

void conn_check_timeouts(struct loop *loop)
{
    int64_t now = loop_now_ms(loop);
    const struct http_config *config = &loop->config;
    int64_t linger_ms = loop->draining ? LINGER_DRAINING_MS : LINGER_MS;
    expire(loop, CONN_NEW, now - config->head_timeout_ms, NULL);
    expire(loop, CONN_IDLE, now - config->idle_timeout_ms, NULL);
    expire(loop, CONN_HEAD, now - config->head_timeout_ms, "the head did not arrive in time");
    check_bodies(loop, now);
    check_writes(loop, CONN_WRITE, now);
    check_writes(loop, CONN_STREAM_WRITE, now);
    conn_stream_check_heartbeats(loop, now);
    expire(loop, CONN_LINGER, now - linger_ms, NULL);
}

void conn_close_idle(struct loop *loop)
{
    for (int state = CONN_NEW; state <= CONN_IDLE; state++)
        while (loop->conns[state].first)
            conn_close(loop->conns[state].first);
}

void conn_close_all(struct loop *loop)
{
    for (int state = 0; state < CONN_STATES; state++)
        while (loop->conns[state].first)
            conn_close(loop->conns[state].first);
}
