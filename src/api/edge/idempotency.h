/* Idempotency-Key: the same request twice is done once and answered twice.
 *
 * A key is remembered for 24 hours in the scope (caller's account, route, key) with a fingerprint
 * of the body, the status, and the id of what the write made. No text is kept: a repeated answer is
 * read again, with the rights that the caller has by then. The row is written in the transaction of
 * the write itself, so that either both are there or neither is. A refusal wrote nothing and is not
 * kept. While the first request is on its way its row cannot be seen yet: that is known through the
 * set in this process; at another node the second waits for the first. */
#pragma once

#include "base/arena.h"
#include "base/clock.h"
#include "port/db.h"

enum {
    IDEMPOTENCY_KEY_MAX = 255,
    IDEMPOTENCY_FINGERPRINT_BYTES = 32,
    IDEMPOTENCY_KEEP_MS = 24 * 3600 * 1000
};

struct idempotency_key {
    uint64_t account;
    const char *route; /* the route's name; outlives everything */
    uint64_t subject;  /* idempotency_subject: another post's like is another act */
    struct str text;   /* lives as long as the request */
    uint8_t fingerprint[IDEMPOTENCY_FINGERPRINT_BYTES];
};

/* The header's value, quoted or bare, without its quotes, in `arena`. ERR_BAD_INPUT: empty, longer
 * than IDEMPOTENCY_KEY_MAX, or not printable ASCII. */
enum err idempotency_read_key(struct str header, struct arena *arena, struct str *key);
/* What the path names: its number, or a mixture of all that are not 0. */
uint64_t idempotency_subject(const uint64_t *params, size_t n);
/* Keyed with `secret`, because bodies can hold what must not be guessed from a table. */
void idempotency_fingerprint(const uint8_t secret[32], struct str body,
                             uint8_t out[IDEMPOTENCY_FINGERPRINT_BYTES]);

/* ---- in progress ---- */

struct idempotency;

struct idempotency *idempotency_new(size_t in_progress_max);
void idempotency_free(struct idempotency *i);

/* Claims the key until idempotency_end. ERR_INVALID: in progress with another body;
 * ERR_IN_PROGRESS: in progress with this one; ERR_OVERLOADED: too many keys at once. `k` must live
 * until then. */
enum err idempotency_begin(struct idempotency *i, const struct idempotency_key *k);
void idempotency_end(struct idempotency *i, const struct idempotency_key *k);

/* ---- in truth ---- */

struct idempotency_answer {
    int status;
    uint64_t object; /* what was made; 0: the path names all that the answer shows */
};

/* OK: it was done before, *out says how it was answered. ERR_NOT_FOUND: it was not. ERR_INVALID:
 * done with another body. */
enum err idempotency_find(struct tx *tx, const struct idempotency_key *k, int64_t now_ms,
                          struct idempotency_answer *out);
/* ERR_CONFLICT: there is a row that still counts. */
enum err idempotency_store(struct tx *tx, const struct idempotency_key *k, int64_t now_ms,
                           const struct idempotency_answer *answer);

/* Deletes a slice of what is older than IDEMPOTENCY_KEEP_MS; blocking. Returns when to call again
 * (monotonic µs). */
int64_t idempotency_clean_step(struct db *db, struct clock *clock);
