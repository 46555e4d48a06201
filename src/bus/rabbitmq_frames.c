/* Frames are type, channel, length, payload, end mark; numbers are big-endian. librabbitmq encodes
 * the arguments of methods. A publish is three frames: the method, the header that announces the
 * body, the body. */
#include "bus/rabbitmq_frames.h"

#include <amqp.h>
#include <endian.h>

#include "base/check.h"

enum { IN_MEMORY = 1, ON_DISK = 2, ARGUMENTS_MAX = 2 * RABBITMQ_NAME_MAX + 32 };

static void put(struct buf *out, uint64_t value, size_t bytes)
{
    uint64_t big = htobe64(value);
    buf_append(out, (const char *)&big + 8 - bytes, bytes);
}

static void begin(struct buf *out, uint8_t type, uint16_t channel, size_t payload)
{
    put(out, type, 1);
    put(out, channel, 2);
    put(out, payload, 4);
}

static void end(struct buf *out)
{
    put(out, AMQP_FRAME_END, 1);
}

static void put_method(struct buf *out, uint16_t channel, amqp_method_number_t id, void *method)
{
    char arguments[ARGUMENTS_MAX];
    int n = amqp_encode_method(id, method, (amqp_bytes_t){sizeof arguments, arguments});
    CHECK(n >= 0);
    begin(out, AMQP_FRAME_METHOD, channel, 4 + (size_t)n);
    put(out, id, 4);
    buf_append(out, arguments, (size_t)n);
    end(out);
}

/* Mandatory: a message that finds no queue comes back instead of being confirmed and forgotten. */
void rabbitmq_route_init(struct rabbitmq_route *route, uint16_t channel, const char *exchange,
                         const char *key, bool on_disk)
{
    struct buf out = buf_over((char *)route->bytes, sizeof route->bytes);
    amqp_basic_publish_t publish = {.exchange = amqp_cstring_bytes(exchange),
                                    .routing_key = amqp_cstring_bytes(key),
                                    .mandatory = 1};
    put_method(&out, channel, AMQP_BASIC_PUBLISH_METHOD, &publish);
    begin(&out, AMQP_FRAME_HEADER, channel, 2 + 2 + 8 + 2 + 1);
    put(&out, AMQP_BASIC_CLASS, 2);
    put(&out, 0, 2);
    put(&out, RABBITMQ_WIRE_SIZE, 8);
    put(&out, AMQP_BASIC_DELIVERY_MODE_FLAG, 2);
    put(&out, on_disk ? ON_DISK : IN_MEMORY, 1);
    end(&out);
    CHECK(!out.failed);
    route->len = out.len;
}

void rabbitmq_frame_publish(struct buf *out, uint16_t channel, const struct rabbitmq_route *route,
                            const uint8_t body[RABBITMQ_WIRE_SIZE])
{
    buf_append(out, route->bytes, route->len);
    begin(out, AMQP_FRAME_BODY, channel, RABBITMQ_WIRE_SIZE);
    buf_append(out, body, RABBITMQ_WIRE_SIZE);
    end(out);
}

void rabbitmq_frame_ack(struct buf *out, uint16_t channel, uint64_t delivery, bool multiple)
{
    amqp_basic_ack_t ack = {.delivery_tag = delivery, .multiple = multiple};
    put_method(out, channel, AMQP_BASIC_ACK_METHOD, &ack);
}

void rabbitmq_frame_refuse(struct buf *out, uint16_t channel, uint64_t delivery)
{
    amqp_basic_reject_t reject = {.delivery_tag = delivery};
    put_method(out, channel, AMQP_BASIC_REJECT_METHOD, &reject);
}

void rabbitmq_frame_ask_count(struct buf *out, uint16_t channel, const char *queue)
{
    amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes(queue), .passive = 1};
    put_method(out, channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
}

/* Without an answer the consumer needs a name of ours: any, on a channel of its own. */
void rabbitmq_frame_open_consumer(struct buf *out, uint16_t channel, const char *queue,
                                  uint16_t prefetch)
{
    amqp_channel_open_t open = {.out_of_band = amqp_empty_bytes};
    amqp_basic_qos_t qos = {.prefetch_count = prefetch};
    amqp_basic_consume_t consume = {
        .queue = amqp_cstring_bytes(queue), .consumer_tag = amqp_cstring_bytes(queue), .nowait = 1};
    put_method(out, channel, AMQP_CHANNEL_OPEN_METHOD, &open);
    put_method(out, channel, AMQP_BASIC_QOS_METHOD, &qos);
    put_method(out, channel, AMQP_BASIC_CONSUME_METHOD, &consume);
}

void rabbitmq_frame_close_channel(struct buf *out, uint16_t channel)
{
    amqp_channel_close_t close = {.reply_code = AMQP_REPLY_SUCCESS};
    put_method(out, channel, AMQP_CHANNEL_CLOSE_METHOD, &close);
}

void rabbitmq_frame_heartbeat(struct buf *out)
{
    begin(out, AMQP_FRAME_HEARTBEAT, 0, 0);
    end(out);
}
