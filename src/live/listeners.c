/* Who is listened to, whose turn it is to be looked at, and the step that does it.
 *
 * Everybody with a stream has a record. It is made and marked as gone under the hub's lock, in the
 * order in which streams come and go, and freed by the step alone, which can therefore look at it
 * without a lock. A change that concerns a person marks the record and puts it into the queue, once
 * however many changes there are; so there is never more to do than there are people listening.
 *
 * A stream is greeted when its person has been looked at: only then is what happens later told. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "live/live_state.h"
#include "net/hub.h"

enum {
    TOUCHES_MAX = 4096,
    LOOKS_A_STEP = 32,
    RETRY_US = 200 * 1000,
    /* shared views */
    SCAN_EVERY_US = 10 * 1000,
    SCAN_SHARE = 20,           /* a scan takes at most this part of the time */
    ASK_EVERY_US = 500 * 1000, /* are the connections that bring signals alive? */
    UNHEARD_US =
        1000 * 1000, /* what the invalidation listener does not hear of is looked at so often */
    UNHEARD_FIRST_US = 10 * 1000, /* sooner at first: its connections are opened when wanted */
    UNHEARD_DOUBLINGS = 8,
    UNHEARD_FEED_US = 5000 * 1000,
    /* being here */
    LAST_SEEN_A_STEP = 256,
    LAST_SEEN_SHARE = 3, /* so often within the time that counts as lately: one may be in vain */
};

#define LAST_SEEN_MIN_US (INT64_C(1000) * 1000)
#define LAST_SEEN_MAX_US (INT64_C(600) * 1000 * 1000)

static bool is_shared(const struct live *live)
{
    return live->config.invalidation != NULL;
}

/* ---- the table and the queue, under the lock ---- */

struct listener_entry {
    uint64_t person;
    struct listener *listener;
};

#define FOR_EACH(e)                                                                                \
    for (struct listener_entry *e = map_next(&live->listeners, NULL); e;                           \
         e = map_next(&live->listeners, e))

static struct listener *find(const struct live *live, uint64_t person)
{
    const struct listener_entry *e = map_find(&live->listeners, &person);
    return e ? e->listener : NULL;
}

static void enqueue(struct live *live, struct listener *l, unsigned parts)
{
    l->dirty |= parts;
    if (l->queued)
        return;
    l->queued = true;
    l->next_dirty = NULL;
    *live->dirty_last = l;
    live->dirty_last = &l->next_dirty;
}

static struct listener *dequeue(struct live *live)
{
    struct listener *l = live->dirty_first;
    if (!l)
        return NULL;
    live->dirty_first = l->next_dirty;
    if (!live->dirty_first)
        live->dirty_last = &live->dirty_first;
    l->queued = false;
    return l;
}

static void wake(struct live *live)
{
    live->config.wake(live->config.wake_ctx);
}

static void mark(struct live *live, uint64_t person, unsigned parts)
{
    pthread_mutex_lock(&live->lock);
    struct listener *l = find(live, person);
    bool found = l && !l->gone;
    if (found)
        enqueue(live, l, parts);
    pthread_mutex_unlock(&live->lock);
    if (found)
        wake(live);
}

/* ---- changes ---- */

static void views_changed(void *ctx, uint64_t person, enum view_part what)
{
    mark(ctx, person, (unsigned)what);
}

/* The hub's: in the order in which streams come and go. The views are told first: what changes from
 * then on is looked at after this, and what changed before is seen by the first look. */
static void listen_to(void *ctx, uint64_t person, bool on)
{
    struct live *live = ctx;
    if (!is_shared(live))
        (void)views_listen(live->config.views, person, on);
    pthread_mutex_lock(&live->lock);
    struct listener *l = find(live, person);
    if (!l && on) {
        struct listener_entry *e = map_put(&live->listeners, &person, NULL);
        l = calloc(1, sizeof *l);
        CHECK(e && l); /* a kilobyte for each who has a connection already */
        l->person = person;
        e->listener = l;
    }
    if (l) {
        l->gone = !on;
        enqueue(live, l, on ? LIVE_ALL : 0);
    }
    pthread_mutex_unlock(&live->lock);
    wake(live);
}

