/* Rebuilds of a timeline or an inbox.
 *
 * The first to begin makes a new **generation**; who begins while it lasts joins it, and everything
 * pushed since its beginning is collected. The generation lasts as long as one of its builders
 * does, at most REBUILD_KEEP_MS after the last one came: a process that died in the middle holds
 * nobody up. At the end the generation is handed in again, so that a builder who comes too late,
 * after the timeline was dropped and perhaps begun by others, installs nothing. The port hands out
 * no ticket for that; so this process remembers what it has begun. All of it is done by readers,
 * who do not wait for a server that is away. */
#include <string.h>

#include "view/redis/driver.h"

void timeline_keys(struct key *keys, uint64_t viewer, enum key_kind third)
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
    enum err e = batch_flush_good(b, NULL);
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
