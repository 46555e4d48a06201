/* Rebuilds of a timeline or an inbox.
 *
 * The first to begin makes a new **generation**; later builders join it while it lasts, and
 * everything pushed since its beginning is collected. The generation lasts as long as one of its
 * builders does, at most REBUILD_KEEP_MS after the last one came: a process that died in the middle
 * holds no other up. At the end a builder presents its generation, so that one that comes too late,
 * after the timeline was dropped and perhaps begun by others, installs nothing. The port hands out
 * no ticket for that; so this process remembers what it has begun. All of it is done by readers,
 * who do not wait for a server that is away. */
#include <string.h>

#include "view/redis/driver.h"

struct rebuild_of {
    uint64_t viewer, part;
};

/* What this process has begun and not ended, of one timeline or inbox: Redis wants the generation
 * back at the end. */
struct rebuild {
    struct rebuild_of of; /* the key */
    size_t builders;
    bool spoiled; /* not all builders are of one generation: their ends cannot be matched */
    char generation[ID_DIGITS];
    int64_t until_ms;
};

void rebuilds_init(struct redis_views *r)
{
    map_init(&r->rebuilds, sizeof(struct rebuild), sizeof(struct rebuild_of));
}

/* ---- what this process has begun ---- */

/* Two of ours under way, of two generations: what the first has read is older than the second, and
 * which one will end first is not known. None of them has a result then, nor has who joins them. */
static bool remember(struct redis_views *r, struct rebuild_of of, struct str generation)
{
    int64_t now_ms = clock_mono_ms(clock_system());
    if (generation.len != ID_DIGITS)
        return false;
    pthread_mutex_lock(&r->lock);
    struct rebuild *b = map_find(&r->rebuilds, &of);
    if (!b && r->rebuilds.count < REBUILDS_MAX)
        b = map_put(&r->rebuilds, &of, NULL);
    if (b) {
        bool alone = b->builders++ == 0 || b->until_ms < now_ms;
        b->spoiled =
            !alone && (b->spoiled || memcmp(b->generation, generation.ptr, ID_DIGITS) != 0);
        b->until_ms = now_ms + REBUILD_KEEP_MS;
        memcpy(b->generation, generation.ptr, ID_DIGITS);
    }
    pthread_mutex_unlock(&r->lock);
    return b != NULL;
}

/* False: this process has not begun, or too long ago. *spoiled: it must be given up. */
static bool recall(struct redis_views *r, struct rebuild_of of, char generation[ID_DIGITS],
                   bool *spoiled)
{
    pthread_mutex_lock(&r->lock);
    struct rebuild *b = map_find(&r->rebuilds, &of);
    bool found = b && b->until_ms >= clock_mono_ms(clock_system());
    if (found) {
        memcpy(generation, b->generation, ID_DIGITS);
        *spoiled = b->spoiled;
    }
    if (b && --b->builders == 0)
        map_remove(&r->rebuilds, b);
    pthread_mutex_unlock(&r->lock);
    return found;
}

/* ---- rebuilding ---- */

/* Runs the script that was queued. What it says besides 0 and 1 is an array. */
static enum err run(struct batch *b, unsigned how)
{
    TRY(batch_flush(b, how | FLUSH_GOOD));
    return reply_is(b, 0, 0) ? ERR_NOT_FOUND : reply_is(b, 0, 1) ? ERR_CONFLICT : OK;
}

enum err flush_entries(struct redis_views *r, struct batch *b, unsigned how, enum tally_part part)
{
    TRY(run(b, how));
    tally_add(r, part, reply_number(b, 0, 0));
    return OK;
}

/* The keys of a rebuild and whose it is: what all its scripts begin with. */
#define REBUILD_ARGS(of)                                                                           \
    arg_people((of).viewer),                                                                       \
        arg_account((of).part == 'i' ? KEY_INBOX : KEY_TIMELINE, (of).viewer),                     \
        arg_account((of).part == 'i' ? KEY_INBOX_BUILDERS : KEY_BUILDERS, (of).viewer),            \
        arg_number((of).viewer)

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

