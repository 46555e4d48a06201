/* Messages that were sent to the broker and not yet confirmed: parcels, kept until the confirm.
 * Used under the bus's lock. */
#pragma once

#include "port/bus.h"

struct rabbitmq_parcel {
    struct bus_message message;
    int64_t due_ms; /* goes with it: not before this wall time; 0: at once */
    int step;       /* the delay queue it goes to; -1: its lane */
    bool forwarded; /* a copy of a delivery, which message.tag names: acked when this one is safe */
    struct rabbitmq_parcel *next; /* among the waiting or the free */
};

struct rabbitmq_window {
    struct rabbitmq_parcel *parcels;
    uint32_t in_use, own; /* own: of in_use, those that are not forwarded */
    struct rabbitmq_parcel *free;
    struct rabbitmq_parcel *first, **tail; /* waiting to be sent, in order */
    struct rabbitmq_parcel **sent;         /* a ring by confirm number; NULL: settled */
    uint32_t ring;                         /* its size, a power of two */
    uint64_t oldest;                       /* confirm number: all below are settled */
    uint64_t next_number;                  /* that the next one sent will have */
};

void rabbitmq_window_init(struct rabbitmq_window *w, uint32_t capacity);
void rabbitmq_window_done(struct rabbitmq_window *w);

/* A new parcel at the end of those waiting; NULL: no room. The caller fills it in. */
struct rabbitmq_parcel *rabbitmq_window_add(struct rabbitmq_window *w, bool forwarded);
/* Is there anything to send, and may it be sent? */
bool rabbitmq_window_has_waiting(const struct rabbitmq_window *w);
/* The next one to send counts as sent from now on. NULL: none. */
struct rabbitmq_parcel *rabbitmq_window_send(struct rabbitmq_window *w);
/* The broker spoke of `number`, or of all up to it: gives one parcel after the other, then NULL.
 * The caller hands each of them to drop or again. A number that was never sent gives NULL. */
struct rabbitmq_parcel *rabbitmq_window_settle(struct rabbitmq_window *w, uint64_t number,
                                               bool multiple);
void rabbitmq_window_drop(struct rabbitmq_window *w, struct rabbitmq_parcel *p); /* it is safe */
/* Refused: it waits at the end of the others. */
void rabbitmq_window_again(struct rabbitmq_window *w, struct rabbitmq_parcel *p);
/* The connection broke: all that were sent wait again, before the others, in their old order, and
 * numbers begin anew. */
void rabbitmq_window_lost(struct rabbitmq_window *w);
/* Own parcels of a lane that are not confirmed. */
uint64_t rabbitmq_window_count(const struct rabbitmq_window *w, uint16_t lane);
