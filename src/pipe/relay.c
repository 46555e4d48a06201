/* The relay: takes committed events in the order of their ids and puts one message for each rule
 * that wants them on the bus.
 *
 * relay_take.c says where they come from. Now and then the relay looks for rows that are pending
 * below the saved watermark: parked events that were released.
 *
 * A backlog does not hold up live events: the relay takes events in the queue above the part of the
 * table that it must read ahead of that part, and they join the others when the table is read so
 * far. Ordered work waits for that (inflight.h): an earlier event of its key may still be in the
 * table.
 *
 * When a lane is full its work items stay ready in the inflight set, and the other lanes go on. A
 * lane that was full is served again when an eighth of what it held has drained. So a flood of
 * cleanup cannot hold up a post. When no slot is free, ready items of stopped lanes go to the
 * delivery store; when there are none, the relay stops taking: the events wait in the outbox table.
 */
#include "base/check.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "pipe/outcome.h"

enum {
    READY_EVERY_US = 10 * 1000,
    PUBLISH_A_LANE = 4 * RELAY_BATCH, /* work items in one step */
    RESEND_A_POLL = 64,
    BLOCK_A_STEP = 1024, /* work items of a stopped lane, when every slot is taken */
};

void relay_init(struct relay *r)
{
    memset(r, 0, sizeof *r);
    r->read_after_us = r->poll_after_us = r->log_after_us = INT64_MIN;
    r->ask_after_us = r->moved_us = INT64_MIN;
    atomic_store(&r->looked_us, INT64_MIN);
    for (int lane = 0; lane < LANE_COUNT; lane++) /* empty: a former leader may have used it up */
        r->rates[lane].parts = LANE_BURST_PARTS;
}

/* ---- beginning ---- */

static void note_published(struct engine *g)
{
    struct relay *r = &g->relay;
    int64_t now_ms = clock_wall_ms(g->env.clock);
    for (size_t i = 0; i < r->count && r->traced < COUNT_OF(r->trace); i++)
        r->trace[r->traced++] =
            (struct trace_record){.event = r->starts[i].event.id,
                                  .at_ms = now_ms,
                                  .n = (uint64_t)__builtin_popcount(r->starts[i].wanted),
                                  .rule = RULE_NONE,
                                  .kind = TRACE_PUBLISHED};
}

static void tell_begun(struct engine *g)
{
    note_published(g);
    if (g->relay.traced)
        trace_add(&g->trace, g->relay.trace, g->relay.traced);
}

/* While a backlog is read from the table, live events above it do not wait for their turn. They are
 * those in the queue above the end of the backlog; when the queue was full again since, the ones
 * after that gap wait until the backlog is taken. */
static bool begin_ahead(struct engine *g)
{
    struct relay *r = &g->relay;
    size_t waiting = commit_queue_waiting(&g->commit_queue);
    uint64_t end = relay_table_end(g);
    if (waiting == 0 || r->taken >= end || (r->ahead && atomic_load(&g->commit_queue.missed) > end))
        return false;
    size_t room = inflight_room_ahead(&g->inflight), popped = 0;
    uint64_t last = r->ahead;
    r->count = r->traced = 0;
    for (; popped < waiting && r->count < RELAY_BATCH && r->count < room; popped++) {
        const struct queued_event *h = commit_queue_at(&g->commit_queue, popped);
        if (h->event.id <= end)
            continue; /* the table has it */
        relay_consider(g, &h->event, h->at_us, relay_wanted_by(g, &h->event), true);
        last = h->event.id;
    }
    if (popped)
        commit_queue_pop(&g->commit_queue, popped);
    if (last != r->ahead) {
        relay_drop_outdone(g);
        inflight_begin_ahead(&g->inflight, r->starts, r->count, end, last);
        r->ahead_after = end;
        r->ahead = last;
        tell_begun(g);
    }
    return popped > 0;
}

/* The backlog is taken: what was taken ahead follows it. */
static void join(struct engine *g)
{
    struct relay *r = &g->relay;
    inflight_join(&g->inflight);
    r->taken = r->ahead;
    r->ahead = 0;
    commit_queue_read(&g->commit_queue, r->taken);
}

/* Every slot is taken. A lane that stands still must not stand in the way of the others: what is
 * ready to it goes to the delivery store, where it takes no slot. */
static bool make_room(struct engine *g)
{
    size_t held = 0;
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        if (engine_lane_is_stopped(g, (enum lane)lane) && !lane_is_ordered((enum lane)lane))
            held += inflight_block_ready(&g->inflight, (enum lane)lane, BLOCK_A_STEP);
    }
    if (held)
        engine_wake_up(g, ENGINE_RECORDER);
    return held > 0;
}

