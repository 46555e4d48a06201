/* What must hold of groups, at any moment:
 *   - a group's log has no gap and nothing twice, and ends with the group's own number;
 *   - all members read the same entries, from their joining on where the history is closed, up to
 *     their leaving where they left;
 *   - nothing that was deleted has a text, for any reader, and in the store;
 *   - what was acknowledged is there under its number, once;
 *   - a client that follows the log entry by entry shows what one that reads everything shows;
 *   - an inbox that the views call complete falls, names nothing twice, has every group that its
 *     owner is in, and their own messages at once; it runs ahead of truth nowhere. (Shared views
 *     outlive a crash: what died after its COMMIT, unanswered, reaches them with the leader's walk
 *     through the events, and a server that is alone catches up before it reads anything.)
 *   - what the cards say of a group and its member is what truth says, whatever happened between a
 *     look at truth and the keeping of what was seen.
 * Drained, every inbox is what inbox_from_truth says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group_sim.h"
#include "model/inbox_cards.h"

/* ---- logs ---- */

struct read_log {
    uint64_t group, reader;
    struct log_range range;
    struct arena *arena;
    struct log_page page;
};

static enum err read_log(struct tx *tx, void *arg)
{
    struct read_log *r = arg;
    return group_log_read(tx, r->group, r->reader, &r->range, r->arena, &r->page);
}

/* The next entries after `after`, for a present or former member. */
static struct log_page log_page(struct history *h, size_t person, size_t group, int64_t after,
                                size_t limit, struct arena *arena)
{
    struct read_log r = {.group = h->groups[group],
                         .reader = h->people[person],
                         .range = {.after = after, .limit = limit},
                         .arena = arena};
    arena_reset(arena);
    enum err e = db_read(h->w->db, read_log, &r, NULL);
    if (e)
        failed(h, "reading the log of group %zu says %s", group, err_name(e));
    return r.page;
}

static const char *body_of(const struct group_entry *entry)
{
    return entry->body.ptr ? entry->body.ptr : "";
}

/* What all readers must agree on. */
struct canon {
    bool known;
    char what[160], body[BODY_MAX];
};

static void agree(struct history *h, size_t group, struct canon *c, const struct group_entry *entry)
{
    char what[sizeof c->what];
    const char *body = body_of(entry);
    bool gone = entry->deleted;
    int64_t seq = entry->seq;
    snprintf(what, sizeof what, "%s by %llu at %lld, deleted %d, target %lld, subject %llu",
             group_entry_kind_name(entry->kind), (unsigned long long)entry->author,
             (long long)entry->created_at_ms, gone, (long long)entry->target_seq,
             (unsigned long long)entry->subject);
    if (gone && body[0])
        failed(h, "entry %lld of group %zu is deleted and still read", (long long)seq, group);
    if (c->known && strcmp(c->what, what) != 0)
        failed(h, "entry %lld of group %zu is '%s' to one and '%s' to another", (long long)seq,
               group, c->what, what);
    if (c->known && c->body[0] && body[0] && strcmp(c->body, body) != 0)
        failed(h, "entry %lld of group %zu reads '%s' to one and '%s' to another", (long long)seq,
               group, c->body, body);
    c->known = true;
    snprintf(c->what, sizeof c->what, "%s", what);
    if (body[0])
        snprintf(c->body, sizeof c->body, "%s", body);
}

static int64_t ask(struct history *h, const char *sql, size_t group, size_t person)
{
    return world_i64(h->w, sql, DB_ARGS(DB_I64(h->groups[group]), DB_I64(h->people[person])));
}

struct sight {
    int64_t first, last;
    bool member;
};

static struct sight sight_of(struct history *h, size_t group, size_t person)
{
    return (struct sight){
        .first = ask(h,
                     "SELECT CASE WHEN g.history = 1 THEN 1 ELSE m.joined_seq END FROM groups g "
                     "JOIN group_members m ON m.group_id = g.id WHERE g.id = $1 "
                     "AND m.account_id = $2",
                     group, person),
        .last = ask(h,
                    "SELECT COALESCE(m.left_seq, g.seq) FROM groups g JOIN group_members m "
                    "ON m.group_id = g.id WHERE g.id = $1 AND m.account_id = $2",
                    group, person),
        .member = ask(h,
                      "SELECT COUNT(*) FROM group_members WHERE group_id = $1 "
                      "AND account_id = $2 AND left_seq IS NULL",
                      group, person) == 1};
}

