/* Topics: group entries that change no inbox, such as edits, deletions, names, roles, joins,
 * leaves.
 *
 * A message reaches each member's inbox, and a look there finds it. These entries are in the log
 * alone, and a walk over the members of a large group for each of them would cost far more than the
 * few listeners are worth. So the direction is turned around: each listener is a **subscriber** of
 * the **topic** of each of their groups (the latest TOPICS_OF_LISTENER_MAX of their inbox), and an
 * entry goes to the subscribers of its group's topic. An entry costs one look into a table, and
 * where there is a topic, one query for 256 subscribers. People who do not listen cost nothing.
 *
 * A subscription does not prove membership: the same query asks truth before anything is sent. A
 * person who has left gets the number of their leaving, if it is among the entries, and is
 * unsubscribed.
 *
 * Entries come from the commit hook, and with shared views from other nodes through
 * signal_publish(), this node's own among them. A number that the topic has reached is skipped: all
 * subscribers of then got it, and later ones were looked at or greeted later. Lists are bounded;
 * when one overflows, or entries of other nodes were missed, every listener is looked at instead,
 * which finds the entries of the groups on top of their inboxes.
 *
 * Topics belong to the step. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "live/live_state.h"
#include "model/inbox.h"

enum { TOPICS_A_STEP = 32, NEWS_A_TRIP = 256, HEARD_A_STEP = 8 };

struct topic {
    uint64_t group;
    int64_t told; /* every subscriber knows of the entries up to here */
    struct subscriber *subscribers;
};

struct subscriber {
    struct listener *listener;
    struct topic *topic;
    struct subscriber *next, **link; /* in the topic */
    struct subscriber *newer, *older;
};

/* ---- topics ---- */

struct topic_entry {
    uint64_t group;
    struct topic *topic;
};

static struct topic *find(const struct live *live, uint64_t group)
{
    const struct topic_entry *e = map_find(&live->topics, &group);
    return e ? e->topic : NULL;
}

static struct topic *open_topic(struct live *live, uint64_t group)
{
    struct topic_entry *e = map_put(&live->topics, &group, NULL);
    CHECK(e);
    if (!e->topic) {
        e->topic = calloc(1, sizeof *e->topic);
        CHECK(e->topic);
        e->topic->group = group;
    }
    return e->topic;
}

static void close_if_empty(struct live *live, struct topic *r)
{
    if (r->subscribers)
        return;
    map_remove(&live->topics, map_find(&live->topics, &r->group));
    free(r);
}

/* ---- subscribers ---- */

static void put_first(struct listener *l, struct subscriber *g)
{
    g->newer = NULL;
    g->older = l->subscribed_first;
    if (g->older)
        g->older->newer = g;
    else
        l->subscribed_last = g;
    l->subscribed_first = g;
}

static void take_out(struct listener *l, struct subscriber *g)
{
    if (g->newer)
        g->newer->older = g->older;
    else
        l->subscribed_first = g->older;
    if (g->older)
        g->older->newer = g->newer;
    else
        l->subscribed_last = g->newer;
}

/* The topic may be empty then. */
static void leave(struct subscriber *g)
{
    take_out(g->listener, g);
    g->listener->subscribed_count--;
    *g->link = g->next;
    if (g->next)
        g->next->link = g->link;
    free(g);
}

static void leave_and_close(struct live *live, struct subscriber *g)
{
    struct topic *r = g->topic;
    leave(g);
    close_if_empty(live, r);
}

void live_subscribe(struct live *live, struct listener *l, uint64_t group)
{
    struct subscriber *g = l->subscribed_first;
    while (g && g->topic->group != group)
        g = g->older;
    if (g) {
        take_out(l, g);
        put_first(l, g);
        return;
    }
    if (l->subscribed_count == TOPICS_OF_LISTENER_MAX)
        leave_and_close(live, l->subscribed_last);
    struct topic *r = open_topic(live, group);
    g = calloc(1, sizeof *g);
    CHECK(g); /* of one person sixteen kilobytes at most */
    *g = (struct subscriber){
        .listener = l, .topic = r, .next = r->subscribers, .link = &r->subscribers};
    if (g->next)
        g->next->link = &g->next;
    r->subscribers = g;
    put_first(l, g);
    l->subscribed_count++;
}

