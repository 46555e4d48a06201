/* How the invalidation listener receives changes, and knows that it has received all.
 *
 * Redis remembers for each connection with CLIENT TRACKING which keys it has read, and reports once
 * when one of them is changed. Connections that a page is read over (connections.c opens them)
 * redirect these reports to another one, the invalidation listener's connection to the same server,
 * which does nothing but listen (in RESP3: see push_message.c). In Redis 7.0 a key counts as read
 * also when it does not exist, when the command failed for its type, within MULTI, and, if a script
 * reads anything at all, all keys that were declared to the script.
 *
 * Servers send push messages in the order in which things happen, and answer what is asked on the
 * same connection after them. So a **round trip** is one question to every server; when all have
 * answered, every change made before the round trip began has arrived. A caller that asks while one
 * is under way waits for the next: one round trip at a time, for all callers before it. The first
 * caller sends it itself; the listener, a thread, reads the answers, calls the callers back, and
 * sends the next.
 *
 * In a cluster the question is about a key: a master that has been replaced, or is cut off from the
 * others, answers a PING as ever while changes go elsewhere. It refuses the key, as it would have
 * refused to read the page.
 *
 * Connections leave the set only together with the generation, so a round trip covers every server
 * that a trace of this generation may have been read from. The listener drops a server that does
 * not answer within ROUND_TRIP_MS. A caller waits for two round trips at most, which is less than
 * INVALIDATION_ASK_MS.
 *
 * Redis silently forgets what a connection has read when that connection is closed. So the
 * connections that were read over are guarded: when the server closes one, the listener is woken,
 * and the generation changes. (The end of one connection and the answer on another have no order
 * between them on a network that loses packets. They do as long as none is lost, since the end is
 * looked for before the answer counts.)
 *
 * Opening takes its time, the resolver's for one, so another thread, the opener, does it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "view/redis/handshake.h"
#include "view/redis/invalidation_driver.h"
#include "view/redis/keys.h"
#include "view/redis/push_message.h"

enum {
    ROUND_TRIP_MS = 400,
    LOOK_EVERY_MS = 100, /* at the time, while a caller waits */
    QUIET_MS = 1000,     /* without a caller for this long the listener sleeps until it is woken */
    RETRY_FIRST_MS = 50,
    RETRY_LAST_MS = 1000,
    LASTING_MS = 5000, /* a connection that lived so long was a good one */
    EVENTS_MAX = 64,
    READS_AT_ONCE = 16,
    READ_BYTES = 64 * 1024,
    TAGS_MAX = 1 << 20 /* one in 16,384 falls into a slot */
};

_Static_assert(2 * ROUND_TRIP_MS + LOOK_EVERY_MS < INVALIDATION_ASK_MS,
               "two round trips fit into an answer");

/* What an event is about; anything else is a peer. */
static char wake_tag, guard_tag;

static int64_t now_ms(void)
{
    return clock_mono_ms(clock_system());
}

static void wake(struct redis_invalidation *w)
{
    CHECK(eventfd_write(w->wake, 1) == 0 || errno == EAGAIN);
}

/* ---- peers ---- */

/* The lock is held. */
static struct invalidation_peer *find_peer(struct redis_invalidation *w, const char *host, int port)
{
    for (size_t i = 0; i < w->peer_count; i++)
        if (w->peers[i]->port == port && strcmp(w->peers[i]->host, host) == 0)
            return w->peers[i];
    return NULL;
}

/* The lock is held. A place for one more: an unused one gives way. */
static struct invalidation_peer *add_peer(struct redis_invalidation *w)
{
    struct invalidation_peer *p = NULL;
    for (size_t i = 0; w->peer_count == INVALIDATION_PEERS_MAX && i < w->peer_count && !p; i++) {
        struct invalidation_peer *old = w->peers[i];
        if (old->refs == 0 && old->fd < 0 && !old->opening)
            p = old;
    }
    if (p)
        buf_done(&p->in);
    if (!p && w->peer_count < INVALIDATION_PEERS_MAX) {
        p = w->peers[w->peer_count++] = malloc(sizeof *p);
        CHECK(p);
    }
    if (p) {
        *p = (struct invalidation_peer){
            .invalidation = w, .fd = -1, .retry_after_ms = RETRY_FIRST_MS};
        buf_init(&p->in, 2 * PUSH_BYTES_MAX);
    }
    return p;
}