static bool was_member(struct history *h, size_t group, size_t person)
{
    return ask(h, "SELECT COUNT(*) FROM group_members WHERE group_id = $1 AND account_id = $2",
               group, person) == 1;
}

static void check_reader(struct history *h, size_t group, size_t person, struct canon *canon)
{
    struct sight sight = sight_of(h, group, person);
    int64_t after = 0, expected = sight.first;
    struct arena arena;
    arena_init(&arena);
    do {
        struct log_page page = log_page(h, person, group, after, 1 + below(h, 50), &arena);
        for (size_t i = 0; i < page.count; i++) {
            const struct group_entry *entry = &page.entries[i];
            if (entry->seq != expected || expected > sight.last)
                failed(h, "%zu reads %lld of group %zu where %lld comes next", person,
                       (long long)entry->seq, group, (long long)expected);
            agree(h, group, &canon[expected++], entry);
        }
        after = page.next;
    } while (after);
    arena_done(&arena);
    if (expected != sight.last + 1)
        failed(h, "%zu reads group %zu up to %lld instead of %lld", person, group,
               (long long)expected - 1, (long long)sight.last);
}

static void check_group(struct history *h, size_t group)
{
    static struct canon canon[ENTRIES_MAX];
    memset(canon, 0, sizeof canon);
    int64_t gaps = world_i64(h->w,
                             "SELECT g.seq - COUNT(l.seq) + g.seq - MAX(l.seq) FROM groups g "
                             "JOIN group_log l ON l.group_id = g.id WHERE g.id = $1 "
                             "GROUP BY g.id, g.seq",
                             DB_ARGS(DB_I64(h->groups[group])));
    int64_t left = world_i64(h->w,
                             "SELECT COUNT(*) FROM group_log WHERE group_id = $1 "
                             "AND deleted_at IS NOT NULL AND body IS NOT NULL",
                             DB_ARGS(DB_I64(h->groups[group])));
    if (gaps || left)
        failed(h, "group %zu: %lld numbers are missing, %lld deleted texts are stored", group,
               (long long)gaps, (long long)left);
    for (size_t i = 0; i < h->people_count; i++)
        if (was_member(h, group, i))
            check_reader(h, group, i, canon);
    for (size_t i = 0; i < h->sent_count; i++) {
        const struct sent *s = &h->sent[i];
        const struct canon *c = &canon[s->seq];
        if (s->group == group && c->known && strncmp(c->what, "message by ", 11) != 0)
            failed(h, "%lld of group %zu was answered as a message and is a %s", (long long)s->seq,
                   group, c->what);
        if (s->group == group && c->known && !s->changed && strcmp(c->body, s->body) != 0)
            failed(h, "message %lld of group %zu was '%s' and is '%s'", (long long)s->seq, group,
                   s->body, c->body);
    }
}

/* ---- clients that follow ---- */

static void follow(struct copy *c, const struct group_entry *entry)
{
    int64_t seq = entry->seq, target = entry->target_seq;
    c->last = seq;
    if (entry->kind == ENTRY_MESSAGE)
        snprintf(c->body[seq], BODY_MAX, "%s", body_of(entry));
    else if (entry->kind == ENTRY_EDIT && target >= c->joined)
        snprintf(c->body[target], BODY_MAX, "%s", entry->deleted ? "" : body_of(entry));
    else if (entry->kind == ENTRY_DELETE || entry->kind == ENTRY_MODERATION)
        c->body[target][0] = '\0';
}

static void compare_copy(struct history *h, size_t person, size_t group, const struct copy *c)
{
    int64_t after = c->joined - 1;
    struct arena arena;
    arena_init(&arena);
    do {
        struct log_page page = log_page(h, person, group, after, 100, &arena);
        for (size_t i = 0; i < page.count; i++) {
            const struct group_entry *entry = &page.entries[i];
            if (entry->kind == ENTRY_MESSAGE && strcmp(body_of(entry), c->body[entry->seq]) != 0)
                failed(h, "the client of %zu shows %lld of group %zu as '%s', which is '%s'",
                       person, (long long)entry->seq, group, c->body[entry->seq], body_of(entry));
        }
        after = page.next;
    } while (after);
    arena_done(&arena);
}

