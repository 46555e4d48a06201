/* The signal between nodes, over Redis.
 *
 * Redis tells whoever has read a key that it was changed (view/redis/invalidation.h). What is in
 * truth alone, a read mark for one, changes no key. For that each account has a key that
 * invalidate() writes and that says nothing. The views read it along with the inbox, also when it
 * does not exist, and it goes by itself after a while, which is one more look in vain.
 *
 * Ranges of groups concern any node where a member listens, and no node knows where that is. A key
 * for each member, or for each group, would be many; all nodes reading all ranges are few: one
 * stream, of which each node that has listeners tracks one key and reads what was added. It is cut
 * off at its old end. A consumer asks for the last entry it has read as well: if that is not there
 * any more, others may have gone that it has not read. */
#include "signal/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "view/redis/batch.h"
#include "view/redis/slot.h"

enum {
    INVALIDATE_A_FLUSH = 1024,
    INVALIDATED_KEEP_MS = 30000,
    RANGES_AN_ENTRY = 32,
    KEEP_ENTRIES = 4096,
    READ_ENTRIES = SIGNAL_BATCH_MAX / RANGES_AN_ENTRY,
    TEXT_MAX = 48
};

struct redis_signal {
    struct signal signal;
    struct connections *connections;
};

static struct batch *new_batch(struct signal *base)
{
    return batch_new(CONTAINER_OF(base, struct redis_signal, signal)->connections);
}

static enum err invalidate_some(struct batch *b, const uint64_t *accounts, size_t n)
{
    batch_reset(b);
    for (size_t i = 0; i < n; i++) {
        struct key k;
        key_of_account(&k, KEY_INVALIDATED, accounts[i]);
        batch_begin(b, k.slot, 5);
        batch_arg(b, STR("SET"));
        batch_arg(b, key_text(&k));
        batch_arg(b, STR("1"));
        batch_arg(b, STR("PX"));
        batch_arg_u64(b, INVALIDATED_KEEP_MS);
    }
    return batch_flush_good(b, NULL);
}

static enum err invalidate(struct signal *base, const uint64_t *accounts, size_t n)
{
    struct batch *b = new_batch(base);
    enum err e = OK;
    for (size_t from = 0; !e && from < n; from += INVALIDATE_A_FLUSH)
        e = invalidate_some(b, accounts + from,
                            n - from < INVALIDATE_A_FLUSH ? n - from : INVALIDATE_A_FLUSH);
    batch_free(b);
    return e;
}

/* ---- ranges ---- */

static struct key stream_key(void)
{
    struct key k;
    struct str text = SIGNAL_KEY;
    k.len = (uint8_t)snprintf(k.text, sizeof k.text, "%.*s", (int)text.len, text.ptr);
    k.slot = slot_of(text);
    return k;
}

static void queue_entry(struct batch *b, const struct key *k, const struct signal_range *ranges,
                        size_t n)
{
    batch_begin(b, k->slot, 6 + 2 * (unsigned)n);
    batch_arg(b, STR("XADD"));
    batch_arg(b, key_text(k));
    batch_arg(b, STR("MAXLEN"));
    batch_arg(b, STR("~"));
    batch_arg_u64(b, KEEP_ENTRIES);
    batch_arg(b, STR("*"));
    for (size_t i = 0; i < n; i++) {
        char text[TEXT_MAX];
        int len = snprintf(text, sizeof text, "%lld-%lld", (long long)ranges[i].first,
                           (long long)ranges[i].last);
        batch_arg_u64(b, ranges[i].group);
        batch_arg(b, (struct str){text, (size_t)len});
    }
}

static enum err publish(struct signal *base, const struct signal_range *ranges, size_t n)
{
    struct batch *b = new_batch(base);
    struct key k = stream_key();
    for (size_t from = 0; from < n; from += RANGES_AN_ENTRY)
        queue_entry(b, &k, ranges + from, n - from < RANGES_AN_ENTRY ? n - from : RANGES_AN_ENTRY);
    batch_hurry(b); /* the publisher has other things to do, and tries again */
    enum err e = n > 0 ? batch_flush_good(b, NULL) : OK;
    batch_free(b);
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

static bool read_ranges(const redisReply *fields, struct signal_batch *out)
{
    if (fields->type != REDIS_REPLY_ARRAY || fields->elements > 2 * RANGES_AN_ENTRY)
        return false;
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        const redisReply *group = fields->element[i];
        uint64_t first, last;
        struct signal_range *one = &out->ranges[out->n];
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
static bool read_entries(const redisReply *r, struct signal_cursor *cursor,
                         struct signal_batch *out)
{
    struct signal_cursor at = {{0}};
    if (!r || r->type != REDIS_REPLY_ARRAY || r->elements > READ_ENTRIES + 1)
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
        else if (!out->missed && !read_ranges(entry->element[1], out))
            return false;
    }
    out->more = r->elements == READ_ENTRIES + 1;
    *cursor = at;
    return true;
}

static void queue_read(struct batch *b, const struct key *k, const struct signal_cursor *cursor)
{
    bool known = cursor->part[0] > 0;
    char from[TEXT_MAX];
    int len = snprintf(from, sizeof from, "%llu-%llu", (unsigned long long)cursor->part[0],
                       (unsigned long long)cursor->part[1]);
    batch_begin(b, k->slot, 6);
    batch_arg(b, known ? STR("XRANGE") : STR("XREVRANGE"));
    batch_key(b, k);
    batch_arg(b, known ? (struct str){from, (size_t)len} : STR("+"));
    batch_arg(b, known ? STR("+") : STR("-"));
    batch_arg(b, STR("COUNT"));
    batch_arg_u64(b, known ? READ_ENTRIES + 1 : 1);
}

static enum err read_on(struct signal *base, struct signal_cursor *cursor, struct signal_batch *out)
{
    struct batch *b = new_batch(base);
    struct key k = stream_key();
    batch_invalidation(b);
    queue_read(b, &k, cursor);
    batch_hurry(b);
    enum err e = batch_flush(b);
    if (!e && !read_entries(batch_reply(b, 0), cursor, out))
        e = ERR_UNAVAILABLE;
    batch_free(b);
    return e;
}

static enum err consume(struct signal *base, struct signal_cursor *cursor, struct signal_batch *out)
{
    struct signal_cursor at = *cursor;
    bool began = at.part[0] > 0;
    enum err e = read_on(base, &at, out);
    if (!e && out->missed && began) { /* on from the latest: what lies before it is missed, too */
        at = (struct signal_cursor){{0}};
        e = read_on(base, &at, out);
    }
    if (!e)
        *cursor = at;
    return e;
}

/* ---- life ---- */

static void redis_free(struct signal *base)
{
    struct redis_signal *s = CONTAINER_OF(base, struct redis_signal, signal);
    connections_free(s->connections);
    free(s);
}

static const struct signal_ops redis_ops = {
    .publish = publish, .consume = consume, .invalidate = invalidate, .free = redis_free};

enum err signal_redis_open(const struct redis_config *config, struct signal **out)
{
    struct redis_url url;
    const char *why;
    enum err e = redis_url_parse(str_of(config->url), &url, &why);
    if (e) {
        log_error("the URL of Redis cannot be used", LOG_CSTR("why", why));
        return e;
    }
    struct redis_signal *s = calloc(1, sizeof *s);
    CHECK(s);
    s->signal.ops = &redis_ops;
    s->signal.remote = true;
    s->connections = connections_new(&url, config->failover_wait_ms);
    connections_set_invalidation(s->connections, config->invalidation);
    explicit_bzero(&url, sizeof url);
    *out = &s->signal;
    return OK;
}
