/* Passwords: argon2id through libsodium, 19 MiB and two passes, about 17 ms. Slow on purpose, so it
 * runs on blocking threads only, and a log-in with an unknown name costs the same as one with a
 * wrong password. */
#include <ctype.h>
#include <sodium.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/account.h"

enum { PASSES = 2, MEMORY_BYTES = 19 * 1024 * 1024, COMMON_MAX = 24 };

enum err password_hash(struct str password, struct arena *arena, struct str *hash)
{
    if (password.len < PASSWORD_MIN || password.len > PASSWORD_MAX)
        return ERR_INVALID;
    char text[crypto_pwhash_STRBYTES];
    if (crypto_pwhash_str_alg(text, password.ptr, password.len, PASSES, MEMORY_BYTES,
                              crypto_pwhash_ALG_ARGON2ID13) != 0)
        return ERR_NO_MEMORY;
    *hash = arena_str(arena, str_of(text));
    return OK;
}

/* In lower case and in order; none is shorter than PASSWORD_MIN. */
static const char *const common[] = {
#include "model/guessed_passwords.def"
};

static int compare(const void *wanted, const void *entry)
{
    return strcmp(wanted, *(const char *const *)entry);
}

bool password_is_common(struct str password)
{
    char lower[COMMON_MAX + 1];
    if (password.len >= sizeof lower || memchr(password.ptr, '\0', password.len))
        return false;
    for (size_t i = 0; i < password.len; i++)
        lower[i] = (char)tolower((unsigned char)password.ptr[i]);
    lower[password.len] = '\0';
    return bsearch(lower, common, COUNT_OF(common), sizeof common[0], compare) != NULL;
}

bool password_verify(struct str password, struct str hash)
{
    char text[crypto_pwhash_STRBYTES] = {0};
    if (!hash.ptr || hash.len >= sizeof text || password.len > PASSWORD_MAX)
        return password_verify_nothing(password);
    memcpy(text, hash.ptr, hash.len);
    return crypto_pwhash_str_verify(text, password.ptr, password.len) == 0;
}

bool password_verify_nothing(struct str password)
{
    unsigned char out[32];
    static const unsigned char salt[crypto_pwhash_SALTBYTES];
    size_t len = password.len > PASSWORD_MAX ? PASSWORD_MAX : password.len;
    return crypto_pwhash(out, sizeof out, password.ptr, len, salt, PASSES, MEMORY_BYTES,
                         crypto_pwhash_ALG_ARGON2ID13) > 0; /* 0 or -1: never */
}

void token_hash(struct str token, uint8_t hash[TOKEN_HASH_BYTES])
{
    crypto_generichash(hash, TOKEN_HASH_BYTES, (const unsigned char *)token.ptr, token.len, NULL,
                       0);
}

void token_make(const char *prefix, struct arena *arena, struct str *token,
                uint8_t hash[TOKEN_HASH_BYTES])
{
    uint8_t bytes[TOKEN_BYTES];
    randombytes_buf(bytes, sizeof bytes);
    char text[64];
    size_t len = str_base64url_size(sizeof bytes);
    CHECK(len <= sizeof text);
    str_base64url(bytes, sizeof bytes, text);
    *token = arena_printf(arena, "%s%.*s", prefix, (int)len, text);
    sodium_memzero(bytes, sizeof bytes);
    sodium_memzero(text, sizeof text);
    token_hash(*token, hash);
}
