/* Counters against the rows they count.
 *
 * A family of counters is a row of the table below: one statement reads the stored numbers and the
 * actual ones, page by page, and one transaction puts a row right. Both numbers of a comparison
 * come from one snapshot, so one look is enough.
 *
 * A group's counters and members are compared by the first of its members, so that each group is
 * looked at once. Counting a long log from its beginning would take as long as it is; so its end is
 * counted, and added to what the entry before that end says, which was compared when it was
 * written. A member's read_count is that of the entry they have read. */
#include "base/check.h"
#include "model/truth_check.h"

enum { ROWS_A_READ = 100, COUNTERS_MAX = 5, TAIL_MAX = 100000 };

struct counter_row {
    uint64_t id; /* of an account, a post or a group */
    int64_t stored[COUNTERS_MAX], actual[COUNTERS_MAX];
};

struct counter_page {
    const struct family *family;
    uint64_t account, after;
    size_t tail; /* entries of a group's log that are counted */
    size_t count;
    struct counter_row rows[ROWS_A_READ];
};

struct counter_repair {
    uint64_t account, id;
    size_t tail;
};

/* ---- the actual numbers, to compare with and to repair from ---- */

#define FOLLOWERS "(SELECT COUNT(*) FROM follows WHERE followee_id = a.id)"
#define FOLLOWING "(SELECT COUNT(*) FROM follows WHERE follower_id = a.id)"
#define POSTS     "(SELECT COUNT(*) FROM posts WHERE author_id = a.id AND deleted_at IS NULL)"
#define LIKES     "(SELECT COUNT(*) FROM likes WHERE post_id = p.id)"
#define COMMENTS  "(SELECT COUNT(*) FROM comments WHERE post_id = p.id AND deleted_at IS NULL)"
#define LAST_SEQ  "COALESCE((SELECT MAX(l.seq) FROM group_log l WHERE l.group_id = g.id), 0)"
#define MEMBERS                                                                                    \
    "(SELECT COUNT(*) FROM group_members o WHERE o.group_id = g.id AND o.left_seq IS NULL)"
#define LAST_MESSAGE                                                                               \
    "COALESCE((SELECT l.seq FROM group_log l WHERE l.group_id = g.id AND l.kind = 0 "              \
    "ORDER BY l.seq DESC LIMIT 1), 0)"
#define MESSAGES(tail)                                                                             \
    "COALESCE((SELECT l.messages FROM group_log l WHERE l.group_id = g.id "                        \
    "AND l.seq = g.seq - " tail "), 0) + (SELECT COUNT(*) FROM group_log l "                       \
    "WHERE l.group_id = g.id AND l.seq > g.seq - " tail " AND l.kind = 0)"
#define READ_MESSAGES                                                                              \
    "COALESCE((SELECT l.messages FROM group_log l WHERE l.group_id = m.group_id "                  \
    "AND l.seq = m.read_seq), 0)"

/* ---- repairing ---- */

static enum err repair_account(struct tx *tx, void *arg)
{
    const struct counter_repair *r = arg;
    return tx_exec(tx,
                   "UPDATE accounts AS a SET follower_count = " FOLLOWERS
                   ", following_count = " FOLLOWING ", post_count = " POSTS " WHERE a.id = $1",
                   DB_ARGS(DB_I64(r->id)), NULL);
}

/* Updates the caches in commit order, by events without an actor. */
static enum err repair_post(struct tx *tx, void *arg)
{
    const struct counter_repair *r = arg;
    int64_t row[2]; /* likes, comments */
    enum err e =
        tx_get_numbers(tx,
                       "UPDATE posts AS p SET like_count = " LIKES ", comment_count = " COMMENTS
                       " WHERE p.id = $1 RETURNING like_count, comment_count",
                       DB_ARGS(DB_I64(r->id)), row, 2);
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    TRY(outbox_emit(tx,
                    (struct event){.type = EVENT_POST_UNLIKED, .object = r->id, .value = row[0]}));
    return outbox_emit(
        tx, (struct event){.type = EVENT_POST_UNCOMMENTED, .object = r->id, .value = row[1]});
}

