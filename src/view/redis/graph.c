/* The graph: walking an author's followers or a group's members, visibility, neighbours.
 *
 * Members are account ids. A walk goes by id; the last one met is the position, so that it stays
 * valid when members come or go, and in any process. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "view/redis/driver.h"

enum { READ_MIN = 256, READ_MAX = 2304, VISIBLE_CHUNK = 500 };

/* ---- audiences ---- */

bool read_person(struct str person, char *state, uint64_t *seen)
{
    if (person.len < 2 || !str_parse_u64((struct str){person.ptr + 1, person.len - 1}, seen))
        return false;
    *state = person.ptr[0];
    return true;
}

/* `awake`: the states of people who have what is pushed to. */
static bool wanted(const struct seen_filter *f, const char *awake, struct str person)
{
    char state;
    uint64_t seen;
    return read_person(person, &state, &seen) && (state == awake[0] || state == awake[1]) &&
           seen_filter_takes(f, seen);
}

/* Visits from now on count as not before the walk's start; see raise_visits. */
static enum err note_walk(struct redis_views *r, struct batch *b, const struct audience_cursor *c)
{
    uint32_t started = seen_seconds(c->started_ms);
    if (c->part == AUDIENCE_ALL || started <= atomic_load(&r->walked_at))
        return OK;
    batch_reset(b);
    batch_script(b, SCRIPT_raise, arg_key(WALKED_KEY), arg_number(started));
    enum err e = batch_flush(b, FLUSH_WAIT);
    uint32_t before = atomic_load(&r->walked_at);
    while (!e && before < started &&
           !atomic_compare_exchange_weak(&r->walked_at, &before, started)) {
    }
    return e;
}

size_t queue_followers(struct batch *b, uint64_t author, uint64_t after, size_t max)
{
    char from[1 + ID_DIGITS] = "(";
    id_digits(after, from + 1);
    return batch_command(b, "ZRANGEBYLEX", arg_account(KEY_FOLLOWERS, author),
                         arg_str(((struct str){from, sizeof from})), arg_text("+"),
                         arg_text("LIMIT"), arg_text("0"), arg_number(max));
}

/* ERR_UNAVAILABLE also when followers were lost and are not loaded yet: delivery has to wait. An id
 * that has followers and is not among the people is a group. */
static enum err read_followers(struct redis_views *r, struct batch *b, uint64_t author,
                               uint64_t after, uint64_t *ids, size_t max, size_t *n, bool *group)
{
    batch_reset(b);
    size_t followers = queue_followers(b, author, after, max);
    size_t complete = queue_complete(r, b, author);
    size_t known = queue_known(b, author);
    enum err e = batch_flush(b, FLUSH_WAIT);
    if (!e && (!batch_all_good(b) || !reply_is(b, complete, 1) || is_lost(r)))
        e = ERR_UNAVAILABLE;
    *group = !e && reply_is(b, known, 0);
    *n = e ? 0 : reply_ids(batch_reply(b, followers), ids, max);
    return e;
}

static enum err look_up_people(struct batch *b, const uint64_t *ids, size_t n)
{
    batch_reset(b);
    for (size_t i = 0; i < n; i++)
        batch_command(b, "HGET", arg_people(ids[i]), arg_number(ids[i]));
    return batch_flush(b, FLUSH_WAIT);
}

static enum err seen_since(struct graph *base, const uint64_t *members, size_t n, int64_t since_ms,
                           bool *out)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, graph);
    BORROWED struct batch *b = batch_borrow(&r->client);
    uint32_t since = seen_seconds(since_ms);
    enum err e = OK;
    for (size_t from = 0; !e && from < n; from += READ_MAX) {
        size_t some = n - from < READ_MAX ? n - from : READ_MAX;
        e = look_up_people(b, members + from, some);
        for (size_t i = 0; !e && i < some; i++) {
            char state;
            uint64_t seen;
            out[from + i] = read_person(batch_text(b, i), &state, &seen) && seen >= since;
        }
    }
    return e;
}

