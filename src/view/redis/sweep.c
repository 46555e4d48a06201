/* Sweeping: a walk over all accounts that drops the timelines and inboxes of those not seen since.
 * It goes by buckets, each read by its own cursor: several at a time while they are small, a large
 * one by itself. */
#include <string.h>

#include "view/redis/driver.h"

enum { BUCKETS_AT_ONCE = 64 };

struct sweep {
    struct redis_views *r;
    uint32_t before;
    size_t dropped, looked_at, max;
    unsigned bucket, at_once; /* the next one, and how many are likely to fit */
    char cursor[24];          /* in the bucket; "0": its beginning */
};

/* The accounts of one reply to HSCAN: id, person, id, person, … */
static enum err drop_unseen(struct sweep *s, const redisReply *people)
{
    BORROWED struct batch *b = batch_borrow(&s->r->client);
    for (size_t i = 0; i + 1 < reply_count(people); i += 2) {
        uint64_t account, seen;
        char state;
        s->looked_at++;
        if (!str_parse_u64(reply_text(people->element[i]), &account) ||
            !read_person(reply_text(people->element[i + 1]), &state, &seen) || state == 'd' ||
            seen >= s->before || batch_count(b) == BATCH_COMMANDS_MAX)
            continue;
        batch_script(b, SCRIPT_drop, arg_people(account), arg_account(KEY_TIMELINE, account),
                     arg_account(KEY_BUILDERS, account), arg_account(KEY_INBOX, account),
                     arg_account(KEY_INBOX_BUILDERS, account), arg_number(account),
                     arg_number(s->before));
    }
    enum err e = batch_flush(b, FLUSH_WAIT);
    for (size_t i = 0; !e && i < batch_count(b); i++) {
        s->dropped += reply_number(b, i, 0) == 1;
        tally_add(s->r, TALLY_DROPPED, reply_number(b, i, 0));
        tally_add(s->r, TALLY_ENTRIES, reply_number(b, i, 1));
        tally_add(s->r, TALLY_INBOXES, -reply_number(b, i, 2));
        tally_add(s->r, TALLY_INBOX_ENTRIES, reply_number(b, i, 3));
    }
    return e;
}

/* Takes up one bucket's reply, {cursor, people}. */
static enum err sweep_bucket(struct sweep *s, const struct batch *b, size_t command)
{
    struct str next = reply_text(reply_part(b, command, 0));
    if (next.len == 0 || next.len >= sizeof s->cursor)
        return ERR_UNAVAILABLE;
    TRY(drop_unseen(s, reply_part(b, command, 1)));
    memcpy(s->cursor, next.ptr, next.len);
    s->cursor[next.len] = 0;
    s->bucket += str_eq(next, STR("0"));
    return OK;
}

/* Reads some buckets in one go, the first from the cursor on. What does not fit into the slice any
 * more, or lies behind a bucket that is not done yet, is read again in the next go. */
static enum err sweep_some(struct sweep *s)
{
    BORROWED struct batch *b = batch_borrow(&s->r->client);
    size_t from = s->looked_at, left = s->max - from;
    unsigned first = s->bucket, count = BUCKETS - first < s->at_once ? BUCKETS - first : s->at_once;
    for (unsigned i = 0; i < count; i++)
        batch_command(b, "HSCAN", arg_key(key_of_bucket(KEY_PEOPLE, first + i)),
                      arg_text(i == 0 ? s->cursor : "0"), arg_text("COUNT"), arg_number(left));
    enum err e = batch_flush(b, FLUSH_WAIT);
    for (unsigned i = 0; !e && i < count && s->bucket == first + i && s->looked_at < s->max; i++)
        e = sweep_bucket(s, b, i);
    /* Accounts are spread evenly: the next buckets are about as large as these. */
    unsigned done = s->bucket - first;
    size_t average = (s->looked_at - from) / (done > 0 ? done : 1), fit = left / (average + 1);
    s->at_once = fit < 1 ? 1 : fit < BUCKETS_AT_ONCE ? (unsigned)fit : BUCKETS_AT_ONCE;
    return e;
}

/* Each process walks on its own; dropping what another has dropped changes nothing. */
enum err redis_sweep(struct timelines *base, int64_t seen_before_ms, size_t max_accounts,
                     size_t *dropped, bool *wrapped)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, timelines);
    struct sweep s = {
        .r = r, .before = seen_seconds(seen_before_ms), .max = max_accounts, .at_once = 1};
    pthread_mutex_lock(&r->lock);
    s.bucket = r->sweep_bucket;
    memcpy(s.cursor, r->sweep_cursor, sizeof s.cursor);
    pthread_mutex_unlock(&r->lock);
    enum err e = OK;
    while (!e && s.bucket < BUCKETS && s.looked_at < s.max)
        e = sweep_some(&s);
    *dropped = s.dropped;
    *wrapped = !e && s.bucket >= BUCKETS;
    pthread_mutex_lock(&r->lock);
    r->sweep_bucket = *wrapped ? 0 : s.bucket;
    memcpy(r->sweep_cursor, s.cursor, sizeof s.cursor);
    pthread_mutex_unlock(&r->lock);
    tally_pour(r);
    return e;
}