struct invalidation_peer *invalidation_peer_take(struct invalidation *base, const char *host,
                                                 int port)
{
    struct redis_invalidation *w = redis_invalidation_of(base);
    pthread_mutex_lock(&w->lock);
    struct invalidation_peer *p = find_peer(w, host, port);
    if (!p && strlen(host) < sizeof p->host && (p = add_peer(w))) {
        memcpy(p->host, host, strlen(host) + 1);
        p->port = port;
    }
    if (p)
        p->refs++;
    pthread_mutex_unlock(&w->lock);
    return p;
}

void invalidation_peer_release(struct invalidation_peer *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->invalidation->lock);
    CHECK(p->refs > 0);
    p->refs--;
    pthread_mutex_unlock(&p->invalidation->lock);
}

uint64_t invalidation_peer_id(const struct invalidation_peer *p)
{
    return atomic_load(&p->id);
}

void invalidation_peer_want(struct invalidation_peer *p, int slot)
{
    if (atomic_load(&p->wanted))
        return;
    pthread_mutex_lock(&p->invalidation->lock);
    p->slot = slot;
    atomic_store(&p->wanted, true);
    pthread_cond_signal(&p->invalidation->wish);
    pthread_mutex_unlock(&p->invalidation->lock);
}

void invalidation_peer_refused(struct invalidation_peer *p, uint64_t id)
{
    pthread_mutex_lock(&p->invalidation->lock);
    if (p->fd >= 0 && atomic_load(&p->id) == id) {
        p->failed = true;
        wake(p->invalidation);
    }
    pthread_mutex_unlock(&p->invalidation->lock);
}

/* Does not read from it: the user of the connection does that. */
bool invalidation_guard(struct invalidation *base, int fd)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = &guard_tag};
    return epoll_ctl(redis_invalidation_of(base)->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* ---- opening ---- */

/* What the round trips ask: about a key in that slot, which need not be there. */
static size_t write_probe(char probe[PROBE_MAX], int slot)
{
    char key[KEY_MAX];
    int n = 0;
    if (slot < 0)
        return (size_t)snprintf(probe, PROBE_MAX, "*1\r\n$4\r\nPING\r\n");
    for (unsigned tag = 0; tag < TAGS_MAX; tag++) {
        n = snprintf(key, sizeof key, "invalidation{%u}", tag);
        if (slot_of((struct str){key, (size_t)n}) == slot)
            break;
    }
    return (size_t)snprintf(probe, PROBE_MAX, "*2\r\n$6\r\nEXISTS\r\n$%d\r\n%s\r\n", n, key);
}

/* Asks before the listener does. True: it was answered, and not refused. */
static bool ask_first(int fd, const char *text, size_t text_len)
{
    char in[4096];
    size_t len = 0;
    struct push_message push_message = {.kind = PUSH_MORE};
    if (send(fd, text, text_len, MSG_NOSIGNAL) != (ssize_t)text_len)
        return false;
    while (push_message.kind == PUSH_MORE && len < sizeof in) {
        ssize_t n = recv(fd, in + len, sizeof in - len, 0); /* the socket has a timeout */
        if (n <= 0)
            return false;
        len += (size_t)n;
        push_message_read((struct str){in, len}, &push_message);
    }
    if (push_message.kind == PUSH_REFUSAL)
        log_info("Redis does not tell of changes here", LOG_STR("why", push_message.text));
    return push_message.kind == PUSH_ANSWER && push_message.size == len;
}

/* What the map took for a master may refuse the probe: that is found out before it counts. -1: not
 * now. */
static int open_peer(struct redis_invalidation *w, struct invalidation_peer *p, uint64_t *id)
{
    static const char hello[] = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n";
    redisContext *c = handshake_open(&w->url, p->host, p->port);
    if (!c)
        return -1;
    redisReply *named = redisCommandArgv(c, 2, (const char *[]){"CLIENT", "ID"}, NULL);
    *id = named && named->type == REDIS_REPLY_INTEGER && named->integer > 0
              ? (uint64_t)named->integer
              : 0;
    if (named)
        freeReplyObject(named);
    p->probe_len = write_probe(p->probe, p->slot);
    bool good = *id && ask_first(c->fd, hello, sizeof hello - 1) &&
                ask_first(c->fd, p->probe, p->probe_len);
    int fd = good ? fcntl(c->fd, F_DUPFD_CLOEXEC, 0) : -1;
    redisFree(c);
    return fd;
}

/* The lock is held. */
static void retry_later(struct invalidation_peer *p, int64_t now)
{
    p->retry_at_ms = now + p->retry_after_ms;
    p->retry_after_ms =
        p->retry_after_ms * 2 < RETRY_LAST_MS ? p->retry_after_ms * 2 : RETRY_LAST_MS;
}

/* The lock is held. No page is read over a connection with this id before the listener listens. */
static void install(struct redis_invalidation *w, struct invalidation_peer *p, int fd, uint64_t id)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = p};
    if (fd < 0 || w->stopping || epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        if (fd >= 0)
            close(fd);
        retry_later(p, now_ms());
        return;
    }
    p->fd = fd;
    p->failed = p->awaited = false;
    p->opened_at_ms = now_ms();
    atomic_store(&p->id, id);
}

