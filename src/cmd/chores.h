/* The server's housekeeping, each a step function for a runner: saving the views, dropping the
 * timelines of people who stay away, and the audit that compares one feed at a time with truth. */
#pragma once

#include "api/api.h"
#include "base/rand.h"

struct chores {
    struct api *api;
    uint64_t saved_position; /* of the last snapshot */
    uint64_t saved_repairs,
        seen_repairs; /* what retries, replays and rebuilds had done by then, and lately */
    int64_t next_save_us;
    struct rand rand;       /* for the audit's choice */
    uint64_t audit_account; /* to be looked at again; 0: choose one */
    int audit_tries;
};

void chores_init(struct chores *c, struct api *api);

int64_t
chore_save_step(void *chores); /* a snapshot every snapshot-every, when events were done since */
int64_t chore_sweep_step(void *chores); /* slices, then a rest until the next round */
int64_t chore_audit_step(void *chores); /* one account every audit-every */

/* Saves now, if there is something new. */
enum err chores_save(struct chores *c);
