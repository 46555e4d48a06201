/* What pages show of their candidates: cards, who may see whom, authors and likes, for all readers
 * of a step in one round trip. Posts, authors and the set of hidden people are asked for once,
 * however many pages show them. Views and cards have connections of their own: both halves are sent
 * before either is read.
 *
 * Who may see a post depends on its author, which is in the card that the same round trip reads. A
 * post's author never changes, so the authors of the latest posts are remembered here; only posts
 * that no page has shown lately cost another round trip. */
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "view/redis/page_source.h"

/* ---- authors of posts ---- */

static struct known_author *place_of(struct redis_pages *g, uint64_t post)
{
    return &g->known[hash_u64(post) % AUTHORS_KNOWN];
}

static void recall_authors(struct page_step *s)
{
    struct redis_pages *g = s->pages;
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < s->post_count; i++) {
        struct known_author *known = place_of(g, s->posts[i].id);
        if (known->post == s->posts[i].id)
            s->posts[i].author = known->author;
    }
    pthread_mutex_unlock(&g->lock);
}

static void remember_authors(struct page_step *s)
{
    struct redis_pages *g = s->pages;
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < s->post_count; i++)
        if (s->posts[i].state == CARD_FOUND)
            *place_of(g, s->posts[i].id) =
                (struct known_author){s->posts[i].id, s->posts[i].card.author};
    pthread_mutex_unlock(&g->lock);
}

/* ---- what is on which page ---- */

static uint32_t index_of(struct map *m, uint64_t id, size_t *count, bool *made)
{
    struct page_index *x = map_put(m, &id, made);
    CHECK(x);
    if (*made)
        x->at = (uint32_t)(*count)++;
    return x->at;
}

static void collect_posts(struct page_step *s)
{
    size_t room = 0;
    for (size_t i = 0; i < s->n; i++)
        room += s->readers[i].alive ? s->readers[i].n : 0;
    s->posts = ARENA_ARRAY(s->arena, struct page_post, room);
    s->accounts = ARENA_ARRAY(s->arena, struct page_account, room);
    s->account_ids = ARENA_ARRAY(s->arena, uint64_t, room);
    for (size_t i = 0; i < s->n; i++) {
        struct page_reader *p = &s->readers[i];
        if (!p->alive)
            continue;
        p->posts = ARENA_ARRAY(s->arena, uint32_t, p->n);
        p->relation = ARENA_ARRAY(s->arena, uint16_t, p->n);
        p->author_ids = ARENA_ARRAY(s->arena, uint64_t, p->n);
        p->relations = ARENA_ARRAY(s->arena, struct page_relation, p->n);
        p->read->candidates = ARENA_ARRAY(s->arena, struct page_candidate, p->n);
        for (size_t k = 0; k < p->n; k++) {
            bool made;
            p->relation[k] = NO_RELATION;
            p->posts[k] = index_of(&s->post_index, p->ids[k], &s->post_count, &made);
            s->posts[p->posts[k]].id = p->ids[k];
        }
    }
}

static uint16_t relation_to(struct page_step *s, struct page_reader *p, uint64_t author)
{
    for (size_t k = 0; k < p->relation_count; k++)
        if (p->author_ids[k] == author)
            return (uint16_t)k;
    bool made;
    uint32_t at = index_of(&s->account_index, author, &s->account_count, &made);
    s->accounts[at].id = s->account_ids[at] = author;
    p->author_ids[p->relation_count] = author;
    p->relations[p->relation_count] =
        (struct page_relation){.account = at, .visible = author == p->read->viewer};
    page_note(s, p, card_key(CARD_ACCOUNT, author));
    return (uint16_t)p->relation_count++;
}

/* True: there is an account to ask about. */
static bool collect_relations(struct page_step *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n; i++) {
        struct page_reader *p = &s->readers[i];
        p->asked = p->relation_count;
        for (size_t k = 0; p->alive && k < p->n; k++)
            if (p->relation[k] == NO_RELATION && s->posts[p->posts[k]].author)
                p->relation[k] = relation_to(s, p, s->posts[p->posts[k]].author);
        any |= p->relation_count > p->asked;
    }
    return any;
}

/* ---- asking ---- */

/* A single server answers for all at once, a cluster for each slot. */
static void queue_cards(struct page_step *s, enum card_kind kind, const uint64_t *ids, size_t n)
{
    bool cluster = connections_is_cluster(s->pages->cards->client.connections);
    struct arg *keys = ARENA_ARRAY(s->arena, struct arg, n);
    for (size_t i = 0; i < n; i++) {
        keys[i] = arg_key(card_key(kind, ids[i]));
        if (cluster)
            batch_queue(s->cards, "GET", &keys[i], 1);
    }
    if (!cluster && n > 0)
        batch_queue(s->cards, "MGET", keys, n);
}

