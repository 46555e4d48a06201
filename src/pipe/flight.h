/* Which work is undone, and from that the low-water mark: everything that a
 * stored event with an id at or below flight_through() asked for is delivered
 * or durably on the books.
 *
 * An event under way has a seat. Its work is in units: a unit is one message's
 * worth, known by (event, rule, part of the audience, position in it). A unit
 * is
 *
 *     OWED    to be published by the relay
 *     OUT     on the bus or with a worker
 *     FAILED  tried without success, on its way to the books
 *     QUEUED  behind another unit of its order key
 *     HELD    its order key is blocked by a delivery on the books: to be booked
 * as waiting
 *
 * and leaves when it is delivered or on the books. When the last unit has left,
 * so has the event. Because units have names, a bus may double, lose or reorder
 * messages: what is not out is not worked on again, and what was not heard of
 * for too long is sent again.
 *
 * Live events are seated in the order of their ids and make the mark. Others
 * sit aside: retries of deliveries on the books, events of a replay, parked
 * events that were released. They have units, order and cells like all, and no
 * say in the mark. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pipe/order.h"
#include "port/bus.h"
#include "port/rule.h"

enum { FLIGHT_CHUNK = 1024, FLIGHT_CELLS_MAX = 256 };

#define FLIGHT_NONE    UINT32_MAX
#define FLIGHT_UNTIMED INT64_MIN  /* as started_us: found in the table at the start */
#define RULE_NONE      UINT16_MAX /* of the unit of an event that cannot be read */

enum seat_kind {
    SEAT_LIVE,
    SEAT_RETRY,
    SEAT_FORCED, /* a retry that an operator ordered although its outcome was
                    unknown */
    SEAT_REPLAY,
    SEAT_RELEASED
};
enum unit_state { UNIT_OWED, UNIT_OUT, UNIT_FAILED, UNIT_QUEUED, UNIT_HELD };

struct flight_links {
    uint32_t next, previous;
};

struct flight_unit {
    struct audience_cursor cursor;
    uint64_t until;
    int64_t sent_us;
    uint32_t seat;
    uint32_t sibling;            /* the next unit of its seat; a free unit: the next free one */
    struct flight_links in_cell; /* by rising event id */
    struct flight_links queue;   /* its lane's owed, its key's, the held or the later ones */
    uint16_t rule, cell;
    uint8_t lane, state;
    bool in_hand;   /* a worker is at it (flight_take_up) */
    bool handed_on; /* its walk goes on at `next` in a unit of its own (flight_hand_on) */
    uint64_t next;
};

struct flight_totals {
    uint64_t members, delivered, repeated, skipped; /* members */
    uint64_t duplicates, suppressed;                /* by an inbox; by a replay's limits */
    uint32_t booked;                                /* units that went to the books */
};

struct flight_seat {
    struct event event;
    int64_t started_us; /* monotonic: when its commit was handed over */
    uint64_t owner;     /* RETRY: the delivery; REPLAY: the job */
    uint64_t replay;    /* the job, also of a retry; 0: none */
    struct flight_totals totals;
    uint32_t first_unit, unit_count;
    struct flight_links all; /* live: by rising id; a free seat: next */
    uint32_t uses;           /* of this place, so that late messages of earlier ones are known */
    uint16_t tries;          /* RETRY: failed ones so far */
    uint16_t walks;          /* of audiences, not yet at their end */
    uint8_t kind;
    bool fresh;          /* live, and handed over: as in flight_start */
    bool ahead;          /* live, and taken before earlier ones: not in its cells' lists yet */
    _Atomic bool unwell; /* its last delivery failed */
};

struct flight_list {
    uint32_t first, last;
};

struct flight_cell {
    uint16_t rule;
    enum lane lane;
    struct flight_list units;
    uint64_t count, entered;
};

struct flight {
    pthread_mutex_t lock;
    const struct rule *rules;
    size_t rule_count;
    uint64_t term;            /* of the leader whose messages these are; 0: there is one process */
    uint32_t uses_from;       /* what `uses` of a new seat begins with: see flight_clear */
    int64_t outside_patience; /* how many times longer a unit with an outside effect is waited for
                                 until it is overdue */
    struct flight_seat **seats; /* chunks: fixed in number, filled as needed; seats never move */
    struct flight_unit **units; /* the same */
    size_t seat_chunks, unit_chunks, seat_chunks_max, unit_chunks_max;
    size_t max; /* live seats at most */
    uint32_t free_seat, free_unit;
    struct flight_list all;   /* live ones */
    struct flight_list ahead; /* live ones above all of `all`; see flight_begin_ahead */
    struct flight_list aside_seats;
    struct flight_list owed[LANE_COUNT], fresh[LANE_COUNT],
        held;                 /* fresh: owed, handed over live */
    struct flight_list later; /* ordered units of those ahead, by rising id */
    uint64_t fresh_count[LANE_COUNT], turn;
    struct order order;
    struct flight_cell cells[FLIGHT_CELLS_MAX];
    size_t cell_count;
    int16_t (*cell_of)[LANE_COUNT];     /* by rule; -1: the rule has no work in that
                                           lane */
    uint64_t passed;                    /* id of the last live event that the relay took in turn */
    uint64_t ahead_after, ahead_passed; /* those between were taken ahead; 0: none */
    uint64_t ahead_count;               /* of the undone ones */
    uint64_t done_seen;                 /* `done` when the relay last asked for room ahead */
    uint64_t undone, done, expanded;    /* live */
    uint64_t aside;
    _Atomic uint64_t lane_units[LANE_COUNT];
};

