/* Accounts over HTTP: signing up, one's own profile, other people's profiles, finding people. */
#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "base/hash.h"
#include "base/id.h"
#include "model/follow.h"

enum { SEARCH_MAX = 50, EXPORT_MAX_BYTES = 64 * 1024 * 1024 };

void call_signed_in(struct call *c, const struct account *account, struct str token)
{
    json_object_begin(&c->json);
    json_key(&c->json, STR("account"));
    render_account(&c->json, account, NULL, true);
    json_put(&c->json, "token", str, token);
    json_object_end(&c->json);
    c->status = 201;
}

struct sign_up {
    struct call *call;
    struct account_new in;
    struct str token;
    uint8_t hash[TOKEN_HASH_BYTES];
    struct account account;
};

static enum err sign_up_tx(struct tx *tx, void *arg)
{
    struct sign_up *s = arg;
    struct call *c = s->call;
    int64_t now_ms = clock_wall_ms(c->api->clock);
    uint64_t id, session;
    TRY(account_create(tx, &s->in, &id));
    TRY(session_create(tx, id, s->hash, http_header(c->x, STR("user-agent")), now_ms,
                       api_session_terms(c->api), &session));
    return account_get(tx, id, &c->x->arena, &s->account);
}

static enum err check_password(struct call *c, const char *field, struct str password,
                               struct str username)
{
    if (password.len < PASSWORD_MIN || password.len > PASSWORD_MAX)
        return call_fail(c, ERR_INVALID, "%s must be %d to %d bytes", field, PASSWORD_MIN,
                         PASSWORD_MAX);
    if (str_eq_nocase(password, username))
        return call_fail(c, ERR_INVALID, "%s must not be the username", field);
    if (password_is_common(password))
        return call_fail(c, ERR_INVALID, "%s is one that many people use: choose another", field);
    return OK;
}

enum err accounts_create(struct call *c, struct tx *tx)
{
    (void)tx;
    struct sign_up s = {.call = c, .in.seen_at_ms = clock_wall_ms(c->api->clock)};
    bool admin = c->caller.control || (c->caller.scopes & SCOPE_ADMIN);
    if (!c->api->settings->sign_up && !admin)
        return call_fail(c, ERR_FORBIDDEN,
                         "sign-up is switched off: ask the operator for an account");
    struct str password = {0};
    TRY(call_body_text(c, "username", true, &s.in.username));
    TRY(call_body_text(c, "password", true, &password));
    TRY(check_password(c, "password", password, s.in.username));
    TRY(call_body_text(c, "display_name", false, &s.in.display_name));
    TRY(call_body_text(c, "email", false, &s.in.email));
    TRY(call_body_text(c, "bio", false, &s.in.bio));
    TRY(call_body_text(c, "avatar_url", false, &s.in.avatar_url));
    char name[USERNAME_MAX];
    size_t name_len;
    /* before 17 ms of argon2 */
    if (!username_normalize(s.in.username, name, &name_len))
        return call_fail(c, ERR_INVALID, "username must be %d to %d of a-z 0-9 _ .", USERNAME_MIN,
                         USERNAME_MAX);
    if (!admin && username_is_reserved((struct str){name, name_len}))
        return call_fail(c, ERR_INVALID, "username is reserved: choose another one");
    TRY(password_hash(password, &c->x->arena, &s.in.password_hash));
    token_make("fts_", &c->x->arena, &s.token, s.hash);
    TRY(db_write(c->api->db, sign_up_tx, &s, c->detail));
    call_signed_in(c, &s.account, s.token);
    http_add_header(c->x, "Location", "/v1/accounts/%llu", (unsigned long long)s.account.id);
    return OK;
}

/* As the caller sees it: to others without what is private, to strangers without a relationship. */
static void draw(struct call *c, const struct account *account,
                 const struct relationship *relationship)
{
    bool self = account->id == c->caller.account;
    render_account(&c->json, account, self || !c->caller.account ? NULL : relationship, self);
}

