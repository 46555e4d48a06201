/* Members of a group: adding, inviting, roles, leaving, removing.
 *
 * Each change is an entry of the group's log and takes its number from the group's row, as messages
 * do. The row of a member who left stays: it says how far they may read. When they come back it
 * begins anew, so that they do not get the messages in between. */
#include "base/id.h"
#include "model/account.h"
#include "model/follow.h"
#include "model/group.h"

enum { RANK_SHIFT = 56, PURGE_MAX = 100 };

/* ---- looking ---- */

struct standing {
    bool member, invited;
    enum group_role role;
};

static enum err read_standing(struct tx *tx, uint64_t group, uint64_t account, struct standing *out)
{
    int64_t invited = 0, role = 0;
    *out = (struct standing){0};
    enum err e = tx_get_i64(tx,
                            "SELECT role FROM group_members WHERE group_id = $1 "
                            "AND account_id = $2 AND left_seq IS NULL",
                            DB_ARGS(DB_I64(group), DB_I64(account)), &role);
    out->member = !e;
    out->role = (enum group_role)role;
    if (e != ERR_NOT_FOUND)
        return e;
    e = tx_get_i64(tx,
                   "SELECT COUNT(*) FROM group_invitations WHERE account_id = $1 AND group_id = $2",
                   DB_ARGS(DB_I64(account), DB_I64(group)), &invited);
    out->invited = invited > 0;
    return e;
}

static enum err no_such_group(struct tx *tx)
{
    return tx_fail(tx, ERR_NOT_FOUND, "no such group");
}

/* ---- joining ---- */

static enum err withdraw(struct tx *tx, uint64_t group, uint64_t account)
{
    return tx_exec(tx, "DELETE FROM group_invitations WHERE account_id = $1 AND group_id = $2",
                   DB_ARGS(DB_I64(account), DB_I64(group)), NULL);
}

static enum err join(struct tx *tx, uint64_t group, uint64_t account, enum group_role role,
                     uint64_t author)
{
    int64_t count = 0;
    struct group_appended at;
    TRY(tx_get_i64(tx, "SELECT member_count FROM groups WHERE id = $1", DB_ARGS(DB_I64(group)),
                   &count));
    if (count >= GROUP_MEMBERS_MAX)
        return tx_fail(tx, ERR_CONFLICT, "the group has %d members already", GROUP_MEMBERS_MAX);
    TRY(group_check_room(tx, account));
    TRY(group_append(
        tx,
        &(struct group_append){
            .group = group, .author = author, .kind = ENTRY_JOIN, .subject = account, .members = 1},
        &at));
    TRY(tx_exec(tx,
                "INSERT INTO group_members (group_id, account_id, role, joined_seq, joined_id, "
                "read_seq, read_count) VALUES ($1, $2, $3, $4, $5, $4, $6) "
                "ON CONFLICT (group_id, account_id) DO UPDATE SET role = excluded.role, "
                "joined_seq = excluded.joined_seq, joined_id = excluded.joined_id, "
                "left_seq = NULL, read_seq = excluded.read_seq, "
                "read_count = excluded.read_count, muted = 0, archived = 0",
                DB_ARGS(DB_I64(group), DB_I64(account), DB_I64(role), DB_I64(at.seq),
                        DB_I64(at.event), DB_I64(at.messages)),
                NULL));
    return withdraw(tx, group, account);
}

static enum err invite(struct tx *tx, uint64_t group, uint64_t account, uint64_t author)
{
    int64_t count = 0;
    TRY(tx_get_i64(tx,
                   "SELECT COUNT(*) FROM (SELECT 1 FROM group_invitations "
                   "WHERE account_id = $1 LIMIT $2) AS few",
                   DB_ARGS(DB_I64(account), DB_I64(INVITATIONS_OF_ACCOUNT_MAX)), &count));
    if (count >= INVITATIONS_OF_ACCOUNT_MAX)
        return tx_fail(tx, ERR_CONFLICT, "the account has %d invitations open",
                       INVITATIONS_OF_ACCOUNT_MAX);
    return tx_exec(tx,
                   "INSERT INTO group_invitations (account_id, group_id, invited_by, created_at) "
                   "VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
                   DB_ARGS(DB_I64(account), DB_I64(group), DB_I64(author),
                           DB_I64(clock_wall_ms(tx->ids->clock))),
                   NULL);
}

/* ---- roles ---- */

static enum err set_role(struct tx *tx, uint64_t group, uint64_t account, enum group_role role,
                         uint64_t author)
{
    struct group_appended at;
    TRY(group_append(tx,
                     &(struct group_append){.group = group,
                                            .author = author,
                                            .kind = ENTRY_ROLE,
                                            .subject = account,
                                            .body = str_of(group_role_name(role))},
                     &at));
    return tx_exec(tx, "UPDATE group_members SET role = $3 WHERE group_id = $1 AND account_id = $2",
                   DB_ARGS(DB_I64(group), DB_I64(account), DB_I64(role)), NULL);
}

