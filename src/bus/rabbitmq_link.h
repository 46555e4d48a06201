/* One connection to the broker, used by one thread. Setting it up waits (with limits); from then on
 * nothing does: frames to send gather in `out`, flush writes what the socket takes, next reads what
 * is there. */
#pragma once

#include <amqp.h>

#include "base/buf.h"
#include "bus/rabbitmq_topology.h"

enum { RABBITMQ_OUT_MAX = 4 << 20, RABBITMQ_OUT_ENOUGH = 256 << 10 };

/* Where the broker is and who we are there; what `info` points at lies in `text`. */
struct rabbitmq_address {
    char *text;
    struct amqp_connection_info info;
    uint32_t heartbeat_s;
};

enum err rabbitmq_address_init(struct rabbitmq_address *a, const char *url, uint32_t heartbeat_s,
                               char detail[RABBITMQ_DETAIL_SIZE]);
void rabbitmq_address_done(struct rabbitmq_address *a);

struct rabbitmq_link {
    amqp_connection_state_t connection; /* NULL: none */
    int fd;
    struct buf out;
    size_t out_sent;
    int64_t heartbeat_us;
    int64_t heard_us, spoke_us;
    bool blocked; /* the broker asked us not to publish for now */
};

/* Connects and logs in; `name` is what the broker shows. On failure the link stays closed. */
enum err rabbitmq_link_open(struct rabbitmq_link *link, const struct rabbitmq_address *a,
                            const char *name, char detail[RABBITMQ_DETAIL_SIZE]);
/* politely: tells the broker, and waits for its answer for a moment. */
void rabbitmq_link_close(struct rabbitmq_link *link, bool politely);
static inline bool rabbitmq_link_is_open(const struct rabbitmq_link *link)
{
    return link->connection != NULL;
}

/* The broker's words when it closes a connection or a channel; NULL: that is another method. */
const amqp_channel_close_t *rabbitmq_link_closing(const amqp_method_t *method);

/* While setting up: makes an enum err of how the last call went, and says it in words. */
enum err rabbitmq_link_outcome(struct rabbitmq_link *link, const char *what,
                               char detail[RABBITMQ_DETAIL_SIZE]);

/* False: the connection is broken. */
bool rabbitmq_link_flush(struct rabbitmq_link *link, int64_t now_us);
static inline bool rabbitmq_link_has_out(const struct rabbitmq_link *link)
{
    return link->out.len > link->out_sent;
}
/* 1: a frame; 0: none there; -1: the connection is broken. A frame lives until rabbitmq_link_read.
 */
int rabbitmq_link_next(struct rabbitmq_link *link, amqp_frame_t *frame);
/* All frames so far were looked at. */
void rabbitmq_link_read(struct rabbitmq_link *link);

/* Speaks when it is time to. */
void rabbitmq_link_beat(struct rabbitmq_link *link, int64_t now_us);
/* Nothing has come for too long. To be asked after reading, not after a time without a look. */
bool rabbitmq_link_is_silent(const struct rabbitmq_link *link, int64_t now_us);
int64_t rabbitmq_link_next_beat_us(const struct rabbitmq_link *link);
