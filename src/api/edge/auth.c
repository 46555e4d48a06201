/* Tokens to callers.
 *
 * Tokens are random and long, and only their hashes are compared. Truth indexes them by BLAKE2b.
 * The cache, which every request asks, knows accepted tokens by SipHash of 128 bits under a key
 * that is drawn at the start and never leaves the process, so no client can compute a token that
 * meets an entry. A cached caller is asked for again after a minute (a JWT: when it expires), and
 * at once when its account or key changed (auth_cache.h). Other nodes of the same store end
 * sessions without a signal to this one: then no entry lasts longer than SHARED_ASK_AGAIN_MS.
 *
 * Every caller with an account is marked as seen about every ten minutes (last_seen.h). */
#include "api/edge/auth.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/edge/auth_cache.h"
#include "api/edge/jwt.h"
#include "api/edge/last_seen.h"
#include "base/check.h"
#include "base/id.h"
#include "base/log.h"

enum {
    ENTRIES_DEFAULT = 1 << 17,
    MARKS_MAX = 1 << 16,
    ASK_AGAIN_MS = 60 * 1000,
    SHARED_ASK_AGAIN_MS = 1500,
    SEEN_EVERY_MS = 10 * 60 * 1000,
    OPAQUE_TOKEN_MAX = 128,
    ACTING_MAX = 64,
};

struct auth {
    struct auth_config config;
    struct auth_cache *cache;
    struct last_seen *last_seen;
    struct jwt_key *jwt; /* NULL: none accepted */
    uint8_t cache_secret[crypto_shorthash_siphashx24_KEYBYTES];
    _Atomic uint64_t hits, misses, refused;
};

/* A token that another service got for itself must not open this one. */
static enum err check_required(const char *value, const char *setting, const char *claim,
                               const char *waived, char *why)
{
    if (value[0] || strstr(waived, claim))
        return OK;
    snprintf(why, 200,
             "jwt-key needs %s, the %s that tokens must have; to accept any, say jwt-waive %s",
             setting, claim, claim);
    return ERR_INVALID;
}

enum err auth_new(const struct auth_config *config, struct auth **out, char why[200])
{
    struct jwt_key *jwt = NULL;
    if (config->jwt_key[0]) {
        TRY(check_required(config->jwt_issuer, "jwt-issuer", "iss", config->jwt_waive, why));
        TRY(check_required(config->jwt_audience, "jwt-audience", "aud", config->jwt_waive, why));
        TRY(jwt_key_load(config->jwt_key, &jwt, why));
        log_info("JWTs are accepted", LOG_CSTR("algorithm", jwt_key_algorithm(jwt)),
                 LOG_CSTR("issuer", config->jwt_issuer),
                 LOG_CSTR("audience", config->jwt_audience));
    }
    struct auth *a = calloc(1, sizeof *a);
    CHECK(a);
    a->config = *config;
    a->jwt = jwt;
    randombytes_buf(a->cache_secret, sizeof a->cache_secret);
    a->cache = auth_cache_new(config->entries_max ? config->entries_max : ENTRIES_DEFAULT);
    a->last_seen =
        last_seen_new(config->db, config->views, config->clock, config->sessions, MARKS_MAX);
    *out = a;
    return OK;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    last_seen_free(a->last_seen);
    auth_cache_free(a->cache);
    jwt_key_free(a->jwt);
    free(a);
}

/* ---- credentials ---- */

static bool is_token(struct str s)
{
    if (s.len == 0 || s.len > JWT_TOKEN_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] <= ' ' || s.ptr[i] >= 0x7f)
            return false;
    }
    return true;
}

static bool acting_is_sane(struct str acting)
{
    uint64_t id;
    char name[USERNAME_MAX];
    size_t len;
    if (acting.len > ACTING_MAX)
        return false;
    if (acting.len > 1 && acting.ptr[0] == '@')
        return username_normalize((struct str){acting.ptr + 1, acting.len - 1}, name, &len);
    return id_parse(acting, &id);
}

