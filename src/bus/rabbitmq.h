/* The bus driver of many nodes: RabbitMQ through librabbitmq. Durable, and not exact: after a
 * broken connection, messages of unknown fate are sent or given again, never dropped.
 *
 * One quorum queue for each lane, delay queues for retries, one queue for undeliverable messages;
 * the program declares them itself (docs: rabbitmq_topology.h). publish() means that the message is
 * in the window: at most RABBITMQ_WINDOW messages wait for the broker's confirm, and unconfirmed
 * ones are sent again after a broken connection. `confirmed` in the lane's stats says how far the
 * broker has come; since publish() returns OK before that, only confirmed ones count as durable.
 *
 * A transient lane is cheaper: its queue is in the memory of one broker, goes with it, and drops
 * its oldest messages beyond a length. It is for messages that the sender repeats when they do not
 * arrive. Unreadable ones are dropped there, too.
 *
 * After a broken connection the broker gives messages that were taken and not acked again, to any
 * taker; a late ack or retry of the old taking is ignored. */
#pragma once

#include "base/clock.h"
#include "port/bus.h"

enum { RABBITMQ_WINDOW = 512, RABBITMQ_DETAIL_SIZE = 400 };
/* A transient lane's prefetch is at least that many: its messages are small work. */
enum { RABBITMQ_PREFETCH_MAX = 10000, RABBITMQ_PREFETCH_TRANSIENT = 200 };

struct rabbitmq_config {
    const char *url;               /* amqp://user:password@host:port/vhost */
    const char *prefix;            /* of every name at the broker; NULL: "fantail" */
    const char *node;              /* names the connections at the broker; NULL: "fantail" */
    size_t lanes;                  /* 1 … BUS_LANES_MAX */
    const char *const *lane_names; /* one for each: part of the queue's name */
    const size_t *lane_limits;     /* one for each */
    uint32_t quiet;                /* a bit for each lane that is taken only while listened to */
    uint32_t transient;            /* a bit for each lane whose messages may be lost, cheaply */
    uint32_t prefetch;             /* a lane's messages that this node holds unacked; 0: 20 */
    uint32_t delivery_limit;       /* redeliveries until a message is given up; 0: 20 */
    uint32_t heartbeat_s;          /* 0: 5. A broker silent for two of them is given up */
    bool publish_only;             /* a node without workers takes from quiet lanes alone */
    struct clock *clock;           /* whose mono_us retry and take speak; NULL: the system's */
    /* From the I/O thread, when a lane that had nothing ready has; may be NULL. Must not call the
     * bus and must not block. */
    void (*on_ready)(void *context, uint16_t lane);
    void *context;
};

/* Connects, declares the queues and begins to consume. ERR_UNAVAILABLE: no broker there;
 * ERR_UNAUTHENTICATED: it does not want us; ERR_CONFLICT: a queue exists with other arguments;
 * ERR_BAD_INPUT: the URL or a name. `detail` says it in words for a person, without the
 * password. */
enum err bus_rabbitmq_open(const struct rabbitmq_config *config, struct bus **out,
                           char detail[RABBITMQ_DETAIL_SIZE]);
