/* JWT verification with OpenSSL 3.
 *
 * The token's "alg" is compared with the one algorithm that the key has, and is never used to
 * choose one; of several keys "kid" alone chooses. So neither "none" nor an HS256 signature made
 * with a public key as its secret can pass. The signature is checked before any claim is read; the
 * claims are then held to what RFC 7519 asks, with exp required. */
#include "api/edge/jwt.h"

#include <jansson.h>
#include <math.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "api/edge/body.h"
#include "api/edge/jwt_key.h"

enum { ES256_BYTES = 64, HS256_BYTES = 32 };

/* ---- the parts of a token ---- */

struct parts {
    struct str header, payload, signature; /* base64url, as sent */
    struct str signed_text;                /* header "." payload */
};

static bool split(struct str token, struct parts *out)
{
    struct str rest = token;
    if (!str_split(&rest, '.', &out->header) || !str_split(&rest, '.', &out->payload))
        return false;
    out->signature = rest;
    out->signed_text = (struct str){token.ptr, token.len - rest.len - 1};
    return out->header.len && out->payload.len && rest.len && !memchr(rest.ptr, '.', rest.len);
}

bool jwt_looks_like(struct str token)
{
    struct parts parts;
    return token.len <= JWT_TOKEN_MAX && split(token, &parts);
}

static bool decode(struct str text, struct arena *arena, struct str *out)
{
    size_t capacity = text.len, n = 0;
    uint8_t *bytes = arena_alloc(arena, capacity ? capacity : 1);
    if (!str_base64url_decode(text, bytes, capacity, &n))
        return false;
    *out = (struct str){(const char *)bytes, n};
    return true;
}

