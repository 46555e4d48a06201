/* Applying outcomes.
 *
 * Everything here is the leader's: it has the inflight set that knows which work items there are,
 * and the delivery store. An outcome of a work item that is not running any more changes nothing:
 * another worker has reported on it, or its event has ended. */
#include "pipe/outcome.h"

#include <stdio.h>

#include "pipe/retry.h"

enum { REPORTS_A_STEP = 256 };

void outcomes_begin(struct outcomes *o, enum lane lane, int64_t now_us, int64_t now_ms)
{
    /* Not zeroed as a whole: most of it is room for exits and records. */
    o->lane = lane;
    o->now_us = now_us;
    o->now_ms = now_ms;
    o->delivered = o->repeated = o->skipped = o->failed = 0;
    o->relay = o->told = false;
    o->count = o->records = 0;
}

void outcome_note(struct outcomes *o, const struct bus_message *m, enum trace_kind kind, uint64_t n,
                  uint64_t done, const char *why)
{
    if (o->records == OUTCOME_RECORDS)
        return;
    o->trace[o->records++] = (struct trace_record){.event = m->event.id,
                                                   .at_ms = o->now_ms,
                                                   .n = n,
                                                   .done = done,
                                                   .why = why,
                                                   .rule = m->rule,
                                                   .kind = (uint8_t)kind,
                                                   .lane = (uint8_t)m->lane};
}

bool outcome_allows(struct engine *g, const struct bus_message *m)
{
    return !m->replay || replays_allow(g->replays, m->replay, &g->rules[m->rule]);
}

/* ---- failing ---- */

/* Reports carry no text: the log of the node that failed has it. */
static void write_detail(const struct bus_report *r, const char *cause, char *out, size_t size)
{
    const char *title = err_title((enum err)r->error);
    if (cause && cause[0])
        snprintf(out, size, "%s: %s", title, cause);
    else if (r->node)
        snprintf(out, size, "%s: on node %u, whose log has the cause", title, (unsigned)r->node);
    else
        snprintf(out, size, "%s", title);
}

static struct delivery_record failure_of(struct engine *g, const struct bus_message *m,
                                         const struct bus_report *r, const char *cause,
                                         uint32_t tries, int64_t now_ms)
{
    const struct rule *rule = &g->rules[m->rule];
    enum err e = (enum err)r->error;
    struct delivery_record b = record_of(g, m, RECORD_FAIL);
    b.tries = (uint16_t)tries;
    b.reason = err_name(e);
    write_detail(r, cause, b.detail, sizeof b.detail);
    b.state = DELIVERY_DELAYED;
    b.due_ms = now_ms + retry_delay_ms(tries - 1, m->event.id ^ m->cursor.after, r->asked_ms);
    if (err_class(e) == ERR_CLASS_RECONCILE)
        b.state = DELIVERY_DEAD;
    else if (tries > retry_limit(rule->priority))
        b.state = rule->priority == PRIORITY_LOW ? DELIVERY_DROPPED : DELIVERY_DEAD;
    return b;
}

static void log_ended(const struct delivery_record *b)
{
    log_error("a delivery used up its tries", LOG_CSTR("consumer", b->consumer),
              LOG_ID("event", b->event.id), LOG_CSTR("state", delivery_state_name(b->state)),
              LOG_INT("tries", b->tries), LOG_CSTR("error", b->reason),
              LOG_CSTR("cause", b->detail));
}

