/* What the parts of a check share; truth.h is the door. */
#pragma once

#include "base/arena.h"
#include "model/truth.h"

/* The server goes on working while it is checked: a difference counts when it is still there at
 * the last look. */
enum { CHECK_LOOKS = 3 };

struct check {
    struct db *db;
    struct views *views;
    struct cards *cards;
    size_t depth;
    bool repair;
    bool members;               /* compare the views' members of groups, too */
    struct check_report report; /* difference NULL: only counted */
    struct check_result *result;
    struct arena arena; /* of one account */
};

/* A list of ids as truth has it and as its owner reads it, down to the check's depth. */
struct look {
    struct check *check;
    uint64_t account;
    bool archived; /* of an inbox */
    uint64_t *oracle, *shown;
    size_t oracle_count, shown_count;
    tx_fn read_oracle; /* with the look as its argument */
    enum err (*read_shown)(struct look *l);
};
/* Looks until both are the same, CHECK_LOOKS times at most. */
enum err look_at(struct look *l);
bool look_is_same(const struct look *l);

static inline void check_tell(struct check *k, const struct check_difference *d)
{
    if (k->report.difference)
        k->report.difference(k->report.arg, d);
}

/* The counters of an account, of its posts, of the groups whose first member it is, and of what it
 * has read in its groups. */
enum counter_family { COUNTERS_ACCOUNT, COUNTERS_POSTS, COUNTERS_GROUPS, COUNTERS_READ_MARKS };
enum err check_counters(struct check *k, uint64_t account, enum counter_family which);
enum err check_inbox(struct check *k, uint64_t account);
/* Whose edges: an account's, or a group's. */
enum check_edges { CHECK_FOLLOWING, CHECK_FOLLOWERS, CHECK_MEMBERS };
enum err check_graph(struct check *k, uint64_t account_or_group, enum check_edges which);
