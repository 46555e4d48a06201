/* Which events are undone, and from that the low-water mark: every stored event with an id at or
 * below flight_through() has been delivered to all who should get it.
 *
 * An undone event has a seat. It counts units of work: one for each message of the event that is on
 * its way in some lane (or is still owed to a lane). When the last unit is done, so is the event.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "port/rule.h"

enum { FLIGHT_CHUNK = 1024 };

#define FLIGHT_NONE    UINT32_MAX
#define FLIGHT_UNTIMED INT64_MIN /* as started_us: found in the table at the start */

struct flight_links {
    uint32_t next, previous;
};

struct flight_seat {
    struct event event;
    int64_t started_us; /* monotonic: when its commit was handed over */
    uint64_t members;   /* delivered to so far */
    uint32_t owed;      /* bit i: the i-th rule of its type is not on the bus; the relay's */
    uint32_t units;     /* in all */
    uint32_t lane_units[LANE_COUNT];
    struct flight_links all;               /* the undone, by rising id; a free seat: next */
    struct flight_links lanes[LANE_COUNT]; /* those with units in the lane, by rising id */
    _Atomic bool unwell;                   /* its last delivery failed */
};

struct flight_list {
    uint32_t first, last;
};

struct flight {
    pthread_mutex_t lock;
    struct flight_seat **chunks; /* fixed in number, filled as needed; seats never move */
    size_t chunk_count, max;
    uint32_t free;
    struct flight_list all, lanes[LANE_COUNT];
    uint64_t passed; /* id of the last event that the relay took */
    uint64_t undone, done;
    _Atomic uint64_t lane_units[LANE_COUNT];
};

/* What the relay says of an event it takes. */
struct flight_start {
    struct event event;
    int64_t started_us;
    uint32_t owed;
    uint32_t lane_units[LANE_COUNT];
    uint32_t parked; /* units in no lane, which nobody will ever finish: an event we cannot read */
    uint32_t seat;   /* out */
};

/* One unit done. */
struct flight_exit {
    uint32_t seat;
    enum lane lane;
    size_t members;
    bool finished;      /* out: that was the event's last unit; the rest is set only then */
    struct event event; /* out */
    uint64_t event_members;
    int64_t started_us;
};

void flight_init(struct flight *f, size_t max, uint64_t through);
void flight_done(struct flight *f);
void flight_reset(struct flight *f, uint64_t through); /* while nothing is undone */

size_t flight_room(struct flight *f);
/* Seats n events (rising ids, at most flight_room) and notes that the relay is past `passed`, which
 * is at or above the last of them. Before any of their messages is published. */
void flight_begin(struct flight *f, struct flight_start *starts, size_t n, uint64_t passed);
/* One more unit of an event that has at least one. */
void flight_enter(struct flight *f, uint32_t seat, enum lane lane);
/* True when seats became free in a full flight: the relay may be waiting for that. */
bool flight_leave(struct flight *f, struct flight_exit *exits, size_t n);

uint64_t flight_through(struct flight *f);
struct flight_seat *flight_seat(struct flight *f, uint32_t seat);
/* The relay's: the next seat in the lane, by rising id, that owes one of the rules in masks[its
 * type]; FLIGHT_NONE: there is none. `seat` must have units in the lane. */
uint32_t flight_next_owing(struct flight *f, enum lane lane, uint32_t seat, const uint32_t *masks);

struct flight_counts {
    uint64_t passed, undone, done;
    uint64_t oldest;                  /* id; 0: none */
    uint64_t lane_oldest[LANE_COUNT]; /* id; 0: none */
    uint64_t lane_units[LANE_COUNT];
};
void flight_count(struct flight *f, struct flight_counts *out);
