/* Bulk import of NDJSON.
 *
 * Each line goes through the same functions as a request, so an import can make nothing true that
 * the API would refuse, and counters, crossings and events come by themselves. Those functions
 * refuse before they write; a refused line therefore leaves nothing behind, and its transaction
 * goes on. Accounts, or follows, that stand one behind the other go together, as far as they can
 * (account_create_all, follow_create_all): they are most of every import. The others among them run
 * by themselves, afterwards and in their order.
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
#include "base/map.h"
#include "model/account.h"
#include "model/post.h"

enum { ID_PROBES = 64, HASH_TEXT_MAX = 127 };

/* A line that waits for its neighbours of the same kind. */
struct waiting {
    uint64_t line;
    json_t *json;
    struct waiting *next;
};

struct import {
    struct tx *tx;
    const struct follow_policy *policy;
    struct import_result *result;
    struct arena arena; /* of one line */
    struct arena *kept; /* lasts longer than all of it */
    struct waiting *first, **last;
    size_t waiting;
    bool accounts; /* what waits; false: follows */
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
        TRY(tx_query(im->tx, sql, DB_ARGS(DB_I64(*id)), &rows));
        bool taken = db_next(&rows);
        *same = taken && db_id(&rows, 0) == owner && str_eq(db_text(&rows, 1), text);
        enum err e = db_rows_done(&rows);
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

static enum err read_account(struct import *im, const json_t *line, struct account_new *in)
{
    struct str password;
    *in = (struct account_new){.seen_at_ms = clock_wall_ms(im->tx->ids->clock)};
    TRY(text_field(im, line, "username", true, &in->username));
    TRY(text_field(im, line, "password", false, &password));
    if (password.ptr)
        return refuse(im, "password was not hashed");
    TRY(text_field(im, line, "password_hash", false, &in->password_hash));
    if (in->password_hash.ptr && (!str_starts(in->password_hash, STR("$argon2id$")) ||
                                  in->password_hash.len > HASH_TEXT_MAX))
        return refuse(im, "password_hash must be an argon2id hash ($argon2id$…)");
    TRY(text_field(im, line, "display_name", false, &in->display_name));
    TRY(text_field(im, line, "bio", false, &in->bio));
    TRY(text_field(im, line, "avatar_url", false, &in->avatar_url));
    return text_field(im, line, "email", false, &in->email);
}

static enum err import_account(struct import *im, const json_t *line)
{
    struct account_new in;
    char name[USERNAME_MAX];
    struct str key = {name, 0};
    bool present = false;
    TRY(read_account(im, line, &in));
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

/* ---- lines that go together ---- */

static void read_id(struct db_rows *rows, void *out)
{
    *(uint64_t *)out = db_id(rows, 0);
}

/* A username, filled up with zeros. */
struct name {
    char text[32];
};
_Static_assert(sizeof(struct name) >= USERNAME_MAX, "a name has room");

struct name_at {
    struct name name; /* the key */
    size_t at;
};

static struct name_at *put_name(struct map *names, struct str username, bool *is_new)
{
    struct name key = {{0}};
    memcpy(key.text, username.ptr, username.len);
    struct name_at *found = map_put(names, &key, is_new);
    CHECK(found);
    return found;
}

static enum err find_names(struct import *im, const struct db_value *names, size_t n, uint64_t *ids,
                           bool *found)
{
    return tx_get_row_each(im->tx, "SELECT id FROM accounts WHERE username = $1", names, 1, n,
                           read_id, ids, sizeof *ids, found);
}

/* Those of the accounts that wait which can go together. */
struct newcomers {
    struct account_new *in;
    size_t *of; /* the line: the i-th that waits */
    size_t n;
};

/* Is it well-formed, and the first with its name and its id? */
static bool is_first(struct import *im, const json_t *line, struct account_new *in,
                     struct map *names, struct map *ids, struct arena *arena)
{
    struct str key = {arena_alloc(arena, USERNAME_MAX), 0};
    int64_t at_ms = 0;
    bool new_name, new_id = true;
    if (read_account(im, line, in) ||
        !username_normalize(in->username, (char *)key.ptr, &key.len) ||
        id_field(im, line, "id", false, &in->id) || time_field(im, line, &at_ms))
        return false;
    in->username = key;
    if (!in->id && at_ms)
        in->id = probe_id(at_ms, hash_checksum(key.ptr, key.len, 0), 0);
    (void)put_name(names, key, &new_name);
    if (in->id)
        CHECK(map_put(ids, &in->id, &new_id));
    return new_name && new_id;
}

static void read_newcomers(struct import *im, struct newcomers *all, struct arena *arena)
{
    struct map names, ids;
    size_t i = 0;
    map_init(&names, sizeof(struct name_at), sizeof(struct name));
    map_init(&ids, sizeof(uint64_t), sizeof(uint64_t));
    for (const struct waiting *w = im->first; w; w = w->next, i++) {
        all->of[all->n] = i;
        all->n += is_first(im, w->json, &all->in[all->n], &names, &ids, arena);
    }
    map_done(&names);
    map_done(&ids);
}

/* Leaves out those who are there already (`settled`), and those whose id another one has. */
static enum err sift_newcomers(struct import *im, struct newcomers *all, bool *settled,
                               struct arena *arena)
{
    struct db_value *asked = ARENA_ARRAY(arena, struct db_value, all->n);
    uint64_t *ids = ARENA_ARRAY(arena, uint64_t, all->n);
    bool *named = ARENA_ARRAY(arena, bool, all->n), *taken = ARENA_ARRAY(arena, bool, all->n);
    size_t kept = 0, with_id = 0;
    for (size_t i = 0; i < all->n; i++)
        asked[i] = DB_TEXT(all->in[i].username);
    TRY(find_names(im, asked, all->n, ids, named));
    for (size_t i = 0; i < all->n; i++)
        if (all->in[i].id)
            asked[with_id++] = DB_I64(all->in[i].id);
    TRY(tx_get_row_each(im->tx, "SELECT id FROM accounts WHERE id = $1", asked, 1, with_id, read_id,
                        ids, sizeof *ids, taken));
    with_id = 0;
    for (size_t i = 0; i < all->n; i++) {
        bool id_taken = all->in[i].id && taken[with_id++];
        if (named[i])
            settled[all->of[i]] = true;
        if (named[i] || id_taken)
            continue;
        all->in[kept] = all->in[i];
        all->of[kept++] = all->of[i];
    }
    all->n = kept;
    return OK;
}

static enum err import_accounts(struct import *im, bool *settled, struct arena *arena)
{
    struct newcomers all = {.in = ARENA_ARRAY(arena, struct account_new, im->waiting),
                            .of = ARENA_ARRAY(arena, size_t, im->waiting)};
    bool *taken = ARENA_ARRAY(arena, bool, im->waiting);
    read_newcomers(im, &all, arena);
    TRY(sift_newcomers(im, &all, settled, arena));
    for (size_t i = 0; i < im->waiting; i++)
        im->result->repeated += settled[i];
    TRY(account_create_all(im->tx, all.in, all.n, taken, arena));
    for (size_t i = 0; i < all.n; i++) {
        settled[all.of[i]] = taken[i];
        im->result->accounts += taken[i];
    }
    return OK;
}

/* What a line says about one end: an id, or a name to look up. False: neither. */
static bool read_end(const json_t *line, const char *name, uint64_t *id, char key[USERNAME_MAX],
                     struct str *username)
{
    const json_t *value = json_object_get(line, name);
    struct str text = {json_string_value(value), json_string_length(value)};
    *username = (struct str){key, 0};
    *id = 0;
    return value_id(value, id) ||
           (json_is_string(value) && username_normalize(text, key, &username->len));
}

/* The ids of both ends of each, 0 where there is none. A name is looked up once. */
static enum err find_ends(struct import *im, struct follow_new *follows, struct arena *arena)
{
    size_t n = im->waiting, named = 0, i = 0;
    struct db_value *names = ARENA_ARRAY(arena, struct db_value, n * 2);
    size_t *at = ARENA_ARRAY(arena, size_t, n * 2); /* of each end's name, from 1; 0: it has none */
    uint64_t *ids = ARENA_ARRAY(arena, uint64_t, n * 2);
    bool *found = ARENA_ARRAY(arena, bool, n * 2);
    struct map places;
    map_init(&places, sizeof(struct name_at), sizeof(struct name));
    for (const struct waiting *w = im->first; w; w = w->next, i++) {
        for (int end = 0; end < 2; end++) {
            uint64_t *id = end ? &follows[i].followee : &follows[i].follower;
            struct str name;
            char key[USERNAME_MAX];
            bool is_new;
            if (!read_end(w->json, end ? "followee" : "follower", id, key, &name) || *id)
                continue;
            struct name_at *place = put_name(&places, name, &is_new);
            if (is_new) {
                names[named++] = DB_TEXT(arena_str(arena, name));
                place->at = named;
            }
            at[i * 2 + (size_t)end] = place->at;
        }
    }
    map_done(&places);
    TRY(find_names(im, names, named, ids, found));
    for (i = 0; i < n * 2; i++)
        if (at[i] && found[at[i] - 1])
            *(i % 2 ? &follows[i / 2].followee : &follows[i / 2].follower) = ids[at[i] - 1];
    return OK;
}

static enum err import_follows(struct import *im, bool *settled, struct arena *arena)
{
    struct follow_new *follows = ARENA_ARRAY(arena, struct follow_new, im->waiting);
    TRY(find_ends(im, follows, arena));
    TRY(follow_create_all(im->tx, follows, im->waiting, im->policy, arena, im->kept));
    for (size_t i = 0; i < im->waiting; i++) {
        settled[i] = follows[i].taken || follows[i].present;
        im->result->follows += follows[i].taken;
        im->result->repeated += follows[i].present;
    }
    return OK;
}

static enum err report(struct import *im, uint64_t line, enum err e);

/* The lines that wait: together, then those that are left, one by one. */
static enum err import_waiting(struct import *im)
{
    struct arena arena;
    size_t i = 0;
    enum err e = OK;
    if (im->waiting == 0)
        return OK;
    arena_init(&arena);
    bool *settled = ARENA_ARRAY(&arena, bool, im->waiting);
    if (im->waiting > 1)
        e = (im->accounts ? import_accounts : import_follows)(im, settled, &arena);
    for (struct waiting *w = im->first; w; w = w->next, i++) {
        im->tx->detail[0] = '\0';
        if (!e && !settled[i])
            e = report(im, w->line, (im->accounts ? import_account : import_follow)(im, w->json));
        arena_reset(&im->arena);
        json_decref(w->json);
    }
    arena_done(&arena);
    im->first = NULL;
    im->last = &im->first;
    im->waiting = 0;
    return e;
}

static enum err wait_for_neighbours(struct import *im, json_t *line, uint64_t number, bool account)
{
    enum err e = im->accounts == account ? OK : import_waiting(im);
    struct waiting *w = ARENA_NEW(im->kept, struct waiting);
    *w = (struct waiting){.line = number, .json = line};
    *im->last = w;
    im->last = &w->next;
    im->waiting++;
    im->accounts = account;
    return e;
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
    {"post", import_post},
    {"like", import_like},
    {"comment", import_comment},
};

static enum err import_line(struct import *im, struct str text, uint64_t number)
{
    json_error_t why;
    json_t *line = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &why);
    if (!line)
        return tx_fail(im->tx, ERR_INVALID, "not JSON: %s", why.text);
    const char *type = json_string_value(json_object_get(line, "type"));
    enum err e = ERR_INVALID;
    size_t i = 0;
    if (type && (strcmp(type, "follow") == 0 || strcmp(type, "account") == 0))
        return wait_for_neighbours(im, line, number, type[0] == 'a');
    e = import_waiting(im);
    if (e) {
        json_decref(line);
        return e;
    }
    e = ERR_INVALID;
    im->tx->detail[0] = '\0';
    while (i < COUNT_OF(kinds) && (!type || strcmp(type, kinds[i].type) != 0))
        i++;
    if (i < COUNT_OF(kinds))
        e = kinds[i].run(im, line);
    else
        refuse(im, "type must be account, follow, post, like or comment");
    json_decref(line);
    return e;
}

/* A line that was refused is counted and described, and the others go on. */
static enum err report(struct import *im, uint64_t line, enum err e)
{
    struct import_result *result = im->result;
    if (!e || err_class(e) != ERR_CLASS_CLIENT)
        return e;
    struct str why = str_of(im->tx->detail[0] ? im->tx->detail : err_title(e));
    if (result->rejected++ < IMPORT_ERRORS_MAX)
        result->errors[result->error_count++] =
            (struct import_error){line, arena_str(im->kept, why)};
    return OK;
}

enum err import_chunk(struct tx *tx, struct str ndjson, uint64_t first_line,
                      const struct follow_policy *policy, struct arena *arena,
                      struct import_result *result)
{
    struct import im = {.tx = tx, .policy = policy, .result = result, .kept = arena};
    struct str rest = ndjson, text;
    enum err e = OK;
    *result = (struct import_result){0};
    im.last = &im.first;
    arena_init(&im.arena);
    for (uint64_t line = first_line; !e && str_split(&rest, '\n', &text); line++) {
        if (str_trim(text).len == 0)
            continue;
        tx->detail[0] = '\0';
        e = report(&im, line, import_line(&im, text, line));
        arena_reset(&im.arena);
    }
    enum err ended = import_waiting(&im);
    arena_done(&im.arena);
    return e ? e : ended;
}
