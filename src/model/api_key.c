/* API keys: how servers call. A key has scopes, is shown once when it is made, and is stored as its
 * hash. */
#include "base/id.h"
#include "model/account.h"

static const struct {
    enum scope scope;
    struct str name;
} scope_names[] = {
    {SCOPE_ACT, {"act", 3}},
    {SCOPE_ADMIN, {"admin", 5}},
    {SCOPE_ADMIN_READ, {"admin:read", 10}},
};

enum { SCOPE_COUNT = sizeof scope_names / sizeof scope_names[0] };

static bool scope_parse(struct str word, unsigned *scopes)
{
    for (size_t i = 0; i < SCOPE_COUNT; i++) {
        if (str_eq(word, scope_names[i].name)) {
            *scopes |= (unsigned)scope_names[i].scope;
            return true;
        }
    }
    return false;
}

bool scopes_parse(struct str text, unsigned *scopes)
{
    *scopes = 0;
    size_t begin = 0;
    for (size_t i = 0; i <= text.len; i++) {
        bool end = i == text.len || text.ptr[i] == ' ' || text.ptr[i] == ',';
        if (!end)
            continue;
        struct str word = {text.ptr + begin, i - begin};
        begin = i + 1;
        if (word.len > 0 && !scope_parse(word, scopes))
            return false;
    }
    return *scopes != 0;
}

void scopes_write(unsigned scopes, struct buf *out)
{
    bool first = true;
    for (size_t i = 0; i < SCOPE_COUNT; i++) {
        if (!(scopes & (unsigned)scope_names[i].scope))
            continue;
        if (!first)
            buf_str(out, STR(" "));
        buf_str(out, scope_names[i].name);
        first = false;
    }
}

static struct db_value number_or_none(int64_t n)
{
    return n ? DB_I64(n) : DB_NULL;
}

enum err api_key_create(struct tx *tx, struct str name, const uint8_t hash[TOKEN_HASH_BYTES],
                        struct api_key_grant *grant)
{
    if (!str_is_utf8(name) || str_count_chars(name) > 80)
        return tx_fail(tx, ERR_INVALID, "name must be at most 80 characters");
    struct buf text;
    buf_init(&text, 0);
    scopes_write(grant->scopes, &text);
    grant->id = id_next(tx->ids);
    enum err e = tx_exec(tx,
                         "INSERT INTO api_keys (id, name, key_hash, scopes, expires_at, rate) "
                         "VALUES ($1, $2, $3, $4, $5, $6)",
                         DB_ARGS(DB_I64(grant->id), DB_TEXT(name),
                                 DB_BLOB(((struct str){(const char *)hash, TOKEN_HASH_BYTES})),
                                 DB_TEXT(buf_view(&text)), number_or_none(grant->expires_at_ms),
                                 number_or_none(grant->rate)),
                         NULL);
    buf_done(&text);
    return e;
}

enum err api_key_find(struct tx *tx, const uint8_t hash[TOKEN_HASH_BYTES], int64_t now_ms,
                      struct api_key_grant *out)
{
    struct db_rows rows = tx_rows(
        tx,
        "SELECT id, scopes, expires_at, rate FROM api_keys WHERE key_hash = $1 "
        "AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)",
        DB_ARGS(DB_BLOB(((struct str){(const char *)hash, TOKEN_HASH_BYTES})), DB_I64(now_ms)));
    bool good = db_next(&rows);
    if (good) {
        *out = (struct api_key_grant){
            .id = db_id(&rows, 0), .expires_at_ms = db_i64(&rows, 2), .rate = db_i64(&rows, 3)};
        good = scopes_parse(db_text(&rows, 1), &out->scopes);
    }
    TRY(db_rows_done(&rows));
    return good ? OK
                : tx_fail(tx, ERR_UNAUTHENTICATED,
                          "the API key is unknown, has expired or was revoked");
}

enum err api_key_revoke(struct tx *tx, uint64_t id)
{
    int64_t changed = 0;
    int64_t now_ms = clock_wall_ms(tx->ids->clock);
    TRY(tx_exec(tx, "UPDATE api_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL",
                DB_ARGS(DB_I64(id), DB_I64(now_ms)), &changed));
    if (changed == 0)
        return tx_fail(tx, ERR_NOT_FOUND, "no such API key");
    /* the cached callers and the streams of this key end like those of a session */
    return outbox_emit(tx, (struct event){.type = EVENT_SESSION_ENDED, .actor = id, .object = id});
}

enum err api_key_list(struct tx *tx, struct arena *arena, struct api_key *out, size_t max,
                      size_t *n)
{
    *n = 0;
    struct db_rows rows =
        tx_rows(tx,
                "SELECT id, name, scopes, revoked_at, expires_at, rate FROM api_keys "
                "ORDER BY id DESC LIMIT $1",
                DB_ARGS(DB_I64(max)));
    for (; *n < max && db_next(&rows); (*n)++)
        out[*n] = (struct api_key){.id = db_id(&rows, 0),
                                   .name = arena_str(arena, db_text(&rows, 1)),
                                   .scopes = arena_str(arena, db_text(&rows, 2)),
                                   .revoked_at_ms = db_i64(&rows, 3),
                                   .expires_at_ms = db_i64(&rows, 4),
                                   .rate = db_i64(&rows, 5)};
    return db_rows_done(&rows);
}