/* Some pages further; when it is up to date it must show what is. */
void check_client(struct history *h, size_t person, size_t group)
{
    struct copy *c = &h->copies[person][group];
    if (!was_member(h, group, person) || !sight_of(h, group, person).member)
        return;
    int64_t joined = ask(h,
                         "SELECT joined_seq FROM group_members WHERE group_id = $1 "
                         "AND account_id = $2",
                         group, person);
    if (joined != c->joined) {
        memset(c, 0, sizeof *c);
        c->joined = joined;
        c->last = joined - 1;
    }
    int64_t next = 1;
    struct arena arena;
    arena_init(&arena);
    for (uint64_t pages = 1 + below(h, 8); pages > 0 && next; pages--) {
        struct log_page page = log_page(h, person, group, c->last, 1 + below(h, 20), &arena);
        for (size_t i = 0; i < page.count; i++)
            follow(c, &page.entries[i]);
        next = page.next;
    }
    arena_done(&arena);
    if (!next)
        compare_copy(h, person, group, c);
}

/* ---- inboxes ---- */

struct truth {
    uint64_t account;
    struct inbox_entry entries[TRUTH_MAX];
    size_t n;
    struct inbox_item items[TRUTH_MAX];
    struct arena arena;
};

static int falling(const void *a, const void *b)
{
    const struct inbox_entry *x = a, *y = b;
    return x->activity < y->activity ? 1 : x->activity > y->activity ? -1 : 0;
}

static enum err read_truth(struct tx *tx, void *arg)
{
    struct truth *t = arg;
    enum err e = OK;
    t->n = 0;
    for (int archived = 0; !e && archived < 2; archived++) {
        uint64_t groups[TRUTH_MAX], activities[TRUTH_MAX];
        size_t n;
        e = inbox_from_truth(tx, t->account, UINT64_MAX, archived, GROUPS_MAX, groups, activities,
                             &n);
        for (size_t i = 0; !e && i < n; i++)
            t->entries[t->n++] = (struct inbox_entry){groups[i], activities[i]};
    }
    qsort(t->entries, t->n, sizeof *t->entries, falling);
    return e;
}

/* Their content: nothing from before a joining, no deleted text. */
static enum err read_items(struct tx *tx, void *arg)
{
    struct truth *t = arg;
    uint64_t groups[TRUTH_MAX];
    size_t count;
    for (size_t i = 0; i < t->n; i++)
        groups[i] = t->entries[i].group;
    enum err e = inbox_items(tx, t->account, groups, t->n, &t->arena, t->items, &count);
    return e ? e : count == t->n ? OK : ERR_INTERNAL;
}

static void check_items(struct history *h, struct truth *t)
{
    arena_init(&t->arena);
    EXPECT(db_read(h->w->db, read_items, t, NULL) == OK);
    for (size_t i = 0; i < t->n; i++) {
        const struct inbox_item *item = &t->items[i];
        const struct group_entry *last = &item->last;
        if (last->seq && last->deleted && last->body.ptr)
            failed(h, "an inbox shows a deleted text");
        if (last->seq && item->group.history == GROUP_HISTORY_JOINED &&
            last->seq < item->group.joined_seq)
            failed(h, "an inbox shows a message from before the joining");
    }
    arena_done(&t->arena);
}

static bool same_text(struct str a, struct str b)
{
    return str_eq(a, b) && !a.ptr == !b.ptr;
}

static bool same_group(const struct group *a, const struct group *b)
{
    return a->id == b->id && a->kind == b->kind && same_text(a->name, b->name) &&
           a->history == b->history && a->member_count == b->member_count && a->seq == b->seq &&
           a->messages == b->messages && a->last_seq == b->last_seq && a->last_id == b->last_id &&
           a->role == b->role && a->joined_seq == b->joined_seq && a->read_seq == b->read_seq &&
           a->read_count == b->read_count && a->joined_id == b->joined_id && a->muted == b->muted &&
           a->archived == b->archived && a->peer.id == b->peer.id &&
           (!a->peer.id || (same_text(a->peer.username, b->peer.username) &&
                            same_text(a->peer.display_name, b->peer.display_name) &&
                            same_text(a->peer.avatar_url, b->peer.avatar_url)));
}

