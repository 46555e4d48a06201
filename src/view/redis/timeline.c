/* One person's timeline: rebuilding, backfilling, forgetting, dropping. (Inboxes are rebuilt and
 * swept here, too; the rest of them is in inbox.c.) Each is one script in the viewer's slot, which
 * looks at the graph and at the timeline in the same act.
 *
 * Rebuilds. The first to begin makes a new **generation**; who begins while it lasts joins it, and
 * everything pushed since its beginning is collected. The generation lasts as long as one of its
 * builders does, at most REBUILD_KEEP_MS after the last one came: a process that died in the middle
 * holds nobody up. At the end the generation is handed in again, so that whoever comes too late,
 * after the timeline was dropped and perhaps begun by others, installs nothing. The port hands out
 * no ticket for that; so this process remembers what it has begun. All of it is done by readers,
 * who do not wait for a server that is away. */
#include <string.h>

#include "view/redis/engine.h"

enum { SWEEP_LOOK = 64 /* buckets looked at in one go */ };

static void timeline_keys(struct key *keys, uint64_t viewer, enum key_kind third)
{
    key_of_bucket(&keys[0], KEY_PEOPLE, bucket_of(viewer));
    key_of_account(&keys[1], KEY_TIMELINE, viewer);
    key_of_account(&keys[2], third, viewer);
}

void rebuild_keys(struct key keys[3], struct rebuild_of of)
{
    bool inbox = of.part == 'i';
    key_of_bucket(&keys[0], KEY_PEOPLE, bucket_of(of.viewer));
    key_of_account(&keys[1], inbox ? KEY_INBOX : KEY_TIMELINE, of.viewer);
    key_of_account(&keys[2], inbox ? KEY_INBOX_BUILDERS : KEY_BUILDERS, of.viewer);
}

/* ---- what this process has begun ---- */

static bool is_of(const struct rebuild *b, struct rebuild_of of, int64_t now_ms)
{
    return b->viewer == of.viewer && b->part == of.part && b->until_ms >= now_ms;
}

/* Two of ours under way, of two generations: what the first has read is older than the second, and
 * which one will end first is not known. None of them has a result then, nor has who joins them. */
static bool spoil_others(struct redis_views *r, struct rebuild_of of, struct str generation,
                         int64_t now_ms)
{
    bool differs = false;
    for (size_t i = 0; i < r->rebuild_count; i++)
        if (is_of(&r->rebuilds[i], of, now_ms))
            differs |= r->rebuilds[i].spoiled ||
                       memcmp(r->rebuilds[i].generation, generation.ptr, ID_DIGITS) != 0;
    for (size_t i = 0; differs && i < r->rebuild_count; i++)
        if (is_of(&r->rebuilds[i], of, now_ms))
            r->rebuilds[i].spoiled = true;
    return differs;
}

static bool remember(struct redis_views *r, struct rebuild_of of, struct str generation)
{
    int64_t now_ms = clock_mono_ms(clock_system());
    struct rebuild *place = NULL;
    if (generation.len != ID_DIGITS)
        return false;
    pthread_mutex_lock(&r->lock);
    bool spoiled = spoil_others(r, of, generation, now_ms);
    for (size_t i = 0; i < r->rebuild_count && !place; i++)
        if (r->rebuilds[i].viewer == 0 || r->rebuilds[i].until_ms < now_ms)
            place = &r->rebuilds[i];
    if (!place && r->rebuild_count < REBUILDS_MAX)
        place = &r->rebuilds[r->rebuild_count++];
    if (place) {
        *place = (struct rebuild){.viewer = of.viewer,
                                  .part = of.part,
                                  .spoiled = spoiled,
                                  .until_ms = now_ms + REBUILD_KEEP_MS};
        memcpy(place->generation, generation.ptr, ID_DIGITS);
    }
    pthread_mutex_unlock(&r->lock);
    return place != NULL;
}

