/* Inboxes: delivery, rebuilding, reading.
 *
 * A push costs Redis one ZADD for each member: GT makes it a maximum, so nothing has to be read.
 * The score holds 53 bits of an activity, milliseconds and counter, without the node. Two groups
 * that spoke in the same millisecond on different nodes may therefore come in another order than
 * truth has them in, and a page must not end between them: a reader that continues from truth would
 * miss one. So a page ends between two milliseconds if it can. */
#include "base/id.h"
#include "view/redis/driver.h"

enum { PUSH_A_FLUSH = 2048, DROP_A_FLUSH = 1024, SCORE_MAX = 24 };

/* ---- delivery ---- */

/* Members of as many messages as fit go in one round trip. */
static enum err push(struct inboxes *base, struct inbox_push *pushes, size_t n)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, inboxes);
    BORROWED struct batch *b = batch_borrow(&r->client);
    for (size_t i = 0; i < n; i++) {
        if (pushes[i].group == 0 || pushes[i].activity == 0)
            return ERR_BAD_INPUT;
        pushes[i].changed = 0;
    }
    for (size_t at = 0, from = 0; at < n;) {
        struct inbox_push *of[PUSH_A_FLUSH]; /* whose member each command is about */
        size_t count = 0;
        batch_reset(b);
        while (at < n && count < PUSH_A_FLUSH) {
            struct inbox_push *p = &pushes[at];
            if (from == p->n) {
                at++, from = 0;
                continue;
            }
            of[count++] = p;
            batch_command(b, "ZADD", arg_account(KEY_INBOX, p->members[from++]), arg_text("GT"),
                          arg_text("CH"), arg_number(event_score(p->activity)), arg_id(p->group));
        }
        enum err e = flush_pushes(r, b);
        if (e)
            return e;
        for (size_t i = 0; i < count; i++)
            of[i]->changed += batch_integer(b, i, 0) == 1;
    }
    return OK;
}

static enum err drop(struct inboxes *base, const uint64_t *members, size_t n)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, inboxes);
    BORROWED struct batch *b = batch_borrow(&r->client);
    enum err e = OK;
    for (size_t from = 0, some; !e && from < n; from += some) {
        some = n - from < DROP_A_FLUSH ? n - from : DROP_A_FLUSH;
        batch_reset(b);
        for (size_t i = from; i < from + some; i++)
            batch_script(b, SCRIPT_inbox_drop, arg_people(members[i]),
                         arg_account(KEY_INBOX, members[i]), arg_number(members[i]));
        e = batch_flush(b, FLUSH_REPLICATE | FLUSH_GOOD);
        for (size_t i = 0; !e && i < some; i++) {
            tally_add(r, TALLY_INBOXES, -reply_number(b, i, 0));
            tally_add(r, TALLY_INBOX_ENTRIES, reply_number(b, i, 1));
        }
    }
    tally_pour(r);
    return e;
}

/* ---- rebuilding ---- */

static enum err rebuild(struct inboxes *base, uint64_t account, enum view_rebuild step,
                        const struct inbox_entry *entries, size_t n)
{
    struct arg args[REBUILD_IDS] = {arg_entries(entries, n)};
    return rebuild_step(CONTAINER_OF(base, struct redis_views, inboxes), account, 'i', step,
                        n <= INBOX_MAX ? args : NULL);
}

/* ---- reading ---- */

static void below_text(uint64_t below, char out[SCORE_MAX])
{
    bool has_node = below >> ID_COUNTER_BITS & ((1 << ID_NODE_BITS) - 1);
    uint64_t score = has_node ? (id_score(below) + 1) << ID_COUNTER_BITS : event_score(below);
    if (below > INT64_MAX) /* from the top: ids have 63 bits */
        snprintf(out, SCORE_MAX, "+inf");
    else
        snprintf(out, SCORE_MAX, "(%llu", (unsigned long long)score);
}

/* Answered by [[group, score, …], [head]]: both in one act, or an inbox that is dropped and built
 * again in between would lend its completeness to the old entries. */
static size_t queue_page(struct batch *b, uint64_t account, uint64_t below, size_t max)
{
    struct key inbox = key_of_account(KEY_INBOX, account);
    char text[SCORE_MAX];
    below_text(below, text);
    size_t command = batch_transaction(b, inbox.slot);
    batch_also(b, "ZREVRANGEBYSCORE", arg_key(inbox), arg_text(text), arg_text("(0"),
               arg_text("WITHSCORES"), arg_text("LIMIT"), arg_text("0"), arg_number(max));
    batch_also(b, "ZRANGE", arg_key(inbox), arg_text("0"), arg_text("0"));
    batch_commit(b);
    return command;
}

static bool read_entry(const redisReply *r, size_t i, struct inbox_entry *out)
{
    uint64_t n;
    if (!reply_id(reply_element(r, 2 * i), &out->group) ||
        !str_parse_u64(reply_text(reply_element(r, 2 * i + 1)), &n))
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
    size_t count = reply_count(r) / 2;
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

static enum err read_inbox(struct inboxes *base, uint64_t account, uint64_t below,
                           struct inbox_entry *out, size_t max, size_t *n)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, inboxes);
    uint64_t floor;
    *n = 0;
    if (is_lost(r)) {
        client_spoil(&r->client);
        return ERR_NEEDS_TRUTH;
    }
    BORROWED struct batch *b = batch_borrow(&r->client);
    batch_invalidation(b);
    size_t page = queue_page(b, account, below, max + 1);
    size_t complete = queue_complete(r, b, account);
    size_t known = queue_known(b, account);
    enum err e = batch_flush(b, FLUSH_HURRY);
    if (!e && (is_lost(r) || !reply_is(b, complete, 1)))
        e = ERR_NEEDS_TRUTH;
    if (!e && reply_is(b, known, 0))
        e = ERR_NOT_FOUND;
    if (!e && (!reply_ready(reply_part(b, page, 1), &floor) ||
               !read_page(reply_part(b, page, 0), out, max, n))) {
        *n = 0;
        e = ERR_NEEDS_TRUTH;
    }
    if (e)
        client_spoil(&r->client); /* truth will be asked instead */
    return e;
}

const struct inboxes_ops redis_inboxes_ops = {
    .push = push, .drop = drop, .rebuild = rebuild, .read = read_inbox};
