/* Being told of changes.
 *
 * Redis tells whoever has read a key that it was changed (watch.h), so views here tell nobody by
 * themselves: a node reads the inboxes and timelines of the people it listens to in a trace, and
 * looks whether the trace is still the same. That works for changes by any node, and needs no list
 * of who listens where.
 *
 * What is in truth alone, a read mark for one, changes no key. For that each account has a key that
 * is written for the sake of the news and says nothing. It is read along with the inbox, also when
 * it does not exist, and goes by itself after a while, which is one more look in vain.
 *
 * **News** of groups are for whoever listens to any of the members, and nobody knows where that is.
 * A key for each member, or for each group that somebody might care for, would be many; all nodes
 * reading all news are few: one stream, of which each node that has listeners watches one key and
 * reads what was added. It is cut off at its old end. Whoever reads on asks for the last they have
 * read as well: if that is not there any more, others may have gone that they have not read. */
#include <stdio.h>

#include "view/redis/engine.h"
#include "view/redis/slot.h"
#include "view/redis/watch.h"

enum {
    TOUCH_A_FLUSH = 1024,
    TOUCH_KEEP_MS = 30000,
    NEWS_AN_ENTRY = 32,
    NEWS_KEEP_ENTRIES = 4096,
    NEWS_READ_ENTRIES = NEWS_HEARD_MAX / NEWS_AN_ENTRY,
    NEWS_TEXT_MAX = 48
};

enum err redis_listen(struct views *v, uint64_t account, bool on)
{
    (void)v, (void)account, (void)on;
    return ERR_METHOD;
}

void queue_touch_read(struct batch *b, uint64_t account)
{
    struct key k;
    key_of_account(&k, KEY_TOUCH, account);
    batch_begin(b, k.slot, 2);
    batch_arg(b, STR("EXISTS"));
    batch_key(b, &k);
}

static enum err touch_some(struct batch *b, const uint64_t *accounts, size_t n)
{
    batch_reset(b);
    for (size_t i = 0; i < n; i++) {
        struct key k;
        key_of_account(&k, KEY_TOUCH, accounts[i]);
        batch_begin(b, k.slot, 5);
        batch_arg(b, STR("SET"));
        batch_arg(b, key_text(&k));
        batch_arg(b, STR("1"));
        batch_arg(b, STR("PX"));
        batch_arg_u64(b, TOUCH_KEEP_MS);
    }
    enum err e = batch_flush(b);
    return !e && !batch_all_good(b, NULL) ? ERR_UNAVAILABLE : e;
}

enum err redis_touch(struct views *v, const uint64_t *accounts, size_t n)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    enum err e = OK;
    for (size_t from = 0; !e && from < n; from += TOUCH_A_FLUSH)
        e = touch_some(b, accounts + from, n - from < TOUCH_A_FLUSH ? n - from : TOUCH_A_FLUSH);
    batch_return(r, b);
    return e;
}

/* ---- news ---- */

static struct key news_key(void)
{
    struct key k;
    struct str text = NEWS_KEY;
    k.len = (uint8_t)snprintf(k.text, sizeof k.text, "%.*s", (int)text.len, text.ptr);
    k.slot = slot_of(text);
    return k;
}

static void queue_news(struct batch *b, const struct key *k, const struct group_news *news,
                       size_t n)
{
    batch_begin(b, k->slot, 6 + 2 * (unsigned)n);
    batch_arg(b, STR("XADD"));
    batch_arg(b, key_text(k));
    batch_arg(b, STR("MAXLEN"));
    batch_arg(b, STR("~"));
    batch_arg_u64(b, NEWS_KEEP_ENTRIES);
    batch_arg(b, STR("*"));
    for (size_t i = 0; i < n; i++) {
        char text[NEWS_TEXT_MAX];
        int len = snprintf(text, sizeof text, "%lld-%lld", (long long)news[i].first,
                           (long long)news[i].last);
        batch_arg_u64(b, news[i].group);
        batch_arg(b, (struct str){text, (size_t)len});
    }
}