/* What the relay says of an event it begins. */
struct flight_start {
    struct event event;
    int64_t started_us;
    uint32_t owed;         /* bit i: the i-th rule of the event's type */
    const uint16_t *rules; /* indices of the rules on its type */
    bool unreadable;       /* one unit of RULE_NONE, which is HELD at once */
    bool fresh;            /* handed over live, not found in the table */
    uint32_t seat;         /* out */
};

/* What sits aside: one unit for a retry, one for each rule in `owed` for the
 * others. */
struct flight_aside {
    enum seat_kind kind;
    uint64_t owner;
    struct event event;
    uint16_t tries;
    uint16_t rule; /* RETRY */
    struct audience_cursor cursor;
    uint64_t until;
    uint64_t replay; /* the job it belongs to, whose lane is the replays'; 0: none */
    uint32_t owed;   /* REPLAY, RELEASED */
    const uint16_t *rules;
};

enum exit_how {
    EXIT_DONE,
    EXIT_BOOKED,  /* its key is blocked from now on */
    EXIT_DROPPED, /* given up, and booked as such: its key goes on */
};

/* One unit leaves. */
struct flight_exit {
    uint64_t seat;     /* as in its message */
    uint64_t event_id; /* the name of the unit: with rule, part and after */
    uint64_t after;
    uint16_t rule;
    uint8_t part;
    enum exit_how how;
    bool at_end; /* its walk ends with it */
    bool if_out; /* only if it is OUT: others may have spoken of it meanwhile */
    struct flight_totals add;
    /* out */
    bool found;     /* false: it left before; nothing happened */
    uint64_t until; /* where its walk was to end */
    bool finished;  /* that was the event's last unit; the rest is set only then */
    struct event event;
    struct flight_totals totals;
    int64_t started_us;
    uint64_t owner;
    uint8_t kind;
    uint16_t tries;
};

void flight_init(struct flight *f, const struct rule *rules, size_t rule_count, size_t max);
void flight_done(struct flight *f);
void flight_reset(struct flight *f, uint64_t through); /* while nothing is undone */
/* Everything is forgotten. Seats are used on from where they were, so that whatever is still told
 * of what was under way before finds nothing. Nobody else may be at it. */
void flight_clear(struct flight *f);

size_t flight_room(struct flight *f);
/* Seats n live events (rising ids, at most flight_room) and notes that the
 * relay is past `passed`, which is at or above the last of them. */
void flight_begin(struct flight *f, struct flight_start *starts, size_t n, uint64_t passed);
/* Seats live events above others that the relay has yet to take: a backlog in the table. They have
 * no say in the mark, which cannot pass that backlog anyway, and no place in the ages, which are
 * the backlog's. Their units in ordered lanes wait: an earlier event of their key may be in the
 * table. There is no room for them while nothing gets done: what comes
 * when things go on again is what is fresh then. At most flight_room_ahead of them, all above
 * `after`, where that backlog ends. */
size_t flight_room_ahead(struct flight *f);
void flight_begin_ahead(struct flight *f, struct flight_start *starts, size_t n, uint64_t after,
                        uint64_t passed);
/* The backlog below them is taken: they are live ones like all. */
void flight_join(struct flight *f);
enum aside_result {
    ASIDE_BEGUN,
    ASIDE_FULL, /* too many sit aside */
    ASIDE_BUSY, /* a retry: another unit of its key is at work */
};
enum aside_result flight_begin_aside(struct flight *f, const struct flight_aside *aside);
/* The lane that units of this part of a rule's audience are worked on in. */
enum lane flight_lane_of(const struct rule *rule, enum audience_part part, uint64_t replay);
/* A retry goes on in the lane of its part of the audience. */
enum lane flight_lane_of_retry(const struct flight *f, const struct flight_aside *a);

/* The relay's: the lane's next unit that is owed, now OUT. False: none. What was handed over live
 * goes before what was found in the table, three turns to one; and when much of it waits, as after
 * a pause, the newest and the oldest take turns, as long as the newest is fresh. So fresh work does
 * not wait for a backlog, and a backlog does not wait for fresh work. Of one order key at most one
 * unit is owed: that keeps every order. */
