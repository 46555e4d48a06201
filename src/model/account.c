/* Accounts: their names, their profiles and their states.
 *
 * The username is the only public handle and is kept in lower case, so that the UNIQUE index alone
 * decides whose it is. A deleted account keeps its row (an id that others hold must stay dead, not
 * become another person's) but loses its name and everything personal at once. */
#include "model/account.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>

#include "base/check.h"
#include "base/id.h"
#include "model/erase.h"
#include "model/text.h"

#define ACCOUNT_COLUMNS                                                                            \
    "id, username, display_name, bio, avatar_url, email, state, celebrity, follower_count, "       \
    "following_count, post_count"

bool username_normalize(struct str username, char *out, size_t *len)
{
    if (username.len < USERNAME_MIN || username.len > USERNAME_MAX)
        return false;
    for (size_t i = 0; i < username.len; i++) {
        unsigned char c = (unsigned char)username.ptr[i];
        if (c >= 'A' && c <= 'Z')
            c = (unsigned char)(c - 'A' + 'a');
        bool allowed = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
        if (!allowed)
            return false;
        out[i] = (char)c;
    }
    *len = username.len;
    return true;
}

bool username_is_reserved(struct str username)
{
    static const char *const reserved[] = {
        "abuse",    "account",    "admin",     "administrator", "all",        "anonymous",
        "api",      "billing",    "channel",   "deleted",       "everyone",   "fantail",
        "false",    "feed",       "help",      "here",          "hostmaster", "moderator",
        "nobody",   "noreply",    "null",      "official",      "operator",   "owner",
        "password", "postmaster", "privacy",   "root",          "security",   "settings",
        "staff",    "status",     "superuser", "support",       "sysadmin",   "system",
        "team",     "true",       "undefined", "webmaster",     "www",
    };
    for (size_t i = 0; i < COUNT_OF(reserved); i++) {
        if (str_eq(username, str_of(reserved[i])))
            return true;
    }
    return false;
}

/* An absent text and an empty one are fine. */
static enum err check_text(struct tx *tx, struct str text, const char *what, size_t max_chars)
{
    return text.len == 0 ? OK : text_check(tx, text, what, max_chars, TEXT_LINES);
}

static enum err check_url(struct tx *tx, struct str url, const char *what)
{
    if (!url.ptr || url.len == 0)
        return OK;
    if (url.len > URL_MAX)
        return tx_fail(tx, ERR_INVALID, "%s is longer than %d bytes", what, URL_MAX);
    if (!str_starts(url, STR("https://")) && !str_starts(url, STR("http://")))
        return tx_fail(tx, ERR_INVALID, "%s must begin with https:// or http://", what);
    for (size_t i = 0; i < url.len; i++) {
        if ((unsigned char)url.ptr[i] <= 0x20 || (unsigned char)url.ptr[i] >= 0x7f)
            return tx_fail(tx, ERR_INVALID, "%s must be plain printable ASCII", what);
    }
    return OK;
}

static enum err check_email(struct tx *tx, struct str email)
{
    if (!email.ptr || email.len == 0)
        return OK;
    const char *at = memchr(email.ptr, '@', email.len);
    bool placed = at && at != email.ptr && at != email.ptr + email.len - 1;
    if (!placed || email.len > EMAIL_MAX || memchr(email.ptr, ' ', email.len))
        return tx_fail(tx, ERR_INVALID, "email is not an address of at most %d bytes", EMAIL_MAX);
    return text_check(tx, email, "email", EMAIL_MAX, TEXT_PLAIN);
}

static enum err check_profile(struct tx *tx, struct str display_name, struct str bio,
                              struct str avatar_url, struct str email)
{
    TRY(check_text(tx, display_name, "display_name", DISPLAY_NAME_MAX));
    TRY(check_text(tx, bio, "bio", BIO_MAX));
    TRY(check_url(tx, avatar_url, "avatar_url"));
    return check_email(tx, email);
}

static struct db_value text_or_empty(struct str s)
{
    return s.ptr ? DB_TEXT(s) : DB_TEXT(STR(""));
}

/* In the optional columns an empty string means: none. */
static struct db_value text_or_none(struct str s)
{
    return s.ptr && s.len > 0 ? DB_TEXT(s) : DB_NULL;
}

