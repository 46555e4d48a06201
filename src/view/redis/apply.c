/* Changes: applies a commit to the views.
 *
 * A follow lies in two slots, the follower's and the author's, and no act spans both. Each side
 * decides by the event which change is the latest, so in the end both agree, whatever came first;
 * in between one side only may know of it, and apply() has not returned yet. A membership is kept
 * in the same way. The member's side of it is the inbox; a group has nothing but its members and
 * the latest events that changed them.
 *
 * Whose posts a reader must pull is kept with the reader, since a look at every followee would cost
 * more than the page. So followers have to learn of an author's first pulled post: the first page
 * of them does here, all others through the engine (spread.c). Who follows later learns it from the
 * reply to the follow. An author too many is harmless: home() checks the followees anyway.
 *
 * Clearing takes along which event changed an edge last. A change that was on its way meanwhile may
 * come after the views were loaded again, and be older than what was loaded: so a call that took
 * its time looks whether there was a clearing, and fails if so. Its caller has the views loaded
 * once more. */
#include "port/event.h"
#include "view/redis/driver.h"

enum {
    CHANGES_A_FLUSH = 1024,
    COMMANDS_A_FLUSH = 4096,
    LOAD_MIN = 256,
    FOLLOWS_MIN = 64,        /* that stand one behind the other: they go by account, */
    FOLLOWS_MAX = 64 * 1024, /* so many in one call */
    SLOW_MS = 20
};

/* ---- queueing; each kind has a fixed number of commands, taken up again in note_… ---- */

static void queue_account(struct batch *b, uint64_t id, uint32_t seen, bool empty)
{
    batch_script(b, SCRIPT_account, arg_people(id), arg_account(KEY_TIMELINE, id),
                 arg_account(KEY_INBOX, id), arg_number(id), arg_number(seen), arg_number(empty));
}

/* The arguments of scripts that change an edge. */
#define ARG_CHANGE(c)                                                                              \
    arg_number((c)->on), arg_number(event_score((c)->event)), arg_number(RECENT_KEEP_MS)

static void queue_edge(struct batch *b, const struct view_change *c)
{
    bool follow = c->kind == VIEW_FOLLOW;
    batch_script(b, SCRIPT_edge, arg_people(c->account), arg_account(KEY_TIMELINE, c->account),
                 arg_account(follow ? KEY_FOLLOWED : KEY_MUTED, c->account),
                 arg_account(KEY_RECENT, c->account), arg_number(c->account), arg_number(c->other),
                 ARG_CHANGE(c), arg_text(follow ? "f" : "m"));
}

static void queue_followed(struct batch *b, const struct view_change *c)
{
    batch_script(b, SCRIPT_followed, arg_people(c->other), arg_account(KEY_TIMELINE, c->other),
                 arg_account(KEY_FOLLOWERS, c->other), arg_account(KEY_RECENT, c->other),
                 arg_account(KEY_PULL_LIST, c->other), arg_number(c->other), arg_id(c->account),
                 ARG_CHANGE(c));
}

static void queue_hide(struct redis_views *r, struct batch *b, const struct view_change *c)
{
    for (size_t i = 0; i < r->copies; i++)
        batch_script(b, SCRIPT_hide, arg_key(r->hidden[i]), arg_key(r->hidden_recent[i]),
                     arg_number(c->account), ARG_CHANGE(c));
}

static void queue_post(struct redis_views *r, struct batch *b, const struct view_change *c)
{
    struct arg people = arg_people(c->account), timeline = arg_account(KEY_TIMELINE, c->account),
               pull_list = arg_account(KEY_PULL_LIST, c->account);
    if (c->on)
        batch_script(b, SCRIPT_posted, people, timeline, pull_list,
                     arg_key(key_of_bucket(KEY_SPREAD, bucket_of(c->account))),
                     arg_number(c->account), arg_post(c->other),
                     arg_number(c->value == DELIVERY_PULL), arg_number(r->views.cap),
                     arg_number(r->pull_cap));
    else
        batch_script(b, SCRIPT_unposted, people, timeline, pull_list, arg_number(c->account),
                     arg_id(c->other));
}