/* Every write into a group takes the group's row first, and so does this: nothing comes between. */
static enum err repair_group(struct tx *tx, void *arg)
{
    const struct counter_repair *r = arg;
    TRY(tx_exec(tx, "UPDATE groups SET seq = seq WHERE id = $1", DB_ARGS(DB_I64(r->id)), NULL));
    TRY(tx_exec(tx,
                "UPDATE groups AS g SET seq = " LAST_SEQ ", member_count = " MEMBERS
                ", last_seq = " LAST_MESSAGE " WHERE g.id = $1",
                DB_ARGS(DB_I64(r->id)), NULL));
    TRY(tx_exec(tx, "UPDATE groups AS g SET messages = " MESSAGES("$2") " WHERE g.id = $1",
                DB_ARGS(DB_I64(r->id), DB_I64(r->tail)), NULL));
    return outbox_emit(tx, (struct event){.type = EVENT_GROUP_UPDATED, .actor = r->id});
}

static enum err repair_read_mark(struct tx *tx, void *arg)
{
    const struct counter_repair *r = arg;
    TRY(tx_exec(tx,
                "UPDATE group_members AS m SET read_count = " READ_MESSAGES
                " WHERE m.group_id = $1 AND m.account_id = $2",
                DB_ARGS(DB_I64(r->id), DB_I64(r->account)), NULL));
    return outbox_emit(
        tx, (struct event){.type = EVENT_GROUP_UPDATED, .actor = r->id, .object = r->account});
}

/* ---- the families ---- */

static const struct family {
    const char *names[COUNTERS_MAX]; /* NULL: no more */
    const char *sql;                 /* id, stored numbers, actual ones; see read_page */
    size_t args;                     /* how many of its arguments the statement takes */
    uint64_t first;                  /* where the pages begin */
    bool to_depth;                   /* no more rows than the check is deep */
    bool with_members;               /* the views' members of each group, too */
    struct check_difference whose;   /* fields that a difference names: 1 stands for the value */
    tx_fn repair;
} families[] = {
    [COUNTERS_ACCOUNT] = {.names = {"follower_count", "following_count", "post_count"},
                          .sql = "SELECT a.id, a.follower_count, a.following_count, "
                                 "a.post_count, " FOLLOWERS ", " FOLLOWING ", " POSTS
                                 " FROM accounts a WHERE a.id = $1",
                          .args = 1,
                          .whose = {.account = 1},
                          .repair = repair_account},
    [COUNTERS_POSTS] = {.names = {"like_count", "comment_count"},
                        .sql = "SELECT p.id, p.like_count, p.comment_count, " LIKES ", " COMMENTS
                               " FROM posts p WHERE p.author_id = $1 AND p.id < $2 "
                               "AND p.deleted_at IS NULL ORDER BY p.id DESC LIMIT $3",
                        .args = 3,
                        .first = INT64_MAX,
                        .to_depth = true,
                        .whose = {.post = 1},
                        .repair = repair_post},
    /* Numbers have no gaps: so many entries are to be there. */
    [COUNTERS_GROUPS] = {.names = {"seq", "messages", "member_count", "last_seq", "entries"},
                         .sql =
                             "SELECT g.id, g.seq, g.messages, g.member_count, g.last_seq, "
                             "CASE WHEN g.seq < $4 THEN g.seq ELSE $4 END, " LAST_SEQ ", " MESSAGES(
                                 "$4") ", " MEMBERS ", " LAST_MESSAGE
                                       ", (SELECT COUNT(*) FROM group_log l "
                                       "WHERE l.group_id = g.id AND l.seq > g.seq - $4) "
                                       "FROM group_members m JOIN groups g ON g.id = m.group_id "
                                       "WHERE m.account_id = $1 AND m.left_seq IS NULL "
                                       "AND NOT EXISTS (SELECT 1 FROM group_members f "
                                       "WHERE f.group_id = m.group_id AND f.account_id < $1 "
                                       "AND f.left_seq IS NULL) AND m.group_id > $2 "
                                       "ORDER BY m.group_id LIMIT $3",
                         .args = 4,
                         .with_members = true,
                         .whose = {.group = 1},
                         .repair = repair_group},
    [COUNTERS_READ_MARKS] = {.names = {"read_count"},
                             .sql = "SELECT m.group_id, m.read_count, " READ_MESSAGES
                                    " FROM group_members m WHERE m.account_id = $1 "
                                    "AND m.left_seq IS NULL AND m.group_id > $2 "
                                    "ORDER BY m.group_id LIMIT $3",
                             .args = 3,
                             .whose = {.group = 1, .account = 1},
                             .repair = repair_read_mark},
};

