/* Groups and inboxes against truth.
 *
 * An inbox is read as its owner would and compared with the oracle, page by page, the archived
 * groups apart. One that is not in memory is passed over: it is made from truth when it is read.
 * Putting it right is making it anew.
 *
 * A group's counters and members are compared by the first of its members, so that each group is
 * looked at once. Counting a long log from its beginning would take as long as it is; so its end is
 * counted, and added to what the entry before that end says, which was compared when it was
 * written. A member's read_count is that of the entry they have read. */
#include "model/inbox.h"
#include "model/rebuild.h"
#include "model/truth_check.h"

enum { GROUPS_SHOWN = 20, GROUPS_A_READ = 100, TAIL_MAX = 100000 };

/* ---- inboxes ---- */

static enum err read_oracle(struct tx *tx, void *arg)
{
    struct look *l = arg;
    size_t depth = l->check->depth;
    uint64_t *activities = ARENA_ARRAY(&l->check->arena, uint64_t, depth);
    return inbox_from_truth(tx, l->account, UINT64_MAX, l->archived, depth, l->oracle, activities,
                            &l->oracle_count);
}

static enum err read_shown(struct look *l)
{
    struct check *k = l->check;
    struct inbox_page *page = ARENA_NEW(&k->arena, struct inbox_page);
    uint64_t below = UINT64_MAX;
    l->shown_count = 0;
    while (below > 0 && l->shown_count < k->depth) {
        struct arena arena;
        size_t left = k->depth - l->shown_count;
        arena_init(&arena);
        enum err e = inbox_page_read(k->views, k->db, l->account, below, l->archived,
                                     left < INBOX_LIMIT_MAX ? left : INBOX_LIMIT_MAX, &arena, page);
        for (size_t i = 0; !e && i < page->count && l->shown_count < k->depth; i++)
            l->shown[l->shown_count++] = page->items[i].group.id;
        arena_done(&arena);
        if (e)
            return e;
        below = page->next_below;
    }
    return OK;
}

static size_t shown_of(size_t n)
{
    return n < GROUPS_SHOWN ? n : GROUPS_SHOWN;
}

/* Both from the first place at which they differ. */
static void report_inbox(struct check *k, const struct look *l)
{
    size_t from = 0;
    while (from < l->oracle_count && from < l->shown_count && l->oracle[from] == l->shown[from])
        from++;
    check_tell(k, &(struct check_difference){.kind = DIFFERENCE_INBOX,
                                             .account = l->account,
                                             .archived = l->archived,
                                             .from = from,
                                             .missing = l->oracle + from,
                                             .missing_count = shown_of(l->oracle_count - from),
                                             .extra = l->shown + from,
                                             .extra_count = shown_of(l->shown_count - from)});
}

static enum err repair_inbox(struct check *k, struct look *l)
{
    enum err e = inbox_rebuild(k->views, k->db, l->account, true);
    if (!e || e == ERR_CONFLICT) /* somebody else has begun to: the next look tells */
        e = look_at(l);
    if (!e && look_is_same(l))
        k->result->repaired++;
    return e;
}

enum err check_inbox(struct check *k, uint64_t account)
{
    struct inbox_entry first;
    size_t n;
    enum err e = inboxes_read(k->views->inboxes, account, UINT64_MAX, &first, 1, &n);
    if (e) /* dropped, being made, or not known: nothing derived to compare */
        return e == ERR_NEEDS_TRUTH || e == ERR_NOT_FOUND ? OK : e;
    k->result->inboxes++;
    for (int archived = 0; !e && archived < 2; archived++) {
        struct look l = {.check = k,
                         .account = account,
                         .archived = archived,
                         .read_oracle = read_oracle,
                         .read_shown = read_shown};
        e = look_at(&l);
        if (e || look_is_same(&l))
            continue;
        k->result->inbox_errors++;
        report_inbox(k, &l);
        if (k->repair)
            e = repair_inbox(k, &l);
    }
    return e;
}

/* ---- counters ---- */

enum group_counter { SEQ, MESSAGES, MEMBERS, LAST_SEQ, ENTRIES, GROUP_COUNTERS };
static const char *const names[] = {"seq", "messages", "member_count", "last_seq", "entries"};

