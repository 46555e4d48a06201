/* Entries of groups that change nobody's inbox: edits, deletions, names, roles, who came, who went.
 *
 * A message reaches each member's inbox, and a look there finds it. These entries are in the log
 * alone, and walking over the members of a large group for each of them would cost far more than
 * the few who listen are worth. So it is turned around: everybody who listens here is a **guest**
 * in a **room** for each of their groups (the latest ROOMS_OF_LISTENER_MAX of their inbox), and
 * news of a group are for the guests of its room. What an entry costs is a look into a table, and
 * where there is a room, one query for 256 guests. Nothing is done for people who do not listen.
 *
 * Who is a guest says nothing about who is a member: truth is asked, in the same query, before
 * anything is told. Whoever has left is told the number of their leaving, if that is among the
 * news, and is a guest no more.
 *
 * News come from the commit hook, and with shared views from other nodes through views_tell(), what
 * this node told among them. A number that the room was told already is passed over: all guests of
 * then were told, and whoever came later was looked at, or greeted, later. Lists are bounded; when
 * one overflows, or other nodes' news were missed, everybody is looked at instead, which finds the
 * entries of the groups on top of their inboxes.
 *
 * Rooms belong to the step. */
#include <stdlib.h>
#include <string.h>

#include "api/hints_state.h"
#include "base/check.h"
#include "base/hash.h"
#include "model/inbox.h"

enum { ROOMS_MIN = 64, ROOMS_A_STEP = 32, NEWS_A_TRIP = 256, HEARD_A_STEP = 8 };

struct room {
    uint64_t group;
    int64_t told; /* every guest knows of the entries up to here */
    struct guest *guests;
    struct room *next; /* in its bucket */
};

struct guest {
    struct listener *listener;
    struct room *room;
    struct guest *next, **link; /* in the room */
    struct guest *newer, *older;
};

/* ---- rooms ---- */

static struct room **room_link(const struct hints *h, uint64_t group)
{
    struct room **at = &h->rooms[hash_u64(group) & (h->room_buckets - 1)];
    while (*at && (*at)->group != group)
        at = &(*at)->next;
    return at;
}

static void grow_rooms(struct hints *h)
{
    if (h->room_count < h->room_buckets)
        return;
    struct room **old = h->rooms;
    size_t old_count = h->room_buckets;
    h->room_buckets = old_count ? old_count * 2 : ROOMS_MIN;
    h->rooms = calloc(h->room_buckets, sizeof(struct room *));
    CHECK(h->rooms); /* eight bytes a group that somebody listens for */
    for (size_t i = 0; i < old_count; i++) {
        struct room *next;
        for (struct room *r = old[i]; r; r = next) {
            next = r->next;
            struct room **bucket = &h->rooms[hash_u64(r->group) & (h->room_buckets - 1)];
            r->next = *bucket;
            *bucket = r;
        }
    }
    free(old);
}

static struct room *open_room(struct hints *h, uint64_t group)
{
    grow_rooms(h);
    struct room **at = room_link(h, group), *r = *at;
    if (r)
        return r;
    r = calloc(1, sizeof *r);
    CHECK(r);
    r->group = group;
    *at = r;
    h->room_count++;
    return r;
}

static void close_if_empty(struct hints *h, struct room *r)
{
    if (r->guests)
        return;
    *room_link(h, r->group) = r->next;
    h->room_count--;
    free(r);
}

/* ---- guests ---- */

static void put_first(struct listener *l, struct guest *g)
{
    g->newer = NULL;
    g->older = l->guest_first;
    if (g->older)
        g->older->newer = g;
    else
        l->guest_last = g;
    l->guest_first = g;
}

static void take_out(struct listener *l, struct guest *g)
{
    if (g->newer)
        g->newer->older = g->older;
    else
        l->guest_first = g->older;
    if (g->older)
        g->older->newer = g->newer;
    else
        l->guest_last = g->newer;
}

/* The room may be empty then. */
static void leave(struct guest *g)
{
    take_out(g->listener, g);
    g->listener->guest_count--;
    *g->link = g->next;
    if (g->next)
        g->next->link = g->link;
    free(g);
}

static void leave_and_close(struct hints *h, struct guest *g)
{
    struct room *r = g->room;
    leave(g);
    close_if_empty(h, r);
}