/* Of the cache: the token and the account acted for. */
static void cache_key(const struct auth *a, const struct credentials *c,
                      uint8_t key[AUTH_KEY_BYTES])
{
    _Static_assert((int)AUTH_KEY_BYTES == (int)crypto_shorthash_siphashx24_BYTES, "one size");
    crypto_shorthash_siphashx24(key, (const uint8_t *)c->token.ptr, c->token.len, a->cache_secret);
    if (!c->acting.ptr)
        return;
    /* The control socket and a peer without a token have the same key so far: which of them it was
     * goes in, too. Tokens are printable: none is ever equal to this text. */
    uint8_t text[1 + AUTH_KEY_BYTES + ACTING_MAX];
    text[0] = c->control;
    memcpy(text + 1, key, AUTH_KEY_BYTES);
    memcpy(text + 1 + AUTH_KEY_BYTES, c->acting.ptr, c->acting.len);
    crypto_shorthash_siphashx24(key, text, 1 + AUTH_KEY_BYTES + c->acting.len, a->cache_secret);
}

enum err auth_read(struct str authorization, struct str acting, bool control,
                   struct credentials *out, const char **why)
{
    *out = (struct credentials){.control = control};
    if (authorization.ptr && !control) {
        struct str scheme = STR("Bearer ");
        bool bearer = authorization.len > scheme.len &&
                      str_eq_nocase((struct str){authorization.ptr, scheme.len}, scheme);
        if (bearer)
            out->token = str_trim(
                (struct str){authorization.ptr + scheme.len, authorization.len - scheme.len});
        if (!bearer || !is_token(out->token)) {
            *why = "Authorization must be: Bearer TOKEN";
            return ERR_UNAUTHENTICATED;
        }
    }
    if (acting.ptr) {
        if (!acting_is_sane(acting)) {
            *why = "Fantail-Account must be an account id or @username";
            return ERR_INVALID;
        }
        out->acting = acting;
    }
    return OK;
}

/* ---- the loop's part ---- */

static bool find_cached(struct auth *a, const uint8_t key[AUTH_KEY_BYTES], struct caller *caller)
{
    bool mark = false;
    if (!auth_cache_find(a->cache, key, clock_mono_us(a->config.clock),
                         SEEN_EVERY_MS * INT64_C(1000), caller, &mark))
        return false;
    if (mark)
        last_seen_mark(a->last_seen, caller->account, caller->session);
    return true;
}

bool auth_find(struct auth *a, const struct credentials *cred, struct caller *caller)
{
    if (!cred->acting.ptr && (cred->control || !cred->token.ptr)) {
        *caller = (struct caller){
            .control = cred->control,
            .scopes = cred->control ? SCOPE_ACT | SCOPE_ADMIN | SCOPE_ADMIN_READ : 0};
        return true;
    }
    uint8_t key[AUTH_KEY_BYTES];
    cache_key(a, cred, key);
    bool found = find_cached(a, key, caller);
    atomic_fetch_add_explicit(found ? &a->hits : &a->misses, 1, memory_order_relaxed);
    return found;
}

bool auth_knew(struct auth *a, const struct credentials *cred)
{
    uint8_t key[AUTH_KEY_BYTES];
    cache_key(a, cred, key);
    return auth_cache_knew(a->cache, key);
}

/* ---- asking truth ---- */

struct question {
    struct auth *auth;
    const struct credentials *cred;
    struct arena *arena;
    struct jwt_claims claims;
    int64_t now_ms;
    int64_t valid_ms; /* how long the answer may be remembered */
    struct auth_entry entry;
    bool unknown_subject; /* a JWT whose account is not there yet */
};

static void limit_validity(struct question *q, int64_t until_ms)
{
    if (until_ms - q->now_ms < q->valid_ms)
        q->valid_ms = until_ms - q->now_ms;
}

/* The account that the caller acts for. */
static enum err read_acting(struct tx *tx, struct question *q)
{
    struct account account;
    struct str acting = q->cred->acting;
    uint64_t id;
    enum err e;
    if (id_parse(acting, &id))
        e = account_get(tx, id, q->arena, &account);
    else
        e = account_by_username(tx, (struct str){acting.ptr + 1, acting.len - 1}, q->arena,
                                &account);
    if (e == ERR_NOT_FOUND)
        return tx_fail(tx, e, "Fantail-Account names no account");
    if (!e && account.state != ACCOUNT_ACTIVE)
        return tx_fail(tx, ERR_FORBIDDEN, "the account in Fantail-Account is suspended");
    if (!e)
        q->entry.caller.account = account.id;
    return e;
}

static enum err read_control(struct tx *tx, void *arg)
{
    struct question *q = arg;
    q->entry.caller = (struct caller){
        .control = true,
        .scopes = SCOPE_ACT | SCOPE_ADMIN | SCOPE_ADMIN_READ,
    };
    return read_acting(tx, q);
}

