/* Groups themselves: making, finding, changing.
 *
 * A new group knows all its numbers beforehand: its first members are its entries 1 to n. So its
 * row is written once, and nothing in its making waits for an answer but the look at the people. */
#include "model/group.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/id.h"
#include "model/account.h"
#include "model/text.h"

/* ---- names ---- */

static const char *const role_names[] = {
    [GROUP_OWNER] = "owner", [GROUP_ADMIN] = "admin", [GROUP_MEMBER] = "member"};
static const char *const history_names[] = {
    [GROUP_HISTORY_JOINED] = "joined", [GROUP_HISTORY_ALL] = "all"};

static bool find_name(const char *const *names, size_t n, struct str text, size_t *found)
{
    for (size_t i = 0; i < n; i++) {
        if (str_eq(text, str_of(names[i]))) {
            *found = i;
            return true;
        }
    }
    return false;
}

const char *group_role_name(enum group_role role)
{
    CHECK((size_t)role < COUNT_OF(role_names));
    return role_names[role];
}

bool group_role_parse(struct str text, enum group_role *role)
{
    size_t i;
    bool known = find_name(role_names, COUNT_OF(role_names), text, &i);
    if (known)
        *role = (enum group_role)i;
    return known;
}

const char *group_history_name(enum group_history history)
{
    CHECK((size_t)history < COUNT_OF(history_names));
    return history_names[history];
}

bool group_history_parse(struct str text, enum group_history *history)
{
    size_t i;
    bool known = find_name(history_names, COUNT_OF(history_names), text, &i);
    if (known)
        *history = (enum group_history)i;
    return known;
}

/* ---- finding ---- */

void group_read_columns(struct db_rows *rows, struct arena *arena, struct group *out)
{
    *out = (struct group){
        .id = db_id(rows, 0),
        .kind = (enum group_kind)db_i64(rows, 1),
        .name = arena_str(arena, db_text(rows, 2)),
        .history = (enum group_history)db_i64(rows, 3),
        .member_count = db_i64(rows, 4),
        .seq = db_i64(rows, 5),
        .messages = db_i64(rows, 6),
        .last_seq = db_i64(rows, 7),
        .last_id = db_id(rows, 8),
        .role = (enum group_role)db_i64(rows, 9),
        .joined_seq = db_i64(rows, 10),
        .joined_id = db_id(rows, 11),
        .left_seq = db_i64(rows, 12),
        .read_seq = db_i64(rows, 13),
        .read_count = db_i64(rows, 14),
        .muted = db_i64(rows, 15) != 0,
        .archived = db_i64(rows, 16) != 0,
    };
    if (!db_is_null(rows, 17))
        account_card_read(rows, 17, arena, &out->peer);
}

enum err group_get_or_left(struct tx *tx, uint64_t id, uint64_t account, struct arena *arena,
                           struct group *out)
{
    struct db_rows rows =
        tx_rows(tx,
                "SELECT " GROUP_COLUMNS " FROM groups g JOIN group_members m "
                "ON m.group_id = g.id AND m.account_id = $2 " GROUP_PEER "WHERE g.id = $1",
                DB_ARGS(DB_I64(id), DB_I64(account)));
    bool found = db_next(&rows);
    if (found)
        group_read_columns(&rows, arena, out);
    TRY(db_rows_done(&rows));
    return found ? OK : tx_fail(tx, ERR_NOT_FOUND, "no such group");
}

enum err group_get(struct tx *tx, uint64_t id, uint64_t account, struct arena *arena,
                   struct group *out)
{
    TRY(group_get_or_left(tx, id, account, arena, out));
    return out->left_seq ? tx_fail(tx, ERR_NOT_FOUND, "no such group") : OK;
}

/* ---- making ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The others, each once and without the owner, in the order of their ids. */
static size_t sort_members(const struct group_new *in, uint64_t *out)
{
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < in->member_count; i++) {
        if (in->members[i] != in->owner)
            out[n++] = in->members[i];
    }
    qsort(out, n, sizeof *out, by_number);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || out[i] != out[kept - 1])
            out[kept++] = out[i];
    }
    return kept;
}

/* All of them active, none in a block with the owner, each with room for one more group. */
static enum err check_people(struct tx *tx, uint64_t owner, const uint64_t *ids, size_t n)
{
    int64_t active = 0, blocks = 0, full = 0;
    if (n == 0)
        return OK;
    TRY(tx_get_i64(tx,
                   "SELECT COUNT(*) FROM ids($1) AS i CROSS JOIN accounts a "
                   "WHERE a.id = i.id AND a.state = 0",
                   DB_ARGS(DB_IDS(ids, n)), &active));
    if (active != (int64_t)n)
        return tx_fail(tx, ERR_NOT_FOUND, "not every member is an account");
    TRY(tx_get_i64(tx,
                   "SELECT COUNT(*) FROM ids($1) AS i WHERE EXISTS (SELECT 1 FROM blocks b "
                   "WHERE b.blocker_id = i.id AND b.blocked_id = $2) OR EXISTS (SELECT 1 "
                   "FROM blocks b WHERE b.blocker_id = $2 AND b.blocked_id = i.id)",
                   DB_ARGS(DB_IDS(ids, n), DB_I64(owner)), &blocks));
    if (blocks)
        return tx_fail(tx, ERR_FORBIDDEN, "a block lies between the owner and a member");
    /* the groups of one person are counted no further than they may go */
    TRY(tx_get_i64(tx,
                   "SELECT COUNT(*) FROM ids($1) AS i WHERE (SELECT COUNT(*) FROM "
                   "(SELECT 1 FROM group_members m WHERE m.account_id = i.id "
                   "AND m.left_seq IS NULL LIMIT $2) AS few) >= $2",
                   DB_ARGS(DB_IDS(ids, n), DB_I64(GROUPS_OF_ACCOUNT_MAX)), &full));
    return full ? tx_fail(tx, ERR_CONFLICT, "a member is in %d groups already",
                          GROUPS_OF_ACCOUNT_MAX)
                : OK;
}