void hints_enter(struct hints *h, struct listener *l, uint64_t group)
{
    struct guest *g = l->guest_first;
    while (g && g->room->group != group)
        g = g->older;
    if (g) {
        take_out(l, g);
        put_first(l, g);
        return;
    }
    if (l->guest_count == ROOMS_OF_LISTENER_MAX)
        leave_and_close(h, l->guest_last);
    struct room *r = open_room(h, group);
    g = calloc(1, sizeof *g);
    CHECK(g); /* of one person sixteen kilobytes at most */
    *g = (struct guest){.listener = l, .room = r, .next = r->guests, .link = &r->guests};
    if (g->next)
        g->next->link = &g->next;
    r->guests = g;
    put_first(l, g);
    l->guest_count++;
}

void hints_leave_all(struct hints *h, struct listener *l)
{
    struct guest *older;
    for (struct guest *g = l->guest_first; g; g = older) {
        older = g->older;
        leave_and_close(h, g);
    }
}

/* ---- lists; those that threads share under the lock ---- */

static void list_init(struct news_list *list)
{
    *list = (struct news_list){.items = calloc(NEWS_MAX, sizeof *list->items)};
    CHECK(list->items);
}

/* A burst in one group is one piece of news. */
static void list_add(struct news_list *list, const struct group_news *news)
{
    if (list->count > 0 && list->items[list->count - 1].group == news->group) {
        struct group_news *last = &list->items[list->count - 1];
        last->first = news->first < last->first ? news->first : last->first;
        last->last = news->last > last->last ? news->last : last->last;
    } else if (news->group == 0 || list->count == NEWS_MAX) {
        list->all = true;
    } else {
        list->items[list->count++] = *news;
    }
}

static int by_group(const void *a, const void *b)
{
    const struct group_news *x = a, *y = b;
    return x->group < y->group ? -1 : x->group > y->group;
}

static void sort(struct news_list *list)
{
    size_t n = list->count;
    qsort(list->items, n, sizeof *list->items, by_group);
    list->count = 0;
    for (size_t i = 0; i < n; i++) {
        struct group_news one = list->items[i];
        list_add(list, &one);
    }
}

static bool is_entry(const struct event *e)
{
    return e->type == EVENT_GROUP_ENTRY || e->type == EVENT_GROUP_JOINED ||
           e->type == EVENT_GROUP_LEFT;
}

/* The other nodes hear of it even if nobody listens here. */
void hints_entries(struct hints *h, const struct event *events, size_t n)
{
    size_t i = 0;
    while (i < n && !is_entry(&events[i]))
        i++;
    if (i == n)
        return;
    pthread_mutex_lock(&h->lock);
    bool wanted = h->listener_count > 0 || h->config.watch;
    for (; i < n && wanted; i++) {
        struct group_news news = {events[i].actor, events[i].value, events[i].value};
        if (!is_entry(&events[i]))
            continue;
        if (h->listener_count > 0)
            list_add(&h->arrived, &news);
        if (h->config.watch)
            list_add(&h->leaving, &news);
    }
    pthread_mutex_unlock(&h->lock);
    if (wanted)
        h->config.wake(h->config.wake_ctx);
}

/* ---- telling ---- */

