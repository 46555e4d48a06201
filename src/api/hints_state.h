/* The inside of the hints, shared by hints.c (who, when), hints_look.c (what) and
 * hints_news.c (what is in a group's log alone). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "api/hints.h"
#include "port/watch.h"

enum {
    TOP_GROUPS = 32, /* of an inbox: more that change at once are told by another hello */
    TOP_POSTS = 16,
    LISTENER_SESSIONS_MAX = 16,  /* of one person with a stream here */
    ROOMS_OF_LISTENER_MAX = 256, /* groups of one person whose every entry is told: the latest */
    NEWS_MAX = 4096,
};

enum hint_part {
    HINT_INBOX = VIEW_PART_INBOX,
    HINT_FEED = VIEW_PART_TIMELINE,
    HINT_TRUTH = 4, /* read marks, sessions */
    HINT_ALL = HINT_INBOX | HINT_FEED | HINT_TRUTH
};

struct top_group {
    uint64_t group, activity;
    int64_t seq, read_seq; /* as they were when truth was asked; INT64_MAX: never, or no member */
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

/* A group that people who listen here are in, and one of them in it; hints_news.c. */
struct room;
struct guest;

/* Entries that are to be told. */
struct news_list {
    struct group_news *items; /* NEWS_MAX */
    size_t count;
    bool all; /* and others, for which there was no room: everybody is looked at */
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
    struct guest *guest_first, *guest_last; /* in rooms: the latest first */
    uint16_t guest_count;
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
    struct news_list arrived; /* to be told here */
    struct news_list leaving; /* to other nodes */

    /* the step's: who is here */
    int64_t seen_at_us; /* when the last round began */
    size_t seen_bucket; /* the next of the round; SIZE_MAX: it is over */

    /* the step's: of groups */
    struct room **rooms;
    size_t room_buckets, room_count;
    struct news_list telling; /* what has arrived, sorted, each group once … */
    size_t told;              /* … of which so many are done */
    struct watched news;
    struct news_cursor cursor;
    struct news_heard *heard; /* shared views */

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
/* Sends {"group","seq"} to all streams of these people. */
void hints_tell_group(struct hints *h, const uint64_t *persons, size_t n, uint64_t group,
                      int64_t seq);
/* For reads that the watch notes: around them, and what they noted. */
void hints_watch_begin(struct hints *h);
void hints_watch_end(struct hints *h, struct watched *w);

/* hints.c: everybody is looked at. */
void hints_mark_all(struct hints *h);

/* hints_news.c */
void hints_news_init(struct hints *h);
void hints_news_done(struct hints *h);
/* From now on entries of this group are told to the listener; the step's, as the next three. */
void hints_enter(struct hints *h, struct listener *l, uint64_t group);
void hints_leave_all(struct hints *h, struct listener *l);
/* A bounded part of what has arrived. False: truth does not answer, try again later. */
bool hints_tell_news(struct hints *h);
/* Shared views: to other nodes, and from them. False: as above. */
bool hints_send_news(struct hints *h);
void hints_hear_news(struct hints *h);
void hints_ignore_news(struct hints *h); /* nobody listens */
bool hints_has_news(struct hints *h);
