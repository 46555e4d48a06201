/* The loop: life cycle, inbox, timeouts, draining.
 *
 * The inbox is a stack that other threads push answered exchanges on; the one who finds it empty
 * wakes the loop, which takes it whole and turns it round. Ending is the delicate part: a thread
 * may be about to wake a loop that has nothing left to do, and a handler may answer minutes after
 * the loop has ended. So a pusher is counted in `senders` while it touches the loop, the loop waits
 * for that to be zero before it closes its wake handle, and the last reference frees the struct:
 * the server's, or that of the last late answer.
 *
 * Streams for which something waits come by a second stack of the same kind. It needs no such mark
 * at the end: all streams have ended by then, and an ended stream posts nothing. */
#include "net/loop.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "net/conn.h"
#include "net/frame.h"
#include "net/listen.h"
#include "net/stream_state.h"

enum { TICK_MIN_MS = 5, TICK_MAX_MS = 500, DRAIN_TICK_MS = 10 };

/* Two ticks lie between the wish to stop and the end of idle connections, so that requests which
 * had already arrived are read and answered. */
enum { DRAIN_TICKS_BEFORE_IDLE = 2 };

/* What the inbox holds after the loop's end: an address that is no exchange. */
static char inbox_closed_mark;
#define INBOX_CLOSED ((struct exchange *)(void *)&inbox_closed_mark)

static _Thread_local struct loop *this_loop;

/* ---- exchanges ---- */

struct exchange *loop_take_exchange(struct loop *loop)
{
    struct exchange *e = loop->spare_exchanges;
    if (!e)
        return exchange_new(loop);
    loop->spare_exchanges = e->next;
    loop->spare_exchange_count--;
    e->next = NULL;
    return e;
}

void loop_recycle_exchange(struct loop *loop, struct exchange *e)
{
    loop->body_held -= e->body_held;
    if (loop->spare_exchange_count >= SPARE_EXCHANGES_MAX) {
        exchange_free(e);
        return;
    }
    exchange_reset(e);
    e->next = loop->spare_exchanges;
    loop->spare_exchanges = e;
    loop->spare_exchange_count++;
}

/* ---- answers ---- */

static void complete(struct exchange *e)
{
    void (*write)(struct http_exchange * x) = e->x.complete;
    e->x.complete = NULL;
    if (write)
        write(&e->x);
}

static void take_answer(struct loop *loop, struct exchange *e)
{
    complete(e);
    loop->handed_out--;
    conn_answer(e);
}

/* The loop has ended and sends nothing more. */
static void drop_late_answer(struct exchange *e)
{
    struct loop *loop = e->loop;
    complete(e);
    exchange_free(e);
    loop_unref(loop);
}

/* Hands an answered exchange to its loop. Any thread. */
static void post_answer(struct exchange *e)
{
    struct loop *loop = e->loop;
    atomic_fetch_add(&loop->senders, 1);
    struct exchange *head = atomic_load(&loop->inbox);
    do {
        if (head == INBOX_CLOSED) {
            atomic_fetch_sub(&loop->senders, 1);
            drop_late_answer(e);
            return;
        }
        e->next = head;
    } while (!atomic_compare_exchange_weak(&loop->inbox, &head, e));
    if (!head)
        uv_async_send(&loop->wake);
    atomic_fetch_sub(&loop->senders, 1);
}

void http_answer(struct http_exchange *x)
{
    struct exchange *e = CONTAINER_OF(x, struct exchange, x);
    struct loop *loop = e->loop;
    /* Inside another exchange's handler the answer takes the detour: sending it may start the next
     * request of its connection, and handlers do not nest. */
    if (this_loop == loop && (!loop->current || loop->current == e))
        take_answer(loop, e);
    else
        post_answer(e);
}

void http_answer_by(struct http_exchange *x, void (*write)(struct http_exchange *x))
{
    x->complete = write;
    http_answer(x);
}

