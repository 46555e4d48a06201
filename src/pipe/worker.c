/* The workers: take messages, read a page of the audience, deliver it through
 * the rule's sink.
 *
 * Lanes are served in the order of their table, each behind its breaker and its
 * gate. A message is either acknowledged, with everything it stood for
 * delivered or handed on, or goes to the books; so no unit of an event is ever
 * lost, and the event is done when its last unit is.
 *
 * Spreading one large fan-out: the continuation goes on the bus before the page
 * is delivered, and another worker takes it at once. That is the hopeful way.
 * Where it could do harm the page is delivered first and the unit itself moves
 * on (the careful way, one message at a time):
 *  - where order matters;
 *  - while the event's deliveries fail: hopeful continuations would put as many
 * deliveries on the books as the fan-out has pages; carefully, the first that
 * fails takes all the rest with it;
 *  - for a retry: it is one delivery on the books and knows how far it got. */
#include <stdio.h>

#include "base/log.h"
#include "pipe/retry.h"
#include "pipe/state.h"

enum {
    MESSAGE_WEIGHT = 16,            /* what a message costs at least, in members */
    BOOK_FULL_DELAY_US = 50 * 1000, /* until a message that the books had no room for */
    RECORDS_MAX = WORKER_MESSAGES * 2,
};

/* What one step did, told to the shared counters once at its end. */
struct tally {
    enum lane lane;
    int64_t now_us, now_ms;
    size_t weight;
    uint64_t delivered, repeated, skipped;
    uint32_t failed, succeeded;
    enum err error; /* of the failures: steps are short, and mostly fail for one
                       reason */
    uint64_t failed_keys[WORKER_MESSAGES];
    bool relay; /* it has something to do */
    size_t count, records;
    struct flight_exit exits[WORKER_MESSAGES];
    struct trace_record trace[RECORDS_MAX];
};

static void note(struct tally *t, const struct bus_message *m, enum trace_kind kind, uint64_t n,
                 uint64_t done, const char *why)
{
    if (t->records == RECORDS_MAX)
        return;
    t->trace[t->records++] = (struct trace_record){.event = m->event.id,
                                                   .at_ms = t->now_ms,
                                                   .n = n,
                                                   .done = done,
                                                   .why = why,
                                                   .rule = m->rule,
                                                   .kind = (uint8_t)kind,
                                                   .lane = (uint8_t)m->lane};
}

/* ---- failing ---- */

/* Failed ones on the books. The message's own count also has those that the books had no room for:
 * they cost time, not tries. */
static uint32_t tries_of(struct engine *g, const struct bus_message *m)
{
    return flight_seat(&g->flight, (uint32_t)m->seat)->tries;
}

static void write_failure(struct engine *g, const struct bus_message *m, enum err e,
                          int64_t asked_ms, int64_t now_ms, struct booking *b)
{
    const struct rule *rule = &g->rules[m->rule];
    uint32_t tries = tries_of(g, m) + 1;
    b->kind = BOOK_FAIL;
    b->delivery = is_retry(m->kind) ? m->owner : 0;
    b->event = m->event;
    b->consumer = rule->consumer;
    b->lane = rule->lane;
    b->order_key = lane_is_ordered(rule->lane) ? m->event.actor : 0;
    b->cursor = m->cursor;
    b->until = m->until;
    b->replay = m->replay;
    b->tries = (uint16_t)tries;
    b->reason = err_name(e);
    snprintf(b->detail, sizeof b->detail, "%s", err_title(e));
    b->state = DELIVERY_DELAYED;
    b->due_ms = now_ms + retry_delay_ms(tries - 1, m->event.id ^ m->cursor.after, asked_ms);
    if (err_class(e) == ERR_CLASS_RECONCILE)
        b->state = DELIVERY_DEAD;
    else if (tries > retry_limit(rule->priority))
        b->state = rule->priority == PRIORITY_LOW ? DELIVERY_DROPPED : DELIVERY_DEAD;
}

