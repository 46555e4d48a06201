/* The relay: takes committed events in the order of their ids and puts one message for each rule
 * that wants them on the bus.
 *
 * Where events come from. Live ones come through the hand-over queue. When that was full, and at
 * the start, they come from the outbox table, up to the last id known to be offered (never beyond:
 * a row whose commit hook has not run yet must not be fanned out before the views know of it). What
 * the queue holds at or below `taken` was read from the table already and is passed over. So every
 * event is taken once, in order, whichever way it comes.
 *
 * When a lane is full its messages are owed: the event keeps its seat, with a bit for each rule
 * still to be published, and the other lanes go on. A lane that was full is served again, from the
 * oldest owed event on, when an eighth of what it held has drained. So a flood of cleanup cannot
 * hold up anybody's post. When no seat is free the relay stops taking: the events wait in the
 * outbox table. */
#include "base/check.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "pipe/outbox.h"
#include "pipe/state.h"

enum { OWED_EVERY_US = 10 * 1000, READ_AGAIN_US = 100 * 1000 };

static void relay_log(struct relay *r, int64_t now_us, const char *message, struct log_field field)
{
    if (now_us < r->log_after_us)
        return;
    r->log_after_us = now_us + LOG_AGAIN_US;
    log_error(message, field);
}

/* ---- taking ---- */

/* Notes an event for this step's batch, unless no rule wants it. */
static void consider(struct engine *g, const struct event *e, int64_t started_us)
{
    struct relay *r = &g->relay;
    struct flight_start *start = &r->starts[r->count];
    *start = (struct flight_start){.event = *e, .started_us = started_us};
    r->taken = e->id;
    atomic_fetch_add_explicit(&g->events_taken, 1, memory_order_relaxed);
    if (e->id <= r->recovered)
        atomic_fetch_add_explicit(&g->events_found, 1, memory_order_relaxed);
    if (e->type >= EVENT_TYPE_COUNT) {
        relay_log(r, clock_mono_us(g->env.clock), "an outbox row cannot be read and stays undone",
                  LOG_ID("event", e->id));
        start->parked = 1;
        r->count++;
        return;
    }
    for (uint16_t i = 0; i < g->rules_on_count[e->type]; i++) {
        const struct rule *rule = &g->rules[g->rules_on[e->type][i]];
        if (rule->wants && !rule->wants(e))
            continue;
        start->owed |= UINT32_C(1) << i;
        start->lane_units[rule->lane]++;
    }
    if (start->owed)
        r->count++;
    else
        atomic_fetch_add_explicit(&g->events_unwanted, 1, memory_order_relaxed);
}

/* When its commit was handed over, for an event that came through the table because the queue was
 * full: its id knows to the millisecond. */
static int64_t started_from_id(struct engine *g, uint64_t id, int64_t now_us)
{
    if (id <= g->relay.recovered)
        return FLIGHT_UNTIMED;
    int64_t age_ms = clock_wall_ms(g->env.clock) - id_time_ms(id);
    return now_us - (age_ms > 0 ? age_ms * 1000 : 0);
}

static bool take_from_table(struct engine *g, uint64_t through, size_t max, int64_t now_us,
                            int64_t *due_us)
{
    struct relay *r = &g->relay;
    if (now_us < r->read_after_us) {
        *due_us = r->read_after_us < *due_us ? r->read_after_us : *due_us;
        return false;
    }
    size_t n;
    enum err e = outbox_read(g->env.db, r->taken, through, r->rows, max, &n);
    if (e) {
        relay_log(r, now_us, "the outbox cannot be read", LOG_CSTR("error", err_name(e)));
        r->read_after_us = now_us + READ_AGAIN_US;
        *due_us = r->read_after_us < *due_us ? r->read_after_us : *due_us;
        return false;
    }
    for (size_t i = 0; i < n; i++)
        consider(g, &r->rows[i], started_from_id(g, r->rows[i].id, now_us));
    if (n < max)
        r->taken = through; /* a short slice was the last one */
    return true;
}

/* Takes at most `max` events; true when it got any further. */
static bool take(struct engine *g, size_t max, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    size_t waiting = hand_over_waiting(&g->hand_over);
    uint64_t missed = atomic_load(&g->hand_over.missed); /* after `waiting`: see hand_over.h */
    uint64_t table_through = missed > r->recovered ? missed : r->recovered;
    bool further = false;
    if (table_through > r->taken) {
        further = take_from_table(g, table_through, max, now_us, due_us);
        max = 0; /* only pass over what the table gave */
    }
    size_t popped = 0;
    for (; popped < waiting; popped++) {
        const struct handed_over *h = hand_over_at(&g->hand_over, popped);
        if (h->event.id <= r->taken)
            continue;
        if (r->count >= max || popped >= RELAY_BATCH)
            break;
        consider(g, &h->event, h->at_us);
    }
    if (popped)
        hand_over_pop(&g->hand_over, popped);
    return further || popped;
}

