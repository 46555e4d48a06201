/* The undone work, and the watermark that follows from it: every delivery of a stored event with an
 * id at or below inflight_through() is done or durably in the delivery store.
 *
 * An event under way has a slot. Its work is in work items: a work item is one message's worth,
 * known by (event, rule, part of the audience, position in it). A work item is
 *
 *     READY    to be published by the relay
 *     RUNNING     on the bus or with a worker
 *     FAILED  tried without success, on its way to the delivery store
 *     QUEUED  behind another work item of its order key
 *     BLOCKED    its order key is blocked by a delivery in the delivery store: to be recorded as
 * waiting
 *
 * and leaves when it is delivered or in the delivery store. When the last work item has left, so
 * has the event. Because work items have names, a bus may double, lose or reorder messages: an item
 * that is not running is not worked on again, and one without a report for too long is sent again.
 *
 * Live events are placed in the order of their ids and make the watermark. Others are out of band:
 * retries of deliveries in the delivery store, events of a replay, parked events that were
 * released. They have work items, order and cells like all, and do not move the watermark. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pipe/order.h"
#include "port/bus.h"
#include "port/rule.h"

enum { INFLIGHT_CHUNK = 1024, INFLIGHT_CELLS_MAX = 256 };

#define INFLIGHT_NONE    UINT32_MAX
#define INFLIGHT_UNTIMED INT64_MIN  /* as started_us: found in the table at the start */
#define RULE_NONE        UINT16_MAX /* of the work item of an event that cannot be read */

enum slot_kind {
    SLOT_LIVE,
    SLOT_RETRY,
    SLOT_FORCED, /* a retry that an operator ordered although its outcome was
                    unknown */
    SLOT_REPLAY,
    SLOT_RELEASED
};
enum item_state { ITEM_READY, ITEM_RUNNING, ITEM_FAILED, ITEM_QUEUED, ITEM_BLOCKED };

struct inflight_links {
    uint32_t next, previous;
};

struct work_item {
    struct audience_cursor cursor;
    uint64_t until;
    int64_t sent_us;
    uint32_t slot;
    uint32_t sibling; /* the next work item of its slot; a free work item: the next free one */
    struct inflight_links in_cell; /* by rising event id */
    struct inflight_links queue;   /* its lane's ready, its key's, the held or the later ones */
    uint16_t rule, cell;
    uint8_t lane, state;
    uint32_t expected; /* batches that its walk is expected to take after this one */
    bool in_hand;      /* a worker is at it (inflight_take_up) */
    bool handed_on;    /* its walk goes on at `next` in a work item of its own (inflight_hand_on) */
    uint64_t next;
};

struct inflight_totals {
    uint64_t members, delivered, repeated, skipped; /* members */
    uint64_t duplicates, suppressed;                /* by a dedup memory; by a replay's limits */
    uint32_t recorded;                              /* work items that went to the delivery store */
};

struct inflight_slot {
    struct event event;
    int64_t started_us; /* monotonic: when it was committed */
    uint64_t owner;     /* RETRY: the delivery; REPLAY: the job */
    uint64_t replay;    /* the job, also of a retry; 0: none */
    uint64_t audience;  /* of a large fan-out: all of it; 0: not known */
    struct inflight_totals totals;
    uint32_t first_item, item_count;
    struct inflight_links all; /* live: by rising id; a free slot: next */
    uint32_t uses;             /* of this place, so that late messages of earlier ones are known */
    uint16_t tries;            /* RETRY: failed ones so far */
    uint16_t walks;            /* of audiences, not yet at their end */
    uint8_t kind;
    bool fresh;           /* live, and from the commit queue: as in inflight_start */
    bool ahead;           /* live, and taken before earlier ones: not in its cells' lists yet */
    _Atomic bool failing; /* its last delivery failed */
};

struct inflight_cell {
    uint16_t rule;
    enum lane lane;
    struct inflight_list items;
    uint64_t count;            /* work items */
    uint64_t batches, entered; /* what is ahead of them, and what ever was; see inflight_count */
    uint64_t begun;            /* work items that continue no other */
};