static bool begin_live(struct engine *g, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    size_t room = inflight_room(&g->inflight);
    r->count = r->traced = 0;
    if (!room && make_room(g))
        return true;
    size_t max = room < RELAY_BATCH ? room : RELAY_BATCH;
    if (!room || !relay_take(g, max, now_us, due_us))
        return false;
    relay_drop_outdone(g);
    inflight_begin(&g->inflight, r->starts, r->count, r->taken);
    tell_begun(g);
    if (r->ahead && r->taken >= r->ahead_after)
        join(g);
    return true;
}

/* ---- polling ---- */

/* One that this program cannot read was released by one that could: it is parked again. */
static void begin_released(struct engine *g, const struct event *e)
{
    bool readable = e->type < EVENT_TYPE_COUNT;
    struct out_of_band_event begun = {.kind = SLOT_RELEASED, .event = *e};
    struct recorder_entry entry = {.message = {.rule = RULE_NONE}, .released = true};
    if (readable) {
        begun.wanted =
            relay_wanted_again(g, e, relay_wanted_by(g, e), OUTBOX_PENDING, &g->relay.slice);
        begun.rules = g->rules_on[e->type];
        entry.delivery_record = (struct delivery_record){.kind = RECORD_SETTLE, .event = *e};
    } else {
        entry.delivery_record =
            (struct delivery_record){.kind = RECORD_PARK,
                                     .event = {.id = e->id},
                                     .reason = event_unread_name((enum event_unread)e->value)};
    }
    atomic_fetch_add(&g->released, 1);
    if (!begun.wanted) {
        recorder_add(&g->recorder, &entry, true);
        engine_wake_up(g, ENGINE_RECORDER);
    } else if (inflight_begin_out_of_band(&g->inflight, &begun) != OUT_OF_BAND_BEGUN) {
        atomic_fetch_sub(&g->released, 1);
    }
}

/* Pending rows at or below the watermark: released, or never offered. The next ones when these are
 * settled. */
static bool poll_table(struct engine *g, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    if (atomic_load(&g->released) > 0 || !relay_may_read(r, now_us, due_us))
        return false;
    r->traced = 0;
    enum err e = outbox_read(g->env.db, OUTBOX_READ_FOUND, 0, atomic_load(&g->watermark.saved),
                             OUTBOX_READ_MAX, &r->slice);
    if (!e)
        e = relay_apply_slice(g);
    if (e) {
        relay_read_failed(r, e, now_us, due_us);
        return false;
    }
    for (size_t i = 0; i < r->slice.count; i++)
        begin_released(g, &r->slice.events[i]);
    if (r->traced)
        trace_add(&g->trace, r->trace, r->traced);
    return r->slice.count > 0;
}

/* What a replay may not do is not sent to other nodes: they do not know what it was allowed. */
static bool suppress(struct engine *g, const struct bus_message *m, int64_t now_us)
{
    if (outcome_allows(g, m))
        return false;
    struct outcomes o;
    const struct bus_report r = {.kind = REPORT_DONE, .at_end = true, .suppressed = 1};
    outcomes_begin(&o, (enum lane)m->lane, now_us, clock_wall_ms(g->env.clock));
    outcome_note(&o, m, TRACE_SUPPRESSED, 1, 0, "the replay may not use this channel");
    outcome_apply(g, &o, m, &r, NULL, false);
    outcomes_end(g, &o);
    return true;
}

/* Messages that a network may have lost. */
static bool resend(struct engine *g, int64_t now_us)
{
    struct bus_message overdue[RESEND_A_POLL];
    if (!engine_may_repeat(g) || g->config.resend_after_ms == 0)
        return false;
    size_t n = inflight_take_overdue(&g->inflight, now_us - g->config.resend_after_ms * 1000,
                                     now_us, overdue, RESEND_A_POLL);
    for (size_t i = 0; i < n; i++) {
        if (g->config.shared && suppress(g, &overdue[i], now_us))
            continue;
        /* Within the limit: a lane that does not drain must not grow by this. */
        if (bus_publish(g->bus, &overdue[i]) == OK)
            atomic_fetch_add(&g->resent, 1);
        engine_wake_lane(g, (enum lane)overdue[i].lane);
    }
    if (n == RESEND_A_POLL && g->config.shared) /* a node went with what it had in hand */
        g->relay.poll_after_us = now_us;
    return n > 0;
}

static bool poll(struct engine *g, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    bool worked = false;
    if (now_us >= r->poll_after_us) {
        r->poll_after_us = now_us + g->config.poll_every_ms * 1000;
        worked = poll_table(g, now_us, due_us);
        worked |= resend(g, now_us);
    }
    due_by(due_us, r->poll_after_us);
    return worked;
}

/* ---- publishing ---- */