enum { NEW_COLUMNS = 9 };

#define INSERT_ACCOUNT                                                                             \
    "INSERT INTO accounts (id, username, display_name, bio, avatar_url, email, "                   \
    "password_hash, external_id, seen_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"

static void write_new(const struct account_new *in, uint64_t id, struct str username,
                      struct db_value row[NEW_COLUMNS])
{
    row[0] = DB_I64(id);
    row[1] = DB_TEXT(username);
    row[2] = text_or_empty(in->display_name);
    row[3] = text_or_empty(in->bio);
    row[4] = text_or_none(in->avatar_url);
    row[5] = text_or_none(in->email);
    row[6] = DB_TEXT_OR_NULL(in->password_hash);
    row[7] = text_or_none(in->external_id);
    row[8] = DB_I64(in->seen_at_ms);
}

/* The name in lower case goes to `name`. */
static enum err check_new(struct tx *tx, const struct account_new *in, char name[USERNAME_MAX],
                          struct str *username)
{
    *username = (struct str){name, 0};
    if (!username_normalize(in->username, name, &username->len))
        return tx_fail(tx, ERR_INVALID, "username must be %d to %d of a-z 0-9 _ .", USERNAME_MIN,
                       USERNAME_MAX);
    TRY(check_profile(tx, in->display_name, in->bio, in->avatar_url, in->email));
    return check_text(tx, in->external_id, "external id", EXTERNAL_ID_MAX);
}

enum err account_create(struct tx *tx, const struct account_new *in, uint64_t *id)
{
    char name[USERNAME_MAX];
    struct str username;
    struct db_value row[NEW_COLUMNS];
    TRY(check_new(tx, in, name, &username));
    uint64_t new_id = in->id ? in->id : id_next(tx->ids);
    int64_t changed = 0;
    write_new(in, new_id, username, row);
    TRY(tx_exec(tx, INSERT_ACCOUNT " ON CONFLICT DO NOTHING", row, NEW_COLUMNS, &changed));
    if (changed == 0)
        return tx_fail(tx, ERR_CONFLICT, "the username is taken");
    *id = new_id;
    return outbox_emit(tx, (struct event){.type = EVENT_ACCOUNT_CREATED, .actor = new_id});
}

enum err account_create_all(struct tx *tx, struct account_new *in, size_t n, bool *taken,
                            struct arena *arena)
{
    struct db_value *rows = ARENA_ARRAY(arena, struct db_value, n * NEW_COLUMNS);
    struct event *events = ARENA_ARRAY(arena, struct event, n);
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        struct str username;
        taken[i] = check_new(tx, &in[i], arena_alloc(arena, USERNAME_MAX), &username) == OK;
        if (!taken[i])
            continue;
        in[i].id = in[i].id ? in[i].id : id_next(tx->ids);
        write_new(&in[i], in[i].id, username, &rows[count * NEW_COLUMNS]);
        events[count++] = (struct event){.type = EVENT_ACCOUNT_CREATED, .actor = in[i].id};
    }
    enum err e = tx_exec_each(tx, INSERT_ACCOUNT, rows, NEW_COLUMNS, count);
    for (size_t i = 0; i < n && e == ERR_CONFLICT; i++)
        taken[i] = false; /* another writer was faster: nothing was written */
    if (e)
        return e == ERR_CONFLICT ? OK : e;
    return outbox_emit_all(tx, events, count);
}

static void read_account(struct db_rows *rows, struct arena *arena, struct account *out)
{
    *out = (struct account){
        .id = db_id(rows, 0),
        .username = arena_str(arena, db_text(rows, 1)),
        .display_name = arena_str(arena, db_text(rows, 2)),
        .bio = arena_str(arena, db_text(rows, 3)),
        .avatar_url = arena_str_or_null(arena, db_text(rows, 4)),
        .email = arena_str_or_null(arena, db_text(rows, 5)),
        .state = (enum account_state)db_i64(rows, 6),
        .celebrity = db_i64(rows, 7) != 0,
        .follower_count = db_i64(rows, 8),
        .following_count = db_i64(rows, 9),
        .post_count = db_i64(rows, 10),
    };
}