static enum err give_up(struct redis_views *r, struct batch *b, struct rebuild_of of,
                        struct str generation)
{
    batch_reset(b);
    batch_script(b, SCRIPT_give_up, REBUILD_ARGS(of), arg_str(generation),
                 arg_text(of.part == 'i' ? "i" : "t"));
    TRY(run(b, FLUSH_HURRY));
    count_rebuild(r, of, reply_number(b, 0, 0), reply_number(b, 0, 1));
    return OK;
}

static enum err end(struct redis_views *r, struct batch *b, struct rebuild_of of,
                    struct str generation, const struct arg ids[REBUILD_IDS])
{
    bool inbox = of.part == 'i';
    batch_script(b, inbox ? SCRIPT_inbox_end : SCRIPT_end, REBUILD_ARGS(of), arg_str(generation),
                 ids[0], ids[1], ids[2]);
    return flush_entries(r, b, FLUSH_REPLICATE | FLUSH_HURRY,
                         inbox ? TALLY_INBOX_ENTRIES : TALLY_ENTRIES);
}

/* While the views are not complete nothing is rebuilt: readers read truth itself. */
static enum err begin(struct redis_views *r, struct batch *b, struct rebuild_of of, bool anew)
{
    if (is_lost(r))
        return ERR_CONFLICT;
    size_t complete = queue_complete(r, b, of.viewer);
    enum err e = batch_flush(b, FLUSH_HURRY | FLUSH_GOOD);
    if (!e && (!reply_is(b, complete, 1) || is_lost(r)))
        e = ERR_CONFLICT;
    if (e)
        return e;
    uint64_t new_generation = client_random(&r->client) >> 2; /* fits into 19 digits */
    batch_reset(b);
    batch_script(b, SCRIPT_begin, REBUILD_ARGS(of), arg_number(anew), arg_id(new_generation),
                 arg_number(REBUILD_KEEP_MS), arg_text(of.part == 'i' ? "i" : "t"));
    TRY(run(b, FLUSH_HURRY));
    count_rebuild(r, of, reply_number(b, 0, 1), -reply_number(b, 0, 2));
    if (of.part == 'i' && anew)
        tally_add(r, TALLY_INBOX_ENTRIES, reply_number(b, 0, 1));
    struct str generation = reply_text(reply_part(b, 0, 0));
    if (remember(r, of, generation))
        return OK;
    char copy[ID_DIGITS] = {0};
    if (generation.len == sizeof copy)
        memcpy(copy, generation.ptr, sizeof copy);
    (void)give_up(r, b, of, (struct str){copy, sizeof copy});
    return ERR_OVERLOADED;
}

enum err rebuild_step(struct redis_views *r, uint64_t viewer, char part, enum view_rebuild step,
                      const struct arg *ids)
{
    BORROWED struct batch *b = batch_borrow(&r->client);
    struct rebuild_of of = {viewer, (uint8_t)part};
    char text[ID_DIGITS];
    struct str generation = {text, sizeof text};
    bool spoiled = false;
    enum err e;
    if (step == VIEW_REBUILD_BEGIN || step == VIEW_REBUILD_ANEW) {
        e = begin(r, b, of, step == VIEW_REBUILD_ANEW);
    } else if (!recall(r, of, text, &spoiled)) {
        e = ERR_CONFLICT;
    } else if (step == VIEW_REBUILD_END && !spoiled && !is_lost(r) && ids) {
        e = end(r, b, of, generation, ids);
        if (!e && is_lost(r)) /* the rebuild belonged to another state */
            e = ERR_CONFLICT;
    } else {
        e = give_up(r, b, of, generation);
        if (!e && step == VIEW_REBUILD_END)
            e = ERR_CONFLICT;
    }
    return e;
}
