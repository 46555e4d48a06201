/* The leader's lease: a row in truth with its holder, its term and a count of beats. No clocks are
 * compared: a holder renews by counting a beat, and a node that wants the lease watches whether the
 * beat moves. When it has not moved for LEASE_SILENCE_MS of the watcher's own monotonic time, the
 * watcher takes the lease with the next term, in a transaction that demands that term and beat are
 * unchanged. A holder that could not renew for LEASE_GIVE_UP_MS, counted from the start of its last
 * renewal that succeeded, must consider the lease lost; that is earlier than any other node can
 * take it.
 *
 * The term is a fence: a leader's transactions begin with lease_fence(), so a leader that was
 * stopped for a while and continues can change nothing. */
#pragma once

#include "port/db.h"

struct clock;

enum {
    LEASE_BEAT_MS = 500,
    LEASE_SILENCE_MS = 3000,
    LEASE_GIVE_UP_MS = 2000,
    LEASE_BODY_MAX = 512,
};

/* The lease of the leader. */
#define LEASE_ENGINE "engine"

struct lease {
    const char *name;
    struct clock *clock; /* only to see how long a look took */
    uint64_t self;       /* a random number that means this process; never 0 */
    /* as last read */
    uint64_t term, holder, beat; /* term 0: it was never held; holder 0: it was given back */
    char body[LEASE_BODY_MAX];   /* the holder's words to all; text */
    /* by the monotonic clock */
    int64_t moved_us;   /* when term, holder or beat were last seen to change */
    int64_t renewed_us; /* when our last renewal that succeeded began */
};

void lease_init(struct lease *l, const char *name, uint64_t self, struct clock *clock);
/* Reads the row and notes whether it moved. */
enum err lease_look(struct lease *l, struct db *db, int64_t now_us);
/* Is it ours, as far as we know and by the time that has passed? */
bool lease_is_held(const struct lease *l, int64_t now_us);
/* May we try to take it: given back, never held, or silent for too long? */
bool lease_is_free(const struct lease *l, int64_t now_us);
/* OK: ours, in a new term. ERR_CONFLICT: another node was faster; look again. */
enum err lease_take(struct lease *l, struct db *db, int64_t now_us);
/* Counts a beat and publishes `body`. ERR_CONFLICT: it is not ours any more. */
enum err lease_renew(struct lease *l, struct db *db, const char *body, int64_t now_us);
enum err lease_give_back(struct lease *l, struct db *db);

/* Inside a transaction: ERR_NO_LEADER unless `term` is the lease's and it is held. */
enum err lease_fence(struct tx *tx, const char *name, uint64_t term);
enum err lease_fence_engine(struct tx *tx, uint64_t term); /* of LEASE_ENGINE */
