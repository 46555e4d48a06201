/* The I/O thread of the RabbitMQ driver: the only one that touches the two connections. Each turn
 * it encodes waiting frames (under the lock), flushes what the sockets take, sleeps until there is
 * work, and reads what has come. When a connection breaks, it first puts messages under way back
 * (the window sends again, the lanes forget) and then connects again, after a pause that doubles
 * and is jittered, so that many nodes do not come back at once. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/sync.h"
#include "bus/rabbitmq_bus.h"

enum { ASK_EVERY_US = 1000 * 1000, LOG_EVERY_US = 10 * 1000 * 1000 };
enum { STOP_WITHIN_US = 1000 * 1000, STOP_LOOK_US = 10 * 1000 };
enum { PAUSE_FIRST_US = 100 * 1000, PAUSE_MAX_US = 1000 * 1000 };
enum { FRAMES_A_TURN = 4096, FRAMES_A_RELEASE = 256 };

static void wake_now(struct bus_rabbitmq *b)
{
    uint64_t one = 1;
    ssize_t n = write(b->wake_fd, &one, sizeof one);
    (void)n; /* it can only fail when enough of them are there already */
}

void rabbitmq_io_wake(struct bus_rabbitmq *b)
{
    if (atomic_load(&b->asleep) && atomic_exchange(&b->asleep, false))
        wake_now(b);
}

/* ---- opening ---- */

static enum err open_out(struct bus_rabbitmq *b, char detail[RABBITMQ_DETAIL_SIZE])
{
    struct rabbitmq_link *link = &b->links[SIDE_OUT];
    uint32_t ready[BUS_LANES_MAX];
    if (!amqp_channel_open(link->connection, CHANNEL_PUBLISH) ||
        !rabbitmq_topology_declare(&b->topology, link->connection, CHANNEL_PUBLISH, ready) ||
        !amqp_confirm_select(link->connection, CHANNEL_PUBLISH) ||
        !amqp_channel_open(link->connection, CHANNEL_ASK))
        return rabbitmq_link_outcome(link, "RabbitMQ", detail);
    LOCK_SCOPE(&b->lock);
    for (size_t i = 0; i < b->topology.lanes; i++)
        b->lanes[i].at_broker =
            (int64_t)(ready[i] + rabbitmq_window_count(&b->window, (uint16_t)i));
    b->progress_us = rabbitmq_mono_us();
    return OK;
}

/* Quiet lanes come later, when they are listened to. */
static bool is_consumed(const struct bus_rabbitmq *b, size_t lane)
{
    return !b->publish_only && !(b->quiet >> lane & 1);
}

