/* Writes cards: changes, and readers' fills. cards.c explains versions, tickets and pending
 * changes.
 *
 * Everything goes through redis_write, many at a time: one trip carries all changes of a commit, or
 * all that a page has filled in. A change that finds its key owed is owed, too, and the key is
 * forgotten (or marked as gone) at once: how changes follow each other is no longer known.
 *
 * Counters are what a commit made of them, and commits of different nodes may arrive in another
 * order than they happened in. So a card whose counters were changed does not live for much longer:
 * whatever they say, soon after the last like they are read from truth again.
 *
 * Fragments are not kept here: drawing a card anew costs less than carrying its fragment over the
 * network. */
#include "base/check.h"
#include "view/redis/cards_driver.h"

enum { WRITES_A_FLUSH = 1000, PAY_A_FLUSH = 500, COUNTS_SETTLE_MS = 10000 };

static uint64_t subject_of(enum card_kind kind, uint64_t id)
{
    return kind == CARD_LIKED ? cards_likes_key(id) : id;
}

/* The card's key and its version's. */
#define CARD_KEYS(kind, id)                                                                        \
    arg_key(card_key((kind), subject_of((kind), (id)))),                                           \
        arg_key(card_key(CARD_VERSION, subject_of((kind), (id))))
/* A change's version. */
#define NEW_VERSION(c) arg_number(cards_new_version(c)), arg_number(VERSION_MS)

static void put_number(char *at, uint64_t n, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)(n >> 8 * i);
}

static void write_card(struct buf *out, const struct post_card *card)
{
    char head[CARD_CAPTION];
    head[0] = 'Q';
    put_number(head + CARD_AUTHOR, card->author, 8);
    put_number(head + CARD_LIKES, card->like_count, 4);
    put_number(head + CARD_COMMENTS, card->comment_count, 4);
    put_number(head + CARD_EDITED, (uint64_t)card->edited_at_ms, 8);
    put_number(head + CARD_DELIVERY, card->delivery, 1);
    buf_append(out, head, sizeof head);
    buf_str(out, card->caption);
}

static void write_account(struct buf *out, const struct account_card *card)
{
    const struct str texts[] = {card->username, card->display_name, card->avatar_url};
    char head[ACCOUNT_TEXTS] = {'B'};
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        put_number(head + ACCOUNT_LENGTHS + 2 * i, texts[i].ptr ? texts[i].len : ACCOUNT_NO_TEXT,
                   2);
    buf_append(out, head, sizeof head);
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        if (texts[i].ptr)
            buf_str(out, texts[i]);
}

/* ---- queueing ---- */

static void queue_change(struct redis_cards *c, struct batch *b, enum card_kind kind, uint64_t id,
                         struct str card, int64_t life_ms)
{
    batch_script(b, SCRIPT_change_card, CARD_KEYS(kind, id), NEW_VERSION(c), arg_str(card),
                 arg_signed(life_ms), arg_signed(clock_wall_ms(c->clock)),
                 arg_signed(TOMBSTONE_MS));
}

static void queue_gone(struct redis_cards *c, struct batch *b, uint64_t id)
{
    char mark[32];
    snprintf(mark, sizeof mark, "G%lld", (long long)clock_wall_ms(c->clock));
    queue_change(c, b, CARD_POST, id, str_of(mark), TOMBSTONE_MS);
}

static void queue_fill(struct redis_cards *c, struct batch *b, enum card_kind kind, uint64_t id,
                       card_ticket ticket, struct str card)
{
    batch_script(b, SCRIPT_put_card, CARD_KEYS(kind, id), arg_number(ticket), arg_str(card),
                 arg_signed(c->life_ms), arg_signed(clock_wall_ms(c->clock)),
                 arg_signed(TOMBSTONE_MS));
}

static void queue_counts(struct redis_cards *c, struct batch *b, const struct card_write *w)
{
    const int64_t counts[] = {w->likes, w->comments};
    static const unsigned offsets[] = {CARD_LIKES, CARD_COMMENTS};
    struct arg args[5 + 2 * COUNT_OF(counts)] = {CARD_KEYS(CARD_POST, w->id), NEW_VERSION(c),
                                                 arg_number(COUNTS_SETTLE_MS)};
    char bytes[COUNT_OF(counts)][4];
    size_t n = 5;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        if (counts[i] < 0)
            continue;
        put_number(bytes[i], counts[i] > UINT32_MAX ? UINT32_MAX : (uint64_t)counts[i], 4);
        args[n++] = arg_number(offsets[i]);
        args[n++] = arg_str(((struct str){bytes[i], 4}));
    }
    batch_queue_script(b, SCRIPT_count_card, args, n);
}

