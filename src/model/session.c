/* Sessions: a log-in on one device. Only the hash of a token is stored; a person has at most
 * SESSIONS_MAX, and the one unused for longest makes room. */
#include "base/id.h"
#include "model/account.h"

int64_t session_expires_ms(int64_t made_ms, int64_t used_ms, struct session_terms terms)
{
    int64_t unused = used_ms + terms.life_ms, aged = made_ms + terms.age_ms;
    return unused < aged ? unused : aged;
}

enum err session_create(struct tx *tx, uint64_t account, const uint8_t hash[TOKEN_HASH_BYTES],
                        struct str label, int64_t now_ms, struct session_terms terms, uint64_t *id)
{
    int64_t ended = 0;
    TRY(tx_exec(tx,
                "DELETE FROM sessions WHERE account_id = $1 AND (expires_at <= $2 OR id IN "
                "(SELECT id FROM sessions WHERE account_id = $1 ORDER BY used_at DESC, id DESC "
                "LIMIT 1000 OFFSET $3))",
                DB_ARGS(DB_I64(account), DB_I64(now_ms), DB_I64(SESSIONS_MAX - 1)), &ended));
    /* the callers that are remembered by those tokens end with them */
    if (ended > 0)
        TRY(outbox_emit(tx, (struct event){.type = EVENT_SESSION_ENDED, .actor = account}));
    if (label.len > 200)
        label.len = 200;
    if (!label.ptr || !str_is_utf8(label))
        label = STR("");
    *id = id_next(tx->ids);
    if (now_ms <
        id_time_ms(*id)) /* the transaction had to wait: nothing is used before it is made */
        now_ms = id_time_ms(*id);
    return tx_exec(tx,
                   "INSERT INTO sessions (account_id, id, token_hash, label, used_at, expires_at) "
                   "VALUES ($1, $2, $3, $4, $5, $6)",
                   DB_ARGS(DB_I64(account), DB_I64(*id),
                           DB_BLOB(((struct str){(const char *)hash, TOKEN_HASH_BYTES})),
                           DB_TEXT(label), DB_I64(now_ms),
                           DB_I64(session_expires_ms(now_ms, now_ms, terms))),
                   NULL);
}

enum err session_find(struct tx *tx, const uint8_t hash[TOKEN_HASH_BYTES], int64_t now_ms,
                      struct session *out)
{
    struct db_rows rows =
        tx_rows(tx,
                "SELECT s.id, s.account_id, s.used_at, s.expires_at, a.state "
                "FROM sessions s JOIN accounts a ON a.id = s.account_id "
                "WHERE s.token_hash = $1",
                DB_ARGS(DB_BLOB(((struct str){(const char *)hash, TOKEN_HASH_BYTES}))));
    bool good = db_next(&rows);
    if (good) {
        *out = (struct session){
            .id = db_id(&rows, 0),
            .account = db_id(&rows, 1),
            .used_at_ms = db_i64(&rows, 2),
            .expires_at_ms = db_i64(&rows, 3),
        };
        good = out->expires_at_ms > now_ms && db_i64(&rows, 4) == ACCOUNT_ACTIVE;
    }
    TRY(db_rows_done(&rows));
    return good ? OK : tx_fail(tx, ERR_UNAUTHENTICATED, "the token is unknown or no longer valid");
}

enum err session_end(struct tx *tx, uint64_t account, uint64_t id)
{
    int64_t changed = 0;
    TRY(tx_exec(tx, "DELETE FROM sessions WHERE account_id = $1 AND id = $2",
                DB_ARGS(DB_I64(account), DB_I64(id)), &changed));
    if (changed == 0)
        return tx_fail(tx, ERR_NOT_FOUND, "no such session");
    return outbox_emit(tx,
                       (struct event){.type = EVENT_SESSION_ENDED, .actor = account, .object = id});
}

enum err grants_are_good(struct tx *tx, uint64_t account, const uint64_t *ids, size_t n,
                         int64_t now_ms, bool *good)
{
    int64_t row[2] = {ACCOUNT_DELETED};
    enum err e = tx_get_numbers(tx,
                                "SELECT a.state, (SELECT COUNT(*) FROM sessions s "
                                "WHERE s.account_id = a.id AND s.expires_at > $3 "
                                "AND s.id IN (SELECT id FROM ids($2))) "
                                "+ (SELECT COUNT(*) FROM api_keys k WHERE k.revoked_at IS NULL "
                                "AND k.id IN (SELECT id FROM ids($2))) "
                                "FROM accounts a WHERE a.id = $1",
                                DB_ARGS(DB_I64(account), DB_IDS(ids, n), DB_I64(now_ms)), row, 2);
    *good = !e && row[0] == ACCOUNT_ACTIVE && row[1] == (int64_t)n;
    return e == ERR_NOT_FOUND ? OK : e;
}

enum err session_list(struct tx *tx, uint64_t account, struct arena *arena,
                      struct session out[SESSIONS_MAX], size_t *n)
{
    *n = 0;
    struct db_rows rows = tx_rows(tx,
                                  "SELECT id, label, used_at, expires_at FROM sessions "
                                  "WHERE account_id = $1 ORDER BY id DESC",
                                  DB_ARGS(DB_I64(account)));
    for (; *n < SESSIONS_MAX && db_next(&rows); (*n)++)
        out[*n] = (struct session){.id = db_id(&rows, 0),
                                   .account = account,
                                   .label = arena_str(arena, db_text(&rows, 1)),
                                   .used_at_ms = db_i64(&rows, 2),
                                   .expires_at_ms = db_i64(&rows, 3)};
    return db_rows_done(&rows);
}
