/* The graph: follows, blocks, mutes.
 *
 * The edge table is the truth and the counters follow it: a counter moves in the same transaction
 * and only when INSERT or DELETE says that a row really changed, so that repeating a request, or
 * running a transaction again, never counts twice. Everything that can refuse is checked before the
 * first write: a caller that goes on after a refusal (an import) keeps no half of it.
 *
 * A block and a follow between the same two people never exist together: blocking removes the
 * follows, following looks for a block first. The feed relies on it: a followee is not blocked. */
#include "model/follow.h"

#include "base/id.h"
#include "model/account.h"
#include "model/celebrity.h"
#include "port/event.h"

struct standing {
    bool found;
    enum account_state state;
    int64_t following_count;
};

static enum err read_standing(struct tx *tx, uint64_t account, struct standing *out)
{
    int64_t row[2] = {0};
    enum err e = tx_get_numbers(tx, "SELECT state, following_count FROM accounts WHERE id = $1",
                                DB_ARGS(DB_I64(account)), row, 2);
    *out = (struct standing){
        .found = !e, .state = (enum account_state)row[0], .following_count = row[1]};
    return e == ERR_NOT_FOUND ? OK : e;
}

/* The time of an edge: now, by the clock that the ids come from. */
static int64_t now_ms(struct tx *tx)
{
    return clock_wall_ms(tx->ids->clock);
}

/* The account must be there and not deleted. */
static enum err check_exists(struct tx *tx, uint64_t account)
{
    struct standing standing;
    TRY(read_standing(tx, account, &standing));
    if (!standing.found || standing.state == ACCOUNT_DELETED)
        return tx_fail(tx, ERR_NOT_FOUND, "no such account");
    return OK;
}

enum err block_between(struct tx *tx, uint64_t a, uint64_t b, bool *blocked)
{
    int64_t count = 0;
    enum err e = tx_get_i64(tx,
                            "SELECT (SELECT COUNT(*) FROM blocks WHERE blocker_id = $1 "
                            "AND blocked_id = $2) + (SELECT COUNT(*) FROM blocks "
                            "WHERE blocker_id = $2 AND blocked_id = $1)",
                            DB_ARGS(DB_I64(a), DB_I64(b)), &count);
    *blocked = count > 0;
    return e;
}

enum err check_may_meet(struct tx *tx, uint64_t account, uint64_t other)
{
    struct standing standing;
    bool blocked;
    TRY(read_standing(tx, other, &standing));
    if (!standing.found || standing.state != ACCOUNT_ACTIVE)
        return tx_fail(tx, ERR_NOT_FOUND, "no such account");
    TRY(block_between(tx, account, other, &blocked));
    return blocked ? tx_fail(tx, ERR_FORBIDDEN, "a block lies between the two accounts") : OK;
}

/* The follower side and the followee side of an edge that came (+1) or went (-1), and the crossing.
 */
static enum err count_edge(struct tx *tx, uint64_t follower, uint64_t followee, int64_t delta,
                           const struct follow_policy *p)
{
    TRY(tx_exec(tx, "UPDATE accounts SET following_count = following_count + $2 WHERE id = $1",
                DB_ARGS(DB_I64(follower), DB_I64(delta)), NULL));
    static const struct db_update add = DB_UPDATE(
        "accounts", "follower_count = follower_count + $2", "", "follower_count, celebrity");
    int64_t row[2];
    enum err e = tx_update_numbers(tx, &add, DB_ARGS(DB_I64(followee), DB_I64(delta)), row, 2);
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    return celebrity_cross(tx, followee, row[1] != 0, row[0], p->celebrity_threshold);
}

