/* A person's inbox: the groups they are in, newest activity first, with what is unread in each.
 *
 * The order is by activity: the id of the group's last message, or of the person's joining when
 * that is later. Everything that is shown comes from truth. */
#pragma once

#include "model/group.h"

enum {
    INBOX_LIMIT_DEFAULT = 20,
    INBOX_LIMIT_MAX = 100,
    INBOX_MENTIONS_MAX = 1000 /* more are not counted */
};

struct inbox_item {
    struct group group;
    uint64_t activity;
    int64_t unread, mentions;
    struct group_entry last; /* the last message; seq 0: none that the person may see */
};

static inline uint64_t group_activity(const struct group *g)
{
    return g->joined_id > g->last_id ? g->joined_id : g->last_id;
}

/* The groups with activity below `below`, falling, those alone that are archived or not: the
 * oracle. Costs as much as the person has groups. *n = limit: there may be more. */
enum err inbox_from_truth(struct tx *tx, uint64_t account, uint64_t below, bool archived,
                          size_t limit, uint64_t *groups, uint64_t *activities, size_t *n);
/* What is shown of these groups (at most INBOX_LIMIT_MAX), in their order; those that the account
 * is not in are left out. One query. */
enum err inbox_items(struct tx *tx, uint64_t account, const uint64_t *groups, size_t n,
                     struct arena *arena, struct inbox_item *out, size_t *count);

/* Read up to `seq`, or to the last entry when that is lower; never back. */
enum err inbox_mark_read(struct tx *tx, uint64_t group, uint64_t account, int64_t seq,
                         struct arena *arena, struct inbox_item *out);

/* {"group":{…},"unread","mentions","last_message":{…}|null,"activity_at"} */
void inbox_item_write(struct json_out *j, const struct inbox_item *item);
