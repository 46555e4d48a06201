/* Groups and inboxes.
 *
 * A membership lies in two slots, the member's and the group's, as a follow does, and each side
 * decides by the event which change is the latest. The member's side is the inbox; a group has
 * nothing but its members and the latest events that changed them.
 *
 * A push costs Redis one ZADD for each member: GT makes it a maximum, so nothing has to be read.
 * The score holds 53 bits of an activity, milliseconds and counter, without the node. Two groups
 * that spoke in the same millisecond on different nodes may therefore come in another order than
 * truth has them in, and a page must not end between them: whoever reads on from truth would miss
 * one. So a page ends between two milliseconds if it can. */
#include "base/id.h"
#include "view/redis/engine.h"
#include "view/redis/watch.h"

enum { PUSH_A_FLUSH = 2048, DROP_A_FLUSH = 1024, SCORE_MAX = 24 };

static uint64_t activity_of(const struct view_change *c)
{
    uint64_t value = c->value > 0 ? (uint64_t)c->value : 1; /* 0 is no activity */
    return c->event > value ? c->event : value;
}

/* ---- changes ---- */

void queue_member(struct redis_views *r, struct batch *b, const struct view_change *c)
{
    struct key keys[4], members[2];
    key_of_bucket(&keys[0], KEY_PEOPLE, bucket_of(c->account));
    key_of_account(&keys[1], KEY_TIMELINE, c->account);
    key_of_account(&keys[2], KEY_INBOX, c->account);
    key_of_account(&keys[3], KEY_RECENT, c->account);
    queue_script(r, b, SCRIPT_member, keys, 4, 6);
    batch_arg_u64(b, c->account);
    arg_id(b, c->other);
    batch_arg_u64(b, c->on);
    batch_arg_u64(b, event_score(c->event));
    batch_arg_u64(b, RECENT_KEEP_MS);
    batch_arg_u64(b, event_score(activity_of(c)));
    key_of_account(&members[0], KEY_FOLLOWERS, c->other);
    key_of_account(&members[1], KEY_RECENT, c->other);
    queue_script(r, b, SCRIPT_joined, members, 2, 4);
    arg_id(b, c->account);
    batch_arg_u64(b, c->on);
    batch_arg_u64(b, event_score(c->event));
    batch_arg_u64(b, RECENT_KEEP_MS);
}

void queue_message(struct redis_views *r, struct batch *b, const struct view_change *c)
{
    struct key inbox;
    key_of_account(&inbox, KEY_INBOX, c->account);
    queue_script(r, b, SCRIPT_message, &inbox, 1, 2);
    batch_arg_u64(b, event_score(activity_of(c)));
    arg_id(b, c->other);
}

/* ---- delivery ---- */

static void queue_push(struct batch *b, uint64_t group, uint64_t activity, const uint64_t *members,
                       size_t n)
{
    char score[SCORE_MAX], digits[ID_DIGITS];
    struct str score_text = {score, 0}, group_text = {digits, sizeof digits};
    score_text.len =
        (size_t)snprintf(score, sizeof score, "%llu", (unsigned long long)event_score(activity));
    id_digits(group, digits);
    for (size_t i = 0; i < n; i++) {
        struct key k;
        key_of_account(&k, KEY_INBOX, members[i]);
        batch_begin(b, k.slot, 6);
        batch_arg(b, STR("ZADD"));
        batch_arg(b, key_text(&k));
        batch_arg(b, STR("GT"));
        batch_arg(b, STR("CH"));
        batch_arg(b, score_text);
        batch_arg(b, group_text);
    }
}

static enum err flush_pushes(struct redis_views *r, struct batch *b)
{
    if (r->safe_pushes)
        batch_replicate(b);
    enum err e = batch_flush(b);
    return e || batch_all_good(b, "WRONGTYPE") ? e : ERR_UNAVAILABLE;
}

static size_t count_changed(const struct batch *b, size_t from, size_t n)
{
    size_t changed = 0;
    for (size_t i = 0; i < n; i++)
        changed += batch_integer(b, from + i, 0) == 1;
    return changed;
}

enum err redis_inbox_push(struct views *v, uint64_t group, uint64_t activity,
                          const uint64_t *members, size_t n, size_t *changed)
{
    struct redis_views *r = redis_of(v);
    *changed = 0;
    if (group == 0 || activity == 0)
        return ERR_BAD_INPUT;
    struct batch *b = batch_borrow(r);
    enum err e = OK;
    for (size_t from = 0; !e && from < n; from += PUSH_A_FLUSH) {
        size_t some = n - from < PUSH_A_FLUSH ? n - from : PUSH_A_FLUSH;
        batch_reset(b);
        queue_push(b, group, activity, members + from, some);
        e = flush_pushes(r, b);
        if (!e)
            *changed += count_changed(b, 0, some);
    }
    batch_return(r, b);
    return e;
}