static bool same_item(const struct inbox_item *a, const struct inbox_item *b)
{
    const struct group_entry *x = &a->last, *y = &b->last;
    return same_group(&a->group, &b->group) && a->activity == b->activity && a->peer == b->peer &&
           a->unread == b->unread && a->mentions == b->mentions && x->seq == y->seq &&
           x->author == y->author && same_text(x->client_id, y->client_id) &&
           same_text(x->body, y->body) && x->created_at_ms == y->created_at_ms &&
           x->edited_at_ms == y->edited_at_ms && x->deleted == y->deleted;
}

/* Of all groups there are, also of those that the person is not in. */
struct rows {
    uint64_t account, groups[GROUPS_MAX];
    size_t n, count;
    struct inbox_item items[GROUPS_MAX];
    struct arena arena;
};

static enum err read_rows(struct tx *tx, void *arg)
{
    struct rows *r = arg;
    return inbox_rows(tx, r->account, r->groups, r->n, &r->arena, r->items, &r->count);
}

/* As a reader does it; other things happen between its look at truth and what it keeps of it. */
static void fill_cards(struct history *h, struct inbox_look *look, struct rows *r, bool alone)
{
    inbox_fill_begin(look);
    if (!alone && below(h, 4) == 0)
        meanwhile(h);
    EXPECT(db_read(h->w->db, read_rows, r, NULL) == OK);
    if (!alone && below(h, 4) == 0)
        meanwhile(h);
    inbox_fill_end(look, r->items, r->count, &r->arena);
}

static void check_cards(struct history *h, size_t person, bool alone)
{
    struct inbox_look look; /* acts in between look themselves */
    struct inbox_item shown[GROUPS_MAX];
    struct rows r = {.account = h->people[person], .n = h->group_count};
    struct cards *cards = h->w->cards;
    size_t count = 0;
    if (cards->shared || r.n == 0)
        return;
    arena_init(&r.arena);
    memcpy(r.groups, h->groups, r.n * sizeof r.groups[0]);
    bool known = inbox_look(&look, cards, r.account, r.groups, r.n, &r.arena, shown, &count);
    for (int i = 0; !known && i < (alone ? 2 : 1); i++) { /* of a chat, the second counts */
        fill_cards(h, &look, &r, alone);
        known = inbox_look(&look, cards, r.account, r.groups, r.n, &r.arena, shown, &count);
    }
    if (alone && !known)
        failed(h, "the cards do not keep what %zu has read", person);
    EXPECT(db_read(h->w->db, read_rows, &r, NULL) == OK);
    if (known && count != r.count)
        failed(h, "the cards know %zu of %zu groups of %zu", count, r.count, person);
    for (size_t i = 0; known && i < count; i++) {
        if (!same_item(&shown[i], &r.items[i]))
            failed(h, "the card of group %llu is not what truth shows to %zu",
                   (unsigned long long)r.items[i].group.id, person);
    }
    arena_done(&r.arena);
}

/* Shared views know an activity without its node. */
static uint64_t known(const struct history *h, uint64_t activity)
{
    uint64_t node = ((UINT64_C(1) << ID_NODE_BITS) - 1) << ID_COUNTER_BITS;
    return h->w->views->remote ? activity & ~node : activity;
}

/* False: truth has to be asked. */
static bool read_view(struct history *h, size_t person, struct inbox_entry *out, size_t *n)
{
    uint64_t from = UINT64_MAX;
    size_t got;
    *n = 0;
    do {
        size_t max = 1 + below(h, GROUPS_MAX);
        enum err e =
            inboxes_read(h->w->views->inboxes, h->people[person], from, out + *n, max, &got);
        if (e == ERR_NEEDS_TRUTH)
            return false;
        if (e || got > max || *n + got > TRUTH_MAX - GROUPS_MAX)
            failed(h, "the inbox of %zu says %s and %zu", person, err_name(e), *n + got);
        for (size_t i = *n; i < *n + got; i++) {
            if (out[i].activity >= from)
                failed(h, "the inbox of %zu does not fall", person);
            for (size_t k = 0; k < i; k++)
                if (out[k].group == out[i].group)
                    failed(h, "the inbox of %zu names a group twice", person);
            from = out[i].activity;
        }
        *n += got;
    } while (got > 0);
    return true;
}