static void fail(struct engine *g, struct tally *t, const struct bus_message *m, enum err e,
                 int64_t asked_ms)
{
    t->failed_keys[t->failed++] = m->event.actor;
    t->error = e;
    atomic_store(&flight_seat(&g->flight, (uint32_t)m->seat)->unwell, true);
    note(t, m, TRACE_FAILED, tries_of(g, m) + 1, 0, err_name(e));
    if (engine_may_log(&g->lanes[m->lane].log_after_us, t->now_us))
        log_warn("a delivery failed", LOG_CSTR("lane", lane_name(t->lane)),
                 LOG_CSTR("consumer", g->rules[m->rule].consumer), LOG_ID("event", m->event.id),
                 LOG_INT("tries", tries_of(g, m) + 1), LOG_CSTR("error", err_name(e)));
    struct book_entry entry = {.message = *m, .on_bus = true, .leaves = true};
    write_failure(g, m, e, asked_ms, t->now_ms, &entry.booking);
    /* What may have happened is not done once more for want of room. */
    if (book_add(&g->book, &entry, err_class(e) == ERR_CLASS_RECONCILE)) {
        flight_fail(&g->flight, m);
        engine_wake_up(g, ENGINE_BOOKS);
    } else {
        flight_put_down(&g->flight, m);
        bus_retry(g->bus, m, t->now_us + BOOK_FULL_DELAY_US);
    }
}

/* ---- succeeding ---- */

static void succeed(struct engine *g, struct tally *t, const struct bus_message *m,
                    const struct flight_totals *add, bool at_end)
{
    bus_ack(g->bus, m);
    struct flight_exit *x = &t->exits[t->count++];
    *x = exit_of(m, EXIT_DONE);
    x->add = *add;
    x->at_end = at_end;
}

/* Publishes what is out in the flight already. The relay does it later when the
 * bus cannot now. */
static void publish_out(struct engine *g, struct tally *t, const struct bus_message *m)
{
    if (bus_publish_rest(g->bus, m) == OK) {
        engine_wake_up(g, ENGINE_WORKERS);
        return;
    }
    flight_give_back(&g->flight, m);
    t->relay = true;
}

static struct bus_message rest_of(const struct bus_message *m, const struct audience_cursor *cursor)
{
    struct bus_message rest = *m;
    rest.cursor = *cursor;
    rest.cursor.end = false;
    return rest;
}

/* The hopeful way: the continuation first, unless somebody went on there
 * already. */
static void hand_on(struct engine *g, struct tally *t, const struct bus_message *m,
                    const struct audience_cursor *cursor)
{
    struct bus_message rest = rest_of(m, cursor);
    if (flight_add(&g->flight, m, &rest.cursor, t->now_us))
        publish_out(g, t, &rest);
}

static void checkpoint(struct engine *g, const struct bus_message *m, uint64_t members)
{
    struct book_entry entry = {.booking = {.kind = BOOK_MOVE,
                                           .delivery = m->owner,
                                           .event = m->event,
                                           .consumer = g->rules[m->rule].consumer,
                                           .lane = g->rules[m->rule].lane,
                                           .cursor = m->cursor,
                                           .until = m->until,
                                           .members = (size_t)members}};
    if (book_add(&g->book, &entry, false))
        engine_wake_up(g, ENGINE_BOOKS);
}

/* The careful way: the page is delivered, the unit moves on. */
static void move_on(struct engine *g, struct tally *t, const struct bus_message *m,
                    const struct audience_cursor *cursor, const struct flight_totals *add)
{
    struct bus_message rest = rest_of(m, cursor);
    if (flight_move(&g->flight, m, &rest.cursor, add, t->now_us)) {
        if (is_retry(m->kind))
            checkpoint(g, &rest, add->members);
        publish_out(g, t, &rest);
    }
    bus_ack(g->bus, m);
}

static bool must_be_careful(struct engine *g, const struct bus_message *m)
{
    return lane_is_ordered(g->rules[m->rule].lane) || is_retry(m->kind) || m->until ||
           atomic_load_explicit(&flight_seat(&g->flight, (uint32_t)m->seat)->unwell,
                                memory_order_relaxed);
}

