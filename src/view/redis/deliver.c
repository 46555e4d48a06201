/* Delivery: walking an author's followers, or a group's members, and writing a post into their
 * timelines. This is the hot path.
 *
 * A push costs Redis one ZADD for each member: a dropped timeline is no sorted set and refuses it,
 * a post that is there already is counted as such by ZADD itself, and a post at or below the floor
 * is added below it, where nobody looks, until the next trim takes it out. Trimming is left to one
 * push in sixty-four, chosen by member and post: every timeline is trimmed now and then, and no
 * batch does more than its share.
 *
 * Members are account ids. A walk goes by id; the last one met is the position, so that it stays
 * valid whoever comes or goes, and whichever process walks on. */
#include <string.h>

#include "base/hash.h"
#include "view/redis/engine.h"
#include "view/redis/slot.h"

enum { READ_MIN = 256, READ_MAX = 2304, PUSH_A_FLUSH = 2048, TRIM_ONE_IN = 64 };

/* How far in the past a visit may lie when it is reported: whoever was last seen within this much
 * before a walk began is met by the walk over the rest, too. */
enum { SEEN_LAG_S = 60 };

struct seen_filter {
    enum audience_part part;
    uint32_t since, until;
    const char *awake; /* states of people who have what is pushed to */
};

static struct seen_filter filter_of(const struct audience_cursor *c)
{
    uint32_t started = seen_seconds(c->started_ms);
    return (struct seen_filter){c->part, seen_seconds(c->active_since_ms),
                                started > SEEN_LAG_S ? started - SEEN_LAG_S : 0, "aA"};
}

/* "A1700000000": a state and the last visit */
static bool wanted(const struct seen_filter *f, struct str person)
{
    uint64_t seen;
    if (person.len < 2 || (person.ptr[0] != f->awake[0] && person.ptr[0] != f->awake[1]) ||
        !str_parse_u64((struct str){person.ptr + 1, person.len - 1}, &seen))
        return false;
    if (f->part == AUDIENCE_ACTIVE)
        return seen >= f->since;
    return seen < f->since || seen >= f->until;
}

/* Visits from now on count as not before the walk's start; see raise_visits. */
static enum err note_walk(struct redis_views *r, struct batch *b, const struct audience_cursor *c)
{
    uint32_t started = seen_seconds(c->started_ms);
    if (c->part == AUDIENCE_ALL || started <= atomic_load(&r->walked_at))
        return OK;
    batch_reset(b);
    batch_begin(b, slot_of(WALKED_KEY), 5);
    batch_arg_script(b, script_of(SCRIPT_raise));
    arg_text(b, "1");
    batch_arg(b, WALKED_KEY);
    batch_arg_u64(b, started);
    enum err e = batch_flush(b);
    uint32_t before = atomic_load(&r->walked_at);
    while (!e && before < started &&
           !atomic_compare_exchange_weak(&r->walked_at, &before, started)) {
    }
    return e;
}

size_t queue_followers(struct redis_views *r, struct batch *b, uint64_t author, uint64_t after,
                       size_t max)
{
    (void)r;
    struct key k;
    char from[1 + ID_DIGITS] = "(";
    id_digits(after, from + 1);
    key_of_account(&k, KEY_FOLLOWERS, author);
    size_t command = batch_begin(b, k.slot, 7);
    arg_text(b, "ZRANGEBYLEX");
    batch_arg(b, key_text(&k));
    batch_arg(b, (struct str){from, sizeof from});
    arg_text(b, "+");
    arg_text(b, "LIMIT");
    arg_text(b, "0");
    batch_arg_u64(b, max);
    return command;
}

/* ERR_UNAVAILABLE also when followers were lost and are not loaded yet: delivery has to wait.
 * Whoever has followers and is not among the people is a group. */
static enum err read_followers(struct redis_views *r, struct batch *b, uint64_t author,
                               uint64_t after, uint64_t *ids, size_t max, size_t *n, bool *group)
{
    struct key k;
    key_of_bucket(&k, KEY_PEOPLE, bucket_of(author));
    batch_reset(b);
    size_t followers = queue_followers(r, b, author, after, max);
    size_t complete = queue_complete(r, b, k.slot);
    size_t known = batch_begin(b, k.slot, 3);
    arg_text(b, "HEXISTS");
    batch_arg(b, key_text(&k));
    batch_arg_u64(b, author);
    enum err e = batch_flush(b);
    if (!e && (!batch_all_good(b, NULL) || !reply_is(b, complete, 1) || is_lost(r)))
        e = ERR_UNAVAILABLE;
    *group = !e && reply_is(b, known, 0);
    *n = e ? 0 : reply_ids(batch_reply(b, followers), ids, max);
    return e;
}

