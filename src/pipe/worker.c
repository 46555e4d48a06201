/* The workers: take messages, read a page of the audience, deliver it through the rule's sink.
 *
 * Lanes are served in the order of their table, each behind its gate. A message is either
 * acknowledged, with everything it stood for delivered or handed on, or tried again later; so no
 * unit of an event is ever lost, and the event is done when its last unit is.
 *
 * Spreading one large fan-out: the continuation goes on the bus before the page is delivered, and
 * another worker takes it at once. That is the hopeful way. Where it could do harm the page is
 * delivered first and the continuation published after it (the careful way, one message at a time):
 *  - in an ordered lane;
 *  - while the event's deliveries fail: hopeful continuations would turn one failing fan-out into
 * as many delayed messages as it has pages;
 *  - for a page that is tried again: if its continuation is out already (`until`), another would
 * walk the rest of the audience once more for every failure. */
#include "base/check.h"
#include "base/fault.h"
#include "base/log.h"
#include "pipe/retry.h"
#include "pipe/state.h"

enum {
    MESSAGE_WEIGHT = 16,          /* what a message costs at least, in members */
    KEPT_PER_STEP = 256,          /* messages of taken actors put aside in one step */
    NO_ROOM_DELAY_US = 20 * 1000, /* until a large fan-out asks again for room in its lanes */
    NO_ROOM_STEPS = 50,
};

/* What one step did, told to the shared counters once at its end. */
struct tally {
    enum lane lane;
    size_t weight;
    uint64_t delivered, repeated, failed;
    size_t count;
    struct flight_exit exits[WORKER_MESSAGES];
};

static void fail(struct engine *g, struct tally *t, const struct bus_message *m, enum err e)
{
    int64_t now_us = clock_mono_us(g->env.clock);
    t->failed++;
    atomic_store(&flight_seat(&g->flight, (uint32_t)m->seat)->unwell, true);
    if (engine_may_log(&g->lanes[m->lane].log_after_us, now_us))
        log_warn("a delivery failed and is tried again", LOG_CSTR("lane", lane_name(t->lane)),
                 LOG_CSTR("consumer", g->rules[m->rule].consumer), LOG_ID("event", m->event.id),
                 LOG_INT("tries", m->tries + 1), LOG_CSTR("error", err_name(e)));
    bus_retry(g->bus, m, now_us + retry_delay_us(m->tries, m->event.id ^ m->cursor.after));
}

/* The message is done; `handed_on`: its continuation is on the bus. */
static void succeed(struct engine *g, struct tally *t, const struct bus_message *m, size_t members,
                    bool handed_on)
{
    bus_ack(g->bus, m);
    if (lane_is_ordered(t->lane) && !handed_on)
        order_finish(&g->order, m);
    t->exits[t->count++] =
        (struct flight_exit){.seat = (uint32_t)m->seat, .lane = t->lane, .members = members};
}

/* Moves a large fan-out out of the small lane. Full lanes are no failure: it asks again, patiently.
 */
static void split(struct engine *g, struct tally *t, struct bus_message *m)
{
    if (audience_split(g, m) == OK) {
        succeed(g, t, m, 0, false);
        engine_wake_workers(g);
        return;
    }
    int64_t steps = m->tries < NO_ROOM_STEPS ? m->tries + 1 : NO_ROOM_STEPS;
    bus_retry(g->bus, m, clock_mono_us(g->env.clock) + steps * NO_ROOM_DELAY_US);
}

/* Publishes the continuation, with a unit of its own: whoever takes it may be done with it before
 * we are done with our page. */
static enum err hand_on(struct engine *g, const struct bus_message *m,
                        const struct audience_cursor *cursor)
{
    struct bus_message rest = *m;
    rest.cursor = *cursor;
    rest.cursor.end = false;
    rest.tries = 0;
    struct flight_exit back = {.seat = (uint32_t)m->seat, .lane = (enum lane)m->lane};
    flight_enter(&g->flight, back.seat, back.lane);
    enum err e = bus_publish_rest(g->bus, &rest);
    if (e)
        flight_leave(&g->flight, &back, 1);
    else
        engine_wake_workers(g);
    return e;
}

static bool must_be_careful(struct engine *g, const struct bus_message *m)
{
    return lane_is_ordered((enum lane)m->lane) || m->tries || m->until ||
           atomic_load_explicit(&flight_seat(&g->flight, (uint32_t)m->seat)->unwell,
                                memory_order_relaxed);
}

static enum err deliver(struct engine *g, const struct bus_message *m, const uint64_t *members,
                        size_t n, struct sink_result *result)
{
    *result = (struct sink_result){0};
    if (n == 0)
        return OK;
    FAULT(batch_before_sink);
    enum err e = g->rules[m->rule].sink(&g->env, &m->event, members, n, result);
    FAULT(batch_after_sink);
    return e;
}