static enum outcome_end fail(struct engine *g, struct outcomes *o, const struct bus_message *m,
                             const struct bus_report *r, const char *cause, bool on_bus)
{
    struct inflight_failure failure;
    if (!inflight_fail(&g->inflight, m, &failure))
        return OUTCOME_TOLD;
    /* The message's own count also has failures that the delivery store had no room for: they cost
     * time, not tries. */
    uint32_t tries = failure.tries + 1;
    struct recorder_entry entry = {.message = *m, .on_bus = on_bus, .leaves = true};
    entry.message.until = failure.until;
    entry.in_views = is_retry(m->kind) && g->rules[m->rule].effect == EFFECT_VIEWS && failure.moved;
    entry.delivery_record = failure_of(g, &entry.message, r, cause, tries, o->now_ms);
    o->failed++;
    freshness_failed(g->freshness, m->rule, (enum lane)m->lane);
    outcome_note(o, m, TRACE_FAILED, tries, 0, err_name((enum err)r->error));
    /* What may have happened is not done once more for want of room. */
    if (!recorder_add(&g->recorder, &entry, err_class((enum err)r->error) == ERR_CLASS_RECONCILE)) {
        inflight_unfail(&g->inflight, m);
        return OUTCOME_NO_ROOM;
    }
    if (entry.delivery_record.state == DELIVERY_DEAD)
        log_ended(&entry.delivery_record);
    engine_wake_up(g, ENGINE_RECORDER);
    return OUTCOME_RECORDED;
}

/* ---- succeeding ---- */

/* Those of the rest who have it already came back since the walk began: the walk over the active
 * met them (port/graph.h). */
static uint32_t members_of(const struct bus_message *m, const struct bus_report *r)
{
    bool again = m->cursor.part == AUDIENCE_REST && r->repeated <= r->members;
    return again ? r->members - r->repeated : r->members;
}

static struct inflight_totals totals_of(const struct bus_message *m, const struct bus_report *r)
{
    return (struct inflight_totals){.members = members_of(m, r),
                                    .delivered = r->delivered,
                                    .repeated = r->repeated,
                                    .skipped = r->skipped,
                                    .duplicates = r->duplicates,
                                    .suppressed = r->suppressed};
}

static void leave(struct outcomes *o, const struct bus_message *m, const struct bus_report *r)
{
    struct inflight_exit *x = &o->exits[o->count++];
    *x = exit_of(m, EXIT_DONE);
    x->add = totals_of(m, r);
    x->at_end = r->at_end;
    x->if_running = true;
}

/* Publishes what is out in the inflight set already. The relay does it later when the bus cannot
 * now, or when all nodes together have a limit. */
static void publish_out(struct engine *g, struct outcomes *o, const struct bus_message *m)
{
    bool may = !g->config.shared || (outcome_allows(g, m) && !relay_limits(g, (enum lane)m->lane));
    if (may && bus_publish_rest(g->bus, m) == OK) {
        engine_wake_lane(g, (enum lane)m->lane);
        return;
    }
    inflight_give_back(&g->inflight, m);
    o->relay = true;
}

static struct bus_message rest_of(const struct bus_message *m, uint64_t next)
{
    struct bus_message rest = *m;
    rest.cursor.after = next;
    rest.cursor.end = false;
    return rest;
}

/* The optimistic way: the continuation first, unless another worker has continued there already. */
static void hand_on(struct engine *g, struct outcomes *o, const struct bus_message *m,
                    const struct bus_report *r)
{
    struct bus_message rest = rest_of(m, r->next);
    if (r->members)
        inflight_expect(&g->inflight, m, r->members);
    if (inflight_hand_on(&g->inflight, m, &rest.cursor, o->now_us))
        publish_out(g, o, &rest);
}

static void checkpoint(struct engine *g, const struct bus_message *m, uint64_t members)
{
    struct recorder_entry entry = {.delivery_record = record_of(g, m, RECORD_MOVE),
                                   .in_views = g->rules[m->rule].effect == EFFECT_VIEWS};
    entry.delivery_record.members = (size_t)members;
    if (recorder_add(&g->recorder, &entry, false))
        engine_wake_up(g, ENGINE_RECORDER);
}

/* The careful way: the page is delivered, the work item moves on. */
static void move_on(struct engine *g, struct outcomes *o, const struct bus_message *m,
                    const struct bus_report *r)
{
    struct bus_message rest = rest_of(m, r->next);
    struct inflight_totals add = totals_of(m, r);
    if (!inflight_move(&g->inflight, m, &rest.cursor, &add, o->now_us))
        return;
    if (is_retry(m->kind))
        checkpoint(g, &rest, add.members);
    publish_out(g, o, &rest);
}