/* A member's own wish: nothing, or a step down. */
static enum err change_oneself(struct tx *tx, const struct group *g, uint64_t account,
                               const struct member_wish *wish, enum member_outcome *outcome)
{
    if (!wish->set_role || wish->role == g->role)
        return OK;
    if (g->role == GROUP_OWNER)
        return tx_fail(tx, ERR_CONFLICT, "pass the group on first: make another member the owner");
    if (wish->role < g->role)
        return tx_fail(tx, ERR_FORBIDDEN, "you cannot raise your own role");
    *outcome = MEMBER_CHANGED;
    return set_role(tx, g->id, account, wish->role, account);
}

static enum err change_role(struct tx *tx, const struct group *g, uint64_t actor, uint64_t account,
                            enum group_role present, enum group_role wanted,
                            enum member_outcome *outcome)
{
    if (wanted == present)
        return OK;
    if (g->role != GROUP_OWNER)
        return tx_fail(tx, ERR_FORBIDDEN, "only the owner gives and takes roles");
    *outcome = MEMBER_CHANGED;
    enum err e = OK;
    if (wanted == GROUP_OWNER) /* there is one at a time */
        e = set_role(tx, g->id, actor, GROUP_ADMIN, actor);
    return e ? e : set_role(tx, g->id, account, wanted, actor);
}

/* ---- putting ---- */

/* All others may have left meanwhile: then the next to join inherits the group. The query goes rank
 * by rank, or it would read all members. */
static enum err inherit(struct tx *tx, uint64_t group, uint64_t account)
{
    int64_t highest = GROUP_OWNER;
    enum err e = tx_get_i64(tx,
                            "SELECT role FROM group_members WHERE group_id = $1 "
                            "AND left_seq IS NULL ORDER BY role, joined_seq LIMIT 1",
                            DB_ARGS(DB_I64(group)), &highest);
    return e || highest == GROUP_OWNER ? e : set_role(tx, group, account, GROUP_OWNER, account);
}

static enum err accept(struct tx *tx, uint64_t group, uint64_t account,
                       const struct member_wish *wish, enum member_outcome *outcome)
{
    struct standing at;
    TRY(read_standing(tx, group, account, &at));
    if (!at.invited)
        return no_such_group(tx);
    if (wish->set_role || wish->invite)
        return tx_fail(tx, ERR_INVALID, "an invitation is accepted as it is");
    TRY(join(tx, group, account, GROUP_MEMBER, account));
    TRY(inherit(tx, group, account));
    *outcome = MEMBER_JOINED;
    return OK;
}

static enum err check_newcomer(struct tx *tx, const struct group *g, uint64_t actor,
                               uint64_t account, const struct member_wish *wish)
{
    enum group_role role = wish->set_role ? wish->role : GROUP_MEMBER;
    if (role == GROUP_OWNER || (wish->invite && role != GROUP_MEMBER))
        return tx_fail(tx, ERR_INVALID, "a newcomer cannot be %s", group_role_name(role));
    if (role == GROUP_ADMIN && g->role != GROUP_OWNER)
        return tx_fail(tx, ERR_FORBIDDEN, "only the owner gives and takes roles");
    return check_may_meet(tx, actor, account);
}

static enum err put_other(struct tx *tx, const struct group *g, uint64_t actor, uint64_t account,
                          const struct member_wish *wish, enum member_outcome *outcome)
{
    struct standing at;
    if (g->role == GROUP_MEMBER)
        return tx_fail(tx, ERR_FORBIDDEN, "only the owner and admins may change who is in it");
    TRY(read_standing(tx, g->id, account, &at));
    if (at.member)
        return wish->set_role ? change_role(tx, g, actor, account, at.role, wish->role, outcome)
                              : OK;
    enum err e = check_newcomer(tx, g, actor, account, wish);
    if (e || (wish->invite && at.invited))
        return e;
    if (wish->invite)
        e = invite(tx, g->id, account, actor);
    else
        e = join(tx, g->id, account, wish->set_role ? wish->role : GROUP_MEMBER, actor);
    if (!e)
        *outcome = wish->invite ? MEMBER_INVITED : MEMBER_JOINED;
    return e;
}

