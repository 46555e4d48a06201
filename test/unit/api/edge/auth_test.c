/* Callers over a real store: sessions, API keys, acting, JWTs, and how quickly an end takes effect.
 */
#include "test.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <unistd.h>

#include "api/edge/auth.h"
#include "base/check.h"
#include "base/id.h"
#include "store.h"

#define SECRET "0123456789abcdef0123456789abcdef"

static struct store store;
static struct auth *auth;
static struct arena arena;
static char key_path[100], key_setting[110];

/* Views that only count marks of the last visit. */
static int seen_marks;
static uint64_t seen_account;

static enum err count_seen(struct views *v, const struct view_change *changes, size_t n)
{
    (void)v;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(changes[i].kind, VIEW_LAST_SEEN);
        seen_account = changes[i].account;
        seen_marks++;
    }
    return OK;
}

static const struct views_ops view_ops = {.apply = count_seen};
static struct views views = {.ops = &view_ops};

static void committed(void *ctx, const struct event *events, size_t n)
{
    (void)ctx;
    if (auth)
        auth_committed(auth, events, n);
}

static int begin(void **state)
{
    (void)state;
    char why[200] = "";
    arena_init(&arena);
    store_open(&store);
    store.db->on_commit = committed;
    snprintf(key_path, sizeof key_path, "%s/jwt.key", store.folder);
    FILE *file = fopen(key_path, "w");
    CHECK(file && fputs(SECRET "\n", file) >= 0 && fclose(file) == 0);
    snprintf(key_setting, sizeof key_setting, "hs256:%s", key_path);
    struct auth_config config = {
        .db = store.db,
        .views = &views,
        .clock = &store.clock.clock,
        .jwt_key = key_setting,
        .jwt_issuer = "host",
        .jwt_audience = "",
        .sessions = {INT64_C(90) * 24 * 3600 * 1000, INT64_C(365) * 24 * 3600 * 1000},
        .jwt_waive = "aud",
        .entries_max = 4096,
    };
    seen_marks = 0;
    return auth_new(&config, &auth, why) == OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    unlink(key_path);
    struct auth *gone = auth;
    auth = NULL;
    auth_free(gone);
    store_close(&store);
    arena_done(&arena);
    return 0;
}

/* ---- making people ---- */

struct person {
    const char *name;
    int64_t life_ms;
    uint64_t id, session;
    struct str token;
    uint8_t hash[TOKEN_HASH_BYTES];
};

static enum err create_person(struct tx *tx, void *arg)
{
    struct person *p = arg;
    struct account_new account = {.username = str_of(p->name)};
    enum err e = account_create(tx, &account, &p->id);
    if (!e)
        e = session_create(tx, p->id, p->hash, STR("test"), clock_wall_ms(&store.clock.clock),
                           (struct session_terms){p->life_ms, INT64_MAX / 2}, &p->session);
    return e;
}

static struct person person(const char *name)
{
    struct person p = {.name = name, .life_ms = INT64_C(3600) * 1000};
    token_make("fts_", &arena, &p.token, p.hash);
    assert_int_equal(db_write(store.db, create_person, &p, NULL), OK);
    return p;
}

struct key {
    unsigned scopes;
    int64_t expires_at_ms;
    uint64_t id;
    struct str token;
    uint8_t hash[TOKEN_HASH_BYTES];
};

static enum err create_key(struct tx *tx, void *arg)
{
    struct key *k = arg;
    struct api_key_grant grant = {.scopes = k->scopes, .expires_at_ms = k->expires_at_ms};
    enum err e = api_key_create(tx, STR("test"), k->hash, &grant);
    k->id = grant.id;
    return e;
}

static struct key key(unsigned scopes)
{
    struct key k = {.scopes = scopes};
    token_make("ftk_", &arena, &k.token, k.hash);
    assert_int_equal(db_write(store.db, create_key, &k, NULL), OK);
    return k;
}

enum change { SUSPEND, RESTORE, DELETE, END_SESSION, REVOKE };
struct act {
    enum change change;
    uint64_t id, session;
};