/* Followers are read in chunks and filtered here. When the page is full the rest of the chunk is
 * still looked through, so that the last page can say that it is the last. */
static enum err walk_on(struct redis_views *r, struct batch *b, struct audience_page *p,
                        struct audience_cursor *cursor)
{
    struct seen_filter filter = seen_filter_of(cursor);
    uint64_t chunk[READ_MAX];
    bool full = false, group;
    enum err e = note_walk(r, b, cursor);
    while (!e && !cursor->end && !full) {
        size_t room = p->max - p->n + 1; /* one more shows whether this is the end */
        size_t least = filter.part == AUDIENCE_ALL ? 1 : READ_MIN;
        size_t ask = room < least ? least : room < READ_MAX ? room : READ_MAX, got;
        e = read_followers(r, b, p->author, cursor->after, chunk, ask, &got, &group);
        if (!e && filter.part != AUDIENCE_ALL)
            e = look_up_people(b, chunk, got);
        for (size_t i = 0; !e && !full && i < got; i++) {
            if (filter.part == AUDIENCE_ALL ||
                wanted(&filter, group ? "AD" : "aA", batch_text(b, i))) {
                full = p->n == p->max; /* `after` lies before this one */
                if (full)
                    break;
                p->members[p->n++] = chunk[i];
            }
            cursor->after = chunk[i];
        }
        if (!e && !full)
            cursor->end = got < ask;
        full |= p->n == p->max;
    }
    return e;
}

static bool is_plain(const struct audience_page *p)
{
    return p->cursor.part == AUDIENCE_ALL && !p->cursor.end && p->max > 0 && p->max < READ_MAX;
}

/* Takes up the replies to one page's two commands. */
static void read_page(struct redis_views *r, struct batch *b, size_t at, struct audience_page *p)
{
    uint64_t ids[READ_MAX];
    if (!reply_is(b, at + 1, 1) || is_lost(r)) {
        p->error = ERR_UNAVAILABLE;
        return;
    }
    size_t got = reply_ids(batch_reply(b, at), ids, p->max + 1);
    p->n = got < p->max ? got : p->max;
    memcpy(p->members, ids, p->n * sizeof *ids);
    if (p->n > 0)
        p->cursor.after = p->members[p->n - 1];
    p->cursor.end = got <= p->max;
}

/* One round trip for the pages of whole audiences; the others go one by one. */
static void audiences(struct graph *base, struct audience_page *pages, size_t n)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, graph);
    BORROWED struct batch *b = batch_borrow(&r->client);
    for (size_t i = 0; i < n; i++) {
        struct audience_page *p = &pages[i];
        p->n = 0;
        p->error = OK;
        if (!is_plain(p))
            continue;
        queue_followers(b, p->author, p->cursor.after, p->max + 1);
        queue_complete(r, b, p->author);
    }
    enum err e = batch_flush(b, FLUSH_GOOD);
    for (size_t i = 0, at = 0; i < n; i++) {
        struct audience_page *p = &pages[i];
        if (is_plain(p)) {
            p->error = e;
            if (!e)
                read_page(r, b, at, p);
            at += 2;
        } else {
            struct audience_cursor cursor = p->cursor;
            BORROWED struct batch *own = batch_borrow(&r->client);
            p->error = walk_on(r, own, p, &cursor);
            if (!p->error)
                p->cursor = cursor;
        }
    }
}

/* ---- visible ---- */

static enum err visible_some(struct redis_views *r, struct batch *b, uint64_t viewer,
                             const uint64_t *authors, size_t n, bool *out)
{
    enum { FOLLOWED, MUTED, HIDDEN };
    batch_reset(b);
    batch_invalidation(b);
    queue_members(b, KEY_FOLLOWED, viewer, authors, n);
    queue_members(b, KEY_MUTED, viewer, authors, n);
    queue_hidden(r, b, viewer, authors, n);
    enum err e = batch_flush(b, FLUSH_HURRY);
    if (is_lost(r))
        return ERR_NEEDS_TRUTH;
    if (e)
        return e;
    if (!batch_all_good(b))
        return ERR_UNAVAILABLE;
    if (!reply_flag(b, HIDDEN, 0))
        return ERR_NEEDS_TRUTH;
    for (size_t i = 0; i < n; i++)
        out[i] = authors[i] == viewer || (reply_flag(b, FOLLOWED, i) && !reply_flag(b, MUTED, i) &&
                                          !reply_flag(b, HIDDEN, 1 + i));
    return OK;
}