enum err group_check_room(struct tx *tx, uint64_t account)
{
    int64_t count = 0;
    TRY(tx_get_i64(tx,
                   "SELECT COUNT(*) FROM (SELECT 1 FROM group_members "
                   "WHERE account_id = $1 AND left_seq IS NULL LIMIT $2) AS few",
                   DB_ARGS(DB_I64(account), DB_I64(GROUPS_OF_ACCOUNT_MAX)), &count));
    return count >= GROUPS_OF_ACCOUNT_MAX
               ? tx_fail(tx, ERR_CONFLICT, "the account is in %d groups already",
                         GROUPS_OF_ACCOUNT_MAX)
               : OK;
}

enum err group_create(struct tx *tx, const struct group_new *in, struct arena *arena,
                      struct group *out)
{
    if (in->member_count > GROUP_FIRST_MEMBERS_MAX)
        return tx_fail(tx, ERR_INVALID, "at most %d members with the creation; add others later",
                       GROUP_FIRST_MEMBERS_MAX);
    uint64_t others[GROUP_FIRST_MEMBERS_MAX];
    size_t n = sort_members(in, others);
    TRY(text_check(tx, in->name, "name", GROUP_NAME_MAX_CHARS, TEXT_PLAIN));
    TRY(check_people(tx, in->owner, others, n));
    TRY(group_check_room(tx, in->owner));
    uint64_t id = id_next(tx->ids);
    int64_t now_ms = clock_wall_ms(tx->ids->clock);
    TRY(tx_exec(tx,
                "INSERT INTO groups (id, kind, name, history, created_by, seq, member_count) "
                "VALUES ($1, 0, $2, $3, $4, $5, $5)",
                DB_ARGS(DB_I64(id), DB_TEXT(in->name), DB_I64(in->history), DB_I64(in->owner),
                        DB_I64(n + 1)),
                NULL));
    TRY(outbox_emit(tx, (struct event){.type = EVENT_GROUP_CREATED,
                                       .actor = id,
                                       .object = in->owner,
                                       .value = GROUP_PLAIN}));
    TRY(group_first_member(tx, id, in->owner, GROUP_OWNER, in->owner, 1, now_ms));
    for (size_t i = 0; i < n; i++)
        TRY(group_first_member(tx, id, others[i], GROUP_MEMBER, in->owner, (int64_t)i + 2, now_ms));
    return group_get(tx, id, in->owner, arena, out);
}

/* ---- changing ---- */

static enum err set_own(struct tx *tx, struct group *g, uint64_t account,
                        const struct group_change *change)
{
    bool muted = change->set_muted ? change->muted : g->muted;
    bool archived = change->set_archived ? change->archived : g->archived;
    if (muted == g->muted && archived == g->archived)
        return OK;
    g->muted = muted;
    g->archived = archived;
    TRY(tx_exec(tx,
                "UPDATE group_members SET muted = $3, archived = $4 "
                "WHERE group_id = $1 AND account_id = $2",
                DB_ARGS(DB_I64(g->id), DB_I64(account), DB_I64(muted), DB_I64(archived)), NULL));
    return outbox_emit(
        tx, (struct event){.type = EVENT_GROUP_UPDATED, .actor = g->id, .object = account});
}

static enum err rename_group(struct tx *tx, struct group *g, uint64_t account, struct str name)
{
    struct group_appended at;
    TRY(group_append(tx,
                     &(struct group_append){
                         .group = g->id, .author = account, .kind = ENTRY_RENAME, .body = name},
                     &at));
    g->name = name;
    g->seq = at.seq;
    return tx_exec(tx, "UPDATE groups SET name = $2 WHERE id = $1",
                   DB_ARGS(DB_I64(g->id), DB_TEXT(name)), NULL);
}

static enum err open_history(struct tx *tx, struct group *g, uint64_t account,
                             enum group_history history)
{
    struct group_appended at;
    TRY(group_append(tx,
                     &(struct group_append){.group = g->id,
                                            .author = account,
                                            .kind = ENTRY_HISTORY,
                                            .body = str_of(history_names[history])},
                     &at));
    g->history = history;
    g->seq = at.seq;
    return tx_exec(tx, "UPDATE groups SET history = $2 WHERE id = $1",
                   DB_ARGS(DB_I64(g->id), DB_I64(history)), NULL);
}

enum err group_update(struct tx *tx, uint64_t id, uint64_t account,
                      const struct group_change *change, struct arena *arena, struct group *out)
{
    enum err e = OK;
    if (change->name.ptr)
        e = text_check(tx, change->name, "name", GROUP_NAME_MAX_CHARS, TEXT_PLAIN);
    if (!e)
        e = group_get(tx, id, account, arena, out);
    if (e)
        return e;
    bool of_all = change->name.ptr || change->set_history;
    if (of_all && out->kind == GROUP_CHAT)
        return tx_fail(tx, ERR_FORBIDDEN, "a chat of two has no name and no history to set");
    if (of_all && out->role == GROUP_MEMBER)
        return tx_fail(tx, ERR_FORBIDDEN, "only the owner and admins may change the group");
    if (change->name.ptr && !str_eq(change->name, out->name))
        e = rename_group(tx, out, account, change->name);
    if (!e && change->set_history && change->history != out->history)
        e = open_history(tx, out, account, change->history);
    return e ? e : set_own(tx, out, account, change);
}
