/* JWTs: arbitrary tokens end in a refusal; arbitrary headers and claims, genuinely signed, end
 * without harm. */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdint.h>

#include "api/edge/auth.h"
#include "api/edge/jwt.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET "0123456789abcdef0123456789abcdef"

static struct str encode(struct arena *arena, const uint8_t *bytes, size_t n)
{
    char *text = arena_alloc(arena, str_base64url_size(n) + 1);
    str_base64url(bytes, n, text);
    return (struct str){text, str_base64url_size(n)};
}

/* The input, split in two, as header and claims under a genuine signature. */
static struct str sign(struct arena *arena, const uint8_t *data, size_t size)
{
    size_t cut = size ? data[0] % size : 0;
    struct str header = cut < 4 ? encode(arena, (const uint8_t *)"{\"alg\":\"HS256\"}", 15)
                                : encode(arena, data, cut);
    struct str claims = encode(arena, data + cut, size - cut);
    struct str text = arena_printf(arena, "%.*s.%.*s", STR_ARG(header), STR_ARG(claims));
    uint8_t mac[32];
    unsigned len = sizeof mac;
    HMAC(EVP_sha256(), SECRET, 32, (const uint8_t *)text.ptr, text.len, mac, &len);
    struct str signature = encode(arena, mac, sizeof mac);
    return arena_printf(arena, "%.*s.%.*s", STR_ARG(text), STR_ARG(signature));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct jwt_key *key;
    char why_not[200];
    if (!key)
        CHECK(jwt_key_parse(STR(SECRET), true, &key, why_not) == OK);
    struct arena arena;
    arena_init(&arena);
    struct jwt_claims claims;
    const char *why = NULL;
    struct str token = {(const char *)data, size};
    (void)jwt_looks_like(token);
    CHECK(jwt_verify(key, token, "", "", 1700000000000, &arena, &claims, &why) != OK && why);
    token = sign(&arena, data, size);
    if (jwt_verify(key, token, "", "", 1700000000000, &arena, &claims, &why) == OK)
        CHECK(claims.subject.len >= 1 && claims.subject.len <= JWT_SUBJECT_MAX &&
              str_is_utf8(claims.subject) && claims.expires_at_ms > 1700000000000 - 30000);

    struct credentials cred; /* the header it comes in */
    struct str header = {(const char *)data, size};
    if (auth_read(header, (struct str){NULL, 0}, false, &cred, &why) == OK)
        CHECK(cred.token.len > 0 && cred.token.len <= JWT_TOKEN_MAX);
    (void)auth_read((struct str){NULL, 0}, header, false, &cred, &why);
    arena_done(&arena);
    return 0;
}
