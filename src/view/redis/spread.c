/* Spreading: the followers of an author learn that there are posts to be pulled.
 *
 * A reader's own set (KEY_PULLED) names the followees who have a pull list. An author's first
 * pulled post therefore has to be made known to all followers: page by page, the position kept
 * beside the author's other keys, so that whoever goes on, on whatever node, goes on from there.
 * Who begins to follow once the pull list is there learns of it by that.
 *
 * A page lies on other masters than its author. When everything is cleared in the middle, the page
 * goes and the position, written a moment later, would say that it was done. So the first page
 * makes a **generation**, and a position is moved on only from exactly the one that was read: after
 * a clearing there is none, or one of another generation. The loader has told the followers then.
 * And the position moves only when the page is safe on its replicas.
 *
 *     d                        all followers know
 *     <generation><follower>   19 digits each: those up to this follower know */
#include <string.h>

#include "view/redis/driver.h"

enum { SPREAD_PAGE = 2000, STATE_LEN = 2 * ID_DIGITS };

static struct arg spread_key(uint64_t author)
{
    return arg_key(key_of_bucket(KEY_SPREAD, bucket_of(author)));
}

/* The next page of followers who do not know yet. *n == 0 and state "d": all know. */
static enum err read_page(struct redis_views *r, struct batch *b, uint64_t author,
                          char state[STATE_LEN], bool *done, uint64_t *ids, size_t *n)
{
    batch_script(b, SCRIPT_spread_page, spread_key(author), arg_account(KEY_FOLLOWERS, author),
                 arg_number(author), arg_id(client_random(&r->client) >> 2),
                 arg_number(SPREAD_PAGE));
    size_t complete = queue_complete(r, b, author);
    TRY(batch_flush(b, FLUSH_GOOD));
    if (!reply_is(b, complete, 1) || is_lost(r))
        return ERR_UNAVAILABLE; /* followers are missing until they were loaded */
    struct str found = reply_text(reply_part(b, 0, 0));
    *done = found.len != STATE_LEN;
    if (!*done)
        memcpy(state, found.ptr, STATE_LEN);
    *n = reply_ids(reply_part(b, 0, 1), ids, SPREAD_PAGE);
    batch_reset(b);
    return OK;
}

static enum err tell(struct batch *b, uint64_t author, const uint64_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tell_of_pull_list(b, ids[i], author);
    TRY(batch_flush(b, FLUSH_GOOD | FLUSH_REPLICATE));
    bool safe = n == 0 || batch_is_replicated(b);
    batch_reset(b);
    return safe ? OK : ERR_UNAVAILABLE;
}

enum err redis_spread(struct timelines *base, uint64_t author, size_t *told, bool *more)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, timelines);
    BORROWED struct batch *b = batch_borrow(&r->client);
    char state[STATE_LEN], next[STATE_LEN];
    uint64_t ids[SPREAD_PAGE];
    size_t n = 0;
    bool done = false;
    *told = 0;
    *more = false;
    TRY(read_page(r, b, author, state, &done, ids, &n));
    if (done)
        return OK;
    TRY(tell(b, author, ids, n));
    bool last = n < SPREAD_PAGE;
    memcpy(next, state, ID_DIGITS);
    if (!last)
        id_digits(ids[n - 1], next + ID_DIGITS);
    batch_script(b, SCRIPT_spread_end, spread_key(author), arg_number(author),
                 arg_str(((struct str){state, STATE_LEN})),
                 last ? arg_text("d") : arg_str(((struct str){next, STATE_LEN})));
    TRY(batch_flush(b, FLUSH_GOOD));
    *told = n;
    *more = !last || !reply_is(b, 0, 1);
    return OK;
}
