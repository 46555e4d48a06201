/* A consumer's durable memory of what it already did, for consumers that ask for one.
 *
 * An entry is claimed before the act and confirmed after it. A claim that was never confirmed means
 * that the outcome of the act is unknown: the answer is DEDUP_UNKNOWN, and the engine never repeats
 * the act by itself. An act in truth claims, acts and confirms in one transaction, where unknown
 * cannot happen.
 *
 * Nothing is forgotten before its retention is over. When the retention changes, entries from
 * before the change are kept for the longer of both. Forgetting removes the oldest entries first,
 * in bounded slices, by an index on their time. */
#pragma once

#include "port/db.h"
#include "port/rule.h"

enum dedup_answer {
    DEDUP_NEW,     /* claimed now: act, then confirm or give back */
    DEDUP_DONE,    /* acted before: a duplicate */
    DEDUP_UNKNOWN, /* claimed before and never confirmed */
};

/* The text that identifies the act: "event:member", or the rule's business key, which is not empty
 * and at most DEDUP_KEY_MAX bytes long. */
struct dedup_key {
    char text[DEDUP_KEY_MAX + 1];
    size_t len;
};
void dedup_key_of(const struct rule *rule, const struct event *e, uint64_t member,
                  struct dedup_key *out);

/* What this process knows of the memory. It is only a hint: each claim checks the retention against
 * the one in truth, so a transaction that was rolled back, and several processes with one store, do
 * no harm. */
struct dedup {
    int64_t retention_ms;
    int64_t newest_ms; /* no entry is made before this: the clock may go back, entries may not */
    bool ready;
};
void dedup_init(struct dedup *d, int64_t retention_ms);
/* Notes the retention in truth, once for each struct dedup: call it in every transaction that
 * claims or forgets. */
enum err dedup_begin(struct tx *tx, struct dedup *d, int64_t now_ms);
/* Removes at most `max` entries whose retention is over. *more: call again. */
enum err dedup_forget(struct tx *tx, int64_t now_ms, size_t max, bool *more);

enum err dedup_claim(struct tx *tx, struct dedup *d, const char *consumer,
                     const struct dedup_key *key, int64_t now_ms, enum dedup_answer *answer);
/* Looks without claiming: for plans. NEW: nothing is remembered. */
enum err dedup_look(struct tx *tx, const char *consumer, const struct dedup_key *key,
                    enum dedup_answer *answer);
/* The act happened. Again: no change. ERR_NOT_FOUND: there is no claim, or it was forgotten. */
enum err dedup_confirm(struct tx *tx, const char *consumer, const struct dedup_key *key);
/* The act certainly did not happen: forget the claim. OK when there is none; ERR_CONFLICT when it
 * was confirmed, and then it stays. */
enum err dedup_give_back(struct tx *tx, const char *consumer, const struct dedup_key *key);
/* An operator ordered it again although its outcome is unknown. DEDUP_NEW once for each order: a
 * bus may bring the order twice. */
enum err dedup_claim_by_order(struct tx *tx, const char *consumer, const struct dedup_key *key,
                              uint64_t order, enum dedup_answer *answer);

/* A retention that no time outlasts. */
#define DEDUP_FOR_EVER_MS (INT64_MAX / 8) /* sums of times stay far from overflow */

/* May the system start like this? Every consumer with a dedup memory must remember at least as long
 * as dead letters are kept (dead_ms; 0: until an operator decides, for which it must last for ever)
 * and as far back as replays reach. ERR_INVALID: `why` says which and by how much, with the
 * numbers. `dedup_ms` is checked also when no rule has a dedup memory yet. */
enum err dedup_check_retention(const struct rule *rules, size_t n, int64_t dedup_ms,
                               int64_t dead_ms, int64_t replay_ms, char why[300]);
