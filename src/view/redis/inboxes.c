/* Inboxes: delivery, rebuilding, reading.
 *
 * A push costs Redis one ZADD for each member: GT makes it a maximum, so nothing has to be read.
 * The score holds 53 bits of an activity, milliseconds and counter, without the node. Two groups
 * that spoke in the same millisecond on different nodes may therefore come in another order than
 * truth has them in, and a page must not end between them: whoever reads on from truth would miss
 * one. So a page ends between two milliseconds if it can. */
#include "base/id.h"
#include "view/redis/driver.h"
#include "view/redis/invalidation.h"

enum { PUSH_A_FLUSH = 2048, DROP_A_FLUSH = 1024, SCORE_MAX = 24, SENT_MAX = 128 };

/* ---- delivery ---- */

static void queue_push(struct batch *b, uint64_t group, uint64_t activity, const uint64_t *members,
                       size_t n)
{
    char score[SCORE_MAX], digits[ID_DIGITS];
    struct str score_text = {score, 0}, group_text = {digits, sizeof digits};
    score_text.len =
        (size_t)snprintf(score, sizeof score, "%llu", (unsigned long long)event_score(activity));
    id_digits(group, digits);
    for (size_t i = 0; i < n; i++) {
        struct key k;
        key_of_account(&k, KEY_INBOX, members[i]);
        batch_begin(b, k.slot, 6);
        batch_arg(b, STR("ZADD"));
        batch_arg(b, key_text(&k));
        batch_arg(b, STR("GT"));
        batch_arg(b, STR("CH"));
        batch_arg(b, score_text);
        batch_arg(b, group_text);
    }
}

static size_t count_changed(const struct batch *b, size_t from, size_t n)
{
    size_t changed = 0;
    for (size_t i = 0; i < n; i++)
        changed += batch_integer(b, from + i, 0) == 1;
    return changed;
}

/* Members of as many messages as fit go in one round trip. */
static enum err push(struct inboxes *base, struct inbox_push *pushes, size_t n)
{
    struct redis_views *r = redis_of_inboxes(base);
    for (size_t i = 0; i < n; i++) {
        if (pushes[i].group == 0 || pushes[i].activity == 0)
            return ERR_BAD_INPUT;
        pushes[i].changed = 0;
    }
    struct batch *b = batch_borrow(r);
    enum err e = OK;
    for (size_t at = 0, from = 0; !e && at < n;) {
        struct {
            size_t push, n;
        } sent[SENT_MAX];
        size_t count = 0, room = PUSH_A_FLUSH, reply = 0;
        batch_reset(b);
        while (at < n && room > 0 && count < SENT_MAX) {
            const struct inbox_push *p = &pushes[at];
            size_t some = p->n - from < room ? p->n - from : room;
            queue_push(b, p->group, p->activity, p->members + from, some);
            sent[count].push = at;
            sent[count++].n = some;
            room -= some;
            from += some;
            if (from == p->n)
                at++, from = 0;
        }
        e = flush_pushes(r, b);
        for (size_t i = 0; !e && i < count; reply += sent[i++].n)
            pushes[sent[i].push].changed += count_changed(b, reply, sent[i].n);
    }
    batch_return(r, b);
    return e;
}

static enum err drop_some(struct redis_views *r, struct batch *b, const uint64_t *members, size_t n)
{
    batch_reset(b);
    for (size_t i = 0; i < n; i++) {
        struct key keys[3];
        rebuild_keys(keys, (struct rebuild_of){members[i], 'i'});
        queue_script(r, b, SCRIPT_inbox_drop, keys, 2, 1);
        batch_arg_u64(b, members[i]);
    }
    batch_replicate(b);
    enum err e = batch_flush_good(b, NULL);
    for (size_t i = 0; !e && i < n; i++) {
        tally_add(r, TALLY_INBOXES, -reply_number(b, i, 0));
        tally_add(r, TALLY_INBOX_ENTRIES, reply_number(b, i, 1));
    }
    return e;
}

