/* Writing cards: changes, and what readers fill in. How versions, tickets and debts go together is
 * told in cards.c.
 *
 * Everything goes through redis_write, many at a time: one trip carries all changes of a commit, or
 * all that a page has filled in. A change that finds its key owed is owed, too, and the key is
 * forgotten (or marked as gone) at once: how changes follow each other is no longer known.
 *
 * Counters are what a commit made of them, and commits of different nodes may arrive in another
 * order than they happened in. So a card whose counters were changed does not live for much longer:
 * whatever they say, soon after the last like they are read from truth again. */
#include "view/redis/cards_engine.h"

enum { WRITES_A_FLUSH = 1000, PAY_A_FLUSH = 500, COUNTS_SETTLE_MS = 10000 };

static uint64_t subject_of(enum card_kind kind, uint64_t id)
{
    return kind == CARD_LIKED ? cards_likes_key(id) : id;
}

/* The card's key and its version's. */
static void keys_of(struct key keys[2], enum card_kind kind, uint64_t id)
{
    card_key(&keys[0], kind, subject_of(kind, id));
    card_key(&keys[1], CARD_VERSION, subject_of(kind, id));
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

static void put_number(char *at, uint64_t n, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)(n >> 8 * i);
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

/* ---- queueing ---- */

static void queue_change(struct redis_cards *c, struct batch *b, enum card_kind kind, uint64_t id,
                         struct str card, int64_t life_ms)
{
    struct key keys[2];
    keys_of(keys, kind, id);
    queue_script(b, SCRIPT_change_card, keys, 2, 6);
    batch_arg_u64(b, cards_new_version(c));
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

static void queue_fill(struct redis_cards *c, struct batch *b, enum card_kind kind, uint64_t id,
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

static void arg_count(struct batch *b, unsigned offset, int64_t n)
{
    char bytes[4];
    put_number(bytes, n > UINT32_MAX ? UINT32_MAX : (uint64_t)n, sizeof bytes);
    batch_arg_u64(b, offset);
    batch_arg(b, (struct str){bytes, sizeof bytes});
}

static void queue_counts(struct redis_cards *c, struct batch *b, const struct card_write *w)
{
    struct key keys[2];
    unsigned counts = (w->likes >= 0 ? 1u : 0u) + (w->comments >= 0 ? 1u : 0u);
    keys_of(keys, CARD_POST, w->id);
    queue_script(b, SCRIPT_count_card, keys, 2, 3 + 2 * counts);
    batch_arg_u64(b, cards_new_version(c));
    batch_arg_i64(b, VERSION_MS);
    batch_arg_i64(b, COUNTS_SETTLE_MS);
    if (w->likes >= 0)
        arg_count(b, CARD_LIKES, w->likes);
    if (w->comments >= 0)
        arg_count(b, CARD_COMMENTS, w->comments);
}

static void queue_like(struct redis_cards *c, struct batch *b, const struct card_write *w)
{
    struct key keys[2];
    keys_of(keys, CARD_LIKED, w->viewer);
    queue_script(b, SCRIPT_like, keys, 2, 6);
    batch_arg_u64(b, cards_new_version(c));
    batch_arg_i64(b, VERSION_MS);
    batch_arg_u64(b, w->on);
    arg_post(b, w->id);
    batch_arg_u64(b, LIKES_MAX);
}

/* ---- writing ---- */

/* What Redis holds of it is no longer so, and Redis cannot know. */
static void owe(struct redis_cards *c, struct debt key)
{
    struct key k;
    debts_add(&c->debts, key.kind, key.id, key.gone);
    card_key(&k, (enum card_kind)key.kind, subject_of((enum card_kind)key.kind, key.id));
    watch_heard(link_watch(c->link), key_text(&k));
}

static bool is_fill(const struct card_write *w)
{
    return w->kind == CARD_FILL_POST || w->kind == CARD_FILL_ACCOUNT;
}

static struct debt key_of_write(const struct card_write *w)
{
    switch (w->kind) {
    case CARD_FILL_POST:
    case CARD_CHANGE_POST:
        return (struct debt){w->card->id, CARD_POST, false};
    case CARD_FILL_ACCOUNT:
    case CARD_FORGET_ACCOUNT:
        return (struct debt){w->id, CARD_ACCOUNT, false};
    case CARD_LIKE:
        return (struct debt){w->viewer, CARD_LIKED, false};
    case CARD_POST_GONE:
        return (struct debt){w->id, CARD_POST, true};
    case CARD_FORGET_POST:
    case CARD_POST_COUNTS:
        break;
    }
    return (struct debt){w->id, CARD_POST, false};
}

/* One command for each. */
static void queue_write(struct redis_cards *c, struct batch *b, const struct card_write *w)
{
    struct buf text;
    switch (w->kind) {
    case CARD_FILL_POST:
    case CARD_CHANGE_POST:
        buf_init(&text, 0);
        write_card(&text, w->card);
        if (w->kind == CARD_FILL_POST)
            queue_fill(c, b, CARD_POST, w->card->id, w->ticket, buf_view(&text));
        else
            queue_change(c, b, CARD_POST, w->card->id, buf_view(&text), c->life_ms);
        buf_done(&text);
        break;
    case CARD_FILL_ACCOUNT:
        queue_fill(c, b, CARD_ACCOUNT, w->id, w->ticket, w->json);
        break;
    case CARD_POST_GONE:
        queue_gone(c, b, w->id);
        break;
    case CARD_FORGET_POST:
    case CARD_FORGET_ACCOUNT:
        queue_change(c, b, w->kind == CARD_FORGET_POST ? CARD_POST : CARD_ACCOUNT, w->id, STR(""),
                     0);
        batch_replicate(b);
        break;
    case CARD_POST_COUNTS:
        queue_counts(c, b, w);
        break;
    case CARD_LIKE:
        queue_like(c, b, w);
        break;
    }
}

static void queue_debt(struct redis_cards *c, struct batch *b, struct debt debt)
{
    if (debt.gone)
        queue_gone(c, b, debt.id);
    else
        queue_change(c, b, (enum card_kind)debt.kind, debt.id, STR(""), 0);
}

static void write_some(struct redis_cards *c, const struct card_write *writes, size_t n)
{
    struct batch *b = cards_borrow(c);
    uint16_t sent[WRITES_A_FLUSH];
    size_t count = 0;
    bool changes = false, lost = cards_are_lost(c);
    for (size_t i = 0; i < n; i++) {
        const struct card_write *w = &writes[i];
        struct debt key = key_of_write(w);
        bool owed = key.id != 0 && card_is_owed(c, (enum card_kind)key.kind, key.id);
        if (key.id == 0 || (is_fill(w) && (w->ticket == 0 || owed || lost)))
            continue;
        changes |= !is_fill(w);
        if (owed) { /* stays so until it is paid, and what it comes to is said at once */
            owe(c, key);
            queue_debt(c, b,
                       (struct debt){key.id, key.kind,
                                     debts_state(&c->debts, key.kind, key.id) == DEBT_GONE});
        } else {
            queue_write(c, b, w);
        }
        sent[count++] = (uint16_t)i;
    }
    if (!changes) /* a fill that fails costs a fill */
        batch_hurry(b);
    bool good = batch_flush(b) == OK;
    if (good && changes)
        good = batch_all_good(b, NULL); /* says so */
    for (size_t i = 0; changes && !good && i < count; i++) {
        struct debt key = key_of_write(&writes[sent[i]]);
        if (!is_fill(&writes[sent[i]]))
            owe(c, key);
    }
    cards_give_back(c, b);
}

void redis_write(struct cards *base, const struct card_write *writes, size_t n)
{
    struct redis_cards *c = redis_cards_of(base);
    if (n > 0)
        cards_pay(c);
    for (size_t from = 0, count; from < n; from += count) {
        count = n - from < WRITES_A_FLUSH ? n - from : WRITES_A_FLUSH;
        write_some(c, writes + from, count);
    }
}

void cards_pay(struct redis_cards *c)
{
    struct debt due[PAY_A_FLUSH];
    size_t n = debts_due(&c->debts, due, PAY_A_FLUSH);
    if (n == 0)
        return;
    struct batch *b = cards_borrow(c);
    for (size_t i = 0; i < n; i++)
        queue_debt(c, b, due[i]);
    batch_hurry(b); /* readers do this */
    if (batch_flush(b) == OK && batch_all_good(b, NULL))
        debts_strike(&c->debts, due, n);
    cards_give_back(c, b);
}

/* ---- one by one ---- */

void redis_put_post(struct cards *base, card_ticket ticket, const struct post_card *card,
                    bool change)
{
    redis_write(base,
                &(struct card_write){.kind = change ? CARD_CHANGE_POST : CARD_FILL_POST,
                                     .ticket = ticket,
                                     .card = card},
                1);
}

void redis_post_gone(struct cards *base, uint64_t id)
{
    redis_write(base, &(struct card_write){.kind = CARD_POST_GONE, .id = id}, 1);
}

void redis_post_counts(struct cards *base, uint64_t id, int64_t likes, int64_t comments)
{
    redis_write(base,
                &(struct card_write){
                    .kind = CARD_POST_COUNTS, .id = id, .likes = likes, .comments = comments},
                1);
}

void redis_put_account(struct cards *base, card_ticket ticket, uint64_t id, struct str json)
{
    redis_write(
        base,
        &(struct card_write){.kind = CARD_FILL_ACCOUNT, .ticket = ticket, .id = id, .json = json},
        1);
}

void redis_forget_account(struct cards *base, uint64_t id)
{
    redis_write(base, &(struct card_write){.kind = CARD_FORGET_ACCOUNT, .id = id}, 1);
}

void redis_like(struct cards *base, uint64_t viewer, uint64_t post, bool on)
{
    redis_write(base,
                &(struct card_write){.kind = CARD_LIKE, .viewer = viewer, .id = post, .on = on}, 1);
}

void redis_put_likes(struct cards *base, card_ticket ticket, uint64_t viewer, const uint64_t *ids,
                     size_t n, uint64_t floor)
{
    struct redis_cards *c = redis_cards_of(base);
    struct key keys[2];
    cards_pay(c);
    if (ticket == 0 || viewer == 0 || cards_are_lost(c) || card_is_owed(c, CARD_LIKED, viewer))
        return;
    if (n > LIKES_MAX) {
        floor = ids[LIKES_MAX] > floor ? ids[LIKES_MAX] : floor;
        n = LIKES_MAX;
    }
    struct batch *b = cards_borrow(c);
    keys_of(keys, CARD_LIKED, viewer);
    queue_script(b, SCRIPT_put_likes, keys, 2, 5 + 2 * (unsigned)n);
    batch_arg_u64(b, ticket);
    batch_arg_i64(b, c->life_ms);
    batch_arg_u64(b, LIKES_MAX);
    arg_post(b, floor);
    for (size_t i = 0; i < n; i++)
        arg_post(b, ids[i]);
    batch_hurry(b);
    (void)batch_flush(b);
    cards_give_back(c, b);
}
