/* Accounts: who exists, what they say about themselves, and what state they are in.
 *
 * The username is the only public handle and is kept in lower case, so that the UNIQUE index alone
 * decides who has it. A deleted account keeps its row (ids that others hold must stay dead, not
 * become somebody else) but gives its name and everything personal back at once. */
#include "model/account.h"

#include <ctype.h>
#include <stdio.h>

#include "base/id.h"

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

/* A free text of at most max_chars code points; control characters other than line breaks are
 * refused. */
static enum err check_text(struct tx *tx, struct str text, const char *what, size_t max_chars)
{
    if (!text.ptr)
        return OK;
    if (!str_is_utf8(text))
        return tx_fail(tx, ERR_INVALID, "%s is not valid UTF-8", what);
    if (str_count_chars(text) > max_chars)
        return tx_fail(tx, ERR_INVALID, "%s is longer than %zu characters", what, max_chars);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f)
            return tx_fail(tx, ERR_INVALID, "%s holds a control character", what);
    }
    return OK;
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
    return check_text(tx, email, "email", EMAIL_MAX);
}

static enum err check_profile(struct tx *tx, struct str display_name, struct str bio,
                              struct str avatar_url, struct str email)
{
    enum err e = check_text(tx, display_name, "display_name", DISPLAY_NAME_MAX);
    if (!e)
        e = check_text(tx, bio, "bio", BIO_MAX);
    if (!e)
        e = check_url(tx, avatar_url, "avatar_url");
    if (!e)
        e = check_email(tx, email);
    return e;
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

enum err account_create(struct tx *tx, const struct account_new *in, uint64_t *id)
{
    char name[USERNAME_MAX];
    size_t name_len;
    if (!username_normalize(in->username, name, &name_len))
        return tx_fail(tx, ERR_INVALID, "username must be %d to %d of a-z 0-9 _ .", USERNAME_MIN,
                       USERNAME_MAX);
    enum err e = check_profile(tx, in->display_name, in->bio, in->avatar_url, in->email);
    if (!e)
        e = check_text(tx, in->external_id, "external id", 255);
    if (e)
        return e;