bool rebuild_recall(struct redis_views *r, struct rebuild_of of, char generation[ID_DIGITS],
                    bool *spoiled)
{
    int64_t now_ms = clock_mono_ms(clock_system());
    bool found = false;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->rebuild_count && !found; i++) {
        struct rebuild *b = &r->rebuilds[i];
        if (!is_of(b, of, now_ms))
            continue;
        memcpy(generation, b->generation, ID_DIGITS);
        *spoiled = b->spoiled;
        b->viewer = 0;
        found = true;
    }
    while (r->rebuild_count > 0 && r->rebuilds[r->rebuild_count - 1].viewer == 0)
        r->rebuild_count--;
    pthread_mutex_unlock(&r->lock);
    return found;
}

static uint64_t new_generation(struct redis_views *r)
{
    pthread_mutex_lock(&r->lock);
    uint64_t n = rand_u64(&r->rand) >> 2; /* fits into 19 digits */
    pthread_mutex_unlock(&r->lock);
    return n;
}

/* ---- rebuilding ---- */

enum err rebuild_outcome(const struct batch *b, size_t command)
{
    if (!batch_all_good(b, NULL))
        return ERR_UNAVAILABLE;
    if (reply_is(b, command, 0))
        return ERR_NOT_FOUND;
    return reply_is(b, command, 1) ? ERR_CONFLICT : OK;
}

static void arg_part(struct batch *b, struct rebuild_of of)
{
    batch_arg(b, (struct str){&of.part, 1});
}

/* Of an inbox only entries of a ready one are counted. */
static void count_rebuild(struct redis_views *r, struct rebuild_of of, int64_t entries,
                          int64_t dropped)
{
    if (of.part == 'i') {
        tally_add(r, TALLY_INBOXES, -dropped);
        return;
    }
    tally_add(r, TALLY_ENTRIES, entries);
    tally_add(r, TALLY_DROPPED, dropped);
}

enum err rebuild_give_up(struct redis_views *r, struct batch *b, struct rebuild_of of,
                         struct str generation)
{
    struct key keys[3];
    rebuild_keys(keys, of);
    batch_reset(b);
    queue_script(r, b, SCRIPT_give_up, keys, 3, 3);
    batch_arg_u64(b, of.viewer);
    batch_arg(b, generation);
    arg_part(b, of);
    batch_hurry(b);
    enum err e = batch_flush(b);
    if (!e)
        e = rebuild_outcome(b, 0);
    if (!e)
        count_rebuild(r, of, reply_number(b, 0, 0), reply_number(b, 0, 1));
    return e;
}

/* While the views are not complete nothing is rebuilt: readers read truth itself. */
enum err rebuild_begin(struct redis_views *r, struct batch *b, struct rebuild_of of, bool anew)
{
    struct key keys[3];
    if (is_lost(r))
        return ERR_CONFLICT;
    rebuild_keys(keys, of);
    size_t complete = queue_complete(r, b, keys[0].slot);
    batch_hurry(b);
    enum err e = batch_flush(b);
    if (!e && !batch_all_good(b, NULL))
        e = ERR_UNAVAILABLE;
    if (!e && (!reply_is(b, complete, 1) || is_lost(r)))
        e = ERR_CONFLICT;
    if (e)
        return e;
    batch_reset(b);
    queue_script(r, b, SCRIPT_begin, keys, 3, 5);
    batch_arg_u64(b, of.viewer);
    batch_arg_u64(b, anew);
    arg_id(b, new_generation(r));
    batch_arg_u64(b, REBUILD_KEEP_MS);
    arg_part(b, of);
    batch_hurry(b);
    e = batch_flush(b);
    if (!e)
        e = rebuild_outcome(b, 0);
    if (e)
        return e;
    count_rebuild(r, of, reply_number(b, 0, 1), -reply_number(b, 0, 2));
    if (of.part == 'i' && anew)
        tally_add(r, TALLY_INBOX_ENTRIES, reply_number(b, 0, 1));
    const redisReply *g = reply_part(b, 0, 0);
    struct str generation =
        g && g->type == REDIS_REPLY_STRING ? (struct str){g->str, g->len} : (struct str){NULL, 0};
    if (remember(r, of, generation))
        return OK;
    char copy[ID_DIGITS] = {0};
    if (generation.len == sizeof copy)
        memcpy(copy, generation.ptr, sizeof copy);
    (void)rebuild_give_up(r, b, of, (struct str){copy, sizeof copy});
    return ERR_OVERLOADED;
}

