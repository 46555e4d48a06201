/* Frames are type, channel, length, payload, end mark; numbers are big-endian. A publish is three
 * of them: the method, the header that announces the body, the body. */
#include "bus/rabbitmq_frames.h"

#include <endian.h>

#include "base/check.h"

enum { FRAME_METHOD = 1, FRAME_HEADER = 2, FRAME_BODY = 3, FRAME_HEARTBEAT = 8, FRAME_END = 0xCE };
enum { CLASS_CHANNEL = 20, CHANNEL_OPEN = 10, CHANNEL_CLOSE = 40, CLOSED_NORMALLY = 200 };
enum { CLASS_QUEUE = 50, QUEUE_DECLARE = 10 };
enum { CLASS_BASIC = 60, BASIC_QOS = 10, BASIC_CONSUME = 20 };
enum { BASIC_PUBLISH = 40, BASIC_ACK = 80, BASIC_REJECT = 90 };
enum { PUBLISH_MANDATORY = 1, DECLARE_PASSIVE = 1, CONSUME_NO_WAIT = 8 };
enum { HAS_DELIVERY_MODE = 0x1000, IN_MEMORY = 1, ON_DISK = 2 };

static void put(struct buf *out, uint64_t value, size_t bytes)
{
    uint64_t big = htobe64(value);
    buf_append(out, (const char *)&big + 8 - bytes, bytes);
}

static void put_name(struct buf *out, const char *name)
{
    size_t len = strlen(name);
    CHECK(len <= RABBITMQ_NAME_MAX);
    put(out, len, 1);
    buf_append(out, name, len);
}

static void begin(struct buf *out, uint8_t type, uint16_t channel, size_t payload)
{
    put(out, type, 1);
    put(out, channel, 2);
    put(out, payload, 4);
}

static void begin_method(struct buf *out, uint16_t channel, size_t arguments, uint16_t class_id,
                         uint16_t method)
{
    begin(out, FRAME_METHOD, channel, 4 + arguments);
    put(out, class_id, 2);
    put(out, method, 2);
}

static void end(struct buf *out)
{
    put(out, FRAME_END, 1);
}

/* Mandatory: a message that finds no queue comes back instead of being confirmed and forgotten. */
void rabbitmq_route_init(struct rabbitmq_route *route, uint16_t channel, const char *exchange,
                         const char *key, bool on_disk)
{
    struct buf out = buf_over((char *)route->bytes, sizeof route->bytes);
    begin_method(&out, channel, 2 + 1 + strlen(exchange) + 1 + strlen(key) + 1, CLASS_BASIC,
                 BASIC_PUBLISH);
    put(&out, 0, 2);
    put_name(&out, exchange);
    put_name(&out, key);
    put(&out, PUBLISH_MANDATORY, 1);
    end(&out);
    begin(&out, FRAME_HEADER, channel, 2 + 2 + 8 + 2 + 1);
    put(&out, CLASS_BASIC, 2);
    put(&out, 0, 2);
    put(&out, RABBITMQ_WIRE_SIZE, 8);
    put(&out, HAS_DELIVERY_MODE, 2);
    put(&out, on_disk ? ON_DISK : IN_MEMORY, 1);
    end(&out);
    CHECK(!out.failed);
    route->len = out.len;
}

void rabbitmq_frame_publish(struct buf *out, uint16_t channel, const struct rabbitmq_route *route,
                            const uint8_t body[RABBITMQ_WIRE_SIZE])
{
    buf_append(out, route->bytes, route->len);
    begin(out, FRAME_BODY, channel, RABBITMQ_WIRE_SIZE);
    buf_append(out, body, RABBITMQ_WIRE_SIZE);
    end(out);
}

void rabbitmq_frame_ack(struct buf *out, uint16_t channel, uint64_t delivery, bool multiple)
{
    begin_method(out, channel, 8 + 1, CLASS_BASIC, BASIC_ACK);
    put(out, delivery, 8);
    put(out, multiple, 1);
    end(out);
}

void rabbitmq_frame_refuse(struct buf *out, uint16_t channel, uint64_t delivery)
{
    begin_method(out, channel, 8 + 1, CLASS_BASIC, BASIC_REJECT);
    put(out, delivery, 8);
    put(out, 0, 1); /* not to be queued again */
    end(out);
}

void rabbitmq_frame_ask_count(struct buf *out, uint16_t channel, const char *queue)
{
    begin_method(out, channel, 2 + 1 + strlen(queue) + 1 + 4, CLASS_QUEUE, QUEUE_DECLARE);
    put(out, 0, 2);
    put_name(out, queue);
    put(out, DECLARE_PASSIVE, 1);
    put(out, 0, 4); /* no arguments */
    end(out);
}

void rabbitmq_frame_open_consumer(struct buf *out, uint16_t channel, const char *queue,
                                  uint16_t prefetch)
{
    begin_method(out, channel, 1, CLASS_CHANNEL, CHANNEL_OPEN);
    put_name(out, "");
    end(out);
    begin_method(out, channel, 4 + 2 + 1, CLASS_BASIC, BASIC_QOS);
    put(out, 0, 4);
    put(out, prefetch, 2);
    put(out, 0, 1);
    end(out);
    /* Without an answer, the consumer needs a name of ours: any, on a channel of its own. */
    begin_method(out, channel, 2 + 1 + strlen(queue) + 1 + strlen(queue) + 1 + 4, CLASS_BASIC,
                 BASIC_CONSUME);
    put(out, 0, 2);
    put_name(out, queue);
    put_name(out, queue);
    put(out, CONSUME_NO_WAIT, 1);
    put(out, 0, 4); /* no arguments */
    end(out);
}

void rabbitmq_frame_close_channel(struct buf *out, uint16_t channel)
{
    begin_method(out, channel, 2 + 1 + 2 + 2, CLASS_CHANNEL, CHANNEL_CLOSE);
    put(out, CLOSED_NORMALLY, 2);
    put_name(out, "");
    put(out, 0, 2);
    put(out, 0, 2);
    end(out);
}

void rabbitmq_frame_heartbeat(struct buf *out)
{
    begin(out, FRAME_HEARTBEAT, 0, 0);
    end(out);
}
