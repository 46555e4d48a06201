/* Bulk import of NDJSON.
 *
 * Each line goes through the same functions as a request, so an import can make nothing true that
 * the API would refuse, and counters, crossings and events come by themselves. Those functions
 * refuse before they write; a refused line therefore leaves nothing behind, and its transaction
 * goes on.
 *
 * Run again, an import finds what it made before. Accounts are known by their names, edges by their
 * ends. A post or comment with a time but no id gets an id whose low bits come from its content;
 * the same line finds the same id, and another line that was given those bits by chance takes the
 * next ones. */
#include "model/import.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/id.h"
#include "model/account.h"
#include "model/post.h"

enum { ID_PROBES = 64, HASH_TEXT_MAX = 127 };

struct import {
    struct tx *tx;
    const struct follow_policy *policy;
    struct import_result *result;
    struct arena arena; /* of one line */
};

static enum err refuse(struct import *im, const char *why)
{
    return tx_fail(im->tx, ERR_INVALID, "%s", why);
}

/* ---- fields ---- */

/* Absent and null leave {NULL, 0}. */
static enum err text_field(struct import *im, const json_t *line, const char *name, bool required,
                           struct str *out)
{
    const json_t *value = json_object_get(line, name);
    *out = (struct str){0};
    if (!value || json_is_null(value))
        return required ? tx_fail(im->tx, ERR_INVALID, "%s is missing", name) : OK;
    if (!json_is_string(value))
        return tx_fail(im->tx, ERR_INVALID, "%s must be a string", name);
    *out = (struct str){json_string_value(value), json_string_length(value)};
    if (memchr(out->ptr, 0, out->len))
        return tx_fail(im->tx, ERR_INVALID, "%s holds a NUL character", name);
    return OK;
}

static bool value_id(const json_t *value, uint64_t *id)
{
    if (json_is_integer(value) && json_integer_value(value) > 0) {
        *id = (uint64_t)json_integer_value(value);
        return true;
    }
    struct str text = {json_string_value(value), json_string_length(value)};
    return json_is_string(value) && id_parse(text, id);
}

/* *id stays 0 when the field is absent. Ids carry their time, which must have passed. */
static enum err id_field(struct import *im, const json_t *line, const char *name, bool required,
                         uint64_t *id)
{
    const json_t *value = json_object_get(line, name);
    *id = 0;
    if (!value || json_is_null(value))
        return required ? tx_fail(im->tx, ERR_INVALID, "%s is missing", name) : OK;
    if (!value_id(value, id))
        return tx_fail(im->tx, ERR_INVALID, "%s is not an id", name);
    if (id_time_ms(*id) > clock_wall_ms(im->tx->ids->clock))
        return tx_fail(im->tx, ERR_INVALID, "%s lies in the future", name);
    return OK;
}

/* *at_ms stays 0 when the field is absent. */
static enum err time_field(struct import *im, const json_t *line, int64_t *at_ms)
{
    struct str text;
    *at_ms = 0;
    TRY(text_field(im, line, "created_at", false, &text));
    if (!text.ptr)
        return OK;
    if (!time_parse(text, at_ms))
        return refuse(im, "created_at is not an RFC 3339 time");
    if (*at_ms < ID_EPOCH_MS)
        return refuse(im, "created_at is before 2024-01-01, where ids begin");
    if (*at_ms > clock_wall_ms(im->tx->ids->clock))
        return refuse(im, "created_at lies in the future");
    return OK;
}