static void queue_like(struct redis_cards *c, struct batch *b, const struct card_write *w)
{
    batch_script(b, SCRIPT_like, CARD_KEYS(CARD_LIKED, w->viewer), NEW_VERSION(c),
                 arg_number(w->on), arg_post(w->id), arg_number(LIKES_MAX));
}

static void queue_likes(struct redis_cards *c, struct batch *b, const struct card_write *w)
{
    size_t n = w->count < LIKES_MAX ? w->count : LIKES_MAX;
    uint64_t floor = w->count > n && w->ids[n] > w->floor ? w->ids[n] : w->floor;
    batch_script(b, SCRIPT_put_likes, CARD_KEYS(CARD_LIKED, w->viewer), arg_number(w->ticket),
                 arg_signed(c->life_ms), arg_number(LIKES_MAX), arg_post(floor),
                 arg_posts(w->ids, n));
}

/* ---- writing ---- */

/* What Redis holds of it is no longer so, and Redis cannot know. */
static void owe(struct redis_cards *c, struct pending_invalidation key)
{
    enum card_kind kind = (enum card_kind)key.kind;
    struct key k = card_key(kind, subject_of(kind, key.id));
    pending_add(&c->pending, key.kind, key.id, key.gone);
    invalidation_heard(connections_invalidation(c->client.connections), key_text(&k));
}

static bool is_fill(const struct card_write *w)
{
    return w->kind == CARD_FILL_POST || w->kind == CARD_FILL_ACCOUNT || w->kind == CARD_FILL_LIKES;
}

/* Should what was answered survive the master? */
static bool removes(const struct card_write *w)
{
    return w->kind == CARD_POST_GONE || w->kind == CARD_FORGET_POST ||
           w->kind == CARD_FORGET_ACCOUNT;
}

static struct pending_invalidation key_of_write(const struct card_write *w)
{
    switch (w->kind) {
    case CARD_FILL_POST:
    case CARD_CHANGE_POST:
        return (struct pending_invalidation){w->post->id, CARD_POST, false};
    case CARD_FILL_ACCOUNT:
        return (struct pending_invalidation){w->account->id, CARD_ACCOUNT, false};
    case CARD_FORGET_ACCOUNT:
        return (struct pending_invalidation){w->id, CARD_ACCOUNT, false};
    case CARD_FILL_LIKES:
    case CARD_LIKE:
        return (struct pending_invalidation){w->viewer, CARD_LIKED, false};
    case CARD_POST_GONE:
        return (struct pending_invalidation){w->id, CARD_POST, true};
    case CARD_FORGET_POST:
    case CARD_POST_COUNTS:
        break;
    case CARD_ATTACH_POST: /* of no key: fragments and groups are not kept here */
    case CARD_ATTACH_ACCOUNT:
    case CARD_FILL_GROUP:
    case CARD_FILL_MEMBERS:
    case CARD_FORGET_GROUP:
    case CARD_FORGET_MEMBER:
    case CARD_FORGET_MEMBERS:
        return (struct pending_invalidation){0, CARD_POST, false};
    }
    return (struct pending_invalidation){w->id, CARD_POST, false};
}