struct inflight {
    pthread_mutex_t lock;
    const struct rule *rules;
    size_t rule_count;
    uint64_t term;            /* of the leader whose messages these are; 0: there is one process */
    uint32_t uses_from;       /* what `uses` of a new slot begins with: see inflight_clear */
    int64_t outside_patience; /* how many times longer a work item with an outside effect is waited
                                 for until it is overdue */
    struct inflight_slot **slots; /* chunks: fixed in number, filled as needed; slots never move */
    struct work_item **items;     /* the same */
    size_t slot_chunks, item_chunks, slot_chunks_max, item_chunks_max;
    size_t max; /* live slots at most */
    uint32_t free_slot, free_item;
    struct inflight_list all;   /* live ones */
    struct inflight_list ahead; /* live ones above all of `all`; see inflight_begin_ahead */
    struct inflight_list out_of_band_slots;
    struct inflight_list ready[LANE_COUNT], fresh[LANE_COUNT],
        blocked;                /* fresh: ready, queued live */
    struct inflight_list later; /* ordered work items of those ahead, by rising id */
    uint64_t fresh_count[LANE_COUNT], turn;
    struct order order;
    struct inflight_cell cells[INFLIGHT_CELLS_MAX];
    size_t cell_count;
    int16_t (*cell_of)[LANE_COUNT];     /* by rule; -1: the rule has no work in that
                                           lane */
    uint64_t passed;                    /* id of the last live event that the relay took in turn */
    uint64_t ahead_after, ahead_passed; /* those between were taken ahead; 0: none */
    uint64_t ahead_count;               /* of the undone ones */
    uint64_t done_seen;                 /* `done` when the relay last asked for room ahead */
    uint64_t undone, done, expanded;    /* live */
    uint64_t out_of_band;
    uint64_t running[LANE_COUNT]; /* what is RUNNING in the lane; outside: calls at most */
    _Atomic uint64_t lane_items[LANE_COUNT];
};

/* What the relay says of an event it begins. */
struct inflight_start {
    struct event event;
    int64_t started_us;
    uint32_t wanted;       /* bit i: the i-th rule of the event's type */
    const uint16_t *rules; /* indices of the rules on its type */
    bool unreadable;       /* one work item of RULE_NONE, which is BLOCKED at once */
    bool fresh;            /* queued live, not found in the table */
    uint32_t slot;         /* out */
};

/* An out-of-band event: one work item for a retry, one for each rule in `wanted` for the
 * others. */
struct out_of_band_event {
    enum slot_kind kind;
    uint64_t owner;
    struct event event;
    uint16_t tries;
    uint16_t rule; /* RETRY */
    struct audience_cursor cursor;
    uint64_t until;
    uint64_t replay; /* the job it belongs to, whose lane is the replays'; 0: none */
    uint32_t wanted; /* REPLAY, RELEASED */
    const uint16_t *rules;
};

enum exit_how {
    EXIT_DONE,
    EXIT_RECORDED, /* its key is blocked from now on */
    EXIT_DROPPED,  /* given up, and recorded as such: its key goes on */
};

/* One work item leaves. */
struct inflight_exit {
    uint64_t slot;     /* as in its message */
    uint64_t event_id; /* the name of the work item: with rule, part and after */
    uint64_t after;
    uint16_t rule;
    uint8_t part;
    enum exit_how how;
    bool at_end;     /* its walk ends with it */
    bool if_running; /* only if it is RUNNING: others may have spoken of it meanwhile */
    struct inflight_totals add;
    /* out */
    bool found;     /* false: it left before; nothing happened */
    uint64_t until; /* where its walk was to end */
    bool finished;  /* that was the event's last work item; the rest is set only then */
    struct event event;
    struct inflight_totals totals;
    uint64_t audience;
    int64_t started_us;
    uint64_t owner;
    uint8_t kind;
    uint16_t tries;
};

