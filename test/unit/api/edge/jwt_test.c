/* JWTs: known vectors, and everything that must not pass. */
#include "test.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include "api/edge/jwt.h"
#include "base/buf.h"

#define SECRET "0123456789abcdef0123456789abcdef"
#define NOW_S  INT64_C(1700000000)

static struct arena arena;
static struct jwt_key *hs, *rs, *es;
static EVP_PKEY *rsa_pair, *ec_pair;
static char rsa_pem[2000];

/* ---- making tokens ---- */

static struct str base64url(const void *bytes, size_t n)
{
    size_t len = str_base64url_size(n);
    char *text = arena_alloc(&arena, len + 1);
    str_base64url(bytes, n, text);
    return (struct str){text, len};
}

static struct str join(const char *header, const char *claims)
{
    struct str h = base64url(header, strlen(header)), c = base64url(claims, strlen(claims));
    return arena_printf(&arena, "%.*s.%.*s", STR_ARG(h), STR_ARG(c));
}

static struct str with_signature(struct str text, const void *signature, size_t n)
{
    struct str s = base64url(signature, n);
    return arena_printf(&arena, "%.*s.%.*s", STR_ARG(text), STR_ARG(s));
}

static struct str hmac_token(struct str secret, const char *header, const char *claims)
{
    uint8_t mac[32];
    unsigned len = sizeof mac;
    struct str text = join(header, claims);
    HMAC(EVP_sha256(), secret.ptr, (int)secret.len, (const uint8_t *)text.ptr, text.len, mac, &len);
    return with_signature(text, mac, len);
}

static struct str hs_token(const char *claims)
{
    return hmac_token(STR(SECRET), "{\"alg\":\"HS256\",\"typ\":\"JWT\"}", claims);
}

/* In DER for EC: the caller turns it into r and s. */
static size_t sign(EVP_PKEY *key, struct str text, uint8_t *out, size_t capacity)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    size_t len = capacity;
    assert_int_equal(EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key), 1);
    assert_int_equal(EVP_DigestSign(ctx, out, &len, (const uint8_t *)text.ptr, text.len), 1);
    EVP_MD_CTX_free(ctx);
    return len;
}

static struct str rs_token(const char *header, const char *claims)
{
    uint8_t signature[512];
    struct str text = join(header, claims);
    size_t n = sign(rsa_pair, text, signature, sizeof signature);
    return with_signature(text, signature, n);
}

static struct str es_token(const char *header, const char *claims)
{
    uint8_t der[200], raw[64];
    const uint8_t *at = der;
    struct str text = join(header, claims);
    size_t n = sign(ec_pair, text, der, sizeof der);
    ECDSA_SIG *sig = d2i_ECDSA_SIG(NULL, &at, (long)n);
    BN_bn2binpad(ECDSA_SIG_get0_r(sig), raw, 32);
    BN_bn2binpad(ECDSA_SIG_get0_s(sig), raw + 32, 32);
    ECDSA_SIG_free(sig);
    return with_signature(text, raw, sizeof raw);
}

/* ---- keys ---- */

static size_t pem_of(EVP_PKEY *key, bool public, char *out, size_t size)
{
    BIO *bio = BIO_new(BIO_s_mem());
    if (public)
        PEM_write_bio_PUBKEY(bio, key);
    else
        PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
    int n = BIO_read(bio, out, (int)size - 1);
    assert_true(n > 0);
    out[n] = '\0';
    BIO_free(bio);
    return (size_t)n;
}

static struct jwt_key *key_of(EVP_PKEY *pair, char *pem, size_t size)
{
    char why[200] = "";
    struct jwt_key *key = NULL;
    size_t n = pem_of(pair, true, pem, size);
    assert_int_equal(jwt_key_parse((struct str){pem, n}, false, &key, why), OK);
    return key;
}

static int begin(void **state)
{
    (void)state;
    char why[200], pem[2000];
    arena_init(&arena);
    rsa_pair = EVP_RSA_gen(2048);
    ec_pair = EVP_EC_gen("P-256");
    rs = key_of(rsa_pair, rsa_pem, sizeof rsa_pem);
    es = key_of(ec_pair, pem, sizeof pem);
    return jwt_key_parse(STR(SECRET "\n"), true, &hs, why) == OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    jwt_key_free(hs);
    jwt_key_free(rs);
    jwt_key_free(es);
    EVP_PKEY_free(rsa_pair);
    EVP_PKEY_free(ec_pair);
    arena_done(&arena);
    return 0;
}