static enum err exists(struct import *im, const char *sql, struct db_value key, bool *found)
{
    int64_t id;
    enum err e = tx_get_i64(im->tx, sql, &key, 1, &id);
    *found = !e;
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err account_field(struct import *im, const json_t *line, const char *name, uint64_t *id)
{
    const json_t *value = json_object_get(line, name);
    bool found = false;
    enum err e = OK;
    if (value_id(value, id))
        e = exists(im, "SELECT id FROM accounts WHERE id = $1 AND state <> 2", DB_I64(*id), &found);
    if (e || found)
        return e;
    struct str text;
    struct account account;
    e = text_field(im, line, name, true, &text);
    if (!e)
        e = account_by_username(im->tx, text, &im->arena, &account);
    if (e == ERR_NOT_FOUND)
        return tx_fail(im->tx, ERR_NOT_FOUND, "%s: no such account", name);
    if (!e)
        *id = account.id;
    return e;
}

/* ---- ids from content ---- */

/* The n-th id that content with this hash may have at this time. */
static uint64_t probe_id(int64_t at_ms, uint64_t hash, uint32_t probe)
{
    uint64_t low = (hash + probe) & ((1u << (ID_NODE_BITS + ID_COUNTER_BITS)) - 1);
    return id_at(at_ms, (uint32_t)(low >> ID_COUNTER_BITS),
                 (uint32_t)(low & ((1u << ID_COUNTER_BITS) - 1)));
}

/* Finds the row's id: one that is free, or the one that holds the same content already (*same). The
 * query answers (owner, text) for an id. */
static enum err content_id(struct import *im, const char *sql, int64_t at_ms, uint64_t owner,
                           struct str text, uint64_t *id, bool *same)
{
    uint64_t hash = hash_checksum(text.ptr, text.len, owner);
    *same = false;
    for (uint32_t probe = 0; probe < ID_PROBES; probe++) {
        struct db_rows rows;
        *id = probe_id(at_ms, hash, probe);
        enum err e = tx_query(im->tx, sql, DB_ARGS(DB_I64(*id)), &rows);
        if (e)
            return e;
        bool taken = db_next(&rows);
        *same = taken && db_id(&rows, 0) == owner && str_eq(db_text(&rows, 1), text);
        e = db_rows_done(&rows);
        if (e || !taken || *same)
            return e;
    }
    return refuse(im, "too many rows with this created_at");
}

/* The id for a post or comment: as given, from its content, or the next one. */
static enum err row_id(struct import *im, const json_t *line, const char *sql, uint64_t owner,
                       struct str text, uint64_t *id, bool *present)
{
    int64_t at_ms;
    *present = false;
    TRY(id_field(im, line, "id", false, id));
    TRY(time_field(im, line, &at_ms));
    if (*id)
        return exists(im, sql, DB_I64(*id), present);
    if (at_ms)
        return content_id(im, sql, at_ms, owner, text, id, present);
    *id = id_next(im->tx->ids);
    return OK;
}

/* ---- lines ---- */

static enum err count(uint64_t *counter)
{
    (*counter)++;
    return OK;
}

static enum err account_id(struct import *im, const json_t *line, struct str username, uint64_t *id,
                           bool *present)
{
    int64_t at_ms;
    bool same;
    TRY(id_field(im, line, "id", false, id));
    TRY(time_field(im, line, &at_ms));
    if (*id)
        return exists(im, "SELECT id FROM accounts WHERE id = $1", DB_I64(*id), present);
    if (at_ms)
        return content_id(im, "SELECT 0, username FROM accounts WHERE id = $1", at_ms, 0, username,
                          id, &same);
    return OK;
}

static enum err import_account(struct import *im, const json_t *line)
{
    struct account_new in = {.seen_at_ms = clock_wall_ms(im->tx->ids->clock)};
    struct str password;
    char name[USERNAME_MAX];
    struct str key = {name, 0};
    bool present = false;
    TRY(text_field(im, line, "username", true, &in.username));
    TRY(text_field(im, line, "password", false, &password));
    if (password.ptr)
        return refuse(im, "password was not hashed");
    TRY(text_field(im, line, "password_hash", false, &in.password_hash));
    if (in.password_hash.ptr &&
        (!str_starts(in.password_hash, STR("$argon2id$")) || in.password_hash.len > HASH_TEXT_MAX))
        return refuse(im, "password_hash must be an argon2id hash ($argon2id$…)");
    TRY(text_field(im, line, "display_name", false, &in.display_name));
    TRY(text_field(im, line, "bio", false, &in.bio));
    TRY(text_field(im, line, "avatar_url", false, &in.avatar_url));
    TRY(text_field(im, line, "email", false, &in.email));
    if (username_normalize(in.username, name, &key.len))
        TRY(exists(im, "SELECT id FROM accounts WHERE username = $1", DB_TEXT(key), &present));
    if (!present)
        TRY(account_id(im, line, key, &in.id, &present));
    if (present)
        return count(&im->result->repeated);
    uint64_t id;
    TRY(account_create(im->tx, &in, &id));
    return count(&im->result->accounts);
}

static enum err import_follow(struct import *im, const json_t *line)
{
    uint64_t follower = 0, followee = 0;
    bool changed = false;
    TRY(account_field(im, line, "follower", &follower));
    TRY(account_field(im, line, "followee", &followee));
    TRY(follow_create(im->tx, follower, followee, im->policy, &changed));
    return count(changed ? &im->result->follows : &im->result->repeated);
}

static enum err import_post(struct import *im, const json_t *line)
{
    struct post_new in = {0};
    struct post_card card;
    bool present = false;
    TRY(account_field(im, line, "author", &in.author));
    TRY(text_field(im, line, "caption", true, &in.caption));
    TRY(row_id(im, line, "SELECT author_id, caption FROM posts WHERE id = $1", in.author,
               in.caption, &in.id, &present));
    if (present)
        return count(&im->result->repeated);
    TRY(post_create(im->tx, &in, &im->arena, &card));
    /* The card dies with the line, before the commit hook could look at it. */
    im->tx->events.items[im->tx->events.count - 1].card = NULL;
    return count(&im->result->posts);
}

static enum err import_like(struct import *im, const json_t *line)
{
    uint64_t account = 0, post = 0;
    bool changed = false;
    TRY(account_field(im, line, "account", &account));
    TRY(id_field(im, line, "post", true, &post));
    TRY(post_like(im->tx, post, account, true, clock_wall_ms(im->tx->ids->clock), &changed));
    return count(changed ? &im->result->likes : &im->result->repeated);
}

static enum err import_comment(struct import *im, const json_t *line)
{
    uint64_t author = 0, post = 0, id = 0;
    struct comment comment;
    struct str body = {0};
    bool present = false;
    TRY(account_field(im, line, "author", &author));
    TRY(id_field(im, line, "post", true, &post));
    TRY(text_field(im, line, "body", true, &body));
    TRY(row_id(im, line, "SELECT author_id, body FROM comments WHERE id = $1", author, body, &id,
               &present));
    if (present)
        return count(&im->result->repeated);
    TRY(comment_create(im->tx, id, post, author, body, &im->arena, &comment));
    return count(&im->result->comments);
}

static const struct {
    const char *type;
    enum err (*run)(struct import *im, const json_t *line);
} kinds[] = {
    {"account", import_account}, {"follow", import_follow},   {"post", import_post},
    {"like", import_like},       {"comment", import_comment},
};

static enum err import_line(struct import *im, struct str text)
{
    json_error_t why;
    json_t *line = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &why);
    if (!line)
        return tx_fail(im->tx, ERR_INVALID, "not JSON: %s", why.text);
    const char *type = json_string_value(json_object_get(line, "type"));
    enum err e = ERR_INVALID;
    size_t i = 0;
    while (i < COUNT_OF(kinds) && (!type || strcmp(type, kinds[i].type) != 0))
        i++;
    if (i < COUNT_OF(kinds))
        e = kinds[i].run(im, line);
    else
        refuse(im, "type must be account, follow, post, like or comment");
    json_decref(line);
    return e;
}