/* The i-th of those that were queued from `command` on. */
static struct str card_text(const struct page_step *s, size_t command, size_t i)
{
    if (connections_is_cluster(s->pages->cards->client.connections))
        return batch_text(s->cards, command + i);
    return reply_text(reply_element(batch_reply(s->cards, command), i));
}

/* Answered by [[head], [those liked of the last n of all]]: candidates fall, so the last one is the
 * oldest. Short, whatever the page's length. */
static size_t queue_liked(struct page_step *s, const struct page_reader *p)
{
    struct key likes = card_key(CARD_LIKED, cards_likes_key(p->read->viewer));
    page_note(s, p, likes);
    size_t command = batch_transaction(s->cards, likes.slot);
    batch_also(s->cards, "ZRANGE", arg_key(likes), arg_text("0"), arg_text("0"));
    batch_also(s->cards, "ZRANGEBYSCORE", arg_key(likes), arg_number(id_score(p->ids[p->n - 1])),
               arg_text("+inf"));
    batch_commit(s->cards);
    return command;
}

static void queue_posts(struct page_step *s)
{
    uint64_t *ids = ARENA_ARRAY(s->arena, uint64_t, s->post_count);
    for (size_t i = 0; i < s->post_count; i++)
        ids[i] = s->posts[i].id;
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; s->readers[i].read->trace && s->readers[i].alive && k < s->readers[i].n;
             k++)
            page_note(s, &s->readers[i], card_key(CARD_POST, s->readers[i].ids[k]));
    queue_cards(s, CARD_POST, ids, s->post_count);
    for (size_t i = 0; i < s->n; i++)
        if (s->readers[i].alive && s->readers[i].n > 0)
            s->readers[i].liked = queue_liked(s, &s->readers[i]);
}

static void queue_relations(struct page_step *s)
{
    struct redis_views *r = s->pages->views;
    size_t fresh = s->account_count - s->accounts_asked;
    if (r->copies == 1 && fresh > 0)
        s->hidden = queue_hidden(r, s->views, 0, s->account_ids + s->accounts_asked, fresh);
    for (size_t i = 0; i < s->n; i++) {
        struct page_reader *p = &s->readers[i];
        size_t n = p->relation_count - p->asked;
        if (!p->alive || n == 0)
            continue;
        const uint64_t *authors = p->author_ids + p->asked;
        p->followed = queue_members(s->views, KEY_FOLLOWED, p->read->viewer, authors, n);
        if (p->has_mutes)
            p->muted = queue_members(s->views, KEY_MUTED, p->read->viewer, authors, n);
        if (r->copies > 1)
            p->hidden = queue_hidden(r, s->views, p->read->viewer, authors, n);
    }
}

/* Both halves; false: what the views say does not count. */
static bool flush_both(struct page_step *s)
{
    batch_start(s->views, FLUSH_HURRY);
    batch_start(s->cards, FLUSH_HURRY);
    bool views = batch_flush(s->views, FLUSH_HURRY | FLUSH_GOOD) == OK;
    bool cards = batch_flush(s->cards, FLUSH_HURRY) == OK;
    s->traced &= batch_is_heard_of(s->views) && batch_is_heard_of(s->cards);
    return views && cards;
}

/* ---- reading the answers ---- */

static void read_posts(struct page_step *s, size_t command)
{
    struct redis_cards *c = s->pages->cards;
    uint64_t hits = 0;
    for (size_t i = 0; i < s->post_count; i++) {
        struct page_post *post = &s->posts[i];
        enum pending_kind owed = pending_state(&c->pending, CARD_POST, post->id);
        post->state = owed == PENDING_GONE ? CARD_GONE : CARD_MISSING;
        if (owed == PENDING_NONE)
            post->state =
                cards_read_post(c, card_text(s, command, i), post->id, &post->card, s->arena);
        if (post->state == CARD_FOUND)
            post->author = post->card.author;
        hits += post->state == CARD_FOUND;
    }
    atomic_fetch_add_explicit(&c->post_hits, hits, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->post_misses, s->post_count - hits, memory_order_relaxed);
}

static void read_accounts(struct page_step *s, size_t command)
{
    for (size_t i = s->accounts_asked; i < s->account_count; i++) {
        struct page_account *a = &s->accounts[i];
        size_t at = i - s->accounts_asked;
        a->found = !card_is_owed(s->pages->cards, CARD_ACCOUNT, a->id) &&
                   cards_read_account(card_text(s, command, at), a->id, &a->card, s->arena);
        if (s->pages->views->copies == 1)
            a->hidden = reply_flag(s->views, s->hidden, 1 + at);
    }
}

