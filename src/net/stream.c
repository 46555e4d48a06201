/* A stream's queue and its life, for all threads. What its connection does with it is in
 * conn_stream.c.
 *
 * The queue is a table of references to shared frames: a frame for thousands of streams exists
 * once, and a stream for which nothing waits, which is nearly every stream, has no table. A live
 * event that is replaced leaves a gap and the newer one goes to the end, so order is kept; gaps are
 * closed when the table is full.
 *
 * Everything that threads share is under the stream's lock, which is never held over a system call:
 * a thread that must wake the loop counts itself as the loop's sender under the lock, while the
 * loop is certain to exist, and wakes it afterwards. A loop ends all its streams before it looks
 * whether senders are left (loop.c). */
#include "net/stream.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "net/exchange.h"
#include "net/hub.h"
#include "net/loop.h"
#include "net/stream_state.h"

enum { QUEUE_CAP_MIN = 8 };

/* A goodbye sends clients away for this long, each for a time of its own. */
enum { BYE_RETRY_MIN_MS = 500, BYE_RETRY_SPREAD_MS = 4500 };

/* The greatest number that was taken of a kind and key. */
struct newest_key {
    uint64_t key, kind;
};
struct newest {
    struct newest_key of;
    int64_t seq;
};

/* ---- life ---- */