static bool consume(struct bus_rabbitmq *b, size_t lane)
{
    amqp_connection_state_t c = b->links[SIDE_IN].connection;
    amqp_channel_t channel = (amqp_channel_t)(CHANNEL_LANE + lane);
    b->arriving[lane].state = ARRIVING_NOTHING;
    return amqp_channel_open(c, channel) &&
           amqp_basic_qos(c, channel, 0, (uint16_t)b->lanes[lane].prefetch, 0) &&
           amqp_basic_consume(c, channel, amqp_cstring_bytes(b->topology.lane[lane]),
                              amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
}

static enum err open_in(struct bus_rabbitmq *b, char detail[RABBITMQ_DETAIL_SIZE])
{
    struct rabbitmq_link *link = &b->links[SIDE_IN];
    uint32_t ready[BUS_LANES_MAX];
    if (!amqp_channel_open(link->connection, CHANNEL_DECLARE) ||
        !rabbitmq_topology_declare(&b->topology, link->connection, CHANNEL_DECLARE, ready))
        return rabbitmq_link_outcome(link, "RabbitMQ", detail);
    for (size_t i = 0; i < b->topology.lanes; i++) {
        if (is_consumed(b, i) && !consume(b, i))
            return rabbitmq_link_outcome(link, "RabbitMQ", detail);
    }
    return OK;
}

static enum err open_side(struct bus_rabbitmq *b, enum rabbitmq_side side,
                          char detail[RABBITMQ_DETAIL_SIZE])
{
    char name[96];
    snprintf(name, sizeof name, "%s (%s)", b->node, side == SIDE_OUT ? "publishes" : "takes");
    TRY(rabbitmq_link_open(&b->links[side], &b->address, name, detail));
    enum err e = side == SIDE_OUT ? open_out(b, detail) : open_in(b, detail);
    if (e) {
        rabbitmq_link_close(&b->links[side], false);
        return e;
    }
    b->unread[side] = true;
    LOCK_SCOPE(&b->lock);
    b->is_open[side] = true;
    return OK;
}

static bool side_is_used(const struct bus_rabbitmq *b, enum rabbitmq_side side)
{
    return side == SIDE_OUT || rabbitmq_takes(b);
}

static void init_routes(struct bus_rabbitmq *b)
{
    const struct rabbitmq_topology *t = &b->topology;
    for (size_t i = 0; i < t->lanes; i++) {
        bool on_disk = !(t->transient >> i & 1);
        rabbitmq_route_init(&b->routes[i].lane, CHANNEL_PUBLISH, "", t->lane[i], on_disk);
        for (int s = 0; s < RABBITMQ_STEPS; s++)
            rabbitmq_route_init(&b->routes[i].delay[s], CHANNEL_PUBLISH, t->delay[s], t->lane[i],
                                on_disk);
    }
}

enum err rabbitmq_io_connect(struct bus_rabbitmq *b, char detail[RABBITMQ_DETAIL_SIZE])
{
    init_routes(b);
    rand_seed(&b->rand, (uint64_t)rabbitmq_mono_us() ^ (uint64_t)getpid() << 32);
    for (enum rabbitmq_side side = 0; side < SIDE_COUNT; side++) {
        if (!side_is_used(b, side))
            continue;
        enum err e = open_side(b, side, detail);
        if (e) {
            rabbitmq_link_close(&b->links[SIDE_OUT], false);
            return e;
        }
    }
    return OK;
}

/* ---- breaking and coming back ---- */

static const char *side_name(enum rabbitmq_side side)
{
    return side == SIDE_OUT ? "publish" : "take";
}

static void pause_side(struct bus_rabbitmq *b, enum rabbitmq_side side)
{
    int64_t half_us = PAUSE_FIRST_US / 2;
    for (unsigned i = 0; i < b->failures[side] && half_us < PAUSE_MAX_US / 2; i++)
        half_us *= 2;
    if (half_us > PAUSE_MAX_US / 2)
        half_us = PAUSE_MAX_US / 2;
    b->retry_us[side] =
        rabbitmq_mono_us() + half_us + (int64_t)rand_below(&b->rand, (uint64_t)half_us);
    b->failures[side]++;
}

static void side_broke(struct bus_rabbitmq *b, enum rabbitmq_side side, const char *why)
{
    log_warn("a connection to the message broker broke", LOG_CSTR("side", side_name(side)),
             LOG_CSTR("reason", why));
    rabbitmq_link_close(&b->links[side], false);
    b->failures[side] = 0;
    pause_side(b, side);
    LOCK_SCOPE(&b->lock);
    b->is_open[side] = false;
    if (side == SIDE_OUT)
        rabbitmq_window_lost(&b->window);
    else
        rabbitmq_listen_lost(b);
}

static void come_back(struct bus_rabbitmq *b, enum rabbitmq_side side)
{
    char detail[RABBITMQ_DETAIL_SIZE];
    enum err e = open_side(b, side, detail);
    if (e) {
        pause_side(b, side);
        if (b->failures[side] == 2 || rabbitmq_mono_us() >= b->log_after_us) {
            b->log_after_us = rabbitmq_mono_us() + LOG_EVERY_US;
            log_warn("the message broker cannot be reached", LOG_CSTR("error", err_name(e)),
                     LOG_CSTR("reason", detail));
        }
        return;
    }
    log_info("connected to the message broker again", LOG_CSTR("side", side_name(side)),
             LOG_INT("tries", b->failures[side]));
    b->failures[side] = 0;
    LOCK_SCOPE(&b->lock);
    b->reconnects++;
}

/* ---- sending ---- */

void rabbitmq_send_acks(struct bus_rabbitmq *b, size_t lane)
{
    uint64_t delivery;
    bool multiple;
    while (rabbitmq_lane_next_ack(&b->lanes[lane], &delivery, &multiple))
        rabbitmq_frame_ack(&b->links[SIDE_IN].out, (uint16_t)(CHANNEL_LANE + lane), delivery,
                           multiple);
}

static void send_parcels(struct bus_rabbitmq *b)
{
    struct rabbitmq_link *link = &b->links[SIDE_OUT];
    struct rabbitmq_parcel *p;
    uint8_t bytes[RABBITMQ_WIRE_SIZE];
    while (link->out.len < RABBITMQ_OUT_ENOUGH && (p = rabbitmq_window_send(&b->window))) {
        const struct rabbitmq_routes *routes = &b->routes[p->message.lane];
        rabbitmq_wire_write(&p->message, p->due_ms, bytes);
        rabbitmq_frame_publish(&link->out, CHANNEL_PUBLISH,
                               p->step < 0 ? &routes->lane : &routes->delay[p->step], bytes);
    }
}

static void ask_counts(struct bus_rabbitmq *b)
{
    struct rabbitmq_link *link = &b->links[SIDE_OUT];
    if (!rabbitmq_link_is_open(link) || link->blocked || rabbitmq_link_has_out(link))
        return;
    LOCK_SCOPE(&b->lock);
    for (size_t i = 0; i < b->topology.lanes; i++) {
        struct rabbitmq_lane *l = &b->lanes[i];
        l->acts_before = l->acts_at_ask;
        l->acts_at_ask = l->acts;
        rabbitmq_frame_ask_count(&link->out, CHANNEL_ASK, b->topology.lane[i]);
    }
}

/* A link whose broker does not read gets nothing more to say until it has been heard. */
static void encode(struct bus_rabbitmq *b, bool all_acks)
{
    struct rabbitmq_link *out = &b->links[SIDE_OUT], *in = &b->links[SIDE_IN];
    LOCK_SCOPE(&b->lock);
    if (rabbitmq_link_is_open(in) && in->out.len < RABBITMQ_OUT_ENOUGH) {
        rabbitmq_listen_turn(b);
        for (size_t i = 0; i < b->topology.lanes; i++)
            if (all_acks || rabbitmq_acks_are_urgent(&b->lanes[i]))
                rabbitmq_send_acks(b, i);
    }
    if (rabbitmq_link_is_open(out) && !out->blocked)
        send_parcels(b);
}

static void flush(struct bus_rabbitmq *b, int64_t now_us)
{
    for (enum rabbitmq_side side = 0; side < SIDE_COUNT; side++) {
        struct rabbitmq_link *link = &b->links[side];
        if (!rabbitmq_link_is_open(link))
            continue;
        rabbitmq_link_beat(link, now_us);
        if (!rabbitmq_link_flush(link, now_us))
            side_broke(b, side, "cannot send");
    }
}

/* ---- receiving ---- */

/* Why the broker closes; NULL: this frame does not close anything. */
static const char *closing(const amqp_frame_t *frame, char text[RABBITMQ_DETAIL_SIZE])
{
    if (frame->frame_type != AMQP_FRAME_METHOD)
        return NULL;
    if (frame->payload.method.id == AMQP_BASIC_CANCEL_METHOD ||
        frame->payload.method.id == AMQP_BASIC_RETURN_METHOD)
        return "a queue is gone";
    const amqp_channel_close_t *m = rabbitmq_link_closing(&frame->payload.method);
    if (!m)
        return NULL;
    snprintf(text, RABBITMQ_DETAIL_SIZE, "%.*s", (int)m->reply_text.len,
             (const char *)m->reply_text.bytes);
    return text;
}

/* A bounded number of frames; those left over are read in the next turn. */
static void read_side(struct bus_rabbitmq *b, enum rabbitmq_side side)
{
    struct rabbitmq_link *link = &b->links[side];
    amqp_frame_t frame;
    char text[RABBITMQ_DETAIL_SIZE];
    b->unread[side] = false;
    for (int n = 1; n <= FRAMES_A_TURN; n++) {
        int got = rabbitmq_link_next(link, &frame);
        const char *why = got < 0 ? "the connection is closed" : NULL;
        if (got > 0)
            why = closing(&frame, text);
        if (got > 0 && !why && side == SIDE_OUT)
            rabbitmq_receive_out(b, &frame);
        else if (got > 0 && !why && !rabbitmq_receive_in(b, &frame))
            why = "the broker sent more than it was asked for";
        if (why) {
            side_broke(b, side, why);
            return;
        }
        if (got == 0)
            break;
        if (n % FRAMES_A_RELEASE == 1) /* between two frames, which the end may not be */
            rabbitmq_link_read(link);
        b->unread[side] = n == FRAMES_A_TURN;
    }
    rabbitmq_link_read(link);
}

static void tell_takers(struct bus_rabbitmq *b)
{
    uint32_t woken = b->woken;
    b->woken = 0;
    for (uint16_t lane = 0; woken && b->on_ready; lane++, woken >>= 1) {
        if (woken & 1)
            b->on_ready(b->context, lane);
    }
}

/* ---- turns ---- */

static bool has_work(struct bus_rabbitmq *b)
{
    struct rabbitmq_link *out = &b->links[SIDE_OUT], *in = &b->links[SIDE_IN];
    bool work = b->unread[SIDE_OUT] || b->unread[SIDE_IN];
    LOCK_SCOPE(&b->lock);
    if (rabbitmq_link_is_open(out) && !out->blocked && out->out.len < RABBITMQ_OUT_ENOUGH)
        work |= rabbitmq_window_has_waiting(&b->window);
    if (rabbitmq_link_is_open(in) && in->out.len < RABBITMQ_OUT_ENOUGH) {
        work |= rabbitmq_listen_has_work(b);
        for (size_t i = 0; i < b->topology.lanes; i++)
            work |= rabbitmq_acks_are_urgent(&b->lanes[i]);
    }
    return work;
}

static int sleep_ms(struct bus_rabbitmq *b)
{
    int64_t until_us = b->ask_us;
    for (enum rabbitmq_side side = 0; side < SIDE_COUNT; side++) {
        int64_t next_us = rabbitmq_link_is_open(&b->links[side])
                              ? rabbitmq_link_next_beat_us(&b->links[side])
                              : b->retry_us[side];
        if (side_is_used(b, side) && next_us < until_us)
            until_us = next_us;
    }
    int64_t left_us = until_us - rabbitmq_mono_us();
    return left_us <= 0 ? 0 : (int)(left_us / 1000 + 1);
}

/* `asleep` is set before the last look for work: a thread that adds work after that look sees it.
 */
static void sleep_and_read(struct bus_rabbitmq *b)
{
    struct pollfd fds[1 + SIDE_COUNT] = {{.fd = b->wake_fd, .events = POLLIN}};
    for (enum rabbitmq_side side = 0; side < SIDE_COUNT; side++) {
        struct rabbitmq_link *link = &b->links[side];
        bool open = rabbitmq_link_is_open(link);
        fds[1 + side] = (struct pollfd){
            .fd = open ? link->fd : -1,
            .events = (short)(POLLIN | (open && rabbitmq_link_has_out(link) ? POLLOUT : 0))};
    }
    atomic_store(&b->asleep, true);
    int timeout_ms = has_work(b) ? 0 : sleep_ms(b);
    int n = poll(fds, COUNT_OF(fds), timeout_ms);
    atomic_store(&b->asleep, false);
    uint64_t count;
    if (n > 0 && (fds[0].revents & POLLIN) && read(b->wake_fd, &count, sizeof count) < 0)
        CHECK(errno == EAGAIN || errno == EINTR);
    int64_t now_us = rabbitmq_mono_us();
    for (enum rabbitmq_side side = 0; side < SIDE_COUNT; side++) {
        bool heard = n > 0 && (fds[1 + side].revents & (POLLIN | POLLHUP | POLLERR));
        if (!rabbitmq_link_is_open(&b->links[side]))
            continue;
        if (heard)
            b->links[side].heard_us = now_us;
        if (heard || b->unread[side])
            read_side(b, side);
        else if (rabbitmq_link_is_silent(&b->links[side], now_us))
            side_broke(b, side, "the broker is silent");
    }
    tell_takers(b);
}

static void keep_open(struct bus_rabbitmq *b)
{
    for (enum rabbitmq_side side = 0; side < SIDE_COUNT; side++) {
        if (side_is_used(b, side) && !rabbitmq_link_is_open(&b->links[side]) &&
            rabbitmq_mono_us() >= b->retry_us[side])
            come_back(b, side);
    }
}

/* Nothing is left that the broker should know. */
static bool all_is_said(struct bus_rabbitmq *b)
{
    LOCK_SCOPE(&b->lock);
    bool said = !b->is_open[SIDE_OUT] || b->window.in_use == 0;
    for (size_t i = 0; i < b->topology.lanes && b->is_open[SIDE_IN]; i++)
        said &= b->lanes[i].acks_count == 0;
    for (enum rabbitmq_side side = 0; side < SIDE_COUNT; side++)
        said &= !rabbitmq_link_is_open(&b->links[side]) || !rabbitmq_link_has_out(&b->links[side]);
    return said;
}

static bool is_stopping(struct bus_rabbitmq *b)
{
    LOCK_SCOPE(&b->lock);
    return b->stopping;
}

static void turn(struct bus_rabbitmq *b)
{
    int64_t now_us = rabbitmq_mono_us();
    bool ask = now_us >= b->ask_us;
    if (ask) {
        b->ask_us = now_us + ASK_EVERY_US;
        ask_counts(b);
    }
    encode(b, ask);
    flush(b, now_us);
    sleep_and_read(b);
}

/* Sends accepted messages and acks finished ones, unless the broker takes too long. */
static void last_turns(struct bus_rabbitmq *b)
{
    int64_t end_us = rabbitmq_mono_us() + STOP_WITHIN_US;
    for (int64_t now_us; (now_us = rabbitmq_mono_us()) < end_us;) {
        encode(b, true);
        flush(b, now_us);
        if (all_is_said(b))
            break;
        b->ask_us = now_us + STOP_LOOK_US; /* nothing is asked any more: it only ends the sleep */
        sleep_and_read(b);
    }
}

static void *io_main(void *arg)
{
    struct bus_rabbitmq *b = arg;
    while (!is_stopping(b)) {
        keep_open(b);
        turn(b);
    }
    last_turns(b);
    for (enum rabbitmq_side side = 0; side < SIDE_COUNT; side++)
        rabbitmq_link_close(&b->links[side], true);
    return NULL;
}

enum err rabbitmq_io_start(struct bus_rabbitmq *b)
{
    if (thread_start(&b->thread, "bus", io_main, b))
        return OK;
    for (enum rabbitmq_side side = 0; side < SIDE_COUNT; side++)
        rabbitmq_link_close(&b->links[side], false);
    return ERR_UNAVAILABLE;
}

void rabbitmq_io_stop(struct bus_rabbitmq *b)
{
    pthread_mutex_lock(&b->lock);
    b->stopping = true;
    pthread_mutex_unlock(&b->lock);
    wake_now(b);
    thread_join(&b->thread);
}
