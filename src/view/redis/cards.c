/* The Redis cards driver.
 *
 * A post's card, an account's fragment and a person's likes are one key each, with a time to live,
 * and each has a second key with its **version**, in the same slot. A version is a random number:
 * every change makes a new one and, in the same script, changes the card; a ticket is the version,
 * made when there is none; a fill is put by a script that compares. Versions live for VERSION_MS,
 * which is longer than a read of truth may take: when one has expired in between, the fill finds
 * another or none and is refused. So a fill that read before a change never comes after it, though
 * the two run in different processes.
 *
 * A deleted post leaves a tombstone in its card's place, which no fill and no late change removes.
 *
 * A change must not be lost, or a card would show for a day what is no longer true; but the port's
 * changes cannot fail. When Redis cannot be reached the key is **owed**: this process reads it as
 * missing (or gone), and writes its tombstone, or forgets the card, as soon as Redis answers again,
 * before it reads anything there. Other processes cannot know; a caller that needs that from them,
 * too, applies the event again (which is harmless) until it has succeeded, or has them suspect the
 * cards.
 *
 * A missing card comes from truth, and its change changes no key that was read. So a trace is whole
 * only if everything was found; the next page finds what this one filled in.
 *
 * Reading and filling do not wait for a server that is away: a page is drawn from truth then. What
 * is written is in cards_write.c. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/id.h"
#include "view/redis/cards_driver.h"

enum { IDS_A_FLUSH = 1000, LOOK_EVERY_MS = 200 };

#define CARD_LIFE_MS (INT64_C(24) * 3600 * 1000)

uint64_t cards_new_version(struct redis_cards *c)
{
    uint64_t n = client_random(&c->client);
    return n ? n : 1; /* 0 is no ticket */
}

struct key card_key(enum card_kind kind, uint64_t id)
{
    struct key k;
    k.text[0] = (char)kind;
    k.text[1] = '{';
    size_t digits = id_format(id, k.text + 2);
    k.text[2 + digits] = '}';
    k.len = (uint8_t)(3 + digits);
    k.slot = crc16(k.text + 2, digits) % SLOT_COUNT;
    return k;
}

/* ---- trust ---- */

/* A server that was restarted may have come back with cards that were changed or taken away since:
 * none is believed until the cards are cleared, which begins another epoch. */
bool cards_are_lost(struct redis_cards *c)
{
    uint64_t restarts = connections_restarts(c->client.connections), epoch;
    if (atomic_load_explicit(&c->suspect, memory_order_relaxed))
        return true;
    if (restarts == atomic_load(&c->restarts_trusted))
        return false;
    int64_t look_at = atomic_load(&c->look_at_ms), now_ms = clock_mono_ms(clock_system());
    if (now_ms < look_at ||
        !atomic_compare_exchange_strong(&c->look_at_ms, &look_at, now_ms + LOOK_EVERY_MS) ||
        client_epoch(&c->client, FLUSH_HURRY | FLUSH_GOOD, &epoch) != OK ||
        epoch == atomic_load(&c->epoch))
        return true;
    atomic_store(&c->epoch, epoch);
    atomic_store(&c->restarts_trusted, restarts);
    return connections_restarts(c->client.connections) != restarts;
}

/* ---- tickets ---- */

static uint64_t redis_tickets(struct cards *base, const uint64_t *keys, size_t n, card_ticket *out)
{
    struct redis_cards *c = CONTAINER_OF(base, struct redis_cards, cards);
    uint64_t looks = atomic_fetch_add(&c->looks, 1) + 1;
    BORROWED struct batch *b = batch_borrow(&c->client);
    if (n > 0)
        cards_pay(c);
    bool lost = n > 0 && cards_are_lost(c);
    for (size_t i = 0; lost && i < n; i++)
        out[i] = 0;
    for (size_t from = 0, count; !lost && from < n; from += count) {
        count = n - from < IDS_A_FLUSH ? n - from : IDS_A_FLUSH;
        batch_reset(b);
        for (size_t i = 0; i < count; i++) {
            out[from + i] = cards_new_version(c);
            batch_command(b, "SET", arg_key(card_key(CARD_VERSION, keys[from + i])),
                          arg_number(out[from + i]), arg_text("NX"), arg_text("GET"),
                          arg_text("PX"), arg_number(VERSION_MS));
        }
        bool good = batch_flush(b, FLUSH_HURRY) == OK && !cards_are_lost(c);
        for (size_t i = 0; i < count; i++) {
            if (!good || batch_failed(b, i))
                out[from + i] = 0;
            else if (batch_reply(b, i)->type != REDIS_REPLY_NIL &&
                     !str_parse_u64(batch_text(b, i), &out[from + i]))
                out[from + i] = 0;
        }
    }
    return looks;
}

/* ---- posts ---- */

static uint64_t get_number(const char *at, size_t bytes)
{
    uint64_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n |= (uint64_t)(uint8_t)at[i] << 8 * i;
    return n;
}

