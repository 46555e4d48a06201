/* The bus port over RabbitMQ: the callers' side, all of it in memory and under one lock. The I/O
 * thread (rabbitmq_io.c) does the network, and callers do not wait for it, with one exception: a
 * publisher that finds the window full while confirms are coming in waits ROOM_WAIT_MS at most.
 *
 * A retry with a short delay stays here, unacked, until it is due. A longer one travels: a copy
 * goes to the delay queue of the longest step that fits, carrying its time, and the node that takes
 * it from the lane afterwards delays the rest in the same way. So no retry comes early, and it is
 * late by no more than it would be in memory. Retries that wait here take room that the broker
 * would fill with fresh messages; when they hold half of it, further ones travel by the first step,
 * however short their delay. */
#include "bus/rabbitmq.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/sync.h"
#include "bus/rabbitmq_bus.h"

enum { ROOM_WAIT_MS = 5, STALLED_US = 50 * 1000 };
enum { PREFETCH = 20, HEARTBEAT_S = 5, HEARTBEAT_MAX_S = 600 };

static struct bus_rabbitmq *of(struct bus *b)
{
    return CONTAINER_OF(b, struct bus_rabbitmq, bus);
}

static struct rabbitmq_lane *lane_of(struct bus_rabbitmq *b, uint16_t lane)
{
    CHECK(lane < b->topology.lanes);
    return &b->lanes[lane];
}

/* ---- publishing ---- */

static void wait_for_room(struct bus_rabbitmq *b)
{
    struct timespec until = cond_deadline(ROOM_WAIT_MS);
    b->room_waiters++;
    pthread_cond_timedwait(&b->room, &b->lock, &until);
    b->room_waiters--;
}

/* Under the lock, which a wait lets go of: so the limit is looked at after it. */
static enum err may_publish(struct bus_rabbitmq *b, struct rabbitmq_lane *l, bool force)
{
    if (b->window.own >= RABBITMQ_WINDOW && b->is_open[SIDE_OUT] &&
        rabbitmq_mono_us() - b->progress_us < STALLED_US)
        wait_for_room(b);
    if (b->stopping)
        return ERR_STOPPING;
    if (b->window.own >= RABBITMQ_WINDOW)
        return b->is_open[SIDE_OUT] ? ERR_OVERLOADED : ERR_UNAVAILABLE;
    if (!force && rabbitmq_lane_holds(l, clock_mono_us(b->clock)) >= l->limit)
        return ERR_OVERLOADED;
    return OK;
}

static enum err rabbitmq_publish(struct bus *bus, const struct bus_message *m, bool force)
{
    struct bus_rabbitmq *b = of(bus);
    struct rabbitmq_lane *l = lane_of(b, m->lane);
    pthread_mutex_lock(&b->lock);
    enum err e = may_publish(b, l, force);
    struct rabbitmq_parcel *p = e ? NULL : rabbitmq_window_add(&b->window, false);
    if (p) {
        if (b->window.in_use == 1)
            b->progress_us = rabbitmq_mono_us();
        p->message = *m;
        p->due_ms = 0;
        p->step = -1;
        l->published++;
        l->at_broker++;
        l->acts++;
    } else if (!e) {
        e = ERR_OVERLOADED;
    }
    pthread_mutex_unlock(&b->lock);
    if (!e)
        rabbitmq_io_wake(b);
    return e;
}

/* ---- taking ---- */

static bool rabbitmq_take(struct bus *bus, uint16_t lane, int64_t now_us, struct bus_message *out)
{
    struct bus_rabbitmq *b = of(bus);
    struct rabbitmq_lane *l = lane_of(b, lane);
    if (atomic_load(&l->queue.ready) == 0 && atomic_load(&l->queue.due_us) > now_us)
        return false;
    pthread_mutex_lock(&b->lock);
    bool found = rabbitmq_is_heard(b, lane) && lane_queue_take(&l->queue, now_us, out);
    bool urgent = rabbitmq_acks_are_urgent(l);
    pthread_mutex_unlock(&b->lock);
    if (urgent)
        rabbitmq_io_wake(b);
    return found;
}

static void rabbitmq_ack(struct bus *bus, const struct bus_message *m)
{
    struct bus_rabbitmq *b = of(bus);
    struct rabbitmq_lane *l = lane_of(b, m->lane);
    pthread_mutex_lock(&b->lock);
    struct lane_slot *s = lane_queue_find(&l->queue, m->tag, SLOT_TAKEN);
    if (s) {
        rabbitmq_lane_release(l, s);
        l->acked++;
    }
    bool urgent = rabbitmq_acks_are_urgent(l);
    pthread_mutex_unlock(&b->lock);
    if (urgent)
        rabbitmq_io_wake(b);
}

bool rabbitmq_forward(struct bus_rabbitmq *b, struct rabbitmq_lane *l, struct lane_slot *s,
                      int step, int64_t now_us, int64_t due_ms)
{
    struct rabbitmq_parcel *p = rabbitmq_window_add(&b->window, true);
    if (!p)
        return false;
    p->message = s->message;
    p->due_ms = due_ms;
    p->step = step;
    rabbitmq_lane_leave(l, s, now_us, rabbitmq_step_s[step] * INT64_C(1000000));
    return true;
}

