/* The bounded queue between the commit hook and the relay. One producer (the
 * db's writer thread, in commit order, so ids rise), one consumer (the relay's
 * step), no lock, no waiting on either side.
 *
 * When it is full the producer drops the event and raises `missed`: the relay
 * must then read the outbox table up to that id. Everything at or below
 * `missed` has been offered, so whatever the commit hook does before offering
 * (bringing the views up to date) is done for every row read that way. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/event.h"

struct queued_event {
    struct event event;
    int64_t at_us; /* monotonic */
};

struct commit_queue {
    struct queued_event *slots;
    size_t mask;
    size_t max;
    _Alignas(64) _Atomic uint64_t pushed; /* the producer's */
    _Atomic uint64_t missed;              /* id of the last event dropped; 0: none */
    _Atomic uint64_t missed_first;        /* of those the relay has not read yet, about; 0: none */
    _Atomic uint64_t offered;             /* id of the last event offered */
    _Alignas(64) _Atomic uint64_t popped; /* the consumer's */
    _Atomic uint64_t front; /* id of the oldest waiting one, for the age; may be stale */
};

void commit_queue_init(struct commit_queue *h, size_t max);
void commit_queue_done(struct commit_queue *h);

/* An event at or below the last one offered is passed over: false. */
bool commit_queue_push(struct commit_queue *h, const struct event *e, int64_t now_us);

/* How many wait, as the consumer sees it. Read `missed` after this: it is then
 * at least what was missed before any of those that wait was pushed. */
size_t commit_queue_waiting(struct commit_queue *h);
const struct queued_event *commit_queue_at(struct commit_queue *h, size_t i); /* i < waiting */
void commit_queue_pop(struct commit_queue *h, size_t n);
void commit_queue_read(struct commit_queue *h, uint64_t through); /* the table, so far */

/* Id of the oldest event that waits or was missed, or 0. Any thread; good
 * enough for an age. */
uint64_t commit_queue_oldest(struct commit_queue *h);
