/* From signals to live events, and from commits to signals.
 *
 * A signal that has come is written down once and given to the hub with all its receivers.
 * In a process that is alone the publisher does this on the spot; what other nodes publish comes by
 * the receive step. Signals about one account are published by the commit hook's side, which must
 * not wait: with a remote signal they go through a list that the step empties, and when that is
 * full all listeners on every node are greeted again instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "live/live_state.h"
#include "net/frame.h"
#include "net/hub.h"

enum { DATA_MAX = 96, OUTGOING_A_TRIP = 256, PULLED_A_STEP = 64, RECEIVERS_A_PART = 512 };
enum { WAIT_MS = 200, RETRY_US = 200 * 1000 };

/* Of what waits in a stream, the newest of each kind and key is sent. */
enum frame_kind { KIND_GROUP = 1, KIND_READ, KIND_FEED, KIND_HELLO };

/* ---- sending ---- */

struct text {
    char data[DATA_MAX];
    struct frame_text frame;
};

static void send(struct live *live, const uint64_t *persons, size_t n, const struct text *t)
{
    size_t sent = hub_send(live->hub, persons, n, &t->frame);
    if (sent > 0)
        atomic_fetch_add_explicit(&live->sent, sent, memory_order_relaxed);
}

static void say(struct text *t, const char *name, enum frame_kind kind)
{
    t->frame =
        (struct frame_text){.name = str_of(name), .data = str_of(t->data), .kind = (uint32_t)kind};
}

static void send_number(struct live *live, const struct signal_message *m, const char *name,
                        enum frame_kind kind)
{
    struct text t;
    snprintf(t.data, sizeof t.data, "{\"group\":\"%llu\",\"seq\":%lld}", (unsigned long long)m->key,
             (long long)m->seq);
    say(&t, name, kind);
    t.frame.key = m->key;
    t.frame.seq = m->seq;
    send(live, m->receivers, m->n, &t);
}

static void send_post(struct live *live, int64_t post, const uint64_t *persons, size_t n)
{
    struct text t;
    snprintf(t.data, sizeof t.data, "{\"id\":\"%lld\"}", (long long)post);
    say(&t, "feed", KIND_FEED);
    if (n > 0)
        send(live, persons, n, &t);
}

static void send_pushed(struct live *live, const struct signal_message *m)
{
    uint64_t shown[RECEIVERS_A_PART];
    for (size_t from = 0, some; from < m->n; from += some) {
        some = m->n - from < RECEIVERS_A_PART ? m->n - from : RECEIVERS_A_PART;
        send_post(live, m->seq, shown,
                  live_unmuted(live, m->key, m->receivers + from, some, shown));
    }
}

void live_greet(struct live *live, uint64_t person, bool again)
{
    struct text t;
    snprintf(t.data, sizeof t.data, "{\"account\":\"%llu\"}", (unsigned long long)person);
    say(&t, "hello", KIND_HELLO);
    t.frame.greeting = true;
    if (again)
        send(live, &person, 1, &t);
    hub_greet(live->hub, person, &t.frame);
}

/* ---- pulled posts ---- */

/* When too many wait the oldest is left out: it is in the feed all the same. */
static void add_pulled(struct live *live, const struct signal_message *m)
{
    size_t i = 0;
    pthread_mutex_lock(&live->lock);
    while (i < live->pulled_count && live->pulled[i].author != m->key)
        i++;
    if (i == PULLED_MAX)
        memmove(live->pulled, live->pulled + 1, --i * sizeof *live->pulled);
    live->pulled[i] = (struct pulled){m->key, m->seq};
    live->pulled_count = i < live->pulled_count ? live->pulled_count : i + 1;
    pthread_mutex_unlock(&live->lock);
    live->config.wake(live->config.wake_ctx);
}

static void ask_about(struct live *live, uint64_t person)
{
    uint64_t authors[PULLED_MAX];
    bool visible[PULLED_MAX];
    int64_t newest = 0;
    for (size_t i = 0; i < live->asking_count; i++)
        authors[i] = live->asking[i].author;
    if (graph_visible(live->config.views->graph, person, authors, live->asking_count, visible) !=
        OK)
        return; /* the views are away: all listeners are greeted when they are back */
    for (size_t i = 0; i < live->asking_count; i++)
        if (visible[i] && live->asking[i].post > newest)
            newest = live->asking[i].post;
    send_post(live, newest, &person, newest > 0);
}

bool live_send_pulled(struct live *live)
{
    struct walk *w = &live->asked;
    if (w->at == w->count) {
        pthread_mutex_lock(&live->lock);
        memcpy(live->asking, live->pulled, live->pulled_count * sizeof *live->pulled);
        live->asking_count = live->pulled_count;
        live->pulled_count = 0;
        pthread_mutex_unlock(&live->lock);
        if (live->asking_count == 0)
            return false;
        live_begin_walk(live, w);
    }
    for (size_t i = 0; i < PULLED_A_STEP && w->at < w->count; i++)
        ask_about(live, w->persons[w->at++]);
    return true;
}

/* ---- receiving ---- */