struct stream *stream_new(const struct encoding *encoding, size_t buffer_max, int64_t lifetime_ms)
{
    CHECK(buffer_max <= UINT32_MAX / 2 && lifetime_ms >= 0);
    struct stream *s = calloc(1, sizeof *s);
    CHECK(s); /* as for connections: without a few hundred bytes nothing can go on */
    atomic_init(&s->refs, 1);
    s->bytes_max = buffer_max > 0 ? (uint32_t)buffer_max : STREAM_BUFFER_MAX;
    s->lifetime_ms = lifetime_ms;
    s->encoding = encoding;
    map_init(&s->newest, sizeof(struct newest), sizeof(struct newest_key));
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void stream_set_grant(struct stream *s, uint64_t grant)
{
    s->grant = grant;
}

struct stream *stream_ref(struct stream *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

static void free_queue(struct waiting *queue, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        if (queue[i].frame)
            frame_unref(queue[i].frame);
    free(queue);
}

void stream_unref(struct stream *s)
{
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    free_queue(s->queue, s->first, s->end);
    map_done(&s->newest);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void stream_start(struct stream *s, struct http_exchange *x)
{
    struct exchange *e = CONTAINER_OF(x, struct exchange, x);
    CHECK(!e->stream);
    e->stream = stream_ref(s);
    x->status = 200;
    x->content_type = str_of(s->encoding->content_type);
    http_add_header(x, "Cache-Control", "no-store");
    http_add_header(x, "X-Accel-Buffering", "no");
    buf_str(&x->out, str_of(s->encoding->opening));
    http_answer(x);
}

void stream_await_greeting(struct stream *s)
{
    s->awaiting = true;
}

void stream_begin(struct stream *s, struct loop *loop, struct conn *c)
{
    s->conn = c;
    if (s->lifetime_ms > 0)
        s->until_ms = loop_now_ms(loop) + s->lifetime_ms;
    pthread_mutex_lock(&s->lock);
    CHECK(!s->loop && !s->ended);
    s->loop = loop;
    pthread_mutex_unlock(&s->lock);
}

void stream_end(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    CHECK(!s->ended);
    s->ended = true;
    s->loop = NULL;
    struct waiting *queue = s->queue;
    uint32_t first = s->first, end = s->end;
    s->queue = NULL;
    s->first = s->end = s->cap = s->count = 0;
    pthread_mutex_unlock(&s->lock);
    s->conn = NULL;
    free_queue(queue, first, end);
    if (s->hub)
        hub_leave(s->hub, s);
    stream_unref(s);
}

bool stream_has_ended(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    bool ended = s->ended;
    pthread_mutex_unlock(&s->lock);
    return ended;
}

/* ---- the queue, under the lock ---- */

static void close_gaps(struct stream *s)
{
    uint32_t to = 0;
    for (uint32_t i = s->first; i < s->end; i++)
        if (s->queue[i].frame)
            s->queue[to++] = s->queue[i];
    s->first = 0;
    s->end = to;
}

static void make_room(struct stream *s)
{
    if (s->end < s->cap)
        return;
    if (s->queue && s->count <= s->cap / 2) {
        close_gaps(s);
        return;
    }
    uint32_t cap = s->cap > 0 ? s->cap * 2 : QUEUE_CAP_MIN;
    struct waiting *grown = realloc(s->queue, cap * sizeof *grown);
    CHECK(grown); /* some kilobytes at most */
    s->queue = grown;
    s->cap = cap;
}

static void append(struct stream *s, struct frame *f)
{
    make_room(s);
    s->queue[s->end++] = (struct waiting){.frame = frame_ref(f), .key = f->key};
    s->count++;
    s->bytes += f->len;
}

/* The frame that waits and of which `f` is a newer or older state. */
static struct waiting *find_same(struct stream *s, const struct frame *f)
{
    if (f->kind == 0)
        return NULL;
    for (uint32_t i = s->end; i > s->first; i--) {
        struct waiting *w = &s->queue[i - 1];
        if (w->key == f->key && w->frame && w->frame->kind == f->kind)
            return w;
    }
    return NULL;
}

/* What leaves the queue while the lock is held: the last reference is dropped after it. */
struct left {
    struct frame *replaced;
    struct waiting *queue;
    uint32_t first, end;
};

/* All that waits was said before the greeting. */
static void take_all(struct stream *s, struct left *left)
{
    *left = (struct left){.queue = s->queue, .first = s->first, .end = s->end};
    for (uint32_t i = s->first; i < s->end; i++)
        s->bytes -= s->queue[i].frame ? s->queue[i].frame->len : 0;
    s->queue = NULL;
    s->first = s->end = s->cap = s->count = 0;
    map_clear(&s->newest);
}

static void drop_left(const struct left *left)
{
    free_queue(left->queue, left->first, left->end);
    if (left->replaced)
        frame_unref(left->replaced);
}

/* Is it newer than what the client knows? If so it is known from here on. */
static enum stream_outcome note_number(struct stream *s, const struct frame *f)
{
    const struct newest_key of = {f->key, f->kind};
    struct newest *newest = map_find(&s->newest, &of);
    if (newest && newest->seq >= f->seq)
        return STREAM_MERGED;
    if (!newest && s->newest.count == STREAM_NEWEST_MAX)
        return STREAM_FULL;
    if (!newest)
        newest = map_put(&s->newest, &of, NULL);
    CHECK(newest); /* some kilobytes at most */
    newest->seq = f->seq;
    return STREAM_TAKEN;
}

static enum stream_outcome put(struct stream *s, struct frame *f, struct left *left)
{
    if (s->ended || s->closing || s->slow)
        return STREAM_ENDED;
    if (s->awaiting && f->kind != 0)
        return STREAM_EARLY;
    if (f->greeting)
        take_all(s, left);
    enum stream_outcome known = f->seq > 0 ? note_number(s, f) : STREAM_TAKEN;
    if (known != STREAM_TAKEN)
        return known;
    struct waiting *same = find_same(s, f);
    if (same) {
        if (same->frame->id > f->id)
            return STREAM_MERGED;
        left->replaced = same->frame;
        same->frame = NULL;
        s->count--;
        s->bytes -= left->replaced->len;
    }
    if (s->count >= STREAM_FRAMES_MAX || f->len > s->bytes_max - s->bytes) {
        s->slow = true;
        return STREAM_SLOW;
    }
    append(s, f);
    return same ? STREAM_MERGED : STREAM_TAKEN;
}

/* Must the loop wake? If so the caller counts as its sender and has to call loop_post_stream(). */
static struct loop *loop_to_wake(struct stream *s)
{
    if (!s->loop || s->queued || (s->stalled && !s->slow))
        return NULL;
    s->queued = true;
    stream_ref(s); /* the stack's */
    loop_sender_begins(s->loop);
    return s->loop;
}

/* ---- sending ---- */

/* The lock is held, and is let go. */
static enum stream_outcome send_locked(struct stream *s, struct frame *f)
{
    struct left left = {0};
    enum stream_outcome outcome = put(s, f, &left);
    struct loop *loop =
        outcome <= STREAM_SLOW && (s->count > 0 || s->slow) ? loop_to_wake(s) : NULL;
    pthread_mutex_unlock(&s->lock);
    if (loop)
        loop_post_stream(loop, s);
    drop_left(&left);
    return outcome;
}

enum stream_outcome stream_send(struct stream *s, struct frame *f)
{
    pthread_mutex_lock(&s->lock);
    return send_locked(s, f);
}

enum stream_outcome stream_greet(struct stream *s, struct frame *f)
{
    pthread_mutex_lock(&s->lock);
    if (s->greeted) {
        pthread_mutex_unlock(&s->lock);
        return STREAM_MERGED;
    }
    s->greeted = true;
    s->awaiting = false;
    return send_locked(s, f);
}

void stream_beat(struct stream *s)
{
    struct frame *f = frame_of_bytes(str_of(s->encoding->heartbeat));
    (void)stream_send(s, f);
    frame_unref(f);
}

static struct frame *bye(const struct stream *s, const char *reason)
{
    char text[128];
    struct buf out = buf_over(text, sizeof text);
    unsigned retry_ms = BYE_RETRY_MIN_MS + (unsigned)(hash_u64((uintptr_t)s) % BYE_RETRY_SPREAD_MS);
    s->encoding->bye(reason, retry_ms, &out);
    CHECK(!out.failed);
    return frame_of_bytes(buf_view(&out));
}

/* The goodbye goes beyond the limit on what may wait: it is one small frame, and the last. */
void stream_close(struct stream *s, const char *reason)
{
    struct frame *f = bye(s, reason);
    struct loop *loop = NULL;
    pthread_mutex_lock(&s->lock);
    if (!s->ended && !s->closing && !s->slow) {
        append(s, f);
        s->closing = true;
        loop = loop_to_wake(s);
    }
    pthread_mutex_unlock(&s->lock);
    if (loop)
        loop_post_stream(loop, s);
    frame_unref(f);
}

void stream_wake(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    struct loop *loop = loop_to_wake(s);
    pthread_mutex_unlock(&s->lock);
    if (loop)
        loop_post_stream(loop, s);
}

/* ---- leaving ---- */

bool stream_looked_at(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->queued = false;
    bool slow = s->slow;
    pthread_mutex_unlock(&s->lock);
    return slow;
}

void stream_take(struct stream *s, struct stream_batch *batch)
{
    struct waiting *unused = NULL;
    batch->count = 0;
    batch->bytes = 0;
    pthread_mutex_lock(&s->lock);
    batch->slow = s->slow;
    while (!s->slow && s->count > 0 && batch->count < BATCH_FRAMES_MAX &&
           batch->bytes < BATCH_BYTES_MAX) {
        struct frame *f = s->queue[s->first++].frame;
        if (!f)
            continue;
        batch->frames[batch->count++] = f;
        batch->bytes += f->len;
        s->count--;
    }
    if (s->count == 0 && !s->slow) {
        unused = s->queue;
        s->queue = NULL;
        s->first = s->end = s->cap = 0;
    }
    batch->last = s->closing && s->count == 0;
    pthread_mutex_unlock(&s->lock);
    free(unused);
}

void stream_left(struct stream *s, size_t bytes, bool stalled)
{
    pthread_mutex_lock(&s->lock);
    s->stalled = stalled;
    s->bytes -= (uint32_t)bytes;
    pthread_mutex_unlock(&s->lock);
}
