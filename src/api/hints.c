/* Who is listened to, whose turn it is to be looked at, and the step that does it.
 *
 * Everybody with a stream has a record. It is made and marked as gone under the hub's lock, in the
 * order in which streams come and go, and freed by the step alone, which can therefore look at it
 * without a lock. Whoever has news of a person marks the record and puts it into the queue, once
 * however many news there are; so there is never more to do than there are people listening.
 *
 * A stream is greeted when its person has been looked at: only then is what happens later told. */
#include <stdlib.h>
#include <string.h>

#include "api/hints_state.h"
#include "base/check.h"
#include "base/hash.h"
#include "net/hub.h"
#include "net/stream.h"

enum {
    BUCKETS_MIN = 64,
    TOUCHES_MAX = 4096,
    LOOKS_A_STEP = 32,
    RETRY_US = 200 * 1000,
    /* shared views */
    SCAN_EVERY_US = 10 * 1000,
    SCAN_SHARE = 20,              /* a scan takes at most this part of the time */
    ASK_EVERY_US = 500 * 1000,    /* are the connections that bring news alive? */
    UNHEARD_US = 1000 * 1000,     /* what the watch does not hear of is looked at so often */
    UNHEARD_FIRST_US = 10 * 1000, /* sooner at first: its connections are opened when wanted */
    UNHEARD_DOUBLINGS = 8,
    UNHEARD_FEED_US = 5000 * 1000,
    /* being here */
    SEEN_A_STEP = 256,
    SEEN_SHARE = 3, /* so often within the time that counts as lately: one may be in vain */
};

#define SEEN_MIN_US (INT64_C(1000) * 1000)
#define SEEN_MAX_US (INT64_C(600) * 1000 * 1000)

struct greeting {
    struct greeting *next;
    struct stream *stream;
    uint64_t person;
};

static bool is_shared(const struct hints *h)
{
    return h->config.watch != NULL;
}

/* ---- the table and the queue, under the lock ---- */

static struct listener **link_to(struct hints *h, uint64_t person)
{
    struct listener **at = &h->buckets[hash_u64(person) & (h->bucket_count - 1)];
    while (*at && (*at)->person != person)
        at = &(*at)->next;
    return at;
}

static void grow(struct hints *h)
{
    if (h->listener_count < h->bucket_count)
        return;
    struct listener **old = h->buckets;
    size_t old_count = h->bucket_count;
    h->bucket_count = old_count ? old_count * 2 : BUCKETS_MIN;
    h->buckets = calloc(h->bucket_count, sizeof(struct listener *));
    CHECK(h->buckets); /* eight bytes a person */
    for (size_t i = 0; i < old_count; i++) {
        struct listener *next;
        for (struct listener *l = old[i]; l; l = next) {
            next = l->next;
            struct listener **bucket = &h->buckets[hash_u64(l->person) & (h->bucket_count - 1)];
            l->next = *bucket;
            *bucket = l;
        }
    }
    free(old);
}

static void enqueue(struct hints *h, struct listener *l, unsigned parts)
{
    l->dirty |= parts;
    if (l->queued)
        return;
    l->queued = true;
    l->next_dirty = NULL;
    *h->dirty_last = l;
    h->dirty_last = &l->next_dirty;
}

static struct listener *dequeue(struct hints *h)
{
    struct listener *l = h->dirty_first;
    if (!l)
        return NULL;
    h->dirty_first = l->next_dirty;
    if (!h->dirty_first)
        h->dirty_last = &h->dirty_first;
    l->queued = false;
    return l;
}

static void wake(struct hints *h)
{
    h->config.wake(h->config.wake_ctx);
}

static void mark(struct hints *h, uint64_t person, unsigned parts)
{
    pthread_mutex_lock(&h->lock);
    struct listener *l = *link_to(h, person);
    bool found = l && !l->gone;
    if (found)
        enqueue(h, l, parts);
    pthread_mutex_unlock(&h->lock);
    if (found)
        wake(h);
}

/* ---- news ---- */

static void views_changed(void *ctx, uint64_t person, enum view_part what)
{
    mark(ctx, person, (unsigned)what);
}

/* The hub's: in the order in which streams come and go. The views are told first: what changes from
 * then on is looked at after this, and what changed before is seen by the first look. */
static void listen_to(void *ctx, uint64_t person, bool on)
{
    struct hints *h = ctx;
    if (!is_shared(h))
        (void)views_listen(h->config.views, person, on);
    pthread_mutex_lock(&h->lock);
    grow(h);
    struct listener **at = link_to(h, person), *l = *at;
    if (!l && on) {
        l = calloc(1, sizeof *l);
        CHECK(l); /* a kilobyte for each who has a connection already */
        l->person = person;
        *at = l;
        h->listener_count++;
    }
    if (l) {
        l->gone = !on;
        enqueue(h, l, on ? HINT_ALL : 0);
    }
    pthread_mutex_unlock(&h->lock);
    wake(h);
}