static enum err look_up_people(struct batch *b, const uint64_t *ids, size_t n)
{
    batch_reset(b);
    for (size_t i = 0; i < n; i++) {
        struct key k;
        key_of_bucket(&k, KEY_PEOPLE, bucket_of(ids[i]));
        batch_begin(b, k.slot, 3);
        batch_arg(b, STR("HGET"));
        batch_arg(b, key_text(&k));
        batch_arg_u64(b, ids[i]);
    }
    return batch_flush(b);
}

enum err redis_seen(struct views *v, const uint64_t *members, size_t n, int64_t since_ms, bool *out)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    uint32_t since = seen_seconds(since_ms);
    enum err e = OK;
    for (size_t from = 0; !e && from < n; from += READ_MAX) {
        size_t some = n - from < READ_MAX ? n - from : READ_MAX;
        e = look_up_people(b, members + from, some);
        for (size_t i = 0; !e && i < some; i++) {
            struct str person = batch_text(b, i);
            uint64_t seen;
            out[from + i] = person.len > 1 &&
                            str_parse_u64((struct str){person.ptr + 1, person.len - 1}, &seen) &&
                            seen >= since;
        }
    }
    batch_return(r, b);
    return e;
}

/* Followers are read in chunks and filtered here. When the page is full the rest of the chunk is
 * still looked through, so that the last page can say that it is the last. */
enum err redis_audience(struct views *v, uint64_t author, struct audience_cursor *cursor,
                        uint64_t *members, size_t max, size_t *n)
{
    struct redis_views *r = redis_of(v);
    struct seen_filter filter = filter_of(cursor);
    struct batch *b = batch_borrow(r);
    uint64_t chunk[READ_MAX];
    bool full = false, group;
    *n = 0;
    enum err e = note_walk(r, b, cursor);
    while (!e && !cursor->end && !full) {
        size_t room = max - *n + 1; /* one more tells whether this is the end */
        size_t least = filter.part == AUDIENCE_ALL ? 1 : READ_MIN;
        size_t ask = room < least ? least : room < READ_MAX ? room : READ_MAX, got;
        e = read_followers(r, b, author, cursor->after, chunk, ask, &got, &group);
        filter.awake = group ? "AD" : "aA";
        if (!e && filter.part != AUDIENCE_ALL)
            e = look_up_people(b, chunk, got);
        for (size_t i = 0; !e && !full && i < got; i++) {
            if (filter.part == AUDIENCE_ALL || wanted(&filter, batch_text(b, i))) {
                full = *n == max; /* `after` lies before this one */
                if (full)
                    break;
                members[(*n)++] = chunk[i];
            }
            cursor->after = chunk[i];
        }
        if (!e && !full)
            cursor->end = got < ask;
        full |= *n == max;
    }
    batch_return(r, b);
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

/* One trip for the pages of whole audiences; the others go one by one. */
void redis_audiences(struct views *v, struct audience_page *pages, size_t n)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    for (size_t i = 0; i < n; i++) {
        struct audience_page *p = &pages[i];
        struct key k;
        p->n = 0;
        p->error = OK;
        if (!is_plain(p))
            continue;
        key_of_bucket(&k, KEY_PEOPLE, bucket_of(p->author));
        queue_followers(r, b, p->author, p->cursor.after, p->max + 1);
        queue_complete(r, b, k.slot);
    }
    enum err e = batch_flush(b);
    if (!e && !batch_all_good(b, NULL))
        e = ERR_UNAVAILABLE;
    for (size_t i = 0, at = 0; i < n; i++) {
        struct audience_page *p = &pages[i];
        if (is_plain(p)) {
            p->error = e;
            if (!e)
                read_page(r, b, at, p);
            at += 2;
        } else {
            struct audience_cursor cursor = p->cursor;
            p->error = redis_audience(v, p->author, &cursor, p->members, p->max, &p->n);
            if (!p->error)
                p->cursor = cursor;
        }
    }
    batch_return(r, b);
}

/* ---- pushing ---- */

static void queue_trim(struct redis_views *r, struct batch *b, const struct key *timeline)
{
    queue_script(r, b, SCRIPT_trim, timeline, 1, 1);
    batch_arg_u64(b, r->views.cap);
}

static bool trims(uint64_t post, uint64_t member)
{
    return hash_u64(post ^ member * UINT64_C(0x9e3779b97f4a7c15)) % TRIM_ONE_IN == 0;
}

