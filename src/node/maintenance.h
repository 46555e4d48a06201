/* The server's housekeeping, each a step function for a runner: saving the views, dropping the
 * timelines of people who stay away, and the audit that compares one feed at a time with truth. */
#pragma once

#include "api/edge/api.h"
#include "base/rand.h"

enum { AUDIT_DRIFT_MAX = 64 };

/* An account whose feed or inbox differed when it was last looked at. */
struct audit_drift {
    uint64_t account;
    bool feed, inbox;
};

struct maintenance {
    struct api *api;
    uint64_t saved_position; /* of the last snapshot */
    uint64_t saved_repairs,
        seen_repairs; /* what retries, replays and rebuilds had done by then, and lately */
    int64_t next_save_us;
    struct rand rand;       /* for the audit's choice */
    uint64_t audit_account; /* to be looked at again; 0: choose one */
    int audit_tries;
    uint64_t audit_turn;
    struct audit_drift drift[AUDIT_DRIFT_MAX];
    size_t drift_count;
};

void maintenance_init(struct maintenance *c, struct api *api);

int64_t maintenance_save_step(
    struct maintenance *c); /* a snapshot every snapshot-every, when events were done since */
int64_t
maintenance_sweep_step(struct maintenance *c); /* slices, then a rest until the next round */
int64_t maintenance_audit_step(struct maintenance *c); /* one account every audit-every */

/* Saves now, if there is something new. */
enum err maintenance_save(struct maintenance *c);
