/* The Redis cards engine.
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
 * before it reads anything there. Other processes cannot know; whoever needs that from them, too,
 * applies the event again (which is harmless) until it has succeeded. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"
#include "view/redis/batch.h"
#include "view/redis/debts.h"
#include "view/redis/keys.h"
#include "view/redis/redis.h"
#include "view/redis/script.h"
#include "view/redis/slot.h"

enum {
    VERSION_MS = 60000,
    LIKES_MAX = 1000,
    IDS_A_FLUSH = 1000,
    SPARE_BATCHES_MAX = 64,
    PAY_A_FLUSH = 500,
    /* the form of a post's card: 'P', then little-endian numbers, then the caption */
    CARD_AUTHOR = 1,
    CARD_LIKES = 9,
    CARD_COMMENTS = 13,
    CARD_EDITED = 17,
    CARD_DELIVERY = 25,
    CARD_CAPTION = 26,
};

#define CARD_LIFE_MS (INT64_C(24) * 3600 * 1000)

enum card_kind { CARD_POST = 'P', CARD_ACCOUNT = 'A', CARD_LIKED = 'L', CARD_VERSION = 'V' };

struct redis_cards {
    struct cards cards;
    struct link *link;
    struct clock *clock;
    int64_t life_ms;
    _Atomic uint64_t post_hits, post_misses, looks;

    pthread_mutex_t lock; /* of what follows */
    struct rand rand;
    struct batch *spare[SPARE_BATCHES_MAX];
    size_t spare_count;
    struct debts debts; /* has a lock of its own */
};

static struct redis_cards *redis_of(struct cards *c)
{
    return (struct redis_cards *)c;
}

static struct batch *borrow(struct redis_cards *c)
{
    pthread_mutex_lock(&c->lock);
    struct batch *b = c->spare_count > 0 ? c->spare[--c->spare_count] : NULL;
    pthread_mutex_unlock(&c->lock);
    return b ? b : batch_new(c->link);
}

static void give_back(struct redis_cards *c, struct batch *b)
{
    batch_reset(b);
    pthread_mutex_lock(&c->lock);
    bool keep = c->spare_count < SPARE_BATCHES_MAX;
    if (keep)
        c->spare[c->spare_count++] = b;
    pthread_mutex_unlock(&c->lock);
    if (!keep)
        batch_free(b);
}

static uint64_t new_version(struct redis_cards *c)
{
    pthread_mutex_lock(&c->lock);
    uint64_t n = rand_u64(&c->rand);
    pthread_mutex_unlock(&c->lock);
    return n ? n : 1; /* 0 is no ticket */
}

/* ---- keys: the kind, and what it is about as hash tag ---- */

static void key_of(struct key *k, enum card_kind kind, uint64_t id)
{
    k->len = (uint8_t)snprintf(k->text, sizeof k->text, "%c{%llu}", kind, (unsigned long long)id);
    k->slot = slot_of(key_text(k));
}

static uint64_t subject_of(enum card_kind kind, uint64_t id)
{
    return kind == CARD_LIKED ? cards_likes_key(id) : id;
}

/* The card's key and its version's. */
static void keys_of(struct key keys[2], enum card_kind kind, uint64_t id)
{
    key_of(&keys[0], kind, subject_of(kind, id));
    key_of(&keys[1], CARD_VERSION, subject_of(kind, id));
}

static void queue_script(struct batch *b, enum script_id id, const struct key *keys,
                         unsigned key_count, unsigned args)
{
    batch_begin(b, keys[0].slot, 3 + key_count + args);
    batch_arg_script(b, script_of(id));
    batch_arg_u64(b, key_count);
    for (unsigned i = 0; i < key_count; i++)
        batch_arg(b, key_text(&keys[i]));
}

static void arg_post(struct batch *b, uint64_t id)
{
    char digits[ID_DIGITS];
    id_digits(id, digits);
    batch_arg_u64(b, id_score(id));
    batch_arg(b, (struct str){digits, sizeof digits});
}

/* ---- what is owed ---- */

static bool is_owed(struct redis_cards *c, enum card_kind kind, uint64_t id)
{
    return debts_state(&c->debts, (char)kind, id) != DEBT_NONE;
}

static void queue_change(struct redis_cards *c, struct batch *b, enum card_kind kind, uint64_t id,
                         struct str card, int64_t life_ms)
{
    struct key keys[2];
    keys_of(keys, kind, id);
    queue_script(b, SCRIPT_change_card, keys, 2, 6);
    batch_arg_u64(b, new_version(c));
    batch_arg_i64(b, VERSION_MS);
    batch_arg(b, card);
    batch_arg_i64(b, life_ms);
    batch_arg_i64(b, clock_wall_ms(c->clock));
    batch_arg_i64(b, TOMBSTONE_MS);
}