/* The same work item, once more. */
static void once_more(struct engine *g, struct outcomes *o, const struct bus_message *m,
                      const struct bus_report *r)
{
    struct inflight_totals add = totals_of(m, r);
    if (inflight_move(&g->inflight, m, &m->cursor, &add, o->now_us))
        publish_out(g, o, m);
}

/* Its page is delivered, and its walk should go on elsewhere. */
static void leave_rest(struct engine *g, struct outcomes *o, const struct bus_message *m,
                       const struct bus_report *r)
{
    struct bus_message rest = rest_of(m, r->next);
    struct inflight_totals add = totals_of(m, r);
    if (!inflight_go_on(&g->inflight, m, &rest.cursor, &add, o->now_us)) {
        leave(o, m, r);
        return;
    }
    rest.until = inflight_until(&g->inflight, &rest);
    publish_out(g, o, &rest);
}

static void split(struct engine *g, struct outcomes *o, const struct bus_message *m,
                  const struct bus_report *r)
{
    uint32_t active = r->delivered < r->members ? r->delivered : r->members;
    /* `skipped`: the whole audience. */
    const struct inflight_parts parts = {.audience = r->skipped,
                                         .active_since_ms = o->now_ms - g->config.active_within_ms,
                                         .started_ms = o->now_ms,
                                         .active = active,
                                         .rest = r->members - active};
    outcome_note(o, m, TRACE_SPLIT, r->members, 0, NULL);
    inflight_split(&g->inflight, m, &parts);
    o->relay = true;
}

static void count(struct engine *g, struct outcomes *o, const struct bus_message *m,
                  const struct bus_report *r, const char *skipped_as)
{
    bool walks = rule_walks(&g->rules[m->rule]);
    o->delivered += r->delivered;
    o->repeated += r->repeated + r->duplicates;
    o->skipped += r->skipped;
    outcome_note(o, m, TRACE_BATCH, walks ? members_of(m, r) : 1, r->delivered, NULL);
    if (r->skipped)
        outcome_note(o, m, TRACE_SKIPPED, r->skipped, 0, skipped_as);
    if (r->duplicates)
        outcome_note(o, m, TRACE_DUPLICATE, r->duplicates, 0, "dedup knows it");
}

/* ---- one outcome ---- */

enum outcome_end outcome_apply(struct engine *g, struct outcomes *o, const struct bus_message *m,
                               const struct bus_report *r, const char *why, bool on_bus)
{
    bool acted = r->kind == REPORT_DONE || r->kind == REPORT_MOVED || r->kind == REPORT_AGAIN;
    if (acted && !r->suppressed)
        count(g, o, m, r, why);
    switch ((enum report_kind)r->kind) {
    case REPORT_DONE:
        if (r->ahead)
            leave_rest(g, o, m, r);
        else
            leave(o, m, r);
        break;
    case REPORT_AHEAD:
        hand_on(g, o, m, r);
        break;
    case REPORT_MOVED:
        move_on(g, o, m, r);
        break;
    case REPORT_AGAIN:
        once_more(g, o, m, r);
        break;
    case REPORT_SPLIT:
        split(g, o, m, r);
        break;
    case REPORT_FAILED:
        return fail(g, o, m, r, why, on_bus);
    case REPORT_NONE:
        break;
    }
    return OUTCOME_TOLD;
}

/* ---- the end of a step ---- */

static void note_end(struct outcomes *o, const struct inflight_exit *x)
{
    const struct trace_record ended = {.event = x->event.id,
                                       .at_ms = o->now_ms,
                                       .n = x->totals.members,
                                       .done = x->totals.delivered,
                                       .rule = RULE_NONE,
                                       .kind = TRACE_DONE,
                                       .lane = (uint8_t)o->lane};
    if (x->audience > x->totals.members && !x->totals.recorded && o->records < OUTCOME_RECORDS) {
        struct trace_record *left = &o->trace[o->records++];
        *left = ended;
        left->kind = TRACE_SKIPPED;
        left->n = x->audience - x->totals.members;
        left->done = 0;
        left->why = "not here for long: they pull it when they return";
    }
    if (o->records < OUTCOME_RECORDS)
        o->trace[o->records++] = ended;
}