static enum err read_session(struct tx *tx, void *arg)
{
    struct question *q = arg;
    struct session session;
    uint8_t hash[TOKEN_HASH_BYTES];
    token_hash(q->cred->token, hash);
    TRY(session_find(tx, hash, q->now_ms, &session));
    q->entry.caller = (struct caller){.account = session.account, .session = session.id};
    limit_validity(q, session.expires_at_ms);
    return OK;
}

static enum err read_api_key(struct tx *tx, void *arg)
{
    struct question *q = arg;
    struct api_key_grant grant;
    uint8_t hash[TOKEN_HASH_BYTES];
    token_hash(q->cred->token, hash);
    TRY(api_key_find(tx, hash, q->now_ms, &grant));
    q->entry.caller =
        (struct caller){.scopes = grant.scopes, .key = grant.id, .key_rate = grant.rate};
    if (grant.expires_at_ms)
        limit_validity(q, grant.expires_at_ms);
    if (!q->cred->acting.ptr)
        return OK;
    if (!(grant.scopes & SCOPE_ACT))
        return tx_fail(tx, ERR_FORBIDDEN, "this API key has no scope act");
    return read_acting(tx, q);
}

static enum err read_subject(struct tx *tx, void *arg)
{
    struct question *q = arg;
    uint64_t id = 0;
    struct account account;
    enum err e = account_by_external_id(tx, q->claims.subject, &id);
    q->unknown_subject = e == ERR_NOT_FOUND;
    if (q->unknown_subject)
        return OK;
    if (!e)
        e = account_get(tx, id, q->arena, &account);
    if (e == ERR_NOT_FOUND || (!e && account.state != ACCOUNT_ACTIVE))
        return tx_fail(tx, ERR_UNAUTHENTICATED, "the account is not active");
    if (!e)
        q->entry.caller = (struct caller){.account = id};
    return e;
}

/* A name from the token is worth having only if it can be shown as it is. */
static bool is_display_name(struct str name)
{
    if (!name.ptr || !str_is_utf8(name) || str_count_chars(name) > DISPLAY_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.len; i++) {
        if ((unsigned char)name.ptr[i] < ' ' || name.ptr[i] == 0x7f)
            return false;
    }
    return true;
}

/* Makes the account of a JWT's subject: by the name that its claims propose when that is valid and
 * free, otherwise by a number. Another request may have made it meanwhile, so it looks first. */
static enum err create_subject(struct tx *tx, void *arg)
{
    struct question *q = arg;
    enum err e = account_by_external_id(tx, q->claims.subject, &q->entry.caller.account);
    if (e != ERR_NOT_FOUND)
        return e;
    TRY(account_return(tx, q->claims.subject, q->auth->config.jwt_return));
    uint64_t new_id = id_next(tx->ids);
    char number[ID_TEXT_MAX + 2];
    int len = snprintf(number, sizeof number, "u%llu", (unsigned long long)new_id);
    const struct str names[] = {
        q->claims.preferred_username, q->claims.name, {number, (size_t)len}};
    e = ERR_CONFLICT;
    for (size_t i = 0; i < COUNT_OF(names) && e == ERR_CONFLICT; i++) {
        char normal[USERNAME_MAX];
        size_t normal_len;
        if (!names[i].ptr || !username_normalize(names[i], normal, &normal_len))
            continue;
        struct account_new account = {
            .id = new_id,
            .username = names[i],
            .external_id = q->claims.subject,
            .display_name =
                is_display_name(q->claims.name) ? q->claims.name : (struct str){NULL, 0},
            .seen_at_ms = q->now_ms,
        };
        e = account_create(tx, &account, &q->entry.caller.account);
    }
    return e;
}

static enum err resolve_jwt(struct question *q, char *detail)
{
    struct auth *a = q->auth;
    const char *why = NULL;
    enum err e = jwt_verify(a->jwt, q->cred->token, a->config.jwt_issuer, a->config.jwt_audience,
                            q->now_ms, q->arena, &q->claims, &why);
    if (e) {
        snprintf(detail, TX_DETAIL_MAX, "%s", why);
        return e;
    }
    q->valid_ms = INT64_MAX;
    limit_validity(q, q->claims.expires_at_ms + JWT_LEEWAY_S * INT64_C(1000));
    e = db_read(a->config.db, read_subject, q, detail);
    if (!e && q->unknown_subject) {
        q->entry.caller = (struct caller){0};
        if (a->config.admit)
            TRY(a->config.admit(a->config.admit_ctx, q->cred->address, detail));
        e = db_write(a->config.db, create_subject, q, detail);
        if (e == ERR_INVALID) {
            snprintf(detail, TX_DETAIL_MAX, "the token's sub cannot name an account");
            e = ERR_UNAUTHENTICATED;
        }
    }
    q->entry.caller.expires_at_ms = q->claims.expires_at_ms + JWT_LEEWAY_S * INT64_C(1000);
    return e;
}