static void read_inbox(struct loop *loop)
{
    struct exchange *e = atomic_exchange(&loop->inbox, NULL), *next, *oldest_first = NULL;
    for (; e; e = next) {
        next = e->next;
        e->next = oldest_first;
        oldest_first = e;
    }
    for (e = oldest_first; e; e = next) {
        next = e->next;
        e->next = NULL;
        take_answer(loop, e);
    }
}

/* ---- streams ---- */

void loop_post_stream(struct loop *loop, struct stream *s)
{
    struct stream *head = atomic_load(&loop->streams);
    do
        s->next = head;
    while (!atomic_compare_exchange_weak(&loop->streams, &head, s));
    if (!head)
        uv_async_send(&loop->wake);
    atomic_fetch_sub(&loop->senders, 1);
}

/* In any order: all that wait are looked at before the next turn of the loop. */
static void look_at_streams(struct loop *loop)
{
    struct stream *s = atomic_exchange(&loop->streams, NULL), *next;
    for (; s; s = next) {
        next = s->next; /* another thread may put it on the stack again */
        conn_stream_look(s);
        stream_unref(s);
    }
}

/* ---- time ---- */

int64_t loop_now_ms(const struct loop *loop)
{
    return (int64_t)uv_now(&loop->uv);
}

const struct date_line *loop_date(struct loop *loop)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    date_line_update(&loop->date, now.tv_sec);
    return &loop->date;
}

static uint64_t tick_ms(const struct http_config *c)
{
    int64_t least = c->head_timeout_ms;
    const int64_t others[] = {c->idle_timeout_ms, c->write_timeout_ms, c->body_grace_ms,
                              c->stream_heartbeat_ms};
    for (size_t i = 0; i < COUNT_OF(others); i++)
        if (others[i] < least)
            least = others[i];
    least /= 8;
    return (uint64_t)(least < TICK_MIN_MS   ? TICK_MIN_MS
                      : least > TICK_MAX_MS ? TICK_MAX_MS
                                            : least);
}

/* ---- ending ---- */

static void stop_listening(struct loop *loop)
{
    if (loop->has_listener)
        uv_close((uv_handle_t *)&loop->listener, NULL);
    if (loop->has_control)
        uv_close((uv_handle_t *)&loop->control, NULL);
    loop->has_listener = loop->has_control = false;
}

/* No connection is left: close the inbox and the loop's own handles; uv_run then returns. */
static void finish(struct loop *loop)
{
    if (loop->finishing)
        return;
    loop->finishing = true;
    stop_listening(loop);
    /* Those still out hold the struct. They are counted before the inbox closes, as each may be
     * answered at that moment. */
    atomic_fetch_add(&loop->refs, (unsigned)loop->handed_out);
    struct exchange *e = atomic_exchange(&loop->inbox, INBOX_CLOSED);
    while (e) {
        struct exchange *next = e->next;
        loop->handed_out--;
        complete(e);
        exchange_free(e);
        atomic_fetch_sub(&loop->refs, 1); /* never the last: the server holds one */
        e = next;
    }
    while (atomic_load(&loop->senders) > 0)
        sched_yield();
    /* Every stream has ended, so no thread finds this loop through one any more. */
    look_at_streams(loop);
    uv_close((uv_handle_t *)&loop->wake, NULL);
    uv_close((uv_handle_t *)&loop->tick, NULL);
}

void loop_conn_closed(struct loop *loop)
{
    loop->conn_count--;
    if (loop->draining && loop->conn_count == 0)
        finish(loop);
}

static void on_tick(uv_timer_t *tick)
{
    struct loop *loop = tick->data;
    int64_t now_ms = loop_now_ms(loop);
    int64_t period_ms = (int64_t)uv_timer_get_repeat(tick);
    /* When this thread was held up, bytes that came in time may wait unread: look next time. */
    if (now_ms - loop->ticked_ms < 4 * period_ms)
        conn_check_timeouts(loop);
    loop->ticked_ms = now_ms;
    if (!loop->draining)
        return;
    stop_listening(loop);
    if (now_ms >= loop->drain_until_ms)
        conn_close_all(loop);
    else if (++loop->drain_ticks >= DRAIN_TICKS_BEFORE_IDLE) {
        conn_close_idle(loop);
        conn_stream_close_all(loop);
    }
    if (loop->conn_count == 0)
        finish(loop);
}

