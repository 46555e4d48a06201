/* Histories of groups: what happens (group_histories.c) and what must hold (group_checks.c). */
#pragma once

#include "base/rand.h"
#include "model/group.h"
#include "model/inbox.h"
#include "world.h"

enum {
    PEOPLE_MAX = 8,
    GROUPS_MAX = 6,
    ENTRIES_MAX = 700,
    BODY_MAX = 24,
    SENT_MAX = 400,
    TRUTH_MAX = 3 * GROUPS_MAX
};

/* What the client of one member has of one group: it follows the log and never reads again what it
 * has read. */
struct copy {
    int64_t joined, last; /* joined: the membership that it belongs to */
    char body[ENTRIES_MAX][BODY_MAX];
};

struct sent {
    size_t group, author;
    int64_t seq;
    char body[BODY_MAX], client_id[BODY_MAX];
    bool changed; /* edited, or deleted */
};

struct history {
    struct world *w;
    struct rand rand;
    uint64_t seed;
    int step, acts;
    bool loud;
    unsigned failing; /* of a hundred deliveries */
    bool untold;      /* a commit that died unanswered may not have reached shared views yet */
    struct inboxes_ops ops;
    enum err (*push)(struct inboxes *b, struct inbox_push *pushes, size_t n);
    uint64_t people[PEOPLE_MAX], groups[GROUPS_MAX];
    bool deleted[PEOPLE_MAX];
    size_t people_count, group_count, sent_count;
    struct sent sent[SENT_MAX];
    uint64_t own[PEOPLE_MAX][GROUPS_MAX]; /* the id of the last message that was answered */
    struct copy copies[PEOPLE_MAX][GROUPS_MAX];
};

uint64_t below(struct history *h, uint64_t n);
__attribute__((format(printf, 2, 3))) _Noreturn void failed(struct history *h, const char *format,
                                                            ...);
/* Something small in the middle of something else. */
void meanwhile(struct history *h);

/* ---- what must hold ---- */

/* At any moment. */
void check_inbox(struct history *h, size_t person);
void check_client(struct history *h, size_t person, size_t group);
/* When nothing is under way any more. */
void check_exact(struct history *h);