static enum err visible(struct graph *base, uint64_t viewer, const uint64_t *authors, size_t n,
                        bool *out)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, graph);
    enum err e = is_lost(r) ? ERR_NEEDS_TRUTH : OK;
    BORROWED struct batch *b = batch_borrow(&r->client);
    for (size_t from = 0; !e && from < n; from += VISIBLE_CHUNK)
        e = visible_some(r, b, viewer, authors + from,
                         n - from < VISIBLE_CHUNK ? n - from : VISIBLE_CHUNK, out + from);
    if (e)
        client_spoil(&r->client);
    return e;
}

/* ---- neighbours ---- */

static int by_rising_id(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* A set knows no order: all that are followed are looked at for each page, which is for checks. */
static size_t read_followed(const redisReply *r, uint64_t after, uint64_t *ids, size_t max)
{
    size_t count = reply_count(r), n = 0;
    uint64_t *all = malloc((count + 1) * sizeof *all);
    CHECK(all);
    count = reply_accounts(r, 0, all, count);
    qsort(all, count, sizeof *all, by_rising_id);
    for (size_t i = 0; i < count && n < max; i++)
        if (all[i] > after)
            ids[n++] = all[i];
    free(all);
    return n;
}

static enum err neighbours(struct graph *base, uint64_t account, bool followers, uint64_t after,
                           uint64_t *ids, size_t max, size_t *n)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, graph);
    BORROWED struct batch *b = batch_borrow(&r->client);
    size_t known = queue_known(b, account), complete = queue_complete(r, b, account);
    size_t found = followers ? queue_followers(b, account, after, max)
                             : batch_command(b, "SMEMBERS", arg_account(KEY_FOLLOWED, account));
    *n = 0;
    enum err e = batch_flush(b, FLUSH_HURRY | FLUSH_GOOD);
    if (!e && (is_lost(r) || !reply_is(b, complete, 1)))
        e = ERR_NEEDS_TRUTH;
    else if (!e && reply_is(b, known, 0) && !(followers && reply_count(batch_reply(b, found)) > 0))
        e = ERR_NOT_FOUND;
    if (!e)
        *n = followers ? reply_ids(batch_reply(b, found), ids, max)
                       : read_followed(batch_reply(b, found), after, ids, max);
    return e;
}

/* ---- extent ---- */

static enum err extent(struct graph *base, uint64_t author, uint64_t after, uint64_t *passed,
                       uint64_t *all)
{
    struct redis_views *r = CONTAINER_OF(base, struct redis_views, graph);
    BORROWED struct batch *b = batch_borrow(&r->client);
    char to[1 + ID_DIGITS] = "[";
    id_digits(after, to + 1);
    size_t counted = batch_command(b, "ZCARD", arg_account(KEY_FOLLOWERS, author));
    size_t below = batch_command(b, "ZLEXCOUNT", arg_account(KEY_FOLLOWERS, author), arg_text("-"),
                                 arg_str(((struct str){to, sizeof to})));
    size_t complete = queue_complete(r, b, author);
    TRY(batch_flush(b, FLUSH_WAIT | FLUSH_GOOD));
    if (!reply_is(b, complete, 1) || is_lost(r))
        return ERR_UNAVAILABLE;
    *all = (uint64_t)batch_reply(b, counted)->integer;
    *passed = (uint64_t)batch_reply(b, below)->integer;
    return OK;
}

const struct graph_ops redis_graph_ops = {.audiences = audiences,
                                          .visible = visible,
                                          .seen_since = seen_since,
                                          .neighbours = neighbours,
                                          .extent = extent};
