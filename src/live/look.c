/* One look at somebody's inbox and feed: what differs from the last one is told.
 *
 * Deliveries of different groups overtake each other, so "newer than the newest that was told"
 * would miss some. The top of the inbox is remembered as it was, group by group, and compared. A
 * group that is not among the first TOP_GROUPS when its message arrives (late, while so many others
 * went on) is not told of; when all of the top is new at once, the client is sent to read
 * everything (hello).
 *
 * The views may name groups that the person has left, and posts that they may not see. The number
 * that a live event carries comes from truth, where membership is a condition of the query; posts
 * are looked at as the feed does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "live/live_state.h"
#include "model/account.h"
#include "model/inbox.h"
#include "net/hub.h"

enum { DATA_MAX = 96 };

/* Of what waits in a stream, the newest of each kind and key is sent. */
enum frame_kind { KIND_GROUP = 1, KIND_READ, KIND_FEED, KIND_HELLO };

/* ---- telling ---- */

struct text {
    char data[DATA_MAX];
    struct frame_text frame;
};

static void say(struct text *t, const char *name, enum frame_kind kind, uint64_t key)
{
    t->frame = (struct frame_text){
        .name = str_of(name), .data = str_of(t->data), .kind = (uint32_t)kind, .key = key};
}

static void send_all(struct live *live, uint64_t person, const struct text *t)
{
    if (hub_send(live->hub, &person, 1, &t->frame) > 0)
        atomic_fetch_add_explicit(&live->sent, 1, memory_order_relaxed);
}

static void say_hello(struct text *t, uint64_t person)
{
    snprintf(t->data, sizeof t->data, "{\"account\":\"%llu\"}", (unsigned long long)person);
    say(t, "hello", KIND_HELLO, 0);
}

void live_greet(struct live *live, uint64_t person)
{
    struct text t = {.data = ""};
    say_hello(&t, person);
    hub_greet(live->hub, person, &t.frame);
}

static void say_number(struct text *t, const char *name, enum frame_kind kind, uint64_t group,
                       int64_t seq)
{
    snprintf(t->data, sizeof t->data, "{\"group\":\"%llu\",\"seq\":%lld}",
             (unsigned long long)group, (long long)seq);
    say(t, name, kind, group);
}

void live_send_group(struct live *live, const uint64_t *persons, size_t n, uint64_t group,
                     int64_t seq)
{
    struct text t = {.data = ""};
    say_number(&t, "group", KIND_GROUP, group, seq);
    if (hub_send(live->hub, persons, n, &t.frame) > 0)
        atomic_fetch_add_explicit(&live->sent, n, memory_order_relaxed);
}

static void tell_read(struct live *live, uint64_t person, uint64_t group, int64_t seq)
{
    struct text t = {.data = ""};
    say_number(&t, "read", KIND_READ, group, seq);
    send_all(live, person, &t);
}

/* ---- the invalidation listener ---- */

void live_trace_begin(struct live *live)
{
    if (live->config.invalidation)
        invalidation_begin(live->config.invalidation, &live->trace);
}

void live_trace_end(struct live *live, struct traced *w)
{
    if (!live->config.invalidation)
        return;
    const struct read_trace *t = &live->trace;
    invalidation_end(live->config.invalidation, &live->trace);
    w->looked_at_us = clock_mono_us(live->config.clock);
    w->whole = t->whole;
    w->unheard = t->whole ? 0 : w->unheard < UINT8_MAX ? w->unheard + 1 : UINT8_MAX;
    if (!t->whole)
        return;
    w->generation = t->generation;
    if (t->count != w->count || !w->reads) {
        struct traced_read *reads = realloc(w->reads, (t->count + 1U) * sizeof *reads);
        CHECK(reads); /* two kilobytes at most */
        w->reads = reads;
        w->count = t->count;
    }
    memcpy(w->reads, t->reads, t->count * sizeof *w->reads);
}

/* ---- the inbox ---- */