/* As many as fit go in one trip. */
enum err redis_inbox_pushes(struct views *v, struct inbox_push *pushes, size_t n)
{
    struct redis_views *r = redis_of(v);
    enum err e = OK;
    for (size_t from = 0, to; !e && from < n; from = to) {
        struct inbox_push *p = &pushes[from];
        size_t members = p->n, at = 0;
        for (to = from + 1; to < n && members + pushes[to].n <= PUSH_A_FLUSH; to++)
            members += pushes[to].n;
        if (to == from + 1) {
            e = redis_inbox_push(v, p->group, p->activity, p->members, p->n, &p->changed);
            continue;
        }
        struct batch *b = batch_borrow(r);
        for (size_t i = from; i < to; i++) {
            if (pushes[i].group == 0 || pushes[i].activity == 0)
                e = ERR_BAD_INPUT;
            queue_push(b, pushes[i].group, pushes[i].activity, pushes[i].members, pushes[i].n);
        }
        e = e ? e : flush_pushes(r, b);
        for (size_t i = from; !e && i < to; at += pushes[i++].n)
            pushes[i].changed = count_changed(b, at, pushes[i].n);
        batch_return(r, b);
    }
    return e;
}

static enum err drop_some(struct redis_views *r, struct batch *b, const uint64_t *members, size_t n)
{
    batch_reset(b);
    for (size_t i = 0; i < n; i++) {
        struct key keys[3];
        rebuild_keys(keys, (struct rebuild_of){members[i], 'i'});
        queue_script(r, b, SCRIPT_inbox_drop, keys, 2, 1);
        batch_arg_u64(b, members[i]);
    }
    batch_replicate(b);
    enum err e = batch_flush(b);
    if (!e && !batch_all_good(b, NULL))
        e = ERR_UNAVAILABLE;
    for (size_t i = 0; !e && i < n; i++) {
        tally_add(r, TALLY_INBOXES, -reply_number(b, i, 0));
        tally_add(r, TALLY_INBOX_ENTRIES, reply_number(b, i, 1));
    }
    return e;
}

enum err redis_inbox_drop(struct views *v, const uint64_t *members, size_t n)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    enum err e = OK;
    for (size_t from = 0; !e && from < n; from += DROP_A_FLUSH)
        e = drop_some(r, b, members + from, n - from < DROP_A_FLUSH ? n - from : DROP_A_FLUSH);
    batch_return(r, b);
    tally_pour(r);
    return e;
}

/* ---- rebuilding ---- */

static enum err end(struct redis_views *r, struct batch *b, struct rebuild_of of,
                    struct str generation, const struct inbox_entry *entries, size_t n)
{
    struct key keys[3];
    rebuild_keys(keys, of);
    queue_script(r, b, SCRIPT_inbox_end, keys, 3, 2 + 2 * (unsigned)n);
    batch_arg_u64(b, of.viewer);
    batch_arg(b, generation);
    for (size_t i = 0; i < n; i++) {
        batch_arg_u64(b, event_score(entries[i].activity));
        arg_id(b, entries[i].group);
    }
    batch_replicate(b);
    batch_hurry(b);
    enum err e = batch_flush(b);
    if (!e)
        e = rebuild_outcome(b, 0);
    if (!e)
        tally_add(r, TALLY_INBOX_ENTRIES, reply_number(b, 0, 0));
    return e;
}

enum err redis_inbox_rebuild(struct views *v, uint64_t account, enum view_rebuild step,
                             const struct inbox_entry *entries, size_t n)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    struct rebuild_of of = {account, 'i'};
    char text[ID_DIGITS];
    struct str generation = {text, sizeof text};
    bool spoiled = false;
    enum err e;
    if (step == VIEW_REBUILD_BEGIN || step == VIEW_REBUILD_ANEW) {
        e = rebuild_begin(r, b, of, step == VIEW_REBUILD_ANEW);
    } else if (!rebuild_recall(r, of, text, &spoiled)) {
        e = ERR_CONFLICT;
    } else if (step == VIEW_REBUILD_END && !spoiled && !is_lost(r) && n <= INBOX_MAX) {
        e = end(r, b, of, generation, entries, n);
    } else {
        e = rebuild_give_up(r, b, of, generation);
        if (!e && step == VIEW_REBUILD_END)
            e = ERR_CONFLICT;
    }
    if (!e && step == VIEW_REBUILD_END && is_lost(r)) /* what was begun belonged to another state */
        e = ERR_CONFLICT;
    batch_return(r, b);
    return e;
}

/* ---- reading ---- */

static size_t below_text(uint64_t below, char *out, size_t room)
{
    if (below > INT64_MAX) { /* from the top: ids have 63 bits */
        return (size_t)snprintf(out, room, "+inf");
    }
    bool has_node = below >> ID_COUNTER_BITS & ((1 << ID_NODE_BITS) - 1);
    uint64_t score = has_node ? (id_score(below) + 1) << ID_COUNTER_BITS : event_score(below);
    return (size_t)snprintf(out, room, "(%llu", (unsigned long long)score);
}

