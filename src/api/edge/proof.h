/* The proof that another node has authenticated a forwarded request.
 *
 * A forwarded request carries one header, which names the caller and proves it: an HMAC-SHA256 over
 * the words of the header, the method, the target and the body, with a key that all nodes derive
 * from the secret in truth. A proof holds for one request, in one term, within PROOF_AGE_MS of the
 * moment that it names, and once: a captured one is useless. */
#pragma once

#include "api/edge/api.h"

enum { PROOF_AGE_MS = 30 * 1000, PROOF_NONCE_BYTES = 16, PROOF_TEXT_MAX = 320 };

struct proofs; /* the key, and which proofs were used already */

struct proofs *proofs_new(const uint8_t secret[32]);
void proofs_free(struct proofs *p);

/* The caller, as the proof names it. */
struct vouched {
    struct str method, target, body; /* the request as it is sent */
    struct caller caller;
    uint64_t term; /* of the leader that it is meant for */
    uint32_t node; /* who vouches */
};

/* The header's value, NUL-terminated. */
void proof_write(struct proofs *p, const struct vouched *v, int64_t now_ms,
                 char out[PROOF_TEXT_MAX]);
/* Fills in caller, term and node of *v, whose request is given. ERR_FORBIDDEN: it proves nothing,
 * *why says for the log what is wrong; ERR_OVERLOADED: more proofs at a time than are remembered.
 * *v is untouched on failure. Any thread. */
enum err proof_check(struct proofs *p, struct str header, int64_t now_ms, struct vouched *v,
                     const char **why);