static enum err ask(struct question *q, char *detail)
{
    const struct credentials *cred = q->cred;
    struct db *db = q->auth->config.db;
    if (cred->control)
        return db_read(db, read_control, q, detail);
    if (!cred->token.ptr) {
        snprintf(detail, TX_DETAIL_MAX, "Fantail-Account needs an API key with the scope act");
        return ERR_UNAUTHENTICATED;
    }
    if (str_starts(cred->token, STR("ftk_")) && cred->token.len <= OPAQUE_TOKEN_MAX)
        return db_read(db, read_api_key, q, detail);
    if (cred->acting.ptr) {
        snprintf(detail, TX_DETAIL_MAX,
                 "only an API key with the scope act may use Fantail-Account");
        return ERR_FORBIDDEN;
    }
    if (str_starts(cred->token, STR("fts_")) && cred->token.len <= OPAQUE_TOKEN_MAX)
        return db_read(db, read_session, q, detail);
    if (q->auth->jwt && jwt_looks_like(cred->token))
        return resolve_jwt(q, detail);
    snprintf(detail, TX_DETAIL_MAX, "the token is unknown or no longer valid");
    return ERR_UNAUTHENTICATED;
}

enum err auth_resolve(struct auth *a, const struct credentials *cred, struct arena *arena,
                      struct caller *caller, char detail[DETAIL_MAX])
{
    _Static_assert((int)DETAIL_MAX >= (int)TX_DETAIL_MAX, "a transaction's detail fits a call's");
    struct question q = {
        .auth = a,
        .cred = cred,
        .arena = arena,
        .now_ms = clock_wall_ms(a->config.clock),
        .valid_ms = ASK_AGAIN_MS,
    };
    uint64_t stamp = auth_cache_stamp(a->cache);
    int64_t now_us = clock_mono_us(a->config.clock);
    enum err e = ask(&q, detail);
    uint8_t key[AUTH_KEY_BYTES];
    cache_key(a, cred, key);
    if (e) {
        if (e == ERR_UNAUTHENTICATED)
            auth_cache_drop(a->cache, key);
        atomic_fetch_add_explicit(&a->refused, 1, memory_order_relaxed);
        return e;
    }
    *caller = q.entry.caller;
    if (a->config.db->shared && q.valid_ms > SHARED_ASK_AGAIN_MS)
        q.valid_ms = SHARED_ASK_AGAIN_MS;
    int64_t ceiling_ms = (INT64_MAX - now_us) / 1000;
    q.entry.valid_until_us = now_us + (q.valid_ms < ceiling_ms ? q.valid_ms : ceiling_ms) * 1000;
    q.entry.seen_at_us = INT64_MIN / 2; /* not yet */
    auth_cache_put(a->cache, key, stamp, &q.entry);
    struct caller again;
    (void)find_cached(a, key, &again); /* for the mark alone */
    return OK;
}

/* ---- forgetting ---- */

void auth_committed(struct auth *a, const struct event *events, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        switch (events[i].type) {
        case EVENT_SESSION_ENDED: /* also of API keys that were revoked: the actor is the key */
        case EVENT_ACCOUNT_SUSPENDED:
        case EVENT_ACCOUNT_RESTORED:
        case EVENT_ACCOUNT_DELETED:
            auth_cache_forget(a->cache, events[i].actor);
            break;
        default:
            break;
        }
    }
}

int64_t auth_last_seen_step(struct auth *a)
{
    return last_seen_step(a->last_seen);
}

void auth_stats(const struct auth *a, struct auth_stats *out)
{
    *out = (struct auth_stats){
        .hits = atomic_load_explicit(&a->hits, memory_order_relaxed),
        .misses = atomic_load_explicit(&a->misses, memory_order_relaxed),
        .refused = atomic_load_explicit(&a->refused, memory_order_relaxed),
    };
}