void inflight_init(struct inflight *f, const struct rule *rules, size_t rule_count, size_t max);
void inflight_done(struct inflight *f);
void inflight_reset(struct inflight *f, uint64_t through); /* while nothing is undone */
/* Everything is forgotten. Slots are used on from where they were, so that whatever is still told
 * of what was under way before finds nothing. The caller has it alone. */
void inflight_clear(struct inflight *f);

size_t inflight_room(struct inflight *f);
/* Slots n live events (rising ids, at most inflight_room) and notes that the
 * relay is past `passed`, which is at or above the last of them. */
void inflight_begin(struct inflight *f, struct inflight_start *starts, size_t n, uint64_t passed);
/* Slots live events above others that the relay has yet to take: a backlog in the table. They have
 * no say in the watermark, which cannot pass that backlog anyway, and no place in the ages, which
 * are the backlog's. Their work items in ordered lanes wait: an earlier event of their key may be
 * in the table. There is no room for them while nothing gets done: what comes when things go on
 * again is what is fresh then. At most inflight_room_ahead of them, all above `after`, where that
 * backlog ends. */
size_t inflight_room_ahead(struct inflight *f);
void inflight_begin_ahead(struct inflight *f, struct inflight_start *starts, size_t n,
                          uint64_t after, uint64_t passed);
/* The backlog below them is taken: they are live ones like all. */
void inflight_join(struct inflight *f);
enum out_of_band_result {
    OUT_OF_BAND_BEGUN,
    OUT_OF_BAND_FULL, /* too many are out of band */
    OUT_OF_BAND_BUSY, /* a retry: another work item of its key is at work */
};
enum out_of_band_result inflight_begin_out_of_band(struct inflight *f,
                                                   const struct out_of_band_event *out_of_band);
/* The lane that work items of this part of a rule's audience are worked on in. */
enum lane inflight_lane_of(const struct rule *rule, enum audience_part part, uint64_t replay);
/* A retry goes on in the lane of its part of the audience. */
enum lane inflight_lane_of_retry(const struct inflight *f, const struct out_of_band_event *a);

/* The relay's: the lane's next work item that is ready, now RUNNING. False: none. What was handed
 * over live goes before what was found in the table, three turns to one; and when much of it waits,
 * as after a pause, the newest and the oldest take turns, as long as the newest is fresh. So fresh
 * work does not wait for a backlog, and a backlog does not wait for fresh work. Of one order key at
 * most one work item is ready: that keeps every order. At most `at_a_time` run in the lane, or one
 * that is larger than that. */
bool inflight_take_ready(struct inflight *f, enum lane lane, int64_t now_us, uint64_t at_a_time,
                         struct bus_message *out);
/* What runs in the lane, of all nodes together: work items; of a lane for calls, calls at most. */
uint64_t inflight_running(struct inflight *f, enum lane lane);
/* It could not be published: ready again, first in its lane. */
void inflight_give_back(struct inflight *f, const struct bus_message *m);
/* Work items that were sent before `before_us` and have not left, oldest events
 * first: sent again now.
 */
size_t inflight_take_overdue(struct inflight *f, int64_t before_us, int64_t now_us,
                             struct bus_message *out, size_t max);

/* A worker begins with the work item that this message stands for. False: the message is a
 * duplicate; the work item is not out, or another worker is at it. Only a bus that is not exact
 * needs asking. It is in the worker's hand until it leaves, moves on, fails or is put down. */
bool inflight_take_up(struct inflight *f, const struct bus_message *m);
/* It goes back to the bus as it is. */
void inflight_put_down(struct inflight *f, const struct bus_message *m);
/* Its delivery failed and waits for the delivery store: copies of its message are duplicates from
 * now on. False: it is not out. */
struct inflight_failure {
    uint32_t tries; /* failed ones of its delivery that are in the delivery store */
    uint64_t until; /* as inflight_until */
    bool moved;     /* a part of its event was delivered already */
};
bool inflight_fail(struct inflight *f, const struct bus_message *m, struct inflight_failure *out);
/* The delivery store had no room for it: out again. */
void inflight_unfail(struct inflight *f, const struct bus_message *m);
/* The work item itself goes on at `cursor`, with `add` done; what failed further up counts no more.
 * False: not in flight. */
