/* The relay: takes committed events in the order of their ids and puts one message for each rule
 * that wants them on the bus.
 *
 * Where events come from. Live ones come through the hand-over queue, filled by the commit hook.
 * When that was full, they are claimed from the outbox table by their state, up to the last id
 * known to be offered (never beyond: a row whose commit hook has not run yet must not be fanned out
 * before the views know of it). What the queue holds at or below `taken` was read from the table
 * already and is passed over. After a start the table is read from the position that the views'
 * saved state covers: pending rows for all their rules, settled ones for the rules whose effect was
 * lost with the views' memory, except where the books have the delivery. And now and then the relay
 * looks for rows that are pending below the saved mark: parked events that were released.
 *
 * All of this rests on one writer that gives ids in commit order: mark.c settles whatever is
 * pending up to the mark, also a row that this relay was never told of.
 *
 * Where many nodes commit (shared), the hand-over queue is not used: nobody is told of what others
 * commit, and it becomes visible in another order than that of its ids. The leader's relay asks the
 * store for its horizon, below which nothing can appear any more, and reads the table up to there:
 * so it meets all events of all nodes once, in the order of their ids, and the mark means what it
 * always meant. Whoever committed an event brings the views up to date with it; it may have died
 * before it did, so the relay does it once more before the event is begun.
 *
 * A backlog does not hold up what is live: events in the queue above the end of what must be read
 * from the table are taken ahead of it, and join the others when the table is read so far. What
 * keeps an order waits for that (flight.h): an earlier event of its key may still be in the table.
 *
 * When a lane is full its units stay owed in the flight, and the other lanes go on. A lane that was
 * full is served again when an eighth of what it held has drained. So a flood of cleanup cannot
 * hold up anybody's post. When no seat is free, what is owed to stopped lanes goes to the books;
 * when there is none of that, the relay stops taking: the events wait in the outbox table. */
#include "base/check.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "pipe/outcome.h"

enum {
    OWED_EVERY_US = 10 * 1000,
    READ_AGAIN_US = 100 * 1000,
    PUBLISH_A_LANE = 4 * RELAY_BATCH, /* units in one step */
    RESEND_A_POLL = 64,
    HOLD_A_STEP = 1024, /* units of a stopped lane put on the books, when every seat is taken */
    ASK_IDLE_US = 25 * 1000, /* for the horizon, when nothing came for IDLE_AFTER_US */
    IDLE_AFTER_US = 1000 * 1000,
};

void relay_init(struct relay *r)
{
    memset(r, 0, sizeof *r);
    r->read_after_us = r->poll_after_us = r->log_after_us = INT64_MIN;
    r->ask_after_us = r->moved_us = INT64_MIN;
    atomic_store(&r->looked_us, INT64_MIN);
}

static void relay_log(struct relay *r, int64_t now_us, const char *message, struct log_field field)
{
    if (now_us < r->log_after_us)
        return;
    r->log_after_us = now_us + LOG_AGAIN_US;
    log_error(message, field);
}

/* ---- which rules ---- */

static void note_unwanted(struct engine *g, const struct event *e, uint16_t rule)
{
    struct relay *r = &g->relay;
    if (r->traced == COUNT_OF(r->trace))
        return;
    r->trace[r->traced++] = (struct trace_record){.event = e->id,
                                                  .at_ms = clock_wall_ms(g->env.clock),
                                                  .why = g->rules[rule].unwanted_as,
                                                  .rule = rule,
                                                  .kind = TRACE_UNWANTED,
                                                  .lane = (uint8_t)g->rules[rule].lane};
}

/* Bit i: the i-th rule on the event's type wants it. */
static uint32_t wanted_by(struct engine *g, const struct event *e)
{
    uint32_t mask = 0;
    for (uint16_t i = 0; i < g->rules_on_count[e->type]; i++) {
        uint16_t index = g->rules_on[e->type][i];
        const struct rule *rule = &g->rules[index];
        if (!rule->wants || rule->wants(e))
            mask |= UINT32_C(1) << i;
        else
            note_unwanted(g, e, index);
    }
    return mask;
}

/* Of an event that is delivered again after a start: what the books have stays
 * with them, and what is settled is repeated only where its effect was lost. A
 * walk over an audience is repeated even when the books have a page of it: the
 * others may be lost. */
