/* A person's inbox: the groups they are in, newest activity first, with what is unread in each.
 *
 * The order is by activity: the id of the group's last message, or of the person's joining when
 * that is later. Everything that is shown comes from truth. */
#pragma once

#include "model/group.h"
#include "port/views.h"

enum {
    INBOX_LIMIT_DEFAULT = 20,
    INBOX_LIMIT_MAX = 100,
    INBOX_MENTIONS_MAX = 1000, /* more are not counted */
    INBOX_DELETED_MAX = 10000  /* more of one group above a mark count as unread */
};

struct inbox_item {
    struct group group;
    uint64_t activity;
    uint64_t peer;     /* of a chat: the other one, shown or not */
    uint64_t position; /* set by inbox_page_read() alone: where it stands on the page */
    int64_t unread, mentions;
    int64_t deleted;         /* messages above the mark, which are not among the unread */
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

/* The same, with the last message of each group though the account may not see it: for what all
 * members share (inbox_cards.h). */
enum err inbox_rows(struct tx *tx, uint64_t account, const uint64_t *groups, size_t n,
                    struct arena *arena, struct inbox_item *out, size_t *count);
/* Takes away what the account may not see. */
void inbox_hide_unseen(struct inbox_item *items, size_t count);

/* The newest of all of them, archived or not, falling: what the views' inbox is made of. */
enum err inbox_all_from_truth(struct tx *tx, uint64_t account, struct inbox_entry *out, size_t max,
                              size_t *n);

/* ---- through the views ---- */

struct inbox_page {
    struct inbox_item items[INBOX_LIMIT_MAX + 1];
    size_t count;
    uint64_t next_below; /* where the next page begins; 0: this was the last */
};

/* One page; never inside a transaction: it begins its own reads. Drained, it is what
 * inbox_from_truth says, whatever has become of the views. `db` NULL: blocks nowhere;
 * ERR_NEEDS_TRUTH: memory does not have it all. Else it blocks; ERR_OVERLOADED: too many are served
 * from truth already. */
enum err inbox_page_read(struct views *views, struct cards *cards, struct db *db, uint64_t account,
                         uint64_t below, bool archived, size_t limit, struct arena *arena,
                         struct inbox_page *page);
/* The newest candidates as they stand, from the views or else from truth; blocks. */
enum err inbox_top(struct views *views, struct db *db, uint64_t account, struct inbox_entry *out,
                   size_t max, size_t *n);
/* Makes a dropped inbox from truth; `anew`: one that is there. ERR_CONFLICT: there was nothing to
 * do, or another does it, or something was dropped meanwhile; ERR_OVERLOADED: too many are under
 * way. */
enum err inbox_rebuild(struct views *views, struct db *db, uint64_t account, bool anew);

/* Read up to `seq`, or to the last entry when that is lower; never back. */
enum err inbox_mark_read(struct tx *tx, uint64_t group, uint64_t account, int64_t seq,
                         struct arena *arena, struct inbox_item *out);