static void queue_push(struct redis_views *r, struct batch *b, uint64_t post,
                       const uint64_t *members, size_t n)
{
    char score[24], digits[ID_DIGITS];
    struct str score_text = {score, 0}, post_text = {digits, sizeof digits};
    score_text.len =
        (size_t)snprintf(score, sizeof score, "%llu", (unsigned long long)id_score(post));
    id_digits(post, digits);
    for (size_t i = 0; i < n; i++) {
        struct key k;
        key_of_account(&k, KEY_TIMELINE, members[i]);
        batch_begin(b, k.slot, 4);
        batch_arg(b, STR("ZADD"));
        batch_arg(b, key_text(&k));
        batch_arg(b, score_text);
        batch_arg(b, post_text);
        if (trims(post, members[i]))
            queue_trim(r, b, &k);
    }
}

static enum err flush_pushes(struct redis_views *r, struct batch *b)
{
    if (r->safe_pushes)
        batch_replicate(b);
    enum err e = batch_flush(b);
    return !e && !batch_all_good(b, "WRONGTYPE") ? ERR_UNAVAILABLE : e;
}

/* The replies to what queue_push queued, from command `at` on; returns where the next one's begin.
 */
static size_t note_push(struct redis_views *r, struct batch *b, size_t at, uint64_t post,
                        const uint64_t *members, size_t n, size_t *added)
{
    size_t removed = 0;
    for (size_t i = 0; i < n; i++) {
        *added += batch_integer(b, at++, 0) == 1;
        if (trims(post, members[i]))
            removed += (size_t)batch_integer(b, at++, 0);
    }
    tally_add(r, TALLY_ENTRIES, -(int64_t)removed);
    return at;
}

static enum err push_some(struct redis_views *r, struct batch *b, uint64_t post,
                          const uint64_t *members, size_t n, size_t *added)
{
    batch_reset(b);
    queue_push(r, b, post, members, n);
    enum err e = flush_pushes(r, b);
    if (!e)
        note_push(r, b, 0, post, members, n, added);
    return e;
}

enum err redis_push(struct views *v, uint64_t post, const uint64_t *members, size_t n,
                    size_t *added)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    enum err e = OK;
    *added = 0;
    for (size_t from = 0; !e && from < n; from += PUSH_A_FLUSH)
        e = push_some(r, b, post, members + from, n - from < PUSH_A_FLUSH ? n - from : PUSH_A_FLUSH,
                      added);
    tally_add(r, TALLY_ENTRIES, (int64_t)*added);
    batch_return(r, b);
    tally_pour(r);
    return e;
}

/* As many posts at a time as fit into a flush; one that does not fit goes by itself. */
enum err redis_pushes(struct views *v, struct view_push *pushes, size_t n)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    enum err e = OK;
    for (size_t from = 0, to; !e && from < n; from = to) {
        size_t members = pushes[from].n, at = 0, added = 0;
        for (to = from + 1; to < n && members + pushes[to].n <= PUSH_A_FLUSH; to++)
            members += pushes[to].n;
        if (members > PUSH_A_FLUSH) {
            e = redis_push(v, pushes[from].post, pushes[from].members, pushes[from].n,
                           &pushes[from].added);
            continue;
        }
        batch_reset(b);
        for (size_t i = from; i < to; i++)
            queue_push(r, b, pushes[i].post, pushes[i].members, pushes[i].n);
        e = flush_pushes(r, b);
        for (size_t i = from; !e && i < to; i++) {
            struct view_push *p = &pushes[i];
            p->added = 0;
            at = note_push(r, b, at, p->post, p->members, p->n, &p->added);
            added += p->added;
        }
        tally_add(r, TALLY_ENTRIES, (int64_t)added);
    }
    batch_return(r, b);
    tally_pour(r);
    return e;
}

static enum err retract_some(struct batch *b, uint64_t post, const uint64_t *members, size_t n,
                             size_t *removed)
{
    batch_reset(b);
    for (size_t i = 0; i < n; i++) {
        struct key k;
        key_of_account(&k, KEY_TIMELINE, members[i]);
        batch_begin(b, k.slot, 3);
        batch_arg(b, STR("ZREM"));
        batch_arg(b, key_text(&k));
        arg_id(b, post);
    }
    enum err e = batch_flush(b);
    if (!e && !batch_all_good(b, "WRONGTYPE"))
        e = ERR_UNAVAILABLE;
    for (size_t i = 0; !e && i < n; i++)
        *removed += batch_integer(b, i, 0) == 1;
    return e;
}

enum err redis_retract(struct views *v, uint64_t post, const uint64_t *members, size_t n,
                       size_t *removed)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    enum err e = OK;
    *removed = 0;
    for (size_t from = 0; !e && from < n; from += PUSH_A_FLUSH)
        e = retract_some(b, post, members + from, n - from < PUSH_A_FLUSH ? n - from : PUSH_A_FLUSH,
                         removed);
    tally_add(r, TALLY_ENTRIES, -(int64_t)*removed);
    batch_return(r, b);
    tally_pour(r);
    return e;
}
