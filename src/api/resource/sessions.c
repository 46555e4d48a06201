/* Logging in and out. */
#include "api/edge/dispatcher.h"
#include "api/edge/guessing.h"
#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "base/hash.h"
#include "net/limits.h"

enum err call_begin_guess(struct call *c, uint64_t account_key)
{
    int64_t wait_s =
        c->x->control ? 0
                      : guessing_begin(c->api->guessing, account_key, limits_peer_key(c->x->peer));
    if (wait_s == 0)
        return OK;
    http_add_header(c->x, "Retry-After", "%lld", (long long)wait_s);
    atomic_fetch_add_explicit(&c->api->dispatcher->limited, 1, memory_order_relaxed);
    return call_fail(c, ERR_RATE_LIMITED, "too many wrong passwords; try again in %lld s",
                     (long long)wait_s);
}

void call_guessed_right(struct call *c, uint64_t account_key)
{
    if (!c->x->control)
        guessing_right(c->api->guessing, account_key, limits_peer_key(c->x->peer));
}

/* The same for a name however it is written. */
static uint64_t key_of_username(struct str username)
{
    char name[USERNAME_MAX];
    size_t len;
    if (username_normalize(username, name, &len))
        return hash_bytes(name, len);
    return hash_bytes(username.ptr, username.len);
}

struct log_in {
    struct call *call;
    struct str username;
    struct account account;
    struct str hash;
    uint8_t token_hash[TOKEN_HASH_BYTES];
};

static enum err find_account_tx(struct tx *tx, void *arg)
{
    struct log_in *l = arg;
    struct arena *arena = &l->call->x->arena;
    TRY(account_by_username(tx, l->username, arena, &l->account));
    return account_password_hash(tx, l->account.id, arena, &l->hash);
}

/* Verifying a password takes long enough for it to be changed meanwhile; that ended all sessions,
 * and no new one may follow from the old password. */
static enum err create_session_tx(struct tx *tx, void *arg)
{
    struct log_in *l = arg;
    struct api *api = l->call->api;
    struct str hash = {NULL, 0};
    uint64_t id;
    enum err e = account_password_hash(tx, l->account.id, &l->call->x->arena, &hash);
    if (e == ERR_NOT_FOUND || (!e && (!hash.ptr || !str_eq(hash, l->hash))))
        return tx_fail(tx, ERR_UNAUTHENTICATED, "the username or the password is wrong");
    if (e)
        return e;
    return session_create(tx, l->account.id, l->token_hash,
                          http_header(l->call->x, STR("user-agent")), clock_wall_ms(api->clock),
                          api_session_terms(api), &id);
}

/* A wrong name and a wrong password get the same answer, after the same time, and count alike. */
enum err sessions_create(struct call *c, struct tx *tx)
{
    (void)tx;
    struct log_in l = {.call = c};
    struct str password;
    TRY(call_body_text(c, "username", true, &l.username));
    TRY(call_body_text(c, "password", true, &password));
    uint64_t key = key_of_username(l.username);
    TRY(call_begin_guess(c, key));
    enum err e = db_read(c->api->db, find_account_tx, &l, c->detail);
    if (e && e != ERR_NOT_FOUND)
        return e;
    bool right = e == OK && l.hash.ptr ? password_verify(password, l.hash)
                                       : password_verify_nothing(password);
    if (!right)
        return call_fail(c, ERR_UNAUTHENTICATED, "the username or the password is wrong");
    call_guessed_right(c, key);
    if (l.account.state == ACCOUNT_SUSPENDED)
        return call_fail(c, ERR_FORBIDDEN, "this account is suspended");
    struct str token;
    token_make("fts_", &c->x->arena, &token, l.token_hash);
    TRY(db_write(c->api->db, create_session_tx, &l, c->detail));
    call_signed_in(c, &l.account, token);
    return OK;
}

enum err sessions_list(struct call *c, struct tx *tx)
{
    struct session found[SESSIONS_MAX];
    size_t n;
    TRY(session_list(tx, c->caller.account, &c->x->arena, found, &n));
    call_list_begin(c);
    for (size_t i = 0; i < n; i++)
        render_session(&c->json, &found[i], found[i].id == c->caller.session);
    call_list_end(c, 0);
    return OK;
}

enum err sessions_end(struct call *c, struct tx *tx)
{
    c->status = 204;
    return session_end(tx, c->caller.account, c->params[0]);
}

enum err sessions_end_current(struct call *c, struct tx *tx)
{
    if (c->caller.session == 0)
        return call_fail(
            c, ERR_INVALID,
            "there is no session to end: this request was not made with a session token");
    c->status = 204;
    return session_end(tx, c->caller.account, c->caller.session);
}
