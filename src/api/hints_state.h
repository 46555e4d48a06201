/* The inside of the hints, shared by hints.c (who, when) and hints_look.c (what). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "api/hints.h"
#include "port/watch.h"

enum {
    TOP_GROUPS = 32, /* of an inbox: more that change at once are told by another hello */
    TOP_POSTS = 16,
    LISTENER_SESSIONS_MAX = 16, /* of one person with a stream here */
};

enum hint_part {
    HINT_INBOX = VIEW_PART_INBOX,
    HINT_FEED = VIEW_PART_TIMELINE,
    HINT_TRUTH = 4, /* read marks, sessions */
    HINT_ALL = HINT_INBOX | HINT_FEED | HINT_TRUTH
};

struct top_group {
    uint64_t group, activity;
    int64_t read_seq;
};

/* What was read over the watch; whole: it will be heard of. */
struct watched {
    uint64_t generation;
    struct watch_read *reads;
    uint8_t count;
    bool whole;
    uint8_t unheard; /* how often in a row it was not */
    int64_t looked_at_us;
};

struct listener {
    uint64_t person;
    struct listener *next;       /* in its bucket */
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
    struct watched inbox, feed;
};

struct hints {
    struct hints_config config;
    struct hub *hub;
    _Atomic uint64_t looks, failed, sent, missed;

    pthread_mutex_t lock; /* of the table, the queue, greetings and touches */
    struct listener **buckets;
    size_t bucket_count, listener_count;
    struct listener *dirty_first, **dirty_last;
    struct greeting *greetings;
    uint64_t *touches;
    size_t touch_count;

    /* of the watch */
    struct watch_question question;
    pthread_cond_t answered;
    bool asking, doubtful; /* under the lock */
    int64_t asked_at_us, scanned_at_us, scan_took_us;
    struct watch_trace trace; /* the step's */
};

/* hints_look.c: looks at what is dirty and tells the difference. False: something did not answer;
 * the parts in *again are to be looked at once more. */
bool hints_look(struct hints *h, struct listener *l, unsigned parts, unsigned *again);
void hints_greet(struct hints *h, uint64_t person, struct stream *s);