static enum err drop(struct inboxes *base, const uint64_t *members, size_t n)
{
    struct redis_views *r = redis_of_inboxes(base);
    struct batch *b = batch_borrow(r);
    enum err e = OK;
    for (size_t from = 0; !e && from < n; from += DROP_A_FLUSH)
        e = drop_some(r, b, members + from, n - from < DROP_A_FLUSH ? n - from : DROP_A_FLUSH);
    batch_return(r, b);
    tally_pour(r);
    return e;
}

/* ---- rebuilding ---- */

static enum err end(struct redis_views *r, struct batch *b, struct rebuild_of of,
                    struct str generation, const struct inbox_entry *entries, size_t n)
{
    struct key keys[3];
    rebuild_keys(keys, of);
    queue_script(r, b, SCRIPT_inbox_end, keys, 3, 2 + 2 * (unsigned)n);
    batch_arg_u64(b, of.viewer);
    batch_arg(b, generation);
    for (size_t i = 0; i < n; i++) {
        batch_arg_u64(b, event_score(entries[i].activity));
        arg_id(b, entries[i].group);
    }
    batch_replicate(b);
    batch_hurry(b);
    enum err e = batch_flush(b);
    if (!e)
        e = rebuild_outcome(b, 0);
    if (!e)
        tally_add(r, TALLY_INBOX_ENTRIES, reply_number(b, 0, 0));
    return e;
}

static enum err rebuild(struct inboxes *base, uint64_t account, enum view_rebuild step,
                        const struct inbox_entry *entries, size_t n)
{
    struct redis_views *r = redis_of_inboxes(base);
    struct batch *b = batch_borrow(r);
    struct rebuild_of of = {account, 'i'};
    char text[ID_DIGITS];
    struct str generation = {text, sizeof text};
    bool spoiled = false;
    enum err e;
    if (step == VIEW_REBUILD_BEGIN || step == VIEW_REBUILD_ANEW) {
        e = rebuild_begin(r, b, of, step == VIEW_REBUILD_ANEW);
    } else if (!rebuild_recall(r, of, text, &spoiled)) {
        e = ERR_CONFLICT;
    } else if (step == VIEW_REBUILD_END && !spoiled && !is_lost(r) && n <= INBOX_MAX) {
        e = end(r, b, of, generation, entries, n);
    } else {
        e = rebuild_give_up(r, b, of, generation);
        if (!e && step == VIEW_REBUILD_END)
            e = ERR_CONFLICT;
    }
    if (!e && step == VIEW_REBUILD_END && is_lost(r)) /* what was begun belonged to another state */
        e = ERR_CONFLICT;
    batch_return(r, b);
    return e;
}

/* ---- reading ---- */

static size_t below_text(uint64_t below, char *out, size_t room)
{
    if (below > INT64_MAX) { /* from the top: ids have 63 bits */
        return (size_t)snprintf(out, room, "+inf");
    }
    bool has_node = below >> ID_COUNTER_BITS & ((1 << ID_NODE_BITS) - 1);
    uint64_t score = has_node ? (id_score(below) + 1) << ID_COUNTER_BITS : event_score(below);
    return (size_t)snprintf(out, room, "(%llu", (unsigned long long)score);
}

/* Answered by [[group, score, …], [head]]: both in one act, or an inbox that is dropped and built
 * again in between would lend its completeness to the old entries. */
static size_t queue_page(struct batch *b, const struct key *inbox, uint64_t below, size_t max)
{
    char text[SCORE_MAX];
    size_t len = below_text(below, text, sizeof text);
    size_t command = batch_transaction(b, inbox->slot);
    batch_also(b, 8);
    batch_arg(b, STR("ZREVRANGEBYSCORE"));
    batch_key(b, inbox);
    batch_arg(b, (struct str){text, len});
    batch_arg(b, STR("(0"));
    batch_arg(b, STR("WITHSCORES"));
    batch_arg(b, STR("LIMIT"));
    batch_arg(b, STR("0"));
    batch_arg_u64(b, max);
    batch_also(b, 4);
    batch_arg(b, STR("ZRANGE"));
    batch_arg(b, key_text(inbox));
    batch_arg(b, STR("0"));
    batch_arg(b, STR("0"));
    batch_commit(b);
    return command;
}