static enum err show_account(struct call *c, struct tx *tx, uint64_t id)
{
    struct account account;
    struct relationship relationship;
    TRY(call_find_account(c, tx, id, &account, &relationship));
    draw(c, &account, &relationship);
    return OK;
}

enum err accounts_show(struct call *c, struct tx *tx)
{
    return show_account(c, tx, c->params[0]);
}

enum err me_show(struct call *c, struct tx *tx)
{
    return show_account(c, tx, c->caller.account);
}

static enum err find_by_username(struct call *c, struct tx *tx, struct str username)
{
    struct account account;
    struct relationship relationship;
    call_list_begin(c);
    enum err e = account_by_username(tx, username, &c->x->arena, &account);
    if (!e)
        e = call_find_account(c, tx, account.id, &account, &relationship);
    if (e && e != ERR_NOT_FOUND)
        return e;
    if (!e)
        draw(c, &account, &relationship);
    call_list_end(c, 0);
    return OK;
}

/* ?username=NAME: that account, as a list of one or none. ?q=PREFIX: usernames that begin so, in
 * order; the cursor is the id of the last one shown. */
enum err accounts_find(struct call *c, struct tx *tx)
{
    struct str username, prefix;
    if (http_query(c->x, STR("username"), &username))
        return find_by_username(c, tx, username);
    if (!http_query(c->x, STR("q"), &prefix))
        return call_fail(c, ERR_BAD_INPUT, "username and q are missing: give one of them");
    size_t limit, n = 0;
    uint64_t position;
    enum err e = call_page(c, SEARCH_MAX, &limit, &position);
    if (e)
        return e;
    struct str after = STR("");
    if (position != UINT64_MAX) {
        struct account last;
        e = account_get(tx, position, &c->x->arena, &last);
        if (e)
            return call_fail(
                c, ERR_BAD_INPUT,
                "the account that this cursor names is gone: begin again without a cursor");
        after = last.username;
    }
    struct account_card found[SEARCH_MAX];
    e = account_search(tx, c->caller.account, prefix, after, limit, &c->x->arena, found, &n);
    if (!e)
        call_list_accounts(c, found, n, limit);
    return e;
}

struct profile_change {
    struct account_change change;
    struct account account;
    struct relationship relationship;
};

enum err me_prepare(struct call *c)
{
    struct profile_change *p = c->work = ARENA_NEW(&c->x->arena, struct profile_change);
    TRY(call_body_text(c, "display_name", false, &p->change.display_name));
    TRY(call_body_text(c, "bio", false, &p->change.bio));
    TRY(call_body_text(c, "avatar_url", false, &p->change.avatar_url));
    return call_body_text(c, "email", false, &p->change.email);
}

enum err me_update(struct call *c, struct tx *tx)
{
    struct profile_change *p = c->work;
    TRY(account_update(tx, c->caller.account, &p->change));
    return call_find_account(c, tx, c->caller.account, &p->account, &p->relationship);
}

enum err me_repeat(struct call *c, struct tx *tx)
{
    struct profile_change *p = c->work = ARENA_NEW(&c->x->arena, struct profile_change);
    return call_find_account(c, tx, c->caller.account, &p->account, &p->relationship);
}

void me_render(struct call *c)
{
    struct profile_change *p = c->work;
    draw(c, &p->account, &p->relationship);
}

enum err me_delete(struct call *c, struct tx *tx)
{
    c->status = 204;
    return account_delete(tx, c->caller.account);
}

struct new_password {
    struct call *call;
    struct account account;
    struct str hash;   /* the one that was read and verified */
    struct str wanted; /* the new one */
};

static enum err read_hash_tx(struct tx *tx, void *arg)
{
    struct new_password *p = arg;
    struct arena *arena = &p->call->x->arena;
    TRY(account_get(tx, p->call->caller.account, arena, &p->account));
    return account_password_hash(tx, p->account.id, arena, &p->hash);
}