static uint32_t wanted_again(struct engine *g, const struct event *e, uint32_t mask,
                             enum outbox_state state, const struct outbox_slice *slice)
{
    for (uint16_t i = 0; i < g->rules_on_count[e->type]; i++) {
        const struct rule *rule = &g->rules[g->rules_on[e->type][i]];
        bool keep = state == OUTBOX_PENDING || rule->effect == EFFECT_VIEWS;
        for (size_t b = 0; keep && b < slice->booked_count; b++) {
            if (slice->booked[b].event == e->id && !rule_walks(rule) &&
                strcmp(slice->booked[b].consumer, rule->consumer) == 0)
                keep = false;
        }
        if (!keep)
            mask &= ~(UINT32_C(1) << i);
    }
    return mask;
}

static bool was_parked(const struct event *e, const struct outbox_slice *slice)
{
    for (size_t b = 0; b < slice->booked_count; b++) {
        if (slice->booked[b].event == e->id && slice->booked[b].consumer[0] == '\0')
            return true;
    }
    return false;
}

/* ---- taking ---- */

/* Notes an event for this step's batch, unless no rule wants it. */
static void consider(struct engine *g, const struct event *e, int64_t started_us, uint32_t mask,
                     bool fresh)
{
    struct relay *r = &g->relay;
    struct flight_start *start = &r->starts[r->count];
    *start =
        (struct flight_start){.event = *e, .started_us = started_us, .owed = mask, .fresh = fresh};
    atomic_fetch_add_explicit(&g->events_taken, 1, memory_order_relaxed);
    if (e->type >= EVENT_TYPE_COUNT) {
        relay_log(r, clock_mono_us(g->env.clock), "an outbox row cannot be read and is parked",
                  LOG_ID("event", e->id));
        start->unreadable = true;
        r->count++;
        return;
    }
    start->rules = g->rules_on[e->type];
    if (e->id <= r->recovered && r->found[e->type] > 0)
        r->found[e->type]--;
    atomic_fetch_add_explicit(&g->taken[e->type], 1, memory_order_relaxed);
    if (mask)
        r->count++;
    else
        atomic_fetch_add_explicit(&g->events_unwanted, 1, memory_order_relaxed);
}

/* When its commit was handed over, for an event that came through the table
 * because the queue was full: its id knows to the millisecond. */
static int64_t started_from_id(struct engine *g, uint64_t id, int64_t now_us)
{
    if (id <= g->relay.recovered)
        return FLIGHT_UNTIMED;
    return now_us - engine_age_ms(g, id) * 1000;
}

static bool may_read(struct relay *r, int64_t now_us, int64_t *due_us)
{
    if (now_us >= r->read_after_us)
        return true;
    *due_us = r->read_after_us < *due_us ? r->read_after_us : *due_us;
    return false;
}

static void read_failed(struct relay *r, enum err e, int64_t now_us, int64_t *due_us)
{
    relay_log(r, now_us, "the outbox cannot be read", LOG_CSTR("error", err_name(e)));
    r->read_after_us = now_us + READ_AGAIN_US;
    *due_us = r->read_after_us < *due_us ? r->read_after_us : *due_us;
}

/* Everything that was there at the start is taken. What was counted and could not be read (it is
 * parked, whatever type it has) is not pending any more. */
static void end_recovery(struct engine *g)
{
    atomic_store_explicit(&g->oldest_found, 0, memory_order_relaxed);
    for (int type = 0; type < EVENT_TYPE_COUNT; type++) {
        atomic_fetch_sub_explicit(&g->offered[type], g->relay.found[type], memory_order_relaxed);
        g->relay.found[type] = 0;
    }
}

/* Shared: the views know of these events before anybody else does. */
static enum err apply_slice(struct engine *g)
{
    const struct outbox_slice *slice = &g->relay.slice;
    struct event readable[OUTBOX_READ_MAX];
    size_t n = 0;
    for (size_t i = 0; i < slice->count; i++) {
        if (slice->events[i].type < EVENT_TYPE_COUNT)
            readable[n++] = slice->events[i];
    }
    return g->config.shared && g->apply && n ? g->apply(g->apply_ctx, readable, n) : OK;
}