enum card_state cards_read_post(struct redis_cards *c, struct str s, uint64_t id,
                                struct post_card *out, struct arena *arena)
{
    int64_t gone_at_ms;
    if (s.len > 1 && s.ptr[0] == 'G')
        return str_parse_i64((struct str){s.ptr + 1, s.len - 1}, &gone_at_ms) &&
                       clock_wall_ms(c->clock) - gone_at_ms < TOMBSTONE_MS
                   ? CARD_GONE
                   : CARD_MISSING;
    if (s.len < CARD_CAPTION || s.ptr[0] != 'Q')
        return CARD_MISSING;
    *out = (struct post_card){
        .id = id,
        .author = get_number(s.ptr + CARD_AUTHOR, 8),
        .like_count = (uint32_t)get_number(s.ptr + CARD_LIKES, 4),
        .comment_count = (uint32_t)get_number(s.ptr + CARD_COMMENTS, 4),
        .edited_at_ms = (int64_t)get_number(s.ptr + CARD_EDITED, 8),
        .delivery = (uint8_t)s.ptr[CARD_DELIVERY],
        .caption = arena_str(arena, (struct str){s.ptr + CARD_CAPTION, s.len - CARD_CAPTION}),
    };
    return CARD_FOUND;
}

/* Reads cards, at most IDS_A_FLUSH. A single server answers for all at once, a cluster for each
 * slot. False: none of them can be believed. */
static bool get(struct redis_cards *c, struct batch *b, enum card_kind kind, const uint64_t *ids,
                size_t n)
{
    struct arg keys[IDS_A_FLUSH];
    bool cluster = connections_is_cluster(c->client.connections);
    batch_reset(b);
    batch_invalidation(b);
    for (size_t i = 0; i < n; i++) {
        keys[i] = arg_key(card_key(kind, ids[i]));
        if (cluster)
            batch_queue(b, "GET", &keys[i], 1);
    }
    if (!cluster)
        batch_queue(b, "MGET", keys, n);
    return !cards_are_lost(c) && batch_flush(b, FLUSH_HURRY) == OK && !cards_are_lost(c);
}

static struct str got(struct redis_cards *c, struct batch *b, size_t i)
{
    if (connections_is_cluster(c->client.connections))
        return batch_text(b, i);
    return reply_text(reply_element(batch_reply(b, 0), i));
}

static void redis_posts(struct cards *base, const uint64_t *ids, size_t n, struct post_card *out,
                        enum card_state *state, struct arena *arena)
{
    struct redis_cards *c = CONTAINER_OF(base, struct redis_cards, cards);
    BORROWED struct batch *b = batch_borrow(&c->client);
    uint64_t hits = 0;
    bool all = true;
    cards_pay(c);
    for (size_t from = 0, count; from < n; from += count) {
        count = n - from < IDS_A_FLUSH ? n - from : IDS_A_FLUSH;
        bool good = get(c, b, CARD_POST, ids + from, count);
        for (size_t i = from; i < from + count; i++) {
            enum pending_kind owed = pending_state(&c->pending, CARD_POST, ids[i]);
            state[i] = owed == PENDING_GONE ? CARD_GONE : CARD_MISSING;
            if (good && owed == PENDING_NONE)
                state[i] = cards_read_post(c, got(c, b, i - from), ids[i], &out[i], arena);
            hits += state[i] == CARD_FOUND;
            all &= state[i] != CARD_MISSING && owed == PENDING_NONE;
        }
    }
    if (!all)
        client_spoil(&c->client);
    atomic_fetch_add_explicit(&c->post_hits, hits, memory_order_relaxed);
    if (n > hits)
        atomic_fetch_add_explicit(&c->post_misses, n - hits, memory_order_relaxed);
}

/* ---- accounts ---- */

bool cards_read_account(struct str s, uint64_t id, struct account_card *out, struct arena *arena)
{
    struct str *texts[] = {&out->username, &out->display_name, &out->avatar_url};
    *out = (struct account_card){0};
    if (s.len < ACCOUNT_TEXTS || s.ptr[0] != 'B')
        return false;
    size_t at = ACCOUNT_TEXTS;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        size_t len = get_number(s.ptr + ACCOUNT_LENGTHS + 2 * i, 2);
        if (len == ACCOUNT_NO_TEXT)
            continue;
        if (len > s.len - at)
            return false;
        *texts[i] = arena_str(arena, (struct str){s.ptr + at, len});
        at += len;
    }
    out->id = at == s.len ? id : 0;
    return out->id != 0;
}

static void redis_accounts(struct cards *base, const uint64_t *ids, size_t n,
                           struct account_card *out, struct arena *arena)
{
    struct redis_cards *c = CONTAINER_OF(base, struct redis_cards, cards);
    BORROWED struct batch *b = batch_borrow(&c->client);
    bool all = true;
    cards_pay(c);
    for (size_t from = 0, count; from < n; from += count) {
        count = n - from < IDS_A_FLUSH ? n - from : IDS_A_FLUSH;
        bool good = get(c, b, CARD_ACCOUNT, ids + from, count);
        for (size_t i = from; i < from + count; i++) {
            out[i].id = 0;
            bool known = good && !card_is_owed(c, CARD_ACCOUNT, ids[i]) &&
                         cards_read_account(got(c, b, i - from), ids[i], &out[i], arena);
            all &= known;
        }
    }
    if (!all)
        client_spoil(&c->client);
}