enum err import_chunk(struct tx *tx, struct str ndjson, uint64_t first_line,
                      const struct follow_policy *policy, struct arena *arena,
                      struct import_result *result)
{
    struct import im = {.tx = tx, .policy = policy, .result = result};
    struct str rest = ndjson, text;
    enum err e = OK;
    *result = (struct import_result){0};
    arena_init(&im.arena);
    for (uint64_t line = first_line; !e && str_split(&rest, '\n', &text); line++) {
        if (str_trim(text).len == 0)
            continue;
        tx->detail[0] = '\0';
        e = import_line(&im, text);
        arena_reset(&im.arena);
        if (!e || err_class(e) != ERR_CLASS_CLIENT)
            continue;
        struct str why = str_of(tx->detail[0] ? tx->detail : err_title(e));
        if (result->rejected++ < IMPORT_ERRORS_MAX)
            result->errors[result->error_count++] =
                (struct import_error){line, arena_str(arena, why)};
        e = OK;
    }
    arena_done(&im.arena);
    return e;
}

/* ---- passwords ---- */

/* True when the line was replaced: *out is the new one, to be freed. */
static bool hash_line(struct str text, struct arena *arena, char **out)
{
    json_t *line = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *value = json_object_get(line, "password");
    struct str password = {json_string_value(value), json_string_length(value)};
    struct str hash;
    bool replaced = false;
    if (json_is_string(value) && password_hash(password, arena, &hash) == OK) {
        json_object_del(line, "password");
        json_object_set_new(line, "password_hash", json_stringn(hash.ptr, hash.len));
        *out = json_dumps(line, JSON_COMPACT);
        replaced = *out != NULL;
    }
    json_decref(line);
    return replaced;
}

enum err import_hash_passwords(struct str ndjson, struct arena *arena, struct str *out)
{
    struct str rest = ndjson, text;
    struct buf lines;
    if (!memmem(ndjson.ptr, ndjson.len, "\"password\"", 10)) {
        *out = ndjson;
        return OK;
    }
    buf_init(&lines, 0);
    while (str_split(&rest, '\n', &text)) {
        char *replaced;
        if (memmem(text.ptr, text.len, "\"password\"", 10) && hash_line(text, arena, &replaced)) {
            buf_append(&lines, replaced, strlen(replaced));
            free(replaced);
        } else {
            buf_str(&lines, text);
        }
        buf_append(&lines, "\n", 1);
    }
    bool failed = lines.failed;
    if (!failed)
        *out = arena_str(arena, buf_view(&lines));
    buf_done(&lines);
    return failed ? ERR_NO_MEMORY : OK;
}