/* Who is not known to be complete around sees nothing here. */
static void read_relations(struct page_step *s)
{
    bool one = s->pages->views->copies == 1;
    for (size_t i = 0; i < s->n; i++) {
        struct page_reader *p = &s->readers[i];
        if (!p->alive || p->relation_count == p->asked)
            continue;
        p->alive = reply_flag(s->views, one ? s->hidden : p->hidden, 0);
        for (size_t k = p->asked; k < p->relation_count; k++) {
            size_t at = k - p->asked;
            bool hidden = one ? s->accounts[p->relations[k].account].hidden
                              : reply_flag(s->views, p->hidden, 1 + at);
            p->relations[k].visible |= reply_flag(s->views, p->followed, at) && !hidden &&
                                       !(p->has_mutes && reply_flag(s->views, p->muted, at));
        }
    }
}

/* Marks the candidates that are liked. False: the list does not reach down to all of them. */
static bool read_liked(struct page_step *s, struct page_reader *p)
{
    const redisReply *r = batch_reply(s->cards, p->liked), *list = reply_element(r, 1);
    uint64_t floor, id;
    if (card_is_owed(s->pages->cards, CARD_LIKED, p->read->viewer) ||
        !reply_ready(reply_element(r, 0), &floor) || !list || list->type != REDIS_REPLY_ARRAY ||
        p->ids[p->n - 1] <= floor)
        return false;
    for (size_t i = 0; i < list->elements; i++) {
        if (!reply_id(list->element[i], &id))
            return false;
        for (size_t k = 0; k < p->n && p->ids[k] >= id; k++)
            p->read->candidates[k].liked |= p->ids[k] == id;
    }
    return true;
}

static void make_candidates(struct page_step *s, struct page_reader *p)
{
    p->read->n = p->n;
    for (size_t k = 0; k < p->n; k++) {
        const struct page_post *post = &s->posts[p->posts[k]];
        struct page_candidate *c = &p->read->candidates[k];
        c->id = p->ids[k];
        c->state = post->state;
        c->card = &post->card;
        if (post->state == CARD_MISSING && p->read->trace)
            p->read->trace->whole = false; /* its coming would not be told */
        if (post->state != CARD_FOUND)
            continue;
        if (p->relation[k] == NO_RELATION) { /* a card without an account */
            p->alive = false;
            return;
        }
        const struct page_relation *relation = &p->relations[p->relation[k]];
        const struct page_account *account = &s->accounts[relation->account];
        c->visible = relation->visible;
        c->author = account->found ? &account->card : NULL;
        if (account->id != post->card.author)
            p->alive = false; /* the card holds another post under this id */
        if (!account->found && p->read->trace)
            p->read->trace->whole = false;
    }
}

/* ---- rounds ---- */

static void begin_round(struct page_step *s)
{
    batch_reset(s->views);
    batch_reset(s->cards);
    if (s->traced) {
        batch_track(s->views);
        batch_track(s->cards);
    }
}

/* Authors who became known: their cards, and how the readers stand to them. */
static void queue_authors(struct page_step *s, size_t *command)
{
    *command = batch_count(s->cards);
    queue_cards(s, CARD_ACCOUNT, s->account_ids + s->accounts_asked,
                s->account_count - s->accounts_asked);
    queue_relations(s);
}

static void read_authors(struct page_step *s, size_t command)
{
    read_accounts(s, command);
    read_relations(s);
    s->accounts_asked = s->account_count;
}

static bool fill_all(struct page_step *s)
{
    size_t authors;
    collect_posts(s);
    recall_authors(s);
    collect_relations(s);
    begin_round(s);
    queue_posts(s);
    queue_authors(s, &authors);
    if (!flush_both(s))
        return false;
    read_posts(s, 0);
    read_authors(s, authors);
    remember_authors(s);
    for (size_t i = 0; i < s->n; i++) { /* the batch is needed for the authors left */
        struct page_reader *p = &s->readers[i];
        if (p->alive && p->n > 0)
            p->alive = read_liked(s, p);
    }
    if (!collect_relations(s))
        return true;
    begin_round(s);
    queue_authors(s, &authors);
    if (!flush_both(s))
        return false;
    read_authors(s, authors);
    return true;
}

void page_fill(struct page_step *s)
{
    map_init(&s->post_index, sizeof(struct page_index), sizeof(uint64_t));
    map_init(&s->account_index, sizeof(struct page_index), sizeof(uint64_t));
    bool good = fill_all(s);
    map_done(&s->post_index);
    map_done(&s->account_index);
    for (size_t i = 0; good && i < s->n; i++) {
        struct page_reader *p = &s->readers[i];
        if (p->alive)
            make_candidates(s, p);
        p->read->good = p->alive;
    }
}