struct look {
    struct live *live;
    struct listener *l;
    struct inbox_entry top[TOPICS_OF_LISTENER_MAX];
    size_t n;     /* of these: the top */
    size_t found; /* the first time: more of them, whose entries are told as well */
    bool changed[TOP_GROUPS];
    size_t changes;
    /* asked of truth */
    bool check_sessions, allowed;
    uint64_t sessions[LISTENER_SESSIONS_MAX];
    size_t session_count;
    uint64_t asked[TOP_GROUPS];
    size_t asked_count;
    struct group_mark marks[TOP_GROUPS];
    size_t mark_count;
};

static const struct top_group *find_old(const struct listener *l, uint64_t group)
{
    for (size_t i = 0; i < l->group_count; i++)
        if (l->groups[i].group == group)
            return &l->groups[i];
    return NULL;
}

static const struct group_mark *find_mark(const struct look *k, uint64_t group)
{
    for (size_t i = 0; i < k->mark_count; i++)
        if (k->marks[i].group == group)
            return &k->marks[i];
    return NULL;
}

/* Below all that was seen, and there was more than was looked at: it only came up because others
 * went. */
static bool was_beyond(const struct listener *l, uint64_t activity)
{
    return l->group_count == TOP_GROUPS && activity <= l->groups[TOP_GROUPS - 1].activity;
}

static void compare(struct look *k)
{
    const struct listener *l = k->l;
    for (size_t i = 0; i < k->n; i++) {
        const struct top_group *old = find_old(l, k->top[i].group);
        k->changed[i] =
            old ? old->activity != k->top[i].activity : !was_beyond(l, k->top[i].activity);
        k->changes += k->changed[i];
    }
}

static enum err read_truth(struct tx *tx, void *arg)
{
    struct look *k = arg;
    enum err e = OK;
    k->allowed = true;
    k->mark_count = 0;
    if (k->check_sessions)
        e = sessions_are_good(tx, k->l->person, k->sessions, k->session_count,
                              clock_wall_ms(k->live->config.clock), &k->allowed);
    if (!e && k->allowed && k->asked_count > 0)
        e = inbox_marks(tx, k->l->person, k->asked, k->asked_count, k->marks, &k->mark_count);
    return e;
}

/* Read marks are of interest for all, numbers for those that changed. */
static enum err ask_truth(struct look *k, unsigned parts)
{
    bool all = !k->l->known || (parts & LIVE_TRUTH);
    k->check_sessions = all;
    for (size_t i = 0; i < k->n; i++)
        if (all || k->changed[i])
            k->asked[k->asked_count++] = k->top[i].group;
    k->allowed = true;
    return all || k->asked_count > 0 ? db_read(k->live->config.db, read_truth, k, NULL) : OK;
}

static void tell_groups(const struct look *k)
{
    struct live *live = k->live;
    const struct listener *l = k->l;
    if (!l->known)
        return; /* whoever is greeted reads what there is */
    if (k->changes == TOP_GROUPS) {
        struct text t = {.data = ""};
        say_hello(&t, l->person);
        send_all(live, l->person, &t);
    }
    for (size_t i = k->n; i-- > 0;) { /* the oldest first */
        const struct group_mark *now = find_mark(k, k->top[i].group);
        const struct top_group *old = find_old(l, k->top[i].group);
        if (!now)
            continue;
        if (k->changed[i] || (old && now->seq > old->seq))
            live_send_group(live, &l->person, 1, now->group, now->seq);
        if (old && now->read_seq > old->read_seq)
            tell_read(live, l->person, now->group, now->read_seq);
    }
}

static void remember_groups(const struct look *k)
{
    struct listener *l = k->l;
    struct top_group groups[TOP_GROUPS] = {0};
    for (size_t i = 0; i < k->n; i++) {
        const struct group_mark *now = find_mark(k, k->top[i].group);
        const struct top_group *old = find_old(l, k->top[i].group);
        groups[i] = (struct top_group){k->top[i].group, k->top[i].activity, INT64_MAX, INT64_MAX};
        if (now) {
            groups[i].seq = now->seq;
            groups[i].read_seq = now->read_seq;
        } else if (old) {
            groups[i].seq = old->seq;
            groups[i].read_seq = old->read_seq;
        }
    }
    memcpy(l->groups, groups, k->n * sizeof *groups);
    l->group_count = (uint8_t)k->n;
    l->known = true;
}