static void touch(struct hints *h, uint64_t person)
{
    mark(h, person, HINT_TRUTH);
    if (!is_shared(h))
        return;
    pthread_mutex_lock(&h->lock);
    bool room = h->touch_count < TOUCHES_MAX;
    if (room)
        h->touches[h->touch_count++] = person;
    pthread_mutex_unlock(&h->lock);
    if (room)
        wake(h);
    else
        atomic_fetch_add_explicit(&h->missed, 1, memory_order_relaxed);
}

void hints_mark_all(struct hints *h)
{
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < h->bucket_count; i++)
        for (struct listener *l = h->buckets[i]; l; l = l->next)
            if (!l->gone)
                enqueue(h, l, HINT_INBOX | HINT_TRUTH);
    pthread_mutex_unlock(&h->lock);
}

void hints_committed(struct hints *h, const struct event *events, size_t n)
{
    hints_entries(h, events, n);
    for (size_t i = 0; i < n; i++) {
        switch (events[i].type) {
        case EVENT_GROUP_READ:
            touch(h, events[i].object);
            break;
        case EVENT_SESSION_ENDED:
        case EVENT_ACCOUNT_SUSPENDED:
        case EVENT_ACCOUNT_DELETED:
            touch(h, events[i].actor);
            break;
        default:
            break;
        }
    }
}

/* ---- joining ---- */

static void add_session(struct listener *l, uint64_t session)
{
    for (size_t i = 0; i < l->session_count; i++)
        if (l->sessions[i] == session)
            return;
    if (l->session_count == LISTENER_SESSIONS_MAX) /* more than are open: the oldest is long gone */
        memmove(l->sessions, l->sessions + 1, --l->session_count * sizeof *l->sessions);
    l->sessions[l->session_count++] = session;
}

enum err hints_join(struct hints *h, uint64_t person, uint64_t session, struct stream *s)
{
    enum err e = hub_join(h->hub, person, s);
    if (e)
        return e;
    struct greeting *g = calloc(1, sizeof *g);
    CHECK(g);
    *g = (struct greeting){.stream = stream_ref(s), .person = person};
    pthread_mutex_lock(&h->lock);
    struct listener *l = *link_to(h, person);
    if (l && session)
        add_session(l, session);
    if (l)
        enqueue(h, l, HINT_TRUTH); /* did the session end while it joined? */
    g->next = h->greetings;
    h->greetings = g;
    pthread_mutex_unlock(&h->lock);
    wake(h);
    return OK;
}

/* ---- the step ---- */

static void release(struct hints *h, struct listener *l)
{
    hints_leave_all(h, l);
    free(l->inbox.reads);
    free(l->feed.reads);
    free(l);
}

/* The next whose turn it is; those who are gone go. */
static size_t take_dirty(struct hints *h, struct listener **out, unsigned *parts, size_t max)
{
    size_t n = 0;
    struct listener *l;
    pthread_mutex_lock(&h->lock);
    while (n < max && (l = dequeue(h))) {
        if (l->gone) {
            *link_to(h, l->person) = l->next;
            h->listener_count--;
            release(h, l);
            continue;
        }
        parts[n] = l->dirty;
        l->dirty = 0;
        out[n++] = l;
    }
    pthread_mutex_unlock(&h->lock);
    return n;
}

static void put_back(struct hints *h, struct listener *l, unsigned parts)
{
    pthread_mutex_lock(&h->lock);
    enqueue(h, l, parts);
    pthread_mutex_unlock(&h->lock);
}

/* Those whose person is known are taken out; of those who are gone the stream has ended. */
static struct greeting *take_greetings(struct hints *h)
{
    struct greeting *ready = NULL;
    pthread_mutex_lock(&h->lock);
    for (struct greeting **at = &h->greetings; *at;) {
        struct greeting *g = *at;
        const struct listener *l = *link_to(h, g->person);
        if (l && !l->gone && (!l->known || (l->dirty & HINT_TRUTH))) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        g->next = ready;
        ready = g;
    }
    pthread_mutex_unlock(&h->lock);
    return ready;
}

static void greet_all(struct hints *h)
{
    struct greeting *next;
    for (struct greeting *g = take_greetings(h); g; g = next) {
        next = g->next;
        hints_greet(h, g->person, g->stream);
        stream_unref(g->stream);
        free(g);
    }
}

/* ---- shared views ---- */