static bool head_is_ready(const redisReply *head)
{
    return head && head->type == REDIS_REPLY_ARRAY && head->elements == 1 &&
           head->element[0]->type == REDIS_REPLY_STRING && head->element[0]->len == 1 + ID_DIGITS &&
           head->element[0]->str[0] == 'r';
}

static bool read_entry(const redisReply *r, size_t i, struct inbox_entry *out)
{
    const redisReply *group = r->element[2 * i], *score = r->element[2 * i + 1];
    uint64_t n;
    if (group->type != REDIS_REPLY_STRING || score->type != REDIS_REPLY_STRING ||
        !id_from_digits((struct str){group->str, group->len}, &out->group) ||
        !str_parse_u64((struct str){score->str, score->len}, &n))
        return false;
    out->activity = n >> ID_COUNTER_BITS << (ID_COUNTER_BITS + ID_NODE_BITS) |
                    (n & ((1 << ID_COUNTER_BITS) - 1));
    return true;
}

static size_t cut(const struct inbox_entry *out, size_t n, uint64_t next, unsigned bits)
{
    while (n > 0 && out[n - 1].activity >> bits == next >> bits)
        n--;
    return n;
}

/* One more than `max` was asked for: it shows where a page may end. */
static bool read_page(const redisReply *r, struct inbox_entry *out, size_t max, size_t *n)
{
    size_t count = r && r->type == REDIS_REPLY_ARRAY ? r->elements / 2 : 0;
    struct inbox_entry next;
    *n = count < max ? count : max;
    for (size_t i = 0; i < *n; i++)
        if (!read_entry(r, i, &out[i]))
            return false;
    if (count <= max)
        return r && r->type == REDIS_REPLY_ARRAY;
    if (!read_entry(r, max, &next))
        return false;
    size_t whole = cut(out, *n, next.activity, ID_COUNTER_BITS + ID_NODE_BITS);
    if (whole == 0)
        whole = cut(out, *n, next.activity, 0);
    if (whole > 0)
        *n = whole;
    return true;
}

/* In a trace, along with the inbox: signal_invalidate() writes this key. */
static void queue_invalidated(struct batch *b, uint64_t account)
{
    struct key k;
    key_of_account(&k, KEY_INVALIDATED, account);
    batch_begin(b, k.slot, 2);
    batch_arg(b, STR("EXISTS"));
    batch_key(b, &k);
}

static enum err read_inbox(struct inboxes *base, uint64_t account, uint64_t below,
                           struct inbox_entry *out, size_t max, size_t *n)
{
    struct redis_views *r = redis_of_inboxes(base);
    struct key people, inbox;
    *n = 0;
    if (is_lost(r)) {
        invalidation_spoil(connections_invalidation(r->connections));
        return ERR_NEEDS_TRUTH;
    }
    struct batch *b = batch_borrow(r);
    batch_invalidation(b);
    key_of_bucket(&people, KEY_PEOPLE, bucket_of(account));
    key_of_account(&inbox, KEY_INBOX, account);
    size_t page = queue_page(b, &inbox, below, max + 1);
    size_t complete = queue_complete(r, b, people.slot);
    size_t known = batch_begin(b, people.slot, 3);
    arg_text(b, "HEXISTS");
    batch_arg(b, key_text(&people));
    batch_arg_u64(b, account);
    if (invalidation_traces(connections_invalidation(r->connections)))
        queue_invalidated(b, account);
    batch_hurry(b);
    enum err e = batch_flush(b);
    if (!e && (is_lost(r) || !reply_is(b, complete, 1)))
        e = ERR_NEEDS_TRUTH;
    if (!e && reply_is(b, known, 0))
        e = ERR_NOT_FOUND;
    if (!e && (!head_is_ready(reply_part(b, page, 1)) ||
               !read_page(reply_part(b, page, 0), out, max, n))) {
        *n = 0;
        e = ERR_NEEDS_TRUTH;
    }
    if (e)
        invalidation_spoil(
            connections_invalidation(r->connections)); /* truth will be asked instead */
    batch_return(r, b);
    return e;
}

const struct inboxes_ops redis_inboxes_ops = {
    .push = push, .drop = drop, .rebuild = rebuild, .read = read_inbox};