/* The oldest first: of too many the latest stay. */
static void subscribe_to_groups(const struct look *k)
{
    for (size_t i = k->found; i-- > 0;)
        if (i >= k->n || (k->changed[i] && find_mark(k, k->top[i].group)))
            live_subscribe(k->live, k->l, k->top[i].group);
}

static bool look_at_inbox(struct live *live, struct listener *l, unsigned parts)
{
    struct look k = {.live = live, .l = l};
    live_trace_begin(live);
    enum err e = inbox_top(live->config.views, live->config.db, l->person, k.top,
                           l->known ? TOP_GROUPS : TOPICS_OF_LISTENER_MAX, &k.found);
    live_trace_end(live, &l->inbox);
    if (e)
        return false;
    k.n = k.found < TOP_GROUPS ? k.found : TOP_GROUPS;
    compare(&k);
    pthread_mutex_lock(&live->lock);
    memcpy(k.sessions, l->sessions, l->session_count * sizeof *l->sessions);
    k.session_count = l->session_count;
    pthread_mutex_unlock(&live->lock);
    if (ask_truth(&k, parts) != OK)
        return false;
    if (!k.allowed) {
        pthread_mutex_lock(&live->lock);
        l->session_count = 0; /* whoever is still allowed to comes back and names theirs */
        pthread_mutex_unlock(&live->lock);
        hub_close(live->hub, l->person, "session");
    } else {
        tell_groups(&k);
    }
    subscribe_to_groups(&k);
    remember_groups(&k);
    return true;
}

/* ---- the feed ---- */

static bool is_new_post(const struct listener *l, uint64_t id)
{
    for (size_t i = 0; i < l->post_count; i++)
        if (l->posts[i] == id)
            return false;
    return l->post_count < TOP_POSTS || id > l->posts[TOP_POSTS - 1];
}

/* The newest of these that the person may see; 0: none. What cannot be told counts as visible: the
 * feed decides. */
static uint64_t newest_visible(struct live *live, uint64_t person, const uint64_t *ids, size_t n)
{
    struct arena arena;
    struct post_card cards[TOP_POSTS];
    enum card_state state[TOP_POSTS];
    uint64_t found = 0;
    arena_init(&arena);
    cards_posts(live->config.cards, ids, n, cards, state, &arena);
    for (size_t i = 0; i < n && !found; i++) {
        bool visible = state[i] == CARD_MISSING;
        if (state[i] == CARD_FOUND &&
            graph_visible(live->config.views->graph, person, &cards[i].author, 1, &visible) != OK)
            visible = true;
        found = visible ? ids[i] : 0;
    }
    arena_done(&arena);
    return found;
}

static void look_at_feed(struct live *live, struct listener *l)
{
    uint64_t ids[TOP_POSTS], fresh[TOP_POSTS], floor = 0;
    size_t n = 0, count = 0;
    live_trace_begin(live);
    enum err e = timelines_home(live->config.views->timelines, l->person, UINT64_MAX, ids,
                                TOP_POSTS, &n, &floor);
    live_trace_end(live, &l->feed);
    if (e || floor == UINT64_MAX)
        return; /* dropped or away: what is pushed meanwhile is in the feed when it is read */
    for (size_t i = 0; i < n; i++)
        if (is_new_post(l, ids[i]))
            fresh[count++] = ids[i];
    uint64_t id = l->feed_known && count > 0 ? newest_visible(live, l->person, fresh, count) : 0;
    if (id) {
        struct text t = {.data = ""};
        snprintf(t.data, sizeof t.data, "{\"id\":\"%llu\"}", (unsigned long long)id);
        say(&t, "feed", KIND_FEED, 0);
        send_all(live, l->person, &t);
    }
    memcpy(l->posts, ids, n * sizeof *ids);
    l->post_count = (uint8_t)n;
    l->feed_known = true;
}

bool live_look(struct live *live, struct listener *l, unsigned parts, unsigned *again)
{
    if (parts & LIVE_FEED) /* first: greeted is who is known, and that is said last */
        look_at_feed(live, l);
    if (!(parts & (LIVE_INBOX | LIVE_TRUTH)) || look_at_inbox(live, l, parts))
        return true;
    *again = parts & (LIVE_INBOX | LIVE_TRUTH);
    return false;
}