static void queue_gone(struct redis_cards *c, struct batch *b, uint64_t id)
{
    char mark[32];
    int n = snprintf(mark, sizeof mark, "G%lld", (long long)clock_wall_ms(c->clock));
    queue_change(c, b, CARD_POST, id, (struct str){mark, (size_t)n}, TOMBSTONE_MS);
    batch_replicate(b);
}

/* Writes what is owed, if it is time to try. Called before anything else is asked of Redis. */
static void pay(struct redis_cards *c)
{
    struct debt due[PAY_A_FLUSH];
    size_t n = debts_due(&c->debts, due, PAY_A_FLUSH);
    if (n == 0)
        return;
    struct batch *b = borrow(c);
    for (size_t i = 0; i < n; i++) {
        if (due[i].gone)
            queue_gone(c, b, due[i].id);
        else
            queue_change(c, b, (enum card_kind)due[i].kind, due[i].id, STR(""), 0);
    }
    if (batch_flush(b) == OK && batch_all_good(b, NULL))
        debts_strike(&c->debts, due, n);
    give_back(c, b);
}

/* Sends a change; what cannot be sent is owed. */
static void send_change(struct redis_cards *c, struct batch *b, enum card_kind kind, uint64_t id,
                        bool gone)
{
    /* In order: not before what is owed already. */
    if (is_owed(c, kind, id) || batch_flush(b) != OK || !batch_all_good(b, NULL))
        debts_add(&c->debts, (char)kind, id, gone);
    give_back(c, b);
}

/* ---- tickets ---- */

static uint64_t redis_tickets(struct cards *base, const uint64_t *keys, size_t n, card_ticket *out)
{
    struct redis_cards *c = redis_of(base);
    uint64_t looks = atomic_fetch_add(&c->looks, 1) + 1;
    struct batch *b = borrow(c);
    if (n > 0)
        pay(c);
    for (size_t from = 0, count; from < n; from += count) {
        count = n - from < IDS_A_FLUSH ? n - from : IDS_A_FLUSH;
        batch_reset(b);
        for (size_t i = 0; i < count; i++) {
            struct key k;
            key_of(&k, CARD_VERSION, keys[from + i]);
            out[from + i] = new_version(c);
            batch_begin(b, k.slot, 7);
            batch_arg(b, STR("SET"));
            batch_arg(b, key_text(&k));
            batch_arg_u64(b, out[from + i]);
            batch_arg(b, STR("NX"));
            batch_arg(b, STR("GET"));
            batch_arg(b, STR("PX"));
            batch_arg_i64(b, VERSION_MS);
        }
        bool good = batch_flush(b) == OK;
        for (size_t i = 0; i < count; i++) {
            if (!good || batch_failed(b, i))
                out[from + i] = 0;
            else if (batch_reply(b, i)->type != REDIS_REPLY_NIL &&
                     !str_parse_u64(batch_text(b, i), &out[from + i]))
                out[from + i] = 0;
        }
    }
    give_back(c, b);
    return looks;
}

/* ---- posts ---- */

static void put_number(char *at, uint64_t n, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)(n >> 8 * i);
}

static uint64_t get_number(const char *at, size_t bytes)
{
    uint64_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n |= (uint64_t)(uint8_t)at[i] << 8 * i;
    return n;
}

static void write_card(struct buf *out, const struct post_card *card)
{
    char head[CARD_CAPTION];
    head[0] = 'P';
    put_number(head + CARD_AUTHOR, card->author, 8);
    put_number(head + CARD_LIKES, card->like_count, 4);
    put_number(head + CARD_COMMENTS, card->comment_count, 4);
    put_number(head + CARD_EDITED, (uint64_t)card->edited_at_ms, 8);
    put_number(head + CARD_DELIVERY, card->delivery, 1);
    buf_append(out, head, sizeof head);
    buf_str(out, card->caption_json);
}

