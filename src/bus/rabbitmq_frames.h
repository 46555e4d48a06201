/* The few AMQP 0-9-1 frames that are sent again and again, as bytes. librabbitmq writes each frame
 * with a system call of its own and may wait while the broker does not read; here frames gather in
 * a buffer that is flushed when there is nothing more to add, and that never waits. */
#pragma once

#include "base/buf.h"
#include "bus/rabbitmq_wire.h"

enum { RABBITMQ_NAME_MAX = 127, RABBITMQ_PUBLISH_SIZE = 512 };

/* Everything of a publish but its body: where to, and whether it is to be kept on disk. */
struct rabbitmq_route {
    size_t len;
    uint8_t bytes[RABBITMQ_PUBLISH_SIZE - RABBITMQ_WIRE_SIZE - 8];
};

/* exchange and key: at most RABBITMQ_NAME_MAX bytes each. */
void rabbitmq_route_init(struct rabbitmq_route *route, uint16_t channel, const char *exchange,
                         const char *key, bool on_disk);

void rabbitmq_frame_publish(struct buf *out, uint16_t channel, const struct rabbitmq_route *route,
                            const uint8_t body[RABBITMQ_WIRE_SIZE]);
void rabbitmq_frame_ack(struct buf *out, uint16_t channel, uint64_t delivery, bool multiple);
/* Gives a delivery up: the broker dead-letters it. */
void rabbitmq_frame_refuse(struct buf *out, uint16_t channel, uint64_t delivery);
/* Asks how many messages a queue has ready; declares nothing. */
void rabbitmq_frame_ask_count(struct buf *out, uint16_t channel, const char *queue);
/* Opens a channel and consumes on it, no more than `prefetch` unacked at a time. The broker's
 * answers need not be awaited. */
void rabbitmq_frame_open_consumer(struct buf *out, uint16_t channel, const char *queue,
                                  uint16_t prefetch);
/* The broker queues messages again that it delivered on the channel without an ack. The channel's
 * number is free when the broker has answered. */
void rabbitmq_frame_close_channel(struct buf *out, uint16_t channel);
void rabbitmq_frame_heartbeat(struct buf *out);