enum err follow_create(struct tx *tx, uint64_t follower, uint64_t followee,
                       const struct follow_policy *p, bool *changed)
{
    *changed = false;
    if (follower == followee)
        return tx_fail(tx, ERR_INVALID, "one cannot follow oneself");
    struct standing from;
    TRY(read_standing(tx, follower, &from));
    if (!from.found || from.state != ACCOUNT_ACTIVE)
        return tx_fail(tx, ERR_NOT_FOUND, "no such account");
    TRY(check_may_meet(tx, follower, followee));
    int64_t present = 0;
    TRY(tx_get_i64(tx, "SELECT COUNT(*) FROM follows WHERE follower_id = $1 AND followee_id = $2",
                   DB_ARGS(DB_I64(follower), DB_I64(followee)), &present));
    if (present)
        return OK;
    if (from.following_count >= p->max_following)
        return tx_fail(tx, ERR_INVALID, "one can follow at most %lld accounts",
                       (long long)p->max_following);
    int64_t inserted = 0;
    TRY(tx_exec(tx,
                "INSERT INTO follows (follower_id, followee_id, created_at) VALUES ($1, $2, $3) "
                "ON CONFLICT DO NOTHING",
                DB_ARGS(DB_I64(follower), DB_I64(followee), DB_I64(now_ms(tx))), &inserted));
    if (inserted == 0)
        return OK;
    *changed = true;
    TRY(count_edge(tx, follower, followee, 1, p));
    return outbox_emit(tx, (struct event){.type = EVENT_FOLLOW_CREATED,
                                          .actor = follower,
                                          .subject = followee,
                                          .object = followee});
}

/* ---- ends, blocks and mutes ---- */

enum err follow_remove(struct tx *tx, uint64_t follower, uint64_t followee,
                       const struct follow_policy *p, bool *changed)
{
    return follow_remove_as(tx, follower, followee, FOLLOW_ENDED_UNFOLLOW, p, changed);
}

enum err follow_remove_as(struct tx *tx, uint64_t follower, uint64_t followee, enum follow_end how,
                          const struct follow_policy *p, bool *changed)
{
    int64_t removed = 0;
    *changed = false;
    TRY(tx_exec(tx, "DELETE FROM follows WHERE follower_id = $1 AND followee_id = $2",
                DB_ARGS(DB_I64(follower), DB_I64(followee)), &removed));
    if (removed == 0)
        return OK;
    *changed = true;
    TRY(count_edge(tx, follower, followee, -1, p));
    return outbox_emit(
        tx, (struct event){
                .type = EVENT_FOLLOW_REMOVED, .actor = follower, .object = followee, .value = how});
}

/* Puts a block or a mute in; its event, when it was not there, is the caller's to emit. */
static enum err insert_edge(struct tx *tx, const char *sql, const char *verb, uint64_t from,
                            uint64_t to, bool *changed)
{
    int64_t inserted = 0;
    *changed = false;
    if (from == to)
        return tx_fail(tx, ERR_INVALID, "one cannot %s oneself", verb);
    TRY(check_exists(tx, to));
    TRY(tx_exec(tx, sql, DB_ARGS(DB_I64(from), DB_I64(to), DB_I64(now_ms(tx))), &inserted));
    *changed = inserted > 0;
    return OK;
}

enum err block_create(struct tx *tx, uint64_t blocker, uint64_t blocked,
                      const struct follow_policy *p, bool *changed)
{
    bool ended;
    TRY(insert_edge(tx,
                    "INSERT INTO blocks (blocker_id, blocked_id, created_at) VALUES ($1, $2, $3) "
                    "ON CONFLICT DO NOTHING",
                    "block", blocker, blocked, changed));
    if (!*changed)
        return OK;
    TRY(follow_remove_as(tx, blocker, blocked, FOLLOW_ENDED_BLOCK, p, &ended));
    TRY(follow_remove_as(tx, blocked, blocker, FOLLOW_ENDED_BLOCK, p, &ended));
    return outbox_emit(
        tx, (struct event){.type = EVENT_BLOCK_CREATED, .actor = blocker, .object = blocked});
}

