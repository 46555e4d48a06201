/* The inside of live events, shared by listeners.c (who, when), look.c (what) and
 * topics.c (what is in a group's log alone). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "live/live.h"
#include "port/invalidation.h"

enum {
    TOP_GROUPS = 32, /* of an inbox: more that change at once are told by another hello */
    TOP_POSTS = 16,
    LISTENER_SESSIONS_MAX = 16,   /* of one person with a stream here */
    TOPICS_OF_LISTENER_MAX = 256, /* groups of one person whose every entry is told: the latest */
    RANGES_MAX = 4096,
};

enum live_part {
    LIVE_INBOX = VIEW_PART_INBOX,
    LIVE_FEED = VIEW_PART_TIMELINE,
    LIVE_TRUTH = 4, /* read marks, sessions */
    LIVE_ALL = LIVE_INBOX | LIVE_FEED | LIVE_TRUTH
};

struct top_group {
    uint64_t group, activity;
    int64_t seq, read_seq; /* as they were when truth was asked; INT64_MAX: never, or no member */
};

/* What was read over the invalidation listener; whole: it will be heard of. */
struct traced {
    uint64_t generation;
    struct traced_read *reads;
    uint8_t count;
    bool whole;
    uint8_t unheard; /* how often in a row it was not */
    int64_t looked_at_us;
};

/* A group that people who listen here are in, and one of them in it; topics.c. */
struct topic;
struct subscriber;

/* Entries that are to be told. */
struct range_list {
    struct signal_range *items; /* RANGES_MAX */
    size_t count;
    bool all; /* and others, for which there was no room: everybody is looked at */
};

struct listener {
    uint64_t person;
    struct listener *next_dirty; /* in the queue */
    /* under the lock */
    unsigned dirty; /* parts to look at */
    bool queued, gone;
    uint8_t session_count;
    uint64_t sessions[LISTENER_SESSIONS_MAX];
    /* the step's own */
    bool known, feed_known; /* `groups`, `posts` were read once */
    uint8_t group_count, post_count;
    struct top_group groups[TOP_GROUPS];
    uint64_t posts[TOP_POSTS];
    struct traced inbox, feed;
    struct subscriber *subscribed_first, *subscribed_last; /* the latest first */
    uint16_t subscribed_count;
};

/* Whom the views are told of as active, a part with each step. */
struct last_seen_round {
    int64_t began_us;
    uint64_t *persons;
    size_t count, reported;
};

struct live {
    struct live_config config;
    struct hub *hub;
    _Atomic uint64_t looks, failed, sent, missed;

    pthread_mutex_t lock; /* of the table, the queue and touches */
    struct map listeners; /* by person */
    struct listener *dirty_first, **dirty_last;
    uint64_t *touches;
    size_t touch_count;
    struct range_list arrived; /* to be told here */
    struct range_list leaving; /* to other nodes */

    /* the step's: who is here */
    struct last_seen_round round;

    /* the step's: of groups */
    struct map topics;         /* by group */
    struct range_list telling; /* what has arrived, sorted, each group once … */
    size_t told;               /* … of which so many are done */
    struct traced signals;
    struct signal_cursor cursor;
    struct signal_batch *consumed; /* shared views */

    /* of the invalidation listener */
    struct invalidation_question question;
    pthread_cond_t answered;
    bool asking, uncertain; /* under the lock */
    int64_t asked_at_us, scanned_at_us, scan_took_us;
    struct read_trace trace; /* the step's */
};

/* look.c: looks at what is dirty and tells the difference. False: something did not answer;
 * the parts in *again are to be looked at once more. */
bool live_look(struct live *live, struct listener *l, unsigned parts, unsigned *again);
void live_greet(struct live *live, uint64_t person);
/* Sends {"group","seq"} to all streams of these people. */
void live_send_group(struct live *live, const uint64_t *persons, size_t n, uint64_t group,
                     int64_t seq);
/* For reads that the invalidation listener notes: around them, and what they noted. */
void live_trace_begin(struct live *live);
void live_trace_end(struct live *live, struct traced *w);

/* listeners.c: everybody is looked at. */
void live_mark_all(struct live *live);

/* topics.c */
void live_topics_init(struct live *live);
void live_topics_done(struct live *live);
/* From now on entries of this group are told to the listener; the step's, as the next three. */
void live_subscribe(struct live *live, struct listener *l, uint64_t group);
void live_unsubscribe_all(struct live *live, struct listener *l);
/* A bounded part of what has arrived. False: truth does not answer, try again later. */
bool live_send_entries(struct live *live);
/* Shared views: to other nodes, and from them. False: as above. */
bool live_publish_entries(struct live *live);
void live_consume_entries(struct live *live);
void live_skip_entries(struct live *live); /* nobody listens */
bool live_has_entries(struct live *live);