/* ---- publishing ---- */

static enum err publish(struct engine *g, const struct event *e, uint32_t seat, unsigned ordinal)
{
    uint16_t index = g->rules_on[e->type][ordinal];
    struct bus_message m = {.event = *e,
                            .rule = index,
                            .lane = (uint16_t)g->rules[index].lane,
                            .cursor = {.part = AUDIENCE_ALL},
                            .seat = seat};
    FAULT(relay_before_publish);
    enum err error = bus_publish(g->bus, &m);
    if (error == OK)
        FAULT(relay_after_publish);
    return error;
}

static void owe(struct engine *g, enum lane lane, uint32_t seat)
{
    struct bus_lane_stats stats;
    bus_lane_stats(g->bus, (uint16_t)lane, &stats);
    g->relay.owing[lane] = seat;
    g->relay.owing_held[lane] = stats.ready + stats.delayed + stats.taken;
}

/* A unit of the event is alive until its message is published: the seat may be touched before that,
 * and after it only for the sake of a rule that is still owed. */
static void publish_event(struct engine *g, const struct flight_start *start)
{
    for (uint32_t left = start->owed; left; left &= left - 1) {
        unsigned ordinal = (unsigned)__builtin_ctz(left);
        enum lane lane = g->rules[g->rules_on[start->event.type][ordinal]].lane;
        if (g->relay.owing[lane] != FLIGHT_NONE)
            continue;
        uint32_t bit = UINT32_C(1) << ordinal;
        struct flight_seat *seat = flight_seat(&g->flight, start->seat);
        seat->owed &= ~bit;
        if (publish(g, &start->event, start->seat, ordinal)) {
            seat->owed |= bit;
            owe(g, lane, start->seat);
        }
    }
}

/* Publishes what one seat owes the lane. False: the lane is full again. */
static bool publish_owed(struct engine *g, enum lane lane, uint32_t index)
{
    struct flight_seat *seat = flight_seat(&g->flight, index);
    const struct event e = seat->event;
    for (uint32_t left = seat->owed & g->lane_rules[lane][e.type]; left; left &= left - 1) {
        uint32_t bit = left & -left;
        seat->owed &= ~bit;
        if (publish(g, &e, index, (unsigned)__builtin_ctz(left))) {
            seat->owed |= bit;
            owe(g, lane, index);
            return false;
        }
    }
    return true;
}

/* True when something was published. */
static bool serve_lane(struct engine *g, enum lane lane)
{
    struct relay *r = &g->relay;
    struct bus_lane_stats stats;
    bus_lane_stats(g->bus, (uint16_t)lane, &stats);
    if (stats.ready + stats.delayed + stats.taken > r->owing_held[lane] - r->owing_held[lane] / 8)
        return false;
    bool published = false;
    for (int i = 0; i < RELAY_BATCH && r->owing[lane] != FLIGHT_NONE; i++) {
        uint32_t seat = r->owing[lane];
        uint32_t next = flight_next_owing(&g->flight, lane, seat, g->lane_rules[lane]);
        if (!publish_owed(g, lane, seat))
            break;
        published = true;
        r->owing[lane] = next;
    }
    return published;
}

static bool serve_owed(struct engine *g, int64_t now_us, int64_t *due_us)
{
    bool published = false;
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        if (g->relay.owing[lane] == FLIGHT_NONE)
            continue;
        published |= serve_lane(g, (enum lane)lane);
        if (g->relay.owing[lane] != FLIGHT_NONE && now_us + OWED_EVERY_US < *due_us)
            *due_us = now_us + OWED_EVERY_US;
    }
    return published;
}

/* ---- the step ---- */

static bool work(struct engine *g, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    bool worked = serve_owed(g, now_us, due_us);
    size_t room = flight_room(&g->flight);
    r->count = 0;
    if (room && take(g, room < RELAY_BATCH ? room : RELAY_BATCH, now_us, due_us)) {
        flight_begin(&g->flight, r->starts, r->count, r->taken);
        for (size_t i = 0; i < r->count; i++)
            publish_event(g, &r->starts[i]);
        worked = true;
    }
    if (worked)
        engine_wake_workers(g);
    return worked;
}

/* Going to sleep: says so first and then looks once more. Whoever brings news after that look sees
 * the flag and wakes us. */
int64_t engine_relay_step(struct engine *g)
{
    int64_t now_us = clock_mono_us(g->env.clock);
    int64_t due_us = INT64_MAX;
    if (work(g, now_us, &due_us))
        return now_us;
    atomic_store(&g->relay_idle, true);
    due_us = INT64_MAX;
    return work(g, now_us, &due_us) ? now_us : due_us;
}