static enum card_state read_card(struct redis_cards *c, struct str s, uint64_t id,
                                 struct post_card *out, struct arena *arena)
{
    int64_t gone_at_ms;
    if (s.len > 1 && s.ptr[0] == 'G')
        return str_parse_i64((struct str){s.ptr + 1, s.len - 1}, &gone_at_ms) &&
                       clock_wall_ms(c->clock) - gone_at_ms < TOMBSTONE_MS
                   ? CARD_GONE
                   : CARD_MISSING;
    if (s.len < CARD_CAPTION || s.ptr[0] != 'P')
        return CARD_MISSING;
    *out = (struct post_card){
        .id = id,
        .author = get_number(s.ptr + CARD_AUTHOR, 8),
        .like_count = (uint32_t)get_number(s.ptr + CARD_LIKES, 4),
        .comment_count = (uint32_t)get_number(s.ptr + CARD_COMMENTS, 4),
        .edited_at_ms = (int64_t)get_number(s.ptr + CARD_EDITED, 8),
        .delivery = (uint8_t)s.ptr[CARD_DELIVERY],
        .caption_json = arena_str(arena, (struct str){s.ptr + CARD_CAPTION, s.len - CARD_CAPTION}),
    };
    return CARD_FOUND;
}

/* A single server answers for all at once, a cluster for each slot. */
static void queue_gets(struct redis_cards *c, struct batch *b, enum card_kind kind,
                       const uint64_t *ids, size_t n)
{
    bool together = !link_is_cluster(c->link);
    for (size_t i = 0; i < n; i++) {
        struct key k;
        key_of(&k, kind, ids[i]);
        if (!together || i == 0) {
            batch_begin(b, k.slot, together ? (unsigned)n + 1 : 2);
            batch_arg(b, together ? STR("MGET") : STR("GET"));
        }
        batch_arg(b, key_text(&k));
    }
}

static struct str got(struct redis_cards *c, struct batch *b, size_t i)
{
    if (link_is_cluster(c->link))
        return batch_text(b, i);
    const redisReply *all = batch_reply(b, 0);
    const redisReply *r =
        all->type == REDIS_REPLY_ARRAY && i < all->elements ? all->element[i] : NULL;
    return r && r->type == REDIS_REPLY_STRING ? (struct str){r->str, r->len}
                                              : (struct str){NULL, 0};
}

static void redis_posts(struct cards *base, const uint64_t *ids, size_t n, struct post_card *out,
                        enum card_state *state, struct arena *arena)
{
    struct redis_cards *c = redis_of(base);
    struct batch *b = borrow(c);
    uint64_t hits = 0;
    pay(c);
    for (size_t from = 0, count; from < n; from += count) {
        count = n - from < IDS_A_FLUSH ? n - from : IDS_A_FLUSH;
        batch_reset(b);
        queue_gets(c, b, CARD_POST, ids + from, count);
        bool good = batch_flush(b) == OK;
        for (size_t i = from; i < from + count; i++) {
            enum debt_state owed = debts_state(&c->debts, CARD_POST, ids[i]);
            state[i] = owed == DEBT_GONE ? CARD_GONE : CARD_MISSING;
            if (good && owed == DEBT_NONE)
                state[i] = read_card(c, got(c, b, i - from), ids[i], &out[i], arena);
            hits += state[i] == CARD_FOUND;
        }
    }
    give_back(c, b);
    atomic_fetch_add_explicit(&c->post_hits, hits, memory_order_relaxed);
    if (n > hits)
        atomic_fetch_add_explicit(&c->post_misses, n - hits, memory_order_relaxed);
}

static void queue_put(struct redis_cards *c, struct batch *b, enum card_kind kind, uint64_t id,
                      card_ticket ticket, struct str card)
{
    struct key keys[2];
    keys_of(keys, kind, id);
    queue_script(b, SCRIPT_put_card, keys, 2, 5);
    batch_arg_u64(b, ticket);
    batch_arg(b, card);
    batch_arg_i64(b, c->life_ms);
    batch_arg_i64(b, clock_wall_ms(c->clock));
    batch_arg_i64(b, TOMBSTONE_MS);
}

static void put(struct redis_cards *c, enum card_kind kind, uint64_t id, card_ticket ticket,
                struct str card)
{
    if (ticket == 0 || id == 0 || is_owed(c, kind, id))
        return;
    struct batch *b = borrow(c);
    queue_put(c, b, kind, id, ticket, card);
    (void)batch_flush(b); /* a fill that fails costs a fill */
    give_back(c, b);
}

static void redis_put_post(struct cards *base, card_ticket ticket, const struct post_card *card,
                           bool change)
{
    struct redis_cards *c = redis_of(base);
    struct buf text;
    if (card->id == 0)
        return;
    pay(c);
    buf_init(&text, 0);
    write_card(&text, card);
    if (change) {
        struct batch *b = borrow(c);
        queue_change(c, b, CARD_POST, card->id, buf_view(&text), c->life_ms);
        send_change(c, b, CARD_POST, card->id, false);
    } else {
        put(c, CARD_POST, card->id, ticket, buf_view(&text));
    }
    buf_done(&text);
}

