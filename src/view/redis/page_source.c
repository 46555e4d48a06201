/* Candidates for the first pages of several viewers, in one round trip: the newest ids of each
 * timeline, whose lists are pulled, and whether the viewer has muted any account. A second round
 * trip reads the pull lists, each once, if a viewer follows an author who has one. What is shown of
 * the candidates is read in page_fill.c.
 *
 * Everything is asked as the ports ask it (home.c, graph.c, cards.c), over the same connections, so
 * that what is known of a restart or a loss counts here, too. A viewer for whom anything is not as
 * it mostly is (a dropped timeline, a card that is missing) gets no answer here: the ports know
 * what to do. */
#include "view/redis/page_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* ---- timelines ---- */

static void queue_homes(struct page_step *s)
{
    struct redis_views *r = s->pages->views;
    for (size_t i = 0; i < s->n; i++) {
        struct page_reader *p = &s->readers[i];
        uint64_t viewer = p->read->viewer;
        struct key pulled = key_of_account(KEY_PULLED, viewer);
        struct key followed = key_of_account(KEY_FOLLOWED, viewer);
        struct key muted = key_of_account(KEY_MUTED, viewer);
        page_note(s, p, key_of_account(KEY_TIMELINE, viewer));
        page_note(s, p, pulled);
        page_note(s, p, followed);
        page_note(s, p, muted);
        page_note(s, p, hidden_near(r, viewer));
        p->top = queue_top(s->views, viewer, p->read->max);
        p->pulled = batch_command(s->views, "SINTER", arg_key(pulled), arg_key(followed));
        p->mutes = batch_command(s->views, "EXISTS", arg_key(muted));
        p->complete =
            i > 0 && r->copies == 1 ? s->readers[0].complete : queue_complete(r, s->views, viewer);
    }
}

static void read_home(struct page_step *s, struct page_reader *p)
{
    struct page_read *read = p->read;
    if (read->max >= s->pages->views->views.cap || /* what lies beyond the cap is out */
        !reply_is(s->views, p->complete, 1) || batch_failed(s->views, p->pulled) ||
        batch_failed(s->views, p->mutes) ||
        !reply_ready(reply_part(s->views, p->top, 1), &read->floor))
        return;
    p->ids = ARENA_ARRAY(s->arena, uint64_t, read->max);
    p->n = reply_ids(reply_part(s->views, p->top, 0), p->ids, read->max); /* the head is no id */
    p->has_mutes = !reply_is(s->views, p->mutes, 0);
    const redisReply *pulled = batch_reply(s->views, p->pulled);
    p->author_count = reply_count(pulled);
    if (p->author_count > PULLED_MAX)
        return;
    p->authors = ARENA_ARRAY(s->arena, uint64_t, p->author_count);
    p->author_count = reply_accounts(pulled, 0, p->authors, p->author_count);
    p->alive = p->n == 0 || p->ids[p->n - 1] != 0; /* nothing of ours has the id 0 */
    for (size_t i = 0; i < p->author_count; i++)
        p->alive &= p->authors[i] != 0;
}

/* ---- pull lists ---- */

/* Numbers the lists that are to be read, each once. */
static uint64_t *number_lists(struct page_step *s, struct map *lists)
{
    uint64_t *authors = ARENA_ARRAY(s->arena, uint64_t, LISTS_MAX);
    for (size_t i = 0; i < s->n; i++) {
        struct page_reader *p = &s->readers[i];
        if (p->alive && lists->count + p->author_count > LISTS_MAX)
            p->alive = false;
        for (size_t k = 0; p->alive && k < p->author_count; k++) {
            bool made;
            struct page_index *x = map_put(lists, &p->authors[k], &made);
            CHECK(x);
            if (made)
                x->at = (uint32_t)lists->count - 1;
            authors[x->at] = p->authors[k];
        }
    }
    return authors;
}

struct list_round {
    struct map lists; /* author → number, which is its command's as well */
    uint64_t *authors;
    size_t hidden; /* the command, when there is one copy of that set */
    size_t around; /* the first of the commands that ask whether all lists are there */
};

static void queue_lists(struct page_step *s, struct list_round *l)
{
    struct redis_views *r = s->pages->views;
    size_t max = 0;
    for (size_t i = 0; i < s->n; i++)
        max = s->readers[i].read->max > max ? s->readers[i].read->max : max;
    for (size_t i = 0; i < l->lists.count; i++)
        queue_pull_list(r, s->views, l->authors[i], UINT64_MAX, max);
    if (r->copies == 1)
        l->hidden =
            queue_hidden(r, s->views, s->readers[0].read->viewer, l->authors, l->lists.count);
    for (size_t i = 0; i < s->n; i++) {
        struct page_reader *p = &s->readers[i];
        if (!p->alive || p->author_count == 0)
            continue;
        for (size_t k = 0; k < p->author_count; k++) {
            page_note(s, p, key_of_account(KEY_PULL_LIST, p->authors[k]));
            page_note(s, p, hidden_near(r, p->authors[k]));
        }
        if (p->has_mutes)
            p->muted =
                queue_members(s->views, KEY_MUTED, p->read->viewer, p->authors, p->author_count);
        if (r->copies > 1)
            p->hidden = queue_hidden(r, s->views, p->read->viewer, p->authors, p->author_count);
    }
    l->around = queue_complete_around(r, s->views, l->authors, l->lists.count);
}