static const char *verify_all(const struct jwt_key *key, struct str token, const char *issuer,
                              const char *audience, int64_t now_s, struct jwt_claims *claims)
{
    const char *why = NULL;
    enum err e = jwt_verify(key, token, issuer, audience, now_s * 1000, &arena, claims, &why);
    if (e) {
        assert_int_equal(e, ERR_UNAUTHENTICATED);
        assert_non_null(why);
    }
    return e ? why : "ok";
}

static const char *verify(const struct jwt_key *key, struct str token)
{
    struct jwt_claims claims;
    return verify_all(key, token, "", "", NOW_S, &claims);
}

#define GOOD "{\"sub\":\"user-1\",\"exp\":1700000100}"

static void test_accepts_the_three_algorithms(void **state)
{
    (void)state;
    struct jwt_claims claims;
    assert_string_equal(jwt_key_algorithm(hs), "HS256");
    assert_string_equal(jwt_key_algorithm(rs), "RS256");
    assert_string_equal(jwt_key_algorithm(es), "ES256");
    assert_string_equal(verify(rs, rs_token("{\"alg\":\"RS256\"}", GOOD)), "ok");
    assert_string_equal(verify(es, es_token("{\"alg\":\"ES256\",\"kid\":\"1\"}", GOOD)), "ok");
    struct str token = hs_token("{\"sub\":\"user-1\",\"exp\":1700000100.5,\"name\":\"Ada L\","
                                "\"preferred_username\":\"ada\"}");
    assert_string_equal(verify_all(hs, token, "", "", NOW_S, &claims), "ok");
    assert_str_equal(claims.subject, STR("user-1"));
    assert_str_equal(claims.name, STR("Ada L"));
    assert_str_equal(claims.preferred_username, STR("ada"));
    assert_true(claims.expires_at_ms == INT64_C(1700000100500));
}

