/* How work travels from the relay to the workers. Two drivers: in process, RabbitMQ.
 *
 * A message is one batch to deliver: an event, the rule that wants it, and a position in its
 * audience. A worker that takes a message and finds more audience behind its page publishes the
 * continuation before it delivers its own page: so one large fan-out spreads over all workers and
 * is never held in memory whole.
 *
 * The contract, checked line by line in test/contract/bus_contract.c:
 *  1. A published message is given to exactly one taker at a time, until it is acked, retried or
 *     the bus closes.
 *  2. Messages of one lane come out in the order they went in, retried ones after their delay.
 *  3. retry(delay) makes the message available again not earlier than the delay, with tries + 1 and
 *     the rest as its taker gives it back (a taker may have moved the cursor).
 *  4. publish on a lane that holds its limit (ready, delayed and taken together) says
 *     ERR_OVERLOADED and leaves no trace. `force` is for continuations of messages that are being
 *     worked on: they may exceed the limit, by at most one each.
 *  5. Nothing is kept over a restart unless the driver says `durable`: the outbox starts it again.
 *     A durable driver keeps what it has confirmed (see the stats).
 *  6. A driver that is not `exact` has a network in between. A published message can be taken after
 *     a moment, not at once; the limit counts other nodes' messages with a delay of a second or
 *     two. When the connection breaks, unconfirmed messages are sent again and unacked ones are
 *     given again, perhaps on another node: they may come twice or out of order then, as last
 *     published, and a former taker's ack or retry is ignored. publish returns ERR_OVERLOADED while
 *     too many messages wait for their confirm, ERR_UNAVAILABLE while the server is away and no
 *     more can wait. No call waits for longer than a moment.
 *  7. A lane that was opened as quiet gives nothing until a taker listens to it. When it is quiet
 *     again, messages that were taken and not acked, and those that had arrived, go back: another
 *     node that listens gets them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "port/event.h"
#include "port/views.h"

struct bus;

enum { BUS_LANES_MAX = 65 }; /* the engine's, and one for reports */

/* The outcome of a work item; the node that did it reports to the leader. */
enum report_kind {
    REPORT_NONE,   /* not a report: a work item to be worked on */
    REPORT_DONE,   /* delivered */
    REPORT_AHEAD,  /* being delivered up to `next`; the walk can go on there in a work item of its
                      own */
    REPORT_MOVED,  /* delivered up to `next`: the work item itself goes on there */
    REPORT_AGAIN,  /* delivered in part: the same work item once more */
    REPORT_SPLIT,  /* a large fan-out: nothing was delivered, it belongs in the large lanes */
    REPORT_FAILED, /* by `error` */
};

struct bus_report {
    uint8_t kind;
    uint8_t error; /* enum err */
    bool at_end;   /* its walk is over */
    bool ahead;    /* FAILED: the walk went on elsewhere, from `next` */
    uint16_t node; /* the reporting node */
    uint64_t next; /* a position in the audience */
    /* Of SPLIT and AHEAD nothing was delivered yet: members are then how many the whole walk is
     * expected to meet (0: not known), delivered those of them who were active lately, skipped
     * all that the audience has. */
    uint32_t members, delivered, repeated, skipped, duplicates, suppressed;
    int64_t asked_ms; /* FAILED: the pause that the other side asked for */
};

struct bus_message {
    struct event event; /* card is NULL here */
    uint16_t rule;      /* index into the rule table */
    uint16_t lane;
    uint16_t tries; /* failed ones so far */
    struct audience_cursor cursor;
    uint64_t until;  /* where another message goes on: stop there; 0: at the end of the audience */
    uint8_t kind;    /* the publisher's own, carried unchanged … */
    uint64_t slot;   /* … */
    uint64_t owner;  /* … on whose behalf: a delivery in the delivery store, a replay; 0: live */
    uint64_t replay; /* the replay it belongs to, also as a retry; 0: none */
    uint64_t term;   /* of the leader that published it; 0: there is only this process */
    struct bus_report report;
    uint64_t tag; /* the driver's: identifies the message for ack and retry */
};

struct bus_lane_stats {
    uint64_t ready, delayed, taken;     /* now */
    uint64_t published, acked, retried; /* since the start */
    uint64_t confirmed;  /* of published: those that the driver has as safely as it ever will */
    uint64_t reconnects; /* of the whole bus, since the start */
};

struct bus_ops {
    enum err (*publish)(struct bus *b, const struct bus_message *m, bool force);
    bool (*take)(struct bus *b, uint16_t lane, int64_t now_us, struct bus_message *out);
    void (*ack)(struct bus *b, const struct bus_message *m);
    void (*retry)(struct bus *b, const struct bus_message *m, int64_t not_before_us);
    /* when a delayed one is due; INT64_MAX: none */
    int64_t (*next_due_us)(struct bus *b, uint16_t lane);
    void (*lane_stats)(struct bus *b, uint16_t lane, struct bus_lane_stats *out);
    /* A quiet lane starts or stops giving messages to this taker. */
    void (*listen)(struct bus *b, uint16_t lane, bool on);
    /* Can the driver reach its server? A driver without one: always. */
    bool (*is_connected)(struct bus *b);
    void (*free)(struct bus *b);
};

struct bus {
    const struct bus_ops *ops;
    bool durable;
    bool exact; /* nothing is ever lost, doubled or given out of order while the process lives;
                   false: a network is in between, and the engine must recognise all of that */
};

static inline enum err bus_publish(struct bus *b, const struct bus_message *m)
{
    return b->ops->publish(b, m, false);
}
static inline enum err bus_publish_rest(struct bus *b, const struct bus_message *m)
{
    return b->ops->publish(b, m, true);
}
static inline bool bus_take(struct bus *b, uint16_t lane, int64_t now_us, struct bus_message *out)
{
    return b->ops->take(b, lane, now_us, out);
}
static inline void bus_ack(struct bus *b, const struct bus_message *m)
{
    b->ops->ack(b, m);
}
static inline void bus_retry(struct bus *b, const struct bus_message *m, int64_t not_before_us)
{
    b->ops->retry(b, m, not_before_us);
}
static inline int64_t bus_next_due_us(struct bus *b, uint16_t lane)
{
    return b->ops->next_due_us(b, lane);
}
static inline void bus_lane_stats(struct bus *b, uint16_t lane, struct bus_lane_stats *out)
{
    b->ops->lane_stats(b, lane, out);
}
static inline void bus_listen(struct bus *b, uint16_t lane, bool on)
{
    b->ops->listen(b, lane, on);
}
static inline bool bus_is_connected(struct bus *b)
{
    return b->ops->is_connected(b);
}
static inline void bus_free(struct bus *b)
{
    b->ops->free(b);
}