static void work_message(struct engine *g, struct tally *t, struct bus_message *m)
{
    uint64_t members[ENGINE_BATCH_MAX];
    struct audience_cursor cursor;
    size_t n;
    bool to_followers = g->rules[m->rule].audience == TO_FOLLOWERS;
    t->weight += MESSAGE_WEIGHT;
    if (m->lane == LANE_SMALL && m->cursor.part == AUDIENCE_REST) {
        split(g, t, m); /* half of it has moved already */
        return;
    }
    enum err e = audience_page(g, m, &cursor, members, &n);
    if (e) {
        fail(g, t, m, e);
        return;
    }
    if (audience_is_large(g, m, &cursor)) {
        split(g, t, m);
        return;
    }
    t->weight += to_followers ? n : WORKER_MEMBERS;
    bool last = audience_is_last(m, &cursor);
    bool ahead = !last && !must_be_careful(g, m);
    if (ahead && (e = hand_on(g, m, &cursor))) {
        fail(g, t, m, e);
        return;
    }
    struct sink_result result;
    e = deliver(g, m, members, n, &result);
    bool more = !ahead && (!last || (!to_followers && result.again));
    if (e == OK && more)
        e = hand_on(g, m, to_followers ? &cursor : &m->cursor);
    if (e) {
        if (ahead)
            m->until = cursor.after;
        fail(g, t, m, e);
        return;
    }
    t->delivered += result.delivered;
    t->repeated += result.repeated;
    atomic_bool *unwell = &flight_seat(&g->flight, (uint32_t)m->seat)->unwell;
    if (atomic_load_explicit(unwell, memory_order_relaxed))
        atomic_store(unwell, false);
    succeed(g, t, m, to_followers ? n : 0, more);
}

/* The next message of the lane that may be worked on; messages of taken actors are put aside. */
static bool next_message(struct engine *g, enum lane lane, int64_t now_us, int *kept,
                         struct bus_message *m)
{
    if (!lane_is_ordered(lane))
        return bus_take(g->bus, (uint16_t)lane, now_us, m);
    return order_next(&g->order, m) ||
           order_take(&g->order, g->bus, (uint16_t)lane, now_us, KEPT_PER_STEP, kept, m);
}

static void tell(struct engine *g, struct tally *t)
{
    struct engine_lane *lane = &g->lanes[t->lane];
    if (t->delivered)
        atomic_fetch_add_explicit(&lane->delivered, t->delivered, memory_order_relaxed);
    if (t->repeated)
        atomic_fetch_add_explicit(&lane->repeated, t->repeated, memory_order_relaxed);
    if (t->failed)
        atomic_fetch_add_explicit(&lane->failed, t->failed, memory_order_relaxed);
    if (t->count == 0)
        return;
    if (flight_leave(&g->flight, t->exits, t->count))
        engine_wake_relay(g);
    if (!g->observer)
        return;
    int64_t now_us = clock_mono_us(g->env.clock);
    for (size_t i = 0; i < t->count; i++) {
        const struct flight_exit *x = &t->exits[i];
        if (x->finished && x->event.type == EVENT_POST_CREATED && x->event_members &&
            x->started_us != FLIGHT_UNTIMED)
            g->observer(g->observer_ctx, &x->event, (size_t)x->event_members,
                        now_us - x->started_us);
    }
}

/* Works on the lane's next few messages; false when it has none that may be worked on now. */
static bool work_lane(struct engine *g, enum lane lane, int64_t now_us, int64_t *due_us)
{
    if (atomic_load(&g->flight.lane_units[lane]) == 0)
        return false;
    struct lane_gate *gate = &g->lanes[lane].gate;
    uint32_t granted = lane_gate_enter(gate, now_us, WORKER_MESSAGES, due_us);
    if (granted == 0)
        return false;
    struct tally t; /* not zeroed as a whole: most of it is room for exits */
    t.lane = lane;
    t.weight = t.count = 0;
    t.delivered = t.repeated = t.failed = 0;
    struct bus_message m;
    uint32_t used = 0;
    int kept = 0;
    while (used < granted && t.weight < WORKER_MEMBERS &&
           next_message(g, lane, now_us, &kept, &m)) {
        used++;
        work_message(g, &t, &m);
    }
    tell(g, &t);
    bool was_full = lane_gate_leave(gate, granted - used);
    if (used || kept) {
        if (was_full) /* somebody may have been turned away at the gate */
            engine_wake_workers(g);
        return true;
    }
    int64_t delayed_us = bus_next_due_us(g->bus, (uint16_t)lane);
    if (delayed_us < *due_us)
        *due_us = delayed_us;
    return false;
}

static bool work(struct engine *g, int64_t now_us, int64_t *due_us)
{
    *due_us = INT64_MAX;
    if (atomic_load(&g->paused))
        return false;
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        if (work_lane(g, (enum lane)lane, now_us, due_us))
            return true;
    }
    return false;
}

/* Going to sleep: as the relay does it. */
int64_t engine_worker_step(struct engine *g)
{
    int64_t now_us = clock_mono_us(g->env.clock);
    int64_t due_us;
    if (work(g, now_us, &due_us))
        return now_us;
    atomic_store(&g->workers_idle, true);
    return work(g, now_us, &due_us) ? now_us : due_us;
}