static void count_lane(struct engine *g, struct outcomes *o)
{
    struct lane_work *work = o->told ? &g->lanes[o->lane].told : &g->lanes[o->lane].own;
    if (o->delivered)
        atomic_fetch_add_explicit(&work->delivered, o->delivered, memory_order_relaxed);
    if (o->repeated)
        atomic_fetch_add_explicit(&work->repeated, o->repeated, memory_order_relaxed);
    if (o->skipped)
        atomic_fetch_add_explicit(&work->skipped, o->skipped, memory_order_relaxed);
    if (o->failed)
        atomic_fetch_add_explicit(&work->failed, o->failed, memory_order_relaxed);
}

void outcomes_end(struct engine *g, struct outcomes *o)
{
    count_lane(g, o);
    if (o->count && inflight_leave(&g->inflight, o->exits, o->count))
        o->relay = true;
    for (size_t i = 0; i < o->count; i++) {
        const struct inflight_exit *x = &o->exits[i];
        if (!x->finished)
            continue;
        note_end(o, x);
        engine_finished(g, x, o->now_us);
    }
    if (o->records)
        trace_add(&g->trace, o->trace, o->records);
    if (o->relay)
        engine_wake_up(g, ENGINE_RELAY);
    outcomes_begin(o, o->lane, o->now_us, o->now_ms);
}

/* ---- what other nodes tell ---- */

/* The work item that a report speaks of, as it was published. False: there can be none. Nothing
 * that a peer sends may do more harm than a work item that is done twice. */
static bool item_of(const struct engine *g, const struct bus_message *m, struct bus_message *item)
{
    if (m->rule >= g->rule_count || g->rules[m->rule].on != m->event.type)
        return false;
    const struct rule *rule = &g->rules[m->rule];
    const struct bus_report *r = &m->report;
    bool splits = rule_splits(rule) && m->cursor.part == AUDIENCE_ALL && !is_retry(m->kind);
    if (r->kind == REPORT_NONE || r->kind > REPORT_FAILED || r->error >= ERR_COUNT ||
        (r->kind == REPORT_FAILED && r->error == OK) || (r->kind == REPORT_SPLIT && !splits))
        return false;
    *item = *m;
    item->lane = (uint16_t)inflight_lane_of(rule, m->cursor.part, m->replay);
    item->report = (struct bus_report){0};
    item->tag = 0;
    return true;
}

static void hear_one(struct engine *g, struct outcomes *o, const struct bus_message *m)
{
    struct bus_message item;
    if (m->term != atomic_load(&g->term)) {
        atomic_fetch_add(&g->stale, 1);
    } else if (!item_of(g, m, &item) || !inflight_is_running(&g->inflight, &item)) {
        atomic_fetch_add(&g->reports_unmatched, 1);
    } else {
        o->lane = (enum lane)item.lane;
        o->told = true;
        atomic_fetch_add(&g->reports, 1);
        enum outcome_end end = outcome_apply(g, o, &item, &m->report, NULL, false);
        outcomes_end(g, o); /* at once: the next one may be its copy */
        if (end == OUTCOME_NO_ROOM) {
            bus_retry(g->bus, m, o->now_us + OUTCOME_AGAIN_US);
            return;
        }
    }
    bus_ack(g->bus, m);
}

bool outcome_hear(struct engine *g, int64_t now_us)
{
    struct outcomes o;
    struct bus_message m;
    size_t heard = 0;
    outcomes_begin(&o, (enum lane)0, now_us, clock_wall_ms(g->env.clock));
    for (; heard < REPORTS_A_STEP && bus_take(g->bus, ENGINE_REPORTS, now_us, &m); heard++)
        hear_one(g, &o, &m);
    return heard > 0;
}
