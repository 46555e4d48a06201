/* The local-first bus, made of two: one in this process for work that can be done here at once, one
 * behind a network for the rest. A work item that goes through a broker costs several times its
 * delivery; while few work items wait, other nodes would not be faster, so the node that hands out
 * the work keeps it.
 *
 * It promises what the remote bus promises, with three differences:
 *  - Order is kept among messages that went the same way, not between the two.
 *  - A lane's limit is the remote one's, plus the room here.
 *  - It is not durable: local messages go with this process, or with bus_local_first_forget. A
 *    publisher sends a message again when it gets no report of it. */
#pragma once

#include "port/bus.h"

/* Owns both from now on. `local` is one of bus_local_new, of at least the lanes in the mask, whose
 * limits are not below `room`. A lane that is not in `lanes_mask` always goes to the remote one;
 * so does, at first, every lane: see bus_local_first_hold. */
struct bus *bus_local_first_new(struct bus *local, struct bus *remote, uint32_t lanes_mask,
                                size_t room);

/* On: messages of the mask's lanes stay here while fewer than `room` of their lane do. Off: all new
 * messages go to the remote bus; local ones are still given out. Any thread. */
void bus_local_first_hold(struct bus *b, bool on);
/* Drops the local messages and ignores later acks and retries of them. Call bus_local_first_hold(b,
 * false) first; a message that a publisher adds at this very moment may remain. */
void bus_local_first_forget(struct bus *b);