/* ---- likes ---- */

/* [[head], [score or nil, …]]: see script.c for what the head of a list says. */
static bool read_liked(const redisReply *r, const uint64_t *ids, size_t n, bool *out)
{
    const redisReply *scores = reply_element(r, 1);
    uint64_t floor;
    if (!reply_ready(reply_element(r, 0), &floor) || reply_count(scores) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] <= floor)
            return false;
        out[i] = reply_text(scores->element[i]).ptr != NULL;
    }
    return true;
}

/* Without a script, which would cost as much as the rest of the page. */
static void queue_liked(struct batch *b, uint64_t viewer, const uint64_t *ids, size_t n)
{
    struct key k = card_key(CARD_LIKED, cards_likes_key(viewer));
    batch_transaction(b, k.slot);
    batch_also(b, "ZRANGE", arg_key(k), arg_text("0"), arg_text("0"));
    batch_also(b, "ZMSCORE", arg_key(k), arg_ids(ids, n));
    batch_commit(b);
}

static enum err liked(struct redis_cards *c, uint64_t viewer, const uint64_t *ids, size_t n,
                      bool *out)
{
    enum err e = OK;
    cards_pay(c);
    if (cards_are_lost(c) || card_is_owed(c, CARD_LIKED, viewer))
        return ERR_NEEDS_TRUTH;
    BORROWED struct batch *b = batch_borrow(&c->client);
    for (size_t from = 0, count; !e && from < n; from += count) {
        count = n - from < IDS_A_FLUSH ? n - from : IDS_A_FLUSH;
        batch_reset(b);
        batch_invalidation(b);
        queue_liked(b, viewer, ids + from, count);
        if (batch_flush(b, FLUSH_HURRY) != OK || cards_are_lost(c) ||
            !read_liked(batch_reply(b, 0), ids + from, count, out + from))
            e = ERR_NEEDS_TRUTH;
    }
    return e;
}

static enum err redis_liked(struct cards *base, uint64_t viewer, const uint64_t *ids, size_t n,
                            bool *out)
{
    struct redis_cards *c = CONTAINER_OF(base, struct redis_cards, cards);
    enum err e = n > 0 ? liked(c, viewer, ids, n, out) : OK;
    if (e)
        client_spoil(&c->client);
    return e;
}

/* ---- groups ---- */

/* They are not kept here: inboxes over shared views are read from truth. */
static void redis_groups(struct cards *base, const uint64_t *ids, size_t n, struct group_card *out,
                         struct arena *arena)
{
    (void)base;
    (void)ids;
    (void)arena;
    for (size_t i = 0; i < n; i++)
        out[i].id = 0;
}

static void redis_members(struct cards *base, uint64_t account, const uint64_t *groups, size_t n,
                          struct member_card *out)
{
    (void)base;
    (void)account;
    (void)groups;
    for (size_t i = 0; i < n; i++)
        out[i] = (struct member_card){0};
}

/* ---- the driver ---- */

/* How many cards there are, and of what size, is for Redis to say: not counted here. */
static void redis_stats(struct cards *base, struct card_stats *out)
{
    struct redis_cards *c = CONTAINER_OF(base, struct redis_cards, cards);
    *out = (struct card_stats){.post_hits = atomic_load(&c->post_hits),
                               .post_misses = atomic_load(&c->post_misses)};
}

static void redis_suspect(struct cards *base, bool on)
{
    atomic_store(&CONTAINER_OF(base, struct redis_cards, cards)->suspect, on);
}

static void redis_free(struct cards *base)
{
    struct redis_cards *c = CONTAINER_OF(base, struct redis_cards, cards);
    client_close(&c->client);
    pending_done(&c->pending);
    free(c);
}

static const struct cards_ops redis_ops = {
    .tickets = redis_tickets,
    .posts = redis_posts,
    .accounts = redis_accounts,
    .liked = redis_liked,
    .groups = redis_groups,
    .members = redis_members,
    .write = redis_write,
    .suspect = redis_suspect,
    .stats = redis_stats,
    .free = redis_free,
};

enum err cards_redis_open(const struct redis_config *config, struct cards **out)
{
    struct redis_cards *c = calloc(1, sizeof *c);
    CHECK(c);
    enum err e = client_open(&c->client, config);
    if (e) {
        free(c);
        return e;
    }
    c->cards.ops = &redis_ops;
    c->cards.shared = true;
    c->clock = config->clock;
    c->life_ms = config->card_life_ms > 0 ? config->card_life_ms : CARD_LIFE_MS;
    pending_init(&c->pending, c->life_ms);
    uint64_t epoch;
    (void)client_epoch(&c->client, FLUSH_HURRY, &epoch);
    atomic_store(&c->epoch, epoch);
    *out = &c->cards; /* an absent server is no reason not to start: cards are a cache */
    return OK;
}