static enum err one_account(struct tx *tx, const char *sql, struct db_value key,
                            struct arena *arena, struct account *out)
{
    struct db_rows rows = tx_rows(tx, sql, &key, 1);
    bool found = db_next(&rows);
    if (found)
        read_account(&rows, arena, out);
    TRY(db_rows_done(&rows));
    if (!found || out->state == ACCOUNT_DELETED)
        return tx_fail(tx, ERR_NOT_FOUND, "no such account");
    return OK;
}

enum err account_get(struct tx *tx, uint64_t id, struct arena *arena, struct account *out)
{
    return one_account(tx, "SELECT " ACCOUNT_COLUMNS " FROM accounts WHERE id = $1", DB_I64(id),
                       arena, out);
}

enum err account_by_username(struct tx *tx, struct str username, struct arena *arena,
                             struct account *out)
{
    char name[USERNAME_MAX];
    struct str key = {name, 0};
    if (!username_normalize(username, name, &key.len))
        return tx_fail(tx, ERR_NOT_FOUND, "no such account");
    return one_account(tx, "SELECT " ACCOUNT_COLUMNS " FROM accounts WHERE username = $1",
                       DB_TEXT(key), arena, out);
}

enum err account_by_external_id(struct tx *tx, struct str external_id, uint64_t *id)
{
    int64_t found;
    TRY(tx_get_i64(tx, "SELECT id FROM accounts WHERE external_id = $1",
                   DB_ARGS(DB_TEXT(external_id)), &found));
    *id = (uint64_t)found;
    return OK;
}

enum err account_update(struct tx *tx, uint64_t id, const struct account_change *change)
{
    TRY(check_profile(tx, change->display_name, change->bio, change->avatar_url, change->email));
    /* $n is a flag that says whether the field that follows it was given. */
    int64_t changed = 0;
    TRY(tx_exec(tx,
                "UPDATE accounts SET "
                "display_name = CASE WHEN $2 = 1 THEN $3 ELSE display_name END, "
                "bio = CASE WHEN $4 = 1 THEN $5 ELSE bio END, "
                "avatar_url = CASE WHEN $6 = 1 THEN $7 ELSE avatar_url END, "
                "email = CASE WHEN $8 = 1 THEN $9 ELSE email END "
                "WHERE id = $1 AND state <> 2",
                DB_ARGS(DB_I64(id), DB_I64(change->display_name.ptr != NULL),
                        text_or_empty(change->display_name), DB_I64(change->bio.ptr != NULL),
                        text_or_empty(change->bio), DB_I64(change->avatar_url.ptr != NULL),
                        text_or_none(change->avatar_url), DB_I64(change->email.ptr != NULL),
                        text_or_none(change->email)),
                &changed));
    if (changed == 0)
        return tx_fail(tx, ERR_NOT_FOUND, "no such account");
    return outbox_emit(tx, (struct event){.type = EVENT_ACCOUNT_UPDATED, .actor = id});
}

enum err account_password_hash(struct tx *tx, uint64_t id, struct arena *arena, struct str *hash)
{
    struct db_rows rows = tx_rows(
        tx, "SELECT password_hash FROM accounts WHERE id = $1 AND state <> 2", DB_ARGS(DB_I64(id)));
    bool found = db_next(&rows);
    if (found)
        *hash = arena_str_or_null(arena, db_text(&rows, 0));
    TRY(db_rows_done(&rows));
    return found ? OK : tx_fail(tx, ERR_NOT_FOUND, "no such account");
}

enum err account_set_password(struct tx *tx, uint64_t id, struct str hash, uint64_t keep_session)
{
    int64_t changed = 0;
    TRY(tx_exec(tx, "UPDATE accounts SET password_hash = $2 WHERE id = $1 AND state <> 2",
                DB_ARGS(DB_I64(id), DB_TEXT(hash)), &changed));
    if (changed == 0)
        return tx_fail(tx, ERR_NOT_FOUND, "no such account");
    TRY(tx_exec(tx, "DELETE FROM sessions WHERE account_id = $1 AND id <> $2",
                DB_ARGS(DB_I64(id), DB_I64(keep_session)), NULL));
    return outbox_emit(tx, (struct event){.type = EVENT_SESSION_ENDED, .actor = id});
}