    uint64_t new_id = in->id ? in->id : id_next(tx->ids);
    int64_t changed = 0;
    struct str username = {name, name_len};
    e = tx_exec(tx,
                "INSERT INTO accounts (id, username, display_name, bio, avatar_url, email, "
                "password_hash, external_id, seen_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) "
                "ON CONFLICT DO NOTHING",
                DB_ARGS(DB_I64(new_id), DB_TEXT(username), text_or_empty(in->display_name),
                        text_or_empty(in->bio), text_or_none(in->avatar_url),
                        text_or_none(in->email), DB_TEXT_OR_NULL(in->password_hash),
                        text_or_none(in->external_id), DB_I64(in->seen_at_ms)),
                &changed);
    if (e)
        return e;
    if (changed == 0)
        return tx_fail(tx, ERR_CONFLICT, "the username is taken");
    *id = new_id;
    return outbox_emit(tx, (struct event){.type = EVENT_ACCOUNT_CREATED, .actor = new_id});
}

static void read_account(struct db_rows *rows, struct arena *arena, struct account *out)
{
    struct str avatar = db_text(rows, 4);
    struct str email = db_text(rows, 5);
    *out = (struct account){
        .id = db_id(rows, 0),
        .username = arena_str(arena, db_text(rows, 1)),
        .display_name = arena_str(arena, db_text(rows, 2)),
        .bio = arena_str(arena, db_text(rows, 3)),
        .avatar_url = avatar.ptr ? arena_str(arena, avatar) : avatar,
        .email = email.ptr ? arena_str(arena, email) : email,
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
    struct db_rows rows;
    enum err e = tx_query(tx, sql, &key, 1, &rows);
    if (e)
        return e;
    bool found = db_next(&rows);
    if (found)
        read_account(&rows, arena, out);
    e = db_rows_done(&rows);
    if (e)
        return e;
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
    enum err e = tx_get_i64(tx, "SELECT id FROM accounts WHERE external_id = $1",
                            DB_ARGS(DB_TEXT(external_id)), &found);
    if (!e)
        *id = (uint64_t)found;
    return e;
}

enum err account_update(struct tx *tx, uint64_t id, const struct account_change *change)
{
    enum err e =
        check_profile(tx, change->display_name, change->bio, change->avatar_url, change->email);
    if (e)
        return e;
    /* $n is a flag that says whether the field that follows it was given. */
    int64_t changed = 0;
    e = tx_exec(tx,
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
                &changed);
    if (e)
        return e;
    if (changed == 0)
        return tx_fail(tx, ERR_NOT_FOUND, "no such account");
    return outbox_emit(tx, (struct event){.type = EVENT_ACCOUNT_UPDATED, .actor = id});
}

enum err account_password_hash(struct tx *tx, uint64_t id, struct arena *arena, struct str *hash)
{
    struct db_rows rows;
    enum err e = tx_query(tx, "SELECT password_hash FROM accounts WHERE id = $1 AND state <> 2",
                          DB_ARGS(DB_I64(id)), &rows);
    if (e)
        return e;
    bool found = db_next(&rows);
    if (found) {
        struct str stored = db_text(&rows, 0);
        *hash = stored.ptr ? arena_str(arena, stored) : stored;
    }
    e = db_rows_done(&rows);
    if (!e && !found)
        e = tx_fail(tx, ERR_NOT_FOUND, "no such account");
    return e;
}

enum err account_set_password(struct tx *tx, uint64_t id, struct str hash, uint64_t keep_session)
{
    int64_t changed = 0;
    enum err e = tx_exec(tx, "UPDATE accounts SET password_hash = $2 WHERE id = $1 AND state <> 2",
                         DB_ARGS(DB_I64(id), DB_TEXT(hash)), &changed);
    if (!e && changed == 0)
        e = tx_fail(tx, ERR_NOT_FOUND, "no such account");
    if (!e)
        e = tx_exec(tx, "DELETE FROM sessions WHERE account_id = $1 AND id <> $2",
                    DB_ARGS(DB_I64(id), DB_I64(keep_session)), NULL);
    if (!e)
        e = outbox_emit(tx, (struct event){.type = EVENT_SESSION_ENDED, .actor = id});
    return e;
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
    e = tx_exec(tx, "UPDATE accounts SET state = $2 WHERE id = $1",
                DB_ARGS(DB_I64(id), DB_I64(wanted)), NULL);
    if (!e)
        e = outbox_emit(
            tx, (struct event){.type = suspended ? EVENT_ACCOUNT_SUSPENDED : EVENT_ACCOUNT_RESTORED,
                               .actor = id});
    return e;
}

enum err account_delete(struct tx *tx, uint64_t id)
{
    /* '~' cannot be part of a username, so the row's new name can never be wanted. */
    char freed[ID_TEXT_MAX + 2];
    int freed_len = snprintf(freed, sizeof freed, "~%llu", (unsigned long long)id);
    struct str username = {freed, (size_t)freed_len};
    int64_t changed = 0;
    enum err e = tx_exec(tx,
                         "UPDATE accounts SET state = 2, username = $2, display_name = '', "
                         "bio = '', avatar_url = NULL, email = NULL, password_hash = NULL, "
                         "external_id = NULL WHERE id = $1 AND state <> 2",
                         DB_ARGS(DB_I64(id), DB_TEXT(username)), &changed);
    if (e)
        return e;
    if (changed == 0)
        return tx_fail(tx, ERR_NOT_FOUND, "no such account");
    e = tx_exec(tx, "DELETE FROM sessions WHERE account_id = $1", DB_ARGS(DB_I64(id)), NULL);
    if (!e)
        e = outbox_emit(tx, (struct event){.type = EVENT_SESSION_ENDED, .actor = id});
    if (!e)
        e = outbox_emit(tx, (struct event){.type = EVENT_ACCOUNT_DELETED, .actor = id});
    return e;
}

enum err account_relationship(struct tx *tx, uint64_t viewer, uint64_t other,
                              struct relationship *out)
{
    struct db_rows rows;
    enum err e =
        tx_query(tx,
                 "SELECT "
                 "(SELECT COUNT(*) FROM follows WHERE follower_id = $1 AND followee_id = $2), "
                 "(SELECT COUNT(*) FROM follows WHERE follower_id = $2 AND followee_id = $1), "
                 "(SELECT COUNT(*) FROM blocks WHERE blocker_id = $1 AND blocked_id = $2), "
                 "(SELECT COUNT(*) FROM blocks WHERE blocker_id = $2 AND blocked_id = $1), "
                 "(SELECT COUNT(*) FROM mutes WHERE muter_id = $1 AND muted_id = $2)",
                 DB_ARGS(DB_I64(viewer), DB_I64(other)), &rows);
    if (e)
        return e;
    if (db_next(&rows)) {
        *out = (struct relationship){
            .following = db_i64(&rows, 0) != 0,
            .followed_by = db_i64(&rows, 1) != 0,
            .blocking = db_i64(&rows, 2) != 0,
            .blocked_by = db_i64(&rows, 3) != 0,
            .muting = db_i64(&rows, 4) != 0,
        };
    }
    return db_rows_done(&rows);
}

static void write_text_or_null(struct json_out *j, struct str text)
{
    if (text.ptr)
        json_str(j, text);
    else
        json_nil(j);
}

static void write_brief_fields(struct json_out *j, const struct account *a)
{
    json_put(j, "id", id, a->id);
    json_put(j, "username", str, a->username);
    json_put(j, "display_name", str, a->display_name);
    json_key(j, STR("avatar_url"));
    write_text_or_null(j, a->avatar_url);
}

void account_write_brief(struct json_out *j, const struct account *a)
{
    json_object_begin(j);
    write_brief_fields(j, a);
    json_object_end(j);
}

void account_write(struct json_out *j, const struct account *a, const struct relationship *r,
                   bool own)
{
    json_object_begin(j);
    write_brief_fields(j, a);
    json_put(j, "bio", str, a->bio);
    json_put(j, "follower_count", i64, a->follower_count);
    json_put(j, "following_count", i64, a->following_count);
    json_put(j, "post_count", i64, a->post_count);
    json_put(j, "created_at", time, id_time_ms(a->id));
    if (own) {
        json_key(j, STR("email"));
        write_text_or_null(j, a->email);
    }
    if (r) {
        json_key(j, STR("relationship"));
        json_object_begin(j);
        json_put(j, "following", bool, r->following);
        json_put(j, "followed_by", bool, r->followed_by);
        json_put(j, "blocking", bool, r->blocking);
        json_put(j, "muting", bool, r->muting);
        json_object_end(j);
    }
    json_object_end(j);
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
                        size_t limit, struct json_out *j, size_t *n,
                        char last_username[USERNAME_MAX], size_t *last_len)
{
    char from[USERNAME_MAX], end[USERNAME_MAX];
    *n = 0;
    *last_len = 0;
    if (prefix.len == 0 || prefix.len > USERNAME_MAX)
        return tx_fail(tx, ERR_BAD_INPUT, "q must be 1 to %d characters", USERNAME_MAX);
    for (size_t i = 0; i < prefix.len; i++) {
        from[i] = (char)tolower((unsigned char)prefix.ptr[i]);
        if (!(isalnum((unsigned char)from[i]) || from[i] == '_' || from[i] == '.'))
            return OK; /* no username holds it */
    }
    struct str lower = {from, prefix.len};
    struct db_rows rows;
    enum err e = tx_query(
        tx,
        "SELECT " ACCOUNT_COLUMNS " FROM accounts WHERE username >= $1 AND username < $2 "
        "AND username > $3 AND state = 0 "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = $4 AND blocked_id = accounts.id) "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = accounts.id AND blocked_id = $4) "
        "ORDER BY username LIMIT $5",
        DB_ARGS(DB_TEXT(lower), DB_TEXT(prefix_end(lower, end)), text_or_empty(after),
                DB_I64(viewer), DB_I64(limit)),
        &rows);
    if (e)
        return e;
    struct arena arena;
    arena_init(&arena);
    while (db_next(&rows)) {
        struct account a;
        read_account(&rows, &arena, &a);
        account_write_brief(j, &a);
        memcpy(last_username, a.username.ptr, a.username.len);
        *last_len = a.username.len;
        (*n)++;
    }
    arena_done(&arena);
    return db_rows_done(&rows);
}