struct group_counters {
    uint64_t account, after;
    size_t tail; /* entries counted */
    size_t count;
    struct {
        uint64_t id;
        int64_t stored[GROUP_COUNTERS], actual[GROUP_COUNTERS];
    } groups[GROUPS_A_READ];
};

static enum err read_groups(struct tx *tx, void *arg)
{
    struct group_counters *c = arg;
    c->count = 0;
    struct db_rows rows = tx_rows(
        tx,
        "SELECT g.id, g.seq, g.messages, g.member_count, g.last_seq, "
        "(SELECT MAX(l.seq) FROM group_log l WHERE l.group_id = g.id), "
        "COALESCE((SELECT l.messages FROM group_log l WHERE l.group_id = g.id "
        "AND l.seq = g.seq - $2), 0) + (SELECT COUNT(*) FROM group_log l "
        "WHERE l.group_id = g.id AND l.seq > g.seq - $2 AND l.kind = 0), "
        "(SELECT COUNT(*) FROM group_members o WHERE o.group_id = g.id AND o.left_seq IS NULL), "
        "COALESCE((SELECT l.seq FROM group_log l WHERE l.group_id = g.id AND l.kind = 0 "
        "ORDER BY l.seq DESC LIMIT 1), 0), "
        "(SELECT COUNT(*) FROM group_log l WHERE l.group_id = g.id AND l.seq > g.seq - $2) "
        "FROM group_members m JOIN groups g ON g.id = m.group_id "
        "WHERE m.account_id = $1 AND m.left_seq IS NULL AND NOT EXISTS (SELECT 1 "
        "FROM group_members f WHERE f.group_id = m.group_id AND f.account_id < $1 "
        "AND f.left_seq IS NULL) AND m.group_id > $3 ORDER BY m.group_id LIMIT $4",
        DB_ARGS(DB_I64(c->account), DB_I64(c->tail), DB_I64(c->after), DB_I64(GROUPS_A_READ)));
    for (; c->count < GROUPS_A_READ && db_next(&rows); c->count++) {
        int64_t *stored = c->groups[c->count].stored, *actual = c->groups[c->count].actual;
        c->groups[c->count].id = db_id(&rows, 0);
        for (int i = 0; i < GROUP_COUNTERS; i++) {
            stored[i] = i < ENTRIES ? db_i64(&rows, 1 + i) : 0;
            actual[i] = db_i64(&rows, 1 + ENTRIES + i);
        }
        /* Numbers have no gaps: so many entries are to be there. */
        stored[ENTRIES] = stored[SEQ] < (int64_t)c->tail ? stored[SEQ] : (int64_t)c->tail;
    }
    return db_rows_done(&rows);
}

struct group_repair {
    uint64_t id;
    size_t tail;
};

/* Whoever writes into a group takes its row first, and so does this: nothing comes in between. */
static enum err repair_group(struct tx *tx, void *arg)
{
    const struct group_repair *r = arg;
    TRY(tx_exec(tx, "UPDATE groups SET seq = seq WHERE id = $1", DB_ARGS(DB_I64(r->id)), NULL));
    TRY(tx_exec(tx,
                "UPDATE groups SET "
                "seq = COALESCE((SELECT MAX(l.seq) FROM group_log l WHERE l.group_id = $1), 0), "
                "member_count = (SELECT COUNT(*) FROM group_members o WHERE o.group_id = $1 "
                "AND o.left_seq IS NULL), "
                "last_seq = COALESCE((SELECT MAX(l.seq) FROM group_log l "
                "WHERE l.group_id = $1 AND l.kind = 0), 0) WHERE id = $1",
                DB_ARGS(DB_I64(r->id)), NULL));
    return tx_exec(tx,
                   "UPDATE groups SET messages = COALESCE((SELECT l.messages FROM group_log l "
                   "WHERE l.group_id = $1 AND l.seq = groups.seq - $2), 0) + "
                   "(SELECT COUNT(*) FROM group_log l WHERE l.group_id = $1 "
                   "AND l.seq > groups.seq - $2 AND l.kind = 0) WHERE id = $1",
                   DB_ARGS(DB_I64(r->id), DB_I64(r->tail)), NULL);
}