static void queue_member(struct batch *b, const struct view_change *c)
{
    batch_script(b, SCRIPT_member, arg_people(c->account), arg_account(KEY_TIMELINE, c->account),
                 arg_account(KEY_INBOX, c->account), arg_account(KEY_RECENT, c->account),
                 arg_number(c->account), arg_id(c->other), ARG_CHANGE(c),
                 arg_number(event_score(change_activity(c))));
    batch_script(b, SCRIPT_joined, arg_account(KEY_FOLLOWERS, c->other),
                 arg_account(KEY_RECENT, c->other), arg_id(c->account), ARG_CHANGE(c));
}

static void queue_message(struct batch *b, const struct view_change *c)
{
    batch_script(b, SCRIPT_message, arg_account(KEY_INBOX, c->account),
                 arg_number(event_score(change_activity(c))), arg_id(c->other));
}

static bool names_itself(const struct view_change *c)
{
    return c->kind == VIEW_FOLLOW && c->account == c->other;
}

static bool names_two(enum view_change_kind kind)
{
    return kind == VIEW_FOLLOW || kind == VIEW_MUTE || kind == VIEW_MEMBER || kind == VIEW_MESSAGE;
}

/* `empty`: what is said to be a new account may be taken for one. */
static void queue_change(struct redis_views *r, struct batch *b, const struct view_change *c,
                         bool empty)
{
    switch (c->kind) {
    case VIEW_ACCOUNT:
    case VIEW_LAST_SEEN:
        queue_account(b, c->account, seen_seconds(c->value), empty);
        break;
    case VIEW_HIDE:
        queue_account(b, c->account, 0, false);
        queue_hide(r, b, c);
        break;
    case VIEW_FOLLOW:
        if (!names_itself(c)) {
            queue_edge(b, c);
            queue_followed(b, c);
        }
        break;
    case VIEW_MUTE:
        queue_edge(b, c);
        queue_account(b, c->other, 0, false);
        break;
    case VIEW_POST:
        queue_post(r, b, c);
        break;
    case VIEW_MEMBER:
        queue_member(b, c);
        break;
    case VIEW_MESSAGE:
        queue_message(b, c);
        break;
    }
}

/* ---- what came of it ---- */

static void note_account(struct redis_views *r, int64_t is_new, bool empty)
{
    tally_add(r, TALLY_ACCOUNTS, is_new);
    tally_add(r, TALLY_DROPPED, empty ? 0 : is_new);
    tally_add(r, TALLY_INBOXES, empty ? is_new : 0);
}

struct follow_up {
    bool empty[CHANGES_A_FLUSH]; /* by change: a new account with an empty timeline */
    struct batch *told;          /* followers who learn of a pull list: the second batch */
    uint64_t spread[CHANGES_A_FLUSH];
    size_t spread_count;
};

