/* Keys for JWTs, from files: a PEM public key, a JWKS, or, asked for by name (hs256:FILE), an HS256
 * secret. What a file holds never makes it a secret: a public key that was taken for one would let
 * everyone who knows it sign. So a file that looks like a public key is refused as a secret, too.
 */
#include "api/edge/jwt_key.h"

#include <jansson.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

enum { KEY_FILE_MAX = 64 * 1024, RSA_BITS_MIN = 2048, EC_COORDINATE = 32, WHY_MAX = 200 };
enum { NUMBER_MAX = 1024 }; /* bytes of a number in a JWKS: RSA of 8192 bits */

static const char *const algorithm_names[] = {"HS256", "RS256", "ES256"};

const char *jwt_algorithm_name(enum jwt_algorithm algorithm)
{
    return algorithm_names[algorithm];
}

static enum err refuse(char *why, const char *text)
{
    snprintf(why, WHY_MAX, "jwt-key: %s", text);
    return ERR_INVALID;
}

/* Takes the key over, also when it is refused. */
static enum err add_public(struct jwt_key *keys, EVP_PKEY *pkey, const char *id, char *why)
{
    char curve[32] = "";
    struct jwt_one_key *key = &keys->keys[keys->count];
    if (EVP_PKEY_is_a(pkey, "RSA") && EVP_PKEY_get_bits(pkey) >= RSA_BITS_MIN) {
        key->algorithm = JWT_RS256;
    } else if (EVP_PKEY_is_a(pkey, "EC") &&
               EVP_PKEY_get_utf8_string_param(pkey, OSSL_PKEY_PARAM_GROUP_NAME, curve, sizeof curve,
                                              NULL) == 1 &&
               strcmp(curve, "prime256v1") == 0) {
        key->algorithm = JWT_ES256;
    } else {
        EVP_PKEY_free(pkey);
        snprintf(why, WHY_MAX, "jwt-key: a key is neither RSA of %d bits or more nor P-256",
                 RSA_BITS_MIN);
        return ERR_INVALID;
    }
    snprintf(key->id, sizeof key->id, "%s", id);
    key->public_key = pkey;
    keys->count++;
    return OK;
}

static enum err add_pem(struct jwt_key *keys, struct str bytes, char *why)
{
    BIO *bio = BIO_new_mem_buf(bytes.ptr, (int)bytes.len);
    EVP_PKEY *pkey = bio ? PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    return pkey ? add_public(keys, pkey, "", why)
                : refuse(why, "the file looks like PEM but holds no public key");
}

/* ---- JWKS ---- */

/* A number of a JWK; 0: it is not there, or too long. */
static size_t member_bytes(const json_t *jwk, const char *name, uint8_t out[NUMBER_MAX])
{
    const json_t *value = json_object_get(jwk, name);
    size_t n = 0;
    if (!json_is_string(value) ||
        !str_base64url_decode((struct str){json_string_value(value), json_string_length(value)},
                              out, NUMBER_MAX, &n))
        return 0;
    return n;
}

static EVP_PKEY *key_from_params(const char *kind, OSSL_PARAM_BLD *builder)
{
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(builder);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, kind, NULL);
    EVP_PKEY *pkey = NULL;
    if (!params || !ctx || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params) != 1)
        pkey = NULL;
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    return pkey;
}

static EVP_PKEY *rsa_of(const json_t *jwk)
{
    uint8_t n_bytes[NUMBER_MAX], e_bytes[NUMBER_MAX];
    size_t n_len = member_bytes(jwk, "n", n_bytes), e_len = member_bytes(jwk, "e", e_bytes);
    if (n_len == 0 || e_len == 0)
        return NULL;
    BIGNUM *n = BN_bin2bn(n_bytes, (int)n_len, NULL), *e = BN_bin2bn(e_bytes, (int)e_len, NULL);
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    EVP_PKEY *pkey = NULL;
    if (n && e && builder && OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, e) == 1)
        pkey = key_from_params("RSA", builder);
    OSSL_PARAM_BLD_free(builder);
    BN_free(n);
    BN_free(e);
    return pkey;
}

static EVP_PKEY *ec_of(const json_t *jwk)
{
    const char *curve = json_string_value(json_object_get(jwk, "crv"));
    uint8_t x[NUMBER_MAX], y[NUMBER_MAX],
        point[1 + 2 * EC_COORDINATE] = {POINT_CONVERSION_UNCOMPRESSED};
    if (!curve || strcmp(curve, "P-256") != 0 || member_bytes(jwk, "x", x) != EC_COORDINATE ||
        member_bytes(jwk, "y", y) != EC_COORDINATE)
        return NULL;
    memcpy(point + 1, x, EC_COORDINATE);
    memcpy(point + 1 + EC_COORDINATE, y, EC_COORDINATE);
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    EVP_PKEY *pkey = NULL;
    if (builder &&
        OSSL_PARAM_BLD_push_utf8_string(builder, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) ==
            1 &&
        OSSL_PARAM_BLD_push_octet_string(builder, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point) ==
            1)
        pkey = key_from_params("EC", builder);
    OSSL_PARAM_BLD_free(builder);
    return pkey;
}