static enum err read_table(struct engine *g, bool again, uint64_t through, size_t max)
{
    struct relay *r = &g->relay;
    if (!again)
        return outbox_read_pending(g->env.db, r->taken, through, max, &r->slice);
    if (g->config.shared) /* views that outlive the process have what is settled */
        return outbox_read_found(g->env.db, r->taken, through, max, &r->slice);
    return outbox_read_again(g->env.db, r->taken, through, max, &r->slice);
}

/* What was read up to the horizon is all there is for now. */
static void note_look(struct engine *g, int64_t now_us)
{
    struct relay *r = &g->relay;
    bool found = r->slice.count > 0;
    if (found) {
        r->moved_us = now_us;
        atomic_store(&r->last_event, r->slice.events[r->slice.count - 1].id);
    }
    bool all = r->taken >= atomic_load(&r->horizon) && r->taken >= r->recovered;
    atomic_store(&r->looked_us, found || !all ? INT64_MIN : now_us);
    for (int type = 0; all && type < EVENT_TYPE_COUNT; type++)
        atomic_store_explicit(&g->offered[type], atomic_load(&g->taken[type]),
                              memory_order_relaxed);
}

/* Rows up to `recovered` are read again as a whole, those above by their state.
 */
static bool take_from_table(struct engine *g, uint64_t through, size_t max, int64_t now_us,
                            int64_t *due_us)
{
    struct relay *r = &g->relay;
    if (!may_read(r, now_us, due_us))
        return false;
    bool again = r->taken < r->recovered;
    if (again && (!g->config.shared || r->recovered < through))
        through = r->recovered;
    max = max < OUTBOX_READ_MAX ? max : OUTBOX_READ_MAX;
    enum err e = read_table(g, again, through, max);
    if (!e)
        e = apply_slice(g);
    if (e) {
        read_failed(r, e, now_us, due_us);
        return false;
    }
    for (size_t i = 0; i < r->slice.count; i++) {
        const struct event *event = &r->slice.events[i];
        uint32_t mask = event->type < EVENT_TYPE_COUNT ? wanted_by(g, event) : 0;
        if (again && mask)
            mask = wanted_again(g, event, mask, r->slice.states[i], &r->slice);
        if (again && r->slice.states[i] == OUTBOX_PENDING && was_parked(event, &r->slice))
            mask = 0; /* released: found below the mark, and delivered aside */
        bool fresh = g->config.shared && event->id > r->recovered;
        consider(g, event, started_from_id(g, event->id, now_us), mask, fresh);
        r->taken = event->id;
    }
    if (r->slice.count < max)
        r->taken = through; /* a short slice was the last one */
    if (g->config.shared)
        note_look(g, now_us);
    hand_over_read(&g->hand_over, r->taken);
    if (r->taken >= r->recovered)
        end_recovery(g);
    return true;
}

/* Up to where the table must be read before the queue may be trusted to be without gaps. */
static uint64_t table_end(struct engine *g)
{
    const struct relay *r = &g->relay;
    uint64_t missed = atomic_load(&g->hand_over.missed);
    return r->ahead ? r->ahead_after : missed > r->recovered ? missed : r->recovered;
}

/* Takes at most `max` events; true when it got any further. */
static bool take(struct engine *g, size_t max, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    size_t waiting = hand_over_waiting(&g->hand_over);
    uint64_t table_through = table_end(g); /* after `waiting`: see hand_over.h */
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
        consider(g, &h->event, h->at_us, wanted_by(g, &h->event), true);
        r->taken = h->event.id;
    }
    if (popped)
        hand_over_pop(&g->hand_over, popped);
    return further || popped;
}

/* Shared: asks for the horizon when it is time to. False: there is nothing new below it. */
static bool ask_horizon(struct engine *g, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    uint64_t horizon = 0;
    if (now_us < r->ask_after_us) {
        *due_us = r->ask_after_us < *due_us ? r->ask_after_us : *due_us;
        return false;
    }
    enum err e = db_horizon(g->env.db, &horizon);
    if (e) {
        read_failed(r, e, now_us, due_us);
        return false;
    }
    int64_t every_us = g->config.horizon_every_ms * 1000;
    bool idle = now_us - IDLE_AFTER_US > r->moved_us;
    r->ask_after_us = now_us + (idle && every_us < ASK_IDLE_US ? ASK_IDLE_US : every_us);
    *due_us = r->ask_after_us < *due_us ? r->ask_after_us : *due_us;
    horizon = horizon < INT64_MAX ? horizon : INT64_MAX;
    if (horizon > atomic_load(&r->horizon))
        atomic_store(&r->horizon, horizon);
    return atomic_load(&r->horizon) > r->taken;
}

