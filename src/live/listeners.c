/* Who is connected here, and the step that looks after them.
 *
 * Each person with a stream has a record. Work for a person marks the record and puts
 * it into the queue, once however often it is marked; so there is never more to do than there are
 * people connected.
 *
 * A stream is greeted when its person was checked after it joined: that what allows it (a session
 * or an API key) has not ended meanwhile, and whom they have muted. This is all that is read from
 * truth, once for each that comes and for each that is greeted again. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "live/live_state.h"
#include "model/account.h"
#include "model/follow.h"
#include "model/inbox.h"
#include "net/hub.h"
#include "net/stream.h"

enum {
    CHECKS_A_STEP = 32,
    RETRY_US = 200 * 1000,
    LAST_SEEN_A_STEP = 256,
    LAST_SEEN_SHARE = 3, /* so often within the time that counts as lately: one may be in vain */
};

#define LAST_SEEN_MIN_US (INT64_C(1000) * 1000)
#define LAST_SEEN_MAX_US (INT64_C(600) * 1000 * 1000)

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

static void enqueue(struct live *live, struct listener *l, unsigned todo)
{
    l->todo |= (uint8_t)todo;
    if (l->queued)
        return;
    l->queued = true;
    l->next = NULL;
    *live->last = l;
    live->last = &l->next;
}

static struct listener *dequeue(struct live *live)
{
    struct listener *l = live->first;
    if (!l)
        return NULL;
    live->first = l->next;
    if (!live->first)
        live->last = &live->first;
    l->queued = false;
    return l;
}

static void wake(struct live *live)
{
    live->config.wake(live->config.wake_ctx);
}

void live_mark(struct live *live, const uint64_t *persons, size_t n, unsigned todo)
{
    bool found = false;
    pthread_mutex_lock(&live->lock);
    for (size_t i = 0; i < n; i++) {
        struct listener *l = find(live, persons[i]);
        if (l && !l->gone)
            enqueue(live, l, todo), found = true;
    }
    pthread_mutex_unlock(&live->lock);
    if (found)
        wake(live);
}

static void check_one(void *ctx, uint64_t person)
{
    live_mark(ctx, &person, 1, LISTENER_CHECK);
}

void live_check_granted(struct live *live, uint64_t grant)
{
    hub_each_granted(live->hub, grant, check_one, live);
}

void live_greet_all(struct live *live)
{
    pthread_mutex_lock(&live->lock);
    FOR_EACH(e)
    if (!e->listener->gone)
        enqueue(live, e->listener, LISTENER_CHECK | LISTENER_GREET);
    pthread_mutex_unlock(&live->lock);
    atomic_fetch_add_explicit(&live->losses, 1, memory_order_relaxed);
    wake(live);
}

/* ---- coming and going ---- */

/* The hub's: in the order in which streams come and go. The views know first: what is pushed from
 * then on is signalled, and what was pushed before is there when the client reads. */
static void listen_to(void *ctx, uint64_t person, bool on)
{
    struct live *live = ctx;
    (void)views_listen(live->config.views, person, on);
    pthread_mutex_lock(&live->lock);
    struct listener *l = find(live, person);
    if (!l && on) {
        struct listener_entry *e = map_put(&live->listeners, &person, NULL);
        l = calloc(1, sizeof *l);
        CHECK(e && l); /* some hundred bytes for each who has a connection already */
        l->person = person;
        e->listener = l;
    }
    if (l) {
        l->gone = !on;
        enqueue(live, l, on ? LISTENER_CHECK : 0);
    }
    pthread_mutex_unlock(&live->lock);
    wake(live);
}

static void wants_greeting(void *ctx, uint64_t person)
{
    live_mark(ctx, &person, 1, LISTENER_GREET);
}

enum err live_join(struct live *live, uint64_t person, uint64_t grant, struct stream *s)
{
    stream_await_greeting(s);
    stream_set_grant(s, grant);
    TRY(hub_join(live->hub, person, s));
    live_mark(live, &person, 1, LISTENER_CHECK); /* did the grant end while it joined? */
    return OK;
}

/* ---- mutes ---- */

