/* Celebrities, whose posts are pulled instead of pushed. The class is a column of the account,
 * changed only by a crossing: one conditional UPDATE and one event in the same transaction, so that
 * it fires exactly once. Hysteresis: a celebrity ceases below CEASE_PERCENT of the threshold.
 *
 * One keeper (of many nodes: the leader's) moves the threshold after the measured p95 of fan-out
 * time, by follower-count bucket, and fires the crossings that its move causes. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/hist.h"
#include "port/db.h"

enum { CELEBRITY_CEASE_PERCENT = 80, CELEBRITY_BUCKETS = 32 };

/* Is this follower count a crossing for an account of that class? Emits the event and changes
 * the class if so. */
enum err celebrity_cross(struct tx *tx, uint64_t account, bool is_celebrity, int64_t followers,
                         int64_t threshold);

struct celebrity_keeper {
    struct db *db;
    struct clock *clock;
    bool adaptive;
    int64_t start, min, max, target_ms;
    _Atomic int64_t threshold;
    struct hist *buckets; /* took_us by floor(log2(followers)), of the present window */
    int64_t window_began_ms;
    uint64_t cross_after; /* where the sweep of crossings goes on; 0: none under way */
    bool crossing;
    pthread_mutex_t stepping; /* held by a step: of the fields above, and of who moves */
};

/* Adaptive: goes on from the threshold that was saved for the same `start`, within min and max.
 * Exactly `start`, and never moved, when not adaptive or when `start` itself lies outside the
 * bounds: the operator asked for that number. */
enum err celebrity_keeper_init(struct celebrity_keeper *k, struct db *db, struct clock *clock,
                               bool adaptive, int64_t start, int64_t min, int64_t max,
                               int64_t target_ms);
void celebrity_keeper_done(struct celebrity_keeper *k);
/* any thread */
void celebrity_observe(struct celebrity_keeper *k, size_t followers, int64_t took_us);
/* Blocking; returns when to call again (mono µs). */
int64_t celebrity_keeper_step(struct celebrity_keeper *k);
/* Of a node that does not lead: takes over the threshold that the leader has saved, and forgets
 * what was observed. To be called about once a second. Blocking. */
enum err celebrity_keeper_follow(struct celebrity_keeper *k);
static inline int64_t celebrity_threshold(struct celebrity_keeper *k)
{
    return atomic_load(&k->threshold);
}
/* The decision of one window, pure: what the threshold becomes. */
int64_t celebrity_decide(int64_t threshold, int64_t min, int64_t max, int64_t target_ms,
                         const struct hist *buckets);
