/* A consumer's durable memory of what it already did, for consumers that ask for one.
 *
 * An entry is claimed before the act and confirmed after it. A claim that was never confirmed means
 * that nobody knows whether the act happened: it is answered INBOX_UNKNOWN, never acted on again
 * by itself. An act in truth claims, acts and confirms in one transaction, where unknown cannot
 * happen.
 *
 * Entries live in a ring of INBOX_SLOTS tables by the time they were made. A slot spans
 * retention / (INBOX_SLOTS - 2); forgetting is emptying the oldest one, whole or in slices by its
 * key, without a search for what is old, and never touches the slot in use. Nothing is forgotten
 * before its retention is over; it may be remembered up to one slot longer. */
#pragma once

#include "port/db.h"
#include "port/rule.h"

enum { INBOX_SLOTS = 8 };

enum inbox_answer {
    INBOX_NEW,     /* claimed now: act, then confirm or give back */
    INBOX_DONE,    /* acted before: a duplicate */
    INBOX_UNKNOWN, /* claimed before and never confirmed */
};

/* The text that identifies the act: "event:member", or the rule's business key, which is not empty
 * and at most INBOX_KEY_MAX bytes long. */
struct inbox_key {
    char text[INBOX_KEY_MAX + 1];
    size_t len;
};
void inbox_key_of(const struct rule *rule, const struct event *e, uint64_t member,
                  struct inbox_key *out);

/* What is known in memory of the ring in the tables: where claims go for now. It is only a hint.
 * Each claim checks it against the tables, so a transaction that turned the ring and was rolled
 * back, and several rings over one store, do no harm. All of it happens inside transactions, so on
 * the store's thread. */
struct inbox_ring {
    int64_t retention_ms;
    int present;              /* slot in use */
    int64_t present_until_ms; /* turn again at this time */
    bool ready;
};
void inbox_ring_init(struct inbox_ring *r, int64_t retention_ms);
/* Brings the ring to `now`: which slot is in use. Costs nothing while that has not changed: call it
 * in every transaction that claims. Slots are laid out for `retention_ms`; with another retention
 * than before, what is remembered is kept for the longer of both. */
enum err inbox_turn(struct tx *tx, struct inbox_ring *r, int64_t now_ms);
/* Empties at most `max` entries of a slot whose time is over. *more: call again. Call it a few
 * times for each slot's span at least: a ring without a free slot stays in the present one, and
 * remembers for longer. */
enum err inbox_forget(struct tx *tx, struct inbox_ring *r, int64_t now_ms, size_t max, bool *more);

enum err inbox_claim(struct tx *tx, const struct inbox_ring *r, const char *consumer,
                     const struct inbox_key *key, int64_t now_ms, enum inbox_answer *answer);
/* Looks without claiming: for plans. NEW: nothing is remembered. */
enum err inbox_look(struct tx *tx, const char *consumer, const struct inbox_key *key,
                    enum inbox_answer *answer);
/* The act happened. Again: no change. ERR_NOT_FOUND: there is no claim, or it was forgotten. */
enum err inbox_confirm(struct tx *tx, const char *consumer, const struct inbox_key *key);
/* The act certainly did not happen: forget the claim. OK when there is none; ERR_CONFLICT when it
 * was confirmed, and then it stays. */
enum err inbox_give_back(struct tx *tx, const char *consumer, const struct inbox_key *key);

/* Entries by consumer and state, from counts that are kept with the entries: the cost does not
 * depend on how many there are. A slot that is being emptied counts in full until it is empty. */
struct inbox_count {
    char consumer[40];
    uint64_t done, unknown;
};
enum err inbox_counts(struct tx *tx, struct inbox_count *out, size_t max, size_t *n);

/* May the system start like this? Every consumer with an inbox must remember at least as long as
 * dead letters are kept (dead_ms; 0: until somebody decides, which no inbox outlasts) and as far
 * back as replays reach. ERR_INVALID: `why` says which and by how much, with the numbers.
 * `inbox_ms` is checked also when no rule has an inbox yet, except against dead letters without an
 * end. */
enum err inbox_check_retention(const struct rule *rules, size_t n, int64_t inbox_ms,
                               int64_t dead_ms, int64_t replay_ms, char why[300]);