static void receive(struct live *live, const struct signal_message *m)
{
    switch (m->kind) {
    case SIGNAL_GROUP:
        send_number(live, m, "group", KIND_GROUP);
        break;
    case SIGNAL_READ:
        send_number(live, m, "read", KIND_READ);
        break;
    case SIGNAL_FEED:
        send_pushed(live, m);
        break;
    case SIGNAL_FEED_PULLED:
        add_pulled(live, m);
        break;
    case SIGNAL_SESSION:
        live_mark(live, m->receivers, m->n, LISTENER_CHECK);
        if (m->key)
            live_check_granted(live, m->key);
        break;
    case SIGNAL_MUTE:
        for (size_t i = 0; i < m->n; i++)
            live_mute(live, m->receivers[i], m->key, m->seq != 0);
        break;
    case SIGNAL_EVERYBODY:
        live_greet_all(live);
        break;
    case SIGNAL_KINDS:
        break;
    }
}

void live_receive(void *ctx, const struct signal_message *messages, size_t n)
{
    struct live *live = ctx;
    for (size_t i = 0; i < n; i++)
        receive(live, &messages[i]);
}

/* No greeting is sent before the signals arrive; when some may be missing, all listeners get one.
 */
int64_t live_receive_step(struct live *live)
{
    bool missed;
    pthread_mutex_lock(&live->lock);
    bool has_listeners = live->listeners.count > 0;
    pthread_mutex_unlock(&live->lock);
    if (!has_listeners) {
        atomic_store(&live->in_sync, false);
        signal_reset(live->config.signal);
        return INT64_MAX;
    }
    enum err e = signal_consume(live->config.signal, WAIT_MS, &missed);
    int64_t now_us = clock_mono_us(live->config.clock);
    if (e)
        return now_us + RETRY_US;
    if (missed) {
        atomic_store(&live->in_sync, true);
        live_greet_all(live);
    }
    return now_us;
}

/* ---- publishing ---- */

static bool signal_of(const struct event *e, struct outgoing *out)
{
    switch (e->type) {
    case EVENT_GROUP_READ:
        *out = (struct outgoing){SIGNAL_READ, e->actor, e->value, e->object};
        return true;
    case EVENT_POST_CREATED: /* followers are told by the engine */
        *out = (struct outgoing){SIGNAL_FEED, e->actor, (int64_t)e->object, e->actor};
        return true;
    case EVENT_MUTE_CREATED:
    case EVENT_MUTE_REMOVED:
        *out = (struct outgoing){SIGNAL_MUTE, e->object, e->type == EVENT_MUTE_CREATED, e->actor};
        return true;
    case EVENT_SESSION_ENDED: /* of an API key it is the key that says so */
        *out = (struct outgoing){SIGNAL_SESSION, e->actor == e->object ? e->actor : 0, 0, e->actor};
        return true;
    case EVENT_ACCOUNT_SUSPENDED:
    case EVENT_ACCOUNT_DELETED:
        *out = (struct outgoing){SIGNAL_SESSION, 0, 0, e->actor};
        return true;
    default:
        return false;
    }
}

static struct signal_message message_of(const struct outgoing *o)
{
    return (struct signal_message){o->kind, o->key, o->seq, &o->person, 1};
}

void live_committed(struct live *live, const struct event *events, size_t n)
{
    bool remote = live->config.signal->remote, any = false;
    for (size_t i = 0; i < n; i++) {
        struct outgoing one;
        if (!signal_of(&events[i], &one))
            continue;
        if (!remote) {
            struct signal_message m = message_of(&one);
            if (hub_has(live->hub, one.person) || one.kind == SIGNAL_SESSION)
                live_receive(live, &m, 1);
            continue;
        }
        pthread_mutex_lock(&live->lock);
        if (live->outgoing_count < OUTGOING_MAX)
            live->outgoing[live->outgoing_count++] = one;
        else
            live->outgoing_lost = true;
        pthread_mutex_unlock(&live->lock);
        any = true;
    }
    if (any)
        live->config.wake(live->config.wake_ctx);
}

/* True: some of what waited is published, or there was nothing. */
static bool publish_some(struct live *live, bool *more)
{
    struct outgoing some[OUTGOING_A_TRIP];
    struct signal_message messages[OUTGOING_A_TRIP + 1];
    pthread_mutex_lock(&live->lock);
    size_t n = live->outgoing_count < OUTGOING_A_TRIP ? live->outgoing_count : OUTGOING_A_TRIP;
    bool lost = live->outgoing_lost;
    memcpy(some, live->outgoing, n * sizeof *some);
    pthread_mutex_unlock(&live->lock);
    for (size_t i = 0; i < n; i++)
        messages[i] = message_of(&some[i]);
    if (lost)
        messages[n] = (struct signal_message){.kind = SIGNAL_EVERYBODY};
    *more = n + lost > 0;
    if (!*more)
        return true;
    if (signal_publish(live->config.signal, messages, n + lost) != OK)
        return false;
    pthread_mutex_lock(&live->lock); /* others only add */
    live->outgoing_count -= n;
    memmove(live->outgoing, live->outgoing + n, live->outgoing_count * sizeof *some);
    live->outgoing_lost &= !lost;
    pthread_mutex_unlock(&live->lock);
    return true;
}

bool live_publish(struct live *live)
{
    bool more = true;
    while (more)
        if (!publish_some(live, &more))
            return false;
    return true;
}

bool live_has_waiting(struct live *live)
{
    pthread_mutex_lock(&live->lock);
    bool has =
        live->first || live->outgoing_count > 0 || live->outgoing_lost || live->pulled_count > 0;
    pthread_mutex_unlock(&live->lock);
    return has || live->asked.at < live->asked.count;
}