/* Where the author is among the mutes, or would be. */
static size_t place_of(const struct listener *l, uint64_t author)
{
    size_t low = 0, high = l->mute_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (l->mutes[middle] < author)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool has_muted(const struct listener *l, uint64_t author)
{
    size_t at = l->mute_count > 0 ? place_of(l, author) : 0;
    return at < l->mute_count && l->mutes[at] == author;
}

size_t live_unmuted(struct live *live, uint64_t author, const uint64_t *persons, size_t n,
                    uint64_t *out)
{
    size_t count = 0;
    pthread_mutex_lock(&live->lock);
    for (size_t i = 0; i < n; i++) {
        const struct listener *l = find(live, persons[i]);
        if (l && !has_muted(l, author))
            out[count++] = persons[i];
    }
    pthread_mutex_unlock(&live->lock);
    return count;
}

static void keep_mutes(struct listener *l, const uint64_t *mutes, size_t n)
{
    free(l->mutes);
    l->mutes = n > 0 ? malloc(n * sizeof *mutes) : NULL;
    CHECK(n == 0 || l->mutes); /* eight kilobytes at most */
    if (n > 0)
        memcpy(l->mutes, mutes, n * sizeof *mutes);
    l->mute_count = (uint32_t)n;
}

void live_mute(struct live *live, uint64_t person, uint64_t author, bool on)
{
    pthread_mutex_lock(&live->lock);
    struct listener *l = find(live, person);
    if (l && has_muted(l, author) != on && (!on || l->mute_count < LISTENER_MUTES_MAX)) {
        uint64_t mutes[LISTENER_MUTES_MAX];
        size_t at = place_of(l, author), rest = l->mute_count - at;
        if (at > 0)
            memcpy(mutes, l->mutes, at * sizeof *mutes);
        mutes[at] = author;
        if (rest > !on)
            memcpy(mutes + at + on, l->mutes + at + !on, (rest - !on) * sizeof *mutes);
        keep_mutes(l, mutes, l->mute_count + on - !on);
    }
    if (l)
        l->mute_changes++; /* a check that has read truth before this reads it once more */
    pthread_mutex_unlock(&live->lock);
}

/* ---- checking ---- */

struct check {
    struct live *live;
    struct listener *l;
    unsigned todo;
    uint64_t grants[HUB_PERSON_MAX];
    size_t grant_count;
    uint32_t mute_changes;
    bool allowed;
    uint64_t mutes[LISTENER_MUTES_MAX];
    size_t mute_count;
};

static enum err read_truth(struct tx *tx, void *arg)
{
    struct check *c = arg;
    int64_t now_ms = clock_wall_ms(c->live->config.clock);
    TRY(grants_are_good(tx, c->l->person, c->grants, c->grant_count, now_ms, &c->allowed));
    return mute_ids(tx, c->l->person, c->mutes, LISTENER_MUTES_MAX, &c->mute_count);
}

/* Shared views leave those whose inbox is dropped out of large walks: it is made again. */
static enum err wake_inbox(struct live *live, uint64_t person)
{
    struct inbox_entry top;
    size_t n;
    return live->config.views->remote
               ? inbox_top(live->config.views, live->config.db, person, &top, 1, &n)
               : OK;
}

/* What came meanwhile is looked at once more before the person is greeted. True: greet them. */
static bool note_checked(struct live *live, struct check *c)
{
    struct listener *l = c->l;
    pthread_mutex_lock(&live->lock);
    l->known = true;
    if (l->mute_changes == c->mute_changes)
        keep_mutes(l, c->mutes, c->mute_count);
    else
        enqueue(live, l, LISTENER_CHECK);
    bool again = l->todo & LISTENER_CHECK;
    if (again)
        l->todo |= c->todo & LISTENER_GREET;
    pthread_mutex_unlock(&live->lock);
    return c->allowed && !again;
}

static bool look_after(struct live *live, struct check *c)
{
    struct listener *l = c->l;
    if (c->todo & LISTENER_CHECK) {
        atomic_fetch_add_explicit(&live->checks, 1, memory_order_relaxed);
        pthread_mutex_lock(&live->lock);
        c->mute_changes = l->mute_changes;
        pthread_mutex_unlock(&live->lock);
        c->grant_count = hub_grants(live->hub, l->person, c->grants);
        if (db_read(live->config.db, read_truth, c, NULL) != OK ||
            (c->allowed && wake_inbox(live, l->person) != OK)) {
            atomic_fetch_add_explicit(&live->failed, 1, memory_order_relaxed);
            return false;
        }
        if (!c->allowed)
            hub_close(live->hub, l->person, "session");
        if (!note_checked(live, c))
            return true;
    }
    if (c->todo)
        live_greet(live, l->person, c->todo & LISTENER_GREET);
    return true;
}

static void release(struct listener *l)
{
    free(l->mutes);
    free(l);
}

/* The next of the queue; those who are gone go. */
static struct listener *take(struct live *live, unsigned *todo)
{
    struct listener *l;
    pthread_mutex_lock(&live->lock);
    while ((l = dequeue(live)) && l->gone) {
        map_remove(&live->listeners, map_find(&live->listeners, &l->person));
        release(l);
    }
    if (l) {
        *todo = l->todo;
        l->todo = 0;
    }
    pthread_mutex_unlock(&live->lock);
    return l;
}

static void put_back(struct live *live, struct listener *l, unsigned todo)
{
    pthread_mutex_lock(&live->lock);
    enqueue(live, l, todo);
    pthread_mutex_unlock(&live->lock);
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

/* A walk begins with those who listen then. */
void live_begin_walk(struct live *live, struct walk *w)
{
    pthread_mutex_lock(&live->lock);
    *w = (struct walk){.persons =
                           realloc(w->persons, (live->listeners.count + 1) * sizeof *w->persons)};
    CHECK(w->persons); /* eight bytes a person */
    FOR_EACH(e)
    if (!e->listener->gone)
        w->persons[w->count++] = e->person;
    pthread_mutex_unlock(&live->lock);
}

/* The next of the round; true: there are more. */
static bool report_some(struct live *live, int64_t now_us)
{
    struct walk *w = &live->seen;
    if (now_us - live->seen_began_us >= last_seen_every_us(live)) {
        live_begin_walk(live, w);
        live->seen_began_us = now_us;
    }
    size_t n = w->count - w->at;
    n = n < LAST_SEEN_A_STEP ? n : LAST_SEEN_A_STEP;
    if (n > 0)
        report_last_seen(live, w->persons + w->at, n);
    w->at += n;
    return w->at < w->count;
}

/* ---- the step ---- */

/* False: truth or the views do not answer. */
static bool look_after_some(struct live *live)
{
    uint64_t new[CHECKS_A_STEP];
    size_t n = 0;
    bool good = true;
    struct check c = {.live = live};
    for (size_t i = 0; good && i < CHECKS_A_STEP && (c.l = take(live, &c.todo)); i++) {
        if (!c.l->known)
            new[n++] = c.l->person;
        good = look_after(live, &c);
        if (!good)
            put_back(live, c.l, c.todo);
    }
    report_last_seen(live, new, n);
    return good;
}

int64_t live_step(struct live *live)
{
    bool remote = live->config.signal->remote, good = true;
    int64_t now_us = clock_mono_us(live->config.clock);
    if (remote)
        good = live_publish(live);
    bool more = report_some(live, now_us);
    more |= live_send_pulled(live);
    bool in_sync = !remote || atomic_load(&live->in_sync);
    if (in_sync)
        good &= look_after_some(live);
    if (!good)
        return now_us + RETRY_US;
    if (more || (in_sync && live_has_waiting(live)))
        return now_us;
    pthread_mutex_lock(&live->lock);
    bool idle = live->listeners.count == 0 && live->outgoing_count == 0;
    pthread_mutex_unlock(&live->lock);
    return idle ? INT64_MAX : live->seen_began_us + last_seen_every_us(live);
}

/* ---- life ---- */

struct live *live_new(const struct live_config *config)
{
    struct live *live = calloc(1, sizeof *live);
    CHECK(live);
    live->config = *config;
    live->last = &live->first;
    pthread_mutex_init(&live->lock, NULL);
    map_init(&live->listeners, sizeof(struct listener_entry), sizeof(uint64_t));
    live->hub = hub_new(&(struct hub_config){.streams_max = config->streams_max,
                                             .person_max = config->person_max,
                                             .listen = listen_to,
                                             .full = wants_greeting,
                                             .ctx = live});
    config->signal->received_ctx = live;
    config->signal->received = live_receive;
    return live;
}

void live_free(struct live *live)
{
    if (!live)
        return;
    live->config.signal->received = NULL;
    hub_free(live->hub);
    FOR_EACH(e)
    release(e->listener);
    pthread_mutex_destroy(&live->lock);
    map_done(&live->listeners);
    free(live->seen.persons);
    free(live->asked.persons);
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
    out->checks = atomic_load_explicit(&live->checks, memory_order_relaxed);
    out->failed = atomic_load_explicit(&live->failed, memory_order_relaxed);
    out->sent = atomic_load_explicit(&live->sent, memory_order_relaxed);
    out->losses = atomic_load_explicit(&live->losses, memory_order_relaxed);
}