/* Reads the replies to one change, from command `at` on; returns where the next one's begin. */
static size_t note_change(struct redis_views *r, struct batch *b, const struct view_change *c,
                          size_t at, bool empty, struct follow_up *f)
{
    switch (c->kind) {
    case VIEW_ACCOUNT:
    case VIEW_LAST_SEEN:
        note_account(r, batch_integer(b, at, 0), empty);
        return at + 1;
    case VIEW_HIDE:
        note_account(r, batch_integer(b, at, 0), false);
        return at + 1 + r->copies;
    case VIEW_FOLLOW:
        if (names_itself(c))
            return at;
        note_account(r, reply_number(b, at, 0), false);
        note_account(r, reply_number(b, at + 1, 0), false);
        tally_add(r, TALLY_FOLLOWS, reply_number(b, at + 1, 1));
        if (c->on && reply_number(b, at + 1, 2) == 1)
            tell_of_pull_list(f->told, c->account, c->other);
        return at + 2;
    case VIEW_MUTE:
        note_account(r, reply_number(b, at, 0), false);
        note_account(r, batch_integer(b, at + 1, 0), false);
        return at + 2;
    case VIEW_POST:
        note_account(r, reply_number(b, at, 0), false);
        tally_add(r, TALLY_ENTRIES, reply_number(b, at, 1));
        tally_add(r, TALLY_PULL_LISTS, reply_number(b, at, 2));
        if (reply_number(b, at, 3) == 1)
            f->spread[f->spread_count++] = c->account;
        return at + 1;
    case VIEW_MEMBER:
        note_account(r, reply_number(b, at, 0), false);
        tally_add(r, TALLY_INBOX_ENTRIES, reply_number(b, at, 1));
        tally_add(r, TALLY_MEMBERSHIPS, reply_number(b, at + 1, 0));
        tally_add(r, TALLY_GROUPS, reply_number(b, at + 1, 1));
        return at + 2;
    case VIEW_MESSAGE:
        tally_add(r, TALLY_INBOX_ENTRIES, batch_integer(b, at, 0));
        return at + 1;
    }
    return at;
}

/* ---- the second half ---- */

/* A visit is never before the start of a walk that is under way, whatever the clock says: both
 * halves of the walk would pass over an account that seems to have come between its two moments.
 * The visit was noted first and the walk is looked for afterwards: a walk that begins in between
 * either meets the visit or is seen here. */
static enum err raise_visits(struct batch *b, const struct view_change *changes, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= changes[i].kind == VIEW_LAST_SEEN;
    if (!any)
        return OK;
    uint64_t walked = 0;
    batch_reset(b);
    batch_command(b, "GET", arg_key(WALKED_KEY));
    TRY(batch_flush(b, FLUSH_WAIT));
    if (!str_parse_u64(batch_text(b, 0), &walked))
        return OK;
    batch_reset(b);
    for (size_t i = 0; i < n; i++)
        if (changes[i].kind == VIEW_LAST_SEEN && seen_seconds(changes[i].value) < walked)
            queue_account(b, changes[i].account, (uint32_t)walked, false);
    return batch_flush(b, FLUSH_WAIT);
}

/* "A new account, and its timeline is empty": true the first time. Applied again after everything
 * was lost, it would make an old account's timeline look complete: also when everything is cleared
 * between this look and the change. So the epoch is looked at before and after (look_for_clearing);
 * *epoch is 0 when no account is taken for a new one. */
static enum err look_at_new(struct redis_views *r, struct batch *b,
                            const struct view_change *changes, size_t n, bool *empty,
                            uint64_t *epoch)
{
    *epoch = 0;
    for (size_t i = 0; i < n; i++) {
        empty[i] = changes[i].kind == VIEW_ACCOUNT && changes[i].on;
        if (!empty[i])
            continue;
        if (batch_count(b) == 0)
            batch_command(b, "GET", arg_key(EPOCH_KEY));
        queue_complete(r, b, changes[i].account);
    }
    TRY(batch_flush(b, FLUSH_WAIT));
    uint64_t found = 0; /* none: everything was lost, or is being cleared */
    if (batch_count(b) > 0)
        (void)str_parse_u64(batch_text(b, 0), &found);
    for (size_t i = 0, at = 1; i < n; i++) {
        if (!empty[i])
            continue;
        empty[i] = found && reply_is(b, at++, 1) && !is_lost(r);
        *epoch = empty[i] ? found : *epoch;
    }
    batch_reset(b);
    return OK;
}

static bool names_events(const struct view_change *changes, size_t n)
{
    bool events = false;
    for (size_t i = 0; i < n; i++)
        events |= changes[i].event != 0;
    return events;
}

/* Many at once come from a loader: a replica that has its last mark has them all. */
static bool is_load(const struct view_change *changes, size_t n)
{
    return n >= LOAD_MIN && !names_events(changes, n);
}

