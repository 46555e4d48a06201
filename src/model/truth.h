/* Bringing the views up from truth, and comparing them with it. */
#pragma once

#include "model/account.h"
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

enum difference_kind { DIFFERENCE_FEED, DIFFERENCE_INBOX, DIFFERENCE_COUNTER, DIFFERENCE_EDGE };

/* Something derived that is not what truth says. Fields that a kind does not name are 0. */
struct check_difference {
    enum difference_kind kind;
    uint64_t account;     /* whose feed or inbox; whose counter; an edge's follower or member */
    uint64_t post, group; /* a counter's; an edge's group */
    uint64_t followee;    /* of an edge; 0: it leads to a group */
    const char *counter;  /* its name */
    int64_t stored, actual;
    bool archived;      /* of an inbox: the archived groups */
    bool only_in_truth; /* of an edge; else only in the views */
    size_t from;        /* of an inbox: the first place that differs */
    /* Of a feed: posts that are missing, and that are too many. Of an inbox: the groups as they
     * should be from that place on, and as they are. */
    const uint64_t *missing, *extra;
    size_t missing_count, extra_count;
};

/* Called for every difference; nothing it points to lives on. */
struct check_report {
    void (*difference)(void *arg, const struct check_difference *d);
    void *arg;
};

/* Compares, for at most `limit` accounts with id ≥ from: the feed (all pages down to `depth`)
 * with the oracle, the inbox with its own, the counters with the edges and the groups' with their
 * logs, the graph with the follows. The pipeline must be drained, or additions may lag. `repair`:
 * puts it right (counters in truth, views rebuilt). */
enum err truth_check(struct db *db, struct views *views, struct cards *cards, uint64_t from,
                     size_t limit, size_t depth, bool repair, struct check_report report,
                     struct check_result *result);

/* The first reason that keeps a post out of a feed, in the order of the feed's definition. */
enum hidden_as {
    NOT_HIDDEN,
    HIDDEN_NO_ACCOUNT,
    HIDDEN_NO_POST,
    HIDDEN_DELETED,
    HIDDEN_SUSPENDED,
    HIDDEN_AUTHOR_DELETED,
    HIDDEN_BLOCKED,
    HIDDEN_NOT_FOLLOWED,
    HIDDEN_MUTED
};

/* Why a post is or is not in a person's feed: all the facts. Texts are in the arena. */
struct explanation {
    struct arena *arena;
    uint64_t viewer, post;
    /* truth */
    bool viewer_found, post_found, author_found;
    struct str viewer_name, author_name;
    uint64_t author;
    enum account_state author_state;
    int64_t delivery, deleted_at_ms;
    int64_t followed_at_ms, muted_at_ms, blocked_at_ms, blocked_by_at_ms; /* 0: no */
    /* views */
    bool known, away, dropped, in_views, visible_now;
    uint64_t floor;
    bool shown;             /* by a read */
    enum hidden_as against; /* what truth says */
};
enum err truth_explain(struct db *db, struct views *views, struct cards *cards, uint64_t viewer,
                       uint64_t post, struct arena *arena, struct explanation *out);