static enum err act_tx(struct tx *tx, void *arg)
{
    struct act *a = arg;
    switch (a->change) {
    case SUSPEND:
        return account_suspend(tx, a->id, true);
    case RESTORE:
        return account_suspend(tx, a->id, false);
    case DELETE:
        return account_delete(tx, a->id);
    case END_SESSION:
        return session_end(tx, a->id, a->session);
    case REVOKE:
        return api_key_revoke(tx, a->id);
    }
    return ERR_INTERNAL;
}

static void act(enum change change, uint64_t id, uint64_t session)
{
    struct act a = {change, id, session};
    assert_int_equal(db_write(store.db, act_tx, &a, NULL), OK);
}

/* ---- calling ---- */

static bool was_remembered;

static enum err call(struct str token, const char *acting, bool control, struct caller *caller)
{
    struct credentials cred;
    char detail[DETAIL_MAX] = "";
    const char *why = NULL;
    struct str header = token.ptr ? arena_printf(&arena, "Bearer %.*s", STR_ARG(token)) : token;
    enum err e = auth_read(header, str_of(acting), control, &cred, &why);
    was_remembered = false;
    if (e)
        return e;
    was_remembered = auth_find(auth, &cred, caller);
    return was_remembered ? OK : auth_resolve(auth, &cred, &arena, caller, detail);
}

static const struct str nobody = {NULL, 0};

static void test_sessions_are_asked_once_and_then_remembered(void **state)
{
    (void)state;
    struct person ada = person("ada");
    struct caller c;
    assert_int_equal(call(ada.token, NULL, false, &c), OK);
    assert_false(was_remembered);
    assert_true(c.account == ada.id && c.session == ada.session && c.scopes == 0 && !c.control);
    assert_int_equal(call(ada.token, NULL, false, &c), OK);
    assert_true(was_remembered && c.account == ada.id && c.session == ada.session);
    manual_clock_advance(&store.clock, 60 * 1000);
    assert_int_equal(call(ada.token, NULL, false, &c), OK);
    assert_false(was_remembered); /* asked again after a minute */
}

static void test_a_caller_without_an_account_has_no_rights(void **state)
{
    (void)state;
    struct caller c;
    assert_int_equal(call(nobody, NULL, false, &c), OK);
    assert_true(c.account == 0 && c.scopes == 0 && !c.control);
    assert_int_equal(call(nobody, NULL, true, &c), OK);
    assert_true(c.control && c.scopes == (SCOPE_ACT | SCOPE_ADMIN | SCOPE_ADMIN_READ));
}

