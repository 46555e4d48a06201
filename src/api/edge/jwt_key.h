/* The inside of a struct jwt_key, for jwt.c and jwt_key.c alone: one key, or those of a JWKS. */
#pragma once

#include <openssl/evp.h>

#include "api/edge/jwt.h"

enum jwt_algorithm { JWT_HS256, JWT_RS256, JWT_ES256 };

enum { JWT_KEYS_MAX = 16, JWT_KEY_ID_MAX = 128 };

struct jwt_one_key {
    char id[JWT_KEY_ID_MAX]; /* the "kid" of a JWKS; "": none */
    enum jwt_algorithm algorithm;
    EVP_PKEY *public_key; /* RS256, ES256 */
    uint8_t *secret;      /* HS256 */
    size_t secret_len;
};

struct jwt_key {
    size_t count;
    struct jwt_one_key keys[JWT_KEYS_MAX];
};

const char *jwt_algorithm_name(enum jwt_algorithm algorithm);