static void send_touches(struct hints *h)
{
    uint64_t persons[256];
    size_t n;
    pthread_mutex_lock(&h->lock);
    n = h->touch_count < COUNT_OF(persons) ? h->touch_count : COUNT_OF(persons);
    h->touch_count -= n;
    memcpy(persons, h->touches, n * sizeof *persons);
    memmove(h->touches, h->touches + n, h->touch_count * sizeof *persons);
    pthread_mutex_unlock(&h->lock);
    if (n > 0 && views_touch(h->config.views, persons, n) != OK)
        atomic_fetch_add_explicit(&h->missed, n, memory_order_relaxed);
}

static void answer_came(struct watch_question *q, bool good)
{
    struct hints *h = CONTAINER_OF(q, struct hints, question);
    pthread_mutex_lock(&h->lock);
    h->asking = false;
    h->doubtful = !good;
    pthread_cond_broadcast(&h->answered);
    pthread_mutex_unlock(&h->lock);
}

/* News come by themselves; that none can come is noticed only by asking. */
static void ask(struct hints *h, int64_t now_us)
{
    bool due = false;
    pthread_mutex_lock(&h->lock);
    if (!h->asking && h->listener_count > 0 && now_us - h->asked_at_us >= ASK_EVERY_US) {
        due = h->asking = true;
        h->asked_at_us = now_us;
    }
    pthread_mutex_unlock(&h->lock);
    if (due)
        watch_ask(h->config.watch, &h->question);
}

static bool is_due(struct hints *h, const struct watched *w, int64_t now_us, int64_t unheard_us)
{
    if (w->whole && !h->doubtful)
        return !watch_same(h->config.watch, w->generation, w->reads, w->count);
    int64_t pause_us = w->unheard > 0 && w->unheard < UNHEARD_DOUBLINGS
                           ? (int64_t)UNHEARD_FIRST_US << w->unheard
                           : unheard_us;
    return now_us - w->looked_at_us >= (pause_us < unheard_us ? pause_us : unheard_us);
}

static void scan(struct hints *h, int64_t now_us)
{
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < h->bucket_count; i++) {
        for (struct listener *l = h->buckets[i]; l; l = l->next) {
            if (l->queued || l->gone)
                continue;
            unsigned parts = 0;
            if (is_due(h, &l->inbox, now_us, UNHEARD_US)) /* a touch is heard of here, too */
                parts |= HINT_INBOX | HINT_TRUTH;
            if (is_due(h, &l->feed, now_us, UNHEARD_FEED_US))
                parts |= HINT_FEED;
            if (parts)
                enqueue(h, l, parts);
        }
    }
    bool anybody = h->listener_count > 0;
    pthread_mutex_unlock(&h->lock);
    if (!anybody)
        hints_ignore_news(h);
    else if (is_due(h, &h->news, now_us, UNHEARD_US))
        hints_hear_news(h);
    h->scanned_at_us = now_us;
    h->scan_took_us = clock_mono_us(h->config.clock) - now_us;
}

static int64_t next_scan_us(const struct hints *h)
{
    int64_t pause = h->scan_took_us * SCAN_SHARE;
    return h->scanned_at_us + (pause > SCAN_EVERY_US ? pause : SCAN_EVERY_US);
}

static bool is_idle(struct hints *h)
{
    pthread_mutex_lock(&h->lock);
    bool idle = h->listener_count == 0 && h->touch_count == 0;
    pthread_mutex_unlock(&h->lock);
    return idle;
}

static bool has_dirty(struct hints *h)
{
    pthread_mutex_lock(&h->lock);
    bool has = h->dirty_first != NULL || h->touch_count > 0;
    pthread_mutex_unlock(&h->lock);
    return has || hints_has_news(h);
}

/* ---- being here ---- */

static int64_t seen_every_us(const struct hints *h)
{
    int64_t every_us = h->config.active_within_ms * (1000 / SEEN_SHARE);
    return every_us == 0            ? SEEN_MAX_US
           : every_us < SEEN_MIN_US ? SEEN_MIN_US
           : every_us > SEEN_MAX_US ? SEEN_MAX_US
                                    : every_us;
}

/* What the views cannot be told now they are told with the next round. */
static void tell_seen(struct hints *h, const uint64_t *persons, size_t n)
{
    struct view_change changes[SEEN_A_STEP];
    for (size_t i = 0; i < n; i++)
        changes[i] = (struct view_change){.kind = VIEW_SEEN,
                                          .on = true,
                                          .account = persons[i],
                                          .value = clock_wall_ms(h->config.clock)};
    if (n > 0)
        (void)views_apply(h->config.views, changes, n);
}

/* The next of the round; true: there are more. A table that grows meanwhile may have somebody met
 * twice, or not before the next round. */