static enum err check_group(struct check *k, const struct group_counters *c, size_t i)
{
    bool wrong = false;
    for (int n = 0; n < GROUP_COUNTERS; n++) {
        int64_t stored = c->groups[i].stored[n], actual = c->groups[i].actual[n];
        k->result->counters++;
        wrong = wrong || stored != actual;
        if (stored != actual)
            check_tell_counter(k, (struct check_difference){.group = c->groups[i].id}, names[n],
                               stored, actual);
    }
    if (!wrong || !k->repair)
        return OK;
    struct group_repair repair = {c->groups[i].id, c->tail};
    enum err e = db_write(k->db, repair_group, &repair, NULL);
    k->result->repaired += !e;
    return e;
}

static enum err check_groups(struct check *k, uint64_t account)
{
    struct group_counters *c = ARENA_NEW(&k->arena, struct group_counters);
    enum err e;
    c->account = account;
    c->tail = k->depth < TAIL_MAX ? k->depth : TAIL_MAX;
    do {
        e = db_read(k->db, read_groups, c, NULL);
        for (size_t i = 0; !e && i < c->count; i++)
            e = check_group(k, c, i);
        for (size_t i = 0; !e && k->members && i < c->count; i++)
            e = check_graph(k, c->groups[i].id, CHECK_MEMBERS);
        if (!e && c->count > 0)
            c->after = c->groups[c->count - 1].id;
    } while (!e && c->count == GROUPS_A_READ);
    return e;
}

/* ---- read marks ---- */

struct read_marks {
    uint64_t account, after, last; /* the last one met */
    size_t seen, count;
    struct {
        uint64_t group;
        int64_t stored, actual;
    } wrong[GROUPS_A_READ];
};

static enum err read_marks(struct tx *tx, void *arg)
{
    struct read_marks *m = arg;
    m->count = 0;
    m->seen = 0;
    struct db_rows rows =
        tx_rows(tx,
                "SELECT m.group_id, m.read_count, COALESCE((SELECT l.messages "
                "FROM group_log l WHERE l.group_id = m.group_id "
                "AND l.seq = m.read_seq), 0) FROM group_members m "
                "WHERE m.account_id = $1 AND m.left_seq IS NULL "
                "AND m.group_id > $2 ORDER BY m.group_id LIMIT $3",
                DB_ARGS(DB_I64(m->account), DB_I64(m->after), DB_I64(GROUPS_A_READ)));
    uint64_t last = m->after;
    for (; m->seen < GROUPS_A_READ && db_next(&rows); m->seen++) {
        int64_t stored = db_i64(&rows, 1), actual = db_i64(&rows, 2);
        last = db_id(&rows, 0);
        if (stored == actual)
            continue;
        m->wrong[m->count].group = last;
        m->wrong[m->count].stored = stored;
        m->wrong[m->count++].actual = actual;
    }
    m->last = last;
    return db_rows_done(&rows);
}

struct mark_repair {
    uint64_t group, account;
};

static enum err repair_mark(struct tx *tx, void *arg)
{
    const struct mark_repair *r = arg;
    return tx_exec(tx,
                   "UPDATE group_members SET read_count = COALESCE((SELECT l.messages "
                   "FROM group_log l WHERE l.group_id = $1 AND l.seq = group_members.read_seq), 0) "
                   "WHERE group_id = $1 AND account_id = $2",
                   DB_ARGS(DB_I64(r->group), DB_I64(r->account)), NULL);
}

static enum err check_mark(struct check *k, const struct read_marks *m, size_t i)
{
    struct check_difference whose = {.group = m->wrong[i].group, .account = m->account};
    check_tell_counter(k, whose, "read_count", m->wrong[i].stored, m->wrong[i].actual);
    if (!k->repair)
        return OK;
    struct mark_repair repair = {m->wrong[i].group, m->account};
    enum err e = db_write(k->db, repair_mark, &repair, NULL);
    k->result->repaired += !e;
    return e;
}

static enum err check_marks(struct check *k, uint64_t account)
{
    struct read_marks *m = ARENA_NEW(&k->arena, struct read_marks);
    enum err e;
    m->account = account;
    do {
        e = db_read(k->db, read_marks, m, NULL);
        for (size_t i = 0; !e && i < m->count; i++)
            e = check_mark(k, m, i);
        k->result->counters += m->seen;
        m->after = m->last;
    } while (!e && m->seen == GROUPS_A_READ);
    return e;
}

enum err check_group_counters(struct check *k, uint64_t account)
{
    TRY(check_groups(k, account));
    return check_marks(k, account);
}