static uint64_t lane_holds(struct engine *g, enum lane lane)
{
    struct bus_lane_stats stats;
    bus_lane_stats(g->bus, (uint16_t)lane, &stats);
    return stats.ready + stats.delayed + stats.taken;
}

/* Shared: what is stopped here is not sent to the others either. A breaker that opened by itself
 * is each node's own. */
static bool lane_rests(struct engine *g, enum lane lane)
{
    return g->config.shared && (atomic_load(&g->paused) || engine_lane_is_guarded(g, lane) ||
                                atomic_load(&g->lanes[lane].breaker.state) == BREAKER_BY_HAND);
}

/* A lane's limits are for all nodes together. The leader alone sends work out and hears of its end:
 * so it sends no more than the rate allows, and in lanes for truth and for calls no more than may
 * run at a time. (Of views each node has its share of the places: lane.h.) What waits for that is
 * ready here, where it is counted and keeps its order. */
struct lane_limits {
    uint64_t at_a_time;
    uint32_t rate;
};

static struct lane_limits limits_of(struct engine *g, enum lane lane)
{
    uint32_t concurrency = 0, busy;
    struct lane_limits limits = {UINT64_MAX, 0};
    if (!g->config.shared)
        return limits;
    lane_gate_look(&g->lanes[lane].gate, &concurrency, &limits.rate, &busy);
    if (lane_rows[lane].pool != POOL_VIEWS)
        limits.at_a_time = concurrency;
    return limits;
}

bool relay_limits(struct engine *g, enum lane lane)
{
    struct lane_limits limits = limits_of(g, lane);
    return limits.rate > 0 || limits.at_a_time != UINT64_MAX;
}

/* The lane's next message, within its limits. */
static bool take_ready(struct engine *g, enum lane lane, const struct lane_limits *limits,
                       int64_t now_us, int64_t *due_us, struct bus_message *m)
{
    struct bucket *rate = &g->relay.rates[lane];
    if (limits->rate != rate->rate)
        bucket_set_rate(rate, limits->rate, now_us);
    if (bucket_take(rate, now_us, 1, due_us) == 0)
        return false;
    if (inflight_take_ready(&g->inflight, lane, now_us, limits->at_a_time, m))
        return true;
    bucket_give_back(rate, 1);
    if (limits->at_a_time != UINT64_MAX && inflight_running(&g->inflight, lane) > 0)
        due_by(due_us, now_us + READY_EVERY_US);
    return false;
}

/* Publishes what is ready for the lane, until it is full. True when something was
 * published. */
static bool serve_lane(struct engine *g, enum lane lane, int64_t now_us, int64_t *due_us)
{
    uint64_t *held = &g->relay.lane_held[lane];
    struct lane_limits limits = limits_of(g, lane);
    struct bus_message m;
    int published = 0;
    if (lane_rests(g, lane))
        return false;
    if (*held && lane_holds(g, lane) > *held - *held / 8) {
        due_by(due_us, now_us + READY_EVERY_US);
        return false;
    }
    *held = 0;
    while (published < PUBLISH_A_LANE && take_ready(g, lane, &limits, now_us, due_us, &m)) {
        FAULT(relay_before_publish);
        if (g->config.shared && suppress(g, &m, now_us)) {
            published++;
            continue;
        }
        if (bus_publish(g->bus, &m)) {
            inflight_give_back(&g->inflight, &m);
            uint64_t holds = lane_holds(g, lane);
            *held = holds ? holds : 1;
            due_by(due_us, now_us + READY_EVERY_US);
            break;
        }
        FAULT(relay_after_publish);
        published++;
    }
    return published > 0;
}

static bool serve_lanes(struct engine *g, int64_t now_us, int64_t *due_us)
{
    bool published = false;
    if (!engine_may_lead(g)) /* taking may have taken long */
        return false;
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        if (!serve_lane(g, (enum lane)lane, now_us, due_us))
            continue;
        engine_wake_lane(g, (enum lane)lane);
        published = true;
    }
    return published;
}

/* ---- the step ---- */

static bool work(struct engine *g, int64_t now_us, int64_t *due_us)
{
    bool worked = g->config.shared && outcome_hear(g, now_us);
    worked |= poll(g, now_us, due_us);
    worked |= !g->config.shared && begin_ahead(g);
    worked |= begin_live(g, now_us, due_us);
    worked |= serve_lanes(g, now_us, due_us);
    if (worked && inflight_has_blocked(&g->inflight))
        engine_wake_up(g, ENGINE_RECORDER);
    return worked;
}

static int64_t step(struct engine *g)
{
    return engine_work_step(g, ENGINE_RELAY, work);
}

int64_t engine_relay_step(struct engine *g)
{
    return engine_lead_step(g, &g->asleep[ENGINE_RELAY], step);
}