bool flight_take_owed(struct flight *f, enum lane lane, int64_t now_us, struct bus_message *out);
/* It could not be published: owed again, first in its lane. */
void flight_give_back(struct flight *f, const struct bus_message *m);
/* Units that were sent before `before_us` and have not left, oldest events
 * first: sent again now.
 */
size_t flight_take_overdue(struct flight *f, int64_t before_us, int64_t now_us,
                           struct bus_message *out, size_t max);
bool flight_owes(struct flight *f);

/* A worker begins with the unit that this message stands for. False: the message is a duplicate;
 * the unit is not out, or another worker is at it. Only a bus that is not exact needs asking. It is
 * in the worker's hand until it leaves, moves on, fails or is put down. */
bool flight_take_up(struct flight *f, const struct bus_message *m);
/* It goes back to the bus as it is. */
void flight_put_down(struct flight *f, const struct bus_message *m);
/* Its delivery failed and waits for the books: copies of its message are duplicates from now on.
 * False: it is not out. */
bool flight_fail(struct flight *f, const struct bus_message *m);
/* The books had no room for it: out again. */
void flight_unfail(struct flight *f, const struct bus_message *m);
/* Failed tries of its delivery that are on the books. */
uint32_t flight_tries(struct flight *f, const struct bus_message *m);
/* The walk goes on at `cursor` in a unit of its own, OUT. False: not in flight,
 * or there already.
 */
bool flight_add(struct flight *f, const struct bus_message *m, const struct audience_cursor *cursor,
                int64_t now_us);
/* The unit itself goes on at `cursor`, with `add` done; what failed further up counts no more.
 * False: not in flight. */
bool flight_move(struct flight *f, const struct bus_message *m,
                 const struct audience_cursor *cursor, const struct flight_totals *add,
                 int64_t now_us);
/* A large fan-out: its unit becomes two owed ones, first those seen lately,
 * then the rest. */
void flight_split(struct flight *f, const struct bus_message *m, int64_t active_since_ms,
                  int64_t started_ms);
/* The three below are for workers that are told of, perhaps late, twice or not at all: the unit
 * remembers whether, and where, its walk goes on elsewhere. */
/* Is it out? */
bool flight_is_out(struct flight *f, const struct bus_message *m);
/* As flight_add, once for each unit, and not while its event's deliveries fail or where only one
 * may be at work. */
bool flight_hand_on(struct flight *f, const struct bus_message *m,
                    const struct audience_cursor *cursor, int64_t now_us);
/* The unit is delivered up to `cursor`, where its walk should have been handed on. True: it was
 * not, or elsewhere, and the unit itself goes on there, as by flight_move. */
bool flight_go_on(struct flight *f, const struct bus_message *m,
                  const struct audience_cursor *cursor, const struct flight_totals *add,
                  int64_t now_us);
/* Was a part of its event delivered already? */
bool flight_has_moved(struct flight *f, const struct bus_message *m);
/* Where the unit ends: where its walk was handed on, or as in its message. */
uint64_t flight_until(struct flight *f, const struct bus_message *m);
/* True: the relay may have something to do (a seat or a unit that is owed). */
bool flight_leave(struct flight *f, struct flight_exit *exits, size_t n);

/* The books': units that must be booked as waiting (or parked), as messages
 * that are on no bus. They leave by flight_leave with EXIT_BOOKED. */
size_t flight_take_held(struct flight *f, struct bus_message *out, size_t max);
bool flight_holds(struct flight *f);
/* Holds at most `max` units that are owed to the lane, which is stopped: on the books they take no
 * seat. For lanes without order. Returns how many. */
size_t flight_hold_owed(struct flight *f, enum lane lane, size_t max);
void flight_block(struct flight *f, enum lane lane, uint64_t key); /* at the start */
/* No open row of this key is left on the books. It goes on unless something is
 * held behind it. */
void flight_unblock(struct flight *f, enum lane lane, uint64_t key);
/* The books were changed by somebody else: unblocks the keys that are_open()
 * denies. */
void flight_recheck(struct flight *f, bool (*is_open)(void *ctx, enum lane lane, uint64_t key),
                    void *ctx);

uint64_t flight_through(struct flight *f);
struct flight_seat *flight_seat(struct flight *f, uint32_t seat);

struct flight_counts {
    uint64_t passed, ahead_after, ahead_passed, undone, done, expanded, aside, blocked_keys;
    uint64_t oldest; /* live; id; 0: none */
    size_t cell_count;
    struct {
        uint16_t rule;
        enum lane lane;
        uint64_t count, entered, oldest;
    } cells[FLIGHT_CELLS_MAX];
};
void flight_count(struct flight *f, struct flight_counts *out);
/* Visits the units of a live event. False: it is not in flight. */
bool flight_look(struct flight *f, uint64_t event,
                 void (*visit)(void *ctx, const struct flight_seat *s, const struct flight_unit *u),
                 void *ctx);