enum err redis_tell(struct views *v, const struct group_news *news, size_t n)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    struct key k = news_key();
    for (size_t from = 0; from < n; from += NEWS_AN_ENTRY)
        queue_news(b, &k, news + from, n - from < NEWS_AN_ENTRY ? n - from : NEWS_AN_ENTRY);
    batch_hurry(b); /* whoever tells has other things to do, and tries again */
    enum err e = n > 0 ? batch_flush(b) : OK;
    if (!e && n > 0 && !batch_all_good(b, NULL))
        e = ERR_UNAVAILABLE;
    batch_return(r, b);
    return e;
}

/* "1700000000000-3", "4-7": two numbers. */
static bool read_pair(const redisReply *r, uint64_t *first, uint64_t *last)
{
    if (r->type != REDIS_REPLY_STRING)
        return false;
    size_t at = 0;
    while (at < r->len && r->str[at] != '-')
        at++;
    return at < r->len && str_parse_u64((struct str){r->str, at}, first) &&
           str_parse_u64((struct str){r->str + at + 1, r->len - at - 1}, last);
}

static bool read_news(const redisReply *fields, struct news_heard *out)
{
    if (fields->type != REDIS_REPLY_ARRAY || fields->elements > 2 * NEWS_AN_ENTRY)
        return false;
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        const redisReply *group = fields->element[i];
        uint64_t first, last;
        struct group_news *one = &out->news[out->n];
        if (group->type != REDIS_REPLY_STRING ||
            !str_parse_u64((struct str){group->str, group->len}, &one->group) ||
            !read_pair(fields->element[i + 1], &first, &last) || last > INT64_MAX || first > last)
            return false;
        one->first = (int64_t)first;
        one->last = (int64_t)last;
        out->n++;
    }
    return true;
}

/* The first entry is the last that was read before, or else something is missing. False: this is
 * not what we write. */
static bool read_entries(const redisReply *r, struct news_cursor *cursor, struct news_heard *out)
{
    struct news_cursor at = {{0}};
    if (!r || r->type != REDIS_REPLY_ARRAY || r->elements > NEWS_READ_ENTRIES + 1)
        return false;
    out->n = 0;
    out->missed = true;
    for (size_t i = 0; i < r->elements; i++) {
        const redisReply *entry = r->element[i];
        if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2 ||
            !read_pair(entry->element[0], &at.part[0], &at.part[1]))
            return false;
        if (i == 0 && at.part[0] == cursor->part[0] && at.part[1] == cursor->part[1])
            out->missed = false;
        else if (!out->missed && !read_news(entry->element[1], out))
            return false;
    }
    out->more = r->elements == NEWS_READ_ENTRIES + 1;
    *cursor = at;
    return true;
}

static void queue_read(struct batch *b, const struct key *k, const struct news_cursor *cursor)
{
    bool known = cursor->part[0] > 0;
    char from[NEWS_TEXT_MAX];
    int len = snprintf(from, sizeof from, "%llu-%llu", (unsigned long long)cursor->part[0],
                       (unsigned long long)cursor->part[1]);
    batch_begin(b, k->slot, 6);
    batch_arg(b, known ? STR("XRANGE") : STR("XREVRANGE"));
    batch_key(b, k);
    batch_arg(b, known ? (struct str){from, (size_t)len} : STR("+"));
    batch_arg(b, known ? STR("+") : STR("-"));
    batch_arg(b, STR("COUNT"));
    batch_arg_u64(b, known ? NEWS_READ_ENTRIES + 1 : 1);
}

static enum err hear(struct redis_views *r, struct news_cursor *cursor, struct news_heard *out)
{
    struct batch *b = batch_borrow(r);
    struct key k = news_key();
    batch_watch(b);
    queue_read(b, &k, cursor);
    batch_hurry(b);
    enum err e = batch_flush(b);
    if (!e && !read_entries(batch_reply(b, 0), cursor, out))
        e = ERR_UNAVAILABLE;
    batch_return(r, b);
    return e;
}

enum err redis_hear(struct views *v, struct news_cursor *cursor, struct news_heard *out)
{
    struct news_cursor at = *cursor;
    bool began = at.part[0] > 0;
    enum err e = hear(redis_of(v), &at, out);
    if (!e && out->missed && began) { /* on from the latest: what lies before it is missed, too */
        at = (struct news_cursor){{0}};
        e = hear(redis_of(v), &at, out);
    }
    if (!e)
        *cursor = at;
    return e;
}
