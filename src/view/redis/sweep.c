/* Sweeping: a walk over all accounts that drops the timelines and inboxes of those not seen since.
 * It goes by buckets; small ones are read whole, several at a time, a large one by its own
 * cursor. */
#include <string.h>

#include "view/redis/driver.h"

enum { SWEEP_LOOK = 64 /* buckets looked at in one go */ };

struct sweep {
    struct redis_views *r;
    uint32_t before;
    size_t dropped, looked_at, max;
};

/* The accounts of one reply to HSCAN or HGETALL: id, person, id, person, … */
static enum err drop_unseen(struct sweep *s, const redisReply *people)
{
    struct batch *b = batch_borrow(s->r);
    for (size_t i = 0; people && people->type == REDIS_REPLY_ARRAY && i + 1 < people->elements;
         i += 2) {
        const redisReply *id = people->element[i], *person = people->element[i + 1];
        uint64_t account, seen;
        s->looked_at++;
        if (id->type != REDIS_REPLY_STRING || person->type != REDIS_REPLY_STRING ||
            !str_parse_u64((struct str){id->str, id->len}, &account) || person->len < 2 ||
            person->str[0] == 'd' ||
            !str_parse_u64((struct str){person->str + 1, person->len - 1}, &seen) ||
            seen >= s->before || batch_count(b) == BATCH_COMMANDS_MAX)
            continue;
        struct key keys[5];
        timeline_keys(keys, account, KEY_BUILDERS);
        key_of_account(&keys[3], KEY_INBOX, account);
        key_of_account(&keys[4], KEY_INBOX_BUILDERS, account);
        queue_script(s->r, b, SCRIPT_drop, keys, 5, 2);
        batch_arg_u64(b, account);
        batch_arg_u64(b, s->before);
    }
    enum err e = batch_flush(b);
    for (size_t i = 0; !e && i < batch_count(b); i++) {
        s->dropped += reply_number(b, i, 0) == 1;
        tally_add(s->r, TALLY_DROPPED, reply_number(b, i, 0));
        tally_add(s->r, TALLY_ENTRIES, reply_number(b, i, 1));
        tally_add(s->r, TALLY_INBOXES, -reply_number(b, i, 2));
        tally_add(s->r, TALLY_INBOX_ENTRIES, reply_number(b, i, 3));
    }
    batch_return(s->r, b);
    return e;
}

/* A bucket that is larger than the slice: by its own cursor. */
static enum err sweep_large(struct sweep *s, unsigned bucket, char cursor[24])
{
    struct batch *b = batch_borrow(s->r);
    struct key k;
    key_of_bucket(&k, KEY_PEOPLE, bucket);
    batch_begin(b, k.slot, 5);
    arg_text(b, "HSCAN");
    batch_arg(b, key_text(&k));
    arg_text(b, cursor);
    arg_text(b, "COUNT");
    batch_arg_u64(b, s->max - s->looked_at > 0 ? s->max - s->looked_at : 1);
    enum err e = batch_flush(b);
    const redisReply *next = e ? NULL : reply_part(b, 0, 0);
    if (!e && (!next || next->type != REDIS_REPLY_STRING || next->len >= 24))
        e = ERR_UNAVAILABLE;
    if (!e) {
        memcpy(cursor, next->str, next->len);
        cursor[next->len] = 0;
        e = drop_unseen(s, reply_part(b, 0, 1));
    }
    batch_return(s->r, b);
    return e;
}

/* How many accounts the next buckets have. */
static enum err look_ahead(struct sweep *s, unsigned bucket, unsigned count, int64_t *sizes)
{
    struct batch *b = batch_borrow(s->r);
    for (unsigned i = 0; i < count; i++) {
        struct key k;
        key_of_bucket(&k, KEY_PEOPLE, bucket + i);
        batch_begin(b, k.slot, 2);
        arg_text(b, "HLEN");
        batch_arg(b, key_text(&k));
    }
    enum err e = batch_flush(b);
    for (unsigned i = 0; !e && i < count; i++)
        sizes[i] = batch_integer(b, i, 0);
    batch_return(s->r, b);
    return e;
}

/* Buckets that fit into the slice as a whole, in one go. */
static enum err sweep_small(struct sweep *s, unsigned bucket, unsigned count, const int64_t *sizes)
{
    struct batch *b = batch_borrow(s->r);
    for (unsigned i = 0; i < count; i++) {
        struct key k;
        if (sizes[i] == 0)
            continue;
        key_of_bucket(&k, KEY_PEOPLE, bucket + i);
        batch_begin(b, k.slot, 2);
        arg_text(b, "HGETALL");
        batch_arg(b, key_text(&k));
    }
    enum err e = batch_flush(b);
    for (size_t i = 0; !e && i < batch_count(b); i++)
        e = drop_unseen(s, batch_reply(b, i));
    batch_return(s->r, b);
    return e;
}

static enum err sweep_next(struct sweep *s, unsigned *bucket, char cursor[24])
{
    int64_t sizes[SWEEP_LOOK];
    unsigned count = BUCKETS - *bucket < SWEEP_LOOK ? BUCKETS - *bucket : SWEEP_LOOK, fit = 0;
    enum err e = OK;
    if (strcmp(cursor, "0") == 0) {
        e = look_ahead(s, *bucket, count, sizes);
        int64_t left = (int64_t)(s->max - s->looked_at);
        while (!e && fit < count && sizes[fit] <= left)
            left -= sizes[fit++];
        if (!e && fit > 0) {
            e = sweep_small(s, *bucket, fit, sizes);
            *bucket += e ? 0 : fit;
            return e;
        }
        if (!e && s->looked_at > 0) { /* does not fit any more: the next slice's */
            s->looked_at = s->max;
            return OK;
        }
    }
    if (!e)
        e = sweep_large(s, *bucket, cursor);
    if (!e && strcmp(cursor, "0") == 0)
        (*bucket)++;
    return e;
}

/* Each process walks on its own; dropping what another has dropped changes nothing. */
enum err redis_sweep(struct timelines *base, int64_t seen_before_ms, size_t max_accounts,
                     size_t *dropped, bool *wrapped)
{
    struct redis_views *r = redis_of_timelines(base);
    struct sweep s = {.r = r, .before = seen_seconds(seen_before_ms), .max = max_accounts};
    char cursor[24];
    pthread_mutex_lock(&r->lock);
    unsigned bucket = r->sweep_bucket;
    memcpy(cursor, r->sweep_cursor, sizeof cursor);
    pthread_mutex_unlock(&r->lock);
    enum err e = OK;
    while (!e && bucket < BUCKETS && s.looked_at < s.max)
        e = sweep_next(&s, &bucket, cursor);
    *dropped = s.dropped;
    *wrapped = !e && bucket >= BUCKETS;
    pthread_mutex_lock(&r->lock);
    r->sweep_bucket = *wrapped ? 0 : bucket;
    memcpy(r->sweep_cursor, cursor, sizeof cursor);
    pthread_mutex_unlock(&r->lock);
    tally_pour(r);
    return e;
}