enum err account_suspend(struct tx *tx, uint64_t id, bool suspended)
{
    int64_t state;
    enum err e =
        tx_get_i64(tx, "SELECT state FROM accounts WHERE id = $1", DB_ARGS(DB_I64(id)), &state);
    if (e == ERR_NOT_FOUND || (!e && state == ACCOUNT_DELETED))
        return tx_fail(tx, ERR_NOT_FOUND, "no such account");
    if (e)
        return e;
    int64_t wanted = suspended ? ACCOUNT_SUSPENDED : ACCOUNT_ACTIVE;
    if (state == wanted)
        return OK;
    TRY(tx_exec(tx, "UPDATE accounts SET state = $2 WHERE id = $1",
                DB_ARGS(DB_I64(id), DB_I64(wanted)), NULL));
    return outbox_emit(
        tx, (struct event){.type = suspended ? EVENT_ACCOUNT_SUSPENDED : EVENT_ACCOUNT_RESTORED,
                           .actor = id});
}

/* What stays of an external id whose account was deleted: '~' and a hash under the store's own
 * secret, so that the hash tells nothing to who has it alone. */
enum { DELETED_HASH_BYTES = 16, DELETED_TEXT = 1 + 2 * DELETED_HASH_BYTES };

static enum err hash_deleted(struct tx *tx, struct str external_id, char out[DELETED_TEXT])
{
    uint8_t key[crypto_generichash_KEYBYTES_MAX] = {0}, hash[DELETED_HASH_BYTES];
    struct db_rows rows = tx_rows(tx, "SELECT value FROM meta WHERE name = 'secret'", DB_NO_ARGS);
    if (db_next(&rows)) {
        struct str secret = db_text(&rows, 0);
        memcpy(key, secret.ptr, secret.len < sizeof key ? secret.len : sizeof key);
    }
    TRY(db_rows_done(&rows));
    crypto_generichash(hash, sizeof hash, (const uint8_t *)external_id.ptr, external_id.len, key,
                       sizeof key);
    out[0] = '~';
    str_hex(hash, sizeof hash, out + 1);
    return OK;
}

enum err account_return(struct tx *tx, struct str external_id, bool allowed)
{
    char text[DELETED_TEXT];
    uint64_t deleted;
    TRY(hash_deleted(tx, external_id, text));
    struct str hash = {text, sizeof text};
    enum err e = account_by_external_id(tx, hash, &deleted);
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    if (!allowed)
        return tx_fail(tx, ERR_FORBIDDEN, "this account was deleted");
    return tx_exec(tx, "UPDATE accounts SET external_id = NULL WHERE id = $1",
                   DB_ARGS(DB_I64(deleted)), NULL);
}

/* *out: {NULL, 0}: it has no external id. */
static enum err deleted_external_id(struct tx *tx, uint64_t id, char text[DELETED_TEXT],
                                    struct str *out)
{
    char external_id[EXTERNAL_ID_MAX * 4];
    struct str found = {external_id, 0};
    struct db_rows rows = tx_rows(
        tx, "SELECT external_id FROM accounts WHERE id = $1 AND state <> 2", DB_ARGS(DB_I64(id)));
    if (db_next(&rows)) {
        struct str value = db_text(&rows, 0);
        found.len = value.len < sizeof external_id ? value.len : sizeof external_id;
        if (found.len > 0)
            memcpy(external_id, value.ptr, found.len);
    }
    TRY(db_rows_done(&rows));
    *out = (struct str){NULL, 0};
    if (found.len == 0)
        return OK;
    *out = (struct str){text, DELETED_TEXT};
    return hash_deleted(tx, found, text);
}

enum err account_delete(struct tx *tx, uint64_t id)
{
    /* '~' cannot be part of a username, so the row's new name can never be wanted. */
    char freed[ID_TEXT_MAX + 2];
    int freed_len = snprintf(freed, sizeof freed, "~%llu", (unsigned long long)id);
    struct str username = {freed, (size_t)freed_len};
    int64_t changed = 0;
    char hash[DELETED_TEXT];
    struct str external_id;
    TRY(deleted_external_id(tx, id, hash, &external_id));
    TRY(tx_exec(tx,
                "UPDATE accounts SET state = 2, username = $2, display_name = '', "
                "bio = '', avatar_url = NULL, email = NULL, password_hash = NULL, "
                "external_id = $3 WHERE id = $1 AND state <> 2",
                DB_ARGS(DB_I64(id), DB_TEXT(username), text_or_none(external_id)), &changed));
    if (changed == 0)
        return tx_fail(tx, ERR_NOT_FOUND, "no such account");
    TRY(tx_exec(tx, "DELETE FROM sessions WHERE account_id = $1", DB_ARGS(DB_I64(id)), NULL));
    TRY(erase_messages_later(tx, id));
    TRY(outbox_emit(tx, (struct event){.type = EVENT_SESSION_ENDED, .actor = id}));
    return outbox_emit(tx, (struct event){.type = EVENT_ACCOUNT_DELETED, .actor = id});
}