void live_unsubscribe_all(struct live *live, struct listener *l)
{
    struct subscriber *older;
    for (struct subscriber *g = l->subscribed_first; g; g = older) {
        older = g->older;
        leave_and_close(live, g);
    }
}

/* ---- lists; those that threads share under the lock ---- */

static void list_init(struct range_list *list)
{
    *list = (struct range_list){.items = calloc(RANGES_MAX, sizeof *list->items)};
    CHECK(list->items);
}

/* A burst in one group is one range. */
static void list_add(struct range_list *list, const struct signal_range *range)
{
    if (list->count > 0 && list->items[list->count - 1].group == range->group) {
        struct signal_range *last = &list->items[list->count - 1];
        last->first = range->first < last->first ? range->first : last->first;
        last->last = range->last > last->last ? range->last : last->last;
    } else if (range->group == 0 || list->count == RANGES_MAX) {
        list->all = true;
    } else {
        list->items[list->count++] = *range;
    }
}

static int by_group(const void *a, const void *b)
{
    const struct signal_range *x = a, *y = b;
    return x->group < y->group ? -1 : x->group > y->group;
}

static void sort(struct range_list *list)
{
    size_t n = list->count;
    qsort(list->items, n, sizeof *list->items, by_group);
    list->count = 0;
    for (size_t i = 0; i < n; i++) {
        struct signal_range one = list->items[i];
        list_add(list, &one);
    }
}

static bool is_entry(const struct event *e)
{
    return e->type == EVENT_GROUP_ENTRY || e->type == EVENT_GROUP_JOINED ||
           e->type == EVENT_GROUP_LEFT;
}

/* The other nodes hear of it even if nobody listens here. */
void live_entries(struct live *live, const struct event *events, size_t n)
{
    size_t i = 0;
    while (i < n && !is_entry(&events[i]))
        i++;
    if (i == n)
        return;
    pthread_mutex_lock(&live->lock);
    bool wanted = live->listeners.count > 0 || live->config.invalidation;
    for (; i < n && wanted; i++) {
        struct signal_range range = {events[i].actor, events[i].value, events[i].value};
        if (!is_entry(&events[i]))
            continue;
        if (live->listeners.count > 0)
            list_add(&live->arrived, &range);
        if (live->config.invalidation)
            list_add(&live->leaving, &range);
    }
    pthread_mutex_unlock(&live->lock);
    if (wanted)
        live->config.wake(live->config.wake_ctx);
}

/* ---- telling ---- */

struct audience {
    uint64_t group;
    struct subscriber *subscribers[GROUP_REACH_MAX];
    uint64_t persons[GROUP_REACH_MAX];
    size_t n;
    int64_t reach[GROUP_REACH_MAX];
    bool is_member[GROUP_REACH_MAX];
};

static enum err read_reach(struct tx *tx, void *arg)
{
    struct audience *a = arg;
    return group_reach(tx, a->group, a->persons, a->n, a->reach, a->is_member);
}

/* What the next look would tell once more. */
static void remember(struct listener *l, uint64_t group, int64_t seq)
{
    for (size_t i = 0; i < l->group_count; i++)
        if (l->groups[i].group == group && l->groups[i].seq < seq)
            l->groups[i].seq = seq;
}

static void tell_audience(struct live *live, struct audience *a, const struct signal_range *range,
                          int64_t *told)
{
    uint64_t members[GROUP_REACH_MAX];
    size_t count = 0;
    for (size_t i = 0; i < a->n; i++) {
        struct listener *l = a->subscribers[i]->listener;
        if (a->is_member[i]) {
            members[count++] = l->person;
            remember(l, a->group, a->reach[i]);
            *told = a->reach[i]; /* the same for all */
            continue;
        }
        if (a->reach[i] >= range->first)
            live_send_group(live, &l->person, 1, a->group, a->reach[i]);
        leave(a->subscribers[i]);
    }
    if (count > 0)
        live_send_group(live, members, count, a->group, *told);
}