/* The lock is held. The next that may be opened now, or when to look again. */
static struct invalidation_peer *next_wanted(struct redis_invalidation *w, int64_t *look_at_ms)
{
    int64_t now = now_ms();
    *look_at_ms = INT64_MAX;
    for (size_t i = 0; i < w->peer_count; i++) {
        struct invalidation_peer *p = w->peers[i];
        if (p->fd >= 0 || !atomic_load(&p->wanted))
            continue;
        if (p->retry_at_ms <= now)
            return p;
        *look_at_ms = p->retry_at_ms < *look_at_ms ? p->retry_at_ms : *look_at_ms;
    }
    return NULL;
}

static void *open_wanted(void *arg)
{
    struct redis_invalidation *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->stopping) {
        int64_t look_at_ms;
        struct invalidation_peer *p = next_wanted(w, &look_at_ms);
        if (!p && look_at_ms == INT64_MAX) {
            pthread_cond_wait(&w->wish, &w->lock);
        } else if (!p) {
            struct timespec until = {look_at_ms / 1000, look_at_ms % 1000 * 1000000};
            (void)pthread_cond_timedwait(&w->wish, &w->lock, &until);
        } else {
            uint64_t id = 0;
            p->opening = true; /* and wanted: no other thread touches it */
            pthread_mutex_unlock(&w->lock);
            int fd = open_peer(w, p, &id);
            pthread_mutex_lock(&w->lock);
            p->opening = false;
            install(w, p, fd, id);
            atomic_store(&p->wanted, false); /* a reader that still wants it asks again */
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- round trips ---- */

static void answer(struct invalidation_question *q, bool good)
{
    while (q) {
        struct invalidation_question *next = q->next; /* q is the asker's again */
        q->done(q, good);
        q = next;
    }
}

/* The lock is held. Sends all that wait on their way. False: there is no server to ask. */
static bool begin_round_trip(struct redis_invalidation *w)
{
    w->flying = w->waiting;
    w->waiting = NULL;
    w->waiting_end = &w->waiting;
    w->awaited = 0;
    w->spoiled = false;
    for (size_t i = 0; i < w->peer_count; i++) {
        struct invalidation_peer *p = w->peers[i];
        if (p->fd < 0 || p->failed)
            continue;
        ssize_t n = send(p->fd, p->probe, p->probe_len, MSG_DONTWAIT | MSG_NOSIGNAL);
        p->awaited = n == (ssize_t)p->probe_len;
        p->failed = !p->awaited; /* one question at a time always has room */
        w->awaited += p->awaited;
        w->spoiled |= p->failed;
    }
    if (w->spoiled)
        wake(w);
    w->under_way = w->awaited > 0;
    w->began_at_ms = now_ms();
    if (w->under_way)
        atomic_fetch_add_explicit(&w->round_trips, 1, memory_order_relaxed);
    return w->under_way;
}

void listener_ask(struct invalidation *base, struct invalidation_question *q)
{
    struct redis_invalidation *w = redis_invalidation_of(base);
    struct invalidation_question *in_vain = NULL;
    q->next = NULL;
    atomic_fetch_add_explicit(&w->asked, 1, memory_order_relaxed);
    pthread_mutex_lock(&w->lock);
    *w->waiting_end = q;
    w->waiting_end = &q->next;
    if (!w->under_way && !begin_round_trip(w)) {
        in_vain = w->flying;
        w->flying = NULL;
    } else if (w->asleep) {
        w->asleep = false;
        wake(w);
    }
    pthread_mutex_unlock(&w->lock);
    answer(in_vain, false);
}

/* ---- listening ---- */

static void take_answer(struct redis_invalidation *w, struct invalidation_peer *p)
{
    pthread_mutex_lock(&w->lock);
    if (p->awaited) {
        p->awaited = false;
        w->awaited--;
    }
    pthread_mutex_unlock(&w->lock);
}

/* False: the connection is done. */
static bool take_push_message(struct redis_invalidation *w, struct invalidation_peer *p,
                              struct push_message *push_message, bool *all)
{
    struct str key;
    switch (push_message->kind) {
    case PUSH_KEYS:
        while (push_message_next_key(push_message, &key))
            invalidation_heard(&w->invalidation, key);
        return true;
    case PUSH_ALL:
        *all = true;
        return true;
    case PUSH_ANSWER:
        take_answer(w, p);
        return true;
    case PUSH_REFUSAL:
        log_info("Redis does not serve what it did", LOG_CSTR("host", p->host),
                 LOG_INT("port", p->port), LOG_STR("why", push_message->text));
        return false;
    case PUSH_OTHER:
        return true;
    case PUSH_MORE:
    case PUSH_BAD:
        break;
    }
    return false;
}

/* All whole messages; the rest stays. */
static bool take_bytes(struct redis_invalidation *w, struct invalidation_peer *p, bool *all)
{
    size_t at = 0;
    while (at < p->in.len) {
        struct push_message push_message;
        push_message_read((struct str){p->in.ptr + at, p->in.len - at}, &push_message);
        if (push_message.kind == PUSH_MORE)
            break;
        at += push_message.size;
        if (!take_push_message(w, p, &push_message, all))
            return false;
    }
    memmove(p->in.ptr, p->in.ptr + at, p->in.len - at);
    p->in.len -= at;
    return true;
}

/* True: the connection is well. */
static bool read_peer(struct redis_invalidation *w, struct invalidation_peer *p, bool *all)
{
    pthread_mutex_lock(&w->lock);
    int fd = p->fd; /* no other thread closes it */
    pthread_mutex_unlock(&w->lock);
    if (fd < 0)
        return true;
    for (int i = 0; i < READS_AT_ONCE; i++) {
        char *to = buf_reserve(&p->in, READ_BYTES);
        if (!to)
            return false;
        ssize_t n = recv(fd, to, READ_BYTES, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (n <= 0)
            return false;
        p->in.len += (size_t)n;
        if (!take_bytes(w, p, all))
            return false;
        if (n < READ_BYTES)
            return true; /* whatever came since wakes us again */
    }
    return true;
}

/* The lock is held. Later reads do not use it; then the generation changes. */
static void close_peer(struct redis_invalidation *w, struct invalidation_peer *p)
{
    int64_t now = now_ms();
    atomic_store(&p->id, 0);
    invalidation_lost(&w->invalidation);
    close(p->fd);
    buf_clear(&p->in);
    p->fd = -1;
    p->failed = false;
    if (p->awaited) {
        p->awaited = false;
        w->awaited--;
        w->spoiled = true;
    }
    if (now - p->opened_at_ms >= LASTING_MS)
        p->retry_after_ms = RETRY_FIRST_MS;
    retry_later(p, now);
    if (!w->stopping)
        log_warn("Redis stopped sending push messages", LOG_CSTR("host", p->host),
                 LOG_INT("port", p->port));
}

/* Closes failed and silent connections, and ends the round trip if it is over: the losses first, so
 * that no caller gets a good answer before they count. */
static void settle(struct redis_invalidation *w)
{
    struct invalidation_question *told = NULL, *in_vain = NULL;
    bool good = false;
    pthread_mutex_lock(&w->lock);
    bool late = w->under_way && now_ms() - w->began_at_ms >= ROUND_TRIP_MS;
    for (size_t i = 0; i < w->peer_count; i++) {
        struct invalidation_peer *p = w->peers[i];
        if (p->fd >= 0 && (p->failed || (late && p->awaited)))
            close_peer(w, p);
    }
    if (w->under_way && w->awaited == 0) {
        told = w->flying;
        good = !w->spoiled;
        w->flying = NULL;
        w->under_way = false;
        if (w->waiting && !begin_round_trip(w)) {
            in_vain = w->flying;
            w->flying = NULL;
        }
    }
    pthread_mutex_unlock(&w->lock);
    answer(told, good);
    answer(in_vain, false);
}

/* How long nothing can become due; -1: until woken. */
static int patience_ms(struct redis_invalidation *w)
{
    int64_t now = now_ms(), wait = LOOK_EVERY_MS;
    pthread_mutex_lock(&w->lock);
    if (w->under_way)
        wait = w->began_at_ms + ROUND_TRIP_MS - now;
    w->asleep = !w->under_way && now - w->began_at_ms >= QUIET_MS;
    bool asleep = w->asleep;
    pthread_mutex_unlock(&w->lock);
    return asleep ? -1 : wait > 0 ? (int)wait : 0;
}

static void take_events(struct redis_invalidation *w, const struct epoll_event *events, int n)
{
    bool all = false;
    for (int i = 0; i < n; i++) {
        void *about = events[i].data.ptr;
        eventfd_t times;
        if (about == &wake_tag) {
            (void)eventfd_read(w->wake, &times);
        } else if (about == &guard_tag) {
            all = true;
        } else {
            struct invalidation_peer *p = about;
            if (read_peer(w, p, &all))
                continue;
            pthread_mutex_lock(&w->lock);
            p->failed = true;
            pthread_mutex_unlock(&w->lock);
        }
    }
    if (all) /* once, however many say so */
        invalidation_lost(&w->invalidation);
}

static void *listen_to_all(void *arg)
{
    struct redis_invalidation *w = arg;
    struct epoll_event events[EVENTS_MAX];
    while (!atomic_load(&w->stopping)) {
        int n = epoll_wait(w->epoll, events, EVENTS_MAX, patience_ms(w));
        take_events(w, events, n);
        settle(w);
    }
    return NULL;
}

/* ---- life ---- */

void listener_start(struct redis_invalidation *w)
{
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->wish);
    w->waiting_end = &w->waiting;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(w->epoll >= 0 && w->wake >= 0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &wake_tag};
    CHECK(epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake, &event) == 0);
    CHECK(pthread_create(&w->listener, NULL, listen_to_all, w) == 0);
    CHECK(pthread_create(&w->opener, NULL, open_wanted, w) == 0);
    pthread_setname_np(w->listener, "invalidation");
    pthread_setname_np(w->opener, "invalidation-open");
}

void listener_stop(struct redis_invalidation *w)
{
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->wish);
    wake(w);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->listener, NULL);
    pthread_join(w->opener, NULL);
    answer(w->flying, false);
    answer(w->waiting, false);
    for (size_t i = 0; i < w->peer_count; i++) {
        if (w->peers[i]->fd >= 0)
            close(w->peers[i]->fd);
        buf_done(&w->peers[i]->in);
        free(w->peers[i]);
    }
    close(w->epoll);
    close(w->wake);
    pthread_cond_destroy(&w->wish);
    pthread_mutex_destroy(&w->lock);
}