enum err account_relationship(struct tx *tx, uint64_t viewer, uint64_t other,
                              struct relationship *out)
{
    int64_t is[5] = {0};
    enum err e = tx_get_numbers(
        tx,
        "SELECT (SELECT COUNT(*) FROM follows WHERE follower_id = $1 AND followee_id = $2), "
        "(SELECT COUNT(*) FROM follows WHERE follower_id = $2 AND followee_id = $1), "
        "(SELECT COUNT(*) FROM blocks WHERE blocker_id = $1 AND blocked_id = $2), "
        "(SELECT COUNT(*) FROM blocks WHERE blocker_id = $2 AND blocked_id = $1), "
        "(SELECT COUNT(*) FROM mutes WHERE muter_id = $1 AND muted_id = $2)",
        DB_ARGS(DB_I64(viewer), DB_I64(other)), is, COUNT_OF(is));
    *out = (struct relationship){.following = is[0],
                                 .followed_by = is[1],
                                 .blocking = is[2],
                                 .blocked_by = is[3],
                                 .muting = is[4]};
    return e;
}

void account_card_read(struct db_rows *rows, int first, struct arena *arena,
                       struct account_card *out)
{
    *out = (struct account_card){
        .id = db_id(rows, first),
        .username = arena_str(arena, db_text(rows, first + 1)),
        .display_name = arena_str(arena, db_text(rows, first + 2)),
        .avatar_url = arena_str_or_null(arena, db_text(rows, first + 3)),
    };
}

enum err account_cards_read(struct db_rows *rows, struct arena *arena, struct account_card *out,
                            size_t max, size_t *n)
{
    for (*n = 0; *n < max && db_next(rows); (*n)++)
        account_card_read(rows, 0, arena, &out[*n]);
    return db_rows_done(rows);
}

/* The least string above every string that begins with the prefix: its last byte plus one.
 * Usernames are ASCII below '~', so the byte never overflows. */
static struct str prefix_end(struct str prefix, char out[USERNAME_MAX])
{
    memcpy(out, prefix.ptr, prefix.len);
    out[prefix.len - 1] = (char)(out[prefix.len - 1] + 1);
    return (struct str){out, prefix.len};
}

enum err account_search(struct tx *tx, uint64_t viewer, struct str prefix, struct str after,
                        size_t limit, struct arena *arena, struct account_card *out, size_t *n)
{
    char from[USERNAME_MAX], end[USERNAME_MAX];
    *n = 0;
    if (prefix.len == 0 || prefix.len > USERNAME_MAX)
        return tx_fail(tx, ERR_BAD_INPUT, "q must be 1 to %d characters", USERNAME_MAX);
    for (size_t i = 0; i < prefix.len; i++) {
        from[i] = (char)tolower((unsigned char)prefix.ptr[i]);
        if (!(isalnum((unsigned char)from[i]) || from[i] == '_' || from[i] == '.'))
            return OK; /* no username holds it */
    }
    struct str lower = {from, prefix.len};
    struct db_rows rows =
        tx_rows(tx,
                "SELECT " ACCOUNT_CARD_COLUMNS " FROM accounts a WHERE a.username >= $1 "
                "AND a.username < $2 AND a.username > $3 AND a.state = 0 "
                "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = $4 AND blocked_id = a.id) "
                "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = a.id AND blocked_id = $4) "
                "ORDER BY a.username LIMIT $5",
                DB_ARGS(DB_TEXT(lower), DB_TEXT(prefix_end(lower, end)), text_or_empty(after),
                        DB_I64(viewer), DB_I64(limit)));
    return account_cards_read(&rows, arena, out, limit, n);
}