/* Listens until the first tick: clients that have connected already are not accepted yet, and would
 * lose their connection in the middle of a request. */
static void drain(struct loop *loop)
{
    loop->draining = true;
    loop->drain_until_ms = loop_now_ms(loop) + atomic_load(&loop->stop_grace_ms);
    uv_timer_start(&loop->tick, on_tick, DRAIN_TICK_MS, DRAIN_TICK_MS);
}

static void on_wake(uv_async_t *wake)
{
    struct loop *loop = wake->data;
    if (atomic_load(&loop->stop_wanted) && !loop->draining)
        drain(loop);
    if (loop->finishing)
        return;
    read_inbox(loop);
    if (!loop->finishing) /* the last connection may have gone with its answer */
        look_at_streams(loop);
}

void loop_stop(struct loop *loop, int64_t grace_ms)
{
    atomic_store(&loop->stop_grace_ms, grace_ms);
    atomic_store(&loop->stop_wanted, true);
    uv_async_send(&loop->wake);
}

void loop_unref(struct loop *loop)
{
    if (atomic_fetch_sub(&loop->refs, 1) == 1)
        free(loop);
}

/* ---- life cycle ---- */

static void on_connection(uv_stream_t *listener, int status)
{
    struct loop *loop = listener->data;
    if (status == 0)
        conn_accept(loop, listener, listener == (uv_stream_t *)&loop->control);
}

/* Takes the socket over, also when it fails; -1: there is none. */
static bool add_listener(struct loop *loop, int fd, bool control)
{
    if (fd < 0)
        return true;
    uv_stream_t *s = control ? (uv_stream_t *)&loop->control : (uv_stream_t *)&loop->listener;
    if (control)
        uv_pipe_init(&loop->uv, &loop->control, 0);
    else
        uv_tcp_init(&loop->uv, &loop->listener);
    s->data = loop;
    *(control ? &loop->has_control : &loop->has_listener) = true;
    if ((control ? uv_pipe_open(&loop->control, fd) : uv_tcp_open(&loop->listener, fd)) != 0) {
        close(fd);
        return false;
    }
    return uv_listen(s, LISTEN_BACKLOG, on_connection) == 0;
}

/* Fails where descriptors have run out before the first connection. */
static bool init_uv(struct loop *loop)
{
    if (uv_loop_init(&loop->uv) != 0)
        return false;
    if (uv_async_init(&loop->uv, &loop->wake, on_wake) != 0) {
        CHECK(uv_loop_close(&loop->uv) == 0);
        return false;
    }
    uv_timer_init(&loop->uv, &loop->tick);
    loop->wake.data = loop->tick.data = loop;
    return true;
}

static void close_socket(int fd)
{
    if (fd >= 0)
        close(fd);
}

enum err loop_new(const struct http_config *config, unsigned index, _Atomic unsigned *connections,
                  struct peers *peers, int listen_fd, int control_fd, struct loop **out)
{
    struct loop *loop = calloc(1, sizeof *loop);
    CHECK(loop); /* a hundred kilobytes, at the start */
    loop->config = *config;
    loop->index = index;
    loop->connections = connections;
    loop->peers = peers;
    loop->date.second = -1;
    atomic_init(&loop->refs, 1);
    if (!init_uv(loop)) {
        close_socket(listen_fd);
        close_socket(control_fd);
        free(loop);
        return ERR_UNAVAILABLE;
    }
    bool ok = add_listener(loop, listen_fd, false);
    if (!add_listener(loop, control_fd, true) || !ok) {
        loop_stop(loop, 0);
        loop_run(loop);
        loop_unref(loop);
        return ERR_UNAVAILABLE;
    }
    uv_timer_start(&loop->tick, on_tick, tick_ms(config), tick_ms(config));
    *out = loop;
    return OK;
}

void loop_run(struct loop *loop)
{
    this_loop = loop;
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&loop->uv) == 0);
    while (loop->spare_exchange_count > 0)
        exchange_free(loop_take_exchange(loop));
    this_loop = NULL;
}
