/* JSON Web Tokens of a host product: verified against the configured key, or one of several by its
 * name, whose kind alone decides the algorithm. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

struct jwt_key;

enum { JWT_TOKEN_MAX = 8192, JWT_SUBJECT_MAX = 255, JWT_SECRET_MIN = 32, JWT_LEEWAY_S = 30 };

/* From the bytes of a key file: a PEM public key or a JWKS (RSA of at least 2048 bits: RS256;
 * P-256: ES256). `secret`: an HS256 secret of at least JWT_SECRET_MIN bytes, a trailing line break
 * not counted, which must not look like a public key. On failure *out is untouched. */
enum err jwt_key_parse(struct str bytes, bool secret, struct jwt_key **out, char why[200]);
/* `setting`: FILE, or hs256:FILE for a secret. */
enum err jwt_key_load(const char *setting, struct jwt_key **out, char why[200]);
void jwt_key_free(struct jwt_key *key);
const char *jwt_key_algorithm(const struct jwt_key *key); /* "HS256", "RS256", "RS256, ES256" */

struct jwt_claims {
    struct str subject;            /* 1 … JWT_SUBJECT_MAX bytes */
    struct str preferred_username; /* {NULL, 0}: not given */
    struct str name;
    int64_t expires_at_ms; /* exp, without the leeway */
};

/* Checks structure, algorithm, signature, exp, nbf, iss and aud. `issuer` and `audience`: required
 * values, "" for any. Claims live in `arena`. ERR_UNAUTHENTICATED otherwise, with a text for the
 * client in *why. Any thread. */
enum err jwt_verify(const struct jwt_key *key, struct str token, const char *issuer,
                    const char *audience, int64_t now_ms, struct arena *arena,
                    struct jwt_claims *out, const char **why);

/* Could this be a JWT: three non-empty parts of base64url with dots between? */
bool jwt_looks_like(struct str token);