static void split(struct engine *g, struct tally *t, const struct bus_message *m)
{
    note(t, m, TRACE_SPLIT, 0, 0, NULL);
    flight_split(&g->flight, m, t->now_ms - g->config.active_within_ms, t->now_ms);
    bus_ack(g->bus, m);
    t->relay = true;
}

/* ---- one message ---- */

static void note_delivery(struct tally *t, const struct bus_message *m, size_t n,
                          const struct act *a)
{
    t->delivered += a->result.delivered;
    t->repeated += a->result.repeated + a->duplicates;
    t->skipped += a->result.skipped;
    note(t, m, TRACE_BATCH, n, a->result.delivered, NULL);
    if (a->result.skipped)
        note(t, m, TRACE_SKIPPED, a->result.skipped, 0, a->result.skipped_as);
    if (a->duplicates)
        note(t, m, TRACE_DUPLICATE, a->duplicates, 0, "its inbox knows it");
}

static void deliver_page(struct engine *g, struct tally *t, struct bus_message *m,
                         const struct audience_cursor *cursor, const uint64_t *members, size_t n)
{
    bool to_followers = g->rules[m->rule].audience == TO_FOLLOWERS;
    t->weight += to_followers ? n : WORKER_MEMBERS;
    bool last = audience_is_last(m, cursor);
    bool ahead = !last && !must_be_careful(g, m);
    if (ahead)
        hand_on(g, t, m, cursor);
    struct act a;
    enum err e = act(g, m, members, n, &a);
    if (e) {
        if (ahead)
            m->until = cursor->after;
        fail(g, t, m, e, a.result.retry_after_ms);
        return;
    }
    t->succeeded++;
    note_delivery(t, m, n, &a);
    atomic_bool *unwell = &flight_seat(&g->flight, (uint32_t)m->seat)->unwell;
    if (atomic_load_explicit(unwell, memory_order_relaxed))
        atomic_store(unwell, false);
    struct flight_totals add = {.members = to_followers ? n : 0,
                                .delivered = a.result.delivered,
                                .repeated = a.result.repeated,
                                .skipped = a.result.skipped,
                                .duplicates = a.duplicates};
    if (!to_followers && a.result.again) {
        if (flight_move(&g->flight, m, &m->cursor, &add, t->now_us))
            publish_out(g, t, m); /* the same unit, once more */
        bus_ack(g->bus, m);
    } else if (!last && !ahead) {
        move_on(g, t, m, cursor, &add);
    } else {
        succeed(g, t, m, &add, last);
    }
}

static void work_message(struct engine *g, struct tally *t, struct bus_message *m)
{
    uint64_t members[ENGINE_BATCH_MAX];
    struct audience_cursor cursor;
    size_t n;
    t->weight += MESSAGE_WEIGHT;
    if (!g->bus->exact && !flight_take_up(&g->flight, m)) {
        atomic_fetch_add(&g->bus_duplicates, 1);
        note(t, m, TRACE_DUPLICATE, 1, 0, "the bus brought it twice");
        bus_ack(g->bus, m);
        return;
    }
    if (m->replay && !replays_allow(g->replays, m->replay, &g->rules[m->rule])) {
        note(t, m, TRACE_SUPPRESSED, 1, 0, "the replay may not use this channel");
        succeed(g, t, m, &(struct flight_totals){.suppressed = 1}, true);
        return;
    }
    enum err e = audience_page(g, m, &cursor, members, &n);
    if (e)
        fail(g, t, m, e, 0);
    else if (audience_is_large(g, m, &cursor))
        split(g, t, m);
    else
        deliver_page(g, t, m, &cursor, members, n);
}

/* ---- the end of a step ---- */

