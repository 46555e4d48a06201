/* The local-first bus, made of two: one in this process for work that can be done here at once, one
 * behind a network for the rest. A work item that goes through a broker costs several times what
 * its delivery costs; while few work items wait, other nodes would not be faster, so the node that
 * hands out the work keeps it.
 *
 * What it promises is what the remote bus promises, with three differences:
 *  - Order is kept among what went the same way, not between the two.
 *  - A lane's limit is the remote one's, and the room beyond it.
 *  - It is not durable: what is kept here goes with this process, or when it is forgotten. Whoever
 *    publishes sends again what it does not hear of. */
#pragma once

#include "port/bus.h"

/* Owns both from now on. `local` is one of bus_local_new, of at least the lanes in the mask, whose
 * limits are not below `room`. A lane that is not in `lanes_mask` always goes to the remote one;
 * so does, at first, every lane: see bus_local_first_hold. */
struct bus *bus_local_first_new(struct bus *local, struct bus *remote, uint32_t lanes_mask,
                                size_t room);

/* On: messages of the mask's lanes are kept here while fewer than `room` of their lane are. Off:
 * everything goes to the remote bus; what is here is still given out. Any thread. */
void bus_local_first_hold(struct bus *b, bool on);
/* Throws away what is kept here; acks and retries of it that come later are ignored. After
 * bus_local_first_hold(b, false); what a publisher is adding in this very moment may be left. */
void bus_local_first_forget(struct bus *b);