/* As a reader does it; other things happen between its two questions. */
static void rebuild(struct history *h, size_t person, bool alone)
{
    struct truth t = {.account = h->people[person]};
    enum err e = inboxes_begin(h->w->views->inboxes, h->people[person]);
    if (e == ERR_CONFLICT && !alone)
        return;
    EXPECT(e == OK);
    if (!alone)
        meanwhile(h);
    EXPECT(db_read(h->w->db, read_truth, &t, NULL) == OK);
    if (!alone)
        meanwhile(h);
    e = below(h, 8) || alone ? inboxes_end(h->w->views->inboxes, h->people[person], t.entries, t.n)
                             : inboxes_give_up(h->w->views->inboxes, h->people[person]);
    EXPECT(e == OK || (e == ERR_CONFLICT && !alone));
}

static size_t find(const struct inbox_entry *entries, size_t n, uint64_t group)
{
    size_t i = 0;
    while (i < n && entries[i].group != group)
        i++;
    return i;
}

void check_inbox(struct history *h, size_t person)
{
    struct inbox_entry view[TRUTH_MAX];
    struct truth t = {.account = h->people[person]};
    size_t n;
    if (h->deleted[person])
        return;
    if (below(h, 2))
        world_apply(h->w, (struct view_change){.kind = VIEW_LAST_SEEN,
                                               .account = h->people[person],
                                               .value = clock_wall_ms(&h->w->clock.clock)});
    check_cards(h, person, false);
    if (!read_view(h, person, view, &n)) {
        if (below(h, 4))
            rebuild(h, person, false);
        return;
    }
    EXPECT(db_read(h->w->db, read_truth, &t, NULL) == OK);
    check_items(h, &t);
    for (size_t i = 0; i < t.n; i++) {
        size_t at = find(view, n, t.entries[i].group), group = 0;
        while (h->groups[group] != t.entries[i].group)
            group++;
        if (at == n && h->untold)
            continue;
        if (at == n)
            failed(h, "group %zu is missing in the inbox of %zu", group, person);
        if (view[at].activity > known(h, t.entries[i].activity))
            failed(h, "the inbox of %zu is ahead of truth in group %zu", person, group);
        if (view[at].activity < known(h, h->own[person][group]))
            failed(h, "%zu's own message in group %zu has not reached the own inbox", person,
                   group);
    }
}

static void check_inbox_exact(struct history *h, size_t person)
{
    struct inbox_entry view[TRUTH_MAX];
    struct truth t = {.account = h->people[person]};
    size_t n, at = 0;
    check_cards(h, person, true);
    if (!read_view(h, person, view, &n)) {
        rebuild(h, person, true);
        if (!read_view(h, person, view, &n))
            failed(h, "the inbox of %zu cannot be made", person);
    }
    EXPECT(db_read(h->w->db, read_truth, &t, NULL) == OK);
    check_items(h, &t);
    for (size_t i = 0; i < n; i++) {
        if (find(t.entries, t.n, view[i].group) == t.n)
            continue; /* left */
        if (at == t.n || t.entries[at].group != view[i].group ||
            known(h, t.entries[at].activity) != view[i].activity)
            failed(h,
                   "the drained inbox of %zu differs at %zu: group %llu, %llu; truth: %llu, %llu",
                   person, at, (unsigned long long)view[i].group,
                   (unsigned long long)view[i].activity, (unsigned long long)t.entries[at].group,
                   (unsigned long long)t.entries[at].activity);
        at++;
    }
    if (at != t.n)
        failed(h, "the drained inbox of %zu has %zu of %zu groups", person, at, t.n);
}

void check_exact(struct history *h)
{
    world_drain(h->w);
    h->untold = false;
    for (size_t i = 0; i < h->people_count; i++)
        if (!h->deleted[i])
            check_inbox_exact(h, i);
    for (size_t i = 0; i < h->group_count; i++)
        check_group(h, i);
}
