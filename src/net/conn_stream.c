/* A connection whose answer does not end.
 *
 *   STREAM ⇄ STREAM_WRITE → closed
 *
 * In STREAM nothing is on its way: what waits is written at once, straight from the shared frames.
 * What the socket does not take goes into a `stall`; everything behind it stays in the stream's
 * queue, where newer live events still replace older ones. So a quiet stream is its struct conn and
 * its struct stream: the exchange that began it has gone back to the loop.
 *
 * The list of STREAM is ordered by when something was last sent, so its head is the stream that
 * needs a heartbeat next.
 *
 * A vanished peer shows by end of file or reset while we read and drop what comes, by a heartbeat
 * that is not acknowledged in time (TCP_USER_TIMEOUT), or by the limit on stalls. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/check.h"
#include "net/conn.h"
#include "net/stream_state.h"

enum {
    FLUSH_ROUNDS_MAX = 8,         /* batches of one stream before others have their turn */
    HEARTBEATS_MAX = 2048,        /* of one tick; the others wait for the next */
    GOODBYES_MAX = 1024,          /* likewise, while draining, when ticks are short */
    UNSENT_IN_KERNEL = 16 * 1024, /* beyond, frames wait with us, where they can be replaced */
};

struct stall {
    uv_write_t write;
    struct conn *conn;
    uint32_t batch_bytes, unsent;
    unsigned count;
    struct frame *frames[];
};

static void flush(struct conn *c);

/* ---- sending ---- */

static void drop_frames(struct frame **frames, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        frame_unref(frames[i]);
}

static void on_stall_over(uv_write_t *write, int status)
{
    struct stall *stall = CONTAINER_OF(write, struct stall, write);
    struct conn *c = stall->conn;
    uint32_t batch_bytes = stall->batch_bytes, unsent = stall->unsent;
    drop_frames(stall->frames, stall->count);
    free(stall);
    c->loop->unsent -= unsent;
    if (c->state == CONN_CLOSING)
        return;
    if (status != 0) {
        conn_close(c);
        return;
    }
    LOOP_COUNT(c->loop, bytes_out, unsent);
    stream_left(c->stream, batch_bytes, false);
    conn_change_state(c, CONN_STREAM);
    flush(c);
}

/* What uv_try_write did not take of the batch, whose frames are the stall's from here on. */
static void stall(struct conn *c, const struct stream_batch *batch, uint32_t sent)
{
    struct loop *loop = c->loop;
    uint32_t unsent = batch->bytes - sent;
    unsigned first = 0;
    while (sent >= batch->frames[first]->len) {
        sent -= batch->frames[first]->len;
        frame_unref(batch->frames[first++]);
    }
    unsigned count = batch->count - first;
    struct stall *st = NULL;
    if (unsent <= UNSENT_MAX - loop->unsent)
        st = malloc(sizeof *st + count * sizeof(struct frame *));
    if (!st) {
        drop_frames((struct frame **)batch->frames + first, count);
        conn_close(c);
        return;
    }
    st->conn = c;
    st->batch_bytes = batch->bytes;
    st->unsent = unsent;
    st->count = count;
    uv_buf_t parts[BATCH_FRAMES_MAX];
    for (unsigned i = 0; i < count; i++) {
        struct frame *f = st->frames[i] = batch->frames[first + i];
        parts[i] = uv_buf_init(f->bytes + sent, f->len - sent);
        sent = 0;
    }
    if (uv_write(&st->write, &c->uv.stream, parts, count, on_stall_over) != 0) {
        drop_frames(st->frames, count);
        free(st);
        conn_close(c);
        return;
    }
    loop->unsent += unsent;
    stream_left(c->stream, 0, true);
    c->progress = conn_unacknowledged(c);
    conn_change_state(c, CONN_STREAM_WRITE);
}

