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
    bool members; /* compare the views' members of groups, too */
    struct json_out *j;
    struct check_result *result;
    struct arena arena; /* of one account */
};

enum err check_counters(struct check *k, uint64_t account);
enum err check_post_counters(struct check *k, uint64_t account);
enum err check_group_counters(struct check *k, uint64_t account);
enum err check_inbox(struct check *k, uint64_t account);
/* Whose edges: an account's, or a group's. */
enum check_edges { CHECK_FOLLOWING, CHECK_FOLLOWERS, CHECK_MEMBERS };
enum err check_graph(struct check *k, uint64_t account_or_group, enum check_edges which);