static size_t counters_of(const struct family *f)
{
    size_t n = 0;
    while (n < COUNTERS_MAX && f->names[n])
        n++;
    return n;
}

/* ---- comparing ---- */

static enum err read_page(struct tx *tx, void *arg)
{
    struct counter_page *p = arg;
    const struct db_value args[] = {DB_I64(p->account), DB_I64(p->after), DB_I64(ROWS_A_READ),
                                    DB_I64(p->tail)};
    size_t n = counters_of(p->family);
    struct db_rows rows = tx_rows(tx, p->family->sql, args, p->family->args);
    for (p->count = 0; p->count < ROWS_A_READ && db_next(&rows); p->count++) {
        struct counter_row *row = &p->rows[p->count];
        row->id = db_id(&rows, 0);
        for (size_t i = 0; i < n; i++) {
            row->stored[i] = db_i64(&rows, (int)(1 + i));
            row->actual[i] = db_i64(&rows, (int)(1 + n + i));
        }
    }
    return db_rows_done(&rows);
}

static void report(struct check *k, const struct counter_page *p, const struct counter_row *row,
                   size_t counter)
{
    const struct check_difference *whose = &p->family->whose;
    k->result->counter_errors++;
    check_tell(k, &(struct check_difference){.kind = DIFFERENCE_COUNTER,
                                             .account = whose->account ? p->account : 0,
                                             .post = whose->post ? row->id : 0,
                                             .group = whose->group ? row->id : 0,
                                             .counter = p->family->names[counter],
                                             .stored = row->stored[counter],
                                             .actual = row->actual[counter]});
}

static enum err check_row(struct check *k, const struct counter_page *p,
                          const struct counter_row *row)
{
    bool wrong = false;
    for (size_t i = 0; i < counters_of(p->family); i++) {
        k->result->counters++;
        if (row->stored[i] == row->actual[i])
            continue;
        wrong = true;
        report(k, p, row, i);
    }
    if (!wrong || !k->repair)
        return OK;
    struct counter_repair repair = {p->account, row->id, p->tail};
    TRY(db_write(k->db, p->family->repair, &repair, NULL));
    k->result->repaired++;
    return OK;
}

enum err check_counters(struct check *k, uint64_t account, enum counter_family which)
{
    struct counter_page *p = ARENA_NEW(&k->arena, struct counter_page);
    p->family = &families[which];
    p->account = account;
    p->after = p->family->first;
    p->tail = k->depth < TAIL_MAX ? k->depth : TAIL_MAX;
    size_t seen = 0;
    do {
        TRY(db_read(k->db, read_page, p, NULL));
        for (size_t i = 0; i < p->count; i++)
            TRY(check_row(k, p, &p->rows[i]));
        for (size_t i = 0; p->family->with_members && k->members && i < p->count; i++)
            TRY(check_graph(k, p->rows[i].id, CHECK_MEMBERS));
        if (p->count > 0)
            p->after = p->rows[p->count - 1].id;
        seen += p->count;
    } while (p->count == ROWS_A_READ && !(p->family->to_depth && seen >= k->depth));
    return OK;
}
