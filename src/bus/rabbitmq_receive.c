/* What the frames mean that the broker sends: confirms, counts and blocks on the way out, messages
 * on the way in. Nothing that a broker or another publisher can send may harm: numbers that were
 * never given out settle nothing, and messages that cannot be read go to the dead letters. */
#include "base/log.h"
#include "bus/rabbitmq_bus.h"

enum { REFUSED_LOG_EVERY_US = 10 * 1000 * 1000 };

/* ---- on the way out ---- */

static void settle(struct bus_rabbitmq *b, uint64_t number, bool multiple, bool safe)
{
    struct rabbitmq_parcel *p;
    LOCK_SCOPE(&b->lock);
    while ((p = rabbitmq_window_settle(&b->window, number, multiple))) {
        if (!safe) {
            rabbitmq_window_again(&b->window, p);
            continue;
        }
        struct rabbitmq_lane *l = &b->lanes[p->message.lane];
        if (p->forwarded) {
            struct lane_slot *s = lane_queue_find(&l->queue, p->message.tag, SLOT_LEAVING);
            if (s)
                rabbitmq_lane_release(l, s);
        } else {
            l->confirmed++;
        }
        rabbitmq_window_drop(&b->window, p);
    }
    b->progress_us = rabbitmq_mono_us();
    if (b->room_waiters)
        pthread_cond_broadcast(&b->room);
}

static void counted(struct bus_rabbitmq *b, const amqp_queue_declare_ok_t *reply)
{
    struct str name = {reply->queue.bytes, reply->queue.len};
    LOCK_SCOPE(&b->lock);
    for (size_t i = 0; i < b->topology.lanes; i++) {
        if (str_eq(name, str_of(b->topology.lane[i])))
            rabbitmq_lane_counted(&b->lanes[i], reply->message_count,
                                  rabbitmq_window_count(&b->window, (uint16_t)i));
    }
}

void rabbitmq_receive_out(struct bus_rabbitmq *b, const amqp_frame_t *frame)
{
    if (frame->frame_type != AMQP_FRAME_METHOD)
        return;
    switch (frame->payload.method.id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *m = frame->payload.method.decoded;
        settle(b, m->delivery_tag, m->multiple, true);
        break;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *m = frame->payload.method.decoded;
        settle(b, m->delivery_tag, m->multiple, false);
        break;
    }
    case AMQP_QUEUE_DECLARE_OK_METHOD:
        counted(b, frame->payload.method.decoded);
        break;
    case AMQP_CONNECTION_BLOCKED_METHOD:
        log_warn("the message broker wants no more messages for now", LOG_CSTR("side", "publish"));
        b->links[SIDE_OUT].blocked = true;
        break;
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
        log_info("the message broker takes messages again", LOG_CSTR("side", "publish"));
        b->links[SIDE_OUT].blocked = false;
        break;
    default:
        break;
    }
}

/* ---- on the way in ---- */

/* A message that came back from a delay queue before its time waits for the rest, in the next step
 * that fits or here. False: the broker disregards the prefetch. */
static bool hold(struct bus_rabbitmq *b, size_t lane, uint64_t delivery,
                 const struct bus_message *m, int64_t due_ms)
{
    struct rabbitmq_lane *l = &b->lanes[lane];
    int64_t now_us = clock_mono_us(b->clock);
    int64_t early_ms = due_ms ? due_ms - clock_wall_ms(b->clock) : 0;
    LOCK_SCOPE(&b->lock);
    struct lane_slot *s = rabbitmq_lane_deliver(l, delivery, m);
    if (s && early_ms > 0) {
        int64_t early_us = early_ms < INT64_MAX / 4000 ? early_ms * 1000 : INT64_MAX / 4;
        int step = rabbitmq_topology_step(early_us);
        if (step < 0 || !rabbitmq_forward(b, l, s, step, now_us, due_ms))
            lane_queue_delay(&l->queue, s, now_us + early_us);
        b->woken |= 1U << lane;
    } else if (s) {
        if (atomic_load(&l->queue.ready) == 0)
            b->woken |= 1U << lane;
        lane_queue_make_ready(&l->queue, s);
    }
    return s != NULL;
}

static void refuse(struct bus_rabbitmq *b, size_t lane, uint64_t delivery)
{
    b->refused++;
    if (rabbitmq_mono_us() >= b->refused_log_after_us) {
        b->refused_log_after_us = rabbitmq_mono_us() + REFUSED_LOG_EVERY_US;
        log_warn("messages that cannot be read go to the dead letters",
                 LOG_CSTR("queue", b->topology.lane[lane]), LOG_INT("so_far", b->refused));
    }
    rabbitmq_frame_refuse(&b->links[SIDE_IN].out, (uint16_t)(CHANNEL_LANE + lane), delivery);
    LOCK_SCOPE(&b->lock);
    b->lanes[lane].at_broker--;
    b->lanes[lane].acts++;
}

static bool arrived(struct bus_rabbitmq *b, size_t lane)
{
    struct rabbitmq_arriving *a = &b->arriving[lane];
    struct bus_message m;
    int64_t due_ms;
    a->state = ARRIVING_NOTHING;
    if (a->size <= sizeof a->bytes && rabbitmq_wire_read(a->bytes, a->size, &m, &due_ms))
        return hold(b, lane, a->delivery, &m, due_ms);
    refuse(b, lane, a->delivery);
    return true;
}

bool rabbitmq_receive_in(struct bus_rabbitmq *b, const amqp_frame_t *frame)
{
    size_t lane = (size_t)frame->channel - CHANNEL_LANE;
    if (frame->channel < CHANNEL_LANE || lane >= b->topology.lanes)
        return true;
    if (!rabbitmq_listen_passes(b, lane, frame))
        return true;
    struct rabbitmq_arriving *a = &b->arriving[lane];
    if (frame->frame_type == AMQP_FRAME_METHOD &&
        frame->payload.method.id == AMQP_BASIC_DELIVER_METHOD) {
        const amqp_basic_deliver_t *m = frame->payload.method.decoded;
        a->state = ARRIVING_HEADER;
        a->delivery = m->delivery_tag;
    } else if (frame->frame_type == AMQP_FRAME_HEADER && a->state == ARRIVING_HEADER) {
        a->state = ARRIVING_BODY;
        a->size = frame->payload.properties.body_size;
        a->got = 0;
        if (a->size == 0)
            return arrived(b, lane);
    } else if (frame->frame_type == AMQP_FRAME_BODY && a->state == ARRIVING_BODY) {
        amqp_bytes_t part = frame->payload.body_fragment;
        if (a->got + part.len <= sizeof a->bytes)
            memcpy(a->bytes + a->got, part.bytes, part.len);
        a->got += part.len;
        if (a->got >= a->size)
            return arrived(b, lane);
    }
    return true;
}
