/* The inside of live events, shared by listeners.c (who is connected) and receive.c (what is sent
 * to them). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "live/live.h"

enum {
    LISTENER_MUTES_MAX = 1000, /* authors that are known as muted: the feed decides about more */
    OUTGOING_MAX = 4096,
    PULLED_MAX = 64, /* authors whose pulled posts wait to be sent, the newest of each */
};

/* What is to be done for a person. */
enum { LISTENER_CHECK = 1, LISTENER_GREET = 2 };

/* A person with a stream. Made and marked as gone under the hub's lock, in the order in which
 * streams come and go; freed by the step alone, which can therefore hold one without a lock. */
struct listener {
    uint64_t person;
    struct listener *next; /* in the queue */
    uint8_t todo;
    bool queued, gone, known; /* known: checked once */
    uint32_t mute_count, mute_changes;
    uint64_t *mutes; /* in rising order */
};

struct outgoing {
    enum signal_kind kind;
    uint64_t key;
    int64_t seq;
    uint64_t person;
};

struct pulled {
    uint64_t author;
    int64_t post;
};

/* A walk over all listeners, some with each step. */
struct walk {
    uint64_t *persons;
    size_t count, at;
};

struct live {
    struct live_config config;
    struct hub *hub;
    _Atomic uint64_t checks, failed, sent, losses;
    _Atomic bool in_sync; /* signals of all nodes arrive from before now on */

    pthread_mutex_t lock; /* of the table, the queue and the lists */
    struct map listeners; /* by person */
    struct listener *first, **last;
    struct outgoing outgoing[OUTGOING_MAX];
    size_t outgoing_count;
    bool outgoing_lost;
    struct pulled pulled[PULLED_MAX];
    size_t pulled_count;

    /* the step's */
    struct walk seen; /* whom the views are told of as active */
    int64_t seen_began_us;
    struct walk asked; /* whether they follow the authors … */
    struct pulled asking[PULLED_MAX];
    size_t asking_count; /* … of these posts */
};

/* listeners.c */
void live_mark(struct live *live, const uint64_t *persons, size_t n, unsigned todo);
void live_check_granted(struct live *live, uint64_t grant); /* all whom it allows a stream */
void live_begin_walk(struct live *live, struct walk *w);
/* Leaves out those who have muted the author; `out` has room for n. How many are left. */
size_t live_unmuted(struct live *live, uint64_t author, const uint64_t *persons, size_t n,
                    uint64_t *out);
void live_mute(struct live *live, uint64_t person, uint64_t author, bool on);

/* receive.c */
void live_receive(void *ctx, const struct signal_message *messages, size_t n);
void live_greet(struct live *live, uint64_t person, bool again);
/* Both: a bounded part of what waits. publish: false: the signal does not answer, try again later.
 * pulled: true: there is more. */
bool live_publish(struct live *live);
bool live_send_pulled(struct live *live);
bool live_has_waiting(struct live *live);