/* False: the connection is stalled or closed. */
static bool send_batch(struct conn *c, struct stream_batch *batch)
{
    uv_buf_t parts[BATCH_FRAMES_MAX];
    for (unsigned i = 0; i < batch->count; i++)
        parts[i] = uv_buf_init(batch->frames[i]->bytes, batch->frames[i]->len);
    int sent = uv_try_write(&c->uv.stream, parts, batch->count);
    if (sent > 0)
        LOOP_COUNT(c->loop, bytes_out, (uint64_t)sent);
    if (sent >= 0 && (uint32_t)sent == batch->bytes) {
        drop_frames(batch->frames, batch->count);
        stream_left(c->stream, batch->bytes, false);
        conn_change_state(c, CONN_STREAM);
        return true;
    }
    if (sent >= 0 || sent == UV_EAGAIN) {
        stall(c, batch, sent < 0 ? 0 : (uint32_t)sent);
    } else {
        drop_frames(batch->frames, batch->count);
        conn_close(c);
    }
    return false;
}

/* Sends what waits, as far as the socket takes it. */
static void flush(struct conn *c)
{
    struct stream *s = c->stream;
    if (s->until_ms > 0 && loop_now_ms(c->loop) >= s->until_ms)
        stream_close(s, "expired");
    for (unsigned round = 0; round < FLUSH_ROUNDS_MAX; round++) {
        struct stream_batch batch;
        stream_take(s, &batch);
        if (batch.count > 0 && !send_batch(c, &batch))
            return;
        if (batch.slow || batch.last) {
            conn_close(c);
            return;
        }
        if (batch.count == 0)
            return;
    }
    stream_wake(s);
}

void conn_stream_look(struct stream *s)
{
    bool slow = stream_looked_at(s);
    struct conn *c = s->conn;
    if (!c)
        return;
    if (slow)
        conn_close(c);
    else if (c->state == CONN_STREAM)
        flush(c);
}

/* ---- beginning ---- */

/* Small frames leave at once; what the peer is too slow for waits with us rather than in megabytes
 * of kernel memory; a peer that vanished is noticed by the silence after a heartbeat. These are
 * wishes: without them a stream works, too. */
static void tune_socket(struct conn *c)
{
    uv_os_fd_t fd;
    if (c->control || uv_fileno(&c->uv.handle, &fd) != 0)
        return;
    const int on = 1, unsent = UNSENT_IN_KERNEL;
    const unsigned silence_ms = (unsigned)c->loop->config.write_timeout_ms;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
}

/* Bytes that came before the stream began, and behind its request. */
void conn_stream_drop_backlog(struct conn *c)
{
    size_t n = c->backlog.len - c->backlog_used;
    buf_done(&c->backlog);
    c->backlog_used = 0;
    conn_stream_stray(c, n);
}

void conn_stream_begin(struct conn *c, struct stream *s)
{
    c->stream = s;
    if (c->eof) {
        conn_close(c);
        return;
    }
    tune_socket(c);
    stream_begin(s, c->loop, c);
    conn_change_state(c, CONN_STREAM);
    conn_start_reading(c);
    if (c->state == CONN_STREAM && !c->feeding) /* feed() may be reading the backlog */
        conn_stream_drop_backlog(c);
    if (c->state == CONN_STREAM)
        flush(c);
}

/* A client sends nothing more on a connection after it asked for a stream. A little is allowed: a
 * line end too many, or a request that was sent too early and will be sent again elsewhere. */
void conn_stream_stray(struct conn *c, size_t n)
{
    if (n > STREAM_STRAY_MAX - c->stray) {
        LOOP_COUNT(c->loop, bad_requests, 1);
        conn_close(c);
        return;
    }
    c->stray += (uint32_t)n;
}

/* ---- by the loop's timer ---- */

void conn_stream_check_heartbeats(struct loop *loop, int64_t now_ms)
{
    const struct conn_list *list = &loop->conns[CONN_STREAM];
    for (unsigned n = 0; n < HEARTBEATS_MAX && list->first; n++) {
        struct conn *c = list->first;
        if (now_ms - c->since_ms < loop->config.stream_heartbeat_ms)
            return;
        stream_beat(c->stream);
        flush(c);
    }
}

static void part(struct conn *c)
{
    if (!c->parting)
        stream_close(c->stream, "stopping");
    c->parting = true;
}

void conn_stream_close_all(struct loop *loop)
{
    const struct conn_list *list = &loop->conns[CONN_STREAM];
    for (unsigned n = 0; n < GOODBYES_MAX && list->first; n++) {
        struct conn *c = list->first;
        part(c);
        flush(c);
    }
    for (struct conn *c = loop->conns[CONN_STREAM_WRITE].first; c; c = c->next)
        part(c); /* it leaves when the stall is over */
}