static void redis_post_gone(struct cards *base, uint64_t id)
{
    struct redis_cards *c = redis_of(base);
    if (id == 0)
        return;
    pay(c);
    struct batch *b = borrow(c);
    queue_gone(c, b, id);
    send_change(c, b, CARD_POST, id, true);
}

static void arg_count(struct batch *b, unsigned offset, int64_t n)
{
    char bytes[4];
    put_number(bytes, n > UINT32_MAX ? UINT32_MAX : (uint64_t)n, sizeof bytes);
    batch_arg_u64(b, offset);
    batch_arg(b, (struct str){bytes, sizeof bytes});
}

static void redis_post_counts(struct cards *base, uint64_t id, int64_t likes, int64_t comments)
{
    struct redis_cards *c = redis_of(base);
    struct key keys[2];
    unsigned counts = (likes >= 0 ? 1u : 0u) + (comments >= 0 ? 1u : 0u);
    pay(c);
    struct batch *b = borrow(c);
    keys_of(keys, CARD_POST, id);
    queue_script(b, SCRIPT_count_card, keys, 2, 2 + 2 * counts);
    batch_arg_u64(b, new_version(c));
    batch_arg_i64(b, VERSION_MS);
    if (likes >= 0)
        arg_count(b, CARD_LIKES, likes);
    if (comments >= 0)
        arg_count(b, CARD_COMMENTS, comments);
    send_change(c, b, CARD_POST, id, false);
}

/* ---- accounts ---- */

static void redis_accounts(struct cards *base, const uint64_t *ids, size_t n, struct str *json,
                           struct arena *arena)
{
    struct redis_cards *c = redis_of(base);
    struct batch *b = borrow(c);
    pay(c);
    for (size_t from = 0, count; from < n; from += count) {
        count = n - from < IDS_A_FLUSH ? n - from : IDS_A_FLUSH;
        batch_reset(b);
        queue_gets(c, b, CARD_ACCOUNT, ids + from, count);
        bool good = batch_flush(b) == OK;
        for (size_t i = from; i < from + count; i++) {
            struct str s = good ? got(c, b, i - from) : (struct str){NULL, 0};
            bool known = s.ptr && !is_owed(c, CARD_ACCOUNT, ids[i]);
            json[i] = known ? arena_str(arena, s) : (struct str){NULL, 0};
        }
    }
    give_back(c, b);
}

static void redis_put_account(struct cards *base, card_ticket ticket, uint64_t id, struct str json)
{
    pay(redis_of(base));
    put(redis_of(base), CARD_ACCOUNT, id, ticket, json);
}

static void redis_forget_account(struct cards *base, uint64_t id)
{
    struct redis_cards *c = redis_of(base);
    if (id == 0)
        return;
    pay(c);
    struct batch *b = borrow(c);
    queue_change(c, b, CARD_ACCOUNT, id, STR(""), 0);
    batch_replicate(b);
    send_change(c, b, CARD_ACCOUNT, id, false);
}

/* ---- likes ---- */

/* {floor, {1 or 0, …}} */
static bool read_liked(const redisReply *r, const uint64_t *ids, size_t n, bool *out)
{
    uint64_t floor;
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 2 ||
        r->element[0]->type != REDIS_REPLY_STRING ||
        !id_from_digits((struct str){r->element[0]->str, r->element[0]->len}, &floor) ||
        r->element[1]->type != REDIS_REPLY_ARRAY || r->element[1]->elements != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const redisReply *e = r->element[1]->element[i];
        if (ids[i] <= floor)
            return false;
        out[i] = e->type == REDIS_REPLY_INTEGER && e->integer == 1;
    }
    return true;
}

static enum err redis_liked(struct cards *base, uint64_t viewer, const uint64_t *ids, size_t n,
                            bool *out)
{
    struct redis_cards *c = redis_of(base);
    struct key k;
    enum err e = OK;
    pay(c);
    if (is_owed(c, CARD_LIKED, viewer))
        return ERR_NEEDS_TRUTH;
    struct batch *b = borrow(c);
    key_of(&k, CARD_LIKED, cards_likes_key(viewer));
    size_t from = 0;
    do {
        size_t count = n - from < IDS_A_FLUSH ? n - from : IDS_A_FLUSH;
        batch_reset(b);
        queue_script(b, SCRIPT_liked, &k, 1, (unsigned)count);
        for (size_t i = 0; i < count; i++) {
            char digits[ID_DIGITS];
            id_digits(ids[from + i], digits);
            batch_arg(b, (struct str){digits, sizeof digits});
        }
        if (batch_flush(b) != OK || !read_liked(batch_reply(b, 0), ids + from, count, out + from))
            e = ERR_NEEDS_TRUTH;
        from += count;
    } while (!e && from < n);
    give_back(c, b);
    return e;
}