/* Answered by [[group, score, …], [head]]: both in one act, or an inbox that is dropped and built
 * again in between would lend its completeness to the old entries. */
static size_t queue_page(struct batch *b, const struct key *inbox, uint64_t below, size_t max)
{
    char text[SCORE_MAX];
    size_t len = below_text(below, text, sizeof text);
    size_t command = batch_transaction(b, inbox->slot);
    batch_also(b, 8);
    batch_arg(b, STR("ZREVRANGEBYSCORE"));
    batch_key(b, inbox);
    batch_arg(b, (struct str){text, len});
    batch_arg(b, STR("(0"));
    batch_arg(b, STR("WITHSCORES"));
    batch_arg(b, STR("LIMIT"));
    batch_arg(b, STR("0"));
    batch_arg_u64(b, max);
    batch_also(b, 4);
    batch_arg(b, STR("ZRANGE"));
    batch_arg(b, key_text(inbox));
    batch_arg(b, STR("0"));
    batch_arg(b, STR("0"));
    batch_commit(b);
    return command;
}

static bool head_is_ready(const redisReply *head)
{
    return head && head->type == REDIS_REPLY_ARRAY && head->elements == 1 &&
           head->element[0]->type == REDIS_REPLY_STRING && head->element[0]->len == 1 + ID_DIGITS &&
           head->element[0]->str[0] == 'r';
}

static bool read_entry(const redisReply *r, size_t i, struct inbox_entry *out)
{
    const redisReply *group = r->element[2 * i], *score = r->element[2 * i + 1];
    uint64_t n;
    if (group->type != REDIS_REPLY_STRING || score->type != REDIS_REPLY_STRING ||
        !id_from_digits((struct str){group->str, group->len}, &out->group) ||
        !str_parse_u64((struct str){score->str, score->len}, &n))
        return false;
    out->activity = n >> ID_COUNTER_BITS << (ID_COUNTER_BITS + ID_NODE_BITS) |
                    (n & ((1 << ID_COUNTER_BITS) - 1));
    return true;
}

static size_t cut(const struct inbox_entry *out, size_t n, uint64_t next, unsigned bits)
{
    while (n > 0 && out[n - 1].activity >> bits == next >> bits)
        n--;
    return n;
}

/* One more than `max` was asked for: it shows where a page may end. */
static bool read_page(const redisReply *r, struct inbox_entry *out, size_t max, size_t *n)
{
    size_t count = r && r->type == REDIS_REPLY_ARRAY ? r->elements / 2 : 0;
    struct inbox_entry next;
    *n = count < max ? count : max;
    for (size_t i = 0; i < *n; i++)
        if (!read_entry(r, i, &out[i]))
            return false;
    if (count <= max)
        return r && r->type == REDIS_REPLY_ARRAY;
    if (!read_entry(r, max, &next))
        return false;
    size_t whole = cut(out, *n, next.activity, ID_COUNTER_BITS + ID_NODE_BITS);
    if (whole == 0)
        whole = cut(out, *n, next.activity, 0);
    if (whole > 0)
        *n = whole;
    return true;
}

enum err redis_inbox(struct views *v, uint64_t account, uint64_t below, struct inbox_entry *out,
                     size_t max, size_t *n)
{
    struct redis_views *r = redis_of(v);
    struct key people, inbox;
    *n = 0;
    if (is_lost(r)) {
        watch_spoil(link_watch(r->link));
        return ERR_NEEDS_TRUTH;
    }
    struct batch *b = batch_borrow(r);
    batch_watch(b);
    key_of_bucket(&people, KEY_PEOPLE, bucket_of(account));
    key_of_account(&inbox, KEY_INBOX, account);
    size_t page = queue_page(b, &inbox, below, max + 1);
    size_t complete = queue_complete(r, b, people.slot);
    size_t known = batch_begin(b, people.slot, 3);
    arg_text(b, "HEXISTS");
    batch_arg(b, key_text(&people));
    batch_arg_u64(b, account);
    if (watch_traces(link_watch(r->link)))
        queue_touch_read(b, account);
    batch_hurry(b);
    enum err e = batch_flush(b);
    if (!e && (is_lost(r) || !reply_is(b, complete, 1)))
        e = ERR_NEEDS_TRUTH;
    if (!e && reply_is(b, known, 0))
        e = ERR_NOT_FOUND;
    if (!e && (!head_is_ready(reply_part(b, page, 1)) ||
               !read_page(reply_part(b, page, 0), out, max, n))) {
        *n = 0;
        e = ERR_NEEDS_TRUTH;
    }
    if (e)
        watch_spoil(link_watch(r->link)); /* truth will be asked instead */
    batch_return(r, b);
    return e;
}
