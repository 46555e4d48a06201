/* Reading a page of candidates.
 *
 * A page of a person whose followees have no pull lists is one trip to one node: the timeline, and
 * the mark that says whether all is complete there. Pull lists are read in a second trip, from all
 * nodes at once, together with who of their authors is muted or hidden, and with the marks beside
 * them: a list may be gone, or begun anew, on a node that lost its data, while the viewer's own
 * node has everything.
 *
 * The first page, which is nearly all that is read, goes without a script: a script costs Redis as
 * much as the page itself. The newest ids and the head are read in one transaction, or a timeline
 * that is dropped and built again in between would lend its completeness to the old ids.
 *
 * When something is missing home() says that the timeline is silent from the top (UINT64_MAX):
 * rather no answer than a feed without half of the people in it. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "view/redis/driver.h"

enum { PULL_CHUNK = 256 };

/* ---- home ---- */

/* Two arguments: '' means from the top, since ids have 63 bits. */
#define ARG_BELOW(below)                                                                           \
    arg_number((below) > INT64_MAX ? 0 : id_score(below)),                                         \
        (below) > INT64_MAX ? arg_text("") : arg_id(below)

size_t queue_top(struct batch *b, uint64_t viewer, size_t max)
{
    struct key timeline = key_of_account(KEY_TIMELINE, viewer);
    size_t command = batch_transaction(b, timeline.slot);
    batch_also(b, "ZREVRANGE", arg_key(timeline), arg_text("0"), arg_number(max - 1));
    batch_also(b, "ZRANGE", arg_key(timeline), arg_text("0"), arg_text("0"));
    batch_commit(b);
    return command;
}

/* Answered by {floor, {ids}, {authors}}; {}: no timeline; 0: no account. */
static size_t queue_home(struct redis_views *r, struct batch *b, uint64_t viewer, uint64_t below,
                         size_t max)
{
    return batch_script(b, SCRIPT_home, arg_people(viewer), arg_account(KEY_TIMELINE, viewer),
                        arg_account(KEY_FOLLOWED, viewer), arg_account(KEY_PULLED, viewer),
                        arg_number(viewer), ARG_BELOW(below), arg_number(max),
                        arg_number(r->views.cap));
}

size_t queue_pull_list(struct redis_views *r, struct batch *b, uint64_t author, uint64_t below,
                       size_t max)
{
    return batch_script(b, SCRIPT_page, arg_account(KEY_PULL_LIST, author), ARG_BELOW(below),
                        arg_number(max), arg_number(r->pull_cap));
}

size_t queue_complete_around(struct redis_views *r, struct batch *b, const uint64_t *authors,
                             size_t n)
{
    bool asked[COPIES_MAX] = {false};
    size_t first = batch_count(b);
    for (size_t i = 0; i < n; i++) {
        size_t copy = r->copies > 1 ? key_of_people(authors[i]).slot / COPY_SLOTS : 0;
        if (!asked[copy])
            queue_complete(r, b, authors[i]);
        asked[copy] = true;
    }
    return first;
}

bool is_complete_around(const struct batch *b, size_t first)
{
    for (size_t i = first; i < batch_count(b); i++)
        if (!reply_is(b, i, 1))
            return false;
    return true;
}

