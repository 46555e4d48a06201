/* The local-first bus: two buses as one. One bit of a message's tag says where it came from, so
 * that acks and retries find their way; neither bus uses that bit itself (tags are a slot and its
 * uses, and no bus has half of all slots that a number can name).
 *
 * Takers look here first, since only this process can do the local work. But every fourth time they
 * look at the remote bus first: it has handed messages to this node that no other node can take
 * either, and with enough local work they would wait for ever. */
#include "bus/local_first.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "bus/local.h"

enum { REMOTE_FIRST_EVERY = 4 };

#define FROM_REMOTE (UINT64_C(1) << 31)

struct local_first {
    struct bus bus;
    struct bus *local, *remote;
    uint32_t lanes_mask;
    size_t room;
    _Atomic bool holds;
    _Atomic uint32_t turns[BUS_LANES_MAX]; /* of takers */
};

static struct local_first *of(struct bus *b)
{
    return CONTAINER_OF(b, struct local_first, bus);
}

static bool is_kept(const struct local_first *s, uint16_t lane)
{
    return s->lanes_mask >> lane & 1;
}

/* ---- publishing ---- */

static bool keeps(struct local_first *s, uint16_t lane)
{
    return is_kept(s, lane) && atomic_load(&s->holds);
}

/* Two publishers may both see the last place: each exceeds the room by one at most. */
static bool has_room(struct local_first *s, uint16_t lane)
{
    struct bus_lane_stats stats;
    bus_lane_stats(s->local, lane, &stats);
    return stats.ready + stats.delayed + stats.taken < s->room;
}

/* A continuation that the remote bus has no place for stays here, beside the one that it
 * continues: so both together keep their limit. */
static enum err local_first_publish(struct bus *b, const struct bus_message *m, bool force)
{
    struct local_first *s = of(b);
    if (!keeps(s, m->lane))
        return s->remote->ops->publish(s->remote, m, force);
    if (has_room(s, m->lane) && bus_publish(s->local, m) == OK)
        return OK;
    enum err e = bus_publish(s->remote, m);
    return e && force ? bus_publish_rest(s->local, m) : e;
}

/* ---- taking ---- */

static bool take_local(struct local_first *s, uint16_t lane, int64_t now_us,
                       struct bus_message *out)
{
    if (!is_kept(s, lane) || !bus_take(s->local, lane, now_us, out))
        return false;
    CHECK(!(out->tag & FROM_REMOTE));
    return true;
}

static bool take_remote(struct local_first *s, uint16_t lane, int64_t now_us,
                        struct bus_message *out)
{
    if (!bus_take(s->remote, lane, now_us, out))
        return false;
    CHECK(!(out->tag & FROM_REMOTE));
    out->tag |= FROM_REMOTE;
    return true;
}

static bool local_first_take(struct bus *b, uint16_t lane, int64_t now_us, struct bus_message *out)
{
    struct local_first *s = of(b);
    CHECK(lane < BUS_LANES_MAX);
    uint32_t turn = atomic_load_explicit(&s->turns[lane], memory_order_relaxed);
    bool remote_first = turn % REMOTE_FIRST_EVERY == REMOTE_FIRST_EVERY - 1;
    bool found = (remote_first && take_remote(s, lane, now_us, out)) ||
                 take_local(s, lane, now_us, out) ||
                 (!remote_first && take_remote(s, lane, now_us, out));
    if (found) /* only messages given out count, so that looking at empty lanes changes nothing */
        atomic_fetch_add_explicit(&s->turns[lane], 1, memory_order_relaxed);
    return found;
}

/* Where the message came from, and the message as it was there. */
static struct bus *source_of(struct local_first *s, const struct bus_message *m,
                             struct bus_message *there)
{
    *there = *m;
    there->tag &= ~FROM_REMOTE;
    return m->tag & FROM_REMOTE ? s->remote : s->local;
}

static void local_first_ack(struct bus *b, const struct bus_message *m)
{
    struct bus_message there;
    struct bus *source = source_of(of(b), m, &there);
    bus_ack(source, &there);
}

static void local_first_retry(struct bus *b, const struct bus_message *m, int64_t not_before_us)
{
    struct bus_message there;
    struct bus *source = source_of(of(b), m, &there);
    bus_retry(source, &there, not_before_us);
}

/* ---- looking ---- */

static int64_t local_first_next_due_us(struct bus *b, uint16_t lane)
{
    struct local_first *s = of(b);
    int64_t remote_us = bus_next_due_us(s->remote, lane);
    int64_t local_us = is_kept(s, lane) ? bus_next_due_us(s->local, lane) : INT64_MAX;
    return local_us < remote_us ? local_us : remote_us;
}

static void local_first_lane_stats(struct bus *b, uint16_t lane, struct bus_lane_stats *out)
{
    struct local_first *s = of(b);
    struct bus_lane_stats local = {0}, remote;
    bus_lane_stats(s->remote, lane, &remote);
    if (is_kept(s, lane))
        bus_lane_stats(s->local, lane, &local);
    *out = (struct bus_lane_stats){
        .ready = local.ready + remote.ready,
        .delayed = local.delayed + remote.delayed,
        .taken = local.taken + remote.taken,
        .published = local.published + remote.published,
        .acked = local.acked + remote.acked,
        .retried = local.retried + remote.retried,
        .confirmed = local.confirmed + remote.confirmed,
        .reconnects = remote.reconnects,
    };
}

/* Quiet lanes are the remote bus's: they carry messages of other nodes. */
static void local_first_listen(struct bus *b, uint16_t lane, bool on)
{
    bus_listen(of(b)->remote, lane, on);
}

static bool local_first_is_connected(struct bus *b)
{
    return bus_is_connected(of(b)->remote);
}

/* ---- life ---- */

static void local_first_free(struct bus *b)
{
    struct local_first *s = of(b);
    bus_free(s->local);
    bus_free(s->remote);
    free(s);
}

static const struct bus_ops local_first_ops = {
    .publish = local_first_publish,
    .take = local_first_take,
    .ack = local_first_ack,
    .retry = local_first_retry,
    .next_due_us = local_first_next_due_us,
    .lane_stats = local_first_lane_stats,
    .listen = local_first_listen,
    .is_connected = local_first_is_connected,
    .free = local_first_free,
};

struct bus *bus_local_first_new(struct bus *local, struct bus *remote, uint32_t lanes_mask,
                                size_t room)
{
    struct local_first *s = calloc(1, sizeof *s);
    CHECK(s);
    s->bus = (struct bus){.ops = &local_first_ops, .exact = remote->exact};
    s->local = local;
    s->remote = remote;
    s->lanes_mask = lanes_mask;
    s->room = room;
    return &s->bus;
}

void bus_local_first_hold(struct bus *b, bool on)
{
    atomic_store(&of(b)->holds, on);
}

void bus_local_first_forget(struct bus *b)
{
    bus_local_forget(of(b)->local);
}