/* Jansson recurses; the token is small, but its depth is bounded all the same. */
static json_t *decode_object(struct str text, struct arena *arena)
{
    struct str raw;
    if (!decode(text, arena, &raw) || !str_is_utf8(raw) || body_depth(raw) > BODY_DEPTH_MAX)
        return NULL;
    json_t *object = json_loadb(raw.ptr, raw.len, JSON_REJECT_DUPLICATES, NULL);
    if (object && !json_is_object(object)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* ---- signatures ---- */

static bool hmac_matches(const struct jwt_one_key *key, struct str text, struct str signature)
{
    uint8_t mac[HS256_BYTES];
    unsigned mac_len = sizeof mac;
    if (!HMAC(EVP_sha256(), key->secret, (int)key->secret_len, (const uint8_t *)text.ptr, text.len,
              mac, &mac_len))
        return false;
    return signature.len == sizeof mac && CRYPTO_memcmp(mac, signature.ptr, sizeof mac) == 0;
}

static bool key_verifies(EVP_PKEY *pkey, struct str text, const uint8_t *signature, size_t len)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool good = ctx && EVP_DigestVerifyInit(ctx, NULL, EVP_sha256(), NULL, pkey) == 1 &&
                EVP_DigestVerify(ctx, signature, len, (const uint8_t *)text.ptr, text.len) == 1;
    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    return good;
}

/* JWS carries r and s side by side; OpenSSL wants them in DER. */
static bool ecdsa_matches(EVP_PKEY *pkey, struct str text, struct str signature)
{
    if (signature.len != ES256_BYTES)
        return false;
    ECDSA_SIG *sig = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn((const uint8_t *)signature.ptr, ES256_BYTES / 2, NULL);
    BIGNUM *s = BN_bin2bn((const uint8_t *)signature.ptr + ES256_BYTES / 2, ES256_BYTES / 2, NULL);
    if (!sig || !r || !s || ECDSA_SIG_set0(sig, r, s) != 1) {
        BN_free(r);
        BN_free(s);
        ECDSA_SIG_free(sig);
        return false;
    }
    uint8_t *der = NULL;
    int len = i2d_ECDSA_SIG(sig, &der);
    bool good = len > 0 && key_verifies(pkey, text, der, (size_t)len);
    OPENSSL_free(der);
    ECDSA_SIG_free(sig);
    return good;
}

static bool signature_matches(const struct jwt_one_key *key, struct str text, struct str signature)
{
    switch (key->algorithm) {
    case JWT_HS256:
        return hmac_matches(key, text, signature);
    case JWT_RS256:
        return key_verifies(key->public_key, text, (const uint8_t *)signature.ptr, signature.len);
    case JWT_ES256:
        return ecdsa_matches(key->public_key, text, signature);
    }
    return false;
}

/* The key that the header asks for; NULL: there is none. A token without "kid" fits a single key,
 * and one with any fits a key without a name. */
static const struct jwt_one_key *choose_key(const struct jwt_key *keys, const json_t *header)
{
    const char *kid = json_string_value(json_object_get(header, "kid"));
    if (keys->count == 1 && (!kid || !keys->keys[0].id[0]))
        return &keys->keys[0];
    for (size_t i = 0; kid && i < keys->count; i++) {
        if (keys->keys[i].id[0] && strcmp(keys->keys[i].id, kid) == 0)
            return &keys->keys[i];
    }
    return NULL;
}

static bool header_fits(const struct jwt_one_key *key, const json_t *header)
{
    const char *alg = json_string_value(json_object_get(header, "alg"));
    /* "crit" names extensions that must be understood; we understand none. */
    return alg && strcmp(alg, jwt_algorithm_name(key->algorithm)) == 0 &&
           !json_object_get(header, "crit");
}

/* ---- claims ---- */

static struct str text_claim(const json_t *claims, const char *name, struct arena *arena)
{
    const json_t *value = json_object_get(claims, name);
    if (!json_is_string(value))
        return (struct str){NULL, 0};
    return arena_str(arena, (struct str){json_string_value(value), json_string_length(value)});
}

/* A NumericDate in seconds, which may have a fraction; false: absent or not a sane number. */
static bool time_claim(const json_t *claims, const char *name, double *seconds)
{
    const json_t *value = json_object_get(claims, name);
    if (!json_is_number(value))
        return false;
    *seconds = json_number_value(value);
    return isfinite(*seconds) && *seconds >= 0 && *seconds <= 1e11;
}

static bool text_equals(const json_t *value, const char *wanted)
{
    return json_is_string(value) &&
           str_eq((struct str){json_string_value(value), json_string_length(value)},
                  str_of(wanted));
}

static bool audience_fits(const json_t *claims, const char *audience)
{
    const json_t *aud = json_object_get(claims, "aud");
    if (!json_is_array(aud))
        return text_equals(aud, audience);
    for (size_t i = 0; i < json_array_size(aud); i++) {
        if (text_equals(json_array_get(aud, i), audience))
            return true;
    }
    return false;
}

/* The first fault of the claims; NULL: none. */
static const char *claims_fault(const json_t *claims, const char *issuer, const char *audience,
                                int64_t now_ms)
{
    double now_s = (double)now_ms / 1000.0, exp, nbf;
    if (!time_claim(claims, "exp", &exp))
        return "the token has no valid exp";
    if (now_s >= exp + JWT_LEEWAY_S)
        return "the token has expired";
    if (json_object_get(claims, "nbf") &&
        (!time_claim(claims, "nbf", &nbf) || now_s < nbf - JWT_LEEWAY_S))
        return "the token is not valid yet";
    if (issuer[0] && !text_equals(json_object_get(claims, "iss"), issuer))
        return "the token has another issuer";
    if (audience[0] && !audience_fits(claims, audience))
        return "the token is for another audience";
    const json_t *sub = json_object_get(claims, "sub");
    if (!json_is_string(sub) || json_string_length(sub) == 0 ||
        json_string_length(sub) > JWT_SUBJECT_MAX)
        return "the token's sub must be a string of 1 to 255 bytes";
    return NULL;
}

enum err jwt_verify(const struct jwt_key *keys, struct str token, const char *issuer,
                    const char *audience, int64_t now_ms, struct arena *arena,
                    struct jwt_claims *out, const char **why)
{
    struct parts parts;
    struct str signature;
    *why = "the token is not a well-formed JWT";
    if (token.len > JWT_TOKEN_MAX || !split(token, &parts) ||
        !decode(parts.signature, arena, &signature))
        return ERR_UNAUTHENTICATED;
    json_t *header = decode_object(parts.header, arena);
    if (!header)
        return ERR_UNAUTHENTICATED;
    const struct jwt_one_key *key = choose_key(keys, header);
    bool fits = key && header_fits(key, header);
    json_decref(header);
    if (!key) {
        *why = "the token names a key (kid) that is not configured";
        return ERR_UNAUTHENTICATED;
    }
    if (!fits) {
        *why = "the token's algorithm is not the configured key's";
        return ERR_UNAUTHENTICATED;
    }
    if (!signature_matches(key, parts.signed_text, signature)) {
        *why = "the token's signature does not match";
        return ERR_UNAUTHENTICATED;
    }
    json_t *claims = decode_object(parts.payload, arena);
    if (!claims)
        return ERR_UNAUTHENTICATED;
    *why = claims_fault(claims, issuer, audience, now_ms);
    if (!*why) {
        double exp = 0;
        time_claim(claims, "exp", &exp);
        *out = (struct jwt_claims){
            .subject = text_claim(claims, "sub", arena),
            .preferred_username = text_claim(claims, "preferred_username", arena),
            .name = text_claim(claims, "name", arena),
            .expires_at_ms = (int64_t)(exp * 1000.0),
        };
    }
    json_decref(claims);
    return *why ? ERR_UNAUTHENTICATED : OK;
}
