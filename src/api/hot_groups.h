/* Which groups are busy, and how long their entries took to be sequenced, over the last minute and
 * on this node. In memory of a fixed size, however many groups there are: so a group's number is
 * told as a lower and an upper bound, which differ by at most one in HOT_GROUPS_KEPT of all that
 * was written, and a group that writes more than that is sure to be known. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/hist.h"

enum { HOT_GROUPS_SHOWN = 20, HOT_GROUPS_KEPT = 256, HOT_GROUPS_WINDOW_S = 60 };

struct hot_group {
    uint64_t group;
    uint64_t entries; /* written in the window, at least */
    uint64_t at_most;
    double per_s; /* of entries */
};

struct hot_groups_look {
    struct hot_group top[HOT_GROUPS_SHOWN]; /* by falling number of entries */
    size_t count;
    uint64_t entries; /* of all groups, in the window */
    double per_s;
    double window_s;           /* shorter than HOT_GROUPS_WINDOW_S after a start */
    uint64_t p50_us, p99_us;   /* submit to commit, in the window; 0: nothing was written */
    uint64_t all_p50, all_p99; /* since the start, as the two below */
    uint64_t all_entries, all_sum_us;
};

struct hot_groups;

struct hot_groups *hot_groups_new(int64_t now_us);
void hot_groups_free(struct hot_groups *h);

/* An entry of the group was committed, `took_us` after it was submitted. Any thread. */
void hot_groups_record(struct hot_groups *h, uint64_t group, int64_t took_us, int64_t now_us);

void hot_groups_look(struct hot_groups *h, int64_t now_us, struct hot_groups_look *out);