/* One command for each. */
static void queue_write(struct redis_cards *c, struct batch *b, const struct card_write *w)
{
    struct buf text;
    switch (w->kind) {
    case CARD_FILL_POST:
    case CARD_CHANGE_POST:
        buf_init(&text, 0);
        write_card(&text, w->post);
        if (w->kind == CARD_FILL_POST)
            queue_fill(c, b, CARD_POST, w->post->id, w->ticket, buf_view(&text));
        else
            queue_change(c, b, CARD_POST, w->post->id, buf_view(&text), c->life_ms);
        buf_done(&text);
        break;
    case CARD_FILL_ACCOUNT:
        buf_init(&text, 0);
        write_account(&text, w->account);
        queue_fill(c, b, CARD_ACCOUNT, w->account->id, w->ticket, buf_view(&text));
        buf_done(&text);
        break;
    case CARD_FILL_LIKES:
        queue_likes(c, b, w);
        break;
    case CARD_POST_GONE:
        queue_gone(c, b, w->id);
        break;
    case CARD_FORGET_POST:
    case CARD_FORGET_ACCOUNT:
        queue_change(c, b, w->kind == CARD_FORGET_POST ? CARD_POST : CARD_ACCOUNT, w->id, STR(""),
                     0);
        if (w->kind == CARD_FORGET_ACCOUNT)
            queue_change(c, b, CARD_DRAWN_ACCOUNT, w->id, STR(""), 0);
        break;
    case CARD_POST_COUNTS:
        queue_counts(c, b, w);
        break;
    case CARD_LIKE:
        queue_like(c, b, w);
        break;
    case CARD_ATTACH_POST:
    case CARD_ATTACH_ACCOUNT:
    case CARD_FILL_GROUP:
    case CARD_FILL_MEMBERS:
    case CARD_FORGET_GROUP:
    case CARD_FORGET_MEMBER:
    case CARD_FORGET_MEMBERS:
        break;
    }
}

static void queue_pending(struct redis_cards *c, struct batch *b,
                          struct pending_invalidation pending_invalidation)
{
    if (pending_invalidation.gone)
        queue_gone(c, b, pending_invalidation.id);
    else
        queue_change(c, b, (enum card_kind)pending_invalidation.kind, pending_invalidation.id,
                     STR(""), 0);
}

static void write_some(struct redis_cards *c, const struct card_write *writes, size_t n)
{
    BORROWED struct batch *b = batch_borrow(&c->client);
    uint16_t sent[WRITES_A_FLUSH];
    size_t count = 0;
    bool changes = false, lost = cards_are_lost(c);
    unsigned replicate = 0;
    for (size_t i = 0; i < n; i++) {
        const struct card_write *w = &writes[i];
        struct pending_invalidation key = key_of_write(w);
        bool owed = key.id != 0 && card_is_owed(c, (enum card_kind)key.kind, key.id);
        if (key.id == 0 || (is_fill(w) && (w->ticket == 0 || owed || lost)))
            continue;
        changes |= !is_fill(w);
        replicate |= owed || removes(w) ? FLUSH_REPLICATE : 0;
        if (owed) { /* stays so until it is paid, and what it comes to is said at once */
            owe(c, key);
            queue_pending(c, b,
                          (struct pending_invalidation){
                              key.id, key.kind,
                              pending_state(&c->pending, key.kind, key.id) == PENDING_GONE});
        } else {
            queue_write(c, b, w);
        }
        sent[count++] = (uint16_t)i;
    }
    /* a fill that fails costs a fill */
    bool good = batch_flush(b, changes ? FLUSH_GOOD | replicate : FLUSH_HURRY) == OK;
    for (size_t i = 0; changes && !good && i < count; i++) {
        struct pending_invalidation key = key_of_write(&writes[sent[i]]);
        if (!is_fill(&writes[sent[i]]))
            owe(c, key);
    }
}

void redis_write(struct cards *base, const struct card_write *writes, size_t n)
{
    struct redis_cards *c = CONTAINER_OF(base, struct redis_cards, cards);
    if (n > 0)
        cards_pay(c);
    for (size_t from = 0, count; from < n; from += count) {
        count = n - from < WRITES_A_FLUSH ? n - from : WRITES_A_FLUSH;
        write_some(c, writes + from, count);
    }
}

void cards_pay(struct redis_cards *c)
{
    struct pending_invalidation due[PAY_A_FLUSH];
    size_t n = pending_due(&c->pending, due, PAY_A_FLUSH);
    if (n == 0)
        return;
    BORROWED struct batch *b = batch_borrow(&c->client);
    unsigned how = FLUSH_HURRY | FLUSH_GOOD; /* readers do this */
    for (size_t i = 0; i < n; i++) {
        queue_pending(c, b, due[i]);
        how |= due[i].gone ? FLUSH_REPLICATE : 0;
    }
    if (batch_flush(b, how) == OK)
        pending_remove(&c->pending, due, n);
}