/* RFC 7515, appendices A.1 and A.3: genuine signatures over claims that have no sub. */
static void test_known_vectors(void **state)
{
    (void)state;
    struct jwt_claims claims;
    struct jwt_key *key = NULL;
    char why[200];
    uint8_t secret[64];
    size_t n;
    assert_true(str_base64url_decode(STR("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-"
                                         "1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"),
                                     secret, sizeof secret, &n));
    assert_int_equal(jwt_key_parse((struct str){(char *)secret, n}, true, &key, why), OK);
    struct str token = STR(
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9."
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0"
        "cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
    assert_non_null(strstr(verify_all(key, token, "joe", "", 1300819000, &claims), "sub"));
    assert_non_null(strstr(verify_all(key, token, "eve", "", 1300819000, &claims), "issuer"));
    assert_non_null(strstr(verify_all(key, token, "joe", "", 1300819411, &claims), "expired"));
    jwt_key_free(key);

    uint8_t point[64], der[91];
    static const uint8_t prefix[27] = {0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48,
                                       0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
                                       0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04};
    assert_true(
        str_base64url_decode(STR("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"), point, 32, &n));
    assert_true(str_base64url_decode(STR("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"), point + 32,
                                     32, &n));
    memcpy(der, prefix, sizeof prefix);
    memcpy(der + sizeof prefix, point, sizeof point);
    char pem[300], text[200];
    EVP_EncodeBlock((uint8_t *)text, der, sizeof der);
    int len = snprintf(pem, sizeof pem,
                       "-----BEGIN PUBLIC KEY-----\n%.64s\n%s\n-----END PUBLIC KEY-----\n", text,
                       text + 64);
    assert_int_equal(jwt_key_parse((struct str){pem, (size_t)len}, false, &key, why), OK);
    token = STR(
        "eyJhbGciOiJFUzI1NiJ9."
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0"
        "cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-"
        "Kg6NU1Q");
    assert_non_null(strstr(verify_all(key, token, "joe", "", 1300819000, &claims), "sub"));
    jwt_key_free(key);
}

static void test_none_never_passes(void **state)
{
    (void)state;
    const char *headers[] = {"{\"alg\":\"none\"}", "{\"alg\":\"None\"}", "{\"alg\":\"\"}", "{}",
                             "{\"alg\":null}",     "{\"alg\":256}"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct str text = join(headers[i], GOOD);
        struct str bare = arena_printf(&arena, "%.*s.", STR_ARG(text));
        assert_string_not_equal(verify(hs, bare), "ok");
        assert_string_not_equal(verify(rs, bare), "ok");
        assert_string_not_equal(verify(hs, hmac_token(STR(SECRET), headers[i], GOOD)), "ok");
    }
}

static void test_algorithms_are_not_confused(void **state)
{
    (void)state;
    /* the public key used as an HMAC secret */
    struct str pem = str_of(rsa_pem), trimmed = {rsa_pem, strlen(rsa_pem) - 1};
    assert_non_null(strstr(verify(rs, hmac_token(pem, "{\"alg\":\"HS256\"}", GOOD)), "algorithm"));
    assert_non_null(
        strstr(verify(rs, hmac_token(trimmed, "{\"alg\":\"HS256\"}", GOOD)), "algorithm"));
    assert_non_null(strstr(verify(rs, hmac_token(pem, "{\"alg\":\"RS256\"}", GOOD)), "signature"));
    assert_non_null(strstr(verify(hs, rs_token("{\"alg\":\"RS256\"}", GOOD)), "algorithm"));
    assert_non_null(strstr(verify(hs, rs_token("{\"alg\":\"HS256\"}", GOOD)), "signature"));
    assert_non_null(strstr(verify(es, rs_token("{\"alg\":\"ES256\"}", GOOD)), "signature"));
    assert_non_null(strstr(verify(rs, es_token("{\"alg\":\"RS256\"}", GOOD)), "signature"));
    assert_non_null(
        strstr(verify(hs, hmac_token(STR(SECRET), "{\"alg\":\"HS512\"}", GOOD)), "algorithm"));
    assert_non_null(
        strstr(verify(hs, hmac_token(STR(SECRET), "{\"alg\":\"hs256\"}", GOOD)), "algorithm"));
}

static void test_another_key_does_not_pass(void **state)
{
    (void)state;
    assert_non_null(
        strstr(verify(hs, hmac_token(STR(SECRET "x"), "{\"alg\":\"HS256\"}", GOOD)), "signature"));
    EVP_PKEY *other = EVP_EC_gen("P-256"), *kept = ec_pair;
    ec_pair = other;
    struct str token = es_token("{\"alg\":\"ES256\"}", GOOD);
    ec_pair = kept;
    EVP_PKEY_free(other);
    assert_non_null(strstr(verify(es, token), "signature"));
}

static void test_every_changed_character_is_noticed(void **state)
{
    (void)state;
    struct str tokens[] = {hs_token(GOOD), es_token("{\"alg\":\"ES256\"}", GOOD)};
    const struct jwt_key *keys[] = {hs, es};
    for (size_t t = 0; t < 2; t++) {
        char *text = arena_alloc(&arena, tokens[t].len);
        for (size_t i = 0; i < tokens[t].len; i++) {
            memcpy(text, tokens[t].ptr, tokens[t].len);
            text[i] = text[i] == 'A' ? 'B' : 'A';
            assert_string_not_equal(verify(keys[t], (struct str){text, tokens[t].len}), "ok");
        }
    }
}

static void test_odd_signatures_do_not_pass(void **state)
{
    (void)state;
    uint8_t zeros[128] = {0}, ones[128];
    memset(ones, 0xff, sizeof ones);
    struct str text = join("{\"alg\":\"ES256\"}", GOOD);
    assert_string_not_equal(verify(es, with_signature(text, zeros, 64)), "ok"); /* r = s = 0 */
    assert_string_not_equal(verify(es, with_signature(text, ones, 64)), "ok");
    assert_string_not_equal(verify(es, with_signature(text, ones, 63)), "ok");
    assert_string_not_equal(verify(es, with_signature(text, ones, 128)), "ok");
    text = join("{\"alg\":\"HS256\"}", GOOD);
    assert_string_not_equal(verify(hs, with_signature(text, zeros, 31)), "ok");
    assert_string_not_equal(verify(hs, with_signature(text, zeros, 1)), "ok");
}

static void test_times_are_held_to(void **state)
{
    (void)state;
    struct jwt_claims claims;
    struct str token = hs_token("{\"sub\":\"a\",\"exp\":1700000000,\"nbf\":1699999000}");
    assert_string_equal(verify_all(hs, token, "", "", NOW_S - 1, &claims), "ok");
    assert_string_equal(verify_all(hs, token, "", "", NOW_S + 29, &claims), "ok"); /* leeway */
    assert_non_null(strstr(verify_all(hs, token, "", "", NOW_S + 30, &claims), "expired"));
    assert_string_equal(verify_all(hs, token, "", "", 1699998970, &claims), "ok");
    assert_non_null(strstr(verify_all(hs, token, "", "", 1699998969, &claims), "not valid yet"));
    const char *bad[] = {
        "{\"sub\":\"a\"}",
        "{\"sub\":\"a\",\"exp\":\"1800000000\"}",
        "{\"sub\":\"a\",\"exp\":null}",
        "{\"sub\":\"a\",\"exp\":-1}",
        "{\"sub\":\"a\",\"exp\":1e300}",
        "{\"sub\":\"a\",\"exp\":true}",
        "{\"sub\":\"a\",\"exp\":1800000000,\"nbf\":\"x\"}",
        "{\"sub\":\"a\",\"exp\":1,\"exp\":1800000000}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_string_not_equal(verify(hs, hs_token(bad[i])), "ok");
}

static void test_issuer_and_audience_are_held_to(void **state)
{
    (void)state;
    struct jwt_claims claims;
    const struct {
        const char *claims, *issuer, *audience;
        bool good;
    } cases[] = {
        {"{\"sub\":\"a\",\"exp\":1800000000,\"iss\":\"me\",\"aud\":\"app\"}", "me", "app", true},
        {"{\"sub\":\"a\",\"exp\":1800000000,\"iss\":\"me\",\"aud\":[\"x\",\"app\"]}", "me", "app",
         true},
        {"{\"sub\":\"a\",\"exp\":1800000000,\"iss\":\"me\",\"aud\":[\"x\"]}", "me", "app", false},
        {"{\"sub\":\"a\",\"exp\":1800000000,\"iss\":\"me\",\"aud\":[]}", "me", "app", false},
        {"{\"sub\":\"a\",\"exp\":1800000000,\"iss\":\"me\",\"aud\":\"other\"}", "me", "app", false},
        {"{\"sub\":\"a\",\"exp\":1800000000,\"iss\":\"me\"}", "me", "app", false},
        {"{\"sub\":\"a\",\"exp\":1800000000,\"iss\":\"you\",\"aud\":\"app\"}", "me", "app", false},
        {"{\"sub\":\"a\",\"exp\":1800000000,\"iss\":[\"me\"],\"aud\":\"app\"}", "me", "app", false},
        {"{\"sub\":\"a\",\"exp\":1800000000,\"aud\":\"app\"}", "me", "app", false},
        {"{\"sub\":\"a\",\"exp\":1800000000,\"iss\":\"any\",\"aud\":\"any\"}", "", "", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *said = verify_all(hs, hs_token(cases[i].claims), cases[i].issuer,
                                      cases[i].audience, NOW_S, &claims);
        if ((strcmp(said, "ok") == 0) != cases[i].good)
            fail_msg("case %zu: %s", i, said);
    }
}

static void test_subjects_are_bounded(void **state)
{
    (void)state;
    char claims[400], sub[300];
    memset(sub, 'x', sizeof sub);
    snprintf(claims, sizeof claims, "{\"sub\":\"%.255s\",\"exp\":1800000000}", sub);
    assert_string_equal(verify(hs, hs_token(claims)), "ok");
    snprintf(claims, sizeof claims, "{\"sub\":\"%.256s\",\"exp\":1800000000}", sub);
    assert_non_null(strstr(verify(hs, hs_token(claims)), "sub"));
    assert_non_null(strstr(verify(hs, hs_token("{\"sub\":\"\",\"exp\":1800000000}")), "sub"));
    assert_non_null(strstr(verify(hs, hs_token("{\"sub\":7,\"exp\":1800000000}")), "sub"));
    assert_non_null(strstr(verify(hs, hs_token("{\"exp\":1800000000}")), "sub"));
}

static void test_malformed_tokens_do_not_pass(void **state)
{
    (void)state;
    const char *bad[] = {"", ".", "..", "...", "a.b", "a.b.c", "a..c", ".b.c", "a.b.", "a.b.c.d"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_string_not_equal(verify(hs, str_of(bad[i])), "ok");
    assert_true(jwt_looks_like(STR("a.b.c")));
    assert_false(jwt_looks_like(STR("a.b")));
    assert_false(jwt_looks_like(STR("a.b.c.d")));
    struct str good = hs_token(GOOD);
    struct str padded = arena_printf(&arena, "%.*s=", STR_ARG(good));
    assert_string_not_equal(verify(hs, padded), "ok");
    assert_string_not_equal(verify(hs, hs_token("[1]")), "ok");
    assert_string_not_equal(verify(hs, hs_token("{\"sub\":")), "ok");
    const char *critical = "{\"alg\":\"HS256\",\"crit\":[\"exp\"]}";
    assert_string_not_equal(verify(hs, hmac_token(STR(SECRET), critical, GOOD)), "ok");
    const char *twice = "{\"alg\":\"none\",\"alg\":\"HS256\"}";
    assert_string_not_equal(verify(hs, hmac_token(STR(SECRET), twice, GOOD)), "ok");
    char *huge = arena_alloc(&arena, JWT_TOKEN_MAX + 10);
    memset(huge, 'A', JWT_TOKEN_MAX + 9);
    huge[10] = huge[20] = '.';
    assert_false(jwt_looks_like((struct str){huge, JWT_TOKEN_MAX + 1}));
    assert_string_not_equal(verify(hs, (struct str){huge, JWT_TOKEN_MAX + 1}), "ok");
}

static void test_weak_and_wrong_keys_are_refused(void **state)
{
    (void)state;
    char why[200], pem[2000];
    struct jwt_key *key = NULL;
    assert_int_equal(jwt_key_parse(STR("short\n"), true, &key, why), ERR_INVALID);
    assert_int_equal(jwt_key_parse(STR("0123456789abcdef0123456789abcde\n\n"), true, &key, why),
                     ERR_INVALID);
    assert_int_equal(
        jwt_key_parse(STR("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), false,
                      &key, why),
        ERR_INVALID);
    EVP_PKEY *weak = EVP_RSA_gen(1024), *curve = EVP_EC_gen("P-384");
    size_t n = pem_of(weak, true, pem, sizeof pem);
    assert_int_equal(jwt_key_parse((struct str){pem, n}, false, &key, why), ERR_INVALID);
    n = pem_of(curve, true, pem, sizeof pem);
    assert_int_equal(jwt_key_parse((struct str){pem, n}, false, &key, why), ERR_INVALID);
    n = pem_of(ec_pair, false, pem, sizeof pem); /* a private key must not end up as a secret */
    assert_int_equal(jwt_key_parse((struct str){pem, n}, false, &key, why), ERR_INVALID);
    EVP_PKEY_free(weak);
    EVP_PKEY_free(curve);
    /* what is public must not become a secret, and a secret is named as one */
    assert_int_equal(jwt_key_parse(str_of(rsa_pem), true, &key, why), ERR_INVALID);
    assert_int_equal(jwt_key_parse(STR("\n {\"keys\":[]} and more than 32 bytes"), true, &key, why),
                     ERR_INVALID);
    assert_int_equal(jwt_key_parse(STR(SECRET), false, &key, why), ERR_INVALID);
    assert_int_equal(jwt_key_load("/nonexistent/key", &key, why), ERR_INVALID);
    assert_null(key);
}

/* ---- JWKS ---- */

static struct str number_of(EVP_PKEY *pair, const char *param, int bytes)
{
    BIGNUM *n = NULL;
    uint8_t raw[512];
    assert_int_equal(EVP_PKEY_get_bn_param(pair, param, &n), 1);
    int len = bytes ? bytes : BN_num_bytes(n);
    assert_true(BN_bn2binpad(n, raw, len) == len);
    BN_free(n);
    return base64url(raw, (size_t)len);
}

static struct str jwk_of_rsa(const char *id)
{
    struct str n = number_of(rsa_pair, "n", 0), e = number_of(rsa_pair, "e", 0);
    return arena_printf(&arena, "{\"kty\":\"RSA\",\"use\":\"sig\",%s\"n\":\"%.*s\",\"e\":\"%.*s\"}",
                        id, STR_ARG(n), STR_ARG(e));
}

static struct str jwk_of_ec(const char *id)
{
    struct str x = number_of(ec_pair, "qx", 32), y = number_of(ec_pair, "qy", 32);
    return arena_printf(&arena,
                        "{\"kty\":\"EC\",\"crv\":\"P-256\",%s\"x\":\"%.*s\",\"y\":\"%.*s\"}", id,
                        STR_ARG(x), STR_ARG(y));
}

static enum err parse_set(struct str first, struct str second, struct jwt_key **out)
{
    char why[200];
    struct str set =
        arena_printf(&arena, "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}%s%.*s%s%.*s]}",
                     first.len ? "," : "", STR_ARG(first), second.len ? "," : "", STR_ARG(second));
    return jwt_key_parse(set, false, out, why);
}

static void test_keys_of_a_jwks_are_chosen_by_name(void **state)
{
    (void)state;
    struct jwt_key *set = NULL, *one = NULL;
    assert_int_equal(parse_set(jwk_of_rsa("\"kid\":\"r\","), jwk_of_ec("\"kid\":\"e\","), &set),
                     OK);
    assert_string_equal(jwt_key_algorithm(set), "RS256, ES256");
    assert_string_equal(verify(set, rs_token("{\"alg\":\"RS256\",\"kid\":\"r\"}", GOOD)), "ok");
    assert_string_equal(verify(set, es_token("{\"alg\":\"ES256\",\"kid\":\"e\"}", GOOD)), "ok");
    const char *wrong[] = {"{\"alg\":\"RS256\"}", "{\"alg\":\"RS256\",\"kid\":\"e\"}",
                           "{\"alg\":\"RS256\",\"kid\":\"x\"}", "{\"alg\":\"RS256\",\"kid\":\"\"}",
                           "{\"alg\":\"ES256\",\"kid\":\"r\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_string_not_equal(verify(set, rs_token(wrong[i], GOOD)), "ok");
    assert_string_not_equal(
        verify(set, hmac_token(STR("x"), "{\"alg\":\"HS256\",\"kid\":\"r\"}", GOOD)), "ok");
    /* a single key needs no name, and has to be meant */
    assert_int_equal(parse_set(jwk_of_ec("\"kid\":\"e\","), STR(""), &one), OK);
    assert_string_equal(jwt_key_algorithm(one), "ES256");
    assert_string_equal(verify(one, es_token("{\"alg\":\"ES256\"}", GOOD)), "ok");
    assert_string_not_equal(verify(one, es_token("{\"alg\":\"ES256\",\"kid\":\"x\"}", GOOD)), "ok");
    jwt_key_free(set);
    jwt_key_free(one);
}

static void test_a_jwks_without_a_usable_key_is_refused(void **state)
{
    (void)state;
    struct jwt_key *key = NULL;
    char why[200];
    assert_int_equal(parse_set(STR(""), STR(""), &key), ERR_INVALID);
    assert_int_equal(
        parse_set(STR("{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}"), STR(""), &key),
        ERR_INVALID);
    assert_int_equal(parse_set(STR("{\"kty\":\"RSA\"}"), STR(""), &key), ERR_INVALID);
    assert_int_equal(parse_set(STR("{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"AA\"}"),
                               STR(""), &key),
                     ERR_INVALID);
    assert_int_equal(jwt_key_parse(STR("{\"keys\":1}"), false, &key, why), ERR_INVALID);
    assert_int_equal(jwt_key_parse(STR("{"), false, &key, why), ERR_INVALID);
    assert_null(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts_the_three_algorithms),
        cmocka_unit_test(test_known_vectors),
        cmocka_unit_test(test_none_never_passes),
        cmocka_unit_test(test_algorithms_are_not_confused),
        cmocka_unit_test(test_another_key_does_not_pass),
        cmocka_unit_test(test_every_changed_character_is_noticed),
        cmocka_unit_test(test_odd_signatures_do_not_pass),
        cmocka_unit_test(test_times_are_held_to),
        cmocka_unit_test(test_issuer_and_audience_are_held_to),
        cmocka_unit_test(test_subjects_are_bounded),
        cmocka_unit_test(test_malformed_tokens_do_not_pass),
        cmocka_unit_test(test_weak_and_wrong_keys_are_refused),
        cmocka_unit_test(test_keys_of_a_jwks_are_chosen_by_name),
        cmocka_unit_test(test_a_jwks_without_a_usable_key_is_refused),
    };
    return cmocka_run_group_tests_name("api/edge/jwt", tests, begin, end);
}
