/* Chats of two: the row of the pair decides which group is theirs. Its key is the pair in the order
 * of ids, so two requests for each other at once meet in it: one makes the chat, the other finds
 * it. Members never change; both are plain members, so neither has power over the other. */
#include "model/chat.h"

#include "base/id.h"
#include "model/follow.h"

static enum err make(struct tx *tx, uint64_t id, uint64_t account, uint64_t other)
{
    int64_t now_ms = clock_wall_ms(tx->ids->clock);
    TRY(tx_exec(tx,
                "INSERT INTO groups (id, kind, name, history, created_by, seq, "
                "member_count) VALUES ($1, 1, '', 1, $2, 2, 2)",
                DB_ARGS(DB_I64(id), DB_I64(account)), NULL));
    TRY(outbox_emit(
        tx, (struct event){
                .type = EVENT_GROUP_CREATED, .actor = id, .object = account, .value = GROUP_CHAT}));
    TRY(group_first_member(tx, id, account, GROUP_MEMBER, account, 1, now_ms));
    return group_first_member(tx, id, other, GROUP_MEMBER, account, 2, now_ms);
}

enum err chat_open(struct tx *tx, uint64_t account, uint64_t other, struct arena *arena,
                   struct group *out, bool *made)
{
    uint64_t low = account < other ? account : other, high = account < other ? other : account;
    int64_t id = 0;
    *made = false;
    if (account == other)
        return tx_fail(tx, ERR_INVALID, "one cannot chat with oneself");
    TRY(check_may_meet(tx, account, other));
    enum err e = tx_get_i64(tx, "SELECT group_id FROM chats WHERE low_id = $1 AND high_id = $2",
                            DB_ARGS(DB_I64(low), DB_I64(high)), &id);
    if (e && e != ERR_NOT_FOUND)
        return e;
    if (e == ERR_NOT_FOUND) {
        id = (int64_t)id_next(tx->ids);
        *made = true;
        TRY(group_check_room(tx, account));
        TRY(group_check_room(tx, other));
        /* a taken key fails the transaction, which is run again and finds the chat */
        TRY(tx_exec(tx, "INSERT INTO chats (low_id, high_id, group_id) VALUES ($1, $2, $3)",
                    DB_ARGS(DB_I64(low), DB_I64(high), DB_I64(id)), NULL));
        TRY(make(tx, (uint64_t)id, account, other));
    }
    return group_get(tx, (uint64_t)id, account, arena, out);
}