/* The rows are read after the horizon was: whatever lies below it is among them. */
static bool take_shared(struct engine *g, size_t max, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    if (!may_read(r, now_us, due_us))
        return false;
    if (r->taken >= atomic_load(&r->horizon) && !ask_horizon(g, now_us, due_us))
        return false;
    return take_from_table(g, atomic_load(&r->horizon), max, now_us, due_us);
}

static void note_published(struct engine *g)
{
    struct relay *r = &g->relay;
    int64_t now_ms = clock_wall_ms(g->env.clock);
    for (size_t i = 0; i < r->count && r->traced < COUNT_OF(r->trace); i++)
        r->trace[r->traced++] =
            (struct trace_record){.event = r->starts[i].event.id,
                                  .at_ms = now_ms,
                                  .n = (uint64_t)__builtin_popcount(r->starts[i].owed),
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
    size_t waiting = hand_over_waiting(&g->hand_over);
    uint64_t end = table_end(g);
    if (waiting == 0 || r->taken >= end || (r->ahead && atomic_load(&g->hand_over.missed) > end))
        return false;
    size_t room = flight_room_ahead(&g->flight), popped = 0;
    uint64_t last = r->ahead;
    r->count = r->traced = 0;
    for (; popped < waiting && r->count < RELAY_BATCH && r->count < room; popped++) {
        const struct handed_over *h = hand_over_at(&g->hand_over, popped);
        if (h->event.id <= end)
            continue; /* the table has it */
        consider(g, &h->event, h->at_us, wanted_by(g, &h->event), true);
        last = h->event.id;
    }
    if (popped)
        hand_over_pop(&g->hand_over, popped);
    if (last != r->ahead) {
        flight_begin_ahead(&g->flight, r->starts, r->count, end, last);
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
    flight_join(&g->flight);
    r->taken = r->ahead;
    r->ahead = 0;
    hand_over_read(&g->hand_over, r->taken);
}

/* Every seat is taken. A lane that stands still must not stand in the way of the others: what is
 * owed to it goes to the books, where it takes no seat. */
static bool make_room(struct engine *g)
{
    size_t held = 0;
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        if (engine_lane_is_stopped(g, (enum lane)lane) && !lane_is_ordered((enum lane)lane))
            held += flight_hold_owed(&g->flight, (enum lane)lane, HOLD_A_STEP);
    }
    if (held)
        engine_wake_up(g, ENGINE_BOOKS);
    return held > 0;
}

static bool begin_live(struct engine *g, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    size_t room = flight_room(&g->flight);
    r->count = r->traced = 0;
    if (!room && make_room(g))
        return true;
    size_t max = room < RELAY_BATCH ? room : RELAY_BATCH;
    if (!room ||
        !(g->config.shared ? take_shared(g, max, now_us, due_us) : take(g, max, now_us, due_us)))
        return false;
    flight_begin(&g->flight, r->starts, r->count, r->taken);
    tell_begun(g);
    if (r->ahead && r->taken >= r->ahead_after)
        join(g);
    return true;
}

/* ---- polling ---- */

/* Released by a program that could read it, and now it is this one. */
static void park_again(struct engine *g, const struct event *e)
{
    struct book_entry entry = {
        .booking = {.kind = BOOK_PARK,
                    .event = {.id = e->id},
                    .reason = event_unread_name((enum event_unread)e->value)},
        .message = {.rule = RULE_NONE},
        .released = true};
    atomic_fetch_add(&g->released, 1);
    book_add(&g->book, &entry, true);
    engine_wake_up(g, ENGINE_BOOKS);
}

static void begin_released(struct engine *g, const struct event *e)
{
    struct flight_aside aside = {.kind = SEAT_RELEASED, .event = *e};
    if (e->type >= EVENT_TYPE_COUNT) {
        park_again(g, e);
        return;
    }
    aside.owed = wanted_again(g, e, wanted_by(g, e), OUTBOX_PENDING, &g->relay.slice);
    aside.rules = g->rules_on[e->type];
    atomic_fetch_add(&g->released, 1);
    if (aside.owed && flight_begin_aside(&g->flight, &aside) == ASIDE_BEGUN)
        return;
    struct book_entry settle = {.booking = {.kind = BOOK_SETTLE, .event = *e}, .released = true};
    if (!aside.owed) {
        book_add(&g->book, &settle, true);
        engine_wake_up(g, ENGINE_BOOKS);
    } else {
        atomic_fetch_sub(&g->released, 1);
    }
}

/* Pending rows at or below the mark: released, or never told of. The next ones
 * when these are settled. */
static bool poll_table(struct engine *g, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    if (atomic_load(&g->released) > 0 || !may_read(r, now_us, due_us))
        return false;
    r->traced = 0;
    enum err e = outbox_read_below(g->env.db, atomic_load(&g->mark.saved), &r->slice);
    if (!e)
        e = apply_slice(g);
    if (e) {
        read_failed(r, e, now_us, due_us);
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
    size_t n = flight_take_overdue(&g->flight, now_us - g->config.resend_after_ms * 1000, now_us,
                                   overdue, RESEND_A_POLL);
    for (size_t i = 0; i < n; i++) {
        if (g->config.shared && suppress(g, &overdue[i], now_us))
            continue;
        /* Within the limit: a lane that does not drain must not grow by this. */
        if (bus_publish(g->bus, &overdue[i]) == OK)
            atomic_fetch_add(&g->resent, 1);
    }
    if (n)
        engine_wake_up(g, ENGINE_WORKERS);
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
    *due_us = r->poll_after_us < *due_us ? r->poll_after_us : *due_us;
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
    return g->config.shared && (atomic_load(&g->paused) || engine_lane_is_braked(g, lane) ||
                                atomic_load(&g->lanes[lane].breaker.state) == BREAKER_BY_HAND);
}

/* Publishes what is owed to the lane, until it is full. True when something was
 * published. */
static bool serve_lane(struct engine *g, enum lane lane, int64_t now_us, int64_t *due_us)
{
    uint64_t *held = &g->relay.lane_held[lane];
    struct bus_message m;
    int published = 0;
    if (lane_rests(g, lane))
        return false;
    if (*held && lane_holds(g, lane) > *held - *held / 8) {
        *due_us = now_us + OWED_EVERY_US < *due_us ? now_us + OWED_EVERY_US : *due_us;
        return false;
    }
    *held = 0;
    while (published < PUBLISH_A_LANE && flight_take_owed(&g->flight, lane, now_us, &m)) {
        FAULT(relay_before_publish);
        if (g->config.shared && suppress(g, &m, now_us)) {
            published++;
            continue;
        }
        if (bus_publish(g->bus, &m)) {
            flight_give_back(&g->flight, &m);
            uint64_t holds = lane_holds(g, lane);
            *held = holds ? holds : 1;
            *due_us = now_us + OWED_EVERY_US < *due_us ? now_us + OWED_EVERY_US : *due_us;
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
    for (int lane = 0; lane < LANE_COUNT; lane++)
        published |= serve_lane(g, (enum lane)lane, now_us, due_us);
    return published;
}

/* ---- the step ---- */

static bool work(struct engine *g, int64_t now_us, int64_t *due_us)
{
    bool worked = g->config.shared && outcome_hear(g, now_us);
    worked |= poll(g, now_us, due_us);
    worked |= !g->config.shared && begin_ahead(g);
    worked |= begin_live(g, now_us, due_us);
    if (serve_lanes(g, now_us, due_us)) {
        engine_wake_up(g, ENGINE_WORKERS);
        worked = true;
    }
    if (worked && flight_holds(&g->flight))
        engine_wake_up(g, ENGINE_BOOKS);
    return worked;
}

/* Going to sleep: says so first and then looks once more. Whoever brings news
 * after that look sees the flag and wakes us. */
static int64_t step(struct engine *g)
{
    int64_t now_us = clock_mono_us(g->env.clock);
    int64_t due_us = INT64_MAX;
    if (work(g, now_us, &due_us))
        return now_us;
    atomic_store(&g->asleep[ENGINE_RELAY], true);
    due_us = INT64_MAX;
    return work(g, now_us, &due_us) ? now_us : due_us;
}

int64_t engine_relay_step(struct engine *g)
{
    int64_t due_us;
    if (!engine_enter_leading(g, &due_us)) {
        atomic_store(&g->asleep[ENGINE_RELAY], true);
        return due_us;
    }
    due_us = step(g);
    engine_exit(g);
    return due_us;
}