enum err group_member_put(struct tx *tx, uint64_t group, uint64_t actor, uint64_t account,
                          const struct member_wish *wish, enum member_outcome *outcome)
{
    struct arena arena;
    struct group g;
    *outcome = MEMBER_UNCHANGED;
    arena_init(&arena);
    enum err e = group_get(tx, group, actor, &arena, &g);
    arena_done(&arena);
    if (e == ERR_NOT_FOUND && actor == account)
        return accept(tx, group, account, wish, outcome);
    if (e)
        return e;
    if (actor == account)
        return change_oneself(tx, &g, account, wish, outcome);
    if (g.kind == GROUP_CHAT)
        return tx_fail(tx, ERR_FORBIDDEN, "a chat of two takes no further members");
    return put_other(tx, &g, actor, account, wish, outcome);
}

/* ---- leaving ---- */

/* The longest-serving admin, else the longest-serving member; 0: none is left. */
static enum err find_heir(struct tx *tx, uint64_t group, uint64_t *heir)
{
    int64_t found = 0;
    enum err e = tx_get_i64(tx,
                            "SELECT m.account_id FROM group_members m "
                            "JOIN accounts a ON a.id = m.account_id "
                            "WHERE m.group_id = $1 AND m.left_seq IS NULL AND a.state <> 2 "
                            "ORDER BY m.role, m.joined_seq LIMIT 1",
                            DB_ARGS(DB_I64(group)), &found);
    *heir = (uint64_t)found;
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err end_membership(struct tx *tx, uint64_t group, uint64_t account,
                               enum group_role role, bool chat, uint64_t author)
{
    struct group_appended at;
    uint64_t heir = 0;
    TRY(group_append(tx,
                     &(struct group_append){.group = group,
                                            .author = author,
                                            .kind = ENTRY_LEAVE,
                                            .subject = account,
                                            .members = -1},
                     &at));
    TRY(tx_exec(tx,
                "UPDATE group_members SET left_seq = $3 "
                "WHERE group_id = $1 AND account_id = $2",
                DB_ARGS(DB_I64(group), DB_I64(account), DB_I64(at.seq)), NULL));
    if (role == GROUP_OWNER && !chat)
        TRY(find_heir(tx, group, &heir));
    return heir ? set_role(tx, group, heir, GROUP_OWNER, author) : OK;
}

static enum err remove_other(struct tx *tx, const struct group *g, uint64_t actor, uint64_t account)
{
    struct standing at;
    if (g->role == GROUP_MEMBER)
        return tx_fail(tx, ERR_FORBIDDEN, "only the owner and admins may change who is in it");
    TRY(read_standing(tx, g->id, account, &at));
    if (at.invited)
        return withdraw(tx, g->id, account);
    if (!at.member)
        return tx_fail(tx, ERR_NOT_FOUND, "not a member");
    if (at.role <= g->role)
        return tx_fail(tx, ERR_FORBIDDEN, "only a member with a higher role may remove this one");
    return end_membership(tx, g->id, account, at.role, false, actor);
}

enum err group_member_remove(struct tx *tx, uint64_t group, uint64_t actor, uint64_t account)
{
    struct arena arena;
    struct group g;
    struct standing at;
    arena_init(&arena);
    enum err e = group_get(tx, group, actor, &arena, &g);
    arena_done(&arena);
    if (e == ERR_NOT_FOUND && actor == account) { /* invited: no, thank you */
        e = read_standing(tx, group, account, &at);
        if (e)
            return e;
        return at.invited ? withdraw(tx, group, account) : no_such_group(tx);
    }
    if (e)
        return e;
    if (g.kind == GROUP_CHAT)
        return tx_fail(tx, ERR_FORBIDDEN, "a chat of two cannot be left: archive or mute it");
    return actor == account ? end_membership(tx, group, account, g.role, false, actor)
                            : remove_other(tx, &g, actor, account);
}

/* ---- lists ---- */

static void read_member(struct db_rows *rows, struct arena *arena, struct group_member *out)
{
    account_card_read(rows, 0, arena, &out->account);
    out->role = (enum group_role)db_i64(rows, 4);
    out->joined_seq = db_i64(rows, 5);
    out->joined_id = db_id(rows, 6);
}

enum err group_member_get(struct tx *tx, uint64_t group, uint64_t account, struct arena *arena,
                          struct group_member *out)
{
    struct db_rows rows =
        tx_rows(tx,
                "SELECT " ACCOUNT_CARD_COLUMNS ", m.role, m.joined_seq, m.joined_id, "
                "i.group_id FROM accounts a "
                "LEFT JOIN group_members m ON m.group_id = $1 AND m.account_id = a.id "
                "AND m.left_seq IS NULL LEFT JOIN group_invitations i "
                "ON i.account_id = a.id AND i.group_id = $1 WHERE a.id = $2",
                DB_ARGS(DB_I64(group), DB_I64(account)));
    bool found = db_next(&rows) && (!db_is_null(&rows, 6) || !db_is_null(&rows, 7));
    if (found) {
        read_member(&rows, arena, out);
        if (!out->joined_id)
            out->role = GROUP_MEMBER;
    }
    TRY(db_rows_done(&rows));
    return found ? OK : tx_fail(tx, ERR_NOT_FOUND, "not a member");
}

/* A position is a rank: the role, and within it the number of joining. */
enum err group_member_list(struct tx *tx, uint64_t group, uint64_t viewer, uint64_t after,
                           size_t limit, struct arena *arena, struct group_member *out, size_t *n,
                           uint64_t *next)
{
    struct group g;
    *n = 0;
    *next = 0;
    TRY(group_get(tx, group, viewer, arena, &g));
    struct db_rows rows =
        tx_rows(tx,
                "SELECT " ACCOUNT_CARD_COLUMNS ", m.role, m.joined_seq, "
                "m.joined_id FROM group_members m JOIN accounts a ON a.id = m.account_id "
                "WHERE m.group_id = $1 AND m.left_seq IS NULL "
                "AND (m.role, m.joined_seq) > ($2, $3) AND a.state = 0 "
                "ORDER BY m.role, m.joined_seq LIMIT $4",
                DB_ARGS(DB_I64(group), DB_I64(after >> RANK_SHIFT),
                        DB_I64(after & ((UINT64_C(1) << RANK_SHIFT) - 1)), DB_I64(limit + 1)));
    while (*n < limit && db_next(&rows))
        read_member(&rows, arena, &out[(*n)++]);
    if (*n > 0 && *n == limit && db_next(&rows)) /* one more than the page: there is a next one */
        *next = (uint64_t)out[*n - 1].role << RANK_SHIFT | (uint64_t)out[*n - 1].joined_seq;
    return db_rows_done(&rows);
}

enum err group_invitation_list(struct tx *tx, uint64_t account, uint64_t below, size_t limit,
                               struct arena *arena, struct group_invitation *out, size_t *n)
{
    *n = 0;
    struct db_rows rows = tx_rows(tx,
                                  "SELECT g.id, g.name, g.member_count, i.invited_by, i.created_at "
                                  "FROM group_invitations i JOIN groups g ON g.id = i.group_id "
                                  "WHERE i.account_id = $1 AND i.group_id < $2 "
                                  "ORDER BY i.group_id DESC LIMIT $3",
                                  DB_ARGS(DB_I64(account), DB_BELOW(below), DB_I64(limit)));
    for (; *n < limit && db_next(&rows); (*n)++)
        out[*n] = (struct group_invitation){.group = db_id(&rows, 0),
                                            .name = arena_str(arena, db_text(&rows, 1)),
                                            .member_count = db_i64(&rows, 2),
                                            .invited_by = db_id(&rows, 3),
                                            .created_at_ms = db_i64(&rows, 4)};
    return db_rows_done(&rows);
}

/* ---- an account that is deleted ---- */

struct ending {
    uint64_t group;
    enum group_role role;
    bool chat;
};

static enum err read_endings(struct tx *tx, uint64_t account, size_t max, struct ending *out,
                             size_t *n)
{
    *n = 0;
    struct db_rows rows = tx_rows(tx,
                                  "SELECT m.group_id, m.role, g.kind FROM group_members m "
                                  "JOIN groups g ON g.id = m.group_id "
                                  "WHERE m.account_id = $1 AND m.left_seq IS NULL "
                                  "ORDER BY m.group_id LIMIT $2",
                                  DB_ARGS(DB_I64(account), DB_I64(max)));
    while (*n < max && db_next(&rows))
        out[(*n)++] = (struct ending){.group = db_id(&rows, 0),
                                      .role = (enum group_role)db_i64(&rows, 1),
                                      .chat = db_i64(&rows, 2) == GROUP_CHAT};
    return db_rows_done(&rows);
}

enum err group_purge_slice(struct tx *tx, uint64_t account, size_t max, size_t *found)
{
    struct ending endings[PURGE_MAX];
    int64_t withdrawn = 0;
    if (max > PURGE_MAX)
        max = PURGE_MAX;
    TRY(read_endings(tx, account, max, endings, found));
    for (size_t i = 0; i < *found; i++)
        TRY(end_membership(tx, endings[i].group, account, endings[i].role, endings[i].chat,
                           account));
    if (*found > 0)
        return OK;
    enum err e = tx_exec(tx,
                         "DELETE FROM group_invitations WHERE account_id = $1 AND group_id IN "
                         "(SELECT group_id FROM group_invitations WHERE account_id = $1 LIMIT $2)",
                         DB_ARGS(DB_I64(account), DB_I64(max)), &withdrawn);
    *found = (size_t)withdrawn;
    return e;
}