static void count_for_breaker(struct engine *g, struct tally *t)
{
    struct breaker *b = &g->lanes[t->lane].breaker;
    bool changed = false;
    if (t->succeeded)
        changed |= breaker_count(b, OK, t->succeeded, t->now_us, t->now_ms);
    for (uint32_t i = 0; i < t->failed; i++)
        changed |= breaker_fail(b, t->error, t->failed_keys[i], t->now_us, t->now_ms);
    if (!changed)
        return;
    struct breaker_look look;
    breaker_look(b, &look);
    if (look.state == BREAKER_OPEN)
        log_error("most deliveries of a lane fail for one reason; the lane is stopped",
                  LOG_CSTR("lane", lane_name(t->lane)), LOG_CSTR("reason", err_name(look.reason)),
                  LOG_INT("failed", look.failed), LOG_INT("of", look.total));
    else
        log_info("a stopped lane goes on", LOG_CSTR("lane", lane_name(t->lane)));
    engine_wake_up(g, ENGINE_WORKERS);
}

static void tell(struct engine *g, struct tally *t)
{
    struct engine_lane *lane = &g->lanes[t->lane];
    if (t->delivered)
        atomic_fetch_add_explicit(&lane->delivered, t->delivered, memory_order_relaxed);
    if (t->repeated)
        atomic_fetch_add_explicit(&lane->repeated, t->repeated, memory_order_relaxed);
    if (t->skipped)
        atomic_fetch_add_explicit(&lane->skipped, t->skipped, memory_order_relaxed);
    if (t->failed)
        atomic_fetch_add_explicit(&lane->failed, t->failed, memory_order_relaxed);
    count_for_breaker(g, t);
    if (t->count && flight_leave(&g->flight, t->exits, t->count))
        t->relay = true;
    for (size_t i = 0; i < t->count; i++) {
        const struct flight_exit *x = &t->exits[i];
        if (!x->finished)
            continue;
        if (t->records < RECORDS_MAX)
            t->trace[t->records++] = (struct trace_record){.event = x->event.id,
                                                           .at_ms = t->now_ms,
                                                           .n = x->totals.members,
                                                           .done = x->totals.delivered,
                                                           .rule = RULE_NONE,
                                                           .kind = TRACE_DONE,
                                                           .lane = (uint8_t)t->lane};
        engine_finished(g, x, t->now_us);
    }
    if (t->records)
        trace_add(&g->trace, t->trace, t->records);
    if (t->relay)
        engine_wake_up(g, ENGINE_RELAY);
}

/* ---- the step ---- */

/* Works on the lane's next few messages; false when it has none that may be
 * worked on now. */
static bool work_lane(struct engine *g, enum lane lane, int64_t now_us, int64_t *due_us)
{
    /* A network may bring what is done already: it must be taken, or it fills the lane. */
    if (g->bus->exact && atomic_load(&g->flight.lane_units[lane]) == 0)
        return false;
    struct lane_gate *gate = &g->lanes[lane].gate;
    struct breaker *breaker = &g->lanes[lane].breaker;
    bool probe = false;
    if (!breaker_admits(breaker, now_us, &probe, due_us))
        return false;
    uint32_t granted = lane_gate_enter(gate, now_us, probe ? 1 : WORKER_MESSAGES, due_us);
    struct tally t; /* not zeroed as a whole: most of it is room for exits and records */
    t.lane = lane;
    t.now_us = now_us;
    t.now_ms = clock_wall_ms(g->env.clock);
    t.weight = t.count = t.records = 0;
    t.delivered = t.repeated = t.skipped = 0;
    t.failed = t.succeeded = 0;
    t.error = OK;
    t.relay = false;
    struct bus_message m;
    uint32_t used = 0;
    while (used < granted && t.weight < WORKER_MEMBERS &&
           bus_take(g->bus, (uint16_t)lane, now_us, &m)) {
        used++;
        work_message(g, &t, &m);
    }
    if (used)
        tell(g, &t);
    if (probe && t.failed + t.succeeded == 0)
        breaker_unused(breaker);
    bool was_full = granted && lane_gate_leave(gate, granted - used);
    if (used) {
        if (was_full) /* somebody may have been turned away at the gate */
            engine_wake_up(g, ENGINE_WORKERS);
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
        if (!engine_lane_is_braked(g, (enum lane)lane) &&
            work_lane(g, (enum lane)lane, now_us, due_us))
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
    atomic_store(&g->asleep[ENGINE_WORKERS], true);
    return work(g, now_us, &due_us) ? now_us : due_us;
}