static void rabbitmq_retry(struct bus *bus, const struct bus_message *m, int64_t not_before_us)
{
    struct bus_rabbitmq *b = of(bus);
    struct rabbitmq_lane *l = lane_of(b, m->lane);
    int64_t now_us = clock_mono_us(b->clock);
    int64_t delay_us = not_before_us > now_us ? not_before_us - now_us : 0;
    int64_t due_ms = clock_wall_ms(b->clock) + delay_us / 1000 + 2; /* both are rounded down */
    pthread_mutex_lock(&b->lock);
    struct lane_slot *s = lane_queue_find(&l->queue, m->tag, SLOT_TAKEN);
    if (s) {
        l->retried++;
        s->message = *m;
        if (s->message.tries < UINT16_MAX)
            s->message.tries++;
        int step = rabbitmq_topology_step(delay_us);
        if (step < 0 && l->queue.heap_count >= (l->prefetch + 1) / 2)
            step = 0;
        if (step < 0 || !rabbitmq_forward(b, l, s, step, now_us, due_ms))
            lane_queue_delay(&l->queue, s, not_before_us);
    }
    pthread_mutex_unlock(&b->lock);
    if (s)
        rabbitmq_io_wake(b);
}

/* ---- looking ---- */

static int64_t rabbitmq_next_due_us(struct bus *bus, uint16_t lane)
{
    return atomic_load(&lane_of(of(bus), lane)->queue.due_us);
}

static void rabbitmq_stats(struct bus *bus, uint16_t lane, struct bus_lane_stats *out)
{
    struct bus_rabbitmq *b = of(bus);
    struct rabbitmq_lane *l = lane_of(b, lane);
    LOCK_SCOPE(&b->lock);
    rabbitmq_lane_stats(l, clock_mono_us(b->clock), out);
    out->reconnects = b->reconnects;
}

static bool rabbitmq_is_connected(struct bus *bus)
{
    struct bus_rabbitmq *b = of(bus);
    LOCK_SCOPE(&b->lock);
    return b->is_open[SIDE_OUT] && (b->is_open[SIDE_IN] || !rabbitmq_takes(b));
}

/* ---- life ---- */

static void release(struct bus_rabbitmq *b)
{
    for (size_t i = 0; i < b->topology.lanes && b->lanes; i++)
        rabbitmq_lane_done(&b->lanes[i]);
    free(b->lanes);
    rabbitmq_window_done(&b->window);
    rabbitmq_address_done(&b->address);
    pthread_cond_destroy(&b->room);
    pthread_mutex_destroy(&b->lock);
    if (b->wake_fd >= 0)
        close(b->wake_fd);
    free(b);
}

static void rabbitmq_free(struct bus *bus)
{
    struct bus_rabbitmq *b = of(bus);
    rabbitmq_io_stop(b);
    release(b);
}

static const struct bus_ops rabbitmq_ops = {
    .publish = rabbitmq_publish,
    .take = rabbitmq_take,
    .ack = rabbitmq_ack,
    .retry = rabbitmq_retry,
    .next_due_us = rabbitmq_next_due_us,
    .lane_stats = rabbitmq_stats,
    .listen = rabbitmq_listen,
    .is_connected = rabbitmq_is_connected,
    .free = rabbitmq_free,
};

static void init_lanes(struct bus_rabbitmq *b, const struct rabbitmq_config *config,
                       uint32_t prefetch)
{
    size_t lanes = config->lanes;
    b->lanes = aligned_alloc(64, lanes * sizeof *b->lanes);
    CHECK(b->lanes);
    uint32_t unacked = 0;
    for (size_t i = 0; i < lanes; i++) {
        uint32_t room = prefetch;
        if (config->transient >> i & 1 && room < RABBITMQ_PREFETCH_TRANSIENT)
            room = RABBITMQ_PREFETCH_TRANSIENT;
        rabbitmq_lane_init(&b->lanes[i], (uint16_t)i, config->lane_limits[i], room);
        unacked += room;
    }
    rabbitmq_window_init(&b->window, RABBITMQ_WINDOW + unacked);
}

enum err bus_rabbitmq_open(const struct rabbitmq_config *config, struct bus **out,
                           char detail[RABBITMQ_DETAIL_SIZE])
{
    CHECK(config->lanes > 0 && config->lanes <= BUS_LANES_MAX);
    detail[0] = '\0';
    uint32_t heartbeat_s = config->heartbeat_s ? config->heartbeat_s : HEARTBEAT_S;
    uint32_t prefetch = config->prefetch ? config->prefetch : PREFETCH;
    struct rabbitmq_topology topology;
    if (rabbitmq_topology_init(&topology, config) || prefetch > RABBITMQ_PREFETCH_MAX ||
        heartbeat_s > HEARTBEAT_MAX_S || topology.delivery_limit > INT32_MAX) {
        snprintf(detail, RABBITMQ_DETAIL_SIZE, "a name or a limit of the bus is not allowed");
        return ERR_BAD_INPUT;
    }
    struct rabbitmq_address address;
    TRY(rabbitmq_address_init(&address, config->url, heartbeat_s, detail));
    struct bus_rabbitmq *b = calloc(1, sizeof *b);
    CHECK(b);
    b->bus = (struct bus){.ops = &rabbitmq_ops, .durable = true, .exact = false};
    b->topology = topology;
    b->address = address;
    b->clock = config->clock ? config->clock : clock_system();
    b->on_ready = config->on_ready;
    b->context = config->context;
    b->publish_only = config->publish_only;
    b->quiet = config->quiet & ((1U << config->lanes) - 1);
    snprintf(b->node, sizeof b->node, "%s", config->node ? config->node : "fantail");
    lock_init_spinning(&b->lock);
    cond_init(&b->room);
    init_lanes(b, config, prefetch);
    b->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    enum err e = b->wake_fd < 0 ? ERR_UNAVAILABLE : rabbitmq_io_connect(b, detail);
    if (!e)
        e = rabbitmq_io_start(b);
    if (e) {
        release(b);
        return e;
    }
    *out = &b->bus;
    return OK;
}