/* Merges the lists of one viewer into the candidates. */
static void merge_lists(struct page_step *s, struct list_round *l, struct page_reader *p)
{
    bool one = s->pages->views->copies == 1;
    size_t count = p->n, room = count, max = p->read->max;
    size_t *number = ARENA_ARRAY(s->arena, size_t, p->author_count);
    for (size_t k = 0; k < p->author_count; k++) {
        struct page_index *x = map_find(&l->lists, &p->authors[k]);
        number[k] = x->at;
        room += reply_count(reply_part(s->views, number[k], 1));
    }
    uint64_t *all = ARENA_ARRAY(s->arena, uint64_t, room);
    memcpy(all, p->ids, p->n * sizeof *all);
    for (size_t k = 0; k < p->author_count; k++) {
        bool hidden = one ? reply_flag(s->views, l->hidden, 1 + number[k])
                          : reply_flag(s->views, p->hidden, 1 + k);
        if (hidden || (p->has_mutes && reply_flag(s->views, p->muted, k)))
            continue;
        raise_floor(reply_part(s->views, number[k], 0), &p->read->floor);
        count += reply_ids(reply_part(s->views, number[k], 1), all + count, room - count);
    }
    p->n = sort_page(all, count, max);
    memcpy(p->ids, all, p->n * sizeof *all);
    while (p->n > 0 && p->ids[p->n - 1] <= p->read->floor)
        p->n--;
}

static void read_lists(struct page_step *s)
{
    struct list_round l = {.authors = NULL};
    map_init(&l.lists, sizeof(struct page_index), sizeof(uint64_t));
    l.authors = number_lists(s, &l.lists);
    if (l.lists.count > 0) {
        batch_reset(s->views);
        if (s->traced)
            batch_track(s->views);
        queue_lists(s, &l);
        bool good = batch_flush(s->views, FLUSH_HURRY | FLUSH_GOOD) == OK &&
                    is_complete_around(s->views, l.around);
        s->traced &= batch_is_heard_of(s->views);
        for (size_t i = 0; i < s->n; i++) {
            struct page_reader *p = &s->readers[i];
            if (p->alive && p->author_count > 0 && good)
                merge_lists(s, &l, p);
            p->alive &= good || p->author_count == 0;
        }
    }
    map_done(&l.lists);
}

/* ---- a step ---- */

static bool is_all_lost(const struct redis_pages *g)
{
    return is_lost(g->views) || cards_are_lost(g->cards);
}

static void read_step(struct page_step *s)
{
    if (s->traced)
        batch_track(s->views);
    queue_homes(s);
    if (is_all_lost(s->pages) || batch_flush(s->views, FLUSH_HURRY) != OK)
        return;
    s->traced &= batch_is_heard_of(s->views);
    for (size_t i = 0; i < s->n; i++)
        read_home(s, &s->readers[i]);
    read_lists(s);
    page_fill(s);
    if (is_all_lost(s->pages)) /* perhaps known since */
        for (size_t i = 0; i < s->n; i++)
            s->readers[i].read->good = false;
}

static void read_some(struct redis_pages *g, struct page_read *reads, size_t n, struct arena *arena)
{
    BORROWED struct batch *views = batch_borrow(&g->views->client);
    BORROWED struct batch *cards = batch_borrow(&g->cards->client);
    struct page_step s = {.pages = g,
                          .arena = arena,
                          .views = views,
                          .cards = cards,
                          .n = n,
                          .readers = ARENA_ARRAY(arena, struct page_reader, n)};
    for (size_t i = 0; i < n; i++) {
        s.readers[i].read = &reads[i];
        s.traced |= reads[i].trace != NULL;
    }
    bool traced = s.traced;
    read_step(&s);
    for (size_t i = 0; i < n; i++)
        if (reads[i].trace && (!reads[i].good || (traced && !s.traced)))
            reads[i].trace->whole = false;
}

/* As many at a time as a batch has room for. */
static void redis_read(struct page_source *base, struct page_read *reads, size_t n,
                       struct arena *arena)
{
    struct redis_pages *g = CONTAINER_OF(base, struct redis_pages, source);
    CHECK(n <= PAGE_READS_MAX);
    cards_pay(g->cards);
    for (size_t from = 0, to; from < n; from = to) {
        size_t candidates = 0;
        for (to = from; to < n; to++) {
            reads[to].good = false;
            candidates += reads[to].max;
            if (to > from && candidates > CANDIDATES_AT_ONCE)
                break;
        }
        read_some(g, reads + from, to - from, arena);
    }
}

static void redis_free(struct page_source *base)
{
    struct redis_pages *g = CONTAINER_OF(base, struct redis_pages, source);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static const struct page_source_ops redis_ops = {.read = redis_read, .free = redis_free};

struct page_source *page_source_redis_new(struct views *views, struct cards *cards)
{
    struct redis_pages *g = calloc(1, sizeof *g);
    CHECK(g);
    g->source.ops = &redis_ops;
    g->views = CONTAINER_OF(views, struct redis_views, views);
    g->cards = CONTAINER_OF(cards, struct redis_cards, cards);
    g->invalidation = connections_invalidation(g->views->client.connections);
    pthread_mutex_init(&g->lock, NULL);
    return &g->source;
}