static bool send_to_topic(struct live *live, struct topic *r, const struct signal_range *range)
{
    struct audience a = {.group = r->group};
    struct subscriber *g = r->subscribers;
    int64_t told = range->last;
    while (g) {
        for (a.n = 0; g && a.n < GROUP_REACH_MAX; g = g->next) {
            a.subscribers[a.n] = g;
            a.persons[a.n++] = g->listener->person;
        }
        if (db_read(live->config.db, read_reach, &a, NULL) != OK)
            return false; /* those who were told are told again, which is harmless */
        int64_t reached = range->last;
        tell_audience(live, &a, range, &reached);
        told = reached < told ? reached : told;
    }
    r->told = told > r->told ? told : r->told;
    close_if_empty(live, r);
    return true;
}

static void take_arrived(struct live *live)
{
    struct range_list done = {.items = live->telling.items};
    pthread_mutex_lock(&live->lock);
    live->telling = live->arrived;
    live->arrived = done;
    pthread_mutex_unlock(&live->lock);
    live->told = 0;
    if (live->telling.all)
        live_mark_all(live);
    sort(&live->telling);
}

bool live_send_entries(struct live *live)
{
    if (live->told == live->telling.count)
        take_arrived(live);
    for (size_t topics = 0; live->told < live->telling.count && topics < TOPICS_A_STEP;
         live->told++) {
        const struct signal_range *range = &live->telling.items[live->told];
        struct topic *r = find(live, range->group);
        if (!r || range->last <= r->told)
            continue;
        if (!send_to_topic(live, r, range))
            return false;
        topics++;
    }
    return true;
}

/* ---- other nodes ---- */

bool live_publish_entries(struct live *live)
{
    struct signal_range some[NEWS_A_TRIP + 1];
    pthread_mutex_lock(&live->lock);
    struct range_list *list = &live->leaving;
    size_t n = list->count < NEWS_A_TRIP ? list->count : NEWS_A_TRIP;
    bool all = list->all;
    memcpy(some, list->items, n * sizeof *some);
    list->count -= n;
    memmove(list->items, list->items + n, list->count * sizeof *some);
    list->all = false;
    pthread_mutex_unlock(&live->lock);
    if (all)
        some[n++] = (struct signal_range){0};
    if (n == 0 || signal_publish(live->config.signal, some, n) == OK)
        return true;
    pthread_mutex_lock(&live->lock);
    for (size_t i = 0; i < n; i++)
        list_add(list, &some[i]);
    pthread_mutex_unlock(&live->lock);
    return false;
}

/* One read after the other is one trace: what is told after the first of them is heard of. */
static bool hear_on(struct live *live)
{
    bool more = true;
    for (int i = 0; i < HEARD_A_STEP && more; i++) {
        if (signal_consume(live->config.signal, &live->cursor, live->consumed) != OK)
            return false;
        pthread_mutex_lock(&live->lock);
        for (size_t k = 0; k < live->consumed->n; k++)
            list_add(&live->arrived, &live->consumed->ranges[k]);
        live->arrived.all |= live->consumed->missed;
        pthread_mutex_unlock(&live->lock);
        more = live->consumed->more;
    }
    return !more;
}

void live_consume_entries(struct live *live)
{
    live_trace_begin(live);
    bool heard_all = hear_on(live);
    live_trace_end(live, &live->signals);
    live->signals.whole &=
        heard_all; /* otherwise the rest is read with the next scan, or a later one */
}

void live_skip_entries(struct live *live)
{
    live->cursor = (struct signal_cursor){{0}};
    live->signals.whole = false;
    live->signals.looked_at_us = 0;
}

bool live_has_entries(struct live *live)
{
    pthread_mutex_lock(&live->lock);
    bool has = live->arrived.count > 0 || live->arrived.all || live->leaving.count > 0 ||
               live->leaving.all;
    pthread_mutex_unlock(&live->lock);
    return has || live->told < live->telling.count;
}

/* ---- life ---- */

void live_topics_init(struct live *live)
{
    list_init(&live->arrived);
    list_init(&live->leaving);
    list_init(&live->telling);
    map_init(&live->topics, sizeof(struct topic_entry), sizeof(uint64_t));
    if (!live->config.invalidation)
        return;
    live->consumed = calloc(1, sizeof *live->consumed);
    CHECK(live->consumed);
}

void live_topics_done(struct live *live)
{
    free(live->arrived.items);
    free(live->leaving.items);
    free(live->telling.items);
    free(live->signals.reads);
    free(live->consumed);
    map_done(&live->topics);
}