/* More than the cap is not worth sending: the newest one left out is the floor then. */
static void bound(const struct redis_views *r, const uint64_t *ids, size_t *n, uint64_t *floor)
{
    if (*n <= r->views.cap)
        return;
    *n = r->views.cap;
    if (ids[*n] > *floor)
        *floor = ids[*n];
}

static void arg_ids(struct redis_views *r, struct batch *b, const uint64_t *ids, size_t n,
                    uint64_t floor)
{
    batch_arg_u64(b, r->views.cap);
    arg_post(b, floor);
    for (size_t i = 0; i < n; i++)
        arg_post(b, ids[i]);
}

static enum err end(struct redis_views *r, struct batch *b, uint64_t viewer, struct str generation,
                    const uint64_t *ids, size_t n, uint64_t floor)
{
    struct key keys[3];
    timeline_keys(keys, viewer, KEY_BUILDERS);
    bound(r, ids, &n, &floor);
    queue_script(r, b, SCRIPT_end, keys, 3, 5 + 2 * (unsigned)n);
    batch_arg_u64(b, viewer);
    batch_arg(b, generation);
    arg_ids(r, b, ids, n, floor);
    batch_replicate(b);
    batch_hurry(b);
    enum err e = batch_flush(b);
    if (!e)
        e = rebuild_outcome(b, 0);
    if (!e)
        tally_add(r, TALLY_ENTRIES, reply_number(b, 0, 0));
    return e;
}

enum err redis_rebuild(struct views *v, uint64_t viewer, enum view_rebuild step,
                       const uint64_t *ids, size_t n, uint64_t floor)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    struct rebuild_of of = {viewer, 't'};
    char generation[ID_DIGITS];
    bool spoiled = false;
    enum err e;
    if (step == VIEW_REBUILD_BEGIN || step == VIEW_REBUILD_ANEW)
        e = rebuild_begin(r, b, of, step == VIEW_REBUILD_ANEW);
    else if (!rebuild_recall(r, of, generation, &spoiled))
        e = ERR_CONFLICT;
    else if (step == VIEW_REBUILD_END && !spoiled && !is_lost(r))
        e = end(r, b, viewer, (struct str){generation, sizeof generation}, ids, n, floor);
    else
        e = rebuild_give_up(r, b, of, (struct str){generation, sizeof generation});
    /* what was begun belonged to another state */
    if (!e && step == VIEW_REBUILD_END && (spoiled || is_lost(r)))
        e = ERR_CONFLICT;
    batch_return(r, b);
    return e;
}

/* ---- backfill and forget ---- */

enum err redis_edge(struct views *v, uint64_t viewer, uint64_t author, bool backfill,
                    const uint64_t *ids, size_t n, uint64_t floor)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    struct key keys[3];
    timeline_keys(keys, viewer, KEY_FOLLOWED);
    if (backfill) {
        bound(r, ids, &n, &floor);
        queue_script(r, b, SCRIPT_backfill, keys, 3, 5 + 2 * (unsigned)n);
        batch_arg_u64(b, viewer);
        batch_arg_u64(b, author);
        arg_ids(r, b, ids, n, floor);
    } else {
        queue_script(r, b, SCRIPT_forget, keys, 3, 2 + (unsigned)n);
        batch_arg_u64(b, viewer);
        batch_arg_u64(b, author);
        for (size_t i = 0; i < n; i++)
            arg_id(b, ids[i]);
    }
    batch_replicate(b);
    enum err e = batch_flush(b);
    if (!e)
        e = rebuild_outcome(b, 0);
    if (!e)
        tally_add(r, TALLY_ENTRIES, reply_number(b, 0, 0));
    batch_return(r, b);
    return e;
}

/* ---- sweeping ---- */

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
enum err redis_sweep(struct views *v, int64_t seen_before_ms, size_t max_accounts, size_t *dropped,
                     bool *wrapped)
{
    struct redis_views *r = redis_of(v);
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
