/* The queues and exchanges at the broker. The program declares them at every connect; all but the
 * queues of transient lanes are durable:
 *
 *   PREFIX.LANE        one quorum queue for each lane; for a transient one a classic queue
 *                      in memory, that goes with its broker and drops the oldest beyond a length
 *   PREFIX.delay.2s …  an exchange and a quorum queue for each step of the ladder: a message sent
 *                      there with a lane's queue as its routing key moves to that queue when the
 *                      time is over
 *   PREFIX.dead        messages that were given out too often, or that no node could read: for a
 *                      person to look at, the oldest go first when there are too many
 *
 * Queues hand over expired and dead messages at least once: the copy is safe before the original
 * goes. */
#pragma once

#include <amqp.h>

#include "bus/rabbitmq.h"
#include "bus/rabbitmq_frames.h"

enum { RABBITMQ_STEPS = 5 };
extern const int rabbitmq_step_s[RABBITMQ_STEPS];

struct rabbitmq_topology {
    size_t lanes;
    uint32_t delivery_limit;
    uint32_t transient; /* a bit for each lane */
    char lane[BUS_LANES_MAX][RABBITMQ_NAME_MAX + 1];
    char delay[RABBITMQ_STEPS][RABBITMQ_NAME_MAX + 1];
    char dead[RABBITMQ_NAME_MAX + 1];
};

/* ERR_BAD_INPUT: a name that is empty, too long or has other characters than A-Z a-z 0-9 - _ . */
enum err rabbitmq_topology_init(struct rabbitmq_topology *t, const struct rabbitmq_config *config);
/* Declares everything on an open channel. `ready` gets what each lane's queue has. When something
 * exists with other arguments the broker says so, and its reply is the caller's to read
 * (amqp_get_rpc_reply). */
bool rabbitmq_topology_declare(const struct rabbitmq_topology *t,
                               amqp_connection_state_t connection, amqp_channel_t channel,
                               uint32_t ready[BUS_LANES_MAX]);
/* The longest step that is not longer than the delay; -1: there is none. */
int rabbitmq_topology_step(int64_t delay_us);