struct audience {
    uint64_t group;
    struct guest *guests[GROUP_REACH_MAX];
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

static void tell_audience(struct hints *h, struct audience *a, const struct group_news *news,
                          int64_t *told)
{
    uint64_t members[GROUP_REACH_MAX];
    size_t count = 0;
    for (size_t i = 0; i < a->n; i++) {
        struct listener *l = a->guests[i]->listener;
        if (a->is_member[i]) {
            members[count++] = l->person;
            remember(l, a->group, a->reach[i]);
            *told = a->reach[i]; /* the same for all */
            continue;
        }
        if (a->reach[i] >= news->first)
            hints_tell_group(h, &l->person, 1, a->group, a->reach[i]);
        leave(a->guests[i]);
    }
    if (count > 0)
        hints_tell_group(h, members, count, a->group, *told);
}

static bool tell_room(struct hints *h, struct room *r, const struct group_news *news)
{
    struct audience a = {.group = r->group};
    struct guest *g = r->guests;
    int64_t told = news->last;
    while (g) {
        for (a.n = 0; g && a.n < GROUP_REACH_MAX; g = g->next) {
            a.guests[a.n] = g;
            a.persons[a.n++] = g->listener->person;
        }
        if (db_read(h->config.db, read_reach, &a, NULL) != OK)
            return false; /* those who were told are told again, which is harmless */
        int64_t reached = news->last;
        tell_audience(h, &a, news, &reached);
        told = reached < told ? reached : told;
    }
    r->told = told > r->told ? told : r->told;
    close_if_empty(h, r);
    return true;
}

static void take_arrived(struct hints *h)
{
    struct news_list done = {.items = h->telling.items};
    pthread_mutex_lock(&h->lock);
    h->telling = h->arrived;
    h->arrived = done;
    pthread_mutex_unlock(&h->lock);
    h->told = 0;
    if (h->telling.all)
        hints_mark_all(h);
    sort(&h->telling);
}

bool hints_tell_news(struct hints *h)
{
    if (h->told == h->telling.count)
        take_arrived(h);
    for (size_t rooms = 0; h->told < h->telling.count && rooms < ROOMS_A_STEP; h->told++) {
        const struct group_news *news = &h->telling.items[h->told];
        struct room *r = *room_link(h, news->group);
        if (!r || news->last <= r->told)
            continue;
        if (!tell_room(h, r, news))
            return false;
        rooms++;
    }
    return true;
}

/* ---- other nodes ---- */

bool hints_send_news(struct hints *h)
{
    struct group_news some[NEWS_A_TRIP + 1];
    pthread_mutex_lock(&h->lock);
    struct news_list *list = &h->leaving;
    size_t n = list->count < NEWS_A_TRIP ? list->count : NEWS_A_TRIP;
    bool all = list->all;
    memcpy(some, list->items, n * sizeof *some);
    list->count -= n;
    memmove(list->items, list->items + n, list->count * sizeof *some);
    list->all = false;
    pthread_mutex_unlock(&h->lock);
    if (all)
        some[n++] = (struct group_news){0};
    if (n == 0 || views_tell(h->config.views, some, n) == OK)
        return true;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < n; i++)
        list_add(list, &some[i]);
    pthread_mutex_unlock(&h->lock);
    return false;
}

/* One read after the other is one trace: what is told after the first of them is heard of. */
static bool hear_on(struct hints *h)
{
    bool more = true;
    for (int i = 0; i < HEARD_A_STEP && more; i++) {
        if (views_hear(h->config.views, &h->cursor, h->heard) != OK)
            return false;
        pthread_mutex_lock(&h->lock);
        for (size_t k = 0; k < h->heard->n; k++)
            list_add(&h->arrived, &h->heard->news[k]);
        h->arrived.all |= h->heard->missed;
        pthread_mutex_unlock(&h->lock);
        more = h->heard->more;
    }
    return !more;
}

void hints_hear_news(struct hints *h)
{
    hints_watch_begin(h);
    bool heard_all = hear_on(h);
    hints_watch_end(h, &h->news);
    h->news.whole &= heard_all; /* otherwise the rest is read with the next scan, or a later one */
}

void hints_ignore_news(struct hints *h)
{
    h->cursor = (struct news_cursor){{0}};
    h->news.whole = false;
    h->news.looked_at_us = 0;
}

bool hints_has_news(struct hints *h)
{
    pthread_mutex_lock(&h->lock);
    bool has = h->arrived.count > 0 || h->arrived.all || h->leaving.count > 0 || h->leaving.all;
    pthread_mutex_unlock(&h->lock);
    return has || h->told < h->telling.count;
}

/* ---- life ---- */

void hints_news_init(struct hints *h)
{
    list_init(&h->arrived);
    list_init(&h->leaving);
    list_init(&h->telling);
    grow_rooms(h);
    if (!h->config.watch)
        return;
    h->heard = calloc(1, sizeof *h->heard);
    CHECK(h->heard);
}

void hints_news_done(struct hints *h)
{
    free(h->arrived.items);
    free(h->leaving.items);
    free(h->telling.items);
    free(h->news.reads);
    free(h->heard);
    free(h->rooms);
}
