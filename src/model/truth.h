/* Bringing the views up from truth, and comparing them with it. */
#pragma once

#include "base/json_out.h"
#include "port/cards.h"
#include "port/db.h"
#include "port/views.h"

/* Loads accounts, graph, mutes, members of groups and pulled posts into empty views; timelines and
 * inboxes start dropped. Remote views: after views_clear, while commits are applied to them as
 * ever; end it with views_loaded. Blocking, may take long: progress is called about every 100 ms.
 */
enum err truth_load_views(struct db *db, struct views *views,
                          void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg);

/* Applies to the views, in order, every stored event above `position` (their immediate part
 * only). */
enum err truth_catch_up(struct db *db, struct views *views, struct cards *cards, uint64_t position);

struct check_result {
    uint64_t feeds, feed_errors, inboxes, inbox_errors, counters, counter_errors, edges,
        edge_errors, repaired;
    uint64_t next_account; /* where the next slice begins; 0: done */
};

/* Compares, for at most `limit` accounts with id ≥ from: the feed (all pages down to `depth`)
 * with the oracle, the inbox with its own, the counters with the edges and the groups' with their
 * logs, the graph with the follows. Writes one JSON
 * object per difference into the open array `j`. The pipeline must be drained, or additions may
 * lag. `repair`: puts it right (counters in truth, views rebuilt). */
enum err truth_check(struct db *db, struct views *views, struct cards *cards, uint64_t from,
                     size_t limit, size_t depth, bool repair, struct json_out *j,
                     struct check_result *result);

/* Why a post is or is not in somebody's feed: a JSON object with "visible", "verdict" and the
 * list of facts looked at. */
enum err truth_explain(struct db *db, struct views *views, struct cards *cards, uint64_t viewer,
                       uint64_t post, struct json_out *j);
