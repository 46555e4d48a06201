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

#include "base/check.h"
#include "view/redis/client.h"

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
    struct client client;
};

static struct client *client_of(struct signal *base)
{
    return &CONTAINER_OF(base, struct redis_signal, signal)->client;
}

static enum err invalidate(struct signal *base, const uint64_t *accounts, size_t n)
{
    BORROWED struct batch *b = batch_borrow(client_of(base));
    enum err e = OK;
    for (size_t from = 0, some; !e && from < n; from += some) {
        some = n - from < INVALIDATE_A_FLUSH ? n - from : INVALIDATE_A_FLUSH;
        batch_reset(b);
        for (size_t i = from; i < from + some; i++)
            batch_command(b, "SET", arg_account(KEY_INVALIDATED, accounts[i]), arg_text("1"),
                          arg_text("PX"), arg_number(INVALIDATED_KEEP_MS));
        e = batch_flush(b, FLUSH_GOOD);
    }
    return e;
}

/* ---- ranges ---- */

static void queue_entry(struct batch *b, const struct signal_range *ranges, size_t n)
{
    enum { FIRST = 5 };
    char texts[RANGES_AN_ENTRY][TEXT_MAX];
    struct arg args[FIRST + 2 * RANGES_AN_ENTRY] = {arg_key(SIGNAL_KEY), arg_text("MAXLEN"),
                                                    arg_text("~"), arg_number(KEEP_ENTRIES),
                                                    arg_text("*")};
    for (size_t i = 0; i < n; i++) {
        snprintf(texts[i], TEXT_MAX, "%lld-%lld", (long long)ranges[i].first,
                 (long long)ranges[i].last);
        args[FIRST + 2 * i] = arg_number(ranges[i].group);
        args[FIRST + 2 * i + 1] = arg_text(texts[i]);
    }
    batch_queue(b, "XADD", args, FIRST + 2 * n);
}

static enum err publish(struct signal *base, const struct signal_range *ranges, size_t n)
{
    BORROWED struct batch *b = batch_borrow(client_of(base));
    for (size_t from = 0; from < n; from += RANGES_AN_ENTRY)
        queue_entry(b, ranges + from, n - from < RANGES_AN_ENTRY ? n - from : RANGES_AN_ENTRY);
    /* the publisher has other things to do, and tries again */
    return n > 0 ? batch_flush(b, FLUSH_HURRY | FLUSH_GOOD) : OK;
}

/* "1700000000000-3", "4-7": two numbers. */
static bool read_pair(const redisReply *r, uint64_t *first, uint64_t *last)
{
    struct str rest = reply_text(r), number;
    return str_split(&rest, '-', &number) && str_parse_u64(number, first) &&
           str_parse_u64(rest, last);
}

static bool read_ranges(const redisReply *fields, struct signal_batch *out)
{
    if (fields->type != REDIS_REPLY_ARRAY || fields->elements > 2 * RANGES_AN_ENTRY)
        return false;
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        uint64_t first, last;
        struct signal_range *one = &out->ranges[out->n];
        if (!str_parse_u64(reply_text(fields->element[i]), &one->group) ||
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
        if (reply_count(entry) != 2 || !read_pair(entry->element[0], &at.part[0], &at.part[1]))
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

static void queue_read(struct batch *b, const struct signal_cursor *cursor)
{
    char from[TEXT_MAX];
    snprintf(from, sizeof from, "%llu-%llu", (unsigned long long)cursor->part[0],
             (unsigned long long)cursor->part[1]);
    if (cursor->part[0] > 0)
        batch_command(b, "XRANGE", arg_key(SIGNAL_KEY), arg_text(from), arg_text("+"),
                      arg_text("COUNT"), arg_number(READ_ENTRIES + 1));
    else
        batch_command(b, "XREVRANGE", arg_key(SIGNAL_KEY), arg_text("+"), arg_text("-"),
                      arg_text("COUNT"), arg_number(1));
}

static enum err read_on(struct signal *base, struct signal_cursor *cursor, struct signal_batch *out)
{
    BORROWED struct batch *b = batch_borrow(client_of(base));
    batch_invalidation(b);
    queue_read(b, cursor);
    enum err e = batch_flush(b, FLUSH_HURRY);
    if (!e && !read_entries(batch_reply(b, 0), cursor, out))
        e = ERR_UNAVAILABLE;
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
    client_close(&s->client);
    free(s);
}

static const struct signal_ops redis_ops = {
    .publish = publish, .consume = consume, .invalidate = invalidate, .free = redis_free};

enum err signal_redis_open(const struct redis_config *config, struct signal **out)
{
    struct redis_signal *s = calloc(1, sizeof *s);
    CHECK(s);
    enum err e = client_open(&s->client, config);
    if (e) {
        free(s);
        return e;
    }
    s->signal.ops = &redis_ops;
    s->signal.remote = true;
    *out = &s->signal;
    return OK;
}