static void test_bad_tokens_are_refused(void **state)
{
    (void)state;
    struct caller c;
    struct str bad[] = {
        STR("x"),
        STR("fts_"),
        STR("fts_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
        STR("ftk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
        STR("a.b.c"),
        STR("a.b.c.d"),
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(call(bad[i], NULL, false, &c), ERR_UNAUTHENTICATED);
    struct credentials cred;
    const char *why = NULL;
    const char *headers[] = {"",           "Bearer",      "Bearer ",
                             "Bearer  ",   "Basic abc",   "bearer\tabc",
                             "Bearer a b", "Bearer \x01", "abc"};
    for (size_t i = 0; i < COUNT_OF(headers); i++)
        assert_int_equal(auth_read(str_of(headers[i]), nobody, false, &cred, &why),
                         ERR_UNAUTHENTICATED);
    assert_int_equal(auth_read(STR("bEARER abc"), nobody, false, &cred, &why), OK);
}

static void test_an_end_takes_effect_at_once(void **state)
{
    (void)state;
    struct person ada = person("ada"), bob = person("bob"), cyd = person("cyd");
    struct caller c;
    assert_int_equal(call(ada.token, NULL, false, &c), OK);
    assert_int_equal(call(bob.token, NULL, false, &c), OK);
    assert_int_equal(call(cyd.token, NULL, false, &c), OK);
    act(END_SESSION, ada.id, ada.session);
    assert_int_equal(call(ada.token, NULL, false, &c), ERR_UNAUTHENTICATED);
    act(SUSPEND, bob.id, 0);
    assert_int_equal(call(bob.token, NULL, false, &c), ERR_UNAUTHENTICATED);
    act(RESTORE, bob.id, 0);
    assert_int_equal(call(bob.token, NULL, false, &c), OK);
    act(DELETE, cyd.id, 0);
    assert_int_equal(call(cyd.token, NULL, false, &c), ERR_UNAUTHENTICATED);
}

static void test_a_session_ends_by_itself(void **state)
{
    (void)state;
    struct person ada = {.name = "ada", .life_ms = 30 * 1000};
    struct caller c;
    token_make("fts_", &arena, &ada.token, ada.hash);
    assert_int_equal(db_write(store.db, create_person, &ada, NULL), OK);
    assert_int_equal(call(ada.token, NULL, false, &c), OK);
    manual_clock_advance(&store.clock, 29 * 1000);
    assert_int_equal(call(ada.token, NULL, false, &c), OK);
    manual_clock_advance(&store.clock,
                         1000); /* well within the minute that callers are remembered */
    assert_int_equal(call(ada.token, NULL, false, &c), ERR_UNAUTHENTICATED);
}

static enum err log_in_again(struct tx *tx, void *arg)
{
    const struct person *p = arg;
    struct str token;
    uint8_t hash[TOKEN_HASH_BYTES];
    uint64_t id;
    token_make("fts_", &arena, &token, hash);
    return session_create(tx, p->id, hash, STR("test"), clock_wall_ms(&store.clock.clock),
                          (struct session_terms){p->life_ms, INT64_MAX / 2}, &id);
}

static void test_a_session_that_makes_room_ends_at_once(void **state)
{
    (void)state;
    struct person ada = person("ada");
    struct caller c;
    for (int i = 1; i < SESSIONS_MAX; i++)
        assert_int_equal(db_write(store.db, log_in_again, &ada, NULL), OK);
    assert_int_equal(call(ada.token, NULL, false, &c), OK);
    assert_int_equal(db_write(store.db, log_in_again, &ada, NULL), OK);
    assert_int_equal(call(ada.token, NULL, false, &c), ERR_UNAUTHENTICATED);
}

static void test_keys_act_only_with_the_scope(void **state)
{
    (void)state;
    struct person ada = person("ada");
    struct key acting = key(SCOPE_ACT), admin = key(SCOPE_ADMIN);
    char id[24];
    struct caller c;
    snprintf(id, sizeof id, "%llu", (unsigned long long)ada.id);
    assert_int_equal(call(acting.token, NULL, false, &c), OK);
    assert_true(c.account == 0 && c.scopes == SCOPE_ACT);
    assert_int_equal(call(acting.token, id, false, &c), OK);
    assert_true(c.account == ada.id && c.session == 0);
    assert_int_equal(call(acting.token, id, false, &c), OK);
    assert_true(was_remembered && c.account == ada.id);
    assert_int_equal(call(acting.token, "@ADA", false, &c), OK);
    assert_true(c.account == ada.id);
    assert_int_equal(call(acting.token, NULL, false, &c), OK);
    assert_true(c.account == 0); /* acting before did not stick */
    assert_int_equal(call(admin.token, id, false, &c), ERR_FORBIDDEN);
    assert_int_equal(call(ada.token, id, false, &c), ERR_FORBIDDEN);
    assert_int_equal(call(nobody, id, false, &c), ERR_UNAUTHENTICATED);
    assert_int_equal(call(acting.token, "123", false, &c), ERR_NOT_FOUND);
    assert_int_equal(call(acting.token, "@nobody", false, &c), ERR_NOT_FOUND);
    assert_int_equal(call(acting.token, "", false, &c), ERR_INVALID);
    assert_int_equal(call(acting.token, "ada", false, &c), ERR_INVALID);
    assert_int_equal(call(acting.token, "@a", false, &c), ERR_INVALID);
    assert_int_equal(call(acting.token, "-1", false, &c), ERR_INVALID);
    assert_int_equal(call(nobody, "@ada", true, &c), OK);
    assert_true(c.control && c.account == ada.id);
    /* The operator's socket and callers without a token have entries of their own: no client on the
     * network becomes the operator by naming the same account. */
    assert_int_equal(call(nobody, "@ada", false, &c), ERR_UNAUTHENTICATED);
    act(SUSPEND, ada.id, 0);
    assert_int_equal(call(acting.token, id, false, &c), ERR_FORBIDDEN);
}

static void test_a_revoked_key_ends_at_once(void **state)
{
    (void)state;
    struct person ada = person("ada");
    struct key k = key(SCOPE_ACT | SCOPE_ADMIN);
    struct caller c;
    (void)ada;
    assert_int_equal(call(k.token, NULL, false, &c), OK);
    assert_int_equal(call(k.token, "@ada", false, &c), OK);
    act(REVOKE, k.id, 0);
    assert_int_equal(call(k.token, NULL, false, &c), ERR_UNAUTHENTICATED);
    assert_int_equal(call(k.token, "@ada", false, &c), ERR_UNAUTHENTICATED);
}

/* ---- JWTs ---- */

static struct str jwt(const char *claims_format, long long exp_s)
{
    char claims[300], text[800];
    const char *header = "{\"alg\":\"HS256\"}";
    snprintf(claims, sizeof claims, claims_format, exp_s);
    size_t h = str_base64url_size(strlen(header)), b = str_base64url_size(strlen(claims));
    str_base64url((const uint8_t *)header, strlen(header), text);
    text[h] = '.';
    str_base64url((const uint8_t *)claims, strlen(claims), text + h + 1);
    uint8_t mac[32];
    unsigned mac_len = sizeof mac;
    HMAC(EVP_sha256(), SECRET, 32, (uint8_t *)text, h + 1 + b, mac, &mac_len);
    text[h + 1 + b] = '.';
    str_base64url(mac, sizeof mac, text + h + b + 2);
    return arena_str(&arena, (struct str){text, h + b + 2 + str_base64url_size(sizeof mac)});
}

static long long soon_s(void)
{
    return clock_wall_ms(&store.clock.clock) / 1000 + 600;
}

static void test_a_jwt_makes_its_account_on_first_sight(void **state)
{
    (void)state;
    struct caller c, again;
    struct str token =
        jwt("{\"iss\":\"host\",\"sub\":\"x|1\",\"exp\":%lld,\"name\":\"Ada Lovelace\","
            "\"preferred_username\":\"Ada_L\"}",
            soon_s());
    assert_int_equal(call(token, NULL, false, &c), OK);
    assert_false(was_remembered);
    assert_true(c.account != 0 && c.session == 0 && c.scopes == 0);
    assert_int_equal(store_number(&store,
                                  "SELECT COUNT(*) FROM accounts WHERE username = 'ada_l' "
                                  "AND external_id = 'x|1' AND display_name = 'Ada Lovelace'"),
                     1);
    assert_int_equal(call(token, NULL, false, &again), OK);
    assert_true(was_remembered && again.account == c.account);
    struct str other = jwt("{\"iss\":\"host\",\"sub\":\"x|1\",\"exp\":%lld}", soon_s() + 5);
    assert_int_equal(call(other, NULL, false, &again), OK);
    assert_true(again.account == c.account);
    assert_int_equal(store_number(&store, "SELECT COUNT(*) FROM accounts"), 1);
}

static void test_a_jwt_never_takes_a_used_name(void **state)
{
    (void)state;
    struct person ada = person("ada");
    struct caller c;
    struct str token = jwt(
        "{\"iss\":\"host\",\"sub\":\"s2\",\"exp\":%lld,\"preferred_username\":\"ada\"}", soon_s());
    assert_int_equal(call(token, NULL, false, &c), OK);
    assert_true(c.account != ada.id);
    assert_int_equal(store_number(&store, "SELECT COUNT(*) FROM accounts WHERE external_id = 's2' "
                                          "AND username LIKE 'u%' AND username <> 'ada'"),
                     1);
    token =
        jwt("{\"iss\":\"host\",\"sub\":\"s3\",\"exp\":%lld,\"preferred_username\":\"no spaces\"}",
            soon_s());
    assert_int_equal(call(token, NULL, false, &c), OK);
    assert_int_equal(store_number(&store, "SELECT COUNT(*) FROM accounts WHERE external_id = 's3' "
                                          "AND username LIKE 'u%'"),
                     1);
}

static void test_a_jwt_is_remembered_until_it_expires(void **state)
{
    (void)state;
    struct caller c;
    struct str token = jwt("{\"iss\":\"host\",\"sub\":\"s\",\"exp\":%lld}", soon_s());
    assert_int_equal(call(token, NULL, false, &c), OK);
    manual_clock_advance(&store.clock, 599 * 1000);
    assert_int_equal(call(token, NULL, false, &c), OK);
    assert_true(was_remembered);
    manual_clock_advance(&store.clock, 32 * 1000); /* exp and the leeway */
    assert_int_equal(call(token, NULL, false, &c), ERR_UNAUTHENTICATED);
}

static void test_a_jwt_of_a_suspended_account_is_refused(void **state)
{
    (void)state;
    struct caller c;
    struct str token = jwt("{\"iss\":\"host\",\"sub\":\"s\",\"exp\":%lld}", soon_s());
    assert_int_equal(call(token, NULL, false, &c), OK);
    act(SUSPEND, c.account, 0);
    assert_int_equal(call(token, NULL, false, &c), ERR_UNAUTHENTICATED);
    act(RESTORE, c.account, 0);
    assert_int_equal(call(token, NULL, false, &c), OK);
    token = jwt("{\"iss\":\"elsewhere\",\"sub\":\"s\",\"exp\":%lld}", soon_s());
    assert_int_equal(call(token, NULL, false, &c), ERR_UNAUTHENTICATED);
}

/* ---- last seen ---- */

static void test_visits_are_marked_now_and_then_and_written_later(void **state)
{
    (void)state;
    struct person ada = person("ada");
    struct caller c;
    manual_clock_advance(&store.clock, 5000);
    int64_t first_ms = clock_wall_ms(&store.clock.clock);
    for (int i = 0; i < 5; i++)
        assert_int_equal(call(ada.token, NULL, false, &c), OK);
    assert_int_equal(seen_marks, 1);
    assert_true(seen_account == ada.id);
    manual_clock_advance(&store.clock, 61 * 1000); /* asked again, but no new visit */
    assert_int_equal(call(ada.token, NULL, false, &c), OK);
    assert_int_equal(seen_marks, 1);
    int64_t now_us = clock_mono_us(&store.clock.clock);
    int64_t next_us = auth_last_seen_step(auth);
    assert_true(next_us >= now_us + 59 * INT64_C(1000000));
    assert_true(store_number(&store, "SELECT seen_at FROM accounts") == first_ms);
    assert_true(store_number(&store, "SELECT used_at FROM sessions") == first_ms);
    assert_true(store_number(&store, "SELECT expires_at FROM sessions") ==
                first_ms + INT64_C(90) * 24 * 3600 * 1000);
    manual_clock_advance(&store.clock, 10 * 60 * 1000);
    assert_int_equal(call(ada.token, NULL, false, &c), OK);
    assert_int_equal(seen_marks, 2);
}

static void test_a_session_in_use_ends_at_its_age(void **state)
{
    (void)state;
    struct person ada = person("ada");
    struct caller c;
    const int64_t day_ms = INT64_C(24) * 3600 * 1000;
    int64_t made_ms = id_time_ms(ada.session);
    manual_clock_advance(&store.clock, 5000); /* a visit later than the session itself */
    for (int day = 0; day < 364; day++) {
        assert_int_equal(call(ada.token, NULL, false, &c), OK);
        manual_clock_advance(&store.clock, 2 * 60 * 1000);
        (void)auth_last_seen_step(auth);
        manual_clock_advance(&store.clock, day_ms - 2 * 60 * 1000);
    }
    assert_true(store_number(&store, "SELECT expires_at FROM sessions") == made_ms + 365 * day_ms);
    manual_clock_advance(&store.clock, day_ms);
    assert_int_equal(call(ada.token, NULL, false, &c), ERR_UNAUTHENTICATED);
}

/* ---- many nodes ---- */

static enum err end_elsewhere(struct tx *tx, void *arg)
{
    return tx_exec(tx, "DELETE FROM sessions WHERE account_id = $1",
                   DB_ARGS(DB_I64(*(uint64_t *)arg)), NULL);
}

static bool finds(struct str token)
{
    struct caller caller;
    struct credentials cred = {.token = token};
    return auth_find(auth, &cred, &caller);
}

static enum err asks(struct str token, struct caller *caller)
{
    char detail[DETAIL_MAX] = "";
    struct credentials cred = {.token = token};
    return auth_resolve(auth, &cred, &arena, caller, detail);
}

/* Another node ended the session, without a signal to this one. */
static void test_a_shared_store_is_asked_again_soon(void **state)
{
    (void)state;
    struct caller caller;
    struct person ada = person("ada");
    struct str token = jwt("{\"iss\":\"host\",\"sub\":\"x|1\",\"exp\":%lld}", soon_s());
    store.db->shared = true;
    assert_int_equal(asks(ada.token, &caller), OK);
    assert_int_equal(asks(token, &caller), OK);
    assert_int_equal(db_write(store.db, end_elsewhere, &ada.id, NULL), OK);
    manual_clock_advance(&store.clock, 1499);
    assert_true(finds(ada.token));
    assert_true(finds(token));
    manual_clock_advance(&store.clock, 1);
    assert_false(finds(ada.token));
    assert_false(finds(token));
    assert_int_equal(asks(ada.token, &caller), ERR_UNAUTHENTICATED);
    store.db->shared = false;
    assert_int_equal(asks(token, &caller), OK);
    manual_clock_advance(&store.clock, 59 * 1000); /* alone, it would know */
    assert_true(finds(token));
}

/* No event loop waits for the network: the step writes to remote views, all at once. */
static void test_remote_views_hear_of_visits_from_the_step(void **state)
{
    (void)state;
    struct caller caller;
    struct person ada = person("ada"), bob = person("bob");
    views.remote = true;
    assert_int_equal(asks(ada.token, &caller), OK);
    assert_int_equal(asks(bob.token, &caller), OK);
    assert_int_equal(seen_marks, 0);
    int64_t next_us = auth_last_seen_step(auth);
    assert_int_equal(seen_marks, 2);
    assert_int_equal(seen_account, bob.id);
    assert_true(next_us <= clock_mono_us(&store.clock.clock) + 1000000);
    (void)auth_last_seen_step(auth);
    assert_int_equal(seen_marks, 2);
    views.remote = false;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_sessions_are_asked_once_and_then_remembered),
        TEST(test_a_caller_without_an_account_has_no_rights),
        TEST(test_bad_tokens_are_refused),
        TEST(test_an_end_takes_effect_at_once),
        TEST(test_a_session_ends_by_itself),
        TEST(test_a_session_that_makes_room_ends_at_once),
        TEST(test_keys_act_only_with_the_scope),
        TEST(test_a_revoked_key_ends_at_once),
        TEST(test_a_jwt_makes_its_account_on_first_sight),
        TEST(test_a_jwt_never_takes_a_used_name),
        TEST(test_a_jwt_is_remembered_until_it_expires),
        TEST(test_a_jwt_of_a_suspended_account_is_refused),
        TEST(test_visits_are_marked_now_and_then_and_written_later),
        TEST(test_a_session_in_use_ends_at_its_age),
        TEST(test_a_shared_store_is_asked_again_soon),
        TEST(test_remote_views_hear_of_visits_from_the_step),
    };
    return cmocka_run_group_tests_name("api/edge/auth", tests, NULL, NULL);
}