static bool is_follow(const struct view_change *c)
{
    return c->kind == VIEW_FOLLOW && c->on;
}

/* How many changes go by account: new follows, which all name an event, or none does. 0: too few.
 */
static size_t count_follows(const struct view_change *changes, size_t n)
{
    size_t i = 0;
    while (i < n && i < FOLLOWS_MAX && is_follow(&changes[i]) &&
           !changes[i].event == !changes[0].event)
        i++;
    return i >= (changes[0].event ? FOLLOWS_MIN : LOAD_MIN) ? i : 0;
}

/* As many others as go in one breath. */
static size_t count_some(const struct redis_views *r, const struct view_change *changes, size_t n)
{
    size_t commands = 0, count = 0;
    while (count < n && count < CHANGES_A_FLUSH && commands < COMMANDS_A_FLUSH) {
        bool begins = count > 0 && is_follow(&changes[count]) && !is_follow(&changes[count - 1]);
        if (begins && count_follows(changes + count, n - count) > 0)
            break;
        commands += changes[count++].kind == VIEW_HIDE ? 1 + r->copies : 2;
    }
    return count;
}

static enum err look_for_clearing(struct redis_views *r, uint64_t epoch)
{
    uint64_t now;
    TRY(client_epoch(&r->client, FLUSH_WAIT, &now));
    if (now == epoch)
        return OK;
    atomic_store(&r->epoch_seen, now);
    return ERR_UNAVAILABLE;
}

/* The first followers of each. What fails here, or is left, is the engine's work: it may lag. */
static void spread_some(struct redis_views *r, const struct follow_up *f)
{
    size_t told;
    bool more;
    for (size_t i = 0; i < f->spread_count; i++)
        if (i == 0 || f->spread[i] != f->spread[i - 1])
            (void)redis_spread(&r->timelines, f->spread[i], &told, &more);
}

static enum err apply_some(struct redis_views *r, const struct view_change *changes, size_t n)
{
    BORROWED struct batch *b = batch_borrow(&r->client);
    BORROWED struct batch *told = batch_borrow(&r->client);
    struct follow_up f = {.told = told};
    uint64_t epoch;
    enum err e = look_at_new(r, b, changes, n, f.empty, &epoch);
    for (size_t i = 0; !e && i < n; i++)
        queue_change(r, b, &changes[i], f.empty[i]);
    if (!e)
        e = batch_flush(b, FLUSH_GOOD | (is_load(changes, n) ? 0 : FLUSH_REPLICATE));
    for (size_t i = 0, at = 0; !e && i < n; i++)
        at = note_change(r, b, &changes[i], at, f.empty[i], &f);
    if (!e)
        e = batch_flush(f.told, FLUSH_GOOD);
    if (!e)
        spread_some(r, &f);
    if (!e)
        e = raise_visits(b, changes, n);
    if (!e && epoch)
        e = look_for_clearing(r, epoch);
    return e;
}

enum err redis_apply(struct views *v, const struct view_change *changes, size_t n)
{
    struct redis_views *r = CONTAINER_OF(v, struct redis_views, views);
    uint64_t epoch = atomic_load(&r->epoch_seen);
    int64_t began_ms = clock_mono_ms(clock_system());
    enum err e = OK;
    for (size_t i = 0; i < n; i++)
        if (changes[i].account == 0 || (changes[i].other == 0 && names_two(changes[i].kind)))
            return ERR_BAD_INPUT;
    for (size_t from = 0, count; !e && from < n; from += count) {
        count = count_follows(changes + from, n - from);
        if (count > 0) {
            e = redis_add_follows(r, changes + from, count);
        } else {
            count = count_some(r, changes + from, n - from);
            e = apply_some(r, changes + from, count);
        }
    }
    if (!e && clock_mono_ms(clock_system()) - began_ms >= SLOW_MS && names_events(changes, n))
        e = look_for_clearing(r, epoch);
    tally_pour(r);
    return e;
}