static bool see_some(struct hints *h, int64_t now_us)
{
    uint64_t persons[SEEN_A_STEP];
    size_t n = 0;
    if (now_us - h->seen_at_us >= seen_every_us(h)) {
        h->seen_at_us = now_us;
        h->seen_bucket = 0;
    }
    pthread_mutex_lock(&h->lock);
    for (; h->seen_bucket < h->bucket_count; h->seen_bucket++) {
        size_t before = n;
        const struct listener *l = h->buckets[h->seen_bucket];
        for (; l && n < SEEN_A_STEP; l = l->next)
            if (!l->gone)
                persons[n++] = l->person;
        if (l && before > 0) { /* all of a bucket, or with the next step */
            n = before;
            break;
        }
    }
    bool more = h->seen_bucket < h->bucket_count;
    pthread_mutex_unlock(&h->lock);
    if (!more)
        h->seen_bucket = SIZE_MAX;
    tell_seen(h, persons, n);
    return more;
}

static void see_new(struct hints *h, struct listener *const *taken, size_t n)
{
    uint64_t persons[LOOKS_A_STEP];
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (!taken[i]->known)
            persons[count++] = taken[i]->person;
    tell_seen(h, persons, count);
}

int64_t hints_step(struct hints *h)
{
    struct listener *taken[LOOKS_A_STEP];
    unsigned parts[LOOKS_A_STEP];
    int64_t now_us = clock_mono_us(h->config.clock);
    bool failed = false;
    if (is_shared(h)) {
        send_touches(h);
        failed = !hints_send_news(h);
        ask(h, now_us);
        if (now_us >= next_scan_us(h) || h->news.looked_at_us == 0)
            scan(h, now_us); /* news are heard from before the first is greeted */
    }
    failed |= !hints_tell_news(h);
    bool more_to_see = see_some(h, now_us);
    size_t n = take_dirty(h, taken, parts, LOOKS_A_STEP);
    see_new(h, taken, n);
    for (size_t i = 0; i < n; i++) {
        unsigned again = 0;
        atomic_fetch_add_explicit(&h->looks, 1, memory_order_relaxed);
        if (hints_look(h, taken[i], parts[i], &again))
            continue;
        atomic_fetch_add_explicit(&h->failed, 1, memory_order_relaxed);
        put_back(h, taken[i], again);
        failed = true;
    }
    greet_all(h);
    if (failed)
        return now_us + RETRY_US;
    if (more_to_see || has_dirty(h))
        return now_us;
    if (is_idle(h))
        return INT64_MAX;
    int64_t seen_us = h->seen_at_us + seen_every_us(h);
    return is_shared(h) && next_scan_us(h) < seen_us ? next_scan_us(h) : seen_us;
}

/* ---- life ---- */

struct hints *hints_new(const struct hints_config *config)
{
    struct hints *h = calloc(1, sizeof *h);
    CHECK(h);
    h->config = *config;
    h->dirty_last = &h->dirty_first;
    h->question.done = answer_came;
    h->touches = calloc(TOUCHES_MAX, sizeof *h->touches);
    CHECK(h->touches);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->answered, NULL);
    grow(h);
    hints_news_init(h);
    h->hub = hub_new(&(struct hub_config){.streams_max = config->streams_max,
                                          .person_max = config->person_max,
                                          .listen = listen_to,
                                          .ctx = h});
    if (!is_shared(h)) {
        config->views->changed_ctx = h;
        config->views->changed = views_changed;
    }
    return h;
}

void hints_free(struct hints *h)
{
    if (!h)
        return;
    if (!is_shared(h))
        h->config.views->changed = NULL;
    pthread_mutex_lock(&h->lock);
    while (h->asking) /* answered within WATCH_ASK_MS */
        pthread_cond_wait(&h->answered, &h->lock);
    pthread_mutex_unlock(&h->lock);
    hub_free(h->hub);
    struct greeting *next_greeting;
    for (struct greeting *g = h->greetings; g; g = next_greeting) {
        next_greeting = g->next;
        stream_unref(g->stream);
        free(g);
    }
    for (size_t i = 0; i < h->bucket_count; i++) {
        struct listener *next;
        for (struct listener *l = h->buckets[i]; l; l = next) {
            next = l->next;
            release(h, l);
        }
    }
    hints_news_done(h);
    pthread_cond_destroy(&h->answered);
    pthread_mutex_destroy(&h->lock);
    free(h->buckets);
    free(h->touches);
    free(h);
}

struct hub *hints_hub(struct hints *h)
{
    return h->hub;
}

void hints_stats(struct hints *h, struct hints_stats *out)
{
    pthread_mutex_lock(&h->lock);
    out->persons = h->listener_count;
    pthread_mutex_unlock(&h->lock);
    out->looks = atomic_load_explicit(&h->looks, memory_order_relaxed);
    out->failed = atomic_load_explicit(&h->failed, memory_order_relaxed);
    out->sent = atomic_load_explicit(&h->sent, memory_order_relaxed);
    out->missed = atomic_load_explicit(&h->missed, memory_order_relaxed);
}