/* Hashing takes a while: the password that was verified must still be the present one. */
static enum err set_hash_tx(struct tx *tx, void *arg)
{
    struct new_password *p = arg;
    uint64_t account = p->call->caller.account;
    struct str present = {NULL, 0};
    TRY(account_password_hash(tx, account, &p->call->x->arena, &present));
    if (!present.ptr || !str_eq(present, p->hash))
        return tx_fail(tx, ERR_FORBIDDEN, "current_password is wrong");
    return account_set_password(tx, account, p->wanted, p->call->caller.session);
}

/* {"current_password","new_password"}; the session that asks stays, all others end. */
enum err me_password(struct call *c, struct tx *tx)
{
    (void)tx;
    struct new_password p = {.call = c};
    struct str current, wanted;
    TRY(call_body_text(c, "current_password", true, &current));
    TRY(call_body_text(c, "new_password", true, &wanted));
    TRY(db_read(c->api->db, read_hash_tx, &p, c->detail));
    TRY(check_password(c, "new_password", wanted, p.account.username));
    uint64_t key = hash_u64(p.account.id);
    TRY(call_begin_guess(c, key));
    if (!password_verify(current, p.hash))
        return call_fail(c, ERR_FORBIDDEN, "current_password is wrong");
    call_guessed_right(c, key);
    enum err e = password_hash(wanted, &c->x->arena, &p.wanted);
    if (!e)
        e = db_write(c->api->db, set_hash_tx, &p, c->detail);
    c->status = 204;
    return e;
}

/* One page of one part; neither a transaction nor a query grows with the size of an account. */
struct export_page {
    uint64_t account, after;
    enum export_part part;
    struct arena arena;
    struct export_row rows[EXPORT_PAGE];
    size_t count;
    struct account profile;
};

static enum err export_tx(struct tx *tx, void *arg)
{
    struct export_page *p = arg;
    return account_export(tx, p->account, p->part, p->after, &p->arena, p->rows, &p->count);
}

static enum err profile_tx(struct tx *tx, void *arg)
{
    struct export_page *p = arg;
    return account_get(tx, p->account, &p->arena, &p->profile);
}

static enum err export_part(struct call *c, struct export_page *p)
{
    p->after = 0;
    json_key(&c->json, str_of(render_export_name((int)p->part)));
    json_array_begin(&c->json);
    do {
        arena_reset(&p->arena);
        TRY(db_read(c->api->db, export_tx, p, c->detail));
        for (size_t i = 0; i < p->count; i++)
            render_export_row(&c->json, (int)p->part, &p->rows[i]);
        if (c->x->out.len > EXPORT_MAX_BYTES)
            return call_fail(c, ERR_TOO_LARGE, "more than %d MiB: ask the operator for an export",
                             EXPORT_MAX_BYTES / 1024 / 1024);
        p->after = p->count ? p->rows[p->count - 1].id : 0;
    } while (p->count == EXPORT_PAGE);
    json_array_end(&c->json);
    return OK;
}

enum err me_export(struct call *c, struct tx *tx)
{
    (void)tx;
    struct export_page *p = ARENA_NEW(&c->x->arena, struct export_page);
    p->account = c->caller.account;
    arena_init(&p->arena);
    enum err e = db_read(c->api->db, profile_tx, p, c->detail);
    if (!e) {
        json_object_begin(&c->json);
        json_key(&c->json, STR("account"));
        render_account(&c->json, &p->profile, NULL, true);
    }
    for (; !e && p->part < EXPORT_PARTS; p->part++)
        e = export_part(c, p);
    arena_done(&p->arena);
    if (e)
        return e;
    json_object_end(&c->json);
    http_add_header(c->x, "Content-Disposition", "attachment; filename=\"fantail-export.json\"");
    return OK;
}