enum err mute_create(struct tx *tx, uint64_t muter, uint64_t muted, bool *changed)
{
    TRY(insert_edge(tx,
                    "INSERT INTO mutes (muter_id, muted_id, created_at) VALUES ($1, $2, $3) "
                    "ON CONFLICT DO NOTHING",
                    "mute", muter, muted, changed));
    if (!*changed)
        return OK;
    return outbox_emit(tx,
                       (struct event){.type = EVENT_MUTE_CREATED, .actor = muter, .object = muted});
}

/* Takes the edge out and says so when it was there. */
static enum err remove_edge(struct tx *tx, const char *sql, enum event_type type, uint64_t from,
                            uint64_t to, bool *changed)
{
    int64_t removed = 0;
    *changed = false;
    TRY(tx_exec(tx, sql, DB_ARGS(DB_I64(from), DB_I64(to)), &removed));
    if (removed == 0)
        return OK;
    *changed = true;
    return outbox_emit(tx, (struct event){.type = type, .actor = from, .object = to});
}

enum err block_remove(struct tx *tx, uint64_t blocker, uint64_t blocked, bool *changed)
{
    return remove_edge(tx, "DELETE FROM blocks WHERE blocker_id = $1 AND blocked_id = $2",
                       EVENT_BLOCK_REMOVED, blocker, blocked, changed);
}

enum err mute_remove(struct tx *tx, uint64_t muter, uint64_t muted, bool *changed)
{
    return remove_edge(tx, "DELETE FROM mutes WHERE muter_id = $1 AND muted_id = $2",
                       EVENT_MUTE_REMOVED, muter, muted, changed);
}

enum err mute_ids(struct tx *tx, uint64_t muter, uint64_t *ids, size_t max, size_t *n)
{
    return tx_get_ids(tx,
                      "SELECT muted_id FROM mutes WHERE muter_id = $1 ORDER BY muted_id LIMIT $2",
                      DB_ARGS(DB_I64(muter), DB_I64(max)), ids, max, n);
}

/* Only active accounts without a block with the viewer ($2), in either direction. */
#define SHOWN_TO_VIEWER                                                                            \
    "a.state = 0 "                                                                                 \
    "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = $2 AND blocked_id = a.id) "           \
    "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = a.id AND blocked_id = $2) "

#define BRIEF "SELECT " ACCOUNT_CARD_COLUMNS " "

static const char *const people_sql[] = {
    [PEOPLE_FOLLOWERS] = BRIEF "FROM follows f JOIN accounts a ON a.id = f.follower_id "
                               "WHERE f.followee_id = $1 AND f.follower_id < $3 "
                               "AND " SHOWN_TO_VIEWER "ORDER BY f.follower_id DESC LIMIT $4",
    [PEOPLE_FOLLOWING] = BRIEF "FROM follows f JOIN accounts a ON a.id = f.followee_id "
                               "WHERE f.follower_id = $1 AND f.followee_id < $3 "
                               "AND " SHOWN_TO_VIEWER "ORDER BY f.followee_id DESC LIMIT $4",
    [PEOPLE_BLOCKED] = BRIEF "FROM blocks b JOIN accounts a ON a.id = b.blocked_id "
                             "WHERE b.blocker_id = $1 AND $1 = $2 AND b.blocked_id < $3 "
                             "AND a.state = 0 ORDER BY b.blocked_id DESC LIMIT $4",
    [PEOPLE_MUTED] = BRIEF "FROM mutes m JOIN accounts a ON a.id = m.muted_id "
                           "WHERE m.muter_id = $1 AND $1 = $2 AND m.muted_id < $3 "
                           "AND a.state = 0 ORDER BY m.muted_id DESC LIMIT $4",
};

enum err follow_list(struct tx *tx, uint64_t account, enum people people, uint64_t viewer,
                     uint64_t below, size_t limit, struct arena *arena, struct account_card *out,
                     size_t *n)
{
    *n = 0;
    struct db_rows rows =
        tx_rows(tx, people_sql[people],
                DB_ARGS(DB_I64(account), DB_I64(viewer), DB_BELOW(below), DB_I64(limit)));
    return account_cards_read(&rows, arena, out, limit, n);
}
