/* See lossy_bus.h. Each lane is a small pool of copies; a copy waits (for its time, then for its
 * turn) or is taken. Lanes of a simulation hold hundreds at most, so a take looks at all of them:
 * what is simple here is also what is certain.
 *
 * Order: a copy's turn is the count of publications plus a random part of the window, so that at
 * most `window` later ones overtake it. A tag names the copy and how often its place was used: an
 * ack that comes after the copy went to another taker finds nothing.
 *
 * A doubled copy needs room in the lane like any other: the limit holds for the network, too. */
#include "lossy_bus.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/rand.h"

enum copy_state { COPY_NONE, COPY_WAITING, COPY_TAKEN };

enum { TAG_INDEX_BITS = 20 };

struct copy {
    struct bus_message message;
    enum copy_state state;
    int64_t due_us; /* WAITING: not before; TAKEN: when it comes back; INT64_MAX: not by itself */
    uint64_t turn;
    uint64_t uses;
};

struct lossy_lane {
    struct copy *copies;
    size_t count, capacity;
    size_t held; /* waiting or taken */
    size_t limit;
    uint64_t published, acked, retried;
};

struct lossy_bus {
    struct bus bus;
    struct clock *clock;
    struct lossy_config config;
    struct lossy_counts counts;
    struct rand rand;
    uint64_t turns;
    size_t lane_count;
    struct lossy_lane lanes[BUS_LANES_MAX];
};

static struct lossy_bus *lossy_of(struct bus *b)
{
    return CONTAINER_OF(b, struct lossy_bus, bus);
}

static struct lossy_lane *lane_of(struct lossy_bus *l, uint16_t lane)
{
    CHECK(lane < l->lane_count);
    return &l->lanes[lane];
}

static bool happens(struct lossy_bus *l, uint32_t in_a_thousand)
{
    return in_a_thousand && rand_below(&l->rand, 1000) < in_a_thousand;
}

static int64_t within(struct lossy_bus *l, int64_t span_us)
{
    return span_us > 0 ? 1 + (int64_t)rand_below(&l->rand, (uint64_t)span_us) : 0;
}

/* ---- copies ---- */

static struct copy *free_copy(struct lossy_lane *lane)
{
    for (size_t i = 0; i < lane->count; i++) {
        if (lane->copies[i].state == COPY_NONE)
            return &lane->copies[i];
    }
    if (lane->count == lane->capacity) {
        lane->capacity = lane->capacity ? lane->capacity * 2 : 64;
        CHECK(lane->capacity < (size_t)1 << TAG_INDEX_BITS);
        lane->copies = realloc(lane->copies, lane->capacity * sizeof *lane->copies);
        CHECK(lane->copies);
    }
    struct copy *copy = &lane->copies[lane->count++];
    *copy = (struct copy){0};
    return copy;
}

static void add_copy(struct lossy_bus *l, struct lossy_lane *lane, const struct bus_message *m)
{
    struct copy *copy = free_copy(lane);
    copy->message = *m;
    copy->state = COPY_WAITING;
    copy->due_us = 0;
    if (happens(l, l->config.delay)) {
        copy->due_us = clock_mono_us(l->clock) + within(l, l->config.delay_us);
        l->counts.delayed++;
    }
    copy->turn = ++l->turns;
    if (l->config.window)
        copy->turn += rand_below(&l->rand, l->config.window);
    lane->held++;
}

static void remove_copy(struct lossy_lane *lane, struct copy *copy)
{
    copy->state = COPY_NONE;
    copy->uses++;
    lane->held--;
}

/* The copy is taken back, and its tag is void. */
static void return_copy(struct lossy_bus *l, struct copy *copy)
{
    copy->state = COPY_WAITING;
    copy->uses++;
    copy->due_us = 0;
    copy->turn = ++l->turns;
    l->counts.redelivered++;
}

static struct copy *taken_copy(struct lossy_lane *lane, uint64_t tag)
{
    size_t index = (size_t)(tag & ((UINT64_C(1) << TAG_INDEX_BITS) - 1));
    if (index >= lane->count)
        return NULL;
    struct copy *copy = &lane->copies[index];
    bool same = copy->state == COPY_TAKEN && copy->uses == tag >> TAG_INDEX_BITS;
    return same ? copy : NULL;
}

/* ---- the port ---- */

static enum err lossy_publish(struct bus *b, const struct bus_message *m, bool force)
{
    struct lossy_bus *l = lossy_of(b);
    struct lossy_lane *lane = lane_of(l, m->lane);
    if (!force && lane->held >= lane->limit)
        return ERR_OVERLOADED;
    lane->published++;
    if (happens(l, l->config.lose)) {
        l->counts.lost++;
        return OK;
    }
    add_copy(l, lane, m);
    if (lane->held < lane->limit && happens(l, l->config.double_up)) {
        l->counts.doubled++;
        add_copy(l, lane, m);
    }
    return OK;
}