static int by_falling_id(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

size_t sort_page(uint64_t *ids, size_t n, size_t max)
{
    size_t kept = 0;
    qsort(ids, n, sizeof *ids, by_falling_id);
    for (size_t i = 0; i < n && kept < max; i++)
        if (kept == 0 || ids[kept - 1] != ids[i])
            ids[kept++] = ids[i];
    return kept;
}

struct page {
    uint64_t *ids;
    size_t n, max;
    uint64_t below, floor;
};

/* Merges the pull lists of at most PULL_CHUNK authors into the page. */
static enum err pull_some(struct redis_views *r, uint64_t viewer, const uint64_t *authors, size_t n,
                          struct page *p)
{
    enum { HIDDEN, MUTED, LISTS };
    BORROWED struct batch *b = batch_borrow(&r->client);
    batch_invalidation(b);
    queue_hidden(r, b, viewer, authors, n);
    queue_members(b, KEY_MUTED, viewer, authors, n);
    for (size_t i = 0; i < n; i++)
        queue_pull_list(r, b, authors[i], p->below, p->max);
    size_t around = queue_complete_around(r, b, authors, n);
    enum err e = batch_flush(b, FLUSH_HURRY | FLUSH_GOOD);
    if (!e && !is_complete_around(b, around))
        e = ERR_NEEDS_TRUTH;
    size_t room = p->n;
    for (size_t i = 0; !e && i < n; i++)
        room += reply_count(reply_part(b, LISTS + i, 1));
    uint64_t *all = e ? NULL : malloc((room + 1) * sizeof *all);
    CHECK(e || all);
    size_t count = p->n;
    if (!e)
        memcpy(all, p->ids, p->n * sizeof *all);
    for (size_t i = 0; !e && i < n; i++) {
        if (reply_flag(b, HIDDEN, 1 + i) || reply_flag(b, MUTED, i))
            continue;
        raise_floor(reply_part(b, LISTS + i, 0), &p->floor);
        count += reply_ids(reply_part(b, LISTS + i, 1), all + count, room - count);
    }
    if (!e) {
        p->n = sort_page(all, count, p->max);
        memcpy(p->ids, all, p->n * sizeof *all);
    }
    free(all);
    return e;
}

static enum err pull(struct redis_views *r, uint64_t viewer, const redisReply *pulled,
                     struct page *p)
{
    uint64_t authors[PULL_CHUNK];
    enum err e = OK;
    for (size_t from = 0, got; !e; from += got) {
        got = reply_accounts(pulled, from, authors, PULL_CHUNK);
        if (got == 0)
            break;
        e = pull_some(r, viewer, authors, got, p);
    }
    while (p->n > 0 && p->ids[p->n - 1] <= p->floor)
        p->n--;
    return e;
}

/* The first page without a script. *found: it was there; otherwise the script has to find out why.
 */
static enum err read_top(struct redis_views *r, uint64_t viewer, struct page *p, bool *found)
{
    BORROWED struct batch *b = batch_borrow(&r->client);
    batch_invalidation(b);
    size_t top = queue_top(b, viewer, p->max);
    size_t pulled = batch_command(b, "SINTER", arg_account(KEY_PULLED, viewer),
                                  arg_account(KEY_FOLLOWED, viewer));
    size_t complete = queue_complete(r, b, viewer);
    enum err e = batch_flush(b, FLUSH_HURRY);
    *found = !e && reply_is(b, complete, 1) && !batch_failed(b, pulled) &&
             reply_ready(reply_part(b, top, 1), &p->floor);
    if (*found) {
        p->n = reply_ids(reply_part(b, top, 0), p->ids, p->max); /* the head is no id */
        e = pull(r, viewer, batch_reply(b, pulled), p);
    }
    return e;
}

static enum err read_any(struct redis_views *r, uint64_t viewer, struct page *p, bool *found)
{
    BORROWED struct batch *b = batch_borrow(&r->client);
    batch_invalidation(b);
    size_t home = queue_home(r, b, viewer, p->below, p->max);
    size_t complete = queue_complete(r, b, viewer);
    enum err e = batch_flush(b, FLUSH_HURRY | FLUSH_GOOD);
    if (!e && reply_is(b, complete, 1)) {
        if (reply_is(b, home, 0))
            e = ERR_NOT_FOUND;
        *found = !e && reply_part(b, home, 2) != NULL;
    }
    if (*found) {
        raise_floor(reply_part(b, home, 0), &p->floor);
        p->n = reply_ids(reply_part(b, home, 1), p->ids, p->max);
        e = pull(r, viewer, reply_part(b, home, 2), p);
    }
    return e;
}

enum err redis_home(struct timelines *base, uint64_t viewer, uint64_t below, uint64_t *ids,
                    size_t max, size_t *n, uint64_t *floor)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, timelines);
    struct page page = {ids, 0, max, below, 0};
    bool lost = is_lost(r), found = false;
    enum err e = OK;
    /* What lies beyond the cap is out. */
    if (!lost && below > INT64_MAX && max > 0 && max < r->views.cap)
        e = read_top(r, viewer, &page, &found);
    if (!lost && !e && !found)
        e = read_any(r, viewer, &page, &found);
    if (e == ERR_NEEDS_TRUTH || is_lost(r)) { /* perhaps known since: no word of that counts */
        found = false;
        e = OK;
    }
    found &= e == OK;
    *n = found ? page.n : 0;
    *floor = found ? page.floor : UINT64_MAX;
    if (!found)
        client_spoil(&r->client); /* truth will be asked instead */
    return e;
}