static void touch(struct live *live, uint64_t person)
{
    mark(live, person, LIVE_TRUTH);
    if (!is_shared(live))
        return;
    pthread_mutex_lock(&live->lock);
    bool fits = live->touch_count < TOUCHES_MAX;
    if (fits)
        live->touches[live->touch_count++] = person;
    pthread_mutex_unlock(&live->lock);
    if (fits)
        wake(live);
    else
        atomic_fetch_add_explicit(&live->missed, 1, memory_order_relaxed);
}

void live_mark_all(struct live *live)
{
    pthread_mutex_lock(&live->lock);
    FOR_EACH(e)
    if (!e->listener->gone)
        enqueue(live, e->listener, LIVE_INBOX | LIVE_TRUTH);
    pthread_mutex_unlock(&live->lock);
}

void live_committed(struct live *live, const struct event *events, size_t n)
{
    live_entries(live, events, n);
    for (size_t i = 0; i < n; i++) {
        switch (events[i].type) {
        case EVENT_GROUP_READ:
            touch(live, events[i].object);
            break;
        case EVENT_SESSION_ENDED:
        case EVENT_ACCOUNT_SUSPENDED:
        case EVENT_ACCOUNT_DELETED:
            touch(live, events[i].actor);
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

enum err live_join(struct live *live, uint64_t person, uint64_t session, struct stream *s)
{
    enum err e = hub_join(live->hub, person, s);
    if (e)
        return e;
    pthread_mutex_lock(&live->lock);
    struct listener *l = find(live, person);
    if (l && session)
        add_session(l, session);
    if (l)
        enqueue(live, l, LIVE_TRUTH); /* did the session end while it joined? */
    pthread_mutex_unlock(&live->lock);
    wake(live);
    return OK;
}

/* ---- the step ---- */

static void release(struct live *live, struct listener *l)
{
    live_unsubscribe_all(live, l);
    free(l->inbox.reads);
    free(l->feed.reads);
    free(l);
}

/* The next whose turn it is; those who are gone go. */
static size_t take_dirty(struct live *live, struct listener **out, unsigned *parts, size_t max)
{
    size_t n = 0;
    struct listener *l;
    pthread_mutex_lock(&live->lock);
    while (n < max && (l = dequeue(live))) {
        if (l->gone) {
            map_remove(&live->listeners, map_find(&live->listeners, &l->person));
            release(live, l);
            continue;
        }
        parts[n] = l->dirty;
        l->dirty = 0;
        out[n++] = l;
    }
    pthread_mutex_unlock(&live->lock);
    return n;
}

static void put_back(struct live *live, struct listener *l, unsigned parts)
{
    pthread_mutex_lock(&live->lock);
    enqueue(live, l, parts);
    pthread_mutex_unlock(&live->lock);
}

/* A stream is greeted when its person has been looked at since it joined. */
static void greet(struct live *live, const struct listener *l)
{
    pthread_mutex_lock(&live->lock);
    bool ready = l->known && !(l->dirty & LIVE_TRUTH);
    pthread_mutex_unlock(&live->lock);
    if (ready)
        live_greet(live, l->person);
}

/* ---- shared views ---- */

static void send_touches(struct live *live)
{
    uint64_t persons[256];
    size_t n;
    pthread_mutex_lock(&live->lock);
    n = live->touch_count < COUNT_OF(persons) ? live->touch_count : COUNT_OF(persons);
    live->touch_count -= n;
    memcpy(persons, live->touches, n * sizeof *persons);
    memmove(live->touches, live->touches + n, live->touch_count * sizeof *persons);
    pthread_mutex_unlock(&live->lock);
    if (n > 0 && signal_invalidate(live->config.signal, persons, n) != OK)
        atomic_fetch_add_explicit(&live->missed, n, memory_order_relaxed);
}

static void answer_came(struct invalidation_question *q, bool good)
{
    struct live *live = CONTAINER_OF(q, struct live, question);
    pthread_mutex_lock(&live->lock);
    live->asking = false;
    live->uncertain = !good;
    pthread_cond_broadcast(&live->answered);
    pthread_mutex_unlock(&live->lock);
}

/* News come by themselves; that none can come is noticed only by asking. */
static void ask(struct live *live, int64_t now_us)
{
    bool due = false;
    pthread_mutex_lock(&live->lock);
    if (!live->asking && live->listeners.count > 0 && now_us - live->asked_at_us >= ASK_EVERY_US) {
        due = live->asking = true;
        live->asked_at_us = now_us;
    }
    pthread_mutex_unlock(&live->lock);
    if (due)
        invalidation_ask(live->config.invalidation, &live->question);
}

static bool is_due(struct live *live, const struct traced *w, int64_t now_us, int64_t unheard_us)
{
    if (w->whole && !live->uncertain)
        return !invalidation_same(live->config.invalidation, w->generation, w->reads, w->count);
    int64_t pause_us = w->unheard > 0 && w->unheard < UNHEARD_DOUBLINGS
                           ? (int64_t)UNHEARD_FIRST_US << w->unheard
                           : unheard_us;
    return now_us - w->looked_at_us >= (pause_us < unheard_us ? pause_us : unheard_us);
}

static void scan(struct live *live, int64_t now_us)
{
    pthread_mutex_lock(&live->lock);
    FOR_EACH(e)
    {
        struct listener *l = e->listener;
        if (l->queued || l->gone)
            continue;
        unsigned parts = 0;
        if (is_due(live, &l->inbox, now_us, UNHEARD_US)) /* a touch is heard of here, too */
            parts |= LIVE_INBOX | LIVE_TRUTH;
        if (is_due(live, &l->feed, now_us, UNHEARD_FEED_US))
            parts |= LIVE_FEED;
        if (parts)
            enqueue(live, l, parts);
    }
    bool anybody = live->listeners.count > 0;
    pthread_mutex_unlock(&live->lock);
    if (!anybody)
        live_skip_entries(live);
    else if (is_due(live, &live->signals, now_us, UNHEARD_US))
        live_consume_entries(live);
    live->scanned_at_us = now_us;
    live->scan_took_us = clock_mono_us(live->config.clock) - now_us;
}

static int64_t next_scan_us(const struct live *live)
{
    int64_t pause = live->scan_took_us * SCAN_SHARE;
    return live->scanned_at_us + (pause > SCAN_EVERY_US ? pause : SCAN_EVERY_US);
}

static bool is_idle(struct live *live)
{
    pthread_mutex_lock(&live->lock);
    bool idle = live->listeners.count == 0 && live->touch_count == 0;
    pthread_mutex_unlock(&live->lock);
    return idle;
}

static bool has_dirty(struct live *live)
{
    pthread_mutex_lock(&live->lock);
    bool has = live->dirty_first != NULL || live->touch_count > 0;
    pthread_mutex_unlock(&live->lock);
    return has || live_has_entries(live);
}

/* ---- being here ---- */

static int64_t last_seen_every_us(const struct live *live)
{
    int64_t every_us = live->config.active_within_ms * (1000 / LAST_SEEN_SHARE);
    return every_us == 0                 ? LAST_SEEN_MAX_US
           : every_us < LAST_SEEN_MIN_US ? LAST_SEEN_MIN_US
           : every_us > LAST_SEEN_MAX_US ? LAST_SEEN_MAX_US
                                         : every_us;
}

/* What the views cannot be told now they are told with the next round. */
static void report_last_seen(struct live *live, const uint64_t *persons, size_t n)
{
    struct view_change changes[LAST_SEEN_A_STEP];
    for (size_t i = 0; i < n; i++)
        changes[i] = (struct view_change){.kind = VIEW_LAST_SEEN,
                                          .on = true,
                                          .account = persons[i],
                                          .value = clock_wall_ms(live->config.clock)};
    if (n > 0)
        (void)views_apply(live->config.views, changes, n);
}

/* A round begins with everybody who listens then. */
static void begin_round(struct live *live, int64_t now_us)
{
    struct last_seen_round *r = &live->round;
    pthread_mutex_lock(&live->lock);
    *r = (struct last_seen_round){
        .began_us = now_us,
        .persons = realloc(r->persons, (live->listeners.count + 1) * sizeof *r->persons)};
    CHECK(r->persons); /* eight bytes a person */
    FOR_EACH(e)
    if (!e->listener->gone)
        r->persons[r->count++] = e->person;
    pthread_mutex_unlock(&live->lock);
}

/* The next of the round; true: there are more. */
static bool report_some(struct live *live, int64_t now_us)
{
    struct last_seen_round *r = &live->round;
    if (now_us - r->began_us >= last_seen_every_us(live))
        begin_round(live, now_us);
    size_t n = r->count - r->reported;
    n = n < LAST_SEEN_A_STEP ? n : LAST_SEEN_A_STEP;
    if (n > 0)
        report_last_seen(live, r->persons + r->reported, n);
    r->reported += n;
    return r->reported < r->count;
}

static void report_new(struct live *live, struct listener *const *taken, size_t n)
{
    uint64_t persons[LOOKS_A_STEP];
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (!taken[i]->known)
            persons[count++] = taken[i]->person;
    report_last_seen(live, persons, count);
}

int64_t live_step(struct live *live)
{
    struct listener *taken[LOOKS_A_STEP];
    unsigned parts[LOOKS_A_STEP];
    int64_t now_us = clock_mono_us(live->config.clock);
    bool failed = false;
    if (is_shared(live)) {
        send_touches(live);
        failed = !live_publish_entries(live);
        ask(live, now_us);
        if (now_us >= next_scan_us(live) || live->signals.looked_at_us == 0)
            scan(live, now_us); /* signals are consumed from before the first greeting */
    }
    failed |= !live_send_entries(live);
    bool more_to_report = report_some(live, now_us);
    size_t n = take_dirty(live, taken, parts, LOOKS_A_STEP);
    report_new(live, taken, n);
    for (size_t i = 0; i < n; i++) {
        unsigned again = 0;
        atomic_fetch_add_explicit(&live->looks, 1, memory_order_relaxed);
        if (live_look(live, taken[i], parts[i], &again)) {
            greet(live, taken[i]);
            continue;
        }
        atomic_fetch_add_explicit(&live->failed, 1, memory_order_relaxed);
        put_back(live, taken[i], again);
        failed = true;
    }
    if (failed)
        return now_us + RETRY_US;
    if (more_to_report || has_dirty(live))
        return now_us;
    if (is_idle(live))
        return INT64_MAX;
    int64_t round_us = live->round.began_us + last_seen_every_us(live);
    return is_shared(live) && next_scan_us(live) < round_us ? next_scan_us(live) : round_us;
}

/* ---- life ---- */

struct live *live_new(const struct live_config *config)
{
    struct live *live = calloc(1, sizeof *live);
    CHECK(live);
    live->config = *config;
    live->dirty_last = &live->dirty_first;
    live->question.done = answer_came;
    live->touches = calloc(TOUCHES_MAX, sizeof *live->touches);
    CHECK(live->touches);
    pthread_mutex_init(&live->lock, NULL);
    pthread_cond_init(&live->answered, NULL);
    map_init(&live->listeners, sizeof(struct listener_entry), sizeof(uint64_t));
    live_topics_init(live);
    live->hub = hub_new(&(struct hub_config){.streams_max = config->streams_max,
                                             .person_max = config->person_max,
                                             .listen = listen_to,
                                             .ctx = live});
    if (!is_shared(live)) {
        config->views->changed_ctx = live;
        config->views->changed = views_changed;
    }
    return live;
}

void live_free(struct live *live)
{
    if (!live)
        return;
    if (!is_shared(live))
        live->config.views->changed = NULL;
    pthread_mutex_lock(&live->lock);
    while (live->asking) /* answered within INVALIDATION_ASK_MS */
        pthread_cond_wait(&live->answered, &live->lock);
    pthread_mutex_unlock(&live->lock);
    hub_free(live->hub);
    FOR_EACH(e)
    release(live, e->listener);
    live_topics_done(live);
    pthread_cond_destroy(&live->answered);
    pthread_mutex_destroy(&live->lock);
    map_done(&live->listeners);
    free(live->round.persons);
    free(live->touches);
    free(live);
}

struct hub *live_hub(struct live *live)
{
    return live->hub;
}

void live_stats(struct live *live, struct live_stats *out)
{
    pthread_mutex_lock(&live->lock);
    out->persons = live->listeners.count;
    pthread_mutex_unlock(&live->lock);
    out->looks = atomic_load_explicit(&live->looks, memory_order_relaxed);
    out->failed = atomic_load_explicit(&live->failed, memory_order_relaxed);
    out->sent = atomic_load_explicit(&live->sent, memory_order_relaxed);
    out->missed = atomic_load_explicit(&live->missed, memory_order_relaxed);
}