bool inflight_move(struct inflight *f, const struct bus_message *m,
                   const struct audience_cursor *cursor, const struct inflight_totals *add,
                   int64_t now_us);
/* A large fan-out: its work item becomes two ready ones, first those seen lately,
 * then the rest. */
struct inflight_parts {
    uint64_t audience; /* how many there are in all, also those whom no walk meets; 0: not known */
    int64_t active_since_ms, started_ms;
    uint64_t active, rest; /* how many members each is expected to have; 0: not known */
};
void inflight_split(struct inflight *f, const struct bus_message *m,
                    const struct inflight_parts *parts);
/* The walk of which this is the first work item is expected to meet so many members. */
void inflight_expect(struct inflight *f, const struct bus_message *m, uint64_t members);
/* Is it out? */
bool inflight_is_running(struct inflight *f, const struct bus_message *m);
/* The walk goes on at `cursor` in a work item of its own, RUNNING: once for each work item, and not
 * while its event's deliveries fail or where only one may be at work. False: it does not. */
bool inflight_hand_on(struct inflight *f, const struct bus_message *m,
                      const struct audience_cursor *cursor, int64_t now_us);
/* The work item is delivered up to `cursor`, where its walk should have been handed on. True: it
 * was not, or elsewhere, and the work item itself goes on there, as by inflight_move. */
bool inflight_go_on(struct inflight *f, const struct bus_message *m,
                    const struct audience_cursor *cursor, const struct inflight_totals *add,
                    int64_t now_us);
/* Where the work item ends: where its walk was handed on, or as in its message. */
uint64_t inflight_until(struct inflight *f, const struct bus_message *m);
/* True: the relay may have something to do (a slot or a work item that is ready). */
bool inflight_leave(struct inflight *f, struct inflight_exit *exits, size_t n);

/* The delivery store's: work items that must be recorded as waiting (or parked), as messages
 * that are on no bus. They leave by inflight_leave with EXIT_RECORDED. */
size_t inflight_take_blocked(struct inflight *f, struct bus_message *out, size_t max);
bool inflight_has_blocked(struct inflight *f);
/* Holds at most `max` work items that are ready for the lane, which is stopped: in the delivery
 * store they take no slot. For lanes without order. Returns how many. */
size_t inflight_block_ready(struct inflight *f, enum lane lane, size_t max);
void inflight_block_key(struct inflight *f, enum lane lane, uint64_t key); /* at the start */
/* No open row of this key is left in the delivery store. It goes on unless something is
 * blocked behind it. */
void inflight_unblock_key(struct inflight *f, enum lane lane, uint64_t key);
/* Another node or an operator changed the delivery store: unblocks the keys that are_open() denies.
 */
void inflight_recheck_keys(struct inflight *f,
                           bool (*is_open)(void *ctx, enum lane lane, uint64_t key), void *ctx);

uint64_t inflight_through(struct inflight *f);
static inline struct inflight_slot *inflight_slot(struct inflight *f, uint32_t slot)
{
    return &f->slots[slot / INFLIGHT_CHUNK][slot % INFLIGHT_CHUNK];
}

/* Work is counted in batches: pages of an audience. A walk whose length is known by estimate counts
 * with all its batches from the start, any other one batch at a time. `entered` never goes back,
 * and entered - batches have left. */
struct inflight_cell_count {
    uint16_t rule;
    enum lane lane;
    uint64_t count, batches, entered, begun, oldest;
};
struct inflight_counts {
    uint64_t passed, ahead_after, ahead_passed, undone, done, expanded, out_of_band, blocked_keys;
    uint64_t oldest; /* live; id; 0: none */
    size_t cell_count;
    struct inflight_cell_count cells[INFLIGHT_CELLS_MAX];
};
void inflight_count(struct inflight *f, struct inflight_counts *out);
/* Visits the work items of a live event. False: it is not in flight. */
bool inflight_look(struct inflight *f, uint64_t event,
                   void (*visit)(void *ctx, const struct inflight_slot *s,
                                 const struct work_item *u),
                   void *ctx);
