/* Quiet lanes: consumed only while this node listens. Callers set their wishes under the lock
 * (`listened`, and `hushed` for a lane to give back first); the I/O thread carries them out. It
 * gives a lane back by closing the lane's channel: then the broker queues again, in order, all
 * messages that it delivered on it without an ack, also those still on their way. The channel's
 * number can be used again when the broker has answered; until then everything that comes on it is
 * void.
 *
 * Nothing here waits for the broker. A broken connection closes all channels; the next connection
 * consumes the listened lanes again. */
#include "base/check.h"
#include "bus/rabbitmq_bus.h"

static bool is_quiet_lane(const struct bus_rabbitmq *b, size_t lane)
{
    return b->quiet >> lane & 1;
}

/* ---- callers ---- */

void rabbitmq_listen(struct bus *bus, uint16_t lane, bool on)
{
    struct bus_rabbitmq *b = CONTAINER_OF(bus, struct bus_rabbitmq, bus);
    CHECK(lane < b->topology.lanes);
    uint32_t bit = 1U << lane;
    pthread_mutex_lock(&b->lock);
    bool changes = is_quiet_lane(b, lane) && !(b->listened & bit) == on;
    if (changes) {
        b->listened ^= bit;
        b->hushed |= on ? 0 : bit;
    }
    pthread_mutex_unlock(&b->lock);
    if (changes)
        rabbitmq_io_wake(b);
}

bool rabbitmq_is_heard(const struct bus_rabbitmq *b, uint16_t lane)
{
    return !is_quiet_lane(b, lane) || ((b->listened & ~b->hushed) >> lane & 1);
}

/* ---- the I/O thread ---- */

/* Pending acks go first, so that finished messages do not come again. */
static void give_back(struct bus_rabbitmq *b, size_t lane)
{
    struct buf *out = &b->links[SIDE_IN].out;
    if (b->consumers[lane] == CONSUMER_RUNS) {
        rabbitmq_send_acks(b, lane);
        rabbitmq_frame_close_channel(out, (uint16_t)(CHANNEL_LANE + lane));
        b->consumers[lane] = CONSUMER_CLOSING;
    }
    rabbitmq_lane_lost(&b->lanes[lane]);
    b->hushed &= ~(1U << lane);
}

static void consume(struct bus_rabbitmq *b, size_t lane)
{
    rabbitmq_frame_open_consumer(&b->links[SIDE_IN].out, (uint16_t)(CHANNEL_LANE + lane),
                                 b->topology.lane[lane], (uint16_t)b->lanes[lane].prefetch);
    b->arriving[lane].state = ARRIVING_NOTHING;
    b->consumers[lane] = CONSUMER_RUNS;
}

static bool wants_consumer(const struct bus_rabbitmq *b, size_t lane)
{
    return is_quiet_lane(b, lane) && b->listened >> lane & 1 && b->consumers[lane] == CONSUMER_NONE;
}

bool rabbitmq_listen_has_work(const struct bus_rabbitmq *b)
{
    bool work = b->hushed != 0;
    for (size_t i = 0; i < b->topology.lanes; i++)
        work |= wants_consumer(b, i);
    return work;
}

void rabbitmq_listen_turn(struct bus_rabbitmq *b)
{
    for (size_t i = 0; i < b->topology.lanes; i++) {
        if (b->hushed >> i & 1)
            give_back(b, i);
        if (wants_consumer(b, i))
            consume(b, i);
    }
}

void rabbitmq_listen_lost(struct bus_rabbitmq *b)
{
    b->hushed = 0;
    for (size_t i = 0; i < b->topology.lanes; i++) {
        rabbitmq_lane_lost(&b->lanes[i]);
        b->consumers[i] = CONSUMER_NONE;
    }
}

bool rabbitmq_listen_passes(struct bus_rabbitmq *b, size_t lane, const amqp_frame_t *frame)
{
    if (!is_quiet_lane(b, lane) || b->consumers[lane] == CONSUMER_RUNS)
        return true;
    if (frame->frame_type == AMQP_FRAME_METHOD &&
        frame->payload.method.id == AMQP_CHANNEL_CLOSE_OK_METHOD)
        b->consumers[lane] = CONSUMER_NONE;
    return false;
}