/* Keys for other purposes and of other kinds are passed over, as RFC 7517 asks. */
static enum err add_jwk(struct jwt_key *keys, const json_t *jwk, char *why)
{
    const char *kind = json_string_value(json_object_get(jwk, "kty"));
    const char *use = json_string_value(json_object_get(jwk, "use"));
    const char *id = json_string_value(json_object_get(jwk, "kid"));
    bool rsa = kind && strcmp(kind, "RSA") == 0, ec = kind && strcmp(kind, "EC") == 0;
    if ((!rsa && !ec) || (use && strcmp(use, "sig") != 0))
        return OK;
    if (keys->count == JWT_KEYS_MAX)
        return refuse(why, "the JWKS has more than 16 keys");
    if (id && strlen(id) >= JWT_KEY_ID_MAX)
        return refuse(why, "a kid of the JWKS is longer than 127 bytes");
    EVP_PKEY *pkey = rsa ? rsa_of(jwk) : ec_of(jwk);
    ERR_clear_error();
    return pkey ? add_public(keys, pkey, id ? id : "", why)
                : refuse(why, "a key of the JWKS is malformed, or not on the curve P-256");
}

static enum err add_jwks(struct jwt_key *keys, struct str bytes, char *why)
{
    json_t *set = json_loadb(bytes.ptr, bytes.len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *list = json_object_get(set, "keys");
    enum err e = json_is_array(list) ? OK : refuse(why, "the file is JSON but no JWKS");
    for (size_t i = 0; !e && i < json_array_size(list); i++)
        e = add_jwk(keys, json_array_get(list, i), why);
    json_decref(set);
    if (!e && keys->count == 0)
        e = refuse(why, "the JWKS has no RSA or EC key for signatures");
    return e;
}

/* ---- secrets ---- */

static bool looks_like_pem(struct str bytes)
{
    return memmem(bytes.ptr, bytes.len, "-----BEGIN ", 11) != NULL;
}

static bool looks_like_json(struct str bytes)
{
    size_t i = 0;
    while (i < bytes.len && (bytes.ptr[i] == ' ' || bytes.ptr[i] == '\t' || bytes.ptr[i] == '\r' ||
                             bytes.ptr[i] == '\n'))
        i++;
    return i < bytes.len && bytes.ptr[i] == '{';
}

static bool looks_public(struct str bytes)
{
    return looks_like_pem(bytes) || looks_like_json(bytes) || str_starts(bytes, STR("ssh-")) ||
           str_starts(bytes, STR("ecdsa-"));
}

static enum err add_secret(struct jwt_key *keys, struct str bytes, char *why)
{
    if (looks_public(bytes))
        return refuse(why, "hs256: wants a file with a secret; this one looks like a public key");
    while (bytes.len > 0 && (bytes.ptr[bytes.len - 1] == '\n' || bytes.ptr[bytes.len - 1] == '\r'))
        bytes.len--;
    if (bytes.len < JWT_SECRET_MIN) {
        snprintf(why, WHY_MAX, "jwt-key: the secret is shorter than %d bytes", JWT_SECRET_MIN);
        return ERR_INVALID;
    }
    struct jwt_one_key *key = &keys->keys[keys->count++];
    key->algorithm = JWT_HS256;
    key->secret = malloc(bytes.len);
    CHECK(key->secret);
    key->secret_len = bytes.len;
    memcpy(key->secret, bytes.ptr, bytes.len);
    return OK;
}

/* ---- all of them ---- */

enum err jwt_key_parse(struct str bytes, bool secret, struct jwt_key **out, char why[WHY_MAX])
{
    if (bytes.len > KEY_FILE_MAX)
        return refuse(why, "the file is larger than 64 KiB");
    struct jwt_key *keys = calloc(1, sizeof *keys);
    CHECK(keys);
    enum err e = secret                  ? add_secret(keys, bytes, why)
                 : looks_like_pem(bytes) ? add_pem(keys, bytes, why)
                 : looks_like_json(bytes)
                     ? add_jwks(keys, bytes, why)
                     : refuse(why, "the file holds neither a PEM public key nor "
                                   "a JWKS; for an HS256 secret write hs256:FILE");
    if (e)
        jwt_key_free(keys);
    else
        *out = keys;
    return e;
}

enum err jwt_key_load(const char *setting, struct jwt_key **out, char why[WHY_MAX])
{
    static const char prefix[] = "hs256:";
    bool secret = strncmp(setting, prefix, sizeof prefix - 1) == 0;
    FILE *file = fopen(secret ? setting + sizeof prefix - 1 : setting, "re");
    if (!file) {
        snprintf(why, WHY_MAX, "jwt-key: cannot read the file: %m");
        return ERR_INVALID;
    }
    char *bytes = malloc(KEY_FILE_MAX + 1);
    CHECK(bytes);
    size_t n = fread(bytes, 1, KEY_FILE_MAX + 1, file);
    fclose(file);
    enum err e = jwt_key_parse((struct str){bytes, n}, secret, out, why);
    OPENSSL_cleanse(bytes, n);
    free(bytes);
    return e;
}

void jwt_key_free(struct jwt_key *keys)
{
    if (!keys)
        return;
    for (size_t i = 0; i < keys->count; i++) {
        struct jwt_one_key *key = &keys->keys[i];
        EVP_PKEY_free(key->public_key);
        if (key->secret)
            OPENSSL_cleanse(key->secret, key->secret_len);
        free(key->secret);
    }
    free(keys);
}

const char *jwt_key_algorithm(const struct jwt_key *keys)
{
    for (size_t i = 1; i < keys->count; i++) {
        if (keys->keys[i].algorithm != keys->keys[0].algorithm)
            return "RS256, ES256";
    }
    return algorithm_names[keys->keys[0].algorithm];
}