static void redis_put_likes(struct cards *base, card_ticket ticket, uint64_t viewer,
                            const uint64_t *ids, size_t n, uint64_t floor)
{
    struct redis_cards *c = redis_of(base);
    struct key keys[2];
    pay(c);
    if (ticket == 0 || viewer == 0 || is_owed(c, CARD_LIKED, viewer))
        return;
    if (n > LIKES_MAX) {
        floor = ids[LIKES_MAX] > floor ? ids[LIKES_MAX] : floor;
        n = LIKES_MAX;
    }
    struct batch *b = borrow(c);
    keys_of(keys, CARD_LIKED, viewer);
    queue_script(b, SCRIPT_put_likes, keys, 2, 5 + 2 * (unsigned)n);
    batch_arg_u64(b, ticket);
    batch_arg_i64(b, c->life_ms);
    batch_arg_u64(b, LIKES_MAX);
    arg_post(b, floor);
    for (size_t i = 0; i < n; i++)
        arg_post(b, ids[i]);
    (void)batch_flush(b);
    give_back(c, b);
}

static void redis_like(struct cards *base, uint64_t viewer, uint64_t post, bool on)
{
    struct redis_cards *c = redis_of(base);
    struct key keys[2];
    pay(c);
    struct batch *b = borrow(c);
    keys_of(keys, CARD_LIKED, viewer);
    queue_script(b, SCRIPT_like, keys, 2, 6);
    batch_arg_u64(b, new_version(c));
    batch_arg_i64(b, VERSION_MS);
    batch_arg_u64(b, on);
    arg_post(b, post);
    batch_arg_u64(b, LIKES_MAX);
    send_change(c, b, CARD_LIKED, viewer, false);
}

/* ---- the engine ---- */

/* How many cards there are, and of what size, is for Redis to say: not counted here. */
static void redis_stats(struct cards *base, struct card_stats *out)
{
    struct redis_cards *c = redis_of(base);
    *out = (struct card_stats){.post_hits = atomic_load(&c->post_hits),
                               .post_misses = atomic_load(&c->post_misses)};
}

static void redis_free(struct cards *base)
{
    struct redis_cards *c = redis_of(base);
    while (c->spare_count > 0)
        batch_free(c->spare[--c->spare_count]);
    link_free(c->link);
    pthread_mutex_destroy(&c->lock);
    debts_done(&c->debts);
    free(c);
}

static const struct cards_ops redis_ops = {
    .tickets = redis_tickets,
    .posts = redis_posts,
    .put_post = redis_put_post,
    .post_gone = redis_post_gone,
    .post_counts = redis_post_counts,
    .accounts = redis_accounts,
    .put_account = redis_put_account,
    .forget_account = redis_forget_account,
    .liked = redis_liked,
    .put_likes = redis_put_likes,
    .like = redis_like,
    .stats = redis_stats,
    .free = redis_free,
};

enum err cards_redis_open(const struct redis_config *config, struct cards **out)
{
    struct redis_url url;
    const char *why;
    enum err e = redis_url_parse(str_of(config->url), &url, &why);
    if (e) {
        log_error("the URL of Redis cannot be used", LOG_CSTR("why", why));
        return e;
    }
    struct redis_cards *c = calloc(1, sizeof *c);
    CHECK(c);
    c->cards.ops = &redis_ops;
    c->cards.shared = true;
    c->clock = config->clock;
    c->life_ms = config->card_life_ms > 0 ? config->card_life_ms : CARD_LIFE_MS;
    c->link = link_new(&url, config->failover_wait_ms);
    explicit_bzero(&url, sizeof url);
    pthread_mutex_init(&c->lock, NULL);
    uint64_t seed = 0;
    CHECK(getrandom(&seed, sizeof seed, 0) == sizeof seed);
    rand_seed(&c->rand, seed);
    debts_init(&c->debts, c->life_ms);
    (void)link_refresh(c->link);
    *out = &c->cards; /* that nobody answers yet is no reason not to begin: cards are a cache */
    return OK;
}