static bool lossy_take(struct bus *b, uint16_t number, int64_t now_us, struct bus_message *out)
{
    struct lossy_bus *l = lossy_of(b);
    struct lossy_lane *lane = lane_of(l, number);
    struct copy *best = NULL;
    for (size_t i = 0; i < lane->count; i++) {
        struct copy *copy = &lane->copies[i];
        if (copy->state == COPY_TAKEN && copy->due_us <= now_us)
            return_copy(l, copy);
        if (copy->state == COPY_WAITING && copy->due_us <= now_us &&
            (!best || copy->turn < best->turn))
            best = copy;
    }
    if (!best)
        return false;
    best->state = COPY_TAKEN;
    best->due_us =
        happens(l, l->config.break_off) ? now_us + within(l, l->config.redeliver_us) : INT64_MAX;
    *out = best->message;
    out->tag = best->uses << TAG_INDEX_BITS | (uint64_t)(best - lane->copies);
    return true;
}

static void lossy_ack(struct bus *b, const struct bus_message *m)
{
    struct lossy_bus *l = lossy_of(b);
    struct lossy_lane *lane = lane_of(l, m->lane);
    struct copy *copy = taken_copy(lane, m->tag);
    if (!copy)
        return;
    lane->acked++;
    if (happens(l, l->config.lose_ack)) {
        l->counts.acks_lost++;
        copy->due_us = clock_mono_us(l->clock) + within(l, l->config.redeliver_us);
        return;
    }
    remove_copy(lane, copy);
}

static void lossy_retry(struct bus *b, const struct bus_message *m, int64_t not_before_us)
{
    struct lossy_bus *l = lossy_of(b);
    struct lossy_lane *lane = lane_of(l, m->lane);
    struct copy *copy = taken_copy(lane, m->tag);
    if (!copy)
        return;
    lane->retried++;
    if (happens(l, l->config.lose_retry)) {
        l->counts.retries_lost++;
        remove_copy(lane, copy);
        return;
    }
    copy->message = *m;
    copy->message.tries++;
    copy->state = COPY_WAITING;
    copy->uses++;
    copy->due_us = not_before_us;
    copy->turn = ++l->turns;
}

static int64_t lossy_next_due_us(struct bus *b, uint16_t number)
{
    struct lossy_bus *l = lossy_of(b);
    struct lossy_lane *lane = lane_of(l, number);
    int64_t now_us = clock_mono_us(l->clock), due_us = INT64_MAX;
    for (size_t i = 0; i < lane->count; i++) {
        const struct copy *copy = &lane->copies[i];
        bool comes = copy->state == COPY_TAKEN || copy->due_us > now_us;
        if (copy->state != COPY_NONE && comes && copy->due_us < due_us)
            due_us = copy->due_us;
    }
    return due_us;
}

static void lossy_lane_stats(struct bus *b, uint16_t number, struct bus_lane_stats *out)
{
    struct lossy_bus *l = lossy_of(b);
    struct lossy_lane *lane = lane_of(l, number);
    int64_t now_us = clock_mono_us(l->clock);
    *out = (struct bus_lane_stats){
        .published = lane->published, .acked = lane->acked, .retried = lane->retried};
    for (size_t i = 0; i < lane->count; i++) {
        const struct copy *copy = &lane->copies[i];
        out->taken += copy->state == COPY_TAKEN;
        out->ready += copy->state == COPY_WAITING && copy->due_us <= now_us;
        out->delayed += copy->state == COPY_WAITING && copy->due_us > now_us;
    }
}

static void lossy_free(struct bus *b)
{
    struct lossy_bus *l = lossy_of(b);
    for (size_t i = 0; i < l->lane_count; i++)
        free(l->lanes[i].copies);
    free(l);
}

/* Every lane gives to every taker, and the server is always there. */
static void lossy_listen(struct bus *b, uint16_t lane, bool on)
{
    (void)b, (void)lane, (void)on;
}

static bool lossy_is_connected(struct bus *b)
{
    (void)b;
    return true;
}

static const struct bus_ops ops = {
    .publish = lossy_publish,
    .take = lossy_take,
    .ack = lossy_ack,
    .retry = lossy_retry,
    .next_due_us = lossy_next_due_us,
    .lane_stats = lossy_lane_stats,
    .listen = lossy_listen,
    .is_connected = lossy_is_connected,
    .free = lossy_free,
};

/* ---- what the simulator does to it ---- */

struct bus *lossy_bus_new(size_t lanes, const size_t *limits, struct clock *clock,
                          const struct lossy_config *config)
{
    CHECK(lanes <= BUS_LANES_MAX && config->window <= LOSSY_WINDOW_MAX);
    struct lossy_bus *l = calloc(1, sizeof *l);
    CHECK(l);
    l->bus = (struct bus){.ops = &ops, .durable = false, .exact = false};
    l->clock = clock;
    l->config = *config;
    l->lane_count = lanes;
    rand_seed(&l->rand, config->seed);
    for (size_t i = 0; i < lanes; i++)
        l->lanes[i].limit = limits[i];
    return &l->bus;
}

void lossy_bus_calm(struct bus *b)
{
    struct lossy_config *c = &lossy_of(b)->config;
    c->lose = c->lose_ack = c->lose_retry = c->double_up = c->break_off = 0;
}

void lossy_bus_drop_takers(struct bus *b)
{
    struct lossy_bus *l = lossy_of(b);
    for (size_t lane = 0; lane < l->lane_count; lane++) {
        for (size_t i = 0; i < l->lanes[lane].count; i++) {
            if (l->lanes[lane].copies[i].state == COPY_TAKEN)
                return_copy(l, &l->lanes[lane].copies[i]);
        }
    }
}

void lossy_bus_count(struct bus *b, struct lossy_counts *out)
{
    *out = lossy_of(b)->counts;
}
